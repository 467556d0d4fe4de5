"""A node: its parts put together, and what runs beside requests.

Nothing runs before `start`: a constructor opens nothing and starts nothing, and when one part cannot be opened the ones
before it are closed again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headwater.ingest.apply.model import BadRequestError, WrongNodeError
from headwater.ingest.apply.protocol import Applier
from headwater.ingest.buffer.buffers import Buffers
from headwater.ingest.buffer.model import BufferLimits, NewSegment, PublishBarrierError
from headwater.ingest.buffer.protocol import Publisher
from headwater.ingest.buffer.registry import FileRegistry, RegistryError
from headwater.ingest.files.model import FileRow, FileType, NewFile
from headwater.ingest.files.names import FileName
from headwater.ingest.files.protocol import FileTable
from headwater.ingest.index.local import LocalIndex
from headwater.ingest.index.primary import Version
from headwater.ingest.keys import Keys
from headwater.ingest.lifecycle import Lifecycle
from headwater.ingest.model import TIMESTAMP_COLUMN, Position, Stream, TableShape, Timestamp
from headwater.ingest.scan.model import ScanRequest
from headwater.ingest.scan.protocol import Scanner, rows_of_block
from headwater.ingest.topology import Topology
from headwater.ingest.visibility.index import VisibilityIndex
from headwater.ingest.visibility.model import NotAdmittedError
from headwater.ingest.visibility.offloads import Offloads
from headwater.kernel.clock import Clock
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.logs import Log
from headwater.storage.port import ObjectStore

_log = Log("ingest")
_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """A stream as an operator sees it."""

    table: str
    virtual_node: int
    applied: Position
    buffered_rows: int
    buffered_bytes: int
    files: int


class Node:
    """The parts of one node. Safe to share among threads."""

    def __init__(
        self,
        *,
        name: str,
        topology: Topology,
        tables: Mapping[str, TableShape],
        files: FileTable,
        store: ObjectStore,
        open_file: Callable[[str], pa.NativeFile],
        index: LocalIndex,
        clock: Clock,
        limits: BufferLimits = BufferLimits(),  # noqa: B008  (frozen)
        flush_seconds: float = 60.0,
        read_lease_seconds: float = 60.0,
    ) -> None:
        self.name = name
        self.topology = topology
        self.tables = tables
        self.files = files
        self.index = index
        self.lifecycle = Lifecycle()
        self.registry = FileRegistry()
        self.visibility = VisibilityIndex()
        self.offloads = Offloads(clock, read_lease_seconds)
        self.buffers = Buffers(self.registry, limits, self._new_segment)
        self.owned = frozenset(topology.node(name).virtual_nodes)
        self.applier = Applier(
            tables=tables,
            virtual_node_count=topology.virtual_node_count,
            owned=self.owned,
            index=index,
            buffers=self.buffers,
            visibility=self.visibility,
            lifecycle=self.lifecycle,
        )
        self.scanner = Scanner(tables=tables, buffers=self.buffers, visibility=self.visibility, open_file=open_file)
        self.publisher = Publisher(
            files=store,
            table=files,
            index=index,
            registry=self.registry,
            visibility=self.visibility,
            fail=self.lifecycle.fail,
            check=self.lifecycle.refuse_failed,
        )
        self._clock = clock
        self._flush_seconds = flush_seconds
        self._stop = threading.Event()
        self._safe_timestamp: Callable[[], Timestamp] | None = None
        self._thread: threading.Thread | None = None

    # What runs beside requests.

    def start(self, safe_timestamp: Callable[[], Timestamp] | None = None) -> None:
        """Begin to publish what is full or old, and to fold up to what `safe_timestamp` says, where it is known."""
        self._safe_timestamp = safe_timestamp
        self._thread = threading.Thread(target=self._publish_for_ever, name=f"publisher of {self.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Publish nothing more by itself."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def finish(self) -> None:
        """Stop, and publish what there is; a node that has failed publishes nothing more."""
        self.stop()
        if self.lifecycle.failure is None:
            self.flush()

    def flush(self) -> int:
        """Seal and publish everything that is in the buffers; says how many files became REGULAR."""
        return self._publish_all(is_sealed=True)

    def publish_full(self) -> int:
        """Publish the segments that are full."""
        return self._publish_all(is_sealed=False)

    def refuse_not_admitted(self, file_id: int) -> None:
        """Raise unless the file has visibility."""
        if not self.registry.has(file_id):
            raise NotAdmittedError(file_id)

    def fold(self, wanted: Timestamp) -> None:
        """Let deletions up to here become part of the bases: reads below are refused from now on."""
        up_to = self.offloads.fold(wanted)
        for buffer in self.buffers.all():
            for segment in buffer.segments():
                for block in segment.blocks:
                    block.visibility.fold(up_to)
        self.visibility.fold_all(up_to)

    def fold_what_is_safe(self) -> None:
        """Fold up to where no reader is any more. Where nobody can say, nothing is folded."""
        if self._safe_timestamp is None:
            return
        try:
            up_to = self._safe_timestamp()
        except HeadwaterError as error:
            _log.warning("nothing is folded: the time is not known", error=str(error))
            return
        self.fold(up_to)

    def _publish_all(self, *, is_sealed: bool) -> int:
        """Every stream; one that cannot be published holds no other back, and is told of at the end."""
        buffers = self.buffers.all()
        for buffer in buffers if is_sealed else ():
            self.lifecycle.refuse_failed()
            with self.applier.turn(buffer.stream):
                buffer.seal()
        self.lifecycle.refuse_failed()  # its rows may be half there, and nobody could say so of a file
        return self.publisher.publish(*buffers)

    def _publish_for_ever(self) -> None:
        last_flush = self._clock.monotonic()
        pause_seconds = _PAUSE_SECONDS
        while not self._stop.wait(pause_seconds):
            is_late = self._clock.monotonic() - last_flush >= self._flush_seconds
            is_time = is_late or self.buffers.is_crowded
            try:
                is_done = self._try_to_publish(self.flush if is_time else self.publish_full)
                if is_time:
                    # Whatever became of the files: a store that is away must not keep deletions in memory.
                    self.fold_what_is_safe()
            except Exception as error:
                self.lifecycle.fail(error)
                _log.error("publishing failed", error=str(error))
                return
            # To try again costs as much as to do it: a store that is away must not take the node's time, too.
            pause_seconds = _PAUSE_SECONDS if is_done else min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
            if is_time:
                last_flush = self._clock.monotonic()

    def _try_to_publish(self, publish: Callable[[], int]) -> bool:
        try:
            publish()
        except PublishBarrierError as error:
            _log.warning("a file could not be published", error=str(error))
            return False
        return True

    def _new_segment(self, stream: Stream, first_block_id: int) -> NewSegment:
        shape = next(each for each in self.tables.values() if each.id == stream.table_id)
        file_id = self.files.reserve_ids(1)[0]
        name = FileName(stream.table_id, stream.virtual_node, self._clock.now(), first_block_id, file_id)
        self.files.add_files([NewFile(file_id, str(name), shape.path_id)])
        return NewSegment(file_id, f"{shape.folder}/{name}")

    # Readers.

    def scan(
        self, request: ScanRequest, check: Callable[[], None] = lambda: None
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Rows of a table at a timestamp. `check` is called between parts, and raises to end the scan."""
        for each in request.virtual_nodes or ():
            self._refuse_elsewhere(each)
        try:
            self.registry.refuse_strangers(self.visibility.files())
        except RegistryError as error:
            self.lifecycle.fail(error)
            raise
        return self.scanner.scan(request, check)

    def query_visibility(
        self, timestamp: Timestamp, row_groups: Sequence[tuple[int, int]]
    ) -> list[tuple[Timestamp, bytes]]:
        """The deleted rows of row groups at a timestamp, as portable roaring bitmaps."""
        found = []
        for file_id, row_group in row_groups:
            self.refuse_not_admitted(file_id)
            group = self.visibility.get(file_id, row_group)
            if group is None:
                raise BadRequestError(f"file {file_id} has no row group {row_group}", file_id=file_id)
            found.append((group.snapshot().base_timestamp, group.deleted_at(timestamp).serialize()))
        return found

    def write_buffer(
        self, table: str, virtual_node: int, timestamp: Timestamp
    ) -> tuple[list[int], pa.Schema, Iterator[pa.RecordBatch]]:
        """Rows of a stream that are in no admitted file, and the ids of the files that they will be in."""
        shape = self.table(table)
        self._refuse_elsewhere(virtual_node)
        view = self.buffers.add(Stream(shape.id, virtual_node), shape).view()
        columns = [*shape.schema.names, TIMESTAMP_COLUMN]
        rows = (rows for block in view.blocks for rows in rows_of_block(block, columns, timestamp, (), shape.schema))
        return sorted({block.file_id for block in view.blocks}), shape.schema, rows

    def add_write_buffer(self, table: str, virtual_node: int) -> None:
        """Make the buffer of a stream before its first row comes."""
        shape = self.table(table)
        self._refuse_elsewhere(virtual_node)
        self.buffers.add(Stream(shape.id, virtual_node), shape)

    def versions(self, table: str, keys: Keys) -> tuple[int, tuple[Version, ...]]:
        """The virtual node of a key, and all that the index knows of it; one that lives elsewhere is refused."""
        shape = self.table(table)
        (key,) = keys.to_list()
        home = int(self.topology.virtual_nodes_of(keys)[0])
        self._refuse_elsewhere(home)
        return home, self.index.primary.versions(shape.id, key)

    def list_files(self, table: str) -> tuple[FileRow, ...]:
        """All files of a table, in every state; for operators."""
        return self.files.get_files_by_type(self.table(table).path_id, frozenset(FileType))

    def streams(self) -> list[StreamStatus]:
        """Each stream as it is now."""
        names = {shape.id: name for name, shape in self.tables.items()}
        found = []
        for buffer in self.buffers.all():
            segments = buffer.segments()
            found.append(
                StreamStatus(
                    names[buffer.stream.table_id],
                    buffer.stream.virtual_node,
                    self.applier.applied(buffer.stream) or Position(0, 0),
                    sum(each.count for each in segments),
                    buffer.size_bytes,
                    len(self.registry.of(buffer.stream)),
                )
            )
        return found

    def table(self, name: str) -> TableShape:
        """The shape of a table; one that is unknown is refused."""
        shape = self.tables.get(name)
        if shape is None:
            raise BadRequestError(f"table {name} is unknown", hint="the node has " + ", ".join(sorted(self.tables)))
        return shape

    def _refuse_elsewhere(self, virtual_node: int) -> None:
        if virtual_node in self.owned:
            return
        if not 0 <= virtual_node < self.topology.virtual_node_count:
            raise BadRequestError(
                f"there is no virtual node {virtual_node}", hint=f"0 to {self.topology.virtual_node_count - 1}"
            )
        home = self.topology.node_of(virtual_node)
        raise WrongNodeError(
            f"virtual node {virtual_node} lives on {home.name}", hint=f"ask {home.address}", virtual_node=virtual_node
        )
