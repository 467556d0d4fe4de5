"""Spark whose server is killed in the midst of its commits, and followed by another at the same address.

Whatever Spark makes of it must be true: what it calls done is there, what it calls failed is there whole or not at
all, and no file that a commit refers to is gone, though Spark deletes the files of what it takes for failed (P5).
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from headwater.app import App
from headwater.kernel import settings
from headwater.kernel.failpoints import Failpoint
from tests.fixtures.doomed import POINTS, Dynasty, Nursery, Server, killing, missing, nursery, outcome, reached
from tests.fixtures.rest import app_of, serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.proves("server/iceberg crash"),
    pytest.mark.hazard("P5"),
]

PATIENCE_SECONDS = 60
# Rows are not sent around before they are written: there are three of them.
CREATE = (
    "CREATE TABLE {table} (id BIGINT, n BIGINT) USING iceberg TBLPROPERTIES ('write.merge.mode'='{mode}', "
    "'write.distribution-mode'='none', 'write.merge.distribution-mode'='none')"
)
TABLES = {"inserted": "copy-on-write", "merged_on_read": "merge-on-read", "copied_on_write": "copy-on-write"}
INSERT = "INSERT INTO {table} VALUES ({key}, {number}), ({key} + 1, {number})"
# The row 1 is changed, and another is added: one without the other is half a commit.
MERGE = (
    "MERGE INTO {table} t USING (SELECT 1 AS id, {number} AS n UNION ALL SELECT {key}, {number}) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT *"
)


class Bank:
    """Spark's tables, what must be in them, and the servers through which it writes."""

    def __init__(self, spark: SparkSession, dynasty: Dynasty) -> None:
        self._spark = spark
        self._dynasty = dynasty
        self._number = 0
        self.rows: dict[str, dict[int, int]] = {name: {1: 0} for name in TABLES}
        prefix = "spark.sql.catalog.doomed"
        spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
        spark.conf.set(f"{prefix}.type", "rest")
        spark.conf.set(f"{prefix}.uri", dynasty.uri)
        spark.conf.set(f"{prefix}.cache-enabled", "false")
        dynasty.next()
        for name, mode in TABLES.items():
            spark.sql(CREATE.format(table=f"doomed.default.{name}", mode=mode))
            spark.sql(f"INSERT INTO doomed.default.{name} VALUES (1, 0)")

    def write_while_it_is_killed(self, name: str, armed: str) -> None:
        """One statement, whose server dies of `armed`; another follows at once, and Spark may find it by itself."""
        self._number += 1
        key, number = 1000 * self._number, self._number
        added = {key: number, key + 1: number} if name == "inserted" else {1: number, key: number}
        sql = (INSERT if name == "inserted" else MERGE).format(table=f"doomed.default.{name}", key=key, number=number)
        with ThreadPoolExecutor(1) as pool:
            successor = pool.submit(self._followed, self._dynasty.next(late=armed))
            failure = outcome(lambda: self._spark.sql(sql), Exception)
            successor.result(PATIENCE_SECONDS)
        table = RestCatalog("hw", uri=self._dynasty.uri).load_table(f"default.{name}")
        assert missing(table) == []
        found = table.scan().to_arrow().to_pylist()
        held = {each["id"]: each["n"] for each in found}
        assert len(held) == len(found), "it is there twice"
        before, after = self.rows[name], self.rows[name] | added
        assert held in ([after] if failure is None else [before, after]), failure
        self.rows[name] = held

    def _followed(self, server: Server) -> None:
        assert server.wait() == -signal.SIGKILL
        self._dynasty.next()


@pytest.fixture(scope="module")
def hits(tmp_path_factory: pytest.TempPathFactory) -> Counter[Failpoint]:
    """How often a commit passes each failpoint."""
    lake = App(settings.load(environ={})).init_lake(str(tmp_path_factory.mktemp("watched") / "lake"))
    rows = pa.table({"id": [1]})
    with serving(app_of(lake)) as served, pytest.MonkeyPatch.context() as patch:
        table = served.catalog().create_table("default.t", rows.schema)
        with reached(patch) as found:
            table.append(rows)
    assert set(found) == set(POINTS)
    return found


@pytest.fixture(scope="module")
def servers() -> Iterator[Nursery]:
    with nursery() as found:
        yield found


@pytest.fixture(scope="module")
def bank(spark: SparkSession, servers: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    dynasty = Dynasty(servers, Path(tmp_path_factory.mktemp("doomed")) / "lake")
    yield Bank(spark, dynasty)
    dynasty.end()


@pytest.mark.parametrize("point", POINTS)
def test_spark_is_told_the_truth_though_the_server_is_killed_at(
    point: Failpoint, bank: Bank, hits: Counter[Failpoint]
) -> None:
    """By each kind of statement; a point that is passed several times is tried at different ones of them."""
    for index, name in enumerate(TABLES):
        bank.write_while_it_is_killed(name, killing(point, 1 + index % hits[point]))
