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
from headwater.coordination.limits import (
    check_key,
    check_lease,
    check_prefix,
    check_revision,
    check_transaction,
    check_ttl,
)
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
from headwater.coordination.turn import Turn, as_entry, under
from headwater.database import UNIDENTIFIED, Database, Isolation, migrate
from headwater.kernel.errors import ConflictError, OutcomeUnknownError, UnavailableError, UsageError
from headwater.kernel.ids import Ulid, parse_ulid

_MIGRATIONS = Path(__file__).parent / "migrations"
_BATCHES_AT_ONCE = 200


class DatabaseCoordination:
    """The `Coordination` port on an open database, whose tables it brings up to date first.

    The end of a lease is not seen to by any timer: the next writer deletes what hangs on it, and whoever would
    read or watch it takes a writer's turn first. The last `events_kept` revisions can be watched.
    """

    def __init__(
        self,
        database: Database,
        *,
        owns_database: bool = False,
        poll_seconds: float = 0.05,
        events_kept: int = 10_000,
    ) -> None:
        if events_kept < 1:
            raise UsageError(f"{events_kept} revisions cannot be kept", events_kept=events_kept)
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
        _, found = self._present(tables.entries.c.key == key)
        return found[0] if found else None

    def list(self, prefix: str) -> Listing:
        """All keys under `prefix`, and the revision they are from."""
        check_prefix(prefix)
        return Listing(*self._present(under(tables.entries.c.key, prefix)))

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
        check_lease(lease)
        with self._turn() as turn:
            return turn.keep_alive(lease)

    def revoke(self, lease: int) -> None:
        """End the lease and delete what hangs on it."""
        check_lease(lease)
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

    def _present(self, which: sa.ColumnElement[bool]) -> tuple[int, tuple[Entry, ...]]:
        """The revision, and these entries as they stood at it.

        A reader does not judge leases: a renewal that it cannot see may be about to commit, and what was hidden
        would come back without an event. So it has what seems expired swept, and then believes the rows.
        """
        lease = tables.leases.c
        joined = tables.entries.outerjoin(tables.leases, lease.id == tables.entries.c.lease)
        select = sa.select(tables.entries, lease.expires_at).select_from(joined).where(which)
        swept = False
        while True:
            with self._database.read() as connection:
                rows = connection.execute(select.order_by(tables.entries.c.key)).all()
                revision: int = connection.execute(sa.select(tables.state.c.revision)).scalar_one()
                ends = [row.expires_at for row in rows if row.expires_at is not None]
                expired = bool(ends) and min(ends) <= self._database.now(connection)
            if swept or not expired:
                return revision, tuple(as_entry(row) for row in rows)
            self._sweep()
            swept = True

    def _sweep(self) -> None:
        """A turn that does nothing of its own."""
        with self._turn():
            pass

    def _batches(self, prefix: str, after_revision: int) -> tuple[int, tuple[Batch, ...]]:
        """The next batches, and the revision up to which nothing more is to come."""
        event = tables.events.c
        with self._database.read() as connection:
            now = self._database.now(connection)
            expired = connection.scalar(sa.select(sa.exists().where(tables.leases.c.expires_at <= now)))
        if expired:
            # Nobody else may ever come by, and the watcher is owed the event.
            self._sweep()
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
        """Without `operation` the turn does what may be repeated, so that a lost answer is a mere absence.

        A turn that finds a conflict has changed nothing of its own by then, but has swept. The sweep is committed
        before the conflict is told, since it may be what proves the conflict.
        """
        refused: ConflictError | None = None
        try:
            with self._database.write(operation=operation or UNIDENTIFIED, isolation=Isolation.OWN_LOCKS) as connection:
                turn = Turn(connection, self._database, events_kept=self._events_kept)
                try:
                    yield turn
                except ConflictError as error:
                    refused = error
                turn.finish()
        except OutcomeUnknownError as error:
            if operation is None or refused is not None:
                raise UnavailableError(error.message, hint="try again") from error
            raise
        if refused is not None:
            raise refused


def _as_event(row: Row[Any]) -> Event:
    if row.value is None:
        return Event(row.key, None)
    entry = Entry(row.key, bytes(row.value), row.create_revision, row.revision, row.version, row.lease)
    return Event(row.key, entry)
