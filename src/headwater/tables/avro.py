"""Avro files in memory. How records are put together, by field id, is PyIceberg's; the container is read here.

PyIceberg takes a file that ends too early for one that has no more records. A manifest that was cut short must not
look like one with fewer files, so here every block is counted, its sync marker compared, and the end must be the end.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final

import fastavro
from fastavro.schema import SchemaParseException
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.exceptions import ResolveError
from pyiceberg.schema import Schema
from pyiceberg.typedef import StructProtocol
from pyiceberg.types import IcebergType, TimestampNanoType, TimestamptzNanoType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from headwater.tables.avro_decoder import BoundedDecoder
from headwater.tables.compression import uncompressed
from headwater.tables.model import TableCorruptError

AVRO_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
# Uncompressed: one block, of which most have tens of kilobytes, and all blocks of one file together.
MOST_BLOCK_BYTES: Final = 256 * 1024 * 1024
MOST_FILE_BYTES: Final = 1024 * 1024 * 1024
# What decoders raise on bytes that are not what the schema says.
DAMAGE: Final = (
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    AttributeError,
    ArithmeticError,
    MemoryError,
    SystemError,
    RecursionError,
    StopIteration,
    ResolveError,
    SchemaParseException,
    struct.error,
)


class RecordReader:
    """Reads records of one kind, whatever the schema they were written in; resolutions are kept by written schema."""

    def __init__(
        self,
        schema: Schema,
        types: Mapping[int, Callable[..., StructProtocol]],
        enums: Mapping[int, Callable[..., Enum]],
    ) -> None:
        self._resolve = lru_cache(maxsize=256)(lambda written: _resolved(written, schema, dict(types), dict(enums)))

    def read(self, data: bytes, location: str) -> tuple[dict[str, str], list[Any]]:
        """The header's metadata and every record; `TableCorruptError` when the file is not whole."""
        try:
            return self._read(data)
        except DAMAGE as error:
            raise TableCorruptError(location, f"is not a whole Avro file: {said(error)}") from error

    def _read(self, data: bytes) -> tuple[dict[str, str], list[Any]]:
        header, _, blocks = read_container(data)
        reader = self._resolve(header["avro.schema"])
        records: list[Any] = []
        for count, plain in blocks:
            records.extend(_records(reader, plain, count))
        return header, records


def read_container(data: bytes) -> tuple[dict[str, str], bytes, Iterator[tuple[int, bytes]]]:
    """The header, the marker between blocks, and each block: how many records it has, and its plain bytes.

    Raises one of `DAMAGE` when the file is not whole; of its blocks, only when they are asked for.
    """
    if data[:4] != AVRO_MAGIC:
        raise ValueError("it does not begin like one")
    container = BoundedDecoder(data)
    container.skip(4)
    header = _read_header(container)
    sync = container.read(_SYNC_BYTES)
    return header, sync, _blocks(container, sync, header.get("avro.codec", "null"))


def _blocks(container: BoundedDecoder, sync: bytes, codec_name: str) -> Iterator[tuple[int, bytes]]:
    size_bytes = 0
    while not container.is_at_end:
        count = container.read_int()
        block = container.read_bytes()
        if container.read(_SYNC_BYTES) != sync:
            raise ValueError("a block does not end where it should")
        plain = uncompressed(block, codec_name, most_bytes=MOST_BLOCK_BYTES)
        size_bytes += len(plain)
        if size_bytes > MOST_FILE_BYTES:
            raise ValueError(f"it has more than {MOST_FILE_BYTES} bytes")
        yield count, plain


def _records(reader: Reader, block: bytes, count: int) -> list[Any]:
    """The records that fill the block, neither more nor less."""
    if not 0 < count <= len(block):
        raise ValueError(f"a block of {len(block)} bytes says that it has {count} records")
    decoder, read = BoundedDecoder(block), reader.read
    records = [read(decoder) for _ in range(count)]
    if not decoder.is_at_end:
        raise ValueError("a block has something behind its last record")
    return records


def _read_header(decoder: BoundedDecoder) -> dict[str, str]:
    header: dict[str, str] = {}
    while count := decoder.read_int():
        if count < 0:
            count = -count
            decoder.read_int()  # the size of the block in bytes
        for _ in range(count):
            key = decoder.read_utf8()
            header[key] = decoder.read_bytes().decode("utf-8")
    return header


class _Conversion(AvroSchemaConversion):
    """PyIceberg's, which does not read all that it and others write."""

    def __init__(self) -> None:
        self._fixed: dict[str, IcebergType] = {}

    def _convert_schema(self, avro_type: Any) -> IcebergType:
        """A fixed type that was defined before may be given by its name alone, as Java does."""
        if isinstance(avro_type, str) and avro_type in self._fixed:
            return self._fixed[avro_type]
        converted = super()._convert_schema(avro_type)
        if isinstance(avro_type, dict) and avro_type.get("type") == "fixed" and isinstance(avro_type.get("name"), str):
            self._fixed[avro_type["name"]] = converted
        return converted

    def _convert_array_type(self, array_type: dict[str, Any]) -> Any:
        if _takes_no_bytes(array_type["items"]):
            raise ValueError("a list of nothing could be of any length")
        return super()._convert_array_type(array_type)

    def _convert_logical_type(self, avro_logical_type: dict[str, Any]) -> IcebergType:
        logical, physical = avro_logical_type["logicalType"], avro_logical_type["type"]
        if (logical, physical) == ("timestamp-nanos", "long"):
            return TimestamptzNanoType() if avro_logical_type.get("adjust-to-utc") is True else TimestampNanoType()
        if logical in ("decimal", "uuid") and physical != "fixed":
            raise ValueError(f"{logical} as {physical} is not how Iceberg writes it")
        return super()._convert_logical_type(avro_logical_type)


def _takes_no_bytes(kind: Any) -> bool:
    if not isinstance(kind, dict):
        return bool(kind == "null")
    if kind["type"] == "record":
        return all(_takes_no_bytes(each["type"]) for each in kind["fields"])
    return _takes_no_bytes(kind["type"]) if kind["type"] != "fixed" else not kind["size"]


def _resolved(
    written: str, schema: Schema, types: dict[int, Callable[..., StructProtocol]], enums: dict[int, Callable[..., Enum]]
) -> Reader:
    return resolve_reader(_Conversion().avro_to_iceberg(json.loads(written)), schema, types, enums)


def write_avro(schema: object, records: Iterable[Mapping[str, object]], header: Mapping[str, str]) -> bytes:
    """The bytes of an Avro file with these records; `schema` is one that `avro_schema` made."""
    out = io.BytesIO()
    # By default the marker between blocks is random: the same records would give other bytes each time.
    marker = hashlib.blake2b(json.dumps(header, sort_keys=True).encode(), digest_size=16).digest()
    fastavro.writer(
        out,
        schema,  # type: ignore[arg-type]
        records,
        codec="deflate",
        metadata=dict(header),
        sync_marker=marker,
    )
    return out.getvalue()


def avro_schema(schema: Schema, name: str) -> object:
    """What `write_avro` needs to know of an Iceberg schema."""
    converted: dict[str, Any] = AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name)  # type: ignore[assignment]
    _rename_repeated(converted, set())
    return fastavro.parse_schema(converted)


def _rename_repeated(kind: Any, taken: set[str]) -> None:
    """Two columns of one fixed type need two names: Avro allows no second definition, PyIceberg no reference."""
    if isinstance(kind, list):
        for each in kind:
            _rename_repeated(each, taken)
    elif isinstance(kind, dict):
        if kind.get("type") == "fixed":
            name = kind["name"]
            kind["name"] = name if name not in taken else f"{name}_{len(taken)}"
            taken.add(kind["name"])
        for part in ("type", "fields", "items", "values"):
            _rename_repeated(kind.get(part), taken)


def said(error: BaseException) -> str:
    """What an error says, or at least what it is."""
    return str(error) or type(error).__name__
