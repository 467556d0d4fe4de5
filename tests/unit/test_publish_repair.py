"""Repair: heads that drifted, and no sidecar to say why."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import pytest

from headwater.catalog.model import RefKind, TableKey
from headwater.kernel import failpoints
from headwater.kernel.failpoints import Action, Failpoint
from headwater.publish.errors import DriftError, HeadsBehindError, PublishOutcomeUnknownError, RepairRefusedError
from headwater.publish.model import RECOVERY_ACTOR, Recovered, Sidecar
from headwater.publish.repair.decide import drift_of
from headwater.publish.repair.model import DriftState, Repaired
from headwater.publish.repair.protocol import DRIFT
from headwater.publish.requests import FOR_ACTOR, KIND
from headwater.storage.port import ObjectMeta, ObjectStore
from headwater.storage.wrapper import StoreWrapper
from tests.unit.publish_world import LAKE, OVER, Process, PublishWorld
from tests.unit.test_publish_forks import content, fork_path, put_behind
from tests.unit.test_publish_protocol import interrupt

pytestmark = pytest.mark.proves("publish/cleanup")


@pytest.fixture
def world() -> PublishWorld:
    made = PublishWorld()
    process = made.process()
    process.create("t1", "t2", "t3")
    process.append({"t1": 1})
    return made


def own_path(process: Process, name: str) -> str:
    return fork_path(process, name, branch="main")


def repair(process: Process) -> Repaired:
    return process.writing.repair.run(actor="ann")


@pytest.mark.parametrize(
    ("pinned", "latest", "state"),
    [
        (3, 3, None),
        (3, 4, DriftState.AHEAD),
        (3, 9, DriftState.AHEAD),
        (3, 2, DriftState.BEHIND),
        (1, 0, DriftState.BEHIND),
    ],
)
def test_where_a_head_is(pinned: int, latest: int, state: DriftState | None) -> None:
    assert drift_of(pinned, latest) is state


class TestAhead:
    @pytest.mark.parametrize("times", [1, 2, 5])
    def test_a_head_ahead_of_its_pin_is_set_back(self, world: PublishWorld, times: int) -> None:
        process = world.process()
        before = json.loads(process.files.read(content(process).metadata_location))
        put_behind(process, own_path(process, "t1"), b'{"properties": {"not": "a table"}}', times=times)
        with pytest.raises(DriftError):
            process.append({"t1": 2})
        done = repair(process)
        [drift] = done.drifts
        assert (drift.branch, str(drift.key), drift.pinned_id, drift.latest_id) == ("main", "default.t1", 2, 2 + times)
        assert process.head_is_pinned("t1")
        assert process.ids("t1") == [0, 1]
        after = json.loads(process.files.read(content(process).metadata_location))
        for document in (before, after):
            for name in ("headwater.writer", "headwater.previous"):
                document["properties"].pop(name, None)
        assert before == after  # verbatim
        process.append({"t1": 2, "t2": 2})
        assert process.ids("t1") == [0, 1, 2]

    def test_the_log_tells_of_it(self, world: PublishWorld) -> None:
        process = world.process()
        put_behind(process, own_path(process, "t1"))
        put_behind(process, own_path(process, "t3"), times=2)
        done = repair(process)
        [commit] = process.catalog.log(process.catalog.ref("main").hash, limit=1)
        assert done.commits == {"main": commit.hash}
        assert commit.actor == RECOVERY_ACTOR
        assert commit.message == "repaired default.t1, default.t3: set back to what main holds"
        assert (commit.properties[KIND], commit.properties[FOR_ACTOR]) == ("repaired", "ann")
        assert json.loads(commit.properties[DRIFT]) == {
            "default.t1": {"head_id": 3, "pinned_id": 2},
            "default.t3": {"head_id": 3, "pinned_id": 1},
        }
        assert process.sidecars() == 0

    def test_a_second_repair_finds_nothing(self, world: PublishWorld) -> None:
        process = world.process()
        put_behind(process, own_path(process, "t1"))
        repair(process)
        count = len(process.actors())
        assert repair(process) == Repaired(())
        assert len(process.actors()) == count

    def test_every_branch_is_looked_at(self, world: PublishWorld) -> None:
        process = world.process()
        process.catalog.create_ref(RefKind.BRANCH, "dev", process.catalog.ref("main").hash)
        process.append({"t2": 7}, branch="dev")
        put_behind(process, fork_path(process, "t2"))
        put_behind(process, own_path(process, "t2"))
        done = repair(process)
        assert sorted(done.commits) == ["dev", "main"]
        assert process.head_is_pinned("t2", branch="dev")
        assert process.head_is_pinned("t2")
        assert (process.ids("t2", branch="dev"), process.ids("t2")) == ([0, 7], [0])

    def test_an_unused_fork_is_no_drift(self, world: PublishWorld) -> None:
        process = world.process()
        process.catalog.create_ref(RefKind.BRANCH, "dev", process.catalog.ref("main").hash)
        put_behind(process, fork_path(process))
        assert repair(process).drifts == ()

    def test_a_dry_run_changes_nothing(self, world: PublishWorld) -> None:
        process = world.process()
        put_behind(process, own_path(process, "t1"))
        before = sorted(meta.path for meta in world.store.list())
        [drift] = process.writing.repair.plan().drifts
        assert drift.state is DriftState.AHEAD
        assert sorted(meta.path for meta in world.store.list()) == before

    @pytest.mark.parametrize(
        ("point", "nth"), [(Failpoint.RECOVERY_AFTER_RESTORE, 1), (Failpoint.RECOVERY_AFTER_RESTORE, 2)]
    )
    def test_a_repair_that_dies_is_finished_by_a_sweep(self, world: PublishWorld, point: Failpoint, nth: int) -> None:
        process, other = world.process(), world.process()
        for name in ("t1", "t3"):
            put_behind(process, own_path(process, name))
        with failpoints.arm(point, Action.ERROR, only_hit=nth), pytest.raises(failpoints.FailpointError):
            repair(process)
        with pytest.raises(RepairRefusedError):
            repair(other)
        world.clock.advance(OVER)
        other.writing.recovery.sweep()
        for name in ("t1", "t3"):
            assert other.head_is_pinned(name)
        [commit] = other.catalog.log(other.catalog.ref("main").hash, limit=1)
        assert commit.properties[KIND] == "repaired"
        other.append({"t1": 5, "t3": 5})


class TestBehind:
    def test_a_head_behind_its_pin_is_told_and_nothing_is_changed(self, world: PublishWorld) -> None:
        setup = world.process()
        put_behind(setup, own_path(setup, "t3"))
        world.store.delete(content(setup).metadata_location.removeprefix(f"{LAKE}/"))
        before = sorted(meta.path for meta in world.store.list())
        process = world.process()
        with pytest.raises(HeadsBehindError, match=r"default\.t1 \(pinned at 2, head at 1\)") as caught:
            repair(process)
        assert caught.value.fields["tables"] == ["default.t1"]
        assert sorted(meta.path for meta in world.store.list()) == before
        assert [str(each.key) for each in process.writing.repair.plan().behind] == ["default.t1"]


@pytest.mark.hazard("P18")
class TestPending:
    def test_refused_while_a_sidecar_is_pending(self, world: PublishWorld) -> None:
        process, other = world.process(), world.process()
        put_behind(process, own_path(process, "t3"))
        wish = process.wish({"t1": 5, "t2": 5})
        armed = failpoints.arm(Failpoint.PUBLISH_AFTER_HEAD, Action.ERROR, only_hit=1)
        with armed, pytest.raises(PublishOutcomeUnknownError):
            process.writing.publisher.publish(wish)
        for _ in range(2):
            with pytest.raises(RepairRefusedError, match=wish.operation):
                repair(other)
            world.clock.advance(OVER)
        other.writing.recovery.sweep()
        repair(other)
        assert other.head_is_pinned("t3")

    def test_a_live_writer_is_not_taken_for_drift(self, world: PublishWorld) -> None:
        """Its head has moved when the repair looks at it; when the repair lists the sidecars again, it has ended."""
        writer = world.process()
        wish = writer.wish({"t1": 9, "t3": 9})
        moved, go_on = threading.Event(), threading.Event()

        def pause() -> None:
            moved.set()
            assert go_on.wait(10)

        def write() -> None:
            with interrupt(Failpoint.PUBLISH_AFTER_HEAD, pause, nth=2):
                writer.writing.publisher.publish(wish)

        thread = threading.Thread(target=write)

        def begin() -> None:
            thread.start()
            assert moved.wait(10)

        def end() -> None:
            go_on.set()
            thread.join(10)

        process = world.process(Listening(world.store, after_first=begin, before_second=end))
        assert repair(process).drifts == ()
        assert (writer.ids("t1"), writer.ids("t3")) == ([0, 1, 9], [0, 9])
        assert RECOVERY_ACTOR not in writer.actors()
        assert writer.head_is_pinned("t1")

    def test_a_writer_between_head_and_commit_is_seen_by_its_sidecar(self, world: PublishWorld) -> None:
        writer = world.process()
        wish = writer.wish({"t1": 9})

        def meanwhile() -> None:
            armed = failpoints.arm(Failpoint.PUBLISH_AFTER_HEAD, Action.ERROR, only_hit=1)
            with armed, pytest.raises(PublishOutcomeUnknownError):
                writer.writing.publisher.publish(wish)

        process = world.process(Listening(world.store, after_first=meanwhile))
        with pytest.raises(RepairRefusedError, match=wish.operation):
            repair(process)

    def test_the_queues_of_the_tables_are_held_while_it_mends(self, world: PublishWorld) -> None:
        process = world.process()
        put_behind(process, own_path(process, "t1"))
        queues, conclude = process.writing.recovery.queues, process.writing.recovery.conclude
        hold, held, seen = queues.hold, [], []

        @contextmanager
        def watched(branch: str, keys: Iterable[TableKey]) -> Iterator[None]:
            with hold(branch, keys):
                held.append((branch, [str(key) for key in keys]))
                yield
                held.clear()

        def concluding(sidecar: Sidecar) -> Recovered:
            seen.extend(held)
            return conclude(sidecar)

        queues.hold = watched  # type: ignore[method-assign]
        process.writing.recovery.conclude = concluding  # type: ignore[method-assign]
        repair(process)
        assert seen == [("main", ["default.t1"])]


class Listening(StoreWrapper):
    """Lets something happen after the first list of sidecars, and before the second."""

    def __init__(
        self, inner: ObjectStore, *, after_first: Callable[[], object], before_second: Callable[[], object] = bool
    ) -> None:
        super().__init__(inner)
        self._actions, self._lists = (after_first, before_second), 0

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        if prefix != "__recovery":
            return super().list(prefix, start_after=start_after)
        self._lists += 1
        if self._lists == 2:
            self._actions[1]()
        found = list(super().list(prefix, start_after=start_after))
        if self._lists == 1:
            self._actions[0]()
        return iter(found)
