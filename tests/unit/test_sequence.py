"""The sequence protocol, one interleaving at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta

import pytest

from headwater.kernel.clock import ManualClock
from headwater.kernel.errors import CorruptError, HeadwaterError, UnavailableError, UsageError
from headwater.kernel.failpoints import Action, Failpoint, arm
from headwater.kernel.randomness import seeded
from headwater.sequence.boundary import ADVANCE_ATTEMPTS, CHECK_SECONDS
from headwater.sequence.codec import Body, EnvelopeCodec
from headwater.sequence.collect import Collector
from headwater.sequence.model import (
    BoundaryLostError,
    Entry,
    Namespace,
    PinLostError,
    Retention,
    SequenceConflictError,
    SequenceOutcomeUnknownError,
)
from headwater.sequence.pins import Pins
from headwater.sequence.protocol import STALE_WRITES, Sequencer
from headwater.storage.caching import CachingStore
from headwater.storage.confined import ReadOnlyStore
from headwater.storage.errors import (
    ForbiddenError,
    MissingCapabilityError,
    ObjectNotFoundError,
    PreconditionFailedError,
    StorageOutcomeUnknownError,
    TransientError,
)
from headwater.storage.memory import MemoryStore
from headwater.storage.port import Create, Fetched, ObjectMeta, ObjectStore, Overwrite, PutMode
from tests.unit.hooks import HookedStore

NAMESPACE = Namespace("lake", "manifest", ".manifest")
BOUNDARY = "lake/gc/manifest.boundary"
MIN_AGE = timedelta(seconds=60)


class World:
    """One store, one clock, and as many independent processes as a test opens."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore(self.clock)
        self.store = HookedStore(self.memory)
        self.randomness = seeded(7)

    def open(self, store: ObjectStore | None = None) -> Sequencer:
        return Sequencer(store or self.store, NAMESPACE, clock=self.clock, randomness=self.randomness)

    def other(self) -> Sequencer:
        """A process whose requests run no hooks."""
        return self.open(self.memory)

    def append(self, count: int) -> list[Entry]:
        sequencer = self.other()
        return [sequencer.update(lambda latest: f"{latest.id if latest else 0}+1".encode()) for _ in range(count)]

    def collect(self) -> None:
        self.clock.advance(MIN_AGE * 2)
        Collector(self.other(), Retention(MIN_AGE, timedelta(0))).collect()

    def overtake(self) -> None:
        """What others do while somebody stalls: write on, and collect what was there."""
        self.append(3)
        self.collect()

    def ids(self) -> list[int]:
        return [each.id for each in self.other().listing()]


@pytest.fixture
def world() -> World:
    return World()


class TestWriting:
    def test_the_first_write_and_the_next(self, world: World) -> None:
        sequencer = world.open()
        assert sequencer.latest() is None
        first = sequencer.write(b"one", after=None)
        second = sequencer.write(b"two", after=first)
        assert (first.id, second.id) == (1, 2)
        assert second.previous == first.writer
        assert world.open().latest() == second
        assert sequencer.read(1) == first

    def test_the_loser_of_a_race_is_told_so(self, world: World) -> None:
        sequencer = world.open()
        world.append(1)
        with pytest.raises(SequenceConflictError, match=r"00000000000000000001\.manifest was taken"):
            sequencer.write(b"late", after=None)
        assert sequencer.latest() is not None
        assert world.ids() == [1]

    def test_update_retries_until_it_wins(self, world: World) -> None:
        sequencer = world.open()
        world.store.before("put", ".manifest", lambda: world.append(1))
        entry = sequencer.update(lambda latest: b"after %d" % (latest.id if latest else 0))
        assert entry.id == 2
        assert entry.payload == b"after 1"

    def test_a_steady_write_costs_one_request_beyond_the_object(self, world: World) -> None:
        sequencer = world.open()
        entry = sequencer.write(b"1", after=None)
        for collected in (False, True):
            if collected:
                sequencer.boundary.advance(1)
            world.store.calls.clear()
            entry = sequencer.write(b"n", after=entry)
            assert world.store.calls == [("put", NAMESPACE.path_of(entry.id)), ("get", BOUNDARY)]

    @pytest.mark.parametrize("history", [1, 50])
    def test_a_write_that_looks_first_costs_at_most_three(self, world: World, history: int) -> None:
        world.append(history)
        sequencer = world.open()
        sequencer.latest()
        world.store.calls.clear()
        sequencer.update(lambda _: b"next")
        assert [op for op, _ in world.store.calls] == ["get", "get", "put", "get"]

    def test_history_is_not_listed_while_the_hint_is_close(self, world: World) -> None:
        sequencer = world.open()
        world.append(1)
        sequencer.latest()
        world.append(2)
        world.store.calls.clear()
        latest = sequencer.latest()
        assert latest is not None
        assert latest.id == 3
        assert "list" not in [op for op, _ in world.store.calls]

    @pytest.mark.parametrize("others", [3, 4, 5, 20, 63, 64, 65])
    def test_a_hint_that_is_far_behind_is_followed_in_leaps(self, world: World, others: int) -> None:
        sequencer = world.open()
        world.append(1)
        sequencer.latest()
        world.append(others)
        world.store.calls.clear()
        latest = sequencer.latest()
        assert latest is not None
        assert latest.id == others + 1
        assert "list" not in [op for op, _ in world.store.calls]
        assert len(world.store.calls) <= 20

    def test_an_error_before_the_create_changes_nothing(self, world: World) -> None:
        sequencer = world.open()

        def refuse() -> None:
            raise TransientError("memory://", "x", "down")

        world.store.before("put", ".manifest", refuse)
        with pytest.raises(UnavailableError):
            sequencer.write(b"1", after=None)
        assert world.ids() == []

    def test_an_error_after_the_create_is_an_unknown_outcome(self, world: World) -> None:
        sequencer = world.open()
        with (
            arm(Failpoint.WRITE_AFTER_CREATE, Action.ERROR),
            pytest.raises(SequenceOutcomeUnknownError) as caught,
        ):
            sequencer.write(b"1", after=None)
        assert sequencer.read(1).writer == caught.value.operation
        assert sequencer.outcome(1, sequencer.read(1).writer) is True


class TestStaleWriter:
    def test_a_stalled_writer_cannot_commit_over_history(self, world: World) -> None:
        """The sequence of the protocol's own story: prepare, stall, be overtaken, be collected, wake up."""
        world.append(3)
        stalled = world.open()
        after = stalled.latest()

        world.store.before("put", "4.manifest", world.overtake)
        with pytest.raises(HeadwaterError) as caught:
            stalled.write(b"stale", after=after)
        assert isinstance(caught.value, SequenceOutcomeUnknownError | SequenceConflictError)
        latest = world.other().latest()
        assert latest is not None
        assert (latest.id, latest.payload) == (6, b"5+1")
        assert stalled.metrics.value(STALE_WRITES, namespace="manifest") == 1

    def test_it_warns(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        stalled = world.open()
        world.append(1)
        after = stalled.latest()
        world.store.before("put", "2.manifest", world.overtake)
        with caplog.at_level(logging.WARNING, "headwater"), pytest.raises(HeadwaterError):
            stalled.write(b"stale", after=after)
        assert any(record.getMessage() == "stale write refused" for record in caplog.records)

    @pytest.mark.hazard("S2")
    def test_s2_a_write_that_others_built_on_is_not_called_a_conflict(self, world: World) -> None:
        """Created, then stalled before the check, while others build on it and the boundary passes it."""
        writer = world.open()
        world.store.after("put", "1.manifest", world.overtake)
        with pytest.raises(SequenceOutcomeUnknownError) as caught:
            writer.write(b"first", after=None)
        assert caught.value.fields["path"] == NAMESPACE.path_of(1)

    @pytest.mark.hazard("S2")
    def test_s2_the_successor_proves_a_commit(self, world: World) -> None:
        writer = world.open()

        def meanwhile() -> None:
            world.append(2)
            world.other().boundary.advance(1)

        world.store.after("put", "1.manifest", meanwhile)
        assert writer.write(b"first", after=None).id == 1
        assert writer.metrics.value(STALE_WRITES, namespace="manifest") == 0

    @pytest.mark.hazard("S2")
    def test_s2_the_successor_proves_a_conflict(self, world: World) -> None:
        """The id was collected and is free again, but its true successor is still there."""
        writer = world.open()

        def meanwhile() -> None:
            world.append(3)
            world.other().boundary.advance(1)
            world.memory.delete(NAMESPACE.path_of(1))

        world.store.before("put", "1.manifest", meanwhile)
        with pytest.raises(SequenceConflictError):
            writer.write(b"zombie", after=None)


def _lose(world: World) -> None:
    raise StorageOutcomeUnknownError("memory://", "x", "the answer was lost")


class RememberingCodec(EnvelopeCodec):
    def __init__(self) -> None:
        self.encoded: list[bytes] = []

    def encode(self, body: Body) -> bytes:
        self.encoded.append(super().encode(body))
        return self.encoded[-1]


class TestLostAnswers:
    @pytest.mark.hazard("S3")
    def test_s3_landed_and_lost(self, world: World) -> None:
        writer = world.open()
        world.store.after("put", "1.manifest", lambda: _lose(world))
        entry = writer.write(b"once", after=None)
        assert entry.id == 1
        assert world.ids() == [1]

    @pytest.mark.hazard("S3")
    def test_s3_never_landed_is_created_again_with_the_same_identity(self, world: World) -> None:
        writer = world.open()
        world.store.before("put", "1.manifest", lambda: _lose(world))
        entry = writer.write(b"once", after=None)
        assert entry.id == 1
        assert world.other().read(1) == entry

    @pytest.mark.hazard("S3")
    def test_s3_it_lands_between_the_look_and_the_second_try(self, world: World) -> None:
        codec = RememberingCodec()
        writer = Sequencer(world.store, NAMESPACE, clock=world.clock, randomness=world.randomness, codec=codec)
        world.store.before("put", "1.manifest", lambda: _lose(world))
        # The writer looks and finds nobody; then its first put arrives after all.
        world.store.before(
            "get",
            "1.manifest",
            lambda: world.store.before(
                "put", "1.manifest", lambda: world.memory.put(NAMESPACE.path_of(1), codec.encoded[0], Create())
            ),
        )
        entry = writer.write(b"once", after=None)
        assert entry.id == 1
        assert world.ids() == [1]

    @pytest.mark.hazard("S3")
    def test_s3_a_foreign_object_behind_the_boundary_proves_nothing(self, world: World) -> None:
        """Ours may have landed, been built on and been collected before the stranger came to sit there."""
        writer = world.open()

        def lose() -> None:
            world.append(5)
            world.collect()
            stranger = EnvelopeCodec().encode(Body(world.append(1)[0].writer, None, b"zombie"))
            world.memory.put(NAMESPACE.path_of(1), stranger, Create())
            _lose(world)

        world.store.before("put", "1.manifest", lose)
        with pytest.raises(SequenceOutcomeUnknownError):
            writer.write(b"lost", after=None)

    @pytest.mark.hazard("S3")
    def test_s3_a_foreign_object_ahead_of_the_boundary_is_a_conflict(self, world: World) -> None:
        writer = world.open()

        def lose() -> None:
            world.append(2)
            _lose(world)

        world.store.before("put", "1.manifest", lose)
        with pytest.raises(SequenceConflictError):
            writer.write(b"lost", after=None)

    def test_a_time_out_that_uses_up_all_patience_is_still_followed_by_another_try(self, world: World) -> None:
        writer = world.open()

        def time_out() -> None:
            world.clock.advance(timedelta(minutes=5))
            _lose(world)

        world.store.before("put", "1.manifest", time_out)
        assert writer.write(b"once", after=None).id == 1

    @pytest.mark.hazard("S3")
    def test_s3_the_outcome_is_proven_later_by_the_successor(self, world: World) -> None:
        entries = world.append(5)
        world.other().boundary.advance(3)
        world.memory.delete(NAMESPACE.path_of(3))
        asker = world.other()
        assert asker.outcome(3, entries[2].writer) is True
        assert asker.outcome(3, entries[0].writer) is False
        assert asker.outcome(5, entries[4].writer) is True
        assert asker.outcome(5, entries[0].writer) is False
        assert asker.outcome(6, entries[0].writer) is None
        for number in (1, 2):
            world.memory.delete(NAMESPACE.path_of(number))
        assert asker.outcome(1, entries[0].writer) is None

    def test_a_store_that_never_answers_leaves_the_outcome_unknown(self, world: World) -> None:
        writer = world.open()
        for _ in range(20):
            world.store.before("put", "1.manifest", lambda: _lose(world))
        with pytest.raises(SequenceOutcomeUnknownError) as caught:
            writer.write(b"lost", after=None)
        assert caught.value.operation in str(caught.value)


class TestLatest:
    @pytest.mark.hazard("S1")
    def test_s1_a_hint_behind_the_boundary_is_dropped(self, world: World) -> None:
        """Its successors were collected, so probing finds nothing and the hint would look like the latest."""
        reader = world.open()
        world.append(2)
        assert reader.latest() is not None
        world.append(3)
        world.collect()
        latest = reader.latest()
        assert latest is not None
        assert latest.id == 5

    @pytest.mark.hazard("S1")
    def test_s1_the_boundary_is_read_after_the_object(self, world: World) -> None:
        """The collection happens between the probe and the look at the boundary."""
        reader = world.open()
        world.append(2)
        reader.latest()

        world.store.before("get", "3.manifest", world.overtake)
        latest = reader.latest()
        assert latest is not None
        assert latest.id == 5
        gets = [path for op, path in world.store.calls if op == "get"]
        assert gets[-1] == BOUNDARY

    def test_everything_behind_the_boundary_is_damage(self, world: World) -> None:
        world.append(2)
        world.memory.put(BOUNDARY, b"2", Create())
        with pytest.raises(CorruptError, match="covers everything"):
            world.open().latest()
        with pytest.raises(CorruptError, match="covers everything"):
            world.collect()
        assert world.ids() == [1, 2]


class SlowAbsence(HookedStore):
    """Something happens between the moment in which an object was found absent and the answer."""

    meanwhile: Callable[[], None] | None = None

    def get(self, path: str, *, span: tuple[int, int] | None = None) -> Fetched:
        try:
            return super().get(path, span=span)
        except ObjectNotFoundError:
            action, self.meanwhile = self.meanwhile, None
            if action:
                action()
            raise


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
        world.store.after("put", ".boundary", lambda: _lose(world))
        assert boundary.advance(7) == 7
        world.store.before("put", ".boundary", lambda: _lose(world))
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


class LosesPuts(HookedStore):
    """The n-th puts do not arrive, and may land later."""

    def __init__(self, inner: ObjectStore, lost: tuple[int, ...]) -> None:
        super().__init__(inner)
        self._lost = lost
        self._count = 0
        self.flying: list[tuple[str, bytes, PutMode]] = []

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        self._count += 1
        if self._count in self._lost:
            self.flying.append((path, data, mode))
            raise StorageOutcomeUnknownError("memory://", path, "lost")
        return super().put(path, data, mode, tags=tags)


class TestPins:
    TTL = timedelta(hours=1)

    def test_a_pin_keeps_its_object_until_it_is_released(self, world: World) -> None:
        entries = world.append(3)
        pins = Pins(world.open())
        pin = pins.pin(entries[0], ttl=self.TTL, holder="query")
        world.append(2)
        world.collect()
        assert world.ids() == [1, 5]
        assert world.other().read(1) == entries[0]
        pins.release(pin)
        world.collect()
        assert world.ids() == [5]

    def test_an_expired_pin_is_dropped(self, world: World) -> None:
        entries = world.append(3)
        Pins(world.open()).pin(entries[0], ttl=timedelta(seconds=90), holder="query")
        world.collect()
        assert world.ids() == [3]
        assert Pins(world.other()).records() == ()

    def test_renewing_keeps_it(self, world: World) -> None:
        entries = world.append(3)
        pins = Pins(world.open())
        pin = pins.pin(entries[0], ttl=timedelta(seconds=150), holder="query")
        world.collect()
        pin = pins.renew(pin, ttl=timedelta(seconds=150))
        world.collect()
        assert world.ids() == [1, 3]
        assert [record.pins for record in Pins(world.other()).records()] == [(pin.pin,)]

    def test_renewing_too_late_is_refused(self, world: World) -> None:
        entries = world.append(3)
        pins = Pins(world.open())
        pin = pins.pin(entries[0], ttl=timedelta(seconds=30), holder="query")
        world.collect()
        with pytest.raises(PinLostError):
            pins.renew(pin, ttl=self.TTL)

    @pytest.mark.hazard("S4")
    def test_s4_a_pin_behind_the_boundary_is_refused(self, world: World) -> None:
        entries = world.append(3)
        world.other().boundary.advance(1)
        pins = Pins(world.open())
        with pytest.raises(PinLostError, match=r"00000000000000000001\.manifest"):
            pins.pin(entries[0], ttl=self.TTL, holder="query")
        assert [record.pins for record in pins.records()] == [()]

    @pytest.mark.hazard("S4")
    def test_s4_the_boundary_is_read_after_the_pin_was_written(self, world: World) -> None:
        """The collector lists pins, the client pins and looks, the collector advances and deletes."""
        entries = world.append(3)
        pins = Pins(world.open())
        world.store.before("put", ".json", lambda: world.collect())
        with pytest.raises(PinLostError):
            pins.pin(entries[0], ttl=self.TTL, holder="query")

    @pytest.mark.hazard("S4")
    def test_s4_the_collector_reads_pins_after_it_advanced(self, world: World) -> None:
        entries = world.append(3)
        world.clock.advance(MIN_AGE * 2)
        granted = []
        world.store.before(
            "put", ".boundary", lambda: granted.append(Pins(world.other()).pin(entries[0], ttl=self.TTL, holder="q"))
        )
        Collector(world.open(), Retention(MIN_AGE, timedelta(0))).collect()
        assert granted
        assert world.ids() == [1, 3]

    def test_a_granted_pin_vouches_for_another_behind_the_boundary(self, world: World) -> None:
        entries = world.append(3)
        pins = Pins(world.open())
        pins.pin(entries[0], ttl=self.TTL, holder="first")
        world.collect()
        assert pins.pin(entries[0], ttl=self.TTL, holder="second").pin.granted

    @pytest.mark.hazard("S4")
    def test_s4_a_pin_does_not_vouch_for_a_zombie_at_its_id(self, world: World) -> None:
        entries = world.append(3)
        pins = Pins(world.open())
        pins.pin(entries[0], ttl=self.TTL, holder="first")
        world.collect()
        zombie = Entry(1, entries[2].writer, None, b"zombie")
        with pytest.raises(PinLostError):
            pins.pin(zombie, ttl=self.TTL, holder="second")

    @pytest.mark.hazard("S7")
    def test_s7_two_pins_that_come_too_late_do_not_vouch_for_each_other(self, world: World) -> None:
        entries = world.append(3)
        world.collect()
        refused = []

        def second() -> None:
            try:
                Pins(world.other()).pin(entries[0], ttl=self.TTL, holder="second")
            except PinLostError as error:
                refused.append(error)

        # The second asks after the first has asked and before the first looks around.
        world.store.after("put", ".json", second)
        with pytest.raises(PinLostError):
            Pins(world.open()).pin(entries[0], ttl=self.TTL, holder="first")
        assert refused

    def test_a_lost_answer_to_the_pin(self, world: World) -> None:
        entries = world.append(3)
        world.store.after("put", ".json", lambda: _lose(world))
        pin = Pins(world.open()).pin(entries[0], ttl=self.TTL, holder="query")
        assert [record.pins for record in Pins(world.other()).records()] == [(pin.pin,)]

    @pytest.mark.hazard("S9")
    def test_s9_a_pin_renewed_while_the_collector_reads_keeps_its_object(self, world: World) -> None:
        """The collector has listed the record; before it reads it, the old pin is replaced by a new one."""
        entries = world.append(3)
        pins = Pins(world.other())
        pin = pins.pin(entries[0], ttl=timedelta(minutes=10), holder="query")
        world.clock.advance(MIN_AGE * 2)
        renewed = []
        world.store.after("list", "manifest.pins", lambda: renewed.append(pins.renew(pin, ttl=self.TTL)))
        Collector(world.open(), Retention(MIN_AGE, timedelta(0))).collect()
        assert renewed
        assert world.ids() == [1, 3]

    @pytest.mark.hazard("S9")
    def test_s9_a_record_that_is_gone_when_it_is_read_still_counts(self, world: World) -> None:
        entries = world.append(3)
        Pins(world.other()).pin(entries[0], ttl=self.TTL, holder="query")
        world.clock.advance(MIN_AGE * 2)
        record = "lake/gc/manifest.pins/00000000000000000001.json"
        # It vanishes between the list and the read that follow the advance.
        world.store.after(
            "put", ".boundary", lambda: world.store.before("get", record, lambda: world.memory.delete(record))
        )
        Collector(world.open(), Retention(MIN_AGE, timedelta(0))).collect()
        assert world.ids() == [1, 3]

    @pytest.mark.hazard("S9")
    def test_s9_a_vouching_pin_that_ends_before_ours_is_written_vouches_no_more(self, world: World) -> None:
        """Read while it lasted, but a collector may have judged it ended before our pin was there to be seen."""
        entries = world.append(3)
        Pins(world.other()).pin(entries[0], ttl=MIN_AGE * 3, holder="first")
        world.collect()

        def meanwhile() -> None:
            # A collector judges the first pin ended, deletes the object, and dies before it drops the record.
            world.clock.advance(MIN_AGE * 2)
            world.memory.delete(NAMESPACE.path_of(1))

        # The client stalls between reading the record and swapping it.
        world.store.before("put", ".json", meanwhile)
        with pytest.raises(PinLostError):
            Pins(world.open()).pin(entries[0], ttl=self.TTL, holder="second")
        assert world.ids() == [3]

    @pytest.mark.hazard("S13")
    def test_s13_puts_that_land_late_revive_no_pin(self, world: World) -> None:
        """Asking and granting each lose an answer and are repeated; much later the first tries land after all."""
        entries = world.append(3)
        store = LosesPuts(world.memory, lost=(1, 3))
        pins = Pins(world.open(store))
        held = pins.pin(entries[0], ttl=self.TTL, holder="query")
        pins.release(held)
        world.collect()
        assert world.ids() == [3]
        assert pins.records() == ()
        for path, data, mode in store.flying:
            with suppress(PreconditionFailedError):
                world.memory.put(path, data, mode)
        assert [pin.granted for record in pins.records() for pin in record.pins] == [False]
        with pytest.raises(PinLostError):
            pins.pin(entries[0], ttl=self.TTL, holder="late")

    def test_many_holders_share_a_record(self, world: World) -> None:
        entries = world.append(3)
        held = [Pins(world.other()).pin(entries[0], ttl=self.TTL, holder=f"query {n}") for n in range(5)]
        [record] = Pins(world.other()).records()
        assert [pin.holder for pin in record.pins] == [f"query {n}" for n in range(5)]
        for each in held[:-1]:
            Pins(world.other()).release(each)
        world.collect()
        assert world.ids() == [1, 3]

    def test_asking_against_another_asker(self, world: World) -> None:
        entries = world.append(3)
        world.store.before("put", ".json", lambda: Pins(world.other()).pin(entries[0], ttl=self.TTL, holder="other"))
        Pins(world.open()).pin(entries[0], ttl=self.TTL, holder="query")
        [record] = Pins(world.other()).records()
        assert sorted(pin.holder for pin in record.pins) == ["other", "query"]

    def test_releasing_twice_or_after_the_end_does_nothing(self, world: World) -> None:
        entries = world.append(3)
        pins = Pins(world.open())
        pin = pins.pin(entries[0], ttl=timedelta(seconds=1), holder="query")
        pins.release(pin)
        pins.release(pin)
        world.collect()
        pins.release(pin)
        assert pins.records() == ()

    def test_bad_ttl(self, world: World) -> None:
        [entry] = world.append(1)
        for ttl in (timedelta(0), timedelta(seconds=-1), timedelta.max):
            with pytest.raises(UsageError):
                Pins(world.open()).pin(entry, ttl=ttl, holder="query")


class TestBadInput:
    @pytest.mark.parametrize("name", ["", "a/b", "..", "a..b", "../x", ".hidden", "gc", "a b", "ä", "a\n"])
    def test_namespace_names(self, name: str) -> None:
        with pytest.raises(UsageError):
            Namespace("lake", name, ".manifest")

    @pytest.mark.parametrize("suffix", ["", "manifest", ".", "./x", "..", ".a/b"])
    def test_suffixes(self, suffix: str) -> None:
        with pytest.raises(UsageError):
            Namespace("lake", "manifest", suffix)

    @pytest.mark.parametrize("root", ["..", "/lake", "a//b", "a/../b"])
    def test_roots(self, root: str) -> None:
        with pytest.raises(UsageError):
            Namespace(root, "manifest", ".manifest")

    @pytest.mark.parametrize(
        "name",
        [
            "garbage.manifest",
            "1.manifest",
            "00000000000000000004",
            "00000000000000000004.other",
            "00000000000000000000.manifest",
            "99999999999999999999.manifest",
            "0000000000000000000x.manifest",
            "00000000000000000004.manifest.bak",
            "sub/00000000000000000004.manifest",
            "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٤.manifest",
        ],
    )
    def test_an_object_whose_name_is_not_an_id(self, world: World, name: str) -> None:
        world.append(3)
        path = f"lake/manifest/{name}"
        world.memory.put(path, b"?", Create())
        before = list(world.memory.list())
        with pytest.raises(CorruptError) as caught:
            world.open().latest()
        assert caught.value.fields["path"] == path
        with pytest.raises(CorruptError):
            world.collect()
        assert list(world.memory.list()) == before

    def test_a_shared_folder_passes_over_what_has_another_ending(self, world: World) -> None:
        namespace = Namespace("table", "metadata", ".metadata.json", shared_folder=True)
        sequencer = Sequencer(world.store, namespace, clock=world.clock, randomness=world.randomness)
        sequencer.write(b"1", after=None)
        world.memory.put("table/metadata/snap-1.avro", b"?", Create())
        fresh = Sequencer(world.store, namespace, clock=world.clock, randomness=world.randomness)
        assert fresh.latest() is not None
        world.memory.put("table/metadata/v1.metadata.json", b"?", Create())
        with pytest.raises(CorruptError, match=r"v1\.metadata\.json"):
            list(sequencer.listing())

    @pytest.mark.parametrize("cut", [0, 1, 30, 60, -1])
    def test_a_truncated_object(self, world: World, cut: int) -> None:
        world.append(2)
        path = NAMESPACE.path_of(2)
        whole = world.memory.get(path).data
        world.memory.put(path, whole[:cut], Overwrite())
        before = list(world.memory.list())
        with pytest.raises(CorruptError, match=r"00000000000000000002\.manifest"):
            world.open().latest()
        with pytest.raises(CorruptError, match=r"00000000000000000002\.manifest"):
            world.open().update(lambda _: b"over it")
        assert list(world.memory.list()) == before

    def test_a_flipped_bit(self, world: World) -> None:
        world.append(1)
        path = NAMESPACE.path_of(1)
        whole = world.memory.get(path).data
        world.memory.put(path, whole[:-1] + bytes([whole[-1] ^ 1]), Overwrite())
        with pytest.raises(CorruptError, match="truncated or damaged"):
            world.open().latest()

    def test_a_newer_format_is_refused(self, world: World) -> None:
        world.append(1)
        path = NAMESPACE.path_of(1)
        whole = world.memory.get(path).data
        world.memory.put(path, whole.replace(b"headwater-sequenced 1", b"headwater-sequenced 2"), Overwrite())
        with pytest.raises(CorruptError, match="newer"):
            world.open().latest()

    def test_the_last_id_there_is(self, world: World) -> None:
        last = Entry(2**64 - 1, world.append(1)[0].writer, None, b"")
        with pytest.raises(UsageError):
            world.open().write(b"x", after=last)
        data = EnvelopeCodec().encode(Body(last.writer, None, b""))
        world.memory.put(BOUNDARY, str(2**64 - 2).encode(), Create())
        world.memory.put(NAMESPACE.path_of(last.id), data, Create())
        sequencer = world.open()
        assert sequencer.latest() == sequencer.latest()

    def test_reading_what_is_not_there(self, world: World) -> None:
        with pytest.raises(ObjectNotFoundError):
            world.open().read(1)
        with pytest.raises(UsageError):
            world.open().read(0)


class TestOpening:
    @pytest.mark.hazard("S5")
    def test_s5_not_over_a_cache(self, world: World) -> None:
        with pytest.raises(MissingCapabilityError, match="memory://"):
            world.open(CachingStore(world.memory, capacity_bytes=1000))
        with pytest.raises(MissingCapabilityError):
            world.open(HookedStore(CachingStore(world.memory, capacity_bytes=1000)))

    def test_reading_needs_no_right_to_write(self, world: World) -> None:
        world.append(2)
        reader = Sequencer(
            ReadOnlyStore(world.memory), NAMESPACE, clock=world.clock, randomness=world.randomness, writable=False
        )
        latest = reader.latest()
        assert latest is not None
        assert latest.id == 2

    def test_writing_over_a_read_only_store_is_refused(self, world: World) -> None:
        with pytest.raises(MissingCapabilityError):
            world.open(ReadOnlyStore(world.memory))
