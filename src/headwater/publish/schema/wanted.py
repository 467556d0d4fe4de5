"""What a script says: each statement as one typed wish.

A constraint that the script gives no name has an empty one until the plan makes one up, and a foreign key without
columns of the parent has none until then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.schema import Schema

from headwater.catalog.model import TableKey
from headwater.publish.constraints.model import Constraint
from headwater.publish.schema.places import Place
from headwater.tables.columns import AddColumn, ColumnPath, SchemaChange
from headwater.tables.partitions import AddPartitionField, SortBy


@dataclass(frozen=True)
class CreateTable:
    """A new, empty table. `schema` says the primary key as identifier fields."""

    key: TableKey
    schema: Schema
    constraints: tuple[Constraint, ...] = ()
    partition_by: tuple[AddPartitionField, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    format_version: int = 2
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropTable:
    """The table goes from the branch; its files stay for the history."""

    key: TableKey
    if_exists: bool = False


@dataclass(frozen=True)
class RenameTable:
    """Another name for the same table: its content, history and folder stay."""

    key: TableKey
    to: TableKey
    if_exists: bool = False


@dataclass(frozen=True)
class AddConstraint:
    """The rows must satisfy this from now on, those that are there too."""

    constraint: Constraint


@dataclass(frozen=True)
class DropConstraint:
    """The constraint of this name goes."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class SetPrimaryKey:
    """These columns tell rows apart; none: the table has no primary key."""

    columns: tuple[str, ...]


@dataclass(frozen=True)
class DropPartitionField:
    """Partition by this no longer: a field by its name, or by what it is made from."""

    field: str | AddPartitionField


@dataclass(frozen=True)
class ReplacePartitionField:
    """Partition by another field in place of one."""

    field: str | AddPartitionField
    by: AddPartitionField


@dataclass(frozen=True)
class SetSortOrder:
    """Files to come are sorted so; unsorted when there is nothing."""

    fields: tuple[SortBy, ...]


@dataclass(frozen=True)
class SetTableProperties:
    """Properties that are set and removed."""

    values: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class AddColumnIfAbsent:
    """A new column, unless there is one of that name."""

    change: AddColumn


@dataclass(frozen=True)
class DropColumnIfPresent:
    """The column goes, if there is one."""

    path: ColumnPath


TableChange = (
    SchemaChange
    | AddPartitionField
    | DropPartitionField
    | ReplacePartitionField
    | SetSortOrder
    | SetTableProperties
    | AddConstraint
    | DropConstraint
    | SetPrimaryKey
    | AddColumnIfAbsent
    | DropColumnIfPresent
)


@dataclass(frozen=True)
class AlterTable:
    """Changes of one table, one after the other."""

    key: TableKey
    changes: tuple[TableChange, ...]
    if_exists: bool = False


@dataclass(frozen=True)
class CreateNamespace:
    """A new namespace."""

    key: TableKey
    properties: Mapping[str, str] = field(default_factory=dict)
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropNamespace:
    """The namespace goes; nothing may be in it."""

    key: TableKey
    if_exists: bool = False


@dataclass(frozen=True)
class CreateView:
    """A stored query in DuckDB's dialect; `columns` are names for what it yields, its own when there are none."""

    key: TableKey
    sql: str
    columns: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropView:
    """The view goes."""

    key: TableKey
    if_exists: bool = False


Wanted = CreateTable | DropTable | RenameTable | AlterTable | CreateNamespace | DropNamespace | CreateView | DropView


@dataclass(frozen=True)
class Statement:
    """One statement, its words, and where it stands in the script."""

    wanted: Wanted
    text: str
    at: Place | None = None
