"""A node in a folder, READY by the harness, and what tests do with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.database import open_database
from headwater.ingest.apply.model import TableUpdate, UpdateRequest
from headwater.ingest.buffer.model import BufferLimits
from headwater.ingest.files.protocol import FileTable
from headwater.ingest.index import MainIndex, PrimaryIndex
from headwater.ingest.index.local import LocalIndex
from headwater.ingest.keys import encode
from headwater.ingest.model import Position, TableShape
from headwater.ingest.node import Node
from headwater.ingest.scan.model import ScanRequest
from headwater.ingest.topology import Topology
from headwater.kernel.clock import SystemClock
from headwater.kernel.randomness import system_randomness
from headwater.storage.memory import MemoryStore

TOPOLOGY = """
virtual_nodes = 4

[[nodes]]
name = "a"
host = "127.0.0.1"
port = 7501
virtual_nodes = ["0-2"]

[[nodes]]
name = "b"
host = "127.0.0.1"
port = 7502
virtual_nodes = [3]
"""


def field(name: str, kind: pa.DataType, number: int, *, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={b"PARQUET:field_id": str(number).encode()})


SCHEMA = pa.schema([field("id", pa.int64(), 1, nullable=False), field("v", pa.string(), 2)])


class IngestWorld:
    """A node with the table `t (id, v)`. Requests are spread over virtual nodes as a feeder does it."""

    def __init__(
        self, folder: Path, *, schema: pa.Schema = SCHEMA, key: tuple[str, ...] = ("id",), **limits: int
    ) -> None:
        clock = SystemClock()
        self.store = MemoryStore(clock)
        self.topology = Topology.parse(TOPOLOGY)
        self.database = open_database(folder / "state.db")
        files = FileTable(self.database)
        main = MainIndex.open(folder / "main.db")
        primary = PrimaryIndex.open(
            folder / "primary", main, clock=clock, randomness=system_randomness(), map_bytes=1 << 28
        )
        path = files.add_path(7, "memory:///t")
        self.shape = TableShape(7, "t", schema, key, path.path_id, "t")
        self.node = Node(
            name="a",
            topology=self.topology,
            tables={"t": self.shape},
            files=files,
            store=self.store,
            open_file=lambda name: pa.BufferReader(self.store.get(name).data),
            index=LocalIndex(primary, main),
            clock=clock,
            limits=BufferLimits(**({"block_rows": 8, "segment_blocks": 2} | limits)),
        )
        self.node.lifecycle.ready_for_tests()

    def batch(self, rows: list[dict[str, Any]], *, is_keys: bool = False) -> pa.RecordBatch:
        schema = self.shape.schema
        if is_keys:
            schema = pa.schema([schema.field(name) for name in self.shape.key])
        return pa.RecordBatch.from_pylist(rows, schema=schema)

    def request(
        self,
        timestamp: int,
        sequence: int = 0,
        *,
        deletes: list[dict[str, Any]] | None = None,
        inserts: list[dict[str, Any]] | None = None,
        updates: list[dict[str, Any]] | None = None,
    ) -> UpdateRequest:
        """One request, its rows at their virtual nodes; those of node b are left out."""
        parts = {"deletes": deletes or [], "inserts": inserts or [], "updates": updates or []}
        homes: dict[int, dict[str, pa.RecordBatch]] = {}
        for part, rows in parts.items():
            batch = self.batch(rows, is_keys=part == "deletes")
            nodes = self.topology.virtual_nodes_of(encode(batch, self.shape.key))
            for home in np.unique(nodes):
                homes.setdefault(int(home), {})[part] = batch.filter(pa.array(nodes == home))
        changes = [
            TableUpdate("t", home, timestamp, **batches)
            for home, batches in sorted(homes.items())
            if home in self.node.owned
        ]
        return UpdateRequest(Position(timestamp, sequence), tuple(changes))

    def is_here(self, row: dict[str, Any]) -> bool:
        """Whether the node owns the row."""
        key = {name: row[name] for name in self.shape.key}
        home = self.topology.virtual_nodes_of(encode(self.batch([key], is_keys=True), self.shape.key))[0]
        return int(home) in self.node.owned

    def rows(self, timestamp: int, **request: Any) -> list[dict[str, Any]]:
        """What a scan gives, in the order of keys."""
        schema, batches = self.node.scan(ScanRequest("t", timestamp, **request))
        table = pa.Table.from_batches(batches, schema)
        found: list[dict[str, Any]] = table.to_pylist()
        if all(name in table.column_names for name in self.shape.key):
            found.sort(key=lambda row: tuple(row[name] for name in self.shape.key))
        return found

    def close(self) -> None:
        self.node.index.close()
        self.database.close()


@contextmanager
def ingest_world(folder: Path, **options: Any) -> Iterator[IngestWorld]:
    """It, until the block ends."""
    world = IngestWorld(folder, **options)
    try:
        yield world
    finally:
        world.close()
