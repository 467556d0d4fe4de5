"""The buffer of one stream: one writer appends, any number of readers look.

A view of it is taken at one moment: a file and the blocks that it was made of are never both in it, and never both
missing, because a segment leaves the buffer in the same breath in which its file is admitted.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile

import numpy as np
import pyarrow as pa

from headwater.ingest.buffer.model import AppendHandle, BufferLimits, NewSegment, StreamView
from headwater.ingest.buffer.registry import FileRegistry
from headwater.ingest.buffer.segment import Block, Segment
from headwater.ingest.buffer.writing import stored_schema
from headwater.ingest.model import Bools, Int64s, RowRange, Stream, TableShape, Timestamp
from headwater.ingest.visibility.row_group import RowGroupVisibility
from headwater.kernel.errors import RefusedError

_KEPT_BYTES = 1 << 16


class Outcome(enum.Enum):
    """What becomes of an append."""

    VISIBLE = "visible"
    HIDDEN = "hidden"


class StreamBuffer:
    """Rows of one stream that have no admitted file yet. `lock` is held for moments, never during I/O of a file."""

    def __init__(
        self,
        stream: Stream,
        shape: TableShape,
        registry: FileRegistry,
        limits: BufferLimits,
        new_segment: Callable[[Stream, int], NewSegment],
    ) -> None:
        self.stream = stream
        self.shape = shape
        self._schema = stored_schema(shape.schema)
        self._registry = registry
        self._limits = limits
        self._new_segment = new_segment
        self._lock = threading.Lock()
        self._next_block_id = 0
        self._open: Segment | None = None
        self._sealed: list[Segment] = []
        self._size_bytes = 0

    # The writer.

    def append_pending(self, rows: pa.RecordBatch, timestamp: Timestamp, first_row_id: int) -> AppendHandle:
        """Take rows that nobody sees until they are published; says where each of them is, for ever."""
        stamped = _stamped(_cut_out(rows), timestamp, self._schema)
        ranges: list[RowRange] = []
        done = 0
        try:
            while done < stamped.num_rows:
                segment = self._with_room()
                part = stamped.slice(done, min(segment.blocks[-1].room, stamped.num_rows - done))
                with self._lock:
                    ranges.append(segment.append(part, timestamp, first_row_id + done))
                    self._size_bytes += part.nbytes
                done += part.num_rows
        except Exception:
            self._hide(tuple(ranges), timestamp)
            raise
        return AppendHandle(self.stream, tuple(ranges), timestamp)

    def publish_pending_append(self, handle: AppendHandle, outcome: Outcome) -> None:
        """Let readers and flush go past the rows of an append: they see them, or they never do."""
        if outcome is Outcome.HIDDEN:
            self._hide(handle.ranges, handle.timestamp)
            return
        with self._lock:
            self._publish(handle.ranges)

    def _hide(self, ranges: tuple[RowRange, ...], timestamp: Timestamp) -> None:
        with self._lock:
            for part in ranges:  # first deleted at their own timestamp, then passed over
                offsets = np.arange(part.first_offset, part.first_offset + part.count, dtype=np.int64)
                self._block(part).visibility.delete(offsets, timestamp)
            self._publish(ranges)

    def _publish(self, ranges: tuple[RowRange, ...]) -> None:
        for part in ranges:
            self._block(part).publish(part.first_offset)

    def _block(self, part: RowRange) -> Block:
        segment = next(each for each in self._segments() if each.file_id == part.file_id)
        return segment.blocks[part.row_group]

    def _with_room(self) -> Segment:
        """The open segment, its last block not full; a full segment is sealed, which the publisher sees."""
        segment = self._open
        if segment is not None and segment.blocks[-1].room:
            return segment
        is_full = segment is not None and len(segment.blocks) >= self._limits.segment_blocks
        if segment is None or is_full:
            segment = Segment(self.stream, self._new_segment(self.stream, self._next_block_id), self._next_block_id)
        block = Block(segment.file_id, len(segment.blocks), self._limits.block_rows, self._schema)
        with self._lock:
            segment.blocks.append(block)
            self._next_block_id += 1
            if segment is not self._open:
                if self._open is not None:
                    self._sealed.append(self._open)
                self._open = segment
        return segment

    def seal(self) -> None:
        """Close the open segment, so that it is published. No append may be pending: the writer calls this."""
        with self._lock:
            if self._open is None or not self._open.count:
                return
            if self._open.has_pending:
                raise RefusedError(f"stream {self.stream} has rows that were neither published nor hidden")
            if not self._open.blocks[-1].physical_size:
                self._open.blocks.pop()  # made for an append that failed before its first row
            self._sealed.append(self._open)
            self._open = None

    # The publisher.

    def sealed(self) -> tuple[Segment, ...]:
        """Segments that wait to be published, in the order of their first blocks; none has pending rows."""
        with self._lock:
            return tuple(takewhile(lambda each: not each.has_pending, self._sealed))

    def complete(self) -> tuple[Segment, tuple[Block, ...]] | None:
        """The open segment, and its first blocks that are full and have no pending rows: nothing of them changes."""
        with self._lock:
            if self._open is None:
                return None
            return self._open, tuple(takewhile(lambda each: not each.room and not each.has_pending, self._open.blocks))

    @contextmanager
    def leaving(self, segment: Segment) -> Iterator[None]:
        """Take a segment out in the same breath in which the block admits its file; an error leaves it here."""
        with self._lock:
            if not self._sealed or self._sealed[0] is not segment:
                raise RefusedError(f"stream {self.stream} publishes file {segment.file_id} before an older one")
            yield
            del self._sealed[0]
            self._size_bytes -= segment.size_bytes

    # Readers.

    def view(self) -> StreamView:
        """Everything of the stream at this moment."""
        with self._lock:
            blocks = [block.view() for segment in self._segments() for block in segment.blocks if block.visible_size]
            return StreamView(self._registry.of(self.stream), tuple(blocks))

    def visible_files(self, file_ids: Int64s) -> Bools:
        """Which of these files are part of the stream: admitted, sealed or open."""
        with self._lock:
            here = np.array([each.file_id for each in self._segments()], dtype=np.int64)
            admitted = self._registry.ids_of(self.stream)
        return np.isin(file_ids, np.concatenate([here, admitted]))

    def visibility_of(self, file_id: int, row_group: int) -> RowGroupVisibility | None:
        """The visibility of a row group that is not admitted yet."""
        with self._lock:
            for segment in self._segments():
                if segment.file_id == file_id:
                    return segment.blocks[row_group].visibility
        return None

    @property
    def size_bytes(self) -> int:
        """What its rows hold in memory. Every request asks for it, so that it is kept and not counted."""
        return self._size_bytes

    @property
    def open_bytes(self) -> int:
        """What the rows of the open segment hold in memory."""
        segment = self._open
        return 0 if segment is None else segment.size_bytes

    def segments(self) -> tuple[Segment, ...]:
        """All of its segments, the oldest first; for checkpoints."""
        with self._lock:
            return tuple(self._segments())

    def _segments(self) -> list[Segment]:
        return [*self._sealed, self._open] if self._open is not None else list(self._sealed)


def _cut_out(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows without what they keep alive beside themselves: a message may hold far more than its rows point to."""
    if rows.get_total_buffer_size() <= 2 * rows.nbytes + _KEPT_BYTES:
        return rows
    return pa.concat_batches([rows, rows.slice(0, 0)])


def _stamped(rows: pa.RecordBatch, timestamp: Timestamp, schema: pa.Schema) -> pa.RecordBatch:
    stamps = pa.array(np.full(rows.num_rows, timestamp, dtype=np.int64))
    return pa.RecordBatch.from_arrays([*rows.columns, stamps], schema=schema)
