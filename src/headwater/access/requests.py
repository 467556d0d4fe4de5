"""Requests that carry a key, on the database: who claims a key carries it out, and its answer is kept.

Promise: of all requests of one caller under one key, at most one is carried out at a time, and the answer of the one
that succeeded is given to all others. Together with the lake's log, in which the operation is found or settled, a
change is made once, however often it is asked for.

Invariants:

    1  A claim is durable before anything is done under it, and names the operation under which the change lands.
    2  A claim passes to another only when its lease is over and the log has settled that its operation never landed.
       The lease is the deadline of the change as well: after it, the publisher does not commit.
    3  An answer is kept only of what succeeded. What is proven absent lets its claim go; an unknown outcome keeps it,
       with its lease ended, so that the next one to ask may settle it.

Commit point: the claim's transaction. What a crash after each step leaves behind:

    claim      a key that waits for its lease, then for the log to settle its operation: then it is carried out again
    commit     the same; the log has the operation, and gives the answer at once
    answer     nothing

"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from headwater.access import tables
from headwater.access.model import KeyedRequest
from headwater.access.tokens import MIGRATIONS
from headwater.database import UNIDENTIFIED, Database, Isolation, migrate
from headwater.kernel.errors import ConflictError
from headwater.kernel.ids import Ulid

_columns = tables.requests.c


class Requests:
    """The keyed requests of a lake. Safe to share among threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        migrate(database, "access", MIGRATIONS)

    def claim(self, wanted: KeyedRequest) -> KeyedRequest | None:
        """Claim the key, or say what is found under it; None: the claim is ours."""
        while True:
            try:
                self._insert(wanted)
            except ConflictError:
                found = self._found(wanted)
                if found is not None:
                    return found  # else it was let go just now
            else:
                return None

    def take_over(self, found: KeyedRequest, operation: Ulid, lease_until: datetime) -> bool:
        """Make a claim that is settled as absent our own, unless somebody was faster."""
        return self._change(found, found.operation, {"operation": operation, "lease_until": lease_until})

    def keep(self, claimed: KeyedRequest, operation: Ulid, answer: str) -> bool:
        """Keep the answer for whoever asks again; of the operation that is claimed."""
        return self._change(claimed, operation, {"answer": answer})

    def end(self, claimed: KeyedRequest, operation: Ulid, moment: datetime) -> bool:
        """Nobody works on it any more, and how it ended is not known: whoever asks next may settle it."""
        return self._change(claimed, operation, {"lease_until": moment})

    def release(self, claimed: KeyedRequest, operation: Ulid) -> None:
        """Nothing came of it, and nothing will: the key is free again."""
        with self._writing(operation) as connection:
            connection.execute(sa.delete(tables.requests).where(*_unanswered(claimed, operation)))

    def forget(self, older_than: timedelta) -> int:
        """Drop what was asked longer ago; its keys are free again. Returns how many they were."""
        with self._writing() as connection:
            before = self._database.now(connection) - older_than
            found = connection.execute(
                sa.delete(tables.requests).where(_columns.created_at < before, _columns.lease_until < before)
            )
            return int(found.rowcount)

    def _insert(self, wanted: KeyedRequest) -> None:
        with self._writing(wanted.operation) as connection:
            connection.execute(
                sa.insert(tables.requests).values(
                    caller=wanted.caller,
                    key=wanted.key,
                    digest=wanted.digest,
                    branch=wanted.branch,
                    operation=wanted.operation,
                    lease_until=wanted.lease_until,
                    created_at=self._database.now(connection),
                )
            )

    def _found(self, wanted: KeyedRequest) -> KeyedRequest | None:
        with self._database.read() as connection:
            row = connection.execute(_of(wanted)).first()
        return None if row is None else _as_request(row)

    def _change(self, request: KeyedRequest, operation: Ulid, values: Mapping[str, object]) -> bool:
        with self._writing(operation) as connection:
            changed = connection.execute(
                sa.update(tables.requests).where(*_unanswered(request, operation)).values(**values)
            )
            return changed.rowcount == 1

    def _writing(self, operation: str = UNIDENTIFIED) -> AbstractContextManager[Connection]:
        """Each write is one statement on one row, which the database itself puts in order."""
        return self._database.write(operation=operation, isolation=Isolation.OWN_LOCKS)


def _of(request: KeyedRequest) -> sa.Select[Any]:
    return sa.select(tables.requests).where(_columns.caller == request.caller, _columns.key == request.key)


def _unanswered(request: KeyedRequest, operation: Ulid) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        _columns.caller == request.caller,
        _columns.key == request.key,
        _columns.operation == operation,
        _columns.answer.is_(None),
    )


def _as_request(row: Row[Any]) -> KeyedRequest:
    return KeyedRequest(row.caller, row.key, row.digest, row.branch, Ulid(row.operation), row.lease_until, row.answer)
