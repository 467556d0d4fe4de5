"""Histories of syncs and executors that want the same files, each by a seed, each held to the promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater.database import open_database
from headwater.regions.claims import Claims
from tests.sim.claims_world import BorrowedClock, World, run

QUICK = 25
FULL = 100

Play = Callable[[int], World]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    clock = BorrowedClock()
    with open_database(tmp_path / "state.db", clock=clock) as database:
        Claims(database)  # makes the tables

        def one(seed: int) -> World:
            try:
                return run(seed, database, clock)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error

        yield one


@pytest.mark.hazard("G3")
@pytest.mark.proves("regions/claims")
def test_g3_every_history_keeps_the_promise(play: Play) -> None:
    happened: Counter[str] = Counter()
    for seed in range(QUICK):
        happened += play(seed).happened
    wanted = {"promoted", "copied", "skipped", "deleted", "entered", "claimed", "busy", "taken-over"}
    assert wanted | {"sync met a deletion", "sync ended", "executor died"} <= set(happened), "some of it never happened"


@pytest.mark.slow
def test_more_histories_keep_the_promise(play: Play) -> None:
    for seed in range(QUICK, FULL):
        play(seed)


def test_the_same_seed_gives_the_same_history(play: Play) -> None:
    histories = [play(seed).history for seed in range(3)]
    assert histories == [play(seed).history for seed in range(3)]
    assert len({history[-1] for history in histories}) == 3
