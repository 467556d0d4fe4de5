"""Spark, PyIceberg, DuckDB and the lake API write to the same tables at the same time, through one server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException

from headwater.access import Role
from tests.fixtures.doomed import missing, outcome
from tests.fixtures.rest import attached
from tests.unit.server_world import ServedLake, served_lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.proves("server/iceberg spark"),
    pytest.mark.hazard("P5"),
]

# `t` has a primary key, so that every append to it rests on what is there; `u` takes whatever comes.
TABLES = ("t", "u")
Append = Callable[[str, int], bool]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ServedLake]:
    with served_lake(tmp_path / "lake") as found:
        found.lake.apply("create table u (id bigint not null, v varchar)", actor="setup")
        yield found


def by_spark(spark: SparkSession, uri: str, token: str) -> Append:
    prefix = "spark.sql.catalog.together"
    spark.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
    for key, value in {"type": "rest", "uri": uri, "token": token, "cache-enabled": "false"}.items():
        spark.conf.set(f"{prefix}.{key}", value)

    def append(table: str, number: int) -> bool:
        sql = f"INSERT INTO together.default.{table} VALUES ({number}, 'spark')"
        failure = outcome(lambda: spark.sql(sql), Exception)
        assert failure is None or "CommitFailedException" in str(failure), failure
        return failure is None

    return append


def by_pyiceberg(uri: str, token: str) -> Append:
    catalog = RestCatalog("hw", uri=uri, token=token)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])

    def append(table: str, number: int) -> bool:
        row = pa.Table.from_pylist([{"id": number, "v": "pyiceberg"}], schema=schema)
        return outcome(lambda: catalog.load_table(f"default.{table}").append(row), CommitFailedException) is None

    return append


def by_duckdb(uri: str, token: str) -> Append:
    connection = attached(uri, "main", token)

    def append(table: str, number: int) -> bool:
        sql = f"insert into lake.default.{table} values ({number}, 'duckdb')"
        failure = outcome(lambda: connection.execute(sql), duckdb.Error)
        assert failure is None or "409" in str(failure), failure
        return failure is None

    return append


def by_lake_api(world: ServedLake, headers: dict[str, str]) -> Append:
    def append(table: str, number: int) -> bool:
        answer = world.mutate(f"insert into {table} values ({number}, 'api')", **headers)
        assert answer.status_code in (200, 409), answer.text
        return answer.status_code == 200

    return append


def test_the_rows_are_those_that_were_acknowledged_and_the_log_names_who_wrote_them(
    world: ServedLake, spark: SparkSession
) -> None:
    headers = {name: world.token(Role.WRITER, name) for name in ("spark", "pyiceberg", "duckdb", "api")}
    tokens = {name: each["authorization"].removeprefix("Bearer ") for name, each in headers.items()}
    uri = f"{str(world.client.base_url).rstrip('/')}/iceberg"
    engines = {
        "spark": by_spark(spark, uri, tokens["spark"]),
        "pyiceberg": by_pyiceberg(uri, tokens["pyiceberg"]),
        "duckdb": by_duckdb(uri, tokens["duckdb"]),
        "api": by_lake_api(world, headers["api"]),
    }
    before = len(world.actors())

    def write(name: str) -> dict[str, list[int]]:
        """Until enough of its rows have landed in each table; who lost a race takes another number and tries again."""
        landed: dict[str, list[int]] = {table: [] for table in TABLES}
        number = 1_000_000 * (1 + list(engines).index(name))
        for _ in range(4):
            for table in TABLES:
                number += 1
                while not engines[name](table, number):
                    number += 1
                landed[table].append(number)
        return landed

    with ThreadPoolExecutor(len(engines)) as pool:
        landed = dict(zip(engines, pool.map(write, engines), strict=True))
    headers_of_reader = world.token(Role.READER, "reader")
    catalog = RestCatalog("hw", uri=uri, token=headers_of_reader["authorization"].removeprefix("Bearer "))
    for table in TABLES:
        said = sorted((number, name) for name, numbers in landed.items() for number in numbers[table])
        assert [(each["id"], each["v"]) for each in world.rows(f"select id, v from {table} order by id")] == said
        found = catalog.load_table(f"default.{table}")
        assert sorted((each["id"], each["v"]) for each in found.scan().to_arrow().to_pylist()) == said
        assert missing(found) == []
    new = world.actors()[: len(world.actors()) - before]
    assert Counter(new) == {name: sum(map(len, numbers.values())) for name, numbers in landed.items()}
