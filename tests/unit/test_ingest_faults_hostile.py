"""Odd requests and bad moments: what they must not break on a node, beside a dictionary."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.ingest.apply.model import BackInTimeError, BadRequestError, TableUpdate, UpdateRequest
from headwater.ingest.buffer import protocol as publishing
from headwater.ingest.buffer.model import PublishBarrierError
from headwater.ingest.buffer.registry import FileRegistry
from headwater.ingest.buffer.segment import Segment
from headwater.ingest.buffer.stream import StreamBuffer
from headwater.ingest.files.model import FileType
from headwater.ingest.files.protocol import FileTable
from headwater.ingest.index import IndexBackendError
from headwater.ingest.index.local import LocalIndex
from headwater.ingest.keys import Keys, encode
from headwater.ingest.lifecycle import LifecycleState
from headwater.ingest.model import TIMESTAMP_COLUMN, Position, Resolved, Stream
from headwater.ingest.scan.model import ScanRequest
from headwater.ingest.topology import Topology
from headwater.ingest.visibility import VisibilityIndex
from headwater.ingest.visibility.model import BelowBaseError
from tests.unit.ingest_world import TOPOLOGY, IngestWorld, field, ingest_world


def keys_of_stream(virtual_node: int) -> list[int]:
    """Some keys of table t that live there."""
    keys = pa.RecordBatch.from_pydict({"id": pa.array(range(80), pa.int64())})
    homes = Topology.parse(TOPOLOGY).virtual_nodes_of(encode(keys, ("id",))).tolist()
    return [key for key, home in enumerate(homes) if home == virtual_node]


K0, K1, K2 = (keys_of_stream(each) for each in (0, 1, 2))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[IngestWorld]:
    with ingest_world(tmp_path) as made:
        yield made


def row(key: int, value: str = "a") -> dict[str, Any]:
    return {"id": key, "v": value}


def ids(*keys: int) -> list[dict[str, Any]]:
    return [{"id": key} for key in keys]


def seen(world: IngestWorld, timestamp: int) -> dict[int, str]:
    found = world.rows(timestamp)
    assert len(found) == len({each["id"] for each in found})
    return {each["id"]: each["v"] for each in found}


# Requests.


@pytest.mark.parametrize("timestamp", [2**63 - 1, 2**63, 2**64 - 1])
def test_a_timestamp_that_no_column_holds_is_refused(world: IngestWorld, timestamp: int) -> None:
    """The message has 64 bits for it, and columns have 63: it must not get as far as the first effect."""
    world.node.applier.apply(world.request(1, inserts=[row(K0[0])]))
    with pytest.raises(BadRequestError, match="is no timestamp"):
        world.node.applier.apply(world.request(timestamp, deletes=ids(K0[0]), inserts=[row(K0[1])]))
    assert world.node.lifecycle.state is LifecycleState.READY
    assert seen(world, 2**63 - 2) == {K0[0]: "a"}


def test_the_last_timestamp_there_is(world: IngestWorld) -> None:
    last = 2**63 - 2
    world.node.applier.apply(world.request(1, inserts=[row(K0[0])]))
    world.node.applier.apply(world.request(last, deletes=ids(K0[0]), inserts=[row(K0[1])]))
    for _ in range(2):
        assert seen(world, last) == {K0[1]: "a"}
        assert seen(world, last - 1) == {K0[0]: "a"}
        world.node.flush()


def test_a_key_of_one_stream_that_would_go_back_refuses_those_of_all(world: IngestWorld) -> None:
    world.node.applier.apply(world.request(9, inserts=[row(K2[0], "young")]))
    world.node.applier._applied.clear()  # as after a restart: the index remembers more than the positions
    with pytest.raises(BackInTimeError, match="changed at 9, after 5"):
        world.node.applier.apply(world.request(5, inserts=[row(K0[0]), row(K2[0])]))
    assert seen(world, 9) == {K2[0]: "young"}
    assert world.node.applier.applied(Stream(7, 0)) is None


def test_what_cannot_be_looked_up_in_one_stream_changes_none(
    world: IngestWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve, asked = LocalIndex.resolve_primary, list[list[bytes]]()
    key_of_second = encode(world.batch(ids(K1[0]), is_keys=True), ("id",)).to_list()[0]

    def failing(self: LocalIndex, table_id: int, keys: Keys, *rest: Any, **named: Any) -> Resolved:
        asked.append(keys.to_list())
        if asked.count([key_of_second]) > 0:
            raise IndexBackendError("no disk")
        return resolve(self, table_id, keys, *rest, **named)

    monkeypatch.setattr(LocalIndex, "resolve_primary", failing)
    with pytest.raises(IndexBackendError):
        world.node.applier.apply(world.request(5, inserts=[row(K0[0]), row(K1[0])]))
    monkeypatch.undo()
    assert seen(world, 9) == {}


@pytest.mark.parametrize(
    ("deletes", "inserts", "wanted"),
    [
        ([0, 0], [], {1: "o"}),
        ([5], [], {0: "o", 1: "o"}),
        ([5, 0], [], {1: "o"}),
        ([], [(0, "x"), (0, "y")], {0: "y", 1: "o"}),
        ([0], [(0, "x")], {0: "x", 1: "o"}),
        ([0, 0], [(0, "x"), (0, "y")], {0: "y", 1: "o"}),
        ([5], [(5, "x")], {0: "o", 1: "o", 5: "x"}),
        ([0, 1], [(0, "o")], {0: "o"}),
    ],
)
def test_the_same_key_more_than_once(
    world: IngestWorld, deletes: list[int], inserts: list[tuple[int, str]], wanted: dict[int, str]
) -> None:
    """Within a request deletes come first, and of each key its last row stands."""
    world.node.applier.apply(world.request(1, inserts=[row(K0[0], "o"), row(K0[1], "o")]))
    rows = [row(K0[key], value) for key, value in inserts]
    world.node.applier.apply(world.request(5, deletes=ids(*(K0[key] for key in deletes)), inserts=rows))
    for _ in range(2):
        assert seen(world, 5) == {K0[key]: value for key, value in wanted.items()}
        assert seen(world, 4) == {K0[0]: "o", K0[1]: "o"}
        world.node.flush()


@pytest.mark.parametrize("other", ["deletes", "inserts"])
def test_an_update_beside_another_change_of_its_key_is_refused(world: IngestWorld, other: str) -> None:
    world.node.applier.apply(world.request(1, inserts=[row(K0[0], "o")]))
    also: dict[str, Any] = {other: ids(K0[0]) if other == "deletes" else [row(K0[0], "x")]}
    with pytest.raises(BadRequestError, match=f"both in updates and in {other}"):
        world.node.applier.apply(world.request(5, updates=[row(K0[0], "u")], **also))
    assert seen(world, 9) == {K0[0]: "o"}


def test_requests_of_one_timestamp_follow_each_other(world: IngestWorld) -> None:
    apply = world.node.applier.apply
    apply(world.request(5, 0, inserts=[row(K0[0], "a")]))
    apply(world.request(5, 1, deletes=ids(K0[0])))
    assert seen(world, 5) == {}
    apply(world.request(5, 7, inserts=[row(K0[0], "b")]))  # a sequence may leave some out
    apply(world.request(5, 8, updates=[row(K0[0], "c")]))
    apply(world.request(5, 1, deletes=ids(K0[0])))  # sent again
    world.node.flush()
    assert (seen(world, 4), seen(world, 5)) == ({}, {K0[0]: "c"})
    apply(world.request(6, 0, deletes=ids(K0[0])))  # the sequence begins again with each timestamp
    assert (seen(world, 5), seen(world, 6)) == ({K0[0]: "c"}, {})


def test_a_key_that_changes_moves_to_another_virtual_node(world: IngestWorld) -> None:
    world.node.applier.apply(world.request(1, inserts=[row(K0[0], "v")]))
    world.node.flush()
    world.node.applier.apply(world.request(5, deletes=ids(K0[0]), inserts=[row(K1[0], "v")]))
    for _ in range(2):
        assert (seen(world, 4), seen(world, 5)) == ({K0[0]: "v"}, {K1[0]: "v"})
        world.node.flush()


def test_streams_have_times_of_their_own(world: IngestWorld) -> None:
    """Deletes arrive in another order than their timestamps, and the same file table and index serve all."""
    apply = world.node.applier.apply
    apply(world.request(1, inserts=[row(key) for key in (K0[0], K0[1], K1[0], K1[1], K2[0])]))
    world.node.flush()
    apply(world.request(9, deletes=ids(K0[0])))
    apply(world.request(3, deletes=ids(K1[0])))
    apply(world.request(6, deletes=ids(K2[0])))
    apply(world.request(4, deletes=ids(K1[1])))
    gone = {K0[0]: 9, K1[0]: 3, K2[0]: 6, K1[1]: 4}
    for folded in (0, 3, 5):
        world.node.fold(folded)
        for at in range(max(folded, 1), 11):
            assert seen(world, at) == {K0[1]: "a"} | {key: "a" for key, end in gone.items() if at < end}
    with pytest.raises(BelowBaseError):
        seen(world, 4)


def test_an_empty_request_moves_its_streams_on(world: IngestWorld) -> None:
    world.node.applier.apply(UpdateRequest(Position(5, 0), (TableUpdate("t", 0, 5),)))
    assert world.node.applier.applied(Stream(7, 0)) == Position(5, 0)
    world.node.applier.apply(UpdateRequest(Position(6, 0), ()))
    assert world.node.flush() == 0


# Moments.

STEPS: dict[str, tuple[Any, str]] = {
    "physical_closed": (publishing, "store"),
    "index_flushed": (LocalIndex, "flush_file"),
    "metadata_regular": (FileTable, "publish_regular"),
    "registered": (FileRegistry, "register"),
    "admitted": (VisibilityIndex, "admit"),
}


@pytest.mark.hazard("I18")
@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_i18_a_row_is_deleted_and_replaced_while_its_file_is_published(
    world: IngestWorld, monkeypatch: pytest.MonkeyPatch, step: str, is_after: bool
) -> None:
    """From another thread, which waits where the publisher is in the midst of a breath."""
    world.node.applier.apply(world.request(1, inserts=[row(key) for key in K0[:3]]))
    request = world.request(5, deletes=ids(K0[0]), inserts=[row(K0[1], "b")])
    writers = list[Thread]()
    owner, name = STEPS[step]
    original = getattr(owner, name)

    def write() -> None:
        if not writers:
            writers.append(Thread(target=world.node.applier.apply, args=[request]))
            writers[0].start()
            if step not in ("registered", "admitted"):
                writers[0].join()

    def at_this_moment(*args: Any, **kwargs: Any) -> Any:
        if not is_after:
            write()
        result = original(*args, **kwargs)
        write()
        return result

    monkeypatch.setattr(owner, name, at_this_moment)
    assert world.node.flush() == 1
    writers[0].join()
    for _ in range(2):
        assert seen(world, 4) == dict.fromkeys(K0[:3], "a")
        assert seen(world, 5) == {K0[1]: "b", K0[2]: "a"}
        world.node.flush()
    world.node.applier.apply(world.request(6, deletes=ids(*K0[:3])))
    assert seen(world, 6) == {}


@pytest.mark.hazard("I18")
def test_i18_a_file_is_admitted_between_the_two_places_where_its_rows_may_be(
    world: IngestWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.node.applier.apply(world.request(1, inserts=[row(key) for key in K0[:3]]))
    (buffer,) = world.node.buffers.all()
    buffer.seal()
    look = StreamBuffer.visibility_of

    def published_meanwhile(self: StreamBuffer, *place: int) -> Any:
        world.node.publisher.publish(self)
        return look(self, *place)

    monkeypatch.setattr(StreamBuffer, "visibility_of", published_meanwhile)
    world.node.applier.apply(world.request(5, deletes=ids(K0[0])))
    assert seen(world, 4) == dict.fromkeys(K0[:3], "a")
    assert seen(world, 5) == dict.fromkeys(K0[1:3], "a")


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_step_of_the_publisher_fails_once(
    world: IngestWorld, monkeypatch: pytest.MonkeyPatch, step: str, is_after: bool
) -> None:
    """Until it is admitted a file is tried again, its rows are read and deleted as ever; after that the node ends."""
    world.node.applier.apply(world.request(1, inserts=[row(key) for key in K0[:3]]))
    owner, name = STEPS[step]
    original = getattr(owner, name)

    def failing(*args: Any, **kwargs: Any) -> None:
        if is_after:
            original(*args, **kwargs)
        raise IndexBackendError("no disk")

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failing)
        with pytest.raises((PublishBarrierError, IndexBackendError)):
            world.node.flush()
    if step in ("registered", "admitted"):
        assert world.node.lifecycle.state is LifecycleState.FAILED
        return
    world.node.applier.apply(world.request(5, deletes=ids(K0[0]), inserts=[row(K0[1], "b"), row(K0[3], "b")]))
    for files in (0, 2):
        assert seen(world, 4) == dict.fromkeys(K0[:3], "a")
        assert seen(world, 5) == {K0[1]: "b", K0[2]: "a", K0[3]: "b"}
        assert len(world.node.registry.of(Stream(7, 0))) == files
        world.node.flush()
    rows = world.node.list_files("t")
    assert {each.type for each in rows} == {FileType.REGULAR}
    assert len(rows) == 2


def test_a_scan_goes_on_while_folding_comes_up_to_it_and_no_further(world: IngestWorld) -> None:
    world.node.applier.apply(world.request(1, inserts=[row(key) for key in (*K0[:12], *K1[:12])]))
    world.node.flush()
    world.node.applier.apply(world.request(4, deletes=ids(K0[0], K1[0])))
    world.node.applier.apply(world.request(6, deletes=ids(K0[1], K1[1])))

    def scan(meanwhile: Callable[[], None]) -> set[int]:
        schema, batches = world.node.scan(ScanRequest("t", 5))
        found = [next(batches)]
        meanwhile()
        return set(pa.Table.from_batches([*found, *batches], schema).column("id").to_pylist())

    wanted = {*K0[1:12], *K1[1:12]}
    assert scan(lambda: world.node.fold(5)) == wanted
    assert scan(lambda: None) == wanted
    with suppress(BelowBaseError):  # what was read ahead is right; what was not is refused
        assert scan(lambda: world.node.fold(6)) == wanted
    with pytest.raises(BelowBaseError):
        scan(lambda: None)


@pytest.mark.parametrize("is_flushed", [False, True], ids=["buffer", "file"])
def test_a_read_at_the_base_and_one_below_it(world: IngestWorld, is_flushed: bool) -> None:
    world.node.applier.apply(world.request(2, inserts=[row(K0[0]), row(K0[1])]))
    if is_flushed:
        world.node.flush()
    world.node.applier.apply(world.request(5, deletes=ids(K0[0])))
    world.node.fold(5)
    assert seen(world, 5) == {K0[1]: "a"}
    with pytest.raises(BelowBaseError):
        seen(world, 4)
    # At or below the base, as a replay deletes: the base takes it, and every read sees it.
    world.node.applier._applied.clear()
    world.node.applier.apply(world.request(3, deletes=ids(K0[1])))
    assert seen(world, 5) == {}


def test_rows_that_failed_have_a_place_in_the_file_and_none_in_the_index(
    world: IngestWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hull of a file covers its hidden rows, its ranges leave them out, and its marker says what its ranges are."""
    apply, index = world.node.applier.apply, world.node.index
    apply(world.request(1, inserts=[row(key) for key in K0[:3]]))
    with monkeypatch.context() as patch:
        patch.setattr(LocalIndex, "put_primary_entries_only", _fails)
        with pytest.raises(IndexBackendError):
            apply(world.request(2, inserts=[row(key, "lost") for key in K0[3:6]]))
    apply(world.request(3, inserts=[row(key) for key in K0[6:8]]))
    assert world.node.flush() == 1
    (file,) = world.node.files.get_regular_files(world.shape.path_id)
    (admitted,) = world.node.registry.of(Stream(7, 0))
    ranges = index.main.ranges_of_file(file.file_id)
    assert pq.read_metadata(pa.BufferReader(world.store.get(admitted.name).data)).num_rows == 8
    assert sum(each.count for each in ranges) == 5
    assert file.min_row_id == ranges[0].first_row_id
    assert file.max_row_id == ranges[-1].last_row_id == ranges[0].first_row_id + 7
    marker = index.main.check_marker(file.file_id)
    assert marker is not None
    assert marker.row_count == 5
    assert seen(world, 9) == dict.fromkeys([*K0[:3], *K0[6:8]], "a")


def test_a_file_of_failed_rows_alone_is_published_and_shows_nothing(
    world: IngestWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(LocalIndex, "put_main_index_entries", _fails)
        with pytest.raises(IndexBackendError):
            world.node.applier.apply(world.request(2, inserts=[row(key, "lost") for key in K0[:10]]))
    world.node.flush()
    assert seen(world, 9) == {}
    world.node.applier.apply(world.request(2, inserts=[row(key) for key in K0[:10]]))
    world.node.flush()
    assert seen(world, 9) == dict.fromkeys(K0[:10], "a")


@pytest.mark.parametrize(("before", "failing"), [(0, 1), (8, 1), (4, 2)])
def test_a_block_that_never_got_a_row_is_no_row_group(
    world: IngestWorld, monkeypatch: pytest.MonkeyPatch, before: int, failing: int
) -> None:
    """Memory ends when a block was just made for rows: in a new file, after a full block, and half way through rows."""
    append, calls = Segment.append, list[int]()

    def fails_once(self: Segment, *args: Any) -> Any:
        calls.append(len(calls) + 1)
        if calls[-1] == failing:
            raise MemoryError
        return append(self, *args)

    if before:
        world.node.applier.apply(world.request(1, inserts=[row(key) for key in K0[:before]]))
    request = world.request(2, inserts=[row(key) for key in K0[8:14]])
    with monkeypatch.context() as patch:
        patch.setattr(Segment, "append", fails_once)
        with pytest.raises(MemoryError):
            world.node.applier.apply(request)
    for _ in range(2):
        world.node.flush()
        assert seen(world, 2) == dict.fromkeys(K0[:before], "a")
    world.node.applier.apply(request)
    world.node.flush()
    assert seen(world, 2) == dict.fromkeys([*K0[:before], *K0[8:14]], "a")


@pytest.mark.hazard("I1")
def test_i1_pruning_takes_history_and_no_row(world: IngestWorld) -> None:
    apply, primary = world.node.applier.apply, world.node.index.primary
    for at in range(1, 6):
        apply(world.request(at, inserts=[row(key, str(at)) for key in K0[:4]]))
    apply(world.request(6, deletes=ids(K0[0], K0[1])))
    key = encode(world.batch(ids(K0[2]), is_keys=True), ("id",)).to_list()[0]
    assert primary.prune(7, 4) > 0
    assert [each.timestamp for each in primary.versions(7, key)] == [5, 4, 3]  # 3 ended at 4, where a replay begins
    primary.prune(7, 7)
    for at in range(1, 6):  # readers do not ask the index
        assert seen(world, at) == dict.fromkeys(K0[:4], str(at))
    apply(world.request(7, inserts=[row(K0[0], "7")], deletes=ids(K0[1], K0[2])))
    assert seen(world, 7) == {K0[0]: "7", K0[3]: "5"}
    assert seen(world, 6) == dict.fromkeys(K0[2:4], "5")


def _fails(*_: Any, **__: Any) -> None:
    raise IndexBackendError("no disk")


@pytest.mark.parametrize("part", ["deletes", "inserts", "updates"])
def test_a_full_disk_is_said_before_the_first_effect(
    world: IngestWorld, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Else a row would be gone already, and the repair would find no room either."""
    rows = [{"id": each, "v": "o"} for each in range(30)]
    world.node.applier.apply(world.request(1, inserts=rows))
    before = world.rows(9)
    parts: dict[str, Any] = {part: [{"id": each["id"]} if part == "deletes" else each for each in rows]}
    wanted = world.request(2, **parts)
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=4_096))
        with pytest.raises(IndexBackendError, match="bytes are free"):
            world.node.applier.apply(wanted)
    assert world.rows(9) == before
    assert world.node.lifecycle.failure is None
    world.node.applier.apply(wanted)
    assert bool(world.rows(2)) is (part != "deletes")
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=4_096))
    world.node.applier.apply(wanted)  # what was applied is acknowledged all the same


def test_rows_keep_nothing_alive_beside_themselves(world: IngestWorld) -> None:
    """A message may hold far more than its rows point to."""
    buffer = world.node.buffers.add(Stream(world.shape.id, 0), world.shape)
    large = pa.array(["x" * (1 << 20), "y"])
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2]), large], schema=world.shape.schema).slice(1, 1)
    assert rows.get_total_buffer_size() > 1 << 20
    buffer.append_pending(rows, 1, 0)
    [kept] = buffer.segments()[0].blocks[0]._batches
    assert kept.get_total_buffer_size() < 1 << 10


def test_a_nested_part_with_the_name_of_our_column(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            field("id", pa.int64(), 1, nullable=False),
            field("s", pa.struct([field(TIMESTAMP_COLUMN, pa.int64(), 3)]), 2),
        ]
    )
    with ingest_world(tmp_path, schema=schema) as world:
        rows = [{"id": each, "s": {TIMESTAMP_COLUMN: 77}} for each in range(9)]
        world.node.applier.apply(world.request(1, inserts=rows))
        before = world.rows(1)
        assert world.node.flush() > 0
        assert world.rows(1) == before
