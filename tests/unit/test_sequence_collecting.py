"""The collector: what it deletes, and what it must not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from headwater.kernel.errors import CorruptError, UsageError
from headwater.sequence.codec import Body, EnvelopeCodec
from headwater.sequence.collect import Collector
from headwater.sequence.model import (
    Namespace,
    Retention,
)
from headwater.storage.errors import (
    TransientError,
)
from headwater.storage.port import Create, ObjectMeta, Overwrite
from tests.unit.hooks import HookedStore
from tests.unit.sequence_world import (
    BOUNDARY,
    MIN_AGE,
    NAMESPACE,
    World,
)


@pytest.fixture
def world() -> World:
    return World()


class TestCollecting:
    def test_keeps_the_latest_and_the_young(self, world: World) -> None:
        world.append(3)
        world.clock.advance(MIN_AGE * 2)
        world.append(2)
        Collector(world.other(), Retention(MIN_AGE, timedelta(0))).collect()
        assert world.ids() == [4, 5]
        assert world.memory.get(BOUNDARY).data == b"3"

    def test_nothing_old_enough_writes_nothing(self, world: World) -> None:
        world.append(3)
        told = Collector(world.other(), Retention(MIN_AGE, timedelta(0))).collect()
        assert (told.boundary_after, told.deleted) == (0, ())
        assert not world.memory.exists(BOUNDARY)

    def test_the_boundary_is_durable_before_the_first_delete(self, world: World) -> None:
        world.append(3)
        world.clock.advance(MIN_AGE * 2)
        seen: list[bytes] = []
        world.store.before("delete", "1.manifest", lambda: seen.append(world.memory.get(BOUNDARY).data))
        Collector(world.open(), Retention(MIN_AGE, timedelta(0))).collect()
        assert seen == [b"2"]

    @pytest.mark.hazard("S8")
    def test_s8_time_that_passes_between_advance_and_delete_deletes_no_more(self, world: World) -> None:
        world.append(2)
        world.clock.advance(MIN_AGE * 2)
        world.append(3)
        world.store.after("put", ".boundary", lambda: world.clock.advance(MIN_AGE * 2))
        told = Collector(world.open(), Retention(MIN_AGE, timedelta(0))).collect()
        assert told.deleted == (1, 2)
        assert world.ids() == [3, 4, 5]

    def test_a_dry_run_tells_the_same_and_changes_nothing(self, world: World) -> None:
        world.append(4)
        world.clock.advance(MIN_AGE * 2)
        before = list(world.memory.list())
        collector = Collector(world.other(), Retention(MIN_AGE, timedelta(0)))
        planned = collector.plan()
        assert list(world.memory.list()) == before
        assert planned == collector.collect()
        assert planned.deleted == (1, 2, 3)

    def test_empty_namespace(self, world: World) -> None:
        told = Collector(world.other(), Retention(MIN_AGE)).collect()
        assert told.latest is None
        assert told.deleted == ()

    def test_a_broken_list_deletes_nothing(self, world: World) -> None:
        world.append(3)
        world.clock.advance(MIN_AGE * 2)

        def break_off() -> None:
            raise TransientError("memory://", "lake/manifest", "broke off")

        world.store.after("list", "manifest", break_off)
        with pytest.raises(TransientError):
            Collector(world.open(), Retention(MIN_AGE, timedelta(0))).collect()
        assert world.ids() == [1, 2, 3]

    @pytest.mark.hazard("S12")
    @pytest.mark.parametrize("content", [b"", b"x"])
    def test_s12_a_damaged_latest_object_deletes_nothing(self, world: World, content: bytes) -> None:
        world.append(5)
        world.memory.put(NAMESPACE.path_of(5), content, Overwrite())
        with pytest.raises(CorruptError, match=r"00000000000000000005\.manifest"):
            world.collect()
        assert world.ids() == [1, 2, 3, 4, 5]
        assert not world.memory.exists(BOUNDARY)

    @pytest.mark.hazard("S12")
    @pytest.mark.parametrize(
        ("boundary", "present", "missing"),
        [
            (None, [1, 2, 4, 5], 3),
            (None, [3, 4, 5], 2),
            (None, [1, 2, 3, 4, 5, 9999], 9998),
            (b"2", [4, 5], 3),
            (b"2", [2, 3, 5], 4),
        ],
    )
    def test_s12_a_gap_ahead_of_the_boundary_is_damage(
        self, world: World, boundary: bytes | None, present: list[int], missing: int
    ) -> None:
        """Removed by hand, or a stray copy, or the boundary itself is gone: nobody writes on, nothing is deleted."""
        codec = EnvelopeCodec()
        writer = world.append(1)[0].writer
        world.memory.delete(NAMESPACE.path_of(1))
        for number in present:
            world.memory.put(NAMESPACE.path_of(number), codec.encode(Body(writer, None, b"")), Create())
        if boundary:
            world.memory.put(BOUNDARY, boundary, Create())
        before = list(world.memory.list())
        actions: list[Callable[[], object]] = [
            lambda: world.open().latest(),
            lambda: world.open().update(lambda _: b"x"),
            world.collect,
        ]
        for action in actions:
            with pytest.raises(CorruptError, match=f"{missing:020d}.manifest is missing"):
                action()
        assert list(world.memory.list()) == before

    def test_a_list_that_passed_over_a_new_object_is_not_damage(self, world: World) -> None:
        """Folders are not listed in one moment: a list may show 4 and not 3, if both were made meanwhile."""
        world.append(4)

        class PassesOver(HookedStore):
            def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
                return (
                    meta
                    for meta in super().list(prefix, start_after=start_after)
                    if not meta.path.endswith("3.manifest")
                )

        latest = world.open(PassesOver(world.memory)).latest()
        assert latest is not None
        assert latest.id == 4

    @pytest.mark.parametrize("name", ["manifest.pins", "x.boundary", "_headwater"])
    def test_our_own_bookkeeping_is_no_namespace(self, name: str) -> None:
        with pytest.raises(UsageError, match="cannot name a namespace"):
            Namespace("lake/gc", name, ".json")

    def test_damaged_pins_are_found_before_the_boundary_moves(self, world: World) -> None:
        world.append(3)
        world.memory.put("lake/gc/manifest.pins/00000000000000000001.json", b"{", Create())
        with pytest.raises(CorruptError):
            world.collect()
        assert not world.memory.exists(BOUNDARY)

    def test_an_unreadable_pin_deletes_nothing(self, world: World) -> None:
        world.append(3)
        world.clock.advance(MIN_AGE * 2)
        world.memory.put("lake/gc/manifest.pins/00000000000000000001.json", b"{", Create())
        with pytest.raises(CorruptError, match=r"manifest\.pins/00000000000000000001\.json"):
            Collector(world.open(), Retention(MIN_AGE, timedelta(0))).collect()
        assert world.ids() == [1, 2, 3]
