"""What this room talks about, beyond what PyIceberg models already."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyroaring import BitMap64

from headwater.kernel.errors import CorruptError, RefusedError, UsageError

# Columns of a scan that are not of the table, under the names and ids that the Iceberg specification reserves.
FILE_COLUMN, FILE_COLUMN_ID = "_file", 2147483646
POSITION_COLUMN, POSITION_COLUMN_ID = "_pos", 2147483645
ROW_ID_COLUMN, ROW_ID_COLUMN_ID = "_row_id", 2147483540
UPDATED_COLUMN, UPDATED_COLUMN_ID = "_last_updated_sequence_number", 2147483539
# Columns of a position delete file.
DELETE_FILE_PATH_ID, DELETE_FILE_POSITION_ID = 2147483546, 2147483545


class TableFile(DataFile):
    """PyIceberg's record of a file in a manifest, with the four fields that it has no names for.

    The values are in the order of `pyiceberg.manifest.DATA_FILE_TYPE[3]`, whatever the version of the table.
    """

    @property
    def first_row_id(self) -> int | None:
        """Row id of the file's first row (v3), inherited from the manifest where the file has none of its own."""
        value: int | None = self._data[16]
        return value

    @property
    def referenced_data_file(self) -> str | None:
        """The one data file that this delete file is about."""
        value: str | None = self._data[17]
        return value

    @property
    def content_offset(self) -> int | None:
        """Where the deletion vector begins in its Puffin file."""
        value: int | None = self._data[18]
        return value

    @property
    def content_size_in_bytes(self) -> int | None:
        """How long the deletion vector is."""
        value: int | None = self._data[19]
        return value

    @property
    def is_vector(self) -> bool:
        """Whether this is a deletion vector."""
        return self.content is DataFileContent.POSITION_DELETES and self.content_offset is not None


@dataclass(frozen=True)
class LiveFile:
    """A file that a snapshot holds, with the numbers that its manifest entry gave it."""

    file: TableFile
    sequence_number: int
    file_sequence_number: int | None
    snapshot_id: int | None


@dataclass(frozen=True)
class FileTask:
    """One data file of a scan, and every delete file that applies to it."""

    file: TableFile
    sequence_number: int
    vector: TableFile | None = None
    positions: tuple[TableFile, ...] = ()
    equality: tuple[TableFile, ...] = ()

    @property
    def has_deletes(self) -> bool:
        """Whether any row of the file may be deleted."""
        return bool(self.vector or self.positions or self.equality)


@dataclass(frozen=True)
class ScanPlan:
    """What has to be read for one table at one snapshot. `schema` is the one that rows are read in."""

    metadata: TableMetadata
    schema: Schema
    snapshot: Snapshot | None
    tasks: tuple[FileTask, ...]
    skipped_files: int = 0
    skipped_manifests: int = 0


@dataclass(frozen=True)
class TableVersion:
    """A table as one metadata.json tells of it; `location` is where that document is, None while it is nowhere."""

    metadata: TableMetadata
    location: str | None = None


@dataclass(frozen=True)
class NewFile:
    """A file that a staged change needs and that is not stored yet."""

    location: str
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Staged:
    """A change of one table that has moved nothing: the metadata that would be, and the files it needs."""

    metadata: TableMetadata
    files: tuple[NewFile, ...] = ()


@dataclass(frozen=True)
class RowDeletes:
    """Rows of one data file that become deleted: their positions, beside what is deleted in it already."""

    task: FileTask
    positions: BitMap64


@dataclass(frozen=True)
class Edit:
    """Which files a snapshot adds, removes and deletes rows from. Every row-level operation comes down to one.

    `sequence_number` is given to added files in place of the new snapshot's: a rewrite keeps that of its inputs (P11).
    """

    added: tuple[TableFile, ...] = ()
    removed: frozenset[str] = frozenset()
    deletes: tuple[RowDeletes, ...] = ()
    sequence_number: int | None = None


class TableCorruptError(CorruptError):
    """A file of a table cannot be read as what it should be. Names the file."""

    def __init__(self, location: str, what: str) -> None:
        super().__init__(
            f"{location} {what}", hint="restore the file, or go back to a version that does not need it", path=location
        )


class UnsupportedTableError(RefusedError):
    """The table uses something of Iceberg that this version does not know."""


class OutsideLakeError(RefusedError):
    """A location lies under no prefix that this lake may touch."""

    def __init__(self, location: str, allowed: tuple[str, ...]) -> None:
        super().__init__(
            f"{location} lies outside the lake",
            hint=f"allowed are {', '.join(allowed)}; more can be allowed by `storage.allowed_prefixes`",
            path=location,
        )


class TableUsageError(UsageError):
    """A change that does not fit the table."""
