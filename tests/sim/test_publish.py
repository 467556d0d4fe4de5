"""Histories of publishing, each by a seed: four writers in two processes that die, and each is held to the promise."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.sim import publish_names_world
from tests.sim.publish_world import run

pytestmark = pytest.mark.proves("publish/model")

QUICK = 20
FULL = int(os.environ.get("SEEDS", "60"))
CHUNK = 10


@pytest.mark.hazard("P1", "P2", "P3", "P4", "P8", "P9", "P10", "P11")
@pytest.mark.parametrize("first", range(0, QUICK, CHUNK))
def test_every_history_is_serialisable(first: int) -> None:
    for seed in range(first, first + CHUNK):
        _play(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK, max(FULL, QUICK + 1), CHUNK))
def test_more_histories_are_serialisable(first: int) -> None:
    for seed in range(first, min(first + CHUNK, FULL)):
        _play(seed)


def test_the_same_seed_gives_the_same_history() -> None:
    assert run(3).digest == run(3).digest
    assert len({run(seed).digest for seed in range(3)}) == 3


def test_the_histories_are_not_idle() -> None:
    """A simulation in which nothing goes wrong proves nothing: all that can happen does happen."""
    outcomes = [run(seed) for seed in range(30, 60)]
    kinds = Counter(report.kind for outcome in outcomes for report in outcome.record.reports)
    recovered = sum((outcome.truth.recovered for outcome in outcomes), Counter())
    assert {"committed", "conflict", "unknown"} <= set(kinds)
    assert {"rolled forward", "rolled back", "published"} <= set(recovered), recovered
    assert sum(outcome.deaths for outcome in outcomes) > 20
    assert sum(outcome.cleaned for outcome in outcomes) > 100


@pytest.mark.hazard("P12", "P16", "P18", "P19")
def test_names_that_come_and_go_leave_nothing_stuck() -> None:
    told = Counter[str]()
    for seed in range(4, 9):
        try:
            told += publish_names_world.run(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert min(told[each] for each in ("committed", "conflict", "unknown")) > 2, told


def _play(seed: int) -> None:
    try:
        run(seed)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
