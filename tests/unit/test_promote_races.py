"""Promotions that meet themselves, a branch or a history that was changed, clocks that differ, and half a region."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headwater.app import App
from headwater.catalog.embedded.protocol import EmbeddedCatalog
from headwater.catalog.errors import BehindHorizonError
from headwater.catalog.model import Commit, Content, NamespaceContent, TableKey
from headwater.coordination import Held, acquire
from headwater.kernel import settings
from headwater.kernel.errors import ConflictError, UnavailableError
from headwater.sync.lease import RegionLease, leased
from headwater.sync.model import Origin
from headwater.sync.opening import open_syncing
from headwater.sync.promote.decide import promotion
from headwater.sync.promote.model import Next
from headwater.sync.promote.protocol import CLOCKS_APART, Ended, Promoter, is_part_of
from headwater.sync.runs.decide import reason_to_abandon
from headwater.sync.runs.model import History, Run, RunState, Step
from headwater.sync.runs.store import Runs
from tests.unit.sync_world import Regions, ids
from tests.unit.test_sync_promote import DEFAULT, Regional, Stage, T, U, local

BRANCH = "main_replica_eu"


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def regions(tmp_path: Path) -> Regions:
    return Regions(tmp_path)


class TestItsOwnCommit:
    """A process that was stopped, and one that has gone on with its run, promote the same."""

    def test_in_the_way_of_the_commit(self, stage: Stage) -> None:
        target = stage.main({T: stage.world.table()})
        wanted = stage.wanted(target, {T: local("t")})
        others: list[Ended] = []
        mine = stage.promoter().promote(wanted, lambda: others.append(stage.promote(wanted)))
        assert [mine.next, *(each.next for each in others)] == [Next.COMMIT, Next.COMMIT]
        assert mine.commit == others[0].commit
        log = stage.catalog.log(stage.catalog.ref(BRANCH).hash)
        assert sum(each.operation == wanted.run for each in log) == 1

    def test_while_it_waits_for_the_region(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        before = stage.catalog.ref("main").hash
        target = stage.main({T: stage.world.table()})
        wanted = stage.wanted(target, {T: local("t")})
        regional = Regional(stage.world.other(), before)
        slept, clock = stage.world.clock.sleep, stage.world.clock

        def meanwhile(seconds: float) -> None:
            monkeypatch.undo()
            stage.promote(wanted)
            slept(seconds)

        monkeypatch.setattr(clock, "sleep", meanwhile)
        ended = stage.promote(wanted, stage.promoter(regional=regional))  # type: ignore[arg-type]
        assert ended.next is Next.COMMIT
        assert ended.commit is not None
        assert ended.commit.operation == wanted.run


class TestWhatIsFull:
    @pytest.mark.hazard("R13")
    def test_who_lacks_some_of_the_target_plans_again(self, stage: Stage) -> None:
        first = stage.main({T: stage.world.table(), U: stage.world.table()})
        stage.promote(stage.wanted(first, {T: local("t"), U: local("u")}, is_full=True))
        second = stage.main({T: stage.world.table(2)})
        ended = stage.promote(stage.wanted(second, {T: local("t2")}, is_full=True))
        assert ended.next is Next.PLAN_AGAIN
        assert "default.u" in ended.reason
        assert stage.shown() == {"default.t": "eu/t", "default.u": "eu/u"}

    def test_a_history_that_is_cut_in_the_middle_of_a_run(
        self, regions: Regions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What changed is localised; what it was compared with is collected: the rest of the tables must not go."""
        lake = regions.lake()
        for name in ("t", "u"):
            lake.create_table(name, ids(1).schema, actor="ann")
            lake.load(name, ids(1), actor="ann")
        regions.sync()
        lake.load("t", ids(2), actor="ann")
        _advance(regions, Step.LOCALISE)

        def cut(_catalog: object, old: str, _new: str) -> object:
            raise BehindHorizonError(old, datetime.now(UTC), datetime.now(UTC))

        monkeypatch.setattr(EmbeddedCatalog, "diff", cut)
        *_, done = regions.sync()
        assert done.state is RunState.DONE
        assert (len(regions.rows("default.t")), len(regions.rows("default.u"))) == (2, 1)


class TestTheGate:
    @pytest.mark.hazard("R4")
    def test_r4_some_contents_have_not_arrived(self, stage: Stage) -> None:
        target = stage.main({T: stage.world.table(), U: stage.world.table()})

        class Half(Regional):
            def content(self, at: str, keys: tuple[TableKey, ...]) -> object:
                return {key: each for key, each in self._catalog.content(at, keys).items() if key != U}

        half = Half(stage.world.other(), target.hash)
        wanted = stage.wanted(target, {T: local("t"), U: local("u")})
        assert stage.promote(wanted, stage.promoter(regional=half)).next is Next.GIVE_UP  # type: ignore[arg-type]
        assert stage.shown() == {}


@dataclass
class Log:
    """A log of a catalog whose servers go by several clocks: seconds by commit, newest first."""

    seconds: tuple[tuple[str, int], ...]
    read: int = 0

    def log(self, at: str) -> Iterator[Commit]:
        start = [name for name, _ in self.seconds].index(at)
        for name, moment in self.seconds[start:]:
            self.read += 1
            yield Commit(name, (), "x", "", {}, BEGAN + timedelta(seconds=moment))


BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


class TestClocks:
    def test_a_commit_of_a_clock_that_was_ahead_is_found(self) -> None:
        log = Log((("m3", 61), ("m2", 360), ("m1", 60)))
        assert is_part_of(log, Origin("m2", BEGAN + timedelta(seconds=360)), "m3")  # type: ignore[arg-type]

    def test_not_all_of_the_log_is_read(self) -> None:
        apart = int(CLOCKS_APART.total_seconds())
        log = Log(tuple((f"m{number}", -number * apart) for number in range(9)))
        assert not is_part_of(log, Origin("x", BEGAN), "m0")  # type: ignore[arg-type]
        assert log.read == 3


class TestKinds:
    def test_a_namespace_goes_with_what_was_in_it(self) -> None:
        room, inner, beside = TableKey(("a",), "b"), TableKey(("a", "b"), "t"), TableKey(("a",), "t")
        shown: dict[TableKey, Content] = {room: NamespaceContent("n"), inner: local("i"), beside: local("b")}
        made = promotion({room: local("table")}, shown)
        assert dict(made.removals) == {room: shown[room], inner: shown[inner]}
        assert set(made.changes) == {room, beside}

    def test_a_namespace_becomes_a_table(self, stage: Stage) -> None:
        outer, room, inner = TableKey.of_namespace(("a",)), TableKey.of_namespace(("a", "b")), TableKey(("a", "b"), "t")
        rooms: dict[TableKey, Content | None] = {outer: NamespaceContent("a"), room: NamespaceContent("b")}
        stage.main({outer: rooms[outer]})
        stage.main({room: rooms[room]})
        target = stage.main({inner: stage.world.table()})
        stage.promote(stage.wanted(target, {**rooms, inner: local("t")}, is_full=True))
        stage.main({inner: None})
        stage.main({room: None})
        target = stage.main({room: stage.world.table()})
        assert stage.promote(stage.wanted(target, {room: local("b"), inner: None})).next is Next.COMMIT
        assert stage.shown() == {"a.b": "eu/b"}
        assert DEFAULT in dict(stage.catalog.contents(stage.catalog.ref(BRANCH).hash))


class TestTakenUp:
    def test_a_run_that_has_promoted_and_not_noted_it_is_not_abandoned(
        self, regions: Regions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lake = regions.lake()
        lake.create_table("t", ids(1).schema, actor="ann")
        regions.sync()
        lake.load("t", ids(1), actor="ann")
        with monkeypatch.context() as broken:
            _lose_the_note(broken)
            with pytest.raises(UnavailableError):
                regions.sync()
        (found,) = regions.sync()
        assert found.state is RunState.DONE
        assert [each.state for each in regions.status().runs] == [RunState.DONE, RunState.DONE]

    @pytest.mark.parametrize("how", ["back", "anew"])
    def test_a_replica_that_was_set_back_does_not_stop_the_region(self, regions: Regions, how: str) -> None:
        """What was promoted will never be seen: who waits for it would wait for ever, run after run."""
        lake = regions.lake()
        lake.create_table("t", ids(1).schema, actor="ann")
        regions.sync()
        before = lake.catalog.ref(BRANCH).hash
        lake.load("t", ids(1), actor="ann")
        promoted = _advance(regions, Step.PROMOTE)
        after = lake.catalog.ref(BRANCH).hash
        if how == "back":
            lake.catalog.assign_ref(BRANCH, before, after)
        else:
            lake.catalog.delete_ref(BRANCH, after)
        *_, done = regions.sync()
        assert (done.state, done.id == promoted.id) == (RunState.DONE, False)
        assert regions.rows("default.t") == [{"id": 1}]
        states = {each.id: each.state for each in regions.status().runs}
        assert states[promoted.id] is RunState.ABANDONED

    @pytest.mark.hazard("R14")
    def test_what_is_decided(self, regions: Regions) -> None:
        lake = regions.lake()
        lake.create_table("t", ids(1).schema, actor="ann")
        run = _advance(regions, Step.PROMOTE)
        for is_there, expected in ((True, None), (False, "set back")):
            reason = reason_to_abandon(run, run.spec, is_target_on_main=True, is_promoted_there=is_there)
            assert reason is expected or (expected is not None and expected in str(reason))


def test_who_is_always_too_late_says_so(regions: Regions, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = regions.lake()
    lake.create_table("t", ids(1).schema, actor="ann")
    monkeypatch.setattr(Promoter, "promote", lambda *_: Ended(Next.PLAN_AGAIN, reason="somebody was faster"))
    with pytest.raises(ConflictError, match=r"3 times in a row: somebody was faster"):
        regions.sync()
    assert {each.state for each in regions.status().runs} == {RunState.ABANDONED}


def test_a_lease_that_cannot_be_given_back_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work under it is done, or has failed for a reason of its own."""
    app = App(settings.load(environ={"HEADWATER_DATABASE": f"sqlite:///{tmp_path / 'state.db'}"}))

    def away(_held: Held) -> None:
        raise UnavailableError("the coordinator is away")

    with closing(app.open_coordination()) as coordination:
        with monkeypatch.context() as broken:
            broken.setattr(Held, "release", away)
            with leased(coordination, "eu", "a test", 60.0):
                pass
        held = acquire(coordination, "sync/asia", "a test", 60.0)
        assert isinstance(held, Held)
        lease = RegionLease(held, 60.0)
        lease.start()
        lease.stop()


def _advance(regions: Regions, until: Step) -> Run:
    """A process that ends after a step."""
    with (
        regions.app.open_sync(regions.url, "eu") as ground,
        closing(regions.app.open_coordination(regions.url)) as coordination,
        leased(coordination, "eu", "one", ground.settings.sync.lease_seconds) as lease,
    ):
        run = open_syncing(ground, lease).advance(ground.goals(History.FULL), lease, until, told=lambda *_: None)
    assert run is not None
    return run


def _lose_the_note(broken: pytest.MonkeyPatch) -> None:
    """The commit is made, and the database is away when that is to be noted."""
    finish = Runs.finish

    def lost(self: Runs, run: Run, step: Step, fence: int, *, promoted: str | None = None) -> Run:
        if step is Step.PROMOTE:
            raise UnavailableError("the database is away")
        return finish(self, run, step, fence, promoted=promoted)

    broken.setattr(Runs, "finish", lost)
