"""Every call of every order fails, before it took effect or after; then every call of the repair does, too.

What is true then is asked of readers, of the index, and of the files themselves with their deletions. They must agree,
and the same request, sent again, must make it whole; or the node has failed, and answers nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, cast

import grpc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap

from headwater.ingest.apply import protocol
from headwater.ingest.apply.model import UpdateRequest
from headwater.ingest.buffer.stream import Outcome, StreamBuffer
from headwater.ingest.index import IndexBackendError
from headwater.ingest.index.local import LocalIndex
from headwater.ingest.keys import encode
from headwater.ingest.lifecycle import NodeFailedError, NotReadyError
from headwater.ingest.model import TIMESTAMP_COLUMN, Stream
from headwater.ingest.service.limits import ServiceLimits
from headwater.ingest.service.node import NodeService
from headwater.ingest.topology import Topology
from headwater.ingest.visibility import delete_rows
from headwater.rpc.ingest.v1 import ingest_pb2 as pb
from tests.unit.ingest_world import TOPOLOGY, IngestWorld, ingest_world

INDEX_CALLS = (
    "allocate",
    "resolve_primary",
    "put_main_index_entries",
    "put_primary_entries_only",
    "tombstone_primary_resolved",
    "update_primary_resolved",
    "delete_main_index_range",
)
NEW = ["allocate", "append", "put_main_index_entries"]
# The calls of each order, as the head of apply has them. All keys are resolved first, of the other parts for nothing.
RESOLVE = ["resolve_primary"] * 3
ORDERS = {
    "delete": [*RESOLVE, "visibility", "tombstone_primary_resolved"],
    "insert": [*RESOLVE, *NEW, "put_primary_entries_only", "visible"],
    "replace": [*RESOLVE, "visibility", *NEW, "put_primary_entries_only", "visible"],
    "update": [*RESOLVE, *NEW, "visibility", "update_primary_resolved", "visible"],
}
# One after the other in one request: what the first part did stays done when the second fails.
TOGETHER = {
    "parts": [*ORDERS["delete"], *ORDERS["replace"][3:], *ORDERS["update"][3:]],
    "streams": [*RESOLVE, *RESOLVE, *ORDERS["replace"][3:] * 2],
}
OLD, NOW = 1, 5


class LostError(IndexBackendError):
    """What is injected."""


@dataclass
class Calls:
    """Notes the calls that an order makes, and lets some of them fail: by number, before or after they took effect."""

    faults: dict[int, bool] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)
    between: Callable[[], None] = lambda: None
    is_terminal: bool = False

    def around(self, name: str | Callable[..., str], original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.between()
            number = len(self.made)
            self.made.append(name if isinstance(name, str) else name(*args))
            if number not in self.faults:
                return original(*args, **kwargs)
            if self.faults[number]:
                original(*args, **kwargs)
            raise LostError(f"call {number}, {self.made[-1]}, fails")

        return call

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Within the block every call passes here."""
        with pytest.MonkeyPatch.context() as patch:
            for name in INDEX_CALLS:
                patch.setattr(LocalIndex, name, self.around(name, getattr(LocalIndex, name)))
            patch.setattr(protocol, "delete_rows", self.around("visibility", delete_rows))
            patch.setattr(StreamBuffer, "append_pending", self.around("append", StreamBuffer.append_pending))
            publish = StreamBuffer.publish_pending_append
            patch.setattr(
                StreamBuffer,
                "publish_pending_append",
                self.around(lambda _buffer, _handle, outcome: cast(Outcome, outcome).value, publish),
            )
            yield


@cache
def keys_of_stream(virtual_node: int) -> list[int]:
    """Some keys of table t that live there."""
    keys = pa.RecordBatch.from_pydict({"id": pa.array(range(60), pa.int64())})
    homes = Topology.parse(TOPOLOGY).virtual_nodes_of(encode(keys, ("id",))).tolist()
    return [key for key, home in enumerate(homes) if home == virtual_node]


class Case:
    """A node with old rows, some in a file and some not, and a request of one order; of two streams if it says so."""

    def __init__(self, world: IngestWorld, order: str) -> None:
        self.world = world
        mine, others = keys_of_stream(0), keys_of_stream(1)
        touched = {"insert": mine[6:8], "streams": [*mine[:2], *others[:2]]}.get(order, mine[:4])
        self.homes = {0: mine[:8], 1: others[:3]} if order == "streams" else {0: mine[:8]}
        self.old = {key: "o" for keys in self.homes.values() for key in keys if key not in mine[6:8]}
        rows = [{"id": key, "v": "o"} for key in self.old]
        world.node.applier.apply(world.request(OLD, 0, inserts=rows[::2]))
        world.node.flush()
        world.node.applier.apply(world.request(OLD, 1, inserts=rows[1::2]))
        self.request = _request(world, order, touched)
        self.new = {} if order == "delete" else dict.fromkeys(touched[2:] if order == "parts" else touched, "n")
        self.whole = {key: value for key, value in self.old.items() if key not in touched} | self.new
        # Of a single part nothing new is seen unless it is whole.
        self.allowed = [self.old, self.new] if order in TOGETHER else [self.old]

    def readers(self, timestamp: int) -> dict[int, str]:
        found = self.world.rows(timestamp)
        assert len(found) == len({each["id"] for each in found})
        return {each["id"]: each["v"] for each in found}

    def index(self) -> set[int]:
        """Which keys the index finds."""
        found = set[int]()
        for home, keys in self.homes.items():
            batch = self.world.batch([{"id": key} for key in keys], is_keys=True)
            buffer = self.world.node.buffers.add(Stream(7, home), self.world.shape)
            resolved = self.world.node.index.resolve_primary(7, encode(batch, ("id",)), buffer.visible_files)
            found |= {key for key, is_found in zip(keys, resolved.is_found.tolist(), strict=True) if is_found}
        return found

    def files(self, timestamp: int) -> dict[int, str]:
        """The rows of the files without those that are deleted, as an engine reads them."""
        node, found = self.world.node, list[tuple[int, str]]()
        for file in [each for home in self.homes for each in node.registry.of(Stream(7, home))]:
            parquet = pq.ParquetFile(pa.BufferReader(self.world.store.get(file.name).data))
            groups = range(parquet.num_row_groups)
            deleted = node.query_visibility(timestamp, [(file.file_id, group) for group in groups])
            for group, (_, bitmap) in zip(groups, deleted, strict=True):
                gone = BitMap.deserialize(bitmap)
                for place, row in enumerate(parquet.read_row_group(group).to_pylist()):
                    if place not in gone and row[TIMESTAMP_COLUMN] <= timestamp:
                        found.append((row["id"], row["v"]))
        assert len(found) == len(dict(found))
        return dict(found)

    def is_readable(self) -> None:
        """Whoever reads in the midst of it sees the past as it was, and at this timestamp single effects."""
        assert self.readers(NOW - 1) == self.old
        seen = self.readers(NOW).items()
        assert seen <= self.old.items() | self.new.items()

    def is_half_there(self) -> None:
        """All agree on which rows are there: each key has its old row or none, and the past is as it was."""
        seen = self.readers(NOW)
        assert all(any(each.get(key) == value for each in self.allowed) for key, value in seen.items())
        assert seen.keys() == self.index()
        assert self.readers(NOW - 1) == self.old
        self.world.node.flush()
        assert self.readers(NOW) == self.files(NOW) == seen
        assert self.readers(NOW - 1) == self.files(NOW - 1) == self.old
        assert seen.keys() == self.index()

    def is_whole(self) -> None:
        for _ in range(2):
            assert self.readers(NOW) == self.whole
            assert self.index() == self.whole.keys()
            assert self.readers(NOW - 1) == self.old
            self.world.node.flush()
        assert self.files(NOW) == self.whole

    def is_shut(self) -> None:
        """The node takes nothing, answers nothing and publishes nothing."""
        node = self.world.node
        before = node.files.get_regular_files(self.world.shape.path_id)
        for attempt in (lambda: node.applier.apply(self.request), node.flush, node.publish_full):
            with pytest.raises(NodeFailedError):
                attempt()
        assert node.files.get_regular_files(self.world.shape.path_id) == before
        service, nobody = NodeService(node, ServiceLimits()), cast(grpc.ServicerContext, None)
        with pytest.raises(NotReadyError):
            next(service.Scan(pb.ScanRequest(table="t", timestamp=NOW), nobody))
        with pytest.raises(NotReadyError):
            next(service.GetWriteBuffer(pb.GetWriteBufferRequest(table="t", timestamp=NOW), nobody))


def _request(world: IngestWorld, order: str, touched: list[int]) -> UpdateRequest:
    new, keys = [{"id": key, "v": "n"} for key in touched], [{"id": key} for key in touched]
    match order:
        case "delete":
            return world.request(NOW, deletes=keys)
        case "insert":
            return world.request(NOW, inserts=new)
        case "update":
            return world.request(NOW, updates=new)
        case "parts":
            return world.request(NOW, deletes=keys[:3], inserts=new[2:3], updates=new[3:])
    return world.request(NOW, deletes=keys, inserts=new)


def run(folder: Path, order: str, faults: dict[int, bool], *, is_watched: bool = False) -> Calls:
    """The order with these faults, then everything that must be true; and what readers see between its calls."""
    calls = Calls(faults)
    folder.mkdir()
    with ingest_world(folder) as world:
        case = Case(world, order)
        if is_watched:
            calls.between = case.is_readable
        with calls.watched():
            if not faults:
                world.node.applier.apply(case.request)
            else:
                with pytest.raises((LostError, NodeFailedError)):
                    world.node.applier.apply(case.request)
        if world.node.lifecycle.failure is not None:
            case.is_shut()
            calls.is_terminal = True
            return calls
        if faults:
            case.is_half_there()
            world.node.applier.apply(case.request)
        case.is_whole()
    return calls


def test_the_orders_are_those_that_apply_names(tmp_path: Path) -> None:
    for order, wanted in (ORDERS | TOGETHER).items():
        assert run(tmp_path / order, order, {}, is_watched=True).made == wanted


def _steps(orders: dict[str, list[str]]) -> list[Any]:
    return [
        pytest.param(order, number, id=f"{order}-{number}-{name}")
        for order, names in orders.items()
        for number, name in enumerate(names)
        if number == 0 or name != names[number - 1]
    ]


def _is_in_memory(name: str) -> bool:
    """Nothing can come between its effect and its answer."""
    return name == "append"


@pytest.mark.parametrize(("order", "number"), _steps(ORDERS))
@pytest.mark.proves("ingest/write")
def test_a_call_fails_and_then_each_call_of_its_repair(tmp_path: Path, order: str, number: int) -> None:
    folders = (tmp_path / str(place) for place in range(1000))
    for is_after in (False, True):
        if is_after and _is_in_memory(ORDERS[order][number]):
            continue
        first = run(next(folders), order, {number: is_after})
        repair = [] if first.is_terminal else first.made[number + 1 :]
        for place, is_second_after in product(range(len(repair)), (False, True)):
            run(next(folders), order, {number: is_after, number + 1 + place: is_second_after})


@pytest.mark.parametrize(("order", "number"), _steps(TOGETHER))
def test_a_call_fails_after_another_part_was_done(tmp_path: Path, order: str, number: int) -> None:
    run(tmp_path / "before", order, {number: False}, is_watched=True)
    if not _is_in_memory(TOGETHER[order][number]):
        run(tmp_path / "after", order, {number: True}, is_watched=True)
