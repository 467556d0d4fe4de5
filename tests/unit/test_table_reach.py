"""What a metadata document leads to. Tables written by PyIceberg are judged by PyIceberg and by what is on disk."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import MetadataLogEntry
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from headwater.kernel.errors import UnavailableError
from headwater.tables.expire import expire
from headwater.tables.manifest_writing import EntryToWrite, ManifestTerms, write_manifest, write_manifest_list
from headwater.tables.model import LiveFile, TableCorruptError, TableFile, TableUsageError
from headwater.tables.reach import Reached, ReachKind, Unreadable, reach, reach_leniently
from headwater.tables.statistics import attach_partition_statistics, attach_statistics
from tests.unit.table_documents import LocalFiles, at, snapshot, table, with_history

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "part", StringType()))
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
ADDED, EXISTING, DELETED = ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED


def rows(*pairs: tuple[int, str]) -> pa.Table:
    return pa.table({"id": pa.array([a for a, _ in pairs], pa.int64()), "part": [b for _, b in pairs]})


@pytest.fixture
def foreign(tmp_path: Path) -> Table:
    """A table with a history, written by PyIceberg: appends, a delete of whole files, a rewrite, an overwrite."""
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/lake")
    catalog.create_namespace("db")
    made = catalog.create_table("db.t", SCHEMA, partition_spec=SPEC)
    made.append(rows((1, "a"), (2, "b"), (3, "b")))
    made.append(rows((4, "a"), (5, "c")))
    made.delete("part = 'a'")
    made.delete("id = 2")
    made.overwrite(rows((6, "d")), overwrite_filter="part = 'c'")
    made.append(rows((7, "d")))
    catalog.engine.dispose()
    return made


def reached(metadata: TableMetadata, files: Any = None, **options: Any) -> list[Reached]:
    options = {"metadata_location": "s3://lake/t/metadata/9.metadata.json"} | options
    return list(reach(files or LocalFiles(), metadata, **options))


def places(found: list[Reached], *kinds: ReachKind) -> set[str]:
    return {each.location for each in found if not kinds or each.kind in kinds}


class TestTablesOfPyIceberg:
    def test_every_file_on_disk_is_reached(self, foreign: Table) -> None:
        found = reached(foreign.metadata, metadata_location=foreign.metadata_location)
        folder = Path(foreign.location().removeprefix("file://"))
        on_disk = {f"file://{path}" for path in folder.rglob("*") if path.is_file()}
        assert places(found) == on_disk

    def test_the_kinds_are_those_that_pyiceberg_reports(self, foreign: Table) -> None:
        found = reached(foreign.metadata, metadata_location=foreign.metadata_location)
        inspect = foreign.inspect
        assert places(found, ReachKind.DATA) == set(inspect.all_files()["file_path"].to_pylist())
        assert places(found, ReachKind.MANIFEST) == set(inspect.all_manifests()["path"].to_pylist())
        assert places(found, ReachKind.MANIFEST_LIST) == set(inspect.snapshots()["manifest_list"].to_pylist())
        logged = set(inspect.metadata_log_entries()["file"].to_pylist())
        assert places(found, ReachKind.METADATA, ReachKind.METADATA_LOG) == logged
        assert places(found, ReachKind.METADATA) == {foreign.metadata_location}

    def test_one_snapshot_needs_only_its_own_files(self, foreign: Table) -> None:
        everything = places(reached(foreign.metadata), ReachKind.DATA)
        for each in foreign.metadata.snapshots:
            found = reached(foreign.metadata, snapshots=[each.snapshot_id])
            expected = set(foreign.inspect.files(each.snapshot_id)["file_path"].to_pylist())
            assert places(found, ReachKind.DATA) == expected
            assert {found.snapshot_id for found in found if found.kind is ReachKind.DATA} <= {each.snapshot_id}
        current = foreign.metadata.current_snapshot_id
        assert current is not None
        assert places(reached(foreign.metadata, snapshots=[current]), ReachKind.DATA) < everything

    def test_sizes_are_true(self, foreign: Table) -> None:
        sized = [each for each in reached(foreign.metadata) if each.size_bytes is not None]
        assert {each.kind for each in sized} == {ReachKind.DATA, ReachKind.MANIFEST}
        for each in sized:
            assert each.size_bytes == Path(each.location.removeprefix("file://")).stat().st_size

    def test_each_file_once_and_each_manifest_read_once(self, foreign: Table) -> None:
        files = LocalFiles()
        found = reached(foreign.metadata, files)
        assert Counter((each.kind, each.location) for each in found).most_common(1)[0][1] == 1
        shared = sum(len(each.manifests(foreign.io)) for each in foreign.metadata.snapshots)
        assert shared > len(places(found, ReachKind.MANIFEST))  # or this test would prove nothing
        assert Counter(files.reads).most_common(1)[0][1] == 1

    def test_after_expiry_less_is_reached_and_never_a_file_that_is_needed(self, foreign: Table) -> None:
        new = expire(foreign.metadata, older_than=at(9999), keep_last=1, now=at(9999))
        left = places(reached(new))
        assert left < places(reached(foreign.metadata))
        assert set(foreign.inspect.files()["file_path"].to_pylist()) <= left


def file(name: str, content: DataFileContent = DataFileContent.DATA, **more: Any) -> TableFile:
    made = TableFile.from_args(
        _table_format_version=3,
        content=content,
        file_path=f"s3://lake/t/data/{name}",
        file_format=FileFormat.PUFFIN if "content_offset" in more else FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=10,
        **more,
    )
    assert isinstance(made, TableFile)
    return made


def vector(name: str, offset: int) -> TableFile:
    return file(
        name,
        DataFileContent.POSITION_DELETES,
        referenced_data_file=f"s3://lake/t/data/{offset}",
        content_offset=offset,
        content_size_in_bytes=4,
    )


POSITIONS = file("positions", DataFileContent.POSITION_DELETES)
EQUALITY = file("equality", DataFileContent.EQUALITY_DELETES, equality_ids=[1])


class Bytes:
    """Files in a dictionary."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def read(self, location: str, *, span: tuple[int, int] | None = None) -> bytes:
        data = self.files[location]
        return data[slice(*span)] if span else data


def world(
    *manifests: tuple[str, ManifestContent, list[tuple[ManifestEntryStatus, TableFile]]],
) -> tuple[Bytes, TableMetadata]:
    """A v3 table with one snapshot of these manifests, and their bytes."""
    base = table(SCHEMA, format_version=3)
    terms = ManifestTerms(base, 1, 1)
    lines, files = [], {}
    for name, content, entries in manifests:
        location = f"s3://lake/t/metadata/{name}.avro"
        to_write = [EntryToWrite(status, LiveFile(each, 1, 1, 1)) for status, each in entries]
        line, files[location] = write_manifest(terms, location, content, base.spec(), to_write)
        lines.append(line)
    metadata = with_history(base, [snapshot(1, 1)])
    files[metadata.snapshots[0].manifest_list] = write_manifest_list(terms, None, lines, 0)
    return Bytes(files), metadata


EVERY_KIND = (
    ("m1", ManifestContent.DATA, [(ADDED, file("one")), (EXISTING, file("two")), (DELETED, file("gone"))]),
    (
        "m2",
        ManifestContent.DELETES,
        [
            (ADDED, POSITIONS),
            (ADDED, EQUALITY),
            (ADDED, vector("v.puffin", 4)),
            (EXISTING, vector("v.puffin", 8)),
            (DELETED, vector("old.puffin", 8)),
        ],
    ),
)


class TestKinds:
    def test_deletes_of_every_kind(self) -> None:
        files, metadata = world(*EVERY_KIND)
        found = reached(metadata, files)
        by_kind = {kind: places(found, kind) for kind in ReachKind}
        data = "s3://lake/t/data/"
        assert by_kind[ReachKind.DATA] == {f"{data}one", f"{data}two"}
        assert by_kind[ReachKind.POSITION_DELETES] == {f"{data}positions"}
        assert by_kind[ReachKind.EQUALITY_DELETES] == {f"{data}equality"}
        assert by_kind[ReachKind.DELETION_VECTOR] == {f"{data}v.puffin"}
        assert [each.kind for each in found].count(ReachKind.DELETION_VECTOR) == 1

    def test_entries_of_deleted_files_lead_nowhere(self) -> None:
        files, metadata = world(*EVERY_KIND)
        found = places(reached(metadata, files))
        assert not {each for each in found if each.endswith(("gone", "old.puffin"))}

    def test_statistics_and_the_metadata_log(self) -> None:
        files, metadata = world(*EVERY_KIND)
        log = [
            MetadataLogEntry(metadata_file=f"s3://lake/t/metadata/{each}.json", timestamp_ms=each) for each in (7, 8)
        ]
        metadata = metadata.model_copy(update={"metadata_log": log})
        metadata = attach_statistics(metadata, statistics(1), at(2))
        metadata = attach_partition_statistics(metadata, partition_statistics(1), at(2))
        found = reached(metadata, files)
        assert Reached(ReachKind.STATISTICS, "s3://lake/t/1.puffin", 5, 1) in found
        assert Reached(ReachKind.PARTITION_STATISTICS, "s3://lake/t/1.parquet", 6, 1) in found
        assert places(found, ReachKind.METADATA_LOG) == {each.metadata_file for each in log}
        assert found[0] == Reached(ReachKind.METADATA, "s3://lake/t/metadata/9.metadata.json")

    def test_statistics_of_the_chosen_snapshots_only(self) -> None:
        files, metadata = world(*EVERY_KIND)
        both = metadata.model_copy(
            update={
                "statistics": [statistics(1), statistics(2)],
                "partition_statistics": [partition_statistics(1), partition_statistics(2)],
            }
        )
        kinds = (ReachKind.STATISTICS, ReachKind.PARTITION_STATISTICS)
        one = {"s3://lake/t/1.puffin", "s3://lake/t/1.parquet"}
        assert places(reached(both, files, snapshots=[1]), *kinds) == one
        # Snapshot 2 is gone, but the metadata still names its files.
        assert places(reached(both, files), *kinds) == one | {"s3://lake/t/2.puffin", "s3://lake/t/2.parquet"}

    def test_a_table_without_a_snapshot(self) -> None:
        assert reached(table(), Bytes({})) == [Reached(ReachKind.METADATA, "s3://lake/t/metadata/9.metadata.json")]

    def test_a_snapshot_that_is_not_there(self) -> None:
        files, metadata = world(*EVERY_KIND)
        with pytest.raises(TableUsageError, match="no snapshot 9"):
            reach(files, metadata, metadata_location="m", snapshots=[1, 9])


def statistics(number: int) -> StatisticsFile:
    return StatisticsFile(
        snapshot_id=number,
        statistics_path=f"s3://lake/t/{number}.puffin",
        file_size_in_bytes=5,
        file_footer_size_in_bytes=1,
        key_metadata=None,
        blob_metadata=[],
    )


def partition_statistics(number: int) -> PartitionStatisticsFile:
    path = f"s3://lake/t/{number}.parquet"
    return PartitionStatisticsFile(snapshot_id=number, statistics_path=path, file_size_in_bytes=6)


class TestDamage:
    def test_an_unreadable_manifest_is_named_and_ends_the_walk(self) -> None:
        files, metadata = world(*EVERY_KIND)
        files.files["s3://lake/t/metadata/m1.avro"] = files.files["s3://lake/t/metadata/m1.avro"][:-5]
        with pytest.raises(TableCorruptError, match=r"m1\.avro"):
            reached(metadata, files)

    def test_the_lenient_walk_goes_on_with_the_rest_and_says_what_it_misses(self) -> None:
        files, metadata = world(*EVERY_KIND)
        files.files["s3://lake/t/metadata/m1.avro"] = b"no"
        found = list(reach_leniently(files, metadata, metadata_location="m"))
        missing = [each for each in found if isinstance(each, Unreadable)]
        assert [(each.kind, each.location) for each in missing] == [
            (ReachKind.MANIFEST, "s3://lake/t/metadata/m1.avro")
        ]
        assert isinstance(missing[0].error, TableCorruptError)
        read = [each for each in found if isinstance(each, Reached)]
        assert places(read, ReachKind.EQUALITY_DELETES) == {"s3://lake/t/data/equality"}
        assert "s3://lake/t/metadata/m1.avro" in places(read, ReachKind.MANIFEST)

    def test_a_manifest_list_that_cannot_be_had(self) -> None:
        class Away(Bytes):
            def read(self, location: str, *, span: tuple[int, int] | None = None) -> bytes:
                raise UnavailableError(f"{location}: no answer")

        _, metadata = world(*EVERY_KIND)
        with pytest.raises(UnavailableError, match=r"snap-1\.avro"):
            reached(metadata, Away({}))
        found = list(reach_leniently(Away({}), metadata, metadata_location="m"))
        assert [each.kind for each in found if isinstance(each, Unreadable)] == [ReachKind.MANIFEST_LIST]
