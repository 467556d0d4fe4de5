"""Hundreds of histories of the embedded catalog, each by a seed, each held to its promise."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.sim.catalog_world import run

QUICK = 200
FULL = int(os.environ.get("SEEDS", "500"))
CHUNK = 50


@pytest.mark.hazard("P6", "P13")
@pytest.mark.parametrize("first", range(0, QUICK, CHUNK))
def test_every_history_keeps_the_promise(first: int) -> None:
    for seed in range(first, first + CHUNK):
        _play(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK, max(FULL, QUICK + 1), CHUNK))
def test_more_histories_keep_the_promise(first: int) -> None:
    for seed in range(first, min(first + CHUNK, FULL)):
        _play(seed)


def test_the_same_seed_gives_the_same_history() -> None:
    for seed in range(5):
        assert run(seed).digest == run(seed).digest
    assert len({run(seed).digest for seed in range(5)}) == 5


def test_the_histories_are_not_idle() -> None:
    """A simulation in which nothing goes wrong proves nothing: all that can happen does happen."""
    outcomes = [run(seed) for seed in range(60)]
    kinds = Counter(report.kind for outcome in outcomes for report in outcome.record.reports)
    assert {"committed", "conflict", "unknown", "created", "not created", "held"} <= set(kinds)
    assert kinds["committed"] > 200
    assert kinds["held"] > 20
    assert sum(outcome.truth.swept for outcome in outcomes) > 100
    assert sum(outcome.truth.merged for outcome in outcomes) > 20
    assert sum(outcome.truth.carried for outcome in outcomes) > 20


def _play(seed: int) -> None:
    try:
        run(seed)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
