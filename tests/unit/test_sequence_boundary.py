"""The boundary: it only rises, and is never forgotten."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pytest

from headwater.kernel.errors import CorruptError, UnavailableError, UsageError
from headwater.sequence.boundary import ADVANCE_ATTEMPTS, CHECK_SECONDS
from headwater.sequence.model import (
    BoundaryLostError,
    SequenceOutcomeUnknownError,
)
from headwater.storage.errors import (
    ForbiddenError,
    PreconditionFailedError,
)
from headwater.storage.port import Create, Overwrite, PutMode
from tests.unit.hooks import HookedStore
from tests.unit.sequence_world import (
    BOUNDARY,
    SlowAbsence,
    World,
    lose,
)


@pytest.fixture
def world() -> World:
    return World()


class TestBoundary:
    def test_absent_is_zero(self, world: World) -> None:
        assert world.open().boundary.read() == 0

    def test_advance_is_monotonic(self, world: World) -> None:
        boundary = world.open().boundary
        assert boundary.advance(3) == 3
        assert boundary.advance(2) == 3
        assert world.memory.get(BOUNDARY).data == b"3"

    def test_advance_against_another_collector(self, world: World) -> None:
        boundary = world.open().boundary
        world.store.before("put", ".boundary", lambda: world.other().boundary.advance(5))
        assert boundary.advance(7) == 7
        world.store.before("put", ".boundary", lambda: world.other().boundary.advance(12))
        assert boundary.advance(9) == 12

    def test_advance_whose_answer_is_lost(self, world: World) -> None:
        boundary = world.open().boundary
        world.store.after("put", ".boundary", lose)
        assert boundary.advance(7) == 7
        world.store.before("put", ".boundary", lose)
        assert boundary.advance(8) == 8

    def test_failing_to_advance_warns(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        def forbid() -> None:
            raise ForbiddenError("memory://", BOUNDARY)

        world.store.before("put", ".boundary", forbid)
        with caplog.at_level(logging.WARNING, "headwater"), pytest.raises(ForbiddenError):
            world.open().boundary.advance(7)
        assert [record.getMessage() for record in caplog.records] == ["boundary not advanced"]

    def test_metrics(self, world: World) -> None:
        sequencer = world.open()
        sequencer.boundary.advance(1)
        assert sequencer.metrics.value(ADVANCE_ATTEMPTS, namespace="manifest") == 1
        assert sequencer.metrics.value(CHECK_SECONDS, namespace="manifest") == 2

    def test_seen_and_gone_is_fatal(self, world: World) -> None:
        sequencer = world.open()
        entry = sequencer.write(b"1", after=None)
        sequencer.write(b"2", after=entry)
        sequencer.boundary.advance(1)
        world.memory.delete(BOUNDARY)
        with pytest.raises(BoundaryLostError, match="gone"):
            sequencer.latest()
        world.memory.put(BOUNDARY, b"1", Create())
        before = list(world.memory.list())
        with pytest.raises(BoundaryLostError):
            sequencer.write(b"3", after=entry)
        with pytest.raises(BoundaryLostError):
            sequencer.boundary.advance(2)
        assert list(world.memory.list()) == before

    def test_losing_the_boundary_after_a_create_leaves_the_outcome_unknown(self, world: World) -> None:
        sequencer = world.open()
        entry = sequencer.write(b"1", after=None)
        second = sequencer.write(b"2", after=entry)
        sequencer.boundary.advance(1)
        world.store.after("put", "3.manifest", lambda: world.memory.delete(BOUNDARY))
        with pytest.raises(SequenceOutcomeUnknownError) as caught:
            sequencer.write(b"3", after=second)
        assert isinstance(caught.value.__cause__, BoundaryLostError)
        assert caught.value.id == 3
        with pytest.raises(BoundaryLostError):
            sequencer.write(b"4", after=second)

    @pytest.mark.hazard("S10")
    def test_s10_what_another_thread_sees_does_not_become_our_condition(self, world: World) -> None:
        """The collector has read 3 and wishes 5; meanwhile 7 is durable, and a writer of this process sees it."""
        sequencer = world.open()
        world.other().boundary.advance(3)

        def meanwhile() -> None:
            world.other().boundary.advance(7)
            sequencer.boundary.read()

        world.store.after("get", ".boundary", meanwhile)
        assert sequencer.boundary.advance(5) == 7
        assert world.memory.get(BOUNDARY).data == b"7"

    @pytest.mark.hazard("S10")
    def test_s10_a_slow_thread_does_not_make_the_process_forget_what_it_saw(self, world: World) -> None:
        slow = SlowAbsence(world.memory)
        sequencer = world.open(slow)

        def meanwhile() -> None:
            sequencer.boundary.advance(5)

        slow.meanwhile = meanwhile
        assert sequencer.boundary.read() == 0
        world.memory.delete(BOUNDARY)
        with pytest.raises(BoundaryLostError):
            sequencer.boundary.read()

    def test_a_store_that_takes_nothing_and_refuses_nothing_is_given_up(self, world: World) -> None:
        class Liar(HookedStore):
            def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
                raise PreconditionFailedError("memory://", path, "absent")

        with pytest.raises(UnavailableError, match="could not be raised"):
            world.open(Liar(world.memory)).boundary.advance(5)

    def test_going_backwards_is_fatal(self, world: World) -> None:
        sequencer = world.open()
        sequencer.boundary.advance(5)
        world.memory.put(BOUNDARY, b"4", Overwrite())
        with pytest.raises(BoundaryLostError, match="went back from 5 to 4"):
            sequencer.boundary.read()

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"twelve",
            b"-1",
            b"12\n",
            b" 12",
            b"+12",
            b"012",
            b"1.5",
            b"18446744073709551616",
            b"9" * 50,
            b"\xef\xbc\x91\xef\xbc\x92",
        ],
    )
    def test_a_bad_boundary_is_an_error_that_names_it_and_nothing_is_written(
        self, world: World, content: bytes
    ) -> None:
        world.append(3)
        world.memory.put(BOUNDARY, content, Create())
        before = list(world.memory.list())
        sequencer = world.open()
        for action in (
            lambda: sequencer.latest(),
            lambda: sequencer.write(b"x", after=None),
            lambda: sequencer.boundary.advance(2),
            lambda: world.collect(),
        ):
            with pytest.raises(CorruptError, match=r"lake/gc/manifest\.boundary"):
                action()
        assert list(world.memory.list()) == before

    def test_the_largest_boundary(self, world: World) -> None:
        world.memory.put(BOUNDARY, b"18446744073709551615", Create())
        assert world.open().boundary.read() == 2**64 - 1

    @pytest.mark.parametrize("wish", [-1, 2**64])
    def test_a_wish_out_of_range(self, world: World, wish: int) -> None:
        with pytest.raises(UsageError):
            world.open().boundary.advance(wish)
        assert list(world.memory.list()) == []
