"""Schema scripts on paper: what they say, and what they come to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, LongType

from headwater.catalog.model import Content, NamespaceContent, Ref, RefKind, TableContent, TableKey
from headwater.kernel.clock import ManualClock
from headwater.kernel.errors import HeadwaterError, RefusedError, UsageError
from headwater.kernel.ids import new_ulid
from headwater.kernel.randomness import seeded
from headwater.publish.constraints.codec import constraints_of
from headwater.publish.constraints.model import Cardinality, Check, ForeignKey, OnDelete
from headwater.publish.creation import born
from headwater.publish.schema.ddl import table_ddl
from headwater.publish.schema.model import Plan
from headwater.publish.schema.parse import parse
from headwater.publish.schema.plan import plan
from headwater.publish.schema.standing import look_up
from headwater.publish.schema.wanted import AlterTable, CreateNamespace, CreateTable, CreateView, DropTable, RenameTable
from headwater.tables.columns import AddColumn, DropColumn, RenameColumn
from headwater.tables.files import Files
from headwater.tables.model import TableVersion
from headwater.tables.snapshot import Staging

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
BANK = """
    create table customers (id bigint primary key, name string);
    create table orders (id bigint primary key, customer bigint references customers, amount int check (amount > 0));
"""


class PaperLake:
    """A lake that is nothing but what plans have said so far."""

    def __init__(self, script: str = "") -> None:
        self.clock, self.randomness = ManualClock(), seeded(1)
        self.contents: dict[TableKey, Content] = {
            TableKey((), "default"): NamespaceContent("namespace-1"),
            TableKey((), "shop"): NamespaceContent("namespace-2"),
        }
        self.documents: dict[str, TableMetadata] = {}
        if script:
            self.apply(script)

    def plan(self, script: str) -> Plan:
        statements = parse(script)
        staging = Staging(Files({}), self.clock, self.randomness, new_ulid(self.clock, self.randomness))
        ref = Ref("main", RefKind.BRANCH, "0" * 64, staging.operation)
        return plan(
            statements,
            look_up(statements, self),  # type: ignore[arg-type]
            born=lambda wanted: born(wanted, lake="s3://lake", ref=ref, staging=staging),
            now=NOW,
        )

    def apply(self, script: str) -> Plan:
        made = self.plan(script)
        for key in made.dropped:
            del self.contents[key]
        for key, each in made.tables.items():
            if each.renamed_from is not None:
                del self.contents[each.renamed_from]
            incarnation = each.metadata.properties["headwater.incarnation"]
            location = f"{each.metadata.location}/{len(self.documents)}"
            self.documents[location] = each.metadata
            self.contents[key] = TableContent(incarnation, location, None, each.metadata.current_schema_id, 0, 0)
        return made

    def names(self) -> Iterable[TableKey]:
        return (key for key, each in self.contents.items() if isinstance(each, TableContent))

    def inside(self, namespace: TableKey) -> Iterable[TableKey]:
        return (key for key in self.contents if key.is_in(namespace.elements))

    def content(self, key: TableKey) -> Content | None:
        return self.contents.get(key)

    def table(self, key: TableKey) -> TableVersion:
        return TableVersion(self[key])

    def __getitem__(self, key: TableKey | str) -> TableMetadata:
        content = self.contents.get(TableKey.parse(key) if isinstance(key, str) else key)
        assert isinstance(content, TableContent)
        return self.documents[content.metadata_location]

    def foreign_keys(self, table: str) -> list[ForeignKey]:
        return [each for each in constraints_of(self[table]).declared if isinstance(each, ForeignKey)]

    def children(self, table: str) -> list[str]:
        return [str(each) for each in constraints_of(self[table]).referenced_by]


class TestParse:
    @pytest.mark.parametrize(
        ("sql", "type_text"),
        [
            ("boolean", "boolean"),
            ("int", "int"),
            ("smallint", "int"),
            ("bigint", "long"),
            ("real", "float"),
            ("double precision", "double"),
            ("decimal(10, 2)", "decimal(10, 2)"),
            ("numeric(7)", "decimal(7, 0)"),
            ("date", "date"),
            ("time", "time"),
            ("timestamp", "timestamp"),
            ("timestamp with time zone", "timestamptz"),
            ("timestamptz", "timestamptz"),
            ("timestamp_ns", "timestamp_ns"),
            ("timestamptz_ns", "timestamptz_ns"),
            ("varchar", "string"),
            ("uuid", "uuid"),
            ("fixed(16)", "fixed[16]"),
            ("fixed[16]", "fixed[16]"),
            ("blob", "binary"),
            ("unknown", "unknown"),
            ("array<array<int>>", "list<list<int>>"),
            ("int[]", "list<int>"),
            ("map<string, decimal(3, 1)>", "map<string, decimal(3, 1)>"),
            ("struct(a int, b varchar[])", "struct<1: a: optional int, 3: b: optional list<string>>"),
        ],
    )
    def test_types(self, sql: str, type_text: str) -> None:
        [statement] = parse(f"create table t (x {sql})")
        assert isinstance(statement.wanted, CreateTable)
        assert str(statement.wanted.schema.find_field("x").field_type) == type_text

    def test_a_table(self) -> None:
        [statement] = parse(
            """create table if not exists shop.orders (
                id bigint, customer bigint not null references customers (id) on delete cascade,
                amount decimal(9, 2) default 1.5 check (amount > 0) comment 'in euros',
                primary key (id), constraint few check (count(*) over (partition by customer) <= 5)
            ) partitioned by (day(at), bucket(16, id) as b) comment 'all of them'
            with ('format-version' = 3, write.target-file-size-bytes = 1000)"""
        )
        wanted = statement.wanted
        assert isinstance(wanted, CreateTable)
        assert wanted.if_not_exists
        assert wanted.schema.identifier_field_names() == {"id"}
        assert [(each.name, each.required) for each in wanted.schema.fields] == [
            ("id", True),
            ("customer", True),
            ("amount", False),
        ]
        assert wanted.schema.find_field("amount").doc == "in euros"
        assert wanted.constraints == (
            ForeignKey("", ("customer",), TableKey.parse("customers"), ("id",), OnDelete.CASCADE),
            Check("", "amount > 0"),
            Cardinality("few", ("customer",), 0, 5),
        )
        assert [(each.source, each.transform, each.name) for each in wanted.partition_by] == [
            (("at",), "day", None),
            (("id",), "bucket[16]", "b"),
        ]
        assert wanted.properties == {"comment": "all of them", "write.target-file-size-bytes": "1000"}
        assert wanted.format_version == 3

    @pytest.mark.parametrize(
        ("condition", "bounds"),
        [
            ("<= 5", (0, 5)),
            ("< 5", (0, 4)),
            (">= 2", (2, None)),
            ("> 2", (3, None)),
            ("= 3", (3, 3)),
            ("between 1 and 5", (1, 5)),
        ],
    )
    def test_a_cardinality(self, condition: str, bounds: tuple[int, int | None]) -> None:
        [statement] = parse(f"alter table t add check (count(*) over (partition by a, b) {condition})")
        assert isinstance(statement.wanted, AlterTable)
        [change] = statement.wanted.changes
        assert change.constraint == Cardinality("", ("a", "b"), *bounds)  # type: ignore[union-attr]

    def test_statements_and_their_places(self) -> None:
        script = "-- first\ndrop table t; /* ; */ alter table a.b rename to c;\n  create view v as select ';' -- end\n;"
        drop, rename, view = parse(script)
        assert (str(drop.at), str(rename.at), str(view.at)) == ("2:1", "2:23", "3:3")
        assert drop.wanted == DropTable(TableKey.parse("t"))
        assert rename.wanted == RenameTable(TableKey.parse("a.b"), TableKey.parse("a.c"))
        assert view.wanted == CreateView(TableKey.parse("v"), "select ';'")
        assert view.text == "create view v as select ';'"

    def test_several_changes_of_one_table(self) -> None:
        [statement] = parse('alter table t add column "x y" int after a, drop b, rename column s.c to d')
        assert statement.wanted == AlterTable(
            TableKey.parse("t"),
            (
                AddColumn(("x y",), parse_type("int"), after="a"),
                DropColumn(("b",)),
                RenameColumn(("s", "c"), "d"),
            ),
        )

    def test_a_namespace(self) -> None:
        [statement] = parse("create schema if not exists a.b with properties ('owner' = 'ann')")
        assert statement.wanted == CreateNamespace(TableKey(("a",), "b"), {"owner": "ann"}, if_not_exists=True)

    @pytest.mark.parametrize(
        ("sql", "place", "what"),
        [
            ("select 1", "1:1", "does not change the schema"),
            ("drop table a;\ninsert into t values (1)", "2:1", "does not change the schema"),
            ("create table t (x int,)", "1:23", "a column is missing"),
            ("create table t (\n  x money)", "2:5", "no such type"),
            ("create table t (x int) more", "1:24", "should end here"),
            ("create table t (\n  x int check (a >\n  ))", "2:18", "cannot be read"),
            ("create table t (x varchar(10))", "1:26", "limited length"),
            ("create table t (x decimal)", "1:26", "needs its digits"),
            ("create table t (x decimal(40, 2))", "1:33", "not possible"),
            ("create table t (x int default now())", "1:31", "value is missing"),
            ("create table t (x int check ((select 1) > 0))", "1:30", "a subquery"),
            ("create table t (x int check (sum(x) > 0))", "1:30", "an aggregate"),
            ("create table t (x int check (x > random()))", "1:30", "another value each time"),
            ("create table t (x date check (x < current_date))", "1:31", "another value each time"),
            ("create table t (x timestamptz check (x < now()))", "1:38", "another value each time"),
            ("create table t (x int check (rank() over (order by x) > 0))", "1:30", "counts rows"),
            ("create table t (x int primary key, primary key (x))", "1:16", "twice"),
            ("create table t (x double primary key)", "1:16", "not exact"),
            ("create table t (x int, primary key (y))", "1:16", "no column"),
            ("create table t as select 1 as x", "1:16", "columns are missing"),
            ("create table t (x int) using parquet", "1:30", "Iceberg table"),
            ("drop table t cascade", "1:14", "goes along"),
            ("alter table t add primary key", "1:30", "( is missing"),
            ("alter table t frobnicate", "1:15", "no such change"),
            ("alter table t alter column x collate y", "1:30", "no such change"),
            ("create or replace table t (x int)", "1:19", "only a view"),
            ("create view v as", "1:17", "missing"),
            ("create table t (x int references p on delete set null)", "1:46", "on delete"),
            ("alter table t add partition field rot13(x)", "1:35", "no such transform"),
            ("create table t (x timestamp(6))", "1:28", "nothing in parentheses"),
            ("create table t (x time with time zone)", "1:24", "no zone"),
            ("create table t (x int, unique (x))", "1:31", "UNIQUE is not supported"),
            ("create table `t` (x int)", "1:14", "a name is missing"),
            ("create index i on t (x)", "1:8", "cannot be done"),
            ("alter view v rename to w", "1:7", "cannot be done"),
            ("create table t (x int) with (a = null)", "1:34", "has no value"),
            ('create table t ("a.b" int, a struct<b: int>)', "1:16", "columns of one table"),
            ("create table t (x timestamp check (x < localtimestamp))", "1:36", "another value each time"),
            ("create table t (x timestamp check (age(x) > interval 1 day))", "1:36", "another value each time"),
            ("create table t (x string check (x = current_user))", "1:33", "another value each time"),
        ],
    )
    def test_an_error_says_where(self, sql: str, place: str, what: str) -> None:
        with pytest.raises(UsageError, match=r"\(at ") as caught:
            parse(sql)
        assert what in caught.value.message
        line, column = place.split(":")
        assert (caught.value.fields["line"], caught.value.fields["column_number"]) == (int(line), int(column))

    def test_an_open_quotation_mark(self) -> None:
        with pytest.raises(UsageError, match="cannot be read"):
            parse("create table t (x int comment 'oh no)")


def parse_type(text: str) -> IcebergType:
    [statement] = parse(f"create table t (x {text})")
    assert isinstance(statement.wanted, CreateTable)
    return statement.wanted.schema.find_field("x").field_type


class TestTables:
    def test_however_many_statements_one_version(self) -> None:
        lake = PaperLake("create table t (a int, b int)")
        made = lake.apply(
            "alter table t add column c int; alter table t rename column a to z; alter table t alter z type bigint;"
            "alter table t drop column b; alter table t set tblproperties ('owner' = 'ann')"
        )
        [planned] = made.tables.values()
        assert planned.metadata.schema().column_names == ["z", "c"]
        assert isinstance(planned.metadata.schema().find_field("z").field_type, LongType)
        assert len(planned.metadata.schemas) == 2  # those between were never shown to anybody
        assert planned.metadata.properties["owner"] == "ann"
        assert len(planned.why) == 5

    def test_a_table_made_and_changed_in_one_script(self) -> None:
        made = PaperLake().plan("create table t (a int); alter table t add column b int; alter table t rename to u")
        [planned] = made.tables.values()
        assert (str(planned.key), planned.renamed_from) == ("default.u", None)
        assert [each.column_names for each in planned.metadata.schemas] == [["a", "b"]]

    def test_a_table_made_and_dropped_in_one_script_was_never_there(self) -> None:
        made = PaperLake().plan("create table t (a int); drop table t")
        assert not made.tables
        assert not made.dropped

    @pytest.mark.parametrize(
        "script",
        [
            "create table if not exists t (other string)",
            "drop table if exists u",
            "alter table if exists u add column x int",
            "alter table t add column if not exists A int",
            "alter table t drop column if exists b",
            "alter table t set tblproperties ('owner' = 'ann')",
            "alter table t rename to u; alter table u rename to t",
            "alter table t add column x int; alter table t drop column x",
            "alter table t alter column a comment 'x'; alter table t alter column a comment null",
        ],
    )
    def test_what_changes_nothing(self, script: str) -> None:
        lake = PaperLake("create table t (a int) with (owner = 'ann')")
        assert not lake.plan(script).tables

    def test_the_order_and_the_partitions(self) -> None:
        lake = PaperLake("create table t (id bigint, at timestamp, s string) partitioned by (day(at))")
        made = lake.apply(
            "alter table t replace partition field days(at) with hour(At);"
            "alter table t add partition field bucket(4, id);"
            "alter table t write ordered by s desc nulls first, truncate(3, s)"
        ).tables[TableKey.parse("t")]
        schema = made.metadata.schema()
        fields = [(each.name, str(each.transform)) for each in made.metadata.spec().fields]
        assert fields == [("at_hour", "hour"), ("id_bucket_4", "bucket[4]")]
        order = [(schema.find_column_name(each.source_id), str(each)) for each in made.metadata.sort_order().fields]
        assert [each for each, _ in order] == ["s", "s"]
        assert "DESC NULLS FIRST" in order[0][1]

    def test_properties_of_a_column_go_with_it(self) -> None:
        lake = PaperLake(
            """create table t (a int, b int, s struct<x: int>) with (
                'write.parquet.bloom-filter-enabled.column.a' = 'true', 'write.metadata.metrics.column.b' = 'none',
                'write.parquet.bloom-filter-enabled.column.s.x' = 'true', 'headwater.statistics.columns' = 'a,b, s.x',
                'about.ab' = 'kept')"""
        )
        changes = "alter table t rename column a to z; alter table t drop column b; alter table t rename column s to r"
        made = lake.apply(changes).tables[TableKey.parse("t")]
        about = {name: value for name, value in made.metadata.properties.items() if "column" in name or "ab" in name}
        assert about == {
            "write.parquet.bloom-filter-enabled.column.z": "true",
            "write.parquet.bloom-filter-enabled.column.r.x": "true",
            "headwater.statistics.columns": "z, r.x",
            "about.ab": "kept",
            "gc.enabled": "false",
        }

    def test_a_format_version_is_upgraded(self) -> None:
        lake = PaperLake("create table t (a int)")
        made = lake.apply(
            "alter table t set tblproperties ('format-version' = '3'); alter table t alter a set default 7"
        )
        metadata = made.tables[TableKey.parse("t")].metadata
        assert metadata.format_version == 3
        assert (metadata.schema().find_field("a").write_default, metadata.schema().find_field("a").initial_default) == (
            7,
            None,
        )


class TestConstraints:
    def test_a_foreign_key_changes_the_parent_too(self) -> None:
        lake = PaperLake("create table customers (id bigint primary key)")
        made = lake.apply("create table orders (id bigint, customer bigint references Customers)")
        assert {str(key) for key in made.tables} == {"default.customers", "default.orders"}
        assert lake.foreign_keys("orders") == [
            ForeignKey("orders_customer_fkey", ("customer",), TableKey.parse("customers"), ("id",))
        ]
        assert lake.children("customers") == ["default.orders"]
        made = lake.apply("alter table orders drop constraint orders_customer_fkey")
        assert {str(key) for key in made.tables} == {"default.customers", "default.orders"}
        assert lake.children("customers") == []

    def test_tables_may_refer_to_each_other_and_to_themselves(self) -> None:
        lake = PaperLake(
            "create table a (id int primary key, b int references b, up int references a);"
            "create table b (id int primary key, a int references a)"
        )
        assert lake.children("a") == ["default.a", "default.b"]
        assert lake.children("b") == ["default.a"]
        lake.apply("alter table a rename column id to key; alter table a rename to c")
        assert lake.children("c") == ["default.b", "default.c"]
        assert [(str(each.parent), each.parent_columns) for each in lake.foreign_keys("c")] == [
            ("default.b", ("id",)),
            ("default.c", ("key",)),
        ]
        lake.apply("drop table c; drop table b")

    def test_a_renamed_table_is_followed(self) -> None:
        lake = PaperLake(BANK)
        made = lake.apply("alter table customers rename to shop.clients; alter table orders rename to sales")
        assert {str(each.renamed_from) for each in made.tables.values()} == {"default.customers", "default.orders"}
        [key] = lake.foreign_keys("sales")
        assert str(key.parent) == "shop.clients"
        assert lake.children("shop.clients") == ["default.sales"]

    def test_a_renamed_table_keeps_its_place_and_identity(self) -> None:
        lake = PaperLake(BANK)
        before = lake["customers"]
        lake.apply("alter table customers rename to clients")
        after = lake["clients"]
        assert (after.location, after.table_uuid) == (before.location, before.table_uuid)
        assert after.properties["headwater.incarnation"] == before.properties["headwater.incarnation"]

    def test_a_renamed_column_is_followed(self) -> None:
        lake = PaperLake(BANK)
        lake.apply('alter table customers rename column ID to number; alter table orders rename amount to "total €"')
        [key] = lake.foreign_keys("orders")
        assert key.parent_columns == ("number",)
        [check] = [each for each in constraints_of(lake["orders"]).declared if isinstance(each, Check)]
        assert check.expression == '"total €" > 0'

    def test_names_of_constraints(self) -> None:
        lake = PaperLake(BANK)
        lake.apply("alter table orders add check (orders.AMOUNT < 9), add constraint mine check (id > 0)")
        assert [each.name for each in constraints_of(lake["orders"]).declared] == [
            "orders_customer_fkey",
            "orders_check",
            "orders_check_2",
            "mine",
        ]
        assert constraints_of(lake["orders"]).declared[2] == Check("orders_check_2", '"amount" < 9')

    @pytest.mark.parametrize(
        "script",
        [
            "drop table orders; drop table customers",
            "drop table customers; drop table orders",
            "drop table customers; alter table orders drop constraint orders_customer_fkey",
        ],
    )
    def test_a_parent_goes_with_its_children(self, script: str) -> None:
        assert TableKey.parse("customers") in PaperLake(BANK).plan(script).dropped

    def test_which_rows_must_be_looked_at(self) -> None:
        lake = PaperLake(BANK)
        asked = {
            "alter table customers add check (name <> '')": True,
            "alter table customers alter name set not null": True,
            "alter table customers drop primary key": None,
            "alter table customers add column x int": False,
            "alter table orders drop constraint orders_check": False,
            "alter table orders drop primary key; alter table orders add primary key (id, customer)": True,
        }
        for script, wanted in asked.items():
            if wanted is None:
                with pytest.raises(UsageError):
                    lake.plan(script)
                continue
            table = script.split()[2]
            assert lake.plan(script).tables[TableKey.parse(table)].check_rows is wanted, script


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("create table orders (x int)", "already"),
        ("create table Orders (x int)", "capitals alone"),
        ("create table nowhere.t (x int)", "CREATE NAMESPACE nowhere"),
        ("drop table missing", "no table default.missing"),
        ("drop table order", "did you mean default.orders"),
        ("drop view orders", "is a table, not a view"),
        ("alter table missing add column x int", "no table"),
        ("alter table orders rename to customers", "already"),
        ("drop table orders; create table orders (x int)", "one commit cannot"),
        ("alter table orders rename to o; create table orders (x int)", "one commit cannot"),
        ("alter table orders add column amount int", "already exists"),
        ("alter table orders drop column missing", "no column missing"),
        ("alter table customers drop column id", "identifier uses it"),
        ("alter table orders alter amount type smallint; alter table orders alter id type int", "cannot become"),
        ("alter table customers alter id drop not null", "primary key"),
        ("alter table customers add primary key (name)", "has the primary key"),
        ("alter table customers drop primary key", "no primary key"),
        ("alter table orders add foreign key (amount) references customers (name)", "primary key is id"),
        ("alter table orders add foreign key (amount) references missing", "is no table"),
        ("alter table orders add foreign key (amount, id) references customers (id)", "primary key is id"),
        ("create table t (c string references customers)", "is string, and id"),
        ("alter table orders add check (missing > 0)", "which is no column"),
        ("alter table orders add foreign key (missing) references customers", "which is no column"),
        ("alter table orders add constraint orders_check check (id > 0)", "has a constraint"),
        ("alter table orders drop constraint missing", "has no constraint"),
        ("alter table orders add check (count(*) over (partition by amount) >= 1)", "no foreign key"),
        ("alter table orders set tblproperties ('headwater.constraints' = '')", "kept by the lake"),
        ("alter table orders unset tblproperties ('headwater.constraints')", "kept by the lake"),
        ("create table t (x int) with ('headwater.incarnation' = 'x')", "kept by the lake"),
        ("create table t (x int default 5)", "format version 3"),
        ("alter table orders alter amount set default 5", "format version 3"),
        ("create table t (x int default 1.5) with ('format-version' = '3')", "does not fit"),
        ("create table t (x bigint default '1.5') with ('format-version' = '3')", "does not fit"),
        ("create table t (x double default 1e400) with ('format-version' = '3')", "does not fit"),
        ("create table t (x double default 'Infinity') with ('format-version' = '3')", "does not fit"),
        ("alter table orders drop partition field day(x)", "no partition field"),
        ("drop namespace shop; create table shop.t (x int)", "not there"),
    ],
)
def test_what_cannot_be(script: str, what: str) -> None:
    lake = PaperLake(BANK)
    with pytest.raises(UsageError) as caught:
        lake.plan(script)
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("script", "what"),
    [
        ("drop table customers", "default.orders refers to it"),
        ("alter table customers rename to c; drop table c", "default.orders refers to it"),
        ("alter table orders drop column amount", "orders_check speaks of it"),
        ("alter table orders drop column customer", "orders_customer_fkey speaks of it"),
        ("alter table orders set tblproperties ('gc.enabled' = 'true')", "stays false"),
        ("drop namespace default", "is in it"),
        ("drop namespace shop; alter table orders add column x int", "a script of its own"),
    ],
)
def test_what_would_be_unsafe(script: str, what: str) -> None:
    lake = PaperLake(BANK)
    with pytest.raises(RefusedError) as caught:
        lake.plan(script)
    assert what in str(caught.value)


def test_an_error_of_a_statement_says_where_it_stands() -> None:
    with pytest.raises(HeadwaterError, match=r"statement at 2:3") as caught:
        PaperLake(BANK).plan("alter table orders add column x int;\n  alter table orders drop column nothing")
    assert caught.value.fields["line"] == 2


def test_a_struct_that_a_check_speaks_of_stays_what_it_is() -> None:
    lake = PaperLake("create table t (s struct<a: int, b: int>, check (s.a > 0))")
    for script in (
        "alter table t drop column s.a",
        "alter table t rename column s.a to c",
        "alter table t drop column s",
    ):
        with pytest.raises(RefusedError, match="t_check speaks of it"):
            lake.plan(script)
    lake.apply("alter table t rename column s to r")
    assert constraints_of(lake["t"]).declared == (Check("t_check", '"r"."a" > 0'),)


def test_a_script_that_is_applied_to_its_own_outcome_is_followed() -> None:
    """The list of a parent is made up anew from what is known, and keeps whom the script does not speak of."""
    lake = PaperLake(BANK + "create table bills (id int, customer bigint references customers)")
    assert lake.children("customers") == ["default.bills", "default.orders"]
    lake.apply("drop table bills")
    assert lake.children("customers") == ["default.orders"]
    lake.apply("create table notes (customer bigint references customers)")
    assert lake.children("customers") == ["default.notes", "default.orders"]


def test_nothing_of_the_standing_is_changed() -> None:
    lake = PaperLake(BANK)
    before = {key: replace(each) for key, each in lake.contents.items()}
    documents = {key: each.model_copy(deep=True) for key, each in lake.documents.items()}
    lake.plan("alter table customers rename to c; alter table orders add column x int; drop table orders")
    assert lake.contents == before
    assert lake.documents == documents


def test_the_script_of_a_column_with_a_dot_in_its_name() -> None:
    lake = PaperLake('create table t ("a.b" int, c struct<d: int>) partitioned by ("a.b", c.d)')
    assert 'PARTITIONED BY ("a.b", "c"."d")' in table_ddl(TableKey.parse("t"), lake["t"])


def test_a_moment_is_written_as_in_sql() -> None:
    lake = PaperLake("create table t (x timestamp default '2026-11-15 09:30:00') with ('format-version' = '3')")
    assert "DEFAULT '2026-11-15T09:30:00'" in table_ddl(TableKey.parse("t"), lake["t"])
