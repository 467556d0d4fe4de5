"""What a sidecar that was found means: every row of the table."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product

import pytest

from headwater.catalog.model import TableContent, TableKey
from headwater.kernel.clock import SystemClock
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.randomness import seeded
from headwater.publish.decide import is_published, needs_restore, pins_hold, state_of, verdict_on
from headwater.publish.model import HeadFacts, HeadState, PlannedHead, Sidecar, Verdict, WriterKind

CLOCK = SystemClock()


def ulid(seed: int) -> Ulid:
    return new_ulid(CLOCK, seeded(seed))


def content(version: int, *, incarnation: str = "t-1") -> TableContent:
    return TableContent(incarnation, f"file:///lake/t/metadata/{version:020}.metadata.json", None, 0, 0, 0)


PINNED = content(5)
OURS, THEIRS = ulid(1), ulid(2)
HEAD = PlannedHead(TableKey.parse("t"), "t", "t-1", content(5), 5, OURS, content(6))
NEW = PlannedHead(TableKey.parse("n"), "n", "n-1", None, 0, OURS, content(1, incarnation="n-1"))
FORK = PlannedHead(TableKey.parse("t"), "t/branches/b", "t-1", content(5), 0, OURS, content(1))
SIDECAR = Sidecar(
    ulid(3), WriterKind.TRANSACTION, "ann", "m", "main", ulid(4), ulid(5), datetime(2026, 1, 1, tzinfo=UTC), (HEAD, NEW)
)
RESTORE = SIDECAR.restore_identity(HEAD)


def facts(
    latest: int,
    *,
    pinned: TableContent | None = PINNED,
    pinned_id: int = 5,
    at: Ulid | None = None,
    after: Ulid | None = None,
) -> HeadFacts:
    return HeadFacts(pinned, pinned_id, latest, at, after)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (facts(5), HeadState.NOT_MOVED),
        (facts(6, at=OURS), HeadState.AS_PLANNED),
        (facts(6, at=THEIRS), HeadState.MOVED_ONCE),
        (facts(7, at=THEIRS, after=THEIRS), HeadState.MOVED_SEVERAL_TIMES),
        (facts(7, at=OURS, after=THEIRS), HeadState.MOVED_SEVERAL_TIMES),
        (facts(6, at=RESTORE), HeadState.RESTORED),
        (facts(7, at=OURS, after=RESTORE), HeadState.RESTORED),
        (facts(9, at=RESTORE, after=THEIRS), HeadState.RESTORED),
        (facts(6, at=THEIRS, pinned=content(6), pinned_id=6), HeadState.MOVED_ONCE),
        (facts(4), HeadState.BEHIND_PIN),
        (facts(0), HeadState.BEHIND_PIN),
        (facts(5, pinned=None, pinned_id=0), HeadState.GONE),
        (facts(6, at=OURS, pinned=content(1, incarnation="t-2"), pinned_id=0), HeadState.GONE),
    ],
)
def test_where_a_head_is(found: HeadFacts, state: HeadState) -> None:
    assert state_of(SIDECAR, HEAD, found) is state


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (facts(0, pinned=None, pinned_id=0), HeadState.NOT_MOVED),
        (facts(1, pinned=None, pinned_id=0, at=OURS), HeadState.AS_PLANNED),
        (facts(1, pinned=None, pinned_id=0, at=SIDECAR.restore_identity(NEW)), HeadState.RESTORED),
        # Somebody else has made a table of that name meanwhile.
        (facts(1, pinned=content(1, incarnation="other"), pinned_id=0, at=OURS), HeadState.GONE),
        (facts(1, pinned=content(1, incarnation="n-1"), pinned_id=1, at=OURS), HeadState.AS_PLANNED),
    ],
)
def test_where_the_head_of_a_new_table_is(found: HeadFacts, state: HeadState) -> None:
    assert state_of(SIDECAR, NEW, found) is state


def test_where_the_head_of_a_first_write_of_a_branch_is() -> None:
    assert state_of(SIDECAR, FORK, facts(0, pinned_id=0)) is HeadState.NOT_MOVED
    assert state_of(SIDECAR, FORK, facts(1, pinned_id=0, at=OURS)) is HeadState.AS_PLANNED


@pytest.mark.hazard("P4")
@pytest.mark.parametrize(
    ("found", "published"),
    [
        (facts(6, at=OURS), False),  # moved, and not pinned yet
        (facts(6, at=OURS, pinned=content(6), pinned_id=6), True),
        (facts(9, at=OURS, after=THEIRS, pinned=content(9), pinned_id=9), True),  # others have built on it
        (facts(7, at=OURS, after=RESTORE, pinned=content(7), pinned_id=7), False),  # undone: the pin is of the restore
        (facts(9, at=OURS, after=RESTORE, pinned=content(9), pinned_id=9), False),  # and others have built on that
        (facts(6, at=THEIRS, pinned=content(6), pinned_id=6), False),
        (facts(6, at=RESTORE, pinned=content(6), pinned_id=6), False),
        (facts(9, pinned=content(9), pinned_id=9), False),  # collected: nobody can tell by the pin alone
    ],
)
def test_p4_what_a_pin_tells_of_a_change(found: HeadFacts, published: bool) -> None:
    assert is_published(SIDECAR, HEAD, found) is published


@pytest.mark.parametrize("states", list(product(HeadState, repeat=2)))
def test_the_verdict_is_all_or_nothing(states: tuple[HeadState, ...]) -> None:
    verdict = verdict_on(states, published=False, branch_lives=True, reads_hold=True, pins_hold=True)
    if all(state is HeadState.GONE for state in states):
        assert verdict is Verdict.DISCARD
    elif HeadState.BEHIND_PIN in states:
        assert verdict is Verdict.ABORT
    elif all(state is HeadState.AS_PLANNED for state in states):
        assert verdict is Verdict.FORWARD
    else:
        assert verdict is Verdict.BACK


@pytest.mark.parametrize(
    ("published", "branch_lives", "reads_hold", "pins_hold", "verdict"),
    [
        (True, True, True, True, Verdict.PUBLISHED),
        (True, True, False, False, Verdict.PUBLISHED),
        (False, False, True, True, Verdict.DISCARD),
        (False, True, False, True, Verdict.BACK),
        (False, True, True, False, Verdict.BACK),
        (False, True, True, True, Verdict.FORWARD),
    ],
)
def test_what_else_the_verdict_rests_on(
    published: bool, branch_lives: bool, reads_hold: bool, pins_hold: bool, verdict: Verdict
) -> None:
    found = verdict_on(
        (HeadState.AS_PLANNED,),
        published=published,
        branch_lives=branch_lives,
        reads_hold=reads_hold,
        pins_hold=pins_hold,
    )
    assert found is verdict


def test_a_rollback_writes_where_the_plan_landed_and_where_it_still_could() -> None:
    assert {state for state in HeadState if needs_restore(state)} == {HeadState.NOT_MOVED, HeadState.AS_PLANNED}


def test_pins_hold_when_all_of_them_do() -> None:
    assert pins_hold([(HEAD, facts(6)), (NEW, facts(0, pinned=None))])
    assert not pins_hold([(HEAD, facts(6, pinned=content(6)))])


def test_every_recoverer_derives_the_same_identities() -> None:
    again = Sidecar(**vars(SIDECAR))
    assert again.restore_identity(HEAD) == SIDECAR.restore_identity(HEAD)
    assert SIDECAR.restore_identity(HEAD) != SIDECAR.restore_identity(NEW)
    identities = {SIDECAR.operation, SIDECAR.rollback_operation, SIDECAR.audit_operation, RESTORE}
    assert len(identities) == 4
