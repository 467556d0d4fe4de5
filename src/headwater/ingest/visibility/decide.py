"""Columns of deletions: which count at a timestamp, which are said twice, which belong together. Pure.

A row that is deleted at T stays deleted, so of all deletions of a row only the earliest matters, and the order in
which they arrived does not.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from pyroaring import BitMap, FrozenBitMap

from headwater.ingest.model import MAXIMUM_TIMESTAMP, Bools, Int64s, Locations, Timestamp, UInt32s
from headwater.ingest.visibility.model import OutOfRangeError, RowGroupRows

MAXIMUM_ROWS = 2**31 - 1


def checked_rows(rows: int) -> int:
    """How many rows a row group may have."""
    if not 0 <= rows <= MAXIMUM_ROWS:
        raise OutOfRangeError(f"a row group cannot have {rows} rows", hint=f"0 to {MAXIMUM_ROWS}", rows=rows)
    return rows


def checked_timestamp(timestamp: Timestamp, *, lowest: Timestamp) -> Timestamp:
    """A timestamp as a plain integer that the columns can hold."""
    if not lowest <= timestamp <= MAXIMUM_TIMESTAMP:
        raise OutOfRangeError(
            f"{timestamp} is no timestamp here", hint=f"{lowest} to {MAXIMUM_TIMESTAMP}", timestamp=int(timestamp)
        )
    return int(timestamp)


def checked_offsets(offsets: Int64s, rows: int, *, is_sorted: bool = False) -> UInt32s:
    """The offsets as they are kept; one that no row has is refused. Of sorted ones the ends say it all."""
    wanted = np.asarray(offsets)
    if wanted.size == 0:
        return np.empty(0, np.uint32)
    if wanted.ndim != 1 or wanted.dtype.kind not in "iu":
        raise OutOfRangeError(f"offsets are one column of integers, not {wanted.ndim} of {wanted.dtype}")
    lowest, highest = (int(wanted[0]), int(wanted[-1])) if is_sorted else (int(wanted.min()), int(wanted.max()))
    if lowest < 0 or highest >= rows:
        wrong = lowest if lowest < 0 else highest
        raise OutOfRangeError(
            f"offset {wrong} is not in a row group of {rows} rows",
            hint="nothing was deleted; the location is not of this row group",
            offset=wrong,
            rows=rows,
        )
    return wanted.astype(np.uint32)


def bitmap_of(offsets: UInt32s) -> BitMap:
    """The set of these offsets."""
    return BitMap(array("I", np.sort(offsets).tobytes()))


def offsets_of(bitmap: FrozenBitMap) -> UInt32s:
    """The offsets of a set, in order."""
    return np.frombuffer(bitmap.to_array(), np.uint32) if bitmap else np.empty(0, np.uint32)


def earliest(offsets: UInt32s, timestamps: Int64s, known: FrozenBitMap) -> tuple[UInt32s, Int64s]:
    """Each row once, with its earliest deletion, and without those that are known to be deleted from the start."""
    order = np.lexsort((timestamps, offsets))
    offsets, timestamps = offsets[order], timestamps[order]
    is_first: Bools = np.empty(len(offsets), np.bool_)
    is_first[:1] = True
    np.not_equal(offsets[1:], offsets[:-1], out=is_first[1:])
    is_news = is_first & ~np.isin(offsets, offsets_of(known)) if known else is_first
    return offsets[is_news], timestamps[is_news]


def grouped(locations: Locations) -> Iterator[RowGroupRows]:
    """The rows of each row group together, in the order of files, row groups and offsets."""
    if not len(locations):
        return
    order = np.lexsort((locations.offsets, locations.row_groups, locations.file_ids))
    file_ids, row_groups = locations.file_ids[order], locations.row_groups[order]
    offsets = locations.offsets[order]
    is_next = (file_ids[1:] != file_ids[:-1]) | (row_groups[1:] != row_groups[:-1])
    starts = np.concatenate(([0], np.flatnonzero(is_next) + 1))
    names = zip(file_ids[starts].tolist(), row_groups[starts].tolist(), strict=True)
    bounds = pairwise([*starts.tolist(), len(order)])
    for (file_id, row_group), (start, end) in zip(names, bounds, strict=True):
        yield RowGroupRows(file_id, row_group, offsets[start:end])
