"""The DuckDB of one query: how it is opened, asked, asked for a plan, and shut in.

Its calls run on a thread of its own while the caller waits. DuckDB would swallow a signal that reaches it and end in
an error like any other; a thread that only waits raises what its handler says, and then ends the call by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from headwater.kernel.logs import Log
from headwater.query.failures import translate
from headwater.query.filesystem import ROOT, LakeFileSystem
from headwater.query.model import QueryOptions
from headwater.query.types import name, value

# The first would judge tables by their stand-ins' content. The others make plans that DuckDB cannot show, or filters
# that exist only while it runs.
_NOT_WHILE_PLANNING = "statistics_propagation,late_materialization,join_filter_pushdown"
_AGAIN_SECONDS = 0.05
_READERS = 8

T = TypeVar("T")
Connection = duckdb.DuckDBPyConnection

_log = Log("query")


class Engine:
    """A DuckDB in memory that spills into `folder`. Only one thread may use it, and any may interrupt it."""

    def __init__(self, options: QueryOptions, folder: Path, filesystem: LakeFileSystem) -> None:
        self._options = options
        self._folder = folder
        self._filesystem = filesystem
        self._connection = self._connect()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="query")
        self._running: list[Future[Any]] = []
        self._cursors: list[Connection] = []

    def call(self, work: Callable[[Connection], T]) -> T:
        """What `work` gives. Whatever ends the wait for it, a signal above all, ends the work first."""
        running: Future[T] = self._thread.submit(work, self._connection)
        self._running = [running]
        try:
            return running.result()
        finally:
            self._end()

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        """Run a statement whose rows do not matter."""
        self.call(lambda connection: connection.execute(sql, list(parameters)))

    def fetch(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Every row of a small answer."""
        return self.call(lambda connection: connection.execute(sql, list(parameters)).fetchall())

    def fetch_in_parts(self, sql: str, parts: Sequence[Sequence[str]]) -> list[tuple[Any, ...]]:
        """The rows of the same question about each part, a few at a time: for what waits on a network."""
        if len(parts) <= 1:
            return [row for part in parts for row in self.fetch(sql, [list(part)])]

        def ask(connection: Connection, part: Sequence[str]) -> list[tuple[Any, ...]]:
            with connection.cursor() as cursor:
                self._cursors.append(cursor)
                return cursor.execute(sql, [list(part)]).fetchall()

        readers = ThreadPoolExecutor(min(_READERS, len(parts)), thread_name_prefix="footers")
        try:
            self._running = [readers.submit(ask, self._connection, part) for part in parts]
            return [row for answer in self._running for row in answer.result()]
        finally:
            readers.shutdown(wait=False, cancel_futures=True)
            self._end()
            self._cursors.clear()

    def insert(self, statement: str, rows: pa.Table) -> None:
        """Run an INSERT that ends before its FROM, with these rows."""

        def work(connection: Connection) -> None:
            connection.register("given rows", rows)
            try:
                connection.execute(f"{statement} FROM {name('given rows')}")
            finally:
                connection.unregister("given rows")

        self.call(work)

    def interrupt(self) -> None:
        """End what runs now, soon; what has not begun yet is not ended by it."""
        for each in (self._connection, *self._cursors):
            with suppress(duckdb.Error):  # it is closed
                each.interrupt()

    def reopen(self) -> None:
        """Begin anew, with nothing in it."""
        self._connection.close()
        self._connection = self._connect()

    def close(self) -> None:
        """End what runs, and DuckDB."""
        self._end()
        self._thread.shutdown()
        self._connection.close()

    def _end(self) -> None:
        """Nothing runs any more after this. An interrupt reaches only what has begun, so there may be several."""
        while not all(each.done() for each in self._running):
            self.interrupt()
            wait(self._running, _AGAIN_SECONDS)

    def _connect(self) -> Connection:
        config: dict[str, Any] = {
            "temp_directory": str(self._folder / "spill"),
            "python_enable_replacements": "false",  # or a name in the SQL could be a variable of the program
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_persistent_secrets": "false",
        }
        if self._options.memory_limit_bytes is not None:
            config["memory_limit"] = f"{self._options.memory_limit_bytes}B"
        if self._options.threads is not None:
            config["threads"] = str(self._options.threads)
        try:
            connection = duckdb.connect(":memory:", config=config)
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET enable_progress_bar = false")  # it would draw into the program's own output
            connection.execute("SET parquet_metadata_cache = true")  # footers are read first, and never change
            connection.register_filesystem(self._filesystem)
        except duckdb.Error as error:
            raise translate(error) from error
        return connection


def plan_of(engine: Engine, sql: str) -> Any:
    """DuckDB's plan for the question, as JSON; None when it has none, and the DuckDB must not be used any more."""
    engine.execute(f"SET disabled_optimizers = {value(_NOT_WHILE_PLANNING)}")
    try:
        ((found,),) = engine.fetch("SELECT json_serialize_plan(?, optimize := true)", [sql])
        plan = json.loads(found)
    except (duckdb.Error, RecursionError) as error:
        _log.debug("no plan", reason=str(error))
        return None
    if plan["error"]:
        return None
    engine.execute("SET disabled_optimizers = ''")
    return plan


def lock(engine: Engine, paths: Iterable[str]) -> None:
    """From here on DuckDB opens these files alone, and no setting changes."""
    plain = ", ".join(value(path) for path in paths if not path.startswith(ROOT))
    engine.execute(f"SET allowed_paths = [{plain}]")
    engine.execute(f"SET allowed_directories = [{value(ROOT)}]")
    engine.execute("SET enable_external_access = false")
    engine.execute("SET lock_configuration = true")
