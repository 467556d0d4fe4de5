"""Every type through the socket and back: before a flush, after it, and beside what was sent."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from headwater.ingest.apply.model import TableUpdate, UpdateRequest
from headwater.ingest.client import NodeClient
from headwater.ingest.keys import encode
from headwater.ingest.model import Position
from headwater.ingest.service.ipc import bytes_of
from headwater.ingest.service.server import NodeServer
from headwater.kernel.errors import UsageError
from headwater.rpc.ingest.v1 import ingest_pb2 as pb
from tests.unit.ingest_world import IngestWorld, ingest_world

UTC = dt.UTC
U1, U2 = (uuid.UUID(int=each).bytes for each in (0, 2**128 - 1))
# Two values of each type that are as far apart as can be, or hard to keep.
VALUES: dict[str, tuple[PrimitiveType, Any, Any]] = {
    "boolean": (BooleanType(), True, False),
    "int": (IntegerType(), -(2**31), 2**31 - 1),
    "long": (LongType(), -(2**63), 2**63 - 1),
    "float": (FloatType(), -0.0, float("inf")),
    "double": (DoubleType(), 5e-324, float("-inf")),
    "decimal9": (DecimalType(9, 2), Decimal("-9999999.99"), Decimal("0.01")),
    "decimal38": (DecimalType(38, 10), Decimal("-9999999999999999999999999999.9999999999"), Decimal("1E-10")),
    "date": (DateType(), dt.date(1, 1, 1), dt.date(9999, 12, 31)),
    "time": (TimeType(), dt.time(0), dt.time(23, 59, 59, 999999)),
    "timestamp": (TimestampType(), dt.datetime.min, dt.datetime.max),  # noqa: DTZ901
    "timestamptz": (TimestamptzType(), dt.datetime(1969, 12, 31, 23, tzinfo=UTC), dt.datetime(2026, 3, 29, tzinfo=UTC)),
    "timestamp_ns": (TimestampNanoType(), -1, 2**63 - 1),
    "timestamptz_ns": (TimestamptzNanoType(), 1, -(2**62)),
    "string": (StringType(), "", "ß 🦆 \0 " + "x" * (1 << 20)),
    "uuid": (UUIDType(), U1, U2),
    "fixed": (FixedType(3), b"\0\0\0", b"\xff\x00\xfe"),
    "binary": (BinaryType(), b"", bytes(range(256))),
}


def schema(*names: str, key: tuple[str, ...]) -> pa.Schema:
    fields = [NestedField(1, "id", LongType(), required=True)]
    fields += [
        NestedField(place, f"c_{name}", VALUES[name][0], required=f"c_{name}" in key)
        for place, name in enumerate(names, 2)
    ]
    made: pa.Schema = schema_to_pyarrow(Schema(*fields), include_field_ids=True)
    return made


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind.storage_type).cast(kind) if isinstance(kind, pa.UuidType) else pa.array(values, kind)


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
def test_a_type_comes_back_as_it_was_sent(name: str, tmp_path: Path) -> None:
    made = schema(name, key=())
    kind = made.field(f"c_{name}").type
    values = [VALUES[name][1], None, VALUES[name][2]] * 8
    batch = pa.RecordBatch.from_arrays([pa.array(range(24), pa.int64()), column(values, kind)], schema=made)
    with ingest_world(tmp_path, schema=made) as world:
        server = NodeServer(world.node)
        port = server.start("127.0.0.1:0")
        try:
            with NodeClient(f"127.0.0.1:{port}") as client:
                wanted = sent(world, client, 1, "inserts", batch)
                assert wanted.num_rows > 6
                for _ in range(2):
                    found = client.scan("t", 1).read_all()
                    assert found.schema.equals(made, check_metadata=True)
                    assert found.sort_by("id").equals(wanted)
                    world.node.flush()
                assert world.node.files.get_regular_files(world.shape.path_id)
        finally:
            server.stop(0)


KEY_TYPES = [name for name in VALUES if name not in ("string",)]


@pytest.mark.parametrize("name", KEY_TYPES)
def test_a_composite_key_of_each_type_is_replaced_and_ended(name: str, tmp_path: Path) -> None:
    key = (f"c_{name}", "id")
    made = schema(name, key=key)
    kind = made.field(f"c_{name}").type
    values = [VALUES[name][1], VALUES[name][2]] * 6
    batch = pa.RecordBatch.from_arrays([pa.array([each // 2 for each in range(12)]), column(values, kind)], schema=made)
    keys = batch.select(list(key))
    with ingest_world(tmp_path, schema=made, key=key) as world:
        server = NodeServer(world.node)
        port = server.start("127.0.0.1:0")
        try:
            with NodeClient(f"127.0.0.1:{port}") as client:
                wanted = sent(world, client, 1, "inserts", batch)
                world.node.flush()
                sent(world, client, 2, "updates", batch)
                assert client.scan("t", 2).read_all().num_rows == wanted.num_rows > 0
                sent(world, client, 3, "deletes", keys)
                assert client.scan("t", 3).read_all().num_rows == 0
                assert client.scan("t", 2).read_all().num_rows == wanted.num_rows
        finally:
            server.stop(0)


def test_all_types_in_one_row_and_an_empty_batch(tmp_path: Path) -> None:
    made = schema(*VALUES, key=())
    arrays = [pa.array(range(6), pa.int64())]
    arrays += [
        column([first, second, None] * 2, made.field(f"c_{name}").type) for name, (_, first, second) in VALUES.items()
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=made)
    with ingest_world(tmp_path, schema=made) as world:
        server = NodeServer(world.node)
        port = server.start("127.0.0.1:0")
        try:
            with NodeClient(f"127.0.0.1:{port}") as client:
                assert sent(world, client, 1, "inserts", batch.slice(0, 0)).num_rows == 0
                assert client.scan("t", 1).read_all().schema.equals(made)
                wanted = sent(world, client, 2, "inserts", batch)
                sent(world, client, 3, "deletes", batch.slice(0, 0).select(["id"]))
                world.node.flush()
                assert client.scan("t", 3).read_all().sort_by("id").equals(wanted)
        finally:
            server.stop(0)


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
        ("timestamptz", ["2026-03-29T02:00:00+02:00"], None),
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
    values = [VALUES[name][1], VALUES[name][2]]
    batch = pa.RecordBatch.from_arrays([pa.array([0, 1]), column(values, made.field(key[0]).type)], schema=made)
    with ingest_world(tmp_path, schema=made, key=key) as world:
        # All virtual nodes live here: the key may hash to any.
        world.node.owned = frozenset(range(4))
        world.node.applier._owned = world.node.owned
        world.node.applier.apply(_request(world, batch))
        server = NodeServer(world.node)
        port = server.start("127.0.0.1:0")
        try:
            with NodeClient(f"127.0.0.1:{port}") as client:
                asked = pb.LookUpKeyRequest(table="t", texts=texts)
                if says is not None:
                    with pytest.raises(UsageError, match=says):
                        client.call(client.node.LookUpKey, asked)
                    return
                (version,) = client.call(client.node.LookUpKey, asked).versions
                assert version.is_located
        finally:
            server.stop(0)


def _request(world: IngestWorld, batch: pa.RecordBatch) -> UpdateRequest:
    homes = world.topology.virtual_nodes_of(encode(batch, world.shape.key))
    return UpdateRequest(
        Position(1, 0),
        tuple(
            TableUpdate("t", home, 1, inserts=batch.filter(pa.array(homes == home)))
            for home in sorted(set(homes.tolist()))
        ),
    )
