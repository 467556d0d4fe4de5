"""Avro files that lie about themselves end in an error that names them: nothing foreign is read, nothing is lost."""

from __future__ import annotations

import bz2
import io
import json
import struct
import uuid
import zlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestamptzNanoType,
    UUIDType,
)

from headwater.tables import avro
from headwater.tables.avro import RecordReader, avro_schema, write_avro
from headwater.tables.avro_decoder import BoundedDecoder
from headwater.tables.compression import gunzipped, uncompressed
from headwater.tables.model import TableCorruptError

SYNC = b"S" * 16
PLAIN = Schema(NestedField(1, "name", StringType(), required=True), NestedField(2, "size", LongType(), required=True))
PLAIN_JSON = json.dumps(
    {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "name", "type": "string", "field-id": 1},
            {"name": "size", "type": "long", "field-id": 2},
        ],
    }
)


def number(value: int) -> bytes:
    """How Avro writes a number."""
    rest, out = (value << 1) ^ (value >> 63), bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes((*out, rest))


def text(value: bytes) -> bytes:
    return number(len(value)) + value


def container(schema: str, *blocks: tuple[int, bytes], codec: str = "null") -> bytes:
    header = {b"avro.schema": schema.encode(), b"avro.codec": codec.encode()}
    pairs = b"".join(text(key) + text(value) for key, value in header.items())
    body = b"".join(number(count) + text(block) + SYNC for count, block in blocks)
    return b"Obj\x01" + number(len(header)) + pairs + number(0) + SYNC + body


def read(data: bytes, schema: Schema = PLAIN) -> list[Any]:
    return RecordReader(schema, {}, {}).read(data, "file:///t/m.avro")[1]


GOOD = text(b"abc") + number(7)


def test_a_file_by_hand_is_read() -> None:
    assert read(container(PLAIN_JSON, (1, GOOD), (2, GOOD + GOOD))) == [Record("abc", 7)] * 3


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (container(PLAIN_JSON, (1, number(1 << 40) + b"abc")), "1099511627776 bytes are said to follow, and 3 do"),
        (container(PLAIN_JSON, (1, number(100_000) + b"abc")), "100000 bytes are said to follow"),
        (container(PLAIN_JSON, (1, number(-3) + b"abc")), "-3 bytes are said to follow"),
        (container(PLAIN_JSON, (1, b"\xff\xff\xff")), "index out of range"),
        (container(PLAIN_JSON, (1, text(b"abc") + b"\xff" * 12)), "more than 64 bits"),
        (container(PLAIN_JSON, (1, text(b"\xff\xfe") + b"\0")), "utf-8"),
        (container(PLAIN_JSON, (-1, GOOD)), "says that it has -1 records"),
        (container(PLAIN_JSON, (0, GOOD)), "says that it has 0 records"),
        (container(PLAIN_JSON, (1 << 50, GOOD)), "says that it has 1125899906842624 records"),
        (container(PLAIN_JSON, (1, GOOD + b"more")), "something behind its last record"),
        (container(PLAIN_JSON, (1, GOOD), codec="lzma"), "unknown codec lzma"),
        (container(PLAIN_JSON, (1, b"not deflated"), codec="deflate"), "Error -3"),
        (container(PLAIN_JSON, (1, zlib.compress(GOOD)[2:-8]), codec="deflate"), "incomplete"),
        (container(PLAIN_JSON, (1, GOOD))[:-1] + b"X", "a block does not end where it should"),
        (container('"int"', (1, b"\0")), "is not a whole Avro file"),
        (container("[]", (1, b"\0")), "is not a whole Avro file"),
        (container("{}", (1, b"\0")), "is not a whole Avro file"),
        (container(PLAIN_JSON.replace('"long"', '"boolean"'), (1, GOOD)), "boolean"),
        (container(PLAIN_JSON.replace('"field-id": 2', '"field-id": 3'), (1, GOOD)), "non-optional"),
        (container('{"type":"array","items":' * 5000 + '"int"' + "}" * 5000), "recursion"),
    ],
)
def test_every_lie_is_damage_that_names_the_file(data: bytes, said: str) -> None:
    with pytest.raises(TableCorruptError, match=said) as caught:
        read(data)
    assert caught.value.fields["path"] == "file:///t/m.avro"
    assert caught.value.message.startswith("file:///t/m.avro is not a whole Avro file: ")


def test_a_list_of_nothing_is_refused() -> None:
    """It could say that it has a thousand billion items, and take no byte for them."""
    nothing = {"type": "array", "items": {"type": "record", "name": "n", "fields": []}, "element-id": 9}
    written = json.loads(PLAIN_JSON)
    written["fields"].append({"name": "x", "type": nothing, "field-id": 8})
    with pytest.raises(TableCorruptError, match="a list of nothing"):
        read(container(json.dumps(written), (1, GOOD + number(1 << 40) + b"\0")))


def test_numbers_are_read_as_pyiceberg_reads_them_slowly() -> None:
    values = [0, 1, -1, 63, -64, 64, 300, -(2**31), 2**62, -(2**63), 2**63 - 1]
    data = b"".join(number(each) for each in values)
    ours, theirs = BoundedDecoder(data), StreamingBinaryDecoder(data)
    assert [ours.read_int() for _ in values] == [theirs.read_int() for _ in values] == values
    assert ours.is_at_end
    assert BoundedDecoder(data).read_ints(len(values)) == tuple(values)
    with pytest.raises((EOFError, IndexError)):
        BoundedDecoder(data).read_ints(len(values) + 1)
    pairs = {1: b"", -7: b"x" * 63, 1000: b"y" * 64, 2: b"z" * 5000}
    found: dict[int, bytes] = {}
    decoder = BoundedDecoder(b"".join(number(key) + text(value) for key, value in pairs.items()))
    decoder.read_int_bytes_dict(len(pairs), found)
    assert found == pairs
    assert decoder.is_at_end


@pytest.mark.parametrize("length", range(6))
def test_pairs_that_are_cut_are_damage(length: int) -> None:
    with pytest.raises((EOFError, IndexError)):
        BoundedDecoder((number(1) + text(b"12345"))[:length]).read_int_bytes_dict(1, {})


@pytest.mark.parametrize("value", [0.1, 1e300, -1 / 3, 5e-324, float("inf"), -0.0])
def test_a_double_keeps_every_bit(value: float) -> None:
    schema = Schema(NestedField(1, "d", DoubleType()))
    [found] = read(write_avro(avro_schema(schema, "r"), [{"d": value}], {}), schema)
    assert struct.pack("<d", found[0]) == struct.pack("<d", value)


@pytest.mark.parametrize("kind", [TimestampNanoType(), TimestamptzNanoType()], ids=str)
def test_nanoseconds_are_read_as_java_writes_them(kind: IcebergType) -> None:
    schema = Schema(NestedField(1, "at", kind))
    made: Any = avro_schema(schema, "r")
    assert made["fields"][0]["type"][1] == {
        "type": "long",
        "logicalType": "timestamp-nanos",
        "adjust-to-utc": isinstance(kind, TimestamptzNanoType),
    }
    data = write_avro(made, [{"at": -1}, {"at": 1_700_000_000_123_456_789}], {})
    assert [each[0] for each in read(data, schema)] == [-1, 1_700_000_000_123_456_789]


def test_a_fixed_type_may_be_named_where_it_is_used_again() -> None:
    """As Java writes it; PyIceberg knows no such names."""
    fields = [
        {"name": "a", "type": {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"}, "field-id": 1},
        {"name": "b", "type": ["null", "u"], "field-id": 2},
    ]
    schema = Schema(NestedField(1, "a", UUIDType()), NestedField(2, "b", UUIDType()))
    one, two = uuid.UUID(int=1), uuid.UUID(int=2**127)
    block = one.bytes + number(1) + two.bytes
    found = read(container(json.dumps({"type": "record", "name": "r", "fields": fields}), (1, block)), schema)
    assert found == [Record(one, two)]


def test_a_decimal_that_is_not_fixed_is_refused_and_not_misread() -> None:
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    written = {"type": "record", "name": "r", "fields": [{"name": "d", "type": kind, "field-id": 1}]}
    out = io.BytesIO()
    fastavro.writer(out, written, [{"d": Decimal("1.25")}])
    with pytest.raises(TableCorruptError, match="decimal as bytes"):
        read(out.getvalue(), Schema(NestedField(1, "d", DecimalType(9, 2))))


def snappy(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="snappy", asbytes=True)) + zlib.crc32(data).to_bytes(4, "big")


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "null": bytes,
    "deflate": lambda data: zlib.compress(data)[2:-4],
    "bzip2": bz2.compress,
    "zstandard": lambda data: bytes(pa.compress(data, codec="zstd", asbytes=True)),
    "snappy": snappy,
}


@pytest.mark.parametrize("codec", COMPRESSED)
class TestCodecs:
    def test_every_codec_is_read(self, codec: str) -> None:
        block = COMPRESSED[codec](GOOD * 50)
        assert read(container(PLAIN_JSON, (50, block), codec=codec)) == [Record("abc", 7)] * 50

    def test_nothing_grows_without_limit(self, codec: str) -> None:
        block = COMPRESSED[codec](bytes(1_000_000))
        assert uncompressed(block, codec, most_bytes=1_000_000) == bytes(1_000_000)
        with pytest.raises(ValueError, match="more than 999999 bytes"):
            uncompressed(block, codec, most_bytes=999_999)

    def test_a_cut_block_is_damage(self, codec: str) -> None:
        block = COMPRESSED[codec](GOOD * 50)
        for length in range(len(block) - 1):
            with pytest.raises(TableCorruptError):
                read(container(PLAIN_JSON, (50, block[:length]), codec=codec))


def test_a_block_that_is_too_large_names_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    data = container(PLAIN_JSON, (50, zlib.compress(GOOD * 50)[2:-4]), codec="deflate")
    monkeypatch.setattr(avro, "MOST_BLOCK_BYTES", 50 * len(GOOD))
    assert len(read(data)) == 50
    monkeypatch.setattr(avro, "MOST_BLOCK_BYTES", 50 * len(GOOD) - 1)
    with pytest.raises(TableCorruptError, match=r"m\.avro is not a whole Avro file: a block has more than"):
        read(data)


def test_many_blocks_are_not_too_large_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "MOST_FILE_BYTES", 2 * len(GOOD))
    assert len(read(container(PLAIN_JSON, (1, GOOD), (1, GOOD)))) == 2
    with pytest.raises(TableCorruptError, match="it has more than"):
        read(container(PLAIN_JSON, (1, GOOD), (1, GOOD), (1, GOOD)))


def test_what_python_leaves_behind_a_block_is_its_checksum() -> None:
    """So a flipped bit that deflate takes for other data is noticed."""
    rows = [{"name": f"s3://lake/t/{n}", "size": n} for n in range(20)]
    data = write_avro(avro_schema(PLAIN, "r"), rows, {})
    assert len(read(data)) == 20
    start = data.index(data[-16:]) + 16
    for place in range(start, len(data)):
        broken = bytearray(data)
        broken[place] ^= 0x01
        with pytest.raises(TableCorruptError):
            read(bytes(broken))


def test_gzip_is_bounded_and_whole() -> None:
    packed = zlib.compress(bytes(1000), wbits=31)
    assert gunzipped(packed, most_bytes=1000) == bytes(1000)
    for broken, limit in ((packed, 999), (packed[:-1], 1000), (packed + b"x", 1000)):
        with pytest.raises(ValueError, match=r"more than 999|incomplete|something follows"):
            gunzipped(broken, most_bytes=limit)
