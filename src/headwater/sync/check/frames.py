"""Rows of a table, counted and summed by Spark, which reads it by its metadata alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.sync.check.model import Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rows_of(spark: SparkSession, metadata_location: str) -> Rows:
    """The rows of the table whose metadata.json is at this location."""
    return rows_in(spark.read.format("iceberg").load(metadata_location))


def rows_in(frame: DataFrame) -> Rows:
    """How many rows, and the sum of their hashes as a decimal: the same rows in any order give the same."""
    from pyspark.sql import functions as sql

    # As JSON, because maps cannot be hashed; nulls are kept, so that a null is not taken for an absent column.
    told = sql.to_json(sql.struct(*[sql.col(f"`{name}`") for name in frame.columns]), {"ignoreNullFields": "false"})
    summed = sql.sum(sql.xxhash64(told).cast("decimal(38,0)"))
    row = frame.agg(sql.count(sql.lit(1)).alias("count"), summed.alias("checksum")).collect()[0]
    return Rows(int(row["count"]), str(row["checksum"] or 0))
