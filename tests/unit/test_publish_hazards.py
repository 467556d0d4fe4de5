"""Interleavings that would break recovery: recoverers against each other, writers that wake, puts that land late."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping

import pytest

from headwater.catalog.errors import ExpectedVersionMismatchError
from headwater.catalog.model import Commit, CommitRequest, RefKind, TableContent, TableKey
from headwater.kernel import failpoints
from headwater.kernel.errors import ConflictError, HeadwaterError, UnavailableError
from headwater.kernel.failpoints import Action, Failpoint
from headwater.kernel.ids import Ulid
from headwater.publish.errors import PublishOutcomeUnknownError, RecoveryAbortedError, RecoveryPendingError
from headwater.publish.model import RECOVERY_ACTOR, TableWish, Verdict, Wish, WriterKind
from headwater.publish.requests import FOR_OPERATION, KIND
from headwater.storage.errors import PreconditionFailedError, StorageOutcomeUnknownError
from headwater.storage.port import Create, ObjectStore, PutMode
from headwater.storage.wrapper import StoreWrapper
from tests.unit.hooks import HookedStore
from tests.unit.publish_world import LAKE, OVER, Process, PublishWorld

TABLES = ("t1", "t2", "t3")
LONG_SECONDS = 20.0
MANIFESTS = "_headwater/catalog/manifest"


@pytest.fixture
def world() -> PublishWorld:
    made = PublishWorld()
    made.process().create(*TABLES)
    return made


class LateStore(StoreWrapper):
    """Puts whose path holds `holding` are kept back, and their answers lost; `land` lets them arrive."""

    def __init__(self, inner: ObjectStore, holding: str) -> None:
        super().__init__(inner)
        self.holding = holding
        self.kept: tuple[str, bytes] | None = None

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        if self.holding in path:
            self.kept = self.kept or (path, data)
            raise StorageOutcomeUnknownError("late", path, "the answer was lost")
        return self._inner.put(path, data, mode, tags=tags)

    def land(self) -> None:
        assert self.kept is not None
        self._inner.put(*self.kept, Create())


def next_head(process: Process, name: str, *, ahead: int = 1) -> str:
    """The path of the object that the table's head moves to next."""
    content = process.pinned(name)
    assert isinstance(content, TableContent)
    path = process.writing.heads.path_for(process.version(content).metadata, process.catalog.ref("main").incarnation)
    number = process.writing.heads.id_in(path, content) + ahead
    return process.writing.heads.sequence(path).namespace.path_of(number)


def leave(process: Process, wish: Wish, point: Failpoint = Failpoint.PUBLISH_AFTER_HEAD, nth: int = 1) -> None:
    """The writer stops there and never comes back."""
    with (
        failpoints.arm(point, Action.ERROR, only_hit=nth),
        pytest.raises((PublishOutcomeUnknownError, failpoints.FailpointError)),
    ):
        process.writing.publisher.publish(wish)


def once(action: Callable[[], object]) -> Callable[[], None]:
    left = [action]

    def act() -> None:
        if left:
            left.pop()()

    return act


def before_commit(process: Process, action: Callable[[], object]) -> None:
    """Something else happens just before this process's next commit."""
    commit, act = process.catalog.commit, once(action)

    def committing(request: CommitRequest) -> Commit:
        act()
        return commit(request)

    process.catalog.commit = committing  # type: ignore[method-assign]


def all_is_well(process: Process, names: tuple[str, ...] = TABLES) -> None:
    """Nothing is pending, head and pin are equal, and the next write succeeds without a person."""
    assert process.sidecars() == 0
    assert [name for name in names if not process.head_is_pinned(name)] == []
    process.append(dict.fromkeys(names, 99))
    for name in names:
        assert process.ids(name)[-1] == 99


@pytest.mark.hazard("P16")
class TestForwardAndBackExcludeEachOther:
    """Two who recover the same change, and the writer itself, come to the same end, however they stall."""

    def test_p16_a_writer_out_of_time_whose_heads_are_in_place_finishes(self, world: PublishWorld) -> None:
        """Undoing them would race with a recoverer that has seen them in place, and is about to publish."""
        hooked = HookedStore(world.store)
        one, other = world.process(hooked), world.process()
        wish = one.wish({"t1": 1, "t2": 1})
        hooked.after("put", next_head(one, "t2"), lambda: world.clock.advance(OVER))
        commit = one.writing.publisher.publish(wish)
        assert commit.operation == wish.operation
        assert one.ids("t1") == one.ids("t2") == [0, 1]
        all_is_well(other)

    def test_p16_what_was_reported_as_failed_stays_out_though_a_recoverer_stalled_before_its_commit(
        self, world: PublishWorld
    ) -> None:
        """A new table has no pin that a rollback could change, so nothing would stop the recoverer's commit."""
        hooked = HookedStore(world.store)
        one, other = world.process(hooked), world.process()
        wish = creation(one, "n1")
        [location] = [each.staged.metadata.location for each in wish.tables if each.staged]
        stalls, wakes = threading.Event(), threading.Event()

        def stall() -> None:
            stalls.set()
            wakes.wait(LONG_SECONDS)

        before_commit(other, stall)
        recoverer = threading.Thread(target=other.writing.recovery.sweep)

        def meanwhile() -> None:
            world.clock.advance(OVER)
            recoverer.start()
            assert stalls.wait(LONG_SECONDS)

        hooked.after("put", f"{location.removeprefix(LAKE)[1:]}/metadata/{1:020}.metadata.json", meanwhile)
        try:
            one.writing.publisher.publish(wish)
            failed = False
        except ConflictError:
            failed = True
        wakes.set()
        recoverer.join(LONG_SECONDS)
        landed = other.catalog.outcome("main", wish.operation) is not None
        assert landed is not failed
        assert landed

    def test_p16_a_writer_that_was_quicker_than_a_rollback_makes_it_look_again(self, world: PublishWorld) -> None:
        """A recoverer found t2 not moved. Before it takes that place, the writer's put lands, and it is published."""
        late = LateStore(world.store, next_head(world.process(), "t2"))
        hooked = HookedStore(world.store)
        writer, recoverer, third = world.process(late), world.process(hooked), world.process()
        wish = writer.wish({"t1": 1, "t2": 1})
        with pytest.raises(PublishOutcomeUnknownError):
            writer.writing.publisher.publish(wish)
        world.clock.advance(OVER)

        def meanwhile() -> None:
            late.land()
            [recovered] = third.writing.recovery.sweep()
            assert recovered.verdict is Verdict.FORWARD

        hooked.before("put", next_head(third, "t2"), meanwhile)
        [recovered] = recoverer.writing.recovery.sweep()
        assert recovered.verdict is Verdict.PUBLISHED
        assert third.ids("t1") == third.ids("t2") == [0, 1]
        all_is_well(third)

    def test_p16_even_if_others_have_built_on_it_by_then(self, world: PublishWorld) -> None:
        late = LateStore(world.store, next_head(world.process(), "t2"))
        hooked = HookedStore(world.store)
        writer, recoverer, third = world.process(late), world.process(hooked), world.process()
        with pytest.raises(PublishOutcomeUnknownError):
            writer.append({"t1": 1, "t2": 1})
        world.clock.advance(OVER)

        def meanwhile() -> None:
            late.land()
            third.writing.recovery.sweep()
            third.append({"t2": 2})

        hooked.before("put", next_head(third, "t2"), meanwhile)
        [recovered] = recoverer.writing.recovery.sweep()
        assert recovered.verdict is Verdict.PUBLISHED
        assert third.ids("t1") == [0, 1]
        assert third.ids("t2") == [0, 1, 2]
        all_is_well(third)

    def test_p16_a_change_that_is_published_while_its_heads_are_looked_at(self, world: PublishWorld) -> None:
        """The pins were read before, the heads after: only the log, asked last, says what they mean."""
        writer, recoverer, third = world.process(), world.process(), world.process()
        leave(writer, writer.wish({"t1": 1, "t2": 1}), nth=2)
        world.clock.advance(OVER)
        facts, meanwhile = recoverer.writing.heads.facts, once(lambda: overtake(third))

        def looking(*arguments: object) -> object:
            meanwhile()
            return facts(*arguments)  # type: ignore[arg-type]

        def overtake(process: Process) -> None:
            process.writing.recovery.sweep()
            process.append({"t1": 2})

        recoverer.writing.heads.facts = looking  # type: ignore[method-assign, assignment]
        [recovered] = recoverer.writing.recovery.sweep()
        assert recovered.verdict is Verdict.PUBLISHED
        assert (third.ids("t1"), third.ids("t2")) == ([0, 1, 2], [0, 1])
        all_is_well(third)

    def test_p16_what_was_read_changes_between_the_look_and_the_commit(self, world: PublishWorld) -> None:
        writer, recoverer, third = world.process(), world.process(), world.process()
        leave(writer, writer.wish({"t1": 1}, reads=("t2",)))
        world.clock.advance(OVER)
        before_commit(recoverer, lambda: third.append({"t2": 5}))
        [recovered] = recoverer.writing.recovery.sweep()
        assert recovered.verdict is Verdict.BACK
        assert third.ids("t1") == [0]
        all_is_well(third)

    def test_p16_two_rollbacks_of_one_change_do_the_same_work(self, world: PublishWorld) -> None:
        hooked = HookedStore(world.store)
        writer, recoverer, third = world.process(), world.process(hooked), world.process()
        leave(writer, writer.wish({"t1": 1, "t2": 1, "t3": 1}))
        world.clock.advance(OVER)
        hooked.before("put", next_head(third, "t3"), third.writing.recovery.sweep)
        [recovered] = recoverer.writing.recovery.sweep()
        assert recovered.verdict is Verdict.BACK
        assert third.actors().count(RECOVERY_ACTOR) == 1
        assert [third.ids(name) for name in TABLES] == [[0]] * 3
        all_is_well(third)


@pytest.mark.hazard("P1")
def test_p1_a_writer_whose_place_a_recoverer_has_taken_hears_of_a_conflict(world: PublishWorld) -> None:
    """Not of drift: the recoverer died before it published, and the writer, which has woken up, finishes that."""
    hooked = HookedStore(world.store)
    one, other = world.process(hooked), world.process()
    wish = one.wish({"t1": 1, "t2": 1})

    def meanwhile() -> None:
        world.clock.advance(OVER)
        armed = failpoints.arm(Failpoint.RECOVERY_AFTER_RESTORE, Action.ERROR)
        with armed, pytest.raises(failpoints.FailpointError):
            other.writing.recovery.sweep()

    hooked.before("put", next_head(one, "t2"), meanwhile)
    with pytest.raises(ExpectedVersionMismatchError, match="t2"):
        one.writing.publisher.publish(wish)
    assert other.ids("t1") == other.ids("t2") == [0]
    all_is_well(other)


class TestPublished:
    @pytest.mark.hazard("P4")
    def test_p4_a_change_that_the_log_has_forgotten_is_known_by_its_pin(self, world: PublishWorld) -> None:
        """History is collected behind a horizon; the pin that the change made is still there."""
        process, other = world.process(), world.process()
        wish = process.wish({"t1": 1, "t2": 1})
        leave(process, wish, Failpoint.PUBLISH_AFTER_COMMIT)
        other.append({"t1": 2})
        world.clock.advance(OVER)
        outcome = other.catalog.outcome

        def forgetful(branch: str, operation: Ulid, *, above: str | None = None) -> Commit | None:
            return None if operation == wish.operation else outcome(branch, operation, above=above)

        other.catalog.outcome = forgetful  # type: ignore[method-assign]
        [recovered] = other.writing.recovery.sweep()
        assert recovered.verdict is Verdict.PUBLISHED
        assert (other.ids("t1"), other.ids("t2")) == ([0, 1, 2], [0, 1])
        all_is_well(other)

    @pytest.mark.hazard("P13")
    def test_p13_what_a_recoverer_published_is_told_once(self, world: PublishWorld) -> None:
        """Its commit tells of the recovery. The note stays because its delete fails; the next one only deletes it."""
        hooked = HookedStore(world.store)
        writer, recoverer, other = world.process(), world.process(hooked), world.process()
        leave(writer, writer.wish({"t1": 1, "t2": 1}), nth=2)
        world.clock.advance(OVER)
        hooked.before("delete", ".json", fail)
        assert [each.verdict for each in recoverer.writing.recovery.sweep()] == [Verdict.FORWARD]
        assert other.sidecars() == 1
        assert [each.verdict for each in other.writing.recovery.sweep()] == [Verdict.PUBLISHED]
        assert other.actors().count(RECOVERY_ACTOR) == 1
        all_is_well(other)

    @pytest.mark.hazard("P13")
    def test_p13_two_recoverers_that_find_it_published_tell_it_once(self, world: PublishWorld) -> None:
        """Both have asked the log whether it was told. The second commits on a head that has not."""
        process, recoverer, third = world.process(), world.process(), world.process()
        leave(process, process.wish({"t1": 1, "t2": 1}), Failpoint.PUBLISH_AFTER_COMMIT)
        world.clock.advance(OVER)
        before_commit(recoverer, third.writing.recovery.sweep)
        [recovered] = recoverer.writing.recovery.sweep()
        assert recovered.verdict is Verdict.PUBLISHED
        assert third.actors().count(RECOVERY_ACTOR) == 1
        all_is_well(third)


class TestHealing:
    @pytest.mark.hazard("P2")
    def test_p2_ones_own_change_is_rolled_back_by_the_next_write(self, world: PublishWorld) -> None:
        """The store failed on the way; the process lives, and nobody has to open the lake again."""
        process = world.process()
        leave(process, process.wish({"t1": 1, "t2": 1}))
        with pytest.raises(ExpectedVersionMismatchError):  # healed, and so the table has moved on
            process.append({"t1": 5})
        process.append({"t1": 5})
        assert (process.ids("t1"), process.ids("t2")) == ([0, 5], [0])
        all_is_well(process)

    @pytest.mark.hazard("P1")
    def test_p1_a_forked_child_is_another_process(self, world: PublishWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its queues are copies, so it must not take its parent's live writers for its own dead ones."""
        process = world.process()
        leave(process, process.wish({"t1": 1, "t2": 1}))
        monkeypatch.setattr(os, "getpid", lambda: -1)
        assert process.writing.recovery.sweep() == ()
        assert process.sidecars() == 1
        monkeypatch.undo()
        [recovered] = process.writing.recovery.sweep()
        assert recovered.verdict is Verdict.BACK

    @pytest.mark.hazard("P12")
    def test_p12_a_branch_made_again_is_not_held_up(self, world: PublishWorld) -> None:
        process, other = world.process(), world.process()
        process.catalog.create_ref(RefKind.BRANCH, "dev", process.catalog.ref("main").hash)
        leave(process, process.wish({"t1": 1, "t2": 1}, branch="dev"))
        other.catalog.delete_ref("dev", other.catalog.ref("dev").hash)
        other.catalog.create_ref(RefKind.BRANCH, "dev", other.catalog.ref("main").hash)
        world.clock.advance(OVER)
        other.append({"t1": 7}, branch="dev")
        assert other.ids("t1", branch="dev") == [0, 7]
        assert other.sidecars() == 0

    def test_what_did_not_move_holds_nobody_up(self, world: PublishWorld) -> None:
        """Of t1 the head has moved, of t2 not; and a change that has only noted what it would do is in nobody's way."""
        one, two, other = world.process(), world.process(), world.process()
        leave(one, one.wish({"t1": 1, "t2": 1}))
        leave(two, two.wish({"t2": 1, "t3": 1}), Failpoint.PUBLISH_AFTER_SIDECAR)
        world.clock.advance(OVER)
        other.append({"t2": 5, "t3": 5})
        with pytest.raises(RecoveryPendingError, match=r"default\.t1 is held by operation"):
            other.append({"t1": 5, "t2": 6})
        assert [each.verdict for each in other.writing.recovery.sweep()] == [Verdict.BACK] * 2
        assert [other.ids(name) for name in TABLES] == [[0], [0, 5], [0, 5]]
        all_is_well(other)

    def test_what_was_restored_and_not_published_is_in_the_way(self, world: PublishWorld) -> None:
        """A recoverer died between restoring t1 and its publish."""
        one, other = world.process(), world.process()
        leave(one, one.wish({"t1": 1, "t2": 1}))
        world.clock.advance(OVER)
        armed = failpoints.arm(Failpoint.RECOVERY_AFTER_RESTORE, Action.ERROR, only_hit=2)
        with armed, pytest.raises(failpoints.FailpointError):
            world.process().writing.recovery.sweep()
        for name in ("t1", "t2"):
            with pytest.raises(RecoveryPendingError, match=name):
                other.append({name: 5})
        other.writing.recovery.sweep()
        all_is_well(other)

    def test_a_refresh_rolls_forward_and_leaves_the_rest(self, world: PublishWorld) -> None:
        one, two, other = world.process(), world.process(), world.process()
        leave(one, one.wish({"t1": 1}))
        leave(two, two.wish({"t2": 1, "t3": 1}))
        world.clock.advance(OVER)
        assert [each.verdict for each in other.writing.recovery.refresh()] == [Verdict.FORWARD]
        assert other.ids("t1") == [0, 1]
        assert other.sidecars() == 1
        with pytest.raises(RecoveryPendingError, match="read-write open"):
            other.append({"t2": 5})

    def test_a_head_behind_its_pin_stops_a_write_loudly_and_the_rest_is_recovered(self, world: PublishWorld) -> None:
        one, two, other = world.process(), world.process(), world.process()
        one.append({"t1": 4})
        leave(one, one.wish({"t1": 1}), Failpoint.PUBLISH_AFTER_SIDECAR)
        leave(two, two.wish({"t2": 1, "t3": 1}))
        pinned = other.pinned("t1")
        assert isinstance(pinned, TableContent)
        world.store.delete(pinned.metadata_location.removeprefix("s3://bucket/lake/"))
        world.clock.advance(OVER)
        with pytest.raises(RecoveryAbortedError, match="behind the pin"):
            other.writing.recovery.heal("main", [TableKey.parse("t1")])
        assert other.writing.recovery.refresh() == ()  # who needs other tables is not held up
        with pytest.raises(RecoveryAbortedError, match="behind the pin"):
            other.writing.recovery.sweep()
        assert other.sidecars() == 1  # that one is kept
        assert other.head_is_pinned("t2")
        other.append({"t2": 9, "t3": 9})


@pytest.mark.hazard("P3")
class TestSettle:
    def test_p3_an_operation_without_a_note_is_settled_for_good(self, world: PublishWorld) -> None:
        """A drop moves no head. Its commit is on its way when somebody asks, and lands too late then."""
        late = LateStore(world.store, "nothing")
        process, other = world.process(late), world.process()
        wish = dropping(process, "t1")
        late.holding = f"{MANIFESTS}/{other_manifest(world):020}"
        with pytest.raises(PublishOutcomeUnknownError):
            process.writing.publisher.publish(wish)
        assert other.writing.recovery.settle(wish.operation) is None
        with pytest.raises(PreconditionFailedError):
            late.land()
        assert other.catalog.outcome("main", wish.operation) is None
        assert other.ids("t1") == [0]
        assert other.writing.recovery.settle(wish.operation) is None
        [told] = [each for each in other.catalog.log(other.catalog.ref("main").hash) if each.actor == RECOVERY_ACTOR]
        assert (told.properties[KIND], told.properties[FOR_OPERATION]) == ("settled", wish.operation)

    def test_p3_it_is_found_on_whatever_branch_it_is(self, world: PublishWorld) -> None:
        process, other = world.process(), world.process()
        process.catalog.create_ref(RefKind.BRANCH, "dev", process.catalog.ref("main").hash)
        commit = process.append({"t1": 1}, branch="dev")
        assert commit.operation is not None
        found = other.writing.recovery.settle(commit.operation)
        assert found is not None
        assert found.hash == commit.hash


def fail() -> None:
    raise UnavailableError("the store does not answer")


def creation(process: Process, name: str) -> Wish:
    """The wish for one new table."""
    wishes: list[Wish] = []
    publish = process.writing.publisher.publish

    def remembering(wish: Wish) -> Commit:
        wishes.append(wish)
        raise HeadwaterError("only to be looked at")

    process.writing.publisher.publish = remembering  # type: ignore[method-assign]
    with pytest.raises(HeadwaterError, match="only to be looked at"):
        process.create(name)
    process.writing.publisher.publish = publish  # type: ignore[method-assign]
    return wishes[0]


def dropping(process: Process, name: str) -> Wish:
    pinned = process.pinned(name)
    assert isinstance(pinned, TableContent)
    ref = process.catalog.ref("main")
    return Wish(
        WriterKind.SCHEMA_APPLY,
        "ann",
        "drop",
        "main",
        ref.incarnation,
        process.writing.staging().operation,
        (TableWish(TableKey.parse(name), pinned, None),),
    )


def other_manifest(world: PublishWorld) -> int:
    """The id of the manifest that comes next."""
    return max(int(meta.path.rsplit("/", 1)[1][:20]) for meta in world.store.list(MANIFESTS)) + 1
