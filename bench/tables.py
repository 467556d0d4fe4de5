"""Reading the metadata of a table with many manifests, beside PyIceberg."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus, clear_manifest_cache
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, update_table_metadata
from pyiceberg.types import LongType, NestedField, StringType

from bench.measure import Result, compare_rates
from headwater.kernel.clock import SystemClock
from headwater.kernel.ids import new_ulid
from headwater.kernel.randomness import system_randomness
from headwater.storage.file import FileStore
from headwater.tables.create import new_table
from headwater.tables.files import Files
from headwater.tables.manifest_writing import EntryToWrite, ManifestTerms, write_manifest, write_manifest_list
from headwater.tables.metadata import decode_metadata, encode_metadata
from headwater.tables.model import LiveFile, NewFile, TableFile
from headwater.tables.operations import CollectingSink
from headwater.tables.parquet import write_rows
from headwater.tables.scan import plan_scan

# How many manifests, and how many data files in each. The last has fewer manifests, or PyIceberg would take minutes.
SHAPES = ((1000, 1), (1000, 10), (100, 100))


def thousand_manifests() -> list[Result]:
    """Every live file of a snapshot with many manifests: metadata, list and manifests are read anew."""
    results = []
    for manifests, files_each in SHAPES:
        with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
            store = FileStore(Path(folder), SystemClock(), system_randomness(), durable=False)
            files = Files({f"file://{folder}": store})
            location = _table(files, f"file://{folder}/t", manifests, files_each)

            def ours(location: str = location, files: Files = files) -> int:
                return len(plan_scan(files, decode_metadata(files.read(location), location)).tasks)

            def peer(location: str = location) -> int:
                clear_manifest_cache()
                return len(list(StaticTable.from_metadata(location).scan().plan_files()))

            assert ours() == peer() == manifests * files_each
            name = f"tables: plan {manifests:,} manifests of {files_each}"
            results.append(compare_rates(name, ours, peer, count=2, rounds=5, goal=1.0))
    return results


def _table(files: Files, location: str, manifests: int, files_each: int) -> str:
    """A table of so many appends that were never merged; the data files are named, and never read."""
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
    (file,) = write_rows(rows, metadata=metadata, files=CollectingSink(), randomness=randomness)
    lines = []
    for number in range(1, manifests + 1):
        terms = ManifestTerms(metadata, snapshot_id=number, sequence_number=number)
        entries = [
            EntryToWrite(ManifestEntryStatus.ADDED, LiveFile(_named(file, number, place), number, None, number))
            for place in range(files_each)
        ]
        path = f"{location}/metadata/{number:06}-m0.avro"
        line, data = write_manifest(terms, path, ManifestContent.DATA, metadata.spec(), entries)
        files.write([NewFile(path, data)])
        lines.append(line)
    list_path = f"{location}/metadata/snap-{manifests}.avro"
    files.write([NewFile(list_path, write_manifest_list(terms, None, lines, None))])
    snapshot = Snapshot(
        snapshot_id=manifests,
        sequence_number=manifests,
        timestamp_ms=metadata.last_updated_ms,
        manifest_list=list_path,
        summary=Summary(Operation.APPEND),
        schema_id=metadata.current_schema_id,
    )
    changes = (
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate(
            ref_name=MAIN_BRANCH,
            type="branch",
            snapshot_id=manifests,
            max_ref_age_ms=None,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        ),
    )
    path = f"{location}/metadata/last.metadata.json"
    files.write([NewFile(path, encode_metadata(update_table_metadata(metadata, changes)))])
    return path


def _named(file: TableFile, number: int, place: int) -> TableFile:
    """The same file under another name."""
    values = list(file._data)
    folder = file.file_path.rpartition("/")[0]
    values[1] = f"{folder}/{number:06}-{place:05}-{'0' * 32}.parquet"
    named = TableFile(*values)
    named.spec_id = file.spec_id
    return named
