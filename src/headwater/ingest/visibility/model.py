"""What visibility speaks about, and how it refuses."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyroaring import FrozenBitMap

from headwater.ingest.model import Int64s, Timestamp, UInt32s
from headwater.kernel.errors import RefusedError, UsageError


@dataclass(frozen=True, slots=True)
class VisibilitySnapshot:
    """A row group at one moment: rows deleted by `base_timestamp`, and the deletions after it as two columns.

    Nothing in it changes any more. The columns are in no order, and an offset may occur more than once: its earliest
    timestamp counts.
    """

    rows: int
    base_timestamp: Timestamp
    base: FrozenBitMap
    offsets: UInt32s = field(repr=False)
    timestamps: Int64s = field(repr=False)


@dataclass(frozen=True, slots=True)
class RowGroupRows:
    """Some rows of one row group, in ascending order."""

    file_id: int
    row_group: int
    offsets: Int64s


class BelowBaseError(RefusedError):
    """The read is older than what is still known: which rows it should see was folded together."""

    def __init__(self, timestamp: Timestamp, base_timestamp: Timestamp) -> None:
        super().__init__(
            f"a read at {timestamp} is below {base_timestamp}, up to which deletions were folded",
            hint="read at a newer timestamp; an open read-only transaction holds folding back",
            timestamp=timestamp,
            base_timestamp=base_timestamp,
        )


class OutOfRangeError(UsageError):
    """An offset, a count of rows or a timestamp that cannot be; nothing was changed."""


class NotAdmittedError(UsageError):
    """The file, or its row group, is not in the index; nothing was changed."""

    def __init__(self, file_id: int, row_group: int | None = None) -> None:
        place = f"file {file_id}" if row_group is None else f"row group {row_group} of file {file_id}"
        super().__init__(
            f"{place} is not in the visibility index",
            hint="rows of a file that is not admitted yet are the write buffer's",
            file_id=file_id,
            row_group=row_group,
        )


class AdmittedError(RefusedError):
    """The file is in the index already, with other row groups: to replace them would lose deletions."""

    def __init__(self, file_id: int) -> None:
        super().__init__(
            f"file {file_id} is in the visibility index already, with other row groups",
            hint="hand over the objects that took the deletions, or remove the file first",
            file_id=file_id,
        )
