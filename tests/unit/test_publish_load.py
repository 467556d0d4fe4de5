"""Loads: what is in the files is in the table, or nothing is; DuckDB on the same files, and dicts, are the oracle."""

from __future__ import annotations

import gzip
import json
import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import accumulate
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
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
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from headwater.catalog.errors import ExpectedVersionMismatchError
from headwater.catalog.model import TableKey
from headwater.kernel import failpoints
from headwater.kernel.errors import HeadwaterError, UsageError
from headwater.kernel.failpoints import Action, Failpoint
from headwater.lake import Lake
from headwater.publish.constraints.model import Cardinality, Check, ForeignKey, OnDelete
from headwater.publish.errors import ConstraintViolationError, PublishOutcomeUnknownError
from headwater.publish.load import sources
from headwater.publish.load.casting import UnfitError, cast_exactly
from headwater.publish.load.decide import format_of, match_columns
from headwater.publish.load.model import Format, LoadOptions, Mode
from headwater.publish.load.writing import FileWriting
from headwater.publish.model import WriterKind
from headwater.tables.arrow import arrow_type
from headwater.tables.model import ROW_ID_COLUMN, NewFile, TableUsageError
from headwater.tables.partitions import AddPartitionField
from tests.fixtures.lakes import LakeWorld
from tests.fixtures.tables import TableWorld

pytestmark = pytest.mark.proves("publish/load")


def everything(lake: Lake, table: str, order: str = "id") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.query(f"select * from {table} order by {order}").to_pylist()
    return found


def create(lake: Lake, name: str, fields: Mapping[str, IcebergType], **options: Any) -> None:
    """A table whose key columns are spelled with a star, and required ones with a mark."""
    made = [
        NestedField(place, each.rstrip("*!"), kind, required=each[-1] in "*!")
        for place, (each, kind) in enumerate(fields.items(), start=1)
    ]
    keys = [field.field_id for field, each in zip(made, fields, strict=True) if each.endswith("*")]
    options = {"format_version": 3, **options}
    lake.create_table(name, Schema(*made, identifier_field_ids=keys), actor="ann", **options)


# Decisions


@pytest.mark.parametrize(
    ("path", "given", "expected"),
    [
        ("a.parquet", None, Format.PARQUET),
        ("a.PQ", None, Format.PARQUET),
        ("a.b.csv", None, Format.CSV),
        ("a.csv.gz", None, Format.CSV),
        ("a.tsv", None, Format.CSV),
        ("a.jsonl.zst", None, Format.NDJSON),
        ("a.json", None, Format.NDJSON),
        ("a.arrow", None, Format.ARROW),
        ("a.feather", None, Format.ARROW),
        ("a", "csv", Format.CSV),
        ("a.csv", "ndjson", Format.NDJSON),
        ("a", None, None),
        ("a.gz", None, None),
        ("a.parquet.gz", None, None),
        ("a.xlsx", None, None),
        ("a.csv", "excel", None),
    ],
)
def test_what_a_file_is(path: str, given: str | None, expected: Format | None) -> None:
    if expected is not None:
        assert format_of(path, given) is expected
        return
    with pytest.raises(UsageError) as caught:
        format_of(path, given)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("given", "known", "expected"),
    [
        (["a", "b"], ["b", "a"], ("a", "b")),
        (["A"], ["a", "b"], ("a",)),
        (["ID"], ["Id"], ("Id",)),
        (["id", "Id"], ["Id", "id"], ("id", "Id")),
        (["ID"], ["Id", "id"], "may be any of Id, id"),
        (["id", "ID"], ["id"], "has the column id twice, as id and ID"),
        (["a", "a"], ["a"], "twice"),
        (["x", "a", "y"], ["a"], "columns that the table does not have: x, y"),
        ([], ["a"], ()),
    ],
)
def test_columns_are_matched_by_name(given: list[str], known: list[str], expected: tuple[str, ...] | str) -> None:
    if isinstance(expected, tuple):
        assert match_columns(given, known, "f.csv") == expected
        return
    with pytest.raises(TableUsageError, match=expected) as caught:
        match_columns(given, known, "f.csv")
    assert "f.csv" in caught.value.message


EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  (without a zone, as the column is)
NAIVE, ZONED = pa.timestamp("ns"), pa.timestamp("ns", "Europe/Berlin")
REFUSED, LOSSY = "refused", "lossy"


@pytest.mark.parametrize(
    ("values", "found", "kind", "expected"),
    [
        ([1, None], pa.int64(), IntegerType(), [1, None]),
        ([2**31], pa.int64(), IntegerType(), LOSSY),
        ([2**63], pa.uint64(), LongType(), LOSSY),
        ([3.0], pa.float64(), LongType(), [3]),
        ([3.5], pa.float64(), LongType(), LOSSY),
        ([float("nan")], pa.float64(), LongType(), LOSSY),
        ([Decimal("4.00")], pa.decimal128(5, 2), IntegerType(), [4]),
        ([Decimal("4.01")], pa.decimal128(5, 2), IntegerType(), LOSSY),
        (["1"], pa.string(), IntegerType(), REFUSED),
        ([True], pa.bool_(), IntegerType(), REFUSED),
        ([1.5, None], pa.float64(), FloatType(), [1.5, None]),
        ([0.1], pa.float64(), FloatType(), LOSSY),
        ([1.5], pa.float16(), FloatType(), [1.5]),
        ([1.5], pa.float16(), DoubleType(), [1.5]),
        ([1e39], pa.float64(), FloatType(), LOSSY),
        ([float("inf")], pa.float64(), FloatType(), [float("inf")]),
        ([2**24], pa.int32(), FloatType(), [float(2**24)]),
        ([2**24 + 1], pa.int32(), FloatType(), LOSSY),
        ([2**53], pa.int64(), DoubleType(), [float(2**53)]),
        ([2**53 + 1], pa.int64(), DoubleType(), LOSSY),
        ([2**63 - 1], pa.int64(), DoubleType(), LOSSY),
        ([Decimal("0.1")], pa.decimal128(5, 2), DoubleType(), REFUSED),
        ([12], pa.int64(), DecimalType(4, 2), [Decimal("12.00")]),
        ([123], pa.int64(), DecimalType(4, 2), LOSSY),
        ([Decimal("1.250")], pa.decimal128(5, 3), DecimalType(4, 2), [Decimal("1.25")]),
        ([Decimal("1.255")], pa.decimal128(5, 3), DecimalType(4, 2), LOSSY),
        ([1.5], pa.float64(), DecimalType(4, 2), REFUSED),
        ([86_400_000], pa.date64(), DateType(), [date(1970, 1, 2)]),
        ([0], NAIVE, DateType(), REFUSED),
        ([1000], pa.time32("ms"), TimeType(), [time(0, 0, 1)]),
        ([1], pa.time64("ns"), TimeType(), LOSSY),
        ([1000], NAIVE, TimestampType(), [EPOCH + timedelta(microseconds=1)]),
        ([1], NAIVE, TimestampType(), LOSSY),
        ([0], ZONED, TimestampType(), REFUSED),
        ([0], NAIVE, TimestamptzType(), REFUSED),
        ([1], pa.date32(), TimestampType(), [EPOCH + timedelta(days=1)]),
        (["a"], pa.string_view(), StringType(), ["a"]),
        ([b"a"], pa.binary(), StringType(), REFUSED),
        ([1], pa.int64(), StringType(), REFUSED),
        ([b"ab"], pa.binary(2), BinaryType(), [b"ab"]),
        ([b"ab"], pa.binary(), FixedType(2), [b"ab"]),
        ([b"abc"], pa.binary(), FixedType(2), LOSSY),
        ([bytes(16)], pa.binary(), UUIDType(), [UUID(int=0)]),
        (["00000000-0000-0000-0000-000000000001"], pa.string(), UUIDType(), [UUID(int=1)]),
        (["nonsense"], pa.string(), UUIDType(), LOSSY),
    ],
)
def test_values_are_cast_without_loss(
    values: list[object], found: pa.DataType, kind: PrimitiveType, expected: list[object] | str
) -> None:
    given = pa.array(values, found)
    if expected == LOSSY:
        with pytest.raises(UnfitError):
            cast_exactly(given, kind, from_text=False)
        return
    cast = cast_exactly(given, kind, from_text=False)
    if expected == REFUSED:
        assert cast is None
        return
    assert cast is not None
    assert (cast.type, cast.to_pylist()) == (arrow_type(kind), expected)


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("12", IntegerType(), 12),
        ("1.0", IntegerType(), LOSSY),
        ("4294967296", IntegerType(), LOSSY),
        ("1e3", DoubleType(), 1000.0),
        ("1e400", DoubleType(), LOSSY),
        ("-Infinity", DoubleType(), float("-inf")),
        ("1.25", DecimalType(4, 2), Decimal("1.25")),
        ("1.255", DecimalType(4, 2), LOSSY),
        ("TRUE", BooleanType(), True),
        ("yes", BooleanType(), LOSSY),
        ("2024-02-29", DateType(), date(2024, 2, 29)),
        ("2023-02-29", DateType(), LOSSY),
        ("10:11:12.5", TimeType(), time(10, 11, 12, 500_000)),
        ("10:11:12.1234567", TimeType(), LOSSY),
        ("2024-01-02T03:04:05.000006", TimestampType(), datetime(2024, 1, 2, 3, 4, 5, 6)),  # noqa: DTZ001
        ("2024-01-02T03:04:05Z", TimestampType(), LOSSY),
        ("2024-01-02 03:04:05", TimestamptzType(), LOSSY),
        ("00ff", BinaryType(), b"\x00\xff"),
        ("0f", FixedType(2), LOSSY),
        ("xyz", BinaryType(), LOSSY),
    ],
)
def test_text_is_read_in_the_types_of_the_table(text: str, kind: PrimitiveType, expected: object) -> None:
    given = pa.array([text, None], pa.large_string())
    if expected == LOSSY:
        with pytest.raises(UnfitError):
            cast_exactly(given, kind, from_text=True)
        return
    cast = cast_exactly(given, kind, from_text=True)
    assert cast is not None
    assert cast.to_pylist() == [expected, None]


# Files

WIDE = {"id*": LongType(), "n": IntegerType(), "v": StringType()}
ALL_TYPES: dict[str, tuple[IcebergType, str]] = {
    "id": (LongType(), "BIGINT"),
    "i": (IntegerType(), "INTEGER"),
    "f": (FloatType(), "FLOAT"),
    "d": (DoubleType(), "DOUBLE"),
    "b": (BooleanType(), "BOOLEAN"),
    "s": (StringType(), "VARCHAR"),
    "p": (DecimalType(12, 3), "DECIMAL(12,3)"),
    "day": (DateType(), "DATE"),
    "t": (TimeType(), "TIME"),
    "ts": (TimestampType(), "TIMESTAMP"),
    "tz": (TimestamptzType(), "TIMESTAMP WITH TIME ZONE"),
    "u": (UUIDType(), "UUID"),
}
ROWS = f"""
    SELECT n::BIGINT AS id, (n * 7919 % 1000)::INTEGER AS i, (n / 4)::FLOAT AS f, sqrt(n) AS d, n % 3 = 0 AS b,
        CASE WHEN n % 5 = 0 THEN NULL ELSE 'tëxt, "' || n END AS s, (n * 1.001)::DECIMAL(12,3) AS p,
        DATE '2020-01-01' + n::INTEGER AS day, TIME '01:02:03.456789' AS t,
        TIMESTAMP '2020-01-01 00:00:00.000001' + INTERVAL 1 HOUR * n AS ts,
        TIMESTAMPTZ '2020-01-01 00:00:00+00' + INTERVAL 1 MINUTE * n AS tz,
        '{UUID(int=7)}'::UUID AS u
    FROM range(500) AS r(n)
"""
READERS = {
    Format.PARQUET: "read_parquet('{path}')",
    Format.CSV: "read_csv('{path}', header=true, columns={{{columns}}})",
    Format.NDJSON: "read_json('{path}', format='newline_delimited', columns={{{columns}}})",
}


@pytest.mark.parametrize("file_format", [Format.PARQUET, Format.CSV, Format.NDJSON])
def test_files_are_loaded_as_duckdb_reads_them(lake: LakeWorld, tmp_path: Path, file_format: Format) -> None:
    create(lake.lake, "t", {name: kind for name, (kind, _) in ALL_TYPES.items()})
    oracle = duckdb.connect()
    oracle.execute("SET TimeZone = 'UTC'")
    path = tmp_path / f"rows.{file_format}"
    how = {Format.PARQUET: "PARQUET", Format.CSV: "CSV, HEADER", Format.NDJSON: "JSON"}[file_format]
    oracle.execute(f"COPY ({ROWS}) TO '{path}' (FORMAT {how})")
    loaded = lake.lake.load("t", path, actor="ann")
    assert (loaded.rows, loaded.files) == (500, 1)
    columns = ", ".join(f"'{name}': '{kind}'" for name, (_, kind) in ALL_TYPES.items())
    scan = READERS[file_format].format(path=path, columns=columns)
    expected = oracle.execute(f"SELECT * FROM {scan} ORDER BY id").to_arrow_table().to_pylist()
    found = everything(lake.lake, "t")
    assert [{**row, "u": str(row["u"])} for row in found] == [{**row, "u": str(row["u"])} for row in expected]


@pytest.mark.parametrize("suffix", ["arrow", "arrows", "parquet"])
def test_arrow_files_and_streams(lake: LakeWorld, tmp_path: Path, suffix: str) -> None:
    rows = pa.table({"id": range(1000), "name": [f"n{each}" for each in range(1000)]})
    path = tmp_path / f"rows.{suffix}"
    if suffix == "parquet":
        pq.write_table(rows, path, row_group_size=100)
    else:
        make = pa.ipc.new_file if suffix == "arrow" else pa.ipc.new_stream
        with make(path, rows.schema) as writer:
            writer.write_table(rows, max_chunksize=64)
    create(lake.lake, "t", {"id": IntegerType(), "name": StringType()})
    assert lake.lake.load("t", path).rows == 1000
    assert everything(lake.lake, "t") == rows.to_pylist()


@pytest.mark.parametrize(("group_rows", "group_bytes"), [(1 << 20, 1 << 20), (100, 1 << 20), (1 << 20, 500)])
def test_large_row_groups_come_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_rows: int, group_bytes: int
) -> None:
    monkeypatch.setattr(sources, "_GROUP_ROWS", group_rows)
    monkeypatch.setattr(sources, "_GROUP_BYTES", group_bytes)
    monkeypatch.setattr(sources, "_ROWS_AT_A_TIME", 64)
    rows = pa.table({"id": range(1000), "v": [f"n{each}" for each in range(1000)]})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=400)
    pieces = list(sources.open_source(tmp_path / "a.parquet", Schema()))
    assert max(piece.batch.num_rows for piece in pieces) <= 64
    assert [piece.rows_before for piece in pieces[1:]] == list(
        accumulate(piece.batch.num_rows for piece in pieces[:-1])
    )
    assert pa.Table.from_batches([piece.batch for piece in pieces]).equals(rows)


def test_rows_in_memory(lake: LakeWorld) -> None:
    create(lake.lake, "t", {"id": LongType(), "l": ListType(9, IntegerType(), element_required=False)})
    rows = pa.table({"id": [1, 2], "l": [[1, None], None]})
    for source in (rows, rows.to_batches()[0], rows.to_reader(), rows.to_batches(), iter(rows.to_batches())):
        lake.lake.load("t", source)
    lake.lake.load("t", duckdb.sql("select 1 as id, [1, null] as l union all select 2, null"))
    assert everything(lake.lake, "t") == sorted(rows.to_pylist() * 6, key=lambda row: row["id"])
    lake.lake.load("t", rows.schema.empty_table().to_reader(), "overwrite")
    assert everything(lake.lake, "t") == []
    large = pa.table({"id": [1, 2, 3], "l": [[1], [2, 2**40], [2**41]]})
    with pytest.raises(TableUsageError, match=r"row 2 of the source: column l\.element is int"):
        lake.lake.load("t", large)


def test_on_a_branch(lake: LakeWorld) -> None:
    create(lake.lake, "t", WIDE)
    lake.lake.load("t", pa.table({"id": [1, 2]}))
    lake.lake.create_branch("dev")
    lake.lake.load("t", pa.table({"id": [2, 3], "n": [5, 6]}), "merge", branch="dev")
    assert [row["id"] for row in everything(lake.lake, "t")] == [1, 2]
    assert [row["n"] for row in lake.lake.query("select n from t order by id", branch="dev").to_pylist()] == [
        None,
        5,
        6,
    ]


def test_many_files_by_list_and_pattern(lake: LakeWorld, tmp_path: Path) -> None:
    create(lake.lake, "t", {"id": LongType(), "v": StringType()})
    (tmp_path / "a-1.csv").write_text('id,v\n1,a\n2,""\n3,\n')
    (tmp_path / "a-2.csv.gz").write_bytes(gzip.compress(b"v,ID\nz,4\n"))
    (tmp_path / "b.tsv").write_text("id\tv\n5\tx,y\n")
    (tmp_path / "we[i]rd.ndjson").write_text('\n{"id": 6}\n\n{"id": 7, "v": null}\n')
    names = [str(tmp_path / "a-*"), tmp_path / "b.tsv", tmp_path / "we[i]rd.ndjson"]
    loaded = lake.lake.load("t", names, actor="ann", message="three of them")
    assert loaded.rows == 7
    assert loaded.commit is not None
    assert (loaded.commit.actor, loaded.commit.message) == ("ann", "three of them")
    values = {row["id"]: row["v"] for row in everything(lake.lake, "t")}
    assert values == {1: "a", 2: "", 3: None, 4: "z", 5: "x,y", 6: None, 7: None}


NESTED = {
    "id": LongType(),
    "s": StructType(NestedField(10, "a", IntegerType()), NestedField(11, "when", DateType())),
    "l": ListType(12, DecimalType(8, 2), element_required=False),
    "m": MapType(13, StringType(), 14, DoubleType()),
    "n": MapType(15, IntegerType(), 16, StringType()),
}


def test_nested_lines_of_json(lake: LakeWorld, tmp_path: Path) -> None:
    create(lake.lake, "t", NESTED)
    lines = [
        {"id": 1, "s": {"a": 1, "when": "2024-01-02"}, "l": [1.25, 2, "3.50", None], "m": {"x": 1.5, "y": 2}},
        {"id": 2, "s": {"a": None}, "l": [], "m": {}, "n": {"5": "five"}},
        {"id": 3, "s": None},
    ]
    path = tmp_path / "rows.ndjson"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    lake.lake.load("t", path)
    first, second, third = everything(lake.lake, "t")
    assert first["s"] == {"a": 1, "when": date(2024, 1, 2)}
    assert first["l"] == [Decimal("1.25"), Decimal("2.00"), Decimal("3.50"), None]
    assert (dict(first["m"]), first["n"]) == ({"x": 1.5, "y": 2.0}, None)
    assert (second["s"], second["l"]) == ({"a": None, "when": None}, [])
    assert (dict(second["m"]), dict(second["n"])) == ({}, {5: "five"})
    assert third == {"id": 3, "s": None, "l": None, "m": None, "n": None}


BAD_LINES = {
    '{"id": 1.5}': "row 2 of .*: column id is long in the table: 1.5",
    '{"id": "1"}': "row 2 of .*column id",
    '{"id": true}': "row 2 of .*column id",
    '{"id": 99999999999999999999}': "row 2 of .*column id",
    '{"s": {"a": 1, "b": 2}}': "row 2 of .*column s.* no b in it",
    '{"s": {"a": 4294967296}}': r"row 2 of .*column s\.a is int",
    '{"s": {"when": "never"}}': r"row 2 of .*column s\.when is date",
    '{"l": [1.255]}': "row 2 of .*column l",
    '{"l": ["x"]}': "row 2 of .*column l",
    '{"l": 1}': "row 2 of .*column l",
    '{"m": [1]}': "row 2 of .*column m",
    '{"n": {"x": "y"}}': "row 2 of .*column n",
    '{"id": 1e30}': r"row 2 of .*column id is long in the table: 1E\+30",
    '{"id": 1e999999999}': "row 2 of .*column id",
    '{"m": {"x": 1e400}}': "row 2 of .*column m .*too large for double",
    '{"s": {"a": {"x": 1.5}}}': "row 2 of .*column s",
    '{"n": {"1": "\\ud800"}}': "row 2 of .*column n .*surrogates",
    '{"zzz": 1}': "a column that the table does not have: zzz",
    "[1]": "line 2 of .* is no JSON object",
    "{": "line 2 of .* is not JSON",
}


def test_lines_that_do_not_fit(lake: LakeWorld, tmp_path: Path) -> None:
    create(lake.lake, "t", NESTED)
    path = tmp_path / "rows.ndjson"
    for line, message in BAD_LINES.items():
        path.write_text(f'{{"id": 1}}\n{line}\n{{"id": 3}}\n')
        with pytest.raises(TableUsageError, match=message):
            lake.lake.load("t", path)
    assert everything(lake.lake, "t") == []


def test_fractions_in_lines_are_the_nearest_numbers(lake: LakeWorld, tmp_path: Path) -> None:
    create(lake.lake, "t", {"id": LongType(), "f": FloatType(), "d": DoubleType()})
    path = tmp_path / "rows.ndjson"
    lines = [
        '{"id": 1, "f": 0.1, "d": 0.1}',
        '{"id": 2, "f": Infinity, "d": -Infinity}',
        '{"id": 3.0, "f": 3, "d": 1e3}',
    ]
    path.write_text("\ufeff" + "\r\n".join(lines))  # as some editors write it
    lake.lake.load("t", path)
    nearest = pa.scalar(0.1, pa.float32()).as_py()
    found = [tuple(row.values()) for row in everything(lake.lake, "t")]
    assert found == [(1, nearest, 0.1), (2, float("inf"), float("-inf")), (3, 3.0, 1000.0)]
    for line in ('{"f": 3.4028236e38}', '{"d": 1e309}', '{"d": -1e400}'):
        path.write_text(line)
        with pytest.raises(TableUsageError, match=r"row 1 of .*too large for (float|double)"):
            lake.lake.load("t", path)


def test_an_empty_line_of_a_single_column_is_a_null(lake: LakeWorld, tmp_path: Path) -> None:
    create(lake.lake, "t", {"v": StringType()})
    rows = pa.table({"v": ["a", None, "b", None]})
    pa.csv.write_csv(rows, tmp_path / "a.csv")
    assert lake.lake.load("t", tmp_path / "a.csv").rows == 4
    assert everything(lake.lake, "t", "v nulls last") == rows.sort_by("v").to_pylist()


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        ('1,"a"', True),
        ('1,"a"\n', True),
        ('1,""', True),
        ('1,""""', True),
        ('1,"""a"""\r\n', True),
        ('1,"a\n"', True),
        ("1,a", True),
        ('1,5" long', True),
        ('1,"a', False),
        ('1,"', False),
        ('1,"""', False),
        ('1,"a""', False),
        ('1,"a\n2,b\n3,c\n', False),
        ('1,x\n2,"tëxt\r\n3,c', False),
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_a_quote_that_is_never_closed(
    lake: LakeWorld, tmp_path: Path, text: str, closed: bool, compressed: bool
) -> None:
    """Arrow takes whatever follows, all other rows too, for the text."""
    create(lake.lake, "t", {"id": LongType(), "v": StringType()})
    path = tmp_path / ("a.csv.gz" if compressed else "a.csv")
    data = f"id,v\n{text}".encode()
    path.write_bytes(gzip.compress(data) if compressed else data)
    if closed:
        assert lake.lake.load("t", path).rows == 1
    else:
        with pytest.raises(UsageError, match="a quote that is never closed"):
            lake.lake.load("t", path)
        assert everything(lake.lake, "t") == []


def test_what_is_not_given_is_the_write_default_or_null(lake: LakeWorld, tmp_path: Path) -> None:
    fields = [
        NestedField(1, "id", LongType()),
        NestedField(2, "v", StringType(), initial_default="old", write_default="new"),
        NestedField(3, "day", DateType(), write_default=date(2024, 1, 1)),
        NestedField(4, "n", IntegerType()),
        NestedField(5, "u", UUIDType(), write_default=UUID(int=5)),
        NestedField(6, "b", BinaryType(), write_default=b"\x00"),
        NestedField(7, "at", TimestamptzType(), write_default=datetime(2024, 1, 1, tzinfo=UTC)),
        NestedField(8, "p", DecimalType(4, 2), write_default=Decimal("1.50")),
    ]
    lake.create("t", pa.table({"id": pa.array([], pa.int64())}), schema=Schema(*fields), format_version=3)
    lake.lake.load("t", pa.table({"id": [1]}))
    (tmp_path / "a.csv").write_text("id,v\n2,\n")
    (tmp_path / "b.ndjson").write_text('{"id": 3}\n{"id": 4, "v": null, "day": "2020-02-02"}\n{"id": 5, "v": "x"}\n')
    lake.lake.load("t", [tmp_path / "a.csv", tmp_path / "b.ndjson"])
    new = date(2024, 1, 1)
    defaults = (UUID(int=5), b"\x00", datetime(2024, 1, 1, tzinfo=UTC), Decimal("1.50"))
    assert [tuple(row.values())[:4] for row in everything(lake.lake, "t")] == [
        (1, "new", new, None),
        (2, None, new, None),
        (3, "new", new, None),
        (4, None, date(2020, 2, 2), None),
        (5, "x", new, None),
    ]
    (tmp_path / "c.ndjson").write_text('{"id": 6}\n{"id": 7, "u": null, "b": "ff", "at": null, "p": 2}\n')
    lake.lake.load("t", tmp_path / "c.ndjson")
    assert [tuple(row.values())[4:] for row in everything(lake.lake, "t")] == [
        *[defaults] * 6,
        (None, b"\xff", None, Decimal("2.00")),
    ]


# Rows that do not fit

BAD_ROWS: dict[str, tuple[pa.Table, str]] = {
    "a null": (pa.table({"id": [1, 2, None]}), "row 3 of the source: column id is required, and null"),
    "too large": (pa.table({"id": [1], "n": [2**40]}), "row 1 of the source: column n is int .* and int64 in the sou"),
    "of another type": (pa.table({"id": ["a"]}), "^column id is long in the table, and string in the source "),
    "unknown": (pa.table({"id": [1], "x": [1], "y": [1]}), "columns that the table does not have: x, y"),
    "missing": (pa.table({"n": [1]}), "column id is required, and missing"),
    "twice": (pa.table([[1], [2]], names=["id", "ID"]), "has the column id twice, as id and ID"),
    "lineage": (pa.table({"id": [1], ROW_ID_COLUMN: [7]}), f"does not have: {ROW_ID_COLUMN}"),
}


@pytest.mark.parametrize("mode", list(Mode))
def test_rows_that_do_not_fit_are_refused_by_name(lake: LakeWorld, mode: Mode) -> None:
    create(lake.lake, "t", {"id*": LongType(), "n": IntegerType()})
    lake.lake.load("t", pa.table({"id": [9]}))
    before = lake.lake.catalog.ref("main").hash
    for rows, message in BAD_ROWS.values():
        with pytest.raises(TableUsageError, match=message):
            lake.lake.load("t", rows, mode)
    assert lake.lake.catalog.ref("main").hash == before
    assert everything(lake.lake, "t") == [{"id": 9, "n": None}]


def test_the_row_is_named_however_far_it_is(lake: LakeWorld, tmp_path: Path) -> None:
    create(lake.lake, "t", {"id": LongType(), "n": IntegerType()})
    rows = [f"{each},{each}" for each in range(300_000)]
    rows[234_567] = "1,zwei"
    rows[250_000] = "1,drei"
    (tmp_path / "a.csv").write_text("id,n\n" + "\n".join(rows))
    with pytest.raises(TableUsageError, match=r"row 234568 of .*a\.csv: column n is int .*'zwei'") as caught:
        lake.lake.load("t", tmp_path / "a.csv")
    assert (caught.value.fields["row"], caught.value.fields["column"]) == (234_568, "n")


BAD_SOURCES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no file": (lambda folder: folder / "nope.csv", "there is no file"),
    "no match": (lambda folder: str(folder / "*.csv"), "there is no file"),
    "a folder": (lambda folder: folder, "is a folder"),
    "a pipe": (lambda folder: folder / "pipe.csv", "is no file that can be read twice"),
    "no names": (lambda _: [], "names no file"),
    "a suffix": (lambda folder: folder / "a.xyz", "cannot be told from its name"),
    "broken": (lambda folder: folder / "broken.parquet", "broken.parquet cannot be read as parquet"),
    "ragged": (lambda folder: folder / "ragged.tsv", "ragged.tsv cannot be read as csv.*Row #3"),
    "empty": (lambda folder: folder / "empty.tsv", "empty.tsv cannot be read as csv"),
    "no rows": (lambda _: 7, "cannot be loaded from a int"),
    "no batches": (lambda _: iter([{"id": 1}]), "cannot be loaded from a dict"),
}


def test_sources_that_cannot_be_read(lake: LakeWorld, tmp_path: Path) -> None:
    create(lake.lake, "t", {"id": LongType(), "v": StringType()})
    (tmp_path / "a.xyz").write_text("")
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "broken.parquet").write_text("PAR1 no PAR1")
    (tmp_path / "ragged.tsv").write_text("id\tv\n1\ta\n2\n")
    (tmp_path / "empty.tsv").write_text("")
    for source, message in BAD_SOURCES.values():
        with pytest.raises(UsageError, match=message):
            lake.lake.load("t", source(tmp_path))


NONSENSE: list[tuple[dict[str, Any], str]] = [
    ({"mode": "upsert"}, "there is no mode 'upsert'"),
    ({"on": "id"}, "the mode is append"),
    ({"mode": "merge"}, "has no primary key"),
    ({"mode": "merge", "on": []}, "names no key column"),
    ({"mode": "merge", "on": "nope"}, "does not have: nope"),
    ({"mode": "merge", "on": "l"}, "cannot be a key"),
    ({"format": "csv"}, "in no file"),
    ({"table": "nope"}, "there is no table"),
    ({"branch": "nope"}, "nope"),
]


def test_what_makes_no_sense_is_refused(lake: LakeWorld) -> None:
    create(lake.lake, "t", {"id": LongType(), "l": ListType(9, LongType())})
    for options, message in NONSENSE:
        with pytest.raises(HeadwaterError, match=message):
            lake.lake.load(**{"table": "t", "source": pa.table({"id": [1], "l": [[1]]}), **options})


# Modes


@pytest.mark.parametrize("format_version", [2, 3])
@pytest.mark.parametrize("partitioned", [False, True])
def test_loads_do_what_a_dict_does(lake: LakeWorld, format_version: int, partitioned: bool) -> None:
    dice = random.Random(format_version)
    by = [AddPartitionField("n", "bucket[2]")] if partitioned else []
    create(lake.lake, "t", WIDE, format_version=format_version, partition_by=by)
    model: dict[int, dict[str, Any]] = {}
    for step in range(8):
        mode = dice.choice(list(Mode))
        count = dice.randrange(0, 6)
        ids = [dice.randrange(12) for _ in range(count)]
        rows: list[dict[str, Any]] = [
            {"id": each, "n": dice.randrange(5), "v": f"{step}-{place}"} for place, each in enumerate(ids)
        ]
        if dice.random() < 0.3:
            rows = [{key: value for key, value in row.items() if key != "v"} for row in rows]
        kinds = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("v", pa.string())])
        names = [each for each in kinds.names if not rows or each in rows[0]]
        table = pa.Table.from_pylist(rows, schema=pa.schema([kinds.field(each) for each in names]))
        fails = mode is not Mode.MERGE and (len(set(ids)) < count or (mode is Mode.APPEND and model.keys() & set(ids)))
        if fails:
            with pytest.raises(ConstraintViolationError):
                lake.lake.load("t", table, mode)
        else:
            loaded = lake.lake.load("t", table, mode)
            expected = {} if mode is Mode.OVERWRITE else dict(model)
            for row in rows:
                expected[row["id"]] = {"v": None, **expected.get(row["id"], {}), **row}
            changes = bool(rows) or (mode is Mode.OVERWRITE and bool(model))
            assert (loaded.commit is not None) == changes
            assert loaded.rows == len(set(ids))
            assert loaded.updated == (len(model.keys() & set(ids)) if mode is Mode.MERGE else 0)
            model = expected
        assert {row["id"]: row for row in everything(lake.lake, "t")} == model


def test_an_empty_overwrite_empties_the_table(lake: LakeWorld, tmp_path: Path) -> None:
    create(lake.lake, "t", WIDE)
    lake.lake.load("t", pa.table({"id": [1, 2]}))
    (tmp_path / "empty.csv").write_text("id,n\n")
    emptied = lake.lake.load("t", tmp_path / "empty.csv", "overwrite")
    assert (emptied.rows, emptied.files, emptied.commit is not None) == (0, 0, True)
    assert everything(lake.lake, "t") == []
    for mode in Mode:  # nothing comes, and nothing goes
        assert lake.lake.load("t", tmp_path / "empty.csv", mode).commit is None
    (tmp_path / "empty.csv").write_text("id,nope\n")
    with pytest.raises(TableUsageError, match="does not have: nope"):
        lake.lake.load("t", tmp_path / "empty.csv", "overwrite")


def test_a_merge_takes_the_last_row_of_each_key(lake: LakeWorld) -> None:
    create(lake.lake, "t", WIDE)
    lake.lake.load("t", pa.table({"id": [1, 2], "n": [1, 2], "v": ["a", "b"]}))
    loaded = lake.lake.load("t", pa.table({"id": [2, 3, 2, 3, 2], "n": [20, 30, 21, 31, 22]}), "merge")
    assert (loaded.rows, loaded.updated) == (2, 1)
    found = [tuple(row.values()) for row in everything(lake.lake, "t")]
    assert found == [(1, 1, "a"), (2, 22, "b"), (3, 31, None)]  # a column that is not given is not changed


def test_files_of_a_merge_have_the_same_columns(lake: LakeWorld, tmp_path: Path) -> None:
    """Or the rows of one would empty what only the other has."""
    create(lake.lake, "t", WIDE)
    lake.lake.load("t", pa.table({"id": [1, 2], "n": [1, 2], "v": ["a", "b"]}))
    (tmp_path / "a.csv").write_text("id,n\n1,10\n")
    (tmp_path / "b.csv").write_text("id,v\n2,x\n")
    (tmp_path / "c.ndjson").write_text('{"id": 2, "v": "y"}\n{"id": 3}\n')
    for other in ("b.csv", "c.ndjson"):
        with pytest.raises(TableUsageError, match=r"a\.csv does not have the column v"):
            lake.lake.load("t", [tmp_path / "a.csv", tmp_path / other], "merge")
    for each in ("a.csv", "b.csv", "c.ndjson"):
        lake.lake.load("t", tmp_path / each, "merge")
    assert [tuple(row.values()) for row in everything(lake.lake, "t")] == [(1, 10, "a"), (2, 2, "y"), (3, None, None)]


def test_a_merge_keeps_row_ids(lake: LakeWorld) -> None:
    create(lake.lake, "t", WIDE)
    lake.lake.load("t", pa.table({"id": range(5), "n": range(5)}))
    lake.lake.load("t", pa.table({"id": [3, 9], "n": [33, 99]}), "merge")
    lake.lake.load("t", pa.table({"id": [9, 3, 0], "n": [1, 2, 3]}), "merge")
    world = TableWorld(lake.lake.location, lake.app.open_store(lake.url))
    found = world.rows(lake.table("t"), extra=frozenset({ROW_ID_COLUMN})).to_pylist()
    ids = {row["id"]: row[ROW_ID_COLUMN] for row in found}
    assert {each: ids[each] for each in range(5)} == {each: each for each in range(5)}
    assert ids[9] not in range(5)
    assert sorted((row["id"], row["n"]) for row in found) == [(0, 3), (1, 1), (2, 2), (3, 2), (4, 4), (9, 1)]


def test_a_merge_by_other_columns(lake: LakeWorld) -> None:
    create(lake.lake, "t", {"a": StringType(), "b": DateType(), "c": DoubleType(), "v": IntegerType()})
    day, other = date(2024, 1, 1), date(2024, 1, 2)
    kinds = [("a", pa.string()), ("b", pa.date32()), ("c", pa.float64()), ("v", pa.int64())]

    def rows(*given: tuple[Any, ...]) -> pa.Table:
        return pa.Table.from_pylist([dict(zip("abcv", each, strict=True)) for each in given], schema=pa.schema(kinds))

    lake.lake.load("t", rows(("x", day, 0.0, 1), ("x", other, 0.0, 2), ("y", day, 1.5, 3), (None, day, 0.0, 4)))
    lake.lake.load(
        "t", rows(("x", day, -0.0, 10), ("y", other, 1.5, 11), ("y", day, 1.5, 12)), "merge", on=["A", "b", "c"]
    )
    found = [tuple(row.values()) for row in everything(lake.lake, "t", "v")]
    assert [row[3] for row in found] == [2, 4, 10, 11, 12]
    with pytest.raises(TableUsageError, match="row 2: the key column a is null"):
        lake.lake.load("t", rows(("x", day, 0.0, 1), (None, day, 0.0, 4)), "merge", on=["a", "b"])
    with pytest.raises(TableUsageError, match=r"default\.t has 2 rows with the key a 'x'"):
        lake.lake.load("t", rows(("x", day, 0.0, 1)), "merge", on="a")
    with pytest.raises(TableUsageError, match="the key c is NaN"):
        lake.lake.load("t", rows(("x", day, float("nan"), 1)), "merge", on="c")
    assert [tuple(row.values()) for row in everything(lake.lake, "t", "v")] == found


# Constraints


CUSTOMERS, ORDERS = TableKey.parse("customers"), TableKey.parse("orders")


def family(lake: Lake, on_delete: OnDelete = OnDelete.RESTRICT) -> None:
    """Customers, their orders, and the lines of those."""
    named = Check("named", "name <> ''")
    create(lake, "customers", {"id*": LongType(), "name": StringType()}, constraints=[named])
    create(
        lake,
        "orders",
        {"id*": LongType(), "customer": LongType(), "note": StringType()},
        constraints=[
            ForeignKey("customer", ("customer",), CUSTOMERS, ("id",), on_delete),
            Cardinality("few", ("customer",), at_most=2),
        ],
    )
    create(
        lake,
        "lines",
        {"id*": LongType(), "order": LongType()},
        format_version=2,
        constraints=[ForeignKey("order", ("order",), ORDERS, ("id",), on_delete)],
    )
    lake.load("customers", pa.table({"id": [1, 2, 3], "name": ["Ann", "Bob", None]}))
    lake.load("orders", pa.table({"id": [10, 11], "customer": [1, 2], "note": ["x", "y"]}))
    lake.load("lines", pa.table({"id": [100, 101, 102], "order": [10, 11, None]}))


VIOLATIONS: list[tuple[str, dict[str, list[Any]], str, str]] = [
    ("orders", {"id": [10]}, "append", "primary key"),
    ("orders", {"id": [20, 20]}, "append", "primary key"),
    ("orders", {"id": [10, 11, 11]}, "overwrite", "primary key"),
    ("orders", {"id": [20], "customer": [9]}, "append", "customer"),
    ("orders", {"id": [10], "customer": [9]}, "merge", "customer"),
    ("orders", {"id": [10, 11], "customer": [9, 1]}, "overwrite", "customer"),
    ("orders", {"id": [10], "customer": [1]}, "overwrite", "order"),
    ("orders", {"id": [20, 21], "customer": [1, 1]}, "append", "few"),
    ("orders", {"id": [11, 21], "customer": [1, 1]}, "merge", "few"),
    ("customers", {"id": [4], "name": [""]}, "append", "named"),
    ("customers", {"id": [1], "name": [""]}, "merge", "named"),
    ("customers", {"id": [1], "name": ["Ann"]}, "overwrite", "customer"),
    ("customers", {"id": []}, "overwrite", "customer"),
]


def test_what_breaks_a_constraint_changes_nothing(lake: LakeWorld) -> None:
    family(lake.lake)
    before = lake.lake.catalog.ref("main").hash
    for table, columns, mode, constraint in VIOLATIONS:
        kinds = {"id": pa.int64(), "customer": pa.int64(), "name": pa.string()}
        rows = pa.table({each: pa.array(values, kinds[each]) for each, values in columns.items()})
        with pytest.raises(ConstraintViolationError) as caught:
            lake.lake.load(table, rows, mode)
        assert caught.value.fields["constraint"] == constraint, (table, columns, mode)
    assert lake.lake.catalog.ref("main").hash == before
    assert len(everything(lake.lake, "orders")) == 2


def test_what_breaks_nothing_is_loaded(lake: LakeWorld) -> None:
    family(lake.lake)
    lake.lake.load("orders", pa.table({"id": [12, 13], "customer": [3, None]}))
    lake.lake.load("orders", pa.table({"id": [10, 14], "customer": [3, 1]}), "merge")
    lake.lake.load("customers", pa.table({"id": [1, 2, 3, 5], "name": ["A", "B", "C", "D"]}), "overwrite")
    lake.lake.load("orders", pa.table({"id": [10, 11], "customer": [5, 5]}), "overwrite")
    lake.lake.load("customers", pa.table({"id": [5, 6]}), "overwrite")
    assert [row["customer"] for row in everything(lake.lake, "orders")] == [5, 5]


def test_an_overwrite_takes_along_what_refers_to_keys_that_vanish(lake: LakeWorld) -> None:
    family(lake.lake, OnDelete.CASCADE)
    loaded = lake.lake.load("customers", pa.table({"id": [2, 7], "name": ["Bo", "Gil"]}), "overwrite")
    assert [row["id"] for row in everything(lake.lake, "orders")] == [11]
    assert [row["id"] for row in everything(lake.lake, "lines")] == [101, 102]
    assert loaded.commit is not None
    assert len(list(lake.lake.catalog.diff(loaded.commit.parents[0], loaded.commit.hash))) == 3  # all in one commit
    lake.lake.load("customers", pa.table({"id": pa.array([], pa.int64())}), "overwrite")
    assert everything(lake.lake, "orders") == []
    assert [row["id"] for row in everything(lake.lake, "lines")] == [102]


def test_rows_of_a_table_that_refers_to_itself(lake: LakeWorld) -> None:
    staff, key = {"id*": LongType(), "boss": LongType()}, TableKey.parse("staff")
    own = ForeignKey("boss", ("boss",), key, ("id",), OnDelete.CASCADE)
    create(lake.lake, "staff", staff, constraints=[own])
    lake.lake.load("staff", pa.table({"id": [1, 2, 3], "boss": [None, 1, 2]}))
    lake.lake.load("staff", pa.table({"id": [2, 3, 4], "boss": [None, 2, 4]}), "overwrite")
    with pytest.raises(ConstraintViolationError, match="boss"):  # what is loaded is not deleted again
        lake.lake.load("staff", pa.table({"id": [3], "boss": [2]}), "overwrite")
    assert [row["id"] for row in everything(lake.lake, "staff")] == [2, 3, 4]


# As one commit, or not at all


def batches(*groups: list[int], between: Callable[[], object] = lambda: None) -> Iterator[pa.RecordBatch]:
    for place, ids in enumerate(groups):
        if place:
            between()
        yield pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64())})


@pytest.mark.parametrize("mode", list(Mode))
def test_nothing_is_seen_before_the_commit(lake: LakeWorld, mode: Mode) -> None:
    create(lake.lake, "t", WIDE)
    lake.lake.load("t", pa.table({"id": [1]}))
    seen = []
    lake.lake.load("t", batches([2], [3], between=lambda: seen.append(everything(lake.lake, "t"))), mode)
    assert seen == [[{"id": 1, "n": None, "v": None}]]
    assert [row["id"] for row in everything(lake.lake, "t")] == ([2, 3] if mode is Mode.OVERWRITE else [1, 2, 3])


@pytest.mark.parametrize("mode", list(Mode))
def test_who_comes_second_loses(lake: LakeWorld, mode: Mode) -> None:
    create(lake.lake, "t", WIDE)
    lake.lake.load("t", pa.table({"id": [1]}))
    with pytest.raises(ExpectedVersionMismatchError):
        lake.lake.load("t", batches([2], [3], between=lambda: lake.lake.load("t", pa.table({"id": [7]}))), mode)
    assert [row["id"] for row in everything(lake.lake, "t")] == [1, 7]


def test_p8_what_a_load_rests_on_may_not_change(lake: LakeWorld) -> None:
    family(lake.lake)

    def leave() -> None:
        lake.lake.load("customers", pa.table({"id": [1, 2]}), "overwrite")

    def orders() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"id": [20], "customer": [3]})
        leave()

    with pytest.raises(ExpectedVersionMismatchError):
        lake.lake.load("orders", orders())
    assert [row["id"] for row in everything(lake.lake, "orders")] == [10, 11]


def test_a_source_that_fails_leaves_nothing_to_see(lake: LakeWorld) -> None:
    create(lake.lake, "t", WIDE)
    before = lake.lake.catalog.ref("main").hash

    def breaks() -> None:
        raise RuntimeError("the source has broken")

    for mode in Mode:
        with pytest.raises(RuntimeError, match="has broken"):
            lake.lake.load("t", batches([1], [2], between=breaks), mode)
    assert lake.lake.catalog.ref("main").hash == before
    assert lake.lake.load("t", pa.table({"id": [1]})).rows == 1


def test_a_load_that_died_is_healed_by_the_next_one(lake: LakeWorld) -> None:
    create(lake.lake, "t", WIDE)
    armed = failpoints.arm(Failpoint.PUBLISH_AFTER_HEAD, Action.ERROR, only_hit=1)
    with armed, pytest.raises(PublishOutcomeUnknownError):
        lake.lake.load("t", pa.table({"id": [1]}))
    [sidecar] = lake.lake.writing.sidecars.pending()
    assert (sidecar.kind, [str(head.key) for head in sidecar.heads]) == (WriterKind.LOAD, ["default.t"])
    assert everything(lake.lake, "t") == []
    # Its one head has moved as planned: the next load publishes it, without a new opening, and goes on from there.
    lake.lake.load("t", pa.table({"id": [2]}))
    assert [row["id"] for row in everything(lake.lake, "t")] == [1, 2]
    assert lake.lake.writing.sidecars.pending() == ()


# Writing files


class Sink:
    """Keeps names alone; notes how many write at a time."""

    def __init__(self, wait_for: int = 1) -> None:
        self.names: list[str] = []
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()
        self._together = threading.Barrier(wait_for)

    def write(self, files: Iterable[NewFile]) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        self._together.wait(timeout=30)
        with self._lock:
            self.names += [each.location for each in files]
            self._now -= 1


def writing(lake: LakeWorld, sink: Sink, concurrency: int, buffer_bytes: int) -> FileWriting:
    create(lake.lake, "t", {"id": LongType()})
    return FileWriting(lake.staging(), lake.table("t").metadata, sink, LoadOptions(concurrency, buffer_bytes))


def test_reading_waits_for_writing(lake: LakeWorld) -> None:
    ran_ahead = threading.Event()

    class Slow(Sink):
        def write(self, files: Iterable[NewFile]) -> None:
            # While the first share is written, the next is read, and no more.
            assert self.names or not ran_ahead.wait(0.3)
            super().write(files)

    sink = Slow()

    def rows() -> Iterator[pa.RecordBatch]:
        for number in range(20):
            if number > 4 and not sink.names:
                ran_ahead.set()
            yield pa.RecordBatch.from_pydict({"id": [number] * 100})

    files = writing(lake, sink, 1, 3200).write(rows())  # two batches of 800 bytes fill a share
    assert [file.record_count for file in files] == [200] * 10
    assert [file.lower_bounds[1][0] for file in files] == list(range(0, 20, 2))  # in the order of the rows
    assert sorted(sink.names) == sorted(file.file_path for file in files)
    assert sink.most == 1


def test_files_are_stored_before_the_source_has_ended(lake: LakeWorld) -> None:
    lake.lake._loading = LoadOptions(buffer_bytes=3200)
    create(lake.lake, "t", {"id": LongType()})
    stored = []

    def rows() -> Iterator[pa.RecordBatch]:
        for number in range(20):
            stored.append(len(list(Path(lake.url).rglob("*.parquet"))))
            yield pa.RecordBatch.from_pydict({"id": [number] * 100})

    loaded = lake.lake.load("t", rows())
    assert loaded.files > 5
    assert stored[0] == 0 < stored[-1]
    assert lake.lake.query("select count(*) c, sum(id)::bigint s from t").to_pylist() == [{"c": 2000, "s": 19_000}]


def test_as_many_files_are_written_at_a_time_as_is_set(lake: LakeWorld) -> None:
    sink = Sink(wait_for=3)  # each waits until three write
    parts = [pa.RecordBatch.from_pydict({"id": [number] * 100}) for number in range(6)]
    files = writing(lake, sink, 3, 3200).write(parts)
    assert (len(files), sink.most) == (6, 3)


def test_the_setting_reaches_the_writing_stage(tmp_path: Path) -> None:
    from headwater.app import App
    from headwater.kernel import settings

    app = App(settings.load(environ={"HEADWATER_LOAD_CONCURRENCY": "7"}))
    assert app.init_lake(str(tmp_path / "lake"))._loading == LoadOptions(concurrency=7)
    with pytest.raises(UsageError, match=r"load\.concurrency"):
        settings.load(environ={"HEADWATER_LOAD_CONCURRENCY": "0"})
