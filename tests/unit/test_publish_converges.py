"""What would keep a change from ever ending: each of these once left a note that no sweep could see to."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import wait
from dataclasses import replace
from typing import Any

import pytest

from headwater.catalog.errors import ExpectedVersionMismatchError, RefNotFoundError
from headwater.catalog.model import (
    CommitRequest,
    Content,
    Delete,
    NamespaceContent,
    Put,
    RefKind,
    TableContent,
    TableKey,
    ViewContent,
)
from headwater.kernel.errors import ConflictError, UnavailableError, UsageError
from headwater.kernel.failpoints import Failpoint
from headwater.kernel.ids import new_ulid
from headwater.publish import protocol
from headwater.publish.errors import PublishOutcomeUnknownError
from headwater.publish.model import Replaced, Verdict, Wish
from headwater.storage.errors import StorageOutcomeUnknownError
from headwater.storage.port import Fetched, PutMode
from headwater.storage.wrapper import StoreWrapper
from headwater.tables.files import Files
from headwater.tables.model import NewFile
from tests.unit.publish_world import LAKE, OVER, Process, PublishWorld
from tests.unit.test_publish_forks import put_behind
from tests.unit.test_publish_hazards import all_is_well, creation, leave
from tests.unit.test_publish_protocol import interrupt
from tests.unit.test_publish_repair import own_path

N = TableKey.of_namespace(("n",))
VIEW = ViewContent("view-1", f"{LAKE}/views/v.json", 1, 0)


@pytest.fixture
def world() -> PublishWorld:
    made = PublishWorld()
    made.process().create("t1", "t2", "t3")
    return made


def put(process: Process, contents: Mapping[TableKey, Content | None], branch: str = "main") -> None:
    """A commit that moves no head."""
    ref = process.catalog.ref(branch)
    process.catalog.commit(
        CommitRequest(
            branch,
            ref.hash,
            {key: Put(content) if content else Delete() for key, content in contents.items()},
            {**dict.fromkeys(contents), **process.catalog.content(ref.hash, list(contents))},
            "bob",
            "something else",
            new_ulid(process.world.clock, process.world.randomness),
        )
    )


def making(process: Process, name: str, *others: str) -> Wish:
    """The wish for a new table together with a row more in others."""
    new, more = creation(process, name), process.wish(dict.fromkeys(others, 1))
    return replace(new, tables=(*new.tables, *more.tables))


@pytest.mark.hazard("P12")
class TestAViewTakesTheName:
    """The branch holds something else where a table was to be made: it can never be published."""

    def test_p12_while_its_writer_lives(self, world: PublishWorld) -> None:
        one, other = world.process(), world.process()
        wish = making(one, "v", "t1")
        with (
            interrupt(Failpoint.PUBLISH_AFTER_HEAD, lambda: put(other, {TableKey.parse("v"): VIEW}), nth=2),
            pytest.raises(ExpectedVersionMismatchError, match=r"default\.v"),
        ):
            one.writing.publisher.publish(wish)
        all_is_well(other)

    @pytest.mark.parametrize(("others", "verdict"), [(("t1",), Verdict.BACK), ((), Verdict.DISCARD)])
    def test_p12_after_its_writer_died(self, world: PublishWorld, others: tuple[str, ...], verdict: Verdict) -> None:
        one, other = world.process(), world.process()
        leave(one, making(one, "v", *others), nth=1 + len(others))
        put(other, {TableKey.parse("v"): VIEW})
        world.clock.advance(OVER)
        assert [each.verdict for each in other.writing.recovery.sweep()] == [verdict]
        assert other.pinned("v") == VIEW
        all_is_well(other)


@pytest.mark.hazard("P19")
class TestANamespaceThatIsToGo:
    """Somebody puts something into it after heads have moved for the commit that drops it."""

    @pytest.fixture
    def wish(self, world: PublishWorld) -> Wish:
        process = world.process()
        empty = NamespaceContent("n-1", {})
        put(process, {N: empty})
        return replace(process.wish({"t1": 1}), others={N: Replaced(empty, None)})

    def test_p19_stays_while_the_writer_lives(self, world: PublishWorld, wish: Wish) -> None:
        one, other = world.process(), world.process()
        with interrupt(Failpoint.PUBLISH_AFTER_HEAD, lambda: put(other, {TableKey.parse("n.v"): VIEW})):
            one.writing.publisher.publish(wish)
        self.went_on(other)

    def test_p19_stays_when_the_writer_is_dead(self, world: PublishWorld, wish: Wish) -> None:
        one, other = world.process(), world.process()
        leave(one, wish)
        put(other, {TableKey.parse("n.v"): VIEW})
        world.clock.advance(OVER)
        assert [each.verdict for each in other.writing.recovery.sweep()] == [Verdict.FORWARD]
        self.went_on(other)

    def test_an_empty_one_goes(self, world: PublishWorld, wish: Wish) -> None:
        process = world.process()
        process.writing.publisher.publish(wish)
        assert N not in dict(process.catalog.contents(process.catalog.ref("main").hash))

    def went_on(self, process: Process) -> None:
        assert process.ids("t1") == [0, 1]
        assert process.pinned("n.v") == VIEW
        all_is_well(process)


@pytest.mark.hazard("P19")
def test_p19_a_repair_by_somebody_whom_no_commit_can_name_leaves_no_note(world: PublishWorld) -> None:
    process = world.process()
    put_behind(process, own_path(process, "t1"))
    with pytest.raises(UsageError):
        process.writing.repair.run(actor="a\x00b")
    assert process.sidecars() == 0
    process.writing.repair.run(actor="ann")
    all_is_well(process)


@pytest.mark.hazard("P12")
class TestABranchThatGoes:
    @pytest.fixture
    def one(self, world: PublishWorld) -> Process:
        process = world.process()
        process.catalog.create_ref(RefKind.BRANCH, "dev", process.catalog.ref("main").hash)
        return process

    def test_p12_its_writer_hears_of_it(self, world: PublishWorld, one: Process) -> None:
        other = world.process()
        wish = one.wish({"t1": 1}, branch="dev")
        with (
            interrupt(Failpoint.PUBLISH_AFTER_HEAD, lambda: gone(other, "dev")),
            pytest.raises(RefNotFoundError, match="dev"),
        ):
            one.writing.publisher.publish(wish)
        all_is_well(other)

    def test_p3_its_changes_are_settled(self, world: PublishWorld, one: Process) -> None:
        other = world.process()
        wish = one.wish({"t1": 1}, branch="dev")
        leave(one, wish)
        gone(other, "dev")
        world.clock.advance(OVER)
        assert other.writing.recovery.settle(wish.operation) is None
        all_is_well(other)


def gone(process: Process, branch: str) -> None:
    process.catalog.delete_ref(branch, process.catalog.ref(branch).hash)


def test_what_cannot_be_undone_for_now_holds_nobody_else_up(world: PublishWorld) -> None:
    """The document that is to be restored cannot be read."""
    process = world.process()
    leave(process, process.wish({"t1": 1, "t2": 1}))
    pinned = process.pinned("t1")
    assert isinstance(pinned, TableContent)
    path = pinned.metadata_location.removeprefix(f"{LAKE}/")
    document = world.store.get(path).data
    world.store.delete(path)
    assert process.writing.recovery.refresh() == ()
    process.append({"t3": 1})
    put_back(world, path, document)
    process.writing.recovery.refresh()
    all_is_well(process)


def put_back(world: PublishWorld, path: str, data: bytes) -> None:
    Files({LAKE: world.store}).write([NewFile(f"{LAKE}/{path}", data)])


class _Deaf(StoreWrapper):
    """Answers to puts are lost."""

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        self._inner.put(path, data, mode, tags=tags)
        raise StorageOutcomeUnknownError("deaf", path, "the answer was lost")


@pytest.mark.parametrize("files", [1, 3])
def test_a_file_that_may_not_be_stored_is_no_unknown_outcome(world: PublishWorld, files: int) -> None:
    """Nothing refers to it, so nothing was changed, and there is no operation that anybody could ask about."""
    stored = Files({LAKE: _Deaf(world.store)}, workers=2)
    with pytest.raises(UnavailableError, match="nothing was changed"):
        stored.write([NewFile(f"{LAKE}/tables/x/data/{number}", b"x") for number in range(files)])


class _Counting(StoreWrapper):
    gets = 0

    def get(self, path: str, *, span: tuple[int, int] | None = None) -> Fetched:
        self.gets += "catalog/objects/" in path
        return self._inner.get(path, span=span)


class TestHistoryIsLong:
    """What becomes of a change stands above the head that it was planned on: nobody reads all of history for that."""

    def test_for_who_loses_a_race(self, world: PublishWorld) -> None:
        store = _Counting(world.store)
        other = world.process()
        for number in range(60):
            put(other, {TableKey.of_namespace((f"n{number}",)): NamespaceContent(f"n-{number}", {})})
        one = world.process(store)
        wish = one.wish({"t1": 1, "t2": 1})
        with (
            interrupt(Failpoint.PUBLISH_AFTER_SIDECAR, lambda: other.append({"t2": 2})),
            pytest.raises(ConflictError),
        ):
            one.writing.publisher.publish(wish)
        assert store.gets < 30
        all_is_well(other)

    def test_for_a_recoverer(self, world: PublishWorld) -> None:
        writer, store = world.process(), _Counting(world.store)
        for number in range(60):
            put(writer, {TableKey.of_namespace((f"n{number}",)): NamespaceContent(f"n-{number}", {})})
        leave(writer, writer.wish({"t1": 1, "t2": 1}))
        world.clock.advance(OVER)
        world.process(store).writing.recovery.sweep()
        assert store.gets < 30
        all_is_well(writer)

    def test_but_for_a_branch_that_was_set_back(self, world: PublishWorld) -> None:
        """The log does not lead to that head any more; the change is found all the same."""
        one, other = world.process(), world.process()
        before = one.catalog.ref("main").hash
        put(one, {N: NamespaceContent("n-1", {})})
        wish = one.wish({"t1": 1})
        leave(one, wish)
        other.catalog.assign_ref("main", before, other.catalog.ref("main").hash)
        world.clock.advance(OVER)
        assert [each.verdict for each in other.writing.recovery.sweep()] == [Verdict.FORWARD]
        assert other.catalog.outcome("main", wish.operation) is not None
        all_is_well(other)


@pytest.mark.hazard("P3")
def test_p3_a_request_to_stop_carries_what_became_of_the_change(
    world: PublishWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome is not known, and whoever stopped it can see for which operation."""
    process, asked = world.process(), threading.Event()
    wish = process.wish({"t1": 1})

    def waiting(futures: list[Any]) -> object:
        if not asked.is_set():
            asked.set()
            raise KeyboardInterrupt
        return wait(futures)

    def lose() -> None:
        asked.wait(20)
        raise StorageOutcomeUnknownError("deaf", "x", "the answer was lost")

    monkeypatch.setattr(protocol, "wait", waiting)
    with interrupt(Failpoint.PUBLISH_AFTER_HEAD, lose), pytest.raises(KeyboardInterrupt) as stopped:
        process.writing.publisher.publish(wish)
    assert isinstance(stopped.value.__cause__, PublishOutcomeUnknownError)
    assert stopped.value.__cause__.operation == wish.operation


def test_a_refresh_does_not_wait_for_a_writer_that_is_at_work(world: PublishWorld) -> None:
    """Every transaction begins with one, and its writer's note is there while its heads move."""
    process, found = world.process(), list[object]()

    def refreshing() -> None:
        thread = threading.Thread(target=lambda: found.append(process.writing.recovery.refresh()), daemon=True)
        thread.start()
        thread.join(20)

    with interrupt(Failpoint.PUBLISH_AFTER_HEAD, refreshing):
        process.append({"t1": 1, "t2": 1})
    assert found == [()]
    all_is_well(process)
