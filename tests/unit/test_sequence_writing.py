"""Writing: races, stalls, lost answers."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from headwater.kernel.errors import HeadwaterError, UnavailableError
from headwater.kernel.failpoints import Action, Failpoint, arm
from headwater.sequence.codec import Body, EnvelopeCodec
from headwater.sequence.model import (
    SequenceConflictError,
    SequenceOutcomeUnknownError,
)
from headwater.sequence.protocol import STALE_WRITES, Sequencer
from headwater.storage.errors import (
    TransientError,
)
from headwater.storage.port import Create
from tests.unit.sequence_world import (
    BOUNDARY,
    NAMESPACE,
    RememberingCodec,
    World,
    lose,
)


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


class TestLostAnswers:
    @pytest.mark.hazard("S3")
    def test_s3_landed_and_lost(self, world: World) -> None:
        writer = world.open()
        world.store.after("put", "1.manifest", lose)
        entry = writer.write(b"once", after=None)
        assert entry.id == 1
        assert world.ids() == [1]

    @pytest.mark.hazard("S3")
    def test_s3_never_landed_is_created_again_with_the_same_identity(self, world: World) -> None:
        writer = world.open()
        world.store.before("put", "1.manifest", lose)
        entry = writer.write(b"once", after=None)
        assert entry.id == 1
        assert world.other().read(1) == entry

    @pytest.mark.hazard("S3")
    def test_s3_it_lands_between_the_look_and_the_second_try(self, world: World) -> None:
        codec = RememberingCodec()
        writer = Sequencer(world.store, NAMESPACE, clock=world.clock, randomness=world.randomness, codec=codec)
        world.store.before("put", "1.manifest", lose)
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

        def meanwhile() -> None:
            world.append(5)
            world.collect()
            stranger = EnvelopeCodec().encode(Body(world.append(1)[0].writer, None, b"zombie"))
            world.memory.put(NAMESPACE.path_of(1), stranger, Create())
            lose()

        world.store.before("put", "1.manifest", meanwhile)
        with pytest.raises(SequenceOutcomeUnknownError):
            writer.write(b"lost", after=None)

    @pytest.mark.hazard("S3")
    def test_s3_a_foreign_object_ahead_of_the_boundary_is_a_conflict(self, world: World) -> None:
        writer = world.open()

        def meanwhile() -> None:
            world.append(2)
            lose()

        world.store.before("put", "1.manifest", meanwhile)
        with pytest.raises(SequenceConflictError):
            writer.write(b"lost", after=None)

    def test_a_time_out_that_uses_up_all_patience_is_still_followed_by_another_try(self, world: World) -> None:
        writer = world.open()

        def time_out() -> None:
            world.clock.advance(timedelta(minutes=5))
            lose()

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
            world.store.before("put", "1.manifest", lose)
        with pytest.raises(SequenceOutcomeUnknownError) as caught:
            writer.write(b"lost", after=None)
        assert caught.value.operation in str(caught.value)
