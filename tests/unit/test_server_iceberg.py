"""The Iceberg REST catalog, by PyIceberg as it is published."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from tests.fixtures.lakes import LakeWorld
from tests.fixtures.rest import Served, app_of, serving

pytestmark = [
    pytest.mark.proves("server/iceberg"),
    pytest.mark.filterwarnings("ignore:Merge on read is not yet supported"),
    pytest.mark.filterwarnings("ignore:Delete operation did not match"),
]

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "v", StringType()))
ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])


def rows(*values: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"id": number, "v": text} for number, text in values], schema=ARROW)


def found(table: object) -> list[tuple[int, str]]:
    return sorted((each["id"], each["v"]) for each in table.scan().to_arrow().to_pylist())  # type: ignore[attr-defined]


@pytest.fixture
def served(lake: LakeWorld) -> Iterator[Served]:
    lake.lake.create_branch("feature/x")
    with serving(app_of(lake.lake)) as found:
        yield found


@pytest.mark.parametrize("branch", ["main", "feature/x"])
def test_pyiceberg_does_everything_it_can(served: Served, lake: LakeWorld, branch: str) -> None:
    catalog = served.catalog(branch)
    catalog.create_namespace("db", {"owner": "ann"})
    catalog.create_namespace("db.inner")
    assert catalog.list_namespaces() == [("db",), ("default",)]
    assert catalog.list_namespaces("db") == [("db", "inner")]
    assert catalog.load_namespace_properties("db") == {"owner": "ann"}
    summary = catalog.update_namespace_properties("db", {"nothing"}, {"owner": "bob"})
    assert (summary.updated, summary.missing) == (["owner"], ["nothing"])
    table = catalog.create_table("db.t", SCHEMA)
    assert table.properties["gc.enabled"] == "false"
    table.append(rows((1, "a"), (2, "b")))
    table.append(rows((3, "c")))
    table.delete("id = 2")
    assert found(catalog.load_table("db.t")) == [(1, "a"), (3, "c")]
    table.overwrite(rows((7, "z")), "id = 1")
    table.upsert(rows((7, "y"), (8, "n")), join_cols=["id"])
    with table.update_schema() as update:
        update.add_column("extra", StringType())
    assert [each.name for each in catalog.load_table("db.t").schema().fields] == ["id", "v", "extra"]
    assert found(catalog.load_table("db.t")) == [(3, "c"), (7, "y"), (8, "n")]
    catalog.rename_table("db.t", "db.inner.t")
    assert catalog.list_tables("db") == []
    assert catalog.list_tables("db.inner") == [("db", "inner", "t")]
    answer = lake.lake.query("SELECT id, v FROM db.inner.t ORDER BY id", branch=branch)
    assert answer.to_pylist() == [{"id": 3, "v": "c"}, {"id": 7, "v": "y"}, {"id": 8, "v": "n"}]
    catalog.drop_table("db.inner.t")
    with pytest.raises(NoSuchTableError):
        catalog.load_table("db.inner.t")
    catalog.drop_namespace("db.inner")
    log = list(lake.lake.catalog.log(lake.lake.resolve(branch=branch)))
    assert {each.actor for each in log[:5]} == {"token-w"}


def test_a_client_that_was_late_does_its_work_again(served: Served) -> None:
    catalog = served.catalog()
    table = catalog.create_table("default.t", SCHEMA)
    stale = catalog.load_table("default.t")
    table.append(rows((1, "a")))
    stale.append(rows((2, "b")))
    assert found(catalog.load_table("default.t")) == [(1, "a"), (2, "b")]
    late = catalog.load_table("default.t")
    with table.update_schema() as update:
        update.add_column("extra", StringType())
    with pytest.raises(CommitFailedException), late.update_schema() as update:
        update.add_column("other", StringType())
    assert [each.name for each in catalog.load_table("default.t").schema().fields] == ["id", "v", "extra"]


def test_a_staged_create_lands_with_its_rows(served: Served) -> None:
    catalog = served.catalog()
    with catalog.create_table_transaction("default.t", SCHEMA) as transaction:
        transaction.append(rows((1, "a")))
        with pytest.raises(NoSuchTableError):
            catalog.load_table("default.t")
    assert found(catalog.load_table("default.t")) == [(1, "a")]


def test_duckdb_attaches_the_catalog(served: Served, lake: LakeWorld) -> None:
    import duckdb
    import duckdb_extensions

    catalog = served.catalog("feature/x")
    table = catalog.create_table("default.t", SCHEMA)
    table.append(rows((1, "a"), (2, "b")))
    for name in ("avro", "httpfs", "iceberg"):
        duckdb_extensions.import_extension(name)
    connection = duckdb.connect()
    connection.execute("load avro; load httpfs; load iceberg")
    connection.execute(
        "create secret s (type iceberg, client_id 'any', client_secret 'w', "
        f"oauth2_server_uri '{served.uri}/v1/oauth/tokens')"
    )
    connection.execute(f"attach 'feature/x' as lake (type iceberg, endpoint '{served.uri}', secret s)")
    assert connection.execute("select * from lake.default.t order by id").fetchall() == [(1, "a"), (2, "b")]
    before = len(list(lake.lake.catalog.log(lake.lake.resolve(branch="feature/x"))))
    connection.execute("begin")
    connection.execute("insert into lake.default.t values (3, 'c')")
    connection.execute("delete from lake.default.t where id = 1")
    connection.execute("commit")
    connection.execute("create table lake.default.u (x bigint)")
    connection.execute("alter table lake.default.u add column y varchar")
    connection.close()
    log = list(lake.lake.catalog.log(lake.lake.resolve(branch="feature/x")))
    assert len(log) == before + 3
    answer = lake.lake.query("SELECT id FROM t ORDER BY id", branch="feature/x")
    assert answer["id"].to_pylist() == [2, 3]
    assert lake.lake.query("SELECT * FROM u", branch="feature/x").column_names == ["x", "y"]
