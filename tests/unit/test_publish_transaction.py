"""Transactions: later statements see earlier ones, all of it lands or nothing; DuckDB on plain tables is the oracle."""

from __future__ import annotations

import random

import duckdb
import pyarrow as pa
import pytest

from headwater.catalog.errors import ExpectedVersionMismatchError
from headwater.kernel.errors import HeadwaterError, UsageError
from headwater.publish.statements import StatementError
from headwater.storage.errors import ReadOnlyError
from headwater.tables.model import ROW_ID_COLUMN
from headwater.tables.partitions import AddPartitionField
from tests.fixtures.lakes import LakeWorld
from tests.fixtures.tables import TableWorld

ORDERS = pa.table({"id": [1, 2, 3, 4], "customer": [10, 20, 10, 30], "total": [1.5, 2.5, None, 8.0]})
CUSTOMERS = pa.table({"id": [10, 20, 30], "name": ["Ann", "Bob", None], "tier": ["x", "x", "x"]})


@pytest.fixture(params=[2, 3])
def bank(request: pytest.FixtureRequest, lake: LakeWorld) -> LakeWorld:
    lake.create("orders", ORDERS, format_version=request.param)
    lake.create("customers", CUSTOMERS, format_version=request.param)
    return lake


def everything(lake: LakeWorld, table: str) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in lake.lake.query(f"select * from {table}").to_pylist()), key=repr)


SCENARIOS: dict[str, tuple[str, ...]] = {
    "insert then delete": ("insert into orders values (9, 10, 1.0)", "delete from orders where id = 9"),
    "delete then insert": ("delete from orders where id = 1", "insert into orders values (1, 99, 0.5)"),
    "update twice": ("update orders set total = 1 where id <= 2", "update orders set total = total + 1 where id = 1"),
    "update what was inserted": (
        "insert into orders (id, customer) values (7, 10), (8, 20)",
        "update orders set total = id * 2 where total is null",
    ),
    "over two tables": (
        "update customers set tier = 'gold' where id in (select customer from orders where total > 2)",
        "delete from orders where customer in (select id from customers where tier = 'gold')",
        "insert into orders select id * 100, id, 3.5 from customers where tier = 'gold'",
    ),
    "update from": (
        "update orders set total = c.id from customers c where c.id = orders.customer and c.name is not null",
    ),
    "delete everything": ("delete from orders", "insert into orders values (1, 1, 1.0)"),
    "merge": (
        (
            "merge into customers t using (select 10 as id, 'Zoe' as name union all select 40, 'New') s on t.id = s.id "
            "when matched then update set name = s.name when not matched then insert (id, name) values (s.id, s.name)"
        ),
        "merge into customers t using (select 40 as id) s on t.id = s.id when matched then delete",
    ),
    "merge with conditions": (
        (
            "merge into orders o using (select 1 as id, 5.0 as x union all select 2, 6.0 union all select 77, 7.0) s "
            "on o.id = s.id when matched and s.x > 5.5 then delete when matched then update set total = s.x "
            "when not matched and s.id > 50 then insert (id, customer, total) values (s.id, 10, s.x)"
        ),
    ),
    "nothing matches": ("delete from orders where id = 12345", "update orders set total = 0 where false"),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_statements_do_what_duckdb_does(bank: LakeWorld, scenario: str) -> None:
    oracle = duckdb.connect()
    for table, rows in (("orders", ORDERS), ("customers", CUSTOMERS)):
        oracle.register("given", rows)
        oracle.execute(f"create table {table} as select * from given")
    with bank.lake.transaction(actor="ann") as tx:
        for sql in SCENARIOS[scenario]:
            [(expected,)] = oracle.execute(sql).fetchall()
            assert tx.sql(sql) == expected
            for table in ("orders", "customers"):
                seen = sorted((tuple(row.values()) for row in tx.query(f"select * from {table}").to_pylist()), key=repr)
                assert seen == sorted(oracle.execute(f"select * from {table}").fetchall(), key=repr)
        before = bank.lake.catalog.ref("main").hash
    for table in ("orders", "customers"):
        assert everything(bank, table) == sorted(oracle.execute(f"select * from {table}").fetchall(), key=repr)
    if scenario in ("nothing matches", "insert then delete"):
        assert tx.commit is None
        assert bank.lake.catalog.ref("main").hash == before
    else:
        assert tx.commit is not None


@pytest.mark.parametrize("seed", range(12))
def test_random_transactions_do_what_duckdb_does(lake: LakeWorld, seed: int) -> None:
    dice = random.Random(seed)
    oracle = duckdb.connect()
    for name in ("a", "b"):
        rows = pa.table({"id": range(20), "n": [dice.randrange(5) for _ in range(20)]})
        lake.create(name, rows, format_version=dice.choice([2, 3]))
        oracle.execute(f"create table {name} (id bigint, n bigint)")
        oracle.executemany(f"insert into {name} values (?, ?)", [tuple(row.values()) for row in rows.to_pylist()])

    def statement() -> str:
        one, other = dice.sample(["a", "b"], 2)
        x, y = dice.randrange(30), dice.randrange(5)
        return dice.choice(
            [
                f"insert into {one} values ({100 + x}, {y})",
                f"insert into {one} select id + 1000, n from {other} where n = {y}",
                f"update {one} set n = n + {y} where id % 3 = {x % 3}",
                f"update {one} set n = {y} where id in (select id from {other} where n > {y})",
                f"delete from {one} where n = {y}",
                f"delete from {one} where id = {x}",
            ]
        )

    for _ in range(4):
        fails = dice.random() < 0.3
        before = {name: everything(lake, name) for name in ("a", "b")}
        statements = [statement() for _ in range(dice.randrange(1, 5))]
        try:
            with lake.lake.transaction(actor="ann") as tx:
                for sql in statements:
                    tx.sql(sql)
                if fails:
                    raise UsageError("the caller changes its mind")
        except UsageError:
            assert {name: everything(lake, name) for name in ("a", "b")} == before
            continue
        for sql in statements:
            oracle.execute(sql)
        for name in ("a", "b"):
            assert everything(lake, name) == sorted(oracle.execute(f"select * from {name}").fetchall(), key=repr)


def test_an_updated_row_keeps_its_id(lake: LakeWorld) -> None:
    lake.create("t", pa.table({"id": [1, 2], "v": ["a", "b"]}), format_version=3)
    with lake.lake.transaction(actor="ann") as tx:
        tx.sql("update t set v = 'c' where id = 2")
        tx.sql("update t set v = 'd' where id = 2")
    staged = lake.table("t")
    world = TableWorld(lake.lake.location, lake.app.open_store(lake.url))
    found = world.rows(staged, extra=frozenset({ROW_ID_COLUMN})).to_pylist()
    assert {row["id"]: row[ROW_ID_COLUMN] for row in found} == {1: 0, 2: 1}


def run(bank: LakeWorld, *statements: str) -> None:
    with bank.lake.transaction(actor="ann") as tx:
        for sql in statements:
            tx.sql(sql)


def nested(bank: LakeWorld, outer: str, inner: str) -> None:
    """One transaction begins, another comes and goes, the first ends."""
    with bank.lake.transaction(actor="ann") as tx:
        tx.sql(outer)
        run(bank, inner)


def test_two_transactions_one_table(bank: LakeWorld) -> None:
    with pytest.raises(ExpectedVersionMismatchError):
        nested(bank, "delete from orders where id = 1", "delete from orders where id = 2")
    assert [row[0] for row in everything(bank, "orders")] == [1, 3, 4]


@pytest.mark.hazard("P8")
def test_p8_write_skew(bank: LakeWorld) -> None:
    """Delete a customer without orders, insert an order for it: different tables, and only one may win."""
    with pytest.raises(ExpectedVersionMismatchError):
        nested(
            bank,
            "delete from customers where id not in (select customer from orders) or id = 20",
            "insert into orders select 99, id, 1.0 from customers where id = 20",
        )
    assert len(everything(bank, "customers")) == 3


@pytest.mark.parametrize(
    ("sql", "error", "said"),
    [
        ("update orders set nope = 1", StatementError, "has no column nope"),
        ("update nope set a = 1", UsageError, "there is no table default.nope"),
        ("insert into orders (id, nope) values (1, 2)", StatementError, "has no column nope"),
        ("insert into orders values (1, 2)", HeadwaterError, ""),
        ("insert into orders values ('x', 2, 3.0)", HeadwaterError, "x"),
        ("update orders set id = c.id from customers c", UsageError, "more than once"),
        ("delete from orders where nope = 1", HeadwaterError, "nope"),
        ("update orders set total = read_csv('/etc/passwd')", HeadwaterError, ""),
        ("drop table orders", StatementError, "DROP does not change rows"),
    ],
)
def test_a_statement_that_fails_changes_nothing(
    bank: LakeWorld, sql: str, error: type[HeadwaterError], said: str
) -> None:
    before = everything(bank, "orders")
    head = bank.lake.catalog.ref("main").hash
    with pytest.raises(error) as caught:
        run(bank, "delete from orders where id = 1", sql)
    assert said in caught.value.message
    assert everything(bank, "orders") == before
    assert bank.lake.catalog.ref("main").hash == head


def test_a_lake_that_is_open_for_reading_only(bank: LakeWorld) -> None:
    reading = bank.app.open_lake(bank.url, read_only=True)
    with pytest.raises(ReadOnlyError), reading.transaction(actor="ann"):
        pass


@pytest.mark.parametrize("version", [2, 3])
def test_a_table_is_made_and_written(lake: LakeWorld, version: int) -> None:
    made = lake.lake.create_table(
        "büro daten",
        pa.schema([pa.field("id", pa.int64(), nullable=False), ("day", pa.date32()), ("v", pa.string())]),
        actor="ann",
        format_version=version,
        partition_by=[AddPartitionField("day", "month")],
    )
    assert made.message == "create table default.büro daten"
    with lake.lake.transaction(actor="ann") as tx:
        tx.sql("insert into \"büro daten\" values (1, date'2024-01-02', 'a'), (2, date'2024-02-03', 'b')")
    assert lake.lake.query('select count(*) n, min(v) v from "büro daten"').to_pylist() == [{"n": 2, "v": "a"}]
    location = lake.lake.table("büro daten").metadata.location
    assert location.startswith(f"{lake.lake.location}/tables/default/b_ro_daten-")
    with pytest.raises(UsageError, match="already"):
        lake.lake.create_table("büro daten", pa.schema([("id", pa.int64())]), actor="ann")
    with pytest.raises(UsageError):
        lake.lake.create_table("x", pa.schema([("a", pa.month_day_nano_interval())]), actor="ann")
    assert [str(each.key) for each in lake.lake.tables()] == ["default.büro daten"]
