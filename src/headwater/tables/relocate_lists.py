"""Manifest lists that name other manifests, with their true lengths; nothing else in them changes.

A list is walked once: its lines say what has to be done, and their places are kept until it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from headwater.tables.avro import DAMAGE, read_container, said
from headwater.tables.manifests import check_sealed
from headwater.tables.model import TableCorruptError
from headwater.tables.relocate_avro import (
    Record,
    container_block,
    container_head,
    number,
    read_number,
    read_text,
    records_in,
    spliced,
    text,
)
from headwater.tables.relocate_schema import Choice, Fixed, Number, record_of

# Field ids of a line.
_PATH, _LENGTH, _CONTENT, _ADDED_BY, _SEQUENCE_NUMBER = 500, 501, 517, 503, 515
_COUNTS: Final = (504, 505, 506)
_MARKS: Final = frozenset({_PATH, _LENGTH, _CONTENT, _ADDED_BY, _SEQUENCE_NUMBER, *_COUNTS})
_NAMES: Final = frozenset({_PATH, _LENGTH})
_DELETES = 1


@dataclass(frozen=True)
class ListLine:
    """What a manifest list says of one manifest; `entries` only where it says all three counts."""

    location: str
    length_bytes: int
    is_deletes: bool = False
    added_snapshot_id: int | None = None
    sequence_number: int = 0
    entries: int | None = None


@dataclass(frozen=True)
class MovedManifest:
    """What a manifest has become."""

    location: str
    length_bytes: int


@dataclass(frozen=True)
class ManifestList:
    """A manifest list, its lines, and where they are in it."""

    lines: tuple[ListLine, ...]
    _header: Mapping[str, str] = field(repr=False)
    _sync: bytes = field(repr=False)
    _blocks: tuple[tuple[bytes, tuple[Record, ...]], ...] = field(repr=False)

    def relocated(self, moved: Mapping[str, MovedManifest]) -> bytes:
        """The list with what became of each manifest."""
        out = [container_head(self._header, self._sync)]
        lines = iter(self.lines)
        for block, records in self._blocks:
            changes = []
            for record in records:
                became = moved[next(lines).location]
                changes += sorted(
                    (
                        (record.fields[_PATH], text(became.location)),
                        (record.fields[_LENGTH], number(became.length_bytes)),
                    )
                )
            out += container_block(len(records), spliced(block, changes), self._sync)
        return b"".join(out)


def open_manifest_list(data: bytes, location: str, summary: Mapping[str, str]) -> ManifestList:
    """The list of a snapshot with this summary; `TableCorruptError` when it is not whole, or not the snapshot's."""
    check_sealed(location, summary, data)
    try:
        header, sync, read = read_container(data)
        blocks = tuple((plain, tuple(records_in(header, plain, count, _MARKS))) for count, plain in read)
        optional = _optional(header["avro.schema"])
        lines = tuple(_line(each, optional) for _, records in blocks for each in records)
    except DAMAGE as error:
        raise TableCorruptError(location, f"is not a whole manifest list: {said(error)}") from error
    if not lines and summary.get("total-data-files", "0") != "0":
        raise TableCorruptError(location, "is empty, though its snapshot has data files")
    if len({each.location for each in lines}) != len(lines):
        raise TableCorruptError(location, "names a manifest twice")
    return ManifestList(lines, header, sync, blocks)


def manifests_in(data: bytes, location: str) -> list[MovedManifest]:
    """The manifests that a list names, and their lengths, when nothing else is asked."""
    try:
        header, _, read = read_container(data)
        return [
            MovedManifest(read_text(plain, each.fields[_PATH][0]), read_number(plain, each.fields[_LENGTH][0])[0])
            for count, plain in read
            for each in records_in(header, plain, count, _NAMES)
        ]
    except DAMAGE as error:
        raise TableCorruptError(location, f"is not a whole manifest list: {said(error)}") from error


def _line(record: Record, optional: frozenset[int]) -> ListLine:
    location, length_bytes = read_text(record.block, record.fields[_PATH][0]), _number(record, _LENGTH, optional)
    counts = [_number(record, each, optional) for each in _COUNTS]
    known = [each for each in counts if each is not None]
    if not location or length_bytes is None or min([length_bytes, *known]) < 0:
        raise ValueError(f"a line makes no sense, for {location!r}")
    return ListLine(
        location,
        length_bytes,
        _number(record, _CONTENT, optional) == _DELETES,
        _number(record, _ADDED_BY, optional),
        _number(record, _SEQUENCE_NUMBER, optional) or 0,
        sum(known) if len(known) == len(counts) else None,
    )


def _number(record: Record, field_id: int, optional: frozenset[int]) -> int | None:
    """A number of a line; lists of v1 tables leave some out."""
    if field_id not in record.fields:
        return None
    start = record.fields[field_id][0]
    if field_id in optional:
        if record.block[start] == 0:
            return None
        start += 1
    return read_number(record.block, start)[0]


@lru_cache(maxsize=64)
def _optional(schema: str) -> frozenset[int]:
    """The marked fields that may be missing; `ValueError` when one is no number at all."""
    found = set()
    for field_id, kind in record_of(schema).fields:
        match kind:
            case Choice((Fixed(0), Number())) if field_id in _MARKS:
                found.add(field_id)
            case Number():
                pass
            case _ if field_id in _MARKS and field_id != _PATH:
                raise ValueError(f"field {field_id} of its lines is no number")
    return frozenset(each for each in found if each is not None)
