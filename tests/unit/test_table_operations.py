"""Operations as staged changes: what they write, what they keep, what they refuse; nothing moves."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    UUIDType,
)
from pyroaring import BitMap64

from headwater.storage.port import Overwrite
from headwater.tables import manifest_edit
from headwater.tables.evolve import has_rows, upgrade
from headwater.tables.manifests import first_row_id_of, read_manifest, read_manifest_list
from headwater.tables.merge import WhenMatched, WhenNotMatched, merge, upsert
from headwater.tables.model import (
    ROW_ID_COLUMN,
    UPDATED_COLUMN,
    Edit,
    FileTask,
    RowDeletes,
    TableCorruptError,
    TableUsageError,
    TableVersion,
    UnsupportedTableError,
)
from headwater.tables.operations import (
    CollectingSink,
    append,
    delete,
    delete_positions,
    edit_positions,
    overwrite,
    rewrite,
)
from headwater.tables.parquet import write_rows
from headwater.tables.scan import plan_scan
from headwater.tables.snapshot import stage_snapshot
from tests.fixtures.engines import by_duckdb, by_pyiceberg, rows_of
from tests.fixtures.tables import TableWorld

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "v", StringType()),
    NestedField(3, "n", LongType()),
    NestedField(4, "f", DoubleType()),
)
VERSIONS = pytest.mark.parametrize("version", [2, 3])


def rows(*ids: int, v: str = "x", n: int | None = 1, f: float | None = 1.0) -> pa.Table:
    count = len(ids)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "v": pa.array([v] * count),
            "n": pa.array([n] * count, pa.int64()),
            "f": pa.array([f] * count, pa.float64()),
        }
    )


def ids(world: TableWorld, table: TableVersion) -> list[int]:
    found = world.rows(table)
    return sorted(found["id"].to_pylist()) if found.num_rows else []


def entries(world: TableWorld, table: TableVersion, content: ManifestContent) -> list[Any]:
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    return [
        entry
        for manifest in read_manifest_list(world.files, snapshot)
        if manifest.content is content
        for entry in read_manifest(world.files, manifest)
    ]


def live_deletes(world: TableWorld, table: TableVersion) -> list[Any]:
    found = entries(world, table, ManifestContent.DELETES)
    return [each.data_file for each in found if each.status is not ManifestEntryStatus.DELETED]


def task_of_four(world: TableWorld, table: TableVersion) -> FileTask:
    return next(task for task in plan_scan(world.files, table.metadata).tasks if task.file.record_count == 4)


@pytest.fixture(params=[2, 3])
def table(request: pytest.FixtureRequest, world: TableWorld) -> TableVersion:
    made = world.create(SCHEMA, format_version=request.param)
    made = world.commit(append(world.staging(), made, rows(1, 2, 3, 4)))
    return world.commit(append(world.staging(), made, rows(5, 6)))


class TestStaging:
    def test_nothing_moves_and_nothing_is_stored(self, world: TableWorld, table: TableVersion) -> None:
        before = [meta.path for meta in world.store.list()]
        staged = append(world.staging(), table, rows(9))
        assert [meta.path for meta in world.store.list()] == before
        assert ids(world, table) == [1, 2, 3, 4, 5, 6]
        assert staged.metadata.current_snapshot_id != table.metadata.current_snapshot_id
        assert len({file.location for file in staged.files}) == len(staged.files) == 3

    def test_lengths_are_true(self, world: TableWorld, table: TableVersion) -> None:
        table = world.commit(delete(world.staging(), table, parse("id = 2")))
        snapshot = table.metadata.current_snapshot()
        assert snapshot is not None
        for manifest in read_manifest_list(world.files, snapshot):
            assert manifest.manifest_length == len(world.files.read(manifest.manifest_path))
            for entry in read_manifest(world.files, manifest):
                assert entry.data_file.file_size_in_bytes == len(world.files.read(entry.data_file.file_path))

    def test_whose_change_it_is_is_told(self, world: TableWorld, table: TableVersion) -> None:
        staging = world.staging()
        staged = append(staging, table, rows(9))
        snapshot = staged.metadata.current_snapshot()
        assert staged.metadata.properties["headwater.operation"] == staging.operation
        assert snapshot is not None
        assert snapshot.summary is not None
        assert snapshot.summary["headwater.operation"] == staging.operation
        assert staged.metadata.metadata_log[-1].metadata_file == table.location

    def test_summaries_add_up(self, world: TableWorld, table: TableVersion) -> None:
        table = world.commit(delete(world.staging(), table, parse("id = 2")))
        table = world.commit(upsert(world.staging(), table, rows(3, 7), on=["id"]))
        snapshot = table.metadata.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        assert snapshot.summary["total-records"] == "8"
        assert snapshot.summary["total-data-files"] == "3"
        assert snapshot.summary["total-position-deletes"] == "2"
        assert snapshot.summary["total-delete-files"] == "1"

    def test_time_does_not_go_back(self, world: TableWorld, table: TableVersion) -> None:
        ahead = TableVersion(table.metadata.model_copy(update={"last_updated_ms": 9_999_999_999_999}), table.location)
        snapshot = append(world.staging(), ahead, rows(9)).metadata.current_snapshot()
        assert snapshot is not None
        assert snapshot.timestamp_ms == 9_999_999_999_999

    def test_settings_of_the_main_branch_stay(self, world: TableWorld, table: TableVersion) -> None:
        refs = {"main": table.metadata.refs["main"].model_copy(update={"min_snapshots_to_keep": 5})}
        kept = TableVersion(table.metadata.model_copy(update={"refs": refs}), table.location)
        assert append(world.staging(), kept, rows(9)).metadata.refs["main"].min_snapshots_to_keep == 5


class TestDeletes:
    def test_deletes_of_one_file_are_merged_into_one(self, world: TableWorld, table: TableVersion) -> None:
        for number in (2, 3, 5):
            table = world.commit(delete(world.staging(), table, parse(f"id = {number}")))
        found = live_deletes(world, table)
        assert sorted(file.record_count for file in found) == [1, 2]
        assert len({file.referenced_data_file for file in found}) == 2
        assert ids(world, table) == [1, 4, 6]

    def test_a_file_without_live_rows_goes_with_its_deletes(self, world: TableWorld, table: TableVersion) -> None:
        table = world.commit(delete(world.staging(), table, parse("id = 5")))
        assert len(live_deletes(world, table)) == 1
        table = world.commit(delete(world.staging(), table, parse("id = 6")))
        assert live_deletes(world, table) == []
        assert len(plan_scan(world.files, table.metadata).tasks) == 1
        assert ids(world, table) == [1, 2, 3, 4]

    def test_whole_files_go_without_being_read(self, world: TableWorld, table: TableVersion) -> None:
        data = [task.file.file_path for task in plan_scan(world.files, table.metadata).tasks]
        for path in data:
            world.store.delete(path.removeprefix(world.root + "/"))
        table = world.commit(delete(world.staging(), table, parse("id < 100")))
        assert plan_scan(world.files, table.metadata).tasks == ()

    @pytest.mark.parametrize(
        ("where", "left"),
        [
            (parse("n <> 3"), [2, 4]),
            (parse("n not in (3, 4)"), [2, 4]),
            (parse("f <> 3.0"), [3, 4]),
            (parse("f < 2.0"), [3, 4]),
            (parse("n is null"), [1, 3]),
        ],
    )
    @VERSIONS
    @pytest.mark.hazard("T3")
    def test_null_and_nan_match_no_comparison(
        self, world: TableWorld, version: int, where: BooleanExpression, left: list[int]
    ) -> None:
        made = world.create(SCHEMA, format_version=version)
        mixed = pa.concat_tables([rows(1), rows(2, n=None), rows(3, f=None), rows(4, n=None, f=None)])
        made = world.commit(append(world.staging(), made, mixed))
        made = world.commit(delete(world.staging(), made, where))
        assert ids(world, made) == left

    def test_nan_is_not_equal_and_not_less(self, world: TableWorld) -> None:
        made = world.create(SCHEMA, format_version=3)
        made = world.commit(append(world.staging(), made, pa.concat_tables([rows(1), rows(2, f=float("nan"))])))
        assert ids(world, world.commit(delete(world.staging(), made, parse("f < 5.0")))) == [2]

    def test_nothing_to_delete_is_a_snapshot_without_files(self, world: TableWorld, table: TableVersion) -> None:
        staged = delete(world.staging(), table, parse("id = 99"))
        assert [file.location.rsplit("/", 1)[1][:5] for file in staged.files] == ["snap-"]
        assert ids(world, world.commit(staged)) == [1, 2, 3, 4, 5, 6]

    def test_by_position(self, world: TableWorld, table: TableVersion) -> None:
        paths = [task.file.file_path for task in plan_scan(world.files, table.metadata).tasks]
        before = {path: BitMap64([0]) for path in paths}
        table = world.commit(delete_positions(world.staging(), table, before))
        assert len(ids(world, table)) == 4
        with pytest.raises(TableUsageError, match="is not a data file of"):
            delete_positions(world.staging(), table, {"nope": BitMap64([0])})
        with pytest.raises(TableUsageError, match="rows, so none at position 1000"):
            delete_positions(world.staging(), table, {paths[0]: BitMap64([1000])})

    def test_files_of_another_table_are_not_removed(self, world: TableWorld, table: TableVersion) -> None:
        with pytest.raises(TableUsageError, match="x is not a data file of"):
            stage_snapshot(world.staging(), table, Edit(removed=frozenset({"x"})), Operation.DELETE)

    def test_the_kind_of_delete_file(self, world: TableWorld, table: TableVersion) -> None:
        table = world.commit(delete(world.staging(), table, parse("id = 2")))
        [file] = live_deletes(world, table)
        assert file.content is DataFileContent.POSITION_DELETES
        assert file.is_vector is (table.metadata.format_version == 3)

    def test_vectors_take_the_place_of_position_deletes_after_an_upgrade(self, world: TableWorld) -> None:
        made = world.create(SCHEMA, format_version=2)
        made = world.commit(append(world.staging(), made, rows(1, 2, 3, 4)))
        made = world.commit(delete(world.staging(), made, parse("id = 1")))
        made = world.commit(upgrade(made.metadata, 3, world.clock.now()))
        made = world.commit(delete(world.staging(), made, parse("id = 2")))
        [file] = live_deletes(world, made)
        assert (file.is_vector, file.record_count) == (True, 2)
        assert ids(world, made) == [3, 4]
        assert made.location is not None
        assert by_pyiceberg(made.location) == by_duckdb(made.location) == rows_of(world.rows(made))


class TestPlans:
    """What was planned is made on the version that it was planned on, or refused: old deletes must not be lost."""

    def test_the_same_file_twice_loses_no_rows(self, world: TableWorld, table: TableVersion) -> None:
        task = task_of_four(world, table)
        twice = [(task, BitMap64([0])), (task, BitMap64([2]))]
        assert ids(world, world.commit(edit_positions(world.staging(), table, twice, None))) == [2, 4, 5, 6]

    def test_tasks_from_before_a_delete_are_refused(self, world: TableWorld, table: TableVersion) -> None:
        old = task_of_four(world, table)
        table = world.commit(delete(world.staging(), table, parse("id = 2")))
        edit = Edit(deletes=(RowDeletes(old, BitMap64([0])),))
        changes: list[Callable[[], Any]] = [
            lambda: edit_positions(world.staging(), table, [(old, BitMap64([0]))], None),
            lambda: edit_positions(world.staging(), table, [(old, BitMap64([0]))], rows(9)),
            lambda: rewrite(world.staging(), table, [old]),
            lambda: stage_snapshot(world.staging(), table, edit, Operation.DELETE),
        ]
        for change in changes:
            with pytest.raises(TableUsageError, match="planned on another version") as caught:
                change()
            assert caught.value.fields["path"] == old.file.file_path
        new = task_of_four(world, table)
        assert ids(world, world.commit(edit_positions(world.staging(), table, [(new, BitMap64([0]))], None))) == [
            3,
            4,
            5,
            6,
        ]

    def test_tasks_of_a_later_version_are_refused(self, world: TableWorld, table: TableVersion) -> None:
        later = world.commit(delete(world.staging(), table, parse("id = 2")))
        task = task_of_four(world, later)
        edit = Edit(deletes=(RowDeletes(task, BitMap64([0])),))
        with pytest.raises(TableUsageError, match="planned on another version"):
            stage_snapshot(world.staging(), table, edit, Operation.DELETE)

    def test_a_file_that_is_gone_is_refused(self, world: TableWorld, table: TableVersion) -> None:
        old = task_of_four(world, table)
        table = world.commit(rewrite(world.staging(), table, [old]))
        with pytest.raises(TableUsageError, match="planned on another version"):
            edit_positions(world.staging(), table, [(old, BitMap64([0]))], None)
        with pytest.raises(TableUsageError, match="planned on another version"):
            rewrite(world.staging(), table, [old])

    def test_a_task_twice_is_rewritten_once(self, world: TableWorld, table: TableVersion) -> None:
        task = task_of_four(world, table)
        assert ids(world, world.commit(rewrite(world.staging(), table, [task, task]))) == [1, 2, 3, 4, 5, 6]

    def test_a_file_goes_only_when_its_footer_counts_the_same(self, world: TableWorld) -> None:
        """Otherwise rows that nobody deleted would go with it."""
        table, sink = world.create(SCHEMA), CollectingSink()
        (file,) = write_rows(rows(1, 2, 3), metadata=table.metadata, files=sink, randomness=world.randomness)
        world.files.write(sink.files)
        file[4] = 1
        table = world.commit(stage_snapshot(world.staging(), table, Edit(added=(file,)), Operation.APPEND))
        with pytest.raises(TableCorruptError, match="has 3 rows, 3 by its footer, 1 by its manifest"):
            delete_positions(world.staging(), table, {file.file_path: BitMap64([0])})


class TestTotals:
    """What the parent's summary does not say is not known, and is not 0."""

    @pytest.mark.parametrize("said", [{}, {"total-records": "many", "total-data-files": "-1"}])
    def test_are_left_out_when_the_parent_does_not_say_them(
        self, world: TableWorld, table: TableVersion, said: dict[str, str]
    ) -> None:
        parent = table.metadata.current_snapshot()
        assert parent is not None
        silent = parent.model_copy(update={"summary": Summary(Operation.APPEND, **said)})
        metadata = table.metadata.model_copy(update={"snapshots": [*table.metadata.snapshots[:-1], silent]})
        staged = append(world.staging(), TableVersion(metadata, table.location), rows(4))
        snapshot = staged.metadata.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        summary = snapshot.summary.additional_properties
        assert not [key for key in summary if key.startswith("total-")]
        assert summary["added-records"] == "1"
        # Whoever asks whether there are rows is told that there may be some, though the parent is gone.
        assert has_rows(staged.metadata.model_copy(update={"snapshots": [snapshot]}))


class TestOverwrite:
    def test_everything(self, world: TableWorld, table: TableVersion) -> None:
        assert ids(world, world.commit(overwrite(world.staging(), table, rows(7, 8)))) == [7, 8]

    def test_everything_by_nothing(self, world: TableWorld, table: TableVersion) -> None:
        table = world.commit(overwrite(world.staging(), table, rows()))
        assert ids(world, table) == []
        table = world.commit(append(world.staging(), table, rows(1)))
        assert ids(world, table) == [1]

    def test_a_part(self, world: TableWorld, table: TableVersion) -> None:
        staged = overwrite(world.staging(), table, rows(1, v="new"), where=parse("id < 3"))
        assert ids(world, world.commit(staged)) == [1, 3, 4, 5, 6]

    def test_an_empty_table(self, world: TableWorld) -> None:
        made = world.create(SCHEMA)
        assert ids(world, world.commit(overwrite(world.staging(), made, rows()))) == []


class TestMerge:
    @pytest.mark.parametrize(
        ("matched", "not_matched", "expected"),
        [
            (WhenMatched.UPDATE, WhenNotMatched.INSERT, {1: "x", 2: "new", 9: "new"}),
            (WhenMatched.UPDATE, WhenNotMatched.SKIP, {1: "x", 2: "new"}),
            (WhenMatched.DELETE, WhenNotMatched.INSERT, {1: "x", 9: "new"}),
            (WhenMatched.DELETE, WhenNotMatched.SKIP, {1: "x"}),
            (WhenMatched.KEEP, WhenNotMatched.INSERT, {1: "x", 2: "x", 9: "new"}),
            (WhenMatched.KEEP, WhenNotMatched.SKIP, {1: "x", 2: "x"}),
        ],
    )
    @VERSIONS
    def test_all_ways(
        self,
        world: TableWorld,
        version: int,
        matched: WhenMatched,
        not_matched: WhenNotMatched,
        expected: dict[int, str],
    ) -> None:
        made = world.create(SCHEMA, format_version=version)
        made = world.commit(append(world.staging(), made, rows(1, 2)))
        staged = merge(world.staging(), made, rows(2, 9, v="new"), on=["id"], matched=matched, not_matched=not_matched)
        found = world.rows(world.commit(staged)).to_pylist()
        assert {row["id"]: row["v"] for row in found} == expected
        assert len(found) == len(expected)

    def test_a_key_with_a_null_matches_nothing(self, world: TableWorld, table: TableVersion) -> None:
        table = world.commit(append(world.staging(), table, rows(7, n=None)))
        table = world.commit(upsert(world.staging(), table, rows(8, n=None), on=["n"]))
        assert ids(world, table) == [1, 2, 3, 4, 5, 6, 7, 8]

    @pytest.mark.parametrize(
        ("kind", "keys", "others"),
        [
            (IntegerType(), pa.array([1, 2], pa.int32()), pa.array([2], pa.int16())),
            (DoubleType(), pa.array([-0.0, 1.5]), pa.array([0.0])),
            (UUIDType(), pa.array([b"a" * 16, b"b" * 16], pa.binary(16)), pa.array([b"a" * 16], pa.uuid())),
            (StringType(), pa.array(["a", "b"]), pa.array(["b"], pa.string_view())),
            (StringType(), pa.array(["a", "b"]), pa.array(["b"]).dictionary_encode()),
            (BinaryType(), pa.array([b"a", b"b"]), pa.array([b"b"], pa.binary_view())),
            (DecimalType(10, 2), pa.array([Decimal("1.50"), Decimal(2)]), pa.array([Decimal("1.5")])),
            (TimestampNanoType(), pa.array([1, 2], pa.timestamp("ns")), pa.array([2], pa.timestamp("ns"))),
            (DateType(), pa.array([3_000_000, 0], pa.date32()), pa.array([3_000_000], pa.date32())),
        ],
        ids=str,
    )
    def test_keys_of_all_types(self, world: TableWorld, kind: IcebergType, keys: pa.Array, others: pa.Array) -> None:
        schema = Schema(NestedField(1, "k", kind), NestedField(2, "x", LongType()))
        table = world.create(schema, format_version=3)
        if pa.types.is_decimal(keys.type):
            keys = keys.cast(pa.decimal128(10, 2))
        table = world.commit(append(world.staging(), table, pa.table({"k": keys, "x": [1, 2]})))
        source = pa.table({"k": others, "x": [7]})
        table = world.commit(upsert(world.staging(), table, source, on=["k"]))
        found = world.rows(table, columns=["x"], extra=frozenset({ROW_ID_COLUMN})).to_pylist()
        assert sorted(each[ROW_ID_COLUMN] for each in found) == [0, 1]
        assert sum(each["x"] == 7 for each in found) == 1

    @pytest.mark.parametrize(
        ("kind", "keys", "said"),
        [
            (IntegerType(), pa.array([2**40]), "is int in the table, and int64 in the rows"),
            (LongType(), pa.array([2**63], pa.uint64()), "is long in the table, and uint64 in the rows"),
            (DoubleType(), pa.array([float("nan")]), "is NaN in some of the rows"),
            (ListType(5, LongType()), pa.array([[1]]), "cannot be a key"),
        ],
    )
    def test_keys_that_cannot_be_are_refused(
        self, world: TableWorld, kind: IcebergType, keys: pa.Array, said: str
    ) -> None:
        table = world.create(Schema(NestedField(1, "k", kind)))
        with pytest.raises(TableUsageError, match=said) as caught:
            upsert(world.staging(), table, pa.table({"k": keys}), on=["k"])
        assert caught.value.fields["column"] == "k"

    def test_rows_from_before_the_upgrade_get_new_ids(self, world: TableWorld) -> None:
        """They have none, and no number may be taken for one."""
        table = world.create(SCHEMA, format_version=2)
        table = world.commit(append(world.staging(), table, rows(1, 2)))
        table = world.commit(upgrade(table.metadata, 3, world.clock.now()))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            table = world.commit(upsert(world.staging(), table, rows(2, v="new"), on=["id"]))
        found = world.rows(table, columns=["id"], extra=frozenset({ROW_ID_COLUMN})).to_pylist()
        assert len({each[ROW_ID_COLUMN] for each in found}) == 2
        assert all(each[ROW_ID_COLUMN] >= 0 for each in found)

    def test_many_keys_are_looked_for_as_a_range(self, world: TableWorld, table: TableVersion) -> None:
        table = world.commit(upsert(world.staging(), table, rows(*range(2, 400), v="new"), on=["id"]))
        assert ids(world, table) == list(range(1, 400))

    @pytest.mark.parametrize(
        ("source", "on", "said"),
        [
            (rows(1, 1), ["id"], "same key"),
            (rows(1), ["nope"], "no key column nope"),
            (rows(1).append_column("w", pa.array([1])), ["w"], "has no column w"),
            (rows(1), [], "at least one key"),
        ],
    )
    def test_bad_keys(self, world: TableWorld, table: TableVersion, source: pa.Table, on: list[str], said: str) -> None:
        with pytest.raises(TableUsageError, match=said):
            upsert(world.staging(), table, source, on=on)


class TestRewrite:
    def test_rows_stay_what_they_were(self, world: TableWorld) -> None:
        made = world.create(SCHEMA, format_version=3)
        made = world.commit(append(world.staging(), made, rows(1, 2, 3)))
        made = world.commit(append(world.staging(), made, rows(4)))
        made = world.commit(upsert(world.staging(), made, rows(2, v="new"), on=["id"]))
        lineage = frozenset({ROW_ID_COLUMN, UPDATED_COLUMN})
        before = rows_of(world.rows(made, extra=lineage))
        made = world.commit(rewrite(world.staging(), made, plan_scan(world.files, made.metadata).tasks))
        assert rows_of(world.rows(made, extra=lineage)) == before
        assert len(plan_scan(world.files, made.metadata).tasks) == 1
        assert live_deletes(world, made) == []
        snapshot = made.metadata.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        assert snapshot.summary.operation is Operation.REPLACE

    @pytest.mark.hazard("P11")
    @VERSIONS
    def test_p11_a_rewrite_keeps_the_number_of_its_inputs(self, world: TableWorld, version: int) -> None:
        """So that an equality delete which was committed before the rewrite, but not read by it, still applies."""
        made = world.create(SCHEMA, format_version=version)
        made = world.commit(append(world.staging(), made, rows(1, 2)))
        snapshot = made.metadata.current_snapshot()
        assert snapshot is not None
        before = snapshot.sequence_number
        made = world.commit(rewrite(world.staging(), made, plan_scan(world.files, made.metadata).tasks))
        [task] = plan_scan(world.files, made.metadata).tasks
        assert task.sequence_number == before

    def test_nothing_to_rewrite(self, world: TableWorld) -> None:
        with pytest.raises(TableUsageError, match="nothing to rewrite"):
            rewrite(world.staging(), world.create(SCHEMA), [])


class TestRowIds:
    def test_every_row_gets_an_id_of_its_own(self, world: TableWorld) -> None:
        made = world.create(SCHEMA, format_version=3)
        for first in (0, 10, 20):
            made = world.commit(append(world.staging(), made, rows(*range(first, first + 5))))
        found = world.rows(made, extra=frozenset({ROW_ID_COLUMN}))[ROW_ID_COLUMN].to_pylist()
        assert sorted(found) == list(range(15))
        assert isinstance(made.metadata, TableMetadataV3)
        assert made.metadata.next_row_id == 15

    def test_an_updated_row_keeps_its_id(self, world: TableWorld) -> None:
        made = world.create(SCHEMA, format_version=3)
        made = world.commit(append(world.staging(), made, rows(1, 2, 3)))
        made = world.commit(upsert(world.staging(), made, rows(2, 9, v="new"), on=["id"]))
        found = world.rows(made, extra=frozenset({ROW_ID_COLUMN})).to_pylist()
        given = {row["id"]: row[ROW_ID_COLUMN] for row in found}
        assert (given[1], given[2], given[3]) == (0, 1, 2)
        assert given[9] > 2

    def test_rows_from_before_the_upgrade_get_theirs_at_the_next_commit(self, world: TableWorld) -> None:
        made = world.create(SCHEMA, format_version=2)
        made = world.commit(append(world.staging(), made, rows(1, 2, 3)))
        made = world.commit(upgrade(made.metadata, 3, world.clock.now()))
        made = world.commit(append(world.staging(), made, rows(4)))
        found = world.rows(made, extra=frozenset({ROW_ID_COLUMN}))[ROW_ID_COLUMN].to_pylist()
        assert sorted(found) == [0, 1, 2, 3]

    def test_a_manifest_that_is_written_again_keeps_the_ids(self, world: TableWorld) -> None:
        made = world.create(
            SCHEMA, format_version=3, spec=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "v"))
        )
        both = pa.concat_tables([rows(1, 2, v="a"), rows(3, v="b")])
        made = world.commit(append(world.staging(), made, both))
        extra = frozenset({ROW_ID_COLUMN})
        before = {row["id"]: row[ROW_ID_COLUMN] for row in world.rows(made, extra=extra).to_pylist()}
        made = world.commit(delete(world.staging(), made, parse("v = 'a'")))
        [left] = world.rows(made, extra=extra).to_pylist()
        assert left[ROW_ID_COLUMN] == before[3]


@VERSIONS
def test_many_manifests_are_merged(world: TableWorld, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_edit, "MERGE_FROM", 5)
    made = world.create(SCHEMA, format_version=version)
    lineage = frozenset({ROW_ID_COLUMN}) if version == 3 else frozenset()
    given: dict[int, int] = {}
    for number in range(12):
        made = world.commit(append(world.staging(), made, rows(number)))
        if version == 3:  # ids may have gaps, but stay, and none is given twice
            now = {row["id"]: row[ROW_ID_COLUMN] for row in world.rows(made, extra=lineage).to_pylist()}
            assert given.items() <= now.items()
            assert len(set(now.values())) == number + 1
            given = now
    snapshot = made.metadata.current_snapshot()
    assert snapshot is not None
    manifests = read_manifest_list(world.files, snapshot)
    assert len(manifests) < 6
    assert ids(world, made) == list(range(12))
    if version == 3:
        assert all(first_row_id_of(each) is not None for each in manifests)
    numbers = [task.sequence_number for task in plan_scan(world.files, made.metadata).tasks]
    assert sorted(numbers) == list(range(1, 13))
    assert made.location is not None
    assert by_pyiceberg(made.location) == by_duckdb(made.location) == rows_of(world.rows(made))


def test_version_1_is_read_and_not_written(world: TableWorld, table: TableVersion) -> None:
    old = TableVersion(table.metadata.model_copy(update={"format_version": 1}), table.location)
    with pytest.raises(UnsupportedTableError, match="format version 1, which is read but not written"):
        stage_snapshot(world.staging(), old, Edit(), Operation.APPEND)


def test_deletes_and_rows_in_one_snapshot(world: TableWorld, table: TableVersion) -> None:
    task = plan_scan(world.files, table.metadata).tasks[0]
    staged = stage_snapshot(
        world.staging(),
        table,
        Edit(deletes=(RowDeletes(task, BitMap64([0])), RowDeletes(task, BitMap64()))),
        Operation.DELETE,
    )
    assert len(ids(world, world.commit(staged))) == 5


@VERSIONS
def test_a_manifest_list_that_was_cut_between_blocks_is_noticed(world: TableWorld, version: int) -> None:
    made = world.create(SCHEMA, format_version=version)
    made = world.commit(append(world.staging(), made, rows(1)))
    snapshot = made.metadata.current_snapshot()
    assert snapshot is not None
    path = snapshot.manifest_list.removeprefix(world.root + "/")
    data = world.files.read(snapshot.manifest_list)
    # Without its only block: a sound Avro file that has no manifest in it.
    header = data[: data.index(data[-16:]) + 16]
    world.store.put(path, header, Overwrite())
    with pytest.raises(TableCorruptError, match="snap-"):
        plan_scan(world.files, made.metadata)
