"""Random schemas, specs and operations against an Arrow model: PyIceberg, DuckDB and our own reader all agree with it.

The model is a list of rows. It shares no code with the product.
"""

from __future__ import annotations

import math
import operator
import tempfile
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import expressions
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyroaring import BitMap64

from headwater.kernel.clock import SystemClock
from headwater.kernel.randomness import system_randomness
from headwater.storage.file import FileStore
from headwater.storage.memory import MemoryStore
from headwater.tables.merge import upsert
from headwater.tables.model import FILE_COLUMN, POSITION_COLUMN, TableVersion
from headwater.tables.operations import append, delete, delete_positions, overwrite, rewrite
from headwater.tables.read import read_task
from headwater.tables.scan import plan_scan
from tests.fixtures.engines import by_duckdb, by_pyiceberg, rows_of
from tests.fixtures.tables import TableWorld

# PyIceberg's predicates take positional arguments, which its types do not know.
ex: Any = expressions
DAYS = st.dates(date(1960, 1, 1), date(2040, 1, 1))
MOMENTS = st.datetimes(datetime(1960, 1, 1), datetime(2040, 1, 1))  # noqa: DTZ001
SPECIAL = st.sampled_from([-0.0, 0.0, math.inf, -math.inf, math.nan])
FLOATS = st.floats(width=32) | SPECIAL
# Those that have no digits beyond a float's would hide whoever cuts them off.
DOUBLES = st.sampled_from([0.1, 1e300, -1e-300]) | st.floats() | SPECIAL
# Every type that all engines read: how it is written, and how values of it are made.
TYPES: dict[IcebergType, st.SearchStrategy[Any]] = {
    BooleanType(): st.booleans(),
    IntegerType(): st.integers(-(2**31), 2**31 - 1),
    LongType(): st.integers(-(2**63), 2**63 - 1),
    FloatType(): FLOATS,
    DoubleType(): DOUBLES,
    DecimalType(9, 2): st.decimals(-1000, 1000, places=2),
    DecimalType(38, 6): st.decimals(Decimal(-(10**20)), Decimal(10**20), places=6),
    DateType(): DAYS,
    TimeType(): st.times(time(0), time(23, 59, 59)),
    TimestampType(): MOMENTS,
    TimestamptzType(): MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC)),
    StringType(): st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20),
    UUIDType(): st.uuids().map(lambda value: value.bytes),
    FixedType(4): st.binary(min_size=4, max_size=4),
    BinaryType(): st.binary(max_size=20),
}
TRANSFORMS: dict[type[IcebergType], tuple[Transform[Any, Any], ...]] = {
    IntegerType: (IdentityTransform(), BucketTransform(3), TruncateTransform(10)),
    LongType: (IdentityTransform(), BucketTransform(3), TruncateTransform(1000)),
    DecimalType: (IdentityTransform(), BucketTransform(3), TruncateTransform(50)),
    DateType: (YearTransform(), MonthTransform(), DayTransform(), BucketTransform(3)),
    TimestampType: (YearTransform(), MonthTransform(), DayTransform(), HourTransform(), BucketTransform(3)),
    TimestamptzType: (YearTransform(), MonthTransform(), DayTransform(), HourTransform()),
    StringType: (IdentityTransform(), BucketTransform(3), TruncateTransform(2)),
    UUIDType: (IdentityTransform(), BucketTransform(3)),
    FloatType: (IdentityTransform(),),
    DoubleType: (IdentityTransform(),),
    BinaryType: (IdentityTransform(), BucketTransform(3), TruncateTransform(2)),
    BooleanType: (IdentityTransform(),),
}


@st.composite
def columns(draw: st.DrawFn) -> list[tuple[NestedField, st.SearchStrategy[Any]]]:
    """A key, a few primitive columns and sometimes a nested one, each with how its values are made."""
    made: list[tuple[NestedField, st.SearchStrategy[Any]]] = [
        (NestedField(1, "id", LongType(), required=True), st.integers(0, 10**6))
    ]
    names = draw(st.lists(st.sampled_from(["a", "b.c", "d e", "ü", "Select", "_x"]), unique=True, max_size=4))
    for place, name in enumerate(names):
        kind = draw(st.sampled_from(sorted(TYPES, key=str)))
        made.append((NestedField(10 * (place + 1), name, kind), TYPES[kind] | st.none()))
    if draw(st.booleans()):
        # pyarrow cannot make a list of uuids out of values, so the model could not either.
        kind = draw(st.sampled_from(sorted((each for each in TYPES if each != UUIDType()), key=str)))
        values = TYPES[kind]
        nested: tuple[IcebergType, st.SearchStrategy[Any]] = draw(
            st.sampled_from(
                [
                    (ListType(101, kind, element_required=False), st.lists(values | st.none(), max_size=3)),
                    (
                        StructType(NestedField(101, "x", kind), NestedField(102, "y", LongType(), required=True)),
                        st.fixed_dictionaries({"x": values | st.none(), "y": st.integers(0, 9)}),
                    ),
                    (
                        MapType(101, StringType(), 102, kind, value_required=False),
                        st.lists(st.tuples(st.sampled_from("abc"), values | st.none()), unique_by=lambda pair: pair[0]),
                    ),
                ]
            )
        )
        made.append((NestedField(100, "nested", nested[0]), nested[1] | st.none()))
    return made


class Model:
    """The table as a plain dictionary of rows by id."""

    def __init__(self, schema: Schema) -> None:
        self.arrow = schema_to_pyarrow(schema, include_field_ids=False)
        self.rows: dict[int, dict[str, Any]] = {}

    def table(self, rows: list[dict[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist(rows, schema=self.arrow)

    def expected(self) -> list[tuple[Any, ...]]:
        return rows_of(self.table(list(self.rows.values())))


@pytest.mark.proves("tables/write")
@settings(max_examples=50)
@given(st.data())
@pytest.mark.parametrize("version", [2, 3])
def test_tables_hold_what_the_model_holds(version: int, data: st.DataObject) -> None:
    made = data.draw(columns(), label="columns")
    schema = Schema(*(field for field, _ in made))
    row = st.fixed_dictionaries({field.name: values for field, values in made})
    partitioned = [
        (field, TRANSFORMS[type(field.field_type)]) for field, _ in made if type(field.field_type) in TRANSFORMS
    ]
    chosen = data.draw(st.sampled_from([None, *partitioned]), label="partitioned by")
    spec = PartitionSpec()
    if chosen is not None:
        transform = data.draw(st.sampled_from(chosen[1]), label="transform")
        spec = PartitionSpec(PartitionField(chosen[0].field_id, 1000, transform, "part"))
    with tempfile.TemporaryDirectory(prefix="headwater-property-") as folder:
        world = TableWorld(f"file://{folder}", FileStore(Path(folder), SystemClock(), system_randomness()))
        table = world.create(schema, spec=spec, format_version=version)
        model = Model(schema)
        for _ in range(data.draw(st.integers(1, 5), label="operations")):
            step = data.draw(st.sampled_from(STEPS), label="operation")
            table = step(
                world, table, model, lambda: data.draw(st.lists(row, max_size=6, unique_by=lambda r: r["id"])), data
            )
            assert rows_of(world.rows(table)) == model.expected() or (not model.rows and not world.rows(table).num_rows)
        location = table.location
        assert location is not None
        if table.metadata.current_snapshot_id is not None:
            assert by_pyiceberg(location) == model.expected()
            assert by_duckdb(location) == model.expected()


Step = Callable[[TableWorld, TableVersion, Model, Callable[[], list[dict[str, Any]]], st.DataObject], TableVersion]


def do_append(
    world: TableWorld, table: TableVersion, model: Model, rows: Callable[[], list[dict[str, Any]]], data: st.DataObject
) -> TableVersion:
    new = [row for row in rows() if row["id"] not in model.rows]
    table = world.commit(append(world.staging(), table, model.table(new)))
    model.rows.update({row["id"]: row for row in new})
    return table


def do_upsert(
    world: TableWorld, table: TableVersion, model: Model, rows: Callable[[], list[dict[str, Any]]], data: st.DataObject
) -> TableVersion:
    new = rows()
    for row in new:
        if len(model.rows) and data.draw(st.booleans()):
            row["id"] = data.draw(st.sampled_from(sorted(model.rows)))
    new = list({row["id"]: row for row in new}.values())
    table = world.commit(upsert(world.staging(), table, model.table(new), on=["id"]))
    model.rows.update({row["id"]: row for row in new})
    return table


def do_overwrite(
    world: TableWorld, table: TableVersion, model: Model, rows: Callable[[], list[dict[str, Any]]], data: st.DataObject
) -> TableVersion:
    new = rows()
    if data.draw(st.booleans()):
        table = world.commit(overwrite(world.staging(), table, model.table(new)))
        model.rows = {}
    else:
        limit = data.draw(st.integers(0, 10**6))
        new = [row for row in new if row["id"] <= limit]
        table = world.commit(overwrite(world.staging(), table, model.table(new), where=parse(f"id <= {limit}")))
        model.rows = {key: row for key, row in model.rows.items() if key > limit}
    model.rows.update({row["id"]: row for row in new})
    return table


def do_delete_by_any_column(
    world: TableWorld, table: TableVersion, model: Model, rows: Callable[[], list[dict[str, Any]]], data: st.DataObject
) -> TableVersion:
    columns = [each for each in table.metadata.schema().fields if each.field_type in TYPES]
    column = data.draw(st.sampled_from(columns), label="column")
    where, matches = data.draw(filters(column, [row[column.name] for row in model.rows.values()]), label="filter")
    table = world.commit(delete(world.staging(), table, where))
    model.rows = {key: row for key, row in model.rows.items() if not matches(row[column.name])}
    return table


@st.composite
def filters(draw: st.DrawFn, column: NestedField, there: list[Any]) -> tuple[BooleanExpression, Callable[[Any], bool]]:
    """A comparison with a value that is there, that could be, or that lies beyond what the column can hold."""
    pools = [TYPES[column.field_type].filter(is_number)]
    for some in ([each for each in there if is_number(each)], BEYOND.get(type(column.field_type), ())):
        pools += [st.sampled_from(some)] * 2 if some else []
    name = draw(st.sampled_from([*COMPARISONS, "in", "not in", "null", "not null"]))
    literals = draw(st.lists(st.one_of(pools), min_size=1, max_size=3))
    if name in COMPARISONS:
        predicate, compare = COMPARISONS[name]
        where = predicate(column.name, literals[0])
        return where, lambda value: value is not None and compare(value, literals[0])
    if name in ("in", "not in"):
        wanted = name == "in"
        where = (ex.In if wanted else ex.NotIn)(column.name, literals)
        return where, lambda value: value is not None and any(value == each for each in literals) is wanted
    if name == "null":
        return ex.IsNull(column.name), lambda value: value is None
    return ex.NotNull(column.name), lambda value: value is not None


@pytest.mark.proves("tables/write")
@settings(max_examples=6)
@given(st.data())
@pytest.mark.parametrize("kind", sorted(TYPES, key=str), ids=str)
def test_filters_match_what_the_model_matches(kind: IcebergType, data: st.DataObject) -> None:
    """One column, of any type and in any partition: what is read and what is deleted by it, in files that repeat it."""
    column = NestedField(2, "c", kind)
    schema = Schema(NestedField(1, "id", LongType(), required=True), column)
    # The partition that tells most comes first: the first choice is the likeliest.
    transform = data.draw(st.sampled_from([*TRANSFORMS.get(type(kind), ()), None]), label="transform")
    spec = PartitionSpec() if transform is None else PartitionSpec(PartitionField(2, 1000, transform, "part"))
    values = data.draw(st.lists(TYPES[kind], min_size=1, max_size=3), label="values")
    world = TableWorld("memory://lake", MemoryStore(SystemClock()))
    table, model = world.create(schema, spec=spec), Model(schema)
    for some in ([*values, None], values[:1], [None]):
        new: list[dict[str, Any]] = [{"id": len(model.rows) + place, "c": value} for place, value in enumerate(some)]
        table = world.commit(append(world.staging(), table, model.table(new)))
        model.rows.update({row["id"]: row for row in new})
    for _ in range(6):
        where, matches = data.draw(filters(column, values), label="filter")
        plan = plan_scan(world.files, table.metadata, row_filter=where)
        found = [
            each
            for task in plan.tasks
            for batch in read_task(world.files, task, plan=plan, columns=("id",), row_filter=where)
            for each in batch.column(0).to_pylist()
        ]
        expected = [key for key, row in model.rows.items() if matches(row["c"])]
        assert sorted(found) == expected
        staged = delete(world.staging(), table, where)
        world.files.write(staged.files)
        left = world.rows(TableVersion(staged.metadata), columns=["id"])
        kept = left["id"].to_pylist() if left.num_rows else []
        assert sorted(kept) == [key for key in model.rows if key not in expected]


def is_number(value: Any) -> bool:
    """Whether it can be compared with: neither null nor NaN."""
    return value is not None and value == value


COMPARISONS: dict[str, tuple[Any, Callable[[Any, Any], bool]]] = {
    "=": (ex.EqualTo, operator.eq),
    "!=": (ex.NotEqualTo, operator.ne),
    "<": (ex.LessThan, operator.lt),
    "<=": (ex.LessThanOrEqual, operator.le),
    ">": (ex.GreaterThan, operator.gt),
    ">=": (ex.GreaterThanOrEqual, operator.ge),
}
# What no value of a column equals.
BEYOND: dict[type[IcebergType], tuple[Any, ...]] = {
    IntegerType: (2**31, -(2**31) - 1, 2**40, Decimal("0.5")),
    LongType: (2**63, -(2**63) - 1, 10**30),
    FloatType: (1e300, -1e300, 10**400),
    DecimalType: (Decimal(10) ** 38, -(Decimal(10) ** 38)),
}


def do_delete(
    world: TableWorld, table: TableVersion, model: Model, rows: Callable[[], list[dict[str, Any]]], data: st.DataObject
) -> TableVersion:
    keys = data.draw(st.lists(st.sampled_from(sorted(model.rows)), max_size=3)) if model.rows else []
    middle = data.draw(st.integers(0, 10**6))
    one = keys[0] if keys else 0
    filters: list[tuple[str, Callable[[int], bool]]] = [
        (f"id in ({', '.join(map(str, [*keys, -1]))})", lambda key: key in keys),
        (f"id > {middle}", lambda key: key > middle),
        (f"not (id <= {middle})", lambda key: key > middle),
        (f"id = {middle} or id is null or id = {one}", lambda key: key in (middle, one)),
        (f"id <> {one}", lambda key: key != one),
    ]
    text, matches = filters[data.draw(st.integers(0, len(filters) - 1))]
    where = parse(text)
    table = world.commit(delete(world.staging(), table, where))
    model.rows = {key: row for key, row in model.rows.items() if not matches(key)}
    return table


def do_delete_positions(
    world: TableWorld, table: TableVersion, model: Model, rows: Callable[[], list[dict[str, Any]]], data: st.DataObject
) -> TableVersion:
    found = world.rows(table, columns=["id"], extra=frozenset({FILE_COLUMN, POSITION_COLUMN}))
    positions: dict[str, BitMap64] = {}
    for row in found.to_pylist():
        if data.draw(st.booleans()):
            positions.setdefault(row[FILE_COLUMN], BitMap64()).add(row[POSITION_COLUMN])
            del model.rows[row["id"]]
    return world.commit(delete_positions(world.staging(), table, positions))


def do_rewrite(
    world: TableWorld, table: TableVersion, model: Model, rows: Callable[[], list[dict[str, Any]]], data: st.DataObject
) -> TableVersion:
    tasks = plan_scan(world.files, table.metadata).tasks
    if not tasks:
        return table
    chosen = data.draw(st.lists(st.sampled_from(range(len(tasks))), min_size=1, unique=True))
    return world.commit(rewrite(world.staging(), table, [tasks[place] for place in chosen]))


STEPS: tuple[Step, ...] = (
    do_append,
    do_append,
    do_upsert,
    do_overwrite,
    do_delete,
    do_delete_by_any_column,
    do_delete_by_any_column,
    do_delete_positions,
    do_rewrite,
)


def test_the_comparison_can_fail() -> None:
    """Rows that differ in one value, or in number, are not equal after being brought into one spelling."""
    one = pa.table({"id": [1, 2], "u": [UUID(int=1).bytes, None]})
    assert rows_of(one) != rows_of(one.slice(1))
    assert rows_of(one) != rows_of(pa.table({"id": [1, 3], "u": [UUID(int=1).bytes, None]}))
    assert rows_of(one) == rows_of(one.take([1, 0]))
