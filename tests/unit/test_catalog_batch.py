"""Several commits by one manifest: what it costs, what lost answers, lost races and sweeps do to it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from headwater.catalog.embedded.objects import path_of
from headwater.catalog.embedded.open import open_embedded
from headwater.catalog.embedded.tree import shard_of
from headwater.catalog.errors import (
    CommitOutcomeUnknownError,
    ExpectedVersionMismatchError,
    RefConflictError,
)
from headwater.catalog.model import Commit, CommitRequest, RefKind, TableKey
from headwater.kernel.clock import ManualClock
from headwater.kernel.errors import HeadwaterError, UnavailableError
from headwater.kernel.failpoints import Action, Failpoint, FailpointError, arm
from headwater.kernel.randomness import seeded
from headwater.storage.errors import ReadOnlyError, StorageOutcomeUnknownError, TransientError
from tests.unit.catalog_world import Snapshot, T, U, V, World
from tests.unit.hooks import HookedStore
from tests.unit.sequence_world import lose

W = TableKey(("default",), "w")


@pytest.fixture
def world() -> World:
    return World()


def wishes(world: World, keys: Iterable[TableKey], branch: str = "main") -> list[CommitRequest]:
    """A new table each, on whatever the head is."""
    return [replace(world.request({key: world.table()}, branch), head=None) for key in keys]


def commits(answers: Sequence[Commit | HeadwaterError]) -> list[Commit]:
    found = [each for each in answers if isinstance(each, Commit)]
    assert len(found) == len(answers), answers
    return found


def assert_whole(world: World, branch: str = "main") -> None:
    """Another process can read everything at every commit of the log."""
    for commit in (other := world.other()).log(other.ref(branch).hash):
        dict(other.contents(commit.hash))


class TestCost:
    def test_one_manifest_carries_them_all(self, world: World) -> None:
        catalog, wanted = world.open(), wishes(world, (T, U, V, W))
        before = len(world.manifests())
        world.store.calls.clear()
        commits(catalog.commit_all(wanted))
        puts = [path for op, path in world.store.calls if op == "put"]
        assert len([path for path in puts if path.endswith(".manifest")]) == 1
        assert len(world.manifests()) == before + 1
        assert len([path for path in puts if "/objects/" in path]) == 8  # a shard and a commit each

    def test_a_second_call_costs_as_many_requests_of_the_manifest_as_one_commit(self, world: World) -> None:
        catalog = world.open()
        commits(catalog.commit_all(wishes(world, (T,))))
        costs = []
        for wanted in (wishes(world, (U,)), wishes(world, (V, W))):
            world.store.calls.clear()
            commits(catalog.commit_all(wanted))
            costs.append([call for call in world.store.calls if "/objects/" not in call[1]])
        assert len(costs[0]) == len(costs[1])

    def test_tables_of_one_shard_come_one_after_the_other(self, world: World) -> None:
        """The second must hold the first's change too, though that is not stored when it is made."""
        names = [TableKey(("default",), f"t{number}") for number in range(600)]
        home = shard_of(T)
        same = [name for name in names if shard_of(name) == home][:2]
        assert len(same) == 2
        one, two = commits(world.open().commit_all(wishes(world, same)))
        other = world.other()
        assert set(other.content(one.hash, same)) == {same[0]}
        assert set(other.content(two.hash, same)) == set(same)
        assert_whole(world)


class TestLostRaces:
    def test_a_batch_is_judged_again_on_what_won(self, world: World) -> None:
        catalog, wanted = world.open(), wishes(world, (T, U, V))
        world.store.before("put", ".manifest", lambda: world.put({U: world.table()}))
        one, lost, two = catalog.commit_all(wanted)
        assert isinstance(lost, ExpectedVersionMismatchError)
        assert lost.table == U
        assert isinstance(one, Commit)
        assert isinstance(two, Commit)
        assert two.parents == (one.hash,)
        log = [each.operation for each in world.other().log(two.hash)]
        assert [log.count(each.operation) for each in wanted] == [1, 0, 1]
        assert_whole(world)

    def test_what_was_staged_is_taken_again_while_its_parents_are_the_same(self, world: World) -> None:
        world.other().create_ref(RefKind.BRANCH, "side", world.other().ref("main").hash)
        catalog, wanted = world.open(), wishes(world, (T, U))
        world.store.before("put", ".manifest", lambda: world.put({V: world.table()}, "side"))
        world.store.calls.clear()
        commits(catalog.commit_all(wanted))
        assert len([path for op, path in world.store.calls if op == "put" and "/objects/" in path]) == 4

    def test_what_was_staged_on_another_head_is_not(self, world: World) -> None:
        catalog, wanted = world.open(), wishes(world, (T, U))
        world.store.before("put", ".manifest", lambda: world.put({V: world.table()}))
        one, two = commits(catalog.commit_all(wanted))
        other = world.other()
        assert set(other.content(two.hash, [T, U, V])) == {T, U, V}
        assert set(other.content(one.parents[0], [T, U, V])) == {V}

    def test_a_strict_one_is_refused_and_the_others_land(self, world: World) -> None:
        catalog = world.open()
        strict = world.request({T: world.table()})
        [loose] = wishes(world, (U,))
        world.store.before("put", ".manifest", lambda: world.put({V: world.table()}))
        refused, landed = catalog.commit_all([strict, loose])
        assert isinstance(refused, RefConflictError)
        assert isinstance(landed, Commit)
        assert set(world.other().content(landed.hash, [T, U, V])) == {U, V}

    @pytest.mark.hazard("P6")
    def test_p6_a_head_that_is_collected_while_the_second_is_judged(self, world: World) -> None:
        """The shard that only the second needs is gone with the head that led to it: look again, it is no damage.

        The clock of who commits is ahead, so that what it makes is younger than any horizon.
        """
        world.put({T: world.table(), U: world.table()})
        head = world.other().ref("main").hash
        there = world.other().content(head, [T, U])
        ahead = ManualClock()
        ahead.advance(timedelta(days=1))
        catalog = open_embedded(world.store, clock=ahead, randomness=seeded(9), workers=1)
        wanted = wishes(world, (V, W))
        wanted = [
            replace(each, expected={**each.expected, key: there[key]}) for each, key in zip(wanted, (T, U), strict=True)
        ]
        path = path_of(json.loads(world.memory.get(path_of(head)).data)["tree"][f"{shard_of(U):02x}"])

        def collect() -> None:
            world.put({U: there[U]})  # the same content, in a shard of another name
            world.clock.advance(timedelta(hours=1))
            world.put({T: there[T]})
            world.other().publish_history_horizon(world.clock.now())
            world.memory.delete(path)

        world.store.before("get", path.rpartition("/")[2], collect)
        done = commits(catalog.commit_all(wanted))
        assert {T, U, V, W} <= set(dict(world.other().contents(done[-1].hash)))


class TestLostAnswers:
    def test_a_manifest_that_landed_is_every_commit(self, world: World) -> None:
        catalog, wanted = world.open(), wishes(world, (T, U))
        world.store.after("put", ".manifest", lose)
        done = commits(catalog.commit_all(wanted))
        log = [each.hash for each in world.other().log(world.other().ref("main").hash)]
        assert log[:2] == [done[1].hash, done[0].hash]

    def test_one_that_others_built_on_is_every_commit(self, world: World) -> None:
        catalog, wanted = world.open(), wishes(world, (T, U))

        def overtaken() -> None:
            world.put({V: world.table()})
            world.put({V: world.table()})
            world.collect_manifests()
            lose()

        world.store.after("put", ".manifest", overtaken)
        done = commits(catalog.commit_all(wanted))
        log = [each.hash for each in world.other().log(world.other().ref("main").hash)]
        assert [log.index(each.hash) for each in done] == [3, 2]

    def test_what_cannot_be_known_is_said_to_each_with_its_operation(self, world: World) -> None:
        world.put({V: world.table()})
        catalog, wanted = world.open(), wishes(world, (T, U))
        late = replace(world.request({W: world.table()}), head=None, expected={W: None, V: None})

        def fail() -> None:
            world.store.before("get", "3.manifest", fail)
            raise TransientError("memory://", "x", "gone for good")

        def vanish() -> None:
            world.store.before("get", "3.manifest", fail)
            lose()

        world.store.after("put", ".manifest", vanish)
        one, refused, two = catalog.commit_all([wanted[0], late, wanted[1]])
        for answer, each in zip((one, two), wanted, strict=True):
            assert isinstance(answer, CommitOutcomeUnknownError)
            assert answer.operation == each.operation
            assert world.other().outcome("main", each.operation) is not None
        assert isinstance(refused, ExpectedVersionMismatchError)

    def test_a_lost_answer_of_an_object_is_an_error_of_all_and_nothing_happened(self, world: World) -> None:
        class Loses(HookedStore):
            def put(self, path: str, *args: Any, **more: Any) -> str:
                if "/objects/" in path:
                    raise StorageOutcomeUnknownError("memory://", path, "lost")
                return super().put(path, *args, **more)

        wanted = wishes(world, (T, U))
        with pytest.raises(UnavailableError, match="nothing was committed"):
            world.open(Loses(world.memory)).commit_all(wanted)
        assert all(world.other().outcome("main", each.operation) is None for each in wanted)

    def test_a_failure_before_the_manifest_leaves_only_excess(self, world: World) -> None:
        wanted, head, known = wishes(world, (T, U)), world.other().ref("main").hash, world.objects()
        with arm(Failpoint.CATALOG_COMMIT_AFTER_OBJECTS, Action.ERROR), pytest.raises(FailpointError):
            world.open().commit_all(wanted)
        assert len(world.objects() - known) == 4
        assert world.other().ref("main").hash == head

    def test_who_only_reads_commits_nothing(self, world: World) -> None:
        wanted, before = wishes(world, (T,)), Snapshot(world)
        with pytest.raises(ReadOnlyError):
            world.open(read_only=True).commit_all(wanted)
        assert before.unchanged()


class TestTimesAndSweeps:
    @pytest.mark.hazard("P13")
    def test_p13_times_never_go_back_within_a_batch(self, world: World) -> None:
        world.clock.advance(timedelta(hours=1))
        ahead = world.put()
        slow = open_embedded(world.memory, clock=ManualClock(), randomness=seeded(9))
        done = commits(slow.commit_all(wishes(world, (U, V))))
        assert [each.committed_at for each in done] == [ahead.committed_at] * 2

    @pytest.mark.hazard("P14", "P15")
    def test_a_sweep_between_objects_and_manifest(self, world: World) -> None:
        known = world.objects()
        catalog, wanted = world.open(), wishes(world, (T, U))
        swept: set[str] = set()

        def sweep() -> None:
            swept.update(world.objects() - known)
            world.clock.advance(timedelta(hours=1))
            world.other().publish_staging_horizon(world.clock.now())
            for path in swept:
                world.memory.delete(path)

        world.store.before("put", ".manifest", sweep)
        commits(catalog.commit_all(wanted))
        for path in swept:  # a delete that comes late hits nothing that is in use
            world.memory.delete(path)
        assert len(swept) == 4
        assert_whole(world)
