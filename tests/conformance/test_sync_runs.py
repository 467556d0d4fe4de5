"""Runs of a sync mean the same on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headwater.catalog.model import TableKey
from headwater.database import Database, open_database
from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import RefusedError
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.randomness import system_randomness
from headwater.sync.model import Origin
from headwater.sync.runs.decide import reason_to_abandon
from headwater.sync.runs.model import (
    Backlog,
    History,
    PlannedBatch,
    Run,
    RunLostError,
    RunSpec,
    RunState,
    Shipped,
    Step,
)
from headwater.sync.runs.store import Runs

BACKENDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.services)]
THEN = datetime(2026, 1, 1, tzinfo=UTC)
SPEC = RunSpec("eu", Origin("m5", THEN), Origin("m4", THEN), "r4", 7, History.FULL, None, is_forward=True)


@pytest.fixture(params=BACKENDS)
def runs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runs]:
    is_server = request.param == "postgresql"
    target = str(request.getfixturevalue("postgres_database")) if is_server else str(tmp_path / "state.db")
    with open_database(target) as opened:
        yield runs_on(opened)


def runs_on(database: Database) -> Runs:
    made = Runs(database)
    made.take("eu", 1)
    return made


def fresh() -> Ulid:
    return new_ulid(SystemClock(), system_randomness())


def test_a_run_from_its_beginning_to_its_end(runs: Runs) -> None:
    tables = (TableKey.parse("a.b.t"), TableKey.parse("u"))
    run = runs.begin(fresh(), replace(SPEC, tables=tables), 1)
    assert runs.running("eu") == run
    assert runs.running("us") is None
    for step in Step:
        assert run.next_step is step
        run = runs.finish(run, step, 1, promoted="r5" if step is Step.PROMOTE else None)
        assert runs.run(run.id) == run
    assert (run.state, run.promoted, run.next_step) == (RunState.DONE, "r5", None)
    assert list(run.ended) == list(Step)
    assert runs.running("eu") is None
    assert runs.last("eu") == (run,)


@pytest.mark.parametrize("state", [each for each in RunState if each is not RunState.RUNNING])
def test_what_was_noted_on_the_way_goes_with_the_run_and_not_before(runs: Runs, state: RunState) -> None:
    run = runs.begin(fresh(), SPEC, 1)
    batch = PlannedBatch(1, 10, 100, "l")
    runs.plan(run, [batch], 1)
    runs.keep_localised(run, {TableKey.parse("t"): None}, 1)
    for step in (Step.DIFF, Step.PLAN, Step.COPY, Step.VERIFY, Step.LOCALISE, Step.PROMOTE):
        run = runs.finish(run, step, 1, promoted="r5")
        assert runs.batches(run) == (batch,)
        assert runs.localised(run) == {TableKey.parse("t"): None}
    run = runs.finish(run, Step.OBSERVE, 1) if state is RunState.DONE else runs.end(run, state, 1)
    assert run.state is state
    assert runs.batches(run) == ()
    assert runs.localised(run) == {}
    assert runs.run(run.id) == run


def test_a_region_has_one_run_at_a_time(runs: Runs) -> None:
    run = runs.begin(fresh(), SPEC, 1)
    with pytest.raises(RefusedError, match=run.id):
        runs.begin(fresh(), SPEC, 1)
    ended = runs.end(run, RunState.FAILED, 1, error="a file is gone")
    assert ended.error == "a file is gone"
    runs.begin(fresh(), SPEC, 1)
    assert [each.state for each in runs.last("eu")] == [RunState.RUNNING, RunState.FAILED]


def test_who_lost_the_region_changes_nothing(runs: Runs) -> None:
    run = runs.begin(fresh(), SPEC, 1)
    runs.plan(run, [PlannedBatch(1, 10, 100, "l")], 1)
    runs.take("eu", 5)
    with pytest.raises(RunLostError):
        runs.take("eu", 4)
    for change in (
        lambda: runs.begin(fresh(), SPEC, 1),
        lambda: runs.finish(run, Step.DIFF, 1),
        lambda: runs.end(run, RunState.FAILED, 1),
        lambda: runs.plan(run, [], 1),
        lambda: runs.note(run, 1, 1, is_copied=True),
    ):
        with pytest.raises(RunLostError):
            change()
    assert runs.running("eu") == run
    assert runs.batches(run) == (PlannedBatch(1, 10, 100, "l"),)
    assert runs.finish(run, Step.DIFF, 5).done is Step.DIFF


def test_a_plan_and_what_is_left_of_it(runs: Runs) -> None:
    run = runs.begin(fresh(), SPEC, 1)
    assert runs.backlog("eu") == Backlog()
    runs.plan(run, (PlannedBatch(number, 10, 100, f"l{number}") for number in range(2500)), 1)
    assert runs.backlog("eu") == Backlog(25_000, 250_000)
    runs.plan(run, (PlannedBatch(number, 10, 100, f"l{number}") for number in range(3)), 1)  # made anew
    runs.note(run, 1, 1, is_copied=True)
    assert runs.backlog("eu") == Backlog(20, 200)
    runs.note(run, 1, 1, is_verified=True)
    assert runs.batches(run)[1] == PlannedBatch(1, 10, 100, "l1", is_copied=True, is_verified=True)
    runs.end(run, RunState.ABANDONED, 1)
    assert runs.backlog("eu") == Backlog()


def test_readers_may_ask_for_the_newest(runs: Runs) -> None:
    assert not runs.forward_is_asked("us")
    runs.ask_forward("us")
    runs.ask_forward("eu")
    assert runs.forward_is_asked("us")
    runs.forward_is_done("us")
    assert not runs.forward_is_asked("us")
    assert runs.forward_is_asked("eu")
    runs.take("us", 3)  # a question does not stand in the way of who syncs


@pytest.mark.parametrize(
    ("done", "wanted", "is_on_main", "is_gone_on_with"),
    [
        (None, SPEC, True, True),
        (Step.VERIFY, SPEC, True, True),
        (Step.VERIFY, replace(SPEC, target=Origin("m9", THEN), is_forward=False), True, True),
        (Step.VERIFY, SPEC, False, False),
        (Step.VERIFY, replace(SPEC, replica_head="r5"), True, False),
        (Step.VERIFY, replace(SPEC, generation=8), True, False),
        (Step.VERIFY, replace(SPEC, history=History.CURRENT), True, False),
        (Step.VERIFY, replace(SPEC, tables=(TableKey.parse("t"),)), True, False),
        (Step.VERIFY, replace(SPEC, shipped=Shipped.SOME), True, False),
        (Step.PROMOTE, replace(SPEC, replica_head="r5", generation=8), False, True),
    ],
)
def test_what_a_dead_process_left(done: Step | None, wanted: RunSpec, is_on_main: bool, is_gone_on_with: bool) -> None:
    found = Run(fresh(), SPEC, RunState.RUNNING, done, THEN)
    assert (reason_to_abandon(found, wanted, is_target_on_main=is_on_main) is None) is is_gone_on_with


@pytest.mark.parametrize(
    ("began", "wanted", "cutover", "is_gone_on_with"),
    [
        (Shipped.SOME, Shipped.NO, None, True),  # by a sync that knows nothing of it
        (Shipped.ALL, Shipped.NO, None, True),
        (Shipped.ALL, Shipped.ALL, None, True),
        (Shipped.ALL, Shipped.ALL, SPEC.target, True),
        (Shipped.ALL, Shipped.ALL, Origin("m6", THEN), False),
        (Shipped.ALL, Shipped.SOME, None, False),
        (Shipped.NO, Shipped.SOME, None, False),
    ],
)
def test_what_a_dead_process_left_of_shipped_files(
    began: Shipped, wanted: Shipped, cutover: Origin | None, is_gone_on_with: bool
) -> None:
    found = Run(fresh(), replace(SPEC, shipped=began), RunState.RUNNING, Step.VERIFY, THEN)
    spec = replace(SPEC, shipped=wanted)
    assert (reason_to_abandon(found, spec, is_target_on_main=True, cutover=cutover) is None) is is_gone_on_with
