"""Data files: rows fitted, split, sorted, written and measured. The oracles are pyarrow, DuckDB and plain Python."""

from __future__ import annotations

import datetime as dt
import math
import struct
import tempfile
import uuid
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import duckdb
import mmh3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFileIO
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2, TableMetadataV3
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)
from pyroaring import BitMap64

from headwater.kernel.randomness import seeded
from headwater.tables.arrow import arrow_type, constant
from headwater.tables.metrics import lower_bound, upper_bound
from headwater.tables.model import (
    DELETE_FILE_PATH_ID,
    DELETE_FILE_POSITION_ID,
    ROW_ID_COLUMN,
    ROW_ID_COLUMN_ID,
    UPDATED_COLUMN,
    UPDATED_COLUMN_ID,
    NewFile,
    TableFile,
    TableUsageError,
    UnsupportedTableError,
)
from headwater.tables.parquet import WriteOptions, write_rows
from headwater.tables.position_deletes import position_delete_file

LOCATION = "file:///lake/t"
UNSORTED = SortOrder(order_id=0)


class Shelf:
    """Files in memory, by location."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.reads: list[tuple[str, tuple[int, int] | None]] = []

    def write(self, files: Iterable[NewFile]) -> None:
        for each in files:
            assert each.location not in self.files
            self.files[each.location] = each.data

    def read(self, location: str, *, span: tuple[int, int] | None = None) -> bytes:
        self.reads.append((location, span))
        data = self.files[location]
        return data if span is None else data[span[0] : span[1]]


def table_metadata(
    *fields: NestedField,
    spec: PartitionSpec | None = None,
    order: SortOrder = UNSORTED,
    version: int = 3,
    properties: Mapping[str, str] | None = None,
    schemas: Sequence[Schema] | None = None,
    specs: Sequence[PartitionSpec] = (),
) -> TableMetadata:
    spec = spec or PartitionSpec(spec_id=0)
    schemas = schemas or [Schema(*fields, schema_id=0)]
    kind = {2: TableMetadataV2, 3: TableMetadataV3}[version]
    made = kind(
        location=LOCATION,
        table_uuid=uuid.UUID(int=1),
        last_updated_ms=1,
        last_column_id=1000,
        schemas=list(schemas),
        current_schema_id=schemas[-1].schema_id,
        partition_specs=[*specs, spec],
        default_spec_id=spec.spec_id,
        last_partition_id=2000,
        sort_orders=[UNSORTED, *([order] if order.order_id else [])],
        default_sort_order_id=order.order_id,
        properties=dict(properties or {}),
    )
    return cast(TableMetadata, made)


def field(field_id: int, name: str, kind: IcebergType, *, required: bool = False, **more: Any) -> NestedField:
    return NestedField(field_id, name, kind, required=required, **more)


def write(
    rows: Any, metadata: TableMetadata, *, shelf: Shelf | None = None, options: WriteOptions | None = None
) -> tuple[Shelf, tuple[TableFile, ...]]:
    shelf = shelf or Shelf()
    done = write_rows(
        rows, metadata=metadata, files=shelf, randomness=seeded(1), options=options or WriteOptions(threads=2)
    )
    assert all(each.file_size_in_bytes == len(shelf.files[each.file_path]) for each in done)
    return shelf, done


def parquet(shelf: Shelf, file: TableFile) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(shelf.files[file.file_path]))


UTC = dt.UTC
# Iceberg's timestamps without a zone.
EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001
NAIVE_2020 = dt.datetime(2020, 1, 1)  # noqa: DTZ001
YEAR = dt.timedelta(days=365)
SECOND = dt.timedelta(seconds=1)
UUIDS = [uuid.UUID(int=5), uuid.UUID(int=2**127 + 3)]

# Type, values, and the bytes of the bounds that the specification asks for, written out by hand.
PRIMITIVES: list[tuple[IcebergType, list[Any], bytes | None, bytes | None]] = [
    (BooleanType(), [True, None, False], b"\0", b"\1"),
    (IntegerType(), [7, None, -5], struct.pack("<i", -5), struct.pack("<i", 7)),
    (LongType(), [2**40, None, -(2**63)], struct.pack("<q", -(2**63)), struct.pack("<q", 2**40)),
    (FloatType(), [1.5, None, math.nan, -2.0], struct.pack("<f", -2.0), struct.pack("<f", 1.5)),
    (DoubleType(), [math.inf, None, math.nan, -2.0], struct.pack("<d", -2.0), struct.pack("<d", math.inf)),
    (DecimalType(9, 2), [Decimal("1.28"), None, Decimal("-1.29")], b"\xff\x7f", b"\x00\x80"),
    (
        DecimalType(38, 0),
        [Decimal(10**37), None, Decimal(-(10**37))],
        (-(10**37)).to_bytes(16, "big", signed=True),
        (10**37).to_bytes(16, "big", signed=True),
    ),
    (DateType(), [dt.date(1969, 12, 30), None, dt.date(1970, 1, 3)], struct.pack("<i", -2), struct.pack("<i", 2)),
    (TimeType(), [dt.time(0, 0, 1), None, dt.time(0, 0, 0, 5)], struct.pack("<q", 5), struct.pack("<q", 10**6)),
    (
        TimestampType(),
        [EPOCH + SECOND, None, EPOCH - SECOND],
        struct.pack("<q", -(10**6)),
        struct.pack("<q", 10**6),
    ),
    (
        TimestamptzType(),
        [dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), None],
        struct.pack("<q", 10**6),
        struct.pack("<q", 10**6),
    ),
    (TimestampNanoType(), [1_000_000_001, None, -7], struct.pack("<q", -7), struct.pack("<q", 1_000_000_001)),
    (TimestamptzNanoType(), [1_000_000_001, None, -7], struct.pack("<q", -7), struct.pack("<q", 1_000_000_001)),
    (StringType(), ["a", None, "é" * 20, "Z"], b"Z", ("é" * 15 + "ê").encode()),
    (BinaryType(), [b"a", None, b"\xff" * 20], b"a", None),
    (FixedType(3), [b"abd", None, b"abc"], b"abc", b"abd"),
    (UUIDType(), [UUIDS[1].bytes, None, UUIDS[0].bytes], UUIDS[0].bytes, UUIDS[1].bytes),
]


@pytest.mark.parametrize(("kind", "values", "lower", "upper"), PRIMITIVES, ids=[str(each[0]) for each in PRIMITIVES])
def test_every_primitive_type_is_written_and_measured(
    kind: IcebergType, values: list[Any], lower: bytes | None, upper: bytes | None
) -> None:
    column = pa.array(values, arrow_type(kind))
    shelf, (file,) = write(pa.table({"c": column}), table_metadata(field(7, "c", kind)))
    found = parquet(shelf, file).read().column("c").combine_chunks().cast(column.type)
    assert repr(found.to_pylist()) == repr(column.to_pylist())
    assert file.lower_bounds == ({} if lower is None else {7: lower})
    assert file.upper_bounds == ({} if upper is None else {7: upper})
    assert file.value_counts == {7: len(values)}
    assert file.null_value_counts == {7: 1}
    is_float = isinstance(kind, FloatType | DoubleType)
    assert file.nan_value_counts == ({7: 1} if is_float else {})
    assert file.column_sizes[7] > 0
    assert (file.content, file.file_format, file.record_count) == (
        DataFileContent.DATA,
        FileFormat.PARQUET,
        len(values),
    )
    assert (file.spec_id, file.sort_order_id, file.partition) == (0, 0, Record())
    assert file.split_offsets == [4]
    assert (file.first_row_id, file.referenced_data_file, file.content_offset) == (None, None, None)


def test_parquet_types_are_those_of_the_specification() -> None:
    kinds: list[IcebergType] = [UUIDType(), FixedType(4), DecimalType(9, 2), DecimalType(18, 2), DecimalType(38, 2)]
    kinds += [TimestamptzType(), TimestampType(), TimestampNanoType(), TimeType(), DateType(), StringType()]
    fields = [field(place + 1, f"c{place}", kind) for place, kind in enumerate(kinds)]
    rows = pa.table({each.name: pa.nulls(1, arrow_type(each.field_type)) for each in fields})
    shelf, (file,) = write(rows, table_metadata(*fields))
    columns = parquet(shelf, file).schema
    assert [columns.column(place).physical_type for place in range(len(kinds))] == [
        *["FIXED_LEN_BYTE_ARRAY"] * 2,
        *["INT32", "INT64", "FIXED_LEN_BYTE_ARRAY"],
        *["INT64"] * 4,
        *["INT32", "BYTE_ARRAY"],
    ]
    logical = [str(columns.column(place).logical_type) for place in range(len(kinds))]
    assert logical[0] == "UUID"
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in logical[5]
    assert "isAdjustedToUTC=false, timeUnit=microseconds" in logical[6]
    assert "isAdjustedToUTC=false, timeUnit=nanoseconds" in logical[7]
    assert "isAdjustedToUTC=false, timeUnit=microseconds" in logical[8]


def test_columns_carry_their_field_ids_at_every_depth() -> None:
    inner = StructType(field(3, "x", IntegerType(), required=True), field(4, "y", StringType()))
    kind = ListType(2, inner, element_required=True)
    shelf, (file,) = write(
        pa.table({"l": pa.array([[{"x": 1, "y": None}], None, []], arrow_type(kind))}),
        table_metadata(field(1, "l", kind)),
    )
    text = str(parquet(shelf, file).schema)
    for line in (
        "optional group field_id=1 l (List)",
        "required group field_id=2 element",
        "required int32 field_id=3 x",
    ):
        assert line in text
    assert file.value_counts == {3: 3, 4: 3}
    assert file.null_value_counts == {3: 2, 4: 3}
    assert file.lower_bounds == {}


def test_a_required_field_below_a_null_is_written() -> None:
    deep = StructType(
        field(2, "i", IntegerType(), required=True),
        field(3, "u", UUIDType(), required=True),
        field(4, "s", StructType(field(5, "d", DecimalType(9, 2), required=True)), required=True),
        field(6, "l", ListType(7, StringType(), element_required=True), required=True),
        field(8, "m", MapType(9, StringType(), 10, BooleanType(), value_required=True), required=True),
        field(11, "b", BinaryType(), required=True),
        field(12, "t", TimestampType(), required=True),
        field(13, "ok", BooleanType(), required=True),
    )
    some = {"i": 1, "u": UUIDS[0].bytes, "s": {"d": Decimal("1.10")}, "l": ["a"], "m": [("k", True)], "b": b"x"}
    rows: list[Any] = [{**some, "t": NAIVE_2020, "ok": True}, None]
    # pyarrow makes no nested UUIDs from Python values, so they come as bytes.
    given_type = pa.struct([each.with_type(pa.binary(16)) if each.name == "u" else each for each in arrow_type(deep)])
    column = pa.array(rows, given_type)
    shelf, (file,) = write(pa.table({"c": column}), table_metadata(field(1, "c", deep)))
    assert parquet(shelf, file).read().column("c").to_pylist() == [{**rows[0], "u": UUIDS[0]}, None]
    assert file.null_value_counts[2] == 1
    assert file.lower_bounds[2] == file.upper_bounds[2] == struct.pack("<i", 1)


def test_unknown_columns_are_not_stored() -> None:
    inner = StructType(field(3, "n", UnknownType()), field(4, "x", LongType()))
    metadata = table_metadata(field(1, "u", UnknownType()), field(2, "s", inner))
    rows = pa.table({"u": pa.nulls(2), "s": pa.array([{"n": None, "x": 1}, None], arrow_type(inner))})
    shelf, (file,) = write(rows, metadata)
    assert parquet(shelf, file).read().to_pylist() == [{"s": {"x": 1}}, {"s": None}]
    assert file.value_counts == {4: 2}


@pytest.mark.parametrize(
    "kind",
    [GeometryType(), ListType(2, UnknownType()), StructType(field(3, "n", UnknownType()))],
    ids=["geometry", "list", "struct"],
)
def test_types_that_cannot_be_written_are_refused(kind: IcebergType) -> None:
    with pytest.raises(UnsupportedTableError, match="column shape") as caught:
        write(pa.table({"id": [1]}), table_metadata(field(1, "id", LongType()), field(2, "shape", kind)))
    assert caught.value.fields["column"] == "shape"
    assert caught.value.hint


def test_names_may_have_dots_spaces_and_letters_of_all_kinds() -> None:
    names = ["a.b", "a", "with space", "ünï → 表", 'quo"te', "list.element"]
    fields = [field(place + 1, name, LongType()) for place, name in enumerate(names) if name != "a"]
    fields.append(field(2, "a", StructType(field(20, "c.d", LongType()))))
    rows = pa.table({each.name: [5, 6] for each in fields if each.name != "a"} | {"a": [{"c.d": 7}, {"c.d": 8}]})
    metadata = table_metadata(*fields, properties={"write.metadata.metrics.column.a.b": "counts"})
    shelf, (file,) = write(rows, metadata)
    assert parquet(shelf, file).read().to_pylist() == rows.to_pylist()
    assert file.lower_bounds == {3: b"\5" + bytes(7), 4: b"\5" + bytes(7), 5: b"\5" + bytes(7), 6: b"\5" + bytes(7)} | {
        20: b"\7" + bytes(7)
    }
    assert file.value_counts.keys() == {1, 3, 4, 5, 6, 20}


def test_no_row_makes_no_file_but_columns_are_checked() -> None:
    metadata = table_metadata(field(1, "id", LongType()))
    assert write(pa.table({"id": pa.array([], pa.int64())}), metadata)[1] == ()
    assert write(iter(()), metadata)[1] == ()
    with pytest.raises(TableUsageError, match="column nope"):
        write(pa.table({"nope": pa.array([], pa.int64())}), metadata)


WIDENINGS: list[tuple[pa.Array, IcebergType]] = [
    (pa.array([1, None], pa.int8()), IntegerType()),
    (pa.array([1, None], pa.uint16()), IntegerType()),
    (pa.array([1, None], pa.int32()), LongType()),
    (pa.array([2**32 - 1, None], pa.uint32()), LongType()),
    (pa.array([1.5, None], pa.float32()), DoubleType()),
    (pa.array(["x", None], pa.string()), StringType()),
    (pa.array(["x", None], pa.string_view()), StringType()),
    (pa.array(["x", None]).dictionary_encode(), StringType()),
    (pa.array([b"x", None], pa.binary()), BinaryType()),
    (pa.array([b"xy", None], pa.binary(2)), BinaryType()),
    (pa.array([Decimal("1.5"), None], pa.decimal128(4, 1)), DecimalType(9, 2)),
    (pa.array([NAIVE_2020, None], pa.timestamp("s")), TimestampType()),
    (pa.array([NAIVE_2020, None], pa.timestamp("ns")), TimestampType()),
    (pa.array([dt.datetime(2020, 1, 1, tzinfo=UTC), None], pa.timestamp("ms", "Asia/Tokyo")), TimestamptzType()),
    (pa.array([dt.time(1), None], pa.time32("s")), TimeType()),
    (pa.array([dt.date(2020, 1, 1), None], pa.date64()), DateType()),
    (pa.array([b"x" * 16, None], pa.binary(16)), UUIDType()),
    (pa.array([[1], None], pa.list_(pa.int32())), ListType(2, LongType())),
    (pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), ListType(2, LongType())),
    (pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())), MapType(2, StringType(), 3, LongType())),
    (pa.nulls(2), StringType()),
]


@pytest.mark.parametrize(("column", "kind"), WIDENINGS, ids=[f"{each[0].type}-{each[1]}" for each in WIDENINGS])
def test_what_loses_nothing_is_converted(column: pa.Array, kind: IcebergType) -> None:
    shelf, (file,) = write(pa.table({"c": column}), table_metadata(field(1, "c", kind)))
    found = parquet(shelf, file).read().column("c").combine_chunks()
    assert [plain_value(each) for each in found.to_pylist()] == [plain_value(each) for each in column.to_pylist()]


def plain_value(value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value


MISFITS: list[tuple[pa.Array, IcebergType]] = [
    (pa.array([1], pa.int64()), IntegerType()),
    (pa.array([1], pa.uint64()), LongType()),
    (pa.array([1], pa.int64()), DoubleType()),
    (pa.array([1.5], pa.float64()), FloatType()),
    (pa.array(["1"]), LongType()),
    (pa.array([b"x"]), StringType()),
    (pa.array(["x"]), BinaryType()),
    (pa.array([b"abc"], pa.binary(3)), FixedType(4)),
    (pa.array([Decimal("1.55")], pa.decimal128(9, 2)), DecimalType(9, 1)),
    (pa.array([Decimal("1.5")], pa.decimal128(9, 1)), DecimalType(9, 2)),
    (pa.array([1001], pa.timestamp("ns")), TimestampType()),
    (pa.array([1], pa.timestamp("us")), TimestamptzType()),
    (pa.array([1], pa.timestamp("us", "UTC")), TimestampType()),
    (pa.array([1], pa.date32()), TimestampType()),
    (pa.array([[1]]), LongType()),
    (pa.array([1]), ListType(2, LongType())),
    (pa.array([1]), StructType(field(2, "x", LongType()))),
    (pa.array([1]), UnknownType()),
]


@pytest.mark.parametrize(("column", "kind"), MISFITS, ids=[f"{each[0].type}-{each[1]}" for each in MISFITS])
def test_what_would_lose_something_is_refused(column: pa.Array, kind: IcebergType) -> None:
    with pytest.raises(TableUsageError) as caught:
        write(pa.table({"c": column}), table_metadata(field(1, "c", kind), field(9, "other", LongType())))
    assert caught.value.fields == {"column": "c", "expected": str(kind), "actual": str(column.type)}
    assert str(kind) in caught.value.message
    assert str(column.type) in caught.value.message


NESTED = StructType(field(3, "x", LongType(), required=True), field(4, "y", LongType()))
REFUSALS: list[tuple[str, dict[str, Any], str, str]] = [
    ("missing", {"s": [None]}, "column id is required, and missing", "id"),
    ("null", {"id": pa.array([1, None], pa.int64())}, "column id is required, and null", "id"),
    ("unknown", {"id": [1], "other": [1]}, "column other is not in the table", "other"),
    ("nested-missing", {"id": [1], "s": [{"y": 1}]}, "column s.x is required, and missing", "s.x"),
    ("nested-null", {"id": [1, 2], "s": [{"x": None}, None]}, "column s.x is required, and", "s.x"),
    ("nested-unknown", {"id": [1], "s": [{"x": 1, "z": 1}]}, "column s.z is not in the table", "s.z"),
    ("element", {"id": [1], "l": [[1, None]]}, "column l.element is required, and null", "l.element"),
    ("lineage-in-v2", {"id": [1], "_row_id": [1]}, "column _row_id is not in the table", "_row_id"),
]


@pytest.mark.parametrize(("name", "columns", "message", "column"), REFUSALS, ids=[each[0] for each in REFUSALS])
def test_rows_that_do_not_fit_are_refused_and_nothing_is_stored(
    name: str, columns: dict[str, Any], message: str, column: str
) -> None:
    metadata = table_metadata(
        field(1, "id", LongType(), required=True),
        field(2, "s", NESTED),
        field(5, "l", ListType(6, LongType(), element_required=True)),
        version=2,
    )
    shelf = Shelf()
    with pytest.raises(TableUsageError, match=message) as caught:
        write(pa.table(columns), metadata, shelf=shelf)
    assert caught.value.fields["column"] == column
    assert caught.value.hint
    assert shelf.files == {}


def test_a_column_that_is_there_twice_is_refused() -> None:
    rows = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"])
    with pytest.raises(TableUsageError, match="column id is twice"):
        write(rows, table_metadata(field(1, "id", LongType())))


def test_missing_columns_take_the_write_default_or_null() -> None:
    metadata = table_metadata(
        field(1, "id", LongType()),
        field(2, "n", LongType(), required=True, initial_default=1, write_default=2),
        field(3, "u", UUIDType(), write_default=str(UUIDS[0])),
        field(4, "d", DateType(), write_default="2020-02-29"),
        field(5, "none", StringType()),
        field(6, "s", StructType(field(7, "x", LongType(), write_default=9))),
    )
    rows = pa.table({"id": [1], "s": pa.array([{}], pa.struct([]))})
    shelf, (file,) = write(rows, metadata)
    assert parquet(shelf, file).read().to_pylist() == [
        {"id": 1, "n": 2, "u": UUIDS[0], "d": dt.date(2020, 2, 29), "none": None, "s": {"x": 9}}
    ]


def test_row_lineage_is_written_when_the_rows_carry_it() -> None:
    metadata = table_metadata(field(1, "id", LongType()))
    rows = pa.table({"id": [1, 2], ROW_ID_COLUMN: [10, None], UPDATED_COLUMN: pa.array([3, None], pa.int32())})
    shelf, (file,) = write(rows, metadata)
    text = str(parquet(shelf, file).schema)
    assert f"optional int64 field_id={ROW_ID_COLUMN_ID} {ROW_ID_COLUMN};" in text
    assert f"optional int64 field_id={UPDATED_COLUMN_ID} {UPDATED_COLUMN};" in text
    assert parquet(shelf, file).read().to_pylist() == rows.to_pylist()
    shelf, (file,) = write(pa.table({"id": [1]}), metadata)
    assert "_row_id" not in str(parquet(shelf, file).schema)


# ---------------------------------------------------------------------------- partitions and order


def bucket(data: bytes, buckets: int) -> int:
    return (mmh3.hash(data) & 0x7FFFFFFF) % buckets


# Source type, transform, source values, partition values: by the formulas of the specification.
TRANSFORMS: list[tuple[IcebergType, Transform[Any, Any], list[Any], list[Any]]] = [
    (LongType(), IdentityTransform(), [3, None, -1], [3, None, -1]),
    (StringType(), IdentityTransform(), ["a/b", None, ""], ["a/b", None, ""]),
    (DateType(), IdentityTransform(), [dt.date(1969, 12, 31), None], [-1, None]),
    (TimestampType(), IdentityTransform(), [EPOCH + dt.timedelta(seconds=1), None], [10**6, None]),
    (UUIDType(), IdentityTransform(), [UUIDS[0].bytes, None], [UUIDS[0], None]),
    (DecimalType(9, 2), IdentityTransform(), [Decimal("1.10"), None], [Decimal("1.10"), None]),
    (BooleanType(), IdentityTransform(), [True, None, False], [True, None, False]),
    (FixedType(2), IdentityTransform(), [b"ab", None], [b"ab", None]),
    (IntegerType(), BucketTransform(16), [34, None], [bucket(struct.pack("<q", 34), 16), None]),
    (LongType(), BucketTransform(16), [34, None], [bucket(struct.pack("<q", 34), 16), None]),
    (StringType(), BucketTransform(16), ["iceberg", None], [bucket(b"iceberg", 16), None]),
    (DecimalType(9, 2), BucketTransform(16), [Decimal("14.20")], [bucket(b"\x05\x8c", 16)]),
    (UUIDType(), BucketTransform(16), [UUIDS[1].bytes], [bucket(UUIDS[1].bytes, 16)]),
    (DateType(), BucketTransform(16), [dt.date(2017, 11, 16)], [bucket(struct.pack("<q", 17486), 16)]),
    (TimestampNanoType(), BucketTransform(16), [-5, 1001], [bucket(struct.pack("<q", x), 16) for x in (-1, 1)]),
    (IntegerType(), TruncateTransform(10), [1, -1, None, -10], [0, -10, None, -10]),
    (
        DecimalType(9, 2),
        TruncateTransform(50),
        [Decimal("10.65"), Decimal("-0.01")],
        [Decimal("10.50"), Decimal("-0.50")],
    ),
    (StringType(), TruncateTransform(2), ["ü😀x", "a", None], ["ü😀", "a", None]),
    (BinaryType(), TruncateTransform(2), [b"abc", b"a", None], [b"ab", b"a", None]),
    (DateType(), YearTransform(), [dt.date(1969, 12, 31), dt.date(2020, 2, 1)], [-1, 50]),
    (TimestampType(), MonthTransform(), [EPOCH - SECOND, NAIVE_2020], [-1, 600]),
    (TimestamptzType(), DayTransform(), [dt.datetime(1969, 12, 31, tzinfo=UTC), None], [-1, None]),
    (TimestampType(), HourTransform(), [EPOCH - dt.timedelta(microseconds=1), EPOCH + dt.timedelta(days=1)], [-1, 24]),
    (TimestampNanoType(), HourTransform(), [-1, 3600 * 10**9], [-1, 1]),
    (TimestamptzNanoType(), DayTransform(), [-1, None], [-1, None]),
    (StringType(), VoidTransform(), ["a", None, "b"], [None]),
]


@pytest.mark.parametrize(
    ("kind", "transform", "values", "expected"), TRANSFORMS, ids=[f"{each[1]}-{each[0]}" for each in TRANSFORMS]
)
def test_rows_are_split_by_every_transform(
    kind: IcebergType, transform: Transform[Any, Any], values: list[Any], expected: list[Any]
) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, transform, "p"), spec_id=4)
    metadata = table_metadata(field(1, "row", LongType()), field(2, "c", kind), spec=spec)
    rows = pa.table({"row": list(range(len(values))), "c": pa.array(values, arrow_type(kind))})
    shelf, files = write(rows, metadata)
    found = {}
    for each in files:
        assert each.spec_id == 4
        assert each.file_path.startswith(f"{LOCATION}/data/p=")
        for row in parquet(shelf, each).read().column("row").to_pylist():
            found[row] = each.partition[0]
    if isinstance(transform, VoidTransform):
        assert [each.partition[0] for each in files] == expected
    else:
        assert [found[row] for row in range(len(values))] == expected
        assert len(files) == len(set(expected))


def test_a_spec_of_several_fields_splits_by_all_of_them() -> None:
    spec = PartitionSpec(
        PartitionField(1, 1000, IdentityTransform(), "a b"),
        PartitionField(2, 1001, VoidTransform(), "gone"),
        PartitionField(3, 1002, BucketTransform(2), "bucket"),
        spec_id=1,
    )
    inner = StructType(field(3, "deep", LongType()))
    fields = (field(1, "k", StringType()), field(2, "v", LongType()), field(4, "s.t", inner))
    rows = pa.table(
        {"k": ["x", None, "x", "x"], "v": [1, 2, 3, 4], "s.t": [{"deep": 1}, None, {"deep": 1}, {"deep": 2}]}
    )
    shelf, files = write(rows, table_metadata(*fields, spec=spec))
    places = {
        tuple(each.partition[place] for place in range(3)): parquet(shelf, each).read()["v"].to_pylist()
        for each in files
    }
    one, two = bucket(struct.pack("<q", 1), 2), bucket(struct.pack("<q", 2), 2)
    assert one == two  # both fall into one bucket, so rows 1, 3 and 4 share a file, in their order
    assert places == {("x", None, one): [1, 3, 4], (None, None, None): [2]}
    assert any(each.file_path.startswith(f"{LOCATION}/data/a+b=x/gone=null/bucket={one}/") for each in files)


@pytest.mark.parametrize(
    ("kind", "arrow", "value", "transform", "folder"),
    [
        (DateType(), pa.date32(), 3_000_000, IdentityTransform(), "p=3000000"),
        (TimestampType(), pa.timestamp("us"), 2**62, DayTransform(), "p=53375995"),
    ],
)
def test_years_that_python_does_not_have_are_written_as_numbers(
    kind: IcebergType, arrow: pa.DataType, value: int, transform: Any, folder: str
) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, transform, "p"))
    metadata = table_metadata(field(1, "t", kind), spec=spec)
    _, (file,) = write(pa.table({"t": pa.array([value], arrow)}), metadata)
    assert f"/data/{folder}/" in file.file_path


def test_long_partition_values_make_short_folders() -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "k"), spec_id=0)
    rows = pa.table({"k": ["é" * 300, "é" * 299 + "x"]})
    _, files = write(rows, table_metadata(field(1, "k", StringType()), spec=spec))
    assert len({each.file_path.rsplit("/", 1)[0] for each in files}) == 2
    assert all(len(part) <= 255 for each in files for part in each.file_path.split("/"))
    assert {each.partition[0] for each in files} == {"é" * 300, "é" * 299 + "x"}


def test_an_unknown_transform_is_refused() -> None:
    spec = PartitionSpec(PartitionField(1, 1000, UnknownTransform("zorder"), "z"), spec_id=0)
    with pytest.raises(UnsupportedTableError, match="zorder"):
        write(pa.table({"k": [1]}), table_metadata(field(1, "k", LongType()), spec=spec))


ORDERS = [
    (SortDirection.ASC, NullOrder.NULLS_FIRST, [None, -1.0, 2.0, math.inf, math.nan]),
    (SortDirection.ASC, NullOrder.NULLS_LAST, [-1.0, 2.0, math.inf, math.nan, None]),
    (SortDirection.DESC, NullOrder.NULLS_FIRST, [None, math.nan, math.inf, 2.0, -1.0]),
    (SortDirection.DESC, NullOrder.NULLS_LAST, [math.nan, math.inf, 2.0, -1.0, None]),
]


@pytest.mark.parametrize(("direction", "nulls", "expected"), ORDERS)
def test_rows_are_sorted_by_the_order_of_the_table(
    direction: SortDirection, nulls: NullOrder, expected: list[float | None]
) -> None:
    order = SortOrder(SortField(1, IdentityTransform(), direction, nulls), order_id=3)
    rows = pa.table({"x": [2.0, math.nan, None, -1.0, math.inf]})
    shelf, (file,) = write(rows, table_metadata(field(1, "x", DoubleType()), order=order))
    assert repr(parquet(shelf, file).read()["x"].to_pylist()) == repr(expected)
    assert file.sort_order_id == 3


@pytest.mark.parametrize(
    ("kind", "values"), [each[:2] for each in PRIMITIVES], ids=[str(each[0]) for each in PRIMITIVES]
)
def test_every_type_can_be_a_partition_and_a_sort_key(kind: IcebergType, values: list[Any]) -> None:
    column = pa.array(values, arrow_type(kind))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"), spec_id=0)
    shelf, files = write(pa.table({"c": column}), table_metadata(field(1, "c", kind), spec=spec))
    assert len(files) == len(values)
    for each in files:
        stored = parquet(shelf, each).read().column("c").combine_chunks().cast(column.type)
        assert repr(constant(each.partition[0], kind, 1).to_pylist()) == repr(stored.to_pylist())
    order = SortOrder(SortField(1, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_LAST), order_id=1)
    shelf, (file,) = write(pa.table({"c": column}), table_metadata(field(1, "c", kind), order=order))
    found = parquet(shelf, file).read().column("c").combine_chunks().cast(column.type).to_pylist()
    known = [each for each in column.to_pylist() if each is not None and each == each]
    assert found[: len(known)] == sorted(known)
    assert found[-1] is None


def test_a_sort_is_stable_and_goes_through_transforms() -> None:
    order = SortOrder(
        SortField(1, TruncateTransform(10), SortDirection.DESC, NullOrder.NULLS_LAST),
        SortField(2, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_LAST),
        order_id=1,
    )
    rows = pa.table({"n": [11, 25, 12, None, 21], "u": ["b", "x", "a", "c", "x"]})
    shelf, (file,) = write(rows, table_metadata(field(1, "n", LongType()), field(2, "u", StringType()), order=order))
    assert parquet(shelf, file).read()["n"].to_pylist() == [25, 21, 12, 11, None]


# ---------------------------------------------------------------------------- files and properties


def test_properties_shape_the_files() -> None:
    properties = {
        "write.target-file-size-bytes": "20000",
        "write.parquet.row-group-size-bytes": "8000",
        "write.parquet.compression-codec": "uncompressed",
        "write.parquet.bloom-filter-enabled.column.id": "true",
        "write.data.path": "s3://elsewhere/x/",
    }
    metadata = table_metadata(field(1, "id", LongType()), properties=properties)
    shelf, files = write(pa.table({"id": pa.array(range(10_000), pa.int64())}), metadata)
    assert len(files) > 1
    ids: list[int] = []
    for each in files:
        assert each.file_path.startswith("s3://elsewhere/x/")
        footer = parquet(shelf, each).metadata
        assert footer.row_group(0).num_rows == 1000
        assert footer.row_group(0).column(0).compression == "UNCOMPRESSED"
        assert footer.row_group(0).column(0).bloom_filter_offset is not None
        assert len(each.split_offsets or ()) == footer.num_row_groups
        part = parquet(shelf, each).read()["id"].to_pylist()
        assert each.lower_bounds == {1: struct.pack("<q", min(part))}
        assert each.upper_bounds == {1: struct.pack("<q", max(part))}
        ids += part
    assert ids == list(range(10_000))
    assert len(files[0].split_offsets or ()) > 1
    assert len({each.file_path for each in files}) == len(files)


def test_zstd_is_the_default_and_no_bloom_filter_is_written() -> None:
    shelf, (file,) = write(pa.table({"id": [1]}), table_metadata(field(1, "id", LongType())))
    chunk = parquet(shelf, file).metadata.row_group(0).column(0)
    assert (chunk.compression, chunk.bloom_filter_offset) == ("ZSTD", None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.target-file-size-bytes", "many"),
        ("write.parquet.row-group-size-bytes", "0"),
        ("write.metadata.metrics.default", "all"),
        ("write.metadata.metrics.column.id", "truncate(x)"),
    ],
)
def test_a_property_that_cannot_be_is_named(name: str, value: str) -> None:
    with pytest.raises(TableUsageError, match=name) as caught:
        write(pa.table({"id": [1]}), table_metadata(field(1, "id", LongType()), properties={name: value}))
    assert caught.value.fields == {"property": name, "value": value}


def test_an_unknown_codec_is_refused() -> None:
    metadata = table_metadata(field(1, "id", LongType()), properties={"write.parquet.compression-codec": "lzma"})
    with pytest.raises(TableUsageError, match="cannot be written as Parquet"):
        write(pa.table({"id": [1]}), metadata)


def test_metrics_modes() -> None:
    properties = {
        "write.metadata.metrics.default": "truncate(2)",
        "write.metadata.metrics.column.b": "none",
        "write.metadata.metrics.column.c": "counts",
        "write.metadata.metrics.column.d": "full",
    }
    fields = [field(place + 1, name, StringType()) for place, name in enumerate("abcd")]
    _, (file,) = write(
        pa.table({name: ["long text"] for name in "abcd"}), table_metadata(*fields, properties=properties)
    )
    assert file.lower_bounds == {1: b"lo", 4: b"long text"}
    assert file.upper_bounds == {1: b"lp", 4: b"long text"}
    assert file.value_counts == {1: 1, 3: 1, 4: 1}
    assert file.column_sizes.keys() == {1, 2, 3, 4}


def test_batches_are_written_as_they_come() -> None:
    batches = [pa.record_batch({"id": pa.array([place] * 1000, pa.int64())}) for place in range(6)]
    shelf, files = write(
        iter(batches), table_metadata(field(1, "id", LongType())), options=WriteOptions(buffer_size_bytes=16_000)
    )
    assert [each.record_count for each in files] == [2000, 2000, 2000]
    assert [set(parquet(shelf, each).read()["id"].to_pylist()) for each in files] == [{0, 1}, {2, 3}, {4, 5}]


def test_names_and_order_are_the_same_for_the_same_randomness_whatever_the_threads_do() -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "k"), spec_id=0)
    rows = pa.table({"k": list(range(20)) * 5})
    metadata = table_metadata(field(1, "k", LongType()), spec=spec)
    one = write(rows, metadata, options=WriteOptions(threads=1))
    many = write(rows, metadata, options=WriteOptions(threads=8))
    assert [each.file_path for each in one[1]] == [each.file_path for each in many[1]]
    assert one[0].files == many[0].files


def test_an_error_of_the_sink_is_not_swallowed() -> None:
    class Full:
        def write(self, files: Iterable[NewFile]) -> None:
            raise TableUsageError("full")

    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "k"), spec_id=0)
    metadata = table_metadata(field(1, "k", LongType()), spec=spec)
    with pytest.raises(TableUsageError, match="full"):
        write_rows(pa.table({"k": list(range(50))}), metadata=metadata, files=Full(), randomness=seeded(1))


# ---------------------------------------------------------------------------- bounds

TEXT_BOUNDS = [
    ("abc", 3, "abc"),
    ("abcd", 3, "abd"),
    ("ab\U0010ffffz", 3, "ac"),
    ("\U0010ffff\U0010ffffz", 2, None),
    ("a\ud7ffz", 2, "a\ue000"),
    ("a\x7fz", 2, "a\x80"),
    ("", 2, ""),
]


@pytest.mark.parametrize(("value", "length", "expected"), TEXT_BOUNDS)
def test_an_upper_bound_of_text_is_rounded_up(value: str, length: int, expected: str | None) -> None:
    assert upper_bound(StringType(), value, length) == (None if expected is None else expected.encode())


@pytest.mark.parametrize(
    ("value", "expected"), [(b"ab", b"ab"), (b"abc", b"ac"), (b"a\xffc", b"b"), (b"\xff\xff\x00", None)]
)
def test_an_upper_bound_of_bytes_is_rounded_up(value: bytes, expected: bytes | None) -> None:
    assert upper_bound(BinaryType(), value, 2) == expected


@given(st.text(), st.integers(1, 20))
def test_bounds_of_text_hold(value: str, length: int) -> None:
    value = value.encode("utf-8", "ignore").decode()
    assert lower_bound(StringType(), value, length) <= value.encode()
    upper = upper_bound(StringType(), value, length)
    assert upper is None or upper >= value.encode()


def test_zeros_are_bounded_from_both_sides() -> None:
    _, (file,) = write(pa.table({"x": [0.0, -0.0]}), table_metadata(field(1, "x", DoubleType())))
    assert file.lower_bounds == {1: struct.pack("<d", -0.0)}
    assert file.upper_bounds == {1: struct.pack("<d", 0.0)}


def test_a_column_of_nothing_but_nan_has_no_bounds() -> None:
    _, (file,) = write(pa.table({"x": [math.nan, None]}), table_metadata(field(1, "x", DoubleType())))
    assert (file.lower_bounds, file.upper_bounds, file.nan_value_counts) == ({}, {}, {1: 1})


@pytest.mark.hazard("T2")
def test_bounds_cover_values_that_parquet_keeps_no_statistics_of() -> None:
    rows = pa.table({"s": ["m", "z" * 100_000, "a" * 100_000]})
    metadata = table_metadata(
        field(1, "s", StringType()),
        properties={"write.metadata.metrics.default": "full", "write.parquet.row-group-size-bytes": "1"},
    )
    _, (file,) = write(rows, metadata)
    assert file.lower_bounds == {1: b"a" * 100_000}
    assert file.upper_bounds == {1: b"z" * 100_000}


# ---------------------------------------------------------------------------- random schemas

SIMPLE: dict[str, tuple[PrimitiveType, st.SearchStrategy[Any]]] = {
    "boolean": (BooleanType(), st.booleans()),
    "int": (IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    "long": (LongType(), st.integers(-(2**63), 2**63 - 1)),
    "double": (DoubleType(), st.floats(allow_nan=False)),
    "decimal": (DecimalType(12, 3), st.decimals(-(10**8), 10**8, places=3)),
    "date": (DateType(), st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1))),
    "timestamp": (TimestampType(), st.datetimes(EPOCH - 70 * YEAR, EPOCH + 130 * YEAR)),
    "string": (StringType(), st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)),
    "binary": (BinaryType(), st.binary(max_size=20)),
    "fixed": (FixedType(4), st.binary(min_size=4, max_size=4)),
}


@st.composite
def kinds(draw: st.DrawFn, depth: int, ids: list[int]) -> tuple[IcebergType, st.SearchStrategy[Any]]:
    """A type, and values of it."""
    shape = draw(st.sampled_from(["simple", "struct", "list", "map"])) if depth else "simple"

    def part(*, optional: bool) -> tuple[IcebergType, st.SearchStrategy[Any], bool]:
        kind, values = draw(kinds(depth - 1, ids))
        required = draw(st.booleans()) if optional else True
        return kind, values if required else st.none() | values, required

    def fresh() -> int:
        ids.append(len(ids) + 1)
        return ids[-1]

    if shape == "struct":
        parts = {f"f{place}": part(optional=True) for place in range(draw(st.integers(1, 3)))}
        fields = [field(fresh(), name, kind, required=required) for name, (kind, _, required) in parts.items()]
        return StructType(*fields), st.fixed_dictionaries({name: values for name, (_, values, _) in parts.items()})
    if shape == "list":
        kind, values, required = part(optional=True)
        return ListType(fresh(), kind, element_required=required), st.lists(values, max_size=3)
    if shape == "map":
        kind, values, required = part(optional=True)
        entries = st.dictionaries(st.text("abc", max_size=2), values, max_size=3).map(lambda found: list(found.items()))
        return MapType(fresh(), StringType(), fresh(), kind, value_required=required), entries
    return SIMPLE[draw(st.sampled_from(sorted(SIMPLE)))]


@st.composite
def tables(draw: st.DrawFn) -> tuple[tuple[NestedField, ...], list[dict[str, Any]]]:
    """Fields, and rows that fit them."""
    ids: list[int] = []
    fields, values = [], {}
    for place in range(draw(st.integers(1, 4))):
        kind, found = draw(kinds(2, ids))
        ids.append(len(ids) + 1)
        required = draw(st.booleans())
        fields.append(field(ids[-1], f"c{place}", kind, required=required))
        values[f"c{place}"] = found if required else st.none() | found
    return tuple(fields), draw(st.lists(st.fixed_dictionaries(values), min_size=1, max_size=6))


def as_table(fields: Sequence[NestedField], rows: list[dict[str, Any]]) -> pa.Table:
    schema = pa.schema([pa.field(each.name, arrow_type(each.field_type)) for each in fields])
    return pa.Table.from_pylist(rows, schema=schema)


def of_duckdb(value: Any, kind: IcebergType) -> Any:
    """DuckDB's Python values, as pyarrow would have them."""
    if value is None:
        return None
    match kind:
        case StructType():
            return {each.name: of_duckdb(value[each.name], each.field_type) for each in kind.fields}
        case ListType():
            return [of_duckdb(each, kind.element_type) for each in value]
        case MapType():
            return [(key, of_duckdb(each, kind.value_type)) for key, each in value.items()]
        case _:
            return value


@settings(max_examples=60)
@given(tables())
def test_what_is_written_is_what_pyarrow_and_duckdb_read(
    made: tuple[tuple[NestedField, ...], list[dict[str, Any]]],
) -> None:
    fields, rows = made
    table = as_table(fields, rows)
    shelf, (file,) = write(table, table_metadata(*fields))
    assert parquet(shelf, file).read().to_pylist() == table.to_pylist()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f.parquet"
        path.write_bytes(shelf.files[file.file_path])
        with duckdb.connect() as connection:
            found = connection.execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchall()
    expected = [tuple(row.values()) for row in table.to_pylist()]
    assert [tuple(of_duckdb(v, f.field_type) for v, f in zip(row, fields, strict=True)) for row in found] == expected


@settings(max_examples=60)
@given(tables())
def test_metrics_are_true(made: tuple[tuple[NestedField, ...], list[dict[str, Any]]]) -> None:
    fields, rows = made
    _, (file,) = write(
        as_table(fields, rows), table_metadata(*fields, properties={"write.metadata.metrics.default": "full"})
    )
    for each in fields:
        if not isinstance(each.field_type, PrimitiveType):
            continue
        values = [row[each.name] for row in rows if row[each.name] is not None]
        assert file.value_counts[each.field_id] == len(rows)
        assert file.null_value_counts[each.field_id] == len(rows) - len(values)
        if not values:
            assert each.field_id not in file.lower_bounds
            continue
        key = str.encode if isinstance(each.field_type, StringType) else None
        smallest, largest = min(values, key=key), max(values, key=key)
        assert file.lower_bounds[each.field_id] == as_bytes(smallest, each.field_type, zero=-0.0)
        assert file.upper_bounds[each.field_id] == as_bytes(largest, each.field_type, zero=0.0)


def as_bytes(value: Any, kind: IcebergType, *, zero: float) -> bytes:
    """The single-value serialization of the specification, once more."""
    match kind:
        case BooleanType():
            return b"\1" if value else b"\0"
        case IntegerType():
            return struct.pack("<i", value)
        case LongType():
            return struct.pack("<q", value)
        case DoubleType():
            return struct.pack("<d", value or zero)
        case DecimalType():
            number = int(value.scaleb(kind.scale))
            size = ((number if number >= 0 else ~number).bit_length() + 8) // 8
            return number.to_bytes(size, "big", signed=True)
        case DateType():
            return struct.pack("<i", (value - EPOCH.date()).days)
        case TimestampType():
            return struct.pack("<q", (value - EPOCH) // dt.timedelta(microseconds=1))
        case StringType():
            return bytes(value.encode())
        case _:
            return bytes(value)


def test_pyiceberg_reads_every_type(tmp_path: Path) -> None:
    kinds = {f"c{place}": kind for place, (kind, *_) in enumerate(PRIMITIVES)}
    fields = [field(place + 1, name, kind) for place, (name, kind) in enumerate(kinds.items())]
    columns = [values[0] for _, values, *_ in PRIMITIVES]
    rows = pa.table(
        {
            each.name: pa.array([value, None], arrow_type(each.field_type))
            for each, value in zip(fields, columns, strict=True)
        }
    )
    metadata = table_metadata(*fields)
    shelf, (file,) = write(rows, metadata)
    path = tmp_path / "f.parquet"
    path.write_bytes(shelf.files[file.file_path])
    file[1] = f"file://{path}"
    scan = ArrowScan(metadata, PyArrowFileIO(), metadata.schema(), AlwaysTrue())
    assert scan.to_table([FileScanTask(file)]).to_pylist() == rows.to_pylist()


# ---------------------------------------------------------------------------- position deletes


def test_a_position_delete_file_is_about_one_data_file() -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "k"), spec_id=5)
    metadata = table_metadata(field(1, "k", LongType()), spec=spec, version=2)
    _, (data,) = write(pa.table({"k": [7] * 100}), metadata)
    file, new = position_delete_file(f"{LOCATION}/data/d.parquet", BitMap64([99, 3, 4]), data)
    path = data.file_path.encode()
    assert len(path) > 16
    assert file.lower_bounds == {DELETE_FILE_PATH_ID: path, DELETE_FILE_POSITION_ID: struct.pack("<q", 3)}
    assert file.upper_bounds == {DELETE_FILE_PATH_ID: path, DELETE_FILE_POSITION_ID: struct.pack("<q", 99)}
    assert (file.content, file.record_count, file.spec_id) == (DataFileContent.POSITION_DELETES, 3, 5)
    assert (file.partition, file.referenced_data_file) == (Record(7), data.file_path)
    assert (file.file_path, file.file_size_in_bytes) == (new.location, len(new.data))
    assert file.sort_order_id is None
    assert not file.is_vector
    stored = pq.ParquetFile(pa.BufferReader(new.data))
    assert stored.read().to_pydict() == {"file_path": [data.file_path] * 3, "pos": [3, 4, 99]}
    assert f"required binary field_id={DELETE_FILE_PATH_ID} file_path (String)" in str(stored.schema)
    assert f"required int64 field_id={DELETE_FILE_POSITION_ID} pos" in str(stored.schema)
