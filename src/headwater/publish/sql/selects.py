"""The SELECTs that a statement asks to know what it changes. Pure: a statement and the shape of its table give SQL.

Each row that a statement changes or deletes is found with its place (`FILE`, `POSITION`, on v3 `ROW_ID`) and with what
it was, as far as constraints need to know (`WAS` before the column's name); no column of a table has such names. The
table is shown for that once more, as `placed`: wherever else the statement names it, `SELECT *` has its columns alone.
Rows to be added come under the names of the table's columns, cast to their types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.schema import Schema

from headwater.catalog.model import TableKey
from headwater.publish.constraints.declared import column_named
from headwater.publish.constraints.values import Values, table
from headwater.publish.sql.statements import DeleteRows, Insert, Merge, StatementError, Update, When
from headwater.query.types import duck_type, name
from headwater.tables.model import FILE_COLUMN, POSITION_COLUMN, ROW_ID_COLUMN

FILE, POSITION, ROW_ID, WAS = "__headwater_file", "__headwater_pos", "__headwater_row_id", "__headwater_was "
_PLACED = "headwater placed"
# Under which the rows of a fickle source are shown, once they have been asked for.
HELD = TableKey(("headwater held",), "source")


@dataclass(frozen=True)
class Shape:
    """What a SELECT must know of the table: its schema, whether rows have ids, which old values constraints need."""

    table: TableKey
    schema: Schema
    keeps_ids: bool
    needed: tuple[str, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column, not what is within one."""
        return tuple(each.name for each in self.schema.fields)

    def column(self, said: str) -> str:
        """The column as the table spells it."""
        found = column_named(self.schema, said)
        if found is None:
            raise StatementError(
                f"{self.table} has no column {said}", hint=f"it has {', '.join(self.columns)}", column=said
            )
        return found


def placed(key: TableKey) -> TableKey:
    """Under which the table is shown with the places of its rows."""
    return TableKey((_PLACED, *key.namespace), key.name)


def inserted(statement: Insert, shape: Shape, named: Sequence[str]) -> str:
    """The rows to add. `named` says which columns the source gives; columns that it gives beyond them come behind."""
    columns = [shape.column(each) for each in named]
    quoted = ", ".join(name(each) for each in columns)
    return (
        f"{statement.given}SELECT {_cast(shape, {each: f'given.{name(each)}' for each in columns})}, "
        f"given.* EXCLUDE ({quoted}) FROM ({statement.source}) AS given({quoted})"
    )


def source_columns(statement: Insert) -> str:
    """No rows, but the columns of the source."""
    return f"{statement.given}SELECT * FROM ({statement.source}) AS given LIMIT 0"


def updated(statement: Update, shape: Shape) -> str:
    """The rows to change, with their new values."""
    values = {each: f"{name(statement.alias)}.{name(each)}" for each in shape.columns}
    values |= {shape.column(column): value for column, value in statement.settings}
    return (
        f"{statement.given}SELECT {_place(shape, statement.alias)}, {_cast(shape, values)} "
        f"FROM {_from(shape, statement.alias, statement.others)} WHERE {statement.where or 'TRUE'}"
    )


def deleted(statement: DeleteRows, shape: Shape) -> str:
    """The rows to delete, each once."""
    distinct = "DISTINCT " if statement.others else ""
    return (
        f"{statement.given}SELECT {distinct}{_place(shape, statement.alias)} "
        f"FROM {_from(shape, statement.alias, statement.others)} WHERE {statement.where or 'TRUE'}"
    )


def referring(shape: Shape, columns: Sequence[str], among: Values) -> str:
    """The rows whose columns have one of the values."""
    own = [f"t.{name(each)}" for each in columns]
    matches = " AND ".join(f"{each} = s.k{place}" for place, each in enumerate(own))
    return (
        f"SELECT {_place(shape, 't')} FROM {_from(shape, 't', '')} SEMI JOIN {among.source} ON {matches} "
        f"WHERE TRUE{among.bounds(own)}"
    )


def source_rows(statement: Merge) -> str:
    """Every row of the source."""
    return f"{statement.given}SELECT * FROM {statement.source}"


def with_held_source(statement: Merge) -> Merge:
    """The same, of rows that were asked for before."""
    return replace(statement, source=f"{table(HELD)} AS {name(statement.source_alias)}")


def matched(statement: Merge, shape: Shape, when: When, guard: str) -> str:
    """The rows of a merge that one WHEN changes or deletes."""
    columns = ""
    if when.settings is not None:
        alias = statement.source_alias if when.all_columns else statement.alias
        values = {each: f"{name(alias)}.{name(each)}" for each in shape.columns}
        values |= {shape.column(column): value for column, value in when.settings}
        columns = f", {_cast(shape, values)}"
    start = (
        f"{statement.given}SELECT {_place(shape, statement.alias)}{columns} FROM {_from(shape, statement.alias, '')}"
    )
    if when.by_source:
        return f"{start} WHERE {guard} AND {_unmatched(statement, shape, statement.source)}"
    return f"{start} JOIN {statement.source} ON {statement.on} WHERE {guard}"


def unmatched(statement: Merge, shape: Shape, when: When, guard: str) -> str:
    """The rows that one WHEN NOT MATCHED adds."""
    settings = when.settings or ()
    if when.all_columns:
        values = {each: f"{name(statement.source_alias)}.{name(each)}" for each in shape.columns}
    elif settings and not settings[0][0]:
        if len(settings) != len(shape.columns):
            raise StatementError(
                f"{shape.table} has {len(shape.columns)} columns, and {len(settings)} values are given"
            )
        values = dict(zip(shape.columns, (value for _, value in settings), strict=True))
    else:
        values = {shape.column(column): value for column, value in settings}
    return (
        f"{statement.given}SELECT {_cast(shape, values)} FROM {statement.source} "
        f"WHERE {guard} AND {_unmatched(statement, shape, _target(statement, shape))}"
    )


def _unmatched(statement: Merge, shape: Shape, other: str) -> str:
    """No row of the other side matches.

    In a subquery, a name that both sides have would mean that of the other side. Next to each other, which the second
    subquery is there for, they make it an error.
    """
    both = f"{_target(statement, shape)} JOIN {statement.source} ON {statement.on}"
    return f"NOT EXISTS (SELECT 1 FROM {other} WHERE {statement.on}) AND NOT EXISTS (SELECT 1 FROM {both} WHERE FALSE)"


def _target(statement: Merge, shape: Shape) -> str:
    return f"{table(shape.table)} AS {name(statement.alias)}"


def guards(whens: Sequence[When]) -> list[str]:
    """The condition of each WHEN, which counts only where none of its kind before it does."""
    found = []
    for place, when in enumerate(whens):
        earlier = [each.condition or "TRUE" for each in whens[:place] if each.kind == when.kind]
        own = f"({when.condition})" if when.condition else "TRUE"
        found.append(" AND ".join([own, *(f"NOT coalesce({each}, FALSE)" for each in earlier)]))
    return found


def _place(shape: Shape, alias: str) -> str:
    at = f"{name(alias)}."
    parts = [f"{at}{FILE_COLUMN} AS {FILE}", f"{at}{POSITION_COLUMN} AS {POSITION}"]
    parts += [f"{at}{ROW_ID_COLUMN} AS {ROW_ID}"] if shape.keeps_ids else []
    parts += [f"{at}{name(each)} AS {name(WAS + each)}" for each in shape.needed]
    return ", ".join(parts)


def _cast(shape: Shape, values: Mapping[str, str]) -> str:
    types = {each.name: duck_type(each.field_type) for each in shape.schema.fields}
    return ", ".join(f"CAST({value} AS {types[each]}) AS {name(each)}" for each, value in values.items())


def _from(shape: Shape, alias: str, others: str) -> str:
    return f"{table(placed(shape.table))} AS {name(alias)}{f', {others}' if others else ''}"
