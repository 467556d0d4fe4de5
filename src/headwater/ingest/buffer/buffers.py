"""All streams of a node: their buffers, and what waits in them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headwater.ingest.buffer.model import BufferFullError, BufferLimits, NewSegment
from headwater.ingest.buffer.registry import FileRegistry
from headwater.ingest.buffer.stream import StreamBuffer
from headwater.ingest.model import Stream, TableShape


class Buffers:
    """One buffer for each stream, made when it is first asked for. Safe to share among threads."""

    def __init__(
        self, registry: FileRegistry, limits: BufferLimits, new_segment: Callable[[Stream, int], NewSegment]
    ) -> None:
        self.registry = registry
        self.limits = limits
        self._new_segment = new_segment
        self._lock = threading.Lock()
        self._by_stream: dict[Stream, StreamBuffer] = {}

    def add(self, stream: Stream, shape: TableShape) -> StreamBuffer:
        """The buffer of a stream."""
        with self._lock:
            buffer = self._by_stream.get(stream)
            if buffer is None:
                buffer = StreamBuffer(stream, shape, self.registry, self.limits, self._new_segment)
                self._by_stream[stream] = buffer
            return buffer

    def all(self) -> tuple[StreamBuffer, ...]:
        """Every buffer there is, in the order of streams."""
        with self._lock:
            return tuple(self._by_stream[stream] for stream in sorted(self._by_stream))

    def of_table(self, table_id: int) -> tuple[StreamBuffer, ...]:
        """The buffers of one table."""
        return tuple(each for each in self.all() if each.stream.table_id == table_id)

    @property
    def waiting_bytes(self) -> int:
        """What all rows hold in memory that have no admitted file yet."""
        with self._lock:
            return sum(each.size_bytes for each in self._by_stream.values())

    @property
    def is_crowded(self) -> bool:
        """Whether open segments hold half of what may wait: time to seal them, before writers are refused."""
        with self._lock:
            return sum(each.open_bytes for each in self._by_stream.values()) > self.limits.unpublished_bytes // 2

    def refuse_more(self) -> None:
        """Rows wait for their files in memory, and memory ends."""
        waiting = self.waiting_bytes
        if waiting > self.limits.unpublished_bytes:
            raise BufferFullError(
                f"{waiting} bytes of rows wait for their files, and {self.limits.unpublished_bytes} may",
                hint="send it again in a moment; if it stays so, the file table or the store does not answer",
                waiting_bytes=waiting,
            )
