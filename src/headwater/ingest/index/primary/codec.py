"""The bytes of the primary index, format 1: four trees of LMDB.

stored key   table id, 4 bytes big-endian, then the canonical key; a key of more than 128 bytes is its SHA-256,
             and the highest bit of the table id says so
current      stored key -> a record: timestamp, row id, number of the record it replaced: 3 x 8 bytes,
             little-endian; -1 for a tombstone's row id and for "nothing older"
history      table id, number of the chunk, 8 bytes big-endian -> the timestamp of the call that replaced them,
             8 bytes little-endian, then up to 80 records. Record n is in chunk n // 80, at n % 80
tombstones   table id, timestamp, number, 8 bytes big-endian each -> count, 4 bytes little-endian, the length of
             each stored key, 1 byte, and the stored keys: what was deleted at that timestamp
about        "format" -> 1; "incarnation" -> a ULID; "next" -> the number of the next chunk
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from headwater.ingest.index.errors import DuplicateKeysError
from headwater.ingest.index.primary.model import NOTHING, Held
from headwater.ingest.keys import LONG_KEY_BYTES, Keys
from headwater.ingest.model import Int64s, Timestamp
from headwater.kernel.errors import CorruptError, UsageError

FORMAT = 1
CHUNK_RECORDS = 80  # with its key a chunk fits twice into a page of LMDB
TOMBSTONES_TOGETHER = 1_000
NO_TOMBSTONES = bytes(4)
_RECORD = np.dtype([("timestamp", "<i8"), ("row_id", "<i8"), ("older", "<i8")])
ABSENT = np.full(3, NOTHING, dtype="<i8").tobytes()
_HISTORY_KEY = np.dtype([("table_id", ">u4"), ("chunk", ">u8")])
_LARGEST_TABLE = 2**31 - 1
_IS_DIGEST = 1 << 31


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """Keys of a batch as they are stored, nearly in the order of the tree; `order` says which of the batch each is."""

    keys: list[bytes]
    order: Int64s

    def part(self, some: slice) -> StoredKeys:
        """A few of them."""
        return StoredKeys(self.keys[some], self.order[some])

    def from_batch(self, column: Int64s) -> Int64s:
        """A column of the batch in the order of the stored keys."""
        return column[self.order]

    def to_batch(self, column: Int64s) -> Int64s:
        """A column of the stored keys in the order of the batch."""
        back = np.empty_like(column)
        back[self.order] = column
        return back


def stored(table_id: int, keys: Keys) -> StoredKeys:
    """The keys as the index knows them; `DuplicateKeysError` when one is there twice."""
    if not 0 <= table_id <= _LARGEST_TABLE:
        raise UsageError(f"{table_id} is not a table's number", hint=f"0 to {_LARGEST_TABLE}", table_id=table_id)
    prefix = struct.pack(">I", table_id)
    plain = list(map(prefix.__add__, keys.to_list()))
    for place in np.flatnonzero(keys.lengths > LONG_KEY_BYTES).tolist():
        plain[place] = struct.pack(">I", table_id | _IS_DIGEST) + hashlib.sha256(plain[place][4:]).digest()
    if len(set(plain)) != len(plain):
        raise _twice(table_id, plain)
    # Neighbours in the tree come one after the other, and find their page where the one before left it.
    order = keys.order()
    return StoredKeys(list(map(plain.__getitem__, order.tolist())), order)


def _twice(table_id: int, plain: list[bytes]) -> DuplicateKeysError:
    first = dict[bytes, int]()
    places = next((first[key], place) for place, key in enumerate(plain) if first.setdefault(key, place) != place)
    return DuplicateKeysError(
        f"places {places[0]} and {places[1]} of the batch have the same key",
        hint="keep the last change of each key",
        table_id=table_id,
        places=list(places),
    )


def decode_held(values: Iterable[bytes]) -> Held:
    """The records that `current` gave for keys, ABSENT for those that it does not hold."""
    return _held(b"".join(values))


def encode_held(held: Held) -> list[bytes]:
    """A record for each key."""
    return _records(held).view(f"V{_RECORD.itemsize}").tolist()


def history_chunks(table_id: int, first_chunk: int, timestamp: Timestamp, held: Held) -> list[tuple[bytes, bytes]]:
    """The entries of `history` for versions that a call of `timestamp` replaces."""
    head, raw = struct.pack("<q", timestamp), _records(held).tobytes()
    size = CHUNK_RECORDS * _RECORD.itemsize
    starts = range(0, len(raw), size)
    keys = np.empty(len(starts), dtype=_HISTORY_KEY)
    keys["table_id"], keys["chunk"] = table_id, np.arange(first_chunk, first_chunk + len(starts))
    parts = map(raw.__getitem__, map(slice, starts, range(size, len(raw) + size, size)))
    return list(zip(keys.view(f"V{_HISTORY_KEY.itemsize}").tolist(), map(head.__add__, parts), strict=True))


def history_key(table_id: int, chunk: int) -> bytes:
    """Where a chunk of history is."""
    return struct.pack(">IQ", table_id, chunk)


def decode_chunk(value: bytes) -> tuple[Timestamp, Held]:
    """When the versions of a chunk were replaced, and what they are."""
    return decode_chunk_head(value), _held(value[8:])


def decode_chunk_head(value: bytes) -> Timestamp:
    """When the versions of a chunk were replaced."""
    return int(struct.unpack_from("<q", value)[0])


def tombstone_entries(
    table_id: int, timestamp: Timestamp, first: int, keys: Sequence[bytes]
) -> Iterator[tuple[bytes, bytes]]:
    """The entries of `tombstones` for stored keys that were deleted; numbers from `first` make them unique."""
    for number, start in enumerate(range(0, len(keys), TOMBSTONES_TOGETHER)):
        part = keys[start : start + TOMBSTONES_TOGETHER]
        value = struct.pack("<I", len(part)) + bytes(map(len, part)) + b"".join(part)
        yield struct.pack(">IQQ", table_id, timestamp, first + number), value


def tombstones_timestamp(key: bytes) -> Timestamp:
    """When the keys of an entry were deleted."""
    return int(struct.unpack_from(">IQ", key)[1])


def decode_tombstones(value: bytes) -> list[bytes]:
    """Which keys were deleted."""
    count = struct.unpack_from("<I", value)[0]
    ends = list(accumulate(value[4 : 4 + count], initial=4 + count))
    return [value[start:end] for start, end in pairwise(ends)]


def table_prefix(table_id: int) -> bytes:
    """How entries of a table begin, in `history` and `tombstones`."""
    return struct.pack(">I", table_id)


def check_format(value: bytes, path: str) -> None:
    """Refuse an index that another version wrote."""
    if value != str(FORMAT).encode():
        raise CorruptError(
            f"{path} is an index of format {value.decode(errors='replace')}, and this version knows {FORMAT} alone",
            hint="use the Headwater that wrote it, or rebuild the index",
            path=path,
        )


def _records(held: Held) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    records = np.empty(len(held), dtype=_RECORD)
    records["timestamp"], records["row_id"], records["older"] = held.timestamps, held.row_ids, held.older
    return records


def _held(raw: bytes) -> Held:
    columns = np.frombuffer(raw, dtype="<i8").reshape(-1, 3)
    return Held(*(np.ascontiguousarray(columns[:, place]) for place in range(3)))
