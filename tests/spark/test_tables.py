"""Tables between us and Spark: what we write Spark reads, what Spark writes we read, in every version and mode."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.expressions.parser import parse
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from headwater.kernel.clock import SystemClock
from headwater.kernel.randomness import system_randomness
from headwater.storage.file import FileStore
from headwater.tables.merge import upsert
from headwater.tables.metadata import encode_metadata
from headwater.tables.model import ROW_ID_COLUMN, UPDATED_COLUMN, NewFile, TableVersion
from headwater.tables.operations import append, delete, overwrite, rewrite
from headwater.tables.scan import plan_scan
from tests.fixtures.engines import by_duckdb, by_pyiceberg, by_spark, normal, rows_of
from tests.fixtures.tables import TableWorld

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow, pytest.mark.proves("tables/spark")]

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "flag", BooleanType()),
    NestedField(3, "small", IntegerType()),
    NestedField(4, "single", FloatType()),
    NestedField(5, "double", DoubleType()),
    NestedField(6, "price", DecimalType(12, 2)),
    NestedField(7, "day", DateType()),
    NestedField(8, "at", TimestampType()),
    NestedField(9, "at utc", TimestamptzType()),
    NestedField(10, "name", StringType()),
    NestedField(11, "code", FixedType(3)),
    NestedField(12, "raw", BinaryType()),
    NestedField(13, "tags", ListType(20, StringType(), element_required=False)),
    NestedField(
        14,
        "inner",
        StructType(
            NestedField(21, "x", IntegerType(), required=True),
            NestedField(22, "deep", ListType(23, StructType(NestedField(24, "y", StringType())))),
        ),
    ),
    NestedField(15, "map", MapType(25, StringType(), 26, LongType(), value_required=False)),
)


def some_rows(start: int, count: int) -> pa.Table:
    numbers = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "flag": pa.array([n % 2 == 0 if n % 5 else None for n in numbers]),
            "small": pa.array([n - 50 for n in numbers], pa.int32()),
            "single": pa.array([n / 4 if n % 7 else float("nan") for n in numbers], pa.float32()),
            "double": pa.array([n / 3 for n in numbers]),
            "price": pa.array([Decimal(n) / 4 if n % 3 else None for n in numbers], pa.decimal128(12, 2)),
            "day": pa.array([date(2020 + n % 5, 1 + n % 12, 1 + n % 28) for n in numbers]),
            "at": pa.array([datetime(1965 + n, 1, 2, n % 24, 3, 4, n) for n in numbers], pa.timestamp("us")),  # noqa: DTZ001
            "at utc": pa.array(
                [datetime(2024, 1, 2, n % 24, 3, tzinfo=UTC) for n in numbers], pa.timestamp("us", "UTC")
            ),
            "name": pa.array([f"näme {n}" * (n % 4) if n % 6 else None for n in numbers]),
            "code": pa.array([b"%03d" % (n % 1000) for n in numbers], pa.binary(3)),
            "raw": pa.array([bytes([n % 256]) * (n % 30) for n in numbers]),
            "tags": pa.array([[f"t{n}", None][: n % 3] if n % 4 else None for n in numbers], pa.list_(pa.string())),
            "inner": pa.array(
                [{"x": n, "deep": [{"y": str(n)}]} if n % 3 else None for n in numbers],
                pa.struct(
                    [pa.field("x", pa.int32(), nullable=False), ("deep", pa.list_(pa.struct([("y", pa.string())])))]
                ),
            ),
            "map": pa.array([[("k", n), ("l", None)][: n % 3] for n in numbers], pa.map_(pa.string(), pa.int64())),
        }
    )


def spec_on(source: str, transform: Transform[Any, Any]) -> PartitionSpec:
    return PartitionSpec(PartitionField(SCHEMA.find_field(source).field_id, 1000, transform, "part"))


def everybody_reads(spark: SparkSession, world: TableWorld, table: TableVersion, expected: pa.Table) -> None:
    assert table.location is not None
    rows = rows_of(expected)
    assert rows_of(world.rows(table).select(expected.column_names)) == rows
    assert by_spark(spark, table.location) == rows
    assert by_pyiceberg(table.location) == rows
    assert by_duckdb(table.location) == rows


@pytest.mark.parametrize(
    ("version", "source", "transform"),
    [
        (2, None, None),
        (2, "name", IdentityTransform()),
        (2, "id", BucketTransform(4)),
        (3, None, None),
        (3, "name", IdentityTransform()),
        (3, "price", TruncateTransform(100)),
        (3, "at", YearTransform()),
        (3, "at utc", HourTransform()),
        (3, "day", MonthTransform()),
        (3, "raw", BucketTransform(3)),
    ],
)
def test_everybody_reads_what_we_write(
    spark: SparkSession, world: TableWorld, version: int, source: str | None, transform: Transform[Any, Any] | None
) -> None:
    spec = spec_on(source, transform) if source and transform else PartitionSpec()
    order = SortOrder(SortField(SCHEMA.find_field("double").field_id, IdentityTransform()))
    table = world.create(SCHEMA, spec=spec, sort_order=order, format_version=version)
    table = world.commit(append(world.staging(), table, some_rows(0, 60)))
    table = world.commit(append(world.staging(), table, some_rows(60, 40)))
    table = world.commit(delete(world.staging(), table, parse("id < 7")))
    table = world.commit(delete(world.staging(), table, parse("id = 70")))
    table = world.commit(upsert(world.staging(), table, some_rows(95, 10), on=["id"]))
    expected = pa.concat_tables([some_rows(7, 63), some_rows(71, 34)])
    everybody_reads(spark, world, table, expected)
    table = world.commit(rewrite(world.staging(), table, plan_scan(world.files, table.metadata).tasks[:3]))
    everybody_reads(spark, world, table, expected)
    table = world.commit(overwrite(world.staging(), table, some_rows(0, 5), where=parse("id > 9")))
    everybody_reads(spark, world, table, pa.concat_tables([some_rows(7, 3), some_rows(0, 5)]))
    table = world.commit(overwrite(world.staging(), table, some_rows(0, 0)))
    assert by_spark(spark, table.location or "") == []


def test_row_ids_are_as_spark_sees_them(spark: SparkSession, world: TableWorld) -> None:
    """Row lineage survives updates and rewrites, and Spark derives the same ids."""
    table = world.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType())), format_version=3)
    table = world.commit(append(world.staging(), table, pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})))
    table = world.commit(append(world.staging(), table, pa.table({"id": [4, 5], "v": ["d", "e"]})))
    table = world.commit(upsert(world.staging(), table, pa.table({"id": [2, 9], "v": ["B", "i"]}), on=["id"]))
    table = world.commit(rewrite(world.staging(), table, plan_scan(world.files, table.metadata).tasks))
    table = world.commit(append(world.staging(), table, pa.table({"id": [10], "v": ["j"]})))
    lineage = frozenset({ROW_ID_COLUMN, UPDATED_COLUMN})
    ours = world.rows(table, extra=lineage).select(["id", "v", ROW_ID_COLUMN, UPDATED_COLUMN])
    ids = dict(zip(ours["id"].to_pylist(), ours[ROW_ID_COLUMN].to_pylist(), strict=True))
    assert [ids[n] for n in (1, 2, 3, 4, 5)] == [0, 1, 2, 3, 4]
    assert len(set(ids.values())) == 7
    updated = dict(zip(ours["id"].to_pylist(), ours[UPDATED_COLUMN].to_pylist(), strict=True))
    assert updated == {1: 1, 2: 3, 3: 1, 4: 2, 5: 2, 9: 3, 10: 5}
    assert by_spark(spark, table.location or "", "id", "v", ROW_ID_COLUMN, UPDATED_COLUMN) == rows_of(ours)


@pytest.fixture
def writing(spark: SparkSession, tmp_path: Path) -> tuple[SparkSession, TableWorld]:
    """A catalog that Spark writes with, and our view of the same folder."""
    folder = tmp_path / "spark"
    folder.mkdir()
    name = "writing"
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set(f"spark.sql.catalog.{name}.type", "hadoop")
    spark.conf.set(f"spark.sql.catalog.{name}.warehouse", str(folder))
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark._jsparkSession.sessionState().catalogManager().reset()  # catalogs of an earlier test are forgotten
    return spark, TableWorld(f"file://{folder}", FileStore(folder, SystemClock(), system_randomness()))


def as_we_read(writing: tuple[SparkSession, TableWorld], name: str = "d.t") -> list[tuple[Any, ...]]:
    spark, world = writing
    log = spark.sql(f"select file from writing.{name}.metadata_log_entries order by timestamp, file").collect()
    return rows_of(world.rows(world.load(log[-1].file)))


def as_spark_reads(writing: tuple[SparkSession, TableWorld], name: str = "d.t") -> list[tuple[Any, ...]]:
    return normal(writing[0].table(f"writing.{name}").collect())


MODES = ("copy-on-write", "merge-on-read")


@pytest.mark.parametrize(
    ("version", "mode"), [(1, "copy-on-write"), (2, MODES[0]), (2, MODES[1]), (3, MODES[0]), (3, MODES[1])]
)
def test_we_read_what_spark_writes(writing: tuple[SparkSession, TableWorld], version: int, mode: str) -> None:
    spark, _ = writing
    modes = ", ".join(f"'write.{what}.mode'='{mode}'" for what in ("delete", "update", "merge"))
    spark.sql(
        "create table writing.d.t (id bigint not null, name string, day date, at timestamp, price decimal(10,2), "
        "n struct<a: int, b: array<struct<c: string, d: double>>>, m map<string, struct<e: int>>, raw binary) "
        f"using iceberg partitioned by (bucket(3, id), months(day)) "
        f"tblproperties ('format-version'='{version}', {modes})"
    )
    values = (
        "select id, concat('n', id), date_add(date'2023-11-20', cast(id as int)), "
        "timestamp'2024-01-01 10:00:00.123456', cast(id / 4 as decimal(10,2)), "
        "named_struct('a', cast(id as int), 'b', array(named_struct('c', 'x', 'd', id / 3d))), "
        "map('k', named_struct('e', cast(id as int)), 'z', null), cast(concat('r', id) as binary) from range"
    )
    spark.sql(f"insert into writing.d.t {values}(0, 200)")
    assert as_we_read(writing) == as_spark_reads(writing)
    spark.sql("delete from writing.d.t where id % 10 = 3")
    spark.sql("update writing.d.t set name = 'changed' where id % 10 = 4")
    spark.sql(
        "merge into writing.d.t t using (select id + 190 as id, 'merged' as name from range(20)) s on t.id = s.id "
        "when matched then update set name = s.name when not matched then insert (id, name) values (s.id, s.name)"
    )
    assert as_we_read(writing) == as_spark_reads(writing)
    spark.sql("delete from writing.d.t where id % 10 = 5")  # a second delete over the same files
    spark.sql("alter table writing.d.t add columns (extra int, n.f string)")
    spark.sql("alter table writing.d.t rename column name to title")
    spark.sql("alter table writing.d.t rename column n.a to aa")
    spark.sql("alter table writing.d.t alter column n.aa type bigint")
    spark.sql("alter table writing.d.t alter column price type decimal(20,2)")
    spark.sql("alter table writing.d.t drop column raw")
    spark.sql("alter table writing.d.t add column raw string")  # the name again, another column
    spark.sql("alter table writing.d.t replace partition field bucket(3, id) with truncate(50, id)")
    spark.sql("insert into writing.d.t (id, title, extra, raw, day) values (1000, 'new', 7, 'text', date'2025-01-01')")
    assert as_we_read(writing) == as_spark_reads(writing)
    spark.sql("delete from writing.d.t where id between 100 and 120")
    spark.sql("call writing.system.rewrite_data_files(table => 'd.t', options => map('rewrite-all', 'true'))")
    assert as_we_read(writing) == as_spark_reads(writing)


def test_we_read_an_upgraded_table(writing: tuple[SparkSession, TableWorld]) -> None:
    """Position deletes of v2 and vectors of v3 in one table."""
    spark, _ = writing
    spark.sql(
        "create table writing.d.t (id bigint, v string) using iceberg "
        "tblproperties ('format-version'='2', 'write.delete.mode'='merge-on-read', "
        "'write.delete.granularity'='partition')"
    )
    spark.sql("insert into writing.d.t select id, 'v2' from range(0, 50)")
    spark.sql("insert into writing.d.t select id, 'v2' from range(50, 100)")
    spark.sql("delete from writing.d.t where id in (1, 2, 60)")
    spark.sql("alter table writing.d.t set tblproperties ('format-version'='3')")
    spark.sql("delete from writing.d.t where id in (3, 61, 62)")
    spark.sql("insert into writing.d.t values (500, 'v3')")
    rows = as_we_read(writing)
    assert rows == as_spark_reads(writing)
    assert len(rows) == 95


def test_we_write_on_where_spark_stopped(writing: tuple[SparkSession, TableWorld]) -> None:
    """Our snapshots over Spark's: its deletes are kept, its row ids go on, and Spark reads the result."""
    spark, world = writing
    for version in (2, 3):
        name = f"d.s{version}"
        spark.sql(
            f"create table writing.{name} (id bigint, v string) using iceberg partitioned by (truncate(10, id)) "
            f"tblproperties ('format-version'='{version}', 'write.delete.mode'='merge-on-read')"
        )
        spark.sql(f"insert into writing.{name} select id, 'spark' from range(0, 40)")
        spark.sql(f"delete from writing.{name} where id in (1, 11, 12)")
        log = spark.sql(f"select file from writing.{name}.metadata_log_entries order by timestamp, file").collect()
        table = world.load(log[-1].file)
        staged = delete(world.staging(), table, parse("id = 2"))
        world.files.write(staged.files)
        table = TableVersion(staged.metadata, None)
        staged = upsert(world.staging(), table, pa.table({"id": [11, 13, 99], "v": ["us"] * 3}), on=["id"])
        world.files.write(staged.files)
        location = f"{world.root}/ours{version}.metadata.json"
        world.files.write([NewFile(location, encode_metadata(staged.metadata))])
        ids = sorted(row[0] for row in by_spark(spark, location))
        assert ids == sorted({*range(40), 99} - {1, 2, 12})
        assert by_duckdb(location) == by_spark(spark, location) == rows_of(world.rows(world.load(location)))
