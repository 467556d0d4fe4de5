"""Iceberg's types in DuckDB's words, and SQL text that no name or value can break out of.

| Iceberg | DuckDB | Arrow result |
|---|---|---|
| timestamptz | TIMESTAMP WITH TIME ZONE | timestamp[us, UTC] |
| timestamptz_ns | TIMESTAMP_NS, the wall clock of UTC: DuckDB has no zoned nanoseconds | timestamp[ns] |
| uuid | UUID | arrow.uuid; text within a struct, list or map |
| fixed, binary | BLOB | binary |
| the others | the type of the same name | the type of the same name |
"""

from __future__ import annotations

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

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
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from headwater.tables.model import UnsupportedTableError

_PRIMITIVE: dict[type[IcebergType], str] = {
    BooleanType: "BOOLEAN",
    IntegerType: "INTEGER",
    LongType: "BIGINT",
    FloatType: "FLOAT",
    DoubleType: "DOUBLE",
    DateType: "DATE",
    TimeType: "TIME",
    TimestampType: "TIMESTAMP",
    TimestamptzType: "TIMESTAMP WITH TIME ZONE",
    TimestampNanoType: "TIMESTAMP_NS",
    TimestamptzNanoType: "TIMESTAMP_NS",
    StringType: "VARCHAR",
    UUIDType: "UUID",
    FixedType: "BLOB",
    BinaryType: "BLOB",
    UnknownType: "INTEGER",  # it holds nothing but NULL
}


def duck_type(kind: IcebergType) -> str:
    """The DuckDB type that holds every value of this one."""
    match kind:
        case DecimalType():
            return f"DECIMAL({kind.precision},{kind.scale})"
        case StructType():
            return f"STRUCT({', '.join(f'{name(each.name)} {duck_type(each.field_type)}' for each in kind.fields)})"
        case ListType():
            return f"{duck_type(kind.element_type)}[]"
        case MapType():
            return f"MAP({duck_type(kind.key_type)}, {duck_type(kind.value_type)})"
        case _ if type(kind) in _PRIMITIVE:
            return _PRIMITIVE[type(kind)]
    raise UnsupportedTableError(
        f"a column of type {kind} cannot be queried", hint="read the table with an engine that knows the type"
    )


def default_text(field: NestedField) -> str | None:
    """The value that rows of older files have in this column, as text that DuckDB casts to its type; None: NULL."""
    value: Any = field.initial_default
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case bytes():
            return "".join(f"\\x{byte:02X}" for byte in value)
        case str() | int() | float() | Decimal() | UUID() | date() | datetime() | time():
            return str(value)
    raise UnsupportedTableError(f"the default of column {field.name} cannot be queried: {value!r}", column=field.name)


def column(field_id: int) -> str:
    """What a column is called within DuckDB; the table's own names could collide with each other or with DuckDB's."""
    return f"c{field_id}"


def check_names(schema: Schema, table: str) -> None:
    """DuckDB does not tell capitals from small letters; a table whose columns differ in them alone is refused."""
    seen: dict[str, str] = {}
    for field in schema.fields:
        other = seen.setdefault(field.name.lower(), field.name)
        if other != field.name:
            raise UnsupportedTableError(
                f"{table}: SQL cannot tell its columns {other!r} and {field.name!r} apart",
                hint="rename one of them",
                table=table,
            )


def name(text: str) -> str:
    """A quoted identifier."""
    return '"' + text.replace('"', '""') + '"'


def value(text: str | None) -> str:
    """A quoted string, or NULL."""
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"
