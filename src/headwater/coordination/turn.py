"""One writer's turn on the database.

Every change takes the lock on the one state row first and keeps it until COMMIT. So revisions are handed out in
the order in which they become visible, and a watcher that has read up to a revision has missed nothing before it.
Time is read after the lock was won: a writer that waited judges leases by the moment at which it acts. Nobody
judges them without the lock, and no turn by an earlier time than the one before it, even if the clock went back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from headwater.coordination import tables
from headwater.coordination.limits import prefix_end
from headwater.coordination.model import Entry, Lease, Operation, Put, lease_expired
from headwater.coordination.port import OUTCOMES_KEPT_SECONDS
from headwater.database import Database
from headwater.kernel.errors import CorruptError
from headwater.kernel.ids import Ulid


def under(column: sa.Column[Any], prefix: str) -> sa.ColumnElement[bool]:
    """The keys that start with `prefix`, as a range that an index can serve."""
    end = prefix_end(prefix)
    return column >= prefix if end is None else sa.and_(column >= prefix, column < end)


def as_entry(row: Row[Any]) -> Entry:
    """A row of `tables.entries`."""
    return Entry(row.key, bytes(row.value), row.create_revision, row.mod_revision, row.version, row.lease)


class Turn:
    """The lock is held, the time is known, and expired leases are swept away."""

    def __init__(self, connection: Connection, database: Database, *, events_kept: int) -> None:
        self._connection = connection
        self._events_kept = events_kept
        row = connection.execute(sa.select(tables.state).with_for_update()).one_or_none()
        if row is None:
            raise CorruptError(f"{database!r} has lost the state row of coordination")
        self.now = database.now(connection)
        self.revision: int = row.revision
        self._compacted: int = row.compacted_revision
        self._last_lease: int = row.last_lease
        self._end(tables.leases.c.expires_at <= self.now)

    def present(self, keys: Iterable[str]) -> dict[str, Entry]:
        """Those of `keys` that exist."""
        if not (wanted := set(keys)):
            return {}
        found = self._connection.execute(sa.select(tables.entries).where(tables.entries.c.key.in_(wanted)))
        return {row.key: as_entry(row) for row in found}

    def apply(self, operations: Sequence[Operation]) -> int:
        """Do all of them at one new revision, and return it; the old one, if there was nothing to do."""
        self._require_leases(operations)
        present = self.present(operation.key for operation in operations)
        changing = [one for one in operations if isinstance(one, Put) or one.key in present]
        if not changing:
            return self.revision
        self.revision += 1
        for operation in changing:
            if isinstance(operation, Put):
                self._put(operation, present.get(operation.key))
            else:
                self._delete(operation.key)
        return self.revision

    def grant(self, ttl_seconds: float) -> Lease:
        """A new lease, with an id that was never used."""
        self._last_lease += 1
        expires_at = self.now + timedelta(seconds=ttl_seconds)
        row = {"id": self._last_lease, "ttl_seconds": ttl_seconds, "expires_at": expires_at}
        self._connection.execute(sa.insert(tables.leases).values(row))
        return Lease(self._last_lease, ttl_seconds)

    def keep_alive(self, lease: int) -> Lease:
        """Let its time start anew."""
        table = tables.leases
        ttl_seconds = self._connection.scalar(sa.select(table.c.ttl_seconds).where(table.c.id == lease))
        if ttl_seconds is None:
            raise lease_expired(lease)
        expires_at = self.now + timedelta(seconds=ttl_seconds)
        self._connection.execute(sa.update(table).where(table.c.id == lease).values(expires_at=expires_at))
        return Lease(lease, ttl_seconds)

    def end_lease(self, lease: int) -> None:
        """Delete the lease and, at one revision of their own, the keys that hang on it."""
        self._end(tables.leases.c.id == lease)

    def recorded(self, operation: Ulid) -> tuple[int | None] | None:
        """What is recorded for it: a revision, or that it shall never happen; `None` when nothing is."""
        table = tables.operations
        row = self._connection.execute(sa.select(table.c.revision).where(table.c.operation == operation)).one_or_none()
        return None if row is None else (row.revision,)

    def record(self, operation: Ulid, revision: int | None) -> None:
        """Remember it, and forget what nobody will ask for any more."""
        table = tables.operations
        oldest = self.now - timedelta(seconds=OUTCOMES_KEPT_SECONDS)
        self._connection.execute(sa.delete(table).where(table.c.recorded_at < oldest))
        row = {"operation": operation, "revision": revision, "recorded_at": self.now}
        self._connection.execute(sa.insert(table).values(row))

    def finish(self) -> None:
        """Write down the new state, always. The last act of a turn."""
        # Forget in strides, so that not every transaction pays for it.
        if self.revision - self._compacted > self._events_kept + self._events_kept // 8:
            self._compacted = self.revision - self._events_kept
            self._connection.execute(sa.delete(tables.events).where(tables.events.c.revision <= self._compacted))
        values = {
            "revision": self.revision,
            "compacted_revision": self._compacted,
            "last_lease": self._last_lease,
        }
        self._connection.execute(sa.update(tables.state).values(values))

    def _end(self, which: sa.ColumnElement[bool]) -> None:
        """End these leases, the earliest first, each at a revision of its own if any key hangs on it."""
        lease, entry = tables.leases.c, tables.entries.c
        ended = self._connection.execute(sa.select(lease.id).where(which).limit(1)).first()
        if ended is None:
            return
        hanging = tables.entries.join(tables.leases, lease.id == entry.lease)
        revision = self.revision + sa.func.dense_rank().over(order_by=(lease.expires_at, lease.id))
        deleted = sa.select(revision, entry.key).select_from(hanging).where(which)
        count = sa.select(sa.func.count(entry.lease.distinct())).select_from(hanging).where(which)
        revisions: int = self._connection.execute(count).scalar_one()
        self._connection.execute(sa.insert(tables.events).from_select(["revision", "key"], deleted))
        self._connection.execute(sa.delete(tables.entries).where(entry.lease.in_(sa.select(lease.id).where(which))))
        self._connection.execute(sa.delete(tables.leases).where(which))
        self.revision += revisions

    def _require_leases(self, operations: Sequence[Operation]) -> None:
        wanted = {one.lease: one.key for one in operations if isinstance(one, Put) and one.lease is not None}
        if wanted:
            alive = self._connection.execute(sa.select(tables.leases.c.id).where(tables.leases.c.id.in_(wanted)))
            for lease in sorted(set(wanted) - set(alive.scalars())):
                raise lease_expired(lease, wanted[lease])

    def _put(self, put: Put, before: Entry | None) -> None:
        entry = {
            "key": put.key,
            "value": put.value,
            "create_revision": self.revision if before is None else before.create_revision,
            "version": 1 if before is None else before.version + 1,
            "lease": put.lease,
        }
        self._connection.execute(sa.insert(tables.events).values(revision=self.revision, **entry))
        if before is None:
            self._connection.execute(sa.insert(tables.entries).values(mod_revision=self.revision, **entry))
        else:
            same = tables.entries.c.key == put.key
            self._connection.execute(sa.update(tables.entries).where(same).values(mod_revision=self.revision, **entry))

    def _delete(self, key: str) -> None:
        self._connection.execute(sa.delete(tables.entries).where(tables.entries.c.key == key))
        self._connection.execute(sa.insert(tables.events).values(revision=self.revision, key=key))
