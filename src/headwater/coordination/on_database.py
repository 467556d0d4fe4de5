"""Coordination on the database: for a single machine on SQLite, for many on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Row

from headwater.coordination import tables
from headwater.coordination.limits import check_key, check_prefix, check_revision, check_transaction, check_ttl
from headwater.coordination.model import (
    Batch,
    Compare,
    Entry,
    Event,
    Lease,
    Listing,
    Operation,
    abandoned,
    compacted,
    conflict,
    failed,
)
from headwater.coordination.turn import Turn, as_entry, live_entries, under
from headwater.database import UNIDENTIFIED, Database, Isolation, migrate
from headwater.kernel.errors import OutcomeUnknownError, UnavailableError
from headwater.kernel.ids import Ulid, parse_ulid

_MIGRATIONS = Path(__file__).parent / "migrations"
_BATCHES_AT_ONCE = 200


class DatabaseCoordination:
    """The `Coordination` port on an open database, whose tables it brings up to date first.

    The end of a lease is not seen to by any timer: reads pass over what has expired, and the next writer or
    watcher deletes it. The last `events_kept` revisions can be watched.
    """

    def __init__(
        self,
        database: Database,
        *,
        owns_database: bool = False,
        poll_seconds: float = 0.05,
        events_kept: int = 10_000,
    ) -> None:
        self._database = database
        self._owns_database = owns_database
        self._poll_seconds = poll_seconds
        self._events_kept = events_kept
        migrate(database, "coordination", _MIGRATIONS)

    def __repr__(self) -> str:
        return f"DatabaseCoordination({self._database!r})"

    def get(self, key: str) -> Entry | None:
        """The key as it stands, or `None`."""
        check_key(key)
        with self._database.read() as connection:
            alive = live_entries(self._database.began(connection))
            row = connection.execute(alive.where(tables.entries.c.key == key)).one_or_none()
            return None if row is None else as_entry(row)

    def list(self, prefix: str) -> Listing:
        """All keys under `prefix`, and the revision they are from."""
        check_prefix(prefix)
        with self._database.read() as connection:
            # Judged by the time at which the snapshot was not yet taken: a lease that had expired then can never be
            # renewed later. With any later time, a renewal that the snapshot cannot see would lose us a living key,
            # and no event would ever tell.
            alive = live_entries(self._database.began(connection)).where(under(tables.entries.c.key, prefix))
            rows = connection.execute(alive.order_by(tables.entries.c.key)).all()
            revision = connection.execute(sa.select(tables.state.c.revision)).scalar_one()
            return Listing(revision, tuple(as_entry(row) for row in rows))

    def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation], *, operation: Ulid | None = None
    ) -> int:
        """If all compares hold, do all operations at once."""
        check_transaction(compares, operations)
        if operation is not None:
            parse_ulid(operation)
        with self._turn(operation or UNIDENTIFIED) as turn:
            if operation is not None and (recorded := turn.recorded(operation)) is not None:
                if recorded[0] is None:
                    raise abandoned(operation)
                return recorded[0]
            present = turn.present(compare.key for compare in compares)
            for compare in compares:
                actual = present.get(compare.key)
                if (expected := failed(compare, actual)) is not None:
                    raise conflict(compare, expected, actual)
            revision = turn.apply(operations)
            if operation is not None:
                turn.record(operation, revision)
        return revision

    def outcome(self, operation: Ulid) -> int | None:
        """The revision of a recorded transaction, or `None` when it never will have one."""
        parse_ulid(operation)
        with self._turn() as turn:
            recorded = turn.recorded(operation)
            if recorded is None:
                turn.record(operation, None)
            return None if recorded is None else recorded[0]

    def grant(self, ttl_seconds: float) -> Lease:
        """A new lease."""
        check_ttl(ttl_seconds)
        with self._turn() as turn:
            return turn.grant(ttl_seconds)

    def keep_alive(self, lease: int) -> Lease:
        """Start the lease's time anew."""
        with self._turn() as turn:
            return turn.keep_alive(lease)

    def revoke(self, lease: int) -> None:
        """End the lease and delete what hangs on it."""
        with self._turn() as turn:
            turn.end_lease(lease)

    def watch(self, prefix: str, after_revision: int, timeout_seconds: float) -> Iterator[Batch]:
        """What happens under `prefix` after a revision, until it was quiet for `timeout_seconds`."""
        check_prefix(prefix)
        check_revision(after_revision)
        return self._watch(prefix, after_revision, timeout_seconds)

    def close(self) -> None:
        """Let go of the database, if it was opened for us."""
        if self._owns_database:
            self._database.close()

    def _watch(self, prefix: str, after_revision: int, timeout_seconds: float) -> Iterator[Batch]:
        clock = self._database.clock
        deadline = clock.monotonic() + timeout_seconds
        while True:
            after_revision, batches = self._batches(prefix, after_revision)
            yield from batches
            if batches:
                deadline = clock.monotonic() + timeout_seconds
                continue
            remaining = deadline - clock.monotonic()
            if remaining <= 0:
                return
            clock.sleep(min(self._poll_seconds, remaining))

    def _batches(self, prefix: str, after_revision: int) -> tuple[int, tuple[Batch, ...]]:
        """The next batches, and the revision up to which nothing more is to come."""
        event = tables.events.c
        with self._database.read() as connection:
            began = self._database.began(connection)
            expired = connection.scalar(sa.select(sa.exists().where(tables.leases.c.expires_at <= began)))
        if expired:
            # Nobody else may ever come by, and the watcher is owed the event: the turn itself sweeps.
            with self._turn():
                pass
        with self._database.read() as connection:
            state = connection.execute(sa.select(tables.state)).one()
            if after_revision < state.compacted_revision:
                raise compacted(after_revision, state.compacted_revision + 1)
            wanted = sa.and_(event.revision > after_revision, under(event.key, prefix))
            revisions = sa.select(event.revision).where(wanted).distinct().order_by(event.revision)
            some = wanted & event.revision.in_(revisions.limit(_BATCHES_AT_ONCE))
            rows = connection.execute(sa.select(tables.events).where(some).order_by(event.revision, event.key)).all()
        batches = tuple(
            Batch(revision, tuple(_as_event(row) for row in group))
            for revision, group in groupby(rows, key=lambda row: int(row.revision))
        )
        if len(batches) == _BATCHES_AT_ONCE:
            return batches[-1].revision, batches
        return max(after_revision, state.revision), batches

    @contextmanager
    def _turn(self, operation: str | None = None) -> Iterator[Turn]:
        """Without `operation` the turn does what may be repeated, so that a lost answer is a mere absence."""
        try:
            with self._database.write(operation=operation or UNIDENTIFIED, isolation=Isolation.OWN_LOCKS) as connection:
                turn = Turn(connection, self._database, events_kept=self._events_kept)
                yield turn
                turn.finish()
        except OutcomeUnknownError as error:
            if operation is None:
                raise UnavailableError(error.message, hint="try again") from error
            raise


def _as_event(row: Row[Any]) -> Event:
    if row.value is None:
        return Event(row.key, None)
    entry = Entry(row.key, bytes(row.value), row.create_revision, row.revision, row.version, row.lease)
    return Event(row.key, entry)
