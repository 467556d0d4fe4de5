"""Filters settled on values of their columns, and what they leave out: a null is never a match, a row never lost."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg import expressions
from pyiceberg.expressions import AlwaysFalse, BooleanExpression
from pyiceberg.expressions.literals import literal
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    UUIDType,
)

from headwater.tables.filters import settle_filter
from headwater.tables.model import Edit, TableFile, TableUsageError, TableVersion
from headwater.tables.operations import CollectingSink, append, delete
from headwater.tables.parquet import write_rows
from headwater.tables.partitions import AddPartitionField
from headwater.tables.read import read_task
from headwater.tables.scan import plan_scan
from headwater.tables.snapshot import stage_snapshot
from tests.fixtures.engines import by_duckdb, rows_of
from tests.fixtures.tables import TableWorld

# PyIceberg's predicates take positional arguments, which its types do not know.
ex: Any = expressions
INF, NAN = math.inf, math.nan
OPERATORS: dict[str, Any] = {
    "=": ex.EqualTo,
    "!=": ex.NotEqualTo,
    "<": ex.LessThan,
    "<=": ex.LessThanOrEqual,
    ">": ex.GreaterThan,
    ">=": ex.GreaterThanOrEqual,
}
COMPARE: dict[str, Any] = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
SINGLE = pa.scalar(0.1, pa.float32()).as_py()
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
# A type, values of a column, and what it is compared with, that lies on, between and beyond its values.
COLUMNS: list[tuple[IcebergType, list[Any], list[Any]]] = [
    (IntegerType(), [INT_MIN, -1, 0, 1, INT_MAX], [INT_MIN - 1, 2**40, -(2**70), 1, Decimal("0.5"), Decimal("1.00")]),
    (LongType(), [-(2**63), 0, 2**63 - 1], [2**63, -(2**63) - 1, 10**30, 0, Decimal("9223372036854775807.5")]),
    (FloatType(), [-INF, -1.0, -0.0, 0.0, SINGLE, INF, NAN], [INF, -INF, 1e300, -1e300, 0.0, -0.0, 10**400, 7]),
    (DoubleType(), [-INF, -1.0, -0.0, 0.0, 0.1, INF, NAN], [INF, -INF, 0.0, -0.0, 0.1, -(10**400), 2]),
    (
        DecimalType(5, 2),
        [Decimal("-999.99"), Decimal("0.00"), Decimal("1.23"), Decimal("999.99")],
        [Decimal("1000.00"), Decimal("-999.995"), Decimal("1.234"), Decimal("1.2"), 1, Decimal("999.999"), 10**9],
    ),
]


def world_with(world: TableWorld, kind: IcebergType, values: list[Any], transform: str | None) -> TableVersion:
    """A table of each value and a null; the first ones share a file where the partition lets them."""
    schema = Schema(NestedField(1, "c", kind), NestedField(2, "x", LongType()))
    spec = [AddPartitionField("c", transform)] if transform else []
    table = world.create(schema, spec=spec)  # type: ignore[arg-type]
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    numbered = list(enumerate([*values, None]))
    for some in (numbered[:2], numbered[2:-1], numbered[-1:], numbered[:1] + numbered[-1:]):
        rows = pa.Table.from_pylist([{"c": value, "x": place} for place, value in some], schema=arrow)
        table = world.commit(append(world.staging(), table, rows))
    return table


def matching(world: TableWorld, table: TableVersion, where: BooleanExpression) -> list[int]:
    plan = plan_scan(world.files, table.metadata, row_filter=where)
    batches = [batch for task in plan.tasks for batch in read_task(world.files, task, plan=plan, row_filter=where)]
    return sorted(x for batch in batches for x in batch.column("x").to_pylist())


@pytest.mark.proves("tables/write")
@pytest.mark.parametrize("transform", [None, "identity"])
@pytest.mark.parametrize(("kind", "values", "others"), COLUMNS, ids=[str(each[0]) for each in COLUMNS])
def test_comparisons_mean_what_they_say(
    world: TableWorld, kind: IcebergType, values: list[Any], others: list[Any], transform: str | None
) -> None:
    """Pruned, read, and deleted: always the rows for which Python says so, and never one with a null."""
    table = world_with(world, kind, values, transform)
    places = [*range(len(values)), 0]
    total = sorted([*places, len(values), len(values)])
    for other in others:
        for name, operator in OPERATORS.items():
            where = operator("c", other)
            expected = sorted(each for each in places if COMPARE[name](values[each], other))
            assert matching(world, table, where) == expected, f"{name} {other}"
            staged = delete(world.staging(), table, where)
            world.files.write(staged.files)
            left = world.rows(TableVersion(staged.metadata), columns=["x"])
            kept = sorted(left["x"].to_pylist()) if left.num_rows else []
            assert kept == sorted(_without(total, expected)), f"DELETE {name} {other}"


def _without(total: list[int], gone: list[int]) -> list[int]:
    left = list(total)
    for each in gone:
        left.remove(each)
    return left


@pytest.mark.parametrize(("kind", "values", "others"), COLUMNS, ids=[str(each[0]) for each in COLUMNS])
def test_sets_mean_what_they_say(world: TableWorld, kind: IcebergType, values: list[Any], others: list[Any]) -> None:
    table = world_with(world, kind, values, "identity")
    places = [*range(len(values)), 0]
    for some in (others[:3], others[2:5], others, others[:2]):
        inside = sorted(each for each in places if any(values[each] == other for other in some))
        assert matching(world, table, ex.In("c", some)) == inside
        assert matching(world, table, ex.NotIn("c", some)) == sorted(_without(places, inside))
        assert matching(world, table, ex.Not(ex.In("c", some))) == sorted(_without(places, inside))


def test_a_uuid_is_found_in_its_partition(world: TableWorld) -> None:
    values = [UUID(int=7), UUID(int=2**127), UUID(int=2**128 - 1)]
    schema = Schema(NestedField(1, "c", UUIDType()), NestedField(2, "x", LongType()))
    table = world.create(schema, spec=[AddPartitionField("c")])  # type: ignore[arg-type]
    rows = pa.table({"c": pa.array([each.bytes for each in values], pa.binary(16)), "x": [0, 1, 2]})
    table = world.commit(append(world.staging(), table, rows))
    for name, operator in OPERATORS.items():
        expected = [place for place, value in enumerate(values) if COMPARE[name](value.bytes, values[1].bytes)]
        assert matching(world, table, operator("c", values[1])) == expected, name
        assert matching(world, table, operator("c", str(values[1]))) == expected, name
    assert matching(world, table, ex.In("c", {values[0], values[2]})) == [0, 2]


@pytest.mark.parametrize("width", [3, 7, 10, 1000])
@pytest.mark.parametrize(("kind", "smallest"), [(IntegerType(), INT_MIN), (LongType(), -(2**63))])
def test_numbers_that_wrap_around_when_truncated(
    world: TableWorld, width: int, kind: IcebergType, smallest: int
) -> None:
    values = [smallest, smallest + 1, -1, 0, -smallest - 1]
    table = world_with(world, kind, values, f"truncate[{width}]")
    for value in values:
        assert set(matching(world, table, ex.EqualTo("c", value))) == {values.index(value)}
    assert set(matching(world, table, ex.LessThan("c", 0))) == {0, 1, 2}
    assert set(matching(world, table, ex.GreaterThanOrEqual("c", smallest))) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("kind", "value", "other"),
    [
        (DateType(), 3_000_000, dt.date(1, 1, 1)),
        (TimestampType(), 253_402_300_800_000_000, "0001-01-01T00:00:00"),
    ],
)
@pytest.mark.parametrize("transform", ["identity", "year", "month", "day"])
def test_years_that_python_does_not_have(
    world: TableWorld, kind: IcebergType, value: int, other: Any, transform: str
) -> None:
    table = world_with(world, kind, [value, 0], transform)
    assert matching(world, table, ex.LessThan("c", other)) == []
    assert matching(world, table, ex.GreaterThanOrEqual("c", value)) == [0, 0]
    assert matching(world, table, ex.LessThanOrEqual("c", literal(value + 1))) == [0, 0, 1]


def test_a_moment_within_a_day_is_compared_as_such() -> None:
    schema = Schema(NestedField(1, "d", DateType()))
    noon = dt.datetime(2020, 1, 2, 12)  # noqa: DTZ001
    day = ex.Reference("d")
    assert settle_filter(ex.LessThan("d", noon), schema) == ex.LessThanOrEqual(day, dt.date(2020, 1, 2))
    assert settle_filter(ex.GreaterThan("d", noon), schema) == ex.GreaterThan(day, dt.date(2020, 1, 2))
    assert settle_filter(ex.EqualTo("d", noon), schema) == AlwaysFalse()
    assert settle_filter(ex.Not(ex.EqualTo("d", noon)), schema) == ex.NotNull(day)


@pytest.mark.parametrize(
    "where",
    [
        ex.EqualTo("nope", 1),
        ex.LessThan("i", "text"),
        ex.LessThan("i", 1.5),
        ex.EqualTo("f", True),
        ex.EqualTo("f", "nan"),
        ex.EqualTo("e", INF),
        ex.EqualTo("e", True),
        ex.EqualTo("s", 1),
        ex.In("i", ["a", "b"]),
        ex.StartsWith("i", "1"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(where: BooleanExpression) -> None:
    schema = Schema(
        NestedField(1, "i", IntegerType()),
        NestedField(2, "f", FloatType()),
        NestedField(3, "e", DecimalType(5, 2)),
        NestedField(4, "s", StringType()),
    )
    with pytest.raises(TableUsageError, match="does not fit the table") as caught:
        settle_filter(where, schema)
    assert "i, f, e, s" in str(caught.value)


def planted(world: TableWorld, table: TableVersion, rows: pa.Table, changes: dict[int, Any]) -> TableVersion:
    """The rows in a file of which the manifest says something else, by place."""
    sink = CollectingSink()
    (file,) = write_rows(rows, metadata=table.metadata, files=sink, randomness=world.randomness)
    world.files.write(sink.files)
    for place, value in changes.items():
        file[place] = value
    assert isinstance(file, TableFile)
    return world.commit(stage_snapshot(world.staging(), table, Edit(added=(file,)), Operation.APPEND))


LOWER, UPPER, COUNT = 10, 11, 4


@pytest.mark.parametrize("bounds", [{LOWER: {1: b"xx"}}, {UPPER: {1: b""}}, {LOWER: {2: b"\xff\xfe"}}])
def test_a_bound_that_cannot_be_read_proves_nothing(world: TableWorld, bounds: dict[int, Any]) -> None:
    schema = Schema(NestedField(1, "x", LongType()), NestedField(2, "s", StringType()))
    table = planted(world, world.create(schema), pa.table({"x": [1, 2], "s": ["a", "b"]}), bounds)
    where = ex.And(ex.GreaterThan("x", 1), ex.LessThan("s", "c"))
    assert matching(world, table, where) == [2]
    table = world.commit(delete(world.staging(), table, where))
    assert rows_of(world.rows(table)) == by_duckdb(str(table.location)) == [(1, "a")]


def test_a_count_of_no_rows_leaves_nothing_out(world: TableWorld) -> None:
    """The file itself then says how many there are."""
    table = planted(world, world.create(Schema(NestedField(1, "x", LongType()))), pa.table({"x": [1]}), {COUNT: 0})
    assert len(plan_scan(world.files, table.metadata, row_filter=ex.EqualTo("x", 1)).tasks) == 1
    assert plan_scan(world.files, table.metadata, row_filter=ex.EqualTo("x", 2)).tasks == ()
