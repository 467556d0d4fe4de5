"""Answers on their way out of Arrow: as Python values, as JSON, as columns that a CSV can hold.

DuckDB has dates and timestamps that Python's `datetime` cannot hold: they become text, by DuckDB's own word `infinity`
or with a year before 1 or after 9999. So do intervals. In JSON, where neither is a number, NaN and the infinities are
the strings "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import count
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

_MICROSECONDS_OF_SECOND, _SECONDS_OF_HOUR, _SECONDS_OF_MINUTE = 1_000_000, 3600, 60
_INFINITE = {pa.int32(): 2**31 - 1, pa.int64(): 2**63 - 1}


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    """The rows, in Python's values."""
    for batch in batches:
        yield from zip(*map(_values, batch.columns), strict=True)


def to_json(value: object) -> object:
    """A value of `rows_of` as JSON has it; a map is a list of pairs."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID() | timedelta():
            return str(value)
        case bytes():
            return value.hex()
        case dict():
            return {str(key): to_json(each) for key, each in value.items()}
        case list() | tuple():
            return [to_json(each) for each in value]
    return value


def unique(names: Sequence[str]) -> list[str]:
    """The names, of which a second `a` is called `a_2`, so that none hides another."""
    taken, found = set(names), list[str]()
    for name in names:
        chosen = name
        if name in found:
            chosen = next(each for number in count(2) if (each := f"{name}_{number}") not in taken)
            taken.add(chosen)
        found.append(chosen)
    return found


def csv_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in which an answer is written as CSV: what the writer does not know is text."""
    return pa.schema([pa.field(each.name, each.type if _is_for_csv(each.type) else pa.string()) for each in schema])


def for_csv(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in the schema that `csv_schema` made: values of many parts are JSON."""
    arrays = [
        column if column.type == each.type else _texts(column)
        for column, each in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _is_for_csv(kind: pa.DataType) -> bool:
    is_known = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_time,
        pa.types.is_null,
    )
    return any(each(kind) for each in is_known)


def _texts(column: pa.Array) -> pa.Array:
    if pa.types.is_temporal(column.type) and not pa.types.is_interval(column.type):
        return _with_infinity(column, column.cast(pa.string()))
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type).cast(pa.string())
    return pa.array([_text(value) for value in _values(column)], pa.string())


def _text(value: object) -> str | None:
    said = to_json(value)
    if isinstance(said, dict | list):
        return json.dumps(said, allow_nan=False, ensure_ascii=False)
    return None if said is None else str(said)


def _with_infinity(column: pa.Array, texts: pa.Array) -> pa.Array:
    stored = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
    numbers = column.cast(stored)
    for text, number in (("infinity", _INFINITE[stored]), ("-infinity", -_INFINITE[stored])):
        texts = pc.if_else(pc.equal(numbers, pa.scalar(number, stored)), text, texts)
    return texts


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_interval(column.type):
        return [None if value is None else _interval(value) for value in column.to_pylist()]
    try:
        if not pa.types.is_nested(column.type):
            return list(column.to_pylist())
    except (OverflowError, ValueError):
        return _with_infinity(column, column.cast(pa.string())).to_pylist()  # type: ignore[no-any-return]
    return [_value(each) for each in column]


def _value(scalar: pa.Scalar) -> Any:
    """The value of a scalar of any type. Within others, each value may be one that Python does not have."""
    if not scalar.is_valid:
        return None
    match scalar:
        case pa.MapScalar():
            pairs = scalar.values
            return list(zip(*(_values(pairs.field(place)) for place in (0, 1)), strict=True))
        case pa.ListScalar() | pa.LargeListScalar() | pa.FixedSizeListScalar():
            return _values(scalar.values)
        case pa.StructScalar():
            return {name: _value(scalar[place]) for place, name in enumerate(scalar.type.names)}
        case pa.UnionScalar():
            return _value(scalar.value)
    return _values(pa.array([scalar], scalar.type))[0]


def _interval(value: Any) -> str:
    """An interval in DuckDB's words."""
    years, months = divmod(abs(value.months), 12)
    sign = -1 if value.months < 0 else 1
    parts = [(sign * years, "year"), (sign * months, "month"), (value.days, "day")]
    words = [f"{number} {unit}{'' if abs(number) == 1 else 's'}" for number, unit in parts if number]
    microseconds = value.nanoseconds // 1000
    if microseconds or not words:
        seconds, rest = divmod(abs(microseconds), _MICROSECONDS_OF_SECOND)
        hours, minutes = seconds // _SECONDS_OF_HOUR, seconds // _SECONDS_OF_MINUTE % _SECONDS_OF_MINUTE
        clock = f"{hours:02}:{minutes:02}:{seconds % _SECONDS_OF_MINUTE:02}"
        fraction = f".{rest:06}".rstrip("0") if rest else ""
        words.append(f"{'-' if microseconds < 0 else ''}{clock}{fraction}")
    return " ".join(words)
