"""What a query sees of a table: every type, every way to delete, every change of schema, and what is pending."""

from __future__ import annotations

import datetime as dt
import time
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
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
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyroaring import BitMap64

from headwater.catalog.model import TableKey
from headwater.kernel.clock import SystemClock
from headwater.query import OpenView, Pending, QueryOptions, masks, protocol, relations, stream
from headwater.query.relations import Relations
from headwater.storage.memory import MemoryStore
from headwater.storage.port import Fetched, ObjectStore
from headwater.storage.wrapper import StoreWrapper
from headwater.tables.columns import AddColumn, DropColumn, RenameColumn, WidenColumn
from headwater.tables.evolve import change_schema, set_properties
from headwater.tables.model import NewFile, TableFile, UnsupportedTableError
from tests.unit.query_world import QueryWorld, folder_world

pytestmark = pytest.mark.proves("query")

NAMES = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))


@pytest.fixture
def world(tmp_path: Path) -> QueryWorld:
    return folder_world(tmp_path / "lake")


def names(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), "name": [f"n{each}" for each in numbers]})


def ids(world: QueryWorld, sql: str = "SELECT id FROM t ORDER BY id", **options: Any) -> list[Any]:
    return [row[0] for row in world.fetch(sql, **options)]


UUID = uuid.UUID("806e43bf-cab4-4f29-94cf-682bf8579b0d")
NOON = dt.datetime(2020, 1, 2, 12, 0, 0, 123456, tzinfo=dt.UTC)
NANOSECONDS = 1_577_836_800_123_456_789
STRUCT = StructType(NestedField(11, "x", IntegerType()), NestedField(12, "y z", StringType()))
TYPES: list[tuple[IcebergType, pa.Array, pa.DataType, Any]] = [
    (BooleanType(), pa.array([True]), pa.bool_(), True),
    (IntegerType(), pa.array([-5], pa.int32()), pa.int32(), -5),
    (LongType(), pa.array([2**62]), pa.int64(), 2**62),
    (FloatType(), pa.array([0.1], pa.float32()), pa.float32(), float(np.float32(0.1))),
    (DoubleType(), pa.array([0.1]), pa.float64(), 0.1),
    (DecimalType(9, 2), pa.array([Decimal("1.25")], pa.decimal128(9, 2)), pa.decimal128(9, 2), Decimal("1.25")),
    (
        DecimalType(38, 10),
        pa.array([Decimal("1234567890123456789012345678.0123456789")], pa.decimal128(38, 10)),
        pa.decimal128(38, 10),
        Decimal("1234567890123456789012345678.0123456789"),
    ),
    (DateType(), pa.array([dt.date(1969, 1, 2)]), pa.date32(), dt.date(1969, 1, 2)),
    (TimeType(), pa.array([dt.time(1, 2, 3, 4)]), pa.time64("us"), dt.time(1, 2, 3, 4)),
    (TimestampType(), pa.array([NOON.replace(tzinfo=None)]), pa.timestamp("us"), NOON.replace(tzinfo=None)),
    (TimestamptzType(), pa.array([NOON], pa.timestamp("us", "UTC")), pa.timestamp("us", "UTC"), NOON),
    (StringType(), pa.array(["é\0'\""]), pa.string(), "é\0'\""),
    (BinaryType(), pa.array([b"\xff\0"]), pa.binary(), b"\xff\0"),
    (FixedType(3), pa.array([b"abc"], pa.binary(3)), pa.binary(), b"abc"),
    (UUIDType(), pa.ExtensionArray.from_storage(pa.uuid(), pa.array([UUID.bytes], pa.binary(16))), pa.uuid(), UUID),
    (
        STRUCT,
        pa.array([{"x": 1, "y z": "b"}], pa.struct([("x", pa.int32()), ("y z", pa.string())])),
        pa.struct([("x", pa.int32()), ("y z", pa.string())]),
        {"x": 1, "y z": "b"},
    ),
    (
        ListType(11, LongType(), element_required=False),
        pa.array([[1, None]]),
        pa.list_(pa.field("l", pa.int64())),
        [1, None],
    ),
    (
        MapType(11, StringType(), 12, LongType(), value_required=False),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.map_(pa.string(), pa.int64()),
        [("k", 1)],
    ),
]


@pytest.mark.parametrize(("kind", "values", "arrow", "expected"), TYPES, ids=lambda each: str(each)[:20])
@pytest.mark.parametrize("copied", [False, True])
def test_every_type_keeps_its_value(
    world: QueryWorld, kind: IcebergType, values: pa.Array, arrow: pa.DataType, expected: Any, *, copied: bool
) -> None:
    """Natively, copied, and pending: NULL and the value, in the type that the schema says."""
    key = world.table("t", Schema(NestedField(1, "n", LongType()), NestedField(2, "c", kind)))
    rows = pa.table({"n": pa.array([1, 2]), "c": pa.concat_arrays([values, pa.nulls(1, values.type)])})
    world.append(key, rows)
    if copied:
        _copy_all(world, key)
    pending = Pending(rows={key: rows.slice(0, 1)})
    found = world.run("SELECT c FROM t ORDER BY n, c IS NULL", pending=pending)
    assert found.column(0).to_pylist() == [expected, expected, None]
    assert found.schema.field(0).type.equals(arrow)


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("kind", [TimestampNanoType(), TimestamptzNanoType()])
def test_nanoseconds_are_kept(world: QueryWorld, kind: IcebergType, *, copied: bool) -> None:
    key = world.table("t", Schema(NestedField(1, "c", kind)))
    zone = "UTC" if isinstance(kind, TimestamptzNanoType) else None
    rows = pa.table({"c": pa.array([NANOSECONDS], pa.timestamp("ns", zone))})
    world.append(key, rows)
    if copied:
        _copy_all(world, key)
    found = world.run("SELECT c FROM t", pending=Pending(rows={key: rows}))
    assert found.column(0).cast(pa.int64()).to_pylist() == [NANOSECONDS] * 2


def _copy_all(world: QueryWorld, key: TableKey) -> None:
    """Give the table a name mapping: then none of its files is read natively."""
    metadata = world.tables[key].metadata
    mapping = metadata.schema().name_mapping.model_dump_json()
    world.set_metadata(key, set_properties(metadata, {"schema.name-mapping.default": mapping}, (), world.clock.now()))


@pytest.mark.parametrize("format_version", [2, 3])
@pytest.mark.parametrize("copied", [False, True])
def test_deleted_rows_are_gone(world: QueryWorld, format_version: int, *, copied: bool) -> None:
    """Position deletes on v2, vectors on v3; a file without deletes beside them; counts that do not fill a byte."""
    key = world.table("t", NAMES, names(*range(13)), names(*range(100, 1100)), names(7), format_version=format_version)
    places = {int(path): place for place, path in enumerate(_first_ids(world, key))}
    world.delete(key, {places[0]: [0, 5, 12], places[100]: range(3, 1000)})
    world.delete(key, {places[0]: [1]})
    if copied:
        _copy_all(world, key)
    assert ids(world) == [2, 3, 4, 6, 7, 7, 8, 9, 10, 11, 100, 101, 102]
    assert ids(world, "SELECT id FROM t WHERE id >= 11 ORDER BY id") == [11, 100, 101, 102]
    assert ids(world, "SELECT count(*) FROM t") == [13]
    assert ids(world, "SELECT id FROM t ORDER BY id DESC LIMIT 2") == [102, 101]


def _first_ids(world: QueryWorld, key: TableKey) -> list[int]:
    return [pq.read_table(path.removeprefix("file://"))["id"][0].as_py() for path in world.paths(key)]


def test_positions_are_those_of_the_file_whatever_is_pushed_down(world: QueryWorld) -> None:
    """Many row groups, most of which a filter leaves out, and files in an order that is not theirs by name."""
    key = world.table("t", NAMES, *(names(*range(start, start + 5000)) for start in (10_000, 0, 5000)))
    for path in world.paths(key):  # the same rows in the same order, in small row groups
        file = path.removeprefix("file://")
        pq.write_table(pq.read_table(file), file, row_group_size=100)
    world.delete(key, {place: range(0, 5000, 3) for place in range(3)})
    kept = [start + each for start in (0, 5000, 10_000) for each in range(5000) if each % 3]
    for condition in ("true", "id BETWEEN 4321 AND 6789", "name = 'n7777'", "id % 7 = 0", "id > 14990"):
        expected = duckdb.sql(f"SELECT id FROM (SELECT unnest({kept}) AS id) WHERE {_plain(condition)}")
        assert ids(world, f"SELECT id FROM t WHERE {condition} ORDER BY id") == sorted(
            row[0] for row in expected.fetchall()
        )


def _plain(condition: str) -> str:
    return condition.replace("name", "'n' || id")


def test_the_whole_table_beside_other_engines(world: QueryWorld) -> None:
    """PyIceberg reads the same rows by its own planner and reader."""
    from pyiceberg.table import StaticTable

    key = world.table("t", NAMES, names(*range(50)), names(*range(50, 80)))
    world.delete(key, {0: [1, 2, 3], 1: [0]})
    peer = StaticTable.from_metadata(str(world.tables[key].location)).scan().to_arrow()
    assert sorted(world.run("SELECT * FROM t").to_pylist(), key=str) == sorted(peer.to_pylist(), key=str)


EVOLUTIONS: dict[str, tuple[tuple[Any, ...], str, list[tuple[Any, ...]]]] = {
    "rename": ((RenameColumn("name", "title"),), "id, title", [(1, "n1"), (2, "n2")]),
    "swap": (
        (RenameColumn("name", "x"), RenameColumn("small", "name"), RenameColumn("x", "small")),
        "id, name, small",
        [(1, 1, "n1"), (2, 2, "n2")],
    ),
    "drop": ((DropColumn("name"),), "*", [(1, 1, (1, "a")), (2, 2, (2, "b"))]),
    "drop and add": (
        (DropColumn("name"), AddColumn("name", StringType())),
        "id, name",
        [(1, None), (2, None)],
    ),
    "add": ((AddColumn("more", DoubleType(), first=True),), "more, id", [(None, 1), (None, 2)]),
    "add with default": ((AddColumn("more", StringType(), default="it's"),), "more", [("it's",), ("it's",)]),
    "widen": ((WidenColumn("small", LongType()),), "small + 3000000000", [(3000000001,), (3000000002,)]),
    "rename within a struct": ((RenameColumn(("s", "b"), "c"),), "s.c", [("a",), ("b",)]),
    "add within a struct": ((AddColumn(("s", "c"), LongType()),), "s.b, s.c", [("a", None), ("b", None)]),
    "swap within a struct": (
        (RenameColumn(("s", "a"), "x"), RenameColumn(("s", "b"), "a"), RenameColumn(("s", "x"), "b")),
        "s.a, s.b",
        [("a", 1), ("b", 2)],
    ),
}


@pytest.mark.parametrize("name", EVOLUTIONS)
def test_old_files_in_a_new_schema(world: QueryWorld, name: str) -> None:
    changes, columns, expected = EVOLUTIONS[name]
    kind = pa.struct([("a", pa.int32()), ("b", pa.string())])
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "name", StringType()),
        NestedField(3, "small", IntegerType()),
        NestedField(4, "s", StructType(NestedField(5, "a", IntegerType()), NestedField(6, "b", StringType()))),
    )
    rows = pa.table(
        {
            "id": pa.array([1, 2]),
            "name": ["n1", "n2"],
            "small": pa.array([1, 2], pa.int32()),
            "s": pa.array([{"a": 1, "b": "a"}, {"a": 2, "b": "b"}], kind),
        }
    )
    key = world.table("t", schema, rows)
    metadata = world.tables[key].metadata
    for change in changes:
        metadata = change_schema(metadata, [change], world.clock.now())
    world.set_metadata(key, metadata)
    found = world.fetch(f"SELECT {columns} FROM t ORDER BY id")
    assert [tuple(tuple(v.values()) if isinstance(v, dict) else v for v in row) for row in found] == expected


def test_an_older_snapshot_has_its_own_schema(world: QueryWorld) -> None:
    key = world.table("t", NAMES, names(1))
    snapshot = world.tables[key].metadata.current_snapshot()
    assert snapshot is not None
    world.set_metadata(key, change_schema(world.tables[key].metadata, [DropColumn("name")], world.clock.now()))
    world.append(key, pa.table({"id": pa.array([2])}))
    world.snapshot_ids[key] = snapshot.snapshot_id
    assert world.fetch("SELECT * FROM t WHERE id > 0") == [(1, "n1")]


@pytest.mark.parametrize("mapped", [True, False])
def test_a_file_without_field_ids(world: QueryWorld, monkeypatch: pytest.MonkeyPatch, *, mapped: bool) -> None:
    """A name mapping says which column is which; without one the answer is an error, and not a table of NULLs."""
    key = world.table("t", NAMES, names(1, 2))
    (path,) = world.paths(key)
    file = path.removeprefix("file://")
    pq.write_table(names(1, 2), file)
    plan = protocol.plan_scan  # type: ignore[attr-defined]

    def resized(*args: Any, **options: Any) -> Any:
        found = plan(*args, **options)
        for task in found.tasks:
            task.file[5] = Path(file).stat().st_size
        return found

    monkeypatch.setattr(protocol, "plan_scan", resized)
    if mapped:
        _copy_all(world, key)
        assert world.fetch("SELECT * FROM t ORDER BY id") == [(1, "n1"), (2, "n2")]
    else:
        with pytest.raises(UnsupportedTableError, match=f"table default.t: .*{path}.* no field ids"):
            world.run("SELECT * FROM t")


def test_equality_deletes(world: QueryWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.table("t", NAMES, names(1, 2, 3), names(4))
    location = f"{world.root}/t/data/equality.parquet"
    sink = pa.BufferOutputStream()
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([pa.array([2, 4])], pa.schema([field])), sink)
    data = sink.getvalue().to_pybytes()
    world.files.write([NewFile(location, data)])
    deletes = TableFile.from_args(
        _table_format_version=3,
        content=DataFileContent.EQUALITY_DELETES,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=2,
        file_size_in_bytes=len(data),
        equality_ids=[1],
    )
    deletes.spec_id = 0
    plan = protocol.plan_scan  # type: ignore[attr-defined]

    def with_deletes(*args: Any, **options: Any) -> Any:
        from dataclasses import replace

        found = plan(*args, **options)
        return replace(found, tasks=tuple(replace(task, equality=(deletes,)) for task in found.tasks))  # type: ignore[arg-type]

    monkeypatch.setattr(protocol, "plan_scan", with_deletes)
    assert ids(world) == [1, 3]


class TestPending:
    """What a transaction has done already is seen by its later statements."""

    @pytest.mark.parametrize("copied", [False, True])
    def test_inserts_and_deletes_are_laid_over(self, world: QueryWorld, *, copied: bool) -> None:
        key = world.table("t", NAMES, names(*range(10)), names(*range(10, 20)))
        world.delete(key, {0: [0]})
        if copied:
            _copy_all(world, key)
        before = ids(world)
        first, second = (pq.read_table(path.removeprefix("file://"))["id"].to_pylist() for path in world.paths(key))
        deletes = {world.paths(key)[0]: BitMap64([1, 2]), world.paths(key)[1]: BitMap64([9])}
        pending = Pending(rows={key: names(5, 100)}, deletes={key: deletes})
        expected = sorted([*before, 5, 100])
        for gone in (first[1], first[2], second[9]):
            expected.remove(gone)
        assert ids(world, pending=pending) == expected
        assert ids(world) == before

    def test_a_new_table_and_a_new_schema(self, world: QueryWorld) -> None:
        key = world.table("t", NAMES, names(1))
        metadata = change_schema(world.tables[key].metadata, [RenameColumn("name", "title")], world.clock.now())
        fresh = TableKey.parse("fresh")
        new = world.create(NAMES, name="fresh").metadata
        pending = Pending(rows={fresh: names(7)}, overrides={key: metadata, fresh: new})
        assert world.fetch("SELECT title, f.name FROM t, fresh f", pending=pending) == [("n1", "n7")]
        assert world.fetch("SELECT name FROM t") == [("n1",)]

    def test_a_column_that_the_rows_lack_is_null(self, world: QueryWorld) -> None:
        key = world.table("t", NAMES)
        pending = Pending(rows={key: pa.table({"name": ["x"]})})
        assert world.fetch("SELECT id, name FROM t", pending=pending) == [(None, "x")]


class TestPositions:
    """Where each row is, for statements that change rows."""

    @pytest.mark.parametrize("copied", [False, True])
    def test_file_and_position(self, world: QueryWorld, *, copied: bool) -> None:
        key = world.table("t", NAMES, names(*range(5)), names(5, 6), format_version=2)
        world.delete(key, {0: [0]})
        if copied:
            _copy_all(world, key)
        pending = Pending(rows={key: names(50, 51)})
        sql = "SELECT _file, _pos, id FROM t WHERE id <> 50"
        found = world.fetch(sql, positions=frozenset([key]), pending=pending)
        for file, position, number in found:
            if number == 51:
                assert (file, position) == (None, 1)
            else:
                assert pq.read_table(file.removeprefix("file://"))["id"][position].as_py() == number
        assert len(found) == 7

    @pytest.mark.parametrize("copied", [False, True])
    def test_row_ids_stay_with_their_rows(self, world: QueryWorld, *, copied: bool) -> None:
        from headwater.tables import operations

        key = world.table("t", NAMES, names(10, 11, 12), names(20))
        columns = "SELECT id, _row_id, _last_updated_sequence_number AS s FROM t ORDER BY id"
        before = world.fetch(columns, positions=frozenset([key]))
        assert [row[1:] for row in before] == [(0, 1), (1, 1), (2, 1), (3, 2)]
        place = next(place for place, first in enumerate(_first_ids(world, key)) if first == 10)
        world.delete(key, {place: [1]})
        tasks = world.plan(key).tasks
        world.tables[key] = world.commit(operations.rewrite(world.staging(), world.tables[key], tasks))
        if copied:
            _copy_all(world, key)
        after = world.fetch(columns, positions=frozenset([key]))
        assert after == [row for row in before if row[0] != 11]

    def test_a_table_that_was_not_asked_for_does_not_show_them(self, world: QueryWorld) -> None:
        world.table("t", NAMES, names(1))
        assert world.run("SELECT * FROM t").column_names == ["id", "name"]


class TestViews:
    """Views are part of the same state, in DuckDB's dialect or in Spark's."""

    @pytest.fixture(autouse=True)
    def tables(self, world: QueryWorld) -> None:
        world.table("t", NAMES, names(1, 2))
        world.table("db.deep.t", NAMES, names(3))
        world.table("db.t", NAMES, names(4))

    @pytest.mark.parametrize(
        ("view", "expected"),
        [
            (OpenView("SELECT id FROM t WHERE id = 2", "duckdb", ("default",)), [2]),
            (OpenView("SELECT id FROM t", "duckdb", ("db",)), [4]),
            (OpenView("SELECT id FROM t", "duckdb", ("db", "deep")), [3]),
            (OpenView("WITH Q AS (SELECT id + 1 AS id FROM t) SELECT id FROM q", "duckdb", ("db",)), [5]),
            (OpenView("WITH T AS (SELECT 9 AS id) SELECT id FROM t", "duckdb", ("db",)), [9]),
            (OpenView("WITH t AS (SELECT id + 1 AS id FROM t) SELECT id FROM t", "duckdb", ("db",)), [5]),
            (OpenView("SELECT id FROM (WITH t AS (SELECT 9) FROM t), t", "duckdb", ("db",)), [4]),
            (OpenView("SELECT ~id FROM t", "duckdb", ("db",)), [-5]),
            (OpenView("SELECT id FROM t WHERE NOT name ~ 'n'", "duckdb", ("db",)), [4]),
            (OpenView("SELECT (id::INTEGER!)::BIGINT FROM t", "duckdb", ("db",)), [24]),
            (OpenView("SELECT max(t.id) FROM 't' WHERE db.t.id > 0", "duckdb", ("db",)), [4]),
            (OpenView("WITH Q AS (SELECT id + 1 AS id FROM t) SELECT id FROM q", "spark", ("db",)), [5]),
            (OpenView("SELECT `id` FROM `db`.`deep`.`t`", "spark", ("default",)), [3]),
            (OpenView("WITH t AS (SELECT 9 AS id) SELECT id FROM t", "spark", ("db",)), [9]),
            (OpenView("SELECT CAST(id AS BIGINT) FROM t WHERE name RLIKE '^n4$'", "spark", ("db",)), [4]),
            (OpenView("SELECT id FROM t WHERE id IN (SELECT id FROM default.t)", "spark", ("default",)), [1, 2]),
        ],
    )
    def test_a_view(self, world: QueryWorld, view: OpenView, expected: list[int]) -> None:
        world.views[TableKey.parse("v")] = view
        assert sorted(ids(world, "SELECT * FROM v")) == expected

    def test_a_view_that_does_not_begin_in_its_own_namespace(self, world: QueryWorld) -> None:
        """DuckDB would look for `t` beside the view first."""
        world.views[TableKey.parse("db.v")] = OpenView("SELECT id FROM t", "duckdb", ("default",))
        assert sorted(ids(world, "SELECT * FROM db.v")) == [1, 2]

    def test_a_view_of_a_view_with_its_own_names(self, world: QueryWorld) -> None:
        world.views[TableKey.parse("db.v")] = OpenView("SELECT id, name FROM t", "spark", ("db",), ("a", "b"))
        world.views[TableKey.parse("w")] = OpenView("SELECT b FROM db.v", "duckdb", ("default",))
        assert world.fetch("SELECT * FROM w") == [("n4",)]


class TestNames:
    """Tables by namespace; only those that are named are opened."""

    def test_only_what_is_named_is_opened(self, world: QueryWorld) -> None:
        for name in ("t", "u", "db.t"):
            world.table(name, NAMES, names(1))
        world.opened.clear()
        world.run("WITH x AS (SELECT * FROM t) SELECT * FROM x")
        assert set(world.opened) == {"default.t"}

    @pytest.mark.parametrize(
        "sql",
        [
            "SELECT id FROM a.b.t",
            'SELECT id FROM "a.b".t',
            "SELECT a.b.t.id FROM a.b.t WHERE a.b.t.id = 1",
            "SELECT x.id FROM a . b . t AS x -- a.b.t\n",
            "SELECT 'a.b.t', id FROM A.B.T",
        ],
    )
    def test_nested_namespaces(self, world: QueryWorld, sql: str) -> None:
        world.table("a.b.t", NAMES, names(1))
        world.table("a.t", NAMES, names(2))
        assert world.fetch(sql)[0][-1] == 1

    @pytest.mark.parametrize(
        "namespace",
        [
            "temp",
            "system",
            "memory",
            "main",
            "information_schema",
            "pg_catalog",
            "headwater internal",
            "namespace temp",
            "Namespace pg_catalog",
        ],
    )
    def test_namespaces_that_duckdb_has_already(self, world: QueryWorld, namespace: str) -> None:
        world.table(f"{namespace}.t", NAMES, names(1))
        world.table("t", NAMES, names(2))
        for condition in ("", f'WHERE "{namespace}".t.id = 1'):
            assert world.fetch(f'SELECT id FROM "{namespace}".t {condition}') == [(1,)]
        assert world.fetch(f'SELECT a.id FROM "{namespace}".t AS a, t AS b WHERE b.id = 2') == [(1,)]

    def test_an_alias_is_no_namespace(self, world: QueryWorld) -> None:
        world.table("a.b.t", NAMES, names(1))
        inner = StructType(NestedField(3, "id", LongType()))
        schema = Schema(NestedField(1, "b", StructType(NestedField(2, "t", inner))))
        world.table("w", schema, pa.table({"b": [{"t": {"id": 5}}]}))
        assert world.fetch("SELECT a.b.t.id AS x, t.id FROM w AS a, a.b.t") == [(5, 1)]

    def test_odd_names(self, world: QueryWorld) -> None:
        schema = Schema(NestedField(1, 'a"b', LongType()), NestedField(2, "file_row_number", LongType()))
        rows = pa.table({'a"b': pa.array([1, 2]), "file_row_number": pa.array([8, 9])})
        key = world.table("odd na'me", schema, rows)
        world.delete(key, {0: [0]})
        assert world.fetch('SELECT "a""b", file_row_number FROM "odd na\'me"') == [(2, 9)]

    def test_partition_folders_are_not_columns(self, world: QueryWorld) -> None:
        """DuckDB would make columns of folders that are named like `id=7`."""
        key = world.table("id=7/t", NAMES)
        world.append(key, names(1))
        assert world.fetch('SELECT * FROM "id=7/t"') == [(1, "n1")]


def test_a_name_is_never_a_pattern(tmp_path: Path) -> None:
    world = folder_world(tmp_path / "a[b]*?c")
    world.table("t", NAMES, names(1, 2))
    assert ids(world) == [1, 2]


def test_streaming_gives_the_same_rows_in_batches(world: QueryWorld) -> None:
    world.table("t", NAMES, names(*range(5000)))
    options = QueryOptions(batch_rows=2048, threads=1)
    with stream("SELECT id FROM t WHERE id >= 0", world, world.files, options=options) as reader:
        batches = list(reader)
    assert sorted(each for batch in batches for each in batch.column(0).to_pylist()) == list(range(5000))
    assert len(batches) > 1


def test_uuids_come_as_such_from_a_stream(world: QueryWorld) -> None:
    sql = f"SELECT * FROM (VALUES (1, UUID '{UUID}'), (2, NULL)) AS t(n, u) ORDER BY n"
    with stream(sql, world, world.files) as reader:
        found = reader.read_all()
    assert found.schema.field("u").type == pa.uuid()
    assert found["u"].to_pylist() == [UUID, None]
    assert world.run(sql)["u"].to_pylist() == [UUID, None]


@pytest.mark.parametrize("sql", ["SELECT * FROM t WHERE id > 5", "SELECT count(*) FROM t a JOIN t b USING (id)"])
def test_an_empty_table(world: QueryWorld, sql: str) -> None:
    world.table("t", NAMES)
    assert world.run(sql).num_rows == (1 if "count" in sql else 0)


def test_masks_in_several_steps(world: QueryWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """More masks than are held at a time."""
    monkeypatch.setattr(masks, "MASKS_AT_A_TIME_BYTES", 1)
    inserted: list[int] = []
    insert: Callable[..., None] = Relations._insert

    def counting(self: Relations, statement: str, rows: pa.Table) -> None:
        inserted.append(rows.num_rows)
        insert(self, statement, rows)

    monkeypatch.setattr(Relations, "_insert", counting)
    key = world.table("t", NAMES, names(*range(20)), names(*range(20, 40)), names(*range(40, 60)))
    world.delete(key, {0: [0], 1: [0], 2: [0]})
    assert sorted(set(range(60)) - set(ids(world))) == [0, 20, 40]
    assert inserted == [1, 1, 1]


class Slow(StoreWrapper):
    """A store that takes its time, and counts how many data files are read at once."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.reading, self.most = 0, 0

    def get(self, path: str, *, span: tuple[int, int] | None = None) -> Fetched:
        self.reading += 1
        self.most = max(self.most, self.reading)
        time.sleep(0.01)
        try:
            return super().get(path, span=span)
        finally:
            self.reading -= 1


def test_footers_far_away_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relations, "FOOTERS_AT_A_TIME", 2)
    store = Slow(MemoryStore(SystemClock()))
    world = QueryWorld("s3://lake", store)
    world.table("t", NAMES, *(names(each) for each in range(12)))
    store.most = 0
    (counted,) = world.fetch("SELECT count(*) FROM t")
    assert counted == (12,)
    assert store.most > 1
