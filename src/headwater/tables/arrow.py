"""Iceberg types in Arrow: which type holds which values, and values that Arrow can compute on."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)


def arrow_type(kind: IcebergType) -> pa.DataType:
    """The Arrow type that holds values of an Iceberg type, without field ids."""
    return schema_to_pyarrow(kind, include_field_ids=False)


def plain_schema(fields: Iterable[NestedField]) -> pa.Schema:
    """The Arrow schema that holds these fields, without field ids."""
    return schema_to_pyarrow(Schema(*fields), include_field_ids=False)


def is_list(kind: pa.DataType) -> bool:
    """Whether this is a list of any of Arrow's kinds."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def holds(kind: PrimitiveType, found: pa.DataType, *, lenient: bool) -> bool:  # noqa: C901  (a table)
    """Whether values of the Arrow type can be values of the Iceberg type; a cast still checks each of them."""
    types = pa.types
    text = types.is_string(found) or types.is_large_string(found) or types.is_string_view(found)
    octets = types.is_binary(found) or types.is_large_binary(found) or types.is_binary_view(found)
    match kind:
        case BooleanType():
            return bool(types.is_boolean(found))
        case IntegerType():
            return bool(types.is_integer(found) and (found.bit_width < 32 or types.is_int32(found)))
        case LongType():
            return bool(types.is_integer(found) and not types.is_uint64(found))
        case FloatType():
            return bool(types.is_floating(found) and found.bit_width <= 32)
        case DoubleType():
            return bool(types.is_floating(found))
        case DecimalType():
            whole = kind.precision - kind.scale
            return bool(
                types.is_decimal(found) and found.scale <= kind.scale and found.precision - found.scale <= whole
            )
        case DateType():
            return bool(types.is_date(found))
        case TimeType():
            return bool(types.is_time(found))
        case TimestampType() | TimestampNanoType():
            return bool(
                (types.is_timestamp(found) and (lenient or found.tz is None)) or (lenient and types.is_date(found))
            )
        case TimestamptzType() | TimestamptzNanoType():
            return bool(types.is_timestamp(found) and (lenient or found.tz is not None))
        case StringType():
            return bool(text or (lenient and octets))
        case BinaryType():
            return bool(octets or types.is_fixed_size_binary(found) or (lenient and text))
        case FixedType() | UUIDType():
            width = 16 if isinstance(kind, UUIDType) else len(kind)
            return bool(types.is_fixed_size_binary(found) and found.byte_width == width)
        case _:
            return False


def constant(value: object, kind: IcebergType, rows: int) -> pa.Array:
    """One value, over and over."""
    target = arrow_type(kind)
    if value is None:
        return pa.nulls(rows, target)
    stored: object = value.bytes if isinstance(value, uuid.UUID) else value
    return pa.repeat(pa.scalar(stored, target), rows)


def filled(values: pa.Array) -> pa.Array:
    """The values, with some value in place of every null."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, filled(values.storage))
    if pa.types.is_struct(kind):
        # Where the struct is null its required children were filled before, and the others are null.
        children = [values.field(place) for place in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(kind))
    if pa.types.is_large_list(kind):
        return pa.LargeListArray.from_arrays(values.offsets, values.values, type=kind)
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(values.offsets, values.keys, values.items, type=kind)
    if pa.types.is_fixed_size_binary(kind):
        return values.fill_null(pa.scalar(bytes(kind.byte_width), kind))
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return values.fill_null(pa.scalar(b"").cast(kind))
    if pa.types.is_boolean(kind):
        return values.fill_null(False)  # noqa: FBT003
    return values.fill_null(pa.scalar(0, kind))


def plain(values: Any) -> Any:
    """The stored values of an extension type, on which Arrow can compute."""
    if not isinstance(values.type, pa.BaseExtensionType):
        return values
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([each.storage for each in values.chunks], values.type.storage_type)
    return values.storage


def as_numbers(values: Any) -> Any:
    """Times as the integers that Iceberg keeps; everything else as it is."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    if pa.types.is_time64(values.type) or pa.types.is_timestamp(values.type):
        return values.cast(pa.int64())
    return plain(values)
