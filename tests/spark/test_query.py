"""Queries over tables that Spark wrote, beside what Spark reads of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

from headwater.catalog.model import TableKey
from headwater.kernel.clock import SystemClock
from headwater.kernel.randomness import system_randomness
from headwater.query import OpenTable, run
from headwater.storage.file import FileStore
from headwater.tables.files import Files
from headwater.tables.metadata import decode_metadata

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.proves("query")]

COLUMNS = "id, k, d, s, dt, ts, n, st, l"
QUERIES = (
    f"SELECT {COLUMNS} FROM {{}}",
    "SELECT k, count(*) AS c, sum(n) AS n FROM {} GROUP BY k",
    "SELECT id, s FROM {} WHERE k = 3 AND id > 40",
    "SELECT id FROM {} WHERE d > 10 AND ts < TIMESTAMP '2020-01-01 01:00:00'",
    "SELECT id FROM {} WHERE s LIKE 's1%' OR k IS NULL",
)


class SparkTable:
    """One table that Spark keeps in a folder."""

    def __init__(self, folder: Path) -> None:
        self.files = Files({f"file://{folder}": FileStore(folder, SystemClock(), system_randomness())})
        version = (folder / "metadata" / "version-hint.text").read_text().strip()
        location = f"file://{folder}/metadata/v{version}.metadata.json"
        self.metadata = decode_metadata(self.files.read(location), location)

    def names(self) -> Iterable[TableKey]:
        return [TableKey.parse("t")]

    def open(self, key: TableKey) -> OpenTable | None:
        return OpenTable(self.metadata) if key in self.names() else None


@pytest.mark.parametrize("format_version", [2, 3])
def test_what_spark_wrote_and_deleted(spark: SparkSession, format_version: int) -> None:
    """Deletion vectors on v3, position deletes on v2, partitions, and a column that was renamed and one added."""
    name = f"lake.query.t{format_version}"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, k INT, d DOUBLE, old STRING, dt DATE, ts TIMESTAMP, n DECIMAL(12, 2), "
        "st STRUCT<a: INT, b: STRING>, l ARRAY<INT>) USING iceberg PARTITIONED BY (k) TBLPROPERTIES "
        f"('format-version' = '{format_version}', 'write.delete.mode' = 'merge-on-read', "
        "'write.update.mode' = 'merge-on-read')"
    )
    spark.sql(
        f"INSERT INTO {name} SELECT id, IF(id % 9 = 8, NULL, CAST(id % 5 AS INT)), IF(id % 50 = 0, DOUBLE('NaN'), id), "
        "concat('s', id), date_add(DATE '2020-01-01', CAST(id AS INT)), timestamp_seconds(1577836800 + id * 60), "
        "CAST(id AS DECIMAL(12, 2)), named_struct('a', CAST(id AS INT), 'b', 'x'), array(CAST(id AS INT), NULL) "
        "FROM range(200)"
    )
    spark.sql(f"DELETE FROM {name} WHERE id % 7 = 3")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN old TO s")
    spark.sql(f"ALTER TABLE {name} ADD COLUMN more BIGINT")
    spark.sql(f"UPDATE {name} SET more = 5, s = 'changed' WHERE id % 11 = 1")
    warehouse = spark.conf.get("spark.sql.catalog.lake.warehouse")
    from pathlib import Path

    table = SparkTable(Path(str(warehouse)) / "query" / f"t{format_version}")
    for sql in QUERIES:
        ours = run(sql.format("t"), table, table.files).to_pylist()
        theirs = spark.sql(sql.format(name)).toArrow().to_pylist()
        assert sorted(map(repr, ours)) == sorted(map(repr, theirs)), sql
