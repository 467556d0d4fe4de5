"""Reading the metadata of a table with many manifests, beside PyIceberg."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from pyiceberg.manifest import clear_manifest_cache
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import LongType, NestedField, StringType

from bench.measure import Result, compare_rates
from headwater.kernel.clock import SystemClock
from headwater.kernel.ids import new_ulid
from headwater.kernel.randomness import system_randomness
from headwater.storage.file import FileStore
from headwater.tables import manifest_edit
from headwater.tables.create import new_table
from headwater.tables.files import Files
from headwater.tables.metadata import decode_metadata, encode_metadata
from headwater.tables.model import Edit, NewFile, TableVersion
from headwater.tables.operations import CollectingSink
from headwater.tables.parquet import write_rows
from headwater.tables.scan import plan_scan
from headwater.tables.snapshot import Staging, stage_snapshot

MANIFESTS = 1000


def thousand_manifests() -> list[Result]:
    """Every live file of a table whose snapshot has 1,000 manifests: metadata, list and manifests are read anew."""
    results = []
    for files_each in (1, 10):
        with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
            store = FileStore(Path(folder), SystemClock(), system_randomness())
            files = Files({f"file://{folder}": store})
            location = _table(files, f"file://{folder}/t", files_each)

            def ours(location: str = location, files: Files = files) -> int:
                return len(plan_scan(files, decode_metadata(files.read(location), location)).tasks)

            def peer(location: str = location) -> int:
                clear_manifest_cache()
                return len(list(StaticTable.from_metadata(location).scan().plan_files()))

            assert ours() == peer() == MANIFESTS * files_each
            name = f"tables: plan 1,000 manifests of {files_each}"
            results.append(compare_rates(name, ours, peer, count=2, rounds=5, goal=1.0))
    return results


def _table(files: Files, location: str, files_each: int) -> str:
    """A table of 1,000 appends that were never merged; the data files are named, and never read."""
    clock, randomness = SystemClock(), system_randomness()
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    metadata = new_table(
        schema,
        location=location,
        incarnation=new_ulid(clock, randomness),
        operation=new_ulid(clock, randomness),
        clock=clock,
        randomness=randomness,
    )
    rows = pa.table({"id": range(100), "name": [f"name {n}" for n in range(100)]})
    staging = Staging(files, clock, randomness, new_ulid(clock, randomness))
    version = TableVersion(metadata)
    before, manifest_edit.MERGE_FROM = manifest_edit.MERGE_FROM, 10**9
    try:
        for _ in range(MANIFESTS):
            added = tuple(
                file
                for _ in range(files_each)
                for file in write_rows(rows, metadata=metadata, files=CollectingSink(), randomness=randomness)
            )
            staged = stage_snapshot(staging, version, Edit(added), Operation.APPEND)
            # Only the last snapshot is read, so only its list and all manifests are stored.
            files.write(each for each in staged.files if "/snap-" not in each.location)
            last = next(each for each in staged.files if "/snap-" in each.location)
            files.write([last])
            version = TableVersion(
                staged.metadata.model_copy(update={"snapshots": staged.metadata.snapshots[-1:], "snapshot_log": []})
            )
    finally:
        manifest_edit.MERGE_FROM = before
    path = f"{location}/metadata/last.metadata.json"
    files.write([NewFile(path, encode_metadata(version.metadata))])
    return path
