"""Whatever is sent to a node: the right status and reason, no effect at all, and never an error that nobody foresaw."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pytest
from grpc import StatusCode

from headwater.ingest.client import NodeClient
from headwater.ingest.keys import encode
from headwater.ingest.service.ipc import bytes_of
from headwater.ingest.service.limits import ServiceLimits
from headwater.ingest.service.server import NodeServer
from headwater.rpc.ingest.v1 import ingest_pb2 as pb
from tests.unit.ingest_world import IngestWorld, field, ingest_world

SCHEMA = pa.schema(
    [
        field("id", pa.int64(), 1, nullable=False),
        field("v", pa.string(), 2),
        field("l", pa.list_(field("element", pa.int64(), 4)), 3),
        field("d", pa.float64(), 5),
        field("n", pa.decimal128(9, 2), 6),
        field("u", pa.uuid(), 7),
        field("day", pa.date32(), 8),
        field("at", pa.timestamp("us", tz="UTC"), 9),
        field("b", pa.bool_(), 10),
        field("raw", pa.large_binary(), 11),
        field("t", pa.time64("us"), 12),
        field("ns", pa.timestamp("ns"), 13),
    ]
)
BATCH_ROWS = 50
REQUEST_BYTES = 1 << 18
HUGE = (1 << 64) - 1
INVALID, FAILED = StatusCode.INVALID_ARGUMENT, StatusCode.FAILED_PRECONDITION


@dataclass
class Served:
    """A node that holds one row at timestamp 10, in a file; bases are at 15."""

    world: IngestWorld
    client: NodeClient
    key: int
    home: int
    file_id: int

    @property
    def row(self) -> pa.RecordBatch:
        return self.world.batch([{"id": self.key, "v": "x"}])

    def update(self, **changes: Any) -> pb.TableUpdate:
        return pb.TableUpdate(**{"table": "t", "virtual_node": self.home, "key_timestamp": 20, **changes})

    def send(self, *updates: pb.TableUpdate, **changes: Any) -> Any:
        request = pb.UpdateRecordRequest(**{"timestamp": 20, "updates": updates, **changes})
        return self.client.node.UpdateRecord(request, timeout=30)

    def scan(self, **changes: Any) -> pa.Table:
        request = pb.ScanRequest(**{"table": "t", "timestamp": 20, **changes})
        answers = list(self.client.node.Scan(request, timeout=30))
        return pa.ipc.open_stream(b"".join(each.piece for each in answers)).read_all()

    def buffered(self, **changes: Any) -> Any:
        request = pb.GetWriteBufferRequest(**{"table": "t", "virtual_node": self.home, "timestamp": 20, **changes})
        return list(self.client.node.GetWriteBuffer(request, timeout=30))

    def state(self) -> tuple[Any, ...]:
        """All that a request could have changed."""
        node = self.world.node
        keys = encode(self.world.batch([{"id": self.key}], is_keys=True), ("id",))
        files = tuple((each.file_id, each.type) for each in node.list_files("t"))
        return self.world.rows(1 << 60), node.versions("t", keys), files, tuple(node.streams())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One for all: nothing here has an effect."""
    with ingest_world(tmp_path_factory.mktemp("node"), schema=SCHEMA) as world:
        limits = ServiceLimits(batch_rows=BATCH_ROWS, request_bytes=REQUEST_BYTES)
        server = NodeServer(world.node, limits=limits)
        port = server.start("127.0.0.1:0")
        key = next(each for each in range(64) if world.is_here({"id": each}))
        home = int(world.topology.virtual_nodes_of(encode(world.batch([{"id": key}], is_keys=True), ("id",)))[0])
        try:
            with NodeClient(f"127.0.0.1:{port}") as client:
                found = Served(world, client, key, home, 0)
                found.send(found.update(inserts=bytes_of(found.row), key_timestamp=10), timestamp=10)
                world.node.flush()
                found.file_id = world.node.files.get_regular_files(world.shape.path_id)[0].file_id
                world.node.fold(15)
                yield found
        finally:
            server.stop(0)


def refused(served: Served, call: Callable[[], Any], code: StatusCode, says: str) -> None:
    before = served.state()
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert (caught.value.code(), says in (caught.value.details() or "")) == (code, True), caught.value.details()
    assert served.state() == before
    assert served.world.node.lifecycle.failure is None


def with_column(name: str, made: Callable[[pa.Array], pa.Array]) -> Callable[[Served], bytes]:
    """The good row, but with this column."""

    def bytes_with(served: Served) -> bytes:
        row = served.row
        arrays = [
            made(column) if each == name else column for each, column in zip(SCHEMA.names, row.columns, strict=True)
        ]
        return bytes_of(pa.RecordBatch.from_arrays(arrays, names=SCHEMA.names))

    return bytes_with


def with_more(name: str) -> Callable[[Served], bytes]:
    """The good row, and one more column."""
    return lambda served: bytes_of(
        pa.RecordBatch.from_arrays([*served.row.columns, served.row.column(0)], names=[*SCHEMA.names, name])
    )


def as_file(served: Served) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_batch(served.row)
    return bytes(sink.getvalue())


def squeezed(rows: int, batches: int = 1) -> Callable[[Served], bytes]:
    """Few bytes that unfold to many."""

    def made(_: Served) -> bytes:
        batch = pa.RecordBatch.from_arrays([pa.array(np.zeros(rows, np.int64))], names=["id"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            for _turn in range(batches):
                writer.write_batch(batch)
        return bytes(sink.getvalue())

    return made


def misnamed(served: Served) -> bytes:
    """A name that is no UTF-8."""
    return bytes_of(pa.RecordBatch.from_arrays([pa.array([1])], names=["kéy"])).replace("é".encode(), b"\xff\xff")


NOT_IPC = "are not an Arrow IPC stream"
BATCHES: dict[str, tuple[Callable[[Served], bytes], str]] = {
    "half of a stream": (lambda served: bytes_of(served.row)[:900], NOT_IPC),
    "a stream without its last bytes": (lambda served: bytes_of(served.row)[:-9], NOT_IPC),
    "garbage": (lambda _: b"\xff" * 100, NOT_IPC),
    "zeros": (lambda _: b"\0" * 64, NOT_IPC),
    "text": (lambda _: b"select 1", NOT_IPC),
    "a file of Arrow": (as_file, NOT_IPC),
    "a name that is no text": (misnamed, NOT_IPC),
    "text that is no text": (
        with_column("v", lambda _: pa.array([b"\xff\xfe"]).view(pa.string())),
        "Invalid UTF8",
    ),
    "a dictionary": (
        with_column("v", lambda each: each.dictionary_encode()),
        "v of t is string, and inserts bring dict",
    ),
    "runs": (with_column("v", lambda _: pa.RunEndEncodedArray.from_arrays([1], ["a"])), "bring run_end_encoded"),
    "a union of nothing": (
        lambda _: bytes_of(
            pa.RecordBatch.from_arrays(
                [pa.UnionArray.from_dense(pa.array([], pa.int8()), pa.array([], pa.int32()), [pa.array([1])])],
                names=["v"],
            )
        ),
        NOT_IPC,
    ),
    "no type": (with_column("v", lambda _: pa.nulls(1)), "inserts bring null"),
    "another list": (with_column("l", lambda _: pa.array([["a"]])), "inserts bring list<item: string>"),
    "another decimal": (with_column("n", lambda _: pa.nulls(1, pa.decimal128(10, 2))), "decimal128(10, 2)"),
    "bytes for a UUID": (with_column("u", lambda _: pa.nulls(1, pa.binary(16))), "fixed_size_binary[16]"),
    "another unit": (with_column("at", lambda _: pa.nulls(1, pa.timestamp("ms", tz="UTC"))), "timestamp[ms"),
    "another zone": (with_column("at", lambda _: pa.nulls(1, pa.timestamp("us"))), "bring timestamp[us]"),
    "a short key": (with_column("id", lambda each: each.cast(pa.int32())), "inserts bring int32"),
    "a key that is null": (with_column("id", lambda _: pa.nulls(1, pa.int64())), "id of t is null in row 0"),
    "a column twice": (with_more("id"), "a column of t is in inserts twice"),
    "a column too many": (with_more("more"), "t has no column more"),
    "the hidden column": (with_more("_headwater_commit_ts"), "t has no column _headwater_commit_ts"),
    "a column too few": (lambda served: bytes_of(served.row.select(SCHEMA.names[:-1])), "column ns of t is missing"),
    "no key": (lambda served: bytes_of(served.row.select(SCHEMA.names[1:])), "column id of t is missing"),
    "no columns": (lambda _: bytes_of(pa.RecordBatch.from_arrays([], names=[])), "column id of t is missing"),
    "too many rows": (squeezed(BATCH_ROWS + 1), f"51 rows, and {BATCH_ROWS} may be in one batch"),
    "too many rows in batches": (squeezed(BATCH_ROWS - 1, 2), f"98 rows, and {BATCH_ROWS} may be in one batch"),
    "a billion rows in a few bytes": (squeezed(1 << 22), "4194304 rows"),
}


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.proves("ingest/refusals")
def test_a_batch_that_is_wrong(served: Served, name: str) -> None:
    made, says = BATCHES[name]
    refused(served, lambda: served.send(served.update(inserts=made(served))), INVALID, says)


def test_what_unfolds_to_more_than_a_request_may_have(served: Served) -> None:
    """Before it is unfolded: it may be more than the node's memory."""
    text = pa.RecordBatch.from_arrays([pa.array(["x" * (REQUEST_BYTES + 1)])], names=["v"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, text.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(text)
    data = bytes(sink.getvalue())
    assert len(data) < 10_000
    refused(served, lambda: served.send(served.update(inserts=data)), INVALID, "may be in one request")


def test_parts_unfold_together(served: Served) -> None:
    """Each of them is within the limit, all of them are not."""
    part = squeezed(BATCH_ROWS)(served)
    count = REQUEST_BYTES // (8 * BATCH_ROWS) + 1
    assert count * len(part) < REQUEST_BYTES
    refused(served, lambda: served.send(*[served.update(inserts=part)] * count), INVALID, "all parts together")


def test_views_of_the_same_text(served: Served) -> None:
    """Each becomes a text of its own."""
    text = b"x" * (REQUEST_BYTES // 40)
    view = struct.pack("<i4sii", len(text), text[:4], 0, 0)
    views = pa.Array.from_buffers(
        pa.string_view(), BATCH_ROWS, [None, pa.py_buffer(view * BATCH_ROWS), pa.py_buffer(text)]
    )
    data = bytes_of(pa.RecordBatch.from_arrays([views], names=["v"]))
    assert len(data) < REQUEST_BYTES
    refused(served, lambda: served.send(served.update(inserts=data)), INVALID, "all parts together")
    for hidden in (
        pa.array([["x"]], pa.list_(pa.string_view())),
        pa.array(["x"], pa.string_view()).dictionary_encode(),
    ):
        data = bytes_of(pa.RecordBatch.from_arrays([hidden], names=["v"]))
        update = served.update(inserts=data)
        refused(served, partial(served.send, update), INVALID, "v of inserts of t is")


def test_a_length_below_nothing(served: Served) -> None:
    """It would make up for another that is too large."""
    message = bytearray(bytes_of(pa.RecordBatch.from_arrays([pa.array([bytes(4096)], pa.binary(4096))], names=["v"])))
    place = message.find(struct.pack("<qq", 0, 4096))
    assert place > 0
    message[place + 8 : place + 16] = struct.pack("<q", -(64 << 20))
    refused(served, lambda: served.send(served.update(inserts=bytes(message))), INVALID, "is negative")


def test_marks_of_an_old_version(served: Served) -> None:
    """Compression was one of them."""
    options = pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("v", pa.string())]), options=options) as writer:
        writer.write_batch(pa.record_batch({"v": ["x"]}), custom_metadata={"ARROW:experimental_compression": "zstd"})
    data = bytes(sink.getvalue())
    refused(served, lambda: served.send(served.update(inserts=data)), INVALID, "marks of its own")


def test_a_long_name_is_told_of_all_the_same(served: Served) -> None:
    """What is said of it is cut: gRPC would say RESOURCE_EXHAUSTED of it, and a feeder send it for ever."""
    for name in ("x" * 20_000, "я" * 9_000):
        refused(served, partial(served.scan, columns=[name]), INVALID, "t has no column")
        refused(served, partial(served.send, served.update(table=name)), INVALID, "table ")


def test_bytes_that_were_changed_on_the_way(served: Served) -> None:
    """Each is refused, or is a batch like any other; none is more than the node can bear."""
    chance, whole = np.random.default_rng(7), bytes_of(served.row)
    for _ in range(300):
        data = bytearray(whole)
        for place in chance.integers(0, len(data), 3):
            data[place] = chance.integers(0, 256)
        # Of another virtual node, so that also a good one has no effect.
        update = served.update(inserts=bytes(data), virtual_node=3)
        with pytest.raises(grpc.RpcError) as caught:
            served.send(update)
        assert caught.value.code() in (INVALID, FAILED), caught.value.details()


REQUESTS: dict[str, tuple[Callable[[Served], Any], StatusCode, str]] = {
    "an unknown table": (lambda s: s.send(s.update(table="x", inserts=bytes_of(s.row))), INVALID, "table x is unknown"),
    "no table": (lambda s: s.send(s.update(table="", inserts=bytes_of(s.row))), INVALID, "is unknown"),
    "another timestamp of keys": (
        lambda s: s.send(s.update(inserts=bytes_of(s.row), key_timestamp=21)),
        INVALID,
        "keys of t say timestamp 21, the request 20",
    ),
    "timestamp 0": (lambda s: s.send(s.update(key_timestamp=0), timestamp=0), INVALID, "0 is no timestamp"),
    "a timestamp beyond": (
        lambda s: s.send(s.update(key_timestamp=1 << 63), timestamp=1 << 63),
        INVALID,
        "is no timestamp",
    ),
    "a virtual node of another": (
        lambda s: s.send(s.update(inserts=bytes_of(s.row), virtual_node=3)),
        FAILED,
        "virtual node 3 lives on",
    ),
    "a virtual node that is none": (
        lambda s: s.send(s.update(virtual_node=1 << 31)),
        INVALID,
        "virtual node 2147483648",
    ),
    "a row of another virtual node": (
        lambda s: s.send(s.update(inserts=bytes_of(s.row), virtual_node=(s.home + 1) % 3)),
        INVALID,
        "row 0 of t belongs to virtual node",
    ),
    "one that is wrong after one that is right": (
        lambda s: s.send(s.update(inserts=bytes_of(s.row)), s.update(table="x")),
        INVALID,
        "table x is unknown",
    ),
    "the same stream twice": (
        lambda s: s.send(s.update(inserts=bytes_of(s.row)), s.update(inserts=bytes_of(s.row))),
        INVALID,
        "is in the request twice",
    ),
    "deletes that are rows": (
        lambda s: s.send(s.update(deletes=bytes_of(s.row))),
        INVALID,
        "t has no column v (deletes)",
    ),
    "another topology": (lambda s: s.send(s.update(), topology_hash="x"), FAILED, "runs with topology"),
    "a replay of an unknown kind": (
        lambda s: s.send(s.update(), replay=pb.ReplayContext(mode=77)),  # type: ignore[arg-type]
        INVALID,
        "the node is not recovering",
    ),
    "a request that is too large": (
        lambda s: s.send(s.update(inserts=b"x" * (REQUEST_BYTES + 1))),
        INVALID,
        f"{REQUEST_BYTES} may be in one",
    ),
    "one that is far too large": (
        lambda s: s.send(s.update(inserts=b"x" * (3 * REQUEST_BYTES))),
        StatusCode.RESOURCE_EXHAUSTED,
        "larger than max",
    ),
    "one that unfolds": (
        lambda s: s.client.node.UpdateRecord(
            pb.UpdateRecordRequest(timestamp=20, updates=[s.update(inserts=b"\0" * (3 * REQUEST_BYTES))]),
            timeout=30,
            compression=grpc.Compression.Gzip,
        ),
        StatusCode.RESOURCE_EXHAUSTED,
        "larger than max",
    ),
    "too late": (
        lambda s: s.client.node.UpdateRecord(
            pb.UpdateRecordRequest(timestamp=20, updates=[s.update(inserts=bytes_of(s.row))]), timeout=-1
        ),
        StatusCode.DEADLINE_EXCEEDED,
        "",
    ),
    "a scan of an unknown table": (lambda s: s.scan(table="x"), INVALID, "table x is unknown"),
    "a scan of a future that never comes": (lambda s: s.scan(timestamp=HUGE), INVALID, "no timestamp to read at"),
    "a scan below the base": (lambda s: s.scan(timestamp=14), FAILED, "a read at 14 is below 15"),
    "a column twice in a scan": (lambda s: s.scan(columns=["id", "id"]), INVALID, "asked for twice"),
    "the hidden column in a scan": (lambda s: s.scan(columns=["_headwater_commit_ts"]), INVALID, "has no column"),
    "a column without a name": (lambda s: s.scan(columns=[""]), INVALID, "has no column"),
    "a virtual node of another in a scan": (lambda s: s.scan(virtual_nodes=[3]), FAILED, "virtual node 3 lives on b"),
    "no virtual node in a scan": (lambda s: s.scan(virtual_nodes=[9]), INVALID, "there is no virtual node 9"),
    "another topology in a scan": (lambda s: s.scan(topology_hash="x"), FAILED, "runs with topology"),
    "predicates without an end": (
        lambda s: s.scan(predicates=[pb.Predicate(column="id", comparison=">=", integer=-each) for each in range(150)]),
        INVALID,
        "150 predicates were given, and 100 may be",
    ),
    "a predicate on an unknown column": (
        lambda s: s.scan(predicates=[pb.Predicate(column="x", comparison="=", integer=1)]),
        INVALID,
        "t has no column x",
    ),
    "visibility of an unknown file": (
        lambda s: s.client.node.QueryVisibility(visibility(20, 999, 0)),
        INVALID,
        "file 999 is not in the visibility index",
    ),
    "visibility of a file beyond": (
        lambda s: s.client.node.QueryVisibility(visibility(20, HUGE, 0)),
        INVALID,
        "is not in the visibility index",
    ),
    "visibility of no row group": (
        lambda s: s.client.node.QueryVisibility(visibility(20, s.file_id, (1 << 32) - 1)),
        INVALID,
        "has no row group 4294967295",
    ),
    "visibility below the base": (
        lambda s: s.client.node.QueryVisibility(visibility(14, s.file_id, 0)),
        FAILED,
        "a read at 14 is below 15",
    ),
    "visibility of the future": (
        lambda s: s.client.node.QueryVisibility(visibility(HUGE, s.file_id, 0)),
        INVALID,
        "no timestamp to read at",
    ),
    "a buffer of an unknown table": (lambda s: s.buffered(table="x"), INVALID, "table x is unknown"),
    "a buffer of another node": (lambda s: s.buffered(virtual_node=3), FAILED, "virtual node 3 lives on b"),
    "a buffer of no virtual node": (lambda s: s.buffered(virtual_node=9), INVALID, "there is no virtual node 9"),
    "a buffer of the future": (lambda s: s.buffered(timestamp=HUGE), INVALID, "no timestamp to read at"),
    "a new buffer of an unknown table": (
        lambda s: s.client.node.AddWriteBuffer(pb.AddWriteBufferRequest(table="x")),
        INVALID,
        "table x is unknown",
    ),
    "a new buffer of another node": (
        lambda s: s.client.node.AddWriteBuffer(pb.AddWriteBufferRequest(table="t", virtual_node=3)),
        FAILED,
        "virtual node 3 lives on b",
    ),
    "an offload below the base": (
        lambda s: s.client.node.RegisterOffload(pb.RegisterOffloadRequest(timestamp=14)),
        FAILED,
        "a read at 14 is below 15",
    ),
    "an offload of the future": (
        lambda s: s.client.node.RegisterOffload(pb.RegisterOffloadRequest(timestamp=HUGE)),
        INVALID,
        "no timestamp to read at",
    ),
    "visibility for an unknown file": (
        lambda s: s.client.node.AddVisibility(pb.AddVisibilityRequest(file_id=HUGE)),
        INVALID,
        "is not in the visibility index",
    ),
    "files of an unknown table": (
        lambda s: s.client.node.ListFiles(pb.ListFilesRequest(table="x")),
        INVALID,
        "table x is unknown",
    ),
    "no key to look up": (lambda s: look_up(s), INVALID, "one key is looked up at a time"),
    "a key that is garbage": (lambda s: look_up(s, key=b"xx"), INVALID, NOT_IPC),
    "two keys": (lambda s: look_up(s, key=keys_of(pa.array([1, 2]))), INVALID, "2 rows, and 1 may be in one batch"),
    "a key of another type": (lambda s: look_up(s, key=keys_of(pa.array(["1"]))), INVALID, "of type int64"),
    "a key of a shorter type": (lambda s: look_up(s, key=keys_of(pa.array([1], pa.int32()))), INVALID, "of type int64"),
    "a key of another column": (lambda s: look_up(s, key=keys_of(pa.array([1]), "v")), INVALID, "not one column id"),
    "a key that is null to look up": (lambda s: look_up(s, key=keys_of(pa.nulls(1, pa.int64()))), INVALID, "null"),
    "a key that is no number": (lambda s: look_up(s, texts=["9" * 20]), INVALID, "is no int64 for id"),
    "ready before recovery is built": (lambda s: s.client.node.MarkReady(pb.MarkReadyRequest()), FAILED, "not built"),
    "where to replay from": (
        lambda s: s.client.node.GetRecoveryReplayTs(pb.GetRecoveryReplayTsRequest(mode=99)),  # type: ignore[arg-type]
        FAILED,
        "not built",
    ),
}


def visibility(timestamp: int, file_id: int, row_group: int) -> pb.QueryVisibilityRequest:
    return pb.QueryVisibilityRequest(
        timestamp=timestamp, row_groups=[pb.RowGroup(file_id=file_id, row_group=row_group)]
    )


def keys_of(values: pa.Array, name: str = "id") -> bytes:
    return bytes_of(pa.RecordBatch.from_arrays([values], names=[name]))


def look_up(served: Served, **parts: Any) -> Any:
    return served.client.node.LookUpKey(pb.LookUpKeyRequest(table="t", **parts), timeout=30)


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.proves("ingest/refusals")
def test_a_request_that_is_wrong(served: Served, name: str) -> None:
    call, code, says = REQUESTS[name]
    refused(served, lambda: call(served), code, says)


@pytest.mark.parametrize("name", ["UpdateRecord", "QueryVisibility", "GetStatus", "LookUpKey"])
def test_bytes_that_are_no_message(served: Served, name: str) -> None:
    with grpc.insecure_channel(served.client.address) as channel:
        call: Any = channel.unary_unary(f"/headwater.ingest.v1.IngestNode/{name}", None, None)
        refused(served, lambda: call(b"\xff\xff\xff\xff\x01", timeout=30), INVALID, "no message of this call")


@pytest.mark.parametrize("name", ["Scan", "StreamUpdateRecord"])
def test_bytes_that_are_no_message_of_a_stream(served: Served, name: str) -> None:
    with grpc.insecure_channel(served.client.address) as channel:
        call: Any = channel.stream_stream(f"/headwater.ingest.v1.IngestNode/{name}", None, None)
        refused(
            served, lambda: list(call(iter([b"\xff\xff\xff\xff\x01"]), timeout=30)), INVALID, "no message of this call"
        )


LITERALS: list[dict[str, Any]] = [
    {"boolean": True},
    {"integer": 5},
    {"integer": -(1 << 63)},
    {"integer": (1 << 63) - 1},
    {"real": 1.5},
    {"real": 1e308},
    {"real": float("nan")},
    {"text": "12"},
    {"text": "2026-01-31"},
    {"text": "x" * 1000},
    {"binary": b""},
    {"binary": b"\xff\x00"},
]


def ended(call: Callable[[], object]) -> tuple[StatusCode, str] | None:
    """How it was refused, if it was."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code(), error.details() or ""
    return None


@pytest.mark.parametrize("column", SCHEMA.names)
def test_any_literal_is_compared_or_refused(served: Served, column: str) -> None:
    ends = [
        ended(partial(served.scan, predicates=[pb.Predicate(column=column, comparison=comparison, **literal)]))
        for comparison in ("=", "!=", "<", ">=")
        for literal in LITERALS
    ]
    assert all(said is None or (said[0] is INVALID and "cannot be compared" in said[1]) for said in ends), ends
    found = [
        served.scan(predicates=[pb.Predicate(column=column, comparison=each)]).num_rows
        for each in ("is null", "is not null")
    ]
    assert sum(found) == 1


def test_what_is_odd_and_right(tmp_path: Path) -> None:
    with ingest_world(tmp_path) as world:
        server = NodeServer(world.node)
        port = server.start("127.0.0.1:0")
        try:
            with NodeClient(f"127.0.0.1:{port}") as client:
                row = next({"id": each, "v": "x"} for each in range(64) if world.is_here({"id": each}))
                (update,) = world.request(1, inserts=[row]).updates
                assert update.inserts is not None
                as_text = [update.inserts["v"].cast(each) for each in (pa.large_string(), pa.string_view())]
                no_batches = pa.BufferOutputStream()
                pa.ipc.new_stream(no_batches, update.inserts.schema).close()
                for timestamp, inserts in enumerate(
                    (
                        b"",
                        bytes(no_batches.getvalue()),
                        bytes_of(update.inserts.slice(0, 0)),
                        bytes_of(update.inserts.select(["v", "id"])),
                        *(bytes_of(update.inserts.set_column(1, "v", each)) for each in as_text),
                    ),
                    1,
                ):
                    sent = pb.TableUpdate(
                        table="t", virtual_node=update.virtual_node, key_timestamp=timestamp, inserts=inserts
                    )
                    client.update(pb.UpdateRecordRequest(timestamp=timestamp, updates=[sent]))
                    assert world.rows(timestamp) == ([row] if timestamp >= 4 else [])
                client.update(pb.UpdateRecordRequest(timestamp=9))
                assert list(client.node.StreamUpdateRecord(iter([]), timeout=30)) == []
        finally:
            server.stop(0)
