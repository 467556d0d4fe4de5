"""A table in the making, and what its rows must satisfy: how constraints come, go, and follow a change. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import assert_never

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from headwater.catalog.model import TableContent, TableKey
from headwater.kernel.errors import RefusedError, UsageError
from headwater.publish.constraints.codec import constraints_of
from headwater.publish.constraints.declared import column_named, validate_check
from headwater.publish.constraints.model import Cardinality, Check, Constraint, ForeignKey
from headwater.publish.schema.expressions import settled, with_renamed
from headwater.publish.schema.places import Place
from headwater.publish.schema.types import key_objection
from headwater.tables.columns import (
    MakeRequired,
    SchemaChange,
    SetIdentifierFields,
)
from headwater.tables.evolve import change_schema
from headwater.tables.model import TableVersion


@dataclass(frozen=True)
class Draft:
    """A table as it is after the statements so far. `origin` is the name it had before the script, None: it is new.

    `why` are the statements that changed it, and `at` is where the last of them stands. `is_asked`: another table wants
    more of its rows than before.
    """

    key: TableKey
    metadata: TableMetadata
    declared: tuple[Constraint, ...]
    base: TableVersion | None = None
    pinned: TableContent | None = None
    origin: TableKey | None = None
    why: tuple[str, ...] = ()
    at: Place | None = None
    check_rows: bool = False
    is_asked: bool = False

    @property
    def schema(self) -> Schema:
        """Its columns."""
        return self.metadata.schema()

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns that tell its rows apart."""
        return constraints_of(self.metadata).primary_key

    def because(self, text: str, at: Place | None = None) -> Draft:
        """The same table, changed by one more statement."""
        return self if self.why[-1:] == (text,) else replace(self, why=(*self.why, text), at=at)


def refuse_mentioned(draft: Draft, path: tuple[str, ...], what: str) -> None:
    """Refuse to change a column that a constraint speaks of, in a way that the constraint could not follow."""
    for each in draft.declared:
        if path[0] in mentioned(each, draft.schema):
            raise RefusedError(
                f"column {'.'.join(path)} of {draft.key} cannot be {what}: constraint {each.name} speaks of it",
                hint=f"DROP CONSTRAINT {each.name} first",
                table=str(draft.key),
                column=".".join(path),
                constraint=each.name,
            )


def mentioned(constraint: Constraint, schema: Schema) -> frozenset[str]:
    """The columns that a constraint of a table speaks of."""
    if isinstance(constraint, Check):
        return frozenset(validate_check(constraint.expression, schema).columns)
    return frozenset(constraint.columns)


def renamed(constraint: Constraint, key: TableKey, old: str, new: str) -> Constraint:
    """The constraint of the table itself; one that refers to its own table says the column on both sides."""
    if isinstance(constraint, Check):
        return with_renamed(constraint, old, new)
    columns = _replaced(constraint.columns, old, new)
    if isinstance(constraint, ForeignKey):
        own = constraint.parent == key
        parents = _replaced(constraint.parent_columns, old, new) if own else constraint.parent_columns
        return replace(constraint, columns=columns, parent_columns=parents)
    return replace(constraint, columns=columns)


def with_renamed_parent_column(draft: Draft, parent: TableKey, old: str, new: str) -> Draft:
    """A table that refers to another, one of whose columns has got a new name."""
    declared = tuple(
        replace(each, parent_columns=_replaced(each.parent_columns, old, new))
        if isinstance(each, ForeignKey) and each.parent == parent
        else each
        for each in draft.declared
    )
    return draft if declared == draft.declared else replace(draft, declared=declared)


def with_renamed_parent(draft: Draft, old: TableKey, new: TableKey) -> Draft:
    """A table that refers to another, which has got a new name."""
    declared = tuple(
        replace(each, parent=new) if isinstance(each, ForeignKey) and each.parent == old else each
        for each in draft.declared
    )
    return draft if declared == draft.declared else replace(draft, declared=declared)


def _replaced(names: Sequence[str], old: str, new: str) -> tuple[str, ...]:
    return tuple(new if each == old else each for each in names)


def with_constraint(draft: Draft, constraint: Constraint) -> Draft:
    """The table with one more constraint, which has a name and speaks of columns as the table spells them."""
    name = constraint.name or _free_name(draft, constraint)
    if any(each.name.casefold() == name.casefold() for each in draft.declared):
        raise UsageError(f"{draft.key} has a constraint {name} already", hint="choose another name", constraint=name)
    made: Constraint
    match constraint:
        case Check():
            made = settled(
                replace(constraint, name=name), draft.key.name, tuple(each.name for each in draft.schema.fields)
            )
            validate_check(made.expression, draft.schema)
        case ForeignKey() | Cardinality():
            made = replace(constraint, name=name, columns=_columns(draft, name, constraint.columns))
        case _:
            assert_never(constraint)
    return replace(draft, declared=(*draft.declared, made), check_rows=True)


def _columns(draft: Draft, constraint: str, columns: Sequence[str]) -> tuple[str, ...]:
    found = []
    for each in columns:
        column = column_named(draft.schema, each)
        if column is None or column in found:
            what = "twice" if column in found else "which is no column"
            raise UsageError(
                f"constraint {constraint} of {draft.key} speaks of {each}, {what}",
                hint=f"the columns are {', '.join(field.name for field in draft.schema.fields)}",
                constraint=constraint,
                column=each,
            )
        found.append(column)
    return tuple(found)


def _free_name(draft: Draft, constraint: Constraint) -> str:
    match constraint:
        case Check():
            base = f"{draft.key.name}_check"
        case ForeignKey():
            base = "_".join((draft.key.name, *constraint.columns, "fkey"))
        case Cardinality():
            base = "_".join((draft.key.name, *constraint.columns, "count"))
        case _:
            assert_never(constraint)
    taken = {each.name.casefold() for each in draft.declared}
    number = 1
    name = base
    while name.casefold() in taken:
        number += 1
        name = f"{base}_{number}"
    return name


def without_constraint(draft: Draft, name: str, *, if_exists: bool) -> Draft:
    """The table with one constraint less."""
    kept = tuple(each for each in draft.declared if each.name.casefold() != name.casefold())
    if kept == draft.declared and not if_exists:
        there = ", ".join(each.name for each in draft.declared) or "none"
        raise UsageError(
            f"{draft.key} has no constraint {name}",
            hint=f"there are: {there}; a primary key goes by DROP PRIMARY KEY",
            constraint=name,
        )
    return replace(draft, declared=kept)


def keyed(draft: Draft, columns: Sequence[str], now: datetime) -> Draft:
    """The table with another primary key. Its columns are never null, so the rows are looked at."""
    if columns and draft.primary_key:
        raise UsageError(
            f"{draft.key} has the primary key {', '.join(draft.primary_key)}",
            hint="DROP PRIMARY KEY first; both may be in one script",
            table=str(draft.key),
        )
    names = _columns(draft, "primary key", columns)
    for name in names:
        if objection := key_objection(draft.schema.find_field(name).field_type):
            raise UsageError(f"column {name} cannot be in the primary key: {objection}", column=name)
    changes: list[SchemaChange] = [MakeRequired(name, no_nulls_known=True) for name in names]
    metadata = change_schema(draft.metadata, [*changes, SetIdentifierFields(names)], now)
    return replace(draft, metadata=metadata, check_rows=draft.check_rows or bool(names))
