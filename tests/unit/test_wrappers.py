"""Stores around stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from headwater.kernel.clock import ManualClock, SystemClock
from headwater.kernel.metrics import Metrics
from headwater.kernel.randomness import seeded
from headwater.kernel.retry import Retry, RetryPolicy
from headwater.storage.caching import CachingStore
from headwater.storage.confined import ConfinedStore, ReadOnlyStore
from headwater.storage.errors import (
    InvalidPathError,
    MissingCapabilityError,
    ReadOnlyError,
    StorageOutcomeUnknownError,
    TransientError,
)
from headwater.storage.faulty import Faults, FaultyStore
from headwater.storage.memory import MemoryStore
from headwater.storage.metered import API_CALLS, MeteredStore
from headwater.storage.port import Capability, Create, ObjectMeta, ObjectStore, Overwrite, PutMode, Update
from headwater.storage.probe import probe, race
from headwater.storage.retrying import RetryingStore
from headwater.storage.wrapper import StoreWrapper
from tests.unit.hooks import HookedStore


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def memory(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


def lost() -> None:
    raise StorageOutcomeUnknownError("memory://", "x", "lost")


def down() -> None:
    raise TransientError("memory://", "x", "down")


class TestRetrying:
    @pytest.fixture
    def hooked(self, memory: MemoryStore) -> HookedStore:
        return HookedStore(memory)

    @pytest.fixture
    def retrying(self, hooked: HookedStore, clock: ManualClock) -> RetryingStore:
        return RetryingStore(hooked, Retry(RetryPolicy(attempts=3), clock, seeded(1)))

    def test_what_had_no_effect_is_tried_again(self, retrying: RetryingStore, hooked: HookedStore) -> None:
        hooked.before("put", "x", down)
        hooked.before("get", "x", down)
        retrying.put("x", b"1", Create())
        assert retrying.get("x").data == b"1"

    def test_a_conditional_put_whose_answer_was_lost_goes_to_the_caller(
        self, retrying: RetryingStore, hooked: HookedStore
    ) -> None:
        hooked.after("put", "x", lost)
        with pytest.raises(StorageOutcomeUnknownError):
            retrying.put("x", b"1", Create())
        hooked.after("put", "x", lost)
        with pytest.raises(StorageOutcomeUnknownError):
            retrying.put("x", b"2", Update(retrying.get("x").meta.etag or ""))
        assert [op for op, _ in hooked.calls].count("put") == 2

    def test_an_overwrite_and_a_delete_may_be_done_twice(self, retrying: RetryingStore, hooked: HookedStore) -> None:
        hooked.after("put", "x", lost)
        retrying.put("x", b"1", Overwrite())
        hooked.after("delete", "x", lost)
        retrying.delete("x")
        assert not retrying.exists("x")

    def test_a_conditional_delete_may_not(self, retrying: RetryingStore, hooked: HookedStore) -> None:
        etag = retrying.put("x", b"1", Create())
        hooked.after("delete", "x", lost)
        with pytest.raises(StorageOutcomeUnknownError):
            retrying.delete("x", if_match=etag)

    def test_patience_ends(self, retrying: RetryingStore, hooked: HookedStore) -> None:
        for _ in range(3):
            hooked.before("get", "x", down)
        with pytest.raises(TransientError):
            retrying.get("x")
        assert len(hooked.calls) == 3

    def test_a_list_goes_on_where_it_broke_off(self, memory: MemoryStore, clock: ManualClock) -> None:
        for number in range(10):
            memory.put(f"n/{number}", b"", Create())

        class BreaksOff(StoreWrapper):
            broken = 0

            def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
                for number, meta in enumerate(self._inner.list(prefix, start_after=start_after)):
                    if number == 3 and self.broken < 2:
                        self.broken += 1
                        raise TransientError("memory://", prefix, "broke off")
                    yield meta

        store = RetryingStore(BreaksOff(memory), Retry(RetryPolicy(attempts=3), clock, seeded(1)))
        assert [meta.path for meta in store.list("n")] == [f"n/{number}" for number in range(10)]


def test_metered_counts_requests(memory: MemoryStore) -> None:
    metrics = Metrics()
    store = MeteredStore(memory, metrics, "eu-central")
    store.put("a", b"1", Create())
    store.get("a")
    store.get_if_changed("a", "other")
    store.head("a")
    store.exists("a")
    list(store.list())
    store.copy("a", "b")
    store.delete("a")
    store.delete_prefix("c")
    counted = {
        op: metrics.value(API_CALLS, region="eu-central", op=op)
        for op in ("get", "head", "put", "delete", "list", "copy")
    }
    assert counted == {"get": 2, "head": 2, "put": 1, "delete": 2, "list": 2, "copy": 1}


def test_read_only_refuses_every_change(memory: MemoryStore) -> None:
    memory.put("a", b"1", Create())
    store = ReadOnlyStore(memory)
    for change in (
        lambda: store.put("b", b"", Create()),
        lambda: store.prepare("b", b"").create(),
        lambda: store.delete("a"),
        lambda: store.delete_prefix("a"),
        lambda: store.copy("a", "b"),
    ):
        with pytest.raises(ReadOnlyError):
            change()
    assert store.get("a").data == b"1"
    assert [meta.path for meta in memory.list()] == ["a"]
    assert store.capabilities == {Capability.CONDITIONAL_GET}


class TestConfined:
    @pytest.mark.parametrize("path", ["../other/x", "..", "a/../../x", "/x", "", "a//b", "./x"])
    def test_a_path_that_escapes_is_refused(self, memory: MemoryStore, path: str) -> None:
        memory.put("other/x", b"secret", Create())
        store = ConfinedStore(memory, "mine")
        for use in (
            lambda: store.get(path),
            lambda: store.head(path),
            lambda: store.exists(path),
            lambda: store.put(path, b"", Overwrite()),
            lambda: store.delete(path),
            lambda: store.copy("x", path),
            lambda: store.copy(path, "x"),
            lambda: store.delete_prefix(path),
        ):
            with pytest.raises(InvalidPathError):
                use()
        if path:
            with pytest.raises(InvalidPathError):
                list(store.list(path))
        assert memory.get("other/x").data == b"secret"

    def test_it_sees_only_its_own(self, memory: MemoryStore) -> None:
        memory.put("other/x", b"", Create())
        memory.put("mine-too/x", b"", Create())
        store = ConfinedStore(memory, "mine")
        store.put("x", b"1", Create())
        assert [meta.path for meta in store.list()] == ["x"]
        assert store.name.endswith("/mine")

    def test_what_is_to_stay_is_its_own(self, memory: MemoryStore) -> None:
        settled: list[str] = []

        class Settles(StoreWrapper):
            def settle(self, path: str) -> None:
                settled.append(path)

        ConfinedStore(Settles(memory), "a/b").settle("x")
        assert settled == ["a/b/x"]

    def test_confinement_nests(self, memory: MemoryStore) -> None:
        inner = ConfinedStore(ConfinedStore(memory, "a"), "b")
        inner.put("x", b"1", Create())
        assert memory.get("a/b/x").data == b"1"
        assert [meta.path for meta in inner.list(start_after="w")] == ["x"]


class TestCaching:
    @pytest.mark.hazard("S5")
    def test_s5_it_refuses_whatever_compares(self, memory: MemoryStore) -> None:
        etag = memory.put("x", b"1", Create())
        store = CachingStore(memory, capacity_bytes=100)
        for use in (
            lambda: store.get_if_changed("x", etag),
            lambda: store.put("y", b"", Create()),
            lambda: store.put("x", b"", Update(etag)),
            lambda: store.delete("x", if_match=etag),
        ):
            with pytest.raises(MissingCapabilityError, match="memory://"):
                use()
        assert [meta.path for meta in memory.list()] == ["x"]

    def test_it_holds_what_fits(self, memory: MemoryStore) -> None:
        hooked = HookedStore(memory)
        store = CachingStore(hooked, capacity_bytes=10)
        for name in ("a", "b", "c"):
            memory.put(name, b"12345", Create())
            store.get(name)
        hooked.calls.clear()
        assert store.get("b").data == b"12345"
        assert store.get("c", span=(1, 3)).data == b"23"
        assert hooked.calls == []
        store.get("a")
        assert hooked.calls == [("get", "a")]

    def test_what_was_read_while_it_changed_is_not_held(self, memory: MemoryStore) -> None:
        memory.put("x", b"old", Create())
        hooked = HookedStore(memory)
        store = CachingStore(hooked, capacity_bytes=100)
        hooked.before("put", "x", lambda: store.get("x"))
        store.put("x", b"new", Overwrite())
        assert store.get("x").data == b"new"
        # A slow reader that began before the change and ends after it.
        memory.put("y", b"old", Create())
        hooked.after("get", "y", lambda: store.put("y", b"new", Overwrite()))
        store.get("y")
        assert store.get("y").data == b"new"

    def test_threads_share_it(self, memory: MemoryStore) -> None:
        store = CachingStore(memory, capacity_bytes=40)
        for number in range(20):
            memory.put(f"{number}", b"12345", Create())

        def read(seed: int) -> None:
            dice = seeded(seed)
            for _ in range(2000):
                assert store.get(f"{dice.randrange(0, 20)}").data == b"12345"
                if dice.random() < 0.1:
                    store.delete("none")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(read, range(4)))
        assert store._held_bytes == sum(len(each.data) for each in store._objects.values()) <= 40

    def test_its_own_changes_are_seen(self, memory: MemoryStore) -> None:
        store = CachingStore(memory, capacity_bytes=100)
        store.put("x", b"1", Overwrite())
        assert store.get("x").data == b"1"
        store.put("x", b"2", Overwrite())
        assert store.get("x").data == b"2"


class TestFaulty:
    def faulty(self, memory: MemoryStore, clock: ManualClock, **faults: float) -> FaultyStore:
        return FaultyStore(memory, Faults(**faults), clock, seeded(3))

    def test_before(self, memory: MemoryStore, clock: ManualClock) -> None:
        with pytest.raises(TransientError):
            self.faulty(memory, clock, before=1.0).put("x", b"1", Create())
        assert not memory.exists("x")

    def test_after(self, memory: MemoryStore, clock: ManualClock) -> None:
        with pytest.raises(StorageOutcomeUnknownError):
            self.faulty(memory, clock, after=1.0).put("x", b"1", Create())
        assert memory.exists("x")

    def test_the_answer_to_a_refusal_is_lost_too(self, memory: MemoryStore, clock: ManualClock) -> None:
        memory.put("x", b"1", Create())
        with pytest.raises(StorageOutcomeUnknownError):
            self.faulty(memory, clock, after=1.0).put("x", b"2", Create())
        assert memory.get("x").data == b"1"

    def test_late(self, memory: MemoryStore, clock: ManualClock) -> None:
        store = self.faulty(memory, clock, late=1.0)
        for number in range(8):
            with pytest.raises(StorageOutcomeUnknownError):
                store.put(f"x{number}", b"1", Create())
        store.land_everything()
        landed = len(list(memory.list()))
        assert 0 < landed < 8

    def test_delay(self, memory: MemoryStore, clock: ManualClock) -> None:
        self.faulty(memory, clock, delay=1.0).put("x", b"1", Create())
        assert clock.monotonic() > 0

    def test_partial_list(self, memory: MemoryStore, clock: ManualClock) -> None:
        for number in range(6):
            memory.put(f"n/{number}", b"", Create())
        listed = self.faulty(memory, clock, partial=1.0).list("n")
        assert [next(listed).path for _ in range(3)] == ["n/0", "n/1", "n/2"]
        with pytest.raises(TransientError):
            next(listed)

    def test_the_same_seed_fails_the_same_way(self, clock: ManualClock) -> None:
        def play() -> list[str]:
            store = FaultyStore(
                MemoryStore(clock), Faults(before=0.3, after=0.3, late=0.2, delay=0.2), clock, seeded(5)
            )
            told = []
            for number in range(50):
                try:
                    store.put(f"{number}", b"", Create())
                    told.append("ok")
                except (TransientError, StorageOutcomeUnknownError) as error:
                    told.append(type(error).__name__)
            return told

        assert play() == play()
        assert len(set(play())) == 3


class TestProbing:
    def test_a_store_that_only_says_that_it_compares_is_found_out(
        self, memory: MemoryStore, clock: ManualClock
    ) -> None:
        class Liar(StoreWrapper):
            def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
                return self._inner.put(path, data, Overwrite(), tags=tags)

        shown = probe(Liar(memory), clock, seeded(1))
        assert Capability.CREATE not in shown
        assert Capability.UPDATE not in shown
        assert list(memory.list()) == []

    def test_a_store_that_checks_and_then_acts_loses_the_race(self, memory: MemoryStore, clock: ManualClock) -> None:
        class ChecksThenActs(StoreWrapper):
            def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
                if isinstance(mode, Create) and self._inner.exists(path):
                    return self._inner.put(path, data, mode)
                return self._inner.put(path, data, Overwrite())

        class Slow(StoreWrapper):
            def exists(self, path: str) -> bool:
                present = self._inner.exists(path)
                SystemClock().sleep(0.002)
                return present

        result = race(ChecksThenActs(Slow(memory)), clock, seeded(1), writers=8, rounds=5)
        assert not result.clean
        assert result.double_wins > 0


def test_a_wrapper_passes_everything_on(memory: MemoryStore) -> None:
    store: ObjectStore = StoreWrapper(memory)
    etag = store.put("a", b"1", Create(), tags={"k": "v"})
    assert memory.tags_of("a") == {"k": "v"}
    assert store.get_if_changed("a", etag) is None
    store.copy("a", "b/c")
    assert store.delete_prefix("b") == 1
    store.delete("a", if_match=etag)
    assert list(store.list()) == []
