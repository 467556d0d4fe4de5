"""One database with its engine: transactions in, kernel errors out."""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from headwater.database.failures import commit_failure, statement_failure
from headwater.database.urls import label_of, parse_target, without_secrets
from headwater.kernel.clock import Clock, SystemClock
from headwater.kernel.errors import HeadwaterError, UnavailableError, UsageError
from headwater.kernel.per_process import PerProcess
from headwater.kernel.randomness import system_randomness
from headwater.kernel.retry import Retry, RetryPolicy

UNIDENTIFIED = "unidentified"
"""The operation of a write that nobody will ask about again, because to repeat it does no harm."""

_WRITES = "headwater_writes"
_BEGAN = "headwater_began"
_FAILED = "headwater_failed"


class Isolation(enum.Enum):
    """How writers on PostgreSQL are kept apart. On SQLite they always wait for each other."""

    SERIALIZABLE = "SERIALIZABLE"
    """As if one after the other; a writer that cannot be is refused with a `ConflictError`."""

    OWN_LOCKS = "READ COMMITTED"
    """For a room whose writers first lock one row of their own: each waits its turn and then sees everything."""


def open_database(target: str | Path, *, clock: Clock | None = None, busy_seconds: float = 15.0) -> Database:
    """Open a path, `sqlite:///path` or `postgresql://…`.

    A SQLite file is made with its folder. No server is asked until first use. `clock` judges time on SQLite,
    where there is no server to do it; `busy_seconds` is how long a writer may keep others waiting.
    """
    url = parse_target(target)
    if url.get_backend_name() == "sqlite":
        folder = Path(str(url.database)).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnavailableError(f"cannot make the folder of {url.database}: {error.strerror}") from error
    return Database(url, clock or SystemClock(), busy_seconds)


class Database:
    """An open database. Threads share it freely, and a forked child connects anew by itself."""

    def __init__(self, url: URL, clock: Clock, busy_seconds: float) -> None:
        self.dialect = url.get_backend_name()
        self._url = url
        self.clock = clock
        self._busy_seconds = busy_seconds
        self._engines = PerProcess(self._make_engine)
        self._closed = False

    def __repr__(self) -> str:
        return f"Database({label_of(self._url)})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that sees one snapshot and cannot write."""
        options: dict[str, Any] = {}
        if self.dialect != "sqlite":
            options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        with self._translated(), self._connect(writes=False, **options) as connection:
            transaction = connection.begin()
            try:
                yield connection
            finally:
                _roll_back(transaction)

    @contextmanager
    def write(
        self, *, operation: str = UNIDENTIFIED, isolation: Isolation = Isolation.SERIALIZABLE
    ) -> Iterator[Connection]:
        """A transaction that is committed when the block ends, and rolled back when it raises.

        Nothing is retried. `operation` names the write in the `OutcomeUnknownError` that is raised when the
        connection broke during COMMIT: the caller looks for what it wrote under that name.

        A statement that may fail without failing the whole runs in `with connection.begin_nested():`. An error
        that was caught outside of one has already undone the transaction on PostgreSQL, so that a commit would
        report what did not happen: there the block's end raises instead, on both databases.
        """
        options = {} if self.dialect == "sqlite" else {"isolation_level": isolation.value}
        with self._translated(), self._connect(writes=True, **options) as connection:
            transaction = connection.begin()
            connection.info[_FAILED] = False
            try:
                self._limit_waiting(connection)
                yield connection
                self._refuse_failed(connection)
            except BaseException:
                _roll_back(transaction)
                raise
            try:
                transaction.commit()
            except DBAPIError as error:
                raise self._clean(commit_failure(error, label_of(self._url), operation)) from error

    def now(self, connection: Connection) -> datetime:
        """The present by the one clock that all users of this database share: the server's, or ours on SQLite."""
        if self.dialect == "sqlite":
            return self.clock.now()
        moment: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
        return moment.astimezone(UTC)

    def began(self, connection: Connection) -> datetime:
        """When this transaction began, by the same clock; never later than the snapshot that it reads."""
        if self.dialect == "sqlite":
            began: datetime = connection.info[_BEGAN]
            return began
        moment: datetime = connection.execute(sa.select(sa.func.transaction_timestamp())).scalar_one()
        return moment.astimezone(UTC)

    def close(self) -> None:
        """Close every connection of this process. Afterwards the database refuses to be used."""
        self._closed = True
        for engine in self._engines.made():
            engine.dispose()

    def _connect(self, *, writes: bool, **options: Any) -> AbstractContextManager[Connection]:
        if self._closed:
            raise UsageError(f"{self!r} is closed")
        return self._engines.get().connect().execution_options(**{_WRITES: writes}, **options)

    def _limit_waiting(self, connection: Connection) -> None:
        """A writer that was paused, or whose machine vanished, must not hold its locks for ever.

        PostgreSQL ends it when it has been idle for `busy_seconds`, and those who wait for it have twice that
        patience, so that they outlast it. SQLite has no such means: there the waiting writers give up.
        """
        if self.dialect == "postgresql":
            idle = max(1, int(self._busy_seconds * 1000))
            limits = f"SET LOCAL idle_in_transaction_session_timeout={idle}; SET LOCAL lock_timeout={2 * idle}"
            # What is acknowledged is durable, whatever the server's default says.
            is_off = "current_setting('synchronous_commit') = 'off'"
            durable = f"SELECT set_config('synchronous_commit', 'on', true) WHERE {is_off}"
            connection.exec_driver_sql(f"{limits}; {durable}")

    def _refuse_failed(self, connection: Connection) -> None:
        if connection.info[_FAILED]:
            raise HeadwaterError(
                f"{label_of(self._url)}: a statement failed and its error was caught, so nothing is written",
                hint="run a statement that may fail in `with connection.begin_nested():`",
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, PoolTimeoutError) as error:
            raise self._clean(statement_failure(error, label_of(self._url))) from error
        except StatementError as error:
            # A column type of ours refused the value; SQLAlchemy only wrapped what it said.
            raise error.orig if isinstance(error.orig, HeadwaterError) else error from error.__cause__

    def _clean(self, error: HeadwaterError) -> HeadwaterError:
        error.message = without_secrets(error.message, self._url)
        error.args = (error.message,)
        return error

    def _make_engine(self) -> Engine:
        # Values may be secrets, and SQLAlchemy's messages would show them.
        if self.dialect != "sqlite":
            # A network that falls silent must be noticed within the time in which others give up on us.
            silence = max(2, int(self._busy_seconds))
            defaults = {
                "connect_timeout": 10,
                "application_name": "headwater",
                "keepalives_idle": max(1, silence // 3),
                "keepalives_interval": max(1, silence // 3),
                "keepalives_count": 2,
                "tcp_user_timeout": silence * 1000,
            }
            arguments = {name: value for name, value in defaults.items() if name not in self._url.query}
            engine = sa.create_engine(self._url, hide_parameters=True, pool_pre_ping=True, connect_args=arguments)
            sa.event.listen(engine, "handle_error", _remember_failure)
            return engine
        engine = sa.create_engine(self._url, hide_parameters=True, connect_args={"timeout": self._busy_seconds})
        sa.event.listen(engine, "handle_error", _remember_failure)
        sa.event.listen(engine, "connect", self._prepare_sqlite)
        sa.event.listen(engine, "begin", self._begin_sqlite)
        return engine

    def _prepare_sqlite(self, raw: sqlite3.Connection, _record: object) -> None:
        # The driver's own BEGIN comes too late, at the first write; we say BEGIN ourselves.
        raw.isolation_level = None
        raw.execute("PRAGMA foreign_keys=ON")
        raw.execute("PRAGMA synchronous=FULL")
        _use_wal(raw, self._busy_seconds)

    def _begin_sqlite(self, connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql(f"PRAGMA query_only={'OFF' if writes else 'ON'}")
        connection.info[_BEGAN] = self.clock.now()
        # A deferred writer could find, at its first write, that its snapshot is already stale.
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN DEFERRED")


def _remember_failure(context: sa.ExceptionContext) -> None:
    """Outside of a savepoint a failed statement fails its whole transaction."""
    connection = context.connection
    if connection is not None and not connection.closed and not connection.in_nested_transaction():
        connection.info[_FAILED] = True


def _roll_back(transaction: sa.RootTransaction) -> None:
    try:
        transaction.rollback()
    except DBAPIError:
        # The connection is gone and the server rolls back by itself; the reason for the rollback matters more.
        transaction.connection.invalidate()


def _use_wal(raw: sqlite3.Connection, patience_seconds: float) -> None:
    """The busy timeout does not cover the change to WAL, so two processes that open a new file can collide.

    They wait in real time, whatever clock the leases are judged by.
    """
    policy = RetryPolicy(attempts=20, budget_seconds=patience_seconds)
    patience = Retry(policy, SystemClock(), system_randomness()).patience()
    while True:
        try:
            raw.execute("PRAGMA journal_mode=WAL").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or not patience.wait():
                raise
        else:
            return
