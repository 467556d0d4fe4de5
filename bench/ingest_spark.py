"""The peer: MERGE INTO an Iceberg table of format 3, merge-on-read, by Spark on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from bench.ingest_client import processor_seconds
from bench.ingest_rows import SCHEMA, Batch, loaded
from headwater.kernel.settings import SparkSettings, cache_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMORY = "3g"
_MERGE = (
    "merge into peer.d.t using batch on t.id = batch.id when matched then update set * when not matched then insert *"
)
_MODES = ", ".join(f"'write.{change}.mode' = 'merge-on-read'" for change in ("merge", "update", "delete"))


class Merged:
    """The table, and what is done to it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._batches = 0

    def load(self, keys: int) -> float:
        """Seconds for all keys, from nothing."""
        path = self._folder / "load.parquet"
        with pq.ParquetWriter(path, SCHEMA) as writer:
            for rows in loaded(keys):
                writer.write_batch(rows)
        self._spark.sql(
            "create table peer.d.t (id bigint not null, k int, v double, name string) using iceberg "
            f"tblproperties ('format-version' = '3', {_MODES})"
        )
        started = time.perf_counter()
        self._spark.read.parquet(f"file:{path}").writeTo("peer.d.t").append()
        seconds = time.perf_counter() - started
        path.unlink()
        return seconds

    def merge(self, batch: Batch) -> float:
        """Seconds of one MERGE; the batch lies beside it as a file."""
        self._batches += 1
        path = self._folder / f"batch-{self._batches}.parquet"
        pq.write_table(pa.Table.from_batches([batch.rows]), path)
        self._spark.read.parquet(f"file:{path}").createOrReplaceTempView("batch")
        started = time.perf_counter()
        self._spark.sql(_MERGE).collect()
        seconds = time.perf_counter() - started
        path.unlink()
        return seconds

    def totals(self) -> tuple[int, float]:
        """How many rows there are, and the sum of their values."""
        (row,) = self._spark.sql("select count(*), sum(v) from peer.d.t").collect()
        return int(row[0]), float(row[1])

    def processor_seconds(self) -> float:
        """What Java has used of processors."""
        assert self._spark._jvm is not None
        return processor_seconds(int(self._spark._jvm.java.lang.ProcessHandle.current().pid()))


@contextmanager
def spark_table(folder: Path) -> Iterator[Merged]:
    """A Spark with an empty warehouse in the folder, until the block ends."""
    from headwater.spark import iceberg_jars, spark_session

    folder.mkdir(parents=True)
    catalog = {
        "spark.sql.catalog.peer": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.peer.type": "hadoop",
        "spark.sql.catalog.peer.warehouse": f"file:{folder}/warehouse",
    }
    spark = spark_session(
        SparkSettings(master="local[2]", driver_memory=MEMORY),
        app_name="bench",
        jars=iceberg_jars(cache_folder(), s3=False),
        extra=catalog,
        folder=folder / "spark",
    )
    try:
        yield Merged(spark, folder)
    finally:
        spark.stop()
