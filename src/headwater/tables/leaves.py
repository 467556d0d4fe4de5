"""The primitive columns of a schema, found by field id. Names are never taken apart: a name may have dots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    GeographyType,
    GeometryType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
    UnknownType,
)

from headwater.tables.model import UnsupportedTableError


@dataclass(frozen=True)
class Leaf:
    """A primitive column, in the order that Parquet has them in. A repeated one is inside of a list or map."""

    field_id: int
    path: tuple[str, ...]
    kind: PrimitiveType
    repeated: bool

    @property
    def name(self) -> str:
        """How table properties call it."""
        return ".".join(self.path)


def leaves(fields: Iterable[NestedField], path: tuple[str, ...] = (), *, repeated: bool = False) -> Iterator[Leaf]:
    """The primitive columns of some fields."""
    for each in fields:
        here = (*path, each.name)
        match each.field_type:
            case StructType() as inner:
                yield from leaves(inner.fields, here, repeated=repeated)
            case ListType() as inner:
                yield from leaves((inner.element_field,), here, repeated=True)
            case MapType() as inner:
                yield from leaves((inner.key_field, inner.value_field), here, repeated=True)
            case PrimitiveType() as kind:
                yield Leaf(each.field_id, here, kind, repeated)


def leaf_of(schema: Schema, field_id: int) -> Leaf:
    """The primitive column with this id, which lies in no list and no map."""
    for leaf in leaves(schema.fields):
        if leaf.field_id == field_id and not leaf.repeated:
            return leaf
    raise UnsupportedTableError(
        f"field {field_id} is no plain column of the table", hint="only columns outside of lists and maps can be used"
    )


def check_types(schema: Schema) -> None:
    """Refuse types that cannot be read and written here."""
    for leaf in leaves(schema.fields):
        if isinstance(leaf.kind, GeometryType | GeographyType):
            raise _unsupported(leaf.name, leaf.kind)


def stored_fields(fields: Iterable[NestedField], path: str = "") -> Iterator[NestedField]:
    """The fields that have a place in a file: those of the unknown type have none."""
    for each in fields:
        here = f"{path}.{each.name}" if path else each.name
        match each.field_type:
            case UnknownType():
                continue
            case StructType() as inner:
                kept = tuple(stored_fields(inner.fields, here))
                if not kept:
                    raise _unsupported(here, inner)
                yield each.model_copy(update={"field_type": StructType(*kept)})
            case ListType() | MapType() as inner:
                if any(isinstance(leaf.kind, UnknownType) for leaf in leaves((each,))):
                    raise _unsupported(here, inner)
                yield each
            case _:
                yield each


def _unsupported(column: str, kind: IcebergType) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"column {column} has the type {kind}, which this version cannot read or write",
        hint="leave the column out, or use another engine for this table",
        column=column,
        type=str(kind),
    )


def column_of(table: pa.Table, leaf: Leaf) -> pa.ChunkedArray:
    """The values of a column that lies in no list and no map."""
    return within(table.column(leaf.path[0]), leaf.path)


def within(column: Any, path: Sequence[str]) -> Any:
    """What a path that begins with the name of the column leads to."""
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column
