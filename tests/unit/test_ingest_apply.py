"""Requests on a node: what they do, what they refuse, and what is true after any step of them has failed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headwater.ingest.apply import protocol
from headwater.ingest.apply.model import (
    BackInTimeError,
    BadRequestError,
    TableUpdate,
    UpdateRequest,
    WrongNodeError,
)
from headwater.ingest.buffer.stream import StreamBuffer
from headwater.ingest.index import IndexBackendError
from headwater.ingest.keys import encode
from headwater.ingest.lifecycle import NodeFailedError
from headwater.ingest.model import Position, Stream
from headwater.ingest.visibility import delete_rows
from headwater.ingest.visibility.model import BelowBaseError
from tests.unit.ingest_world import SCHEMA, IngestWorld, field, ingest_world

KEYS = st.integers(0, 14)
ROWS = st.fixed_dictionaries({"id": KEYS, "v": st.one_of(st.none(), st.text(max_size=3))})


@pytest.fixture
def world(tmp_path: Path) -> Iterator[IngestWorld]:
    with ingest_world(tmp_path) as made:
        yield made


def row(number: int, value: str | None = "a") -> dict[str, Any]:
    return {"id": number, "v": value}


class Model(RuleBasedStateMachine):
    """The node beside a dictionary of versions: of each key, what it was from which timestamp on."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.world = IngestWorld(Path(self._folder.name))
        self.versions: dict[int, list[tuple[int, dict[str, Any] | None]]] = {}
        self.now = 0
        self.sequence = 0
        self.base = 0
        self.last: UpdateRequest | None = None

    def teardown(self) -> None:
        self.world.close()
        self._folder.cleanup()

    def at(self, timestamp: int) -> list[dict[str, Any]]:
        found = []
        for key in sorted(self.versions):
            seen = [value for since, value in self.versions[key] if since <= timestamp]
            if seen and seen[-1] is not None:
                found.append(seen[-1])
        return found

    def note(self, key: int, value: dict[str, Any] | None) -> None:
        if self.world.is_here({"id": key}):
            self.versions.setdefault(key, []).append((self.now, value))

    @initialize()
    def begin(self) -> None:
        self.now = 1

    @rule(
        deletes=st.lists(KEYS, max_size=5),
        inserts=st.lists(ROWS, max_size=9),
        steps=st.integers(0, 2),
    )
    def replace(self, deletes: list[int], inserts: list[dict[str, Any]], steps: int) -> None:
        self.now, self.sequence = (self.now + steps, 0) if steps else (self.now, self.sequence + 1)
        self.last = self.world.request(
            self.now, self.sequence, deletes=[{"id": key} for key in deletes], inserts=inserts
        )
        self.world.node.applier.apply(self.last)
        for key in deletes:
            self.note(key, None)
        for each in inserts:
            self.note(each["id"], each)

    @rule(updates=st.lists(ROWS, max_size=5))
    def update(self, updates: list[dict[str, Any]]) -> None:
        self.now, self.sequence = self.now + 1, 0
        self.last = self.world.request(self.now, updates=updates)
        self.world.node.applier.apply(self.last)
        for each in updates:
            self.note(each["id"], each)

    @rule()
    def send_again(self) -> None:
        if self.last is not None:
            self.world.node.applier.apply(self.last)

    @rule()
    def flush(self) -> None:
        self.world.node.flush()

    @rule()
    def publish_full(self) -> None:
        self.world.node.publish_full()

    @rule(share=st.floats(0, 1))
    def fold(self, share: float) -> None:
        self.base = max(self.base, int(self.now * share))
        self.world.node.fold(self.base)

    @rule(share=st.floats(0, 1))
    def read(self, share: float) -> None:
        timestamp = self.base + round((self.now - self.base) * share)
        assert self.world.rows(timestamp) == self.at(timestamp)

    @invariant()
    def the_newest_is_right(self) -> None:
        assert self.world.rows(self.now) == self.at(self.now)


Model.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestModel = Model.TestCase


def test_a_replace_is_a_delete_and_an_insert_at_one_timestamp(world: IngestWorld) -> None:
    apply = world.node.applier.apply
    apply(world.request(1, inserts=[row(1), row(2)]))
    apply(world.request(5, deletes=[{"id": 1}, {"id": 2}], inserts=[row(1, "b")]))
    assert [world.rows(at) for at in (0, 1, 4, 5)] == [[], [row(1), row(2)], [row(1), row(2)], [row(1, "b")]]


def test_a_key_that_only_ends_beside_one_that_begins(world: IngestWorld) -> None:
    """As many keys end as begin, in one stream: they are not taken for replaces."""
    keys = world.batch([{"id": each} for each in range(1, 50)], is_keys=True)
    homes = world.topology.virtual_nodes_of(encode(keys, ("id",)))
    one, other = (np.flatnonzero(homes == 0)[:2] + 1).tolist()
    world.node.applier.apply(world.request(1, inserts=[row(one)]))
    world.node.applier.apply(world.request(2, deletes=[{"id": one}], inserts=[row(other)]))
    assert world.rows(2) == [row(other)]


@pytest.mark.hazard("I10")
def test_what_was_applied_is_acknowledged_without_effect(world: IngestWorld) -> None:
    apply = world.node.applier.apply
    one, other = [key for key in range(60) if home(world, key) == 0][:2]  # of one stream
    first, second = world.request(3, 0, inserts=[row(one)]), world.request(3, 1, inserts=[row(other)])
    apply(first)
    apply(second)  # the second request of a large transaction
    apply(world.request(4, 0, deletes=[{"id": one}]))
    for again in (first, second):
        apply(again)
    assert world.rows(9) == [row(other)]
    assert sum(each.buffered_rows for each in world.node.streams()) == 2


def test_a_key_never_goes_back_in_time(world: IngestWorld) -> None:
    world.node.applier.apply(world.request(5, inserts=[row(1)]))
    world.node.applier._applied.clear()  # as after a restart: the index remembers more than the positions
    with pytest.raises(BackInTimeError, match="changed at 5, after 4"):
        world.node.applier.apply(world.request(4, inserts=[row(1, "old")]))
    assert world.rows(9) == [row(1)]


STEPS = {
    "delete": ["resolve_primary", "visibility", "tombstone_primary_resolved"],
    "insert": ["allocate", "append", "put_main_index_entries", "put_primary_entries_only"],
    "replace": [
        "resolve_primary",
        "visibility",
        "allocate",
        "append",
        "put_main_index_entries",
        "put_primary_entries_only",
    ],
    "update": [
        "resolve_primary",
        "allocate",
        "append",
        "put_main_index_entries",
        "visibility",
        "update_primary_resolved",
    ],
}


def asked(world: IngestWorld, order: str) -> UpdateRequest:
    match order:
        case "delete":
            return world.request(5, deletes=[{"id": 1}, {"id": 2}])
        case "insert":
            return world.request(5, inserts=[row(8, "n"), row(9, "n")])
        case "replace":
            return world.request(5, deletes=[{"id": 1}, {"id": 2}], inserts=[row(1, "n"), row(2, "n")])
    return world.request(5, updates=[row(1, "n"), row(2, "n")])


class Faults:
    """Lets the calls of one step fail, from now on for so many times."""

    def __init__(self, world: IngestWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self._world, self._monkeypatch = world, monkeypatch

    def arm(self, step: str, times: int, *, is_after: bool = False) -> None:
        left = [times]

        def failing(original: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                if left[0] > 0:
                    left[0] -= 1
                    if is_after:
                        original(*args, **kwargs)
                    raise IndexBackendError(f"{step} fails")
                return original(*args, **kwargs)

            return call

        if step == "visibility":
            self._monkeypatch.setattr(protocol, "delete_rows", failing(delete_rows))
        elif step == "append":
            self._monkeypatch.setattr(StreamBuffer, "append_pending", failing(StreamBuffer.append_pending))
        else:
            index = type(self._world.node.index)
            self._monkeypatch.setattr(index, step, failing(getattr(index, step)))


def truths(world: IngestWorld, timestamp: int) -> dict[int, tuple[str | None, ...]]:
    """What readers, the index and files say of each key; they must all say the same."""
    seen = {each["id"]: each["v"] for each in world.rows(timestamp)}
    found: dict[int, tuple[str | None, ...]] = {}
    for key in (1, 2, 3, 8, 9):
        if not world.is_here(row(key)):
            continue
        update = world.request(1, deletes=[{"id": key}]).updates[0]
        buffer = world.node.buffers.add(Stream(7, update.virtual_node), world.shape)
        resolved = world.node.index.resolve_primary(7, encode(update.deletes, ("id",)), buffer.visible_files)
        found[key] = (seen.get(key), "there" if resolved.is_found[0] else None)
    return found


@pytest.mark.parametrize(
    ("order", "step", "is_after"),
    [
        (order, step, is_after)
        for order, steps in STEPS.items()
        for step in steps
        for is_after in (False, True)
        if not (is_after and step == "append")  # it is in memory: an answer of it cannot be lost
    ],
)
@pytest.mark.proves("ingest/write")
def test_a_step_that_fails_leaves_rows_there_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, step: str, is_after: bool
) -> None:
    """`after`: the step was done, and its answer was lost."""
    with ingest_world(tmp_path) as world:
        world.node.applier.apply(world.request(1, inserts=[row(each, "o") for each in (1, 2, 3)]))
        request = asked(world, order)
        Faults(world, monkeypatch).arm(step, 1, is_after=is_after)
        with pytest.raises(IndexBackendError):
            world.node.applier.apply(request)
        monkeypatch.undo()
        for _ in range(2):
            for key, (seen, indexed) in truths(world, 5).items():
                assert (seen is None) == (indexed is None), key
                assert seen in {None, "o"}, key
            assert [each for each in world.rows(4) if each["id"] < 4] == [
                row(each, "o") for each in (1, 2, 3) if world.is_here(row(each))
            ]
            world.node.flush()  # and the same from files
        world.node.applier.apply(request)  # sent again, it is whole
        wanted = {"delete": {}, "insert": {8: "n", 9: "n"}}.get(order, {1: "n", 2: "n"})
        kept = {3: "o"} | ({1: "o", 2: "o"} if order == "insert" else {})
        whole = {key: value for key, value in (kept | wanted).items() if world.is_here(row(key))}
        assert {each["id"]: each["v"] for each in world.rows(5)} == whole
        assert {key for key, (_, indexed) in truths(world, 5).items() if indexed} == set(whole)


@pytest.mark.parametrize(("order", "step"), [(order, step) for order, steps in STEPS.items() for step in steps])
def test_what_cannot_be_undone_stops_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, step: str
) -> None:
    """The step fails for ever. Either nothing had been done, or the node takes nothing more."""
    with ingest_world(tmp_path) as world:
        world.node.applier.apply(world.request(1, inserts=[row(each, "o") for each in (1, 2, 3)]))
        before = truths(world, 5)
        Faults(world, monkeypatch).arm(step, 1000)
        with pytest.raises((IndexBackendError, NodeFailedError)):
            world.node.applier.apply(asked(world, order))
        monkeypatch.undo()
        if world.node.lifecycle.failure is None:
            after = truths(world, 5)
            assert all((seen is None) == (indexed is None) for seen, indexed in after.values())
            assert step not in {"resolve_primary"} or after == before
        else:
            with pytest.raises(NodeFailedError):
                world.node.applier.apply(world.request(6, inserts=[row(30)]))


def test_of_one_key_only_its_last_row_counts(world: IngestWorld) -> None:
    world.node.applier.apply(world.request(1, inserts=[row(1, "a"), row(1, "b"), row(1, "c")]))
    assert world.rows(1) == [row(1, "c")]
    assert sum(each.buffered_rows for each in world.node.streams()) == 1


def wrong(**parts: Any) -> TableUpdate:
    usual: dict[str, Any] = {"table": "t", "virtual_node": 0, "key_timestamp": 5}
    return TableUpdate(**usual | parts)


def batch(columns: dict[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize(
    ("update", "error", "says"),
    [
        (wrong(table="other"), BadRequestError, "table other is unknown"),
        (wrong(key_timestamp=4), BadRequestError, "timestamp 4"),
        (wrong(virtual_node=3), WrongNodeError, "virtual node 3"),
        (wrong(virtual_node=99), BadRequestError, "virtual node 99"),
        (wrong(inserts=batch({"id": pa.array([1])})), BadRequestError, "column v of t is missing"),
        (
            wrong(inserts=batch({"id": pa.array([1]), "v": pa.array(["a"]), "x": pa.array([1])})),
            BadRequestError,
            "no column x",
        ),
        (wrong(inserts=batch({"id": pa.array([1], pa.int32()), "v": pa.array(["a"])})), BadRequestError, "int32"),
        (
            wrong(inserts=batch({"id": pa.array([None], pa.int64()), "v": pa.array(["a"])})),
            BadRequestError,
            "null in row 0",
        ),
        (wrong(deletes=batch({"v": pa.array(["a"])})), BadRequestError, "no column v"),
    ],
)
@pytest.mark.proves("ingest/refusals")
def test_a_request_that_is_wrong_has_no_effect(
    world: IngestWorld, update: TableUpdate, error: type[Exception], says: str
) -> None:
    good = world.request(5, inserts=[row(1)]).updates[0]
    other = next(each for each in (0, 1, 2) if each != good.virtual_node)
    if update.virtual_node == good.virtual_node:
        update = wrong(
            **{name: getattr(update, name) for name in ("table", "key_timestamp", "deletes", "inserts")}
            | {"virtual_node": other}
        )
    with pytest.raises(error, match=says):
        world.node.applier.apply(UpdateRequest(Position(5, 0), (good, update)))
    assert world.rows(9) == []
    assert world.node.streams() == []


def test_a_row_of_another_virtual_node_is_refused(world: IngestWorld) -> None:
    good = world.request(5, inserts=[row(1)]).updates[0]
    moved = TableUpdate("t", (good.virtual_node + 1) % 3, 5, inserts=good.inserts)
    with pytest.raises(BadRequestError, match=f"belongs to virtual node {good.virtual_node}"):
        world.node.applier.apply(UpdateRequest(Position(5, 0), (moved,)))
    with pytest.raises(BadRequestError, match="twice"):
        world.node.applier.apply(UpdateRequest(Position(5, 0), (good, good)))
    with pytest.raises(BadRequestError, match="above 0"):
        world.node.applier.apply(UpdateRequest(Position(0, 0), ()))


def test_empty_batches_do_nothing(world: IngestWorld) -> None:
    empty = pa.RecordBatch.from_pylist([], schema=SCHEMA)
    world.node.applier.apply(UpdateRequest(Position(1, 0), (TableUpdate("t", 0, 1, inserts=empty),)))
    assert world.rows(1) == []
    assert world.node.flush() == 0


def test_a_read_below_the_base_is_refused(world: IngestWorld) -> None:
    world.node.applier.apply(world.request(1, inserts=[row(1)]))
    world.node.applier.apply(world.request(5, deletes=[{"id": 1}]))
    world.node.flush()
    world.node.fold(5)
    with pytest.raises(BelowBaseError):
        world.rows(4)
    assert world.rows(5) == []


@pytest.mark.proves("ingest/write")
def test_clients_side_by_side(tmp_path: Path) -> None:
    """Three writers with a stream each, a reader, and a publisher: at each timestamp a writer's keys are one state."""
    with ingest_world(tmp_path, block_rows=64) as world:
        keys = {each: [key for key in range(60) if home(world, key) == each] for each in (0, 1, 2)}
        world.node.start()

        def writes(client: int) -> None:
            for turn in range(1, 26):
                rows = [row(key, str(turn)) for key in keys[client]]
                world.node.applier.apply(world.request(turn * 3 + client, inserts=rows))

        with ThreadPoolExecutor(3) as pool:
            done = [pool.submit(writes, client) for client in keys]
            while not all(each.done() for each in done):
                found = [each["id"] for each in world.rows(10_000)]
                assert len(found) == len(set(found))
            for each in done:
                each.result()
        world.node.flush()
        for turn in (1, 12, 25):
            wanted = [row(key, str(turn)) for key in sorted(each for client in keys.values() for each in client)]
            assert world.rows(turn * 3 + 2) == wanted
        world.node.stop()


def home(world: IngestWorld, key: int) -> int | None:
    updates = world.request(1, deletes=[{"id": key}]).updates
    return updates[0].virtual_node if updates else None


@pytest.mark.parametrize("mask", [None, pa.array([True])])
def test_a_required_part_of_a_nested_value_is_not_null(tmp_path: Path, mask: pa.Array | None) -> None:
    inner = pa.struct([field("x", pa.int64(), 3, nullable=False)])
    schema = pa.schema([field("id", pa.int64(), 1, nullable=False), field("s", inner, 2)])
    with ingest_world(tmp_path, schema=schema) as world:
        key = next(each for each in range(64) if world.is_here({"id": each}))
        part = pa.StructArray.from_arrays([pa.array([None], pa.int64())], fields=list(inner), mask=mask)
        rows = pa.RecordBatch.from_arrays([pa.array([key], pa.int64()), part], schema=schema)
        home = int(world.topology.virtual_nodes_of(encode(rows, ("id",)))[0])
        with pytest.raises(BadRequestError, match="a required part of column s"):
            world.node.applier.apply(UpdateRequest(Position(1, 0), (TableUpdate("t", home, 1, inserts=rows),)))
        assert (world.node.flush(), world.rows(1)) == (0, [])
