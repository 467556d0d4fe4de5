"""Constraints as they were declared, brought together with the tables that they are about. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import sqlglot
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headwater.catalog.model import TableKey
from headwater.kernel.errors import UsageError
from headwater.publish.constraints.codec import constraints_of
from headwater.publish.constraints.model import Cardinality, Check, Constraint, ForeignKey
from headwater.publish.constraints.sql import PRIMARY_KEY, Link
from headwater.publish.errors import ConstraintBrokenError
from headwater.publish.sql.dialect import AsWritten, said

# What a check may not hold: it is about one row, and its answer is the same whoever asks.
_REFUSED = (exp.Query, exp.AggFunc, exp.Window, exp.Placeholder, exp.Parameter, exp.Star)


@dataclass(frozen=True)
class Condition:
    """A check that was read: its SQL, and the columns that it mentions."""

    sql: str
    columns: tuple[str, ...]


def validate_check(expression: str, schema: Schema) -> Condition:
    """The check, if it is one condition on the columns of one row of such a table; an error says what it is instead."""
    try:
        tree = sqlglot.parse_one(expression, dialect=AsWritten, into=exp.Condition)
    except (SqlglotError, RecursionError) as error:
        raise _no_check(expression, "it is not one SQL condition") from error
    if (other := tree.find(*_REFUSED)) is not None:
        raise _no_check(expression, f"it may not hold {said(other)}")
    columns = []
    for column in tree.find_all(exp.Column):
        # `s.a` is the part a of the column s: a check has no table to name.
        first = column.parts[0].name
        if (found := column_named(schema, first)) is None:
            raise _no_check(expression, f"there is no column {first}")
        columns.append(found)
    if not columns:
        raise _no_check(expression, "it mentions no column")
    return Condition(said(tree, comments=False), _ordered(schema, columns))


def columns_needed(metadata: TableMetadata) -> tuple[str, ...]:
    """The columns that constraints of this table, or of those that refer to it, mention; foreign keys refer to its key.

    A constraint that mentions what is not there has nothing to add here: it is an error when it is judged.
    """
    known, schema = constraints_of(metadata), metadata.schema()
    mentioned = [column for each in known.declared for column in _mentioned(each, schema)]
    return _known(schema, (*known.primary_key, *known.required, *mentioned))


def columns_counted(metadata: TableMetadata) -> tuple[str, ...]:
    """Those of them that are needed of rows that go: of which it matters how many rows have a value."""
    known, schema = constraints_of(metadata), metadata.schema()
    keys = [column for each in known.declared if not isinstance(each, Check) for column in _mentioned(each, schema)]
    return _known(schema, (*known.primary_key, *keys))


def column_named(schema: Schema, text: str) -> str | None:
    """The column of this name as the table spells it; SQL does not tell capitals from small letters."""
    names = [each.name for each in schema.fields]
    if text in names:
        return text
    found = [each for each in names if each.lower() == text.lower()]
    return found[0] if len(found) == 1 else None


def resolved(
    key: TableKey, constraint: str, schema: Schema, columns: tuple[str, ...], *, of: TableKey | None = None
) -> tuple[str, ...]:
    """The columns of a constraint as the table spells them; one that is gone, or within another, is an error.

    The constraint is that of `key`, and the columns are its own unless they are `of` another table.
    """
    found = []
    for each in columns:
        if (column := column_named(schema, each)) is None:
            raise ConstraintBrokenError(key, constraint, f"{each} is no column of {of or key}")
        if not schema.find_field(column).field_type.is_primitive:
            raise ConstraintBrokenError(key, constraint, f"{column} of {of or key} is not one value, but several")
        found.append(column)
    return tuple(found)


def primary_key(key: TableKey, metadata: TableMetadata) -> tuple[str, ...]:
    """The columns of the primary key; none when the table has no key."""
    return resolved(key, PRIMARY_KEY, metadata.schema(), constraints_of(metadata).primary_key)


def link_to(child: TableKey, metadata: TableMetadata, known: ForeignKey, parent: TableMetadata | None) -> Link:
    """The foreign key between the two tables as they are; refused unless it leads to the primary key of a table."""
    if parent is None:
        raise ConstraintBrokenError(child, known.name, f"there is no table {known.parent}")
    columns = resolved(child, known.name, metadata.schema(), known.columns)
    parent_columns = resolved(child, known.name, parent.schema(), known.parent_columns, of=known.parent)
    if set(parent_columns) != set(primary_key(known.parent, parent)) or len(columns) != len(parent_columns):
        raise ConstraintBrokenError(
            child, known.name, f"{', '.join(known.parent_columns)} is not the key of {known.parent}"
        )
    return Link(known.name, child, columns, known.parent, parent_columns)


def link_of_cardinality(child: TableKey, known: Cardinality, links: list[Link], schema: Schema) -> Link:
    """The foreign key over the same columns, whose parents `at_least` speaks of."""
    columns = set(resolved(child, known.name, schema, known.columns))
    for link in links:
        if set(link.columns) == columns:
            return link
    raise ConstraintBrokenError(child, known.name, f"no foreign key is over {', '.join(known.columns)}")


def _mentioned(constraint: Constraint, schema: Schema) -> tuple[str, ...]:
    match constraint:
        case Check():
            try:
                return validate_check(constraint.expression, schema).columns
            except UsageError:
                return ()
        case ForeignKey() | Cardinality():
            return constraint.columns


def _known(schema: Schema, said: tuple[str, ...]) -> tuple[str, ...]:
    return _ordered(schema, [column for each in said if (column := column_named(schema, each)) is not None])


def _ordered(schema: Schema, columns: list[str]) -> tuple[str, ...]:
    return tuple(each.name for each in schema.fields if each.name in set(columns))


def _no_check(expression: str, why: str) -> UsageError:
    return UsageError(
        f"{expression!r} cannot be a check: {why}",
        hint="a check is an SQL condition on columns of its own table, as `total >= 0 and currency <> ''`",
        expression=expression,
    )
