"""Every row of the decision tables of the sequence protocol."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.kernel.ids import Ulid
from headwater.sequence.decide import (
    Facts,
    Occupant,
    PutAnswer,
    Step,
    Successor,
    deletable,
    is_active,
    may_grant,
    newest_gap,
    next_step,
    wished_boundary,
)
from headwater.sequence.model import Listed, Pin, PinRecord, Retention

CREATED, REFUSED, LOST = PutAnswer.CREATED, PutAnswer.REFUSED, PutAnswer.LOST
OURS, FOREIGN, NOBODY = Occupant.OURS, Occupant.FOREIGN, Occupant.NOBODY
US, OTHER, GONE = Successor.NAMES_US, Successor.NAMES_ANOTHER, Successor.GONE

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RETENTION = Retention(timedelta(seconds=10), timedelta(seconds=5))


@pytest.mark.parametrize(
    ("facts", "step"),
    [
        # The object is ours.
        (Facts(CREATED), Step.READ_BOUNDARY),
        (Facts(CREATED, behind_boundary=False), Step.COMMITTED),
        (Facts(CREATED, behind_boundary=True), Step.READ_SUCCESSOR),
        (Facts(CREATED, behind_boundary=True, successor=US), Step.COMMITTED),
        (Facts(CREATED, behind_boundary=True, successor=OTHER), Step.CONFLICT),
        (Facts(CREATED, behind_boundary=True, successor=GONE), Step.UNKNOWN),
        # The put was refused, but it was our own earlier put that refused it.
        (Facts(REFUSED), Step.READ_OCCUPANT),
        (Facts(REFUSED, occupant=OURS), Step.READ_BOUNDARY),
        (Facts(REFUSED, occupant=OURS, behind_boundary=False), Step.COMMITTED),
        (Facts(REFUSED, occupant=OURS, behind_boundary=True, successor=GONE), Step.UNKNOWN),
        # Refused, and no answer was ever lost: nothing of ours is anywhere.
        (Facts(REFUSED, occupant=FOREIGN), Step.CONFLICT),
        (Facts(REFUSED, occupant=NOBODY), Step.CONFLICT),
        # An answer was lost.
        (Facts(LOST, ever_lost=True), Step.READ_OCCUPANT),
        (Facts(LOST, ever_lost=True, occupant=OURS), Step.READ_BOUNDARY),
        (Facts(LOST, ever_lost=True, occupant=NOBODY), Step.CREATE_AGAIN),
        (Facts(REFUSED, ever_lost=True, occupant=NOBODY), Step.CREATE_AGAIN),
        # Nobody is there, and we may not create.
        (Facts(LOST, ever_lost=True, may_create=False, occupant=NOBODY), Step.READ_BOUNDARY),
        (Facts(LOST, ever_lost=True, may_create=False, occupant=NOBODY, behind_boundary=False), Step.UNKNOWN),
        (Facts(LOST, ever_lost=True, may_create=False, occupant=NOBODY, behind_boundary=True), Step.READ_SUCCESSOR),
        (
            Facts(LOST, ever_lost=True, may_create=False, occupant=NOBODY, behind_boundary=True, successor=US),
            Step.COMMITTED,
        ),
        (Facts(REFUSED, ever_lost=True, occupant=FOREIGN), Step.READ_BOUNDARY),
        (Facts(REFUSED, ever_lost=True, occupant=FOREIGN, behind_boundary=False), Step.CONFLICT),
        (Facts(REFUSED, ever_lost=True, occupant=FOREIGN, behind_boundary=True), Step.READ_SUCCESSOR),
        (Facts(REFUSED, ever_lost=True, occupant=FOREIGN, behind_boundary=True, successor=US), Step.COMMITTED),
        (Facts(REFUSED, ever_lost=True, occupant=FOREIGN, behind_boundary=True, successor=OTHER), Step.CONFLICT),
        (Facts(REFUSED, ever_lost=True, occupant=FOREIGN, behind_boundary=True, successor=GONE), Step.UNKNOWN),
    ],
)
@pytest.mark.hazard("S2", "S3")
def test_next_step(facts: Facts, step: Step) -> None:
    assert next_step(facts) is step


facts_strategy = st.builds(
    Facts,
    put=st.sampled_from(PutAnswer),
    ever_lost=st.booleans(),
    may_create=st.booleans(),
    occupant=st.none() | st.sampled_from(Occupant),
    behind_boundary=st.none() | st.booleans(),
    successor=st.none() | st.sampled_from(Successor),
)


@given(facts_strategy)
def test_a_commit_was_seen_ahead_of_the_boundary_or_is_named_by_its_successor(facts: Facts) -> None:
    if next_step(facts) is Step.COMMITTED:
        assert facts.behind_boundary is False or facts.successor is US


@given(facts_strategy)
def test_a_conflict_is_never_declared_over_an_object_of_ours_without_proof(facts: Facts) -> None:
    if next_step(facts) is Step.CONFLICT and (facts.put is CREATED or facts.occupant is OURS):
        assert facts.behind_boundary
        assert facts.successor is OTHER


def listed(number: int, age_seconds: float) -> Listed:
    return Listed(number, f"n/{number:020d}.x", NOW - timedelta(seconds=age_seconds))


def pin(name: str = "P", expires_in: float = 60, *, granted: bool = True) -> Pin:
    return Pin(Ulid(name), "test", granted, NOW + timedelta(seconds=expires_in))


def record(*pins: Pin) -> PinRecord:
    return PinRecord(5, Ulid("W"), pins)


@pytest.mark.parametrize(
    ("listing", "wish"),
    [
        ([], None),
        ([listed(1, 100)], None),
        ([listed(1, 100), listed(2, 100)], 1),
        ([listed(1, 100), listed(2, 5)], 1),
        ([listed(1, 5), listed(2, 5)], None),
        ([listed(1, 10), listed(2, 5)], None),
        ([listed(1, 5), listed(2, 100), listed(3, 5)], 2),
        ([listed(3, 100), listed(1, 100), listed(2, 100)], 2),
    ],
)
def test_wished_boundary(listing: list[Listed], wish: int | None) -> None:
    assert wished_boundary(listing, NOW, RETENTION) == wish


@pytest.mark.parametrize(
    ("numbers", "after", "gap"),
    [
        ([], 0, None),
        ([], 7, None),
        ([1, 2, 3], 0, None),
        ([8, 9], 7, None),
        ([2, 3], 0, 1),
        ([1, 3], 0, 2),
        ([1, 3, 4, 7], 0, 6),
        ([9], 7, 8),
    ],
)
@pytest.mark.hazard("S12")
def test_newest_gap(numbers: list[int], after: int, gap: int | None) -> None:
    assert newest_gap(numbers, after) == gap


@pytest.mark.parametrize(
    ("boundary", "pinned", "gone"),
    [
        (0, [], []),
        (2, [], [1, 2]),
        (3, [], [1, 2]),
        (5, [], [1, 2, 4]),
        (99, [], [1, 2, 4]),
        (4, [1], [2, 4]),
        (4, [1, 2, 3, 4], []),
    ],
)
def test_deletable(boundary: int, pinned: list[int], gone: list[int]) -> None:
    listing = [listed(1, 100), listed(2, 100), listed(3, 1), listed(4, 100), listed(5, 100)]
    assert [each.id for each in deletable(listing, boundary, frozenset(pinned), NOW, RETENTION)] == gone


ages = st.lists(st.floats(0, 30), max_size=12)


@given(ages, st.integers(0, 20), st.frozensets(st.integers(1, 12)))
def test_nothing_ahead_of_the_boundary_nor_the_latest_nor_a_pinned_object_is_deletable(
    ages: list[float], boundary: int, pinned: frozenset[int]
) -> None:
    listing = [listed(number, age) for number, age in enumerate(ages, start=1)]
    gone = {each.id for each in deletable(listing, boundary, pinned, NOW, RETENTION)}
    assert all(number <= boundary for number in gone)
    assert len(listing) not in gone
    assert not gone & pinned


ASKED = pin(granted=False)


@pytest.mark.parametrize(
    ("boundary", "others", "granted"),
    [
        (4, [], True),
        (5, [], False),
        (9, [], False),
        (9, [pin("Q")], True),
        (9, [pin("Q", granted=False)], False),
        (9, [pin("Q", expires_in=0)], False),
        (9, [pin("Q", granted=False), pin("R")], True),
        (9, [pin("Q", expires_in=-1), pin("R", granted=False)], False),
    ],
)
@pytest.mark.hazard("S4", "S7")
def test_may_grant(boundary: int, others: list[Pin], granted: bool) -> None:
    assert may_grant(ASKED.pin, record(ASKED, *others), boundary, NOW) is granted


def test_a_pin_does_not_vouch_for_itself() -> None:
    assert not may_grant(Ulid("P"), record(pin("P")), 9, NOW)


@pytest.mark.parametrize(
    ("pins", "active"),
    [
        ([], False),
        ([pin(expires_in=1)], True),
        ([pin(expires_in=1, granted=False)], True),
        ([pin(expires_in=-5)], True),
        ([pin(expires_in=-5.001)], False),
        ([pin(expires_in=-9), pin("Q", expires_in=9)], True),
    ],
)
def test_a_record_counts_until_its_last_pin_ended_by_the_slowest_clock(pins: list[Pin], active: bool) -> None:
    assert is_active(record(*pins), NOW, RETENTION) is active
