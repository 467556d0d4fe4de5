"""What tables demand of rows holds against engines that know nothing of it; and many of them at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import BadRequestError, CommitFailedException
from pyiceberg.table import Table

from tests.fixtures.lakes import LakeWorld
from tests.fixtures.rest import Served, app_of, serving

pytestmark = [
    pytest.mark.proves("server/iceberg constraints"),
    pytest.mark.filterwarnings("ignore:Merge on read is not yet supported"),
    pytest.mark.filterwarnings("ignore:Delete operation did not match"),
]

SCRIPT = """
CREATE TABLE customer (id BIGINT PRIMARY KEY, name STRING);
CREATE TABLE orders (
    id BIGINT PRIMARY KEY, customer BIGINT NOT NULL, total INT CHECK (total > 0),
    FOREIGN KEY (customer) REFERENCES customer (id)
);
"""
CUSTOMER = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
ORDER = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("customer", pa.int64(), nullable=False),
        pa.field("total", pa.int32()),
    ]
)


def customers(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "name": ["x"] * len(ids)}, schema=CUSTOMER)


def orders(*rows: tuple[int, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(ORDER.names, row, strict=True)) for row in rows], schema=ORDER)


@pytest.fixture
def served(lake: LakeWorld) -> Iterator[Served]:
    with serving(app_of(lake.lake)) as found:
        yield found


def test_constraints_hold_against_pyiceberg(lake: LakeWorld, served: Served) -> None:
    lake.lake.apply(SCRIPT, actor="ann")
    catalog = served.catalog()

    def table(name: str) -> Table:
        found: Table = catalog.load_table(f"default.{name}")
        return found

    table("customer").append(customers(1, 2))
    table("orders").append(orders((1, 1, 5)))
    head = lake.lake.resolve()
    for bad in (orders((1, 1, 5)), orders((2, 9, 5)), orders((2, 1, 0))):
        with pytest.raises(BadRequestError, match="constraint"):
            table("orders").append(bad)
    with pytest.raises(BadRequestError, match="constraint"):
        table("customer").delete("id = 1")
    with pytest.raises(BadRequestError, match="constraint"):
        table("customer").append(customers(2))
    with pytest.raises(BadRequestError, match="renamed or dropped"), table("orders").update_schema() as update:
        update.rename_column("total", "sum")
    with pytest.raises(BadRequestError, match="renamed or dropped"), table("orders").update_schema() as update:
        update.delete_column("total")
    with pytest.raises(BadRequestError, match="refers to it"):
        catalog.drop_table("default.customer")
    with (
        pytest.raises(BadRequestError, match="refers to it"),
        table("customer").update_schema(allow_incompatible_changes=True) as update,
    ):
        update.set_identifier_fields()
    assert lake.lake.resolve() == head
    table("customer").delete("id = 2")
    table("orders").upsert(orders((1, 1, 7), (2, 1, 8)))
    assert lake.lake.query("SELECT sum(total) AS t FROM orders")["t"].to_pylist() == [15]
    catalog.drop_table("default.orders")
    catalog.drop_table("default.customer")


def test_a_column_becomes_a_key_only_when_its_rows_are_one(lake: LakeWorld, served: Served) -> None:
    catalog = served.catalog()
    table = catalog.create_table("default.t", CUSTOMER)
    table.append(customers(1, 1))
    with pytest.raises(BadRequestError, match="primary key"), table.update_schema() as update:
        update.set_identifier_fields("id")
    table.overwrite(customers(1, 2))
    with table.update_schema() as update:
        update.set_identifier_fields("id")
    with pytest.raises(BadRequestError, match="primary key"):
        table.append(customers(2))


def snapshot(manifest_list: str) -> list[dict[str, Any]]:
    return [
        {
            "action": "add-snapshot",
            "snapshot": {
                "snapshot-id": 7,
                "sequence-number": 1,
                "timestamp-ms": 1,
                "manifest-list": manifest_list,
                "summary": {"operation": "append"},
                "schema-id": 0,
            },
        },
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 7},
    ]


def test_a_snapshot_that_cannot_be_read_is_refused(lake: LakeWorld, served: Served, tmp_path: Path) -> None:
    served.catalog().create_table("default.t", CUSTOMER)
    damaged, outside = lake.lake.location + "/damaged.avro", tmp_path / "x.avro"
    Path(damaged.removeprefix("file://")).write_bytes(b"nothing")
    outside.write_bytes(b"nothing")
    head = lake.lake.resolve()
    with served.client() as client:
        for place in (f"{lake.lake.location}/no.avro", damaged, outside.as_uri()):
            answer = client.post("/main/namespaces/default/tables/t", json={"updates": snapshot(place)})
            assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BadRequestException")
    assert lake.lake.resolve() == head


def test_many_clients_append_at_once(lake: LakeWorld, served: Served) -> None:
    catalog = served.catalog()
    for name in ("a", "b"):
        catalog.create_table(f"default.{name}", CUSTOMER, properties={"commit.retry.num-retries": "50"})
    lost = []

    def work(number: int) -> int:
        own = served.catalog()
        done = 0
        for turn in range(3):
            name = "ab"[(number + turn) % 2]
            try:
                own.load_table(f"default.{name}").append(customers(100 * number + turn))
                done += 1
            except CommitFailedException:
                lost.append(threading.get_ident())
        return done

    with ThreadPoolExecutor(4) as pool:
        done = sum(pool.map(work, range(4)))
    counted = lake.lake.query("SELECT (SELECT count(*) FROM a) + (SELECT count(*) FROM b) AS n")["n"].to_pylist()
    assert counted == [done]
    assert done + len(lost) == 12


def test_a_null_in_a_required_column_is_refused(lake: LakeWorld, served: Served) -> None:
    catalog = served.catalog()
    table = catalog.create_table("default.t", CUSTOMER)
    table.append(customers(1))
    # An engine that does not look at what is required: it is told of a schema in which nothing is.
    loose = table.metadata.schemas[0]
    fields = [each.model_copy(update={"required": False}) for each in loose.fields]
    careless = catalog.load_table("default.t")
    careless.metadata = careless.metadata.model_copy(update={"schemas": [type(loose)(*fields, schema_id=0)]})
    head = lake.lake.resolve()
    with pytest.raises(BadRequestError, match="is null in 1 of the rows"):
        careless.append(pa.table({"id": pa.array([None], pa.int64()), "name": ["x"]}))
    assert lake.lake.resolve() == head
    careless.append(pa.table({"id": pa.array([5], pa.int64()), "name": ["x"]}))


def test_what_refers_to_each_other_lands_together(lake: LakeWorld, served: Served) -> None:
    import duckdb
    import duckdb_extensions

    lake.lake.apply(SCRIPT, actor="ann")
    for name in ("avro", "httpfs", "iceberg"):
        duckdb_extensions.import_extension(name)
    with duckdb.connect() as connection:
        connection.execute("load avro; load httpfs; load iceberg")
        connection.execute("create secret s (type iceberg, token 'w')")
        connection.execute(f"attach 'main' as lake (type iceberg, endpoint '{served.uri}', secret s)")
        head = lake.lake.resolve()
        for statements in (
            ("insert into lake.default.orders values (1, 7, 5)",),
            ("insert into lake.default.customer values (7, 'x')", "insert into lake.default.orders values (1, 8, 5)"),
        ):
            connection.execute("begin")
            for each in statements:
                connection.execute(each)
            with pytest.raises(duckdb.Error, match="constraint"):
                connection.execute("commit")
            assert lake.lake.resolve() == head
        connection.execute("begin")
        connection.execute("insert into lake.default.customer values (7, 'x')")
        connection.execute("insert into lake.default.orders values (1, 7, 5)")
        connection.execute("commit")
    commit = lake.lake.catalog.commit_at(lake.lake.resolve())
    assert commit.parents == (head,)
    assert lake.lake.query("SELECT count(*) AS n FROM orders JOIN customer c ON c.id = customer")["n"].to_pylist() == [
        1
    ]
