"""Columns of a stored file, fitted to the schema by field id, all of them or a single one to compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IcebergType, NestedField, PrimitiveType, StructType

from headwater.kernel.errors import HeadwaterError
from headwater.tables.arrow import plain
from headwater.tables.fitting import Fitting, fit_columns
from headwater.tables.leaves import leaf_of, within
from headwater.tables.model import TableCorruptError, TableFile
from headwater.tables.pruning import spec_of


def columns_of_file(location: str, names: Mapping[int, str], partition: Mapping[int, object]) -> Fitting:
    """Fits the columns of a file, whose names are known by field id; `partition` says what the file does not hold."""
    return _ColumnsOfFile(location, names, partition)


class _ColumnsOfFile:
    """Columns of a stored file: found by field id, and as other writers may have stored them."""

    lenient = True

    def __init__(self, location: str, names: Mapping[int, str], partition: Mapping[int, object]) -> None:
        self._location, self._names, self._partition = location, names, partition

    def name_of(self, field: NestedField) -> str | None:
        return self._names.get(field.field_id)

    def instead(self, field: NestedField, path: str) -> object:
        if field.field_id in self._partition:
            return self._partition[field.field_id]
        if field.initial_default is None and field.required:
            raise TableCorruptError(self._location, f"has no column {path}, which is required")
        return field.initial_default

    def converted(self, values: pa.Array, kind: PrimitiveType, path: str) -> pa.Array:  # noqa: ARG002
        return values

    def unfit(self, path: str, wanted: IcebergType, found: pa.DataType, why: str) -> HeadwaterError:
        return TableCorruptError(
            self._location, f"has the column {path} as {found}, not {wanted}" + (f": {why}" if why else "")
        )

    def null(self, path: str) -> HeadwaterError:
        return TableCorruptError(self._location, f"has nulls in the column {path}, which is required")

    def check_names(self, names: Sequence[str], fields: Sequence[NestedField], path: str) -> None:
        """Columns that the schema does not have (any more) are passed over."""


def partition_constants(file: TableFile, metadata: TableMetadata) -> dict[int, object]:
    """Columns whose value the partition of the file gives, by field id."""
    return {
        each.source_id: file.partition[place]
        for place, each in enumerate(spec_of(metadata, file.spec_id, file.file_path).fields)
        if isinstance(each.transform, IdentityTransform)
    }


@dataclass(frozen=True)
class Key:
    """A primitive column outside of lists and maps, that can be compared."""

    field_id: int
    field: NestedField
    path: tuple[str, ...]
    kind: PrimitiveType

    def values(self, batch: pa.RecordBatch, fitting: Fitting) -> pa.Array:
        """The column, on its own. There may be nulls in a required one: in deletes, and in rows that are deleted."""
        field = self.field if fitting.name_of(self.field) is None else _optional(self.field)
        found = fit_columns(batch, (field,), fitting)[0]
        return plain(within(found, self.path))


def _optional(field: NestedField) -> NestedField:
    kind = field.field_type
    if isinstance(kind, StructType):
        kind = StructType(*(_optional(each) for each in kind.fields))
    return field.model_copy(update={"required": False, "field_type": kind})


def key_of(schema: Schema, field_id: int) -> Key:
    """The column with this id, without its siblings."""
    pruned = prune_columns(schema, {field_id}, select_full_types=False)
    leaf = leaf_of(schema, field_id)
    return Key(field_id, pruned.fields[0], leaf.path, leaf.kind)
