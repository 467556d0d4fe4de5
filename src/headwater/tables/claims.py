"""What a message of Arrow's IPC claims to hold, read without unfolding it.

A few bytes can say that a batch holds billions of rows: compressed zeros, or nulls that take no room at all until they
become a column of a table. What a batch claims stands in its message, in front of its buffers.
"""

from __future__ import annotations

import struct

import pyarrow as pa

_DICTIONARY, _BATCH = 2, 3
_BUFFER_BYTES = 16
_VERSION_5 = 4


class UntoldClaimError(ValueError):
    """What a message holds cannot be told before it is unfolded."""


def claimed(metadata: bytes, body: pa.Buffer | None) -> tuple[int, int]:
    """The rows of a message, and the bytes of its buffers once they are unfolded; nothing if it is no batch.

    `UntoldClaimError` and `struct.error` say that it cannot be told.
    """
    view = _Table(metadata, struct.unpack_from("<I", metadata)[0])
    kind, table = view.byte(1), view.table(2)
    if kind == _DICTIONARY and table is not None:
        table = table.table(1)
    elif kind != _BATCH:
        return 0, 0
    if table is None or body is None:
        return 0, 0
    if view.byte(0) < _VERSION_5 and view.table(4) is not None:
        # Before version 5 compression was one of these, and looked like nothing at all.
        raise UntoldClaimError("a message of an old version of Arrow has marks of its own")
    rows, buffers = table.number(0), table.pairs(2)
    if min([rows, *(each for buffer in buffers for each in buffer)]) < 0:
        raise UntoldClaimError("a count in a message of Arrow is negative")
    size, is_compressed = 0, table.table(3) is not None
    for start, length in buffers:
        size += length
        if is_compressed and length >= struct.calcsize("<q"):
            unfolded = struct.unpack_from("<q", body, start)[0]
            size += max(0, unfolded)  # -1 says that this one is as it is
    return rows, size


class _Table:
    """A table of a flatbuffer: its fields by their numbers."""

    def __init__(self, data: bytes, place: int) -> None:
        self._data = data
        self._place = place

    def _field(self, number: int) -> int | None:
        fields = self._place - struct.unpack_from("<i", self._data, self._place)[0]
        at = 4 + 2 * number
        if at >= struct.unpack_from("<H", self._data, fields)[0]:
            return None
        offset: int = struct.unpack_from("<H", self._data, fields + at)[0]
        return self._place + offset if offset else None

    def byte(self, number: int) -> int:
        place = self._field(number)
        return 0 if place is None else self._data[place]

    def number(self, number: int) -> int:
        place = self._field(number)
        return 0 if place is None else int(struct.unpack_from("<q", self._data, place)[0])

    def table(self, number: int) -> _Table | None:
        place = self._field(number)
        return None if place is None else _Table(self._data, self._follow(place))

    def pairs(self, number: int) -> list[tuple[int, int]]:
        place = self._field(number)
        if place is None:
            return []
        start = self._follow(place)
        (count,) = struct.unpack_from("<I", self._data, start)
        return [struct.unpack_from("<qq", self._data, start + 4 + _BUFFER_BYTES * each) for each in range(count)]

    def _follow(self, place: int) -> int:
        return place + int(struct.unpack_from("<I", self._data, place)[0])
