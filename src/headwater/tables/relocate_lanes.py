"""Where one field lies in every record of a manifest, found for all of them at once.

A walk over one record after the other, in Python, takes as long as decoding it. So where the records begin is guessed,
and then proven: every record is a lane, all lanes walk over the same field at the same time, as arrays, and each must
come out exactly where the next one begins. The first begins where the block does, so by induction the guess is true,
or it is not used. The guess looks for what paths begin with; a wrong one costs time and nothing else.

Numbers are passed by counting: their last byte is the only one below 0x80, so that the end of the nth number from any
place is looked up, whether n is 1 or 1,000.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from headwater.tables.relocate_avro import Span, read_number, records_in
from headwater.tables.relocate_schema import Choice, Fields, Fixed, Kind, Many, Number, Text, record_of

_Places: TypeAlias = npt.NDArray[np.int64]
# With fewer records a walk is as fast.
FEWEST: Final = 32
_BUCKET = re.compile(rb"[^/]*/+[^/]*/?")
_ANY_SCHEME = re.compile(rb"(?:s3[an]?|gs|file):/")
# A number of more bytes than this would be no length of anything.
_LONGEST_NUMBER: Final = 5
# A wrong guess may read any number as a count, and must not cost more than the walk that it was to save.
_MOST_ITEMS: Final = 4_096
_MOST_GROUPS: Final = 8


class _NotProvenError(Exception):
    """The lanes met something that only a walk can judge."""


def spans_of(header: Mapping[str, str], blocks: Sequence[tuple[int, bytes]], mark: int) -> list[list[Span]]:
    """Where the marked text is, for each record of each block; raises one of `DAMAGE` as a walk does."""
    if sum(count for count, _ in blocks) >= FEWEST:
        try:
            return _proven(header, blocks, mark)
        except _NotProvenError:
            pass
    marks = frozenset({mark})
    return [[each.fields[mark] for each in records_in(header, plain, count, marks)] for count, plain in blocks]


def _proven(header: Mapping[str, str], blocks: Sequence[tuple[int, bytes]], mark: int) -> list[list[Span]]:
    before, after = _around(header["avro.schema"], mark)
    data = b"".join(plain for _, plain in blocks)
    # How many records there are, and where the data ends, up to and with each block.
    counts = np.cumsum([count for count, _ in blocks])
    ends = np.cumsum([len(plain) for _, plain in blocks])
    count, plain = blocks[0]
    first = next(records_in(header, plain, count, frozenset({mark}))).fields[mark]
    if any(count <= 0 for count, _ in blocks):
        raise _NotProvenError
    starts = _guess(data, first, int(counts[-1]))
    lanes = _Lanes(data)
    behind_text = lanes.skip(Text(), starts)
    behind = behind_text
    for kind in after:
        behind = lanes.skip(kind, behind)
    arrived = np.concatenate(([0], behind[:-1]))
    for kind in before:
        arrived = lanes.skip(kind, arrived)
    # The proof: each record ends where the next begins, and the last of each block where the block does.
    if not (np.array_equal(arrived, starts) and np.array_equal(behind[counts - 1], ends)):
        raise _NotProvenError
    spans: list[list[Span]] = []
    at = offset = 0
    for until, end in zip(counts.tolist(), ends.tolist(), strict=True):
        starts_here, ends_here = starts[at:until] - offset, behind_text[at:until] - offset
        spans.append(list(zip(starts_here.tolist(), ends_here.tolist(), strict=True)))
        at, offset = until, end
    return spans


@lru_cache(maxsize=64)
def _around(schema: str, mark: int) -> tuple[tuple[Kind, ...], tuple[Kind, ...]]:
    """What stands before the marked text in a record, and what behind it."""
    flat = _flat(record_of(schema))
    places = [place for place, (field_id, kind) in enumerate(flat) if field_id == mark and isinstance(kind, Text)]
    if len(places) != 1:
        raise _NotProvenError
    kinds = [kind for _, kind in flat]
    return _together(kinds[: places[0]]), _together(kinds[places[0] + 1 :])


def _flat(kind: Fields) -> list[tuple[int | None, Kind]]:
    flat: list[tuple[int | None, Kind]] = []
    for field_id, each in kind.fields:
        flat += _flat(each) if isinstance(each, Fields) else [(field_id, each)]
    return flat


def _together(kinds: Sequence[Kind]) -> tuple[Kind, ...]:
    """Numbers in a row are passed in one step, as the items of a list that says no count."""
    steps: list[Kind] = []
    for kind in kinds:
        match steps[-1:], kind:
            case [Fields(fields)], Number():
                steps[-1] = Fields((*fields, (None, kind)))
            case _, Number():
                steps.append(Fields(((None, kind),)))
            case _:
                steps.append(kind)
    return tuple(steps)


def _guess(data: bytes, first: Span, count: int) -> _Places:
    """Where so many texts begin, with their lengths: they look like the first one, or at least like paths."""
    _, start = read_number(data, first[0])
    bucket = _BUCKET.match(data, start, first[1])
    patterns = (_ANY_SCHEME,) if bucket is None else (re.compile(re.escape(bucket[0])), _ANY_SCHEME)
    for pattern in patterns:
        texts = np.array([each.start() for each in pattern.finditer(data)], np.int64)
        if len(texts) == count:
            return _with_lengths(texts, np.frombuffer(data, np.uint8))
    raise _NotProvenError


def _with_lengths(texts: _Places, values: npt.NDArray[np.uint8]) -> _Places:
    """Where the lengths begin that stand before texts."""
    # Of a length, all bytes but the last are above 0x7F. What stands before it ends with one below.
    for _ in range(_LONGEST_NUMBER):
        is_longer = (texts >= 2) & (values[texts - 2] >= 0x80)
        if not is_longer.any():
            break
        texts = texts - is_longer
    return texts - 1


class _Lanes:
    """One byte string, walked from many places at once.

    A lane that leaves it stays one byte behind its end, where no record begins or ends, so that the proof fails.
    """

    def __init__(self, data: bytes) -> None:
        self._outside = len(data) + 1
        self._bytes = np.frombuffer(data + b"\x00\x00", np.uint8)
        # Which bytes end a number, how many of them there are up to each place, and where the number is behind us.
        self._lasts = (self._bytes < 0x80).view(np.uint8)
        self._ranks = np.cumsum(self._lasts, dtype=np.int32)
        self._ends = np.flatnonzero(self._lasts) + 1

    def skip(self, kind: Kind, at: _Places) -> _Places:
        """Where a value ends that begins at each place."""
        match kind:
            case Number():
                return self._numbers(at, 1)
            case Fixed(size_bytes):
                return self._within(at + size_bytes)
            case Text():
                length, at = self._value(at)
                if (length < 0).any():
                    raise _NotProvenError
                return self._within(at + length)
            case Choice(branches):
                return self._choice(branches, at)
            case Many(items):
                return self._many(items, at)
            case Fields(fields):
                if (count := _numbers_in(kind)) is not None:
                    return self._numbers(at, count)
                for _, each in fields:
                    at = self.skip(each, at)
                return at

    def _numbers(self, at: _Places, count: int | _Places) -> _Places:
        before = self._ranks[at] - self._lasts[at]
        last = np.minimum(before + (count - 1), len(self._ends) - 1)
        return self._within(self._ends[last])

    def _within(self, at: _Places) -> _Places:
        return np.minimum(at, self._outside)

    def _value(self, at: _Places) -> tuple[_Places, _Places]:
        """The number at each place, and where it ends."""
        byte = self._bytes[at].astype(np.int64)
        value, at = byte & 0x7F, at + 1
        for shift in range(7, 7 * _LONGEST_NUMBER, 7):
            longer = np.flatnonzero(byte >= 0x80)
            if not len(longer):
                return (value >> 1) ^ -(value & 1), self._within(at)
            at = self._within(at)
            byte = np.zeros_like(value)
            byte[longer] = self._bytes[at[longer]]
            value[longer] |= (byte[longer] & 0x7F) << shift
            at[longer] += 1
        raise _NotProvenError

    def _choice(self, branches: Sequence[Kind], at: _Places) -> _Places:
        place, at = self._value(at)
        for branch, kind in enumerate(branches):
            lanes = np.flatnonzero(place == branch)
            if len(lanes) == len(at):
                return self.skip(kind, at)
            if len(lanes):
                at[lanes] = self.skip(kind, at[lanes])
        if ((place < 0) | (place >= len(branches))).any():
            raise _NotProvenError
        return at

    def _many(self, items: Kind, at: _Places) -> _Places:
        """Most lists have one group; a group that says its size in bytes is left to the walk."""
        open_lanes: _Places = np.arange(len(at))
        at = at.copy()
        for _ in range(_MOST_GROUPS):
            count, here = self._value(at[open_lanes])
            if ((count < 0) | (count > _MOST_ITEMS)).any():
                raise _NotProvenError
            at[open_lanes] = here
            going_on = count > 0
            open_lanes, count = open_lanes[going_on], count[going_on]
            if not len(open_lanes):
                return at
            if (each := _numbers_in(items)) is not None:
                at[open_lanes] = self._numbers(at[open_lanes], count * each)
                continue
            for done in range(int(count.max(initial=0))):
                lanes = open_lanes[count > done]
                at[lanes] = self.skip(items, at[lanes])
        raise _NotProvenError


def _numbers_in(kind: Kind) -> int | None:
    """How many numbers a value is made of, when it is made of nothing else."""
    if isinstance(kind, Number):
        return 1
    if not isinstance(kind, Fields):
        return None
    counts = [_numbers_in(each) for _, each in kind.fields]
    return None if not counts or None in counts else sum(each or 0 for each in counts)
