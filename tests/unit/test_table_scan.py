"""Which files a scan needs, and which deletes apply to each: the rules of the specification, one by one."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, LongType, NestedField, StringType

from headwater.tables.columns import RenameColumn
from headwater.tables.evolve import change_schema, change_spec
from headwater.tables.model import DELETE_FILE_PATH_ID, LiveFile, TableCorruptError, TableFile, TableUsageError
from headwater.tables.operations import append
from headwater.tables.partitions import AddPartitionField, RemovePartitionField
from headwater.tables.scan import DeleteIndex, plan_scan, target_of
from tests.fixtures.tables import TableWorld

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True), NestedField(2, "g", StringType()), NestedField(3, "d", DateType())
)
BY_G = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "g"))


def file_of(
    path: str,
    number: int,
    *,
    content: DataFileContent = DataFileContent.DATA,
    partition: tuple[object, ...] = ("a",),
    spec_id: int = 0,
    about: str | None = None,
    bounds: tuple[str, str] | None = None,
    vector: bool = False,
) -> LiveFile:
    file = TableFile.from_args(
        _table_format_version=3,
        content=content,
        file_path=path,
        file_format=FileFormat.PUFFIN if vector else FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=10,
        file_size_in_bytes=1,
        referenced_data_file=about,
        content_offset=4 if vector else None,
        content_size_in_bytes=40 if vector else None,
        lower_bounds={DELETE_FILE_PATH_ID: bounds[0].encode()} if bounds else None,
        upper_bounds={DELETE_FILE_PATH_ID: bounds[1].encode()} if bounds else None,
    )
    file.spec_id = spec_id
    assert isinstance(file, TableFile)
    return LiveFile(file, number, number, 1)


POSITIONS, EQUALITY = DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES
DATA = file_of("s3://b/data", 5)
VOID = PartitionField(2, 1000, VoidTransform(), "g")
SPECS = {
    0: BY_G,
    1: BY_G,
    7: PartitionSpec(),
    8: PartitionSpec(VOID, spec_id=8),
    9: PartitionSpec(VOID, PartitionField(3, 1001, DayTransform(), "d_day"), spec_id=9),
}


@pytest.mark.parametrize(
    ("delete", "applies"),
    [
        # Deletion vectors: the file they name, if they are not older.
        (file_of("v", 5, content=POSITIONS, about="s3://b/data", vector=True), True),
        (file_of("v", 6, content=POSITIONS, about="s3://b/data", vector=True), True),
        (file_of("v", 6, content=POSITIONS, about="s3://b/other", vector=True), False),
        # Position deletes: within their partition, or the one file that they name, if they are not older.
        (file_of("p", 5, content=POSITIONS), True),
        (file_of("p", 6, content=POSITIONS), True),
        (file_of("p", 4, content=POSITIONS), False),
        (file_of("p", 6, content=POSITIONS, partition=("b",)), False),
        (file_of("p", 6, content=POSITIONS, spec_id=1), False),
        (file_of("p", 6, content=POSITIONS, about="s3://b/data"), True),
        (file_of("p", 6, content=POSITIONS, about="s3://b/other"), False),
        (file_of("p", 6, content=POSITIONS, bounds=("s3://b/data", "s3://b/data")), True),
        (file_of("p", 6, content=POSITIONS, bounds=("s3://b/other", "s3://b/other")), False),
        (file_of("p", 6, content=POSITIONS, bounds=("s3://b/a", "s3://b/z")), True),
        (file_of("p", 6, content=POSITIONS, bounds=("s3://b/e", "s3://b/z")), False),
        (file_of("p", 6, content=POSITIONS, bounds=("s3://b/a", "s3://b/c")), False),
        (file_of("p", 4, content=POSITIONS, bounds=("s3://b/data", "s3://b/data")), False),
        # Equality deletes: strictly younger, within their partition or, without one, everywhere.
        (file_of("e", 6, content=EQUALITY), True),
        (file_of("e", 5, content=EQUALITY), False),
        (file_of("e", 4, content=EQUALITY), False),
        (file_of("e", 6, content=EQUALITY, partition=("b",)), False),
        (file_of("e", 6, content=EQUALITY, spec_id=1), False),
        (file_of("e", 6, content=EQUALITY, partition=(), spec_id=7), True),
        (file_of("e", 5, content=EQUALITY, partition=(), spec_id=7), False),
        # A spec that partitions by nothing any more is as good as none.
        (file_of("e", 6, content=EQUALITY, partition=(None,), spec_id=8), True),
        (file_of("e", 6, content=EQUALITY, partition=(None, "a"), spec_id=9), False),
    ],
)
def test_which_deletes_apply(delete: LiveFile, applies: bool) -> None:
    task = DeleteIndex([delete], SPECS).task(DATA)
    found = [*([task.vector] if task.vector else []), *task.positions, *task.equality]
    assert found == ([delete.file] if applies else [])
    assert task.has_deletes is applies


def test_a_vector_stands_for_all_position_deletes() -> None:
    vector = file_of("v", 7, content=POSITIONS, about="s3://b/data", vector=True)
    index = DeleteIndex([file_of("p", 6, content=POSITIONS), vector, file_of("e", 9, content=EQUALITY)], SPECS)
    task = index.task(DATA)
    assert (task.vector, task.positions, len(task.equality)) == (vector.file, (), 1)


def test_two_vectors_for_one_file_are_damage() -> None:
    vector = file_of("v", 7, content=POSITIONS, about="s3://b/data", vector=True)
    with pytest.raises(TableCorruptError, match="second deletion vector of s3://b/data"):
        DeleteIndex([vector, vector], SPECS)


def test_a_vector_that_names_nothing_is_damage() -> None:
    with pytest.raises(TableCorruptError, match="names no data file"):
        DeleteIndex([file_of("v", 7, content=POSITIONS, vector=True)], SPECS)


def test_a_vector_that_is_older_than_its_data_is_damage() -> None:
    """To pass it over would bring rows back."""
    index = DeleteIndex([file_of("v", 4, content=POSITIONS, about="s3://b/data", vector=True)], SPECS)
    with pytest.raises(TableCorruptError, match="older than its data file s3://b/data") as caught:
        index.task(DATA)
    assert caught.value.fields["path"] == "v"


@pytest.mark.parametrize("content", [POSITIONS, EQUALITY])
def test_deletes_apply_in_the_partition_of_nan(content: DataFileContent) -> None:
    """NaN does not equal itself, and comes from another manifest as another object."""
    data, delete = (file_of(name, number, partition=(float("nan"),)) for name, number in (("d", 5), ("x", 6)))
    delete.file[0] = content
    assert DeleteIndex([delete], SPECS).task(data).has_deletes
    assert not DeleteIndex([delete], SPECS).task(file_of("d", 5, partition=(1.0,))).has_deletes


def test_bounds_of_paths_that_are_no_text_prove_nothing() -> None:
    delete = file_of("p", 6, content=POSITIONS)
    delete.file[10], delete.file[11] = {DELETE_FILE_PATH_ID: b"\xff\xfe"}, {DELETE_FILE_PATH_ID: b"\xff\xfe"}
    assert target_of(delete.file) is None
    assert DeleteIndex([delete], SPECS).task(DATA).positions == (delete.file,)


def test_the_one_file_that_deletes_are_about() -> None:
    assert target_of(file_of("p", 1, about="x").file) == "x"
    assert target_of(file_of("p", 1, bounds=("x", "x")).file) == "x"
    assert target_of(file_of("p", 1, bounds=("x", "y")).file) is None
    assert target_of(file_of("p", 1).file) is None


def rows(*values: tuple[int, str | None, int]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([each[0] for each in values], pa.int64()),
            "g": pa.array([each[1] for each in values], pa.string()),
            "d": pa.array([date(2024, 1, each[2]) for each in values]),
        }
    )


class TestPruning:
    def test_by_partition_and_by_bounds(self, world: TableWorld) -> None:
        table = world.create(SCHEMA, spec=BY_G)
        table = world.commit(append(world.staging(), table, rows((1, "a", 1), (2, "b", 2), (3, None, 3))))
        table = world.commit(append(world.staging(), table, rows((11, "a", 11), (12, "b", 12))))

        def files(row_filter: BooleanExpression) -> int:
            return len(plan_scan(world.files, table.metadata, row_filter=row_filter).tasks)

        assert len(plan_scan(world.files, table.metadata).tasks) == 5
        assert files(parse("g = 'a'")) == 2
        assert files(parse("g in ('a', 'x')")) == 2
        assert files(parse("id > 11")) == 1
        assert files(parse("d = '2024-01-03'")) == 1
        assert files(parse("g = 'zz'")) == 0
        plan = plan_scan(world.files, table.metadata, row_filter=parse("id = 2"))
        assert (len(plan.tasks), plan.skipped_files, plan.skipped_manifests) == (1, 4, 0)

    def test_manifests_are_left_out_unread(self, world: TableWorld) -> None:
        table = world.create(SCHEMA, spec=BY_G)
        table = world.commit(append(world.staging(), table, rows((1, "a", 1))))
        table = world.commit(append(world.staging(), table, rows((2, "b", 1))))
        plan = plan_scan(world.files, table.metadata, row_filter=parse("g = 'b'"))
        assert (len(plan.tasks), plan.skipped_manifests) == (1, 1)

    def test_under_specs_that_changed(self, world: TableWorld) -> None:
        table = world.create(SCHEMA, spec=BY_G)
        table = world.commit(append(world.staging(), table, rows((1, "a", 1), (2, "b", 2))))
        now = world.clock.now()
        changed = change_spec(table.metadata, [RemovePartitionField("g"), AddPartitionField("d", "day")], now)
        table = world.commit(changed)
        table = world.commit(append(world.staging(), table, rows((3, "a", 1), (4, "b", 2), (5, "b", 2))))
        assert {task.file.spec_id for task in plan_scan(world.files, table.metadata).tasks} == {0, 1}
        by_day = plan_scan(world.files, table.metadata, row_filter=parse("d = '2024-01-02'"))
        assert sum(task.file.record_count for task in by_day.tasks) == 3
        by_group = plan_scan(world.files, table.metadata, row_filter=parse("g = 'a'"))
        assert sum(task.file.record_count for task in by_group.tasks) == 2

    def test_a_column_by_its_new_name(self, world: TableWorld) -> None:
        table = world.create(SCHEMA, spec=PartitionSpec(PartitionField(3, 1000, DayTransform(), "d_day")))
        table = world.commit(append(world.staging(), table, rows((1, "a", 1), (2, "b", 2))))
        before = table.metadata.current_snapshot_id
        table = world.commit(change_schema(table.metadata, [RenameColumn("d", "day")], world.clock.now()))
        assert len(plan_scan(world.files, table.metadata, row_filter=parse("day = '2024-01-02'")).tasks) == 1
        # A snapshot is read in the schema that it was written in.
        then = plan_scan(world.files, table.metadata, snapshot_id=before, row_filter=parse("d = '2024-01-02'"))
        assert (len(then.tasks), then.schema.column_names) == (1, ["id", "g", "d"])


def test_an_empty_table_needs_nothing(world: TableWorld) -> None:
    table = world.create(SCHEMA)
    plan = plan_scan(world.files, table.metadata)
    assert (plan.tasks, plan.snapshot) == ((), None)


def test_a_filter_that_does_not_fit_is_refused(world: TableWorld) -> None:
    table = world.create(SCHEMA)
    table = world.commit(append(world.staging(), table, rows((1, "a", 1))))
    with pytest.raises(TableUsageError, match="does not fit the table"):
        plan_scan(world.files, table.metadata, row_filter=parse("nope = 1"))


def test_a_snapshot_that_is_not_there(world: TableWorld) -> None:
    table = world.create(SCHEMA)
    with pytest.raises(TableUsageError, match="has no snapshot 7"):
        plan_scan(world.files, table.metadata, snapshot_id=7)
