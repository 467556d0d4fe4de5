"""Values of every type that are as far apart as can be, or hard to keep; and what it means that they came back."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
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
    UnknownType,
    UUIDType,
)

UTC = dt.UTC
MEBIBYTE = 1 << 20
NAN, INF = float("nan"), float("inf")
# The first two of each can be keys, and differ.
VALUES: dict[str, tuple[PrimitiveType, list[Any]]] = {
    "boolean": (BooleanType(), [True, False]),
    "int": (IntegerType(), [-(2**31), 2**31 - 1, 0, -1]),
    "long": (LongType(), [-(2**63), 2**63 - 1, 0, -1]),
    "float": (FloatType(), [-0.0, INF, 0.0, -INF, NAN, 1e-45, -3.4028234663852886e38]),
    "double": (DoubleType(), [5e-324, -INF, 0.0, -0.0, INF, NAN, 1.7976931348623157e308]),
    "decimal1": (DecimalType(1, 0), [Decimal(-9), Decimal(9), Decimal(0)]),
    "decimal9": (DecimalType(9, 2), [Decimal("-9999999.99"), Decimal("0.01"), Decimal("9999999.99")]),
    "decimal10": (DecimalType(10, 10), [Decimal("-0.9999999999"), Decimal("0.9999999999"), Decimal("0E-10")]),
    "decimal18": (DecimalType(18, 2), [Decimal("-9999999999999999.99"), Decimal("9999999999999999.99")]),
    "decimal19": (DecimalType(19, 0), [Decimal(-(10**19 - 1)), Decimal(10**19 - 1), Decimal(2**63)]),
    "decimal38": (DecimalType(38, 10), [Decimal("-9999999999999999999999999999.9999999999"), Decimal("1E-10")]),
    "decimal38_0": (DecimalType(38, 0), [Decimal(10**38 - 1), Decimal(-(10**38 - 1)), Decimal(0)]),
    "decimal38_38": (DecimalType(38, 38), [Decimal("1E-38"), Decimal("-0." + "9" * 38)]),
    "date": (DateType(), [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1), dt.date(1969, 12, 31)]),
    "time": (TimeType(), [dt.time(0), dt.time(23, 59, 59, 999999), dt.time(12)]),
    "timestamp": (
        TimestampType(),
        [dt.datetime.min, dt.datetime.max, dt.datetime(1969, 12, 31, 23, 59, 59, 999999)],  # noqa: DTZ001, DTZ901
    ),
    "timestamptz": (
        TimestamptzType(),
        [dt.datetime(1969, 12, 31, 23, tzinfo=UTC), dt.datetime(2026, 3, 29, 1, tzinfo=UTC), dt.datetime.max],  # noqa: DTZ901
    ),
    "timestamp_ns": (TimestampNanoType(), [-1, 2**63 - 1, 1, -(2**62)]),
    "timestamptz_ns": (TimestamptzNanoType(), [1, -(2**62), 999, 2**62]),
    "string": (StringType(), ["", "ß 🦆 \0 " + "x" * MEBIBYTE, "a", "a\0", "\U0010ffff"]),
    "uuid": (UUIDType(), [uuid.UUID(int=each).bytes for each in (0, 2**128 - 1, 1 << 127, (1 << 127) - 1)]),
    "fixed": (FixedType(3), [b"\0\0\0", b"\xff\x00\xfe", b"\x80\0\0", b"\x7f\0\0"]),
    "binary": (BinaryType(), [b"", bytes(range(256)), b"\xff" * MEBIBYTE, b"\x80", b"\x7f"]),
    "unknown": (UnknownType(), []),
}
KEY_TYPES = [name for name in VALUES if name != "unknown"]


def schema(*names: str, key: tuple[str, ...] = ()) -> pa.Schema:
    """A table of `id` and a column of each type."""
    made: pa.Schema = schema_to_pyarrow(iceberg_schema(*names, key=key), include_field_ids=True)
    return made


def iceberg_schema(*names: str, key: tuple[str, ...] = ()) -> Schema:
    """The same as Iceberg has it."""
    fields = [NestedField(1, "id", LongType(), required=True)]
    fields += [
        NestedField(place, f"c_{name}", VALUES[name][0], required=f"c_{name}" in key)
        for place, name in enumerate(names, 2)
    ]
    return Schema(*fields)


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values as a column of the node's schema."""
    return pa.array(values, kind.storage_type).cast(kind) if isinstance(kind, pa.UuidType) else pa.array(values, kind)


def rows(made: pa.Schema, count: int, first: int = 0) -> pa.RecordBatch:
    """Rows with ids from `first` on, in which each column goes round through its values and a null."""
    columns = [pa.array(range(first, first + count), pa.int64())]
    for field in list(made)[1:]:
        values = VALUES[field.name.removeprefix("c_")][1] + ([None] if field.nullable else [])
        columns.append(column([values[place % len(values)] for place in range(first, first + count)], field.type))
    return pa.RecordBatch.from_arrays(columns, schema=made)


def bits(table: pa.Table) -> pa.Table:
    """The table with floats as their bits, so that NaN is NaN and -0.0 is not 0.0."""
    for place, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            width = pa.int32() if pa.types.is_float32(field.type) else pa.int64()
            chunks = [each.view(width) for each in table.column(place).chunks]
            table = table.set_column(place, field.name, pa.chunked_array(chunks, width))
    return table
