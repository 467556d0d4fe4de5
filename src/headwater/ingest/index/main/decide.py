"""Ranges of row ids as columns: where rows are, what is adjacent, what is left. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headwater.ingest.model import Bools, Int64s, Locations, RowRange

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class FlushMarker:
    """What a file's ranges were when they were flushed. `hash` is the SHA-256 of their numbers; see `marker_of`."""

    range_count: int
    row_count: int
    hash: str


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Ranges that do not overlap, by row id. A row for each: first row id, count, file, row group, first offset."""

    rows: Int64s

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def firsts(self) -> Int64s:
        """The first row id of each range."""
        return self.rows[:, 0]

    @property
    def ends(self) -> Int64s:
        """One after the last row id of each range."""
        return self.rows[:, 0] + self.rows[:, 1]

    @property
    def row_count(self) -> int:
        """How many rows they have together."""
        return int(self.rows[:, 1].sum())

    def to_rows(self) -> list[list[int]]:
        """The same as plain integers."""
        return self.rows.tolist()  # type: ignore[no-any-return]

    def to_row_ranges(self) -> tuple[RowRange, ...]:
        """The same as the parts of a node speak of them."""
        return tuple(RowRange(*row) for row in self.to_rows())

    @classmethod
    def of_rows(cls, rows: Sequence[Sequence[int]]) -> Ranges:
        """From plain integers, in any order."""
        return union([cls(np.array(rows, dtype=np.int64).reshape(-1, 5))])

    @classmethod
    def of(cls, ranges: Iterable[RowRange]) -> Ranges:
        """From what the parts of a node speak of, in any order."""
        return cls.of_rows(
            [(each.first_row_id, each.count, each.file_id, each.row_group, each.first_offset) for each in ranges]
        )


NONE = Ranges(np.empty((0, 5), dtype=np.int64))


def union(parts: Sequence[Ranges]) -> Ranges:
    """All of them, sorted; those that go on where another ends, in the same row group, are one."""
    rows = np.concatenate([part.rows for part in parts])
    if len(rows) > 1 and not (rows[1:, 0] > rows[:-1, 0]).all():
        rows = rows[np.argsort(rows[:, 0], kind="stable")]
    if len(rows) < 2:
        return Ranges(rows)
    before, after = rows[:-1], rows[1:]
    goes_on = (
        (before[:, 0] + before[:, 1] == after[:, 0])
        & (before[:, 2] == after[:, 2])
        & (before[:, 3] == after[:, 3])
        & (before[:, 4] + before[:, 1] == after[:, 4])
    )
    if not goes_on.any():
        return Ranges(rows)
    starts = np.flatnonzero(np.concatenate([[True], ~goes_on]))
    whole = rows[starts].copy()
    whole[:, 1] = np.add.reduceat(rows[:, 1], starts)
    return Ranges(whole)


def locate(ranges: Ranges, row_ids: Int64s) -> tuple[Bools, Locations]:
    """Which rows are known, and where they are; -1 where they are not."""
    file_ids, row_groups, offsets = (np.full(len(row_ids), UNKNOWN, dtype=np.int64) for _ in range(3))
    places = np.searchsorted(ranges.firsts, row_ids, side="right") - 1
    is_known = places >= 0
    near = ranges.rows[places[is_known]]
    is_in = row_ids[is_known] < near[:, 0] + near[:, 1]
    is_known[is_known] = is_in
    found = near[is_in]
    file_ids[is_known], row_groups[is_known] = found[:, 2], found[:, 3]
    offsets[is_known] = found[:, 4] + row_ids[is_known] - found[:, 0]
    return is_known, Locations(file_ids, row_groups, offsets)


def has_any(ranges: Ranges, first: int, last: int) -> bool:
    """Whether a row id from `first` to `last` is in one of the ranges; one search, however many there are."""
    place = int(np.searchsorted(ranges.firsts, last, side="right")) - 1
    return place >= 0 and int(ranges.rows[place, 0] + ranges.rows[place, 1]) > first


def between(ranges: Ranges, first: int, last: int) -> Ranges:
    """The parts of ranges with row ids from `first` to `last`."""
    low = int(np.searchsorted(ranges.ends, first, side="right"))
    high = int(np.searchsorted(ranges.firsts, last, side="right"))
    rows = ranges.rows[low:high].copy()
    if len(rows):
        cut = max(first - int(rows[0, 0]), 0)
        rows[0, 0], rows[0, 1], rows[0, 4] = rows[0, 0] + cut, rows[0, 1] - cut, rows[0, 4] + cut
        rows[-1, 1] -= max(int(rows[-1, 0] + rows[-1, 1]) - 1 - last, 0)
    return Ranges(rows)


def without(ranges: Ranges, first: int, last: int) -> Ranges:
    """The ranges without the row ids from `first` to `last`."""
    if not len(ranges):
        return ranges
    lowest, highest = int(ranges.firsts[0]), int(ranges.ends[-1])
    return Ranges(np.concatenate([between(ranges, lowest, first - 1).rows, between(ranges, last + 1, highest).rows]))


def of_file(ranges: Ranges, file_id: int) -> Ranges:
    """The ranges of one file."""
    return Ranges(ranges.rows[ranges.rows[:, 2] == file_id])


def but_file(ranges: Ranges, file_id: int) -> Ranges:
    """The ranges of all other files."""
    return Ranges(ranges.rows[ranges.rows[:, 2] != file_id])


def marker_of(ranges: Ranges) -> FlushMarker:
    """The marker of a file's ranges: sorted and joined, five integers of 8 bytes each, little-endian."""
    whole = union([ranges])
    return FlushMarker(len(whole), whole.row_count, hashlib.sha256(whole.rows.astype("<i8").tobytes()).hexdigest())
