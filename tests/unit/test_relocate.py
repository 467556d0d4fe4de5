"""Manifests, position deletes and vectors with other paths, each read again by somebody else's reader."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType
from pyroaring import BitMap64

from headwater.tables import relocate_manifests
from headwater.tables.manifest_writing import EntryToWrite, ManifestTerms, write_manifest, write_manifest_list
from headwater.tables.model import (
    DELETE_FILE_PATH_ID,
    DELETE_FILE_POSITION_ID,
    LiveFile,
    TableCorruptError,
    TableFile,
    UnsupportedTableError,
)
from headwater.tables.relocate_deletes import relocate_position_deletes, relocate_vectors
from headwater.tables.relocate_lists import ListLine, MovedManifest, open_manifest_list
from headwater.tables.relocate_manifests import (
    DeleteKind,
    MovedDeletes,
    delete_entries,
    relocate_data_manifest,
    relocate_delete_manifest,
)
from headwater.tables.vectors import read_vector, write_vectors
from tests.unit.table_documents import table

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "part", StringType()))
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
ADDED, EXISTING, DELETED = ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED
POSITIONS, EQUALITY = DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES
PATHS, PLACES = DELETE_FILE_PATH_ID, DELETE_FILE_POSITION_ID
MANIFEST = "s3://us/t/metadata/m.avro"


def moved(path: str) -> str:
    """Files of all buckets go to one, under longer names."""
    bucket, _, rest = path.removeprefix("s3://").partition("/")
    assert bucket in ("us", "asia"), path
    return f"s3://eu-central-1/{rest}"


def file(path: str, **values: Any) -> TableFile:
    made = TableFile.from_args(
        _table_format_version=3,
        **{
            "content": DataFileContent.DATA,
            "file_path": path,
            "file_format": FileFormat.PARQUET,
            "partition": Record("s3://us/looks like a path"),
            "record_count": 10,
            "file_size_in_bytes": 1000,
            "column_sizes": {1: 5, 2: 6},
            "lower_bounds": {1: struct.pack("<q", 1), 2: b"s3://us/t/data/a"},
            "upper_bounds": {1: struct.pack("<q", 9), 2: b"s3://us/t/data/z"},
            "split_offsets": [4, 500],
        }
        | values,
    )
    made.spec_id = 0
    assert isinstance(made, TableFile)
    return made


def manifest(
    *entries: tuple[ManifestEntryStatus, TableFile], version: int = 2, content: ManifestContent = ManifestContent.DATA
) -> bytes:
    metadata = table(SCHEMA, spec=SPEC, format_version=version)
    terms = ManifestTerms(metadata, snapshot_id=7, sequence_number=7)
    made = [EntryToWrite(status, LiveFile(each, 6, 6, 6)) for status, each in entries]
    return write_manifest(terms, MANIFEST, content, metadata.spec(), made)[1]


def decoded(data: bytes) -> list[dict[str, Any]]:
    return [dict(each) for each in fastavro.reader(io.BytesIO(data))]  # type: ignore[arg-type]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("count", [3, 100])
@pytest.mark.parametrize("group_bytes", [1, 10**6])
def test_a_manifest_of_data(version: int, count: int, group_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few entries are walked, many are proven; bounds and partitions that look like paths stay as they are."""
    monkeypatch.setattr(relocate_manifests, "_GROUP_BYTES", group_bytes)
    statuses = (ADDED, EXISTING, DELETED)
    entries = [
        (statuses[n % 3], file(f"s3://{('us', 'asia')[n % 2]}/t/data/{'x' * n}/{n}.parquet")) for n in range(count)
    ]
    data = manifest(*entries, version=version)
    after, before = decoded(relocate_data_manifest(data, MANIFEST, moved, entries=count)), decoded(data)
    assert len(before) == count
    for old, new in zip(before, after, strict=True):
        assert new["data_file"].pop("file_path") == moved(old["data_file"].pop("file_path"))
        assert new == old


def test_a_manifest_whose_list_knows_better() -> None:
    data = manifest((ADDED, file("s3://us/a")), (ADDED, file("s3://us/b")))
    with pytest.raises(TableCorruptError, match="has 2 entries, and 3 by the manifest list"):
        relocate_data_manifest(data, MANIFEST, moved, entries=3)


def positions(path: str, **values: Any) -> TableFile:
    bounds = {PATHS: b"s3://us/t/data/1", PLACES: struct.pack("<q", 3)}
    return file(path, **{"content": POSITIONS, "lower_bounds": bounds, "upper_bounds": bounds} | values)


def test_a_manifest_of_deletes() -> None:
    vector = positions(
        "s3://us/v.puffin",
        file_format=FileFormat.PUFFIN,
        referenced_data_file="s3://us/t/data/5",
        content_offset=4,
        content_size_in_bytes=40,
        lower_bounds=None,
        upper_bounds=None,
        column_sizes=None,
        split_offsets=None,
    )
    entries = [
        (ADDED, positions("s3://us/p1.parquet")),
        (EXISTING, positions("s3://asia/p2.avro", file_format=FileFormat.AVRO, lower_bounds=None)),
        (ADDED, positions("s3://us/p3.orc", file_format=FileFormat.ORC, referenced_data_file="s3://asia/t/data/1")),
        (ADDED, vector),
        (ADDED, file("s3://asia/e.parquet", content=EQUALITY, equality_ids=[1])),
        (DELETED, positions("s3://us/gone.parquet", referenced_data_file="s3://us/t/data/1")),
    ]
    data = manifest(*entries, version=3, content=ManifestContent.DELETES)
    live = list(delete_entries(data, MANIFEST, entries=6))
    assert [(each.location, each.kind, each.file_format) for each in live] == [
        ("s3://us/p1.parquet", DeleteKind.POSITIONS, "PARQUET"),
        ("s3://asia/p2.avro", DeleteKind.POSITIONS, "AVRO"),
        ("s3://us/p3.orc", DeleteKind.POSITIONS, "ORC"),
        ("s3://us/v.puffin", DeleteKind.VECTORS, "PUFFIN"),
        ("s3://asia/e.parquet", DeleteKind.EQUALITY, "PARQUET"),
    ]
    assert {each.size_bytes for each in live} == {1000}
    became = {
        each.location: MovedDeletes(f"s3://eu/out/{n}", 70 + n, None if each.kind is DeleteKind.VECTORS else ("a", "b"))
        for n, each in enumerate(live)
        if each.kind is not DeleteKind.EQUALITY
    }
    after = decoded(relocate_delete_manifest(data, MANIFEST, moved, became))
    before = decoded(data)
    seen = []
    for old, new in zip(before, after, strict=True):
        one, two = old.pop("data_file"), new.pop("data_file")
        assert old == new
        seen.append({key: (one[key], value) for key, value in two.items() if value != one[key]})
    lower = ([{"key": PATHS, "value": b"s3://us/t/data/1"}, {"key": PLACES, "value": struct.pack("<q", 3)}],)
    inside = {"column_sizes": (before_sizes(), None), "split_offsets": ([4, 500], None)}
    bounds = {
        name: (*lower, [{"key": PATHS, "value": value}, lower[0][1]])
        for name, value in (("lower_bounds", b"a"), ("upper_bounds", b"b"))
    }
    referenced = ("s3://asia/t/data/1", "s3://eu-central-1/t/data/1")
    assert seen == [
        {"file_path": ("s3://us/p1.parquet", "s3://eu/out/0"), "file_size_in_bytes": (1000, 70), **inside, **bounds},
        {
            "file_path": ("s3://asia/p2.avro", "s3://eu/out/1"),
            "file_size_in_bytes": (1000, 71),
            **inside,
            "upper_bounds": bounds["upper_bounds"],
        },
        {
            "file_path": ("s3://us/p3.orc", "s3://eu/out/2"),
            "file_size_in_bytes": (1000, 72),
            **inside,
            **bounds,
            "referenced_data_file": referenced,
        },
        {
            "file_path": ("s3://us/v.puffin", "s3://eu/out/3"),
            "file_size_in_bytes": (1000, 73),
            "referenced_data_file": ("s3://us/t/data/5", "s3://eu-central-1/t/data/5"),
        },
        {"file_path": ("s3://asia/e.parquet", "s3://eu-central-1/e.parquet")},
        {
            "file_path": ("s3://us/gone.parquet", "s3://eu-central-1/gone.parquet"),
            "referenced_data_file": ("s3://us/t/data/1", "s3://eu-central-1/t/data/1"),
        },
    ]


def before_sizes() -> list[dict[str, int]]:
    return [{"key": 1, "value": 5}, {"key": 2, "value": 6}]


def test_the_kind_of_a_manifest_is_checked() -> None:
    of_data = manifest((ADDED, file("s3://us/a")))
    with pytest.raises(TableCorruptError, match="holds data"):
        list(delete_entries(of_data, MANIFEST))
    of_deletes = manifest((ADDED, positions("s3://us/a")), content=ManifestContent.DELETES)
    with pytest.raises(TableCorruptError, match="holds deletes"):
        relocate_data_manifest(of_deletes, MANIFEST, moved)


def test_a_schema_that_says_nothing_otherwise_is_refused() -> None:
    """Some other way to leave a value out, which would be written over wrongly."""
    data = manifest((ADDED, positions("s3://us/a")), content=ManifestContent.DELETES)
    records, reader = decoded(data), fastavro.reader(io.BytesIO(data))
    schema: Any = reader.writer_schema
    (data_file,) = [each["type"] for each in schema["fields"] if each["name"] == "data_file"]
    (field,) = [each for each in data_file["fields"] if each["name"] == "split_offsets"]
    field["type"] = field["type"][::-1]
    field.pop("default", None)
    out = io.BytesIO()
    fastavro.writer(out, schema, records, metadata={"content": "deletes"})
    with pytest.raises(UnsupportedTableError, match="field 132"):
        relocate_delete_manifest(
            out.getvalue(), MANIFEST, moved, {"s3://us/a": MovedDeletes("s3://eu/a", 1, ("a", "b"))}
        )


@pytest.mark.parametrize("version", [2, 3])
def test_a_manifest_list_tells_true_lengths(version: int) -> None:
    metadata = table(SCHEMA, spec=SPEC, format_version=version)
    terms = ManifestTerms(metadata, snapshot_id=7, sequence_number=7)
    lines = [
        write_manifest(terms, f"s3://us/m{n}.avro", ManifestContent.DATA, metadata.spec(), entries)[0]
        for n in range(3)
        for entries in [[EntryToWrite(ADDED, LiveFile(file("s3://us/a"), 7, None, 7))]]
    ]
    data = write_manifest_list(terms, None, lines, 0 if version == 3 else None)
    became = {f"s3://us/m{n}.avro": MovedManifest(f"s3://eu/out/{n}", 10**n) for n in range(3)}
    opened = open_manifest_list(data, "l", {})
    sizes = [line.manifest_length for line in lines]
    assert opened.lines == tuple(ListLine(f"s3://us/m{n}.avro", sizes[n], False, 7, 7, 1) for n in range(3))
    after, before = decoded(opened.relocated(became)), decoded(data)
    assert [(each.pop("manifest_path"), each.pop("manifest_length")) for each in after] == [
        ("s3://eu/out/0", 1),
        ("s3://eu/out/1", 10),
        ("s3://eu/out/2", 100),
    ]
    assert [{key: each[key] for key in each.keys() - {"manifest_path", "manifest_length"}} for each in before] == after


ROWS = [("s3://us/t/b", 1), ("s3://us/t/b", 900), ("s3://asia/t/a", 7), ("s3://us/t/c", 2)]


def arrow(rows: list[tuple[str, int]], *, ids: bytes = b"PARQUET:field_id", extra: bool = True) -> pa.Table:
    fields = [
        pa.field("file_path", pa.string(), nullable=False, metadata={ids: str(PATHS)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={ids: str(PLACES)}),
    ]
    columns = [pa.array([path for path, _ in rows], pa.string()), pa.array([place for _, place in rows], pa.int64())]
    if extra:
        row = pa.struct([pa.field("id", pa.int64(), metadata={ids: b"1"})])
        fields.append(pa.field("row", row, metadata={ids: b"2147483544"}))
        columns.append(pa.array([{"id": place} for _, place in rows], row))
    return pa.table(columns, pa.schema(fields, metadata={"delete-type": "position", "iceberg.schema": "{}"}))


def as_parquet(rows: list[tuple[str, int]]) -> bytes:
    out, content = io.BytesIO(), arrow(rows)
    with pq.ParquetWriter(out, content.schema, compression="snappy", store_schema=False) as writer:
        writer.write_table(content, row_group_size=2)
        writer.add_key_value_metadata(content.schema.metadata)
    return out.getvalue()


def as_orc(rows: list[tuple[str, int]]) -> bytes:
    out = io.BytesIO()
    orc.write_table(arrow(rows, ids=b"iceberg.id"), out, compression="zlib")
    return out.getvalue()


AVRO = {
    "type": "record",
    "name": "position_delete",
    "fields": [
        {"name": "file_path", "type": "string", "field-id": PATHS},
        {"name": "pos", "type": "long", "field-id": PLACES},
        {
            "name": "row",
            "type": [
                "null",
                {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long", "field-id": 1}]},
            ],
            "field-id": 2147483544,
        },
    ],
}


def as_avro(rows: list[tuple[str, int]]) -> bytes:
    out = io.BytesIO()
    records = [{"file_path": path, "pos": place, "row": {"id": place}} for path, place in rows]
    fastavro.writer(out, AVRO, records, codec="deflate", sync_interval=30, metadata={"delete-type": "position"})
    return out.getvalue()


def from_arrow(content: pa.Table) -> list[tuple[str, int, int]]:
    return [(each["file_path"], each["pos"], each["row"]["id"]) for each in content.to_pylist()]


def from_avro(data: bytes) -> list[tuple[str, int, int]]:
    return [(each["file_path"], each["pos"], each["row"]["id"]) for each in decoded(data)]


FORMATS: dict[str, tuple[Callable[..., bytes], Callable[[bytes], list[tuple[str, int, int]]]]] = {
    "PARQUET": (as_parquet, lambda data: from_arrow(pq.read_table(io.BytesIO(data)))),
    "ORC": (as_orc, lambda data: from_arrow(orc.read_table(io.BytesIO(data)))),
    "AVRO": (as_avro, from_avro),
}


@pytest.mark.hazard("R9")
@pytest.mark.parametrize("file_format", FORMATS)
def test_r9_position_deletes_are_sorted_again(file_format: str) -> None:
    """`asia` comes before `us`; in one bucket the names decide, and numbers are no text."""
    write, read = FORMATS[file_format]
    found = relocate_position_deletes(write(ROWS), "s3://us/d", file_format, moved)
    prefix = "s3://eu-central-1/t/"
    assert read(found.data) == [
        (f"{prefix}a", 7, 7),
        (f"{prefix}b", 1, 1),
        (f"{prefix}b", 900, 900),
        (f"{prefix}c", 2, 2),
    ]
    assert found.bounds == (f"{prefix}a", f"{prefix}c")


@pytest.mark.hazard("R9")
@pytest.mark.parametrize("file_format", FORMATS)
@given(
    rows=st.lists(st.tuples(st.sampled_from(["us/a/b", "us/a!b", "asia/b", "us/a"]), st.integers(0, 2000)), max_size=9)
)
def test_r9_the_same_deletes_in_order(file_format: str, rows: list[tuple[str, int]]) -> None:
    write, read = FORMATS[file_format]
    written = [(f"s3://{path}", place) for path, place in rows]
    found = relocate_position_deletes(write(written), "s3://us/d", file_format, moved)
    expected = sorted((moved(path), place, place) for path, place in written)
    assert read(found.data) == expected
    assert found.bounds == ((expected[0][0], expected[-1][0]) if expected else None)


def test_columns_keep_their_ids_and_files_their_properties() -> None:
    data = relocate_position_deletes(as_parquet(ROWS), "d", "PARQUET", moved).data
    read = pq.ParquetFile(io.BytesIO(data))
    assert read.metadata.metadata == {b"delete-type": b"position", b"iceberg.schema": b"{}"}
    assert read.schema_arrow.remove_metadata() == pq.read_schema(io.BytesIO(as_parquet(ROWS))).remove_metadata()
    assert [each.metadata[b"PARQUET:field_id"] for each in read.schema_arrow] == [
        b"2147483546",
        b"2147483545",
        b"2147483544",
    ]
    assert read.metadata.row_group(0).column(0).compression == "SNAPPY"
    of_orc = orc.ORCFile(io.BytesIO(relocate_position_deletes(as_orc(ROWS), "d", "ORC", moved).data))
    assert [each.metadata[b"iceberg.id"] for each in of_orc.schema][:2] == [b"2147483546", b"2147483545"]
    of_avro = relocate_position_deletes(as_avro(ROWS), "d", "AVRO", moved).data
    assert (
        fastavro.reader(io.BytesIO(of_avro)).writer_schema == fastavro.reader(io.BytesIO(as_avro(ROWS))).writer_schema
    )


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_damaged_delete_file_is_named(file_format: str) -> None:
    data = FORMATS[file_format][0](ROWS)
    for damaged in (data[: len(data) // 2], b"", data[:-1]):
        with pytest.raises(TableCorruptError, match="s3://us/d "):
            relocate_position_deletes(damaged, "s3://us/d", file_format, moved)


def test_delete_files_that_are_none() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"id": [1]}), out)
    with pytest.raises(TableCorruptError, match="has no column file_path"):
        relocate_position_deletes(out.getvalue(), "d", "PARQUET", moved)
    with pytest.raises(UnsupportedTableError, match="as LANCE"):
        relocate_position_deletes(b"", "d", "LANCE", moved)


def test_files_without_ids_are_understood_by_name() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"file_path": ["s3://us/x"], "pos": [3]}), out)
    found = relocate_position_deletes(out.getvalue(), "d", "PARQUET", moved)
    assert pq.read_table(io.BytesIO(found.data)).to_pylist() == [{"file_path": "s3://eu-central-1/x", "pos": 3}]


@pytest.mark.hazard("R9")
def test_r9_vectors_stay_in_place_and_name_the_new_files() -> None:
    """PyIceberg finds the vectors by the footer, we by the span in the manifest's entry."""
    bitmaps = {f"s3://us/t/data/{n}.parquet": BitMap64([n, n + 10**10]) for n in range(3)}
    made, entries = write_vectors("s3://us/v.puffin", {path: (each, file(path)) for path, each in bitmaps.items()})
    data = relocate_vectors(made.data, "s3://us/v.puffin", moved)
    assert len(data) > len(made.data)
    found = deletion_vectors_from_puffin_file(PuffinFile(data))
    assert {each.referenced_data_file: each.to_vector().to_pylist() for each in found} == {
        moved(path): list(each) for path, each in bitmaps.items()
    }

    class Held:
        def read(self, location: str, *, span: tuple[int, int] | None = None) -> bytes:
            assert span is not None
            return data[span[0] : span[1]]

    for entry, bitmap in zip(entries, bitmaps.values(), strict=True):
        assert read_vector(Held(), entry) == bitmap


def test_other_blobs_and_properties_of_a_puffin_file_stay() -> None:
    from headwater.tables.vectors import Blob, read_puffin, write_puffin

    data, spans = write_puffin([Blob("theta", (1,), b"xyz", 5, 6, {"ndv": "s3://us/x"})], {"created-by": "s3://us/y"})
    found = read_puffin(relocate_vectors(data, "p", moved), "p")
    assert found == read_puffin(data, "p")
    assert found.blobs == spans
    with pytest.raises(TableCorruptError):
        relocate_vectors(data[:-1], "p", moved)
