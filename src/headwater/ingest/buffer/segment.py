"""Blocks in a row that become one file.

A block holds the batches of its appends. `physical_size` counts all of its rows, `visible_size` those that readers and
flush may take; it grows only, and only over appends that were said to be visible or hidden, in the order in which they
came. A hidden append stays where it is: its rows were deleted at their own timestamp, so no read sees them.
"""

from __future__ import annotations

import threading
from collections import deque

import pyarrow as pa

from headwater.ingest.buffer.model import BlockView, NewSegment, SegmentState
from headwater.ingest.model import RowRange, Stream, Timestamp
from headwater.ingest.visibility.row_group import RowGroupVisibility

_MERGED_TOGETHER = 64
_MERGED_BYTES = 1 << 24


class Block:
    """Up to `capacity` rows; becomes one row group. Its stream's lock guards what is written to it."""

    def __init__(self, file_id: int, row_group: int, capacity: int, schema: pa.Schema) -> None:
        self.file_id = file_id
        self.row_group = row_group
        self.capacity = capacity
        self.visibility = RowGroupVisibility(capacity)
        self.physical_size = 0
        self.visible_size = 0
        self.size_bytes = 0
        self.max_timestamp: Timestamp = 0
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._small = 0
        self._pending: deque[tuple[int, int]] = deque()
        self._published: set[int] = set()
        self._whole: BlockView | None = None

    @property
    def room(self) -> int:
        """How many more rows it takes."""
        return self.capacity - self.physical_size

    @property
    def has_pending(self) -> bool:
        """Whether an append was neither published nor hidden."""
        return bool(self._pending)

    def append(self, rows: pa.RecordBatch, timestamp: Timestamp, first_row_id: int) -> RowRange:
        """Take rows that nobody sees yet."""
        if self._small == _MERGED_TOGETHER:
            self._merge()
        offset = self.physical_size
        self._batches.append(rows)
        self._small += 1
        self.physical_size += rows.num_rows
        self.size_bytes += rows.nbytes
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self._pending.append((offset, rows.num_rows))
        return RowRange(first_row_id, rows.num_rows, self.file_id, self.row_group, offset)

    def _merge(self) -> None:
        """The last batches become one: many small ones are slow to read, and keep the messages that brought them."""
        last = self._batches[-self._small :]
        if sum(each.nbytes for each in last) <= _MERGED_BYTES:
            self._batches[-self._small :] = [pa.concat_batches(last)]
        self._small = 0

    def publish(self, offset: int) -> None:
        """The append that begins here may be seen; it is, once all before it are."""
        self._published.add(offset)
        while self._pending and self._pending[0][0] in self._published:
            start, count = self._pending.popleft()
            self._published.remove(start)
            self.visible_size = start + count

    def view(self) -> BlockView:
        """Its visible prefix."""
        if self._whole is not None:
            return self._whole
        rows = pa.Table.from_batches(self._batches, self._schema).slice(0, self.visible_size)
        is_whole = self.visible_size == self.capacity
        view = BlockView(
            self.file_id, self.row_group, rows, self.visibility, self.max_timestamp, {} if is_whole else None
        )
        self._whole = view if is_whole else None
        return view


class Segment:
    """The file that a stream writes: open, then sealed, then published."""

    def __init__(self, stream: Stream, new: NewSegment, first_block_id: int) -> None:
        self.stream = stream
        self.file_id = new.file_id
        self.name = new.name
        self.first_block_id = first_block_id
        self.blocks: list[Block] = []
        self.state = SegmentState()
        self.preparing = threading.Lock()
        self.min_timestamp: Timestamp | None = None
        self.max_timestamp: Timestamp | None = None
        self.min_row_id: int | None = None
        self.max_row_id: int | None = None

    @property
    def count(self) -> int:
        """How many rows it holds."""
        return sum(block.physical_size for block in self.blocks)

    @property
    def has_pending(self) -> bool:
        """Whether an append to it was neither published nor hidden."""
        return any(block.has_pending for block in self.blocks)

    @property
    def size_bytes(self) -> int:
        """What its rows hold in memory."""
        return sum(block.size_bytes for block in self.blocks)

    def append(self, rows: pa.RecordBatch, timestamp: Timestamp, first_row_id: int) -> RowRange:
        """Take rows into the last block, which has room for them, and keep the bounds of the file."""
        taken = self.blocks[-1].append(rows, timestamp, first_row_id)
        self.min_timestamp = timestamp if self.min_timestamp is None else min(self.min_timestamp, timestamp)
        self.max_timestamp = timestamp if self.max_timestamp is None else max(self.max_timestamp, timestamp)
        self.min_row_id = first_row_id if self.min_row_id is None else min(self.min_row_id, first_row_id)
        self.max_row_id = taken.last_row_id if self.max_row_id is None else max(self.max_row_id, taken.last_row_id)
        return taken
