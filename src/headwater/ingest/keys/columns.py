"""The canonical bytes of key columns. They are a durable contract: the index stores them, virtual nodes hang on them.

A key is the bytes of its columns in the order of the table's key:

    boolean                 1 byte, 0 or 1
    integers, 8 to 64 bits  8 bytes, big-endian, the sign bit flipped, so that bytes sort as numbers do
    date                    8 bytes: days since 1970, as an integer
    time                    8 bytes: nanoseconds since midnight, as an integer
    timestamp, any zone     10 bytes: microseconds since 1970 UTC as an integer, then nanoseconds within it, 2 bytes
    float, double           8 bytes: the double, -0.0 as 0.0; its bits flipped so that bytes sort as numbers do
    decimal                 32 bytes: the unscaled value at scale 38, as an integer of 256 bits
    uuid, fixed             the bytes
    string, binary          the bytes, without their length

then, for every string or binary column but the last such, its length in 4 bytes, big-endian. The last one's follows
from the length of the whole, so that no two keys of a table share their bytes. A value has the same bytes in every
Arrow type that can carry it: a promotion in the schema (int to long, float to double, a wider decimal) changes no key.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.ingest.keys.model import Keys
from headwater.ingest.keys.ragged import Bytes, copy_rows
from headwater.ingest.model import Int64s
from headwater.kernel.errors import UsageError

_SIGN = np.uint64(1 << 63)
_DECIMAL = pa.decimal256(76, 38)
_UNITS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_INT64 = np.iinfo(np.int64)


class KeyColumnError(UsageError):
    """A batch whose rows have no key: a column is missing, or of a type, or with a value, that cannot be one."""


@dataclass(frozen=True, slots=True)
class _Fixed:
    """A column whose values all have the same length: a row of bytes each."""

    rows: Bytes


@dataclass(frozen=True, slots=True)
class _Ragged:
    """A column whose values lie somewhere in `data`."""

    data: Bytes
    starts: Int64s
    lengths: Int64s


def encode(batch: pa.RecordBatch, key: tuple[str, ...]) -> Keys:
    """The canonical bytes of the columns `key` of each row of `batch`; `KeyColumnError` says what cannot be a key."""
    if not key:
        raise KeyColumnError("a table without key columns has no keys", hint="name the columns that identify a row")
    parts = [_column(name, _found(batch, name)) for name in key]
    if all(isinstance(part, _Fixed) for part in parts):
        whole = np.concatenate([part.rows for part in parts if isinstance(part, _Fixed)], axis=1)
        return Keys(whole.reshape(-1), np.arange(batch.num_rows + 1, dtype=np.int64) * whole.shape[1])
    ragged = [part for part in parts if isinstance(part, _Ragged)]
    if len(parts) == 1 and batch.num_rows and (np.diff(ragged[0].starts) == ragged[0].lengths[:-1]).all():
        only = ragged[0]
        return Keys(only.data, np.append(only.starts, only.starts[-1] + only.lengths[-1]))
    parts += [_Fixed(part.lengths.astype(">u4").view(np.uint8).reshape(-1, 4)) for part in ragged[:-1]]
    return _joined(parts, batch.num_rows)


def _joined(parts: list[_Fixed | _Ragged], count: int) -> Keys:
    """All parts of each row, one after the other."""
    lengths = np.zeros(count, dtype=np.int64)
    for part in parts:
        lengths += part.rows.shape[1] if isinstance(part, _Fixed) else part.lengths
    offsets = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    data = np.empty(int(offsets[-1]), dtype=np.uint8)
    places = offsets[:-1].copy()
    for part in parts:
        if isinstance(part, _Fixed):
            width = part.rows.shape[1]
            data[places[:, None] + np.arange(width)] = part.rows
            places += width
        else:
            copy_rows(part.data, part.starts, data, places, part.lengths)
            places += part.lengths
    return Keys(data, offsets)


def _found(batch: pa.RecordBatch, name: str) -> pa.Array:
    places = batch.schema.get_all_field_indices(name)
    if len(places) != 1:
        raise KeyColumnError(
            f"the batch has {'no' if not places else 'more than one'} column {name!r}, which is part of the key",
            hint=f"its columns are {', '.join(batch.schema.names)}",
            column=name,
        )
    column = batch.column(places[0])
    if column.null_count:
        raise _bad_value(name, "null", pc.is_null(column), "every row of a table with a key has all of its key columns")
    return column


def _column(name: str, column: pa.Array) -> _Fixed | _Ragged:
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        # A dictionary may hold a null of its own, which the indices do not show.
        raise _bad_value(name, "null", pc.is_null(column), "every row of a table with a key has all of its key columns")
    kind = column.type
    if pa.types.is_boolean(kind):
        return _Fixed(column.cast(pa.uint8()).to_numpy(zero_copy_only=False).reshape(-1, 1))
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return _Fixed(_integers(column.cast(pa.int64()).to_numpy(zero_copy_only=False)))
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        return _temporal(name, column)
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return _floats(name, column)
    if pa.types.is_decimal(kind):
        return _decimals(name, column)
    if pa.types.is_fixed_size_binary(kind):
        raw = _raw(column.buffers()[1])
        used = raw[column.offset * kind.byte_width : (column.offset + len(column)) * kind.byte_width]
        return _Fixed(used.reshape(len(column), kind.byte_width))
    if _is_ragged(kind):
        return _ragged(column)
    raise KeyColumnError(
        f"column {name!r} of type {kind} cannot be part of a key",
        hint="a key is made of booleans, signed integers, floats, decimals, dates, times, strings, binaries or uuids",
        column=name,
        type=str(kind),
    )


def _is_ragged(kind: pa.DataType) -> bool:
    types = pa.types
    return any(
        is_it(kind)
        for is_it in (
            types.is_string,
            types.is_large_string,
            types.is_string_view,
            types.is_binary,
            types.is_large_binary,
            types.is_binary_view,
        )
    )


def _ragged(column: pa.Array) -> _Ragged:
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        column = column.cast(pa.large_binary())
    is_large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, ends, values = column.buffers()
    if len(column) == 0 or ends is None:
        return _Ragged(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
    all_ends = np.frombuffer(ends, dtype=np.int64 if is_large else np.int32)
    used = all_ends[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return _Ragged(_raw(values), used[:-1], np.diff(used))


def _temporal(name: str, column: pa.Array) -> _Fixed:
    kind = column.type
    if pa.types.is_date32(kind):
        return _Fixed(_integers(column.view(pa.int32()).to_numpy(zero_copy_only=False).astype(np.int64)))
    wide = pa.types.is_date64(kind) or pa.types.is_timestamp(kind) or pa.types.is_time64(kind)
    counts = column.view(pa.int64() if wide else pa.int32()).to_numpy(zero_copy_only=False).astype(np.int64)
    if pa.types.is_date64(kind):
        return _Fixed(_integers(counts // (24 * 60 * 60 * 1000)))
    per_second = _UNITS_PER_SECOND[kind.unit]
    if pa.types.is_time(kind):
        return _Fixed(_integers(counts * (10**9 // per_second)))
    if kind.unit == "ns":
        micros, rest = np.divmod(counts, 1000)
    else:
        scale = 10**6 // per_second
        is_far = (counts > _INT64.max // scale) | (counts < -(_INT64.max // scale))
        if is_far.any():
            raise _bad_value(name, "a moment out of range", is_far, "a timestamp counts microseconds in 64 bits")
        micros, rest = counts * scale, np.zeros_like(counts)
    return _Fixed(np.concatenate([_integers(micros), rest.astype(">u2").view(np.uint8).reshape(-1, 2)], axis=1))


def _floats(name: str, column: pa.Array) -> _Fixed:
    values = column.to_numpy(zero_copy_only=False).astype(np.float64)
    is_nan = np.isnan(values)
    if is_nan.any():
        raise _bad_value(name, "NaN", is_nan, "NaN equals nothing, so that such a row could never be found again")
    bits = (values + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
    flipped = np.where(bits & _SIGN, ~bits, bits | _SIGN)
    return _Fixed(flipped.astype(">u8").view(np.uint8).reshape(-1, 8))


def _decimals(name: str, column: pa.Array) -> _Fixed:
    try:
        wide = column.cast(_DECIMAL)
    except pa.ArrowInvalid as error:
        raise KeyColumnError(
            f"column {name!r} of type {column.type} holds a decimal that is no Iceberg decimal: {error}",
            hint="a decimal has at most 38 digits",
            column=name,
            type=str(column.type),
        ) from error
    raw = _raw(wide.buffers()[1])[wide.offset * 32 : (wide.offset + len(wide)) * 32]
    rows = raw.reshape(-1, 32)[:, ::-1].copy()
    rows[:, 0] ^= 0x80
    return _Fixed(rows)


def _integers(values: npt.NDArray[np.int64]) -> Bytes:
    flipped = np.ascontiguousarray(values).view(np.uint64) ^ _SIGN
    return flipped.astype(">u8").view(np.uint8).reshape(-1, 8)


def _raw(buffer: pa.Buffer | None) -> Bytes:
    return np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, dtype=np.uint8)


def _bad_value(name: str, what: str, where: pa.Array | npt.NDArray[np.bool_], why: str) -> KeyColumnError:
    rows = np.flatnonzero(np.asarray(where))
    return KeyColumnError(
        f"column {name!r} is part of the key and holds {what} in row {rows[0]}"
        + (f" and {len(rows) - 1} more" if len(rows) > 1 else ""),
        hint=why,
        column=name,
        row=int(rows[0]),
        count=len(rows),
    )
