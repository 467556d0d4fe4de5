"""The steps that a request costs Python do not grow with its rows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headwater.ingest.apply.model import TableUpdate, UpdateRequest
from headwater.ingest.keys import encode
from headwater.ingest.model import Position
from tests.unit.ingest_world import IngestWorld, field, ingest_world

FEW, MANY = 1_000, 10_000
A_PART = 100
"""The index is written in parts of a thousand keys; each costs so many calls at most."""

INTEGERS = pa.schema([field("id", pa.int64(), 1, nullable=False), field("v", pa.string(), 2)])
TEXTS = pa.schema(
    [field("a", pa.string(), 1, nullable=False), field("b", pa.string(), 2, nullable=False), field("v", pa.string(), 3)]
)


def calls_of(work: Callable[[], object]) -> int:
    """How many functions, ours and those of extensions, are called from Python code."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def batch(world: IngestWorld, numbers: range) -> pa.RecordBatch:
    texts = pa.array([f"value {each}" for each in numbers])
    ids = pa.array(numbers, pa.int64()) if world.shape.schema is INTEGERS else None
    keys = [ids] if ids is not None else [pa.array([f"{each % 7}" for each in numbers]), texts]
    return pa.RecordBatch.from_arrays([*keys, texts], schema=world.shape.schema)


def requests(world: IngestWorld, rows: pa.RecordBatch, count: int, part: str, timestamp: int) -> UpdateRequest:
    """`count` rows of one virtual node."""
    homes = world.topology.virtual_nodes_of(encode(rows, world.shape.key))
    chosen = rows.take(pa.array(np.flatnonzero(homes == 0)[:count]))
    assert chosen.num_rows == count
    keys = chosen.select(list(world.shape.key))
    parts = {
        "inserts": {"inserts": chosen},
        "replaces": {"deletes": keys, "inserts": chosen},
        "updates": {"updates": chosen},
        "deletes": {"deletes": keys},
    }[part]
    return UpdateRequest(Position(timestamp, 0), (TableUpdate("t", 0, timestamp, **parts),))


@pytest.mark.parametrize(("schema", "key"), [(INTEGERS, ("id",)), (TEXTS, ("a", "b"))], ids=["integers", "texts"])
def test_no_row_costs_a_step_of_python(tmp_path: Path, schema: pa.Schema, key: tuple[str, ...]) -> None:
    """In every order of application, and in resolving; keys that are there and keys that are not."""
    with ingest_world(tmp_path, schema=schema, key=key, block_rows=1 << 17) as world:
        rows = batch(world, range(60_000))
        others = batch(world, range(60_000, 120_000))
        node = world.node
        node.applier.apply(requests(world, rows, MANY, "inserts", 1))
        counts: dict[str, tuple[int, int]] = {}
        timestamp = 1
        for part in ("replaces", "updates", "deletes", "inserts"):
            found = []
            for count in (FEW, MANY):
                timestamp += 1
                source = others if part == "inserts" else rows
                request = requests(world, source, count, part, timestamp)
                found.append(calls_of(lambda request=request: node.applier.apply(request)))  # type: ignore[misc]
                if part == "deletes":  # bring them back
                    timestamp += 1
                    node.applier.apply(requests(world, rows, count, "inserts", timestamp))
            counts[part] = found[0], found[1]
        buffer = node.buffers.all()[0]
        found = [
            calls_of(lambda keys=keys: node.index.resolve_primary(7, keys, buffer.visible_files))  # type: ignore[misc]
            for keys in (encode(rows.slice(0, count), key) for count in (FEW, MANY))
        ]
        counts["resolve"] = found[0], found[1]
        parts = (MANY - FEW) // 1_000
        grown = {part: (few, many) for part, (few, many) in counts.items() if many > 1.2 * few + A_PART * parts}
        assert grown == {}, counts
