"""A transaction: statements over any number of tables, and one commit at the end, or none.

Nothing moves and nothing is stored until every statement has succeeded. Later statements see earlier ones. All of them
see the lake as it stood when the transaction began; at the end, every table that was touched or read must still be at
that version (P8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyroaring import BitMap64

from headwater import query
from headwater.catalog.model import Commit, Content, TableContent, TableKey
from headwater.kernel.errors import UsageError
from headwater.publish.model import TableWish, Wish, WriterKind
from headwater.publish.state import State
from headwater.publish.statements import DeleteRows, Insert, Merge, StatementError, Update, When, parse
from headwater.query import OpenTable, OpenView, Pending, QueryOptions
from headwater.query.types import duck_type, name
from headwater.tables.model import FILE_COLUMN, POSITION_COLUMN, ROW_ID_COLUMN, TableUsageError, TableVersion
from headwater.tables.operations import edit_planned
from headwater.tables.scan import plan_scan
from headwater.tables.snapshot import Staging

# Where a row is, under names that no column of a table has.
_FILE, _POSITION, _ROW_ID = "__headwater_file", "__headwater_pos", "__headwater_row_id"


@dataclass
class _Touched:
    """A table that the transaction changes: what was pinned, and what is laid over it."""

    version: TableVersion
    pinned: TableContent
    rows: pa.Table
    row_ids: list[int | None] = field(default_factory=list)
    deletes: dict[str, BitMap64] = field(default_factory=dict)

    @property
    def schema(self) -> Schema:
        """The schema that rows are in."""
        return self.version.metadata.schema()

    @property
    def keeps_ids(self) -> bool:
        """Whether rows have ids, which updates keep (v3)."""
        return self.version.metadata.format_version >= 3

    @property
    def is_changed(self) -> bool:
        """Whether anything is to be committed."""
        return bool(self.rows.num_rows or self.deletes)


class Transaction:
    """One transaction, used by one thread."""

    def __init__(self, state: State, *, staging: Staging, actor: str, message: str, options: QueryOptions) -> None:
        self._state = state
        self._staging = staging
        self._actor = actor
        self._message = message
        self._options = options
        self._touched: dict[TableKey, _Touched] = {}
        self._reads: dict[TableKey, Content | None] = {}
        self.operation = staging.operation
        self.commit: Commit | None = None

    def insert(self, table: str, rows: pa.Table) -> int:
        """Add rows; columns are taken by name."""
        touched = self._touch(TableKey.parse(table))
        self._append(touched, rows)
        return int(rows.num_rows)

    def query(self, sql: str) -> pa.Table:
        """The answer to a SELECT, with what this transaction has done so far."""
        return self._ask(sql)

    def sql(self, sql: str) -> int:
        """Run INSERT, UPDATE, DELETE or MERGE; returns how many rows it added, changed or deleted."""
        statement = parse(sql)
        match statement:
            case Insert():
                return self._insert(statement)
            case Update():
                return self._update(statement)
            case DeleteRows():
                return self._delete(statement)
            case Merge():
                return self._merge(statement)

    def wish(self) -> Wish | None:
        """What is to be published; None when nothing was changed."""
        changed = {key: each for key, each in self._touched.items() if each.is_changed}
        if not changed:
            return None
        reads = {key: version for key, version in self._reads.items() if key not in changed}
        reads |= {key: each.pinned for key, each in self._touched.items() if key not in changed}
        return Wish(
            kind=WriterKind.TRANSACTION,
            actor=self._actor,
            message=self._message,
            branch=self._state.ref.name,
            branch_incarnation=self._state.ref.incarnation,
            operation=self.operation,
            tables=tuple(self._staged(key, each) for key, each in changed.items()),
            reads=reads,
        )

    def _staged(self, key: TableKey, touched: _Touched) -> TableWish:
        rows = touched.rows
        if touched.keeps_ids:
            rows = rows.append_column(ROW_ID_COLUMN, pa.array(touched.row_ids, pa.int64()))
        deletes = []
        if touched.deletes:
            plan = plan_scan(self._state.files, touched.version.metadata)
            tasks = {task.file.file_path: task for task in plan.tasks}
            deletes = [(tasks[path], positions) for path, positions in touched.deletes.items()]
        staged = edit_planned(self._staging, touched.version, deletes, rows if rows.num_rows else None)
        return TableWish(key, touched.pinned, staged)

    # Statements

    def _insert(self, statement: Insert) -> int:
        touched = self._touch(statement.table)
        names = statement.columns or tuple(touched.schema.column_names)
        unknown = [each for each in names if each not in touched.schema.column_names]
        if unknown:
            raise StatementError(f"{statement.table} has no column {unknown[0]}", column=unknown[0])
        given = f"({statement.source}) AS given({', '.join(name(each) for each in names)})"
        rows = self._ask(f"SELECT {self._cast(touched, {each: f'given.{name(each)}' for each in names})} FROM {given}")
        self._append(touched, rows)
        return int(rows.num_rows)

    def _update(self, statement: Update) -> int:
        touched = self._touch(statement.table)
        values = {each: f"{name(statement.alias)}.{name(each)}" for each in touched.schema.column_names}
        for column, value in statement.settings:
            values[_column(touched, statement.table, column)] = value
        others = f", {statement.others}" if statement.others else ""
        found = self._ask(
            f"SELECT {self._place(touched, statement.alias)}, {self._cast(touched, values)} "
            f"FROM {_table(statement.table)} AS {name(statement.alias)}{others} WHERE {statement.where or 'TRUE'}",
            positions=statement.table,
        )
        self._refuse_twice(found, statement.table)
        ids = _ids(found, touched)
        self._remove(touched, found)
        self._append(touched, found.select(touched.schema.column_names), ids)
        return int(found.num_rows)

    def _delete(self, statement: DeleteRows) -> int:
        touched = self._touch(statement.table)
        others = f", {statement.others}" if statement.others else ""
        found = self._ask(
            f"SELECT DISTINCT {self._place(touched, statement.alias)} "
            f"FROM {_table(statement.table)} AS {name(statement.alias)}{others} WHERE {statement.where or 'TRUE'}",
            positions=statement.table,
        )
        self._remove(touched, found)
        return int(found.num_rows)

    def _merge(self, statement: Merge) -> int:
        """Every WHEN is asked about the table as it was before the merge, then all of them are carried out."""
        touched = self._touch(statement.table)
        matched: list[tuple[pa.Table, bool]] = []
        added: list[pa.Table] = []
        earlier: dict[bool, list[str]] = {True: [], False: []}
        for when in statement.whens:
            guard = _guard(when, earlier[when.matched])
            earlier[when.matched].append(when.condition or "TRUE")
            if when.matched:
                matched.append((self._matched(touched, statement, when, guard), when.settings is not None))
            else:
                added.append(self._unmatched(touched, statement, when, guard))
        places = [found.select([_FILE, _POSITION]) for found, _ in matched]
        if places:
            self._refuse_twice(pa.concat_tables(places), statement.table)
        # Pending rows are named by their index, so ids are noted and rows removed before the first is added.
        everything = [found for found, _ in matched]
        ids = [_ids(found, touched) for found in everything]
        if everything:
            self._remove(touched, pa.concat_tables([each.select([_FILE, _POSITION]) for each in everything]))
        for (found, is_update), kept in zip(matched, ids, strict=True):
            if is_update:
                self._append(touched, found.select(touched.schema.column_names), kept)
        for rows in added:
            self._append(touched, rows)
        return sum(int(each.num_rows) for each in (*everything, *added))

    def _matched(self, touched: _Touched, statement: Merge, when: When, guard: str) -> pa.Table:
        columns = ""
        if when.settings is not None:
            values = {each: f"{name(statement.alias)}.{name(each)}" for each in touched.schema.column_names}
            if when.all_columns:
                values = {each: f"{name(statement.source_alias)}.{name(each)}" for each in values}
            for column, value in when.settings:
                values[_column(touched, statement.table, column)] = value
            columns = f", {self._cast(touched, values)}"
        return self._ask(
            f"SELECT {self._place(touched, statement.alias)}{columns} FROM {_table(statement.table)} AS "
            f"{name(statement.alias)} JOIN {statement.source} ON {statement.on} WHERE {guard}",
            positions=statement.table,
        )

    def _unmatched(self, touched: _Touched, statement: Merge, when: When, guard: str) -> pa.Table:
        names = touched.schema.column_names
        settings = when.settings or ()
        if when.all_columns:
            values = {each: f"{name(statement.source_alias)}.{name(each)}" for each in names}
        elif settings and not settings[0][0]:
            if len(settings) != len(names):
                raise StatementError(
                    f"{statement.table} has {len(names)} columns, and {len(settings)} values are given"
                )
            values = dict(zip(names, (value for _, value in settings), strict=True))
        else:
            values = {_column(touched, statement.table, column): value for column, value in settings}
        return self._ask(
            f"SELECT {self._cast(touched, values)} FROM {statement.source} WHERE {guard} AND NOT EXISTS (SELECT 1 FROM "
            f"{_table(statement.table)} AS {name(statement.alias)} WHERE {statement.on})",
        )

    # Rows

    def _touch(self, key: TableKey) -> _Touched:
        if key not in self._touched:
            version = self._state.table(key)
            pinned = self._state.content(key)
            assert isinstance(pinned, TableContent)
            arrow = schema_to_pyarrow(version.metadata.schema(), include_field_ids=False)
            self._touched[key] = _Touched(version, pinned, arrow.empty_table())
        return self._touched[key]

    def _append(self, touched: _Touched, rows: pa.Table, ids: Sequence[int | None] | None = None) -> None:
        touched.rows = pa.concat_tables([touched.rows, _fitted(rows, touched.rows.schema)])
        touched.row_ids += ids if ids is not None else [None] * rows.num_rows

    def _remove(self, touched: _Touched, found: pa.Table) -> None:
        """Rows by where they are: in a file of the table, or pending."""
        pending: set[int] = set()
        for file, position in zip(found[_FILE].to_pylist(), found[_POSITION].to_pylist(), strict=True):
            if file is None:
                pending.add(position)
            else:
                touched.deletes.setdefault(file, BitMap64()).add(position)
        if pending:
            kept = [index for index in range(touched.rows.num_rows) if index not in pending]
            touched.rows = touched.rows.take(pa.array(kept, pa.int64()))
            touched.row_ids = [touched.row_ids[index] for index in kept]

    def _refuse_twice(self, found: pa.Table, key: TableKey) -> None:
        places = found.select([_FILE, _POSITION])
        if places.group_by([_FILE, _POSITION]).aggregate([]).num_rows != places.num_rows:
            raise UsageError(
                f"a row of {key} would be changed more than once by one statement",
                hint="let each row match at most one row of the source",
                table=str(key),
            )

    # Questions

    def _ask(self, sql: str, *, positions: TableKey | None = None) -> pa.Table:
        options = self._options
        if positions is not None:
            options = QueryOptions(
                memory_limit_bytes=options.memory_limit_bytes,
                threads=options.threads,
                temp_directory=options.temp_directory,
                timeout_seconds=options.timeout_seconds,
                positions=frozenset({positions}),
            )
        pending = Pending(
            rows={key: each.rows for key, each in self._touched.items() if each.rows.num_rows},
            deletes={key: each.deletes for key, each in self._touched.items() if each.deletes},
        )
        return query.run(sql, _Recording(self._state, self._reads), self._state.files, options=options, pending=pending)

    def _place(self, touched: _Touched, alias: str) -> str:
        at = f"{name(alias)}."
        ids = f", {at}{ROW_ID_COLUMN} AS {_ROW_ID}" if touched.keeps_ids else ""
        return f"{at}{FILE_COLUMN} AS {_FILE}, {at}{POSITION_COLUMN} AS {_POSITION}{ids}"

    def _cast(self, touched: _Touched, values: Mapping[str, str]) -> str:
        types = {field.name: duck_type(field.field_type) for field in touched.schema.fields}
        return ", ".join(f"CAST({value} AS {types[each]}) AS {name(each)}" for each, value in values.items())


class _Recording:
    """A source that notes the version of everything that is read."""

    def __init__(self, state: State, reads: dict[TableKey, Content | None]) -> None:
        self._state = state
        self._reads = reads

    def names(self) -> Sequence[TableKey]:
        """Every table and view."""
        return tuple(self._state.names())

    def open(self, key: TableKey) -> OpenTable | OpenView | None:
        """The table or view, noted; one that is not there is noted too."""
        self._reads[key] = self._state.content(key)
        return self._state.open(key)


def _guard(when: When, earlier: Sequence[str]) -> str:
    """The condition of a WHEN, which counts only where none before it does."""
    parts = [f"({when.condition})"] if when.condition else ["TRUE"]
    parts += [f"NOT coalesce({each}, FALSE)" for each in earlier]
    return " AND ".join(parts)


def _table(key: TableKey) -> str:
    return ".".join(name(part) for part in key.elements)


def _column(touched: _Touched, key: TableKey, column: str) -> str:
    """The column as the table spells it; SQL does not tell capitals from small letters."""
    for each in touched.schema.column_names:
        if each.lower() == column.lower():
            return each
    raise StatementError(f"{key} has no column {column}", column=column)


def _ids(found: pa.Table, touched: _Touched) -> list[int | None]:
    """The ids that rows keep when they are changed: a row of the table has one, a pending row what it was given."""
    if not touched.keeps_ids:
        return [None] * found.num_rows
    rows = zip(found[_FILE].to_pylist(), found[_POSITION].to_pylist(), found[_ROW_ID].to_pylist(), strict=True)
    return [touched.row_ids[position] if file is None else row_id for file, position, row_id in rows]


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows in the order and types of the table; a column that is not given is null."""
    unknown = [each for each in rows.column_names if each not in schema.names]
    if unknown:
        raise TableUsageError(f"there is no column {unknown[0]}", hint=f"there are {', '.join(schema.names)}")
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)
