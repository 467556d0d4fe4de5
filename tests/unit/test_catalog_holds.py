"""Holds that several of one process share, and what a hold costs."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from headwater.catalog.embedded.hold import Hold
from headwater.catalog.errors import CommitNotFoundError
from headwater.sequence.model import PinLostError
from headwater.sequence.pins import Pins
from tests.unit.catalog_world import T, World


@pytest.fixture
def world() -> World:
    return World()


def pins(world: World) -> list[int]:
    """How many pins each manifest has that ever had one."""
    return [len(record.pins) for record in Pins(world.sequencer()).records()]


class TestSharing:
    def test_who_holds_what_another_holds_asks_for_nothing(self, world: World) -> None:
        head, catalog = world.put(), world.open()
        with catalog.hold(head.hash, holder="x") as first:
            world.store.calls.clear()
            with catalog.hold(head.hash, holder="y") as second:
                second.check()
                assert second is first
                assert pins(world) == [1]
            assert world.store.calls == []
            assert pins(world) == [1]  # the other one still needs it
            first.check()
        assert pins(world) == [0]

    def test_whoever_is_last_lets_go(self, world: World) -> None:
        head, catalog = world.put(), world.open()
        first = catalog.hold(head.hash, holder="x")
        second = catalog.hold(head.hash, holder="y")
        first.__enter__()
        held = second.__enter__()
        first.__exit__(None, None, None)
        held.check()
        assert pins(world) == [1]
        world.put()
        world.collect_manifests()
        assert len(world.manifests()) == 2
        held.check()
        second.__exit__(None, None, None)
        assert pins(world) == [0]
        with catalog.hold(head.hash, holder="z"):  # one that has ended is not leaned on
            assert sum(pins(world)) == 1

    def test_other_commits_and_other_processes_have_their_own(self, world: World) -> None:
        one, two = world.put(), world.put()
        catalog = world.open()
        with catalog.hold(one.hash, holder="x"), catalog.hold(two.hash, holder="y"):
            assert sum(pins(world)) == 2
            with world.open().hold(two.hash, holder="z"):
                assert sum(pins(world)) == 3

    def test_one_that_is_late_is_not_leaned_on(self, world: World) -> None:
        head, catalog = world.put(), world.open()
        with catalog.hold(head.hash, holder="x") as old:
            world.clock.advance(timedelta(minutes=6))
            with catalog.hold(head.hash, holder="y") as new:
                assert new is not old
                world.clock.advance(timedelta(minutes=5))
                with pytest.raises(PinLostError):
                    old.check()
                new.check()

    def test_a_forked_child_leans_on_none_of_its_parents(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """The parent lets go without its child's knowing."""
        head, catalog = world.put(), world.open()
        with catalog.hold(head.hash, holder="x") as parents:
            monkeypatch.setattr(os, "getpid", lambda: -1)
            with catalog.hold(head.hash, holder="y") as childs:
                assert childs is not parents
                assert sum(pins(world)) == 2

    def test_one_that_is_lost_is_lost_for_all_who_share_it(self, world: World) -> None:
        head, catalog = world.put(), world.open()
        with catalog.hold(head.hash, holder="x") as first, catalog.hold(head.hash, holder="y") as second:
            assert isinstance(second, Hold)
            world.clock.advance(timedelta(minutes=10))
            for held in (first, second):
                with pytest.raises(PinLostError):
                    held.check()
            with catalog.hold(head.hash, holder="z") as third:  # and nobody else joins it
                third.check()

    def test_many_at_once_make_one_pin(self, world: World) -> None:
        head, catalog = world.put(), world.open()
        everybody = threading.Barrier(12)
        most: list[int] = []

        def work(number: int) -> None:
            with catalog.hold(head.hash, holder=f"client {number}") as held:
                everybody.wait(20)
                most.append(sum(pins(world)))
                everybody.wait(20)
                held.check()

        with ThreadPoolExecutor(12) as pool:
            list(pool.map(work, range(12)))
        assert most == [1] * 12
        assert pins(world) == [0]
        assert catalog._holds._holds == {}
        assert catalog._holds._turns == {}

    def test_a_hold_that_cannot_be_made_leaves_nothing(self, world: World) -> None:
        catalog = world.open()
        with pytest.raises(CommitNotFoundError), catalog.hold("0" * 64, holder="x"):
            pass
        assert pins(world) == []
        assert catalog._holds._turns == {}


class TestCost:
    def test_a_hold_of_the_head_that_was_just_seen(self, world: World) -> None:
        """Ask, look at the boundary, grant, look at the manifest once more, which takes two; and let go."""
        world.put()
        catalog = world.open()
        head = catalog.ref("main").hash
        catalog.commit_at(head)
        world.store.calls.clear()
        with catalog.hold(head, holder="x"):
            assert [op for op, _ in world.store.calls] == ["put", "get", "put", "get", "get"]
            world.store.calls.clear()
        assert [op for op, _ in world.store.calls] == ["put"]

    def test_what_was_seen_before_does_not_stand_for_a_newer_commit(self, world: World) -> None:
        catalog = world.open()
        catalog.ref("main")
        head = world.put({T: world.table()})
        with catalog.hold(head.hash, holder="x"):
            [record] = Pins(world.sequencer()).records()
            assert record.id == len(world.manifests())

    def test_what_was_seen_before_and_is_gone_is_looked_up_again(self, world: World) -> None:
        head = world.put()
        catalog = world.open()
        catalog.ref("main")
        world.put({})
        world.put({})
        world.collect_manifests()
        with catalog.hold(head.hash, holder="x") as held:
            held.check()
            active = [record.id for record in Pins(world.sequencer()).records() if record.pins]
            assert active == [4]
