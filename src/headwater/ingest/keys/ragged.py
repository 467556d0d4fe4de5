"""Rows of different lengths, copied without a step of Python for each short one."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headwater.ingest.model import Int64s

Bytes: TypeAlias = npt.NDArray[np.uint8]

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


def _copy_short(source: Bytes, starts: Int64s, target: Bytes, places: Int64s, lengths: Int64s) -> None:
    total = int(lengths.sum())
    if total == 0:
        return
    # For each byte: how far it is from the first byte of its row.
    within = np.arange(total) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    target[np.repeat(places, lengths) + within] = source[np.repeat(starts, lengths) + within]
