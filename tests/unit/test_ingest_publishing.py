"""What happens to a node's files and readers when a step of publishing fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.ingest.buffer.model import PublishBarrierError
from headwater.ingest.buffer.registry import RegistryError
from headwater.ingest.client import NodeClient
from headwater.ingest.lifecycle import Lifecycle, LifecycleState
from headwater.ingest.service.server import NodeServer
from headwater.ingest.visibility import RowGroupVisibility
from headwater.ingest.visibility.model import NotAdmittedError
from headwater.kernel.errors import HeadwaterError, UnavailableError
from headwater.rpc.ingest.v1 import ingest_pb2 as pb
from headwater.storage.port import Create
from tests.unit.ingest_world import IngestWorld, ingest_world
from tests.unit.test_ingest_buffer import STREAM, World

WATCHED = ("put", "flush_primary", "flush_file", "publish_regular")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[IngestWorld]:
    with ingest_world(tmp_path) as made:
        yield made


def rows(*keys: int) -> list[dict[str, Any]]:
    return [{"id": key, "v": str(key)} for key in keys]


def here(world: IngestWorld, *keys: int) -> list[dict[str, Any]]:
    return [row for row in rows(*keys) if world.is_here(row)]


def test_a_file_that_cannot_be_closed_holds_only_later_ones_back() -> None:
    """The older file becomes REGULAR however long the younger one fails; the youngest waits for it."""
    buffered = World()
    buffered.append(*range(25))
    first, second, third = buffered.buffer.sealed()
    buffered.store.put(second.name, b"not ours", Create())
    for _ in range(2):
        with pytest.raises(PublishBarrierError, match=r"data/2\.parquet could not be closed"):
            buffered.publisher.publish(buffered.buffer)
        assert [each.file_id for each in buffered.registry.of(STREAM)] == [first.file_id]
    assert not third.state.metadata_regular
    buffered.store.delete(second.name)
    assert buffered.publisher.publish(buffered.buffer) == 2
    assert [file for step, file in buffered.events if step == "regular"] == [1, 2, 3]
    assert buffered.seen() == list(range(25))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda data: data[:-1], "bytes, and"),
        (lambda data: data[:-12] + bytes([data[-12] ^ 1]) + data[-11:], "the footer of"),
        (lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:], "the rows of"),
    ],
    ids=["length", "footer", "rows"],
)
def test_a_file_that_was_not_kept_as_it_was_written_is_not_regular(
    spoil: Callable[[bytes], bytes], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffered = World()
    buffered.append(*range(9))
    put = buffered.store.put
    monkeypatch.setattr(buffered.store, "put", lambda name, data, mode: put(name, spoil(data), mode))
    with pytest.raises(PublishBarrierError, match=says):
        buffered.publisher.publish(buffered.buffer)
    assert buffered.events == []
    assert buffered.seen() == list(range(9))


@pytest.mark.hazard("I18")
def test_between_any_two_steps_each_row_is_seen_once_and_a_delete_is_kept(
    world: IngestWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each step of publishing a row is deleted, and all that is left is read."""
    left, deleted = here(world, *range(60)), list[tuple[int, dict[str, Any]]]()
    world.node.applier.apply(world.request(1, inserts=left))
    steps: list[str] = []

    def looks(step: str) -> None:
        steps.append(step)
        timestamp, gone = 10 + len(deleted), left.pop(0)
        world.node.applier.apply(world.request(timestamp, deletes=[{"id": gone["id"]}]))
        deleted.append((timestamp, gone))
        assert world.rows(timestamp) == left, step
        assert world.rows(timestamp - 1) == [gone, *left], step

    def watched(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def step(*args: Any, **kw: Any) -> Any:
            looks(f"before {name}")
            done = real(*args, **kw)
            looks(f"after {name}")
            return done

        monkeypatch.setattr(owner, name, step)

    class Index:
        def flush_primary(self) -> None:
            world.node.index.flush_primary()

        def flush_file(self, file_id: int) -> None:
            world.node.index.flush_file(file_id)

    index = Index()
    monkeypatch.setattr(world.node.publisher, "_index", index)
    for owner, name in (
        (world.store, "put"),
        (index, "flush_primary"),
        (index, "flush_file"),
        (world.node.files, "publish_regular"),
    ):
        watched(owner, name)
    stream = world.node.buffers.all()[0]
    with world.node.applier.turn(stream.stream):
        stream.seal()
    assert world.node.publisher.publish(stream) >= 1
    monkeypatch.undo()
    assert set(steps) == {f"{when} {name}" for when in ("before", "after") for name in WATCHED}
    for timestamp, _ in deleted:
        assert world.rows(timestamp) == [row for at, row in deleted if at > timestamp] + left
    world.node.flush()
    assert world.rows(deleted[-1][0]) == left


def test_one_stream_that_cannot_be_published_holds_no_other_back(
    world: IngestWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.node.applier.apply(world.request(1, inserts=rows(*range(40))))
    poor = world.node.buffers.all()[0]

    class Index:
        def flush_primary(self) -> None:
            world.node.index.flush_primary()

        def flush_file(self, file_id: int) -> None:
            if file_id in {each.file_id for each in poor.segments()}:
                raise UnavailableError("the disk is full")
            world.node.index.flush_file(file_id)

    monkeypatch.setattr(world.node.publisher, "_index", Index())
    for publish in (world.node.flush, world.node.publish_full):
        with pytest.raises(PublishBarrierError, match="the disk is full"):
            publish()
    assert [buffer.stream for buffer in world.node.buffers.all() if buffer.segments()] == [poor.stream]
    assert world.rows(1) == here(world, *range(40))
    monkeypatch.undo()
    assert world.node.flush() >= 1
    assert world.rows(1) == here(world, *range(40))


def test_folding_goes_on_while_a_file_cannot_be_published(world: IngestWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.node.applier.apply(world.request(1, inserts=rows(*range(20))))
    folded = threading.Event()

    def fails(*_: object) -> int:
        raise PublishBarrierError("a file could not be closed")

    monkeypatch.setattr(world.node.publisher, "publish", fails)
    monkeypatch.setattr(world.node, "_flush_seconds", 0.0)
    monkeypatch.setattr(world.node, "fold", lambda up_to: folded.set())
    world.node.start(lambda: 1)
    try:
        assert folded.wait(10)
    finally:
        world.node.stop()


@pytest.mark.proves("ingest/buffer")
def test_a_store_that_is_away_is_asked_less_and_less(world: IngestWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is tried again is encoded again."""
    pauses: list[float] = []
    fails = iter([True] * 8 + [False] * 2)

    class Stop:
        def wait(self, seconds: float) -> bool:
            pauses.append(seconds)
            return len(pauses) == 10

    def publish(*_: object) -> int:
        if next(fails):
            raise PublishBarrierError("the store is away")
        return 0

    monkeypatch.setattr(world.node, "_stop", Stop())
    monkeypatch.setattr(world.node.publisher, "publish", publish)
    world.node._publish_for_ever()
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 0.1]


def test_a_reader_never_sees_a_half_admitted_file(world: IngestWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is registered, its visibility is not taken, and its blocks are still there: the node has failed."""
    world.node.applier.apply(world.request(1, inserts=rows(*range(20))))
    outcomes: list[object] = []

    def reads() -> None:
        try:
            outcomes.append(world.rows(1))
        except HeadwaterError as error:
            outcomes.append(error)

    reader = threading.Thread(target=reads)

    def admits(*_: object) -> None:
        reader.start()  # its view comes when this one is over
        raise RuntimeError("no memory")

    monkeypatch.setattr(world.node.visibility, "admit", admits)
    with pytest.raises(RuntimeError):
        world.node.flush()
    reader.join()
    assert [type(each) for each in outcomes] == [RegistryError]
    assert world.node.lifecycle.state is LifecycleState.FAILED


def test_a_stranger_in_the_visibility_index_stops_the_node(world: IngestWorld) -> None:
    world.node.visibility.admit(99, [RowGroupVisibility(8)])
    with pytest.raises(RegistryError, match="99"):
        world.rows(1)
    assert world.node.lifecycle.state is LifecycleState.FAILED


def test_to_ask_for_a_file_that_is_not_there_is_the_callers_mistake(world: IngestWorld) -> None:
    for ask in (lambda: world.node.query_visibility(1, [(99, 0)]), lambda: world.node.refuse_not_admitted(99)):
        with pytest.raises(NotAdmittedError, match="99"):
            ask()
    assert world.node.lifecycle.state is LifecycleState.READY


def test_whoever_watches_hears_the_last_word_last() -> None:
    """READY is told, and before its watcher has acted on it the node fails: the watcher ends with FAILED."""
    lifecycle, said = Lifecycle(), list[LifecycleState]()
    reached, other = threading.Event(), threading.Thread(target=lambda: lifecycle.fail(RuntimeError("broken")))

    def hears() -> None:
        state = lifecycle.state
        if state is LifecycleState.READY and not reached.is_set():
            reached.set()
            other.start()
            other.join(0.2)
        said.append(state)

    lifecycle.watch(hears)
    lifecycle.ready_for_tests()
    other.join()
    assert said == [LifecycleState.RECOVERING, LifecycleState.READY, LifecycleState.FAILED]


def test_a_node_that_stops_waits_for_what_was_begun(world: IngestWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The grace is over and the caller is gone; the index may not be closed under a request that is being applied."""
    before = set(threading.enumerate())
    server = NodeServer(world.node)
    port = server.start("127.0.0.1:0")
    begun, released, stopped = threading.Event(), threading.Event(), threading.Event()

    def applies(_: object) -> None:
        begun.set()
        assert released.wait(20)
        assert not stopped.is_set()

    def stops() -> None:
        server.stop(0)
        stopped.set()

    monkeypatch.setattr(world.node.applier, "apply", applies)
    with NodeClient(f"127.0.0.1:{port}") as client:
        answer = client.node.UpdateRecord.future(pb.UpdateRecordRequest(timestamp=1))
        assert begun.wait(10)
        stopping = threading.Thread(target=stops)
        stopping.start()
        assert answer.exception(10) is not None, "the caller is told that nobody answers"
        assert not stopped.wait(0.2)
        released.set()
        stopping.join(10)
    assert stopped.is_set()
    assert {each for each in threading.enumerate() if each.name.startswith("calls of")} <= before
