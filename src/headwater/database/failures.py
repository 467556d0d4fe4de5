"""What a driver's error means for the caller, as one table per database.

A failing COMMIT is judged apart from a failing statement: while statements run nothing has landed, but a
COMMIT whose connection broke may have.
"""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from headwater.kernel.errors import (
    ConflictError,
    CorruptError,
    HeadwaterError,
    OutcomeUnknownError,
    UnavailableError,
    UsageError,
)

# PostgreSQL's SQLSTATE, longest prefix first. What is absent is a plain failure: our statement was wrong.
_STATES: tuple[tuple[str, type[HeadwaterError]], ...] = (
    ("40003", UnavailableError),  # statement completion unknown: inside a transaction, nothing landed
    ("40", ConflictError),  # serialization failure, deadlock
    ("23505", ConflictError),  # unique violation
    ("23P01", ConflictError),  # exclusion violation
    ("55P03", UnavailableError),  # lock not available
    ("25P03", UnavailableError),  # idle for too long inside a transaction
    ("25006", UnavailableError),  # read-only: a standby, or a write in read()
    ("08", UnavailableError),  # connection
    ("28", UsageError),  # authorization
    ("3D000", UsageError),  # no such database
    ("53", UnavailableError),  # disk full, out of memory, too many connections
    ("57", UnavailableError),  # shutdown, cancel
    ("58", UnavailableError),  # system error
    ("XX", CorruptError),  # data corrupted, index corrupted
)
_SQLITE: dict[int, type[HeadwaterError]] = {
    sqlite3.SQLITE_BUSY: UnavailableError,
    sqlite3.SQLITE_LOCKED: UnavailableError,
    sqlite3.SQLITE_IOERR: UnavailableError,
    sqlite3.SQLITE_FULL: UnavailableError,
    sqlite3.SQLITE_CANTOPEN: UnavailableError,
    sqlite3.SQLITE_READONLY: UnavailableError,
    sqlite3.SQLITE_CORRUPT: CorruptError,
    sqlite3.SQLITE_NOTADB: CorruptError,
}
_SQLITE_UNIQUE = (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
# Of these, and only of these, a failing COMMIT of SQLite is certain to have left nothing behind.
_SQLITE_UNCOMMITTED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CONSTRAINT)


def statement_failure(error: DBAPIError | PoolTimeoutError, label: str) -> HeadwaterError:
    """A connection or a statement failed, so nothing of the transaction landed."""
    text = _first_line(error)
    if isinstance(error, PoolTimeoutError):
        return UnavailableError(f"{label}: all connections are in use", database=label)
    kind = _kind(error)
    message = f"{label}: {text}"
    if kind is ConflictError:
        return ConflictError(message, hint="read again, then retry", database=label)
    if kind is UnavailableError and not isinstance(error.orig, sqlite3.Error):
        hint = "is the server up, and are address and password in the setting `database` right?"
        return UnavailableError(message, hint=hint, database=label)
    return kind(message, database=label)


def commit_failure(error: DBAPIError, label: str, operation: str) -> HeadwaterError:
    """COMMIT failed: either the server said why, so nothing landed, or nobody knows."""
    if _commit_was_refused(error):
        return statement_failure(error, label)
    return OutcomeUnknownError(
        f"{label}: the connection was lost during COMMIT: {_first_line(error)}",
        hint="look for the operation's own rows before trying again",
        operation=operation,
        database=label,
    )


def _commit_was_refused(error: DBAPIError) -> bool:
    if isinstance(error.orig, sqlite3.Error):
        return _sqlite_code(error.orig) & 0xFF in _SQLITE_UNCOMMITTED
    state = _state(error)
    if state == "25P03":
        return True  # the server ended the idle session before it saw our COMMIT
    # Classes 08 and 57 come with a dying session, which may die after its commit record was written.
    return bool(state) and not error.connection_invalidated and not state.startswith(("08", "57", "40003"))


def _kind(error: DBAPIError) -> type[HeadwaterError]:
    if isinstance(error.orig, sqlite3.Error):
        code = _sqlite_code(error.orig)
        return ConflictError if code in _SQLITE_UNIQUE else _SQLITE.get(code & 0xFF, HeadwaterError)
    state = _state(error)
    for prefix, kind in _STATES:
        if state.startswith(prefix):
            return kind
    # libpq reports a broken or refused connection without a state.
    lost = error.connection_invalidated or (not state and type(error.orig).__name__ == "OperationalError")
    return UnavailableError if lost else HeadwaterError


def _state(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlstate", None) or ""


def _sqlite_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) or 0


def _first_line(error: Exception) -> str:
    """The driver's own sentence. SQLAlchemy's would add the statement, which tells a user nothing."""
    original = getattr(error, "orig", None) or error
    lines = str(original).strip().splitlines()
    return lines[0] if lines else type(original).__name__
