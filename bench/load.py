"""Loading files: an append beside pyarrow that copies the same file, a merge beside Spark's MERGE INTO.

Both sides of the append read the same Parquet file and write one with the same compression, row groups of the same
size, page index and page checksums. Ours also measures columns, syncs, and commits; pyarrow writes into a folder.
Both sides of the merge have a table of the same 5 million rows (v3, merge-on-read), each as its own writer lays it out,
and the same sources: half of their rows update rows all over the table, half are new. Spark is warm: it has merged
once before.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.measure import Result, compare_rates
from headwater.app import App
from headwater.kernel.settings import Settings, SparkSettings, cache_folder
from headwater.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, MERGED_ROWS, ROUNDS = 5_000_000, 100_000, 5
ROWS_PER_GROUP = 1 << 20
WRITER = {
    "compression": "zstd",
    "row_group_size": ROWS_PER_GROUP,
    "store_schema": False,
    "write_page_index": True,
    "write_page_checksum": True,
}


def loads() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        whole = Path(folder) / "rows.parquet"
        pq.write_table(_rows(np.arange(ROWS), "name"), whole, compression="zstd", row_group_size=ROWS_PER_GROUP)
        lake = App(Settings()).init_lake(str(Path(folder) / "lake"))
        return [_append(lake, whole, Path(folder)), _merge(lake, whole, Path(folder))]


def _append(lake: Lake, whole: Path, folder: Path) -> Result:
    names = [f"appended_{number}" for number in range(ROUNDS + 1)]
    for name in names:
        lake.create_table(name, pq.read_schema(whole), actor="bench", format_version=3)
    waiting = iter(names)

    def ours() -> None:
        assert lake.load(next(waiting), whole, actor="bench").rows == ROWS

    def peer() -> None:
        pq.write_table(pq.read_table(whole), folder / "copied.parquet", **WRITER)

    return compare_rates("load-append-5M-rows-file", ours, peer, count=1, rounds=ROUNDS, goal=0.7)


def _merge(lake: Lake, whole: Path, folder: Path) -> Result:
    sources = []
    for number, rows in enumerate(_sources(ROUNDS + 1)):
        sources.append(folder / f"source-{number}.parquet")
        pq.write_table(rows, sources[-1])
    lake.create_table("merged", pq.read_schema(whole), actor="bench", format_version=3, primary_key=["id"])
    lake.load("merged", whole, actor="bench")
    spark = _spark(folder, whole)
    mine, theirs = iter(sources), iter(sources)

    def ours() -> None:
        loaded = lake.load("merged", next(mine), "merge", actor="bench")
        assert (loaded.rows, loaded.updated) == (MERGED_ROWS, MERGED_ROWS // 2)

    def peer() -> None:
        spark.read.parquet(str(next(theirs))).createOrReplaceTempView("source")
        spark.sql(
            "MERGE INTO lake.db.merged t USING source s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    try:
        result = compare_rates("load-merge-100k-into-5M-file", ours, peer, count=1, rounds=ROUNDS, goal=1.0)
        checked = "SELECT count(*) AS n, sum(id) AS i, sum(k) AS k, count(DISTINCT name) AS d FROM {}"
        [row] = spark.sql(checked.format("lake.db.merged")).collect()
        found = lake.query(checked.format("merged")).to_pylist()[0]
        assert {name: int(value) for name, value in found.items()} == row.asDict()
    finally:
        spark.stop()
    return result


def _rows(ids: np.ndarray[tuple[int], np.dtype[np.int64]], name: str) -> pa.Table:
    return pa.table(
        {
            "id": ids,
            "k": ((ids * 2654435761) % 1000).astype(np.int32),
            "v": ids / 7,
            "name": pa.array([f"{name}-{each % 5000}" for each in ids.tolist()]),
        }
    )


def _sources(count: int) -> Iterator[pa.Table]:
    generator = np.random.default_rng(11)
    half = MERGED_ROWS // 2
    for number in range(count):
        updated = generator.choice(ROWS, half, replace=False)
        added = ROWS + number * half + np.arange(half)
        yield _rows(generator.permutation(np.concatenate([updated, added])), f"merged {number}")


def _spark(folder: Path, whole: Path) -> SparkSession:
    """A session with the same table in a catalog of its own."""
    from headwater.spark import iceberg_jars, spark_session

    session = spark_session(
        SparkSettings(master="local[2]", driver_memory="4g"),
        app_name="bench",
        jars=iceberg_jars(cache_folder(), s3=False),
        extra={
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": str(folder / "spark-lake"),
        },
        folder=folder / "spark",
    )
    session.sql(
        "CREATE TABLE lake.db.merged (id BIGINT, k INT, v DOUBLE, name STRING) USING iceberg TBLPROPERTIES "
        "('format-version'='3', 'write.merge.mode'='merge-on-read', 'write.parquet.compression-codec'='zstd')"
    )
    session.read.parquet(str(whole)).writeTo("lake.db.merged").append()
    return session
