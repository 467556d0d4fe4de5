"""Changes of a schema's columns. Columns are known by id: a rename keeps the data."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.types import IcebergType, NestedField

# A column: its name, or the names on the way to it. A list is passed through by "element", a map by "value".
ColumnPath = str | tuple[str, ...]
Fields = tuple[NestedField, ...]


@dataclass(frozen=True)
class AddColumn:
    """A new column, last unless told otherwise. Rows that are there already show the default (v3), or null."""

    path: ColumnPath
    type: IcebergType
    required: bool = False
    doc: str | None = None
    default: object = None
    after: str | None = None
    first: bool = False


@dataclass(frozen=True)
class DropColumn:
    """The column goes from the schema; its data stays in the files, and its id is never given again."""

    path: ColumnPath


@dataclass(frozen=True)
class RenameColumn:
    """Another name for the same data."""

    path: ColumnPath
    name: str


@dataclass(frozen=True)
class WidenColumn:
    """A type that holds every value of the old one."""

    path: ColumnPath
    type: IcebergType


@dataclass(frozen=True)
class MakeOptional:
    """Nulls are allowed from now on."""

    path: ColumnPath


@dataclass(frozen=True)
class MakeRequired:
    """Nulls are no longer allowed. On a table with rows only if the caller knows that none has a null there."""

    path: ColumnPath
    no_nulls_known: bool = False


@dataclass(frozen=True)
class MoveColumn:
    """Another place among its siblings: exactly one of the three."""

    path: ColumnPath
    first: bool = False
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True)
class SetDoc:
    """What is said about the column; None says nothing."""

    path: ColumnPath
    doc: str | None


@dataclass(frozen=True)
class SetDefault:
    """What writers put where no value is given (v3), None for null; rows that are there stay what they are."""

    path: ColumnPath
    default: object


@dataclass(frozen=True)
class SetIdentifierFields:
    """Which columns tell rows apart; none if empty."""

    paths: tuple[ColumnPath, ...]


SchemaChange = (
    AddColumn
    | DropColumn
    | RenameColumn
    | WidenColumn
    | MakeOptional
    | MakeRequired
    | MoveColumn
    | SetDoc
    | SetDefault
    | SetIdentifierFields
)


@dataclass(frozen=True)
class Draft:
    """A schema in the making. Ids count on from `last_column_id`, through drops too, so that none comes twice."""

    fields: Fields
    identifier_ids: tuple[int, ...]
    last_column_id: int
    format_version: int
    has_rows: bool


def names_of(path: ColumnPath) -> tuple[str, ...]:
    """The names on the way to a column."""
    return (path,) if isinstance(path, str) else path


def spelled(path: ColumnPath) -> str:
    """The path as people write it."""
    return ".".join(names_of(path))
