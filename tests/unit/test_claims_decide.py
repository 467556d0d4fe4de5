"""Who may rely on a file, and who may delete it: every row of the tables, and what holds for all of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from headwater.kernel.ids import Ulid
from headwater.regions.claims.decide import delete_verdict, open_verdict, run_verdict
from headwater.regions.claims.model import ClaimRun, DeleteVerdict, Deletion, OpenVerdict, RunVerdict

pytestmark = pytest.mark.proves("regions/claims")

NOW = datetime(2026, 11, 15, tzinfo=UTC)
SECOND = timedelta(seconds=1)
RUN = Ulid("01JCQ0000000000000000000AA")
ONE, OTHER = Ulid("01JCQ0000000000000000000E1"), Ulid("01JCQ0000000000000000000E2")


def run(*, fence: int = 5, ends: timedelta = 60 * SECOND, region: str = "eu") -> ClaimRun:
    return ClaimRun(RUN, region, fence, NOW + ends)


@pytest.mark.parametrize(
    ("found", "fence", "highest", "verdict"),
    [
        (None, 1, 0, OpenVerdict.OPEN),
        (None, 5, 5, OpenVerdict.OPEN),
        (None, 4, 5, OpenVerdict.FENCED),
        (run(), 5, 5, OpenVerdict.ADOPT),
        (run(), 6, 5, OpenVerdict.ADOPT),
        (run(), 4, 5, OpenVerdict.FENCED),
        (run(ends=timedelta(0)), 6, 5, OpenVerdict.RESTART),
        (run(ends=-SECOND), 5, 5, OpenVerdict.RESTART),
        (run(ends=-SECOND), 4, 5, OpenVerdict.FENCED),
        (run(region="us"), 9, 5, OpenVerdict.FOREIGN),
    ],
)
def test_a_run_that_is_opened(found: ClaimRun | None, fence: int, highest: int, verdict: OpenVerdict) -> None:
    assert open_verdict(found, "eu", fence, highest, NOW) is verdict


@pytest.mark.parametrize(
    ("found", "highest", "needed_seconds", "verdict"),
    [
        (None, 0, 0, RunVerdict.GONE),
        (run(), 5, 0, RunVerdict.HOLDS),
        (run(), 5, 60, RunVerdict.HOLDS),
        (run(), 5, 61, RunVerdict.TOO_SHORT),
        (run(ends=timedelta(0)), 5, 0, RunVerdict.LAPSED),
        (run(ends=-SECOND), 5, 0, RunVerdict.LAPSED),
        (run(fence=6), 6, 0, RunVerdict.FENCED),
        (run(fence=5), 6, 0, RunVerdict.FENCED),
        (run(fence=6), 5, 0, RunVerdict.FENCED),
    ],
)
def test_a_run_that_wants_to_go_on(
    found: ClaimRun | None, highest: int, needed_seconds: int, verdict: RunVerdict
) -> None:
    assert run_verdict(run(), found, highest, NOW, needed_seconds * SECOND) is verdict


@pytest.mark.hazard("G3")
@pytest.mark.parametrize(
    ("is_claimed", "found", "verdict"),
    [
        (True, None, DeleteVerdict.CLAIMED),
        (False, None, DeleteVerdict.ENTERED),
        (False, Deletion(ONE, NOW + SECOND), DeleteVerdict.OURS),
        (False, Deletion(ONE, NOW - SECOND), DeleteVerdict.OURS),
        (False, Deletion(OTHER, NOW + SECOND), DeleteVerdict.BUSY),
        (False, Deletion(OTHER, NOW), DeleteVerdict.TAKEN_OVER),
        (False, Deletion(OTHER, NOW - SECOND), DeleteVerdict.TAKEN_OVER),
    ],
)
def test_g3_a_file_that_an_executor_wants(is_claimed: bool, found: Deletion | None, verdict: DeleteVerdict) -> None:
    assert delete_verdict(is_claimed=is_claimed, found=found, executor=ONE, now=NOW) is verdict


@pytest.mark.hazard("G3")
def test_g3_nobody_enters_while_there_is_a_claim() -> None:
    deletions = [None, *(Deletion(who, NOW + ends * SECOND) for who, ends in product((ONE, OTHER), (-1, 0, 1)))]
    for found in deletions:
        verdict = delete_verdict(is_claimed=True, found=found, executor=ONE, now=NOW)
        assert verdict is not DeleteVerdict.ENTERED
        assert not (found is None and verdict.may_delete)
