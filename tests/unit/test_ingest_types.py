"""Every type through the socket and back: before a flush, after it, and beside what was sent."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from headwater.ingest.apply.model import TableUpdate, UpdateRequest
from headwater.ingest.client import NodeClient
from headwater.ingest.keys import encode
from headwater.ingest.model import TIMESTAMP_COLUMN, Position, Stream
from headwater.ingest.opening import Surroundings, shape_of
from headwater.ingest.scan.model import Comparison, Predicate, ScanRequest
from headwater.ingest.service.ipc import bytes_of
from headwater.ingest.service.server import NodeServer
from headwater.kernel.errors import RefusedError, UsageError
from headwater.rpc.ingest.v1 import ingest_pb2 as pb
from tests.unit.ingest_values import KEY_TYPES, MEBIBYTE, VALUES, bits, column, rows, schema
from tests.unit.ingest_world import IngestWorld, ingest_world


@contextmanager
def client_of(world: IngestWorld) -> Iterator[NodeClient]:
    """The node behind a socket."""
    server = NodeServer(world.node)
    port = server.start("127.0.0.1:0")
    try:
        with NodeClient(f"127.0.0.1:{port}") as client:
            yield client
    finally:
        server.stop(0)


def sent(world: IngestWorld, client: NodeClient, timestamp: int, part: str, batch: pa.RecordBatch) -> pa.Table:
    """Send what lives here, and say what that was."""
    homes = world.topology.virtual_nodes_of(encode(batch, world.shape.key))
    updates, kept = [], []
    for home in sorted(world.node.owned):
        mine = batch.filter(pa.array(homes == home))
        kept.append(mine)
        updates.append(pb.TableUpdate(table="t", virtual_node=home, key_timestamp=timestamp, **{part: bytes_of(mine)}))
    client.update(pb.UpdateRecordRequest(timestamp=timestamp, updates=updates))
    return pa.Table.from_batches(kept, batch.schema).sort_by("id")


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.proves("ingest/types")
def test_a_type_comes_back_as_it_was_sent(name: str, tmp_path: Path) -> None:
    made = schema(name)
    with ingest_world(tmp_path, schema=made) as world, client_of(world) as client:
        wanted = sent(world, client, 1, "inserts", rows(made, 24))
        assert wanted.num_rows > 6
        for _ in range(2):
            found = client.scan("t", 1).read_all()
            assert found.schema.with_metadata(None).equals(made, check_metadata=True)
            assert bits(found.sort_by("id")).equals(bits(wanted))
            world.node.flush()
        assert world.node.files.get_regular_files(world.shape.path_id)


@pytest.mark.parametrize("name", KEY_TYPES)
def test_a_composite_key_of_each_type_is_replaced_and_ended(name: str, tmp_path: Path) -> None:
    key = (f"c_{name}", "id")
    made = schema(name, key=key)
    values = VALUES[name][1][:2] * 6
    ids = pa.array([each // 2 for each in range(12)])
    batch = pa.RecordBatch.from_arrays([ids, column(values, made.field(key[0]).type)], schema=made)
    with ingest_world(tmp_path, schema=made, key=key) as world, client_of(world) as client:
        wanted = sent(world, client, 1, "inserts", batch)
        world.node.flush()
        sent(world, client, 2, "updates", batch)
        assert client.scan("t", 2).read_all().num_rows == wanted.num_rows > 0
        sent(world, client, 3, "deletes", batch.select(list(key)))
        assert client.scan("t", 3).read_all().num_rows == 0
        assert client.scan("t", 2).read_all().num_rows == wanted.num_rows


def test_all_types_in_one_row_and_an_empty_batch(tmp_path: Path) -> None:
    made = schema(*VALUES)
    with ingest_world(tmp_path, schema=made) as world, client_of(world) as client:
        assert sent(world, client, 1, "inserts", rows(made, 0)).num_rows == 0
        assert client.scan("t", 1).read_all().schema.equals(made)
        wanted = sent(world, client, 2, "inserts", rows(made, 9))
        sent(world, client, 3, "deletes", rows(made, 0).select(["id"]))
        world.node.flush()
        assert bits(client.scan("t", 3).read_all().sort_by("id")).equals(bits(wanted))


def test_many_small_appends_of_all_types_are_as_they_were_sent(tmp_path: Path) -> None:
    """A block puts them together as they come, under readers of any timestamp."""
    made = schema(*(name for name in VALUES if name not in ("string", "binary")))
    with ingest_world(tmp_path, schema=made, block_rows=128) as world:
        batch = rows(made, 320)
        homes = world.topology.virtual_nodes_of(encode(batch, ("id",)))
        mine = batch.filter(pa.array(homes == 0)).slice(0, 70)
        assert mine.num_rows == 70
        for place in range(70):
            world.node.applier.apply(_request(world, mine.slice(place, 1), place + 1))
        for _ in range(2):
            for at in (1, 63, 64, 65, 66, 70):
                found, batches = world.node.scan(ScanRequest("t", at))
                whole = pa.Table.from_batches([mine.slice(0, at)])
                assert bits(pa.Table.from_batches(batches, found).sort_by("id")).equals(bits(whole))
            world.node.flush()


def test_keys_of_a_mebibyte_and_of_nothing(tmp_path: Path) -> None:
    """A tree of the index takes 511 bytes of a key: longer ones are found by their digest, and told apart by it."""
    key = ("c_string",)
    made = schema("string", key=key)
    long = "x" * MEBIBYTE
    texts = ["", "\0", long, long + "y", "y" + long, "x" * 128, "x" * 129, "x" * 511, "x" * 512]
    batch = pa.RecordBatch.from_arrays(
        [pa.array(range(len(texts))), column(texts, made.field("c_string").type)], schema=made
    )
    with ingest_world(tmp_path, schema=made, key=key) as world:
        own_all(world)
        world.node.applier.apply(_request(world, batch))
        world.node.flush()
        world.node.applier.apply(_request(world, batch.slice(2, 2), 2, "updates"))
        world.node.applier.apply(_request(world, batch.slice(0, 3).select(["c_string"]), 3, "deletes"))
        for _ in range(2):
            assert sorted(each["id"] for each in world.rows(2)) == list(range(9))
            assert [(each["id"], each["c_string"]) for each in sorted(world.rows(3), key=lambda row: row["id"])] == [
                *enumerate(texts)
            ][3:]
            world.node.flush()


def test_a_key_of_all_types_has_these_hashes_for_ever() -> None:
    """Indexes store keys and virtual nodes hang on them: another hash here would lose every key that is kept."""
    names = [name for name in KEY_TYPES if name not in ("float", "double")]  # Iceberg takes no float as a key
    batch = rows(schema(*names, key=tuple(f"c_{name}" for name in names)), 3)
    whole = encode(batch, tuple(f"c_{name}" for name in names)).hashes()
    some = encode(batch, ("c_fixed", "c_string", "c_int", "c_binary", "c_uuid")).hashes()
    turned = encode(batch, ("c_string", "c_fixed", "c_int", "c_binary", "c_uuid")).hashes()
    assert [[hex(each) for each in hashes.tolist()] for hashes in (whole, some, turned)] == [
        ["0x792bba26a92956dc", "0x3a6d89a62d67b136", "0x880053d39a1209e3"],
        ["0xaf19aa4cba4f98e3", "0x755c0f783976d660", "0xef17a2066b2bd04c"],
        ["0xaf19aa4cba4f98e3", "0x6831eda1a1499b46", "0x517036591279b850"],
    ]


@pytest.mark.parametrize("name", ["float", "double"])
def test_both_zeros_are_one_key_and_nan_is_none(name: str, tmp_path: Path) -> None:
    key = (f"c_{name}",)
    made = schema(name, key=key)

    def one(number: int, value: float) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array([number]), pa.array([value], made.field(1).type)], schema=made)

    with ingest_world(tmp_path, schema=made, key=key) as world:
        own_all(world)
        world.node.applier.apply(_request(world, one(1, 0.0)))
        world.node.applier.apply(_request(world, one(2, -0.0), 2))
        assert [(each["id"], str(each[key[0]])) for each in world.rows(2)] == [(2, "-0.0")]
        nan = TableUpdate("t", 0, 3, inserts=one(3, float("nan")))
        with pytest.raises(UsageError, match="NaN"):
            world.node.applier.apply(UpdateRequest(Position(3, 0), (nan,)))


def test_empty_is_not_null(tmp_path: Path) -> None:
    made = schema("string", "binary")
    batch = pa.RecordBatch.from_pylist(
        [{"id": 1, "c_string": "", "c_binary": None}, {"id": 2, "c_string": None, "c_binary": b""}], schema=made
    )
    with ingest_world(tmp_path, schema=made) as world:
        own_all(world)
        world.node.applier.apply(_request(world, batch))
        for _ in range(2):
            assert world.rows(1) == batch.to_pylist()
            world.node.flush()


@pytest.mark.parametrize("is_flushed", [False, True], ids=["buffer", "file"])
def test_a_column_of_unknown_type_alone(tmp_path: Path, *, is_flushed: bool) -> None:
    """It is in no file, and can be asked for by itself."""
    made = schema("unknown")
    with ingest_world(tmp_path, schema=made) as world:
        own_all(world)
        world.node.applier.apply(_request(world, rows(made, 20)))
        if is_flushed:
            world.node.flush()
        assert world.rows(1, columns=("c_unknown",)) == [{"c_unknown": None}] * 20
        is_null, is_not = (Predicate("c_unknown", each) for each in (Comparison.IS_NULL, Comparison.IS_NOT_NULL))
        assert len(world.rows(1, predicates=(is_null,))) == 20
        assert world.rows(1, predicates=(is_not,)) == []


def test_a_table_with_a_column_that_is_ours_is_refused(tmp_path: Path) -> None:
    table = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, TIMESTAMP_COLUMN, LongType()),
        identifier_field_ids=[1],
    )
    metadata = new_table_metadata(table, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "memory:///t")
    known = cast(Surroundings, SimpleNamespace(metadata_of=lambda _: metadata, folder_of=lambda _: "t"))
    with ingest_world(tmp_path) as world, pytest.raises(RefusedError, match=f"has a column {TIMESTAMP_COLUMN}"):
        shape_of("t", known, world.node.files)


def test_values_that_are_not_of_their_type_are_refused_at_the_door(tmp_path: Path) -> None:
    """Such bytes would be in a file that no engine reads, or stop the node when it writes the file."""
    made = schema("string", "decimal9", "time")
    good = rows(made, 1)
    wrong = {
        "c_string": pa.Array.from_buffers(
            pa.large_string(), 1, [None, pa.py_buffer(bytes(8) + (1).to_bytes(8, "little")), pa.py_buffer(b"\xff")]
        ),
        "c_decimal9": pa.Array.from_buffers(
            pa.decimal128(9, 2), 1, [None, pa.py_buffer((10**12).to_bytes(16, "little"))]
        ),
        "c_time": pa.array([86_400_000_000], pa.int64()).view(pa.time64("us")),
    }
    with ingest_world(tmp_path, schema=made) as world, client_of(world) as client:
        own_all(world)
        home = int(world.topology.virtual_nodes_of(encode(good, ("id",)))[0])
        for name, bad in wrong.items():
            columns = [bad if field.name == name else good.column(field.name) for field in made]
            batch = pa.RecordBatch.from_arrays(columns, schema=made)
            update = pb.TableUpdate(table="t", virtual_node=home, key_timestamp=1, inserts=bytes_of(batch))
            with pytest.raises(UsageError):
                client.update(pb.UpdateRecordRequest(timestamp=1, updates=[update]))
        assert world.rows(1) == []
        assert world.node.applier.applied(Stream(7, home)) is None


@pytest.mark.parametrize(
    ("name", "texts", "says"),
    [
        ("boolean", ["true"], None),
        ("int", ["2147483647"], None),
        ("long", [str(-(2**63))], None),
        ("double", ["5e-324"], None),
        ("decimal9", ["0.01"], None),
        ("decimal38", ["0.0000000001"], None),
        ("date", ["9999-12-31"], None),
        ("time", ["23:59:59.999999"], None),
        ("timestamp", ["9999-12-31T23:59:59.999999"], None),
        ("timestamptz", ["2026-03-29T03:00:00+02:00"], None),
        ("uuid", [str(uuid.UUID(int=2**128 - 1))], None),
        ("fixed", ["ff00fe"], None),
        ("binary", [bytes(range(256)).hex()], None),
        ("int", ["x"], "'x' is no int32 for c_int"),
        ("int", ["2147483648"], "is no int32"),
        ("date", ["tomorrow"], "'tomorrow' is no date32"),
        ("binary", ["xyz"], "is no"),
        ("fixed", ["ff"], "is no fixed"),
        ("uuid", ["1"], "is no"),
        ("long", ["1", "2"], "has 1 columns, and 2 texts"),
    ],
)
def test_a_key_is_typed_as_text(name: str, texts: list[str], says: str | None, tmp_path: Path) -> None:
    key = (f"c_{name}",)
    made = schema(name, key=key)
    batch = pa.RecordBatch.from_arrays(
        [pa.array([0, 1]), column(VALUES[name][1][:2], made.field(key[0]).type)], schema=made
    )
    with ingest_world(tmp_path, schema=made, key=key) as world, client_of(world) as client:
        own_all(world)  # the key may hash to any
        world.node.applier.apply(_request(world, batch))
        asked = pb.LookUpKeyRequest(table="t", texts=texts)
        if says is not None:
            with pytest.raises(UsageError, match=says):
                client.call(client.node.LookUpKey, asked)
            return
        (version,) = client.call(client.node.LookUpKey, asked).versions
        assert version.is_located


def own_all(world: IngestWorld) -> None:
    """All virtual nodes live here."""
    world.node.owned = frozenset(range(4))
    world.node.applier._owned = world.node.owned


def _request(world: IngestWorld, batch: pa.RecordBatch, timestamp: int = 1, part: str = "inserts") -> UpdateRequest:
    homes = world.topology.virtual_nodes_of(encode(batch, world.shape.key))
    return UpdateRequest(
        Position(timestamp, 0),
        tuple(
            TableUpdate("t", home, timestamp, **{part: batch.filter(pa.array(homes == home))})
            for home in sorted(set(homes.tolist()))
        ),
    )
