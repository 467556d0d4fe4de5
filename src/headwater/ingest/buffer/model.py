"""What the write buffer speaks about."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headwater.ingest.model import RowRange, Stream, Timestamp
from headwater.ingest.visibility.row_group import RowGroupVisibility
from headwater.kernel.errors import CorruptError, HeadwaterError, UnavailableError


class PublishBarrierError(HeadwaterError):
    """A file could not be published; it is not REGULAR, its rows are still served from the buffer."""


class FileCheckError(CorruptError):
    """A file that was just written is not what was written."""


class BufferFullError(UnavailableError):
    """More rows wait for their files than the node may hold; they are taken when some are published."""


@dataclass(frozen=True, slots=True)
class NewSegment:
    """The file that a segment will become: known to the file table before its first row is taken."""

    file_id: int
    name: str


@dataclass(frozen=True, slots=True)
class BlockView:
    """What a reader sees of a block: the rows of its visible prefix, in the order of their appends."""

    file_id: int
    row_group: int
    rows: pa.Table
    visibility: RowGroupVisibility
    max_timestamp: Timestamp
    """None of its rows was committed later."""
    bounds: dict[str, pa.StructScalar | None] | None = None
    """Least and greatest value of columns, as far as somebody asked for them; only of a block that takes no more."""


@dataclass(frozen=True, slots=True)
class AdmittedFile:
    """What the registry knows of a file; the file table knows none of it."""

    file_id: int
    name: str
    stream: Stream
    first_block_id: int
    min_timestamp: Timestamp
    max_timestamp: Timestamp
    rows_by_group: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StreamView:
    """A stream as it is at one moment: no row is missing, and none is in it twice."""

    files: tuple[AdmittedFile, ...]
    blocks: tuple[BlockView, ...]


@dataclass(frozen=True, slots=True)
class AppendHandle:
    """Rows that are in the buffer and that nobody sees yet. `ranges` says where each of them is."""

    stream: Stream
    ranges: tuple[RowRange, ...]
    timestamp: Timestamp

    @property
    def count(self) -> int:
        """How many rows."""
        return sum(each.count for each in self.ranges)


@dataclass(slots=True)
class SegmentState:
    """How far a sealed segment has come. Each step is taken once; a failed one is taken again."""

    physical_closed: bool = False
    index_flushed: bool = False
    metadata_regular: bool = False
    registry_admitted: bool = False


@dataclass(frozen=True, slots=True)
class BufferLimits:
    """Sizes of blocks, segments and of all that waits."""

    block_rows: int = 1 << 16
    segment_blocks: int = 16
    unpublished_bytes: int = 1 << 29
