"""Hundreds of histories of publishers, rollbacks and clients, each by a seed, each held to its promise."""

from __future__ import annotations

import pytest

from tests.sim.registry_world import run

QUICK = 150
FULL = 1_000


def _play(seeds: range) -> None:
    for seed in seeds:
        try:
            run(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.hazard("R10")
@pytest.mark.proves("regions/rollout")
def test_every_history_keeps_the_promise() -> None:
    _play(range(QUICK))


@pytest.mark.slow
def test_more_histories_keep_the_promise() -> None:
    _play(range(QUICK, FULL))


def test_the_same_seed_gives_the_same_history() -> None:
    digests = [run(seed).digest for seed in range(10)]
    assert digests == [run(seed).digest for seed in range(10)]
    assert len(set(digests)) == 10


def test_the_histories_are_not_idle() -> None:
    outcomes = [run(seed) for seed in range(80)]
    kinds = {report.kind for outcome in outcomes for report in outcome.record.reports}
    assert kinds == {"published", "conflict", "unknown", "nothing"}
    assert sum(len(outcome.truth.pointers) for outcome in outcomes) > 200
    restored = [stored for outcome in outcomes for stored in outcome.truth.stored.values() if stored["restores"]]
    assert len(restored) > 20
    never = sum(len(outcome.truth.stored) - len(outcome.truth.pointers) for outcome in outcomes)
    assert never > 20, "no publisher ever lost"
