"""The files of a node as others read them: DuckDB, pyarrow by itself, and PyIceberg as data files of a table.

What is true is what was sent. Deletions come from QueryVisibility, as an engine asks for them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType, IcebergType, IntegerType, LongType, NestedField
from pyroaring import BitMap

from headwater.ingest.apply.model import TableUpdate, UpdateRequest
from headwater.ingest.buffer.model import AdmittedFile
from headwater.ingest.index import IndexBackendError
from headwater.ingest.index.local import LocalIndex
from headwater.ingest.keys import encode
from headwater.ingest.model import TIMESTAMP_COLUMN, TIMESTAMP_FIELD_ID, Position
from tests.unit.ingest_values import KEY_TYPES, VALUES, bits, iceberg_schema, rows, schema
from tests.unit.ingest_world import IngestWorld, ingest_world

SCHEMA = schema(*VALUES)
# Iceberg keeps no column of type unknown in its files.
KNOWN = pa.schema([each for each in SCHEMA if each.name != "c_unknown"])
LAST = 5
_LONGEST_STATISTIC_BYTES = 4096


@dataclass
class Written:
    """A node that has written files, where they are, and what was sent: of each id its versions by timestamp."""

    world: IngestWorld
    folder: Path
    versions: dict[int, list[tuple[int, pa.Table | None]]] = field(default_factory=dict)

    @property
    def files(self) -> list[AdmittedFile]:
        node = self.world.node
        return [file for buffer in node.buffers.all() for file in node.registry.of(buffer.stream)]

    def path(self, file: AdmittedFile) -> Path:
        return self.folder / Path(file.name).name

    def note(self, timestamp: int, batch: pa.RecordBatch | None, keys: list[int]) -> None:
        for place, key in enumerate(keys):
            row = None if batch is None else pa.Table.from_batches([batch.slice(place, 1)])
            self.versions.setdefault(key, []).append((timestamp, row))

    def at(self, timestamp: int) -> pa.Table:
        """What was sent and had not ended, in the order of ids."""
        found = [[row for since, row in self.versions[key] if since <= timestamp][-1:] for key in sorted(self.versions)]
        return pa.concat_tables([SCHEMA.empty_table(), *(row for last in found for row in last if row is not None)])

    def deleted(self, file: AdmittedFile, timestamp: int) -> list[int]:
        """The places of the file's rows that a reader leaves out: by number in the file."""
        groups = [(file.file_id, group) for group in range(len(file.rows_by_group))]
        gone, first = list[int](), 0
        found = self.world.node.query_visibility(timestamp, groups)
        for (_, bitmap), count in zip(found, file.rows_by_group, strict=True):
            gone += [first + place for place in BitMap.deserialize(bitmap) if place < count]
            first += count
        return gone


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """Inserts, updates, replaces, deletes and a request that failed, in files of some row groups each."""
    folder = tmp_path_factory.mktemp("written")
    with ingest_world(folder, schema=SCHEMA) as world, pytest.MonkeyPatch.context() as patch:
        made = Written(world, folder)
        batch = rows(SCHEMA, 60)
        here = [key for key in range(60) if world.is_here({"id": key})]

        def sends(timestamp: int, part: str, keys: list[int], shift: int = 0, *, is_noted: bool = True) -> None:
            if part == "deletes":
                world.node.applier.apply(world.request(timestamp, deletes=[{"id": key} for key in keys]))
                made.note(timestamp, None, keys)
                return
            # Each id with the values of another, so that a version differs from the one before it.
            values = batch.take(pa.array([(key + shift) % 60 for key in keys]))
            sent = values.set_column(0, SCHEMA.field(0), pa.array(keys, pa.int64()))
            if is_noted:
                made.note(timestamp, sent, keys)
            world.node.applier.apply(_request(world, timestamp, part, sent))

        sends(1, "inserts", here[:30])
        with patch.context() as failing:
            failing.setattr(LocalIndex, "put_primary_entries_only", _fails)
            with pytest.raises(IndexBackendError):
                sends(2, "inserts", here[30:34], is_noted=False)
        world.node.publish_full()
        sends(3, "updates", here[5:12], 7)
        sends(4, "deletes", here[10:15])
        sends(LAST, "inserts", here[14:40], 13)
        world.node.flush()
        for file in made.files:
            made.path(file).write_bytes(world.store.get(file.name).data)
        assert len(made.files) > 3
        assert max(len(file.rows_by_group) for file in made.files) > 1
        yield made


def _request(world: IngestWorld, timestamp: int, part: str, batch: pa.RecordBatch) -> UpdateRequest:
    homes = world.topology.virtual_nodes_of(encode(batch, ("id",)))
    parts = [(home, batch.filter(pa.array(homes == home))) for home in sorted(world.node.owned)]
    updates = (TableUpdate("t", home, timestamp, **{part: mine}) for home, mine in parts)
    return UpdateRequest(Position(timestamp, 0), tuple(updates))


def _fails(*_: Any, **__: Any) -> None:
    raise IndexBackendError("no disk")


@pytest.mark.parametrize("timestamp", range(LAST + 1))
def test_duckdb_reads_the_rows_that_were_sent(written: Written, timestamp: int) -> None:
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        truth = written.at(timestamp).select(KNOWN.names)
        connection.register("truth", truth)
        parts = [
            f"""select * exclude (file_row_number, {TIMESTAMP_COLUMN})
                from read_parquet('{written.path(file)}', file_row_number = true)
                where {TIMESTAMP_COLUMN} <= {timestamp}
                and not list_contains({written.deleted(file, timestamp)}::bigint[], file_row_number)"""
            for file in written.files
        ]
        connection.execute("create table found as " + " union all ".join(parts))
        # Text tells -0.0 from 0.0.
        columns = "*, c_float::varchar, c_double::varchar"
        for one, other in (("truth", "found"), ("found", "truth")):
            odd = f"select {columns} from {one} except all select {columns} from {other}"
            assert connection.execute(f"select count(*) from ({odd})").fetchall() == [(0,)]
        assert connection.execute("select count(*) from found").fetchall() == [(truth.num_rows,)]


@pytest.mark.parametrize("timestamp", range(LAST + 1))
def test_pyarrow_reads_the_rows_that_were_sent(written: Written, timestamp: int) -> None:
    parts = []
    for file in written.files:
        table = pq.read_table(written.path(file))
        stamps = table.column(TIMESTAMP_COLUMN).to_pylist()
        gone = set(written.deleted(file, timestamp))
        kept = [place for place, stamp in enumerate(stamps) if stamp <= timestamp and place not in gone]
        parts.append(table.take(pa.array(kept, pa.int64())).select(KNOWN.names).cast(KNOWN))
    found = pa.concat_tables(parts).sort_by("id")
    assert bits(found).equals(bits(written.at(timestamp).select(KNOWN.names)))


def test_the_schema_of_a_file_is_the_tables_with_its_field_ids(written: Written) -> None:
    """And types as Iceberg's table of Parquet types has them."""
    physical = {
        "boolean": "BOOLEAN",
        "int": "INT32",
        "long": "INT64",
        "float": "FLOAT",
        "double": "DOUBLE",
        "decimal1": "INT32",
        "decimal9": "INT32",
        "decimal10": "INT64",
        "decimal18": "INT64",
        "date": "INT32",
        "time": "INT64",
        "timestamp": "INT64",
        "timestamptz": "INT64",
        "timestamp_ns": "INT64",
        "timestamptz_ns": "INT64",
        "string": "BYTE_ARRAY",
        "binary": "BYTE_ARRAY",
    }
    wanted = [("id", 1, "INT64", "REQUIRED")]
    wanted += [
        (f"c_{name}", place, physical.get(name, "FIXED_LEN_BYTE_ARRAY"), "OPTIONAL")
        for place, name in enumerate(VALUES, 2)
        if name != "unknown"
    ]
    wanted += [(TIMESTAMP_COLUMN, TIMESTAMP_FIELD_ID, "INT64", "REQUIRED")]
    for file in written.files:
        said = duckdb.sql(
            f"select name, field_id, type, repetition_type from parquet_schema('{written.path(file)}') offset 1"
        )
        assert said.fetchall() == wanted
        of = dict(duckdb.sql(_LOGICAL.format(written.path(file))).fetchall())
        assert of["c_uuid"] == "UUIDType()"
        assert of["c_string"] == "StringType()"
        assert of["c_decimal38_38"] == "DecimalType(scale=38, precision=38)"
        assert "isAdjustedToUTC=0" in of["c_timestamp"]
        assert "isAdjustedToUTC=1" in of["c_timestamptz_ns"]
        assert "NanoSeconds()" in of["c_timestamptz_ns"]


_LOGICAL = "select name, logical_type from parquet_schema('{}') where logical_type is not null"


# How DuckDB's text of a statistic becomes a value that can be compared, and the same of what was sent.
_MICROS = "epoch_us({}::timestamp)"
_CASTS = {
    "boolean": "{}::boolean",
    "int": "{}::int",
    "long": "{}::bigint",
    "float": "{}::float",
    "double": "{}::double",
    "date": "{}::date - date '1970-01-01'",
    "time": "epoch_us({}::time)",
    "timestamp": _MICROS,
    "timestamptz": "epoch_us({}::timestamptz)",
    "timestamp_ns": "epoch_ns({}::timestamp_ns)",
    "timestamptz_ns": "epoch_us({}::timestamptz)",  # DuckDB has no nanoseconds with a zone
    "uuid": "{}::uuid::varchar",
    "string": "{}",
    "fixed": "{}::blob",
    "binary": "{}::blob",
}


def _comparable(name: str, values: pa.ChunkedArray) -> list[Any]:
    """The values without nulls and NaN, in Python, so that they sort as Parquet sorts them."""
    kind = values.type
    if pa.types.is_date(kind):
        values = values.cast(pa.int32())
    elif pa.types.is_temporal(kind):
        values = values.cast(pa.int64())
    elif isinstance(kind, pa.UuidType):
        values = values.cast(kind.storage_type)
    found = [each for each in values.to_pylist() if each is not None]
    if name == "timestamptz_ns":
        found = [each // 1000 if each > 0 else -(-each // 1000) for each in found]
    return [each for each in found if not (isinstance(each, float) and math.isnan(each))]


def _as_text_of_uuid(value: bytes) -> str:
    text = value.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _same(name: str, said: Any, true: Any) -> bool:
    if name == "uuid":
        return bool(said == _as_text_of_uuid(true))
    if name.startswith("decimal"):
        return said is not None and Decimal(said) == true
    return bool(said == true)


@pytest.mark.parametrize("name", ["id", *KEY_TYPES])
def test_statistics_are_those_of_the_rows(written: Written, name: str) -> None:
    """By row group, hidden and deleted rows too: minimum, maximum, nulls and counts."""
    column = "id" if name == "id" else f"c_{name}"
    kind = "long" if name == "id" else name
    cast = _CASTS.get(kind, "{}")
    low, high = cast.format("stats_min_value"), cast.format("stats_max_value")
    said = 0
    with duckdb.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        for file in written.files:
            whole = pq.ParquetFile(written.path(file))
            found = connection.execute(
                f"select row_group_id, num_values, stats_null_count, {low}, {high} "
                f"from parquet_metadata('{written.path(file)}') where path_in_schema = '{column}' order by 1"
            ).fetchall()
            assert [each[0] for each in found] == list(range(whole.num_row_groups))
            for group, count, nulls, least, greatest in found:
                values = _sent(written, whole.read_row_group(group, ["id", TIMESTAMP_COLUMN]), column)
                assert (count, nulls) == (len(values), values.null_count)
                true = _comparable(kind, values)
                for bound, wanted in [(least, min(true)), (greatest, max(true))] if true else []:
                    assert _same(kind, bound, wanted) or (bound is None and _is_untold(true, wanted))
                    said += bound is not None
    assert said


def _is_untold(true: list[Any], bound: Any) -> bool:
    """Bounds of long texts are left out, and DuckDB tells of no infinite ones."""
    is_long = isinstance(bound, str | bytes) and max(map(len, true)) > _LONGEST_STATISTIC_BYTES
    return is_long or (isinstance(bound, float) and math.isinf(bound))


def _sent(written: Written, rows_of_group: pa.Table, column: str) -> pa.ChunkedArray:
    """The column of the rows as they were sent; of those that failed as they would have been."""
    parts = []
    for row in rows_of_group.to_pylist():
        noted = [sent for since, sent in written.versions.get(row["id"], []) if since == row[TIMESTAMP_COLUMN]]
        parts.append(noted[0] if noted else pa.Table.from_batches([rows(SCHEMA, 1, row["id"])]))
    return pa.concat_tables(parts).column(column)


def test_statistics_of_commit_timestamps_are_those_of_memory(written: Written) -> None:
    for file in written.files:
        ((least, greatest, nulls, groups, count),) = duckdb.sql(
            f"""select min(stats_min_value::bigint), max(stats_max_value::bigint), sum(stats_null_count), count(*),
                sum(num_values) from parquet_metadata('{written.path(file)}')
                where path_in_schema = '{TIMESTAMP_COLUMN}'"""
        ).fetchall()
        assert (least, greatest, nulls) == (file.min_timestamp, file.max_timestamp, 0)
        assert (groups, count) == (len(file.rows_by_group), sum(file.rows_by_group))
        ((low, high),) = duckdb.sql(
            f"select min({TIMESTAMP_COLUMN}), max({TIMESTAMP_COLUMN}) from read_parquet('{written.path(file)}')"
            f" where {TIMESTAMP_COLUMN} is not null and id >= 0"
        ).fetchall()
        assert (low, high) == (least, greatest)


def test_pyiceberg_reads_them_as_data_files_by_field_id(written: Written) -> None:
    """Columns are renamed and promoted, and come by their ids; what no table has, the commit timestamp, is left out."""
    promoted: dict[IcebergType, IcebergType] = {IntegerType(): LongType(), FloatType(): DoubleType()}
    table = iceberg_schema(*VALUES)
    renamed = Schema(
        *(
            NestedField(
                each.field_id, f"now_{each.name}", promoted.get(each.field_type, each.field_type), each.required
            )
            for each in table.fields
        )
    )
    metadata = new_table_metadata(
        renamed, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, str(written.folder), {"format-version": "3"}
    )
    tasks = [FileScanTask(_data_file(written.path(file))) for file in written.files]
    scan = ArrowScan(metadata, PyArrowFileIO(), metadata.schema(), AlwaysTrue())
    found = scan.to_table(tasks)
    assert found.column_names == [each.name for each in metadata.schema().fields]
    plain = pa.concat_tables(pq.read_table(written.path(file)) for file in written.files)
    for name in found.column_names:
        column, known = found.column(name), name.removeprefix("now_")
        wanted = plain.column(known) if known != "c_unknown" else pa.chunked_array([pa.nulls(plain.num_rows)])
        assert bits(pa.table({"c": column})).equals(bits(pa.table({"c": wanted.cast(column.type)}))), name


def _data_file(path: Path) -> DataFile:
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=str(path),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=pq.read_metadata(path).num_rows,
        file_size_in_bytes=path.stat().st_size,
    )
    made.spec_id = 0
    return made
