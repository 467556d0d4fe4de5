"""The columns of a Parquet file by field id: the file's own ids, or those that a name mapping gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField, parse_mapping_from_json
from pyiceberg.types import ListType, MapType, NestedField, StructType

from headwater.tables.arrow import is_list
from headwater.tables.model import TableUsageError, UnsupportedTableError
from headwater.tables.properties import NAME_MAPPING

_FIELD_ID = b"PARQUET:field_id"


class FileColumns:
    """The columns of a Parquet file by field id: their own, or those that the name mapping gives them."""

    def __init__(self, schema: pa.Schema, mapping: Sequence[MappedField] | None, location: str) -> None:
        self.names: dict[int, str] = {}
        self.has_own_ids = any(_has_id(each) for each in schema)
        if not self.has_own_ids and mapping is None and len(schema):
            raise UnsupportedTableError(
                f"{location} has no field ids, and the table has no name mapping",
                hint=f"set the table property {NAME_MAPPING}",
                path=location,
            )
        self._count = 0
        # Columns outside of lists and maps: which one of the file they are, and of what type.
        self.plain_leaves: dict[int, tuple[int, pa.DataType]] = {}
        self._roots = [self._node(each, mapping or (), each.name) for each in schema]

    def _node(self, field: pa.Field, mapping: Sequence[MappedField], name: str, *, repeated: bool = False) -> _Node:
        mapped = next((each for each in mapping if name in each.names), None)
        if self.has_own_ids:
            text = (field.metadata or {}).get(_FIELD_ID)
            field_id = int(text) if text is not None else None
        else:
            field_id = mapped.field_id if mapped is not None else None  # one without fields is false
        if field_id is not None:
            self.names.setdefault(field_id, field.name)
        below = mapped.fields if mapped is not None else ()
        first = self._count
        within = repeated or not pa.types.is_struct(field.type)
        children = tuple(self._node(child, below, name, repeated=within) for child, name in _children(field.type))
        if not children:
            self._count += 1
            if field_id is not None and not repeated:
                self.plain_leaves[field_id] = (first, field.type)
        return _Node(field_id, first, children)

    def leaves_for(self, fields: Iterable[NestedField]) -> list[int]:
        """Which primitive columns have to be read."""
        wanted = set(_ids_in(fields))
        return sorted({leaf for root in self._roots for leaf in root.leaves_for(wanted)})


@dataclass(frozen=True)
class _Node:
    field_id: int | None
    first_leaf: int
    children: tuple[_Node, ...]

    def leaves_for(self, wanted: set[int]) -> list[int]:
        if self.field_id not in wanted:
            return []
        # Where nothing below is wanted, one column still tells which of the values are null.
        return [leaf for child in self.children for leaf in child.leaves_for(wanted)] or [self.first_leaf]


def _has_id(field: pa.Field) -> bool:
    return _FIELD_ID in (field.metadata or {}) or any(_has_id(child) for child, _ in _children(field.type))


def _children(kind: pa.DataType) -> list[tuple[pa.Field, str]]:
    """The fields inside of a type, with the names that name mappings have for them."""
    if pa.types.is_struct(kind):
        return [(each, each.name) for each in kind]
    if pa.types.is_map(kind):
        return [(kind.key_field, "key"), (kind.item_field, "value")]
    if is_list(kind):
        return [(kind.value_field, "element")]
    return []


def _ids_in(fields: Iterable[NestedField]) -> Iterator[int]:
    for each in fields:
        yield each.field_id
        match each.field_type:
            case StructType() as inner:
                yield from _ids_in(inner.fields)
            case ListType() as inner:
                yield from _ids_in((inner.element_field,))
            case MapType() as inner:
                yield from _ids_in((inner.key_field, inner.value_field))


def name_mapping(metadata: TableMetadata) -> Sequence[MappedField] | None:
    """Which names the columns of files without field ids have, as the table's property says."""
    text = metadata.properties.get(NAME_MAPPING)
    if text is None:
        return None
    try:
        return parse_mapping_from_json(text).root
    except ValueError as error:
        raise TableUsageError(
            f"the table property {NAME_MAPPING} is no name mapping: {error}",
            hint="set it to a name mapping as the Iceberg specification has it",
            property=NAME_MAPPING,
        ) from error
