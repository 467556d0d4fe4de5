"""Which rows a read sees, against a dictionary that says for each row when it was first deleted."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pyroaring import BitMap

from headwater.ingest.model import Int64s, Locations
from headwater.ingest.visibility import (
    AdmittedError,
    BelowBaseError,
    NotAdmittedError,
    OutOfRangeError,
    RowGroupVisibility,
    VisibilityIndex,
    delete_rows,
    grouped,
)


def some(*offsets: int) -> Int64s:
    return np.array(offsets, np.int64)


def places(*rows: tuple[int, int, int]) -> Locations:
    columns = np.array(rows, np.int64).reshape(-1, 3).T
    return Locations(*columns)


def seen(group: RowGroupVisibility, timestamp: int) -> list[int]:
    """The offsets that are visible, by the mask; the bitmap must say the same."""
    mask = group.visible_mask(timestamp)
    assert list(np.flatnonzero(~mask)) == list(group.deleted_at(timestamp))
    return [int(each) for each in np.flatnonzero(mask)]


def test_a_deletion_counts_from_its_timestamp_on() -> None:
    group = RowGroupVisibility(4)
    group.delete(some(1, 3), 5)
    assert group.has_deletions
    assert [seen(group, at) for at in (0, 4, 5, 6)] == [[0, 1, 2, 3], [0, 1, 2, 3], [0, 2], [0, 2]]
    assert list(group.visible_mask(5, rows=2)) == [True, False]


@pytest.mark.parametrize("order", [[(1, 9), (2, 3), (1, 5)], [(1, 5), (1, 9), (2, 3)], [(2, 3), (1, 5), (1, 9)]])
@pytest.mark.proves("ingest/visibility")
def test_the_order_of_arrival_does_not_matter(order: list[tuple[int, int]]) -> None:
    group = RowGroupVisibility(3)
    for offset, timestamp in order:
        group.delete(some(offset), timestamp)
    assert [seen(group, at) for at in (2, 3, 4, 5, 8, 9)] == [[0, 1, 2], [0, 1], [0, 1], [0], [0], [0]]


def test_a_fold_changes_no_read_at_or_above_it() -> None:
    group = RowGroupVisibility(5)
    for offset, timestamp in ((0, 10), (1, 2), (2, 6), (1, 8)):
        group.delete(some(offset), timestamp)
    before = {at: seen(group, at) for at in range(6, 12)}
    assert group.fold(6) == 2
    assert {at: seen(group, at) for at in range(6, 12)} == before
    assert (group.base_timestamp, group.pending) == (6, 1), "what the base knows is not kept beside it"
    assert group.fold(6) == group.fold(3) == 0
    assert group.base_timestamp == 6, "a base never falls"
    assert group.fold(9) == 0, "nothing to fold"
    assert group.base_timestamp == 9


def test_a_read_below_the_base_is_refused() -> None:
    group = RowGroupVisibility(2)
    group.fold(7)
    for read in (group.visible_mask, group.deleted_at):
        with pytest.raises(BelowBaseError, match="a read at 6 is below 7") as refused:
            read(6)
        assert refused.value.fields == {"timestamp": 6, "base_timestamp": 7}
        assert refused.value.hint


def test_a_late_deletion_goes_into_a_copy_of_the_base() -> None:
    base = BitMap([0])
    group = RowGroupVisibility(4, 10, base)
    before = group.snapshot()
    group.delete(some(2), 10)
    group.delete(some(3), 4)
    assert seen(group, 10) == [1]
    assert group.pending == 0
    assert (list(before.base), list(base)) == ([0], [0]), "who had looked before sees what it saw"


def test_a_deletion_right_above_the_base_is_not_in_the_base() -> None:
    group = RowGroupVisibility(2, 10)
    group.delete(some(0), 11)
    assert (seen(group, 10), seen(group, 11)) == ([0, 1], [1])


@pytest.mark.parametrize("offsets", [[0, 4], [-1], [2**40], [0, 2**32]])
def test_an_offset_out_of_range_deletes_nothing(offsets: list[int]) -> None:
    group = RowGroupVisibility(4)
    with pytest.raises(OutOfRangeError, match="is not in a row group of 4 rows") as refused:
        group.delete(some(*offsets), 5)
    assert refused.value.fields["rows"] == 4
    assert seen(group, 5) == [0, 1, 2, 3]


def test_other_mistakes_change_nothing() -> None:
    group = RowGroupVisibility(4)
    for timestamp in (0, -1, 2**63):
        with pytest.raises(OutOfRangeError, match="no timestamp"):
            group.delete(some(1), timestamp)
    with pytest.raises(OutOfRangeError, match="one column of integers"):
        group.delete(np.array([0.5]), 5)
    with pytest.raises(OutOfRangeError, match="one column of integers"):
        group.delete(np.array([[1]]), 5)
    with pytest.raises(OutOfRangeError, match="5 rows were asked for"):
        group.visible_mask(5, rows=5)
    with pytest.raises(OutOfRangeError):
        RowGroupVisibility(-1)
    with pytest.raises(OutOfRangeError):
        RowGroupVisibility(2, 0, BitMap([2]))
    group.delete(some(), 5)
    assert not group.has_deletions


def test_an_empty_row_group_can_be_read() -> None:
    group = RowGroupVisibility(0)
    group.fold(3)
    assert len(group.visible_mask(3)) == 0


def test_a_block_that_ended_early_is_sealed() -> None:
    group = RowGroupVisibility(8)
    group.delete(some(2), 5)
    for rows in (2, 9):
        with pytest.raises(OutOfRangeError, match=f"cannot end at {rows}"):
            group.seal(rows)
    group.seal(3)
    assert seen(group, 5) == [0, 1]
    with pytest.raises(OutOfRangeError):
        group.delete(some(3), 6)


def test_what_is_said_again_does_not_grow() -> None:
    group = RowGroupVisibility(100)
    for timestamp in range(1, 2_000):
        group.delete(np.arange(50), timestamp)
    assert group.pending <= 200
    assert seen(group, 1) == list(range(50, 100))


def test_a_snapshot_stays_as_it_was_and_can_be_restored() -> None:
    group = RowGroupVisibility(10)
    group.delete(some(1), 2)
    group.fold(2)
    group.delete(some(3), 5)
    snapshot = group.snapshot()
    for timestamp in range(6, 60):
        group.delete(some(timestamp % 10), timestamp)
    group.fold(30)
    assert (list(snapshot.offsets), list(snapshot.timestamps), list(snapshot.base)) == ([3], [5], [1])
    assert not snapshot.offsets.flags.writeable
    back = RowGroupVisibility.restore(snapshot)
    assert [seen(back, at) for at in (2, 5)] == [[0, 2, 3, 4, 5, 6, 7, 8, 9], [0, 2, 4, 5, 6, 7, 8, 9]]
    back.delete(some(0), 6)
    assert seen(back, 6) == [2, 4, 5, 6, 7, 8, 9]
    assert seen(back, 5) == [0, 2, 4, 5, 6, 7, 8, 9]


class Model(RuleBasedStateMachine):
    """A row group against a dictionary of first deletions."""

    ROWS = 24

    def __init__(self) -> None:
        super().__init__()
        self.group = RowGroupVisibility(self.ROWS)
        self.first: dict[int, int] = {}
        self.base = 0

    @rule(offsets=st.lists(st.integers(0, ROWS - 1), max_size=6), timestamp=st.integers(1, 40))
    def delete(self, offsets: list[int], timestamp: int) -> None:
        self.group.delete(some(*offsets), timestamp)
        for offset in offsets:
            # Below the base the moment is lost, and only that the row is deleted stays known.
            self.first[offset] = min(self.first.get(offset, 99), max(timestamp, self.base))

    @rule(up_to=st.integers(0, 40))
    def fold(self, up_to: int) -> None:
        self.group.fold(up_to)
        self.base = max(self.base, up_to)

    @rule()
    def restart(self) -> None:
        self.group = RowGroupVisibility.restore(self.group.snapshot())

    @rule(offset=st.integers(ROWS, ROWS + 3), timestamp=st.integers(1, 40))
    def mistake(self, offset: int, timestamp: int) -> None:
        with pytest.raises(OutOfRangeError):
            self.group.delete(some(0, offset), timestamp)

    @rule(timestamp=st.integers(0, 41))
    def look(self, timestamp: int) -> None:
        if timestamp < self.base:
            with pytest.raises(BelowBaseError):
                self.group.visible_mask(timestamp)
            return
        expected = [row for row in range(self.ROWS) if self.first.get(row, 99) > timestamp]
        assert seen(self.group, timestamp) == expected

    @invariant()
    def both_ends_are_right(self) -> None:
        assert seen(self.group, 41) == [row for row in range(self.ROWS) if row not in self.first]
        oldest = [row for row in range(self.ROWS) if self.first.get(row, 99) > self.base]
        assert seen(self.group, self.base) == oldest


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=30)


@pytest.mark.proves("ingest/visibility")
def test_readers_never_see_half_a_deletion_and_never_wait() -> None:
    """A thread deletes all rows again and again, half of them at a time; whoever looks sees whole halves."""
    group = RowGroupVisibility(1_000)
    halves = [np.arange(0, 1_000, 2), np.arange(1, 1_000, 2)]
    stop = threading.Event()
    odd: list[int] = []

    def write() -> None:
        for timestamp in range(1, 400):
            group.delete(halves[timestamp % 2], timestamp)
            if timestamp % 50 == 0:
                group.fold(timestamp - 20)
        stop.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not stop.is_set():
        count = int(group.visible_mask(1_000).sum())
        if count not in (0, 500, 1_000):
            odd.append(count)
    writer.join()
    assert odd == []
    with group._writing:  # a writer is at work for ever
        assert int(group.visible_mask(1_000).sum()) == 0
        assert len(group.deleted_at(1_000)) == 1_000
        assert group.snapshot().rows == 1_000


def test_rows_are_grouped_by_file_and_row_group() -> None:
    found = list(grouped(places((2, 0, 5), (1, 1, 7), (2, 0, 4), (1, 0, 0), (1, 1, 2))))
    assert [(each.file_id, each.row_group, each.offsets.tolist()) for each in found] == [
        (1, 0, [0]),
        (1, 1, [2, 7]),
        (2, 0, [4, 5]),
    ]
    assert list(grouped(places())) == []


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 5)), max_size=30))
@settings(max_examples=50)
def test_grouping_loses_and_mixes_nothing(rows: list[tuple[int, int, int]]) -> None:
    groups = list(grouped(places(*rows)))
    found = [(each.file_id, each.row_group, int(offset)) for each in groups for offset in each.offsets]
    assert sorted(found) == sorted(rows)
    assert len({(each.file_id, each.row_group) for each in groups}) == len(groups)


def index() -> VisibilityIndex:
    made = VisibilityIndex()
    made.admit(1, [RowGroupVisibility(4), RowGroupVisibility(4)])
    made.admit(2, [RowGroupVisibility(4)])
    return made


def hidden(index: VisibilityIndex, timestamp: int) -> list[tuple[int, int, int]]:
    return [
        (file_id, number, offset)
        for file_id in sorted(index.files())
        for number, group in enumerate(index.groups(file_id))
        for offset in group.deleted_at(timestamp)
    ]


def test_rows_of_many_files_are_deleted_together() -> None:
    made = index()
    made.delete(places((2, 0, 3), (1, 1, 0), (1, 0, 2), (1, 1, 3)), 9)
    assert hidden(made, 8) == []
    assert hidden(made, 9) == [(1, 0, 2), (1, 1, 0), (1, 1, 3), (2, 0, 3)]
    assert made.pending() == 4
    assert made.fold_all(9) == 4
    assert made.pending() == 0
    with pytest.raises(BelowBaseError):
        hidden(made, 8)


@pytest.mark.parametrize("wrong", [(3, 0, 0), (1, 2, 0), (1, -1, 0), (2, 0, 4)])
def test_if_one_row_cannot_be_deleted_none_is(wrong: tuple[int, int, int]) -> None:
    made = index()
    with pytest.raises((NotAdmittedError, OutOfRangeError)):
        made.delete(places((1, 0, 0), wrong, (2, 0, 0)), 9)
    with pytest.raises(OutOfRangeError):
        made.delete(places((1, 0, 0)), 0)
    assert hidden(made, 9) == []


def test_a_file_is_admitted_with_the_very_objects_and_once() -> None:
    made, group = VisibilityIndex(), RowGroupVisibility(4)
    group.delete(some(1), 3)
    made.admit(7, [group])
    made.admit(7, [group])
    assert made.get(7, 0) is group
    group.delete(some(2), 4)
    assert hidden(made, 4) == [(7, 0, 1), (7, 0, 2)]
    with pytest.raises(AdmittedError) as refused:
        made.admit(7, [RowGroupVisibility(4)])
    assert refused.value.fields == {"file_id": 7}
    assert made.get(7, 0) is group


def test_a_file_that_was_removed_is_gone() -> None:
    made = index()
    assert [group.rows for group in made.remove(1)] == [4, 4]
    assert made.files() == {2}
    assert made.get(1, 0) is None
    for again in (made.remove, made.groups):
        with pytest.raises(NotAdmittedError) as refused:
            again(1)
        assert refused.value.fields["file_id"] == 1
    with pytest.raises(NotAdmittedError):
        made.delete(places((1, 0, 0)), 9)


def test_a_deletion_finds_a_row_group_while_it_is_handed_over() -> None:
    """The buffer is asked first: what it has let go of is in the index."""
    made, group = VisibilityIndex(), RowGroupVisibility(4)
    buffer = {(7, 0): group}

    def hand_over() -> None:
        made.admit(7, [group])
        buffer.clear()

    def find(file_id: int, row_group: int) -> RowGroupVisibility | None:
        found = buffer.get((file_id, row_group))
        hand_over()
        return found or made.get(file_id, row_group)

    delete_rows(find, places((7, 0, 1)), 5)
    delete_rows(find, places((7, 0, 2)), 5)
    assert hidden(made, 5) == [(7, 0, 1), (7, 0, 2)]
