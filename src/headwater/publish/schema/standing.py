"""What a plan is made on: the names that a script speaks of, and what the branch holds for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from pyiceberg.table.metadata import TableMetadata

from headwater.catalog.model import Content, TableContent, TableKey, ViewContent
from headwater.publish.constraints.codec import constraints_of
from headwater.publish.constraints.model import ForeignKey
from headwater.publish.schema.model import Standing
from headwater.publish.schema.wanted import (
    AddConstraint,
    AlterTable,
    CreateTable,
    CreateView,
    DropNamespace,
    RenameTable,
    Statement,
)
from headwater.publish.state import State
from headwater.query.references import folded
from headwater.tables.model import TableVersion
from headwater.tables.views import decode_view


class SchemaState(State, Protocol):
    """The lake as a script finds it."""

    def inside(self, namespace: TableKey) -> Iterable[TableKey]:
        """Everything in a namespace, at any depth: tables, views and namespaces."""
        ...


def look_up(statements: Sequence[Statement], state: SchemaState) -> Standing:
    """Every name that the script speaks of, and for each table the tables around it."""
    contents: dict[TableKey, Content | None] = {key: state.content(key) for key in keys_named(statements)}
    missing = {folded(str(key)) for key, content in contents.items() if content is None}
    names = frozenset(state.names()) if missing or needs_all_names(statements) else frozenset()
    emptied = (each.wanted.key for each in statements if isinstance(each.wanted, DropNamespace))
    names |= {inside for key in emptied for inside in state.inside(key)}
    for key in names - contents.keys():
        if folded(str(key)) in missing:  # the same name in other capitals
            contents[key] = state.content(key)
    tables = _tables(state, contents)
    around = {key for version in tables.values() for key in neighbours(version.metadata)} - contents.keys()
    contents |= {key: state.content(key) for key in around}
    return Standing(
        contents,
        _tables(state, contents),
        {
            key: decode_view(state.files.read(each.metadata_location), each.metadata_location)
            for key, each in contents.items()
            if isinstance(each, ViewContent)
        },
        names,
        frozenset(around),
    )


def _tables(state: State, contents: dict[TableKey, Content | None]) -> dict[TableKey, TableVersion]:
    return {key: state.table(key) for key, each in contents.items() if isinstance(each, TableContent)}


def keys_named(statements: Iterable[Statement]) -> frozenset[TableKey]:
    """Every name that the statements speak of, and the namespaces around those that they would take."""
    found: set[TableKey | None] = set()
    for each in statements:
        wanted = each.wanted
        found |= {wanted.key, wanted.key.parent}
        match wanted:
            case RenameTable():
                found |= {wanted.to, wanted.to.parent}
            case CreateTable():
                found |= {each.parent for each in wanted.constraints if isinstance(each, ForeignKey)}
            case AlterTable():
                added = (change.constraint for change in wanted.changes if isinstance(change, AddConstraint))
                found |= {each.parent for each in added if isinstance(each, ForeignKey)}
            case _:
                pass
    return frozenset(key for key in found if key is not None)


def needs_all_names(statements: Iterable[Statement]) -> bool:
    """Whether a statement takes a name, or empties a namespace, so that every name must be known."""
    return any(isinstance(each.wanted, (CreateTable, CreateView, RenameTable, DropNamespace)) for each in statements)


def neighbours(metadata: TableMetadata) -> frozenset[TableKey]:
    """The tables that this one refers to, and those that refer to it."""
    known = constraints_of(metadata)
    return frozenset(known.referenced_by) | {each.parent for each in known.declared if isinstance(each, ForeignKey)}
