"""Blocks, segments, the publisher and the registry of an ingest node."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.ingest.buffer.buffers import Buffers
from headwater.ingest.buffer.model import (
    AdmittedFile,
    BufferFullError,
    BufferLimits,
    FileCheckError,
    NewSegment,
    PublishBarrierError,
)
from headwater.ingest.buffer.protocol import Publisher
from headwater.ingest.buffer.registry import FileRegistry, RegistryError
from headwater.ingest.buffer.stream import Outcome
from headwater.ingest.buffer.writing import Encoding, FileFormat
from headwater.ingest.lifecycle import NodeFailedError
from headwater.ingest.model import TIMESTAMP_COLUMN, RowRange, Stream, TableShape
from headwater.ingest.visibility.index import VisibilityIndex
from headwater.kernel.clock import ManualClock
from headwater.kernel.errors import RefusedError, UnavailableError
from headwater.storage.memory import MemoryStore
from headwater.storage.port import Create

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={b"PARQUET:field_id": b"1"}),
        pa.field("v", pa.string(), metadata={b"PARQUET:field_id": b"2"}),
    ]
)
SHAPE = TableShape(7, "t", SCHEMA, ("id",), path_id=1, folder="data")
STREAM = Stream(7, 0)


def rows(*ids: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": each, "v": f"v{each}"} for each in ids], schema=SCHEMA)


@dataclass
class World:
    """A stream with its publisher, on a store in memory. `events` is what happened, in order."""

    limits: BufferLimits = field(default_factory=lambda: BufferLimits(block_rows=4, segment_blocks=2))
    events: list[tuple[str, int]] = field(default_factory=list)
    fails: set[str] = field(default_factory=set)
    failures: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store = MemoryStore(ManualClock())
        self.registry = FileRegistry()
        self.visibility = VisibilityIndex()
        self.buffers = Buffers(self.registry, self.limits, self._new_segment)
        self.buffer = self.buffers.add(STREAM, SHAPE)
        self.publisher = Publisher(
            files=self.store,
            table=self,
            index=self,
            registry=self.registry,
            visibility=self.visibility,
            form=FileFormat(),
            fail=self.failures.append,
        )
        self.next_row_id = 100
        self.next_file_id = 1

    def _new_segment(self, stream: Stream, first_block_id: int) -> NewSegment:
        self.next_file_id += 1
        return NewSegment(self.next_file_id - 1, f"data/{self.next_file_id - 1}.parquet")

    def flush_primary(self) -> None:
        self._step("primary", 0)

    def flush_file(self, file_id: int) -> None:
        self._step("flush", file_id)

    def publish_regular(self, file_id: int, num_row_group: int, min_row_id: int, max_row_id: int) -> None:
        self._step("regular", file_id)

    def _step(self, name: str, file_id: int) -> None:
        if name in self.fails:
            raise UnavailableError(f"{name} fails")
        self.events.append((name, file_id))

    def append(self, *ids: int, timestamp: int = 1, outcome: Outcome = Outcome.VISIBLE) -> tuple[RowRange, ...]:
        handle = self.buffer.append_pending(rows(*ids), timestamp, self.next_row_id)
        self.next_row_id += len(ids)
        self.buffer.publish_pending_append(handle, outcome)
        return handle.ranges

    def seen(self, timestamp: int = 10**9) -> list[int]:
        """What a reader sees, by the two rules and nothing else."""
        view = self.buffer.view()
        found: list[int] = []
        for file in view.files:
            parquet = pq.ParquetFile(pa.BufferReader(self.store.get(file.name).data))
            for number in range(parquet.num_row_groups):
                group = self.visibility.get(file.file_id, number)
                assert group is not None
                found += seen_of(parquet.read_row_group(number), group.visible_mask(timestamp), timestamp)
        for block in view.blocks:
            found += seen_of(block.rows, block.visibility.visible_mask(timestamp), timestamp)
        return found


def seen_of(table: pa.Table, mask: np.ndarray, timestamp: int) -> list[int]:
    pairs = zip(table["id"].to_pylist(), table[TIMESTAMP_COLUMN].to_pylist(), mask[: table.num_rows], strict=True)
    return [id_ for id_, stamp, is_visible in pairs if is_visible and stamp <= timestamp]


@pytest.fixture
def world() -> World:
    return World()


def test_an_append_says_where_each_row_is(world: World) -> None:
    assert world.append(1, 2, 3) == (RowRange(100, 3, 1, 0, 0),)
    spread = world.append(*range(4, 14))
    assert spread == (
        RowRange(103, 1, 1, 0, 3),
        RowRange(104, 4, 1, 1, 0),
        RowRange(108, 4, 2, 0, 0),
        RowRange(112, 1, 2, 1, 0),
    )
    assert world.seen() == list(range(1, 14))


def test_nobody_sees_what_is_pending(world: World) -> None:
    world.append(1)
    handle = world.buffer.append_pending(rows(2, 3), 2, 200)
    assert world.seen() == [1]
    with pytest.raises(RefusedError):
        world.buffer.seal()
    world.buffer.publish_pending_append(handle, Outcome.VISIBLE)
    assert world.seen() == [1, 2, 3]


def test_the_visible_prefix_grows_over_appends_in_their_order(world: World) -> None:
    first = world.buffer.append_pending(rows(1), 1, 100)
    second = world.buffer.append_pending(rows(2), 2, 101)
    world.buffer.publish_pending_append(second, Outcome.VISIBLE)
    assert world.seen() == []  # a hole would be read as a row
    world.buffer.publish_pending_append(first, Outcome.VISIBLE)
    assert world.seen() == [1, 2]


def test_what_is_hidden_is_never_seen_and_keeps_its_place(world: World) -> None:
    world.append(1)
    world.append(2, timestamp=5, outcome=Outcome.HIDDEN)
    world.append(3)
    assert [world.seen(at) for at in (1, 4, 5, 6)] == [[1, 3]] * 4
    world.buffer.seal()
    world.publisher.publish(world.buffer)
    assert [world.seen(at) for at in (1, 4, 5, 6)] == [[1, 3]] * 4
    assert pq.read_table(pa.BufferReader(world.store.get("data/1.parquet").data)).num_rows == 3


def test_an_append_that_breaks_half_way_is_hidden(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.append(1)
    made = world.buffers._new_segment

    def fails(stream: Stream, first_block_id: int) -> NewSegment:
        raise UnavailableError("no file id")

    monkeypatch.setattr(world.buffer, "_new_segment", fails)
    with pytest.raises(UnavailableError):
        world.append(*range(2, 20))
    assert world.seen() == [1]
    monkeypatch.setattr(world.buffer, "_new_segment", made)
    world.append(20)
    world.buffer.seal()
    world.publisher.publish(world.buffer)
    assert world.seen() == [1, 20]


def test_files_become_regular_in_the_order_of_their_blocks(world: World) -> None:
    world.append(*range(30))  # three full segments and an open one
    assert world.publisher.publish(world.buffer) == 3
    world.buffer.seal()
    assert world.publisher.publish(world.buffer) == 1
    assert [file for step, file in world.events if step == "regular"] == [1, 2, 3, 4]
    assert [each.first_block_id for each in world.registry.of(STREAM)] == [0, 2, 4, 6]
    assert world.seen() == list(range(30))
    assert world.buffer.segments() == ()


@pytest.mark.parametrize("step", ["primary", "flush", "regular"])
def test_a_step_that_fails_is_taken_again(world: World, step: str) -> None:
    world.append(*range(9))
    world.fails.add(step)
    with pytest.raises(PublishBarrierError, match=r"data/1\.parquet"):
        world.publisher.publish(world.buffer)
    assert world.registry.of(STREAM) == ()
    assert world.seen() == list(range(9))
    world.fails.clear()
    assert world.publisher.publish(world.buffer) == 1
    assert world.seen() == list(range(9))


@pytest.mark.hazard("I17")
def test_index_before_file_table_before_registry(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    register = world.registry.register

    def noted(file: AdmittedFile) -> None:
        world.events.append(("register", file.file_id))
        register(file)

    monkeypatch.setattr(world.registry, "register", noted)
    world.append(*range(9))
    world.publisher.publish(world.buffer)
    assert world.events == [("primary", 0), ("flush", 1), ("regular", 1), ("register", 1)]


def test_the_primary_index_is_written_out_once_for_the_files_of_all_streams(world: World) -> None:
    other = world.buffers.add(Stream(7, 1), SHAPE)
    other.publish_pending_append(other.append_pending(rows(*range(9)), 1, 1_000), Outcome.VISIBLE)
    world.append(*range(17))
    assert world.publisher.publish(world.buffer, other) == 3
    assert [step for step, _ in world.events].count("primary") == 1
    assert [step for step, _ in world.events[:4]] == ["primary", "flush", "flush", "flush"]
    assert world.publisher.publish(world.buffer, other) == 0  # nothing to write out
    assert [step for step, _ in world.events].count("primary") == 1


def test_a_stream_that_cannot_be_published_holds_no_other_back(world: World) -> None:
    other = world.buffers.add(Stream(7, 1), SHAPE)
    world.append(*range(9))
    other.publish_pending_append(other.append_pending(rows(*range(9)), 1, 1_000), Outcome.VISIBLE)
    (stuck,) = world.buffer.sealed()
    world.store.put(stuck.name, b"x", Create())
    with pytest.raises(PublishBarrierError, match="other bytes"):
        world.publisher.publish(world.buffer, other)
    assert world.registry.of(STREAM) == ()
    assert len(world.registry.of(other.stream)) == 1


def test_an_older_file_that_waits_holds_younger_ones_back(world: World) -> None:
    """Physical close and index flush may end in any order; REGULAR may not."""
    world.append(*range(17))
    first, second = world.buffer.sealed()
    world.publisher._close(world.buffer, second)
    world.publisher._flush_index([second], [])
    assert second.state.index_flushed
    assert not first.state.physical_closed
    with pytest.raises(RefusedError), world.buffer.leaving(second):
        pytest.fail("unreachable")
    assert world.publisher.publish(world.buffer) == 2
    assert [file for step, file in world.events if step == "regular"] == [1, 2]


def test_a_failed_admission_stops_the_node(world: World) -> None:
    world.append(*range(9))
    world.registry.register(AdmittedFile(1, "x", STREAM, 99, 1, 1, (1,)))
    with pytest.raises(RegistryError):
        world.publisher.publish(world.buffer)
    assert isinstance(world.failures[0], RegistryError)


@pytest.mark.hazard("I18")
def test_deletes_of_rows_that_are_not_regular_yet_are_handed_over(world: World) -> None:
    world.append(*range(8))
    world.append(8)
    group = world.buffer.visibility_of(1, 1)
    assert group is not None
    group.delete(np.array([2]), 5)
    world.publisher.publish(world.buffer)
    group.delete(np.array([3]), 6)  # one that was on its way while the file was admitted
    assert world.seen(5) == [0, 1, 2, 3, 4, 5, 7, 8]
    assert world.seen(6) == [0, 1, 2, 3, 4, 5, 8]


@pytest.mark.proves("ingest/buffer")
def test_files_are_plain_parquet_and_their_statistics_are_right(world: World, tmp_path: Path) -> None:
    world.append(1, 2, timestamp=5)
    world.append(3, 4, 5, timestamp=9)
    world.buffer.seal()
    world.publisher.publish(world.buffer)
    data = world.store.get("data/1.parquet").data
    footer = pq.read_metadata(pa.BufferReader(data))
    assert [footer.row_group(each).num_rows for each in range(footer.num_row_groups)] == [4, 1]
    statistics = footer.row_group(0).column(2).statistics
    assert (statistics.min, statistics.max) == (5, 9)
    (tmp_path / "1.parquet").write_bytes(data)
    read = duckdb.sql(f"select id, v from '{tmp_path}/1.parquet' order by id").fetchall()
    assert read == [(each, f"v{each}") for each in range(1, 6)]
    ids = [each.metadata[b"PARQUET:field_id"] for each in pq.ParquetFile(pa.BufferReader(data)).schema_arrow]
    assert ids == [b"1", b"2", b"2147480001"]


def test_a_footer_that_says_other_than_memory_is_refused(world: World) -> None:
    world.append(*range(9))
    (segment,) = world.buffer.sealed()
    segment.max_timestamp = 99
    with pytest.raises(PublishBarrierError, match="footer"):
        world.publisher.publish(world.buffer)
    assert world.registry.of(STREAM) == ()


def test_a_file_of_the_same_name_with_other_bytes_is_refused(world: World) -> None:
    world.append(*range(9))
    (segment,) = world.buffer.sealed()
    world.store.put("data/1.parquet", b"x", Create())
    with pytest.raises(PublishBarrierError, match="other bytes") as caught:
        world.publisher.publish(world.buffer)
    assert isinstance(caught.value.__cause__, FileCheckError)
    world.store.delete("data/1.parquet")
    world.store.put(
        "data/1.parquet", Encoding(SCHEMA, FileFormat()).finish(segment.blocks), Create()
    )  # an attempt whose answer was lost
    assert world.publisher.publish(world.buffer) == 1


def test_row_groups_are_written_as_blocks_fill_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    real = pq.ParquetWriter.write_table

    def noted(writer: pq.ParquetWriter, table: pa.Table, **options: Any) -> None:
        written.append(table.num_rows)
        real(writer, table, **options)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", noted)
    world.append(1, 2, 3)
    assert (world.publisher.publish(world.buffer), written) == (0, [])
    world.append(4, 5, timestamp=2, outcome=Outcome.HIDDEN)
    handle = world.buffer.append_pending(rows(6), 3, 500)
    assert (world.publisher.publish(world.buffer), written) == (0, [4])
    world.publisher.publish(world.buffer)
    assert written == [4], "each block once"
    world.buffer.publish_pending_append(handle, Outcome.VISIBLE)
    world.buffer.seal()
    assert (world.publisher.publish(world.buffer), written) == (1, [4, 2])
    assert world.seen() == [1, 2, 3, 6]


def test_a_block_with_pending_rows_is_not_written_ahead(world: World) -> None:
    handle = world.buffer.append_pending(rows(1, 2, 3, 4), 1, 100)
    assert world.publisher.publish(world.buffer) == 0
    world.buffer.publish_pending_append(handle, Outcome.VISIBLE)
    world.append(5)
    world.buffer.seal()
    assert world.publisher.publish(world.buffer) == 1
    assert world.seen() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("at", [0, 1])
def test_what_could_not_be_written_is_written_anew(world: World, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    real, left = pq.ParquetWriter.write_table, [at]

    def failing(writer: pq.ParquetWriter, table: pa.Table, **options: Any) -> None:
        left[0] -= 1
        if left[0] == -1:
            real(writer, table.slice(0, 1), **options)
            raise pa.ArrowInvalid("half of it is written")
        real(writer, table, **options)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", failing)
    world.append(*range(5))
    if at == 0:
        with pytest.raises(PublishBarrierError, match="half of it"):
            world.publisher.publish(world.buffer)
    else:
        world.publisher.publish(world.buffer)
        world.buffer.seal()
        with pytest.raises(PublishBarrierError, match="half of it"):
            world.publisher.publish(world.buffer)
    world.buffer.seal()
    assert world.publisher.publish(world.buffer) == 1
    assert world.seen() == list(range(5))


def test_nothing_becomes_regular_once_the_node_has_failed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> None:
        if ("flush", 1) in world.events:
            raise NodeFailedError("it failed while the file was made")

    monkeypatch.setattr(world.publisher, "_check", check)
    world.append(*range(9))
    with pytest.raises(NodeFailedError):
        world.publisher.publish(world.buffer)
    assert ("regular", 1) not in world.events


def test_more_than_may_wait_is_refused(world: World) -> None:
    world.buffers.refuse_more()
    world.append(*range(4))
    small = Buffers(world.registry, BufferLimits(unpublished_bytes=1), world._new_segment)
    small.add(STREAM, SHAPE).append_pending(rows(1), 1, 1)
    with pytest.raises(BufferFullError):
        small.refuse_more()


def test_what_waits_is_counted_until_it_is_published(world: World) -> None:
    assert world.buffers.waiting_bytes == 0
    world.append(*range(9))  # a full segment and an open one
    assert world.buffers.waiting_bytes == sum(each.size_bytes for each in world.buffer.segments()) > 0
    world.publisher.publish(world.buffer)
    assert world.buffers.waiting_bytes == world.buffer.open_bytes > 0
    world.buffer.seal()
    world.publisher.publish(world.buffer)
    assert world.buffers.waiting_bytes == 0


def test_open_segments_that_hold_half_of_what_may_wait_are_a_crowd(world: World) -> None:
    world.append(1)
    limits = BufferLimits(unpublished_bytes=3 * world.buffer.open_bytes)
    crowd = Buffers(world.registry, limits, world._new_segment)
    buffer = crowd.add(STREAM, SHAPE)
    for number, is_crowd in ((1, False), (2, True)):
        buffer.publish_pending_append(buffer.append_pending(rows(number), 1, number), Outcome.VISIBLE)
        assert crowd.is_crowded is is_crowd
    buffer.seal()
    assert not crowd.is_crowded  # they are on their way
    crowd.refuse_more()


def test_many_small_appends_are_few_batches(world: World) -> None:
    buffer = Buffers(world.registry, BufferLimits(), world._new_segment).add(STREAM, SHAPE)
    handles = [buffer.append_pending(rows(number), number + 1, number) for number in range(300)]
    for handle in handles[:250]:
        buffer.publish_pending_append(handle, Outcome.VISIBLE)
    (block,) = buffer.view().blocks
    assert block.rows["id"].to_pylist() == list(range(250))
    assert block.rows[TIMESTAMP_COLUMN].to_pylist() == list(range(1, 251))
    assert block.rows["id"].num_chunks < 80


@pytest.mark.proves("ingest/buffer")
def test_readers_see_each_row_once_while_files_are_published(world: World) -> None:
    stop = threading.Event()
    wrong: list[list[int]] = []

    def reads() -> None:
        while not stop.is_set():
            found = world.seen()
            if found != list(range(len(found))):
                wrong.append(found)

    reader = threading.Thread(target=reads)
    reader.start()
    try:
        for start in range(0, 120, 3):
            world.append(start, start + 1, start + 2)
            world.publisher.publish(world.buffer)
    finally:
        stop.set()
        reader.join()
    assert not wrong
    assert world.seen() == list(range(120))


def test_the_registry_knows_files_once_and_in_order() -> None:
    registry = FileRegistry()

    def file(number: int, block: int) -> AdmittedFile:
        return AdmittedFile(number, "x", STREAM, block, 1, 2, (3,))

    registry.register(file(5, 10))
    registry.register(file(4, 2))
    for twice in (file(5, 11), file(6, 10)):
        with pytest.raises(RegistryError):
            registry.register(twice)
    assert [each.file_id for each in registry.of(STREAM)] == [4, 5]
    registry.refuse_strangers([4, 5])
    with pytest.raises(RegistryError, match="9"):
        registry.refuse_strangers([4, 9])
    registry.unregister(4)
    with pytest.raises(RegistryError):
        registry.unregister(4)
    with pytest.raises(RegistryError):
        registry.get(4)
