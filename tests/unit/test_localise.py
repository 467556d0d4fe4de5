"""Localising whole tables: other engines read the region's copy, with the other regions away, and see the same rows."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions.parser import parse
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from headwater.database import open_database
from headwater.kernel.errors import RefusedError, UnavailableError, UsageError
from headwater.kernel.ids import parse_ulid
from headwater.regions.claims import Claims
from headwater.regions.outputs import Outputs as OutputList
from headwater.storage.errors import ObjectNotFoundError, PreconditionFailedError, StorageOutcomeUnknownError
from headwater.sync.localise import manifest
from headwater.sync.localise.manifest import localise_manifests
from headwater.sync.localise.model import ManifestDone, ManifestWork, Output, OutputKind
from headwater.sync.localise.protocol import localise
from headwater.sync.runs.model import History
from headwater.tables.expire import expire
from headwater.tables.manifests import MANIFEST_LIST_SEAL, read_manifest, read_manifest_list
from headwater.tables.metadata import encode_metadata
from headwater.tables.model import NewFile, TableCorruptError, TableFile, TableVersion, UnsupportedTableError
from headwater.tables.operations import append, delete, rewrite
from headwater.tables.reach import Reached, reach
from headwater.tables.relocate_deletes import MovedPositions, relocate_position_deletes
from headwater.tables.scan import plan_scan
from headwater.tables.statistics import attach_partition_statistics, attach_statistics, partition_statistics
from tests.fixtures.engines import Row, by_duckdb, by_pyiceberg, rows_of
from tests.fixtures.tables import TableWorld
from tests.unit.localise_world import (
    REGION,
    RESERVED,
    ClaimedOutputs,
    PrefixMapping,
    RecordedOutputs,
    Regions,
    add_files,
)

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "v", StringType()))
VERSIONS = pytest.mark.parametrize("version", [2, 3])
RUN, OTHER = (parse_ulid(f"01J{digit * 23}") for digit in "12")


@pytest.fixture
def regions(tmp_path: Path) -> Regions:
    return Regions(tmp_path)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [f"v{each}" for each in ids]})


def some_table(regions: Regions, version: int = 2, *, region: str = "us", **options: Any) -> TableVersion:
    """Three appends and two deletes."""
    world = regions.worlds[region]
    table = world.create(SCHEMA, format_version=version, **options)
    for start in (0, 10, 20):
        table = world.commit(append(world.staging(), table, rows(*range(start, start + 10))))
    table = world.commit(delete(world.staging(), table, parse("id in (3, 14)")))
    return world.commit(delete(world.staging(), table, parse("id = 25")))


def in_region(regions: Regions, location: str) -> TableVersion:
    return regions.worlds[REGION].load(location)


def read_by_all(regions: Regions, location: str, *readers: Callable[[str], list[Row]]) -> list[Row]:
    """The rows, on which everybody agrees who has nothing but the region's folder."""
    with regions.others_away():
        found = rows_of(regions.worlds[REGION].rows(in_region(regions, location)))
        for reader in readers or (by_pyiceberg, by_duckdb):
            assert reader(location) == found
    return found


def reached(regions: Regions, location: str) -> list[Reached]:
    metadata = in_region(regions, location).metadata
    return list(reach(regions.files, metadata, metadata_location=location))


def is_local_and_true(regions: Regions, location: str) -> None:
    """Every path is in the region, every file is there, and as long as whoever names it says."""
    for each in reached(regions, location):
        assert each.location.startswith(f"{regions.root(REGION)}/")
        path = Path(each.location.removeprefix("file://"))
        assert path.is_file(), each
        assert each.size_bytes in (None, path.stat().st_size), each


def contents(folder: Path, *, but: str = RESERVED) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and but not in str(path)}


def outputs(regions: Regions) -> set[str]:
    folder = regions.folder / REGION / RESERVED
    return {f"file://{path}" for path in folder.rglob("*") if path.is_file()}


@VERSIONS
@pytest.mark.parametrize("history", list(History))
def test_a_table_with_deletes_is_read_in_the_region(regions: Regions, version: int, history: History) -> None:
    table = some_table(regions, version)
    before = rows_of(regions.worlds["us"].rows(table))
    done = regions.localise(table, history=history)
    assert read_by_all(regions, done.location) == before
    assert len(before) == 27
    is_local_and_true(regions, done.location)


@VERSIONS
def test_every_snapshot_is_read_as_it_was(regions: Regions, version: int) -> None:
    table = some_table(regions, version)
    done = regions.localise(table)
    local = in_region(regions, done.location)
    assert done.snapshot_ids == tuple(each.snapshot_id for each in table.metadata.snapshots)
    for each in done.snapshot_ids:
        expected = rows_of(regions.worlds["us"].rows(table, snapshot_id=each))
        assert rows_of(regions.worlds[REGION].rows(local, snapshot_id=each)) == expected


@pytest.mark.parametrize("version", [1, 2])
def test_a_table_of_pyiceberg(regions: Regions, version: int) -> None:
    """Written by somebody else, with partitions, deletes of whole files, rewrites."""
    catalog = SqlCatalog("c", uri=f"sqlite:///{regions.folder}/c.db", warehouse=regions.root("us"))
    catalog.create_namespace("db")
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "v"))
    made = catalog.create_table("db.t", SCHEMA, partition_spec=spec, properties={"format-version": str(version)})
    made.append(rows(1, 2, 3).cast(made.schema().as_arrow()))
    made.append(rows(4, 5).cast(made.schema().as_arrow()))
    made.delete("v = 'v1'")
    made.overwrite(rows(6).cast(made.schema().as_arrow()), overwrite_filter="id = 5")
    catalog.engine.dispose()
    assert made.metadata.format_version == version
    before = by_pyiceberg(made.metadata_location)
    done = regions.localise(made.metadata_location)
    assert read_by_all(regions, done.location) == before
    assert [row[0] for row in before] == [2, 3, 4, 6]
    is_local_and_true(regions, done.location)


def test_equality_deletes_need_nothing_but_their_path(regions: Regions) -> None:
    world = regions.worlds["us"]
    table = world.create(SCHEMA)
    table = world.commit(append(world.staging(), table, rows(*range(10))))
    location = f"{table.metadata.location}/data/equality.parquet"
    out = io.BytesIO()
    field = pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([pa.array([2, 4])], pa.schema([field])), out)
    world.files.write([NewFile(location, out.getvalue())])
    deletes = TableFile.from_args(
        _table_format_version=3,
        content=DataFileContent.EQUALITY_DELETES,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=2,
        file_size_in_bytes=len(out.getvalue()),
        equality_ids=[1],
    )
    deletes.spec_id = 0
    table = add_files(world, table, deletes)  # type: ignore[arg-type]
    done = regions.localise(table)
    assert [row[0] for row in read_by_all(regions, done.location, by_duckdb)] == [0, 1, 3, 5, 6, 7, 8, 9]
    is_local_and_true(regions, done.location)
    assert f"{regions.root(REGION)}/t/data/equality.parquet" in [
        each.location for each in reached(regions, done.location)
    ]


@VERSIONS
def test_deletes_that_are_local_in_every_way_stay(regions: Regions, version: int) -> None:
    """A table of this very region: its metadata is written anew, and nothing else."""
    table = some_table(regions, version, region=REGION)
    before = rows_of(regions.worlds[REGION].rows(table))
    done = regions.localise(table)
    assert done.deletes_written == 0
    assert {each.rpartition(".")[2] for each in outputs(regions)} == {"avro", "json"}
    assert read_by_all(regions, done.location) == before
    is_local_and_true(regions, done.location)


def test_the_copy_of_a_delete_file_is_enough(regions: Regions) -> None:
    """When the original is out of reach by the time that the file is written anew."""
    table = some_table(regions)
    before = rows_of(regions.worlds["us"].rows(table))
    regions.copy()
    for path in (regions.folder / "us" / "t" / "data").iterdir():
        path.unlink()
    done = localise(regions.place(), table.location or "")
    assert read_by_all(regions, done.location) == before


def test_files_of_one_table_in_three_regions(regions: Regions) -> None:
    """Written in one, its data in another, read in the third."""
    world = regions.worlds["us"]
    table = world.create(SCHEMA)
    table = world.commit(append(world.staging(), table, rows(1, 2)))
    elsewhere = regions.worlds["asia"].create(SCHEMA)
    elsewhere = regions.worlds["asia"].commit(append(regions.worlds["asia"].staging(), elsewhere, rows(3, 4)))
    at_home = regions.worlds[REGION].create(SCHEMA)
    at_home = regions.worlds[REGION].commit(append(regions.worlds[REGION].staging(), at_home, rows(5, 6)))
    foreign = [plan_scan(regions.files, each.metadata).tasks[0].file for each in (elsewhere, at_home)]
    table = add_files(world, table, *foreign)
    table = world.commit(delete(world.staging(), table, parse("id in (2, 3, 5)")))
    done = regions.localise(table)
    assert [row[0] for row in read_by_all(regions, done.location)] == [1, 4, 6]
    is_local_and_true(regions, done.location)


@pytest.mark.hazard("R5")
class TestR5:
    def test_r5_localising_overwrites_nothing(self, regions: Regions) -> None:
        """A table of this very region, whose manifests are local already and hold another region's paths."""
        world = regions.worlds[REGION]
        foreign = some_table(regions)
        table = world.create(SCHEMA, name="mixed")
        files = [task.file for task in plan_scan(regions.files, foreign.metadata).tasks]
        table = add_files(world, table, *files)
        regions.copy()
        before = contents(regions.folder)
        done = localise(regions.place(), table.location or "")
        assert contents(regions.folder) == before
        assert len(read_by_all(regions, done.location)) == 30
        assert done.location.startswith(f"{regions.root(REGION)}/{RESERVED}/")

    def test_r5_what_is_there_is_never_written_again(self, regions: Regions) -> None:
        table = some_table(regions)
        first = regions.localise(table)
        before = {path: Path(path.removeprefix("file://")).stat().st_mtime_ns for path in outputs(regions)}
        again = regions.localise(table)
        assert again.location == first.location
        assert (again.manifests_written, again.lists_written, again.deletes_written) == (0, 0, 0)
        assert {path: Path(path.removeprefix("file://")).stat().st_mtime_ns for path in outputs(regions)} == before

    def test_r5_other_rules_have_other_outputs(self, regions: Regions) -> None:
        table = some_table(regions)
        done = [regions.localise(table), regions.localise(table, digest="rules-2")]
        assert len({each.location for each in done}) == 2
        assert done[0].manifests_written == done[1].manifests_written > 0
        current = regions.localise(table, history=History.CURRENT)
        assert current.location not in {each.location for each in done}

    def test_r5_an_output_that_is_gone_is_made_again(self, regions: Regions) -> None:
        """Also one that only another output names: a manifest of deletes is not enough."""
        table = some_table(regions)
        before = rows_of(regions.worlds["us"].rows(table))
        done = regions.localise(table)
        for gone in sorted(outputs(regions)):
            Path(gone.removeprefix("file://")).unlink()
            again = regions.localise(table)
            assert again.location == done.location
            assert gone in outputs(regions)
        assert read_by_all(regions, done.location) == before

    def test_r5_two_runs_at_once_agree(self, regions: Regions) -> None:
        """Whenever one lists an output, the other has just made it."""
        table = some_table(regions)
        regions.copy()

        class Overtaken(RecordedOutputs):
            def record(self, outputs: Sequence[Output]) -> None:
                super().record(outputs)
                self.other = localise(regions.place(), table.location or "")

        overtaken = Overtaken()
        done = localise(regions.place(outputs=overtaken), table.location or "")
        assert done.location == overtaken.other.location
        assert done.manifests_written == done.deletes_written == done.lists_written == 0
        is_local_and_true(regions, done.location)

    def test_r5_the_first_to_write_tells_the_length(self, regions: Regions, monkeypatch: pytest.MonkeyPatch) -> None:
        """Another process made the same manifest, packed by another library: its length is the true one."""
        table = some_table(regions)
        store = regions.worlds[REGION].store
        put = store.put

        def overtaken(path: str, data: bytes, mode: Any, **options: Any) -> str:
            if path.endswith("manifest.avro") and "-" not in path.rpartition("/")[2]:
                put(path, _packed_otherwise(data), mode)
            return put(path, data, mode, **options)

        monkeypatch.setattr(store, "put", overtaken)
        done = regions.localise(table)
        monkeypatch.undo()
        is_local_and_true(regions, done.location)
        assert len(read_by_all(regions, done.location)) == 27

    def test_r5_what_is_made_again_longer_is_named_anew(
        self, regions: Regions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A delete file was collected, and a newer library makes a longer one: nobody keeps the old length."""
        table = some_table(regions)
        before = rows_of(regions.worlds["us"].rows(table))
        done = regions.localise(table)
        for path in outputs(regions):
            if path.endswith(".parquet"):
                Path(path.removeprefix("file://")).unlink()

        def longer(data: bytes, *args: Any) -> MovedPositions:
            found = relocate_position_deletes(data, *args)
            out = io.BytesIO()
            pq.write_table(pq.read_table(io.BytesIO(found.data)), out, compression="none", version="1.0")
            return MovedPositions(out.getvalue(), found.bounds)

        monkeypatch.setattr(manifest, "relocate_position_deletes", longer)
        again = regions.localise(table)
        assert again.location != done.location
        is_local_and_true(regions, again.location)
        assert read_by_all(regions, again.location) == before


def _packed_otherwise(data: bytes) -> bytes:
    """The same Avro file, longer."""
    from headwater.tables.avro import read_container
    from headwater.tables.relocate_avro import container_head, number

    header, sync, blocks = read_container(data)
    out = container_head(header, sync).replace(b"\x0edeflate", b"\x08null")
    return out + b"".join(number(count) + number(len(plain)) + plain + sync for count, plain in blocks)


@pytest.mark.hazard("G4")
def test_g4_an_output_is_listed_before_it_is_there(regions: Regions) -> None:
    table = some_table(regions, 3)

    class Watching(RecordedOutputs):
        def record(self, outputs: Sequence[Output]) -> None:
            super().record(outputs)
            for each in outputs:
                assert not Path(each.location.removeprefix("file://")).exists()

    watching = Watching()
    done = regions.localise(table, outputs=watching)
    assert {each.location for each in watching.recorded} == outputs(regions)
    kinds = {each.location: each.kind for each in watching.recorded}
    assert kinds[done.location] is OutputKind.METADATA
    assert set(kinds.values()) == set(OutputKind) - {OutputKind.POSITION_DELETES}
    sources = {each.source for each in watching.recorded}
    assert all(each.startswith(regions.root("us")) for each in sources)


@pytest.fixture
def claims(tmp_path: Path) -> Iterator[tuple[OutputList, Claims]]:
    """The lake's own list and claims, in a database."""
    with open_database(tmp_path / "state.db") as database:
        yield OutputList(database), Claims(database)


@pytest.mark.hazard("G3", "G4")
class TestListedAndClaimed:
    def test_g4_the_list_has_every_output(self, regions: Regions, claims: tuple[OutputList, Claims]) -> None:
        listed, claimed = claims
        run = claimed.open(RUN, REGION, fence=1, lease_seconds=60).run
        table = some_table(regions)
        for _ in range(2):
            regions.localise(table, outputs=ClaimedOutputs(listed, claimed, run))
            assert {each.uri for each in listed.list(REGION)} == outputs(regions)
        assert claimed.claimed(sorted(outputs(regions))) == outputs(regions)

    def test_g3_what_is_being_deleted_is_not_reused(self, regions: Regions, claims: tuple[OutputList, Claims]) -> None:
        listed, claimed = claims
        table = some_table(regions)
        shown = regions.localise(table)
        for path in sorted(outputs(regions)):
            claimed.begin_delete(REGION, [path], OTHER, lease_seconds=60)
            run = claimed.open(RUN, REGION, fence=1, lease_seconds=60).run
            with pytest.raises(UnavailableError, match="is being deleted") as caught:
                regions.localise(table, outputs=ClaimedOutputs(listed, claimed, run))
            assert caught.value.fields["path"] == path
            Path(path.removeprefix("file://")).unlink()
            claimed.end_delete(REGION, [path], OTHER)
            again = regions.localise(table, outputs=ClaimedOutputs(listed, claimed, run))
            assert again.location == shown.location
            is_local_and_true(regions, again.location)
            claimed.release(run)


class TestOneMoreCommit:
    """What the replica shows already is taken as it is."""

    @VERSIONS
    def test_it_costs_what_it_adds(self, regions: Regions, version: int) -> None:
        world = regions.worlds["us"]
        table = some_table(regions, version)
        shown = regions.localise(table)
        after = world.commit(append(world.staging(), table, rows(100)))
        done = regions.localise(after, promoted=shown.location)
        assert (done.lists_read, done.lists_written) == (1, 1)
        assert (done.manifests_read, done.manifests_written, done.deletes_written) == (1, 1, 0)
        assert len(read_by_all(regions, done.location)) == 28
        is_local_and_true(regions, done.location)

    def test_it_is_what_it_would_have_been(self, regions: Regions) -> None:
        world = regions.worlds["us"]
        table = some_table(regions)
        shown = regions.localise(table)
        after = world.commit(delete(world.staging(), table, parse("id = 7")))
        quick = regions.localise(after, promoted=shown.location)
        assert regions.localise(after).location == quick.location

    @pytest.mark.parametrize("options", [{"digest": "rules-2"}, {"history": History.CURRENT}])
    def test_nothing_of_other_rules_is_reused(self, regions: Regions, options: dict[str, Any]) -> None:
        table = some_table(regions)
        shown = regions.localise(table)
        done = regions.localise(table, promoted=shown.location, **options)
        assert done.manifests_reused == 0
        assert done.manifests_written > 0

    def test_what_cannot_be_read_is_not_reused(self, regions: Regions) -> None:
        table = some_table(regions)
        before = rows_of(regions.worlds["us"].rows(table))
        for damaged in (f"{regions.root(REGION)}/nothing.metadata.json", f"{regions.root(REGION)}/x.metadata.json"):
            Path(f"{regions.folder}/{REGION}/x.metadata.json").write_text("{}")
            done = regions.localise(table, promoted=damaged)
            assert read_by_all(regions, done.location) == before

    def test_a_table_that_was_made_anew_shares_nothing(self, regions: Regions) -> None:
        """The same name and place, another table; what the replica shows is of the old one."""
        shown = regions.localise(some_table(regions))
        (regions.folder / "us" / "t").rename(regions.folder / "us" / "old")
        table = some_table(regions)
        done = regions.localise(table, promoted=shown.location)
        assert done.manifests_reused == 0
        is_local_and_true(regions, done.location)


def gone_files(world: TableWorld, table: TableVersion) -> list[Path]:
    """Files that only entries name which say that they were deleted."""
    live = {each.location for each in reach(world.files, table.metadata, metadata_location=table.location or "")}
    return [path for path in Path(world.root.removeprefix("file://")).rglob("data/*") if f"file://{path}" not in live]


@VERSIONS
def test_entries_of_deleted_files_need_no_file(regions: Regions, version: int) -> None:
    """A rewrite and a second delete leave entries of files that expire has taken away."""
    world = regions.worlds["us"]
    table = some_table(regions, version)
    table = world.commit(rewrite(world.staging(), table, plan_scan(world.files, table.metadata).tasks[:1]))
    table = world.commit(delete(world.staging(), table, parse("id in (11, 26)")))
    table = world.commit(delete(world.staging(), table, parse("id = 12")))
    table = world.commit(expire(table.metadata, keep_last=1, older_than=world.clock.now(), now=world.clock.now()))
    assert len(table.metadata.snapshots) == 1
    before = rows_of(world.rows(table))
    gone = gone_files(world, table)
    assert len(gone) > 1
    for path in gone:
        path.unlink()
    done = regions.localise(table)
    assert read_by_all(regions, done.location) == before
    is_local_and_true(regions, done.location)
    snapshot = in_region(regions, done.location).metadata.current_snapshot()
    assert snapshot is not None
    paths = [
        entry.data_file.file_path
        for manifest in read_manifest_list(regions.files, snapshot)
        for entry in read_manifest(regions.files, manifest)
        if entry.status is ManifestEntryStatus.DELETED
    ]
    assert paths
    assert all(each.startswith(f"{regions.root(REGION)}/") for each in paths)


def test_only_the_current_snapshot_and_what_lives_with_it(regions: Regions) -> None:
    world = regions.worlds["us"]
    table = some_table(regions)
    current, first = table.metadata.current_snapshot_id, table.metadata.snapshots[0].snapshot_id
    tags = {
        name: SnapshotRef.model_validate({"snapshot-id": snapshot_id, "type": "tag"})
        for name, snapshot_id in (("old", first), ("new", current))
    }
    refs = {**table.metadata.refs, **tags}
    table = world.commit(table.metadata.model_copy(update={"refs": refs}))
    done = regions.localise(table, history=History.CURRENT)
    local = in_region(regions, done.location).metadata
    assert [each.snapshot_id for each in local.snapshots] == [current] == list(done.snapshot_ids)
    assert set(local.refs) == {"main", "new"}
    assert [each.snapshot_id for each in local.snapshot_log] == [current]
    full = in_region(regions, regions.localise(table).location).metadata
    assert set(full.refs) == {"main", "old", "new"}
    assert len(full.snapshots) == len(table.metadata.snapshots)


def test_a_table_without_snapshots(regions: Regions) -> None:
    table = regions.worlds["us"].create(SCHEMA)
    for history in History:
        done = regions.localise(table, history=history)
        local = in_region(regions, done.location).metadata
        assert (local.current_snapshot(), local.location) == (None, f"{regions.root(REGION)}/t")
        assert done.snapshot_ids == ()


def test_everything_else_in_the_document(regions: Regions) -> None:
    """Properties that are paths, statistics, the log; what nobody here knows of stays."""
    world = regions.worlds["us"]
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "v"))
    table = some_table(regions, spec=spec)
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    live = plan_scan(world.files, table.metadata).tasks
    path = f"{table.metadata.location}/metadata/stats.puffin"
    world.files.write([NewFile(path, b"PFA1")])
    metadata = attach_statistics(
        table.metadata,
        StatisticsFile(
            snapshot_id=snapshot.snapshot_id,
            statistics_path=path,
            file_size_in_bytes=4,
            file_footer_size_in_bytes=4,
            blob_metadata=[],
        ),
        world.clock.now(),
    )
    file, described = partition_statistics(metadata, snapshot.snapshot_id, [], randomness=world.randomness)
    world.files.write([file])
    metadata = attach_partition_statistics(metadata, described, world.clock.now())
    properties = {**metadata.properties, "write.data.path": f"{regions.root('asia')}/d/", "owner": regions.root("us")}
    document = json.loads(encode_metadata(metadata.model_copy(update={"properties": properties})))
    document |= {"unknown": {"a": 1}, "metadata-log": [{"metadata-file": f"{regions.root('us')}/x", "timestamp-ms": 1}]}
    location = f"{table.metadata.location}/metadata/extended.metadata.json"
    world.files.write([NewFile(location, json.dumps(document).encode())])
    assert live
    done = regions.localise(location)
    local = json.loads(regions.files.read(done.location))
    root = regions.root(REGION)
    assert local["location"] == f"{root}/t"
    assert local["properties"] == {**properties, "write.data.path": f"{root}/d"}
    assert local["statistics"] == [{**document["statistics"][0], "statistics-path": f"{root}/t/metadata/stats.puffin"}]
    (named,) = local["partition-statistics"]
    assert named["statistics-path"] == file.location.replace(regions.root("us"), root)
    assert local["metadata-log"] == []
    changed = {"location", "properties", "statistics", "partition-statistics", "metadata-log", "snapshots"}
    assert {key: local[key] for key in local.keys() - changed} == {
        key: document[key] for key in document.keys() - changed
    }
    for before, after in zip(document["snapshots"], local["snapshots"], strict=True):
        seal = after["summary"].pop(MANIFEST_LIST_SEAL)
        assert before["summary"].pop(MANIFEST_LIST_SEAL) != seal
        assert after.pop("manifest-list") != before.pop("manifest-list")
        assert after == before
    for each in in_region(regions, done.location).metadata.snapshots:
        read_manifest_list(regions.files, each)  # by its own seal


def test_others_may_do_the_manifests(regions: Regions) -> None:
    table = some_table(regions)
    asked: list[ManifestWork] = []

    def spread(works: Sequence[ManifestWork]) -> list[ManifestDone]:
        asked.extend(works)
        return list(localise_manifests(regions.place(), works))[::-1]

    done = regions.localise(table, spread=spread)
    assert len(asked) == len({each.source for each in asked}) == done.manifests_written
    assert {each.is_deletes for each in asked} == {True, False}
    assert len(read_by_all(regions, done.location)) == 27


class TestBadInput:
    def nothing_is_shown(self, regions: Regions, table: TableVersion | str, **options: Any) -> Any:
        with pytest.raises((TableCorruptError, RefusedError, UsageError)) as caught:
            regions.localise(table, **options)
        assert not [each for each in outputs(regions) if each.endswith(".metadata.json")]
        return caught.value

    def test_a_file_that_no_rule_covers(self, regions: Regions) -> None:
        table = some_table(regions)
        mapping = PrefixMapping([regions.root("asia")], regions.root(REGION))
        error = self.nothing_is_shown(regions, table, mapping=mapping)
        assert regions.root("us") in error.message

    def test_a_corrupt_manifest_is_named(self, regions: Regions) -> None:
        table = some_table(regions)
        path = self._a_manifest(regions, table)
        whole = path.read_bytes()
        path.write_bytes(whole[:-7])
        error = self.nothing_is_shown(regions, table)
        assert error.fields["path"] == f"file://{path}"
        path.write_bytes(whole)
        assert len(read_by_all(regions, regions.localise(table).location)) == 27

    def test_a_manifest_that_lost_a_block_is_not_taken_for_a_shorter_one(self, regions: Regions) -> None:
        table = some_table(regions)
        path = self._a_manifest(regions, table)
        whole = path.read_bytes()
        header_ends = whole.index(whole[-16:]) + 16
        path.write_bytes(whole[:header_ends])
        assert "0 entries" in self.nothing_is_shown(regions, table).message

    def test_a_manifest_that_is_gone(self, regions: Regions) -> None:
        table = some_table(regions)
        path = self._a_manifest(regions, table)
        path.unlink()
        assert "is missing" in self.nothing_is_shown(regions, table).message

    def test_a_manifest_of_the_other_kind(self, regions: Regions) -> None:
        table = some_table(regions)
        of_data, of_deletes = (self._a_manifest(regions, table, kind) for kind in ManifestContent)
        of_data.write_bytes(of_deletes.read_bytes())
        assert "holds deletes" in self.nothing_is_shown(regions, table).message

    def _a_manifest(
        self, regions: Regions, table: TableVersion, content: ManifestContent = ManifestContent.DATA
    ) -> Path:
        snapshot = table.metadata.current_snapshot()
        assert snapshot is not None
        lines = [each for each in read_manifest_list(regions.files, snapshot) if each.content is content]
        return Path(lines[0].manifest_path.removeprefix("file://"))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"format-version": 4}, "format version 4"),
            ({"snapshots": [{"snapshot-id": 1, "manifest-list": "x", "key-id": "k"}]}, "snapshot 1 is encrypted"),
            ({"snapshots": [{"snapshot-id": 1, "manifests": ["x"]}]}, "snapshot 1 has no manifest list"),
            ({"snapshots": [{"manifest-list": "x"}]}, "is not table metadata"),
            ({"snapshots": 7}, "is not table metadata"),
            ({"location": None}, "no rule|is not table metadata"),
            ({"refs": {"main": 1}}, "is not table metadata"),
        ],
    )
    def test_documents_that_are_none(self, regions: Regions, change: dict[str, Any], message: str) -> None:
        table = regions.worlds["us"].create(SCHEMA)
        document = {**json.loads(regions.files.read(table.location or "")), **change}
        location = f"{table.metadata.location}/metadata/odd.metadata.json"
        regions.files.write([NewFile(location, json.dumps(document).encode())])
        with pytest.raises((TableCorruptError, UnsupportedTableError), match=message):
            regions.localise(location)
        assert outputs(regions) == set()

    def test_what_was_localised_is_not_localised_again(self, regions: Regions) -> None:
        done = regions.localise(some_table(regions))
        with pytest.raises(UsageError, match="was localised already"):
            regions.localise(done.location)

    def test_a_store_that_contradicts_itself(self, regions: Regions, monkeypatch: pytest.MonkeyPatch) -> None:
        table = some_table(regions)

        def refuse(path: str, *_: Any, **__: Any) -> str:
            raise PreconditionFailedError("store", path, "absent")

        monkeypatch.setattr(regions.worlds[REGION].store, "put", refuse)
        with pytest.raises(ObjectNotFoundError):
            regions.localise(table)

    def test_a_lost_answer_changes_nothing(self, regions: Regions, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing refers to the output yet; the next run finds it, or makes it."""
        table = some_table(regions)

        def lost(path: str, *_: Any, **__: Any) -> str:
            raise StorageOutcomeUnknownError("store", path, "no answer")

        monkeypatch.setattr(regions.worlds[REGION].store, "put", lost)
        with pytest.raises(UnavailableError, match="nothing was changed"):
            regions.localise(table)
        monkeypatch.undo()
        assert len(read_by_all(regions, regions.localise(table).location)) == 27
