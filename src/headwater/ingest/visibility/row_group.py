"""Deletions of one row group.

Promise: a read at R sees exactly the rows that no deletion at or below R has hit, whatever order deletions came in
and however often they were said; a read below the base is refused. Readers take no lock and wait for nobody.

Invariants:

    1  A version never changes once readers can see it. A writer makes the next one, and swaps the reference.
       Columns are shared between versions only up to each version's `used`, and written only behind the newest's.
    2  The base holds every deletion at or below the base timestamp, the columns every one above it.
       A late deletion (T at or below the base) therefore goes into a copy of the base.
    3  The base timestamp only grows.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
from pyroaring import AbstractBitMap, BitMap, FrozenBitMap

from headwater.ingest.model import Bools, Int64s, Timestamp, UInt32s
from headwater.ingest.visibility.decide import (
    bitmap_of,
    checked_offsets,
    checked_rows,
    checked_timestamp,
    earliest,
    offsets_of,
)
from headwater.ingest.visibility.model import BelowBaseError, OutOfRangeError, VisibilitySnapshot

_NOTHING = FrozenBitMap()
_SMALLEST_CAPACITY = 16


class _Version(NamedTuple):
    """What readers see: the first `used` of the columns."""

    rows: int
    base_timestamp: Timestamp
    base: FrozenBitMap
    offsets: UInt32s
    timestamps: Int64s
    used: int

    def columns(self) -> tuple[UInt32s, Int64s]:
        """The deletions above the base."""
        return self.offsets[: self.used], self.timestamps[: self.used]


class RowGroupVisibility:
    """Which of `rows` rows are deleted at a timestamp. Safe to share among threads."""

    def __init__(self, rows: int, base_timestamp: Timestamp = 0, base: AbstractBitMap = _NOTHING) -> None:
        checked_rows(rows)
        if base and base.max() >= rows:
            raise OutOfRangeError(f"offset {base.max()} is not in a row group of {rows} rows", rows=rows)
        timestamp = checked_timestamp(base_timestamp, lowest=0)
        nothing = np.empty(0, np.uint32), np.empty(0, np.int64)
        self._version = _Version(rows, timestamp, FrozenBitMap(base), *nothing, 0)
        self._writing = threading.Lock()

    def __repr__(self) -> str:
        now = self._version
        return f"RowGroupVisibility(rows={now.rows}, base_timestamp={now.base_timestamp}, pending={now.used})"

    @classmethod
    def restore(cls, snapshot: VisibilitySnapshot) -> RowGroupVisibility:
        """A row group as a snapshot has it."""
        made = cls(snapshot.rows, snapshot.base_timestamp, snapshot.base)
        offsets = checked_offsets(snapshot.offsets.astype(np.int64), snapshot.rows)
        columns = offsets, snapshot.timestamps.astype(np.int64)
        made._version = made._version._replace(offsets=columns[0], timestamps=columns[1], used=len(offsets))
        return made

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return self._version.rows

    @property
    def base_timestamp(self) -> Timestamp:
        """The oldest timestamp that can be read."""
        return self._version.base_timestamp

    @property
    def pending(self) -> int:
        """How many deletions wait to be folded."""
        return self._version.used

    @property
    def has_deletions(self) -> bool:
        """Whether any row is deleted at any timestamp: if not, no mask is needed."""
        now = self._version
        return bool(now.base) or now.used > 0

    def refuse_below_base(self, timestamp: Timestamp) -> None:
        """Raise where a read at `timestamp` would be wrong."""
        self._readable(timestamp)

    def delete(self, offsets: Int64s, timestamp: Timestamp, *, is_sorted: bool = False) -> None:
        """Delete rows as of `timestamp`, in any order, again if need be. A wrong offset deletes nothing."""
        moment = checked_timestamp(timestamp, lowest=1)
        with self._writing:
            now = self._version
            wanted = checked_offsets(offsets, now.rows, is_sorted=is_sorted)
            if len(wanted) == 0:
                return
            if moment <= now.base_timestamp:
                self._version = now._replace(base=FrozenBitMap(now.base | bitmap_of(wanted)))
            else:
                self._version = _appended(now, wanted, moment)

    def visible_mask(self, timestamp: Timestamp, rows: int | None = None) -> Bools:
        """For each row, or each of the first `rows`, whether a read at `timestamp` sees it."""
        now = self._readable(timestamp)
        count = now.rows if rows is None else rows
        if not 0 <= count <= now.rows:
            raise OutOfRangeError(f"{count} rows were asked for, of {now.rows}", rows=now.rows, asked=count)
        offsets, timestamps = now.columns()
        mask: Bools = np.ones(now.rows, np.bool_)
        mask[offsets_of(now.base)] = False
        mask[offsets[timestamps <= timestamp]] = False
        return mask[:count]

    def deleted_at(self, timestamp: Timestamp) -> BitMap:
        """The offsets of the rows that a read at `timestamp` does not see; the bitmap is the caller's."""
        now = self._readable(timestamp)
        offsets, timestamps = now.columns()
        return BitMap(now.base) | bitmap_of(offsets[timestamps <= timestamp])

    def fold(self, up_to: Timestamp) -> int:
        """Raise the base to `up_to`; how many deletions went into it. At or below the base nothing happens."""
        moment = checked_timestamp(up_to, lowest=0)
        with self._writing:
            now = self._version
            if now.base_timestamp >= moment:
                return 0
            offsets, timestamps = now.columns()
            is_old = timestamps <= moment
            if not is_old.any():
                self._version = now._replace(base_timestamp=moment)
                return 0
            base = FrozenBitMap(now.base | bitmap_of(offsets[is_old]))
            kept = earliest(offsets[~is_old], timestamps[~is_old], base)
            self._version = _Version(now.rows, moment, base, *kept, len(kept[0]))
            return int(is_old.sum())

    def seal(self, rows: int) -> None:
        """It has only so many rows after all: a block that ended before it was full."""
        with self._writing:
            now = self._version
            offsets, _ = now.columns()
            highest = max(now.base.max() if now.base else -1, int(offsets.max()) if now.used else -1)
            if not highest < rows <= now.rows:
                raise OutOfRangeError(
                    f"a row group of {now.rows} rows, of which {highest} is deleted, cannot end at {rows}",
                    hint="seal at the number of rows that were appended",
                    rows=rows,
                )
            self._version = now._replace(rows=rows)

    def snapshot(self) -> VisibilitySnapshot:
        """All of it at this moment, for a checkpoint."""
        now = self._version
        offsets, timestamps = now.columns()
        offsets.flags.writeable = timestamps.flags.writeable = False
        return VisibilitySnapshot(now.rows, now.base_timestamp, now.base, offsets, timestamps)

    def _readable(self, timestamp: Timestamp) -> _Version:
        now = self._version
        if timestamp < now.base_timestamp:
            raise BelowBaseError(timestamp, now.base_timestamp)
        return now


def _appended(now: _Version, offsets: UInt32s, timestamp: Timestamp) -> _Version:
    """The next version. Full columns are first rid of what is said twice, so that they never outgrow the rows."""
    end = now.used + len(offsets)
    if end > len(now.offsets):
        kept = earliest(*now.columns(), now.base)
        end = len(kept[0]) + len(offsets)
        capacity = max(_SMALLEST_CAPACITY, 2 * end)
        columns = np.empty(capacity, np.uint32), np.empty(capacity, np.int64)
        columns[0][: len(kept[0])], columns[1][: len(kept[1])] = kept
        now = now._replace(offsets=columns[0], timestamps=columns[1], used=len(kept[0]))
    # Behind what is used by every version that a reader may hold.
    now.offsets[now.used : end] = offsets
    now.timestamps[now.used : end] = timestamp
    return now._replace(used=end)
