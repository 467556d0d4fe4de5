"""Statistics files that a table names, and partition statistics as the specification wants them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.statistics import BlobMetadata, PartitionStatisticsFile, StatisticsFile
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, LongType, NestedField, StringType, TimestampType, UUIDType

from headwater.kernel.randomness import seeded
from headwater.tables.columns import AddColumn
from headwater.tables.evolve import change_schema, change_spec
from headwater.tables.manifests import live_files, read_manifest, read_manifest_list
from headwater.tables.model import LiveFile, TableCorruptError, TableFile, TableUsageError
from headwater.tables.partitions import AddPartitionField, RemovePartitionField
from headwater.tables.rules import millis
from headwater.tables.statistics import (
    attach_partition_statistics,
    attach_statistics,
    distinct_counts,
    partition_statistics,
    remove_partition_statistics,
    remove_statistics,
    unified_partition_type,
)
from tests.unit.table_documents import LocalFiles, at, snapshot, stored, table, with_history

DATA, POSITIONS, EQUALITY = DataFileContent.DATA, DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES
HISTORY = [snapshot(1, 1), snapshot(2, 2, parent=1), snapshot(3, 3, parent=2)]


def described(number: int, path: str = "s3://lake/t/x", **properties: str) -> StatisticsFile:
    blob = BlobMetadata(
        type="apache-datasketches-theta-v1", snapshot_id=number, sequence_number=1, fields=[2], properties=properties
    )
    return StatisticsFile(
        snapshot_id=number,
        statistics_path=path,
        file_size_in_bytes=9,
        file_footer_size_in_bytes=3,
        key_metadata=None,
        blob_metadata=[blob],
    )


def partitions(number: int, path: str = "s3://lake/t/x") -> PartitionStatisticsFile:
    return PartitionStatisticsFile(snapshot_id=number, statistics_path=path, file_size_in_bytes=9)


class TestAttached:
    @pytest.mark.parametrize(
        ("attach", "remove", "make", "name"),
        [
            (attach_statistics, remove_statistics, described, "statistics"),
            (attach_partition_statistics, remove_partition_statistics, partitions, "partition_statistics"),
        ],
    )
    def test_one_file_for_a_snapshot(
        self,
        attach: Callable[..., TableMetadata],
        remove: Callable[..., TableMetadata],
        make: Callable[..., Any],
        name: str,
    ) -> None:
        def now_there(metadata: TableMetadata) -> dict[int, str]:
            return {each.snapshot_id: each.statistics_path for each in getattr(stored(metadata), name)}

        base = with_history(table(), HISTORY)
        two = attach(attach(base, make(1, "a"), at(4)), make(2, "b"), at(4))
        assert now_there(two) == {1: "a", 2: "b"}
        assert two.last_updated_ms == millis(at(4))
        assert now_there(attach(two, make(1, "c"), at(4))) == {1: "c", 2: "b"}
        assert attach(two, make(2, "b"), at(5)) is two
        assert now_there(remove(two, 1, at(4))) == {2: "b"}
        assert remove(base, 1, at(4)) is base
        with pytest.raises(TableUsageError, match="no snapshot 9"):
            attach(base, make(9), at(4))

    def test_counts_that_others_computed_are_shown(self) -> None:
        metadata = attach_statistics(with_history(table(), HISTORY), described(1, ndv="42"), at(4))
        metadata = stored(attach_statistics(metadata, described(2, ndv="many"), at(4)))
        assert [distinct_counts(metadata, each) for each in (1, 2, 3)] == [{2: 42}, {}, {}]


SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "part", StringType()),
    NestedField(3, "seen", TimestampType()),
    NestedField(4, "key", UUIDType()),
)


def base_table(version: int = 2) -> TableMetadata:
    """Partitioned by `part`, then by `part` and day, then by day alone."""
    base = table(SCHEMA, spec=[AddPartitionField("part")], format_version=version)
    base = change_spec(base, [AddPartitionField("seen", "day")], at(0))
    base = change_spec(base, [RemovePartitionField("part")], at(0))
    return with_history(base, HISTORY)


def live(
    partition: tuple[Any, ...],
    spec_id: int = 0,
    *,
    content: DataFileContent = DATA,
    added_by: int | None = 1,
    count: int = 10,
    is_vector: bool = False,
) -> LiveFile:
    made = TableFile.from_args(
        _table_format_version=3,
        content=content,
        file_path="s3://lake/t/data/x",
        file_format=FileFormat.PUFFIN if is_vector else FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=count,
        file_size_in_bytes=100,
        content_offset=4 if is_vector else None,
    )
    assert isinstance(made, TableFile)
    made.spec_id = spec_id
    return LiveFile(made, 1, 1, added_by)


def computed(metadata: TableMetadata, files: list[LiveFile], **options: Any) -> pa.Table:
    new, said = partition_statistics(metadata, 3, files, randomness=seeded(1), **options)
    assert (said.snapshot_id, said.statistics_path, said.file_size_in_bytes) == (3, new.location, len(new.data))
    assert new.location.startswith("s3://lake/t/metadata/partition-stats-3-")
    assert new.location.endswith(".parquet")
    assert stored(attach_partition_statistics(metadata, said, at(4))).partition_statistics == [said]
    return pq.read_table(pa.BufferReader(new.data))


def field_ids(schema: pa.Schema) -> dict[str, int]:
    return {each.name: int(each.metadata[b"PARQUET:field_id"]) for each in schema}


COLUMNS = {
    "partition": 1,
    "spec_id": 2,
    "data_record_count": 3,
    "data_file_count": 4,
    "total_data_file_size_in_bytes": 5,
    "position_delete_record_count": 6,
    "position_delete_file_count": 7,
    "equality_delete_record_count": 8,
    "equality_delete_file_count": 9,
    "total_record_count": 10,
    "last_updated_at": 11,
    "last_updated_snapshot_id": 12,
}


class TestPartitionStatistics:
    @pytest.mark.parametrize("version", [2, 3])
    def test_columns_have_the_ids_of_the_specification(self, version: int) -> None:
        arrow = computed(base_table(version), [live(("a",))]).schema
        assert field_ids(arrow) == COLUMNS | ({"dv_count": 13} if version == 3 else {})
        assert field_ids(arrow.field("partition").type) == {"part": 1000, "seen_day": 1001}
        optional = {name for name in arrow.names if arrow.field(name).nullable}
        late = {"total_record_count", "last_updated_at", "last_updated_snapshot_id"}
        assert optional == late | ({each for each in COLUMNS if "delete" in each} if version == 2 else set())
        wide = {name for name in arrow.names[1:] if arrow.field(name).type == pa.int64()}
        narrow = {name for name in arrow.names[1:] if arrow.field(name).type == pa.int32()}
        assert narrow == {"spec_id"} | {each for each in arrow.names if each.endswith(("file_count", "dv_count"))}
        assert wide == set(arrow.names[1:]) - narrow

    def test_what_files_come_to(self) -> None:
        rows = computed(
            base_table(3),
            [
                live(("a",)),
                live(("a",), count=5, added_by=2),
                live(("a",), content=POSITIONS, count=3),
                live(("a",), content=EQUALITY, count=2, added_by=3),
                live(("a",), content=POSITIONS, is_vector=True, count=4),
                live(("b",)),
            ],
        ).to_pylist()
        assert rows == [
            {
                "partition": {"part": "a", "seen_day": None},
                "spec_id": 0,
                "data_record_count": 15,
                "data_file_count": 2,
                "total_data_file_size_in_bytes": 200,
                "position_delete_record_count": 7,
                "position_delete_file_count": 1,
                "equality_delete_record_count": 2,
                "equality_delete_file_count": 1,
                "total_record_count": None,
                "last_updated_at": millis(at(3)),
                "last_updated_snapshot_id": 3,
                "dv_count": 1,
            },
            {
                "partition": {"part": "b", "seen_day": None},
                "spec_id": 0,
                "data_record_count": 10,
                "data_file_count": 1,
                "total_data_file_size_in_bytes": 100,
                "position_delete_record_count": 0,
                "position_delete_file_count": 0,
                "equality_delete_record_count": 0,
                "equality_delete_file_count": 0,
                "total_record_count": None,
                "last_updated_at": millis(at(1)),
                "last_updated_snapshot_id": 1,
                "dv_count": 0,
            },
        ]

    def test_rows_are_counted_where_only_vectors_delete(self) -> None:
        files = [live(("a",)), live(("a",), content=POSITIONS, is_vector=True, count=4), live(("b",))]
        assert computed(base_table(3), files)["total_record_count"].to_pylist() == [6, 10]

    def test_specs_are_apart_and_sorted_nulls_first(self) -> None:
        files = [
            live((20003,), 2),
            live(("b", 20001), 1),
            live(("b",), 0),
            live((None,), 0),
            live(("a", None), 1),
            live(("a",), 0),
            live((20001,), 2),
        ]
        found = computed(base_table(), files)
        listed = [
            (row["partition"]["part"], row["partition"]["seen_day"], row["spec_id"])
            for row in found.select(["partition", "spec_id"]).to_pylist()
        ]
        assert listed == [
            (None, None, 0),
            (None, date(2024, 10, 5), 2),
            (None, date(2024, 10, 7), 2),
            ("a", None, 0),
            ("a", None, 1),
            ("b", None, 0),
            ("b", date(2024, 10, 5), 1),
        ]

    def test_a_removed_file_tells_when_its_partition_changed(self) -> None:
        found = computed(base_table(), [live(("a",))], removed=[live(("a",), added_by=3), live(("z",), added_by=2)])
        listed = found.select(["data_file_count", "last_updated_snapshot_id"]).to_pylist()
        assert listed == [
            {"data_file_count": 1, "last_updated_snapshot_id": 3},
            {"data_file_count": 0, "last_updated_snapshot_id": 2},
        ]

    def test_a_snapshot_that_is_gone_is_not_remembered(self) -> None:
        found = computed(base_table(), [live(("a",), added_by=77), live(("b",), added_by=None)])
        assert found["last_updated_at"].to_pylist() == [None, None]

    def test_uuids_and_days(self) -> None:
        base = table(SCHEMA, spec=[AddPartitionField("key"), AddPartitionField("seen", "day")])
        key = UUID(int=5)
        found = computed(with_history(base, HISTORY), [live((key, 20001)), live((None, None))])
        assert found["partition"].to_pylist() == [
            {"key": None, "seen_day": None},
            {"key": key, "seen_day": date(2024, 10, 5)},
        ]

    def test_the_type_of_the_partition_is_the_union_of_all_specs(self) -> None:
        base = base_table()
        assert [str(each) for each in unified_partition_type(base).fields] == [
            "1000: part: optional string",
            "1001: seen_day: optional date",
        ]
        changed = change_schema(base, [AddColumn("more", LongType())], at(4))
        more = change_spec(changed, [AddPartitionField("more", "bucket[4]")], at(4))
        assert [each.name for each in unified_partition_type(more).fields] == ["part", "seen_day", "more_bucket_4"]

    def test_refused(self) -> None:
        with pytest.raises(TableUsageError, match="no partitions"):
            computed(with_history(table(SCHEMA), HISTORY), [])
        with pytest.raises(TableUsageError, match="no snapshot 9"):
            partition_statistics(base_table(), 9, [], randomness=seeded(1))
        with pytest.raises(TableCorruptError, match="partition spec 7, which the table does not know"):
            computed(base_table(), [live(("a",), 7)])

    def test_pyiceberg_counts_the_same(self, tmp_path: Path) -> None:
        catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/lake")
        catalog.create_namespace("db")
        schema = Schema(
            NestedField(1, "id", LongType()), NestedField(2, "part", StringType()), NestedField(3, "day", DateType())
        )
        spec = PartitionSpec(
            PartitionField(2, 1000, IdentityTransform(), "part"), PartitionField(3, 1001, DayTransform(), "d")
        )
        made = catalog.create_table("db.t", schema, partition_spec=spec)
        rows = {
            "id": list(range(6)),
            "part": [*"aabbc", None],
            "day": [date(2026, 1, each % 2 + 1) for each in range(6)],
        }
        made.append(pa.table(rows))
        made.append(pa.table(rows))
        made.delete("id = 3")
        catalog.engine.dispose()
        current = made.metadata.current_snapshot()
        assert current is not None
        files = LocalFiles()
        manifests = read_manifest_list(files, current)
        found = [each for manifest in manifests for each in live_files(read_manifest(files, manifest))]
        new, _ = partition_statistics(made.metadata, current.snapshot_id, found, randomness=seeded(1))
        ours = pq.read_table(pa.BufferReader(new.data)).to_pylist()
        theirs = made.inspect.partitions().to_pylist()
        same = {
            "data_record_count": "record_count",
            "data_file_count": "file_count",
            "total_data_file_size_in_bytes": "total_data_file_size_in_bytes",
            "last_updated_snapshot_id": "last_updated_snapshot_id",
            "spec_id": "spec_id",
        }
        assert len(ours) == len(theirs) == 5
        for row in theirs:
            [match] = [each for each in ours if each["partition"] == row["partition"]]
            assert {each: match[each] for each in same} == {each: row[name] for each, name in same.items()}
