"""Avro files with other values in a few places, and every other byte as it was.

Decoding a manifest into records and encoding it again costs more than reading it, and loses what neither side knows
of. Here each block is walked by the schema that the file was written in, without making values; the walk says where
the marked fields lie, and the bytes between them are copied. The walk is the proof that nothing else is touched: a
field is found by its place in the schema, never by what its bytes look like, and a block must end exactly where its
last record does.

Files come out with their own header and marker, compressed by deflate, which every reader knows.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from headwater.tables.avro import AVRO_MAGIC, DAMAGE, read_container, said
from headwater.tables.model import TableCorruptError
from headwater.tables.relocate_schema import Choice, Fields, Fixed, Kind, Many, Number, Text, record_of

Span: TypeAlias = tuple[int, int]
Changes: TypeAlias = Iterable[tuple[Span, bytes]]
# Passes over one value: the block, where it begins, and what takes the spans of marked fields.
_Skip: TypeAlias = Callable[[bytes, int, dict[int, Span]], int]

# Manifests are small, and a higher level would take most of the time.
_FASTEST = 1


@dataclass(frozen=True)
class Record:
    """One record in its block: where it lies, and where its marked fields do, by field id."""

    block: bytes
    span: Span
    fields: Mapping[int, Span]

    @property
    def data(self) -> bytes:
        """The bytes of the whole record."""
        return self.block[self.span[0] : self.span[1]]


def rewrite_records(data: bytes, location: str, marks: frozenset[int], edit: Callable[[Record], Changes]) -> bytes:
    """The file with what `edit` says, for each record, in place of some spans; they come in order.

    `marks` are the Iceberg ids of the fields that `edit` wants to know. `TableCorruptError` when the file is not whole.
    """
    try:
        header, sync, blocks = read_container(data)
        out = [container_head(header, sync)]
        for count, plain in blocks:
            changes = (change for each in records_in(header, plain, count, marks) for change in edit(each))
            out += container_block(count, spliced(plain, changes), sync)
        return b"".join(out)
    except DAMAGE as error:
        raise TableCorruptError(location, f"is not a whole Avro file: {said(error)}") from error


def records_in(header: Mapping[str, str], block: bytes, count: int, marks: frozenset[int]) -> Iterator[Record]:
    """The records that fill the block, neither more nor less; raises one of `DAMAGE`."""
    if not 0 < count <= len(block):
        raise ValueError(f"a block of {len(block)} bytes says that it has {count} records")
    skip = _walk(header["avro.schema"], marks)
    at = 0
    for _ in range(count):
        found: dict[int, Span] = {}
        start, at = at, skip(block, at, found)
        yield Record(block, (start, at), found)
    if at != len(block):
        raise ValueError("a block has something behind its last record")


def spliced(block: bytes, changes: Changes) -> bytes:
    """The block with other bytes in some spans."""
    pieces: list[bytes] = []
    copied = 0
    for (start, end), changed in changes:
        if start < copied:
            raise ValueError(f"byte {start} of a block would be changed twice")
        pieces += (block[copied:start], changed)
        copied = end
    pieces.append(block[copied:])
    return b"".join(pieces)


@lru_cache(maxsize=64)
def _walk(schema: str, marks: frozenset[int]) -> _Skip:
    """Kept, because the manifests of a table have few schemas."""
    return _fields(record_of(schema), marks)


def _skip_of(kind: Kind) -> _Skip:
    match kind:
        case Number():
            return _skip_number
        case Text():
            return _skip_text
        case Fixed(size_bytes):
            return _skip_fixed(size_bytes)
        case Choice(branches):
            return _skip_choice([_skip_of(each) for each in branches])
        case Many(items):
            return _skip_many(_skip_of(items))
        case Fields():
            return _fields(kind, frozenset())


def _fields(kind: Fields, marks: frozenset[int]) -> _Skip:
    """Marks count in records alone: in a list or behind a choice, a field would be there more than once, or not."""
    steps = [
        (
            field_id if field_id in marks else None,
            isinstance(each, Number),
            _fields(each, marks) if isinstance(each, Fields) else _skip_of(each),
        )
        for field_id, each in kind.fields
    ]

    def skip(block: bytes, at: int, found: dict[int, Span]) -> int:
        for mark, is_number, step in steps:
            start = at
            # Most numbers have one byte, and a call for each would take most of the time.
            at = at + 1 if is_number and block[at] < 0x80 else step(block, at, found)
            if mark is not None:
                found[mark] = (start, at)
        return at

    return skip


def _skip_number(block: bytes, at: int, _: dict[int, Span]) -> int:
    end = at
    while block[end] & 0x80:
        end += 1
    if end - at > 9:
        raise ValueError("a number has more than 64 bits")
    return end + 1


def _skip_text(block: bytes, at: int, _: dict[int, Span]) -> int:
    size_bytes, at = read_number(block, at)
    return _within(block, at, size_bytes)


def _skip_fixed(size_bytes: int) -> _Skip:
    def skip(block: bytes, at: int, _: dict[int, Span]) -> int:
        return _within(block, at, size_bytes)

    return skip


def _skip_choice(branches: list[_Skip]) -> _Skip:
    def skip(block: bytes, at: int, found: dict[int, Span]) -> int:
        place = block[at]
        if place & 0x81:
            raise ValueError(f"byte {place} chooses no branch")
        return branches[place >> 1](block, at + 1, found)

    return skip


def _skip_many(item: _Skip) -> _Skip:
    def skip(block: bytes, at: int, found: dict[int, Span]) -> int:
        while True:
            count, at = read_number(block, at)
            if count == 0:
                return at
            end = None
            if count < 0:  # then the size in bytes follows
                size_bytes, at = read_number(block, at)
                count, end = -count, at + size_bytes
            if count > len(block) - at:
                raise EOFError(f"{count} items are said to follow, and {len(block) - at} bytes do")
            for _ in range(count):
                at = item(block, at, found)
            if end is not None and at != end:
                raise ValueError("a list does not have the size that it says")

    return skip


def _within(block: bytes, at: int, size_bytes: int) -> int:
    if size_bytes < 0 or at + size_bytes > len(block):
        raise EOFError(f"{size_bytes} bytes are said to follow, and {len(block) - at} do")
    return at + size_bytes


def read_number(block: bytes, at: int) -> tuple[int, int]:
    """The number that begins here, and where it ends."""
    byte = block[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    end = _skip_number(block, at, {})
    value = 0
    for byte in reversed(block[at:end]):
        value = value << 7 | byte & 0x7F
    return (value >> 1) ^ -(value & 1), end


@lru_cache(maxsize=4096)
def number(value: int) -> bytes:
    """A number as Avro writes it. Kept, because most are lengths of paths."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def read_text(block: bytes, at: int) -> str:
    """The text that begins here, with its length."""
    return read_bytes(block, at).decode()


def read_bytes(block: bytes, at: int) -> bytes:
    """The bytes that begin here, with their length."""
    size_bytes, at = read_number(block, at)
    return block[at : _within(block, at, size_bytes)]


def text(value: str) -> bytes:
    """A text as Avro writes it."""
    return sized(value.encode())


def sized(value: bytes) -> bytes:
    """Bytes as Avro writes them, with their length."""
    return number(len(value)) + value


def container_head(header: Mapping[str, str], sync: bytes) -> bytes:
    """What stands before the first block."""
    values = {**header, "avro.codec": "deflate"}
    pairs = b"".join(text(key) + text(value) for key, value in values.items())
    return AVRO_MAGIC + number(len(values)) + pairs + b"\x00" + sync


def container_block(count: int, plain: bytes, sync: bytes) -> tuple[bytes, ...]:
    """One block, compressed."""
    packer = zlib.compressobj(_FASTEST, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(plain) + packer.flush()
    return number(count), number(len(packed)), packed, sync
