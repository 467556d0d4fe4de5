"""Thousands of histories of the sequence protocol, each by a seed, each held to its promise."""

from __future__ import annotations

import os

import pytest

from tests.sim.sequence_world import run

QUICK = 500
FULL = int(os.environ.get("SEEDS", "5000"))
CHUNK = 250


@pytest.mark.hazard("S1", "S2", "S3", "S4", "S7")
@pytest.mark.proves("sequence/history")
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
    for seed in range(20):
        assert run(seed).digest == run(seed).digest
    assert len({run(seed).digest for seed in range(20)}) == 20


def test_the_histories_are_not_idle() -> None:
    """A simulation in which nothing goes wrong proves nothing: all that can happen does happen."""
    outcomes = [run(seed) for seed in range(150)]
    reports = [report.kind for outcome in outcomes for report in outcome.record.reports]
    assert {"committed", "conflict", "unknown", "latest", "pinned"} <= set(reports)
    assert sum(len(outcome.truth.history) for outcome in outcomes) > 1000
    assert sum(len(outcome.truth.deleted) for outcome in outcomes) > 300
    behind = sum(
        change.kind == "put" and change.path.startswith("lake/manifest/")
        for o in outcomes
        for change in o.record.changes
    ) - sum(len(outcome.truth.history) for outcome in outcomes)
    assert behind > 0, "no stalled writer ever landed behind the boundary"


def _play(seed: int) -> None:
    try:
        run(seed)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error
