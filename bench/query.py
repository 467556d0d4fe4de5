"""What our way of reading a table with deletion vectors costs beside DuckDB's own Iceberg reader."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import duckdb
import duckdb_extensions
import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType
from pyroaring import BitMap64

from bench.measure import Result, compare_rates
from headwater.catalog.model import TableKey
from headwater.kernel.clock import SystemClock
from headwater.kernel.ids import new_ulid
from headwater.kernel.randomness import system_randomness
from headwater.query import OpenTable, QueryOptions, run
from headwater.storage.file import FileStore
from headwater.tables import operations
from headwater.tables.create import new_table
from headwater.tables.files import Files
from headwater.tables.metadata import encode_metadata
from headwater.tables.model import NewFile, Staged, TableVersion
from headwater.tables.scan import plan_scan
from headwater.tables.snapshot import Staging

ROWS, FILES, DELETED_SHARE = 10_000_000, 5, 0.05
BATCH_ROWS = 500_000
THREADS = 2
CLOCK, RANDOMNESS = SystemClock(), system_randomness()
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "k", IntegerType()),
    NestedField(3, "v", DoubleType()),
    NestedField(4, "name", StringType()),
)
QUERIES = {
    "query-aggregate": "SELECT count(*), sum(v), min(id), max(k) FROM {}",
    "query-group": "SELECT k, count(*), sum(v) FROM {} GROUP BY k ORDER BY k",
    "query-filter": "SELECT count(*), sum(v) FROM {} WHERE k < 100",
}


class OneTable:
    """A lake of one table."""

    def __init__(self, folder: Path) -> None:
        self.root = f"file://{folder}"
        self.files = Files({self.root: FileStore(folder, CLOCK, RANDOMNESS, durable=False)})
        operation = new_ulid(CLOCK, RANDOMNESS)
        self.staging = Staging(self.files, CLOCK, RANDOMNESS, operation)
        metadata = new_table(
            SCHEMA,
            location=f"{self.root}/t",
            format_version=3,
            incarnation=operation,
            operation=operation,
            clock=CLOCK,
            randomness=RANDOMNESS,
        )
        self.versions = 0
        self.version = TableVersion(metadata)
        self.commit(Staged(metadata))

    def names(self) -> Iterable[TableKey]:
        return [TableKey.parse("t")]

    def open(self, _: TableKey) -> OpenTable:
        return OpenTable(self.version.metadata)

    def commit(self, staged: Staged) -> None:
        self.versions += 1
        location = f"{self.root}/t/metadata/v{self.versions}.metadata.json"
        self.files.write([*staged.files, NewFile(location, encode_metadata(staged.metadata))])
        self.version = TableVersion(staged.metadata, location)


def scans() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        lake = _lake(Path(folder))
        peer = _peer()
        scan = f"iceberg_scan('{str(lake.version.location).removeprefix('file://')}')"
        results = []
        for name, sql in QUERIES.items():
            _same(lake, peer, sql, scan)
            results.append(
                compare_rates(
                    name,
                    partial(_ours, lake, sql),
                    partial(_theirs, peer, sql.format(scan)),
                    count=5,
                    rounds=7,
                    goal=0.8,
                )
            )
        return results


def _ours(lake: OneTable, sql: str) -> pa.Table:
    return run(sql.format("t"), lake, lake.files, options=QueryOptions(threads=THREADS))


def _theirs(peer: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    return peer.execute(sql).to_arrow_table()


def _peer() -> duckdb.DuckDBPyConnection:
    for extension in ("avro", "iceberg"):
        duckdb_extensions.import_extension(extension)
    connection = duckdb.connect(":memory:", config={"threads": str(THREADS)})
    connection.execute("LOAD avro; LOAD iceberg")
    return connection


def _same(lake: OneTable, peer: duckdb.DuckDBPyConnection, sql: str, scan: str) -> None:
    """Both sides answer the same, or their times say nothing. Sums of floats depend on the order."""
    ours, theirs = _ours(lake, sql).to_pydict(), peer.execute(sql.format(scan)).to_arrow_table().to_pydict()
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        assert np.allclose(np.array(values, float), np.array(theirs[name], float), rtol=1e-9), name


def _lake(folder: Path) -> OneTable:
    lake = OneTable(folder)
    for start in range(0, ROWS, ROWS // FILES):
        lake.commit(operations.append(lake.staging, lake.version, _rows(start, start + ROWS // FILES)))
    generator = np.random.default_rng(7)
    deletes = {
        task.file.file_path: BitMap64(
            np.flatnonzero(generator.random(task.file.record_count) < DELETED_SHARE).astype(np.uint64)
        )
        for task in plan_scan(lake.files, lake.version.metadata).tasks
    }
    lake.commit(operations.delete_positions(lake.staging, lake.version, deletes))
    return lake


def _rows(start: int, end: int) -> Iterator[pa.RecordBatch]:
    for first in range(start, end, BATCH_ROWS):
        ids = np.arange(first, min(first + BATCH_ROWS, end), dtype=np.int64)
        yield pa.RecordBatch.from_pydict(
            {
                "id": ids,
                "k": ((ids * 2654435761) % 1000).astype(np.int32),
                "v": ids / 7,
                "name": pa.array([f"name-{each % 5000}" for each in ids.tolist()]),
            }
        )
