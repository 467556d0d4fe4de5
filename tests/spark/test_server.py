"""Spark as it is published, against the Iceberg REST catalog of a lake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.lake import Lake
from tests.fixtures.rest import IN_BUCKET, app_of, lake_in, serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow, pytest.mark.proves("server/iceberg spark")]


class Shop:
    """A catalog of Spark's for each branch of a lake."""

    def __init__(self, spark: SparkSession, lake: Lake, uri: str, kind: str) -> None:
        self.spark = spark
        self.lake = lake
        self.catalogs = {"main": f"{kind}_main", "feature/x": f"{kind}_dev"}
        for branch, name in self.catalogs.items():
            prefix = f"spark.sql.catalog.{name}"
            spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
            spark.conf.set(f"{prefix}.type", "rest")
            spark.conf.set(f"{prefix}.uri", uri)
            spark.conf.set(f"{prefix}.warehouse", branch)
            spark.conf.set(f"{prefix}.token", "spark")
            spark.conf.set(f"{prefix}.cache-enabled", "false")

    @property
    def main(self) -> str:
        return self.catalogs["main"]

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.spark.sql(text).collect()]

    def rows(self, text: str, branch: str = "main") -> list[tuple[Any, ...]]:
        return [tuple(each.values()) for each in self.lake.query(text, branch=branch).to_pylist()]


@pytest.fixture(scope="module", params=["folder", IN_BUCKET])
def shop(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    """Spark knows nothing of the bucket but what the server tells it, keys among it."""
    place = lake_in(request, Path(tmp_path_factory.mktemp("served")), request.param)
    place.lake.create_branch("feature/x")
    with serving(app_of(place.lake, config=place.config | place.keys)) as served:
        yield Shop(spark, place.lake, served.uri, request.param)


@pytest.mark.parametrize(("branch", "version"), [("main", 2), ("feature/x", 3)])
def test_spark_writes_and_we_read(shop: Shop, branch: str, version: int) -> None:
    catalog = shop.catalogs[branch]
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
    for change in (
        "ADD COLUMN extra STRING",
        "RENAME COLUMN n TO number",
        "ALTER COLUMN number TYPE BIGINT",
        "ALTER COLUMN extra FIRST",
        "SET TBLPROPERTIES ('team'='ann')",
        "UNSET TBLPROPERTIES ('team')",
        "ADD PARTITION FIELD truncate(1, v)",
        "REPLACE PARTITION FIELD v_trunc_1 WITH truncate(2, v) AS v2",
        "WRITE ORDERED BY id",
        "SET IDENTIFIER FIELDS id",
    ):
        shop.sql(f"ALTER TABLE {db}.t {change}")
    shop.sql(f"INSERT INTO {db}.t (id, v) VALUES (5, 'e')")
    shop.sql(f"ALTER TABLE {db}.t DROP PARTITION FIELD v2")
    shop.sql(f"ALTER TABLE {db}.t DROP COLUMN extra")
    expected = [(1, "A", 1), (3, "C", 3), (4, "d", 0), (5, "e", None)]
    assert sorted(shop.sql(f"SELECT * FROM {db}.t")) == expected
    assert shop.rows(f"SELECT * FROM db{version}.t ORDER BY id", branch) == expected
    shop.sql(f"ALTER TABLE {db}.t RENAME TO db{version}.u")
    assert [row[1] for row in shop.sql(f"SHOW TABLES IN {db}")] == ["u"]
    shop.sql(f"CREATE TABLE {db}.c USING iceberg AS SELECT id, v FROM {db}.u")
    shop.sql(f"CREATE OR REPLACE TABLE {db}.c USING iceberg AS SELECT id FROM {db}.u WHERE id > 1")
    shop.sql(f"INSERT OVERWRITE {db}.c SELECT id FROM {db}.u WHERE id IN (3, 4)")
    assert shop.rows(f"SELECT * FROM db{version}.c ORDER BY id", branch) == [(3,), (4,)]
    shop.sql(f"DROP TABLE {db}.c")
    shop.sql(f"DROP TABLE {db}.u")
    shop.sql(f"DROP NAMESPACE {db}")
    newest = next(iter(shop.lake.catalog.log(shop.lake.resolve(branch=branch))))
    assert newest.actor == "token-spark"


@pytest.mark.parametrize("branch", ["main", "feature/x"])
def test_spark_has_branches_and_tags_within_a_table_and_rewrites_it(shop: Shop, branch: str) -> None:
    table = f"{shop.catalogs[branch]}.default.r"
    shop.sql(f"CREATE TABLE {table} (id BIGINT) USING iceberg")
    for number in range(3):
        shop.sql(f"INSERT INTO {table} VALUES ({number})")
    first, at = shop.sql(f"SELECT snapshot_id, committed_at FROM {table}.snapshots ORDER BY committed_at")[0]
    shop.sql(f"ALTER TABLE {table} CREATE TAG before_all AS OF VERSION {first} RETAIN 7 DAYS")
    shop.sql(f"ALTER TABLE {table} CREATE BRANCH audit")
    shop.sql(f"INSERT INTO {table}.branch_audit VALUES (99)")
    assert len(shop.sql(f"SELECT * FROM {table}")) == 3
    assert len(shop.sql(f"SELECT * FROM {table} VERSION AS OF 'audit'")) == 4
    for then in (f"VERSION AS OF {first}", "VERSION AS OF 'before_all'", f"TIMESTAMP AS OF '{at}'"):
        assert shop.sql(f"SELECT * FROM {table} {then}") == [(0,)], then
    catalog = shop.catalogs[branch]
    shop.sql(f"CALL {catalog}.system.fast_forward('default.r', 'main', 'audit')")
    shop.sql(f"ALTER TABLE {table} DROP BRANCH audit")
    shop.sql(f"ALTER TABLE {table} DROP TAG before_all")
    shop.sql(f"CALL {catalog}.system.rewrite_data_files(table => 'default.r', options => map('min-input-files', '2'))")
    assert shop.rows("SELECT id FROM r ORDER BY id", branch) == [(0,), (1,), (2,), (99,)]
    assert len(shop.sql(f"SELECT * FROM {table}.files")) == 1
    shop.sql(f"CALL {catalog}.system.rewrite_manifests('default.r')")
    shop.sql(f"CALL {catalog}.system.rollback_to_snapshot('default.r', {first})")
    assert shop.rows("SELECT id FROM r", branch) == [(0,)]
    with pytest.raises(Exception, match="GC is disabled"):
        shop.sql(f"CALL {catalog}.system.expire_snapshots('default.r')")
    with pytest.raises(Exception, match="GC is disabled"):
        shop.sql(f"DROP TABLE {table} PURGE")


@pytest.mark.parametrize("shop", ["folder"], indirect=True)
def test_spark_has_views(shop: Shop) -> None:
    main = shop.main
    shop.sql(f"CREATE TABLE {main}.default.base (id BIGINT, v STRING) USING iceberg")
    shop.sql(f"INSERT INTO {main}.default.base VALUES (1, 'a'), (2, 'b')")
    shop.sql(f"USE {main}.default")
    try:
        shop.sql(f"CREATE VIEW {main}.default.few AS SELECT id FROM {main}.default.base WHERE id > 1")
        assert shop.sql(f"SELECT * FROM {main}.default.few") == [(2,)]
        shop.sql(f"CREATE OR REPLACE VIEW {main}.default.few AS SELECT id, v FROM {main}.default.base")
        assert sorted(shop.sql(f"SELECT * FROM {main}.default.few")) == [(1, "a"), (2, "b")]
        shop.sql(f"ALTER VIEW {main}.default.few RENAME TO {main}.default.many")
        assert [row[1] for row in shop.sql(f"SHOW VIEWS IN {main}.default")] == ["many"]
        shop.sql(f"DROP VIEW {main}.default.many")
    finally:
        shop.sql("USE spark_catalog.default")


@pytest.mark.parametrize("shop", ["folder"], indirect=True)
def test_a_constraint_holds_against_spark(shop: Shop) -> None:
    main = shop.main
    shop.lake.apply("CREATE TABLE c (id BIGINT PRIMARY KEY, n INT CHECK (n > 0))", actor="ann")
    shop.sql(f"INSERT INTO {main}.default.c VALUES (1, 1)")
    for bad in ("(1, 2)", "(2, 0)"):
        with pytest.raises(Exception, match="constraint"):
            shop.sql(f"INSERT INTO {main}.default.c VALUES {bad}")
    assert shop.rows("SELECT * FROM c") == [(1, 1)]
