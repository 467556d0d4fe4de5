"""Claims on files, against their deletion (hazard G3): on the primary database, which both sides must reach.

Promise: while a run's lease lasts, no file that it has claimed enters deletion. A file that has entered it can be
claimed again only when its executor has said that it is done.

Invariants:

    1  Whoever claims files of a region, and whoever begins to delete some, first locks the region's row. So one of
       two that want the same file comes first, and the other sees it.
    2  Time is the database's, and is read after the lock. An executor judges a lease only with the run's row locked:
       a renewal that is on its way is waited for.
    3  A run that has lapsed stays lapsed. It is never renewed, because what it claimed may have been deleted since.
    4  A lower fence than the region's highest ends an attempt: it can neither claim nor hold.
    5  The mark of a deletion has no end of its own: a request to delete may arrive late. Another executor may take it
       over once its lease is over, and then deletes the file, too.

Commit points: the transaction of each call. What a crash after each step leaves behind:

    claim           files that nobody deletes until the lease of the run is over
    begin_delete    files that nobody claims, until an executor comes by, deletes them (again) and says so
    delete bytes    the same
    end_delete      nothing

For sync: claim everything that the run needs, before it is verified; `hold` it for the time of the promotion, and do
not promote later than that. For reclaim: `begin_delete`, then see once more that no head refers to the file (what was
promoted before the mark is seen then, and whoever claims later sees the mark), then delete, then `end_delete`. The
lease, counted by one's own clock from before the call, outlasts every request that may still be on its way; a file
whose time is up stays marked, for the next executor. When the database does not answer, nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

from sqlalchemy.engine import Connection

from headwater.database import Database, Isolation, migrate
from headwater.kernel.errors import ConflictError, OutcomeUnknownError, UnavailableError, UsageError
from headwater.kernel.ids import Ulid, parse_ulid
from headwater.regions.claims import decide, rows
from headwater.regions.claims.model import (
    Claimed,
    ClaimRun,
    DeleteVerdict,
    Deletion,
    Opened,
    OpenVerdict,
    RunVerdict,
)
from headwater.regions.errors import RunEndedError
from headwater.regions.uris import canonical

MIGRATIONS = Path(__file__).parents[1] / "migrations"
# So many files in one transaction: others wait that long, and no longer.
BATCH = 2_000


class Claims:
    """Claims and deletions of a lake's files. Safe to share among threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        migrate(database, "regions", MIGRATIONS)

    def open(self, run: Ulid, region: str, *, fence: int, lease_seconds: float) -> Opened:
        """Begin a run in a region, or go on with it after a crash; `fence` is that of the lease on the region's sync.

        Lapsed runs of the region are cleared away. `RunEndedError`: a later attempt has begun.
        """
        parse_ulid(run)
        with self._writing() as connection:
            highest = rows.lock_place(connection, region)
            found = rows.lock_run(connection, run)
            now = self._database.now(connection)
            verdict = decide.open_verdict(found, region, fence, highest, now)
            if verdict is OpenVerdict.FOREIGN:
                raise UsageError(f"run {run} belongs to another region than {region}", run=run, region=region)
            if verdict is OpenVerdict.FENCED:
                raise RunEndedError(run, region, RunVerdict.FENCED.value)
            opened = ClaimRun(run, region, fence, now + timedelta(seconds=lease_seconds))
            rows.clear_lapsed(connection, region, now, but=run)
            if verdict is OpenVerdict.RESTART:
                rows.drop_claims(connection, run)
            rows.put_run(connection, opened, is_new=found is None)
            rows.raise_fence(connection, region, fence)
        return Opened(opened, keeps_claims=verdict is OpenVerdict.ADOPT)

    def claim(self, run: ClaimRun, uris: Iterable[str], *, region: str | None = None) -> Claimed:
        """Claim files that lie in `region`, the run's own by default, but for those that are being deleted.

        Large numbers are claimed in batches. After an error some may be claimed: to claim again changes nothing.
        """
        place, count, deleting = region or run.region, 0, list[str]()
        for batch in _batches(canonical(uri) for uri in uris):
            with self._writing() as connection:
                rows.lock_place(connection, place)
                self._hold(connection, run)
                marked = rows.deletions(connection, batch)
                free = [uri for uri in batch if uri not in marked]
                rows.add_claims(connection, run.run, free)
            count += len(free)
            deleting += [uri for uri in batch if uri in marked]
        return Claimed(count, tuple(deleting))

    def renew(self, run: ClaimRun, lease_seconds: float) -> ClaimRun:
        """Hold on to everything for so long from now; a lease is never made shorter. `RunEndedError`: too late."""
        with self._writing() as connection:
            found, now = self._hold(connection, run)
            wanted = max(now + timedelta(seconds=lease_seconds), found.expires_at)
            renewed = ClaimRun(run.run, run.region, run.fence, wanted)
            rows.put_run(connection, renewed, is_new=False)
        return renewed

    def hold(self, run: ClaimRun, needed_seconds: float) -> None:
        """The last look before a promotion: everything is held, and will be for so long. `RunEndedError` otherwise."""
        with self._writing() as connection:
            self._hold(connection, run, timedelta(seconds=needed_seconds))
            # Who named the wrong region locked the wrong row, and must hear of it.
            overrun = rows.overrun(connection, run.run)
        if overrun is not None:
            raise RunEndedError(run.run, run.region, f"{overrun} is being deleted")

    def release(self, run: ClaimRun) -> None:
        """The run is over: its claims go. One that a later attempt has taken over is left alone."""
        with self._writing() as connection:
            rows.drop_run(connection, run)

    def begin_delete(
        self, region: str, uris: Sequence[str], executor: Ulid, *, lease_seconds: float
    ) -> Mapping[str, DeleteVerdict]:
        """What may be deleted in a region, by its canonical URI: marked as such where the verdict allows it.

        The executor deletes only within `lease_seconds`, counted from before this call.
        """
        parse_ulid(executor)
        verdicts: dict[str, DeleteVerdict] = {}
        for batch in _batches(canonical(uri) for uri in uris):
            with self._writing() as connection:
                rows.lock_place(connection, region)
                marked = rows.deletions(connection, batch)
                runs = rows.claiming(connection, batch)
                now = self._database.now(connection)
                batch_verdicts = {
                    uri: decide.delete_verdict(
                        is_claimed=any(decide.is_alive(each, now) for each in runs.get(uri, ())),
                        found=marked.get(uri),
                        executor=executor,
                        now=now,
                    )
                    for uri in batch
                }
                allowed = [uri for uri in batch if batch_verdicts[uri].may_delete]
                rows.mark(connection, region, allowed, Deletion(executor, now + timedelta(seconds=lease_seconds)))
            verdicts.update(batch_verdicts)
        return verdicts

    def end_delete(self, region: str, uris: Sequence[str], executor: Ulid) -> None:
        """These are gone, or will not be deleted after all: they may be claimed again. Only one's own are ended."""
        for batch in _batches(canonical(uri) for uri in uris):
            with self._writing() as connection:
                rows.lock_place(connection, region)
                rows.unmark(connection, batch, executor)

    def being_deleted(self, region: str, *, limit: int = 1_000, after: str = "") -> tuple[tuple[str, Deletion], ...]:
        """Files of a region that are being deleted, by URI: what an executor takes up again when it starts."""
        with self._database.read() as connection:
            return tuple(rows.marked(connection, region, after, limit))

    def claimed(self, uris: Sequence[str]) -> frozenset[str]:
        """Which of these files some living run has claimed, as far as can be seen now; decides nothing."""
        found: set[str] = set()
        for batch in _batches(canonical(uri) for uri in uris):
            with self._database.read() as connection:
                runs = rows.claiming(connection, batch, lock=False)
                now = self._database.now(connection)
            found |= {uri for uri, holders in runs.items() if any(decide.is_alive(each, now) for each in holders)}
        return frozenset(found)

    def _hold(
        self, connection: Connection, run: ClaimRun, needed: timedelta = timedelta(0)
    ) -> tuple[ClaimRun, datetime]:
        """The run's row, locked, and the time after that; `RunEndedError` when it does not hold for so long."""
        found = rows.lock_run(connection, run.run)
        highest = rows.highest_fence(connection, run.region)
        now = self._database.now(connection)
        verdict = decide.run_verdict(run, found, highest, now, needed)
        if verdict is not RunVerdict.HOLDS or found is None:
            raise RunEndedError(run.run, run.region, verdict.value)
        return found, now

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A transaction that may be repeated: to claim, mark or release twice is the same as once."""
        try:
            with self._database.write(isolation=Isolation.OWN_LOCKS) as connection:
                yield connection
        except OutcomeUnknownError as error:
            raise UnavailableError(error.message, hint="try again: doing it twice does no harm") from error
        except ConflictError as error:
            if isinstance(error, RunEndedError):
                raise
            raise UnavailableError(error.message, hint="try again: nothing was changed") from error


def _batches(uris: Iterable[str]) -> Iterator[list[str]]:
    """Each URI once in its batch, in order."""
    rest = iter(uris)
    while batch := list(dict.fromkeys(islice(rest, BATCH))):
        yield batch
