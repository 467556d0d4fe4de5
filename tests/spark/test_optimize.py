"""Optimized tables and their statistics, as Spark reads them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headwater.publish.optimize.model import End
from headwater.tables.model import ROW_ID_COLUMN, UPDATED_COLUMN
from tests.fixtures.engines import by_spark
from tests.fixtures.lakes import LakeWorld

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.proves("tables/spark"),
    pytest.mark.proves("publish/optimize"),
]


@pytest.fixture
def filled(lake: LakeWorld) -> LakeWorld:
    """Six thousand ids, three words, a few deletes, in four files."""
    lake.lake.create_table(
        "t",
        pa.schema([("id", pa.int64()), ("v", pa.string())]),
        actor="ann",
        format_version=3,
        properties={
            "headwater.statistics.columns": "id, v",
            "write.parquet.bloom-filter-enabled.column.id": "true",
        },
    )
    for part in range(4):
        ids = range(part * 1500, (part + 1) * 1500)
        with lake.lake.transaction(actor="ann") as transaction:
            transaction.insert("t", pa.table({"id": ids, "v": [f"word {each % 3}" for each in ids]}))
    with lake.lake.transaction(actor="ann") as transaction:
        transaction.sql("delete from t where id < 10")
    return lake


def test_rows_and_their_ids_are_the_same_before_and_after(spark: SparkSession, filled: LakeWorld) -> None:
    columns = ("id", "v", ROW_ID_COLUMN, UPDATED_COLUMN)
    before = by_spark(spark, filled.table("t").location or "", *columns)
    assert filled.lake.optimize("t", actor="bob", deletes=True).tables[0].end is End.PUBLISHED
    assert by_spark(spark, filled.table("t").location or "", *columns) == before
    assert len(before) == 5990


def test_spark_plans_with_our_counts_and_reads_our_sketches(
    spark: SparkSession, filled: LakeWorld, tmp_path: Path
) -> None:
    filled.lake.ensure_indices("t", actor="bob")
    version = filled.table("t")
    metadata = tmp_path / "table" / "metadata"
    metadata.mkdir(parents=True)
    shutil.copy((version.location or "").removeprefix("file://"), metadata / "v1.metadata.json")
    (metadata / "version-hint.text").write_text("1")
    spark.conf.set("spark.sql.cbo.enabled", "true")
    spark.conf.set("spark.sql.iceberg.report-column-stats", "true")
    try:
        frame = spark.read.format("iceberg").load(str(metadata.parent))
        stats = frame._jdf.queryExecution().optimizedPlan().stats().attributeStats().toString()
    finally:
        spark.conf.unset("spark.sql.cbo.enabled")
    [described] = version.metadata.statistics
    counts = {blob.fields[0]: int((blob.properties or {})["ndv"]) for blob in described.blob_metadata}
    assert abs(counts[1] - 5990) < 5990 * 0.05
    assert counts[2] == 3
    assert all(f"Some({each})" in stats for each in counts.values()), stats

    jvm = spark._jvm
    assert jvm is not None
    path = described.statistics_path.removeprefix("file://")
    puffin = jvm.org.apache.iceberg.puffin.Puffin
    reader = puffin.read(jvm.org.apache.iceberg.Files.localInput(path)).build()
    try:
        estimates = {}
        blobs = reader.readAll(reader.fileMetadata().blobs()).iterator()
        while blobs.hasNext():
            pair = blobs.next()
            memory = jvm.org.apache.datasketches.memory.Memory.wrap(pair.second().array())
            sketch = jvm.org.apache.datasketches.theta.Sketches.wrapSketch(memory)
            estimates[int(pair.first().inputFields()[0])] = round(sketch.getEstimate())
    finally:
        reader.close()
    assert estimates == counts
