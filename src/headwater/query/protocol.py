"""One query, from text to Arrow.

Promise: the answer is that of DuckDB over the tables as `source` shows them, at one point and with what is pending;
and the query can do nothing but answer.

Invariants:

    1  No SQL of a user or a view is bound before its statement was checked, and none runs before DuckDB is locked.
    2  Locked, DuckDB can open the files of the plan and nothing else, and no setting can be changed any more.
    3  A file is left out only when no row of it can matter to the plan that DuckDB made without statistics. That
       plan is made in the transaction that the query runs in, so `now()` is one moment.

Commit point: none. A query writes nothing into the lake. Whoever calls holds the pin that keeps its files.

Steps, and what a crash after each leaves behind:

    make the folder      an empty folder in the place for temporary files
    open tables          the same
    stand-ins, plan      the same: DuckDB is in memory
    scan plans, views    the same, with what did not fit into memory, as far as it is in that folder
    lock, run            the same

One DuckDB for each query: its settings, files and memory are nobody else's, and end with it.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Timer

import duckdb
import pyarrow as pa

from headwater.catalog.model import TableKey
from headwater.catalog.names import DEFAULT_NAMESPACE
from headwater.kernel.errors import HeadwaterError
from headwater.query.arrow import convert, with_uuids
from headwater.query.decide import copies_table, schema_at
from headwater.query.engine import connect, lock, plan_of
from headwater.query.failures import about, may_be_a_file, translate
from headwater.query.filesystem import LakeFileSystem
from headwater.query.model import OpenTable, Pending, QueryOptions, QueryTimeoutError, QueryUsageError, TableSource
from headwater.query.predicates import EVERYTHING, Needed, needed
from headwater.query.relations import Relations, Wanted
from headwater.query.resolve import Resolved, resolve
from headwater.query.statement import read_statement
from headwater.query.types import check_names, column, name, value
from headwater.tables.files import Files
from headwater.tables.model import ScanPlan
from headwater.tables.read import read_task
from headwater.tables.scan import plan_scan

_NO_OPTIONS = QueryOptions()
_NOTHING_PENDING = Pending()


def run(
    sql: str,
    source: TableSource,
    files: Files,
    *,
    options: QueryOptions = _NO_OPTIONS,
    pending: Pending = _NOTHING_PENDING,
) -> pa.Table:
    """The whole answer."""
    with _answering(sql, source, files, options, pending) as query:
        return query.table()


@contextmanager
def stream(
    sql: str,
    source: TableSource,
    files: Files,
    *,
    options: QueryOptions = _NO_OPTIONS,
    pending: Pending = _NOTHING_PENDING,
) -> Iterator[pa.RecordBatchReader]:
    """The answer batch by batch, for as long as the context lasts."""
    with _answering(sql, source, files, options, pending) as query:
        yield query.reader()


@contextmanager
def _answering(
    sql: str, source: TableSource, files: Files, options: QueryOptions, pending: Pending
) -> Iterator[_Query]:
    with ExitStack() as stack:
        folder = _make_folder(options.temp_directory)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        query = _Query(files, options, pending, folder)
        stack.callback(query.close)
        with query.failing():
            query.prepare(sql, source)
        yield query


def _make_folder(within: Path | None) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="headwater-query-", dir=within))
    except OSError as error:
        where = within or tempfile.gettempdir()
        raise QueryUsageError(
            f"{where} cannot hold temporary files: {error.strerror}", hint="name a folder that can be written to"
        ) from None


class _Query:
    """A query and its DuckDB."""

    def __init__(self, files: Files, options: QueryOptions, pending: Pending, folder: Path) -> None:
        self._files = files
        self._options = options
        self._pending = pending
        self._folder = folder
        self._filesystem = LakeFileSystem(files)
        self._wanted: list[Wanted] = []
        self._sql = ""
        self._connection = connect(self._options, self._folder, self._filesystem)
        self._expired = Event()
        self._timer = Timer(options.timeout_seconds, self._expire) if options.timeout_seconds else None
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    def prepare(self, sql: str, source: TableSource) -> None:
        """Everything up to the moment when the query may run."""
        statement = read_statement(self._connection, sql)
        resolved = resolve(self._connection, statement, source, self._pending)
        self._sql = statement.explained + resolved.question
        self._check_time()
        relations = self._begin(resolved)
        need: dict[TableKey, Needed] = {}
        if statement.may_filter or resolved.views or any(map(_copies, resolved.tables.values())):
            planned = self._needed(relations, resolved)
            if planned is None:
                self._connection.close()
                self._connection = connect(self._options, self._folder, self._filesystem)
                relations = self._begin(resolved)
            need = planned or {}
        for key, table in resolved.tables.items():
            self._check_time()
            with about(str(key)):
                rows = need[key].rows if key in need else EVERYTHING
                plan = plan_scan(self._files, table.metadata, snapshot_id=table.snapshot_id, row_filter=rows)
                wanted = self._wish(key, plan, need.get(key))
                self._wanted.append(wanted)
                self._show(key, relations.query(wanted))
        self._show_views(resolved)
        lock(self._connection, relations.paths)

    def table(self) -> pa.Table:
        """The whole answer."""
        with self.failing():
            self._check_time()
            result = self._connection.execute(self._sql)
            uuids = self._uuids()
            found = result.to_arrow_table(self._options.batch_rows)
            if not any(uuids):
                return found
            schema = with_uuids(found.schema, uuids)
            return pa.Table.from_batches([convert(batch, schema) for batch in found.to_batches()], schema)

    def reader(self) -> pa.RecordBatchReader:
        """The answer, to be read once."""
        with self.failing():
            self._check_time()
            result = self._connection.execute(self._sql)
            uuids = self._uuids()
            reader = result.to_arrow_reader(self._options.batch_rows)
        schema = with_uuids(reader.schema, uuids)

        def batches() -> Iterator[pa.RecordBatch]:
            with self.failing():
                for batch in reader:
                    yield convert(batch, schema)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def close(self) -> None:
        """End DuckDB, and with it the query."""
        if self._timer is not None:
            self._timer.cancel()
        self._connection.close()

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Whatever goes wrong within is an error of ours."""
        try:
            yield
        except (duckdb.Error, pa.ArrowException, RuntimeError, OSError) as error:
            raise self._told(error) from error

    def _told(self, error: Exception) -> Exception:
        if self._expired.is_set():
            return QueryTimeoutError(self._options.timeout_seconds or 0)
        if self._filesystem.failure is not None:
            return self._with_table(self._filesystem.failure)
        said = error if isinstance(error, duckdb.Error) else _as_duckdb(error)
        if said is None:
            return error
        if may_be_a_file(said):
            try:
                self._look_for_damage()
            except HeadwaterError as damage:
                return damage
        return translate(said)

    def _with_table(self, error: HeadwaterError) -> HeadwaterError:
        """An error about a file, with the table that the file is of."""
        path = str(error.fields.get("path"))
        for wanted in self._wanted:
            if any(task.file.file_path.endswith(path) for task in wanted.plan.tasks):
                try:
                    with about(wanted.label):
                        raise error
                except HeadwaterError as named:
                    return named
        return error

    def _look_for_damage(self) -> None:
        """Read every file of the query by other means, to name the one that is broken."""
        for wanted in self._wanted:
            with about(wanted.label):
                for task in wanted.plan.tasks:
                    for _ in read_task(self._files, task, plan=wanted.plan):
                        pass

    def _begin(self, resolved: Resolved) -> Relations:
        execute = self._connection.execute
        execute("BEGIN")
        for schema in sorted({DEFAULT_NAMESPACE, *(_schema(key) for key in (*resolved.tables, *resolved.views))}):
            execute(f"CREATE SCHEMA IF NOT EXISTS {name(schema)}")
        execute(f"SET search_path = {value(name(DEFAULT_NAMESPACE))}")
        return Relations(self._connection, self._files, self._filesystem)

    def _needed(self, relations: Relations, resolved: Resolved) -> dict[TableKey, Needed] | None:
        """What of each table can matter; None when DuckDB cannot say, and must then be asked no more."""
        stand_ins, keys = {}, {}
        for key, table in resolved.tables.items():
            with about(str(key)):
                wanted = self._wish(key, ScanPlan(table.metadata, schema_at(table), None, ()))
                made, shown = relations.stand_in(wanted.fields)
            self._show(key, shown)
            stand_ins[made] = {column(each.field_id): each for each in wanted.plan.schema.fields}
            keys[made] = key
        self._show_views(resolved)
        plan = plan_of(self._connection, resolved.question)
        return None if plan is None else {keys[made]: each for made, each in needed(plan, stand_ins).items()}

    def _wish(self, key: TableKey, plan: ScanPlan, need: Needed | None = None) -> Wanted:
        check_names(plan.schema, str(key))
        return Wanted(
            str(key),
            plan,
            self._pending.rows.get(key),
            self._pending.deletes.get(key, {}),
            positions=key in self._options.positions,
            needed=need,
        )

    def _show(self, key: TableKey, sql: str, columns: tuple[str, ...] = ()) -> None:
        named = f" ({', '.join(map(name, columns))})" if columns else ""
        view = f"{name(_schema(key))}.{name(key.name)}"
        self._connection.execute(f"CREATE OR REPLACE VIEW {view}{named} AS {sql}")

    def _show_views(self, resolved: Resolved) -> None:
        for key, view in resolved.views.items():
            with about(str(key)), self.failing():
                self._show(key, view.sql, view.columns)

    def _uuids(self) -> list[bool]:
        return [str(each[1]) == "UUID" for each in self._connection.description or ()]

    def _expire(self) -> None:
        self._expired.set()
        self._connection.interrupt()

    def _check_time(self) -> None:
        if self._expired.is_set():
            raise QueryTimeoutError(self._options.timeout_seconds or 0)


def _schema(key: TableKey) -> str:
    return ".".join(key.namespace)


def _copies(table: OpenTable) -> bool:
    """Whether every file of the table will be copied: then only what is needed should be."""
    return copies_table(table.metadata, schema_at(table)) is not None


def _as_duckdb(error: Exception) -> duckdb.Error | None:
    """What DuckDB said through Arrow, which knows no kinds of errors but DuckDB's words for them."""
    text = str(error)
    said = text.replace(" ", "").lower()
    for kind in (
        duckdb.OutOfMemoryException,
        duckdb.ConversionException,
        duckdb.OutOfRangeException,
        duckdb.InvalidInputException,
        duckdb.IOException,
        duckdb.BinderException,
    ):
        if said.startswith(kind.__name__.removesuffix("Exception").lower()):
            return kind(text)
    return duckdb.Error(text) if isinstance(error, pa.ArrowException | RuntimeError) else None
