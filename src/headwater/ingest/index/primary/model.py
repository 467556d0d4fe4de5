"""What the primary index holds of keys, as columns."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.ingest.model import Bools, Int64s, Timestamp

NOTHING = -1
"""No version, no row, no older version."""


@dataclass(frozen=True, slots=True)
class Held:
    """The newest version of each key of a batch. `older` numbers the record of the version that it replaced.

    A key that the index does not hold has NOTHING in all three, a tombstone in `row_ids` alone.
    """

    timestamps: Int64s
    row_ids: Int64s
    older: Int64s

    def __len__(self) -> int:
        return len(self.timestamps)

    def take(self, chosen: Int64s | Bools | slice) -> Held:
        """The same of these keys."""
        return Held(self.timestamps[chosen], self.row_ids[chosen], self.older[chosen])


@dataclass(frozen=True, slots=True)
class Version:
    """A key at a time: the row it became, or none when it was deleted."""

    timestamp: Timestamp
    row_id: int | None


@dataclass(frozen=True, slots=True)
class Versions:
    """All versions of a batch of keys that are still kept, as columns; those of a key newest first.

    `places` says which key of the batch each is of; a tombstone has the row id -1.
    """

    places: Int64s
    timestamps: Int64s
    row_ids: Int64s
