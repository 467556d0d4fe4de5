"""One writer's turn on the database.

Every change takes the lock on the one state row first and keeps it until COMMIT. So revisions are handed out in
the order in which they become visible, and a watcher that has read up to a revision has missed nothing before it.
Time is read after the lock was won: a writer that waited judges leases by the moment at which it acts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
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


def live_entries(now: datetime) -> sa.Select[Any]:
    """The entries that exist at `now`; one whose lease has expired does not, even if its row is still there."""
    lease = tables.leases
    joined = tables.entries.outerjoin(lease, lease.c.id == tables.entries.c.lease)
    return sa.select(tables.entries).select_from(joined).where(lease.c.id.is_(None) | (lease.c.expires_at > now))


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
        self._before: Row[Any] = row
        self._last_lease: int = row.last_lease
        expired = sa.select(tables.leases.c.id).where(tables.leases.c.expires_at <= self.now)
        for lease in connection.execute(expired.order_by(tables.leases.c.expires_at)).scalars().all():
            self.end_lease(lease)

    def present(self, keys: Iterable[str]) -> dict[str, Entry]:
        """Those of `keys` that exist."""
        if not (wanted := set(keys)):
            return {}
        found = self._connection.execute(live_entries(self.now).where(tables.entries.c.key.in_(wanted)))
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
        entry = tables.entries.c
        keys = self._connection.execute(sa.select(entry.key).where(entry.lease == lease)).scalars().all()
        if keys:
            self.revision += 1
        for key in keys:
            self._delete(key)
        self._connection.execute(sa.delete(tables.leases).where(tables.leases.c.id == lease))

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
        """Write down the new revision. The last act of a turn."""
        compacted: int = self._before.compacted_revision
        # Forget in strides, so that not every transaction pays for it.
        if self.revision - compacted > self._events_kept + self._events_kept // 8:
            compacted = self.revision - self._events_kept
            self._connection.execute(sa.delete(tables.events).where(tables.events.c.revision <= compacted))
        if (self.revision, self._last_lease) != (self._before.revision, self._before.last_lease):
            values = {"revision": self.revision, "last_lease": self._last_lease, "compacted_revision": compacted}
            self._connection.execute(sa.update(tables.state).values(values))

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
