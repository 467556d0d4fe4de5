"""A column of keys: their canonical bytes one after the other, and where each begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.ingest.keys.hashing import hash_all
from headwater.ingest.keys.ragged import WORD_BYTES, Bytes, UInt64s, Words, copy_rows
from headwater.ingest.model import Bools, Int64s

Indices: TypeAlias = npt.NDArray[np.integer] | npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Keys:
    """Keys of a batch, in its order. `offsets` has one more entry than there are keys."""

    data: Bytes
    offsets: Int64s

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int64s:
        """How many bytes each key has."""
        return np.diff(self.offsets)

    def to_list(self) -> list[bytes]:
        """Each key as `bytes`."""
        lengths = self.lengths
        if len(lengths) and lengths[0] and (lengths == lengths[0]).all():
            same: list[bytes] = np.ascontiguousarray(self._used()).view(f"V{lengths[0]}").tolist()
            return same
        start = int(self.offsets[0])
        whole = self.data[start : self.offsets[-1]].tobytes()
        ends = (self.offsets - start).tolist()
        return list(map(whole.__getitem__, map(slice, ends[:-1], ends[1:])))

    def take(self, indices: Indices) -> Keys:
        """The keys at these places, or where a mask is true, in that order."""
        chosen = np.flatnonzero(indices) if indices.dtype == np.bool_ else np.asarray(indices, dtype=np.int64)
        lengths = self.lengths[chosen]
        offsets = _ends(lengths)
        data = np.empty(int(offsets[-1]), dtype=np.uint8)
        copy_rows(self.data, self.offsets[:-1][chosen], data, offsets[:-1], lengths)
        return Keys(data, offsets)

    def order(self) -> Int64s:
        """An order of the keys in which those that begin alike are neighbours: by their first 16 bytes."""
        lengths = self.lengths
        words = Words(self.data, self.offsets[:-1], lengths)
        firsts = list[UInt64s]()
        for before in (0, WORD_BYTES):
            column = np.zeros(len(self), dtype=np.uint64)
            rows = np.flatnonzero(lengths > before)
            column[rows] = words.at(before, rows)
            firsts.insert(0, column.byteswap())
        if lengths.max(initial=0) <= WORD_BYTES:
            return np.argsort(firsts[1])  # a number each, which numpy sorts much faster
        return np.lexsort(firsts)

    def hashes(self) -> UInt64s:
        """The stable hash of each key; see `hashing`."""
        return hash_all(self.data, self.offsets)

    def last_positions(self) -> Int64s:
        """Where each distinct key occurs for the last time, in ascending order."""
        if not len(self):
            return np.empty(0, dtype=np.int64)
        codes = self._binary().dictionary_encode()
        last = np.zeros(len(codes.dictionary), dtype=np.int64)
        last[codes.indices.to_numpy()] = np.arange(len(self), dtype=np.int64)  # of equal places the last one stays
        last.sort()
        return last

    def is_same(self, others: Keys) -> bool:
        """Whether these are the very keys of the others, in their order."""
        if len(self) != len(others) or not np.array_equal(self.lengths, others.lengths):
            return False
        return np.array_equal(self._used(), others._used())

    def is_in(self, others: Keys) -> Bools:
        """Which of these keys are among the others."""
        found: Bools = pc.is_in(self._binary(), value_set=others._binary()).to_numpy(zero_copy_only=False)
        return found

    def _used(self) -> Bytes:
        return self.data[self.offsets[0] : self.offsets[-1]]

    def _binary(self) -> pa.LargeBinaryArray:
        parts = [None, pa.py_buffer(np.ascontiguousarray(self.offsets)), pa.py_buffer(np.ascontiguousarray(self.data))]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self), parts)


NO_KEYS = Keys(np.empty(0, dtype=np.uint8), np.zeros(1, dtype=np.int64))
"""None at all."""


def keys_of(keys: Sequence[bytes]) -> Keys:
    """Keys whose canonical bytes are at hand, as one types them at a terminal or reads them from a log."""
    lengths = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
    return Keys(np.frombuffer(b"".join(keys), dtype=np.uint8), _ends(lengths))


def _ends(lengths: Int64s) -> Int64s:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
