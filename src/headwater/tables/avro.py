"""Avro files in memory. Decoding is PyIceberg's, by field id; the container is read here.

PyIceberg takes a file that ends too early for one that has no more records. A manifest that was cut short must not
look like one with fewer files, so here every block is counted, its sync marker compared, and the end must be the end.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final

import fastavro
from pyiceberg.avro.codecs import KNOWN_CODECS
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.schema import Schema
from pyiceberg.typedef import StructProtocol
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from headwater.tables.model import TableCorruptError

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
# What decoders raise on bytes that are not what the schema says.
DAMAGE: Final = (ValueError, TypeError, LookupError, EOFError, AttributeError, OverflowError, MemoryError, SystemError)


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
        except (*DAMAGE, zlib.error) as error:
            raise TableCorruptError(location, f"is not a whole Avro file: {_said(error)}") from error

    def _read(self, data: bytes) -> tuple[dict[str, str], list[Any]]:
        if data[:4] != _MAGIC:
            raise ValueError("it does not begin like one")
        decoder = new_decoder(data)
        decoder.skip(4)
        header = _read_header(decoder)
        sync = decoder.read(_SYNC_BYTES)
        reader = self._resolve(header["avro.schema"])
        codec_name = header.get("avro.codec", "null")
        if codec_name not in KNOWN_CODECS:
            raise ValueError(f"unknown codec {codec_name}")
        codec = KNOWN_CODECS[codec_name]
        records: list[Any] = []
        while decoder.tell() < len(data):
            count = decoder.read_int()
            block = decoder.read_bytes()
            if decoder.read(_SYNC_BYTES) != sync:
                raise ValueError("a block does not end where it should")
            inside = new_decoder(codec.decompress(block) if codec else block)
            records.extend(_records(reader, inside, count))
        return header, records


def _records(reader: Reader, decoder: BinaryDecoder, count: int) -> Iterator[Any]:
    read = reader.read
    for _ in range(count):
        yield read(decoder)


def _read_header(decoder: BinaryDecoder) -> dict[str, str]:
    header: dict[str, str] = {}
    while count := decoder.read_int():
        if count < 0:
            count = -count
            decoder.read_int()  # the size of the block in bytes
        for _ in range(count):
            key = decoder.read_utf8()
            header[key] = decoder.read_bytes().decode("utf-8")
    return header


def _resolved(
    written: str, schema: Schema, types: dict[int, Callable[..., StructProtocol]], enums: dict[int, Callable[..., Enum]]
) -> Reader:
    return resolve_reader(AvroSchemaConversion().avro_to_iceberg(json.loads(written)), schema, types, enums)


def write_avro(schema: object, records: Iterable[Mapping[str, object]], header: Mapping[str, str]) -> bytes:
    """The bytes of an Avro file with these records; `schema` is one that `avro_schema` made."""
    out = io.BytesIO()
    fastavro.writer(out, schema, records, codec="deflate", metadata=dict(header))  # type: ignore[arg-type]
    return out.getvalue()


def avro_schema(schema: Schema, name: str) -> object:
    """What `write_avro` needs to know of an Iceberg schema."""
    converted: dict[str, Any] = AvroSchemaConversion().iceberg_to_avro(schema, schema_name=name)  # type: ignore[assignment]
    return fastavro.parse_schema(converted)


def _said(error: BaseException) -> str:
    return str(error) or type(error).__name__
