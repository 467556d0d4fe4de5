"""Rows of a table, counted and summed by Spark, which reads it by its metadata alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwater.kernel.errors import UsageError
from headwater.sync.check.model import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rows_of(spark: SparkSession, metadata_location: str, s3: Mapping[str, str] | None = None) -> Rows:
    """The rows of the table whose metadata.json is at this location; with `s3`, in buckets, by these properties."""
    if s3 is None:
        return rows_in(spark.read.format("iceberg").load(metadata_location))
    if not hasattr(spark, "_jsparkSession"):
        raise UsageError(
            "tables in buckets cannot be compared through Spark Connect", hint="leave `spark.remote` unset for this"
        )
    return _rows_in_buckets(spark, metadata_location, s3)


def _rows_in_buckets(spark: SparkSession, metadata_location: str, s3: Mapping[str, str]) -> Rows:
    """By its path alone Spark opens a table with Hadoop, which knows no buckets: it is opened with Iceberg's own."""
    from pyspark.sql import DataFrame

    iceberg: Any = spark._jvm.org.apache.iceberg  # type: ignore[union-attr]
    java: Any = spark._jsparkSession
    configuration = java.sparkContext().hadoopConfiguration()
    files = iceberg.CatalogUtil.loadFileIO("org.apache.iceberg.io.ResolvingFileIO", dict(s3), configuration)
    table = iceberg.BaseTable(iceberg.StaticTableOperations(metadata_location, files), metadata_location)
    snapshot = table.currentSnapshot()
    if snapshot is None:
        return Rows(0, "0")
    return rows_in(DataFrame(iceberg.spark.SparkTableUtil.loadTable(java, table, snapshot.snapshotId()), spark))


def rows_in(frame: DataFrame) -> Rows:
    """How many rows, and the sum of their hashes as a decimal: the same rows in any order give the same."""
    from pyspark.sql import functions as sql

    # As JSON, because maps cannot be hashed; nulls are kept, so that a null is not taken for an absent column.
    told = sql.to_json(sql.struct(*[sql.col(f"`{name}`") for name in frame.columns]), {"ignoreNullFields": "false"})
    summed = sql.sum(sql.xxhash64(told).cast("decimal(38,0)"))
    row = frame.agg(sql.count(sql.lit(1)).alias("count"), summed.alias("checksum")).collect()[0]
    return Rows(int(row["count"]), str(row["checksum"] or 0))
