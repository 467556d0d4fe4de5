"""One query, from text to Arrow.

Promise: the answer is that of DuckDB over the tables as `source` shows them, at one point and with what is pending;
and the query can do nothing but answer.

Invariants:

    1  No SQL of a user or a view is bound before its statement was checked, and none runs before DuckDB is locked.
    2  Locked, DuckDB can open the files of the plan and nothing else, and no setting can be changed any more.
    3  A file is left out only when no row of it can matter to the plan that DuckDB made without statistics. That
       plan is made in the transaction that the query runs in, so `now()` is one moment.
    4  Whatever ends the wait for DuckDB (a signal, the time limit, the end of the stream's context) ends DuckDB's
       work before the caller goes on, and is what the caller sees. Nothing of a query outlives it.

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

import duckdb
import pyarrow as pa

from headwater.catalog.model import TableKey
from headwater.catalog.names import DEFAULT_NAMESPACE
from headwater.query.arrow import convert, with_uuids
from headwater.query.conditions import EVERYTHING
from headwater.query.damage import look_for_damage, with_table
from headwater.query.deadline import Deadline, Stop
from headwater.query.decide import copies_table, only_of, schema_at
from headwater.query.engine import Engine, lock, plan_of
from headwater.query.failures import about, as_duckdb, is_interrupt, may_be_a_file, nested_too_deeply, translate
from headwater.query.filesystem import LakeFileSystem
from headwater.query.model import OpenTable, Pending, QueryOptions, QueryUsageError, TableSource
from headwater.query.predicates import Needed, needed
from headwater.query.references import DATABASE, schema_of
from headwater.query.relations import Relations, Wanted
from headwater.query.resolve import Resolved, resolve
from headwater.query.statement import read_statement
from headwater.query.types import check_names, column, name, value
from headwater.tables.files import Files
from headwater.tables.model import ScanPlan
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
    stop: Stop | None = None,
) -> Iterator[pa.RecordBatchReader]:
    """The answer batch by batch, for as long as the context lasts, or until `stop` is asked for."""
    with _answering(sql, source, files, options, pending, stop) as query:
        yield query.reader()


@contextmanager
def _answering(
    sql: str, source: TableSource, files: Files, options: QueryOptions, pending: Pending, stop: Stop | None = None
) -> Iterator[_Query]:
    with ExitStack() as stack:
        folder = _make_folder(options.temp_directory)
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        query = _Query(files, options, pending, folder, stop)
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

    def __init__(self, files: Files, options: QueryOptions, pending: Pending, folder: Path, stop: Stop | None) -> None:
        self._files = files
        self._options = options
        self._pending = pending
        self._folder = folder
        self._filesystem = LakeFileSystem(files)
        self._wanted: list[Wanted] = []
        self._sql = ""
        self._is_as_written = True
        self._reader: pa.RecordBatchReader | None = None
        self._engine = Engine(options, folder, self._filesystem)
        self._deadline = Deadline(options.timeout_seconds, self._engine.interrupt, stop)
        self._is_closed = False

    def prepare(self, sql: str, source: TableSource) -> None:
        """Everything up to the moment when the query may run."""
        statement = read_statement(self._engine.fetch, sql)
        resolved = resolve(self._engine.fetch, statement, source, self._pending)
        self._sql = statement.explained + resolved.question
        self._is_as_written = resolved.question == statement.question
        self._deadline.check()
        relations = self._begin(resolved)
        need: dict[TableKey, Needed] = {}
        is_late = any(key in self._pending.late for key in resolved.tables)
        if statement.may_filter or resolved.views or is_late or any(map(_copies, resolved.tables.values())):
            planned = self._needed(relations, resolved)
            if planned is None:
                self._engine.reopen()
                relations = self._begin(resolved)
            need = planned or {}
        for key, table in resolved.tables.items():
            self._deadline.check()
            with about(str(key)):
                rows = need[key].rows if key in need else EVERYTHING
                plan = plan_scan(self._files, table.metadata, snapshot_id=table.snapshot_id, row_filter=rows)
                plan = only_of(plan, table.data_files)
                wanted = self._wish(key, plan, need.get(key))
                self._wanted.append(wanted)
                self._show(key, relations.query(wanted))
        self._show_views(resolved)
        lock(self._engine, relations.paths)

    def table(self) -> pa.Table:
        """The whole answer."""
        with self.failing():
            self._deadline.check()
            uuids, found = self._engine.call(
                lambda duck: (_uuids(duck.execute(self._sql)), duck.to_arrow_table(self._options.batch_rows))
            )
            if not any(uuids):
                return found
            schema = with_uuids(found.schema, uuids)
            return pa.Table.from_batches([convert(batch, schema) for batch in found.to_batches()], schema)

    def reader(self) -> pa.RecordBatchReader:
        """The answer, to be read once."""
        with self.failing():
            self._deadline.check()
            uuids, self._reader = self._engine.call(
                lambda duck: (_uuids(duck.execute(self._sql)), duck.to_arrow_reader(self._options.batch_rows))
            )
            schema = with_uuids(self._reader.schema, uuids)
        return pa.RecordBatchReader.from_batches(schema, _Batches(self, schema))

    def next_batch(self) -> pa.RecordBatch | None:
        """The next piece of the answer, None at its end; an error when the query has ended before it."""
        if self._is_closed:
            raise QueryUsageError(
                "the query has ended, and with it its stream", hint="read the stream within its context"
            )
        with self.failing():
            self._deadline.check()
            return self._engine.call(lambda _: None if self._reader is None else next(self._reader, None))

    def close(self) -> None:
        """End DuckDB, and with it the query and its stream."""
        self._is_closed = True
        try:
            self._deadline.close()
        finally:
            self._reader = None
            self._engine.close()

    @contextmanager
    def failing(self, *, is_as_written: bool = True) -> Iterator[None]:
        """Whatever goes wrong within is an error of ours. Where in the SQL, it tells of SQL as it was written."""
        try:
            yield
        except (duckdb.Error, pa.ArrowException, RuntimeError, OSError) as error:
            raise self._told(error, is_as_written=is_as_written and self._is_as_written) from error

    def _told(self, error: Exception, *, is_as_written: bool) -> BaseException:
        if (late := self._deadline.error) is not None:
            return late
        if is_interrupt(error):
            return KeyboardInterrupt()
        if isinstance(error, RecursionError):
            return nested_too_deeply()
        if self._filesystem.failure is not None:
            return with_table(self._filesystem.failure, self._wanted)
        said = error if isinstance(error, duckdb.Error) else as_duckdb(error)
        if said is None:
            return error
        if may_be_a_file(said):
            damage = look_for_damage(self._files, self._wanted, self._deadline.check)
            if damage is not None:
                return damage
        return translate(said, is_as_written=is_as_written)

    def _begin(self, resolved: Resolved) -> Relations:
        execute = self._engine.execute
        execute("BEGIN")
        for schema in sorted(
            {DEFAULT_NAMESPACE, *(schema_of(key.namespace) for key in (*resolved.tables, *resolved.views))}
        ):
            execute(f"CREATE SCHEMA IF NOT EXISTS {name(DATABASE)}.{name(schema)}")
        execute(f"SET search_path = {value(name(DEFAULT_NAMESPACE))}")
        return Relations(self._engine, self._files, self._filesystem, self._deadline.check)

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
        plan = plan_of(self._engine, resolved.question)
        if plan is None:
            return None
        try:
            return {keys[made]: each for made, each in needed(plan, stand_ins).items()}
        except RecursionError:
            return None

    def _wish(self, key: TableKey, plan: ScanPlan, need: Needed | None = None) -> Wanted:
        check_names(plan.schema, str(key))
        return Wanted(
            str(key),
            plan,
            self._pending.rows.get(key),
            self._pending.deletes.get(key, {}),
            positions=key in self._options.positions,
            needed=need,
            late=self._pending.late.get(key),
        )

    def _show(self, key: TableKey, sql: str, columns: tuple[str, ...] = ()) -> None:
        named = f" ({', '.join(map(name, columns))})" if columns else ""
        view = f"{name(DATABASE)}.{name(schema_of(key.namespace))}.{name(key.name)}"
        self._engine.execute(f"CREATE OR REPLACE VIEW {view}{named} AS {sql}")

    def _show_views(self, resolved: Resolved) -> None:
        for key, view in resolved.views.items():
            with about(str(key)), self.failing(is_as_written=False):
                self._show(key, view.sql, view.columns)


class _Batches:
    """The batches of an answer. Not a generator: that would say, after an error, that it had come to its end."""

    def __init__(self, query: _Query, schema: pa.Schema) -> None:
        self._query = query
        self._schema = schema

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = self._query.next_batch()
        if batch is None:
            raise StopIteration
        return convert(batch, self._schema)


def _uuids(duck: duckdb.DuckDBPyConnection) -> list[bool]:
    return [str(each[1]) == "UUID" for each in duck.description or ()]


def _copies(table: OpenTable) -> bool:
    """Whether every file of the table will be copied: then only what is needed should be."""
    return copies_table(table.metadata, schema_at(table)) is not None
