"""What tables declare to be found faster by: what is missing is built, once; and other engines read it."""

from __future__ import annotations

import json
import struct
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.statistics import BlobMetadata, PartitionStatisticsFile, StatisticsFile
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BooleanType, ListType, LongType, NestedField, StringType, StructType

from headwater.catalog.model import TableContent, TableKey
from headwater.kernel import failpoints
from headwater.kernel.clock import ManualClock
from headwater.kernel.failpoints import Action, Failpoint
from headwater.kernel.ids import Ulid
from headwater.kernel.randomness import seeded
from headwater.publish.errors import DriftError, PublishOutcomeUnknownError, RecoveryPendingError
from headwater.publish.indices.decide import declared_by, missing, with_declared
from headwater.publish.indices.model import Declared
from headwater.publish.indices.theta import KEPT, THETA_BLOB, ThetaSketch
from headwater.publish.model import TableWish, Wish, WriterKind
from headwater.publish.optimize.model import End, Plan
from headwater.tables.blooms import bloom_options, can_have_bloom
from headwater.tables.create import new_table
from headwater.tables.evolve import set_properties, set_sort_order
from headwater.tables.leaves import leaves
from headwater.tables.model import FileTask, Staged, TableUsageError
from headwater.tables.partitions import AddPartitionField, SortBy
from headwater.tables.statistics import distinct_counts
from headwater.tables.vectors import read_puffin
from tests.unit.optimize_world import OptimizeWorld, cutting_in
from tests.unit.test_publish_optimize import file

pytestmark = pytest.mark.proves("publish/optimize")

GOLDEN = Path(__file__).parent / "golden" / "theta-1.bin"
KEY = TableKey.parse("t")
BLOOM = "write.parquet.bloom-filter-enabled.column."
COLUMNS = "headwater.statistics.columns"
PARTITIONS = "headwater.statistics.partitions"


@pytest.fixture
def world(tmp_path: Path) -> OptimizeWorld:
    return OptimizeWorld(tmp_path)


# ---------------------------------------------------------------------------- sketches


def longs(count: int, first: int = 0) -> list[bytes]:
    return [struct.pack("<q", number) for number in range(first, first + count)]


class TestSketch:
    def test_the_golden_file(self) -> None:
        """The very bytes that Apache DataSketches 6.2 for Java makes of these values, compact and ordered."""
        sketch = ThetaSketch()
        sketch.add([b"a", b"bb", "é".encode(), b""])
        assert sketch.to_bytes() == GOLDEN.read_bytes()

    @pytest.mark.parametrize("count", [0, 1, 2, 1000, KEPT])
    def test_it_is_exact_while_there_are_few(self, count: int) -> None:
        sketch = ThetaSketch()
        for _ in range(2):
            sketch.add(longs(count))
        assert sketch.estimate == count

    def test_it_is_near_when_there_are_many(self) -> None:
        sketch = ThetaSketch()
        for first in range(0, 60_000, 7000):
            sketch.add(longs(14_000, first))  # half of them come again
        true = 56_000 + 14_000
        assert abs(sketch.estimate - true) < true * 0.05

    def test_the_order_of_values_makes_no_difference(self) -> None:
        one, other = ThetaSketch(), ThetaSketch()
        one.add(longs(10_000))
        for first in range(9000, -1, -1000):
            other.add(longs(1000, first))
        assert one.to_bytes() == other.to_bytes()

    def test_the_preamble(self) -> None:
        empty, few, many = ThetaSketch(), ThetaSketch(), ThetaSketch()
        few.add(longs(3))
        many.add(longs(KEPT + 1))
        assert empty.to_bytes().hex() == "01030300001ecc93"
        assert few.to_bytes()[:16].hex() == "02030300001acc93" + "03000000" + "0000803f"
        assert many.to_bytes()[:16].hex() == "03030300001acc93" + "00100000" + "0000803f"
        assert (len(few.to_bytes()), len(many.to_bytes())) == (16 + 3 * 8, 24 + KEPT * 8)
        hashes = struct.unpack(f"<{KEPT}q", many.to_bytes()[24:])
        [theta] = struct.unpack("<q", many.to_bytes()[16:24])
        assert list(hashes) == sorted(set(hashes))
        assert hashes[-1] < theta


# ---------------------------------------------------------------------------- what is declared, what is missing

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "flag", BooleanType()),
    NestedField(3, "tags", ListType(4, StringType())),
    NestedField(5, "s", StructType(NestedField(6, "a", StringType()))),
)


def table(properties: dict[str, str], **options: Any) -> TableMetadata:
    return new_table(
        SCHEMA,
        location="s3://b/t",
        incarnation=Ulid("01KDVQDG00AAAAAAAAAAAAAAAA"),
        operation=Ulid("01KDVQDG00BBBBBBBBBBBBBBBB"),
        clock=ManualClock(),
        randomness=seeded(1),
        properties=properties,
        **options,
    )


def test_what_a_table_declares() -> None:
    order = SortOrder(SortField(source_id=1, transform=IdentityTransform()), order_id=1)
    declared = declared_by(
        table({BLOOM + "id": "true", BLOOM + "s.a": "TRUE", COLUMNS: " id,s.a, id ,"}, sort_order=order)
    )
    assert declared == Declared(1, {"id": 1, "s.a": 6}, {"id": 1, "s.a": 6}, partition_statistics=False)
    assert declared_by(table({BLOOM + "id": "false", PARTITIONS: "true"})) == Declared(None, {}, {}, False)
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    assert declared_by(table({PARTITIONS: "true"}, spec=spec)).partition_statistics


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        (BLOOM + "nope", "true", "which is not in the table"),
        (BLOOM + "flag", "true", "which is boolean"),
        (BLOOM + "tags.element", "true", "which lies in a list or map"),
        (COLUMNS, "id, nope", "names the column nope, which is not in the table"),
        (COLUMNS, "tags.element", "which lies in a list or map"),
        (COLUMNS, "s", "which is not in the table"),
    ],
)
def test_what_cannot_be_built_is_refused_and_passed_over_by_others(name: str, value: str, what: str) -> None:
    metadata = table({name: value})
    with pytest.raises(TableUsageError, match=what):
        declared_by(metadata)
    declared = declared_by(metadata, strict=False)
    assert not declared.blooms
    assert set(declared.statistics) <= {"id"}


def sorted_as(order: int | None, name: str) -> FileTask:
    return FileTask(file(name, sort_order_id=order), 1)


def test_files_that_lack_something_are_written_again_each_by_itself() -> None:
    metadata = table({})
    tasks = [sorted_as(1, "a"), sorted_as(0, "b"), sorted_as(None, "c"), sorted_as(1, "d")]
    names = [
        "".join(task.file.file_path for task in group)
        for group in missing(Declared(1, {}, {}, False), metadata, tasks, {"d"}).groups
    ]
    assert names == ["b", "c", "d"]
    assert missing(Declared(None, {}, {}, False), metadata, tasks, ()).is_empty


def with_statistics(*columns: int, partitions: bool = False, snapshot: int = 7) -> TableMetadata:
    blobs = [BlobMetadata(type=THETA_BLOB, snapshot_id=snapshot, sequence_number=1, fields=[each]) for each in columns]
    known = StatisticsFile(
        snapshot_id=snapshot,
        statistics_path="x",
        file_size_in_bytes=1,
        file_footer_size_in_bytes=1,
        blob_metadata=blobs,
    )
    about = PartitionStatisticsFile(snapshot_id=snapshot, statistics_path="y", file_size_in_bytes=1)
    update = {
        "current_snapshot_id": 7,
        "statistics": [known],
        "partition_statistics": [about] if partitions else [],
    }
    return table({}).model_copy(update=update)


@pytest.mark.parametrize(
    ("metadata", "statistics", "partitions"),
    [
        (with_statistics(1, 6, partitions=True), (), False),
        (with_statistics(1, 6, 9, partitions=True), (), False),
        (with_statistics(1, partitions=True), ("id", "s.a"), False),
        (with_statistics(1, 6), (), True),
        (with_statistics(1, 6, partitions=True, snapshot=6), ("id", "s.a"), True),
    ],
)
def test_statistics_are_those_of_the_current_snapshot(
    metadata: TableMetadata, statistics: tuple[str, ...], partitions: bool
) -> None:
    declared = Declared(None, {}, {"id": 1, "s.a": 6}, partition_statistics=True)
    found = with_declared(declared, metadata, Plan())
    assert (found.statistics, found.partition_statistics) == (statistics, partitions)
    rewritten = with_declared(declared, metadata, Plan(((sorted_as(0, "a"),),)))
    assert (rewritten.statistics, rewritten.partition_statistics) == (("id", "s.a"), True)


def test_a_table_without_rows_needs_nothing() -> None:
    declared = Declared(1, {"id": 1}, {"id": 1}, partition_statistics=True)
    assert missing(declared, table({}), [], ()).is_empty


def test_how_large_filters_are() -> None:
    columns = tuple(leaves(SCHEMA.fields))
    assert [leaf.name for leaf in columns if can_have_bloom(leaf)] == ["id", "s.a"]
    assert bloom_options(columns, {}, 100) == {}
    assert bloom_options(columns, {BLOOM + "flag": "true", BLOOM + "gone": "true"}, 100) == {}
    few = bloom_options(columns, {BLOOM + "id": "true", "write.parquet.bloom-filter-fpp.column.id": "0.1"}, 100)
    assert few == {"id": {"ndv": 100, "fpp": 0.1}}
    most = bloom_options(columns, {BLOOM + "id": "true", "write.parquet.bloom-filter-max-bytes": "1024"}, 1 << 20)
    assert most["id"]["fpp"] == 0.01
    rows = pa.table({"id": range(20_000)})
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, bloom_filter_options=most)
    footer = pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata
    assert 512 < footer.row_group(0).column(0).bloom_filter_length <= 1024 + 64


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.parquet.bloom-filter-fpp.column.id", "0"),
        ("write.parquet.bloom-filter-fpp.column.id", "1"),
        ("write.parquet.bloom-filter-fpp.column.id", "often"),
        ("write.parquet.bloom-filter-max-bytes", "31"),
        ("write.parquet.bloom-filter-max-bytes", "-1"),
    ],
)
def test_properties_of_filters_that_make_no_sense(name: str, value: str) -> None:
    with pytest.raises(TableUsageError, match=name):
        bloom_options(tuple(leaves(SCHEMA.fields)), {BLOOM + "id": "true", name: value}, 100)


# ---------------------------------------------------------------------------- on a real lake


def declare(world: OptimizeWorld, properties: dict[str, str], *order: SortBy) -> None:
    """Change what the table declares, as a schema change does."""
    writing, ref = world.lake.writing, world.lake.catalog.ref("main")
    version, pinned = world.lake.table("t"), world.lake.content(KEY, ref.hash)
    assert isinstance(pinned, TableContent)
    changed = set_properties(version.metadata, properties, (), world.clock.now())
    if order:
        changed = set_sort_order(changed, order, world.clock.now())
    writing.publisher.publish(
        Wish(
            WriterKind.SCHEMA_APPLY,
            "ann",
            "declare",
            "main",
            ref.incarnation,
            writing.staging().operation,
            (TableWish(KEY, pinned, Staged(changed)),),
        )
    )


def footers(world: OptimizeWorld) -> list[pq.FileMetaData]:
    return [
        pq.ParquetFile(pa.BufferReader(world.lake.files.read(task.file.file_path))).metadata for task in world.tasks()
    ]


def test_what_is_missing_is_built_once(world: OptimizeWorld) -> None:
    world.create(format_version=3, partition_by=[AddPartitionField("p", "identity")])
    world.insert(3, 1, 2)
    world.insert(5, 4, p=1)
    world.delete(2)
    before = world.lineage()
    declare(world, {BLOOM + "id": "true", COLUMNS: "id, v", PARTITIONS: "true"}, SortBy("id"))
    world.insert(9, 8, 7)  # this one has everything already
    before |= {each: row for each, row in world.lineage().items() if each > 6}
    kept = world.tasks()[0].file.file_path
    assert len(world.tasks()) == 3

    [told] = world.lake.ensure_indices("t", actor="bob", dry_run=True).tables
    assert (told.end, told.files_before, told.statistics) == (End.PLANNED, 2, ("id", "v"))
    [done] = world.lake.ensure_indices("t", actor="bob").tables
    assert (done.end, done.files_before, done.files_after) == (End.PUBLISHED, 2, 2)
    assert kept in {task.file.file_path for task in world.tasks()}
    assert {task.file.sort_order_id for task in world.tasks()} == {1}
    for footer in footers(world):
        assert footer.row_group(0).column(0).bloom_filter_offset is not None
        assert footer.row_group(0).column(1).bloom_filter_offset is None
    assert world.rows() == world.model
    assert world.lineage() == before
    metadata = world.lake.table("t").metadata
    snapshot = metadata.current_snapshot_id
    assert snapshot is not None
    assert distinct_counts(metadata, snapshot) == {1: len(world.model), 2: 1}
    [about] = metadata.partition_statistics
    assert about.snapshot_id == snapshot
    counts = pq.read_table(pa.BufferReader(world.lake.files.read(about.statistics_path))).to_pylist()
    assert [(row["partition"]["p"], row["data_record_count"]) for row in counts] == [(0, 5), (1, 2)]

    objects = world.objects()
    [again] = world.lake.ensure_indices("t", actor="bob").tables
    assert (again.end, again.commit) == (End.NOTHING, None)
    assert world.objects() == objects


def test_statistics_alone_touch_no_file_and_make_no_snapshot(world: OptimizeWorld) -> None:
    world.create()
    world.insert(1, 2)
    world.insert(3, v="y")
    declare(world, {COLUMNS: "v"})
    before = world.lake.table("t").metadata
    [done] = world.lake.ensure_indices(actor="bob").tables
    assert (done.end, done.files_before, done.statistics) == (End.PUBLISHED, 0, ("v",))
    after = world.lake.table("t").metadata
    assert after.current_snapshot_id == before.current_snapshot_id
    [described] = after.statistics
    puffin = read_puffin(world.lake.files.read(described.statistics_path), described.statistics_path)
    assert [(blob.type, dict(blob.properties)) for blob in puffin.blobs] == [(THETA_BLOB, {"ndv": "2"})]
    data = world.lake.files.read(described.statistics_path)
    assert (len(data), data[-described.file_footer_size_in_bytes :][:4]) == (described.file_size_in_bytes, b"PFA1")
    # A new snapshot has none yet: they are built again, by optimize too.
    world.insert(4, v="z")
    assert world.lake.optimize("t", actor="bob").tables[0].statistics == ("v",)
    metadata = world.lake.table("t").metadata
    assert metadata.current_snapshot_id is not None
    assert distinct_counts(metadata, metadata.current_snapshot_id) == {2: 3}
    assert world.lake.ensure_indices(actor="bob").tables[0].end is End.NOTHING


def test_counts_of_many_types_by_duckdb(world: OptimizeWorld) -> None:
    """NULL is no value; what DuckDB counts is the oracle."""
    rows = pa.table(
        {
            "i": pa.array([1, 1, None, 3], pa.int32()),
            "d": pa.array([date(2026, 1, 1), None, date(2026, 1, 2), date(2026, 1, 1)]),
            "ts": pa.array([1, 2, 2, None], pa.timestamp("us", "UTC")),
            "n": pa.array([Decimal(1), Decimal(2), Decimal(2), Decimal(3)], pa.decimal128(20, 2)),
            "b": pa.array([b"x", b"y", b"x", None]),
            "f": pa.array([1.5, 1.5, None, -0.5]),
            "s": pa.array([{"a": "x"}, {"a": "x"}, None, {"a": "y"}]),
        }
    )
    names = ["i", "d", "ts", "n", "b", "f", "s.a"]
    properties = {COLUMNS: ",".join(names)}
    world.lake.create_table("k", rows.schema, actor="ann", properties=properties)
    with world.lake.transaction(actor="ann") as transaction:
        transaction.insert("k", rows)
    world.lake.ensure_indices("k", actor="bob")
    metadata = world.lake.table("k").metadata
    assert metadata.current_snapshot_id is not None
    found = distinct_counts(metadata, metadata.current_snapshot_id)
    wanted = duckdb.sql("select " + ", ".join(f"count(distinct {each})" for each in names) + " from rows").fetchone()
    assert wanted is not None
    assert dict(zip(names, found.values(), strict=True)) == dict(zip(names, wanted, strict=True))


def test_duckdb_reads_less_by_a_filter(world: OptimizeWorld) -> None:
    """Which row groups a filter keeps DuckDB from reading: all of them, for a value that none has."""
    properties = {BLOOM + "id": "true", "write.parquet.row-group-size-bytes": "20000"}
    world.lake.create_table("k", pa.schema([("id", pa.int64())]), actor="ann", properties=properties)
    with world.lake.transaction(actor="ann") as transaction:
        transaction.insert("k", pa.table({"id": pa.array(range(0, 20_000, 2), pa.int64())}))
    [task] = world.tasks("k")
    location = task.file.file_path.removeprefix("file://")
    probed = duckdb.execute("select * from parquet_bloom_probe(?, 'id', 7::bigint)", [location]).fetchall()
    assert len(probed) > 1
    assert sum(excluded for *_, excluded in probed) >= len(probed) - 1
    [there] = [
        each
        for each in duckdb.execute(
            "select row_group_id, bloom_filter_excludes from parquet_bloom_probe(?, 'id', 0::bigint)", [location]
        ).fetchall()
        if each[0] == 0
    ]
    assert there[1] is False
    assert world.lake.query("select count(*) c from k where id = 7")["c"].to_pylist() == [0]


# ---------------------------------------------------------------------------- it does not heal


def test_drift_is_refused_before_anything_is_written(world: OptimizeWorld) -> None:
    world.create()
    world.insert(1)
    declare(world, {COLUMNS: "id"})
    heads, version = world.lake.writing.heads, world.lake.table("t")
    assert heads is not None
    head = heads.sequence(heads.path_for(version.metadata, world.lake.catalog.ref("main").incarnation))
    latest = head.latest()
    assert latest is not None
    head.write(latest.payload, after=latest)
    before = world.objects()
    with pytest.raises(DriftError, match="no sidecar explains that") as caught:
        world.lake.ensure_indices("t", actor="bob")
    assert (caught.value.fields["pinned"], caught.value.fields["latest"]) == (latest.id, latest.id + 1)
    assert world.objects() == before


def test_a_change_that_is_pending_is_not_rolled_forward(world: OptimizeWorld) -> None:
    world.create()
    world.insert(1)
    declare(world, {COLUMNS: "id"})
    with (
        failpoints.arm(Failpoint.PUBLISH_AFTER_HEAD, Action.ERROR),
        pytest.raises(PublishOutcomeUnknownError) as dead,
    ):
        world.insert(2, lake=world.other)
    before = world.objects()
    with pytest.raises(RecoveryPendingError) as caught:
        world.lake.ensure_indices("t", actor="bob")
    assert caught.value.fields["operation"] == dead.value.operation
    assert world.objects() == before
    # A read-write open does heal, once the lease of the dead has passed.
    world.model[2] = ("x", 0)
    world.clock.advance(timedelta(minutes=5))
    world.process()
    assert world.lake.ensure_indices("t", actor="bob").tables[0].end is End.PUBLISHED
    assert world.rows() == world.model


def test_others_meanwhile(world: OptimizeWorld) -> None:
    """Statistics are those of the snapshot that they are attached to, whoever publishes in between."""
    world.create()
    world.insert(1, 2)
    declare(world, {COLUMNS: "id", BLOOM + "id": "true"})
    with cutting_in(Failpoint.OPTIMIZE_AFTER_FILES, lambda: world.insert(3, lake=world.other)):
        [done] = world.lake.ensure_indices("t", actor="bob").tables
    assert done.end is End.PUBLISHED
    metadata = world.lake.table("t").metadata
    assert metadata.current_snapshot_id is not None
    assert distinct_counts(metadata, metadata.current_snapshot_id) == {1: 3}
    assert world.rows() == world.model
    assert world.lake.ensure_indices("t", actor="bob").tables[0].end is End.NOTHING


@pytest.mark.parametrize(
    ("script", "left"),
    [("alter table t drop column v", ()), ("alter table t rename column v to w", ("w",))],
)
def test_a_column_goes_meanwhile(world: OptimizeWorld, script: str, left: tuple[str, ...]) -> None:
    """Statistics are those that the table declares when they are attached to it."""
    world.create()
    world.insert(1)
    declare(world, {COLUMNS: "v", BLOOM + "id": "true"})
    with cutting_in(Failpoint.OPTIMIZE_AFTER_FILES, lambda: world.other.apply(script, actor="ann")):
        [done] = world.lake.ensure_indices("t", actor="bob").tables
    assert (done.end, done.statistics) == (End.PUBLISHED, left)
    assert world.lake.ensure_indices("t", actor="bob").tables[0].end is End.NOTHING


def test_there_is_nothing_left_to_build(world: OptimizeWorld) -> None:
    world.create()
    world.insert(1)
    declare(world, {COLUMNS: "v"})
    with cutting_in(
        Failpoint.OPTIMIZE_AFTER_FILES, lambda: world.other.apply("alter table t drop column v", actor="ann")
    ):
        [done] = world.lake.ensure_indices("t", actor="bob").tables
    assert (done.end, done.commit) == (End.GIVEN_UP, None)
    assert world.commits()[0] != "build the indices of default.t"


def test_what_other_engines_wrote_is_kept(world: OptimizeWorld) -> None:
    """Statistics of other snapshots stay where they are."""
    world.create()
    world.insert(1)
    declare(world, {COLUMNS: "id"})
    world.lake.ensure_indices("t", actor="bob")
    [first] = world.lake.table("t").metadata.statistics
    world.insert(2)
    world.lake.ensure_indices("t", actor="bob")
    metadata = world.lake.table("t").metadata
    assert [each.snapshot_id for each in metadata.statistics] == [first.snapshot_id, metadata.current_snapshot_id]
    assert json.loads(world.lake.files.read(world.lake.table("t").location or ""))["statistics"][0]["blob-metadata"]
