"""Types and values as scripts write them, in the words of DuckDB, Spark or Iceberg."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

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
from sqlglot.tokenizer_core import TokenType

from headwater.publish.schema.words import Cursor

_MOST_DIGITS = 38

_PLAIN: Mapping[str, IcebergType] = {
    **dict.fromkeys(("BOOLEAN", "BOOL"), BooleanType()),
    **dict.fromkeys(("INT", "INTEGER", "INT4", "SMALLINT", "SHORT", "INT2", "TINYINT", "BYTE", "INT1"), IntegerType()),
    **dict.fromkeys(("BIGINT", "LONG", "INT8"), LongType()),
    **dict.fromkeys(("FLOAT", "REAL", "FLOAT4"), FloatType()),
    **dict.fromkeys(("DOUBLE", "FLOAT8"), DoubleType()),
    "DATE": DateType(),
    "TIME": TimeType(),
    **dict.fromkeys(("TIMESTAMP", "DATETIME", "TIMESTAMP_NTZ", "TIMESTAMP_US"), TimestampType()),
    **dict.fromkeys(("TIMESTAMPTZ", "TIMESTAMP_LTZ"), TimestamptzType()),
    "TIMESTAMP_NS": TimestampNanoType(),
    "TIMESTAMPTZ_NS": TimestamptzNanoType(),
    **dict.fromkeys(("STRING", "TEXT", "VARCHAR"), StringType()),
    "UUID": UUIDType(),
    **dict.fromkeys(("BINARY", "BLOB", "BYTEA", "VARBINARY"), BinaryType()),
    **dict.fromkeys(("UNKNOWN", "VOID"), UnknownType()),
}
_SPELLED: Mapping[type[IcebergType], str] = {
    BooleanType: "BOOLEAN",
    IntegerType: "INT",
    LongType: "BIGINT",
    FloatType: "FLOAT",
    DoubleType: "DOUBLE",
    DateType: "DATE",
    TimeType: "TIME",
    TimestampType: "TIMESTAMP",
    TimestamptzType: "TIMESTAMPTZ",
    TimestampNanoType: "TIMESTAMP_NS",
    TimestamptzNanoType: "TIMESTAMPTZ_NS",
    StringType: "STRING",
    UUIDType: "UUID",
    BinaryType: "BINARY",
    UnknownType: "UNKNOWN",
}

# What people write for it elsewhere.
_INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("CHAR", "CHARACTER", "NCHAR", "NVARCHAR", "BPCHAR"), "STRING"),
    **dict.fromkeys(("JSON", "JSONB", "INTERVAL"), "STRING, or a STRUCT of its parts"),
    "ENUM": "STRING, and CHECK (… IN (…))",
    **dict.fromkeys(("SERIAL", "SMALLSERIAL"), "INT; whoever inserts a row gives its number"),
    "BIGSERIAL": "BIGINT; whoever inserts a row gives its number",
    **dict.fromkeys(("HUGEINT", "UBIGINT", "UHUGEINT"), "DECIMAL(38, 0)"),
    **dict.fromkeys(("UINTEGER", "USMALLINT", "UTINYINT"), "BIGINT"),
    "DEC": "DECIMAL",
}


def read_type(cursor: Cursor) -> IcebergType:
    """The type that comes next; brackets behind it make a list of it."""
    kind = _read_one(cursor)
    while cursor.takes("[", "]"):
        kind = ListType(next(cursor.ids), kind, element_required=False)
    return kind


def _read_one(cursor: Cursor) -> IcebergType:
    seen = cursor.peek()
    instead = _INSTEAD.get(seen.text.upper()) if seen is not None else None
    before = cursor.error("there is no such type", instead or "see `headwater schema apply --help` for the types")
    word = cursor.name("a type").upper()
    match word:
        case "STRUCT" | "ROW":
            return _read_struct(cursor)
        case "ARRAY" | "LIST":
            close = _open(cursor)
            kind, required = read_type(cursor), cursor.takes("NOT", "NULL")
            cursor.expect(close)
            return ListType(next(cursor.ids), kind, element_required=required)
        case "MAP":
            return _read_map(cursor)
        case "DECIMAL" | "NUMERIC":
            return _read_decimal(cursor)
        case "FIXED":
            close = "]" if cursor.takes("[") else ")"
            if close == ")":
                cursor.expect("(")
            size = cursor.number()
            cursor.expect(close)
            return FixedType(size)
        case "TIME" | "TIMESTAMP" if cursor.takes("WITHOUT", "TIME", "ZONE"):
            return _PLAIN[word]
        case "TIMESTAMP" if cursor.takes("WITH", "TIME", "ZONE"):
            return TimestamptzType()
        case "DOUBLE":
            cursor.takes("PRECISION")
            return DoubleType()
    if word not in _PLAIN:
        raise before
    _refuse_more(cursor, word)
    return _PLAIN[word]


def _refuse_more(cursor: Cursor, word: str) -> None:
    """What other engines say behind a type, and Iceberg has not."""
    if cursor.sees("WITH", "TIME", "ZONE"):
        raise cursor.error(f"a {word.lower()} has no zone in Iceberg", "TIMESTAMPTZ is a moment")
    if not cursor.sees("("):
        return
    if isinstance(_PLAIN[word], StringType):
        raise cursor.error(
            "Iceberg has no text of limited length", "use STRING, and CHECK (length(…) <= …) for the limit"
        )
    raise cursor.error(f"{word} takes nothing in parentheses", "leave them out")


def _open(cursor: Cursor) -> str:
    """Step over the beginning of what is within a type; the sign that ends it."""
    if cursor.takes("<"):
        return ">"
    cursor.expect("(")
    return ")"


def _read_struct(cursor: Cursor) -> StructType:
    close = _open(cursor)
    fields = []
    while True:
        name = cursor.name("the name of a field")
        cursor.takes(":")
        kind, required = read_type(cursor), cursor.takes("NOT", "NULL")
        doc = cursor.string() if cursor.takes("COMMENT") else None
        fields.append(NestedField(next(cursor.ids), name, kind, required, doc))
        if not cursor.takes(","):
            break
    cursor.expect(close)
    return StructType(*fields)


def _read_map(cursor: Cursor) -> MapType:
    close = _open(cursor)
    key = read_type(cursor)
    cursor.expect(",")
    value, required = read_type(cursor), cursor.takes("NOT", "NULL")
    cursor.expect(close)
    return MapType(next(cursor.ids), key, next(cursor.ids), value, value_required=required)


def _read_decimal(cursor: Cursor) -> DecimalType:
    if not cursor.takes("("):
        # Engines differ in what they would take for granted.
        raise cursor.error("a decimal needs its digits", "like DECIMAL(18, 2)")
    at = cursor.place
    precision = cursor.number()
    scale = cursor.number() if cursor.takes(",") else 0
    cursor.expect(")")
    if not 0 < precision <= _MOST_DIGITS or scale > precision:
        raise cursor.error(
            f"DECIMAL({precision}, {scale}) at {at} is not possible",
            f"at most {_MOST_DIGITS} digits, and not more of them behind the point than there are",
        )
    return DecimalType(precision, scale)


def type_text(kind: IcebergType) -> str:
    """The type as a script writes it."""
    match kind:
        case DecimalType():
            return f"DECIMAL({kind.precision}, {kind.scale})"
        case FixedType():
            return f"FIXED({len(kind)})"
        case StructType():
            return f"STRUCT<{', '.join(_field_text(each) for each in kind.fields)}>"
        case ListType():
            return f"ARRAY<{type_text(kind.element_type)}{_not_null(required=kind.element_required)}>"
        case MapType():
            value = f"{type_text(kind.value_type)}{_not_null(required=kind.value_required)}"
            return f"MAP<{type_text(kind.key_type)}, {value}>"
        case _:
            return _SPELLED[type(kind)]


def _field_text(field: NestedField) -> str:
    doc = f" COMMENT {quoted(field.doc)}" if field.doc else ""
    return f"{named(field.name)}: {type_text(field.field_type)}{_not_null(required=field.required)}{doc}"


def _not_null(*, required: bool) -> str:
    return " NOT NULL" if required else ""


def named(name: str) -> str:
    """A name in quotation marks, which no name can break out of."""
    return '"' + name.replace('"', '""') + '"'


def quoted(text: str) -> str:
    """Text in quotation marks."""
    return "'" + text.replace("'", "''") + "'"


def key_objection(kind: IcebergType) -> str | None:
    """Why a column of this type cannot be part of a primary key, if so."""
    if not kind.is_primitive:
        return "it holds other columns"
    return f"{kind} numbers are not exact" if isinstance(kind, FloatType | DoubleType) else None


def read_literal(cursor: Cursor) -> Any:
    """The value that comes next: a number, text, TRUE, FALSE, NULL, X'…', or a date or time by its text."""
    negative = cursor.takes("-")
    word = cursor.peek()
    if word is not None and word.kind is TokenType.NUMBER:
        number = cursor.next().text
        value = int(number) if number.isdecimal() else Decimal(number)
        return -value if negative else value
    if negative:
        raise cursor.error("a number is missing")
    if word is not None and word.is_string:
        return cursor.string()
    for text, constant in (("TRUE", True), ("FALSE", False), ("NULL", None)):
        if cursor.takes(text):
            return constant
    follows = cursor.peek(1)
    if word is not None and word.is_plain and follows is not None and follows.is_string:
        kind = word.text.upper()
        if kind in ("DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ", "UUID"):
            cursor.next()
            return cursor.string()
        if kind == "X":
            error = cursor.error("that is not a number of whole bytes in hexadecimal digits")
            cursor.next()
            try:
                return bytes.fromhex(cursor.string())
            except ValueError:
                raise error from None
    raise cursor.error("a value is missing", "a default is a number, text, TRUE, FALSE or NULL, not an expression")
