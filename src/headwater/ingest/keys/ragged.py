"""Rows of different lengths, copied without a step of Python for each short one."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headwater.ingest.model import Int64s

Bytes: TypeAlias = npt.NDArray[np.uint8]
UInt64s: TypeAlias = npt.NDArray[np.uint64]

WORD_BYTES = 8

# A longer row is copied by itself: its copy costs more than the step. Shorter ones together, so many at a time, because
# each byte then needs an index of eight.
_LONG_BYTES = 256
_TOGETHER = 65_536


def copy_rows(source: Bytes, starts: Int64s, target: Bytes, places: Int64s, lengths: Int64s) -> None:
    """Copy `lengths[i]` bytes from `source[starts[i]:]` to `target[places[i]:]`, for every i."""
    is_long = lengths > _LONG_BYTES
    if is_long.any():
        rows = zip(starts[is_long].tolist(), places[is_long].tolist(), lengths[is_long].tolist(), strict=True)
        for start, place, length in rows:
            target[place : place + length] = source[start : start + length]
        starts, places, lengths = starts[~is_long], places[~is_long], lengths[~is_long]
    for low in range(0, len(lengths), _TOGETHER):
        part = slice(low, low + _TOGETHER)
        _copy_short(source, starts[part], target, places[part], lengths[part])


class Words:
    """Rows as words of 8 bytes, little-endian, the last one filled up with zeros."""

    def __init__(self, data: Bytes, starts: Int64s, lengths: Int64s) -> None:
        self._starts, self._lengths = starts, lengths
        # Words begin at any byte, and the last row's last word may reach over the end.
        padded = np.concatenate([data, np.zeros(2 * WORD_BYTES, dtype=np.uint8)])
        self._words = np.ndarray((len(padded) - WORD_BYTES + 1,), dtype="<u8", buffer=padded, strides=(1,))

    def at(self, before: int, rows: Int64s | slice) -> UInt64s:
        """The word after `before` bytes of each of these rows; each has at least one byte more than that."""
        left = np.minimum(self._lengths[rows] - before, WORD_BYTES).astype(np.uint64)
        mask = np.uint64(2**64 - 1) >> (np.uint64(64) - left * np.uint64(8))
        word: UInt64s = self._words[self._starts[rows] + before] & mask
        return word


def _copy_short(source: Bytes, starts: Int64s, target: Bytes, places: Int64s, lengths: Int64s) -> None:
    total = int(lengths.sum())
    if total == 0:
        return
    # For each byte: how far it is from the first byte of its row.
    within = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    target[np.repeat(places, lengths) + within] = source[np.repeat(starts, lengths) + within]
