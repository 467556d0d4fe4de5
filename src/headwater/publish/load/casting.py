"""Values become values of a column's type without loss, or not at all.

What may be tried is a table by types; each value is then checked. Text is parsed only where it stands for the values
(CSV, NDJSON): a column of text in a typed file is no number. An UUID is the exception: it has one spelling, and most
writers know no other.

| column | from |
|---|---|
| int, long | integers; floats and decimals that are whole |
| float, double | floats and integers that it holds exactly |
| decimal | decimals and integers that it holds exactly |
| date | dates |
| time | times of any unit, if nothing is cut off |
| timestamp, timestamp_ns | timestamps without a zone, dates |
| timestamptz, timestamptz_ns | timestamps with a zone |
| string | text |
| binary, fixed | octets, of that length |
| uuid | 16 octets, text |

In text, octets are hexadecimal, as Iceberg itself spells them; times follow ISO 8601, with a zone exactly where the
column has one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from headwater.tables.arrow import arrow_type

Test: TypeAlias = Callable[[pa.DataType], bool]

_INFINITE = r"(?i)^[+-]?inf(inity)?$"
_UUID_BYTES = 16


class UnfitError(Exception):
    """A value that the column cannot hold. Caught where row and column are known."""


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are text."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_octets(kind: pa.DataType) -> bool:
    """Whether values of this type are octets."""
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


_SOURCES: dict[type[PrimitiveType], Test] = {
    IntegerType: _is_number,
    LongType: _is_number,
    FloatType: lambda kind: bool(pa.types.is_integer(kind) or pa.types.is_floating(kind)),
    DoubleType: lambda kind: bool(pa.types.is_integer(kind) or pa.types.is_floating(kind)),
    DecimalType: lambda kind: bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind)),
    DateType: pa.types.is_date,
    TimeType: pa.types.is_time,
    TimestampType: lambda kind: bool(pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None)),
    TimestampNanoType: lambda kind: bool(pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None)),
    TimestamptzType: lambda kind: bool(pa.types.is_timestamp(kind) and kind.tz is not None),
    TimestamptzNanoType: lambda kind: bool(pa.types.is_timestamp(kind) and kind.tz is not None),
    StringType: is_text,
    BinaryType: is_octets,
    FixedType: is_octets,
    UUIDType: lambda kind: is_octets(kind) or is_text(kind),
}


def cast_exactly(values: pa.Array, kind: PrimitiveType, *, from_text: bool) -> pa.Array | None:
    """The values in the column's type; None when their type is none that can be tried."""
    try:
        if is_text(values.type) and (from_text or isinstance(kind, UUIDType)):
            return _parsed(values.cast(pa.large_string()), kind)
        if not _SOURCES.get(type(kind), _never)(values.type):
            return None
        return _cast(values, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise UnfitError(str(error)) from error


def _never(_: pa.DataType) -> bool:
    return False


def _cast(values: pa.Array, kind: PrimitiveType) -> pa.Array:
    target = arrow_type(kind)
    match kind:
        case FloatType() | DoubleType():
            return _same_numbers(values, target)
        case DecimalType():
            if pa.types.is_integer(values.type):
                values = values.cast(pa.decimal128(38, 0))
            return values.cast(target)
        case UUIDType():
            return pa.ExtensionArray.from_storage(target, values.cast(pa.binary(_UUID_BYTES)))
        case BinaryType() if pa.types.is_fixed_size_binary(values.type):
            return values.cast(pa.binary()).cast(target)
        case _:
            return values.cast(target)


def _same_numbers(values: pa.Array, target: pa.DataType) -> pa.Array:
    """There and back again: Arrow lets what does not fit become infinite, or the nearest number."""
    if pa.types.is_float16(values.type):  # which Arrow does not compare
        values = values.cast(pa.float32())
    there = values.cast(target, safe=False)
    back = there.cast(values.type, safe=False)
    same = pc.equal(back, values)
    if pa.types.is_floating(values.type):
        same = pc.or_(same, pc.is_nan(values))
    elif not pc.all(pc.less(pc.abs(there), 2.0**63)).as_py() and len(there):
        raise UnfitError("a number is too large")  # beyond, the way back wraps around
    if not pc.all(same).as_py():
        raise UnfitError(f"a number cannot be held exactly as {target}")
    return there


def _parsed(values: pa.Array, kind: PrimitiveType) -> pa.Array:
    target = arrow_type(kind)
    match kind:
        case StringType():
            return values
        case UUIDType():
            found = [None if each is None else uuid.UUID(each).bytes for each in values.to_pylist()]
            return pa.ExtensionArray.from_storage(target, pa.array(found, pa.binary(_UUID_BYTES)))
        case BinaryType() | FixedType():
            octets = [None if each is None else bytes.fromhex(each) for each in values.to_pylist()]
            return pa.array(octets, pa.large_binary()).cast(target)
        case TimeType():
            # Arrow parses a time only behind a date.
            epoch, nothing = (pa.scalar(each, values.type) for each in ("1970-01-01T", ""))
            dated = pc.binary_join_element_wise(epoch, values, nothing)
            return dated.cast(pa.timestamp("us")).cast(target)
        case FloatType() | DoubleType():
            numbers = values.cast(target)
            spelled = values.filter(pc.is_inf(numbers))
            if len(spelled) and not pc.all(pc.match_substring_regex(spelled, _INFINITE)).as_py():
                raise UnfitError(f"a number is too large for {target}")
            return numbers
        case _:
            return values.cast(target)
