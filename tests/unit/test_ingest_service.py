"""A node behind gRPC, on a real socket."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import pyarrow as pa
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from pyroaring import BitMap

from headwater.ingest import pieces
from headwater.ingest.client import NodeClient, _Patience
from headwater.ingest.lifecycle import Lifecycle
from headwater.ingest.scan.ahead import ahead
from headwater.ingest.service.failures import CallerGoneError
from headwater.ingest.service.gate import WATCHERS, Gate, TooManyCallsError
from headwater.ingest.service.ipc import bytes_of, pieces_of
from headwater.ingest.service.limits import ServiceLimits
from headwater.ingest.service.node import NodeService
from headwater.ingest.service.server import NodeServer
from headwater.kernel.errors import HeadwaterError, RefusedError, UnavailableError, UsageError
from headwater.rpc.ingest.v1 import ingest_pb2 as pb
from tests.unit.ingest_world import SCHEMA, IngestWorld, ingest_world


@dataclass
class Served:
    world: IngestWorld
    client: NodeClient
    server: NodeServer

    def message(self, timestamp: int, sequence: int = 0, **parts: Any) -> pb.UpdateRecordRequest:
        request = self.world.request(timestamp, sequence, **parts)
        return pb.UpdateRecordRequest(
            timestamp=timestamp,
            sequence=sequence,
            updates=[
                pb.TableUpdate(
                    table=each.table,
                    virtual_node=each.virtual_node,
                    key_timestamp=each.key_timestamp,
                    **{
                        part: bytes_of(batch)
                        for part in ("deletes", "inserts", "updates")
                        if (batch := getattr(each, part)) is not None
                    },
                )
                for each in request.updates
            ],
        )

    def rows(self, timestamp: int, **options: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.scan("t", timestamp, **options).read_all().to_pylist()
        return sorted(found, key=lambda row: row.get("id", 0))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with ingest_world(tmp_path) as world:
        server = NodeServer(world.node, limits=ServiceLimits(piece_bytes=1000, batch_rows=5000, request_bytes=1 << 20))
        port = server.start("127.0.0.1:0")
        try:
            with NodeClient(f"127.0.0.1:{port}") as client:
                yield Served(world, client, server)
        finally:
            server.stop(1)


def rows(count: int, value: str = "a") -> list[dict[str, Any]]:
    return [{"id": each, "v": value} for each in range(count)]


@pytest.mark.proves("ingest/write")
def test_what_is_sent_is_scanned(served: Served) -> None:
    answer = served.client.update(served.message(3, 7, inserts=rows(500)))
    assert (answer.timestamp, answer.sequence) == (3, 7)
    wanted = [row for row in rows(500) if served.world.is_here(row)]
    assert served.rows(3) == wanted
    assert served.rows(2) == []
    served.world.node.flush()
    assert served.rows(3) == wanted
    assert served.rows(3, columns=["v"]) == [{"v": "a"}] * len(wanted)
    few = served.rows(3, predicates=[pb.Predicate(column="id", comparison="<", integer=9)])
    assert few == [row for row in wanted if row["id"] < 9]


def test_requests_of_a_stream_are_answered_in_order(served: Served) -> None:
    sent = [served.message(turn, inserts=rows(3, str(turn))) for turn in range(1, 20)]
    answers = served.client.node.StreamUpdateRecord(iter(sent), timeout=30)
    assert [each.timestamp for each in answers] == list(range(1, 20))
    assert {row["v"] for row in served.rows(19)} == {"19"}


def test_the_buffer_and_the_files_are_all_of_it(served: Served) -> None:
    served.client.update(served.message(1, inserts=rows(200)))
    served.world.node.publish_full()
    found: list[int] = []
    for home in served.world.node.owned:
        answers = list(
            served.client.node.GetWriteBuffer(pb.GetWriteBufferRequest(table="t", virtual_node=home, timestamp=1))
        )
        buffered = pa.ipc.open_stream(b"".join(each.piece for each in answers)).read_all()
        found += buffered["id"].to_pylist()
        regular = {each.file_id for each in served.world.node.files.get_regular_files(served.world.shape.path_id)}
        assert not regular & set(answers[0].file_ids)
    assert found
    assert len(found) < len(served.rows(1))


def test_visibility_is_answered_as_bitmaps(served: Served) -> None:
    served.client.update(served.message(1, inserts=rows(60)))
    served.world.node.flush()
    served.client.update(served.message(5, deletes=[{"id": each} for each in range(60)]))
    files = served.world.node.files.get_regular_files(served.world.shape.path_id)
    asked = [pb.RowGroup(file_id=each.file_id, row_group=0) for each in files]
    for timestamp, is_gone in ((4, False), (5, True)):
        answer = served.client.call(
            served.client.node.QueryVisibility, pb.QueryVisibilityRequest(timestamp=timestamp, row_groups=asked)
        )
        assert all(bool(BitMap.deserialize(each.deleted)) is is_gone for each in answer.row_groups)


def test_an_offload_holds_folding_back(served: Served) -> None:
    served.client.update(served.message(1, inserts=rows(9)))
    held = served.client.call(served.client.node.RegisterOffload, pb.RegisterOffloadRequest(timestamp=1))
    assert held.lease_seconds == served.world.node.offloads.lease_seconds > 0
    served.client.update(served.message(5, deletes=[{"id": 1}, {"id": 2}]))
    served.world.node.fold(5)
    assert len(served.rows(1)) == len([row for row in rows(9) if served.world.is_here(row)])
    served.client.call(served.client.node.UnregisterOffload, pb.UnregisterOffloadRequest(offload_id=held.offload_id))
    served.world.node.fold(5)
    with pytest.raises(RefusedError, match="below 5"):
        served.rows(4)
    with pytest.raises(RefusedError, match="below 5"):
        served.client.call(served.client.node.RegisterOffload, pb.RegisterOffloadRequest(timestamp=4))


def test_status_files_and_keys_are_told(served: Served) -> None:
    key = next(row for row in rows(9) if served.world.is_here(row))
    served.client.update(served.message(1, inserts=[key]))
    served.client.update(served.message(2, 3, deletes=[{"id": key["id"]}]))
    status = served.client.call(served.client.node.GetStatus, pb.GetStatusRequest())
    assert (status.node, status.state) == ("a", pb.LIFECYCLE_STATE_READY)
    assert [(each.applied_timestamp, each.applied_sequence) for each in status.streams] == [(2, 3)]
    files = served.client.call(served.client.node.ListFiles, pb.ListFilesRequest(table="t")).files
    assert [each.type for each in files] == ["TEMPORARY_INGEST"]
    one = bytes_of(served.world.batch([{"id": key["id"]}], is_keys=True))
    found = served.client.call(served.client.node.LookUpKey, pb.LookUpKeyRequest(table="t", key=one))
    assert [(each.timestamp, each.is_tombstone) for each in found.versions] == [(2, True), (1, False)]
    assert found.versions[1].file_id == files[0].file_id


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (lambda message: message.updates[0].__setattr__("table", "x"), UsageError, "table x is unknown"),
        (lambda message: message.updates[0].__setattr__("inserts", b"no"), UsageError, "not an Arrow IPC stream"),
        (lambda message: message.updates[0].__setattr__("key_timestamp", 9), UsageError, "timestamp 9"),
        (lambda message: message.updates[0].__setattr__("virtual_node", 3), RefusedError, "virtual node 3"),
        (lambda message: message.__setattr__("topology_hash", "other"), RefusedError, "topology"),
        (lambda message: message.replay.__setattr__("checkpoint_id", "x"), UsageError, "not recovering"),
    ],
)
@pytest.mark.proves("ingest/refusals")
def test_what_is_wrong_is_said_and_not_done(
    served: Served, change: Any, error: type[HeadwaterError], says: str
) -> None:
    message = served.message(1, inserts=rows(3))
    change(message)
    with pytest.raises(error, match=says):
        served.client.update(message)
    assert served.rows(9) == []


def test_too_much_is_refused(served: Served) -> None:
    with pytest.raises(UsageError, match="5000 may be in one batch"):
        served.client.update(served.message(1, inserts=rows(30_000)))
    for size_bytes, says in ((3 << 19, "request has .* 1048576 may be"), (3 << 20, "larger than .* takes")):
        with pytest.raises(UsageError, match=says):
            served.client.update(served.message(1, inserts=[{"id": 1, "v": "x" * size_bytes}]))
    assert served.rows(9) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"columns": ["x"]}, "no column x"),
        ({"predicates": [pb.Predicate(column="x", comparison="=", integer=1)]}, "no column x"),
        ({"predicates": [pb.Predicate(column="id", comparison="~", integer=1)]}, "'~' compares nothing"),
        ({"predicates": [pb.Predicate(column="id", comparison="=", text="a")]}, "cannot be compared"),
        ({"predicates": [pb.Predicate(column="id", comparison="=")]}, "takes a literal"),
        ({"predicates": [pb.Predicate(column="id", comparison="is null", integer=1)]}, "takes no literal"),
    ],
)
def test_a_scan_that_is_wrong_is_refused(served: Served, options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        served.rows(1, **options)


def test_a_node_that_is_not_ready_answers_nothing_but_how_it_is(served: Served) -> None:
    served.world.node.lifecycle.__init__()  # type: ignore[misc]
    message = served.message(1, inserts=rows(3))
    for call in (lambda: served.client.update(message), lambda: served.rows(1)):
        with pytest.raises(RefusedError, match="recovering"):
            call()
    assert (
        served.client.call(served.client.node.GetStatus, pb.GetStatusRequest()).state == pb.LIFECYCLE_STATE_RECOVERING
    )
    with pytest.raises(RefusedError, match="not built"):
        served.client.call(served.client.node.MarkReady, pb.MarkReadyRequest())
    served.world.node.lifecycle.ready_for_tests()
    served.client.update(message)
    served.world.node.lifecycle.fail(RuntimeError("boom"))
    with pytest.raises(RefusedError, match="boom"):
        served.rows(1)
    assert served.client.call(served.client.node.GetStatus, pb.GetStatusRequest()).failure == "boom"


def test_only_tests_make_a_node_ready() -> None:
    """Until recovery is built nothing in the product may."""
    source = Path(__file__).parents[2] / "src"
    users = [path for path in source.rglob("*.py") if "ready_for_tests" in path.read_text()]
    assert [path.name for path in users] == ["lifecycle.py"]
    assert Lifecycle().state == "recovering"


def test_health_and_reflection(served: Served) -> None:
    with grpc.insecure_channel(served.client.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        asked = health_pb2.HealthCheckRequest(service="headwater.ingest.v1.IngestNode")
        assert health.Check(asked).status == health_pb2.HealthCheckResponse.SERVING
        served.world.node.lifecycle.fail(RuntimeError("boom"))
        assert health.Check(asked).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert "headwater.ingest.v1.IngestNode" in ProtoReflectionDescriptorDatabase(channel).get_services()


def test_health_follows_the_lifecycle_by_itself(served: Served) -> None:
    with grpc.insecure_channel(served.client.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        served.world.node.lifecycle.fail(RuntimeError("boom"))
        assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.NOT_SERVING


def test_a_stream_is_read_no_faster_than_it_is_applied(served: Served) -> None:
    """What is not answered yet is at most one request: a sender waits, and nothing piles up."""
    service: Any = NodeService(served.world.node, ServiceLimits())
    pulled: list[int] = []

    def sender() -> Iterator[pb.UpdateRecordRequest]:
        for turn in range(1, 9):
            pulled.append(turn)
            yield served.message(turn, inserts=rows(2))

    for answered, _ in enumerate(service.StreamUpdateRecord(sender(), Active()), 1):
        assert len(pulled) == answered


def test_the_first_refusal_ends_a_stream(served: Served) -> None:
    wrong = served.message(2, inserts=rows(3, "b"))
    wrong.updates[0].table = "x"
    sent = [served.message(1, inserts=rows(3)), wrong, served.message(3, inserts=rows(3, "c"))]
    answers = served.client.node.StreamUpdateRecord(iter(sent), timeout=30)
    assert next(answers).timestamp == 1
    with pytest.raises(grpc.RpcError) as caught:
        next(answers)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert {row["v"] for row in served.rows(9)} == {"a"}


class Active:
    """A call whose client waits for so many looks at it."""

    def __init__(self, looks: int = 1 << 30) -> None:
        self.looks = looks

    def is_active(self) -> bool:
        self.looks -= 1
        return self.looks >= 0


def test_a_scan_ends_when_nobody_waits_for_it(served: Served) -> None:
    """Also one that finds nothing, and so has nothing to send."""
    for turn in range(1, 9):
        served.client.update(served.message(turn, inserts=[{"id": turn * 10 + each, "v": "a"} for each in range(10)]))
    served.world.node.flush()
    never = pb.Predicate(column="v", comparison="=", text="never")
    request = pb.ScanRequest(table="t", timestamp=9, predicates=[never])
    service: Any = NodeService(served.world.node, ServiceLimits())
    assert list(service.Scan(request, Active()))
    waiting = Active(2)
    with pytest.raises(CallerGoneError):
        list(service.Scan(request, waiting))
    assert waiting.looks == -1


def test_nothing_begins_for_a_caller_that_is_gone(served: Served) -> None:
    service: Any = NodeService(served.world.node, ServiceLimits())
    with pytest.raises(CallerGoneError):
        service.UpdateRecord(served.message(1, inserts=rows(3)), Active(0))
    assert served.rows(1) == []


@pytest.mark.proves("ingest/refusals")
def test_too_many_calls_are_refused_at_once_and_light_ones_pass(tmp_path: Path) -> None:
    with ingest_world(tmp_path) as world:
        server = NodeServer(world.node, limits=ServiceLimits(calls=2))
        port = server.start("127.0.0.1:0")
        senders: list[SimpleQueue[pb.UpdateRecordRequest | None]] = [SimpleQueue(), SimpleQueue()]
        try:
            with NodeClient(f"127.0.0.1:{port}") as client:
                served = Served(world, client, server)
                for turn, sender in enumerate(senders, 1):
                    sender.put(served.message(turn, inserts=rows(9)))
                # The first answer of each says that the call is under way.
                opened = [client.node.StreamUpdateRecord(iter(sender.get, None)) for sender in senders]
                assert [next(each).timestamp for each in opened] == [1, 2]
                refused = served.message(9, inserts=rows(1))
                for call in (lambda: served.rows(1), lambda: client.update(refused)):
                    with pytest.raises(UnavailableError, match="2 writes and scans are under way"):
                        call()
                status = client.call(client.node.GetStatus, pb.GetStatusRequest())
                assert status.state == pb.LIFECYCLE_STATE_READY
                for sender in senders:
                    sender.put(None)
                assert [list(each) for each in opened] == [[], []]
                assert served.rows(2)
        finally:
            for sender in senders:
                # A thread that waits for the next request would keep the process from its end.
                sender.put(None)
            server.stop(0)


def test_a_call_that_is_left_gives_its_place_back() -> None:
    gate = Gate(1)

    def scan() -> Generator[int]:
        with gate.entered("/headwater.ingest.v1.IngestNode/Scan"):
            yield from range(9)

    left = scan()
    next(left)
    with pytest.raises(TooManyCallsError), gate.entered("/headwater.ingest.v1.IngestNode/Scan"):
        raise AssertionError
    with gate.entered("/headwater.ingest.v1.Timestamps/CommitTransaction"):
        pass
    left.close()
    with gate.entered("/headwater.ingest.v1.IngestNode/Scan"):
        pass


def test_the_stubs_are_those_of_the_protocol(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    made = subprocess.run(
        [root / "tools" / "protos", tmp_path],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    files = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("ingest_pb2*"))
    assert [path.name for path in files] == ["ingest_pb2.py", "ingest_pb2.pyi", "ingest_pb2_grpc.py"]
    for path in files:
        assert (tmp_path / path).read_text() == (root / "src" / path).read_text(), f"run tools/protos: {path}"


def heavy(world: IngestWorld, count: int = 200) -> list[dict[str, Any]]:
    """Rows of more bytes than are ever on their way."""
    made = [{"id": each, "v": chr(97 + each % 26) * 50_000} for each in range(count)]
    return [row for row in made if world.is_here(row)]


def test_a_reader_that_goes_away_frees_everything(tmp_path: Path) -> None:
    with ingest_world(tmp_path) as world:
        server = NodeServer(world.node, limits=ServiceLimits(calls=1, piece_bytes=1 << 16))
        port = server.start("127.0.0.1:0")
        try:
            with NodeClient(f"127.0.0.1:{port}") as client:
                world.node.applier.apply(world.request(1, inserts=heavy(world)))
                world.node.flush()
                left = client.scan("t", 1)
                assert left.read_next_batch().num_rows
                with pytest.raises(UnavailableError, match="1 writes and scans are under way"):
                    client.scan("t", 1)
                del left
                assert eventually(lambda: client.scan("t", 1).read_all().num_rows) == len(heavy(world))
                assert not [each.name for each in threading.enumerate() if each.name.startswith("scan")]
        finally:
            server.stop(0)


def eventually(call: Any) -> Any:
    """What it says as soon as the node has room for it."""
    for _ in range(10_000):
        with suppress(UnavailableError):
            return call()
    raise AssertionError("there is never room")


def test_a_thousand_calls_are_refused_at_once(tmp_path: Path) -> None:
    with ingest_world(tmp_path) as world:
        server = NodeServer(world.node, limits=ServiceLimits(calls=2))
        port = server.start("127.0.0.1:0")
        senders: list[SimpleQueue[pb.UpdateRecordRequest | None]] = [SimpleQueue(), SimpleQueue()]
        try:
            with NodeClient(f"127.0.0.1:{port}") as client:
                served = Served(world, client, server)
                opened = []
                for turn, sender in enumerate(senders, 1):
                    sender.put(served.message(turn, inserts=rows(9)))
                    opened.append(client.node.StreamUpdateRecord(iter(sender.get, None)))
                    next(opened[-1])
                before = world.rows(99)
                request = served.message(9, inserts=rows(9, "b"))
                calls = [client.node.UpdateRecord.future(request, timeout=60) for _ in range(1000)]
                assert {each.code() for each in calls} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
                assert world.rows(99) == before
                assert client.call(client.node.GetStatus, pb.GetStatusRequest()).state == pb.LIFECYCLE_STATE_READY
        finally:
            for sender in senders:
                sender.put(None)
            server.stop(0)


def test_a_node_that_sends_nothing_is_given_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def stuck(*_: Any) -> Any:
        released.wait()
        raise RefusedError("late")

    monkeypatch.setattr(served.world.node, "scan", stuck)
    try:
        with (
            NodeClient(served.client.address, timeout_seconds=0.1) as client,
            pytest.raises(UnavailableError, match=r"sent nothing for 0\.1 seconds"),
        ):
            client.scan("t", 1)
    finally:
        released.set()


def test_a_reader_may_take_longer_than_a_node() -> None:
    """The time is the node's: a reader that is busy with what it has is not cut off."""

    class Call:
        def __init__(self) -> None:
            self.ended = threading.Event()

        def cancel(self) -> None:
            self.ended.set()

    call = Call()
    patience = _Patience(call, 0.01)
    for _ in range(3):
        with patience.waiting():
            pass
    assert not call.ended.wait(0.1)
    with patience.waiting():
        assert call.ended.wait(60)
    assert patience.is_late


@pytest.mark.parametrize("most_bytes", [8, 64, 1000, 1 << 20])
def test_pieces_are_a_stream(most_bytes: int) -> None:
    """Whatever their size and that of rows; pyarrow reads them without our client."""
    batches = [
        pa.record_batch({"id": list(range(count)), "v": ["x" * width] * count}, schema=SCHEMA)
        for count, width in ((0, 0), (1, 5000), (100, 3), (3, 0))
    ]
    found = list(pieces_of(SCHEMA, batches, most_bytes))
    assert all(0 < each.nbytes <= most_bytes for each in found)
    assert pa.ipc.open_stream(b"".join(found)).read_all().equals(pa.Table.from_batches(batches))


def test_who_watches_leaves_room_for_light_calls(served: Served) -> None:
    watch: Any = health_pb2_grpc.HealthStub(served.client._channel).Watch
    watchers = [watch(health_pb2.HealthCheckRequest(), timeout=60) for _ in range(WATCHERS)]
    for each in watchers:
        next(each)
    for _ in range(50):
        with pytest.raises(grpc.RpcError) as caught:
            next(watch(health_pb2.HealthCheckRequest(), timeout=60))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    served.client.call(served.client.node.GetStatus, pb.GetStatusRequest())
    for each in watchers:
        each.cancel()


def test_small_messages_share_a_piece() -> None:
    """All of a small answer is one; of many small batches none waits for long, and an empty one lets go of all."""
    row = pa.record_batch({"id": [1], "v": ["a"]}, schema=SCHEMA)
    assert len(list(pieces_of(SCHEMA, [row, row], 1 << 20))) == 1
    assert 3 <= len(list(pieces_of(SCHEMA, [row] * 20, 1 << 20))) <= 5
    taken = pieces_of(SCHEMA, iter([row, row.slice(0, 0), row]), 1 << 20)
    heard = pa.ipc.open_stream(bytes(next(taken)) + b"\xff\xff\xff\xff\x00\x00\x00\x00").read_all()
    assert heard.num_rows == 1
    assert len(list(taken)) == 1


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 1 << 21])
def test_a_piece_is_a_message(size: int) -> None:
    """The bytes are those of protobuf, which is asked both ways."""
    piece = bytes(range(256)) * (size // 256 + 1)
    message = pieces.written(memoryview(piece)[:size])
    assert pb.ScanResponse.FromString(message).piece == piece[:size]
    assert pieces.read(pb.ScanResponse(piece=piece[:size]).SerializeToString()) == piece[:size]
    # A field of a later version.
    assert pieces.read(message + b"\x10\x01") == piece[:size]


def test_what_is_made_ahead_is_bounded() -> None:
    made: list[int] = []

    def make(number: int) -> int:
        made.append(number)
        return number

    found = ahead(make, range(100), 3)
    for taken in range(5):
        assert next(found) == taken
        assert len(made) <= taken + 1 + 3
    found.close()
    assert len(made) <= 8
    assert list(ahead(make, [], 3)) == []
    with pytest.raises(ZeroDivisionError):
        list(ahead(lambda each: 1 // each, [1, 0, 1], 2))
