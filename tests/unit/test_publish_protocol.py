"""Publishing, step by step: what each crash leaves behind, and what becomes of it."""

from __future__ import annotations

import json
from _thread import interrupt_main
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest

from headwater.catalog.errors import ExpectedVersionMismatchError
from headwater.catalog.model import RefKind, TableContent, TableKey
from headwater.kernel import failpoints
from headwater.kernel.errors import ConflictError
from headwater.kernel.failpoints import Action, Failpoint
from headwater.publish import protocol
from headwater.publish.errors import PublishOutcomeUnknownError, RecoveryPendingError, SidecarCorruptError
from headwater.publish.model import RECOVERY_ACTOR, Verdict
from headwater.publish.requests import FOR_ACTOR, FOR_OPERATION, KIND, OUTCOMES
from headwater.sequence import protocol as sequence_protocol
from headwater.storage.port import Overwrite
from tests.unit.publish_world import OVER, Process, PublishWorld


@pytest.fixture
def world() -> PublishWorld:
    made = PublishWorld()
    made.process().create("t1", "t2", "t3")
    return made


def die_at(point: Failpoint, process: Process, changes: dict[str, int], *, nth: int = 1, **options: object) -> None:
    """The writer stops there and never comes back."""
    wish = process.wish(changes, **options)  # type: ignore[arg-type]
    with (
        failpoints.arm(point, Action.ERROR, only_hit=nth),
        pytest.raises((PublishOutcomeUnknownError, failpoints.FailpointError)),
    ):
        process.writing.publisher.publish(wish)


class TestPublish:
    def test_many_tables_land_as_one_commit(self, world: PublishWorld) -> None:
        process = world.process()
        commit = process.append({"t2": 1, "t1": 1})
        assert process.catalog.ref("main").hash == commit.hash
        assert process.ids("t1") == process.ids("t2") == [0, 1]
        assert process.ids("t3") == [0]
        assert process.sidecars() == 0
        assert all(process.head_is_pinned(name) for name in ("t1", "t2", "t3"))

    def test_of_two_writers_of_one_table_one_wins(self, world: PublishWorld) -> None:
        one, other = world.process(), world.process()
        first, second = one.wish({"t1": 1, "t2": 1}), other.wish({"t2": 2, "t3": 2})
        one.writing.publisher.publish(first)
        with pytest.raises(ExpectedVersionMismatchError) as caught:
            other.writing.publisher.publish(second)
        assert caught.value.fields["table"] == "default.t2"
        assert (one.ids("t2"), one.ids("t3")) == ([0, 1], [0])
        assert one.sidecars() == 0
        other.append({"t2": 3, "t3": 3})
        assert one.ids("t3") == [0, 3]

    def test_writers_of_different_tables_both_win(self, world: PublishWorld) -> None:
        one, other = world.process(), world.process()
        first, second = one.wish({"t1": 1}), other.wish({"t2": 2})
        one.writing.publisher.publish(first)
        other.writing.publisher.publish(second)
        assert (one.ids("t1"), one.ids("t2")) == ([0, 1], [0, 2])

    @pytest.mark.hazard("P8")
    def test_p8_unless_one_read_what_the_other_wrote(self, world: PublishWorld) -> None:
        one, other = world.process(), world.process()
        first, second = one.wish({"t1": 1}), other.wish({"t2": 2}, reads=("t1",))
        one.writing.publisher.publish(first)
        with pytest.raises(ExpectedVersionMismatchError, match="t1"):
            other.writing.publisher.publish(second)
        assert one.ids("t2") == [0]

    def test_a_branch_forks_a_table_at_its_first_write(self, world: PublishWorld) -> None:
        process = world.process()
        process.catalog.create_ref(RefKind.BRANCH, "dev", process.catalog.ref("main").hash)
        process.append({"t1": 7}, branch="dev")
        process.append({"t1": 8}, branch="dev")
        process.append({"t1": 1})
        assert process.ids("t1", branch="dev") == [0, 7, 8]
        assert process.ids("t1") == [0, 1]
        content = process.pinned("t1", branch="dev")
        assert isinstance(content, TableContent)
        assert f"/branches/{process.catalog.ref('dev').incarnation}/metadata/" in content.metadata_location
        assert process.head_is_pinned("t1", branch="dev")


@pytest.mark.hazard("P8")
class TestReads:
    """Versions of tables that were only read count, wherever in the publish they change."""

    def test_before_it_begins(self, world: PublishWorld) -> None:
        one, other = world.process(), world.process()
        wish = one.wish({"t1": 1}, reads=("t2",))
        other.append({"t2": 2})
        before = len(list(world.store.list("")))
        with pytest.raises(ExpectedVersionMismatchError, match="t2"):
            one.writing.publisher.publish(wish)
        assert len(list(world.store.list(""))) == before  # nothing was written at all

    def test_between_heads_and_commit(self, world: PublishWorld) -> None:
        one, other = world.process(), world.process()
        wish = one.wish({"t1": 1}, reads=("t2",))
        with (
            interrupt(Failpoint.PUBLISH_AFTER_HEAD, lambda: other.append({"t2": 2})),
            pytest.raises(ExpectedVersionMismatchError, match="t2"),
        ):
            one.writing.publisher.publish(wish)
        assert one.ids("t1") == [0]
        assert one.head_is_pinned("t1")

    def test_after_its_writer_died(self, world: PublishWorld) -> None:
        one, other = world.process(), world.process()
        die_at(Failpoint.PUBLISH_AFTER_HEAD, one, {"t1": 1}, reads=("t2",))
        other.append({"t2": 2})
        world.clock.advance(OVER)
        [recovered] = other.writing.recovery.sweep()
        assert recovered.verdict is Verdict.BACK
        assert other.ids("t1") == [0]


class TestCancelling:
    @pytest.mark.hazard("P3")
    def test_p3_a_request_to_stop_waits_until_the_outcome_is_known(self, world: PublishWorld) -> None:
        process = world.process()
        wish = process.wish({"t1": 1, "t2": 1})
        with interrupt(Failpoint.PUBLISH_AFTER_HEAD, interrupt_main), pytest.raises(KeyboardInterrupt):
            process.writing.publisher.publish(wish)
        assert process.catalog.outcome("main", wish.operation) is not None
        assert process.ids("t1") == process.ids("t2") == [0, 1]
        assert process.sidecars() == 0

    def test_the_error_of_a_change_is_its_own(self, world: PublishWorld) -> None:
        process = world.process()
        wish = process.wish({"t1": 1})
        process.append({"t1": 2})
        with pytest.raises(ExpectedVersionMismatchError):
            process.writing.publisher.publish(wish)


def test_nobody_waits_for_a_queue_while_holding_others(world: PublishWorld) -> None:
    """A heal needs the queues of tables that the write does not touch; taken within its own, two could lock up."""
    process = world.process()
    die_at(Failpoint.PUBLISH_AFTER_HEAD, process, {"t1": 1, "t2": 1}, nth=2)
    queues = process.writing.recovery.queues
    hold = queues.hold
    held: list[object] = []

    @contextmanager
    def watched(branch: str, keys: Iterable[TableKey]) -> Iterator[None]:
        assert not held, f"{held} are held"
        with hold(branch, keys):
            held.append(keys)
            yield
            held.clear()

    queues.hold = watched  # type: ignore[method-assign]
    with pytest.raises(ExpectedVersionMismatchError):  # it healed, and so the table has moved on
        process.append({"t2": 5})
    assert process.ids("t2") == [0, 1]


def test_what_we_do_not_know_of_a_document_is_kept(world: PublishWorld) -> None:
    """Of the pinned document, through heads and forks."""
    process = world.process()
    before = process.pinned("t1")
    assert isinstance(before, TableContent)
    path = before.metadata_location.removeprefix("s3://bucket/lake/")
    document = json.loads(world.store.get(path).data)
    world.store.put(path, json.dumps({**document, "encryption-keys": [{"key-id": "k"}]}).encode(), Overwrite())
    process.catalog.create_ref(RefKind.BRANCH, "dev", process.catalog.ref("main").hash)
    for branch in ("main", "dev"):
        process.append({"t1": 1}, branch=branch)
        after = process.pinned("t1", branch=branch)
        assert isinstance(after, TableContent)
        assert json.loads(process.files.read(after.metadata_location))["encryption-keys"] == [{"key-id": "k"}]


POINTS = [
    (Failpoint.PUBLISH_AFTER_SIDECAR, 1, Verdict.BACK),
    (Failpoint.PUBLISH_AFTER_HEAD, 1, Verdict.BACK),
    (Failpoint.PUBLISH_AFTER_HEAD, 2, Verdict.FORWARD),
]


class TestSweep:
    @pytest.mark.parametrize(("point", "nth", "verdict"), POINTS)
    def test_a_dead_writer_is_rolled_forward_or_back(
        self, world: PublishWorld, point: Failpoint, nth: int, verdict: Verdict
    ) -> None:
        process, other = world.process(), world.process()
        die_at(point, process, {"t1": 1, "t2": 1}, nth=nth)
        assert (other.ids("t1"), other.ids("t2")) == ([0], [0])  # readers see nothing of it
        world.clock.advance(OVER)
        [recovered] = other.writing.recovery.sweep()
        assert recovered.verdict is verdict
        expected = [0, 1] if verdict is Verdict.FORWARD else [0]
        assert (other.ids("t1"), other.ids("t2")) == (expected, expected)
        assert other.sidecars() == 0
        assert other.head_is_pinned("t1")
        assert other.head_is_pinned("t2")
        assert other.writing.recovery.sweep() == ()
        # The next write succeeds without a person.
        other.append({"t1": 5, "t2": 5})
        assert other.ids("t2") == [*expected, 5]

    @pytest.mark.hazard("P1")
    @pytest.mark.parametrize(("point", "nth", "verdict"), POINTS)
    def test_p1_a_writer_that_may_be_alive_is_left_alone(
        self, world: PublishWorld, point: Failpoint, nth: int, verdict: Verdict
    ) -> None:
        process, other = world.process(), world.process()
        die_at(point, process, {"t1": 1, "t2": 1}, nth=nth)
        assert other.writing.recovery.sweep() == ()
        assert other.sidecars() == 1

    @pytest.mark.hazard("P13")
    def test_p13_every_recovery_is_in_the_log(self, world: PublishWorld) -> None:
        process, other = world.process(), world.process()
        die_at(Failpoint.PUBLISH_AFTER_HEAD, process, {"t1": 1, "t2": 1})
        before = other.pinned("t1")
        world.clock.advance(OVER)
        [recovered] = other.writing.recovery.sweep()
        [commit] = other.catalog.log(other.catalog.ref("main").hash, limit=1)
        assert commit.actor == RECOVERY_ACTOR
        assert commit.properties[KIND] == "rolled back"
        assert commit.properties[FOR_ACTOR] == "ann"
        assert commit.properties[FOR_OPERATION] == recovered.operation
        outcomes = json.loads(commit.properties[OUTCOMES])
        assert isinstance(before, TableContent)
        assert outcomes["default.t1"] == {"state": "moved as planned", "to_version": before.metadata_location}
        assert outcomes["default.t2"]["state"] == "not moved"

    @pytest.mark.hazard("P4")
    def test_p4_a_sidecar_of_a_published_change_is_only_told_and_deleted(self, world: PublishWorld) -> None:
        process, other = world.process(), world.process()
        wish = process.wish({"t1": 1, "t2": 1})
        with failpoints.arm(Failpoint.PUBLISH_AFTER_COMMIT, Action.ERROR), pytest.raises(failpoints.FailpointError):
            process.writing.publisher.publish(wish)
        other.append({"t3": 9})
        world.clock.advance(OVER)
        [recovered] = other.writing.recovery.sweep()
        assert recovered.verdict is Verdict.PUBLISHED
        assert other.ids("t1") == [0, 1]
        assert other.actors().count(RECOVERY_ACTOR) == 1
        assert other.sidecars() == 0

    @pytest.mark.hazard("P9")
    def test_p9_a_rollback_restores_the_pinned_document(self, world: PublishWorld) -> None:
        process, other = world.process(), world.process()
        before = other.pinned("t1")
        assert isinstance(before, TableContent)
        die_at(Failpoint.PUBLISH_AFTER_HEAD, process, {"t1": 1, "t2": 1})
        world.clock.advance(OVER)
        other.writing.recovery.sweep()
        after = other.pinned("t1")
        assert isinstance(after, TableContent)
        one, two = (json.loads(other.files.read(each.metadata_location)) for each in (before, after))
        for document in (one, two):
            for name in ("headwater.writer", "headwater.previous"):
                document["properties"].pop(name, None)
        assert one == two
        assert before.metadata_location != after.metadata_location

    def test_a_recovery_that_dies_is_gone_on_with(self, world: PublishWorld) -> None:
        process = world.process()
        die_at(Failpoint.PUBLISH_AFTER_HEAD, process, {"t1": 1, "t2": 1, "t3": 1}, nth=2)
        world.clock.advance(OVER)
        for point, nth in (
            (Failpoint.RECOVERY_AFTER_RESTORE, 1),
            (Failpoint.RECOVERY_AFTER_RESTORE, 3),
            (Failpoint.RECOVERY_AFTER_PUBLISH, 1),
        ):
            with failpoints.arm(point, Action.ERROR, only_hit=nth), pytest.raises(failpoints.FailpointError):
                world.process().writing.recovery.sweep()
        other = world.process()
        [recovered] = other.writing.recovery.sweep()
        assert recovered.verdict is Verdict.BACK
        assert other.actors().count(RECOVERY_ACTOR) == 1
        for name in ("t1", "t2", "t3"):
            assert other.ids(name) == [0]
            assert other.head_is_pinned(name)

    @pytest.mark.hazard("P12")
    def test_p12_a_branch_that_is_gone(self, world: PublishWorld) -> None:
        process, other = world.process(), world.process()
        process.catalog.create_ref(RefKind.BRANCH, "dev", process.catalog.ref("main").hash)
        die_at(Failpoint.PUBLISH_AFTER_HEAD, process, {"t1": 1, "t2": 1}, branch="dev")
        other.catalog.delete_ref("dev", other.catalog.ref("dev").hash)
        other.catalog.create_ref(RefKind.BRANCH, "dev", other.catalog.ref("main").hash)
        world.clock.advance(OVER)
        [recovered] = other.writing.recovery.sweep()
        assert recovered.verdict is Verdict.DISCARD
        assert other.ids("t1", branch="dev") == [0]
        assert other.sidecars() == 0

    def test_a_corrupt_sidecar_is_kept_and_refused(self, world: PublishWorld) -> None:
        process = world.process()
        world.store.put("__recovery/01ARZ3NDEKTSV4RRFFQ69G5FAV.json", b"{}", Overwrite())
        with pytest.raises(SidecarCorruptError, match=r"__recovery/01ARZ3NDEKTSV4RRFFQ69G5FAV\.json"):
            process.writing.recovery.sweep()
        with pytest.raises(SidecarCorruptError):
            process.append({"t1": 1})
        assert process.ids("t1") == [0]


class TestHeal:
    def test_the_next_write_rolls_forward(self, world: PublishWorld) -> None:
        process, other = world.process(), world.process()
        die_at(Failpoint.PUBLISH_AFTER_HEAD, process, {"t1": 1, "t2": 1}, nth=2)
        world.clock.advance(OVER)
        with pytest.raises(ExpectedVersionMismatchError):  # healed, and so the table has moved on
            other.append({"t1": 5})
        other.append({"t1": 5})
        assert other.ids("t1") == [0, 1, 5]
        assert other.ids("t2") == [0, 1]

    def test_what_needs_a_rollback_is_told_exactly(self, world: PublishWorld) -> None:
        process, other = world.process(), world.process()
        die_at(Failpoint.PUBLISH_AFTER_HEAD, process, {"t1": 1, "t2": 1})
        world.clock.advance(OVER)
        with pytest.raises(RecoveryPendingError, match=r"default\.t1 is held by operation"):
            other.append({"t1": 5})
        other.append({"t3": 5})  # others are not held up
        other.writing.recovery.sweep()
        other.append({"t1": 5})
        assert other.ids("t1") == [0, 5]


class TestRaces:
    @pytest.mark.hazard("P2")
    def test_p2_the_loser_restores_its_own_heads_before_it_says_so(self, world: PublishWorld) -> None:
        """A{t1,t2} and B{t2,t3}: A has moved t1 when B takes t2."""
        one, other = world.process(), world.process()
        first, second = one.wish({"t1": 1, "t2": 1}), other.wish({"t2": 2, "t3": 2})

        def meanwhile() -> None:
            other.writing.publisher.publish(second)

        with interrupt(Failpoint.PUBLISH_AFTER_HEAD, meanwhile), pytest.raises(ExpectedVersionMismatchError):
            one.writing.publisher.publish(first)
        assert one.sidecars() == 0
        assert (one.ids("t1"), one.ids("t2"), one.ids("t3")) == ([0], [0, 2], [0, 2])
        assert all(one.head_is_pinned(name) for name in ("t1", "t2", "t3"))
        one.append({"t1": 3})
        assert one.ids("t1") == [0, 3]

    @pytest.mark.hazard("P1")
    @pytest.mark.parametrize("nth", [1, 2])
    def test_p1_a_writer_that_wakes_up_finds_its_place_taken(self, world: PublishWorld, nth: int) -> None:
        """It stalls behind its lease; another process sweeps; then it goes on."""
        one, other = world.process(), world.process()
        wish = one.wish({"t1": 1, "t2": 1, "t3": 1})

        def meanwhile() -> None:
            world.clock.advance(OVER)
            other.writing.recovery.sweep()

        with (
            interrupt(Failpoint.PUBLISH_AFTER_HEAD, meanwhile, nth=nth),
            pytest.raises(Exception, match=r"lease|expected"),
        ):
            one.writing.publisher.publish(wish)
        for name in ("t1", "t2", "t3"):
            assert other.ids(name) == [0]
            assert other.head_is_pinned(name)
        assert other.sidecars() == 0

    @pytest.mark.hazard("P1")
    @pytest.mark.parametrize("nth", [1, 2, 3])
    def test_p1_even_if_it_stalls_just_before_it_moves_a_head(self, world: PublishWorld, nth: int) -> None:
        """Its lease was good when it looked; the place it goes to is taken all the same."""
        one, other = world.process(), world.process()
        wish = one.wish({"t1": 1, "t2": 1, "t3": 1})

        def meanwhile() -> None:
            world.clock.advance(OVER)
            other.writing.recovery.sweep()

        stall = interrupt(Failpoint.WRITE_BEFORE_CREATE, meanwhile, nth=nth, module=sequence_protocol)
        with stall, pytest.raises(ConflictError):
            one.writing.publisher.publish(wish)
        for name in ("t1", "t2", "t3"):
            assert other.ids(name) == [0]
            assert other.head_is_pinned(name)
        other.append({"t1": 5, "t2": 5, "t3": 5})

    def test_a_writer_whose_commit_was_made_by_a_recoverer_has_won(self, world: PublishWorld) -> None:
        one, other = world.process(), world.process()
        wish = one.wish({"t1": 1, "t2": 1})

        def meanwhile() -> None:
            world.clock.advance(OVER)
            other.writing.recovery.sweep()

        with interrupt(Failpoint.PUBLISH_AFTER_HEAD, meanwhile, nth=2):
            commit = one.writing.publisher.publish(wish)
        assert commit.operation == wish.operation
        assert other.ids("t1") == [0, 1]


class TestSettle:
    @pytest.mark.hazard("P3")
    @pytest.mark.parametrize(("nth", "committed"), [(1, False), (2, True)])
    def test_p3_an_unknown_outcome_is_settled_by_its_operation(
        self, world: PublishWorld, nth: int, committed: bool
    ) -> None:
        process, other = world.process(), world.process()
        wish = process.wish({"t1": 1, "t2": 1})
        armed = failpoints.arm(Failpoint.PUBLISH_AFTER_HEAD, Action.ERROR, only_hit=nth)
        with armed, pytest.raises(PublishOutcomeUnknownError) as caught:
            process.writing.publisher.publish(wish)
        assert caught.value.operation == wish.operation
        with pytest.raises(RecoveryPendingError):
            other.writing.recovery.settle(wish.operation)
        world.clock.advance(OVER)
        assert (other.writing.recovery.settle(wish.operation) is not None) is committed
        assert (other.writing.recovery.settle(wish.operation) is not None) is committed
        assert other.ids("t1") == ([0, 1] if committed else [0])


class interrupt:  # noqa: N801
    """Does something else, once, when the writer comes by."""

    def __init__(
        self, point: Failpoint, action: Callable[[], object], *, nth: int = 1, module: ModuleType = protocol
    ) -> None:
        self._point, self._action, self._left, self._module = point, action, nth, module
        self._hit = module.hit

    def __enter__(self) -> None:
        def hit(point: Failpoint) -> None:
            if point is self._point:
                self._left -= 1
                if self._left == 0:
                    self._action()
            self._hit(point)

        self._module.hit = hit  # type: ignore[attr-defined]

    def __exit__(self, *_: object) -> None:
        self._module.hit = self._hit  # type: ignore[attr-defined]
