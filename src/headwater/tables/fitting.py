"""Columns from outside fitted to a schema, at any depth: each becomes an array of exactly its type, or an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import FixedType, IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType, UUIDType

from headwater.kernel.errors import HeadwaterError
from headwater.tables.arrow import arrow_type, constant, filled, holds, is_list, plain


class Fitting(Protocol):
    """How columns from outside become columns of a schema. Writing finds them by name, reading by field id."""

    # Whether what other writers store may be taken for what it must mean.
    lenient: bool

    def name_of(self, field: NestedField) -> str | None:
        """What the field is called outside."""
        ...

    def instead(self, field: NestedField, path: str) -> object:
        """The value of a field that is not there."""
        ...

    def converted(self, values: pa.Array, kind: PrimitiveType, path: str) -> pa.Array:
        """Values of another type, as far as more may be tried with them than what every value survives."""
        ...

    def unfit(self, path: str, wanted: IcebergType, found: pa.DataType, why: str) -> HeadwaterError:
        """The error for a column of another type."""
        ...

    def null(self, path: str) -> HeadwaterError:
        """The error for a null where none may be."""
        ...

    def check_names(self, names: Sequence[str], fields: Sequence[NestedField], path: str) -> None:
        """Refuse columns that nobody knows, where that is an error."""
        ...


def fit_columns(batch: pa.RecordBatch, fields: Sequence[NestedField], fitting: Fitting) -> list[pa.Array]:
    """The fields, each as an array of its type, from the columns of a batch."""
    fitting.check_names(batch.schema.names, fields, "")
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return [_fit_field(columns, each, each.name, batch.num_rows, 0, fitting) for each in fields]


def _fit_field(
    columns: Mapping[str, pa.Array], field: NestedField, path: str, rows: int, parent_nulls: int, fitting: Fitting
) -> pa.Array:
    name = fitting.name_of(field)
    if name is not None and name in columns:
        fitted = _fit(columns[name], field.field_type, path, fitting)
    else:
        fitted = constant(fitting.instead(field, path), field.field_type, rows)
    return _without_nulls(fitted, path, parent_nulls, fitting) if field.required else fitted


def _fit(values: pa.Array, kind: IcebergType, path: str, fitting: Fitting) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), arrow_type(kind))
    if isinstance(kind, StructType) and pa.types.is_struct(values.type):
        return _fit_struct(values, kind, path, fitting)
    if isinstance(kind, ListType) and is_list(values.type):
        return _fit_list(values, kind, path, fitting)
    if isinstance(kind, MapType) and pa.types.is_map(values.type):
        return _fit_map(values, kind, path, fitting)
    if isinstance(kind, PrimitiveType):
        return _fit_primitive(values, kind, path, fitting)
    raise fitting.unfit(path, kind, values.type, "")


def _fit_struct(values: pa.Array, kind: StructType, path: str, fitting: Fitting) -> pa.Array:
    names = [each.name for each in values.type]
    fitting.check_names(names, kind.fields, path)
    columns = dict(zip(names, values.flatten(), strict=True))  # children are null where their parent is
    children = [
        _fit_field(columns, each, f"{path}.{each.name}", len(values), values.null_count, fitting)
        for each in kind.fields
    ]
    return pa.StructArray.from_arrays(children, fields=list(arrow_type(kind)), mask=values.is_null())


def _fit_list(values: pa.Array, kind: ListType, path: str, fitting: Fitting) -> pa.Array:
    lengths = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))), pa.int64())
    inner = f"{path}.element"
    elements = _fit(_elements(values, int(offsets[-1].as_py())), kind.element_type, inner, fitting)
    if kind.element_required:
        elements = _without_nulls(elements, inner, 0, fitting)
    return pa.LargeListArray.from_arrays(offsets, elements, type=arrow_type(kind), mask=values.is_null())


def _elements(values: pa.Array, count: int) -> pa.Array:
    """What the lists hold, one after the other. Where nulls hold nothing it is there; Arrow cannot copy all types."""
    if not pa.types.is_fixed_size_list(values.type):
        start, end = values.offsets[0].as_py(), values.offsets[-1].as_py()
        if end - start == count:
            return values.values.slice(start, count)
    return values.flatten()


def _fit_map(values: pa.Array, kind: MapType, path: str, fitting: Fitting) -> pa.Array:
    if values.offset or values.null_count:
        values = values.take(pa.array(np.arange(len(values))))  # a fresh copy, where nulls hold no entries
    offsets = values.offsets.to_numpy()
    start, entries = int(offsets[0]), int(offsets[-1] - offsets[0])
    keys = _fit(values.keys.slice(start, entries), kind.key_type, f"{path}.key", fitting)
    items = _fit(values.items.slice(start, entries), kind.value_type, f"{path}.value", fitting)
    if kind.value_required:
        items = _without_nulls(items, f"{path}.value", 0, fitting)
    return pa.MapArray.from_arrays(
        pa.array(offsets - start, pa.int32()), keys, items, type=arrow_type(kind), mask=values.is_null()
    )


def _fit_primitive(values: pa.Array, kind: PrimitiveType, path: str, fitting: Fitting) -> pa.Array:
    target = arrow_type(kind)
    if values.type == target:
        return values
    values = fitting.converted(values, kind, path)
    if values.type == target:
        return values
    if isinstance(kind, FixedType) and fitting.lenient:
        values = plain(values)
    if not holds(kind, values.type, lenient=fitting.lenient):
        raise fitting.unfit(path, kind, values.type, "")
    if isinstance(kind, UUIDType):
        return pa.ExtensionArray.from_storage(target, values)
    try:
        return values.cast(target, safe=not (fitting.lenient and pa.types.is_timestamp(target)))
    except pa.ArrowInvalid as error:
        raise fitting.unfit(path, kind, values.type, str(error)) from error


def _without_nulls(values: pa.Array, path: str, parent_nulls: int, fitting: Fitting) -> pa.Array:
    """A required field has nulls only where its parent is null; there Parquet wants to see some value."""
    if values.null_count > parent_nulls:
        raise fitting.null(path)
    return filled(values) if values.null_count else values
