"""Constraints hold on committed plus pending rows when a transaction ends, whatever it did in between."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadata

from headwater.app import App
from headwater.catalog.errors import ExpectedVersionMismatchError
from headwater.catalog.model import TableKey
from headwater.kernel import settings
from headwater.kernel.errors import UsageError
from headwater.publish.constraints.check import Changed, check_changes, check_table, columns_needed
from headwater.publish.constraints.codec import constraint_properties
from headwater.publish.constraints.declared import validate_check
from headwater.publish.constraints.model import Cardinality, Check, ForeignKey, OnDelete
from headwater.publish.constraints.values import grown
from headwater.publish.errors import ConstraintBrokenError, ConstraintViolationError
from headwater.publish.questions import Questions
from headwater.publish.sql.transaction import Transaction
from headwater.query import QueryOptions
from tests.fixtures.lakes import LakeWorld
from tests.unit.constraint_tables import create, demand, rows_of, schema_with

pytestmark = pytest.mark.proves("publish/constraints")

CUSTOMERS = pa.table({"id": [1, 2, 3], "name": ["Ann", "Bob", None]})
ORDERS = pa.table({"id": [10, 11, 12], "customer": [1, 1, 2], "total": [1.5, 2.5, None]})
LINES = pa.table({"order": [10, 10, 11], "line": [1, 2, 1], "article": ["a", "b", "a"]})
OF_CUSTOMER = ForeignKey("of_customer", ("customer",), TableKey.parse("customers"), ("id",))
OF_ORDER = ForeignKey("of_order", ("order",), TableKey.parse("orders"), ("id",), OnDelete.CASCADE)


def shop(lake: LakeWorld, *, format_version: int = 2) -> LakeWorld:
    """Customers are restricted by their orders, and orders take their lines along."""
    create(lake, "customers", CUSTOMERS, key=["id"], referenced_by=["orders"], format_version=format_version)
    create(
        lake,
        "orders",
        ORDERS,
        key=["id"],
        declared=[OF_CUSTOMER, Check("positive", "total > 0"), Cardinality("few", ("customer",), at_most=3)],
        referenced_by=["lines"],
        format_version=format_version,
    )
    create(lake, "lines", LINES, key=["order", "line"], required=["article"], declared=[OF_ORDER])
    return lake


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> LakeWorld:
    """A shop that no test may change."""
    return shop(LakeWorld(App(settings.load(environ={})), str(tmp_path_factory.mktemp("kept") / "a lake")))


@pytest.fixture(scope="module", params=[2, 3])
def either(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LakeWorld:
    """The same, with tables of either format."""
    world = LakeWorld(App(settings.load(environ={})), str(tmp_path_factory.mktemp("either") / "a lake"))
    return shop(world, format_version=request.param)


@pytest.fixture(scope="module")
def loose(tmp_path_factory: pytest.TempPathFactory) -> LakeWorld:
    """Two tables on which each test makes its own demands."""
    world = LakeWorld(App(settings.load(environ={})), str(tmp_path_factory.mktemp("loose") / "a lake"))
    create(world, "customers", CUSTOMERS, key=["id"])
    create(world, "orders", ORDERS.append_column("tags", pa.array([["a"]] * 3)), key=["id"])
    return world


def run(lake: LakeWorld, *statements: str) -> None:
    with lake.lake.transaction(actor="ann") as tx:
        for sql in statements:
            tx.sql(sql)


class UndoError(Exception):
    """The caller changes its mind."""


@contextmanager
def undone(lake: LakeWorld) -> Iterator[Transaction]:
    """A transaction that ends without a commit."""
    try:
        with lake.lake.transaction(actor="ann") as tx:
            yield tx
            raise UndoError
    except UndoError:
        pass


@pytest.mark.parametrize(
    ("statements", "constraint", "said"),
    [
        (("insert into customers values (2, 'x'), (3, 'y')",), "primary key", "more than one row has id = 2; id = 3"),
        (("insert into customers values (9, 'x'), (9, 'y')",), "primary key", "id = 9"),
        (
            ("update customers set id = 2 where id = 3", "delete from orders where customer = 3"),
            "primary key",
            "id = 2",
        ),
        (("insert into lines values (10, 2, 'c')",), "primary key", "order = 10, line = 2"),
        (("delete from customers where id = 3", "insert into customers values (3, 'a'), (3, 'b')"), "primary key", "3"),
        (("insert into customers (name) values ('x')",), "not null", "column id is null in 1 of the rows: id = null"),
        (
            ("insert into lines values (10, 3, null)",),
            "not null",
            "column article is null in 1 of the rows: order = 10",
        ),
        (("update lines set article = null",), "not null", "column article is null in 3 of the rows"),
        (("insert into orders values (13, 1, 0)",), "positive", "total > 0 is false for id = 13"),
        (("update orders set total = -total",), "positive", "total > 0 is false for id = 10; id = 11"),
        (("insert into orders values (13, 9, 1), (14, 8, 1)",), "of_customer", "customer = 8; customer = 9"),
        (
            ("update orders set customer = 7 where id = 10",),
            "of_customer",
            "default.customers has no row for customer = 7",
        ),
        (("insert into orders values (13, 9, 1)", "update orders set total = 2 where id = 13"), "of_customer", "= 9"),
        (("insert into orders values (13, 9, 1)", "update orders set total = 2"), "of_customer", "= 9"),
        (("delete from customers where id = 1",), "of_customer", "gone from default.customers: id = 1"),
        (("update customers set id = 4 where id = 2",), "of_customer", "gone from default.customers: id = 2"),
        (
            (
                "insert into customers values (4, 'D')",
                "insert into orders values (13, 4, 1)",
                "delete from customers where id = 4",
            ),
            "of_customer",
            "customer = 4",
        ),
        (
            ("merge into customers t using (select 2 as id) s on t.id = s.id when matched then delete",),
            "of_customer",
            "id = 2",
        ),
        (("insert into orders select 100 + range, 2, 1 from range(3)",), "few", "more than 3 rows have customer = 2"),
        (("update orders set customer = 1", "insert into orders values (13, 1, 1)"), "few", "customer = 1"),
        (("insert into lines values (10, 3, 'a'), (99, 1, 'a')",), "of_order", "order = 99"),
        (("update orders set id = 20 where id = 10",), "of_order", "gone from default.orders: id = 10"),
    ],
)
def test_violations(kept: LakeWorld, statements: tuple[str, ...], constraint: str, said: str) -> None:
    before = kept.lake.catalog.ref("main").hash
    with pytest.raises(ConstraintViolationError) as caught:
        run(kept, *statements)
    assert caught.value.fields["constraint"] == constraint
    assert said in caught.value.message
    assert kept.lake.catalog.ref("main").hash == before


@pytest.mark.parametrize("format_version", [2, 3])
def test_what_is_right_in_the_end_is_right(lake: LakeWorld, format_version: int) -> None:
    """Each of these breaks something in between, or only seems to."""
    shop(lake, format_version=format_version)
    run(lake, "delete from customers where id = 1", "insert into customers values (1, 'Ann again')")
    run(lake, "insert into orders values (13, 5, 1)", "insert into customers values (5, 'late')")
    run(lake, "update customers set id = id + 1", "update orders set customer = customer + 1")
    run(
        lake,
        "insert into orders values (14, null, null)",
        "update orders set total = -1 where id = 14",
        "delete from orders where id = 14",
    )
    run(lake, "insert into orders select 20 + range, 2, 1 from range(5)", "delete from orders where id > 20")
    assert rows_of(lake, "customers") == [(2, "Ann again"), (3, "Bob"), (4, None), (6, "late")]
    assert [row[:2] for row in rows_of(lake, "orders")] == [(10, 2), (11, 2), (12, 3), (13, 6), (20, 2)]
    assert len(rows_of(lake, "lines")) == 3


# Cascades


@pytest.mark.parametrize(
    ("statements", "left"),
    [
        (("delete from orders where id = 10",), [11]),
        (("delete from orders",), []),
        (("delete from orders using customers c where c.id = orders.customer and c.name = 'Ann'",), []),
        (("merge into orders o using (select 11 as id) s on o.id = s.id when matched then delete",), [10, 10]),
        (("insert into lines values (12, 1, 'x')", "delete from orders where id in (10, 12)"), [11]),
        (
            (
                "insert into orders values (13, 3, 1)",
                "insert into lines values (13, 1, 'x')",
                "delete from orders where id = 13",
            ),
            [10, 10, 11],
        ),
        (("delete from orders where id = 10", "insert into orders values (10, 3, 1)"), [11]),
        (("delete from orders where id = 99",), [10, 10, 11]),
    ],
)
def test_a_cascade_is_part_of_the_transaction(either: LakeWorld, statements: tuple[str, ...], left: list[int]) -> None:
    with undone(either) as tx:
        for sql in statements:
            tx.sql(sql)
        assert tx.query('select "order" from lines order by all')["order"].to_pylist() == left
        wish = tx.wish()
        changed = {each.key.name for each in wish.tables} if wish else set()
        assert ("lines" in changed) is (left != [10, 10, 11])
    assert len(rows_of(either, "lines")) == 3


def test_cascades_go_on_and_circles_end(lake: LakeWorld) -> None:
    """Groups hold groups (a table that refers to itself), and two tables that refer to each other."""
    own = ForeignKey("within", ("parent",), TableKey.parse("groups"), ("id",), OnDelete.CASCADE)
    groups = pa.table({"id": [1, 2, 3, 4, 5], "parent": [5, 1, 2, None, 3]})
    create(lake, "groups", groups, key=["id"], declared=[own], referenced_by=["groups"])
    for one, other in (("a", "b"), ("b", "a")):
        link = ForeignKey("other", ("other",), TableKey.parse(other), ("id",), OnDelete.CASCADE)
        create(
            lake,
            one,
            pa.table({"id": [1, 2, 3], "other": [2, 3, None]}),
            key=["id"],
            declared=[link],
            referenced_by=[other],
        )
    with lake.lake.transaction(actor="ann") as tx:
        assert tx.sql("delete from groups where id = 3") == 1
        assert tx.sql("delete from a where id = 3") == 1
    assert rows_of(lake, "groups") == [(4, None)]
    assert rows_of(lake, "a") == [(2, 3)]  # a 3 took b 2, which took a 1
    assert rows_of(lake, "b") == [(1, 2), (3, None)]


def test_keys_of_several_columns_with_odd_names(lake: LakeWorld) -> None:
    places = pa.table({"Land": ["de", "de", "at"], 'a "b"': [1, 2, 1]})
    visits = pa.table({"no": [1, 2, 3, 4], "LAND": ["de", "de", None, "at"], "SELECT": [1, 2, 1, 1]})
    link = ForeignKey("there", ("LAND", "select"), TableKey.parse("Places"), ("land", 'a "b"'), OnDelete.CASCADE)
    create(lake, "Places", places, key=["Land", 'a "b"'], referenced_by=["visits"])
    create(lake, "visits", visits, key=["no"], declared=[link, Check("odd", '"select" > 0')])
    with pytest.raises(ConstraintViolationError, match="LAND = at, SELECT = 2"):
        run(lake, "insert into visits values (5, 'at', 2), (6, null, 2)")
    run(lake, 'delete from places where land = \'de\' and "A ""B""" = 1')
    assert [row[0] for row in rows_of(lake, "visits")] == [2, 3, 4]


def test_namespaces_of_many_parts(lake: LakeWorld) -> None:
    lake.lake.apply(
        """
        create namespace a; create namespace a.b; create namespace a.b.c;
        create table a.b.c.parents (id bigint primary key);
        create table a.b.c.children (id bigint, p bigint constraint of references a.b.c.parents on delete cascade);
        """,
        actor="ann",
    )
    run(lake, "insert into a.b.c.parents values (1), (2)", "insert into a.b.c.children values (1, 1), (2, 2)")
    run(lake, "update a.b.c.children set id = id + 10 where id = 1", "delete from a.b.c.parents where id = 2")
    with pytest.raises(ConstraintViolationError, match="constraint of"):
        run(lake, "insert into a.b.c.children values (3, 3)")
    assert rows_of(lake, '"a.b.c".children') == [(11, 1)]


def test_a_check_on_a_part_of_a_column(lake: LakeWorld) -> None:
    """Whatever a column is called, `t.a` is a part of it."""
    rows = pa.table({"id": [1], "t": [{"a": 1}], "s": [{"a": 1}], "a": [-1]})
    create(lake, "orders", rows, declared=[Check("parts", "t.a > 0 and S.a < 9")])
    run(lake, "insert into orders values (2, {'a': 2}, {'a': 2}, -1)")
    with pytest.raises(ConstraintViolationError, match="constraint parts"):
        run(lake, "insert into orders values (3, {'a': -2}, {'a': 2}, 1)")


# How many


def test_at_least(lake: LakeWorld) -> None:
    """Every team has two players or more: judged for teams that come, and for players that go."""
    link = ForeignKey("plays_for", ("team",), TableKey.parse("teams"), ("id",))
    create(lake, "teams", pa.table({"id": [1]}), key=["id"], referenced_by=["players"])
    create(
        lake,
        "players",
        pa.table({"id": [1, 2, 3], "team": [1, 1, None]}),
        key=["id"],
        declared=[link, Cardinality("enough", ("team",), at_least=2, at_most=3)],
    )
    for statements, said in (
        (("insert into teams values (2)",), "fewer than 2 rows for the row of default.teams with id = 2"),
        (("delete from players where id = 1",), "id = 1"),
        (("update players set team = null where id = 1",), "id = 1"),
        (("insert into players values (4, 1), (5, 1)",), "more than 3 rows have team = 1"),
    ):
        with pytest.raises(ConstraintViolationError) as caught:
            run(lake, *statements)
        assert caught.value.fields["constraint"] == "enough"
        assert said in caught.value.message
    run(
        lake,
        "insert into teams values (2)",
        "insert into players values (4, 2)",
        "update players set team = 2 where id = 3",
    )
    run(lake, "delete from players where team = 1", "delete from teams where id = 1")
    assert rows_of(lake, "players") == [(3, 2), (4, 2)]


# Reads of checks are reads (P8)


def nested(lake: LakeWorld, outer: str, inner: str) -> None:
    """One transaction begins, another comes and goes, the first ends."""
    with lake.lake.transaction(actor="ann") as tx:
        tx.sql(outer)
        run(lake, inner)


@pytest.mark.hazard("P8")
@pytest.mark.parametrize("outer_deletes", [True, False])
def test_p8_write_skew_by_a_foreign_key(lake: LakeWorld, outer_deletes: bool) -> None:
    """Delete a customer, insert its order: neither statement reads the other's table, but their checks do."""
    shop(lake)
    both = ("delete from customers where id = 3", "insert into orders values (13, 3, 1)")
    outer, inner = both if outer_deletes else both[::-1]
    with pytest.raises(ExpectedVersionMismatchError):
        nested(lake, outer, inner)
    is_there = 3 in [row[0] for row in rows_of(lake, "customers")]
    assert is_there is outer_deletes
    assert (13 in [row[0] for row in rows_of(lake, "orders")]) is outer_deletes


@pytest.mark.hazard("P8")
def test_p8_a_cascade_against_a_new_child(lake: LakeWorld) -> None:
    shop(lake)
    with pytest.raises(ExpectedVersionMismatchError):
        nested(lake, "delete from orders where id = 12", "insert into lines values (12, 1, 'x')")
    assert (12, 1, "x") in rows_of(lake, "lines")
    assert 12 in [row[0] for row in rows_of(lake, "orders")]


@pytest.mark.parametrize(
    "outer",
    ["update customers set name = 'Zoe' where id = 1", "insert into customers values (4, 'D')"],
)
def test_what_no_key_depends_on_reads_no_other_table(lake: LakeWorld, outer: str) -> None:
    shop(lake)
    nested(lake, outer, "insert into orders values (13, 1, 1)")
    assert len(rows_of(lake, "orders")) == 4


# Constraints that cannot be judged


@pytest.mark.parametrize(
    ("constraint", "said"),
    [
        (ForeignKey("c", ("customer",), TableKey.parse("gone"), ("id",)), "there is no table default.gone"),
        (ForeignKey("c", ("gone",), TableKey.parse("customers"), ("id",)), "gone is no column of default.orders"),
        (ForeignKey("c", ("customer",), TableKey.parse("customers"), ("nr",)), "nr is no column of default.customers"),
        (ForeignKey("c", ("customer",), TableKey.parse("customers"), ("name",)), "is not the key of default.customers"),
        (Check("c", "gone > 0"), "there is no column gone"),
        (Check("c", "total > (select 1)"), "it may not hold"),
        (Check("c", "total.a > 1"), "Cannot extract field 'a'"),
        (Check("c", "CAST(concat('x', total) AS INTEGER) > 0"), "x1"),
        (Cardinality("c", ("gone",), at_most=1), "gone is no column"),
        (Cardinality("c", ("tags",), at_most=1), "tags of default.orders is not one value, but several"),
        (Cardinality("c", ("total",), at_least=1), "no foreign key is over total"),
    ],
)
def test_a_constraint_that_cannot_be_judged_is_loud(
    loose: LakeWorld, constraint: Check | ForeignKey | Cardinality, said: str
) -> None:
    demand(lake := loose, "orders", [constraint])
    with pytest.raises(ConstraintBrokenError) as caught:
        run(lake, "insert into orders values (13, 1, 1, null)")
    assert said in caught.value.message
    assert caught.value.fields == {"table": "default.orders", "constraint": "c"}
    with pytest.raises(ConstraintBrokenError), lake.lake._standing_on("main", holder="test") as (state, _):
        check_table(Questions(state, QueryOptions()), TableKey.parse("orders"), lake.table("orders").metadata)
    assert len(rows_of(lake, "orders")) == 3


def test_a_table_that_refers_and_is_gone_is_loud(lake: LakeWorld) -> None:
    create(lake, "customers", CUSTOMERS, key=["id"], referenced_by=["orders"])
    with pytest.raises(ConstraintBrokenError, match=r"default\.orders refers to it, and is not there"):
        run(lake, "delete from customers where id = 1")
    run(lake, "update customers set name = 'x'")


# All rows of a table


@pytest.mark.parametrize(
    ("table", "rows", "said"),
    [
        (
            "orders",
            pa.table({"id": [1, 1, 2], "customer": [1, 2, None], "total": [1.0, 1, 1]}),
            "more than one row has id = 1",
        ),
        (
            "orders",
            pa.table({"id": [1], "customer": [9], "total": [1.0]}),
            "default.customers has no row for customer = 9",
        ),
        ("orders", pa.table({"id": [1, 2], "customer": [1, 1], "total": [None, 0.0]}), "total > 0 is false for id = 2"),
        (
            "orders",
            pa.table({"id": range(4), "customer": [2] * 4, "total": [1.0] * 4}),
            "more than 3 rows have customer = 2",
        ),
        ("orders", pa.table({"id": [1, 2], "customer": [None, 2], "total": [None, 1.0]}), None),
    ],
)
def test_all_rows_of_a_table(lake: LakeWorld, table: str, rows: pa.Table, said: str | None) -> None:
    create(lake, "customers", CUSTOMERS, key=["id"])
    create(lake, "orders", rows, key=["id"])
    demand(lake, "orders", [OF_CUSTOMER, Check("positive", "total > 0"), Cardinality("few", ("customer",), at_most=3)])
    with lake.lake._standing_on("main", holder="test") as (state, _):
        ask = Questions(state, QueryOptions())
        if said is None:
            check_table(ask, TableKey.parse(table), lake.table(table).metadata)
            assert set(ask.reads) == {TableKey.parse("customers"), TableKey.parse("orders")}
            return
        with pytest.raises(ConstraintViolationError) as caught:
            check_table(ask, TableKey.parse(table), lake.table(table).metadata)
    assert said in caught.value.message


def test_all_rows_have_a_value_and_enough_children(lake: LakeWorld) -> None:
    create(lake, "customers", CUSTOMERS, key=["id"])
    create(lake, "orders", ORDERS, key=["id"])
    demand(lake, "orders", [OF_CUSTOMER, Cardinality("some", ("customer",), at_least=1)])
    stricter = schema_with(ORDERS.schema, ["id"], ["total"])
    with lake.lake._standing_on("main", holder="test") as (state, _):
        ask, key, metadata = Questions(state, QueryOptions()), TableKey.parse("orders"), lake.table("orders").metadata
        with pytest.raises(
            ConstraintViolationError, match=r"fewer than 1 rows for the row of default\.customers with id = 3"
        ):
            check_table(ask, key, metadata)
        with pytest.raises(ConstraintViolationError, match="column total is null in the row with id = 12"):
            check_table(ask, key, metadata.model_copy(update={"schemas": [stricter]}))


# Decisions


ROWS = st.lists(st.tuples(st.sampled_from([1, 2, 3, None]), st.sampled_from(["a", "b", None])), max_size=6)


def as_table(rows: list[tuple[int | None, str | None]]) -> pa.Table:
    return pa.table(
        {"n": pa.array([each[0] for each in rows], pa.int64()), "t": pa.array([each[1] for each in rows], pa.string())}
    )


@given(ROWS, ROWS)
def test_values_that_grow(more: list[tuple[int | None, str | None]], less: list[tuple[int | None, str | None]]) -> None:
    counts = Counter(more)
    counts.subtract(less)
    expected = {each for each, count in counts.items() if count > 0 and None not in each}
    found = grown(as_table(more), as_table(less), ("n", "t"), number=0)
    assert expected == ({(row["k0"], row["k1"]) for row in found.rows.to_pylist()} if found else set())
    only = grown(as_table(more), None, ("n",), number=0)
    assert {each for each, _ in more if each is not None} == (set(only.rows["k0"].to_pylist()) if only else set())


def test_values_of_any_type_can_be_asked_about(lake: LakeWorld) -> None:
    """A key of each type: found when it is there twice, with the files left out that cannot hold it."""
    values: dict[str, pa.Array] = {
        "int": pa.array([-5, 7], pa.int32()),
        "text": pa.array(["it's", "ü" * 600]),
        "day": pa.array([date(1, 1, 1), date(2024, 2, 29)]),
        "moment": pa.array([-1_000_004, 1_700_000_000_000_000], pa.timestamp("us")),
        "zoned": pa.array(
            [datetime(1960, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")
        ),
        "amount": pa.array([Decimal("-1.50"), Decimal("99.99")], pa.decimal128(9, 2)),
        "clock": pa.array([time(1, 2, 3, 4), time(23, 59)], pa.time64("us")),
        "id": pa.array([uuid.UUID(int=1).bytes, uuid.UUID(int=2**128 - 1).bytes], pa.uuid()),
        "bytes": pa.array([b"\x00", b"\xff"], pa.binary()),
        "fixed": pa.array([b"\x00\x00", b"\xff\xff"], pa.binary(2)),
        "flag": pa.array([True, False]),
    }
    create(lake, "t", pa.table(values), key=list(values))
    with lake.lake.transaction(actor="ann") as tx:
        tx.sql("insert into t select * replace (int + 100 as int) from t")
    with pytest.raises(ConstraintViolationError, match="more than one row has int = 107"):
        run(lake, "insert into t select * from t where int > 100 and flag = false")
    run(lake, "update t set flag = flag", "update t set int = int + 1000, text = text || 'x' where int = 107")
    run(
        lake,
        "insert into t select * from t where int = 7",
        "delete from t where int = 7",
        "insert into t select * replace (7 as int) from t where int > 1000",
    )
    assert lake.lake.query("select int from t order by int")["int"].to_pylist() == [-5, 7, 95, 1107]


@pytest.mark.parametrize(
    ("expression", "columns"),
    [
        ("total >= 0", ("total",)),
        ("ID <> 3 -- a word", ("id",)),
        ("Customer is null or total between 1 and id", ("id", "customer", "total")),
        ("case when id > 1 then total else 1 end > 0", ("id", "total")),
        ('coalesce("total", 0) = round(total, 2) and id in (1, 2, 3)', ("id", "total")),
    ],
)
def test_checks_that_may_be_declared(expression: str, columns: tuple[str, ...]) -> None:
    assert validate_check(expression, schema_with(ORDERS.schema, [], [])).columns == columns


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "not one SQL condition"),
        ("total >", "not one SQL condition"),
        ("total > 0) or (true", "not one SQL condition"),
        ("total > 0; drop table orders", "not one SQL condition"),
        ("select total from orders", "not one SQL condition"),
        ("sum(total) > 0", "SUM(total)"),
        ("total > avg(total) over ()", "OVER ()"),
        ("id in (select id from customers)", "SELECT id FROM customers"),
        ("exists (select 1)", "SELECT 1"),
        ("nope > 0", "no column nope"),
        ("orders.total > 0", "no column orders"),
        ("total > $1", "$1"),
        ("1 = 1", "mentions no column"),
    ],
)
def test_checks_that_may_not(expression: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        validate_check(expression, schema_with(ORDERS.schema, [], []))
    assert said in caught.value.message


def test_columns_needed(kept: LakeWorld) -> None:
    assert columns_needed(kept.table("customers").metadata) == ("id",)
    assert columns_needed(kept.table("orders").metadata) == ("id", "customer", "total")
    assert columns_needed(kept.table("lines").metadata) == ("order", "line", "article")


class Unasked:
    """Knows the tables, and fails when it is asked about rows."""

    def __init__(self, lake: LakeWorld) -> None:
        self._lake = lake

    def __call__(self, sql: str, shown: object, /) -> pa.Table:
        raise AssertionError(sql)

    def metadata_of(self, key: TableKey, /) -> TableMetadata | None:
        return self._lake.table(str(key)).metadata


def test_what_cannot_be_broken_is_not_asked(kept: LakeWorld) -> None:
    """Rows that are replaced by rows with the same keys: a merge of a million of them asks nothing."""
    metadata = kept.table("lines").metadata
    properties = constraint_properties([OF_ORDER, Cardinality("c", ("order",), 1, 2)], [])
    metadata = metadata.model_copy(update={"properties": {**metadata.properties, **properties}})
    changed = {
        TableKey.parse("customers"): Changed(kept.table("customers").metadata, CUSTOMERS, CUSTOMERS),
        TableKey.parse("lines"): Changed(metadata, LINES, LINES.slice(0).take([2, 1, 0])),
    }
    check_changes(Unasked(kept), changed)
    for added, removed in ((LINES, LINES.slice(1)), (LINES.slice(1), LINES)):
        with pytest.raises(AssertionError, match="SELECT"):
            check_changes(Unasked(kept), {TableKey.parse("lines"): Changed(metadata, added, removed)})


def test_a_small_change_reads_few_files(lake: LakeWorld, tmp_path: Path) -> None:
    """Files that cannot hold the new keys are not opened."""
    create(lake, "t", pa.table({"id": [1, 2, 3]}), key=["id"])
    old = {path.name for path in tmp_path.rglob("*.parquet")}
    run(lake, "insert into t values (100), (101)")
    for path in tmp_path.rglob("*.parquet"):
        if path.name in old:
            path.unlink()
    run(lake, "insert into t values (102), (200)")
    with pytest.raises(ConstraintViolationError, match="id = 101"):
        run(lake, "insert into t values (101)")
