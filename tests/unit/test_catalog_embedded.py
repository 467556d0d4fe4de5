"""The embedded catalog: opening, its layout, what commits cost, lost answers, damage, formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater.app import LAKE_MARKER
from headwater.catalog.embedded.codec import digest_of
from headwater.catalog.embedded.model import MANIFEST, MARKER
from headwater.catalog.embedded.objects import Encoded, Objects, path_of
from headwater.catalog.embedded.open import init_embedded, open_embedded
from headwater.catalog.embedded.tree import shard_of
from headwater.catalog.errors import CatalogBusyError, CommitOutcomeUnknownError, RefConflictError
from headwater.catalog.model import NamespaceContent, RefKind, TableKey
from headwater.kernel.clock import ManualClock, SystemClock
from headwater.kernel.errors import CorruptError, OutcomeUnknownError, UnavailableError, UsageError
from headwater.kernel.failpoints import Action, Failpoint, FailpointError, arm
from headwater.kernel.randomness import seeded, system_randomness
from headwater.kernel.retry import RetryPolicy
from headwater.sequence.codec import EnvelopeCodec
from headwater.sequence.model import SequenceOutcomeUnknownError
from headwater.storage.caching import CachingStore
from headwater.storage.confined import ReadOnlyStore
from headwater.storage.errors import MissingCapabilityError, ReadOnlyError, StorageOutcomeUnknownError, TransientError
from headwater.storage.file import FileStore
from headwater.storage.memory import MemoryStore
from headwater.storage.port import Create, ObjectStore, Overwrite
from tests.unit.catalog_world import Snapshot, T, U, V, World
from tests.unit.hooks import HookedStore
from tests.unit.sequence_world import lose


@pytest.fixture
def world() -> World:
    return World()


class TestOpening:
    def test_the_marker_is_where_the_application_looks(self) -> None:
        assert MARKER == LAKE_MARKER

    def test_what_is_no_lake(self) -> None:
        clock = ManualClock()
        for read_only in (False, True):
            store = MemoryStore(clock)
            store.put("some/file", b"x", Create())
            with pytest.raises(UsageError, match="is no lake") as caught:
                open_embedded(store, clock=clock, randomness=seeded(1), read_only=read_only)
            assert "headwater init" in str(caught.value.hint)
            assert [meta.path for meta in store.list()] == ["some/file"]

    def test_init_among_other_files_and_twice(self, world: World) -> None:
        world.memory.put("mine/data.csv", b"x", Create())
        before = Snapshot(world)
        catalog = init_embedded(world.memory, clock=world.clock, randomness=world.randomness)
        assert before.unchanged()
        assert catalog.lake == world.other().lake

    @pytest.mark.parametrize("ending", ["lake.json", ".manifest"])
    def test_init_that_died_is_finished_by_the_next(self, ending: str) -> None:
        clock = ManualClock()
        memory = MemoryStore(clock)
        hooked = HookedStore(memory)
        hooked.before("put", ending, lambda: memory.get("cut here"))
        with pytest.raises(Exception, match="cut here"):
            init_embedded(hooked, clock=clock, randomness=seeded(1))
        if ending == ".manifest":
            with pytest.raises(UsageError, match="never finished") as caught:
                open_embedded(memory, clock=clock, randomness=seeded(2))
            assert "init" in str(caught.value.hint)
        assert init_embedded(memory, clock=clock, randomness=seeded(3)).ref("main")

    @pytest.mark.parametrize("ending", ["lake.json", ".manifest"])
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_two_inits_at_once_make_one_lake(self, ending: str, when: str) -> None:
        clock = ManualClock()
        memory = MemoryStore(clock)
        hooked = HookedStore(memory)
        getattr(hooked, when)("put", ending, lambda: init_embedded(memory, clock=clock, randomness=seeded(1)))
        one = init_embedded(hooked, clock=clock, randomness=seeded(2))
        two = open_embedded(memory, clock=clock, randomness=seeded(3))
        assert one.lake == two.lake
        assert one.refs() == two.refs()
        assert len(list(one.log(one.ref("main").hash))) == 1

    @pytest.mark.parametrize("ending", ["lake.json", ".manifest"])
    def test_a_lost_answer_to_init(self, ending: str) -> None:
        clock = ManualClock()
        hooked = HookedStore(MemoryStore(clock))
        hooked.after("put", ending, lose)
        assert init_embedded(hooked, clock=clock, randomness=seeded(2)).ref("main")

    def test_a_lake_that_lost_its_marker_gets_it_again(self, world: World) -> None:
        head, lake = world.put(), world.other().lake
        marker = world.memory.get(MARKER).data
        world.memory.delete(MARKER)
        with pytest.raises(UsageError, match="headwater init"):
            world.other()
        world.clock.advance(timedelta(days=1))
        assert init_embedded(world.memory, clock=world.clock, randomness=world.randomness).lake == lake
        assert world.other().ref("main").hash == head.hash
        assert world.memory.get(MARKER).data == marker

    def test_many_inits_on_a_folder(self, tmp_path: Path) -> None:
        def start(number: int) -> str:
            store = FileStore(tmp_path, SystemClock(), system_randomness())
            return init_embedded(store, clock=SystemClock(), randomness=system_randomness()).ref("main").hash

        with ThreadPoolExecutor(4) as pool:
            assert len(set(pool.map(start, range(8)))) == 1

    def test_a_cache_in_front_is_refused(self, world: World) -> None:
        cached = CachingStore(world.memory, capacity_bytes=1000)
        for action in (open_embedded, init_embedded):
            with pytest.raises(MissingCapabilityError):
                action(cached, clock=world.clock, randomness=world.randomness)

    def test_reading_only(self, world: World) -> None:
        commit = world.put()
        before = Snapshot(world)
        catalog = world.open(ReadOnlyStore(world.memory), read_only=True)
        assert catalog.ref("main").hash == commit.hash
        assert set(catalog.content(commit.hash, [T])) == {T}
        assert catalog.heads is None
        with catalog.hold(commit.hash, holder="reader") as held:
            held.check()
        for action in (
            lambda: catalog.commit(world.request({T: world.table()})),
            lambda: catalog.create_ref(RefKind.BRANCH, "side", commit.hash),
            lambda: catalog.delete_ref("side", commit.hash),
            lambda: catalog.assign_ref("main", commit.hash, commit.hash),
            lambda: catalog.publish_history_horizon(world.clock.now()),
        ):
            with pytest.raises(ReadOnlyError):
                action()
        assert before.unchanged()

    def test_two_lakes_in_one(self, world: World) -> None:
        foreign = MemoryStore(world.clock)
        init_embedded(foreign, clock=world.clock, randomness=seeded(8))
        world.memory.put(MARKER, foreign.get(MARKER).data, Overwrite())
        with pytest.raises(CorruptError, match="belongs to lake"):
            world.other()

    def test_heads_are_sequences_of_their_own(self, world: World) -> None:
        heads = world.other().heads
        assert heads is not None
        head = heads.head("default/t")
        assert head is heads.head("default/t")
        assert head is not heads.head("default/u")
        entry = head.write(json.dumps({"format-version": 2}).encode(), after=None)
        assert world.memory.exists(f"default/t/metadata/{entry.id:020d}.metadata.json")
        latest = world.other().heads
        assert latest is not None
        found = latest.head("default/t").latest()
        assert found is not None
        assert found.writer == entry.writer


class TestLayout:
    def test_objects_are_named_by_their_bytes(self, world: World) -> None:
        commit = world.put()
        assert path_of(commit.hash) in world.objects()
        assert path_of(commit.hash).startswith(f"_headwater/catalog/objects/{commit.hash[:2]}/")
        assert world.manifests() == [MANIFEST.path_of(1), MANIFEST.path_of(2)]
        assert MANIFEST.path_of(2) == "_headwater/catalog/manifest/00000000000000000002.manifest"

    def test_a_commit_writes_what_it_touches(self, world: World) -> None:
        world.put({TableKey(("default",), f"t{number}"): world.table() for number in range(300)})
        before = world.objects()
        world.put({T: world.table()})
        assert len(world.objects() - before) == 2

    def test_a_dropped_table_leaves_no_empty_shard(self, world: World) -> None:
        first = world.put({T: world.table()})
        dropped = world.put({T: None})
        assert json.loads(world.memory.get(path_of(dropped.hash)).data)["tree"].keys() < (
            json.loads(world.memory.get(path_of(first.hash)).data)["tree"].keys()
        )

    def test_incarnations_tell_refs_of_one_name_apart(self, world: World) -> None:
        catalog = world.other()
        head = catalog.ref("main").hash
        one = catalog.create_ref(RefKind.BRANCH, "side", head)
        catalog.delete_ref("side", head)
        two = catalog.create_ref(RefKind.BRANCH, "side", head)
        assert one.incarnation != two.incarnation
        moved = world.put({T: world.table()}, "side")
        assert catalog.ref("side").incarnation == two.incarnation
        assert catalog.assign_ref("side", head, moved.hash).incarnation == two.incarnation

    def test_a_namespace_and_all_in_it_may_go_together(self, world: World) -> None:
        space, inner = TableKey.of_namespace(("s",)), TableKey(("s",), "t")
        world.put({space: NamespaceContent(world.fresh()), inner: world.table()})
        gone = world.put({space: None, inner: None})
        assert world.other().content(gone.hash, [space, inner]) == {}

    def test_an_empty_commit_is_a_line_in_the_log(self, world: World) -> None:
        catalog = world.other()
        before = world.put()
        commit = catalog.commit(world.request({}))
        assert commit.parents == (before.hash,)
        assert catalog.diff(before.hash, commit.hash) == ()


def numbers(data: bytes, path: str) -> int:
    return int(data)


class TestCost:
    @staticmethod
    def calls(world: World, action: Callable[[], object]) -> list[str]:
        world.store.calls.clear()
        action()
        return sorted(op for op, _ in world.store.calls)

    @pytest.mark.parametrize("tables", [10, 3000])
    @pytest.mark.parametrize("warm", [True, False])
    def test_the_requests_of_a_commit_do_not_depend_on_the_tables(self, tables: int, warm: bool) -> None:
        world = World()
        contents = {TableKey(("default",), f"t{number}"): world.table() for number in range(tables)}
        world.put(contents)
        catalog, target = world.open(), TableKey(("default",), "t3")
        catalog.refs()
        if warm:
            catalog.commit(world.request({target: world.table()}))
        wanted = world.request({target: world.table()})
        # The probe for the next manifest and the boundary; two objects; the next manifest and the boundary again.
        steady = ["get", "get", "get", "put", "put", "put"]
        # From nothing: the commit, and the shards of the table and of its namespace.
        cold = ["get"] * 3
        assert self.calls(world, lambda: catalog.commit(wanted)) == sorted(steady + ([] if warm else cold))

    def test_only_the_shards_that_are_asked_for_are_read(self) -> None:
        world = World()
        contents = {TableKey(("default",), f"t{number}"): world.table() for number in range(500)}
        commit = world.put(contents)
        catalog = world.open()
        catalog.refs()
        read = self.calls(world, lambda: catalog.content(commit.hash, [TableKey(("default",), "t3")]))
        assert read == ["get"] * 4  # the commit, the manifest's successor, the boundary, one shard
        catalog = world.open()
        catalog.refs()
        read = self.calls(world, lambda: catalog.known_content(commit.hash, [TableKey(("default",), "t3")]))
        assert read == ["get"] * 2  # the commit and one shard: the caller knows that it is kept
        after = world.put({TableKey(("default",), "t3"): world.table()})
        catalog = world.open()
        catalog.refs()
        read = self.calls(world, lambda: catalog.diff(commit.hash, after.hash))
        assert read == ["get"] * 8  # both commits, two looks at the manifest, two shards

    def test_the_cache_is_bounded(self, world: World) -> None:
        objects = Objects(world.store, workers=1, cache_bytes=5000)
        digests = []
        for number in range(10):
            data = f"{number:0300d}".encode()
            digests.append(digest_of(data))
            objects.put_all({digests[-1]: Encoded(data, numbers, number)})
        assert 0 < objects._cached_bytes <= 5000
        assert self.calls(world, lambda: objects.get(digests[-1], numbers)) == []
        assert self.calls(world, lambda: objects.get(digests[0], numbers)) == ["get"]
        assert self.calls(world, lambda: objects.get(digests[0], numbers)) == []
        assert objects.get_all(digests, numbers) == dict(zip(digests, range(10), strict=True))
        objects.put_all({digest_of(b"1" * 2000): Encoded(b"1" * 2000, numbers, 1)})
        assert objects._cached_bytes <= 5000

    def test_what_is_remembered_of_one_kind_is_not_taken_for_another(self, world: World) -> None:
        commit = world.put()
        catalog = world.open()
        tree = json.loads(world.memory.get(path_of(commit.hash)).data)["tree"]
        catalog.contents(commit.hash)
        for digest in tree.values():
            with pytest.raises(CorruptError, match="not a commit"):
                catalog.commit_at(digest)

    def test_what_is_handed_out_is_not_what_is_remembered(self, world: World) -> None:
        space = TableKey.of_namespace(("s",))
        catalog = world.open()
        made = catalog.commit(world.request({space: NamespaceContent("s", {"a": "1"})}))
        found = [made, catalog.commit_at(made.hash), next(catalog.log(made.hash))]
        for commit in found:
            commit.properties["job"] = "7"  # type: ignore[index]
        content = catalog.content(made.hash, [space])[space]
        assert isinstance(content, NamespaceContent)
        content.properties["b"] = "2"  # type: ignore[index]
        for each in (catalog, world.other()):
            assert "job" not in each.commit_at(made.hash).properties
            assert each.content(made.hash, [space])[space] == NamespaceContent("s", {"a": "1"})


class TestLostAnswersAndLostRaces:
    def test_a_manifest_of_another_branch_is_stepped_over(self, world: World) -> None:
        world.other().create_ref(RefKind.BRANCH, "side", world.other().ref("main").hash)
        catalog, wanted = world.open(), world.request({T: world.table()})
        world.store.before("put", ".manifest", lambda: world.put({U: world.table()}, "side"))
        commit = catalog.commit(wanted)
        assert catalog.ref("main").hash == commit.hash
        assert set(catalog.content(catalog.ref("side").hash, [T, U])) == {U}

    def test_a_branch_that_moved_meanwhile_is_a_conflict(self, world: World) -> None:
        catalog, wanted = world.open(), world.request({T: world.table()})
        world.store.before("put", ".manifest", lambda: world.put({U: world.table()}))
        with pytest.raises(RefConflictError):
            catalog.commit(wanted)
        assert catalog.outcome("main", wanted.operation) is None

    @pytest.mark.parametrize("which", ["commit", "shard"])
    def test_a_head_that_is_superseded_and_collected_while_it_is_read_is_a_conflict(
        self, world: World, which: str
    ) -> None:
        """It must not sound as if the caller had named a commit that does not exist."""
        old = world.put()
        world.clock.advance(timedelta(days=1))
        world.other().publish_history_horizon(world.clock.now())
        names = (TableKey(("default",), f"t{number}") for number in range(10_000))
        neighbour = next(key for key in names if shard_of(key) == shard_of(T))
        catalog, wanted = world.open(), world.request({neighbour: world.table()})

        def collect() -> None:
            new = world.put()
            world.clock.advance(timedelta(hours=1))
            world.other().publish_history_horizon(world.clock.now())
            kept = {path_of(new.hash)}
            kept |= {path_of(digest) for digest in world.other()._stored(new.hash).tree.values()}
            for path in world.objects() - kept:
                world.memory.delete(path)

        hook = world.store.before if which == "commit" else world.store.after
        hook("get", path_of(old.hash).rpartition("/")[2], collect)
        with pytest.raises(RefConflictError):
            catalog.commit(wanted)

    def test_a_branch_that_was_made_again_is_a_conflict_where_the_incarnation_is_named(self, world: World) -> None:
        catalog = world.other()
        head = catalog.ref("main").hash
        first = catalog.create_ref(RefKind.BRANCH, "side", head)
        late = replace(world.request({T: world.table()}, "side"), incarnation=first.incarnation)
        catalog.delete_ref("side", head, incarnation=first.incarnation)
        second = catalog.create_ref(RefKind.BRANCH, "side", head)
        before = Snapshot(world)
        for action in (
            lambda: catalog.commit(late),
            lambda: catalog.delete_ref("side", head, incarnation=first.incarnation),
            lambda: catalog.assign_ref("side", head, head, incarnation=first.incarnation),
        ):
            with pytest.raises(RefConflictError, match="made again"):
                action()
        assert before.unchanged()
        commit = catalog.commit(replace(late, incarnation=second.incarnation))
        assert catalog.assign_ref("side", head, commit.hash, incarnation=second.incarnation).hash == head

    def test_a_lost_answer_that_landed_is_a_commit(self, world: World) -> None:
        catalog, wanted = world.open(), world.request({T: world.table()})
        world.store.after("put", ".manifest", lose)
        commit = catalog.commit(wanted)
        assert [each.operation for each in catalog.log(catalog.ref("main").hash)].count(wanted.operation) == 1
        assert catalog.ref("main").hash == commit.hash

    def test_a_lost_answer_that_others_built_on_is_a_commit(self, world: World) -> None:
        catalog, wanted = world.open(), world.request({T: world.table()})

        def overtaken() -> None:
            world.put({U: world.table()})
            world.put({U: world.table()})
            world.collect_manifests()
            lose()

        world.store.after("put", ".manifest", overtaken)
        commit = catalog.commit(wanted)
        log = [each.hash for each in catalog.log(catalog.ref("main").hash)]
        assert log.index(commit.hash) == 2

    def test_what_cannot_be_known_is_said_with_its_operation(self, world: World) -> None:
        catalog, wanted = world.open(), world.request({T: world.table()})

        def vanish() -> None:
            world.store.before("get", "00000000000000000002.manifest", fail)
            lose()

        def fail() -> None:
            world.store.before("get", "00000000000000000002.manifest", fail)
            raise TransientError("memory://", "x", "gone for good")

        world.store.after("put", ".manifest", vanish)
        with pytest.raises(CommitOutcomeUnknownError) as caught:
            catalog.commit(wanted)
        assert caught.value.operation == wanted.operation
        assert "log of main" in str(caught.value.hint)
        assert isinstance(caught.value, OutcomeUnknownError)
        settled = world.other().outcome("main", wanted.operation)
        assert settled is not None

    def test_a_manifest_that_is_still_on_its_way_is_unknown(self, world: World) -> None:
        flying: list[tuple[str, bytes]] = []

        class Slow(HookedStore):
            def put(self, path: str, data: bytes, *args: Any, **more: Any) -> str:
                if path.endswith(".manifest"):
                    flying.append((path, data))
                    raise StorageOutcomeUnknownError("memory://", path, "no answer yet")
                return super().put(path, data, *args, **more)

        wanted = world.request({T: world.table()})
        with pytest.raises(CommitOutcomeUnknownError) as caught:
            world.open(Slow(world.memory)).commit(wanted)
        assert caught.value.operation == wanted.operation
        assert world.other().outcome("main", wanted.operation) is None
        world.memory.put(*flying[0], Create())
        landed = world.other().outcome("main", wanted.operation)
        assert landed is not None
        assert {data for _, data in flying} == {flying[0][1]}

    def test_a_lost_answer_of_an_object_is_no_unknown_commit(self, world: World) -> None:
        class Loses(HookedStore):
            def put(self, path: str, *args: Any, **more: Any) -> str:
                if "/objects/" in path:
                    raise StorageOutcomeUnknownError("memory://", path, "lost")
                return super().put(path, *args, **more)

        wanted = world.request({T: world.table()})
        with pytest.raises(UnavailableError, match="nothing was committed"):
            world.open(Loses(world.memory)).commit(wanted)
        assert world.other().outcome("main", wanted.operation) is None

    def test_a_lost_answer_to_a_ref(self, world: World) -> None:
        catalog = world.open()
        head = catalog.ref("main").hash
        world.store.after("put", ".manifest", lose)
        side = catalog.create_ref(RefKind.BRANCH, "side", head)
        assert catalog.ref("side") == side

    def test_an_unknown_ref_says_so(self, world: World) -> None:
        catalog = world.open()
        head = catalog.ref("main").hash

        class Silent(HookedStore):
            def put(self, path: str, *args: Any, **more: Any) -> str:
                raise StorageOutcomeUnknownError("memory://", path, "lost")

        with pytest.raises(SequenceOutcomeUnknownError):
            world.open(Silent(world.memory)).create_ref(RefKind.BRANCH, "side", head)

    def test_a_ref_that_cannot_be_settled_is_unknown(self, world: World) -> None:
        catalog = world.open()
        head = catalog.ref("main").hash

        def fail() -> None:
            world.store.before("get", "00000000000000000002.manifest", fail)
            raise TransientError("memory://", "x", "gone for good")

        def vanish() -> None:
            world.store.before("get", "00000000000000000002.manifest", fail)
            lose()

        world.store.after("put", ".manifest", vanish)
        with pytest.raises(SequenceOutcomeUnknownError):
            catalog.create_ref(RefKind.BRANCH, "side", head)
        assert world.other().ref("side").hash == head

    def test_patience_ends(self, world: World) -> None:
        world.other().create_ref(RefKind.BRANCH, "side", world.other().ref("main").hash)
        catalog = world.open()

        def again() -> None:
            world.put({U: world.table()}, "side")
            world.store.before("put", ".manifest", again)

        wanted = world.request({T: world.table()})
        again()
        with pytest.raises(CatalogBusyError):
            catalog.commit(wanted)
        with pytest.raises(CatalogBusyError):
            catalog.create_ref(RefKind.TAG, "v1", str(wanted.head))
        assert world.other().outcome("main", wanted.operation) is None

    def test_a_failure_before_the_manifest_leaves_only_excess(self, world: World) -> None:
        wanted = world.request({T: world.table()})
        catalog = world.open()
        before = world.objects()
        with arm(Failpoint.CATALOG_COMMIT_AFTER_OBJECTS, Action.ERROR), pytest.raises(FailpointError):
            catalog.commit(wanted)
        assert len(world.objects() - before) == 2
        assert catalog.ref("main").hash == wanted.head
        assert catalog.commit(replace(wanted, operation=world.fresh())).parents == (wanted.head,)

    @pytest.mark.hazard("P13")
    def test_p13_a_clock_that_is_behind(self, world: World) -> None:
        world.clock.advance(timedelta(hours=1))
        ahead = world.put()
        slow = ManualClock()
        catalog = open_embedded(world.memory, clock=slow, randomness=seeded(9))
        late = catalog.commit(world.request({U: world.table()}))
        assert slow.now() < ahead.committed_at
        assert late.committed_at == ahead.committed_at

    @pytest.mark.hazard("P13")
    def test_p13_a_merge_is_not_older_than_what_it_merges(self, world: World) -> None:
        start = world.other().ref("main").hash
        world.other().create_ref(RefKind.BRANCH, "side", start)
        world.clock.advance(timedelta(hours=1))
        side = world.put({T: world.table()}, "side")
        slow = open_embedded(world.memory, clock=ManualClock(), randomness=seeded(9))
        merged = slow.commit(replace(world.request({U: world.table()}), merge_parent=side.hash))
        assert merged.committed_at == side.committed_at


class TestDamage:
    def victim(self, world: World, which: str) -> str:
        commit = world.put({V: world.table()})
        if which == "commit":
            return path_of(commit.hash)
        tree = json.loads(world.memory.get(path_of(commit.hash)).data)["tree"]
        return path_of(tree[f"{shard_of(V):02x}"])

    @pytest.mark.parametrize("which", ["commit", "shard"])
    def test_changed_bytes_are_noticed(self, world: World, which: str) -> None:
        path = self.victim(world, which)
        wanted = world.request({V: world.table()})
        data = world.memory.get(path).data
        for bad in (data[:-1], data.replace(b"1", b"2", 1), b"", data + b" "):
            world.memory.put(path, bad, Overwrite())
            catalog = world.other()
            with pytest.raises(CorruptError, match=path):
                catalog.content(catalog.ref("main").hash, [V])
            with pytest.raises(CorruptError, match=path):
                catalog.commit(wanted)
        world.memory.put(path, data, Overwrite())
        assert world.other().commit(wanted)

    @pytest.mark.parametrize("which", ["commit", "shard"])
    def test_a_missing_object_is_noticed(self, world: World, which: str) -> None:
        path = self.victim(world, which)
        wanted = world.request({V: world.table()})
        world.memory.delete(path)
        catalog = world.other()
        head = catalog.ref("main").hash
        actions: list[Callable[[], object]] = [
            lambda: catalog.content(head, [V]),
            lambda: list(catalog.contents(head)),
            lambda: catalog.commit(wanted),
        ]
        for action in actions:
            with pytest.raises(CorruptError, match=path):
                action()

    def test_a_missing_ancestor_is_noticed(self, world: World) -> None:
        first = world.put()
        second = world.put()
        world.memory.delete(path_of(first.hash))
        log = world.other().log(second.hash)
        assert next(log).hash == second.hash
        with pytest.raises(CorruptError, match=path_of(first.hash)):
            next(log)


def add_a_field(values: dict[str, Any]) -> dict[str, Any]:
    return {**values, "format": 2}


class TestFormats:
    @staticmethod
    def stored_format(store: ObjectStore, path: str) -> int:
        return int(json.loads(EnvelopeCodec().decode(store.get(path).data, path).payload)["format"])

    def test_a_writer_migrates_once(self, world: World) -> None:
        head = world.put()
        for _ in range(2):
            catalog = world.open(world.memory, migrations={1: add_a_field})
            assert catalog.ref("main").hash == head.hash
        assert [self.stored_format(world.memory, path) for path in world.manifests()] == [1, 1, 2]
        catalog.create_ref(RefKind.TAG, "v1", head.hash)
        assert self.stored_format(world.memory, world.manifests()[-1]) == 2

    def test_of_two_openers_one_migrates(self, world: World) -> None:
        world.store.before("put", ".manifest", lambda: world.open(world.memory, migrations={1: add_a_field}))
        world.open(migrations={1: add_a_field})
        assert [self.stored_format(world.memory, path) for path in world.manifests()] == [1, 2]

    def test_a_reader_migrates_in_memory(self, world: World) -> None:
        head = world.put()
        before = Snapshot(world)
        catalog = world.open(ReadOnlyStore(world.memory), read_only=True, migrations={1: add_a_field})
        assert catalog.ref("main").hash == head.hash
        assert before.unchanged()

    def test_a_newer_format_is_refused_also_by_who_was_there_before(self, world: World) -> None:
        running, wanted = world.other(), world.request({T: world.table()})
        world.open(world.memory, migrations={1: add_a_field})
        before = Snapshot(world)
        actions: list[Callable[[], object]] = [
            lambda: world.open(),
            lambda: world.open(ReadOnlyStore(world.memory), read_only=True),
            lambda: running.commit(wanted),
            lambda: running.refs(),
            lambda: init_embedded(world.memory, clock=world.clock, randomness=world.randomness),
        ]
        for action in actions:
            with pytest.raises(CorruptError, match="upgrade"):
                action()
        assert before.unchanged()


def test_the_policy_reaches_the_sequence(world: World) -> None:
    catalog = open_embedded(
        world.memory, clock=world.clock, randomness=world.randomness, policy=RetryPolicy(attempts=3)
    )
    heads = catalog.heads
    assert heads is not None
    assert heads.head("t").retry.policy.attempts == 3
