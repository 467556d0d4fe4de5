"""Manifests that name other paths; nothing else in them changes."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from headwater.tables.avro import DAMAGE, read_container, said
from headwater.tables.model import DELETE_FILE_PATH_ID, TableCorruptError, UnsupportedTableError
from headwater.tables.relocate import Resolve
from headwater.tables.relocate_avro import (
    Changes,
    Record,
    Span,
    container_block,
    container_head,
    number,
    read_bytes,
    read_number,
    read_text,
    records_in,
    rewrite_records,
    sized,
    text,
)
from headwater.tables.relocate_lanes import spans_of
from headwater.tables.relocate_schema import Choice, Fields, Fixed, Kind, record_of

# Field ids of a manifest's entry.
_STATUS, _PATH, _FORMAT, _SIZE, _CONTENT, _REFERENCED = 0, 100, 101, 104, 134, 143
_COLUMN_SIZES, _LOWER, _UPPER, _SPLITS = 108, 125, 128, 132
_OPTIONAL: Final = (_COLUMN_SIZES, _LOWER, _UPPER, _SPLITS, _REFERENCED)
_OF_DELETES: Final = frozenset({_STATUS, _PATH, _FORMAT, _SIZE, _CONTENT, *_OPTIONAL})
_DELETED, _POSITIONS = 2, 1
_NULL, _PRESENT = b"\x00", b"\x02"
_GROUP_BYTES: Final = 1024 * 1024


class DeleteKind(enum.StrEnum):
    """What a file of deletes is to whoever moves it."""

    POSITIONS = "positions"
    VECTORS = "vectors"
    EQUALITY = "equality"


@dataclass(frozen=True)
class DeleteEntry:
    """A live delete file, as its manifest names it."""

    location: str
    kind: DeleteKind
    file_format: str
    size_bytes: int


@dataclass(frozen=True)
class MovedDeletes:
    """What a file of position deletes or vectors has become. `bounds` are its first and its last path, if any."""

    location: str
    size_bytes: int
    bounds: tuple[str, str] | None = None


def relocate_data_manifest(data: bytes, location: str, resolve: Resolve, *, entries: int | None = None) -> bytes:
    """A manifest of data files with other paths; `entries` is how many the manifest list says that there are."""
    try:
        header, sync, blocks = read_container(data)
        _check_kind(header, "data")
        out = [container_head(header, sync)]
        found = 0
        for some in _in_groups(blocks):
            for (count, plain), spans in zip(some, spans_of(header, some, _PATH), strict=True):
                out += container_block(count, _with_paths(plain, spans, resolve), sync)
                found += count
        _check_count(found, entries)
        return b"".join(out)
    except DAMAGE as error:
        raise TableCorruptError(location, f"is not a whole manifest: {said(error)}") from error


def _in_groups(blocks: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    """Blocks that are looked at together. All of a large manifest at once would take hundreds of megabytes."""
    some: list[tuple[int, bytes]] = []
    size_bytes = 0
    for count, plain in blocks:
        some.append((count, plain))
        size_bytes += len(plain)
        if size_bytes >= _GROUP_BYTES:
            yield some
            some, size_bytes = [], 0
    if some:
        yield some


def _with_paths(block: bytes, spans: list[Span], resolve: Resolve) -> bytes:
    """What `spliced` does, for the one loop that runs for each of a million files."""
    pieces: list[bytes] = []
    copied = 0
    for start, end in spans:
        path = block[start + _length_bytes(end - start) : end].decode()
        moved = resolve(path).encode()
        pieces += (block[copied:start], number(len(moved)), moved)
        copied = end
    pieces.append(block[copied:])
    return b"".join(pieces)


def _length_bytes(size_bytes: int) -> int:
    """How many bytes of a text, as Avro writes it, are its length."""
    count = 1
    while (size_bytes - count) >> (7 * count - 1):
        count += 1
    return count


def delete_entries(data: bytes, location: str, *, entries: int | None = None) -> Iterator[DeleteEntry]:
    """The delete files that are there. Those of deleted entries may be gone, and are not among them."""
    try:
        header, _, blocks = read_container(data)
        _check_kind(header, "deletes")
        found = 0
        for count, plain in blocks:
            for each in records_in(header, plain, count, _OF_DELETES):
                if _int(each, _STATUS) != _DELETED:
                    yield _entry(each)
            found += count
        _check_count(found, entries)
    except DAMAGE as error:
        raise TableCorruptError(location, f"is not a whole manifest: {said(error)}") from error


def relocate_delete_manifest(data: bytes, location: str, resolve: Resolve, moved: Mapping[str, MovedDeletes]) -> bytes:
    """A manifest of delete files; `moved` says what became of each live file of position deletes or vectors."""

    def edit(record: Record) -> Changes:
        path = read_text(record.block, record.fields[_PATH][0])
        is_live = _int(record, _STATUS) != _DELETED
        rewritten = moved[path] if is_live and _entry(record).kind is not DeleteKind.EQUALITY else None
        changes: dict[Span, bytes] = {}
        if rewritten is None:
            changes[record.fields[_PATH]] = text(resolve(path))
        else:
            changes[record.fields[_PATH]] = text(rewritten.location)
            changes[record.fields[_SIZE]] = number(rewritten.size_bytes)
            changes |= _of_rewritten(record, rewritten)
        span = record.fields.get(_REFERENCED)
        if span is not None and record.block[span[0]] != 0:
            changes[span] = _PRESENT + text(resolve(read_text(record.block, span[0] + 1)))
        return sorted(changes.items())

    _check_optional(data, location)
    return rewrite_records(data, location, _OF_DELETES, edit)


def _of_rewritten(record: Record, rewritten: MovedDeletes) -> dict[Span, bytes]:
    """What else of a position delete file is not as it was: the paths that it begins and ends with (R9), its inside."""
    changes: dict[Span, bytes] = {}
    if rewritten.bounds is None:
        return changes
    for field_id, bound in zip((_LOWER, _UPPER), rewritten.bounds, strict=True):
        span = record.fields.get(field_id)
        if span is not None and record.block[span[0]] != 0:
            changes[span] = _with_bound(record.block, span[0] + 1, bound.encode())
    for field_id in (_COLUMN_SIZES, _SPLITS):
        if field_id in record.fields:
            changes[record.fields[field_id]] = _NULL
    return changes


def _with_bound(block: bytes, at: int, bound: bytes) -> bytes:
    """Bounds by column, with another one for the path, where the path has one."""
    items = []
    while True:
        count, at = read_number(block, at)
        if count == 0:
            break
        if count < 0:
            count = -count
            _, at = read_number(block, at)
        for _ in range(count):
            key, at = read_number(block, at)
            value = read_bytes(block, at)
            length, at = read_number(block, at)
            at += length
            items.append(number(key) + sized(bound if key == DELETE_FILE_PATH_ID else value))
    return _PRESENT + (number(len(items)) + b"".join(items) if items else b"") + b"\x00"


def _entry(record: Record) -> DeleteEntry:
    location = read_text(record.block, record.fields[_PATH][0])
    file_format = read_text(record.block, record.fields[_FORMAT][0]).upper()
    if _int(record, _CONTENT) != _POSITIONS:
        kind = DeleteKind.EQUALITY
    else:
        kind = DeleteKind.VECTORS if file_format == "PUFFIN" else DeleteKind.POSITIONS
    return DeleteEntry(location, kind, file_format, _int(record, _SIZE))


def _int(record: Record, field_id: int) -> int:
    return read_number(record.block, record.fields[field_id][0])[0]


def _check_kind(header: Mapping[str, str], content: str) -> None:
    written = header.get("content", "data")
    if written != content:
        raise ValueError(f"it holds {written}, though the manifest list says {content}")


def _check_count(found: int, entries: int | None) -> None:
    """An Avro file that is cut between two blocks looks whole; the manifest list knows better."""
    if entries is not None and found != entries:
        raise ValueError(f"it has {found} entries, and {entries} by the manifest list")


def _check_optional(data: bytes, location: str) -> None:
    """What may be missing is written as every writer does: a choice, the first branch of which is nothing."""
    try:
        odd = _odd_field(read_container(data)[0]["avro.schema"])
    except DAMAGE as error:
        raise TableCorruptError(location, f"is not a whole manifest: {said(error)}") from error
    if odd is not None:
        raise UnsupportedTableError(
            f"{location} writes field {odd} of its entries in a way that this version does not know",
            hint="rewrite the table's manifests with another engine",
            path=location,
        )


@lru_cache(maxsize=64)
def _odd_field(schema: str) -> int | None:
    for field_id, kind in _all_fields(record_of(schema)):
        match field_id in _OPTIONAL, kind:
            case True, Choice((Fixed(0), _)):
                pass
            case True, _:
                return field_id
    return None


def _all_fields(kind: Fields) -> Iterator[tuple[int | None, Kind]]:
    for field_id, each in kind.fields:
        yield field_id, each
        if isinstance(each, Fields):
            yield from _all_fields(each)
