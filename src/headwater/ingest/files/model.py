"""What the file table speaks about: files in four states, their paths, and how a change is refused."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime

from headwater.kernel.errors import RefusedError, UsageError


class FileType(enum.StrEnum):
    """The state of a file.

        TEMPORARY_INGEST ─publish─► REGULAR ─retire, swap─► RETIRED ─delete─► (no row)
        TEMPORARY_GC ──────swap───►    ▲                                         ▲
        TEMPORARY_* ───────────────────┼─────────────delete──────────────────────┘

    Only REGULAR files are seen by queries. A REGULAR file is never deleted: it is retired first.
    """

    TEMPORARY_INGEST = "TEMPORARY_INGEST"
    """Given beforehand to a segment that is being written; the stream's publisher writes it."""

    TEMPORARY_GC = "TEMPORARY_GC"
    """Being rewritten by compaction, which alone writes it."""

    REGULAR = "REGULAR"
    """Published."""

    RETIRED = "RETIRED"
    """Replaced or given up; its bytes stay until `cleanup_at`."""


TEMPORARY = frozenset({FileType.TEMPORARY_INGEST, FileType.TEMPORARY_GC})
"""Files that nobody but their writer may see."""


@dataclass(frozen=True, slots=True)
class TablePath:
    """A folder in which a table has its files."""

    path_id: int
    table_id: int
    uri: str


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that is about to be written."""

    file_id: int
    name: str
    path_id: int
    type: FileType = FileType.TEMPORARY_INGEST


@dataclass(frozen=True, slots=True)
class Hull:
    """What becomes known of a file when it is closed: its row groups, and the lowest and highest of its row ids."""

    num_row_group: int
    min_row_id: int
    max_row_id: int

    def __post_init__(self) -> None:
        for name in ("num_row_group", "min_row_id", "max_row_id"):
            # They come from columns, and the database takes plain integers alone.
            object.__setattr__(self, name, int(getattr(self, name)))
        if not 1 <= self.num_row_group < 2**31 or not 0 <= self.min_row_id <= self.max_row_id < 2**63:
            raise UsageError(
                f"{self.num_row_group} row groups with row ids {self.min_row_id} to {self.max_row_id} cannot be",
                hint="a file that is published has rows; delete an empty one",
                num_row_group=self.num_row_group,
                min_row_id=self.min_row_id,
                max_row_id=self.max_row_id,
            )


@dataclass(frozen=True, slots=True)
class Replacement:
    """A file that compaction has closed, and that takes the place of others."""

    file_id: int
    hull: Hull


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file as the table has it. `cleanup_at` is set exactly when it is RETIRED."""

    file_id: int
    name: str
    type: FileType
    num_row_group: int
    path_id: int
    min_row_id: int | None = None
    max_row_id: int | None = None
    cleanup_at: datetime | None = None

    def __post_init__(self) -> None:
        if (self.cleanup_at is not None) != (self.type is FileType.RETIRED):
            raise FileTableError(
                f"file {self.file_id} is {self.type} with cleanup_at {self.cleanup_at}",
                hint="cleanup_at is set on RETIRED files and on no others",
                file_id=self.file_id,
                type=str(self.type),
            )

    @property
    def hull(self) -> Hull | None:
        """Its row groups and row ids, once they are known."""
        if self.min_row_id is None or self.max_row_id is None:
            return None
        return Hull(self.num_row_group, self.min_row_id, self.max_row_id)


class FileTableError(RefusedError):
    """The file table is not as the change needs it; nothing was changed. Whoever waits for the change has failed."""
