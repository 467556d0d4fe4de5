"""What a call changes, given what the index holds. Pure.

| call      | the index holds                      | then                                                   |
|-----------|--------------------------------------|--------------------------------------------------------|
| any       | a newer timestamp                    | refused: within a key time never goes back             |
| put       | this timestamp and row id            | nothing to do: the call is a repetition                |
| put       | nothing                              | written                                                |
| put       | anything else                        | written; what was there becomes history                |
| tombstone | the row that was resolved            | a tombstone; what was there becomes history            |
| tombstone | no row                               | nothing to do, if none was resolved or it is our own   |
| update    | the row that was resolved, or none   | as put                                                 |
| both      | another row than was resolved        | refused: somebody else wrote the key                   |
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headwater.ingest.index.errors import IndexMovedError, IndexOrderError
from headwater.ingest.index.primary.model import NOTHING, Held
from headwater.ingest.model import Bools, Int64s, Resolved, Timestamp


@dataclass(frozen=True, slots=True)
class Change:
    """Which keys get a new version, and for which of them the present one becomes history."""

    is_written: Bools
    is_replaced: Bools


def put(held: Held, timestamp: Timestamp, row_ids: Int64s) -> Change:
    """Rows become the newest versions of their keys, whatever was there."""
    _refuse_late(held, timestamp)
    is_written = ~_is_ours(held, timestamp, row_ids)
    return Change(is_written, is_written & (held.timestamps != NOTHING))


def tombstone(held: Held, timestamp: Timestamp, resolved: Resolved) -> Change:
    """Rows that were resolved are deleted. A key without a row needs no tombstone."""
    _refuse_late(held, timestamp)
    nobody = np.full(len(held), NOTHING, dtype=np.int64)
    _refuse_moved(held, resolved, _is_ours(held, timestamp, nobody))
    has_row = held.row_ids != NOTHING
    return Change(has_row, has_row)


def update(held: Held, timestamp: Timestamp, resolved: Resolved, row_ids: Int64s) -> Change:
    """Rows replace those that were resolved."""
    change = put(held, timestamp, row_ids)
    _refuse_moved(held, resolved, ~change.is_written)
    return change


def is_restored(held: Held, timestamp: Timestamp, resolved: Resolved) -> Bools:
    """Where the index holds again what was resolved; elsewhere one version, of `timestamp`, has to go.

    A row id is never given twice, so that it is the version's identity. Of a key without a row, a tombstone of before
    and nothing at all mean the same (what is pruned in between changes the one into the other).
    """
    # A tombstone of this timestamp is from before the call only if it was seen then.
    is_own = (held.timestamps == timestamp) & (resolved.timestamps != timestamp)
    is_same: Bools = (held.row_ids == resolved.row_ids) & ~is_own
    is_lost = ~is_same & (held.timestamps != timestamp)
    if is_lost.any():
        raise _moved(held, resolved, is_lost, "cannot be put back: what it holds is not of this timestamp")
    return is_same


def _is_ours(held: Held, timestamp: Timestamp, row_ids: Int64s) -> Bools:
    is_ours: Bools = (held.timestamps == timestamp) & (held.row_ids == row_ids)
    return is_ours


def _refuse_late(held: Held, timestamp: Timestamp) -> None:
    is_late = held.timestamps > timestamp
    if is_late.any():
        place = int(np.flatnonzero(is_late)[0])
        raise IndexOrderError(
            f"{int(is_late.sum())} keys, the first in place {place}, have a version of {held.timestamps[place]}, "
            f"newer than {timestamp}",
            hint="changes of a key come in the order of their timestamps; what was applied is not sent again",
            place=place,
            count=int(is_late.sum()),
            timestamp=timestamp,
            newest=int(held.timestamps[place]),
        )


def _refuse_moved(held: Held, resolved: Resolved, is_repeated: Bools) -> None:
    is_moved = (held.row_ids != resolved.row_ids) & ~is_repeated
    if is_moved.any():
        raise _moved(held, resolved, is_moved, "was written by somebody else since it was resolved")


def _moved(held: Held, resolved: Resolved, where: Bools, what: str) -> IndexMovedError:
    place = int(np.flatnonzero(where)[0])
    return IndexMovedError(
        f"the key in place {place} (and {int(where.sum()) - 1} more) {what}",
        hint="a stream has one writer: resolve the keys again",
        place=place,
        count=int(where.sum()),
        expected=int(resolved.row_ids[place]),
        actual=int(held.row_ids[place]),
    )
