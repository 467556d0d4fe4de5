"""What a call of the primary index changes, row by row of its table; and the algebra of ranges."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.ingest.index import IndexMovedError, IndexOrderError
from headwater.ingest.index.main import decide as ranges
from headwater.ingest.index.main.decide import FlushMarker, Ranges
from headwater.ingest.index.primary import decide
from headwater.ingest.index.primary.decide import Change
from headwater.ingest.index.primary.model import Held
from headwater.ingest.model import RowRange
from tests.unit.ingest_index_world import ids

NEW = 99
Pair = tuple[int, int]
ABSENT = (-1, -1)


def held(*pairs: Pair) -> Held:
    return Held(ids(*(pair[0] for pair in pairs)), ids(*(pair[1] for pair in pairs)), ids(*(-1 for _ in pairs)))


PLACES = ids(10, 11)


def said(change: Change) -> tuple[bool, bool]:
    return bool(change.is_written[0]), bool(change.is_replaced[0])


WRITTEN, REPLACED, UNCHANGED = (True, False), (True, True), (False, False)


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (ABSENT, WRITTEN),
        ((4, 1), REPLACED),
        ((4, -1), REPLACED),
        ((5, 1), REPLACED),
        ((5, -1), REPLACED),
        ((5, NEW), UNCHANGED),
        ((4, NEW), REPLACED),
    ],
)
def test_put(present: Pair, expected: tuple[bool, bool]) -> None:
    assert said(decide.put(held(present), 5, ids(NEW), PLACES)) == expected


@pytest.mark.parametrize(
    ("present", "seen", "expected"),
    [
        (ABSENT, ABSENT, UNCHANGED),
        ((4, 1), (4, 1), REPLACED),
        ((5, 1), (5, 1), REPLACED),
        ((4, -1), (4, -1), UNCHANGED),
        (ABSENT, (4, -1), UNCHANGED),  # pruned meanwhile
        ((5, -1), (4, 1), UNCHANGED),  # repeated
    ],
)
def test_tombstone(present: Pair, seen: Pair, expected: tuple[bool, bool]) -> None:
    assert said(decide.tombstone(held(present), 5, held(seen), PLACES)) == expected


@pytest.mark.parametrize(
    ("present", "seen", "expected"),
    [
        (ABSENT, ABSENT, WRITTEN),
        ((4, 1), (4, 1), REPLACED),
        ((5, -1), (5, -1), REPLACED),
        ((5, NEW), (4, 1), UNCHANGED),  # repeated
    ],
)
def test_update(present: Pair, seen: Pair, expected: tuple[bool, bool]) -> None:
    assert said(decide.update(held(present), 5, held(seen), ids(NEW), PLACES)) == expected


@pytest.mark.parametrize(("present", "seen"), [((4, 2), (4, 1)), ((4, -1), (4, 1)), ((4, 2), ABSENT), (ABSENT, (4, 1))])
def test_what_somebody_else_wrote_is_refused(present: Pair, seen: Pair) -> None:
    with pytest.raises(IndexMovedError) as caught:
        decide.tombstone(held((1, 1), present), 5, held((1, 1), seen), PLACES)
    assert (caught.value.fields["place"], caught.value.fields["actual"]) == (11, present[1])
    with pytest.raises(IndexMovedError):
        decide.update(held(present), 5, held(seen), ids(NEW), PLACES)


@pytest.mark.parametrize("present", [(6, 1), (6, -1), (6, NEW)])
def test_time_never_goes_back(present: Pair) -> None:
    calls: tuple[Callable[[], Change], ...] = (
        lambda: decide.put(held(ABSENT, present), 5, ids(NEW, NEW), PLACES),
        lambda: decide.tombstone(held(ABSENT, present), 5, held(ABSENT, present), PLACES),
        lambda: decide.update(held(ABSENT, present), 5, held(ABSENT, present), ids(NEW, NEW), PLACES),
    )
    for call in calls:
        with pytest.raises(IndexOrderError) as caught:
            call()
        assert caught.value.fields == {"place": 11, "count": 1, "timestamp": 5, "newest": 6}


@pytest.mark.parametrize(
    ("present", "seen", "expected"),
    [
        ((4, 1), (4, 1), True),  # the call never landed
        (ABSENT, ABSENT, True),
        ((4, -1), (4, -1), True),
        ((5, -1), (5, -1), True),  # seen after an earlier sequence of the same timestamp
        (ABSENT, (4, -1), True),  # pruned meanwhile
        ((5, -1), (4, 1), False),
        ((5, NEW), (4, 1), False),
        ((5, NEW), ABSENT, False),
        ((5, -1), ABSENT, False),
        ((5, NEW), (5, -1), False),
    ],
)
def test_what_has_to_go_before_it_is_restored(present: Pair, seen: Pair, expected: bool) -> None:
    assert decide.is_restored(held(present), 5, held(seen), PLACES).tolist() == [expected]


@pytest.mark.parametrize(("present", "seen"), [((6, 2), (4, 1)), ((4, 2), (4, 1)), (ABSENT, (4, 1))])
def test_only_versions_of_the_timestamp_are_taken_back(present: Pair, seen: Pair) -> None:
    with pytest.raises(IndexMovedError, match="cannot be put back"):
        decide.is_restored(held(present), 5, held(seen), PLACES)


# Ranges: every set of them is a dictionary from row id to place.

Places = dict[int, tuple[int, int, int]]


def places_of(known: Ranges) -> Places:
    return dict(
        chain.from_iterable(
            ((first + step, (file, group, offset + step)) for step in range(count))
            for first, count, file, group, offset in known.to_rows()
        )
    )


@st.composite
def known_ranges(draw: st.DrawFn) -> list[RowRange]:
    made, row, offset = list[RowRange](), 0, 0
    for _ in range(draw(st.integers(0, 8))):
        row += draw(st.sampled_from([0, 0, 1, 3]))
        offset += draw(st.sampled_from([0, 0, 2]))
        count = draw(st.integers(1, 4))
        made.append(RowRange(row, count, draw(st.integers(1, 2)), draw(st.integers(0, 1)), offset))
        row, offset = row + count, offset + count
    return draw(st.permutations(made))


@settings(max_examples=60, deadline=None)
@given(known_ranges(), st.integers(-1, 30), st.integers(-1, 30))
def test_ranges_are_dictionaries(some: list[RowRange], first: int, length: int) -> None:
    last = first + length
    known = Ranges.of(some)
    expected = {
        each.first_row_id + step: (each.file_id, each.row_group, each.first_offset + step)
        for each in some
        for step in range(each.count)
    }
    assert places_of(known) == expected
    assert places_of(ranges.between(known, first, last)) == {
        row: place for row, place in expected.items() if first <= row <= last
    }
    if last >= first:
        assert ranges.has_any(known, first, last) == any(first <= row <= last for row in expected)
        assert places_of(ranges.without(known, first, last)) == {
            row: place for row, place in expected.items() if not first <= row <= last
        }
    asked = np.arange(-2, 80, dtype=np.int64)
    is_known, found = ranges.locate(known, asked)
    columns = zip(
        asked.tolist(), found.file_ids.tolist(), found.row_groups.tolist(), found.offsets.tolist(), strict=True
    )
    assert is_known.tolist() == [row in expected for row in asked.tolist()]
    assert {row: (file, group, offset) for row, file, group, offset in columns if row in expected} == expected
    assert set(found.file_ids[~is_known].tolist()) <= {-1}


def test_what_goes_on_is_one_range() -> None:
    parts = [RowRange(5, 2, 1, 0, 10), RowRange(1, 4, 1, 0, 6), RowRange(7, 1, 1, 1, 12), RowRange(8, 1, 1, 1, 14)]
    assert Ranges.of(parts).to_rows() == [[1, 6, 1, 0, 6], [7, 1, 1, 1, 12], [8, 1, 1, 1, 14]]


def test_the_marker_golden() -> None:
    """It is durable: recovery compares it with what it finds."""
    one = Ranges.of([RowRange(1, 3, 9, 0, 0)])
    parts = Ranges(np.array([[2, 2, 9, 0, 1], [1, 1, 9, 0, 0]], dtype=np.int64))
    expected = FlushMarker(1, 3, "2e565505d613702d4e688e81d0a08c90900ad5a408e42f0b240dc1a9cc4a2b80")
    assert ranges.marker_of(one) == ranges.marker_of(parts) == expected
