"""Interleavings of syncs that break a straightforward one, by the numbers of the hazards."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from headwater.regions.registry.model import Override
from headwater.sync.check.model import Fault
from headwater.sync.check.protocol import Checker
from headwater.sync.lease import leased
from headwater.sync.model import Replica
from headwater.sync.opening import open_syncing
from headwater.sync.promote.model import Next
from headwater.sync.runs.model import History, RunState, Step
from tests.unit.sync_world import Regions, ids
from tests.unit.test_sync_promote import Stage, T, U, local
from tests.unit.test_sync_route import SetClock


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.mark.hazard("R1")
def test_r1_two_that_touch_different_tables_do_not_both_land(stage: Stage) -> None:
    """Each alone would be fine; together the replica would show a state that main never had."""
    first = stage.main({T: stage.world.table()})
    second = stage.main({U: stage.world.table()})
    one = stage.wanted(first, {T: local("t")})
    late = stage.wanted(second, {U: local("u")})  # planned on the same head
    assert stage.promote(one).next is Next.COMMIT
    assert stage.promote(late).next is Next.PLAN_AGAIN
    assert stage.shown() == {"default.t": "eu/t"}
    assert stage.origin() == first


@pytest.mark.hazard("R2")
def test_r2_a_plan_on_the_newest_head_does_not_go_back_either(stage: Stage) -> None:
    five, seven = (stage.main({T: stage.world.table(number)}) for number in (5, 7))
    assert stage.promote(stage.wanted(seven, {T: local("t7")})).next is Next.COMMIT
    assert stage.promote(stage.wanted(five, {T: local("t5")})).next is Next.STOP
    assert stage.promote(stage.wanted(seven, {T: local("other")})).next is Next.STOP
    assert stage.shown() == {"default.t": "eu/t7"}


@pytest.mark.hazard("R7")
def test_r7_a_subset_is_synced_and_the_rest_follows_from_where_it_was(tmp_path: Path) -> None:
    regions = Regions(tmp_path)
    lake = regions.lake("us")
    for name in ("t", "u"):
        lake.create_table(name, ids(1).schema, actor="ann")
        lake.load(name, ids(1), actor="ann")
    regions.sync()
    origin = regions.status().replica.origin
    for name in ("t", "u"):
        lake.load(name, ids(2), actor="ann")
    regions.sync(tables=("t",))
    assert regions.status().replica.origin == origin
    assert (len(regions.rows("default.t")), len(regions.rows("default.u"))) == (2, 1)
    regions.sync()
    assert (len(regions.rows("default.t")), len(regions.rows("default.u"))) == (2, 2)


@pytest.mark.hazard("R8")
def test_r8_an_override_exempts_what_it_covers_and_nothing_else(tmp_path: Path) -> None:
    regions = Regions(tmp_path)
    lake = regions.lake("us")
    for name in ("t", "u"):
        lake.create_table(name, ids(1).schema, actor="ann")
        lake.load(name, ids(1), actor="ann")
    (kept, other) = (
        f"{(tmp_path / 'us').as_uri()}/{Path(lake.table(name).metadata.location).relative_to(lake.location)}/"
        for name in ("t", "u")
    )
    rules = replace(regions.registry, overrides=(Override(kept, "us", "it must not leave"),))
    with regions.syncing() as (_, ground):
        found = Checker(ground.catalog, ground.files, rules, "eu").check(Replica("main", lake.resolve()))
    foreign = {each.path for each in found.findings if each.fault is Fault.FOREIGN_PATH}
    assert found.exempt
    assert all(path.startswith(kept) for path in found.exempt)
    assert any(path.startswith(other) for path in foreign)
    assert not any(path.startswith(kept) for path in foreign)


@pytest.mark.hazard("G3")
def test_g3_what_a_dead_process_had_found_is_looked_for_again(tmp_path: Path) -> None:
    """Its claims lapsed, and somebody deleted what it had copied: the next process copies it once more."""
    clock = SetClock()
    regions = Regions(tmp_path, clock)
    lake = regions.lake("us")
    lake.create_table("t", ids(1).schema, actor="ann")
    lake.load("t", ids(1), actor="ann")
    with (
        regions.app.open_sync(regions.url, "eu") as ground,
        closing(regions.app.open_coordination(regions.url)) as coordination,
        leased(coordination, "eu", "one", ground.settings.sync.lease_seconds) as lease,
    ):
        goals = ground.goals(History.FULL)
        run = open_syncing(ground, lease).advance(goals, lease, Step.VERIFY, told=lambda *_: None)
    assert run is not None
    assert run.done is Step.VERIFY
    (copied,) = (regions.folder / "eu").rglob("data/**/*.parquet")
    clock.shown += timedelta(hours=1)
    copied.unlink()
    (done,) = regions.sync()
    assert (done.id, done.state) == (run.id, RunState.DONE)
    assert copied.exists()
    assert regions.rows("default.t") == [{"id": 1}]
