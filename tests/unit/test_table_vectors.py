"""Deletion vectors and Puffin files: written as the specification has them, refused when a byte is wrong."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType
from pyroaring import BitMap64

from headwater.kernel.clock import SystemClock
from headwater.storage.memory import MemoryStore
from headwater.storage.port import Create
from headwater.tables.files import Files
from headwater.tables.model import TableCorruptError, TableFile, UnsupportedTableError
from headwater.tables.vectors import Blob, encode_vector, read_puffin, read_vector, write_puffin, write_vectors
from tests.unit.test_table_parquet import LOCATION, Shelf, field, table_metadata, write

PUFFIN = f"{LOCATION}/data/x-deletes.puffin"
GOLDEN = Path(__file__).parent / "golden" / "deletion-vectors.puffin"
# Sparse, a run, and positions behind 2**32.
SETS = {
    "a.parquet": BitMap64([1, 5, 70_000]),
    "b.parquet": BitMap64(range(10, 5000)),
    "c.parquet": BitMap64([2**33 + 1]),
}


def data_file(path: str) -> TableFile:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "k"), spec_id=3)
    _, (file,) = write(pa.table({"k": [7]}), table_metadata(field(1, "k", LongType()), spec=spec))
    file[1] = path
    return file


def written(sets: dict[str, BitMap64] = SETS) -> tuple[Shelf, tuple[TableFile, ...]]:
    shelf = Shelf()
    new, vectors = write_vectors(PUFFIN, {path: (positions, data_file(path)) for path, positions in sets.items()})
    shelf.write([new])
    return shelf, vectors


def test_the_bytes_are_those_of_the_golden_file() -> None:
    assert written()[0].files[PUFFIN] == GOLDEN.read_bytes()


def test_the_golden_file_is_laid_out_as_the_specification_says() -> None:
    data = GOLDEN.read_bytes()
    assert data[:4] == data[-4:] == b"PFA1"
    size, flags = struct.unpack("<II", data[-12:-4])
    assert flags == 0
    assert data[-16 - size : -12 - size] == b"PFA1"
    footer = json.loads(data[-12 - size : -12])
    assert footer["properties"] == {"created-by": "Headwater"}
    assert [each["properties"] for each in footer["blobs"]] == [
        {"referenced-data-file": path, "cardinality": str(len(positions))} for path, positions in SETS.items()
    ]
    at = 4
    for blob, positions in zip(footer["blobs"], SETS.values(), strict=True):
        assert blob["type"] == "deletion-vector-v1"
        assert (blob["snapshot-id"], blob["sequence-number"], blob["fields"]) == (-1, -1, [2147483645])
        assert "compression-codec" not in blob
        assert blob["offset"] == at
        body = data[at : at + blob["length"]]
        assert struct.unpack(">I", body[:4])[0] == blob["length"] - 8
        assert body[4:8] == bytes.fromhex("D1D33964")
        assert struct.unpack(">I", body[-4:])[0] == zlib.crc32(body[4:-4])
        assert set(BitMap64.deserialize(body[8:-4])) == set(positions)
        at += blob["length"]


def test_pyiceberg_reads_the_golden_file() -> None:
    found = deletion_vectors_from_puffin_file(PuffinFile(GOLDEN.read_bytes()))
    assert [each.referenced_data_file for each in found] == list(SETS)
    # Its own reader stumbles over a bitmap with nothing below 2**32, such as the third.
    assert [each.to_vector().to_pylist() for each in found[:2]] == [list(each) for each in SETS.values()][:2]


def test_entries_name_the_data_file_and_the_span() -> None:
    shelf, vectors = written()
    footer = read_puffin(shelf.files[PUFFIN], PUFFIN)
    for entry, span, (path, positions) in zip(vectors, footer.blobs, SETS.items(), strict=True):
        assert entry.is_vector
        assert (entry.content, entry.file_format) == (DataFileContent.POSITION_DELETES, FileFormat.PUFFIN)
        assert (entry.file_path, entry.file_size_in_bytes) == (PUFFIN, len(shelf.files[PUFFIN]))
        assert (entry.referenced_data_file, entry.record_count) == (path, len(positions))
        assert (entry.content_offset, entry.content_size_in_bytes) == (span.offset, span.size_bytes)
        assert (entry.partition, entry.spec_id) == (Record(7), 3)
        assert [entry[place] for place in range(6, 17)] == [None] * 11


def test_a_vector_is_read_by_its_span_alone() -> None:
    shelf, vectors = written()
    for entry, positions in zip(vectors, SETS.values(), strict=True):
        shelf.reads.clear()
        assert read_vector(shelf, entry) == positions
        assert entry.content_offset is not None
        assert entry.content_size_in_bytes is not None
        assert shelf.reads == [(PUFFIN, (entry.content_offset, entry.content_offset + entry.content_size_in_bytes))]


@given(st.sets(st.integers(0, 2**40), min_size=1, max_size=50))
def test_what_is_written_is_read(positions: set[int]) -> None:
    shelf, (entry,) = written({"x.parquet": BitMap64(positions)})
    assert set(read_vector(shelf, entry)) == positions


def test_writing_does_not_change_the_positions() -> None:
    positions = BitMap64([*range(10), 20])
    assert encode_vector(positions) == encode_vector(positions)
    assert list(positions) == [*range(10), 20]


def changed(at: int, value: int) -> Any:
    return lambda data: data[:at] + bytes((data[at] ^ value,)) + data[at + 1 :]


# What is done to the blob, and what is said of it.
DAMAGE = [
    ("length", changed(3, 1), "does not have the length that it says"),
    ("magic", changed(4, 1), "does not begin as one"),
    ("bitmap", changed(30, 1), "does not have its checksum"),
    ("checksum", changed(53, 1), "does not have its checksum"),
    ("cut", lambda data: data[:-3], "of which 51 are there"),
]


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGE, ids=[each[0] for each in DAMAGE])
def test_a_damaged_vector_is_refused_and_named(name: str, damage: Any, message: str) -> None:
    positions = BitMap64([1, 5, 70_000])
    blob = encode_vector(positions)
    assert len(blob) == 54
    shelf, (entry,) = written({"a.parquet": positions})
    shelf.files[PUFFIN] = b"PFA1" + damage(blob)
    with pytest.raises(TableCorruptError, match=message) as caught:
        read_vector(shelf, entry)
    assert caught.value.fields["path"] == PUFFIN
    assert "a.parquet" in caught.value.message


def test_every_flipped_bit_of_a_vector_is_noticed() -> None:
    shelf, (entry,) = written({"a.parquet": BitMap64([1, 5, 70_000])})
    whole = shelf.files[PUFFIN]
    assert entry.content_size_in_bytes is not None
    for at in range(4, 4 + entry.content_size_in_bytes):
        for bit in range(8):
            shelf.files[PUFFIN] = changed(at, 1 << bit)(whole)
            with pytest.raises(TableCorruptError):
                read_vector(shelf, entry)


def test_a_vector_with_another_number_of_rows_is_refused() -> None:
    shelf, (entry,) = written({"a.parquet": BitMap64([1, 2])})
    entry[4] = 3
    with pytest.raises(TableCorruptError, match="deletes 2 rows, and 3 in its manifest entry"):
        read_vector(shelf, entry)


def test_a_vector_whose_bitmap_is_none_is_refused() -> None:
    shelf, (entry,) = written({"a.parquet": BitMap64([1])})
    body = bytes.fromhex("D1D33964") + b"\xff" * 20
    blob = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
    shelf.files[PUFFIN] = b"PFA1" + blob
    entry[19] = len(blob)
    with pytest.raises(TableCorruptError, match="holds no bitmap"):
        read_vector(shelf, entry)


@pytest.mark.parametrize(("offset", "size"), [(None, 40), (4, None), (-1, 40), (4, 11), (4, 2**31), (4, 2**62)])
def test_an_entry_without_a_place_is_refused(offset: int | None, size: int | None) -> None:
    shelf, (entry,) = written({"a.parquet": BitMap64([1])})
    entry[18], entry[19] = offset, size
    with pytest.raises(TableCorruptError, match="has no place in its manifest entry"):
        read_vector(shelf, entry)


@pytest.mark.parametrize(("offset", "size"), [(2**62, 40), (4, 2**31 - 1), (10_000, 40)])
def test_a_span_outside_of_the_file_is_refused_before_it_is_read(offset: int, size: int) -> None:
    shelf, (entry,) = written({"a.parquet": BitMap64([1])})
    shelf.reads.clear()
    entry[18], entry[19] = offset, size
    with pytest.raises(
        TableCorruptError, match=f"^{PUFFIN} is damaged: the vector of a.parquet ends at byte"
    ) as caught:
        read_vector(shelf, entry)
    assert caught.value.fields["path"] == PUFFIN
    assert not shelf.reads


def test_a_file_that_is_shorter_than_its_entry_says_is_named_whole() -> None:
    store = MemoryStore(SystemClock())
    shelf, (entry,) = written({"a.parquet": BitMap64([1])})
    store.put("data/x-deletes.puffin", b"PFA1", Create())
    entry[1] = "s3://b/t/data/x-deletes.puffin"
    with pytest.raises(TableCorruptError, match=r"^s3://b/t/data/x-deletes.puffin has no bytes 4 to"):
        read_vector(Files({"s3://b/t": store}), entry)
    assert shelf.files


def test_puffin_files_hold_any_blobs() -> None:
    blobs = (
        Blob("apache-datasketches-theta-v1", (1,), b"sketch", 7, 8, {"ndv": "3"}, "zstd"),
        Blob("other", (2, 3), b""),
    )
    data, spans = write_puffin(blobs, {"created-by": "x", "ü": "é"})
    found = read_puffin(data, "p")
    assert found.blobs == spans
    assert found.properties == {"created-by": "x", "ü": "é"}
    first = found.blobs[0]
    assert (first.type, first.fields, first.snapshot_id, first.sequence_number) == (blobs[0].type, (1,), 7, 8)
    assert (first.compression_codec, first.properties) == ("zstd", {"ndv": "3"})
    assert data[first.offset : first.offset + first.size_bytes] == b"sketch"
    assert PuffinFile(data).footer.properties == {"created-by": "x", "ü": "é"}
    assert read_puffin(write_puffin((), {})[0], "p").blobs == ()


def puffin(footer: bytes, *, flags: int = 0, size: int | None = None) -> bytes:
    size = len(footer) if size is None else size
    return b"PFA1PFA1" + footer + struct.pack("<II", size, flags) + b"PFA1"


BAD_PUFFINS = [
    ("empty", b""),
    ("short", b"PFA1PFA1"),
    ("no-magic", b"XXXX" + puffin(b"{}")[4:]),
    ("no-end", puffin(b'{"blobs":[]}')[:-1]),
    ("size", puffin(b'{"blobs":[]}', size=10_000)),
    ("size-short", puffin(b'{"blobs":[]}', size=5)),
    ("json", puffin(b"{")),
    ("text", puffin(b"\xff\xff")),
    ("no-blobs", puffin(b"{}")),
    ("list", puffin(b"[]")),
    ("blob", puffin(b'{"blobs":[{"type":"x"}]}')),
    ("deep", puffin(b'{"blobs":' + b"[" * 100_000)),
    (
        "endless",
        puffin(b'{"blobs":[{"type":"x","fields":[1],"snapshot-id":1,"sequence-number":1,"offset":4,"length":1e400}]}'),
    ),
    (
        "outside",
        puffin(
            b'{"blobs":[{"type":"x","fields":[],"snapshot-id":1,"sequence-number":1,"offset":4,"length":1000}]}',
        ),
    ),
]


@pytest.mark.parametrize(("name", "data"), BAD_PUFFINS, ids=[each[0] for each in BAD_PUFFINS])
def test_a_damaged_puffin_file_is_refused_and_named(name: str, data: bytes) -> None:
    with pytest.raises(TableCorruptError) as caught:
        read_puffin(data, "some.puffin")
    assert caught.value.fields["path"] == "some.puffin"


def test_a_puffin_file_that_is_cut_anywhere_is_refused() -> None:
    data = GOLDEN.read_bytes()
    for end in range(len(data)):
        with pytest.raises(TableCorruptError):
            read_puffin(data[:end], "some.puffin")


def test_a_compressed_footer_is_refused_cleanly() -> None:
    with pytest.raises(UnsupportedTableError, match="compressed footer") as caught:
        read_puffin(puffin(b"....", flags=1), "some.puffin")
    assert caught.value.fields["path"] == "some.puffin"
