"""Position deletes and deletion vectors that speak of other paths (R9).

A position delete file is sorted by path and position, and readers rely on it; other paths sort differently. They are
spelled here exactly as in the manifests of the data files, or the deletes would silently hold for nothing.
"""

from __future__ import annotations

import io
import json
import struct
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc
import pyarrow.parquet as pq

from headwater.tables.avro import DAMAGE, read_container, said
from headwater.tables.model import (
    DELETE_FILE_PATH_ID,
    DELETE_FILE_POSITION_ID,
    TableCorruptError,
    UnsupportedTableError,
)
from headwater.tables.relocate import Resolve
from headwater.tables.relocate_avro import (
    container_block,
    container_head,
    read_number,
    read_text,
    records_in,
    spliced,
    text,
)
from headwater.tables.vectors import REFERENCED_DATA_FILE, read_puffin

_TRAILER_BYTES = 12
_AVRO_BLOCK_ROWS = 1000
# By which Parquet and ORC files carry the field ids of their columns.
_FIELD_IDS = (b"PARQUET:field_id", b"iceberg.id")
_NAMES = {DELETE_FILE_PATH_ID: "file_path", DELETE_FILE_POSITION_ID: "pos"}


@dataclass(frozen=True)
class MovedPositions:
    """A position delete file with other paths, the first and the last of them."""

    data: bytes
    bounds: tuple[str, str] | None


def relocate_position_deletes(data: bytes, location: str, file_format: str, resolve: Resolve) -> MovedPositions:
    """The file with other paths, sorted again, every other column and property as it was."""
    try:
        match file_format:
            case "PARQUET":
                return _parquet(data, location, resolve)
            case "AVRO":
                return _avro(data, resolve)
            case "ORC":
                return _orc(data, location, resolve)
    except (*DAMAGE, pa.ArrowException, OSError) as error:
        raise TableCorruptError(location, f"is not a whole file of position deletes: {said(error)}") from error
    raise UnsupportedTableError(
        f"{location} holds position deletes as {file_format}, which this version does not read",
        hint="rewrite the table's position deletes with another engine",
        path=location,
        file_format=file_format,
    )


def _parquet(data: bytes, location: str, resolve: Resolve) -> MovedPositions:
    schema = pq.read_schema(io.BytesIO(data))
    path = schema.names[_column(schema, DELETE_FILE_PATH_ID, location)]
    # A path stands there millions of times; each is held once.
    with pq.ParquetFile(io.BytesIO(data), read_dictionary=[path]) as file:
        table, properties = file.read(), file.metadata.metadata or {}
        codec = file.metadata.row_group(0).column(0).compression if file.metadata.num_row_groups else "ZSTD"
    moved, bounds = _sorted(table, location, resolve)
    out = io.BytesIO()
    with pq.ParquetWriter(
        out,
        moved.schema,
        compression="none" if codec == "UNCOMPRESSED" else codec.lower(),
        store_schema=False,
        write_page_checksum=True,
    ) as writer:
        writer.write_table(moved)
        writer.add_key_value_metadata({key: value for key, value in properties.items() if key != b"ARROW:schema"})
    return MovedPositions(out.getvalue(), bounds)


def _orc(data: bytes, location: str, resolve: Resolve) -> MovedPositions:
    file = orc.ORCFile(io.BytesIO(data))
    table = file.read()
    moved, bounds = _sorted(table, location, resolve)
    out = io.BytesIO()
    orc.write_table(moved.cast(table.schema), out, compression=file.compression)
    return MovedPositions(out.getvalue(), bounds)


def _sorted(table: pa.Table, location: str, resolve: Resolve) -> tuple[pa.Table, tuple[str, str] | None]:
    """The rows with other paths, in the order that the specification asks for; and the first and the last path."""
    path, position = (_column(table.schema, each, location) for each in (DELETE_FILE_PATH_ID, DELETE_FILE_POSITION_ID))
    column = table.column(path)
    packed = column if pa.types.is_dictionary(column.type) else column.cast(pa.string()).dictionary_encode()
    packed = packed.unify_dictionaries().combine_chunks()
    packed = packed.chunk(0) if isinstance(packed, pa.ChunkedArray) else packed
    places = [resolve(each) for each in packed.dictionary.to_pylist()]
    # In their order, so that to compare the numbers of two is to compare the paths.
    ordered = sorted(set(places))
    numbers = {place: number for number, place in enumerate(ordered)}
    codes = pa.array([numbers[each] for each in places], pa.int32()).take(packed.indices)
    paths = pa.DictionaryArray.from_arrays(codes, pa.array(ordered, pa.string()))
    order = pc.sort_indices(
        pa.table({"path": codes, "position": table.column(position)}),
        sort_keys=[("path", "ascending"), ("position", "ascending")],
    )
    moved = table.set_column(path, table.schema.field(path).with_type(paths.type), paths)
    return moved.take(order), (ordered[0], ordered[-1]) if ordered else None


def _column(schema: pa.Schema, field_id: int, location: str) -> int:
    """The column of a field id, or of its name where the file has no ids."""
    for place, field in enumerate(schema):
        known = [(field.metadata or {}).get(each) for each in _FIELD_IDS]
        if str(field_id).encode() in known or (known == [None, None] and field.name == _NAMES[field_id]):
            return place
    raise TableCorruptError(location, f"has no column {_NAMES[field_id]}, as a file of position deletes must")


def _avro(data: bytes, resolve: Resolve) -> MovedPositions:
    header, sync, blocks = read_container(data)
    marks = frozenset({DELETE_FILE_PATH_ID, DELETE_FILE_POSITION_ID})
    rows: list[tuple[str, int, bytes]] = []
    for count, plain in blocks:
        for each in records_in(header, plain, count, marks):
            (start, end), (position, _) = each.fields[DELETE_FILE_PATH_ID], each.fields[DELETE_FILE_POSITION_ID]
            path = resolve(read_text(plain, start))
            offset = each.span[0]
            record = spliced(each.data, [((start - offset, end - offset), text(path))])
            rows.append((path, read_number(plain, position)[0], record))
    rows.sort(key=lambda row: row[:2])
    out = [container_head(header, sync)]
    for at in range(0, len(rows), _AVRO_BLOCK_ROWS):
        some = rows[at : at + _AVRO_BLOCK_ROWS]
        out += container_block(len(some), b"".join(record for _, _, record in some), sync)
    return MovedPositions(b"".join(out), (rows[0][0], rows[-1][0]) if rows else None)


def relocate_vectors(data: bytes, location: str, resolve: Resolve) -> bytes:
    """A Puffin file whose vectors speak of other data files. Blobs stay where they are: manifests name their spans."""
    read_puffin(data, location)
    size_bytes, flags = struct.unpack_from("<II", data, len(data) - _TRAILER_BYTES)
    start = len(data) - _TRAILER_BYTES - size_bytes
    footer: dict[str, Any] = json.loads(data[start : start + size_bytes])
    for blob in footer["blobs"]:
        properties = blob.get("properties") or {}
        if REFERENCED_DATA_FILE in properties:
            properties[REFERENCED_DATA_FILE] = resolve(properties[REFERENCED_DATA_FILE])
    payload = json.dumps(footer, separators=(",", ":"), ensure_ascii=False).encode()
    return data[:start] + payload + struct.pack("<II", len(payload), flags) + data[-4:]
