"""Tables that Spark wrote, localised: Spark, PyIceberg and DuckDB read them with the source away; and done on Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.manifest import ManifestEntryStatus

from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import CorruptError
from headwater.kernel.randomness import system_randomness
from headwater.regions.registry import Region, Registry
from headwater.regions.resolve import Resolver
from headwater.storage.file import FileStore
from headwater.sync.localise import decide
from headwater.sync.localise.frames import spread_on
from headwater.sync.localise.mapping import RegistryMapping
from headwater.sync.localise.model import Place
from headwater.sync.localise.protocol import localise
from headwater.sync.runs.model import History
from headwater.tables import relocate_lanes
from headwater.tables.avro import read_container
from headwater.tables.files import Files
from headwater.tables.manifests import read_manifest, read_manifest_list
from headwater.tables.reach import Reached, ReachKind, reach
from headwater.tables.relocate_avro import records_in
from tests.fixtures.engines import by_duckdb, by_pyiceberg, by_spark, normal
from tests.unit.localise_world import REGION, RESERVED, Regions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow, pytest.mark.proves("sync/localise")]

CATALOG = "source"
POSITIONS, VECTORS = ReachKind.POSITION_DELETES, ReachKind.DELETION_VECTOR


@pytest.fixture
def regions(spark: SparkSession, tmp_path: Path) -> Regions:
    """Three regions, and a catalog by which Spark writes in `us`."""
    made = Regions(tmp_path)
    spark.conf.set(f"spark.sql.catalog.{CATALOG}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{CATALOG}.type", "hadoop")
    spark.conf.set(f"spark.sql.catalog.{CATALOG}.warehouse", str(tmp_path / "us"))
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark._jsparkSession.sessionState().catalogManager().reset()  # catalogs of an earlier test are forgotten
    return made


def newest(spark: SparkSession, name: str = "d.t") -> str:
    log = spark.sql(f"select file from {CATALOG}.{name}.metadata_log_entries order by timestamp, file").collect()
    return str(log[-1].file)


def write_table(spark: SparkSession, version: int, properties: dict[str, str]) -> None:
    """Appends, and a delete over many files of two partitions."""
    options = {"format-version": str(version), "write.delete.granularity": "partition", **properties}
    told = ", ".join(f"'{key}'='{value}'" for key, value in options.items())
    spark.sql(
        f"create table {CATALOG}.d.t (id bigint not null, part string, name string) using iceberg "
        f"partitioned by (part) tblproperties ({told})"
    )
    for start in (0, 100):
        spark.sql(
            f"insert into {CATALOG}.d.t select /*+ COALESCE(1) */ id, concat('p', id % 2), concat('näme ', id) "
            f"from range({start}, {start + 40})"
        )
    spark.sql(f"delete from {CATALOG}.d.t where id % 10 in (3, 4)")


def write_on(spark: SparkSession) -> None:
    """Another partition spec, another schema, an update, rewritten manifests, one more delete, statistics."""
    spark.sql(f"alter table {CATALOG}.d.t replace partition field part with truncate(100, id)")
    spark.sql(f"alter table {CATALOG}.d.t add columns (extra int)")
    spark.sql(f"insert into {CATALOG}.d.t select id, 'new', 'x', cast(id as int) from range(300, 320)")
    spark.sql(f"update {CATALOG}.d.t set name = 'changed' where id in (5, 105, 305)")
    spark.sql(f"call {CATALOG}.system.rewrite_manifests('d.t')")
    spark.sql(f"delete from {CATALOG}.d.t where id in (7, 107, 307)")
    spark.sql(f"call {CATALOG}.system.compute_table_stats('d.t')")
    spark.sql(f"call {CATALOG}.system.compute_partition_stats('d.t')")


MERGE = {f"write.{what}.mode": "merge-on-read" for what in ("delete", "update", "merge")}
STORIES: dict[str, tuple[int, dict[str, str], ReachKind | None]] = {
    "v1": (1, {}, None),
    "v2": (2, MERGE, POSITIONS),
    "v3": (3, MERGE, VECTORS),
}


def in_region(regions: Regions, location: str) -> list[Reached]:
    """What a localised table leads to; all of it is in the region, and as long as it is said to be."""
    metadata = regions.worlds[REGION].load(location).metadata
    found = list(reach(regions.files, metadata, metadata_location=location))
    for each in found:
        assert each.location.startswith(f"{regions.root(REGION)}/")
        path = Path(each.location.removeprefix("file://"))
        # Spark keeps statistics among the metadata, which these tests do not copy.
        is_copied = each.kind not in (ReachKind.STATISTICS, ReachKind.PARTITION_STATISTICS)
        assert not is_copied or each.size_bytes in (None, path.stat().st_size)
    return found


@pytest.mark.parametrize("name", STORIES)
def test_everybody_reads_it_in_the_region(spark: SparkSession, regions: Regions, name: str) -> None:
    version, properties, kind = STORIES[name]
    write_table(spark, version, properties)
    write_on(spark)
    expected = normal(spark.table(f"{CATALOG}.d.t").collect())
    done = regions.localise(newest(spark))
    kinds = {each.kind for each in in_region(regions, done.location)}
    assert {ReachKind.STATISTICS, ReachKind.PARTITION_STATISTICS} <= kinds
    assert kind is None or kind in kinds
    with regions.others_away():
        assert by_spark(spark, done.location) == expected
        assert by_pyiceberg(done.location) == expected
        assert by_duckdb(done.location) == expected
    assert len(expected) == 80 - 16 + 20 - 3


@pytest.mark.parametrize("file_format", ["avro", "orc"])
def test_position_deletes_of_other_formats(spark: SparkSession, regions: Regions, file_format: str) -> None:
    """Which neither PyIceberg nor DuckDB reads."""
    write_table(spark, 2, {**MERGE, "write.delete.format.default": file_format})
    expected = normal(spark.table(f"{CATALOG}.d.t").collect())
    done = regions.localise(newest(spark))
    deletes = [each for each in in_region(regions, done.location) if each.kind is POSITIONS]
    assert [each.location.rpartition(".")[2] for each in deletes] == [file_format] * 2
    with regions.others_away():
        assert by_spark(spark, done.location) == expected
    assert len(expected) == 64


def test_live_files_after_rewritten_manifests_and_expire(spark: SparkSession, regions: Regions) -> None:
    """No snapshot that added the files is left, and entries tell of files that are gone."""
    write_table(spark, 2, MERGE)
    write_on(spark)
    spark.sql(f"call {CATALOG}.system.rewrite_data_files(table => 'd.t', where => 'id >= 300')")
    spark.sql(f"call {CATALOG}.system.rewrite_manifests('d.t')")
    spark.sql(f"delete from {CATALOG}.d.t where part = 'p1' and id < 100")
    spark.sql(
        f"call {CATALOG}.system.expire_snapshots(table => 'd.t', older_than => timestamp'2100-01-01', retain_last => 1)"
    )
    expected = normal(spark.table(f"{CATALOG}.d.t").collect())
    source = newest(spark)
    metadata = regions.worlds["us"].load(source).metadata
    (snapshot,) = metadata.snapshots
    entries = [
        entry
        for manifest in read_manifest_list(regions.files, snapshot)
        for entry in read_manifest(regions.files, manifest)
    ]
    assert {each.snapshot_id for each in entries} - {snapshot.snapshot_id}
    assert any(each.status is ManifestEntryStatus.DELETED for each in entries)
    for history in History:
        done = regions.localise(source, history=history)
        with regions.others_away():
            assert by_spark(spark, done.location) == expected == by_duckdb(done.location)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_spark_writes_is_proven_not_walked(spark: SparkSession, regions: Regions, version: int) -> None:
    """A real manifest, with partitions and bounds of many types: the fast way is the one that is taken."""
    spark.sql(
        f"create table {CATALOG}.d.t (id bigint, name string, at timestamp, price decimal(9,2), raw binary, tags "
        f"array<string>) using iceberg partitioned by (id) tblproperties ('format-version'='{version}')"
    )
    spark.sql(
        f"insert into {CATALOG}.d.t select id, concat('n', id), timestamp_seconds(id), id / 3, cast('x' as binary), "
        "array('a', null) from range(40)"
    )
    (manifest,) = (regions.folder / "us" / "d" / "t" / "metadata").glob("*-m0.avro")
    header, _, read = read_container(manifest.read_bytes())
    blocks = list(read)
    walked = [[each.fields[100] for each in records_in(header, block, n, frozenset({100}))] for n, block in blocks]
    assert relocate_lanes._proven(header, blocks, 100) == walked
    assert sum(map(len, walked)) == 40


def test_an_upgraded_table(spark: SparkSession, regions: Regions) -> None:
    """Position deletes of v2 and vectors of v3 in one table, and row ids that were given since."""
    spark.sql(
        f"create table {CATALOG}.d.t (id bigint, v string) using iceberg tblproperties ('format-version'='2', "
        "'write.delete.mode'='merge-on-read', 'write.delete.granularity'='partition')"
    )
    for start in (0, 50):
        spark.sql(f"insert into {CATALOG}.d.t select /*+ COALESCE(1) */ id, 'v2' from range({start}, {start + 50})")
    spark.sql(f"delete from {CATALOG}.d.t where id in (1, 2, 60)")
    spark.sql(f"alter table {CATALOG}.d.t set tblproperties ('format-version'='3')")
    spark.sql(f"insert into {CATALOG}.d.t values (500, 'v3')")
    spark.sql(f"delete from {CATALOG}.d.t where id in (3, 500)")
    expected = normal(spark.sql(f"select id, v, _row_id from {CATALOG}.d.t").collect())
    done = regions.localise(newest(spark))
    with regions.others_away():
        assert by_spark(spark, done.location, "id", "v", "_row_id") == expected
        assert by_pyiceberg(done.location) == by_duckdb(done.location) == normal(row[:2] for row in expected)
    assert len(expected) == 96


def opener(folder: Path) -> Callable[[], Place]:
    """Opens the place where it is called. All of it travels to the workers, which cannot import tests."""
    reserved, region = RESERVED, REGION

    class NoOutputs:
        def record(self, outputs: object) -> None:
            pass

    def opened() -> Place:
        names = ("us", "eu", "asia")
        made = tuple(Region(name, f"file://{folder}/{name}/", f"main_replica_{name}") for name in names)
        registry = Registry(made, tuple(each.local_prefix for each in made))
        stores: dict[str, Any] = {
            f"file://{folder}/{name}": FileStore(folder / name, SystemClock(), system_randomness(), durable=False)
            for name in names
        }
        mapping = RegistryMapping(Resolver(registry, region))
        return Place(Files(stores), mapping, NoOutputs(), f"file://{folder}/{region}/{reserved}")

    return opened


def test_on_spark_it_is_the_same(
    spark: SparkSession, regions: Regions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_table(spark, 2, MERGE)
    regions.copy()
    source, opened = newest(spark), opener(tmp_path)
    monkeypatch.setattr(decide, "SPREAD_FROM", 0)
    done = localise(opened(), source, spread=spread_on(spark, opened, tasks=2))
    assert done.manifests_written == done.manifests_read > 2
    assert done.deletes_written > 0
    again = localise(opened(), source)
    assert (again.location, again.manifests_written, again.deletes_written) == (done.location, 0, 0)
    with regions.others_away():
        assert by_spark(spark, done.location) == by_duckdb(done.location)


def test_an_error_on_spark_is_the_same_error(
    spark: SparkSession, regions: Regions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spark.sql(f"create table {CATALOG}.d.t (id bigint) using iceberg")
    spark.sql(f"insert into {CATALOG}.d.t values (1)")
    source, opened = newest(spark), opener(tmp_path)
    (manifest,) = (tmp_path / "us" / "d" / "t" / "metadata").glob("*-m0.avro")
    manifest.write_bytes(manifest.read_bytes()[:-3])
    errors = []
    monkeypatch.setattr(decide, "SPREAD_FROM", 0)
    for spread in (None, spread_on(spark, opened, tasks=2)):
        with pytest.raises(CorruptError) as caught:
            localise(opened(), source, spread=spread)
        errors.append((caught.value.message, caught.value.hint, caught.value.fields, caught.value.exit_code))
    assert errors[0] == errors[1]
    assert errors[0][2]["path"] == str(manifest)
