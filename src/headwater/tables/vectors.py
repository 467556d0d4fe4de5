"""Deletion vectors, and the Puffin files that hold them.

    Puffin file    magic, blobs, magic, footer (JSON), length of the footer (4 bytes, little-endian), flags (4), magic
    vector blob    length of magic and bitmap (4 bytes, big-endian), magic D1D33964, bitmap, CRC-32 of magic and bitmap
                   (4 bytes, big-endian); the bitmap is the portable 64-bit Roaring format, little-endian

A vector is found by the span in its manifest entry, so that reading one reads no footer.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from pyiceberg.manifest import DataFileContent, FileFormat
from pyroaring import BitMap64

from headwater.tables.files import FileReader
from headwater.tables.model import POSITION_COLUMN_ID, NewFile, TableCorruptError, TableFile, UnsupportedTableError

VECTOR_BLOB = "deletion-vector-v1"
REFERENCED_DATA_FILE = "referenced-data-file"
CARDINALITY = "cardinality"

_PUFFIN_MAGIC = b"PFA1"
_TRAILER_BYTES = 12
_COMPRESSED_FOOTER = 1
_VECTOR_MAGIC = b"\xd1\xd3\x39\x64"
# Length and magic before the bitmap, checksum behind it.
_FRAME_BYTES = 12
# The length before the bitmap has four bytes, and readers take it for a signed number.
_LONGEST_BYTES = 2**31


@dataclass(frozen=True)
class Blob:
    """One blob of a Puffin file that is to be written. Vectors belong to no snapshot, which is said by -1."""

    type: str
    fields: tuple[int, ...]
    data: bytes = field(repr=False)
    snapshot_id: int = -1
    sequence_number: int = -1
    properties: Mapping[str, str] = field(default_factory=dict)
    compression_codec: str | None = None


@dataclass(frozen=True)
class BlobSpan:
    """What the footer of a Puffin file says about one blob."""

    type: str
    fields: tuple[int, ...]
    snapshot_id: int
    sequence_number: int
    offset: int
    size_bytes: int
    compression_codec: str | None
    properties: Mapping[str, str]


@dataclass(frozen=True)
class Puffin:
    """The footer of a Puffin file."""

    blobs: tuple[BlobSpan, ...]
    properties: Mapping[str, str]


def write_puffin(blobs: Iterable[Blob], properties: Mapping[str, str]) -> tuple[bytes, tuple[BlobSpan, ...]]:
    """A Puffin file with these blobs, and where each of them lies in it."""
    data, spans = bytearray(_PUFFIN_MAGIC), []
    for blob in blobs:
        spans.append(
            BlobSpan(
                blob.type,
                blob.fields,
                blob.snapshot_id,
                blob.sequence_number,
                len(data),
                len(blob.data),
                blob.compression_codec,
                blob.properties,
            )
        )
        data += blob.data
    footer: dict[str, object] = {"blobs": [_as_json(span) for span in spans]}
    if properties:
        footer["properties"] = dict(properties)
    payload = json.dumps(footer, separators=(",", ":"), ensure_ascii=False).encode()
    data += _PUFFIN_MAGIC + payload + struct.pack("<II", len(payload), 0) + _PUFFIN_MAGIC
    return bytes(data), tuple(spans)


def _as_json(span: BlobSpan) -> dict[str, object]:
    said: dict[str, object] = {
        "type": span.type,
        "fields": list(span.fields),
        "snapshot-id": span.snapshot_id,
        "sequence-number": span.sequence_number,
        "offset": span.offset,
        "length": span.size_bytes,
    }
    if span.compression_codec is not None:
        said["compression-codec"] = span.compression_codec
    if span.properties:
        said["properties"] = dict(span.properties)
    return said


def read_puffin(data: bytes, location: str) -> Puffin:
    """The footer of a whole Puffin file; every blob that it names lies within the file."""
    smallest = 2 * len(_PUFFIN_MAGIC) + _TRAILER_BYTES
    if len(data) < smallest or not data.startswith(_PUFFIN_MAGIC) or not data.endswith(_PUFFIN_MAGIC):
        raise TableCorruptError(location, "is not a whole Puffin file")
    size_bytes, flags = struct.unpack("<II", data[-_TRAILER_BYTES : -len(_PUFFIN_MAGIC)])
    if flags & _COMPRESSED_FOOTER:
        raise UnsupportedTableError(
            f"{location} has a compressed footer, which this version does not read",
            hint="write it again with an uncompressed footer",
            path=location,
        )
    start = len(data) - _TRAILER_BYTES - size_bytes
    if start < 2 * len(_PUFFIN_MAGIC) or data[start - len(_PUFFIN_MAGIC) : start] != _PUFFIN_MAGIC:
        raise TableCorruptError(location, "is a Puffin file whose footer is not where its end says")
    try:
        footer: Any = json.loads(data[start : len(data) - _TRAILER_BYTES])
        spans = tuple(_span(each) for each in footer["blobs"])
        found = Puffin(spans, dict(footer.get("properties") or {}))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise TableCorruptError(location, f"is a Puffin file whose footer cannot be read: {error!r}") from error
    for span in found.blobs:
        if span.offset < 0 or span.size_bytes < 0 or span.offset + span.size_bytes > start - len(_PUFFIN_MAGIC):
            raise TableCorruptError(location, f"is a Puffin file whose {span.type} blob lies outside of it")
    return found


def _span(said: Mapping[str, Any]) -> BlobSpan:
    return BlobSpan(
        str(said["type"]),
        tuple(int(each) for each in said["fields"]),
        int(said["snapshot-id"]),
        int(said["sequence-number"]),
        int(said["offset"]),
        int(said["length"]),
        said.get("compression-codec"),
        dict(said.get("properties") or {}),
    )


def encode_vector(positions: BitMap64) -> bytes:
    """The blob of a vector. Runs are packed, as other writers do."""
    packed = positions.copy()
    packed.run_optimize()
    body = _VECTOR_MAGIC + packed.serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def write_vectors(
    location: str, vectors: Mapping[str, tuple[BitMap64, TableFile]]
) -> tuple[NewFile, tuple[TableFile, ...]]:
    """One Puffin file with a vector for each data file, by its location, and the manifest entries of the vectors."""
    blobs = tuple(
        Blob(
            VECTOR_BLOB,
            (POSITION_COLUMN_ID,),
            encode_vector(positions),
            properties={REFERENCED_DATA_FILE: path, CARDINALITY: str(len(positions))},
        )
        for path, (positions, _) in vectors.items()
    )
    data, spans = write_puffin(blobs, {"created-by": "Headwater"})
    entries = tuple(
        _entry(location, len(data), span, positions, path, data_file)
        for span, (path, (positions, data_file)) in zip(spans, vectors.items(), strict=True)
    )
    return NewFile(location, data), entries


def _entry(
    location: str, size_bytes: int, span: BlobSpan, positions: BitMap64, path: str, data_file: TableFile
) -> TableFile:
    entry = TableFile.from_args(
        _table_format_version=3,
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=FileFormat.PUFFIN,
        partition=data_file.partition,
        record_count=len(positions),
        file_size_in_bytes=size_bytes,
        referenced_data_file=path,
        content_offset=span.offset,
        content_size_in_bytes=span.size_bytes,
    )
    entry.spec_id = data_file.spec_id
    return cast(TableFile, entry)


def read_vector(files: FileReader, vector: TableFile) -> BitMap64:
    """The positions that a deletion vector holds; only its own span of the Puffin file is read."""
    offset, size_bytes = vector.content_offset, vector.content_size_in_bytes
    if offset is None or size_bytes is None or offset < 0 or not _FRAME_BYTES <= size_bytes < _LONGEST_BYTES:
        raise _damaged(vector, "has no place in its manifest entry")
    if offset + size_bytes > vector.file_size_in_bytes:
        raise _damaged(
            vector, f"ends at byte {offset + size_bytes}, and the file after {vector.file_size_in_bytes} bytes"
        )
    data = files.read(vector.file_path, span=(offset, offset + size_bytes))
    if len(data) != size_bytes:
        raise _damaged(vector, f"should have {size_bytes} bytes from {offset} on, of which {len(data)} are there")
    body, checksum = data[4:-4], data[-4:]
    if int.from_bytes(data[:4], "big") != len(body):
        raise _damaged(vector, "does not have the length that it says")
    if not body.startswith(_VECTOR_MAGIC):
        raise _damaged(vector, "does not begin as one")
    if zlib.crc32(body) != int.from_bytes(checksum, "big"):
        raise _damaged(vector, "does not have its checksum")
    try:
        positions = BitMap64.deserialize(body[len(_VECTOR_MAGIC) :])
    except (ValueError, IndexError) as error:
        raise _damaged(vector, "holds no bitmap") from error
    if len(positions) != vector.record_count:
        raise _damaged(vector, f"deletes {len(positions)} rows, and {vector.record_count} in its manifest entry")
    return positions


def _damaged(vector: TableFile, what: str) -> TableCorruptError:
    return TableCorruptError(vector.file_path, f"is damaged: the vector of {vector.referenced_data_file} {what}")
