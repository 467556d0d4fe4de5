"""Reading one data file: projection by field id, deletes, filters, columns of the scan."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, cast

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import expressions
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression, Not, Or
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    UnknownType,
    UUIDType,
)
from pyroaring import BitMap64

from headwater.tables.arrow import arrow_type
from headwater.tables.model import (
    DELETE_FILE_PATH_ID,
    DELETE_FILE_POSITION_ID,
    FileTask,
    ScanPlan,
    TableCorruptError,
    TableFile,
    TableUsageError,
    UnsupportedTableError,
)
from headwater.tables.position_deletes import deleted_positions, position_delete_file
from headwater.tables.read import positions_of, read_schema, read_task
from headwater.tables.vectors import write_vectors
from tests.unit.test_table_parquet import (
    LOCATION,
    UUIDS,
    Shelf,
    as_table,
    field,
    table_metadata,
    tables,
    write,
)

ALL = AlwaysTrue()
# PyIceberg's predicates take positional arguments, which its types do not know.
ex: Any = expressions


def plan_of(metadata: TableMetadata) -> ScanPlan:
    return ScanPlan(metadata, metadata.schema(), None, ())


def rows_of(
    shelf: Shelf,
    task: FileTask,
    metadata: TableMetadata,
    *,
    columns: tuple[str, ...] | None = None,
    where: BooleanExpression = ALL,
    extra: Sequence[str] = (),
) -> list[dict[str, Any]]:
    batches = read_task(shelf, task, plan=plan_of(metadata), columns=columns, row_filter=where, extra=frozenset(extra))
    return [row for batch in batches for row in batch.to_pylist()]


def stored(shelf: Shelf, path: str, table: pa.Table, **more: Any) -> TableFile:
    """A file that pyarrow writes, as another engine would."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **{key: more.pop(key) for key in ("row_group_size",) if key in more})
    location = f"{LOCATION}/data/{path}"
    shelf.files[location] = buffer.getvalue()
    given = {
        "content": DataFileContent.DATA,
        "file_path": location,
        "file_format": FileFormat.PARQUET,
        "partition": Record(),
        "record_count": table.num_rows,
        "file_size_in_bytes": len(buffer.getvalue()),
        **more,
    }
    file = TableFile.from_args(_table_format_version=3, **given)
    file.spec_id = 0
    return cast(TableFile, file)


def with_id(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(field_id)})


# ---------------------------------------------------------------------------- projection


@settings(max_examples=60)
@given(tables())
def test_what_is_written_is_read(made: tuple[tuple[NestedField, ...], list[dict[str, Any]]]) -> None:
    fields, rows = made
    metadata = table_metadata(*fields)
    shelf, (file,) = write(as_table(fields, rows), metadata)
    assert rows_of(shelf, FileTask(file, 1), metadata) == as_table(fields, rows).to_pylist()
    for batch in read_task(shelf, FileTask(file, 1), plan=plan_of(metadata)):
        batch.validate(full=True)
        assert batch.schema.types == [arrow_type(each.field_type) for each in fields]


def evolved(
    old: tuple[NestedField, ...], rows: pa.Table, new: tuple[NestedField, ...], *, version: int = 3
) -> list[dict[str, Any]]:
    """Rows that were written with one schema, as another one shows them."""
    shelf, (file,) = write(rows, table_metadata(*old, version=version))
    schemas = [Schema(*old, schema_id=0), Schema(*new, schema_id=1)]
    return rows_of(shelf, FileTask(file, 1), table_metadata(schemas=schemas, version=version))


STRUCT = StructType(field(11, "x", IntegerType(), required=True), field(12, "y", StringType()))
WIDER = StructType(
    field(13, "new", LongType(), initial_default=5), field(12, "why", StringType()), field(11, "ex", LongType())
)
POINT, WIDE_POINT = {"x": 1, "y": "a"}, {"new": 5, "why": "a", "ex": 1}
EVOLUTIONS: list[tuple[str, IcebergType, Any, IcebergType, Any]] = [
    ("int-long", IntegerType(), 7, LongType(), 7),
    ("float-double", FloatType(), 1.5, DoubleType(), 1.5),
    ("decimal", DecimalType(5, 2), Decimal("1.20"), DecimalType(20, 2), Decimal("1.20")),
    ("date-timestamp", DateType(), dt.date(2020, 1, 2), TimestampType(), dt.datetime(2020, 1, 2)),  # noqa: DTZ001
    ("struct", STRUCT, POINT, WIDER, WIDE_POINT),
    (
        "list",
        ListType(10, STRUCT, element_required=False),
        [POINT, None],
        ListType(10, WIDER, element_required=False),
        [WIDE_POINT, None],
    ),
    (
        "map",
        MapType(9, StringType(), 10, STRUCT, value_required=False),
        [("k", POINT), ("l", None)],
        MapType(9, StringType(), 10, WIDER, value_required=False),
        [("k", WIDE_POINT), ("l", None)],
    ),
    (
        "all-new-struct",
        STRUCT,
        POINT,
        StructType(field(20, "only", LongType())),
        {"only": None},
    ),
    (
        "list-of-lists",
        ListType(8, ListType(10, IntegerType()), element_required=False),
        [[1], None, []],
        ListType(8, ListType(10, LongType()), element_required=False),
        [[1], None, []],
    ),
]


@pytest.mark.parametrize(("name", "old", "value", "new", "expected"), EVOLUTIONS, ids=[each[0] for each in EVOLUTIONS])
def test_types_evolve(name: str, old: IcebergType, value: Any, new: IcebergType, expected: Any) -> None:
    rows = pa.table({"c": pa.array([value, None, value], arrow_type(old))})
    found = evolved((field(1, "c", old),), rows, (field(1, "renamed", new),))
    assert found == [{"renamed": expected}, {"renamed": None}, {"renamed": expected}]


def test_columns_are_found_by_id_whatever_they_are_called() -> None:
    old = (field(1, "a", LongType()), field(2, "b", LongType()), field(3, "gone", LongType()))
    new = (field(2, "a", LongType()), field(1, "b.c", LongType()), field(4, "gone", LongType()))
    rows = pa.table({"a": [1], "b": [2], "gone": [3]})
    assert evolved(old, rows, new) == [{"a": 2, "b.c": 1, "gone": None}]


def test_added_columns_show_their_initial_default() -> None:
    new = (
        field(1, "a", LongType()),
        field(2, "n", LongType(), required=True, initial_default=7, write_default=8),
        field(3, "u", UUIDType(), initial_default=str(UUIDS[0])),
        field(4, "d", DateType(), initial_default="2020-01-02"),
        field(5, "x", StringType()),
        field(6, "s", STRUCT),
        field(7, "void", UnknownType()),
    )
    expected = {"a": 1, "n": 7, "u": UUIDS[0], "d": dt.date(2020, 1, 2), "x": None, "s": None, "void": None}
    assert evolved(new[:1], pa.table({"a": [1]}), new) == [expected]


def test_a_required_column_that_no_file_has_is_damage() -> None:
    with pytest.raises(TableCorruptError, match="has no column n, which is required"):
        evolved(
            (field(1, "a", LongType()),),
            pa.table({"a": [1]}),
            (field(1, "a", LongType()), field(2, "n", LongType(), required=True)),
        )


def test_nothing_of_the_schema_is_in_the_file() -> None:
    new = (field(2, "b", LongType()), field(3, "c", LongType(), initial_default=3))
    found = evolved((field(1, "a", LongType()),), pa.table({"a": [1, 2]}), new)
    assert found == [{"b": None, "c": 3}] * 2


def test_a_column_of_another_type_is_damage() -> None:
    with pytest.raises(TableCorruptError, match=r"has the column a as .*string, not long"):
        evolved((field(1, "a", StringType()),), pa.table({"a": ["x"]}), (field(1, "a", LongType()),))


def test_columns_and_their_order_are_the_callers() -> None:
    fields = (field(1, "a", LongType()), field(2, "b.c", StringType()), field(3, "b", STRUCT))
    metadata = table_metadata(*fields)
    shelf, (file,) = write(as_table(fields, [{"a": 1, "b.c": "x", "b": POINT}]), metadata)
    task = FileTask(file, 1)
    assert rows_of(shelf, task, metadata, columns=("b.c", "a")) == [{"b.c": "x", "a": 1}]
    assert rows_of(shelf, task, metadata, columns=("b",)) == [{"b": POINT}]
    none = list(read_task(shelf, task, plan=plan_of(metadata), columns=()))
    assert [(each.num_rows, each.num_columns) for each in none] == [(1, 0)]
    assert read_schema(plan_of(metadata), ("b.c",), frozenset({"_pos"})).column_names == ["b.c", "_pos"]
    with pytest.raises(TableUsageError, match="column nope is not in the table"):
        read_task(shelf, task, plan=plan_of(metadata), columns=("nope",))
    with pytest.raises(TableUsageError, match="column _nope is not one that a scan can add"):
        read_task(shelf, task, plan=plan_of(metadata), extra=frozenset({"_nope"}))


def test_a_type_that_cannot_be_read_is_refused_unless_it_is_left_out() -> None:
    metadata = table_metadata(field(1, "a", LongType()), field(2, "g", GeometryType()))
    shelf = Shelf()
    file = stored(shelf, "x.parquet", pa.table([pa.array([1])], schema=pa.schema([with_id("a", pa.int64(), 1)])))
    with pytest.raises(UnsupportedTableError, match="column g has the type geometry"):
        rows_of(shelf, FileTask(file, 1), metadata)
    assert rows_of(shelf, FileTask(file, 1), metadata, columns=("a",)) == [{"a": 1}]


def test_identity_partitions_stand_for_columns_that_are_not_in_the_file() -> None:
    fields = (
        field(1, "a", LongType()),
        field(2, "day", DateType(), required=True),
        field(3, "u", UUIDType()),
        field(4, "bucketed", LongType(), initial_default=1),
        field(5, "none", LongType(), initial_default=9),
    )
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "day"),
        PartitionField(3, 1001, IdentityTransform(), "u"),
        PartitionField(4, 1002, BucketTransform(4), "b"),
        PartitionField(5, 1003, IdentityTransform(), "none"),
        spec_id=0,
    )
    shelf = Shelf()
    table = pa.table([pa.array([1])], schema=pa.schema([with_id("a", pa.int64(), 1)]))
    file = stored(shelf, "x.parquet", table, partition=Record(-1, UUIDS[1], 2, None))
    assert rows_of(shelf, FileTask(file, 1), table_metadata(*fields, spec=spec)) == [
        {"a": 1, "day": dt.date(1969, 12, 31), "u": UUIDS[1], "bucketed": 1, "none": None}
    ]
    file.spec_id = 77
    with pytest.raises(TableCorruptError, match="partition spec 77"):
        rows_of(shelf, FileTask(file, 1), table_metadata(*fields, spec=spec))


MAPPING = [
    {"field-id": 1, "names": ["id", "old id"]},
    {"field-id": 2, "names": ["s"], "fields": [{"field-id": 3, "names": ["x"]}]},
    {"field-id": 4, "names": ["l"], "fields": [{"field-id": 5, "names": ["element"]}]},
    {
        "field-id": 6,
        "names": ["m"],
        "fields": [{"field-id": 7, "names": ["key"]}, {"field-id": 8, "names": ["value"]}],
    },
    {"names": ["no id"]},
]


def test_files_without_field_ids_are_read_by_the_name_mapping() -> None:
    fields = (
        field(1, "number", LongType()),
        field(2, "s", StructType(field(3, "ex", LongType()), field(9, "z", LongType()))),
        field(4, "l", ListType(5, LongType())),
        field(6, "m", MapType(7, StringType(), 8, LongType())),
    )
    rows = {"old id": [1], "s": [{"x": 2, "other": 3}], "l": [[4]], "no id": [5], "unmapped": [6]}
    shelf = Shelf()
    entries = pa.array([[("k", 7)]], pa.map_(pa.string(), pa.int32()))
    file = stored(shelf, "x.parquet", pa.table({**rows, "m": entries}))
    metadata = table_metadata(*fields, properties={"schema.name-mapping.default": json.dumps(MAPPING)})
    assert rows_of(shelf, FileTask(file, 1), metadata) == [
        {"number": 1, "s": {"ex": 2, "z": None}, "l": [4], "m": [("k", 7)]}
    ]
    with pytest.raises(UnsupportedTableError, match="no field ids, and the table has no name mapping") as caught:
        rows_of(shelf, FileTask(file, 1), table_metadata(*fields))
    assert caught.value.fields["path"] == file.file_path
    broken = table_metadata(*fields, properties={"schema.name-mapping.default": "{"})
    with pytest.raises(TableUsageError, match="is no name mapping"):
        rows_of(shelf, FileTask(file, 1), broken)


FOREIGN: list[tuple[pa.Array, IcebergType, Any]] = [
    (pa.array([b"text"]), StringType(), "text"),
    (pa.array([1_500], pa.timestamp("ms")), TimestampType(), dt.datetime(1970, 1, 1, 0, 0, 1, 500_000)),  # noqa: DTZ001
    (pa.array([b"x" * 16], pa.binary(16)), UUIDType(), uuid.UUID(bytes=b"x" * 16)),
    (pa.array(["x"]).dictionary_encode(), StringType(), "x"),
    (pa.array([1], pa.int16()), IntegerType(), 1),
]


@pytest.mark.parametrize(("column", "kind", "expected"), FOREIGN, ids=[str(each[0].type) for each in FOREIGN])
def test_what_other_writers_store_is_understood(column: pa.Array, kind: IcebergType, expected: Any) -> None:
    shelf = Shelf()
    file = stored(shelf, "x.parquet", pa.table([column], schema=pa.schema([with_id("c", column.type, 1)])))
    assert rows_of(shelf, FileTask(file, 1), table_metadata(field(1, "c", kind))) == [{"c": expected}]


# ---------------------------------------------------------------------------- deletes

PLAIN = table_metadata(field(1, "id", LongType()), field(2, "k", StringType()), version=2)
IDS = list(range(10))


def plain_file(shelf: Shelf, rows: int = 10) -> TableFile:
    table = pa.table({"id": list(range(rows)), "k": [None if row == 3 else f"k{row % 4}" for row in range(rows)]})
    return write(table, PLAIN, shelf=shelf)[1][0]


def ids(shelf: Shelf, task: FileTask, metadata: TableMetadata = PLAIN, where: BooleanExpression = ALL) -> list[int]:
    return [row["id"] for row in rows_of(shelf, task, metadata, columns=("id",), where=where)]


def vector_of(shelf: Shelf, file: TableFile, positions: BitMap64) -> TableFile:
    new, (vector,) = write_vectors(f"{LOCATION}/data/v.puffin", {file.file_path: (positions, file)})
    shelf.write([new])
    return vector


def test_a_vector_deletes_rows() -> None:
    shelf = Shelf()
    file = plain_file(shelf)
    task = FileTask(file, 1, vector=vector_of(shelf, file, BitMap64([0, 4, 9])))
    assert ids(shelf, task) == [1, 2, 3, 5, 6, 7, 8]
    assert deleted_positions(shelf, task) == BitMap64([0, 4, 9])


def test_all_rows_may_be_deleted() -> None:
    shelf = Shelf()
    file = plain_file(shelf)
    task = FileTask(file, 1, vector=vector_of(shelf, file, BitMap64(range(10))))
    assert list(read_task(shelf, task, plan=plan_of(PLAIN))) == []


def test_position_deletes_add_up_with_a_vector() -> None:
    shelf = Shelf()
    file = plain_file(shelf)
    one, new = position_delete_file(f"{LOCATION}/data/d1.parquet", BitMap64([1, 2]), file)
    two, newer = position_delete_file(f"{LOCATION}/data/d2.parquet", BitMap64([2, 8]), file)
    shelf.write([new, newer])
    assert ids(shelf, FileTask(file, 1, positions=(one, two))) == [0, 3, 4, 5, 6, 7, 9]
    task = FileTask(file, 1, vector=vector_of(shelf, file, BitMap64([1, 5])), positions=(one, two))
    assert deleted_positions(shelf, task) == BitMap64([1, 2, 5, 8])


def delete_table(paths: list[str], positions: list[int], *, with_ids: bool = True) -> pa.Table:
    table = pa.table({"file_path": paths, "pos": positions})
    if not with_ids:
        return table
    fields = [
        with_id("file_path", pa.string(), DELETE_FILE_PATH_ID),
        with_id("pos", pa.int64(), DELETE_FILE_POSITION_ID),
    ]
    return table.cast(pa.schema(fields))


@pytest.mark.parametrize("with_ids", [True, False])
@pytest.mark.hazard("T4")
def test_a_position_delete_file_may_be_about_many_data_files(with_ids: bool) -> None:
    shelf = Shelf()
    file = plain_file(shelf)
    same = file.file_path.replace("file:///", "file:/")
    paths = [file.file_path, file.file_path + "x", "file:///other.parquet", same]
    deletes = stored(
        shelf,
        "d.parquet",
        delete_table(paths, [1, 2, 3, 4], with_ids=with_ids),
        content=DataFileContent.POSITION_DELETES,
        row_group_size=2,
    )
    assert ids(shelf, FileTask(file, 1, positions=(deletes,))) == [0, 2, 3, 5, 6, 7, 8, 9]


def test_a_delete_behind_the_end_is_damage() -> None:
    shelf = Shelf()
    file = plain_file(shelf)
    deletes, new = position_delete_file(f"{LOCATION}/data/d.parquet", BitMap64([10]), file)
    shelf.write([new])
    with pytest.raises(TableCorruptError, match="has 10 rows, and a delete of the row at 10"):
        ids(shelf, FileTask(file, 1, positions=(deletes,)))


def equality(shelf: Shelf, path: str, columns: dict[int, pa.Array], **more: Any) -> TableFile:
    fields = [with_id(f"c{key}", column.type, key) for key, column in columns.items()]
    table = pa.table(list(columns.values()), schema=pa.schema(fields))
    return stored(
        shelf, path, table, content=DataFileContent.EQUALITY_DELETES, **{"equality_ids": list(columns), **more}
    )


EQUALITIES: list[tuple[str, list[dict[int, pa.Array]], list[int]]] = [
    ("one", [{1: pa.array([2, 77], pa.int64())}], [0, 1, 3, 4, 5, 6, 7, 8, 9]),
    ("narrow", [{1: pa.array([2], pa.int32())}], [0, 1, 3, 4, 5, 6, 7, 8, 9]),
    ("text", [{2: pa.array(["k1"])}], [0, 2, 3, 4, 6, 7, 8]),
    ("null", [{2: pa.array([None], pa.string())}], [0, 1, 2, 4, 5, 6, 7, 8, 9]),
    ("both", [{1: pa.array([1, 2, 3]), 2: pa.array(["k1", "k1", None])}], [0, 2, 4, 5, 6, 7, 8, 9]),
    ("many-files", [{1: pa.array([1])}, {1: pa.array([2, 1])}, {2: pa.array(["k3"])}], [0, 3, 4, 5, 6, 8, 9]),
    ("none", [{1: pa.array([], pa.int64())}], IDS),
]


@pytest.mark.parametrize(("name", "deletes", "expected"), EQUALITIES, ids=[each[0] for each in EQUALITIES])
def test_equality_deletes(name: str, deletes: list[dict[int, pa.Array]], expected: list[int]) -> None:
    shelf = Shelf()
    file = plain_file(shelf)
    files = tuple(equality(shelf, f"e{place}.parquet", columns) for place, columns in enumerate(deletes))
    assert ids(shelf, FileTask(file, 1, equality=files)) == expected


def test_equality_deletes_by_a_column_that_was_dropped_renamed_or_added() -> None:
    shelf = Shelf()
    file = plain_file(shelf, 4)
    schemas = [
        PLAIN.schema(),
        Schema(field(1, "id", LongType()), field(9, "k", StringType(), initial_default="new"), schema_id=1),
    ]
    metadata = table_metadata(schemas=schemas)
    dropped = equality(shelf, "e1.parquet", {2: pa.array(["k0"])})
    assert ids(shelf, FileTask(file, 1, equality=(dropped,)), metadata) == [1, 2, 3]
    added = equality(shelf, "e2.parquet", {9: pa.array(["new"])})
    assert ids(shelf, FileTask(file, 1, equality=(added,)), metadata) == []


def test_equality_deletes_by_a_nested_column() -> None:
    shelf = Shelf()
    metadata = table_metadata(field(1, "id", LongType()), field(2, "s.t", StructType(field(3, "x.y", UUIDType()))))
    inner = pa.struct([pa.field("x.y", pa.binary(16))])
    rows = pa.table({"id": [1, 2, 3], "s.t": pa.array([{"x.y": UUIDS[0].bytes}, {"x.y": UUIDS[1].bytes}, None], inner)})
    _, (file,) = write(rows, metadata, shelf=shelf)
    kind = pa.struct([with_id("u", pa.binary(16), 3)])
    table = pa.table([pa.array([{"u": UUIDS[0].bytes}, {"u": None}], kind)], schema=pa.schema([with_id("st", kind, 2)]))
    deletes = stored(shelf, "e.parquet", table, content=DataFileContent.EQUALITY_DELETES, equality_ids=[3])
    assert ids(shelf, FileTask(file, 1, equality=(deletes,)), metadata) == [2]


def test_deleted_nulls_are_no_damage_when_the_column_becomes_required() -> None:
    """The deletes hold a null, and so does the row that they delete; nobody else sees either."""
    shelf = Shelf()
    inner = StructType(field(4, "y", LongType()))
    fields = (field(1, "id", LongType()), field(2, "k", StringType()), field(3, "s", inner))
    rows: list[dict[str, Any]] = [{"id": 0, "k": None, "s": {"y": None}}, {"id": 1, "k": "a", "s": {"y": 1}}]
    _, (file,) = write(as_table(fields, rows), table_metadata(*fields), shelf=shelf)
    wanted = StructType(field(4, "y", LongType(), required=True))
    required = (field(1, "id", LongType()), field(2, "k", StringType(), required=True), field(3, "s", wanted))
    metadata = table_metadata(schemas=[Schema(*fields, schema_id=0), Schema(*required, schema_id=1)])
    by_k = equality(shelf, "e.parquet", {2: pa.array([None], pa.string())})
    kind = pa.struct([with_id("y", pa.int64(), 4)])
    table = pa.table([pa.array([{"y": None}], kind)], schema=pa.schema([with_id("s", kind, 3)]))
    by_y = stored(shelf, "n.parquet", table, content=DataFileContent.EQUALITY_DELETES, equality_ids=[4])
    for deletes in (by_k, by_y):
        task = FileTask(file, 1, equality=(deletes,))
        assert ids(shelf, task, metadata) == [1]
        assert ids(shelf, task, metadata, ex.NotEqualTo("k", "b")) == [1]
    with pytest.raises(TableCorruptError, match="nulls in the column k"):
        rows_of(shelf, FileTask(file, 1), metadata)


@pytest.mark.parametrize(
    ("columns", "more", "message"),
    [
        ({1: pa.array([1])}, {"equality_ids": None}, "without equality ids"),
        ({1: pa.array([1])}, {"equality_ids": [2]}, "deletes by field 2, and has no such column"),
        ({8: pa.array([1])}, {}, "deletes by field 8, which no schema of the table has"),
    ],
)
def test_equality_deletes_that_cannot_be_are_damage(columns: Any, more: dict[str, Any], message: str) -> None:
    shelf = Shelf()
    deletes = equality(shelf, "e.parquet", columns, **more)
    with pytest.raises(TableCorruptError, match=message) as caught:
        ids(shelf, FileTask(plain_file(shelf), 1, equality=(deletes,)))
    assert caught.value.fields["path"] == deletes.file_path


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.none() | st.integers(0, 3), st.none() | st.sampled_from("ab")), min_size=1, max_size=30),
    st.sets(st.integers(0, 29), max_size=8),
    st.sets(st.integers(0, 29), max_size=8),
    st.lists(st.tuples(st.none() | st.integers(0, 3), st.none() | st.sampled_from("ab")), max_size=4),
    st.integers(1, 7),
)
def test_deletes_of_all_kinds_agree_with_a_list(
    values: list[Any], in_vector: set[int], in_file: set[int], pairs: list[Any], group_rows: int
) -> None:
    in_vector, in_file = ({each % len(values) for each in some} for some in (in_vector, in_file))
    shelf = Shelf()
    table = pa.table(
        [pa.array([each[0] for each in values], pa.int64()), pa.array([each[1] for each in values], pa.string())],
        schema=pa.schema([with_id("id", pa.int64(), 1), with_id("k", pa.string(), 2)]),
    )
    file = stored(shelf, "x.parquet", table, row_group_size=group_rows)
    deletes, equal = [], []
    if in_file:
        entry, new = position_delete_file(f"{LOCATION}/data/d.parquet", BitMap64(in_file), file)
        shelf.write([new])
        deletes.append(entry)
    if pairs:
        keys = {1: pa.array([a for a, _ in pairs], pa.int64()), 2: pa.array([b for _, b in pairs], pa.string())}
        equal.append(equality(shelf, "e.parquet", keys))
    vector = vector_of(shelf, file, BitMap64(in_vector)) if in_vector else None
    task = FileTask(file, 1, vector, tuple(deletes), tuple(equal))
    expected = [
        (place, *value) for place, value in enumerate(values) if place not in in_vector | in_file and value not in pairs
    ]
    found = rows_of(shelf, task, PLAIN, extra=("_pos",))
    assert [(row["_pos"], row["id"], row["k"]) for row in found] == expected


# ---------------------------------------------------------------------------- filters

FILTERED = table_metadata(
    field(1, "n", LongType()),
    field(2, "x", DoubleType()),
    field(3, "a.b", StringType()),
    field(4, "s", StructType(field(5, "d", DateType()))),
)
FILTER_ROWS = pa.table(
    {
        "n": [0, 1, None, 3],
        "x": [0.5, math.nan, None, -1.0],
        "a.b": ["ab", None, "b", "abc"],
        "s": pa.array([{"d": dt.date(2020, 1, 1)}, None, {"d": None}, {"d": dt.date(2021, 1, 1)}]),
    }
)
# A filter, the same in SQL, and the rows that match. What is unknown does not match.
FILTERS: list[tuple[BooleanExpression, str, list[int]]] = [
    (AlwaysTrue(), "true", [0, 1, 2, 3]),
    (AlwaysFalse(), "false", []),
    (ex.EqualTo("n", 1), "n = 1", [1]),
    (ex.NotEqualTo("n", 1), "n <> 1", [0, 3]),
    (Not(ex.EqualTo("n", 1)), "NOT n = 1", [0, 3]),
    (ex.In("n", {1, 3, 9}), "n IN (1, 3, 9)", [1, 3]),
    (ex.NotIn("n", {1, 9}), "n NOT IN (1, 9)", [0, 3]),
    (Not(ex.In("n", {1, 9})), "NOT n IN (1, 9)", [0, 3]),
    (ex.LessThan("n", 1), "n < 1", [0]),
    (ex.LessThanOrEqual("n", 1), "n <= 1", [0, 1]),
    (ex.GreaterThan("n", 1), "n > 1", [3]),
    (ex.GreaterThanOrEqual("n", 1), "n >= 1", [1, 3]),
    (ex.IsNull("n"), "n IS NULL", [2]),
    (ex.NotNull("n"), "n IS NOT NULL", [0, 1, 3]),
    (ex.IsNaN("x"), "isnan(x)", [1]),
    (ex.NotNaN("x"), "NOT isnan(x)", [0, 3]),
    (ex.StartsWith("a.b", "ab"), "starts_with(\"a.b\", 'ab')", [0, 3]),
    (ex.NotStartsWith("a.b", "ab"), "NOT starts_with(\"a.b\", 'ab')", [2]),
    (ex.EqualTo("a.b", "b"), "\"a.b\" = 'b'", [2]),
    (ex.GreaterThan("s.d", "2020-06-01"), "s.d > DATE '2020-06-01'", [3]),
    (ex.IsNull("s.d"), "s.d IS NULL", [1, 2]),
    (Or(ex.EqualTo("n", 0), ex.IsNull("n")), "n = 0 OR n IS NULL", [0, 2]),
    (And(ex.GreaterThan("n", 0), ex.EqualTo("a.b", "abc")), "n > 0 AND \"a.b\" = 'abc'", [3]),
    (Not(And(ex.GreaterThan("n", 0), ex.NotNull("a.b"))), 'NOT (n > 0 AND "a.b" IS NOT NULL)', [0, 1]),
]


@pytest.mark.parametrize(("where", "sql", "expected"), FILTERS, ids=[each[1] for each in FILTERS])
def test_filters_match_as_in_sql(where: BooleanExpression, sql: str, expected: list[int]) -> None:
    shelf, (file,) = write(FILTER_ROWS, FILTERED)
    assert list(positions_of(shelf, FileTask(file, 1), FILTERED, where)) == expected
    numbered = FILTER_ROWS.append_column("place", pa.array(range(4)))
    with duckdb.connect() as connection:
        connection.register("numbered", numbered)
        found = connection.execute(f"SELECT place FROM numbered WHERE {sql} ORDER BY place").fetchall()
    assert [each[0] for each in found] == expected


def test_a_filter_on_every_comparable_type() -> None:
    fields = [field(1, "u", UUIDType()), field(2, "d", DecimalType(9, 2)), field(3, "t", TimestampType())]
    rows = pa.table(
        {
            "u": pa.array([each.bytes for each in UUIDS], pa.uuid()),
            "d": [Decimal("1.10"), Decimal("2.20")],
            "t": pa.array([0, 10**6], pa.timestamp("us")),
        }
    )
    metadata = table_metadata(*fields)
    shelf, (file,) = write(rows, metadata)
    for where in (
        ex.EqualTo("u", UUIDS[1]),
        ex.In("u", {UUIDS[1], uuid.UUID(int=0)}),
        ex.EqualTo("d", Decimal("2.20")),
        ex.EqualTo("t", "1970-01-01T00:00:01"),
    ):
        assert list(positions_of(shelf, FileTask(file, 1), metadata, where)) == [1]


def test_a_filter_sees_defaults_renames_and_partitions() -> None:
    schemas = [
        PLAIN.schema(),
        Schema(field(1, "number", LongType()), field(9, "k", StringType(), initial_default="new"), schema_id=1),
    ]
    shelf = Shelf()
    file = plain_file(shelf, 3)
    metadata = table_metadata(schemas=schemas)
    where = And(ex.EqualTo("k", "new"), ex.EqualTo("number", 2))
    assert list(positions_of(shelf, FileTask(file, 1), metadata, where)) == [2]


def test_a_filter_that_does_not_fit_is_refused() -> None:
    shelf = Shelf()
    task = FileTask(plain_file(shelf), 1)
    with pytest.raises(TableUsageError, match="does not fit the table"):
        positions_of(shelf, task, PLAIN, ex.EqualTo("nope", 1))
    with pytest.raises(TableUsageError, match="does not fit the table"):
        positions_of(shelf, task, PLAIN, ex.EqualTo("id", "text"))


def test_positions_are_of_live_rows_only() -> None:
    shelf = Shelf()
    file = plain_file(shelf)
    vector = vector_of(shelf, file, BitMap64([1, 8]))
    deletes = equality(shelf, "e.parquet", {1: pa.array([9])})
    task = FileTask(file, 1, vector=vector, equality=(deletes,))
    assert list(positions_of(shelf, task, PLAIN, ex.GreaterThan(ex.Reference("id"), 6))) == [7]


# ---------------------------------------------------------------------------- columns of the scan


def test_the_columns_of_the_scan() -> None:
    metadata = table_metadata(field(1, "id", LongType()))
    shelf, (file,) = write(pa.table({"id": [5, 6, 7]}), metadata)
    file[16] = 100
    task = FileTask(file, 4, vector=vector_of(shelf, file, BitMap64([1])))
    extra = ("_file", "_pos", "_row_id", "_last_updated_sequence_number")
    assert rows_of(shelf, task, metadata, extra=extra) == [
        {"id": 5, "_file": file.file_path, "_pos": 0, "_row_id": 100, "_last_updated_sequence_number": 4},
        {"id": 7, "_file": file.file_path, "_pos": 2, "_row_id": 102, "_last_updated_sequence_number": 4},
    ]


def test_rows_keep_the_ids_that_they_carry() -> None:
    metadata = table_metadata(field(1, "id", LongType()))
    rows = pa.table({"id": [5, 6], "_row_id": [None, 3], "_last_updated_sequence_number": [2, None]})
    shelf, (file,) = write(rows, metadata)
    file[16] = 100
    extra = ("_row_id", "_last_updated_sequence_number")
    assert rows_of(shelf, FileTask(file, 9), metadata, columns=(), extra=extra) == [
        {"_row_id": 100, "_last_updated_sequence_number": 2},
        {"_row_id": 3, "_last_updated_sequence_number": 9},
    ]


def test_files_from_before_row_ids_have_none() -> None:
    shelf = Shelf()
    found = rows_of(
        shelf, FileTask(plain_file(shelf, 1), 9), PLAIN, columns=(), extra=("_row_id", "_last_updated_sequence_number")
    )
    assert found == [{"_row_id": None, "_last_updated_sequence_number": None}]


# ---------------------------------------------------------------------------- files


@pytest.mark.parametrize("file_format", [FileFormat.AVRO, FileFormat.ORC])
def test_other_formats_are_refused_by_name(file_format: FileFormat) -> None:
    shelf = Shelf()
    file = plain_file(shelf)
    file[2] = file_format
    with pytest.raises(UnsupportedTableError, match=f"of the format {file_format.value}") as caught:
        ids(shelf, FileTask(file, 1))
    assert caught.value.fields["path"] == file.file_path


@pytest.mark.parametrize("kept", [0, 3, 100, -1, -9])
def test_a_truncated_file_is_named(kept: int) -> None:
    shelf = Shelf()
    file = plain_file(shelf)
    shelf.files[file.file_path] = shelf.files[file.file_path][:kept]
    with pytest.raises(TableCorruptError, match="cannot be read as Parquet") as caught:
        ids(shelf, FileTask(file, 1))
    assert caught.value.fields["path"] == file.file_path


def test_damage_in_a_page_is_named() -> None:
    shelf = Shelf()
    file = plain_file(shelf, 1000)
    data = bytearray(shelf.files[file.file_path])
    data[10:200] = bytes(190)
    shelf.files[file.file_path] = bytes(data)
    with pytest.raises(TableCorruptError, match="cannot be read as Parquet"):
        ids(shelf, FileTask(file, 1))


@pytest.mark.parametrize("codec", ["zstd", "uncompressed"])
def test_no_flipped_bit_changes_a_value(codec: str) -> None:
    """Pages have checksums; of a footer, the manifest knows enough. What still reads well reads the same."""
    properties = {"write.parquet.compression-codec": codec}
    fields = (field(1, "n", LongType()), field(2, "s", StringType()))
    metadata = table_metadata(*fields, properties=properties)
    table = pa.table({"n": range(20), "s": [f"é{each}" for each in range(20)]})
    shelf, (file,) = write(table, metadata)
    whole, damaged = shelf.files[file.file_path], 0
    for place in range(4, len(whole) - 8):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        shelf.files[file.file_path] = bytes(flipped)
        try:
            found = rows_of(shelf, FileTask(file, 1), metadata)
        except TableCorruptError as error:
            found, damaged = table.to_pylist(), damaged + (error.fields["path"] == file.file_path)
        assert found == table.to_pylist(), place
    assert damaged > len(whole) // 4


@pytest.mark.parametrize("count", [0, 9, 11, 2**62])
def test_the_manifest_and_the_footer_count_the_same_rows(count: int) -> None:
    shelf = Shelf()
    file = plain_file(shelf, 10)
    file[4] = count
    with pytest.raises(TableCorruptError, match="has 10 rows, 10 by its footer") as caught:
        ids(shelf, FileTask(file, 1))
    assert caught.value.fields["path"] == file.file_path


def test_a_position_delete_file_that_lost_its_rows_is_damage() -> None:
    shelf = Shelf()
    file = plain_file(shelf)
    emptied = stored(shelf, "d.parquet", delete_table([], []), content=DataFileContent.POSITION_DELETES)
    emptied[4] = 1
    with pytest.raises(TableCorruptError, match="has 0 rows, 0 by its footer, 1 by its manifest"):
        ids(shelf, FileTask(file, 1, positions=(emptied,)))


def test_a_column_that_the_manifest_knows_is_not_taken_for_null() -> None:
    shelf = Shelf()
    file = stored(shelf, "x.parquet", pa.table([[1]], schema=pa.schema([with_id("id", pa.int64(), 9)])))
    assert rows_of(shelf, FileTask(file, 1), PLAIN) == [{"id": None, "k": None}]
    file[7] = {1: 1}
    with pytest.raises(TableCorruptError, match="no column with the id 1"):
        rows_of(shelf, FileTask(file, 1), PLAIN)


def test_an_error_of_the_store_comes_through_unchanged() -> None:
    class Gone(Shelf):
        def read(self, location: str, *, span: tuple[int, int] | None = None) -> bytes:
            raise TableCorruptError(location, "is missing")

    file = plain_file(Shelf())
    with pytest.raises(TableCorruptError, match="is missing"):
        ids(Gone(), FileTask(file, 1))


def big_file(shelf: Shelf) -> tuple[TableFile, TableMetadata]:
    """Over the size up to which files are read whole: incompressible text, and a small number."""
    metadata = table_metadata(
        field(1, "id", LongType()),
        field(2, "text", StringType()),
        properties={"write.parquet.row-group-size-bytes": "1000000"},
    )
    noise = np.random.default_rng(1).bytes(4_000_000).hex()
    table = pa.table({"id": list(range(40_000)), "text": [noise[at * 200 : at * 200 + 200] for at in range(40_000)]})
    return write(table, metadata, shelf=shelf)[1][0], metadata


def test_only_the_columns_that_are_needed_are_read() -> None:
    shelf = Shelf()
    file, metadata = big_file(shelf)
    assert file.file_size_in_bytes > 1 << 20
    shelf.reads.clear()
    assert ids(shelf, FileTask(file, 1), metadata) == list(range(40_000))
    read_bytes = sum(span[1] - span[0] for _, span in shelf.reads if span)
    assert all(span is not None for _, span in shelf.reads)
    assert read_bytes < file.file_size_in_bytes / 4


def test_rows_come_a_row_group_at_a_time() -> None:
    shelf = Shelf()
    file, metadata = big_file(shelf)
    batches = read_task(shelf, FileTask(file, 1), plan=plan_of(metadata), extra=frozenset({"_pos"}))
    shelf.reads.clear()
    first = next(batches)
    assert first.num_rows < 40_000
    assert sum(span[1] - span[0] for _, span in shelf.reads if span) < file.file_size_in_bytes / 2
    positions = [*first.column("_pos").to_pylist(), *(p for each in batches for p in each.column("_pos").to_pylist())]
    assert positions == list(range(40_000))


def test_a_small_file_is_read_in_one_request() -> None:
    shelf = Shelf()
    file = plain_file(shelf)
    shelf.reads.clear()
    assert ids(shelf, FileTask(file, 1)) == IDS
    assert shelf.reads == [(file.file_path, None)]


def test_row_groups_that_cannot_match_are_not_read() -> None:
    shelf = Shelf()
    file, metadata = big_file(shelf)
    shelf.reads.clear()
    where = ex.GreaterThanOrEqual("id", 39_990)
    assert [row["id"] for row in rows_of(shelf, FileTask(file, 1), metadata, where=where)] == list(
        range(39_990, 40_000)
    )
    assert sum(span[1] - span[0] for _, span in shelf.reads if span) < file.file_size_in_bytes / 3


@settings(max_examples=80)
@given(
    st.lists(st.none() | st.integers(-3, 3), min_size=1, max_size=20),
    st.sampled_from(["EqualTo", "NotEqualTo", "LessThan", "GreaterThanOrEqual", "IsNull", "NotNull", "In", "NotIn"]),
    st.integers(-4, 4),
    st.integers(1, 4),
    st.sampled_from([pa.int32(), pa.int64(), pa.date32(), pa.timestamp("us")]),
)
def test_leaving_out_row_groups_changes_no_answer(
    values: list[int | None], name: str, literal: int, group_rows: int, kind: pa.DataType
) -> None:
    shelf = Shelf()
    kinds = {pa.int32(): LongType(), pa.int64(): LongType(), pa.date32(): DateType()}
    metadata = table_metadata(field(1, "n", kinds.get(kind, TimestampType())))
    numbers = pa.array(values, pa.int32() if kind in (pa.int32(), pa.date32()) else pa.int64())
    table = pa.table([numbers.cast(kind)], schema=pa.schema([with_id("n", kind, 1)]))
    file = stored(shelf, "x.parquet", table, row_group_size=group_rows)
    tests: dict[str, Callable[[Any], bool]] = {
        "EqualTo": lambda value: value is not None and value == literal,
        "NotEqualTo": lambda value: value is not None and value != literal,
        "LessThan": lambda value: value is not None and value < literal,
        "GreaterThanOrEqual": lambda value: value is not None and value >= literal,
        "IsNull": lambda value: value is None,
        "NotNull": lambda value: value is not None,
        "In": lambda value: value in (literal, 2),
        "NotIn": lambda value: value is not None and value not in (literal, 2),
    }
    spelled = {pa.date32(): dt.date(1970, 1, 1) + dt.timedelta(days=literal)}
    two: Any = dt.date(1970, 1, 3) if kind == pa.date32() else 2
    value: Any = spelled.get(kind, literal)
    if kind == pa.timestamp("us"):
        value, two = (f"1970-01-01T00:00:00.00000{each}" for each in (abs(literal), 2))
        literal = abs(literal)
    arguments = {"IsNull": (), "NotNull": (), "In": ({value, two},), "NotIn": ({value, two},)}.get(name, (value,))
    expected = [place for place, each in enumerate(values) if tests[name](each)]
    assert list(positions_of(shelf, FileTask(file, 1), metadata, getattr(ex, name)("n", *arguments))) == expected


def test_a_filter_on_a_column_that_was_widened_finds_its_rows() -> None:
    old, new = Schema(field(1, "t", DateType()), schema_id=0), Schema(field(1, "t", TimestampType()), schema_id=1)
    shelf, (file,) = write(pa.table({"t": pa.array([1, 2, None], pa.date32())}), table_metadata(schemas=[old]))
    metadata = table_metadata(schemas=[old, new])
    where = ex.GreaterThan("t", "1970-01-02T12:00:00")
    assert list(positions_of(shelf, FileTask(file, 1), metadata, where)) == [1]
