"""Files are left out only when they cannot matter: pruned answers against those of DuckDB over plain tables."""

from __future__ import annotations

import datetime as dt
import json
import math
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression, EqualTo, NotNull, Or, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
)
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from headwater.catalog.model import TableKey
from headwater.query import Pending, predicates, protocol
from headwater.query.conditions import EVERYTHING, all_of, any_of, compare, one_of
from headwater.query.predicates import needed
from headwater.tables.properties import NAME_MAPPING
from tests.unit.query_world import QueryWorld, folder_world

SCHEMA = Schema(
    NestedField(1, "i", IntegerType()),
    NestedField(2, "l", LongType()),
    NestedField(3, "d", DoubleType()),
    NestedField(4, "s", StringType()),
    NestedField(5, "b", BooleanType()),
    NestedField(6, "dt", DateType()),
    NestedField(7, "ts", TimestampType()),
    NestedField(8, "tz", TimestamptzType()),
    NestedField(9, "n", DecimalType(9, 2)),
)
ARROW = pa.schema(
    [
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("dt", pa.date32()),
        ("ts", pa.timestamp("us")),
        ("tz", pa.timestamp("us", "UTC")),
        ("n", pa.decimal128(9, 2)),
    ]
)
SPECS: tuple[tuple[tuple[int, Transform[Any, Any]], ...], ...] = (
    (),
    ((1, IdentityTransform()),),
    ((4, IdentityTransform()),),
    ((5, IdentityTransform()),),
    ((2, BucketTransform(4)),),
    ((4, TruncateTransform(1)),),
    ((1, TruncateTransform(3)),),
    ((6, MonthTransform()),),
    ((7, DayTransform()),),
    ((8, DayTransform()), (9, IdentityTransform())),
    ((4, BucketTransform(3)), (1, IdentityTransform())),
)
VALUES: dict[str, list[Any]] = {
    "i": [None, -3, 0, 1, 2, 7, 2**31 - 1],
    "l": [None, -(2**40), 0, 1, 5, 2**53 + 1],
    "d": [None, math.nan, -math.inf, -0.0, 0.0, 1.5, math.inf, 1e300],
    "s": [None, "", "a", "ab", "abc", "B", "é", "it's", "zz", "5", "%"],
    "b": [None, True, False],
    "dt": [None, dt.date(1969, 12, 31), dt.date(2020, 1, 31), dt.date(2020, 2, 1), dt.date(2024, 2, 29)],
    "ts": [None, -1, 1_577_836_800_000_000, 1_577_880_000_000_000],
    "tz": [None, dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2020, 1, 1, 23, 30, tzinfo=dt.UTC)],
    "n": [None, Decimal("-1.00"), Decimal("0.00"), Decimal("1.50"), Decimal("9999999.99")],
}
CONSTANTS: dict[str, list[str]] = {
    "i": ["0", "1", "7", "-3", "2147483647", "3000000000", "1.5", "'2'", "NULL", "1::BIGINT"],
    "l": ["0", "5", "1", "9007199254740993", "-1099511627776", "1e10", "NULL"],
    "d": ["0", "-0.0", "1.5", "'nan'::DOUBLE", "'inf'::DOUBLE", "'-inf'::DOUBLE", "1e300", "NULL"],
    "s": ["''", "'a'", "'ab'", "'b'", "'é'", "'it''s'", "'zz'", "'5'", "5", "NULL"],
    "b": ["true", "false", "NULL"],
    "dt": ["'2020-02-01'", "DATE '1969-12-31'", "'2020-01-31 00:00:01'::TIMESTAMP", "'infinity'", "NULL"],
    "ts": ["'2020-01-01'", "TIMESTAMP '2020-01-01 12:00:00'", "'1970-01-01'", "'-infinity'", "NULL", "now()"],
    "tz": ["'2020-01-01'", "'2020-01-01 23:30:00+00'", "'2020-01-02 00:00:00+02'", "now()", "NULL"],
    "n": ["0", "1.5", "1.50", "1.499", "-1", "9999999.99", "12345678901.5", "'1.5'", "NULL"],
}
COMPARISONS = ("=", "<", "<=", ">", ">=", "<>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
ROUNDS = 120


class Fuzz:
    """Random rows, specs and conditions, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def rows(self, count: int) -> pa.Table:
        picked = {name: [self.random.choice(values) for _ in range(count)] for name, values in VALUES.items()}
        return pa.table({name: pa.array(picked[name], ARROW.field(name).type) for name in ARROW.names})

    def narrow_rows(self, count: int) -> pa.Table:
        """Few values in each column, so that bounds are tight."""
        few = {name: self.random.sample(values, min(2, len(values))) for name, values in VALUES.items()}
        picked = {name: [self.random.choice(values) for _ in range(count)] for name, values in few.items()}
        return pa.table({name: pa.array(picked[name], ARROW.field(name).type) for name in ARROW.names})

    def spec(self) -> PartitionSpec:
        chosen = self.random.choice(SPECS)
        names = {field.field_id: field.name for field in SCHEMA.fields}
        return PartitionSpec(
            *(
                PartitionField(source, 1000 + place, transform, f"{names[source]}_{place}")
                for place, (source, transform) in enumerate(chosen)
            )
        )

    def condition(self, table: str, depth: int = 2) -> str:
        if depth and self.random.random() < 0.5:
            one, other = self.condition(table, depth - 1), self.condition(table, depth - 1)
            return self.random.choice([f"({one} AND {other})", f"({one} OR {other})", f"(NOT {one})"])
        name = self.random.choice(ARROW.names)
        column, constant = f"{table}.{name}", self.random.choice(CONSTANTS[name])
        other = self.random.choice(CONSTANTS[name])
        choices = [
            f"{column} {self.random.choice(COMPARISONS)} {constant}",
            f"{constant} {self.random.choice(COMPARISONS[:5])} {column}",
            f"{column} IN ({constant}, {other})",
            f"{column} NOT IN ({constant}, {other})",
            f"{column} BETWEEN {constant} AND {other}",
            f"{column} IS NULL",
            f"{column} IS NOT NULL",
            f"coalesce({column}::VARCHAR, 'x') = {constant}::VARCHAR",
        ]
        if name == "s":
            pattern = self.random.choice(["a%", "%", "ab%c", "_b", "B%", "é%", "it''s%", "\\%%"])
            choices += [f"{column} {self.random.choice(['LIKE', 'NOT LIKE', 'ILIKE'])} '{pattern}'"]
            choices += [f"starts_with({column}, {constant}::VARCHAR)", f"{column} COLLATE NOCASE = {constant}::VARCHAR"]
        if name == "i":
            choices += [f"{column} + 1 = {constant}", f"abs({column}) > {constant}"]
        if name in ("ts", "tz"):
            choices += [f"{column}::DATE = '2020-01-01'", f"date_trunc('day', {column}) = '2020-01-01'"]
        if name == "b":
            choices += [column, f"NOT {column}"]
        return self.random.choice(choices)

    def query(self) -> str:
        where, having = self.condition("a"), self.condition("b")
        order = ", ".join(ARROW.names)
        return self.random.choice(
            [
                f"SELECT * FROM t a WHERE {where} ORDER BY {order}",
                f"SELECT count(*), sum(a.i), min(a.s), max(a.tz) FROM t a WHERE {where}",
                f"SELECT a.i, b.i, b.s FROM t a LEFT JOIN u b ON a.i = b.i AND {having} WHERE {where}",
                f"SELECT a.i, b.i, b.s FROM t a FULL JOIN u b ON a.i = b.i AND {having} AND {where}",
                f"SELECT a.i, b.l FROM t a RIGHT JOIN t b ON a.l = b.l AND {where} WHERE {having}",
                f"SELECT count(*) FROM t a WHERE {where} AND NOT EXISTS (FROM u b WHERE b.i = a.i AND {having})",
                f"SELECT a.i FROM t a WHERE a.i IN (SELECT b.i FROM t b WHERE {having}) OR {where}",
                f"WITH x AS (FROM t a WHERE {where}) SELECT (SELECT count(*) FROM x), count(*) FROM u b WHERE {having}",
                f"SELECT a.i, sum(a.d) OVER (PARTITION BY a.i) FROM t a WHERE {where}",
                "SELECT a.s, count(*) FROM t a GROUP BY a.s HAVING a.s > 'a' ORDER BY 1",
                f"SELECT a.i FROM t a WHERE {where} UNION ALL SELECT b.i FROM t b WHERE {having}",
                f"SELECT * FROM t a WHERE {where} ORDER BY {order} LIMIT 3",
            ]
        )


def plain(tables: dict[str, pa.Table]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={"threads": "2"})
    connection.execute("SET TimeZone = 'UTC'")
    for name, rows in tables.items():
        connection.register("given", rows)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        connection.unregister("given")
    return connection


def comparable(rows: pa.Table) -> list[str]:
    """Rows in an order of their own; sums of floats of any order are rounded."""
    return sorted(repr([_rounded(value) for value in row.values()]) for row in rows.to_pylist(maps_as_pydicts=None))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else f"{value:.9g}" if value else "0"
    return value


@pytest.mark.parametrize("seed", range(6))
def test_pruning_never_changes_an_answer(tmp_path: Path, seed: int) -> None:
    fuzz = Fuzz(seed)
    world = folder_world(tmp_path / "lake")
    pieces: dict[str, list[pa.Table]] = {"t": [], "u": []}
    for name, found in pieces.items():
        found += [fuzz.narrow_rows(fuzz.random.randrange(1, 12)) for _ in range(6)] + [fuzz.rows(10)]
        # A name mapping makes all of its files copied instead of read natively.
        mapping = {NAME_MAPPING: SCHEMA.name_mapping.model_dump_json()} if fuzz.random.random() < 0.3 else {}
        version = fuzz.random.choice([2, 3])
        world.table(name, SCHEMA, *found, spec=fuzz.spec(), format_version=version, properties=mapping)
    oracle = plain({name: pa.concat_tables(found) for name, found in pieces.items()})
    for _ in range(ROUNDS // 6):
        sql = fuzz.query()
        try:
            expected = oracle.execute(sql).to_arrow_table()
        except duckdb.Error:
            continue  # such as a text that is no number
        assert comparable(world.run(sql)) == comparable(expected), sql


SKIPPED = [
    # the condition, and how many of the four files it needs: i is 0-9, 10-19, 20-29, NULL
    ("true", 4),
    ("i = 5", 1),
    ("i < 10", 1),
    ("9 >= i", 1),
    ("i BETWEEN 5 AND 15", 2),
    ("i IN (1, 25)", 2),
    ("i IS NULL", 1),
    ("i IS NOT NULL", 3),
    ("i = 5 OR i IS NULL", 2),
    ("i + 1 = 6", 1),
    ("i > 100", 0),
    ("i = 5 AND i = 15", 0),
    ("NOT (i < 20)", 1),
    ("s = 'k12'", 1),
    ("s LIKE 'k0%'", 1),
    ("starts_with(s, 'k2')", 1),
    ("i % 2 = 0", 4),
    ("random() < 2", 4),
    ("d > 100", 1),
    ("d >= 'nan'::DOUBLE", 1),
    ("i = (SELECT 5)", 4),
]


@pytest.fixture
def world(tmp_path: Path) -> QueryWorld:
    world = folder_world(tmp_path / "lake")
    schema = Schema(
        NestedField(1, "i", IntegerType()), NestedField(2, "s", StringType()), NestedField(3, "d", DoubleType())
    )
    key = world.table("t", schema)
    for start in (0, 10, 20):
        numbers = range(start, start + 10)
        floats = [math.nan if each == 15 else float(each) for each in numbers]
        world.append(
            key,
            pa.table({"i": pa.array(numbers, pa.int32()), "s": [f"k{each:02}" for each in numbers], "d": floats}),
        )
    nothing = {"i": pa.nulls(3, pa.int32()), "s": pa.nulls(3, pa.string()), "d": pa.nulls(3, pa.float64())}
    world.append(key, pa.table(nothing))
    return world


def files_of(world: QueryWorld, sql: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many files a query planned to read, by table."""
    read: dict[str, int] = {}
    plan = protocol.plan_scan  # type: ignore[attr-defined]

    def spy(files: Any, metadata: Any, **options: Any) -> Any:
        found = plan(files, metadata, **options)
        read[metadata.location.rsplit("/", 1)[-1]] = len(found.tasks)
        return found

    monkeypatch.setattr(protocol, "plan_scan", spy)
    world.run(sql)
    return read


@pytest.mark.parametrize(("condition", "files"), SKIPPED)
def test_what_a_condition_lets_us_leave_out(
    world: QueryWorld, condition: str, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert files_of(world, f"SELECT * FROM t WHERE {condition}", monkeypatch) == {"t": files}


@pytest.mark.parametrize(
    ("sql", "files"),
    [
        ("SELECT * FROM t a LEFT JOIN t b ON a.s = b.s AND b.i = 5 WHERE a.i = 15", 2),
        ("SELECT * FROM t a LEFT JOIN t b ON a.i = b.i AND a.i = 5", 4),
        ("SELECT * FROM t a JOIN t b ON a.i = b.i WHERE a.i = 5", 1),
        ("SELECT * FROM t WHERE i = 5 UNION ALL SELECT * FROM t WHERE i = 25", 2),
        ("WITH x AS (SELECT * FROM t) SELECT * FROM x WHERE i = 5", 1),
        ("SELECT i, count(*) FROM t GROUP BY i HAVING i = 5", 1),
        ("SELECT * FROM t WHERE i = 5 ORDER BY i LIMIT 1", 1),
        ("SELECT * FROM (SELECT *, row_number() OVER () AS r FROM t) WHERE i = 5", 4),
        ("SELECT count(*) FROM t WHERE false", 0),
        ("EXPLAIN SELECT * FROM t WHERE i = 5", 1),
    ],
)
def test_what_a_query_lets_us_leave_out(
    world: QueryWorld, sql: str, files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outer joins keep the side that they must, and a table that is named twice keeps what either scan needs."""
    assert files_of(world, sql, monkeypatch) == {"t": files}


@pytest.mark.parametrize(
    "condition",
    ["d > 100", "d >= 50", "d = 'nan'::DOUBLE", "d < 'nan'::DOUBLE", "d IN ('nan'::DOUBLE, 7)", "d < 0 OR d > 5"],
)
def test_nan_is_greater_than_the_bounds_of_its_row_group(tmp_path: Path, condition: str) -> None:
    """DuckDB's Parquet reader alone would skip the row group, by bounds that leave NaN out."""
    world = folder_world(tmp_path / "lake")
    rows = pa.table({"d": [1.0, math.nan, 2.0]})
    world.table("t", Schema(NestedField(1, "d", DoubleType())), rows)
    sql = f"SELECT d FROM t WHERE {condition}"
    assert comparable(world.run(sql)) == comparable(plain({"t": rows}).execute(sql).to_arrow_table())


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize("condition", ["= '{}'", ">= '{}'", "<= '{}'", "IN ('{}', 2)", "> '{}'", "< '{}'"])
@pytest.mark.parametrize("bound", ["inf", "-inf"])
def test_infinity_is_a_number_like_others(tmp_path: Path, kind: str, condition: str, bound: str) -> None:
    world = folder_world(tmp_path / "lake")
    arrow, iceberg = (pa.float32(), FloatType()) if kind == "FLOAT" else (pa.float64(), DoubleType())
    rows = pa.table({"f": pa.array([math.inf, -math.inf, 1.0, 3.4e38], arrow)})
    key = world.table("t", Schema(NestedField(1, "f", iceberg)), *(rows.slice(place, 1) for place in range(4)))
    assert len(world.paths(key)) == 4
    sql = f"SELECT f FROM t WHERE f {condition.format(bound)}"
    assert comparable(world.run(sql)) == comparable(plain({"t": rows}).execute(sql).to_arrow_table())


@pytest.mark.parametrize("value", [math.inf, -math.inf])
@pytest.mark.parametrize(("kind", "name"), [(FloatType(), "FLOAT"), (DoubleType(), "DOUBLE")])
def test_infinity_is_no_bound(value: float, kind: Any, name: str) -> None:
    constant = {"type": {"id": name}, "is_null": False, "value": value}
    for comparison in ("COMPARE_EQUAL", "COMPARE_LESSTHANOREQUALTO", "COMPARE_GREATERTHAN"):
        assert compare(comparison, NestedField(1, "f", kind), constant) is EVERYTHING


@pytest.mark.parametrize(("shape", "count"), [("IN", 150), ("IN", 5000), ("OR", 150), ("OR", 700), ("mixed", 300)])
def test_long_lists(world: QueryWorld, shape: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of any length is answered, and what it lets us leave out is left out as long as it pays."""
    numbers = range(12, 12 + 7 * count, 7)
    condition = {
        "IN": f"i IN ({', '.join(map(str, numbers))})",
        "OR": " OR ".join(f"i = {each}" for each in numbers),
        "mixed": " OR ".join(f"(i = {each} AND d < {each + 1})" for each in numbers),
    }[shape]
    sql = f"SELECT i FROM t WHERE {condition}"
    assert world.fetch(sql + " ORDER BY i") == [(12,), (19,), (26,)]
    if shape != "mixed":
        assert files_of(world, sql, monkeypatch) == {"t": 2}


EVERYTHING_ELSE = NotNull(term=Reference("s"))


def levels(condition: BooleanExpression) -> int:
    return 1 + max(levels(condition.left), levels(condition.right)) if isinstance(condition, And | Or) else 1


def test_conditions_are_joined_in_few_levels() -> None:
    conditions: list[BooleanExpression] = [EqualTo(term=Reference("i"), value=literal(each)) for each in range(1000)]
    assert levels(any_of([*conditions, EVERYTHING_ELSE])) == levels(all_of(conditions)) == 11
    assert any_of(conditions[:1]) == all_of(conditions[:1]) == conditions[0]


def test_of_many_values_the_least_and_the_greatest_count() -> None:
    field = NestedField(1, "i", IntegerType())
    constants = [{"type": {"id": "INTEGER"}, "is_null": False, "value": each} for each in range(900, 300, -1)]
    found = one_of(field, [*constants, {"type": {"id": "INTEGER"}, "is_null": True}])
    assert str(found) == str(
        And(
            compare("COMPARE_GREATERTHANOREQUALTO", field, constants[-1]),
            compare("COMPARE_LESSTHANOREQUALTO", field, constants[0]),
        )
    )


@pytest.mark.parametrize(("limit", "most"), [("MOST_COMPARISONS", 5), ("MOST_LEVELS", 3)])
def test_a_condition_that_costs_more_than_it_saves_is_dropped(
    limit: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"c1": NestedField(1, "c1", IntegerType()), "c4": NestedField(4, "c4", StringType())}
    plan = plan_of("SELECT * FROM p WHERE (c1 = 1 AND c4 = 'x') OR (c1 = 2 AND c4 > 'y') OR (c1 > 3 AND c4 = 'z')")
    assert needed(plan, {"p": fields})["p"].rows != AlwaysTrue()
    monkeypatch.setattr(predicates, limit, most)
    assert needed(plan, {"p": fields})["p"].rows == AlwaysTrue()


def test_a_plan_that_is_nested_too_deeply_is_no_plan(world: QueryWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> Any:
        raise RecursionError

    monkeypatch.setattr(protocol, "needed", lost)
    assert world.fetch("SELECT i FROM t WHERE i = 5") == [(5,)]


def test_pending_rows_are_not_pruned(world: QueryWorld) -> None:
    rows = pa.table({"i": pa.array([5, 500], pa.int32()), "s": ["x", "y"], "d": [0.0, 1.0]})
    pending = Pending(rows={TableKey.parse("t"): rows})
    assert world.fetch("SELECT s FROM t WHERE i = 500", pending=pending) == [("y",)]
    assert world.fetch("SELECT s FROM t WHERE i = 5 ORDER BY s", pending=pending) == [("k05",), ("x",)]


def plan_of(sql: str) -> Any:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE p (c1 INTEGER, c4 VARCHAR)")
    found = connection.execute("SELECT json_serialize_plan(?, optimize := true)", [sql]).fetchone()
    assert found is not None
    return json.loads(found[0])


@pytest.mark.parametrize(
    ("sql", "rows", "columns"),
    [
        ("SELECT c1 FROM p", AlwaysTrue(), {"c1"}),
        ("SELECT c4 FROM p WHERE c1 % 2 = 0", AlwaysTrue(), {"c1", "c4"}),
        ("SELECT 1", AlwaysFalse(), set()),
        ("SELECT c1 FROM p WHERE c1 % 2 = 0 UNION ALL SELECT 1", AlwaysTrue(), {"c1"}),
    ],
)
def test_what_is_not_understood_keeps_everything(sql: str, rows: BooleanExpression, columns: set[str]) -> None:
    fields = {"c1": SCHEMA.find_field("i"), "c4": SCHEMA.find_field("s")}
    found = needed(plan_of(sql), {"p": fields})["p"]
    assert found.rows == rows
    assert set(found.columns) == columns


def test_now_is_one_moment_for_the_plan_and_the_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else rows between two moments would be left out by the one and asked for by the other."""
    world = folder_world(tmp_path / "lake")
    stamp = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    world.table("t", Schema(NestedField(1, "tz", TimestamptzType())), pa.table({"tz": [stamp]}))
    seen: list[str] = []

    def spy(plan: Any, stand_ins: Any) -> Any:
        found = needed(plan, stand_ins)
        seen.extend(str(each.rows) for each in found.values())
        return found

    monkeypatch.setattr(protocol, "needed", spy)
    ((now,),) = world.fetch("SELECT now() FROM t WHERE tz <= now()")
    microseconds = (now - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    assert len(seen) == 1
    assert str(microseconds) in seen[0]
