"""Lines of JSON become Arrow, in types that lose nothing; what they are in the table is decided as for any other rows.

A member that a line does not have takes the column's write default, if it has one: null is only what says null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import (
    BinaryType,
    BooleanType,
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
    PrimitiveType,
    StructType,
    UUIDType,
)

from headwater.publish.load.casting import UnfitError
from headwater.publish.load.decide import match_columns
from headwater.publish.load.model import Piece
from headwater.tables.arrow import constant
from headwater.tables.model import TableUsageError
from headwater.tables.parquet_source import no_columns

_LINES_AT_A_TIME = 50_000
_NONE = type(None)
_WHOLE: frozenset[type] = frozenset({int, _NONE})
_NUMBERS: frozenset[type] = frozenset({int, float, Decimal, _NONE})
_TEXT: frozenset[type] = frozenset({str, _NONE})
_TRUTHS: frozenset[type] = frozenset({bool, _NONE})
# What Arrow raises for values that it does not take; half of a surrogate pair is no text.
_UNFIT = (UnfitError, pa.ArrowException, OverflowError, UnicodeEncodeError)
_MOST_DIGITS = 19  # of a whole number that a column can hold
_FLOAT_END = 2.0**128 - 2.0**103  # from here on, the nearest float is infinite


class _Named(float):
    """`NaN`, `Infinity` or `-Infinity`, by this name: a number that is too large is none of them."""


def read_lines(lines: Iterable[str], schema: Schema, origin: str) -> Iterator[Piece]:
    """The rows of a file that has one JSON object on each line; empty lines are none."""
    numbered = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    decode = _decoder(schema)
    rows_before = 0
    while chunk := list(islice(numbered, _LINES_AT_A_TIME)):
        rows = [_object(decode, line, number, origin) for number, line in chunk]
        yield Piece(origin, rows_before, _batch(rows, schema, origin, rows_before), is_text=True, is_sparse=True)
        rows_before += len(rows)


def _decoder(schema: Schema) -> Callable[[str], Any]:
    """Fractions are read as they are spelled where a column can keep that."""
    exact = any(isinstance(each.field_type, DecimalType) for each in index_by_id(schema).values())
    return json.JSONDecoder(parse_float=Decimal if exact else None, parse_constant=_Named).decode


def _object(decode: Callable[[str], Any], line: str, number: int, origin: str) -> dict[str, Any]:
    try:
        found = decode(line)
    except (ValueError, RecursionError) as error:
        raise TableUsageError(
            f"line {number} of {origin} is not JSON: {error}", hint="write one object on each line", source=origin
        ) from error
    if not isinstance(found, dict):
        raise TableUsageError(
            f"line {number} of {origin} is no JSON object", hint="write one object on each line", source=origin
        )
    return found


def _batch(rows: Sequence[Mapping[str, Any]], schema: Schema, origin: str, rows_before: int) -> pa.RecordBatch:
    """The columns that any of the rows has. The names of a column within one piece are spelled alike."""
    given = list(dict.fromkeys(name for row in rows for name in row))
    named = match_columns(given, [each.name for each in schema.fields], origin)
    fields = {each.name: each for each in schema.fields}
    arrays = []
    for name, wanted in zip(given, named, strict=True):
        values = [row.get(name) for row in rows]
        try:
            column = _column(values, fields[wanted].field_type)
        except _UNFIT:
            raise _culprit(values, fields[wanted], origin, rows_before) from None
        arrays.append(_with_default(column, rows, name, fields[wanted]))
    if not arrays:  # every object is empty
        return no_columns(len(rows))
    return pa.RecordBatch.from_arrays(arrays, names=list(named))


def _with_default(column: pa.Array, rows: Sequence[Mapping[str, Any]], name: str, field: NestedField) -> pa.Array:
    if field.write_default is None or all(name in row for row in rows):
        return column
    places = pa.array([place if name in row else len(rows) for place, row in enumerate(rows)])
    return pa.concat_arrays([column, _spelled(field, column.type)]).take(places)


def _spelled(field: NestedField, natural: pa.DataType) -> pa.Array:
    """The write default as a line would spell it."""
    default = constant(field.write_default, field.field_type, 1)
    match field.field_type:
        case UUIDType():
            return pa.array([str(default[0].as_py())], natural)
        case BinaryType() | FixedType():
            return pa.array([default[0].as_py().hex()], natural)
        case _:
            return default.cast(natural)


def _culprit(values: Sequence[Any], field: NestedField, origin: str, rows_before: int) -> TableUsageError:
    """The error for the first value that cannot be taken."""
    for place, value in enumerate(values):
        try:
            _column([value], field.field_type)
        except _UNFIT as error:
            row = rows_before + place + 1
            return TableUsageError(
                f"row {row} of {origin}: column {field.name} is {field.field_type} in the table: {error}",
                hint="correct the row, or change the type of the column",
                column=field.name,
                row=row,
                source=origin,
            )
    raise AssertionError("all of the values can be taken one by one, but not together")


def _column(values: list[Any], kind: IcebergType) -> pa.Array:
    if not isinstance(kind, PrimitiveType):
        return pa.array([_taken(each, kind) for each in values], _natural(kind))
    found = set(map(type, values))
    if not found <= _accepted(kind) or Decimal in found or float in found or isinstance(kind, DecimalType):
        values = [_taken(each, kind) for each in values]
    return pa.array(values, _natural(kind))


def _accepted(kind: PrimitiveType) -> frozenset[type]:
    match kind:
        case BooleanType():
            return _TRUTHS
        case IntegerType() | LongType():
            return _WHOLE
        case FloatType() | DoubleType() | DecimalType():
            return _NUMBERS
        case _:
            return _TEXT


def _natural(kind: IcebergType) -> pa.DataType:
    """The Arrow type in which JSON's values of this type lose nothing: times, UUIDs and octets are text."""
    match kind:
        case StructType():
            return pa.struct([pa.field(each.name, _natural(each.field_type)) for each in kind.fields])
        case ListType():
            return pa.large_list(pa.field("element", _natural(kind.element_type)))
        case MapType():
            return pa.map_(_natural(kind.key_type), _natural(kind.value_type))
        case BooleanType():
            return pa.bool_()
        case IntegerType() | LongType():
            return pa.int64()
        case FloatType():
            return pa.float32()
        case DoubleType():
            return pa.float64()
        case DecimalType():
            return pa.decimal128(38, kind.scale)
        case _:
            return pa.large_string()


def _taken(value: Any, kind: IcebergType) -> Any:
    """A value of JSON as Arrow wants it for this type; of a float in an int column, only a whole one is taken."""
    match kind:
        case _ if value is None:
            return None
        case StructType() if isinstance(value, dict):
            fields = {each.name: each for each in kind.fields}
            unknown = [name for name in value if name not in fields]
            if unknown:
                raise UnfitError(f"there is no {unknown[0]} in it")
            return {name: _taken(each, fields[name].field_type) for name, each in value.items()}
        case ListType() if isinstance(value, list):
            return [_taken(each, kind.element_type) for each in value]
        case MapType() if isinstance(value, dict):
            return [(_key(name, kind.key_type), _taken(each, kind.value_type)) for name, each in value.items()]
        case IntegerType() | LongType() if isinstance(value, float | Decimal):
            return _whole(value)
        case FloatType() | DoubleType() if isinstance(value, float | Decimal):
            return _nearest(value, kind)
        case DecimalType() if isinstance(value, str):
            return _decimal(value)
        case DecimalType() if isinstance(value, float):  # NaN and the infinite, which JSON of Python has
            raise _no_such(value)
        case PrimitiveType() if type(value) in _accepted(kind):
            return value
    raise _no_such(value)


def _whole(value: float | Decimal) -> int:
    number = Decimal(value)
    # A large exponent is not written out: that would be a number of as many digits.
    if not number.is_finite() or number.adjusted() >= _MOST_DIGITS or number != number.to_integral_value():
        raise _no_such(value)
    return int(number)


def _nearest(value: float | Decimal, kind: IcebergType) -> float:
    """The number that is nearest to what was spelled, as in any other text."""
    number = float(value)
    end = _FLOAT_END if isinstance(kind, FloatType) else math.inf
    if abs(number) >= end and not isinstance(value, _Named):
        raise UnfitError(f"a number is too large for {kind}")
    return number


def _key(name: str, kind: IcebergType) -> Any:
    """A key of a map: JSON has none but text."""
    if isinstance(kind, PrimitiveType) and str not in _accepted(kind):
        try:
            return _taken(json.loads(name, parse_float=Decimal, parse_constant=_Named), kind)
        except (ValueError, RecursionError) as error:
            raise _no_such(name) from error
    return name


def _decimal(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except ArithmeticError as error:
        raise _no_such(text) from error
    if not number.is_finite():
        raise _no_such(text)
    return number


def _no_such(value: Any) -> UnfitError:
    return UnfitError(f"{value if isinstance(value, Decimal) else json.dumps(value, default=str)} is no such value")
