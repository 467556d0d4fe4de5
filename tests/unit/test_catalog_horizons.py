"""Horizons and holds: what is refused because it may be gone, and what is kept because it is held."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from headwater.catalog.embedded.hold import Hold
from headwater.catalog.embedded.objects import path_of
from headwater.catalog.embedded.open import init_embedded, open_embedded
from headwater.catalog.errors import BehindHorizonError, CommitNotFoundError
from headwater.catalog.model import Commit, CommitRequest, RefKind, TableKey
from headwater.catalog.travel import resolve
from headwater.kernel.clock import ManualClock, SystemClock
from headwater.kernel.errors import RefusedError, UsageError
from headwater.kernel.failpoints import Action, Failpoint, FailpointError, arm
from headwater.kernel.randomness import seeded
from headwater.sequence.model import PinLostError
from headwater.sequence.pins import Pins
from headwater.storage.confined import ReadOnlyStore
from headwater.storage.errors import TransientError
from headwater.storage.memory import MemoryStore
from tests.unit.catalog_world import Snapshot, T, U, V, World


@pytest.fixture
def world() -> World:
    return World()


def aged(world: World) -> tuple[Commit, Commit, Commit]:
    """Three commits, an hour apart; the horizon lies behind the second, which was the head until the third came."""
    commits = []
    for _ in range(3):
        commits.append(world.put())
        world.clock.advance(timedelta(hours=1))
    world.other().publish_history_horizon(commits[1].committed_at + timedelta(seconds=1))
    return commits[0], commits[1], commits[2]


def rise(world: World) -> None:
    """The horizon passes whatever was superseded until now."""
    world.clock.advance(timedelta(seconds=1))
    world.other().publish_history_horizon(world.clock.now())


@pytest.mark.hazard("P6")
class TestHistory:
    def test_p6_no_ref_behind_the_horizon(self, world: World) -> None:
        old, kept, head = aged(world)
        catalog, before = world.other(), Snapshot(world)
        for kind in RefKind:
            with pytest.raises(BehindHorizonError, match=old.hash):
                catalog.create_ref(kind, "old", old.hash)
        with pytest.raises(BehindHorizonError, match=old.hash):
            catalog.assign_ref("main", old.hash, head.hash)
        assert before.unchanged()
        catalog.create_ref(RefKind.BRANCH, "kept", kept.hash)

    @pytest.mark.parametrize("way", ["create", "assign"])
    def test_p6_a_horizon_that_rises_meanwhile_is_heeded(self, world: World, way: str) -> None:
        """The commit was looked at before the horizon rose, and may be collected before the ref is written."""
        old, head = world.put(), world.put()
        catalog = world.open()
        world.store.before("put", ".manifest", lambda: rise(world))
        ways: dict[str, Callable[[], object]] = {
            "create": lambda: catalog.create_ref(RefKind.BRANCH, "old", old.hash),
            "assign": lambda: catalog.assign_ref("main", old.hash, head.hash),
        }
        with pytest.raises(BehindHorizonError):
            ways[way]()
        assert [ref.hash for ref in catalog.refs()] == [head.hash]

    def test_p6_what_a_ref_stands_on_is_kept(self, world: World) -> None:
        first = world.put()
        world.other().create_ref(RefKind.TAG, "v1", first.hash)
        world.clock.advance(timedelta(hours=1))
        world.put()
        catalog = world.other()
        rise(world)
        assert catalog.commit_at(first.hash) == first
        assert set(catalog.content(first.hash, [T])) == {T}
        catalog.create_ref(RefKind.BRANCH, "again", first.hash)
        catalog.delete_ref("v1", first.hash)
        catalog.delete_ref("again", first.hash)
        with pytest.raises(BehindHorizonError):
            catalog.create_ref(RefKind.BRANCH, "again", first.hash)

    def test_p6_reads_behind_the_horizon_are_refused(self, world: World) -> None:
        old, kept, head = aged(world)
        catalog = world.other()
        actions: list[Callable[[], object]] = [
            lambda: catalog.commit_at(old.hash),
            lambda: catalog.log(old.hash),
            lambda: catalog.contents(old.hash),
            lambda: catalog.content(old.hash, [T]),
            lambda: catalog.diff(old.hash, head.hash),
            lambda: catalog.diff(head.hash, old.hash),
            lambda: resolve(catalog, old.hash, "main"),
            lambda: catalog.hold(old.hash, holder="x").__enter__(),
        ]
        for action in actions:
            with pytest.raises(BehindHorizonError, match="horizon"):
                action()
        assert resolve(catalog, kept.hash, "main") == kept.hash
        with pytest.raises(CommitNotFoundError, match="reaches back to"):
            resolve(catalog, old.committed_at, "main")

    def test_the_log_ends_at_the_horizon_without_looking_behind_it(self, world: World) -> None:
        old, kept, head = aged(world)
        assert [each.hash for each in world.other().log(head.hash)] == [head.hash, kept.hash]
        world.memory.delete(path_of(old.hash))
        assert [each.hash for each in world.other().log(head.hash)] == [head.hash, kept.hash]
        assert world.other().outcome("main", world.fresh()) is None

    @pytest.mark.parametrize("known", [False, True])
    def test_what_is_collected_while_it_is_read_is_told_as_such(self, world: World, known: bool) -> None:
        old, head = world.put({T: world.table(), U: world.table()}), world.put()
        catalog = world.open()
        catalog.commit_at(old.hash)

        def collect() -> None:
            rise(world)
            for path in world.objects() - {path_of(head.hash)}:
                world.memory.delete(path)

        fresh = world.open()
        world.store.after("get", path_of(old.hash).rpartition("/")[2], collect)
        with pytest.raises(BehindHorizonError):
            (fresh.known_content if known else fresh.content)(old.hash, [T])

    def test_a_log_whose_end_is_collected_meanwhile_just_ends(self, world: World) -> None:
        old, head = world.put(), world.put()
        log = world.other().log(head.hash)
        assert next(log).hash == head.hash
        rise(world)
        world.memory.delete(path_of(old.hash))
        assert list(log) == []

    def test_p6_it_only_rises(self, world: World) -> None:
        catalog, start = world.other(), world.clock.now()
        world.clock.advance(timedelta(hours=1))
        now = world.clock.now()
        assert catalog.publish_history_horizon(start) == start
        assert catalog.publish_history_horizon(now) == now
        before = Snapshot(world)
        assert catalog.publish_history_horizon(now - timedelta(hours=1)) == now
        assert catalog.publish_history_horizon(now) == now
        assert before.unchanged()
        assert catalog.horizons().history == now

    @pytest.mark.parametrize("which", ["history", "staging"])
    def test_p6_what_has_not_passed_is_no_horizon(self, world: World, which: str) -> None:
        """It could never be taken back: commits that are made until then would be behind it from the beginning."""
        catalog, before = world.other(), Snapshot(world)
        publish = catalog.publish_history_horizon if which == "history" else catalog.publish_staging_horizon
        now = world.clock.now()
        for ahead in (timedelta(microseconds=1), timedelta(days=365_000)):
            with pytest.raises(RefusedError, match="in the future"):
                publish(now + ahead)
        west, east = (timezone(timedelta(hours=hours)) for hours in (-5, 14))
        for moment in (datetime.max.replace(tzinfo=west), datetime.min.replace(tzinfo=east)):
            with pytest.raises(UsageError, match="cannot be told in UTC"):
                publish(moment)
        assert before.unchanged()
        elsewhere = now.astimezone(timezone(timedelta(hours=9)))
        assert publish(elsewhere) == now
        assert publish(elsewhere).utcoffset() == timedelta(0)

    def test_a_moment_without_an_offset(self, world: World) -> None:
        for publish in (world.other().publish_history_horizon, world.other().publish_staging_horizon):
            with pytest.raises(UsageError, match="no offset"):
                publish(datetime(2026, 1, 1))  # noqa: DTZ001

    def test_commits_go_on_above_the_horizon(self, world: World) -> None:
        catalog, ahead = world.other(), ManualClock()
        ahead.advance(timedelta(days=1))
        open_embedded(world.memory, clock=ahead, randomness=seeded(9)).publish_history_horizon(ahead.now())
        commit = world.put()
        assert catalog.ref("main").hash == commit.hash
        assert [each.hash for each in catalog.log(commit.hash)] == [commit.hash]


@pytest.mark.hazard("P6")
class TestSuperseded:
    """A commit is kept until the horizon passes the one that superseded it."""

    def quiet(self, world: World) -> tuple[Commit, Commit]:
        """A branch stood still for ten days, and moves just now; the horizon is a week back."""
        old = world.put()
        world.clock.advance(timedelta(days=10))
        new = world.put()
        world.other().publish_history_horizon(world.clock.now() - timedelta(days=7))
        return old, new

    def test_p6_what_was_the_head_since_the_horizon_is_kept(self, world: World) -> None:
        old, new = self.quiet(world)
        catalog = world.other()
        assert resolve(catalog, world.clock.now() - timedelta(days=2), "main") == old.hash
        assert [each.hash for each in catalog.log(new.hash)] == [new.hash, old.hash]
        assert catalog.commit_at(old.hash) == old
        assert set(catalog.content(old.hash, [T])) == {T}
        assert [each.key for each in catalog.diff(old.hash, new.hash)] == [T]
        with catalog.hold(old.hash, holder="x") as held:
            held.check()
        catalog.create_ref(RefKind.TAG, "v1", old.hash)
        catalog.create_ref(RefKind.BRANCH, "side", new.hash)
        catalog.delete_ref("v1", old.hash)
        assert catalog.assign_ref("side", old.hash, new.hash).hash == old.hash

    def test_p6_until_the_horizon_passes_that_too(self, world: World) -> None:
        old, new = self.quiet(world)
        rise(world)
        catalog = world.other()
        assert [each.hash for each in catalog.log(new.hash)] == [new.hash]
        for action in (
            lambda: catalog.commit_at(old.hash),
            lambda: catalog.create_ref(RefKind.TAG, "v1", old.hash),
            lambda: catalog.assign_ref("main", old.hash, new.hash),
            lambda: catalog.hold(old.hash, holder="x").__enter__(),
        ):
            with pytest.raises(BehindHorizonError):
                action()

    def test_p6_a_reader_that_read_the_ref_just_before_it_moved(self, world: World) -> None:
        old = world.put()
        world.clock.advance(timedelta(days=10))
        rise(world)
        catalog = world.other()
        at = resolve(catalog, None, "main")
        world.put()
        assert at == old.hash
        with catalog.hold(at, holder="x"):
            assert set(catalog.content(at, [T])) == {T}

    def test_p6_only_the_first_parent_and_only_the_nearest(self, world: World) -> None:
        older = world.put()
        world.other().create_ref(RefKind.BRANCH, "side", older.hash)
        side = world.put({U: world.table()}, "side")
        old = world.put()
        world.clock.advance(timedelta(days=10))
        world.other().commit(replace(world.request({V: world.table()}), merge_parent=side.hash))
        world.other().delete_ref("side", side.hash)
        world.other().publish_history_horizon(world.clock.now())
        assert world.other().commit_at(old.hash) == old
        for gone in (older, side):
            with pytest.raises(BehindHorizonError):
                world.other().commit_at(gone.hash)

    def test_p6_a_ref_on_an_old_commit_does_not_keep_its_parent(self, world: World) -> None:
        older, old = world.put(), world.put()
        rise(world)
        assert [each.hash for each in world.other().log(old.hash)] == [old.hash]
        with pytest.raises(BehindHorizonError):
            world.other().commit_at(older.hash)


class TestMerge:
    def staged(self, world: World) -> tuple[Commit, CommitRequest]:
        """A quiet branch behind the horizon, about to be merged."""
        world.other().create_ref(RefKind.BRANCH, "side", world.other().ref("main").hash)
        side = world.put({U: world.table()}, "side")
        world.clock.advance(timedelta(days=1))
        rise(world)
        return side, replace(world.request({T: world.table()}), merge_parent=side.hash)

    @pytest.mark.hazard("P6")
    @pytest.mark.parametrize("moment", ["object", "manifest"])
    def test_p6_the_merge_parent_is_judged_by_the_manifest_that_the_commit_follows(
        self, world: World, moment: str
    ) -> None:
        side, wanted = self.staged(world)
        catalog = world.open()
        ending = {"object": "", "manifest": ".manifest"}[moment]
        world.store.before("put", ending, lambda: world.other().delete_ref("side", side.hash))
        with pytest.raises(BehindHorizonError, match=side.hash):
            catalog.commit(wanted)
        assert world.other().ref("main").hash == wanted.head

    def test_a_merge_parent_under_a_ref_is_merged(self, world: World) -> None:
        side, wanted = self.staged(world)
        world.store.before("put", ".manifest", lambda: world.other().create_ref(RefKind.TAG, "v1", side.hash))
        assert world.open().commit(wanted).parents == (wanted.head, side.hash)


class TestUnfinished:
    """A writer died while its objects were stored side by side: a commit without its shards."""

    def left(self, world: World) -> Commit:
        catalog, wanted = world.open(), world.request({T: world.table()})
        before = world.objects()
        with arm(Failpoint.CATALOG_COMMIT_AFTER_OBJECTS, Action.ERROR), pytest.raises(FailpointError):
            catalog.commit(wanted)
        for path in world.objects() - before:
            values = json.loads(world.memory.get(path).data)
            if values["kind"] == "commit":
                digest = path.removeprefix("_headwater/catalog/objects/").replace("/", "")
            else:
                world.memory.delete(path)
        return world.other().commit_at(digest)

    def test_no_ref_is_made_to_it_and_none_moved_and_it_is_not_merged(self, world: World) -> None:
        half = self.left(world)
        catalog, before = world.other(), Snapshot(world)
        wanted = replace(world.request({U: world.table()}), merge_parent=half.hash)
        for action in (
            lambda: catalog.create_ref(RefKind.BRANCH, "half", half.hash),
            lambda: catalog.assign_ref("main", half.hash, str(wanted.head)),
            lambda: catalog.commit(wanted),
        ):
            with pytest.raises(CommitNotFoundError, match="never finished"):
                action()
        assert before.unchanged()

    def test_one_that_is_whole_may_get_a_ref(self, world: World) -> None:
        catalog, wanted = world.open(), world.request({T: world.table()})
        before = world.objects()
        with arm(Failpoint.CATALOG_COMMIT_AFTER_OBJECTS, Action.ERROR), pytest.raises(FailpointError):
            catalog.commit(wanted)
        [digest] = [
            path.removeprefix("_headwater/catalog/objects/").replace("/", "")
            for path in world.objects() - before
            if json.loads(world.memory.get(path).data)["kind"] == "commit"
        ]
        world.other().create_ref(RefKind.BRANCH, "found", digest)
        assert set(world.other().content(digest, [T])) == {T}

    def test_who_branches_where_a_ref_stands_asks_for_no_shards(self, world: World) -> None:
        head = world.put({TableKey(("default",), f"t{number}"): world.table() for number in range(50)})
        catalog = world.open()
        world.store.calls.clear()
        catalog.create_ref(RefKind.BRANCH, "side", head.hash)
        assert len([path for _, path in world.store.calls if "/objects/" in path]) == 1


class TestStaging:
    @pytest.mark.hazard("P14", "P15")
    def test_objects_that_may_have_been_swept_are_made_again(self, world: World) -> None:
        """A writer stalls between its objects and its manifest; a sweep takes what nothing refers to."""
        known = world.objects()
        catalog, wanted = world.open(), world.request({T: world.table()})
        swept: set[str] = set()

        def sweep() -> None:
            swept.update(world.objects() - known)
            world.clock.advance(timedelta(hours=1))
            world.other().publish_staging_horizon(world.clock.now())
            for path in swept:
                world.memory.delete(path)

        world.store.before("put", ".manifest", sweep)
        commit = catalog.commit(wanted)
        for path in swept:  # a delete that comes late hits nothing that is in use
            world.memory.delete(path)
        assert len(swept) == 2
        other = world.other()
        assert set(other.content(commit.hash, [T])) == {T}
        assert other.horizons().staging is not None
        assert [each.operation for each in other.log(commit.hash)].count(wanted.operation) == 1

    def test_objects_that_are_young_enough_are_not(self, world: World) -> None:
        world.other().create_ref(RefKind.BRANCH, "side", world.other().ref("main").hash)
        catalog, wanted = world.open(), world.request({T: world.table()})
        world.store.before("put", ".manifest", lambda: world.put({U: world.table()}, "side"))
        world.store.calls.clear()
        catalog.commit(wanted)
        assert len([path for op, path in world.store.calls if op == "put" and "/objects/" in path]) == 2

    def test_the_same_contents_again_are_other_objects(self, world: World) -> None:
        """A sweep that has decided on an old object must not hit a new one."""
        content = world.table()
        first = world.put({T: content})
        world.put({T: None})
        before = world.objects()
        again = world.put({T: content})
        assert world.other().diff(first.hash, again.hash) == ()
        assert len(world.objects() - before) == 2


class TestHold:
    def test_a_hold_pins_the_manifest_that_it_stands_on(self, world: World) -> None:
        old = world.put()
        catalog = world.other()
        pins = Pins(world.sequencer())
        with catalog.hold(old.hash, holder="query 7") as held:
            world.put()
            world.put()
            world.collect_manifests()
            assert [path[-13:] for path in world.manifests()] == ["0002.manifest", "0004.manifest"]
            [record] = pins.records()
            assert (record.id, record.pins[0].holder) == (2, "query 7")
            held.check()
        assert [record.pins for record in pins.records()] == [()]
        world.collect_manifests()
        assert len(world.manifests()) == 1

    def test_what_is_held_can_be_read_behind_the_horizon(self, world: World) -> None:
        old = world.put()
        world.clock.advance(timedelta(minutes=1))
        world.put()
        catalog = world.other()
        with catalog.hold(old.hash, holder="x"), catalog.hold(old.hash, holder="y"):
            rise(world)
            assert set(catalog.content(old.hash, [T])) == {T}
            assert catalog.commit_at(old.hash) == old
            with pytest.raises(BehindHorizonError):  # but nothing may be built on it
                catalog.create_ref(RefKind.BRANCH, "old", old.hash)
            with pytest.raises(BehindHorizonError):  # and nobody else may read it
                world.other().commit_at(old.hash)
        with pytest.raises(BehindHorizonError):
            catalog.content(old.hash, [T])

    def test_the_manifest_is_collected_while_it_is_pinned(self, world: World) -> None:
        old = world.put()
        catalog = world.open()

        def overtake() -> None:
            world.put()
            world.put()
            world.collect_manifests()

        world.store.before("put", ".json", overtake)
        with catalog.hold(old.hash, holder="x") as held:
            held.check()
            active = [record.id for record in Pins(world.sequencer()).records() if record.pins]
            assert active == [4]

    def test_a_horizon_that_rises_before_the_pin_is_heeded(self, world: World) -> None:
        old, _ = world.put(), world.put()
        catalog = world.open()

        def overtake() -> None:
            rise(world)
            world.put()
            world.collect_manifests()

        world.store.before("put", ".json", overtake)
        with pytest.raises(BehindHorizonError), catalog.hold(old.hash, holder="x"):
            pass

    def test_a_horizon_that_rises_before_the_pin_is_seen(self, world: World) -> None:
        """The manifest is not collected, so the pin is granted; but the collector had read the pins already."""
        old, _ = world.put(), world.put()
        catalog = world.open()
        world.store.before("put", ".json", lambda: rise(world))
        with pytest.raises(BehindHorizonError), catalog.hold(old.hash, holder="x"):
            pass
        assert [record.pins for record in Pins(world.sequencer()).records()] == [()]

    def test_it_lasts_while_it_is_renewed(self, world: World) -> None:
        old = world.put()
        with world.other().hold(old.hash, holder="x") as held:
            assert isinstance(held, Hold)
            for _ in range(5):
                world.clock.advance(timedelta(minutes=4))
                held.check()
                held.renew()
            world.put()
            world.collect_manifests()
            assert len(world.manifests()) == 2
            held.check()

    def test_one_that_lapsed_is_lost_for_good(self, world: World) -> None:
        """The machine slept. The manifest is still there, so a pin is granted again; but a collector has run."""
        old = world.put()
        with world.other().hold(old.hash, holder="x") as held:
            assert isinstance(held, Hold)
            world.put()
            world.clock.advance(timedelta(minutes=10))
            held.renew()
            with pytest.raises(PinLostError, match="ended at"):
                held.check()
            assert [record.pins for record in Pins(world.sequencer()).records()] == [()]
            held.renew()
            with pytest.raises(PinLostError, match="ended at"):
                held.check()

    def test_one_that_lapses_while_it_is_renewed_is_lost(self, world: World) -> None:
        old = world.put()
        with world.open().hold(old.hash, holder="x") as held:
            assert isinstance(held, Hold)
            world.clock.advance(timedelta(minutes=9))
            world.store.before("put", ".json", lambda: world.clock.advance(timedelta(minutes=2)))
            held.renew()
            with pytest.raises(PinLostError, match="ended at"):
                held.check()

    def test_a_lost_one_lets_nobody_read_behind_the_horizon(self, world: World) -> None:
        old, new = world.put(), world.put()
        catalog = world.other()
        with catalog.hold(old.hash, holder="x"), catalog.hold(old.hash, holder="y"):
            world.clock.advance(timedelta(minutes=10))
            assert catalog.commit_at(old.hash) == old  # it is not behind the horizon
            rise(world)
            for action in (lambda: catalog.commit_at(old.hash), lambda: catalog.content(old.hash, [T])):
                with pytest.raises(PinLostError, match="ended at"):
                    action()
            assert catalog.commit_at(new.hash) == new
        with pytest.raises(BehindHorizonError):
            catalog.commit_at(old.hash)

    def test_one_of_two_that_still_holds_is_enough(self, world: World) -> None:
        old, _ = world.put(), world.put()
        catalog = world.other()
        with catalog.hold(old.hash, holder="x") as lapsed:
            world.clock.advance(timedelta(minutes=9))
            with catalog.hold(old.hash, holder="y"):
                world.clock.advance(timedelta(minutes=2))
                rise(world)
                with pytest.raises(PinLostError):
                    lapsed.check()
                assert catalog.commit_at(old.hash) == old

    def test_what_was_collected_under_a_lost_one_is_no_damage(self, world: World) -> None:
        old, new = world.put({T: world.table(), U: world.table()}), world.put()
        catalog = world.other()
        with catalog.hold(old.hash, holder="x"):

            def collect() -> None:
                world.clock.advance(timedelta(minutes=30))
                rise(world)
                for path in world.objects() - {path_of(new.hash)}:
                    world.memory.delete(path)

            fresh = world.open()
            with fresh.hold(old.hash, holder="y"):
                world.store.after("get", path_of(old.hash).rpartition("/")[2], collect)
                fresh._objects._cached.clear()
                with pytest.raises(PinLostError, match="ended at"):
                    list(fresh.contents(old.hash))

    def test_an_ended_one_is_forgotten(self, world: World) -> None:
        old = world.put()
        catalog = world.other()
        for _ in range(3):
            with catalog.hold(old.hash, holder="x"), catalog.hold(old.hash, holder="y"):
                assert len(catalog._holds._holds[old.hash]) == 2
        assert catalog._holds._holds == {}

    def test_one_that_is_not_renewed_is_lost(self, world: World) -> None:
        old = world.put()
        with world.other().hold(old.hash, holder="x") as held:
            assert isinstance(held, Hold)
            world.clock.advance(timedelta(minutes=10))
            with pytest.raises(PinLostError, match="ended at"):
                held.check()

    def test_one_whose_renewal_is_refused_is_lost_at_once(self, world: World) -> None:
        old = world.put()
        with world.other().hold(old.hash, holder="x") as held:
            assert isinstance(held, Hold)
            for meta in list(world.memory.list("_headwater/catalog/gc/manifest.pins")):
                world.memory.delete(meta.path)  # somebody tidied up by hand
            world.put()
            world.collect_manifests()
            held.check()
            held.renew()
            with pytest.raises(PinLostError, match="may have been collected"):
                held.check()

    def test_a_renewal_that_fails_for_now_is_tried_again(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        old = world.put()

        def fail() -> None:
            raise TransientError("memory://", "x", "not now")

        with world.open().hold(old.hash, holder="x") as held:
            assert isinstance(held, Hold)
            world.store.before("put", ".json", fail)
            world.clock.advance(timedelta(minutes=4))
            held.renew()
            held.check()
            assert "hold not renewed" in caplog.text
            held.renew()
            world.clock.advance(timedelta(minutes=8))
            held.check()

    def test_an_end_that_fails_leaves_a_pin_to_expire(self, world: World) -> None:
        old = world.put()

        def fail() -> None:
            raise TransientError("memory://", "x", "not now")

        with world.open().hold(old.hash, holder="x"):
            world.store.before("put", ".json", fail)
        [record] = Pins(world.sequencer()).records()
        assert len(record.pins) == 1

    def test_a_hold_ends_with_an_error_in_its_block(self, world: World) -> None:
        old = world.put()
        with pytest.raises(ZeroDivisionError), world.other().hold(old.hash, holder="x"):
            1 / 0  # noqa: B018
        assert [record.pins for record in Pins(world.sequencer()).records()] == [()]

    def test_a_thread_renews_it(self) -> None:
        clock = SystemClock()
        store = MemoryStore(clock)
        init_embedded(store, clock=clock, randomness=seeded(1))
        catalog = open_embedded(store, clock=clock, randomness=seeded(2), hold_ttl=timedelta(seconds=0.6))
        with catalog.hold(catalog.ref("main").hash, holder="x") as held:
            [thread] = [each for each in threading.enumerate() if each.name.startswith("hold-")]
            assert thread.daemon
            for _ in range(8):
                clock.sleep(0.15)
                held.check()
        assert not thread.is_alive()

    def test_a_reader_holds_nothing_and_says_so(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        old = world.put()
        before = Snapshot(world)
        catalog = world.open(ReadOnlyStore(world.memory), read_only=True)
        with caplog.at_level(logging.DEBUG), catalog.hold(old.hash, holder="x") as held:
            held.check()
        assert "nothing is held" in caplog.text
        assert before.unchanged()

    def test_a_reader_hears_that_the_horizon_has_passed(self, world: World) -> None:
        old, _ = world.put(), world.put()
        catalog = world.open(ReadOnlyStore(world.memory), read_only=True)
        with catalog.hold(old.hash, holder="x") as held:
            held.check()
            rise(world)
            with pytest.raises(PinLostError, match="behind the history horizon"):
                held.check()
