"""Schema scripts on a lake: one commit or nothing, rows that are there obey, and no crash leaves half of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyiceberg.view.metadata import ViewMetadata

from headwater.catalog.errors import ExpectedVersionMismatchError
from headwater.catalog.model import RefKind, TableContent, TableKey, ViewContent
from headwater.kernel import failpoints
from headwater.kernel.errors import HeadwaterError, RefusedError, UsageError
from headwater.kernel.failpoints import Action, Failpoint, FailpointError
from headwater.lake import Lake
from headwater.publish import protocol
from headwater.publish.codec import decode_sidecar, encode_sidecar
from headwater.publish.constraints.codec import constraints_of
from headwater.publish.constraints.model import Check, ForeignKey, OnDelete
from headwater.publish.errors import ConstraintViolationError, PublishOutcomeUnknownError, RecoveryPendingError
from headwater.publish.model import Verdict, WriterKind
from headwater.publish.requests import FOR_OPERATION
from headwater.publish.schema.model import ObjectChange
from headwater.storage.memory import MemoryStore
from tests.fixtures.engines import by_duckdb, by_pyiceberg
from tests.fixtures.lakes import LakeWorld
from tests.unit.publish_world import LAKE, OVER, Process, PublishWorld

pytestmark = pytest.mark.proves("publish/schema")

SHOP = """
    create namespace shop;
    create table shop.customers (id bigint primary key, name string not null);
    create table shop.orders (
        id bigint primary key, customer bigint references shop.customers on delete cascade,
        amount decimal(9, 2) check (amount > 0)
    );
"""


def lake_of(process: Process) -> Lake:
    return Lake(process.catalog, process.files, location=LAKE, writing=process.writing)


@pytest.fixture(scope="module")
def stocked() -> dict[str, Any]:
    """The objects of a shop with two customers, one of whom has orders."""
    world = PublishWorld()
    lake = lake_of(world.process())
    lake.apply(SHOP, actor="ann")
    with lake.transaction(actor="ann") as tx:
        tx.sql("insert into shop.customers values (1, 'ann'), (2, 'bob')")
        tx.sql("insert into shop.orders values (10, 1, 5), (11, 1, 7)")
    assert isinstance(world.store, MemoryStore)
    return dict(world.store._objects)


@pytest.fixture
def world(request: pytest.FixtureRequest, stocked: dict[str, Any]) -> PublishWorld:
    """A lake of its own for each test: empty, or with the shop in it."""
    made = PublishWorld(seed=2)  # identities must not be those of the shop again
    if "shop" in request.fixturenames:
        assert isinstance(made.store, MemoryStore)
        made.store._objects = dict(stocked)
    return made


@pytest.fixture
def process(world: PublishWorld) -> Process:
    return world.process()


@pytest.fixture
def shop(process: Process) -> Lake:
    return lake_of(process)


def commits(lake: Lake) -> list[str]:
    return [each.hash for each in lake.catalog.log(lake.catalog.ref("main").hash)]


class TestOneCommit:
    def test_a_script_is_one_commit(self, process: Process) -> None:
        lake = lake_of(process)
        before = len(commits(lake))
        applied = lake.apply(
            SHOP
            + "create view shop.totals as select customer, sum(amount) as total from shop.orders group by customer",
            actor="ann",
        )
        assert len(commits(lake)) == before + 1
        assert applied.commit is not None
        assert applied.commit.actor == "ann"
        assert applied.commit.operation == applied.operation
        assert applied.commit.message == (
            "create namespace shop, create table shop.customers, create table shop.orders, create view shop.totals"
        )
        assert [(str(each.action), str(each.kind), str(each.key)) for each in applied.changes] == [
            ("create", "namespace", "shop"),
            ("create", "table", "shop.customers"),
            ("create", "table", "shop.orders"),
            ("create", "view", "shop.totals"),
        ]
        assert process.sidecars() == 0

    @pytest.mark.parametrize(
        ("script", "kind"),
        [
            ("alter table shop.orders add column x int; alter table shop.orders drop column missing", UsageError),
            ("create table shop.t (x int); drop table shop.customers", RefusedError),
            ("create table shop.t (x int); alter table shop.orders add check (amount > 6)", ConstraintViolationError),
            ("create table shop.t (x int); create view shop.v as select missing from shop.orders", UsageError),
            ("create table shop.t (x int); nonsense", UsageError),
        ],
    )
    def test_or_nothing(self, shop: Lake, world: PublishWorld, script: str, kind: type[HeadwaterError]) -> None:
        commit, objects = commits(shop), {each.path for each in world.store.list("") if ".pins/" not in each.path}
        with pytest.raises(kind):
            shop.apply(script, actor="ann")
        assert commits(shop) == commit
        assert {each.path for each in world.store.list("") if ".pins/" not in each.path} == objects

    def test_a_dry_run_finds_the_same_and_does_nothing(self, shop: Lake) -> None:
        before = commits(shop)
        script = "alter table shop.customers rename to shop.clients; create view shop.v as select * from shop.clients"
        tried = shop.apply(script, actor="ann", dry_run=True)
        assert (commits(shop), tried.commit, tried.dry_run) == (before, None, True)
        assert shop.apply(script, actor="ann").changes == tried.changes
        with pytest.raises(ConstraintViolationError):
            shop.apply("alter table shop.orders add check (amount > 6)", actor="ann", dry_run=True)

    def test_a_script_that_changes_nothing_makes_no_commit(self, shop: Lake) -> None:
        before = commits(shop)
        for script in ("", "-- nothing", "create table if not exists shop.orders (x int); drop table if exists u"):
            applied = shop.apply(script, actor="ann")
            assert (applied.commit, applied.changes) == (None, ())
        assert commits(shop) == before

    def test_on_a_branch(self, shop: Lake, process: Process) -> None:
        process.catalog.create_ref(RefKind.BRANCH, "dev", process.catalog.ref("main").hash)
        shop.apply("alter table shop.orders add column note string; drop table shop.orders", actor="ann", branch="dev")
        shop.apply("alter table shop.customers rename to people", actor="ann", branch="dev")
        assert shop.query("select count(*) n from shop.orders")["n"].to_pylist() == [2]
        assert shop.query("select name from shop.people order by id", branch="dev")["name"].to_pylist() == [
            "ann",
            "bob",
        ]
        assert "people" not in {key.key.name for key in shop.tables()}

    def test_a_write_that_was_read_meanwhile_is_a_conflict(self, shop: Lake, world: PublishWorld) -> None:
        """The rows of the parent decided that the constraint may be; they must not change under it."""
        other = lake_of(world.process())
        shop.apply("create table shop.notes (customer bigint)", actor="ann")
        with shop.transaction(actor="ann") as tx:
            tx.sql("insert into shop.notes values (2)")

        def delete_meanwhile() -> None:
            with other.transaction(actor="eve") as tx:
                tx.sql("delete from shop.customers where id = 2")

        with pytest.raises(ExpectedVersionMismatchError, match=r"shop\.customers"), meanwhile(delete_meanwhile):
            shop.apply("alter table shop.notes add foreign key (customer) references shop.customers", actor="ann")
        assert constraints_of(shop.table("shop.notes").metadata).declared == ()

    def test_a_name_that_comes_meanwhile_is_a_conflict(self, shop: Lake, world: PublishWorld) -> None:
        other = lake_of(world.process())
        created = "create table if not exists shop.t (x int)"
        with (
            pytest.raises(ExpectedVersionMismatchError, match=r"shop\.t"),
            meanwhile(lambda: other.apply("create table shop.t (y int)", actor="eve")),
        ):
            shop.apply(created, actor="ann")
        shop.apply(created, actor="ann")
        assert shop.table("shop.t").metadata.schema().column_names == ["y"]

    def test_a_name_that_goes_meanwhile_is_a_conflict(self, shop: Lake, world: PublishWorld) -> None:
        """The script only looked whether it is there, and changes something else."""
        other = lake_of(world.process())
        shop.apply("create table shop.t (x int)", actor="ann")
        with (
            pytest.raises(ExpectedVersionMismatchError, match=r"shop\.t"),
            meanwhile(lambda: other.apply("drop table shop.t", actor="eve")),
        ):
            shop.apply("create table if not exists shop.t (x int); create table shop.u (x int)", actor="ann")
        assert {str(each.key) for each in shop.tables()} == {"shop.customers", "shop.orders"}

    def test_rows_of_a_related_table_may_change_meanwhile(self, shop: Lake, world: PublishWorld) -> None:
        """The new column of an order has nothing to do with who becomes a customer."""
        other = lake_of(world.process())

        def insert_meanwhile() -> None:
            with other.transaction(actor="eve") as tx:
                tx.sql("insert into shop.customers values (3, 'eve')")

        with meanwhile(insert_meanwhile):
            shop.apply("alter table shop.orders add column note string", actor="ann")
        assert shop.query("select count(*) n from shop.customers")["n"].to_pylist() == [3]


class meanwhile:  # noqa: N801  (reads as a word)
    """Something that happens just before the publish looks whether anything has changed."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self._patch = pytest.MonkeyPatch()

    def __enter__(self) -> None:
        real = protocol.Publisher.publish

        def publish(publisher: protocol.Publisher, wish: Any) -> Any:
            self._patch.undo()
            self._work()
            return real(publisher, wish)

        self._patch.setattr(protocol.Publisher, "publish", publish)

    def __exit__(self, *_: object) -> None:
        self._patch.undo()


class TestRows:
    """A constraint is accepted only if the rows that are there obey it."""

    @pytest.mark.parametrize(
        ("script", "what"),
        [
            ("alter table shop.orders add constraint large check (amount >= 6)", "large"),
            ("alter table shop.orders drop primary key; alter table shop.orders add primary key (customer)", "key"),
            ("alter table shop.notes alter column text set not null", "null"),
            ("alter table shop.notes add primary key (text)", "null"),
            ("alter table shop.notes add foreign key (customer) references shop.customers", "notes_customer_fkey"),
            ("alter table shop.orders add check (count(*) over (partition by customer) <= 1)", "orders_customer_count"),
            ("alter table shop.orders add check (count(*) over (partition by customer) >= 1)", "orders_customer_count"),
        ],
    )
    def test_those_that_do_not_are_named(self, shop: Lake, script: str, what: str) -> None:
        shop.apply("create table shop.notes (customer bigint, text string)", actor="ann")
        with shop.transaction(actor="ann") as tx:
            tx.sql("insert into shop.notes values (9, null)")
        before = commits(shop)
        with pytest.raises(ConstraintViolationError, match=what):
            shop.apply(script, actor="ann")
        assert commits(shop) == before

    @pytest.mark.parametrize(
        "script",
        [
            "alter table shop.orders add constraint small check (amount < 8)",
            "alter table shop.orders alter column amount set not null",
            "alter table shop.orders add check (count(*) over (partition by customer) <= 2)",
            "alter table shop.orders drop primary key; alter table shop.orders add primary key (id, amount)",
        ],
    )
    def test_those_that_do_let_it_in(self, shop: Lake, script: str) -> None:
        shop.apply(script, actor="ann")
        with pytest.raises(ConstraintViolationError), shop.transaction(actor="ann") as tx:
            tx.sql("insert into shop.orders values (12, 1, 9), (13, 1, null), (14, 1, 1)")
        assert shop.query("select count(*) n from shop.orders")["n"].to_pylist() == [2]

    def test_they_count_from_then_on(self, shop: Lake) -> None:
        for sql in ("insert into shop.orders values (12, 7, 1)", "insert into shop.orders values (12, 1, 0)"):
            with pytest.raises(ConstraintViolationError), shop.transaction(actor="ann") as tx:
                tx.sql(sql)
        with shop.transaction(actor="ann") as tx:
            tx.sql("delete from shop.customers where id = 1")
        assert shop.query("select count(*) n from shop.orders")["n"].to_pylist() == [0]  # the cascade

    def test_a_check_that_cannot_be_asked_is_refused_though_there_is_no_row(self, process: Process) -> None:
        with pytest.raises(HeadwaterError, match="t_check"):
            lake_of(process).apply("create table t (x int, check (x + interval 1 day))", actor="ann")

    @pytest.mark.hazard("P8")
    def test_p8_a_new_parent_meanwhile_does_not_escape_a_least_number(self, shop: Lake) -> None:
        """Its writer reads no row of the child, whose demands it knows from before."""
        least = "alter table shop.orders add constraint least check (count(*) over (partition by customer) >= 1)"
        with shop.transaction(actor="ann") as tx:
            tx.sql("delete from shop.customers where id = 2")
        told: list[ObjectChange] = []

        def insert_without_an_order() -> None:
            with shop.transaction(actor="ann") as tx:
                tx.sql("insert into shop.customers values (3, 'zoe')")
                told.extend(shop.apply(least, actor="bob").changes)

        with pytest.raises(ExpectedVersionMismatchError, match=r"shop\.customers"):
            insert_without_an_order()
        assert [(str(each.key), each.statements) for each in told] == [
            ("shop.customers", ("more rows must refer to each row of shop.customers",)),
            ("shop.orders", (least,)),
        ]
        assert shop.apply("alter table shop.orders rename column amount to price", actor="bob").changes[1:] == ()


class TestRename:
    def test_the_content_stays(self, shop: Lake, process: Process) -> None:
        before = process.pinned("shop.customers")
        assert isinstance(before, TableContent)
        shop.apply("alter table shop.customers rename to people", actor="ann")
        after = process.pinned("shop.people")
        assert isinstance(after, TableContent)
        assert (after.content_id, after.snapshot_id) == (before.content_id, before.snapshot_id)
        assert process.pinned("shop.customers") is None
        assert process.head_is_pinned("shop.people")
        assert shop.query("select name from shop.people order by id")["name"].to_pylist() == ["ann", "bob"]
        with shop.transaction(actor="ann") as tx:
            tx.sql("insert into shop.people values (3, 'eve')")
            tx.sql("insert into shop.orders values (12, 3, 1)")
            tx.sql("delete from shop.people where id = 1")
        assert shop.query("select customer from shop.orders")["customer"].to_pylist() == [3]

    @pytest.mark.parametrize(("nth", "error"), [(1, RecoveryPendingError), (2, ExpectedVersionMismatchError)])
    def test_a_writer_of_the_old_name_heals_it_or_is_told(
        self, shop: Lake, world: PublishWorld, nth: int, error: type[HeadwaterError]
    ) -> None:
        """All heads have moved: it is finished, and the old name is gone. Or one of them has: it is to be undone."""
        other = world.process()

        def die_meanwhile() -> None:
            die(shop, "alter table shop.customers rename to people", Failpoint.PUBLISH_AFTER_HEAD, nth)
            world.clock.advance(OVER)

        with (
            pytest.raises(error, match=r"shop\.customers"),
            meanwhile(die_meanwhile),
            lake_of(other).transaction(actor="eve") as tx,
        ):
            tx.sql("insert into shop.customers values (3, 'eve')")
        assert (other.pinned("shop.people") is not None) is (nth == 2)


def die(lake: Lake, script: str, point: Failpoint, nth: int = 1) -> None:
    """The writer stops there and never comes back."""
    with (
        failpoints.arm(point, Action.ERROR, only_hit=nth),
        pytest.raises((PublishOutcomeUnknownError, FailpointError)),
    ):
        lake.apply(script, actor="ann")


@pytest.mark.hazard("P2")
def test_p2_a_renamed_table_moves_at_the_place_of_its_old_name(shop: Lake, process: Process) -> None:
    """Other writers know it by that, and of two that cross, one must win."""
    die(
        shop,
        "alter table shop.customers rename to zebras; alter table shop.orders add column x int",
        Failpoint.PUBLISH_AFTER_SIDECAR,
    )
    [sidecar] = process.writing.sidecars.pending()
    assert [str(head.pinned_key) for head in sidecar.heads] == ["shop.customers", "shop.orders"]
    assert [str(head.key) for head in sidecar.heads] == ["shop.zebras", "shop.orders"]


class TestCrash:
    """A rename, a new table, a drop, a view and a namespace: all of it or nothing, wherever the writer died."""

    SCRIPT = """
        alter table shop.customers rename to shop.people;
        alter table shop.people add column note string;
        create table shop.items (id bigint, "order" bigint references shop.orders);
        drop table shop.old;
        create namespace archive;
        create view archive.names as select name from shop.people;
        drop view shop.v;
    """

    @pytest.fixture
    def full(self, shop: Lake) -> Lake:
        shop.apply("create table shop.old (x int); create view shop.v as select 1 as x", actor="ann")
        return shop

    @pytest.mark.parametrize(
        ("point", "nth", "landed"),
        [
            (Failpoint.PUBLISH_AFTER_SIDECAR, 1, False),
            (Failpoint.PUBLISH_AFTER_HEAD, 1, False),
            (Failpoint.PUBLISH_AFTER_HEAD, 2, False),
            (Failpoint.PUBLISH_AFTER_HEAD, 3, True),
            (Failpoint.PUBLISH_AFTER_COMMIT, 1, True),
        ],
    )
    def test_a_sweep_finishes_or_undoes_it(
        self, full: Lake, world: PublishWorld, point: Failpoint, nth: int, landed: bool
    ) -> None:
        die(full, self.SCRIPT, point, nth)
        other = world.process()
        [sidecar] = other.writing.sidecars.pending()
        assert sidecar.kind is WriterKind.SCHEMA_APPLY
        assert decode_sidecar(encode_sidecar(sidecar), "a sidecar") == sidecar
        assert {str(key) for key in sidecar.others} == {"archive", "archive.names", "shop.v"}
        if point is not Failpoint.PUBLISH_AFTER_COMMIT:
            self.judge(other, landed=False)  # readers see nothing of it
        world.clock.advance(OVER)
        [recovered] = other.writing.recovery.sweep()
        wanted = Verdict.PUBLISHED if point is Failpoint.PUBLISH_AFTER_COMMIT else Verdict.FORWARD
        assert recovered.verdict is (wanted if landed else Verdict.BACK)
        self.judge(other, landed=landed)
        assert other.sidecars() == 0
        told = [each for each in other.catalog.log(other.catalog.ref("main").hash) if FOR_OPERATION in each.properties]
        assert [each.properties[FOR_OPERATION] for each in told] == [sidecar.operation]
        # And the next writer needs nobody's help.
        lake = lake_of(other)
        if not landed:
            lake.apply(self.SCRIPT, actor="bob")
            self.judge(other, landed=True)
        with lake.transaction(actor="bob") as tx:
            tx.sql("insert into shop.people values (3, 'cy', 'new')")
        assert lake.query("select name from archive.names order by 1")["name"].to_pylist() == ["ann", "bob", "cy"]

    @staticmethod
    def judge(process: Process, *, landed: bool) -> None:
        lake = lake_of(process)
        there = {str(each.key) for each in lake.tables()}
        if landed:
            assert there == {"shop.people", "shop.orders", "shop.items", "archive.names"}
            assert lake.table("shop.people").metadata.schema().column_names == ["id", "name", "note"]
        else:
            assert there == {"shop.customers", "shop.orders", "shop.old", "shop.v"}
            assert lake.table("shop.customers").metadata.schema().column_names == ["id", "name"]
        for name in there - {"archive.names", "shop.v"}:
            if not process.sidecars():
                assert process.head_is_pinned(name), name
        people = "shop.people" if landed else "shop.customers"
        [link] = [
            each for each in constraints_of(lake.table("shop.orders").metadata).declared if isinstance(each, ForeignKey)
        ]
        assert str(link.parent) == people
        assert [str(each) for each in constraints_of(lake.table(people).metadata).referenced_by] == ["shop.orders"]
        assert lake.query(f"select count(*) n from {people}")["n"].to_pylist() == [2]

    def test_what_others_changed_since_lets_it_not_be_finished(self, full: Lake, world: PublishWorld) -> None:
        """A view that was to be replaced is another meanwhile: its writer's plan no longer holds (P8)."""
        die(
            full,
            "create or replace view shop.v as select 2 as x; drop table shop.old; "
            "alter table shop.orders add column y int",
            Failpoint.PUBLISH_AFTER_HEAD,
        )
        other = world.process()
        lake_of(other).apply("create or replace view shop.v as select 3 as x", actor="bob")
        world.clock.advance(OVER)
        [recovered] = other.writing.recovery.sweep()
        assert recovered.verdict is Verdict.BACK
        assert lake_of(other).query("select x from shop.v")["x"].to_pylist() == [3]
        assert lake_of(other).table("shop.orders").metadata.schema().column_names == ["id", "customer", "amount"]

    def test_of_two_that_rename_one_wins(self, full: Lake, world: PublishWorld) -> None:
        other = lake_of(world.process())
        with (
            pytest.raises(ExpectedVersionMismatchError, match=r"shop\.customers"),
            meanwhile(lambda: other.apply("alter table shop.customers rename to them", actor="bob")),
        ):
            full.apply("alter table shop.customers rename to people", actor="ann")
        assert {str(each.key) for each in full.tables()} == {"shop.them", "shop.orders", "shop.old", "shop.v"}


class TestViews:
    def test_they_show_what_is_there(self, shop: Lake, process: Process) -> None:
        shop.apply(
            "create view shop.totals (who, total) comment 'by customer' as "
            "select customer, sum(amount) from shop.orders group by customer;"
            "create view rich as select who from shop.totals where total > 5",
            actor="ann",
        )
        assert shop.query("select * from rich").to_pylist() == [{"who": 1}]
        content = process.pinned("shop.totals")
        assert isinstance(content, ViewContent)
        view = shop.metadata_of(content)
        assert isinstance(view, ViewMetadata)
        assert view.schemas[0].column_names == ["who", "total"]
        assert view.properties["comment"] == "by customer"

    def test_one_is_replaced(self, shop: Lake, process: Process) -> None:
        shop.apply("create view v as select 1 as x", actor="ann")
        first = process.pinned("v")
        shop.apply("create or replace view v as select 'two' as x, 3 as y", actor="ann")
        second = process.pinned("v")
        assert isinstance(first, ViewContent)
        assert isinstance(second, ViewContent)
        assert (first.content_id, second.version_id) == (second.content_id, 2)
        assert shop.query("select * from v").to_pylist() == [{"x": "two", "y": 3}]
        again = shop.apply("create or replace view v as select 'two' as x, 3 as y", actor="ann")
        assert again.commit is None
        with pytest.raises(UsageError, match="already"):
            shop.apply("create view v as select 1 as x", actor="ann")

    @pytest.mark.parametrize(
        ("sql", "what"),
        [
            ("create view v as select * from v", "uses itself"),
            ("create view v as select nothing from shop.orders", "nothing"),
            ("create view v as select * from read_csv('/etc/passwd')", "read_csv"),
            ("create view v (a, b, c) as select 1 as x", "v"),
            ("create view v as delete from shop.orders", "DELETE"),
        ],
    )
    def test_what_cannot_be_one(self, shop: Lake, sql: str, what: str) -> None:
        with pytest.raises(HeadwaterError, match=what) as caught:
            shop.apply(sql, actor="ann")
        assert caught.value.fields["line"] == 1
        assert caught.value.exit_code in (2, 4)


class TestNamespaces:
    def test_one_comes_and_goes(self, shop: Lake) -> None:
        shop.apply("create schema a; create schema a.b with (owner = 'ann'); create table a.b.t (x int)", actor="ann")
        with pytest.raises(RefusedError, match=r"a\.b\.t is in it"):
            shop.apply("drop schema a.b", actor="ann")
        with pytest.raises(RefusedError, match=r"a\.b is in it"):
            shop.apply("drop table a.b.t; drop schema a", actor="ann", dry_run=True)
        shop.apply("drop table a.b.t; drop schema a.b; drop schema a", actor="ann")
        assert TableKey((), "a") not in dict(shop.catalog.contents(shop.catalog.ref("main").hash))

    def test_one_that_is_filled_meanwhile_stays_and_nobody_is_held_up(self, shop: Lake, process: Process) -> None:
        """Only the commit can tell; a head that had moved for it could be neither finished nor undone."""
        shop.apply("create schema a", actor="ann")
        with pytest.raises(RefusedError, match="a script of its own"):
            shop.apply("drop schema a; alter table shop.orders add column x int", actor="ann")
        other = lake_of(process.world.process())
        with (
            pytest.raises(RefusedError, match=r"a\.t is in it"),
            meanwhile(lambda: other.apply("create table a.t (x int)", actor="eve")),
        ):
            shop.apply("drop schema a; create view v as select 1 as x", actor="ann")
        assert process.sidecars() == 0
        assert {str(each.key) for each in shop.tables()} == {"shop.customers", "shop.orders", "a.t"}


class TestCreateTable:
    def test_with_a_key_and_constraints(self, shop: Lake) -> None:
        commit = shop.create_table(
            "shop.items",
            pa.schema([("id", pa.int64()), ("order", pa.int64()), ("n", pa.int32())]),
            actor="ann",
            primary_key=["id"],
            constraints=[
                ForeignKey("of_order", ("order",), TableKey.parse("shop.orders"), ("id",), OnDelete.CASCADE),
                Check("some", "n > 0"),
            ],
        )
        assert commit.message == "create table shop.items"
        metadata = shop.table("shop.items").metadata
        assert constraints_of(metadata).primary_key == ("id",)
        assert [each.name for each in constraints_of(metadata).declared] == ["of_order", "some"]
        assert [str(each) for each in constraints_of(shop.table("shop.orders").metadata).referenced_by] == [
            "shop.items"
        ]
        with pytest.raises(ConstraintViolationError), shop.transaction(actor="ann") as tx:
            tx.sql("insert into shop.items values (1, 10, 0)")

    @pytest.mark.parametrize(
        ("options", "what"),
        [
            ({"primary_key": ["missing"]}, "no column"),
            ({"constraints": [Check("c", "missing > 0")]}, "no column"),
            ({"constraints": [ForeignKey("f", ("id",), TableKey.parse("nothing"), ("id",))]}, "no table"),
        ],
    )
    def test_what_cannot_be(self, shop: Lake, options: dict[str, Any], what: str) -> None:
        schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", StringType()))
        with pytest.raises(UsageError, match=what):
            shop.create_table("shop.t", schema, actor="ann", **options)
        with pytest.raises(UsageError, match="already"):
            shop.create_table("shop.orders", schema, actor="ann")


EVERYTHING = """
    create namespace shop with (owner = 'it''s ann');
    create table shop.everything (
        b boolean not null, i int default -7, l bigint, f float default 1.5, d double, dc decimal(9, 2) default 12.34,
        da date default '2026-11-15', t time, ts timestamp, tz timestamptz default '2026-11-15T12:00:00+00:00',
        tn timestamp_ns, tzn timestamptz_ns, s string default 'it''s' comment 'a ''text''', u uuid, fx fixed(4),
        bi binary default X'00ff', un unknown, "with ""quotes"" and spaces" int,
        st struct<a: int not null, "b c": struct<d: string> comment 'within'>, ar array<array<int not null>>,
        m map<string, struct<x: int> not null>,
        primary key (l, i), constraint c1 check (f > 0 or s = ''''), check (count(*) over (partition by l) <= 3)
    ) partitioned by (bucket(16, l), day(ts) as at_day, truncate(4, s), st.a)
    comment 'of every kind' with ('format-version' = '3', 'write.target-file-size-bytes' = '1000');
    alter table shop.everything write ordered by s desc nulls first, bucket(4, l), ts asc nulls last;
    create table shop.parent (id bigint primary key, friend bigint references shop.child);
    create table shop.child (
        id bigint primary key, parent bigint not null references shop.parent on delete cascade,
        check (count(*) over (partition by parent) between 1 and 5)
    );
    create view shop.v (x, y) comment 'a view' as select l, s from shop.everything;
"""


class TestShow:
    def test_the_script_makes_the_same_again(self, process: Process) -> None:
        lake, other = lake_of(process), lake_of(PublishWorld().process())
        lake.apply(EVERYTHING, actor="ann")
        script = lake.schema_script()
        other.apply(script, actor="bob")
        assert other.schema_script() == script
        for each in lake.tables():
            if isinstance(each.content, TableContent):
                one, two = lake.table(each.key).metadata, other.table(each.key).metadata
                assert one.schema() == two.schema()
                assert one.spec() == two.spec()
                assert one.sort_order() == two.sort_order()
                assert constraints_of(one) == constraints_of(two)
                assert one.format_version == two.format_version
                shown = [{k: v for k, v in m.properties.items() if "headwater." not in k} for m in (one, two)]
                assert shown[0] == shown[1]

    def test_of_one_table(self, shop: Lake) -> None:
        text = shop.schema_script("shop.customers")
        assert text.startswith('CREATE TABLE "shop"."customers" (\n    "id" BIGINT NOT NULL,')
        with pytest.raises(UsageError, match="did you mean"):
            shop.schema_script("shop.customer")


class TestOthersCanRead:
    def test_what_a_script_has_changed(self, lake: LakeWorld) -> None:
        """PyIceberg and DuckDB, each by the metadata alone."""
        lake.lake.apply(
            "create table t (id bigint primary key, a int, b string) with ('format-version' = 2)", actor="a"
        )
        with lake.lake.transaction(actor="a") as tx:
            tx.sql("insert into t values (1, 10, 'x'), (2, 20, 'y')")
        lake.lake.apply(
            "alter table t rename column a to n; alter table t alter n type bigint; alter table t drop column b;"
            "alter table t add column c string; alter table t add partition field bucket(2, id);"
            "alter table t rename to u",
            actor="a",
        )
        with lake.lake.transaction(actor="a") as tx:
            tx.sql("insert into u values (3, 3000000000, 'z')")
        location = lake.table("u").location
        assert location is not None
        expected = [(1, 10, None), (2, 20, None), (3, 3000000000, "z")]
        assert sorted(by_pyiceberg(location)) == expected
        assert sorted(by_duckdb(location)) == expected


@dataclass
class Modelled:
    """A table as a plain dictionary of rows knows it."""

    columns: list[str]
    rows: list[dict[str, int | None]] = field(default_factory=list)


Model = dict[str, Modelled]


def judge_by(lake: Lake, model: Model) -> None:
    """Every table shows what its dictionary shows."""
    assert {each.key.name for each in lake.tables()} == set(model)
    for name, wanted in model.items():
        found = lake.query(f"select * from {name}")
        assert found.column_names == wanted.columns
        rows = [tuple(row.values()) for row in found.to_pylist()]
        assert sorted(rows, key=repr) == sorted(
            (tuple(row[c] for c in wanted.columns) for row in wanted.rows), key=repr
        )


def insert_somewhere(dice: random.Random, lake: Lake, model: Model) -> None:
    name = dice.choice(sorted(model))
    row: dict[str, int | None] = {column: dice.randrange(9) for column in model[name].columns}
    model[name].rows.append(row)
    with lake.transaction(actor="ann") as tx:
        tx.insert(name, pa.table({column: pa.array([value], pa.int32()) for column, value in row.items()}))


@pytest.mark.parametrize("seed", range(3))
def test_random_scripts_against_plain_dictionaries(world: PublishWorld, seed: int) -> None:
    """Whatever is renamed, added and dropped, every table shows what a dictionary that went the same way shows."""
    dice, lake, model = random.Random(seed), lake_of(world.process()), {"t0": Modelled(["a"])}
    names = (f"n{number}" for number in range(1000))
    lake.apply("create table t0 (a int)", actor="ann")
    for _ in range(6):
        statements = [statement for _ in range(4) for statement in random_statement(dice, model, names)]
        lake.apply(";\n".join(statements), actor="ann")
        insert_somewhere(dice, lake, model)
    judge_by(lake, model)


@pytest.mark.parametrize("seed", range(3))
def test_random_scripts_whose_writers_die(world: PublishWorld, seed: int) -> None:
    """Each script has landed whole, or nothing of it, as the log says; and whoever comes next can go on."""
    dice, lake, model = random.Random(seed), lake_of(world.process()), {"t0": Modelled(["a"])}
    names = (f"n{number}" for number in range(1000))
    lake.apply("create table t0 (a int)", actor="ann")
    points = [Failpoint.PUBLISH_AFTER_SIDECAR, *[Failpoint.PUBLISH_AFTER_HEAD] * 3, Failpoint.PUBLISH_AFTER_COMMIT]
    outcomes = set()
    for _ in range(8):
        before = deepcopy(model)
        statements = [statement for _ in range(3) for statement in random_statement(dice, model, names)]
        point, nth = dice.choice(points), dice.randrange(1, 3)
        armed = failpoints.arm(point, Action.ERROR, only_hit=nth if point is Failpoint.PUBLISH_AFTER_HEAD else 1)
        with armed, suppress(PublishOutcomeUnknownError, FailpointError):
            lake.apply(";\n".join(statements), actor="ann", message=(label := f"script {next(names)}"))
        world.clock.advance(OVER)
        process = world.process()
        lake = lake_of(process)
        process.writing.recovery.sweep()
        landed = any(each.message == label for each in process.catalog.log(process.catalog.ref("main").hash))
        outcomes.add(landed)
        model = model if landed else before
        judge_by(lake, model)
        assert all(process.head_is_pinned(name) for name in model)
        assert process.sidecars() == 0
        insert_somewhere(dice, lake, model)
    assert outcomes == {True, False}


def random_statement(dice: random.Random, model: Model, names: Iterator[str]) -> Iterator[str]:
    table = dice.choice(sorted(model))
    has, new = model[table], next(names)
    match dice.randrange(6):
        case 0:
            model[new] = Modelled(["a", "b"])
            yield f"create table {new} (a int, b int)"
        case 1:
            model[new] = model.pop(table)
            yield f"alter table {table} rename to {new}"
        case 2:
            has.columns.append(new)
            for row in has.rows:
                row[new] = None
            yield f"alter table {table} add column {new} int"
        case 3 if len(has.columns) > 1:
            gone = dice.choice(has.columns)
            has.columns.remove(gone)
            yield f"alter table {table} drop column {gone}"
        case 4:
            old = dice.choice(has.columns)
            has.columns[has.columns.index(old)] = new
            for row in has.rows:
                row[new] = row.pop(old)
            yield f"alter table {table} rename column {old} to {new}"
        case 5 if len(model) > 1:
            del model[table]
            yield f"drop table {table}"
