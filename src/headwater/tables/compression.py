"""Compressed bytes become plain ones, but never more than a limit: a few of them can stand for gigabytes."""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa

_GZIP = 16 + zlib.MAX_WBITS
_CHUNK_BYTES = 1024 * 1024


def uncompressed(block: bytes, codec_name: str, *, most_bytes: int) -> bytes:
    """The content of a block of an Avro file; `ValueError` when it is damaged, too large, or of an unknown codec."""
    if codec_name not in _CODECS:
        raise ValueError(f"unknown codec {codec_name}")
    data = _CODECS[codec_name](block, most_bytes)
    if len(data) > most_bytes:
        raise ValueError(f"a block has more than {most_bytes} bytes")
    return data


def _null(block: bytes, _: int) -> bytes:
    return block


def _deflate(block: bytes, most_bytes: int) -> bytes:
    """Deflate has no checksum, but writers in Python, ours too, leave all of zlib's but its last byte behind it."""
    result, behind = _inflated(block, -zlib.MAX_WBITS, most_bytes)
    if len(result) <= most_bytes and len(behind) == 3 and zlib.adler32(result).to_bytes(4, "big")[:3] != behind:
        raise ValueError("a block does not have its checksum")
    return result


def gunzipped(data: bytes, *, most_bytes: int) -> bytes:
    """The content of a gzip file; `ValueError` when it is damaged or larger than allowed."""
    result, behind = _inflated(data, _GZIP, most_bytes)
    if len(result) > most_bytes:
        raise ValueError(f"it has more than {most_bytes} bytes")
    if behind:
        raise ValueError("something follows the compressed data")
    return result


def _inflated(data: bytes, window_bits: int, most_bytes: int) -> tuple[bytes, bytes]:
    """The content, up to one byte more than allowed, and what follows its end."""
    decompressor = zlib.decompressobj(window_bits)
    try:
        result = decompressor.decompress(data, most_bytes + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(result) <= most_bytes and not decompressor.eof:
        raise ValueError("compressed data is incomplete")
    return result, decompressor.unused_data


def _bzip2(block: bytes, most_bytes: int) -> bytes:
    decompressor = bz2.BZ2Decompressor()
    try:
        result = decompressor.decompress(block, most_bytes + 1)
    except OSError as error:
        raise ValueError(str(error)) from error
    if len(result) <= most_bytes and not decompressor.eof:
        raise ValueError("compressed data is incomplete")
    return result


def _zstandard(block: bytes, most_bytes: int) -> bytes:
    out = bytearray()
    try:
        with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as stream:
            while len(out) <= most_bytes and (chunk := stream.read(_CHUNK_BYTES)):
                out += chunk
    except (pa.ArrowException, OSError) as error:
        raise ValueError(str(error)) from error
    return bytes(out)


def _snappy(block: bytes, most_bytes: int) -> bytes:
    """Snappy says the length first; behind its end is the CRC-32 of the content."""
    body, checksum = block[:-4], block[-4:]
    size_bytes, shift = 0, 0
    for byte in body[:5]:
        size_bytes |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size_bytes > most_bytes:
        raise ValueError(f"a block has more than {most_bytes} bytes")
    try:
        data = pa.decompress(body, decompressed_size=size_bytes, codec="snappy", asbytes=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(str(error)) from error
    if zlib.crc32(data) != int.from_bytes(checksum, "big"):
        raise ValueError("a block does not have its checksum")
    return bytes(data)


_CODECS: Final[Mapping[str, Callable[[bytes, int], bytes]]] = {
    "null": _null,
    "deflate": _deflate,
    "bzip2": _bzip2,
    "zstandard": _zstandard,
    "snappy": _snappy,
}
