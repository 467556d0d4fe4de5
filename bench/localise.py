"""Localising large tables, beside Spark's `rewrite_table_path`; and what one more commit costs, and a larger table.

The tables have manifests and no data files: neither side looks at one.
"""

from __future__ import annotations

import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, update_table_metadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType, TimestampType

from bench.measure import Result
from headwater.database import Database, open_database
from headwater.kernel.clock import SystemClock
from headwater.kernel.ids import new_ulid
from headwater.kernel.randomness import system_randomness
from headwater.kernel.settings import SparkSettings, cache_folder
from headwater.regions.claims import Claims
from headwater.regions.outputs import Output as ListedOutput
from headwater.regions.outputs import Outputs
from headwater.regions.registry import Region, Registry
from headwater.regions.resolve import Resolver
from headwater.storage.file import FileStore
from headwater.sync.localise.frames import spread_on
from headwater.sync.localise.mapping import RegistryMapping
from headwater.sync.localise.model import Output, Place
from headwater.sync.localise.protocol import localise
from headwater.tables.create import new_table
from headwater.tables.files import Files
from headwater.tables.manifest_writing import EntryToWrite, ManifestTerms, write_manifest, write_manifest_list
from headwater.tables.metadata import encode_metadata
from headwater.tables.model import LiveFile, TableFile
from headwater.tables.operations import CollectingSink
from headwater.tables.parquet import write_rows
from headwater.tables.relocate_manifests import relocate_data_manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLOCK = SystemClock()
FILES_EACH = 2_000
ROUNDS = 5
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "day", DateType()),
    NestedField(3, "name", StringType()),
    NestedField(4, "price", DoubleType()),
    NestedField(5, "at", TimestampType()),
)


@dataclass(frozen=True)
class Table:
    """A table in the folder `us` of a folder; `name` is its path there."""

    folder: Path
    name: str
    metadata: TableMetadata
    lines: tuple[ManifestFile, ...]
    file: TableFile

    @property
    def location(self) -> str:
        return f"{self.metadata.location}/metadata/v{len(self.metadata.snapshots)}.metadata.json"


class NoOutputs:
    """The peer keeps no list of what it wrote, and so none is kept where it is measured."""

    def record(self, outputs: object) -> None:
        pass


class ListedOutputs:
    """The lake's own list, and claims of a run."""

    def __init__(self, database: Database) -> None:
        self._listed, self._claims = Outputs(database), Claims(database)
        self._run = self._claims.open(new_ulid(CLOCK, system_randomness()), "eu", fence=1, lease_seconds=3600).run

    def record(self, outputs: Sequence[Output]) -> None:
        self._listed.record(
            ListedOutput("eu", each.location, str(each.kind), each.location.rpartition("/")[2], each.source, 1)
            for each in outputs
        )
        self._claims.claim(self._run, [each.location for each in outputs])


def whole_table() -> list[Result]:
    """A table of 100,000 files in 50 manifests, all of it, warm against warm."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
        folder = Path(name)
        table = make_table(folder, "d/t", manifests=50)
        spark = _spark(folder)
        here = partial(_localised, folder, table.location)
        spread = partial(_localised, folder, table.location, spark=spark)
        peer = partial(_rewritten, spark, folder, table)
        seconds = _in_turns([here, spread, peer])
        spark.stop()
    peers = statistics.median(seconds[2])
    results = []
    for label, ours in (("one process", seconds[0]), ("Spark", seconds[1])):
        ratio = statistics.median(theirs / own for own, theirs in zip(ours, seconds[2], strict=True))
        results.append(Result(f"localise-100k-files, {label}", statistics.median(ours), peers, "seconds", ratio, 1.0))
    return results


def one_more_commit() -> list[Result]:
    """Ten more files on a table of 100,000, against the same on 1,000, as a lake in a folder does it."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name, open_database(Path(name) / "db") as database:
        folder, outputs = Path(name), ListedOutputs(database)
        actions: list[Callable[[], float]] = []
        counts = []
        for label, manifests, each in (("large", 50, FILES_EACH), ("small", 1, 1_000)):
            table = make_table(folder, f"d/{label}", manifests=manifests, files_each=each)
            promoted = localise(_place(folder, "out"), table.location).location
            after = one_more(table)
            done = localise(_place(folder, "out"), after.location, promoted=promoted)
            counts.append((done.lists_read, done.lists_written, done.manifests_read, done.manifests_written))
            actions.append(partial(_one_more_localised, folder, after.location, promoted, outputs))
        assert counts == [(1, 1, 1, 1)] * 2, counts
        large, small = _in_turns(actions, rounds=41)
    ours, peer = statistics.median(large) * 1000, statistics.median(small) * 1000
    return [Result("localise-one-more-commit", ours, peer, "milliseconds", peer / ours, 1 / 1.3)]


def driver_memory() -> list[Result]:
    """The driver's memory at its highest, for 2,000,000 files against 100,000."""
    peaks = []
    for manifests in (50, 1000):
        with tempfile.TemporaryDirectory(prefix="headwater-bench-") as name:
            table = make_table(Path(name), "d/t", manifests=manifests)
            command = [sys.executable, "-m", "bench.localise", name, table.location]
            told = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
            peaks.append(float(told))
    return [Result("localise-2m-files-memory", peaks[1], peaks[0], "megabytes", peaks[0] / peaks[1], 1 / 1.3)]


def make_table(folder: Path, name: str, *, manifests: int, files_each: int = FILES_EACH) -> Table:
    """A table of one snapshot, in the layout in which Spark finds it by its folder."""
    root = folder / "us" / name
    (root / "metadata").mkdir(parents=True)
    randomness = system_randomness()
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"))
    metadata = new_table(
        SCHEMA,
        location=f"file:{root}",
        spec=spec,
        incarnation=new_ulid(CLOCK, randomness),
        operation=new_ulid(CLOCK, randomness),
        clock=CLOCK,
        randomness=randomness,
    )
    count = 100
    rows = pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "day": pa.array([20_000] * count, pa.int32()).cast(pa.date32()),
            "name": [f"name {number}" for number in range(count)],
            "price": [number / 7 for number in range(count)],
            "at": pa.array(range(count), pa.timestamp("us")),
        }
    )
    (file,) = write_rows(rows, metadata=metadata, files=CollectingSink(), randomness=randomness)
    lines = tuple(_manifests(metadata, file, manifests, files_each))
    table = Table(folder, name, metadata, lines, file)
    return _with_snapshot(table, metadata, 1, lines)


def _manifests(metadata: TableMetadata, file: TableFile, manifests: int, files_each: int) -> list[ManifestFile]:
    """Written once; the others are the same with other names, or a large table would take minutes to make."""
    line, data = _manifest(metadata, file, 1, files_each)
    lines = []
    for number in range(1, manifests + 1):
        path = f"{metadata.location}/metadata/{number:06}-m0.avro"
        renamed = relocate_data_manifest(data, path, partial(_renamed, number))
        Path(path.removeprefix("file:")).write_bytes(renamed)
        values = list(line._data)
        values[0], values[1] = path, len(renamed)
        lines.append(ManifestFile(*values))
    return lines


def _renamed(number: int, path: str) -> str:
    return path.replace("/000001-", f"/{number:06}-")


def _manifest(metadata: TableMetadata, file: TableFile, number: int, count: int) -> tuple[ManifestFile, bytes]:
    terms = ManifestTerms(metadata, snapshot_id=number, sequence_number=number)
    folder = file.file_path.rpartition("/")[0]
    entries = []
    for place in range(count):
        values = list(file._data)
        values[1] = f"{folder}/{number:06}-{place:05}-{place * 7919:032x}.parquet"
        named = TableFile(*values)
        named.spec_id = file.spec_id
        entries.append(EntryToWrite(ManifestEntryStatus.ADDED, LiveFile(named, number, None, number)))
    path = f"{metadata.location}/metadata/{number:06}-m0.avro"
    return write_manifest(terms, path, ManifestContent.DATA, metadata.spec(), entries)


def one_more(table: Table) -> Table:
    """The table after one more commit, of ten files."""
    number = len(table.lines) + 1
    line, data = _manifest(table.metadata, table.file, number, 10)
    Path(line.manifest_path.removeprefix("file:")).write_bytes(data)
    return _with_snapshot(table, table.metadata, 2, (*table.lines, line))


def _with_snapshot(table: Table, metadata: TableMetadata, number: int, lines: tuple[ManifestFile, ...]) -> Table:
    terms = ManifestTerms(metadata, snapshot_id=number, sequence_number=number)
    list_path = f"{metadata.location}/metadata/snap-{number}.avro"
    content = write_manifest_list(terms, number - 1 or None, lines, None)
    Path(list_path.removeprefix("file:")).write_bytes(content)
    snapshot = Snapshot(
        snapshot_id=number,
        parent_snapshot_id=number - 1 or None,
        sequence_number=number,
        timestamp_ms=metadata.last_updated_ms + number,
        manifest_list=list_path,
        summary=Summary(Operation.APPEND),
        schema_id=metadata.current_schema_id,
    )
    changes = (
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate(
            ref_name=MAIN_BRANCH,
            type="branch",
            snapshot_id=number,
            max_ref_age_ms=None,
            max_snapshot_age_ms=None,
            min_snapshots_to_keep=None,
        ),
    )
    after = Table(table.folder, table.name, update_table_metadata(metadata, changes), lines, table.file)
    path = Path(after.location.removeprefix("file:"))
    path.write_bytes(encode_metadata(after.metadata))
    (path.parent / "version-hint.text").write_text(str(number))
    return after


def _place(folder: Path, out: str, *, durable: bool = False) -> Place:
    """The region `eu`, which reads what was written in `us`."""
    regions = tuple(Region(name, f"file://{folder}/{name}/", f"main_replica_{name}") for name in ("us", "eu"))
    registry = Registry(regions, tuple(each.local_prefix for each in regions))
    stores = {
        f"file://{folder}/{name}": FileStore(folder / name, CLOCK, system_randomness(), durable=durable)
        for name in ("us", "eu")
    }
    (folder / "eu").mkdir(exist_ok=True)
    mapping = RegistryMapping(Resolver(registry, "eu"))
    return Place(Files(stores), mapping, NoOutputs(), f"file://{folder}/eu/_headwater/localised/{out}")


def _localised(folder: Path, location: str, *, spark: SparkSession | None = None) -> float:
    """Seconds for all of a table of which nothing is there yet."""
    shutil.rmtree(folder / "eu", ignore_errors=True)
    opened = partial(_place, folder, "out")
    spread = None if spark is None else spread_on(spark, opened, tasks=2)
    started = CLOCK.monotonic()
    done = localise(opened(), location, spread=spread)
    taken = CLOCK.monotonic() - started
    assert done.manifests_written == done.manifests_read > 0
    return taken


def _one_more_localised(folder: Path, location: str, promoted: str, outputs: ListedOutputs) -> float:
    """Seconds for one more commit; what it wrote is taken away again."""
    place = replace(_place(folder, "out", durable=True), outputs=outputs)
    before = set((folder / "eu").rglob("*"))
    started = CLOCK.monotonic()
    localise(place, location, promoted=promoted)
    taken = CLOCK.monotonic() - started
    for path in set((folder / "eu").rglob("*")) - before:
        if path.is_file():
            path.unlink()
    return taken


def _spark(folder: Path) -> SparkSession:
    from pyspark import cloudpickle

    from headwater.spark import iceberg_jars, spark_session

    # The workers cannot import this module.
    register: Callable[[object], None] = cloudpickle.register_pickle_by_value  # PySpark does not annotate it
    register(sys.modules[_localised.__module__])

    catalog = {
        "spark.sql.catalog.peer": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.peer.type": "hadoop",
        "spark.sql.catalog.peer.warehouse": f"file:{folder}/us",
    }
    jars = iceberg_jars(cache_folder(), s3=False)
    return spark_session(SparkSettings(master="local[2]"), app_name="bench", jars=jars, extra=catalog)


def _rewritten(spark: SparkSession, folder: Path, table: Table) -> float:
    """Seconds of the peer for the same."""
    staging = folder / "staging"
    shutil.rmtree(staging, ignore_errors=True)
    started = CLOCK.monotonic()
    spark.sql(
        f"call peer.system.rewrite_table_path(table => '{table.name.replace('/', '.')}', "
        f"source_prefix => 'file:{folder}/us', target_prefix => 'file:{folder}/eu', "
        f"staging_location => 'file:{staging}')"
    ).collect()
    return CLOCK.monotonic() - started


def _in_turns(actions: list[Callable[[], float]], rounds: int = ROUNDS) -> list[list[float]]:
    """Seconds of each, round by round; the first two rounds warm them up."""
    taken = [[action() for action in actions] for _ in range(rounds + 2)][2:]
    return [list(each) for each in zip(*taken, strict=True)]


def main() -> None:
    """Localise one table on Spark, and print the driver's memory in megabytes.

    A driver has two halves: of this process, the most that it had; of Java, which takes what it gets, what it holds.
    """
    folder, location = Path(sys.argv[1]), sys.argv[2]
    spark = _spark(folder)
    _localised(folder, location, spark=spark)
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert spark._jvm is not None
    java = spark._jvm.java.lang
    java.System.gc()
    runtime = java.Runtime.getRuntime()
    print(own + (runtime.totalMemory() - runtime.freeMemory()) / 2**20)
    spark.stop()


if __name__ == "__main__":
    main()
