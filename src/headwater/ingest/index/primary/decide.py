"""What a call changes, given what the index holds. Pure. `seen` is what the caller resolved, and `places` says which
key of its batch each is, for errors.

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
from headwater.ingest.model import Bools, Int64s, Timestamp


@dataclass(frozen=True, slots=True)
class Change:
    """Which keys get a new version, and for which of them the present one becomes history."""

    is_written: Bools
    is_replaced: Bools


def put(held: Held, timestamp: Timestamp, row_ids: Int64s, places: Int64s) -> Change:
    """Rows become the newest versions of their keys, whatever was there."""
    _refuse_late(held, timestamp, places)
    is_written = ~_is_ours(held, timestamp, row_ids)
    return Change(is_written, is_written & (held.timestamps != NOTHING))


def tombstone(held: Held, timestamp: Timestamp, seen: Held, places: Int64s) -> Change:
    """Rows that were resolved are deleted. A key without a row needs no tombstone."""
    _refuse_late(held, timestamp, places)
    nobody = np.full(len(held), NOTHING, dtype=np.int64)
    _refuse_moved(held, seen, _is_ours(held, timestamp, nobody), places)
    has_row = held.row_ids != NOTHING
    return Change(has_row, has_row)


def update(held: Held, timestamp: Timestamp, seen: Held, row_ids: Int64s, places: Int64s) -> Change:
    """Rows replace those that were resolved."""
    change = put(held, timestamp, row_ids, places)
    _refuse_moved(held, seen, ~change.is_written, places)
    return change


def is_restored(held: Held, timestamp: Timestamp, seen: Held, places: Int64s) -> Bools:
    """Where the index holds again what was resolved; elsewhere one version, of `timestamp`, has to go.

    A row id is never given twice, so that it is the version's identity. Of a key without a row, a tombstone of before
    and nothing at all mean the same (what is pruned in between changes the one into the other).
    """
    # A tombstone of this timestamp is from before the call only if it was seen then.
    is_own = (held.timestamps == timestamp) & (seen.timestamps != timestamp)
    is_same: Bools = (held.row_ids == seen.row_ids) & ~is_own
    is_lost = ~is_same & (held.timestamps != timestamp)
    if is_lost.any():
        raise _moved(held, seen, is_lost, places, "cannot be put back: what it holds is not of this timestamp")
    return is_same


def _is_ours(held: Held, timestamp: Timestamp, row_ids: Int64s) -> Bools:
    is_ours: Bools = (held.timestamps == timestamp) & (held.row_ids == row_ids)
    return is_ours


def _refuse_late(held: Held, timestamp: Timestamp, places: Int64s) -> None:
    is_late = held.timestamps > timestamp
    if is_late.any():
        first, newest = int(np.flatnonzero(is_late)[0]), int(held.timestamps[is_late][0])
        raise IndexOrderError(
            f"the key in place {places[first]} (and {int(is_late.sum()) - 1} more) has a version of {newest}, "
            f"newer than {timestamp}",
            hint="changes of a key come in the order of their timestamps; what was applied is not sent again",
            place=int(places[first]),
            count=int(is_late.sum()),
            timestamp=timestamp,
            newest=newest,
        )


def _refuse_moved(held: Held, seen: Held, is_repeated: Bools, places: Int64s) -> None:
    is_moved = (held.row_ids != seen.row_ids) & ~is_repeated
    if is_moved.any():
        raise _moved(held, seen, is_moved, places, "was written by somebody else since it was resolved")


def _moved(held: Held, seen: Held, where: Bools, places: Int64s, what: str) -> IndexMovedError:
    first = int(np.flatnonzero(where)[0])
    return IndexMovedError(
        f"the key in place {places[first]} (and {int(where.sum()) - 1} more) {what}",
        hint="a stream has one writer: resolve the keys again",
        place=int(places[first]),
        count=int(where.sum()),
        expected=int(seen.row_ids[first]),
        actual=int(held.row_ids[first]),
    )
