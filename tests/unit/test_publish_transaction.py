"""Transactions: later statements see earlier ones, all of it lands or nothing; DuckDB on plain tables is the oracle."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import UUID

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType, UUIDType

from headwater.catalog.errors import ExpectedVersionMismatchError
from headwater.catalog.model import TableKey
from headwater.kernel.errors import HeadwaterError, UsageError
from headwater.publish.constraints.model import ForeignKey, OnDelete
from headwater.publish.sql.statements import StatementError
from headwater.publish.sql.working import GivenRows, WorkingTable
from headwater.storage.errors import ReadOnlyError
from headwater.tables.model import ROW_ID_COLUMN
from headwater.tables.partitions import AddPartitionField
from headwater.tables.scan import plan_scan
from tests.fixtures.lakes import LakeWorld
from tests.fixtures.tables import TableWorld
from tests.unit.constraint_tables import create

ORDERS = pa.table({"id": [1, 2, 3, 4], "customer": [10, 20, 10, 30], "total": [1.5, 2.5, None, 8.0]})
NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
        ("m", pa.map_(pa.string(), pa.int64())),
    ]
)
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
    "merge with nothing and by source": (
        (
            "merge into orders o using (select 1 as id union all select 2 union all select 88) s on o.id = s.id "
            "when matched and s.id = 1 then do nothing when matched then update set total = 7.0 "
            "when not matched by source and o.customer = 30 then delete "
            "when not matched by source then update set total = -1.0 "
            "when not matched by target then insert (id, customer) values (s.id, 10)"
        ),
    ),
    "select * within": (
        "insert into orders select * from orders where id = 1",
        (
            "delete from orders where id in "
            "(select id from (select distinct * from orders) group by id having count(*) > 1)"
        ),
        "update orders set total = 9 where (id, customer) in (select * exclude (total) from orders where id = 1)",
        (
            "delete from orders using (select * from orders union all select 3, 3, 3) s "
            "where s.id = orders.id and s.total = 3"
        ),
        (
            "merge into orders using (select * from orders except select 1, 10, 9) s on orders.id = s.id "
            "when matched then update set total = 0"
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
        ("insert into orders values (1, 2)", StatementError, "3 columns of default.orders are to be given, and 2 are"),
        (
            "insert into orders (id) values (1, 2)",
            StatementError,
            "1 columns of default.orders are to be given, and 2 are",
        ),
        ("insert into orders values ('x', 2, 3.0)", HeadwaterError, "x"),
        ("update orders set id = c.id from customers c", UsageError, "more than once"),
        ("delete from orders where nope = 1", HeadwaterError, "nope"),
        (
            "merge into orders using customers on orders.customer = id when not matched then insert (id) values (9)",
            HeadwaterError,
            "Ambiguous",
        ),
        (
            "merge into orders using customers on id = id when not matched by source then delete",
            HeadwaterError,
            "Ambig",
        ),
        ("update orders set total = \n nope + 1", HeadwaterError, "nope"),
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
    assert "line" not in caught.value.fields  # that would be one of a SELECT that the author has never seen
    assert everything(bank, "orders") == before
    assert bank.lake.catalog.ref("main").hash == head


def test_a_file_that_is_gone_is_one_of_the_table_that_the_statement_names(bank: LakeWorld) -> None:
    [task] = plan_scan(bank.lake.files, bank.lake.table("orders").metadata).tasks
    Path(unquote(urlsplit(task.file.file_path).path)).unlink()
    with pytest.raises(HeadwaterError, match=r"table default\.orders") as caught:
        run(bank, "delete from orders where id = 1")
    assert caught.value.fields["table"] == "default.orders"


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


# What a transaction keeps after a statement that failed, and after its end


FAILING = (
    "insert into orders values (1, 2, 'x')",
    "insert into orders (id) values (1, 2)",
    "update orders set id = c.id from customers c",
    "update orders set total = 'x' where id = 9",
    "delete from orders where id = (select 1 / 'x')",
    "delete from nope",
    (
        "merge into orders o using (select 9 as id union all select 9) s on o.id = s.id when matched then delete "
        "when not matched then insert (id) values (1000)"
    ),
)


def test_a_statement_that_fails_is_as_if_it_had_not_been(bank: LakeWorld) -> None:
    with bank.lake.transaction(actor="ann") as tx:
        tx.sql("insert into orders values (9, 10, 1.0), (8, 10, 1.0)")
        tx.sql("delete from orders where id in (1, 8)")
        before = tx.query("select * from orders order by all")
        for sql in FAILING:
            with pytest.raises(HeadwaterError):
                tx.sql(sql)
            assert tx.query("select * from orders order by all") == before
        tx.sql("update orders set total = total + 1 where id = 9")
    assert [row[0] for row in everything(bank, "orders")] == [2, 3, 4, 9]


@pytest.mark.parametrize("version", [2, 3])
def test_a_failure_in_the_middle_of_a_statement(lake: LakeWorld, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent's rows are removed already when the cascade fails; other tables are touched for the first time."""
    link = ForeignKey("of", ("p",), TableKey.parse("parents"), ("id",), OnDelete.CASCADE)
    parents = pa.table({"id": [1, 2]})
    create(lake, "parents", parents, key=["id"], referenced_by=["children", "others"], format_version=version)
    for name in ("children", "others"):
        create(lake, name, pa.table({"id": [1, 2], "p": [1, 2]}), declared=[link], format_version=version)
    with lake.lake.transaction(actor="ann") as tx:
        tx.sql("insert into parents values (3)")
        tx.sql("insert into children values (3, 3)")
        original = WorkingTable.remove

        def failing(self: WorkingTable, found: pa.Table) -> None:
            original(self, found)
            if self.shape.table.name == "others":
                raise KeyboardInterrupt

        monkeypatch.setattr(WorkingTable, "remove", failing)
        with pytest.raises(KeyboardInterrupt):
            tx.sql("delete from parents where id in (1, 3)")
        monkeypatch.undo()
        assert tx.query("select id from parents order by id")["id"].to_pylist() == [1, 2, 3]
        assert tx.query("select id from children order by id")["id"].to_pylist() == [1, 2, 3]
        assert tx.query("select id from others order by id")["id"].to_pylist() == [1, 2]
        assert tx.sql("delete from parents where id = 1") == 1
    assert everything(lake, "children") == [(2, 2), (3, 3)]
    assert everything(lake, "others") == [(2, 2)]


def test_a_transaction_that_has_ended(bank: LakeWorld) -> None:
    with bank.lake.transaction(actor="ann") as tx:
        tx.sql("delete from orders where id = 1")
    for use in (
        lambda: tx.sql("delete from orders"),
        lambda: tx.insert("orders", ORDERS),
        lambda: tx.query("select 1"),
    ):
        with pytest.raises(UsageError, match="the transaction has ended"):
            use()
    with pytest.raises(ZeroDivisionError), bank.lake.transaction(actor="ann") as failed:
        raise ZeroDivisionError
    with pytest.raises(UsageError, match="the transaction has ended"):
        failed.sql("delete from orders")
    assert len(everything(bank, "orders")) == 3


def test_statements_of_threads_take_turns(bank: LakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread is in the middle of a statement that fails when another begins one that does not."""
    within, other_has_ended = threading.Event(), threading.Event()

    def stalling(_self: WorkingTable, _given: GivenRows) -> pa.Table:
        within.set()
        other_has_ended.wait(0.3)
        raise ZeroDivisionError

    def failing() -> None:
        with pytest.raises(ZeroDivisionError):
            tx.insert("orders", ORDERS)

    with bank.lake.transaction(actor="ann") as tx:
        tx.sql("delete from orders where id = 1")
        monkeypatch.setattr(WorkingTable, "fit", stalling)
        thread = threading.Thread(target=failing)
        thread.start()
        assert within.wait(10)
        tx.sql("insert into orders values (9, 10, 1.0)")
        other_has_ended.set()
        thread.join()
    assert [row[0] for row in everything(bank, "orders")] == [2, 3, 4, 9]


# Rows from outside


class Foreign:
    """Rows of another library, as Arrow data."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.table({"id": [7, 8], "total": [1.0, None]}).__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"id": [7, 8], "TOTAL": [1.0, None]}),
        pa.table({"total": pa.array([1, None], pa.int8()), "id": pa.array([7, 8], pa.uint8())}),
        pa.record_batch({"id": [7, 8], "total": [1.0, None]}),
        Foreign(),
        [{"id": 7, "total": 1}, {"id": 8}],
    ],
    ids=["table", "narrow", "batch", "foreign", "dicts"],
)
def test_rows_are_given_in_several_ways(bank: LakeWorld, rows: GivenRows) -> None:
    with bank.lake.transaction(actor="ann") as tx:
        assert tx.insert("orders", rows) == 2
        assert tx.insert("Orders", []) == 0
    assert everything(bank, "orders")[-2:] == [(7, None, 1.0), (8, None, None)]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (pa.table({"nope": [1]}), "has no column nope"),
        ([{"id": 1, "nope": 2}], "has no column nope"),
        (pa.table({"id": ["x"]}), "column id is long in the table, and string in the rows"),
        ([{"id": "x"}], "column id is long in the table, and string in the rows"),
        ([{"id": 3.5}], "column id is long in the table, and double in the rows"),
        ([{"id": 2**70}], "column id of default.orders is int64"),
        ([{"total": "x"}], "column total of default.orders is double"),
        ([1], "a list of dicts"),
        ([{}], "a row is a dict from column to value, of one or more"),
        ([{1: 2}], "a row is a dict from column to value"),
        ([{"total": "\ud800"}], "column total of default.orders is double"),
        ({"id": [1]}, "a list of dicts"),
        (pa.table({"id": pa.array([2**63], pa.uint64())}), "column id does not hold all of the values"),
        (pa.table([[1], [2]], names=["id", "ID"]), "given twice"),
    ],
)
def test_rows_that_do_not_fit(bank: LakeWorld, rows: GivenRows, said: str) -> None:
    with bank.lake.transaction(actor="ann") as tx:
        with pytest.raises(UsageError) as caught:
            tx.insert("orders", rows)
        assert said in caught.value.message
    assert tx.commit is None


def test_what_is_not_given_has_its_default(lake: LakeWorld) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "tier", StringType(), required=True, initial_default="old", write_default="new"),
        NestedField(3, "note", StringType(), required=False),
    )
    lake.lake.create_table("t", schema, actor="ann", format_version=3)
    with lake.lake.transaction(actor="ann") as tx:
        tx.sql("insert into t (ID) values (1)")
        tx.insert("t", [{"id": 2}])
        tx.sql("merge into t using (select 3 as id) s on t.id = s.id when not matched then insert (id) values (s.id)")
        tx.sql("insert into t by name select 'x' as NOTE, 4 as id")
    assert everything(lake, "t") == [(1, "new", None), (2, "new", None), (3, "new", None), (4, "new", "x")]


def test_columns_within_columns(lake: LakeWorld) -> None:
    rows = pa.table(
        {"id": [1, 2], "s": [{"a": 1, "b": ["x"]}, {"a": 2, "b": None}], "m": [[("k", 1)], []]}, schema=NESTED
    )
    lake.create("t", rows)
    with lake.lake.transaction(actor="ann") as tx:
        tx.sql("update t set s = {'a': s.a + 10, 'b': ['y']} where s.a = 2")
        tx.sql("insert into t (id, s) select 3, s from t where id = 2")
        with pytest.raises(StatementError, match="a part of one cannot be set"):
            tx.sql("update t set s.a = 5")
        tx.sql("delete from t where id = 2")
    found = lake.lake.query("select id, s.a as a, s.b as b, m from t order by id").to_pylist()
    assert found == [{"id": 1, "a": 1, "b": ["x"], "m": [("k", 1)]}, {"id": 3, "a": 12, "b": ["y"], "m": None}]


def test_ids_within_columns(lake: LakeWorld) -> None:
    """Arrow makes no arrays of such a type by itself."""
    wanted = Schema(NestedField(1, "id", LongType()), NestedField(2, "l", ListType(3, UUIDType(), False)))
    lake.lake.create_table("t", wanted, actor="ann")
    one = UUID(int=1)
    with lake.lake.transaction(actor="ann") as tx:
        tx.insert("t", pa.table({"id": [1, 2], "l": pa.array([[one.bytes], None], pa.list_(pa.binary(16)))}))
        tx.sql("insert into t (id) values (3)")
        tx.sql("delete from t where id = 2")
        with pytest.raises(UsageError, match="column l of"):
            tx.insert("t", [{"l": [one]}])
    assert everything(lake, "t") == [(1, [str(one)]), (3, None)]


def test_a_merge_asks_a_fickle_source_once(lake: LakeWorld) -> None:
    """A row that one WHEN has seen below the limit must not be above it for the next."""
    lake.create("t", pa.table({"id": range(200), "n": [0.0] * 200}))
    with lake.lake.transaction(actor="ann") as tx:
        count = tx.sql(
            "merge into t using (select id, random() as r from t) s on t.id = s.id and s.r < 0.5 "
            "when matched then update set n = s.r when not matched then insert values (s.id, s.r)"
        )
    assert count == 200
    found = lake.lake.query("select count(*) filter (n > 0 and n < 0.5) low, count(*) filter (n >= 0.5) high from t")
    assert sum(found.to_pylist()[0].values()) == 200


def test_with_in_front_of_statements(bank: LakeWorld) -> None:
    with bank.lake.transaction(actor="ann") as tx:
        assert (
            tx.sql("with x as (select 50 as id, 10 as customer) insert into orders (id, customer) select * from x") == 1
        )
        assert tx.sql("insert into orders with x as (select 51) select *, 10, 2.0 from x") == 1
        # The name of the table is the table, whatever a WITH says.
        assert (
            tx.sql("with orders as (select 50 as n) update orders set total = n from orders as o where id = o.n") == 1
        )
        assert tx.sql("with gone as (select 51 as id) delete from orders using gone where gone.id = orders.id") == 1
        star = "when matched then update set * when not matched then insert *"
        assert tx.sql(f"merge into customers c using (select 10 id, 'N' name, 't' tier) s on c.id = s.id {star}") == 1
        assert tx.query("select name, tier from customers where id = 10").to_pylist() == [{"name": "N", "tier": "t"}]
        merge = "merge into customers c using x using (id) when matched then delete"
        assert (
            tx.sql(f"with recursive x as (select 10 as id union all select id + 10 from x where id < 20) {merge}") == 2
        )
    assert everything(bank, "orders")[-1] == (50, 10, 50.0)
    assert everything(bank, "customers") == [(30, None, "x")]


def test_many_statements(lake: LakeWorld) -> None:
    """Rows that came in many pieces are found, changed and deleted like any others."""
    lake.create("t", pa.table({"id": [0], "v": [0]}), format_version=3)
    with lake.lake.transaction(actor="ann") as tx:
        for number in range(1, 301):
            tx.insert("t", [{"id": number, "v": 0}])
        assert tx.sql("update t set v = 1 where id % 2 = 0") == 151
        for number in range(301, 311):
            tx.insert("t", [{"id": number, "v": 0}])
        assert tx.sql("delete from t where id % 3 = 0") == 104
    expected = [(each, 1 if each % 2 == 0 and each <= 300 else 0) for each in range(311) if each % 3]
    assert sorted(everything(lake, "t")) == expected
