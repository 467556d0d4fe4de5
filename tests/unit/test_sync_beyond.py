"""What other tools stumble over, and bad input: the replica follows `main`, or stays, and the next run goes on."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions.parser import parse
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from headwater.app import App
from headwater.catalog.model import CommitRequest, Put, TableContent, TableKey
from headwater.kernel.errors import CorruptError, HeadwaterError
from headwater.kernel.ids import new_ulid
from headwater.regions.errors import InvalidUriError, MisplacedError, NoRuleError
from headwater.regions.registry.model import DestPolicy, Mode
from headwater.storage.file import FileStore
from headwater.sync.check.protocol import Checker
from headwater.sync.copy.model import CopyFailedError
from headwater.sync.runs.model import RunState
from headwater.tables.evolve import change_spec
from headwater.tables.expire import expire
from headwater.tables.model import NewFile, TableFile, TableVersion
from headwater.tables.operations import append, delete, rewrite
from headwater.tables.partitions import AddPartitionField
from headwater.tables.scan import plan_scan
from tests.fixtures.engines import by_duckdb
from tests.fixtures.tables import TableWorld
from tests.unit.localise_world import add_files
from tests.unit.sync_world import Regions, ids

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "v", StringType()))


class Beyond(Regions):
    """The three regions, and engines in us that write tables without us, file by file."""

    def __init__(self, folder: Path, **environ: str) -> None:
        super().__init__(folder, **environ)
        us = folder / "us"
        self.engine = TableWorld(f"file://{us}", FileStore(us, self.app.clock, self.app.randomness, durable=False))

    def show(self, name: str, version: TableVersion) -> None:
        """The engine commits its table to main."""
        catalog, metadata = self.lake().catalog, version.metadata
        key = TableKey.parse(name)
        head = catalog.ref("main").hash
        held = catalog.content(head, [key]).get(key)
        operation = new_ulid(self.app.clock, self.app.randomness)
        content = TableContent(
            operation if held is None else held.content_id,
            str(version.location),
            metadata.current_snapshot_id or -1,
            metadata.current_schema_id,
            metadata.default_spec_id,
            metadata.default_sort_order_id,
        )
        catalog.commit(
            CommitRequest(
                branch="main",
                head=head,
                changes={key: Put(content)},
                expected={key: held},
                actor="engine",
                message=f"write {name}",
                operation=operation,
            )
        )

    def main(self, table: str) -> list[dict[str, Any]]:
        """What PyIceberg reads of main."""
        location = self.tables("main")[table].metadata_location
        return sorted(StaticTable.from_metadata(location).scan().to_arrow().to_pylist(), key=str)

    def is_the_same(self, *tables: str) -> None:
        """The replica has the rows of main, every path is local, and every file there."""
        assert set(self.tables("main_replica_eu")) == set(self.tables("main"))
        for table in tables:
            assert self.rows(table) == self.main(table)
            local = f"{(self.folder / 'eu').as_uri()}/"
            assert [path for path in self.paths(table) if not path.startswith(local)] == []
        with self.syncing() as (syncing, ground):
            found = Checker(ground.catalog, ground.files, ground.generation.registry, "eu").check(
                syncing.status().replica
            )
        assert found.findings == ()

    @contextmanager
    def stays(self) -> Iterator[None]:
        """While the block lasts, the replica stays where it is, and the run is told as failed, or never began."""
        before = self.status().replica
        yield
        after = self.status()
        assert after.replica == before
        assert all(each.state is not RunState.RUNNING for each in after.runs)


@pytest.fixture
def regions(tmp_path: Path) -> Beyond:
    return Beyond(tmp_path)


def rows(*numbers: int) -> pa.Table:
    names = ("id", "v")
    return pa.table([pa.array(numbers, pa.int64()), pa.array([f"v{each}" for each in numbers])], names=names)


def data_file(location: str, data: bytes, count: int, **more: Any) -> TableFile:
    made = TableFile.from_args(
        _table_format_version=3,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=count,
        file_size_in_bytes=len(data),
        **{"content": DataFileContent.DATA, **more},
    )
    made.spec_id = 0
    return made  # type: ignore[return-value]


def parquet(*numbers: int) -> bytes:
    out = io.BytesIO()
    field = pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([pa.array(numbers, pa.int64())], pa.schema([field])), out)
    return out.getvalue()


class TestBeyondThePeers:
    def test_files_of_one_table_in_three_places(self, regions: Beyond) -> None:
        regions.lake("us").create_table("t", ids(1).schema, actor="ann")
        for number, region in enumerate(("us", "eu", "asia")):
            regions.lake(region).load("t", ids(number), actor="ann")
        for region in ("eu", "asia"):
            regions.sync(region)
            assert regions.rows("default.t", region) == [{"id": 0}, {"id": 1}, {"id": 2}]
        regions.is_the_same("default.t")

    def test_live_files_after_a_rewrite_and_expire(self, regions: Beyond) -> None:
        """Their snapshots are gone with their ids; what lives is found all the same."""
        engine = regions.engine
        table = engine.create(SCHEMA)
        for number in range(4):
            table = engine.commit(append(engine.staging(), table, rows(number)))
        table = engine.commit(rewrite(engine.staging(), table, plan_scan(engine.files, table.metadata).tasks[:2]))
        now = engine.clock.now()
        table = engine.commit(expire(table.metadata, keep_last=1, older_than=now, now=now))
        assert len(table.metadata.snapshots) == 1
        regions.show("t", table)
        regions.sync()
        regions.is_the_same("default.t")
        assert len(regions.rows("default.t")) == 4

    def test_optimize_between_two_runs(self, regions: Beyond) -> None:
        lake = regions.lake("us")
        lake.create_table("t", ids(1).schema, actor="ann")
        for number in range(4):
            lake.load("t", ids(number), actor="ann")
        regions.sync()
        lake.optimize("t", actor="ann", min_files=2)
        lake.load("t", ids(9), actor="ann")
        regions.sync()
        regions.is_the_same("default.t")

    def test_a_deleted_entry_whose_file_is_gone(self, regions: Beyond) -> None:
        engine = regions.engine
        table = engine.create(SCHEMA)
        table = engine.commit(append(engine.staging(), table, rows(1)))
        table = engine.commit(append(engine.staging(), table, rows(2)))
        table = engine.commit(rewrite(engine.staging(), table, plan_scan(engine.files, table.metadata).tasks[:1]))
        now = engine.clock.now()
        table = engine.commit(expire(table.metadata, keep_last=1, older_than=now, now=now))
        live = {task.file.file_path for task in plan_scan(engine.files, table.metadata).tasks}
        gone = [each for each in (regions.folder / "us").rglob("*.parquet") if f"file://{each}" not in live]
        assert gone
        for each in gone:
            each.unlink()
        regions.show("t", table)
        regions.sync()
        regions.is_the_same("default.t")

    def test_equality_deletes(self, regions: Beyond) -> None:
        engine = regions.engine
        table = engine.commit(append(engine.staging(), engine.create(SCHEMA), rows(*range(5))))
        location, data = f"{table.metadata.location}/data/equality.parquet", parquet(2, 4)
        engine.files.write([NewFile(location, data)])
        deletes = data_file(location, data, 2, content=DataFileContent.EQUALITY_DELETES, equality_ids=[1])
        regions.show("t", add_files(engine, table, deletes))
        regions.sync()
        found = by_duckdb(regions.tables("main_replica_eu")["default.t"].metadata_location)
        assert [each[0] for each in found] == [0, 1, 3]
        assert found == by_duckdb(regions.tables("main")["default.t"].metadata_location)

    @pytest.mark.parametrize("version", [2, 3])
    def test_deletes_by_position(self, regions: Beyond, version: int) -> None:
        engine = regions.engine
        table = engine.create(SCHEMA, format_version=version)
        table = engine.commit(append(engine.staging(), table, rows(*range(6))))
        regions.show("t", table)
        regions.sync()
        regions.show("t", engine.commit(delete(engine.staging(), table, parse("id in (1, 3)"))))
        regions.sync()
        regions.is_the_same("default.t")
        assert len(regions.rows("default.t")) == 4

    def test_evolved_partitions(self, regions: Beyond) -> None:
        engine = regions.engine
        table = engine.commit(append(engine.staging(), engine.create(SCHEMA), rows(1, 2)))
        regions.show("t", table)
        regions.sync()
        for change in (AddPartitionField("id", "bucket[2]"), AddPartitionField("v")):
            table = engine.commit(change_spec(table.metadata, [change], engine.clock.now()))
            table = engine.commit(append(engine.staging(), table, rows(3, 4)))
        assert len(table.metadata.partition_specs) == 3
        regions.show("t", engine.commit(delete(engine.staging(), table, parse("id = 3"))))
        regions.sync()
        regions.is_the_same("default.t")
        assert len(regions.rows("default.t")) == 4

    def test_a_schema_that_changes_on_the_way(self, regions: Beyond) -> None:
        lake = regions.lake("us")
        lake.apply("create table t (id bigint, v text)", actor="ann")
        for statement in (
            "insert into t values (1, 'a')",
            "alter table t add column w int",
            "insert into t values (2, 'b', 7)",
            "alter table t rename column v to name",
            "insert into t values (3, 'c', 8)",
        ):
            if statement.startswith("insert"):
                with lake.transaction(actor="ann") as change:
                    change.sql(statement)
            else:
                lake.apply(statement, actor="ann")
        assert len(regions.sync()) == 1  # one that shows nothing goes straight to the newest
        regions.is_the_same("default.t")
        lake.apply("alter table t drop column w", actor="ann")
        with lake.transaction(actor="ann") as change:
            change.sql("insert into t values (4, 'd')")
        assert len(regions.sync()) == 2
        regions.is_the_same("default.t")
        assert regions.rows("default.t")[-1] == {"id": 4, "name": "d"}

    def test_statistics(self, regions: Beyond) -> None:
        lake = regions.lake("us")
        properties = {"headwater.statistics.columns": "id"}
        lake.create_table("t", ids(1).schema, actor="ann", properties=properties)
        lake.load("t", ids(1, 2, 3), actor="ann")
        lake.ensure_indices("t", actor="ann")
        assert lake.table("t").metadata.statistics
        regions.sync()
        location = regions.tables("main_replica_eu")["default.t"].metadata_location
        found = StaticTable.from_metadata(location).metadata.statistics
        assert len(found) == len(lake.table("t").metadata.statistics)
        for each in found:
            file = Path(each.statistics_path.removeprefix("file://"))
            assert file.is_relative_to(regions.folder / "eu")
            assert file.stat().st_size == each.file_size_in_bytes

    def test_dropped_and_made_again_under_one_name(self, regions: Beyond) -> None:
        lake = regions.lake("us")
        lake.create_table("t", ids(1).schema, actor="ann")
        lake.load("t", ids(1), actor="ann")
        regions.sync()
        lake.apply("drop table t", actor="ann")
        lake.apply("create table t (name text)", actor="ann")
        with lake.transaction(actor="ann") as change:
            change.sql("insert into t values ('x')")
        regions.sync()
        assert regions.rows("default.t") == [{"name": "x"}]
        regions.is_the_same("default.t")

    def test_a_commit_over_fifty_tables_is_seen_at_once(self, regions: Beyond) -> None:
        lake = regions.lake("us")
        names = [f"t{number:02}" for number in range(50)]
        lake.apply("; ".join(f"create table {name} (id bigint)" for name in names), actor="ann")
        regions.sync()
        with lake.transaction(actor="ann") as change:
            for name in names:
                change.sql(f"insert into {name} values (1)")
        (done,) = regions.sync()
        assert done.promoted is not None
        catalog = lake.catalog
        changed = [each.key.name for each in catalog.diff(done.spec.replica_head, done.promoted)]
        assert sorted(changed) == names
        regions.is_the_same(*(f"default.{name}" for name in names[::17]))


def a_table(regions: Beyond, *numbers: int) -> TableVersion:
    """A table of the engine's, which the replica shows."""
    engine = regions.engine
    table = engine.commit(append(engine.staging(), engine.create(SCHEMA), rows(*numbers)))
    regions.show("t", table)
    regions.sync()
    regions.is_the_same("default.t")
    return table


def failing(regions: Beyond, kind: type[HeadwaterError], *said: str) -> HeadwaterError:
    """A run that stops and says why, by words and in its row, and leaves the replica where it was."""
    with regions.stays(), pytest.raises(kind) as caught:
        regions.sync()
    for each in said:
        assert each in str(caught.value)
    return caught.value


class TestBadInput:
    @pytest.mark.hazard("R12")
    @pytest.mark.parametrize(
        ("elsewhere", "kind"),
        [("file:///nowhere/of/ours/x.parquet", NoRuleError), ("hdfs://x/y.parquet", InvalidUriError)],
    )
    def test_a_file_that_no_rule_covers(self, regions: Beyond, elsewhere: str, kind: type[HeadwaterError]) -> None:
        table = a_table(regions, 1)
        regions.show("t", add_files(regions.engine, table, data_file(elsewhere, b"x", 1)))
        failing(regions, kind, elsewhere)
        assert regions.status().runs[0].error is not None
        # It is repaired on main: the commit that was bad is passed over.
        regions.show("t", regions.engine.commit(append(regions.engine.staging(), table, rows(2))))
        (done,) = regions.sync()
        assert done.state is RunState.DONE
        regions.is_the_same("default.t")

    def test_a_rule_that_is_added_is_the_other_way_out(self, regions: Beyond) -> None:
        table = a_table(regions, 1)
        (regions.folder / "old").mkdir()
        (regions.folder / "old" / "x.parquet").write_bytes(parquet(7))
        uri = (regions.folder / "old" / "x.parquet").as_uri()
        regions.show("t", add_files(regions.engine, table, data_file(uri, parquet(7), 1)))
        failing(regions, NoRuleError, uri)
        sources = (*regions.registry.sources, f"{(regions.folder / 'old').as_uri()}/")
        regions.app.open_publisher(regions.url).publish(replace(regions.registry, sources=sources), actor="ann")
        regions.sync()
        regions.is_the_same("default.t")
        assert {"id": 7, "v": None} in regions.rows("default.t")

    def test_a_destination_outside_the_local_prefix(self, regions: Beyond) -> None:
        a_table(regions, 1)
        publisher = regions.app.open_publisher(regions.url)
        elsewhere = DestPolicy(Mode.SPECIFIC_REGION, "asia", ensure_local_prefix=True)
        publisher.publish(replace(regions.registry, dest_policy=elsewhere), actor="ann")
        regions.lake("us").create_table("u", ids(1).schema, actor="ann")
        error = failing(regions, MisplacedError, "not under the local prefix", "source")
        assert error.hint is not None
        publisher.publish(regions.registry, actor="ann")
        regions.sync()
        regions.is_the_same("default.t", "default.u")

    def test_a_corrupt_manifest(self, regions: Beyond) -> None:
        table = a_table(regions, 1)
        before = set((regions.folder / "us").rglob("*.avro"))
        regions.show("t", regions.engine.commit(append(regions.engine.staging(), table, rows(2))))
        (manifest,) = (
            each for each in (regions.folder / "us").rglob("*.avro") if each not in before and "snap-" not in each.name
        )
        data = manifest.read_bytes()
        manifest.write_bytes(data[: len(data) // 2])
        failing(regions, CorruptError, manifest.name)
        manifest.write_bytes(data)
        regions.sync()
        regions.is_the_same("default.t")

    def test_a_registry_with_another_checksum(self, regions: Beyond) -> None:
        a_table(regions, 1)
        regions.lake("us").create_table("u", ids(1).schema, actor="ann")
        (file,) = (regions.folder / "lake" / "_headwater").rglob("registry-*.json")
        data = file.read_bytes()
        head = regions.status().replica.head
        file.write_bytes(data.replace(b'"us"', b'"US"', 1) if b'"us"' in data else data + b" ")
        regions.app = App(regions.app.settings)  # the next process, which knows nothing of it yet
        with pytest.raises(CorruptError, match="registry"):
            regions.sync()
        file.write_bytes(data)
        assert regions.status().replica.head == head
        regions.sync()
        regions.is_the_same("default.t", "default.u")

    def test_a_source_that_vanished_everywhere(self, regions: Beyond) -> None:
        table = a_table(regions, 1)
        before = set((regions.folder / "us").rglob("*.parquet"))
        regions.show("t", regions.engine.commit(append(regions.engine.staging(), table, rows(2))))
        (lost,) = set((regions.folder / "us").rglob("*.parquet")) - before
        data = lost.read_bytes()
        lost.unlink()
        error = failing(regions, CopyFailedError, f"file://{lost}", "it has vanished")
        assert error.fields["outcomes"] == ["vanished"]
        lost.write_bytes(data)
        regions.sync()
        regions.is_the_same("default.t")

    def test_a_source_that_another_region_still_has(self, regions: Beyond) -> None:
        table = a_table(regions, 1)
        before = set((regions.folder / "us").rglob("*.parquet"))
        regions.show("t", regions.engine.commit(append(regions.engine.staging(), table, rows(2))))
        regions.sync("asia")
        (lost,) = set((regions.folder / "us").rglob("*.parquet")) - before
        lost.rename(regions.folder / "lost")
        regions.sync()
        assert len(regions.rows("default.t")) == 2
