"""Spark with its own Nessie catalog beside us: it reads what we wrote, and writes what we read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import headwater
from headwater.catalog.errors import ExpectedVersionMismatchError
from headwater.catalog.model import NamespaceContent, RefKind
from headwater.catalog.nessie.model import NO_ANCESTOR
from headwater.catalog.nessie.protocol import NessieCatalog
from headwater.lake import Lake
from tests.conformance.catalogs import fresh, put, space
from tests.fixtures.nessie import reset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.services,
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.proves("catalog/nessie"),
]


@pytest.fixture
def lake(nessie_url: str, tmp_path: Path) -> Lake:
    reset(nessie_url)
    return headwater.init(f"nessie+{nessie_url}/api/v2?warehouse=file://{tmp_path}/lake")


@pytest.fixture
def engine(spark: SparkSession, nessie_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The name of a Spark catalog on the same server; each test has its own, for Spark keeps them."""
    name = f"nessie_{request.node.name}".replace("-", "_")
    prefix = f"spark.sql.catalog.{name}"
    for key, value in {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.catalog-impl": "org.apache.iceberg.nessie.NessieCatalog",
        f"{prefix}.uri": f"{nessie_url}/api/v2",
        f"{prefix}.ref": "main",
        f"{prefix}.warehouse": f"{tmp_path}/lake",
        f"{prefix}.cache-enabled": "false",
    }.items():
        spark.conf.set(key, value)
    return name


def test_both_write_and_both_read(lake: Lake, spark: SparkSession, engine: str) -> None:
    lake.apply("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR)", actor="us")
    lake.load("t", pa.table({"id": [1, 2], "v": ["a", "b"]}), actor="us")
    with lake.transaction(actor="us") as transaction:
        transaction.sql("DELETE FROM t WHERE id = 1")
    assert [tuple(row) for row in spark.sql(f"SELECT id, v FROM {engine}.default.t").collect()] == [(2, "b")]
    spark.sql(f"INSERT INTO {engine}.default.t VALUES (3, 'spark')")
    spark.sql(f"CREATE TABLE {engine}.default.made (id BIGINT) TBLPROPERTIES ('format-version' = '3')")
    spark.sql(f"INSERT INTO {engine}.default.made VALUES (1), (2)")
    assert lake.query("SELECT id FROM t ORDER BY id").to_pylist() == [{"id": 2}, {"id": 3}]
    lake.load("made", pa.table({"id": [3]}), actor="us")
    with lake.transaction(actor="us") as transaction:
        transaction.sql("DELETE FROM made WHERE id = 1")
        transaction.sql("UPDATE t SET v = 'ours' WHERE id = 3")
    assert sorted(row[0] for row in spark.sql(f"SELECT id FROM {engine}.default.made").collect()) == [2, 3]
    assert spark.sql(f"SELECT v FROM {engine}.default.t WHERE id = 3").first()[0] == "ours"  # type: ignore[index]
    spark.sql(f"ALTER TABLE {engine}.default.made ADD COLUMN w STRING")
    lake.load("made", pa.table({"id": [4], "w": ["x"]}), actor="us")
    assert spark.sql(f"SELECT w FROM {engine}.default.made WHERE id = 4").first()[0] == "x"  # type: ignore[index]
    actors = {commit.actor for commit in lake.catalog.log(lake.resolve())}
    assert "us" in actors
    assert len(actors) > 1


@pytest.mark.hazard("P8")
def test_p8_what_spark_changed_since_we_read_it(lake: Lake, spark: SparkSession, engine: str) -> None:
    lake.apply(
        "CREATE TABLE parent (id BIGINT PRIMARY KEY); CREATE TABLE child (id BIGINT, p BIGINT REFERENCES parent (id))",
        actor="us",
    )
    lake.load("parent", pa.table({"id": [1]}), actor="us")

    def skewed() -> None:
        with lake.transaction(actor="us") as transaction:
            transaction.sql("INSERT INTO child VALUES (1, 1)")
            spark.sql(f"DELETE FROM {engine}.default.parent WHERE id = 1")

    with pytest.raises(ExpectedVersionMismatchError, match="parent"):
        skewed()
    assert lake.query("SELECT * FROM child").num_rows == 0


@pytest.mark.hazard("R1")
def test_r1_spark_does_not_see_the_fence(lake: Lake, spark: SparkSession, engine: str) -> None:
    catalog = lake.catalog
    assert isinstance(catalog, NessieCatalog)
    catalog.create_ref(RefKind.BRANCH, "main_replica_eu", NO_ANCESTOR)
    put(catalog, {space("default"): NamespaceContent(fresh())}, "main_replica_eu")
    prefix = f"spark.sql.catalog.{engine}"
    spark.conf.set(f"{prefix}.ref", "main_replica_eu")
    assert [row[0] for row in spark.sql(f"SHOW NAMESPACES IN {engine}").collect()] == ["default"]
    assert spark.sql(f"SHOW TABLES IN {engine}.default").collect() == []
