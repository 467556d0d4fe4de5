"""Spark as it is published, against the Iceberg REST catalog of a lake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.app import App
from headwater.kernel import settings
from tests.fixtures.lakes import LakeWorld
from tests.fixtures.rest import app_of, serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow, pytest.mark.proves("server/iceberg spark")]


class Shop:
    """A catalog of Spark's for each branch of a lake."""

    def __init__(self, spark: SparkSession, world: LakeWorld, uri: str) -> None:
        self.spark = spark
        self.lake = world.lake
        for name, branch in (("rest", "main"), ("rest_dev", "feature/x")):
            prefix = f"spark.sql.catalog.{name}"
            spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
            spark.conf.set(f"{prefix}.type", "rest")
            spark.conf.set(f"{prefix}.uri", uri)
            spark.conf.set(f"{prefix}.warehouse", branch)
            spark.conf.set(f"{prefix}.token", "w")
            spark.conf.set(f"{prefix}.cache-enabled", "false")

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.spark.sql(text).collect()]

    def rows(self, text: str, branch: str = "main") -> list[tuple[Any, ...]]:
        return [tuple(each.values()) for each in self.lake.query(text, branch=branch).to_pylist()]


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    world = LakeWorld(App(settings.load(environ={})), str(Path(tmp_path_factory.mktemp("served")) / "lake"))
    world.lake.create_branch("feature/x")
    with serving(app_of(world.lake)) as served:
        yield Shop(spark, world, served.uri)


@pytest.mark.parametrize(("catalog", "branch", "version"), [("rest", "main", 2), ("rest_dev", "feature/x", 3)])
def test_spark_writes_and_we_read(shop: Shop, catalog: str, branch: str, version: int) -> None:
    db = f"{catalog}.db{version}"
    shop.sql(f"CREATE NAMESPACE {db}")
    shop.sql(
        f"CREATE TABLE {db}.t (id BIGINT NOT NULL, v STRING, n INT) USING iceberg PARTITIONED BY (bucket(2, id)) "
        f"TBLPROPERTIES ('format-version'='{version}')"
    )
    shop.sql(f"INSERT INTO {db}.t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    shop.sql(f"DELETE FROM {db}.t WHERE id = 2")
    shop.sql(f"UPDATE {db}.t SET v = 'C' WHERE id = 3")
    shop.sql(
        f"MERGE INTO {db}.t USING (SELECT 1 AS id, 'A' AS v UNION ALL SELECT 4, 'd') s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v, n) VALUES (s.id, s.v, 0)"
    )
    shop.sql(f"ALTER TABLE {db}.t ADD COLUMN extra STRING")
    shop.sql(f"ALTER TABLE {db}.t RENAME COLUMN n TO number")
    shop.sql(f"ALTER TABLE {db}.t SET TBLPROPERTIES ('team'='ann')")
    expected = [(1, "A", 1, None), (3, "C", 3, None), (4, "d", 0, None)]
    assert sorted(shop.sql(f"SELECT * FROM {db}.t")) == expected
    assert shop.rows(f"SELECT * FROM db{version}.t ORDER BY id", branch) == expected
    shop.sql(f"ALTER TABLE {db}.t RENAME TO db{version}.u")
    assert [row[1] for row in shop.sql(f"SHOW TABLES IN {db}")] == ["u"]
    shop.sql(f"CREATE TABLE {db}.c USING iceberg AS SELECT id, v FROM {db}.u")
    shop.sql(f"CREATE OR REPLACE TABLE {db}.c USING iceberg AS SELECT id FROM {db}.u WHERE id > 1")
    assert shop.rows(f"SELECT * FROM db{version}.c ORDER BY id", branch) == [(3,), (4,)]
    shop.sql(f"DROP TABLE {db}.c")
    shop.sql(f"DROP TABLE {db}.u")
    shop.sql(f"DROP NAMESPACE {db}")


def test_spark_has_branches_and_tags_within_a_table_and_rewrites_it(shop: Shop) -> None:
    shop.sql("CREATE TABLE rest.default.r (id BIGINT) USING iceberg")
    for number in range(4):
        shop.sql(f"INSERT INTO rest.default.r VALUES ({number})")
    first = shop.sql("SELECT snapshot_id FROM rest.default.r.snapshots ORDER BY committed_at")[0][0]
    shop.sql("ALTER TABLE rest.default.r CREATE TAG before_all")
    shop.sql("ALTER TABLE rest.default.r CREATE BRANCH audit")
    shop.sql("INSERT INTO rest.default.r.branch_audit VALUES (99)")
    assert len(shop.sql("SELECT * FROM rest.default.r")) == 4
    assert len(shop.sql("SELECT * FROM rest.default.r VERSION AS OF 'audit'")) == 5
    assert shop.sql(f"SELECT * FROM rest.default.r VERSION AS OF {first}") == [(0,)]
    shop.sql("CALL rest.system.fast_forward('default.r', 'main', 'audit')")
    shop.sql("CALL rest.system.rewrite_data_files(table => 'default.r', options => map('min-input-files', '2'))")
    assert shop.rows("SELECT id FROM r ORDER BY id") == [(0,), (1,), (2,), (3,), (99,)]
    assert len(shop.sql("SELECT * FROM rest.default.r.files")) == 1
    with pytest.raises(Exception, match="GC is disabled"):
        shop.sql("CALL rest.system.expire_snapshots('default.r')")
    with pytest.raises(Exception, match="GC is disabled"):
        shop.sql("DROP TABLE rest.default.r PURGE")


def test_spark_has_views(shop: Shop) -> None:
    shop.sql("CREATE TABLE rest.default.base (id BIGINT, v STRING) USING iceberg")
    shop.sql("INSERT INTO rest.default.base VALUES (1, 'a'), (2, 'b')")
    shop.sql("USE rest.default")
    try:
        shop.sql("CREATE VIEW rest.default.few AS SELECT id FROM rest.default.base WHERE id > 1")
        assert shop.sql("SELECT * FROM rest.default.few") == [(2,)]
        shop.sql("CREATE OR REPLACE VIEW rest.default.few AS SELECT id, v FROM rest.default.base")
        assert sorted(shop.sql("SELECT * FROM rest.default.few")) == [(1, "a"), (2, "b")]
        shop.sql("ALTER VIEW rest.default.few RENAME TO rest.default.many")
        assert [row[1] for row in shop.sql("SHOW VIEWS IN rest.default")] == ["many"]
        shop.sql("DROP VIEW rest.default.many")
    finally:
        shop.sql("USE spark_catalog.default")


def test_a_constraint_holds_against_spark(shop: Shop) -> None:
    shop.lake.apply("CREATE TABLE c (id BIGINT PRIMARY KEY, n INT CHECK (n > 0))", actor="ann")
    shop.sql("INSERT INTO rest.default.c VALUES (1, 1)")
    for bad in ("(1, 2)", "(2, 0)"):
        with pytest.raises(Exception, match="constraint"):
            shop.sql(f"INSERT INTO rest.default.c VALUES {bad}")
    assert shop.rows("SELECT * FROM c") == [(1, 1)]
