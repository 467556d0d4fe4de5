"""Many writers of one process: whoever waits goes together, and each hears of its own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import pytest

from headwater.catalog.errors import CatalogBusyError, CommitOutcomeUnknownError, ExpectedVersionMismatchError
from headwater.catalog.model import Commit, CommitRequest, RefKind, TableContent, TableKey
from headwater.catalog.port import Catalog
from headwater.kernel.clock import ManualClock
from headwater.kernel.errors import ConflictError, HeadwaterError, UnavailableError
from headwater.kernel.ids import new_ulid
from headwater.kernel.randomness import seeded
from headwater.publish import group as group_module
from headwater.publish.errors import PublishOutcomeUnknownError
from headwater.publish.group import Group
from headwater.publish.model import RECOVERY_ACTOR
from headwater.publish.protocol import PUBLISH_RETRIES
from headwater.storage.errors import StorageOutcomeUnknownError
from tests.unit.hooks import HookedStore
from tests.unit.publish_world import OVER, Process, PublishWorld
from tests.unit.sequence_world import lose

LONG_SECONDS = 10.0
T = TypeVar("T")


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until others got there; whoever never does fails the test."""
    waiting = threading.Event()
    for _ in range(int(LONG_SECONDS * 1000)):
        if condition():
            return
        waiting.wait(0.001)
    raise AssertionError("it never came to that")


class Gate:
    """A catalog whose every call waits until the test lets it go on, and answers as the test says."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.answer: Callable[[CommitRequest], Commit | HeadwaterError] = committed
        self.fails: BaseException | None = None
        self._open = threading.Semaphore(0)
        self.held = True

    def let(self) -> None:
        self._open.release()

    def commit_all(self, requests: Sequence[CommitRequest]) -> tuple[Commit | HeadwaterError, ...]:
        self.calls.append([each.message for each in requests])
        if self.held:
            assert self._open.acquire(timeout=LONG_SECONDS)
        if self.fails is not None:
            error, self.fails = self.fails, None
            raise error
        return tuple(self.answer(each) for each in requests)


def committed(request: CommitRequest) -> Commit:
    return Commit(
        f"hash of {request.message}", (), request.actor, request.message, {}, datetime(2026, 1, 1, tzinfo=UTC)
    )


def asked(name: str) -> CommitRequest:
    return CommitRequest("main", None, {}, {}, "ann", name, new_ulid(ManualClock(), seeded(abs(hash(name)))))


class Crowd:
    """Writers on threads of their own, that come one after the other."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.group = Group(cast(Catalog, self.gate))

    def comes(self, name: str, *, check: Callable[[], None] = lambda: None) -> Future[Commit]:
        """One more; returns when it leads, or waits."""
        before = len(self.group._waiting), len(self.gate.calls)
        future = started(lambda: self.group.commit(asked(name), check=check))
        eventually(lambda: (len(self.group._waiting), len(self.gate.calls)) != before)
        return future


def started(work: Callable[[], T]) -> Future[T]:
    """On a thread that nobody waits for at the end: one that hangs fails its test alone."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


@pytest.fixture
def crowd() -> Crowd:
    return Crowd()


class TestTogether:
    def test_one_that_is_alone_waits_for_nobody(self, crowd: Crowd) -> None:
        crowd.gate.held = False
        assert crowd.group.commit(asked("a"), check=lambda: None).hash == "hash of a"
        assert crowd.group.commit(asked("b"), check=lambda: None).hash == "hash of b"
        assert crowd.gate.calls == [["a"], ["b"]]

    def test_who_comes_meanwhile_goes_together_with_the_next(self, crowd: Crowd) -> None:
        futures = [crowd.comes(name) for name in "abcde"]
        crowd.gate.let()
        crowd.gate.let()
        assert [each.result(LONG_SECONDS).hash for each in futures] == [f"hash of {name}" for name in "abcde"]
        assert crowd.gate.calls == [["a"], ["b", "c", "d", "e"]]

    def test_nobody_works_for_others_for_longer_than_one_commit(self, crowd: Crowd) -> None:
        first, second = crowd.comes("a"), crowd.comes("b")
        crowd.gate.let()
        assert first.result(LONG_SECONDS).hash == "hash of a"
        assert not second.done()
        eventually(lambda: len(crowd.gate.calls) == 2)
        third = crowd.comes("c")
        crowd.gate.let()
        crowd.gate.let()
        assert [each.result(LONG_SECONDS).hash for each in (second, third)] == ["hash of b", "hash of c"]
        assert crowd.gate.calls == [["a"], ["b"], ["c"]]

    def test_one_manifest_carries_no_more_than_it_should(self, crowd: Crowd, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(group_module, "LARGEST", 2)
        futures = [crowd.comes(name) for name in "abcdef"]
        for _ in range(4):
            crowd.gate.let()
        assert [each.result(LONG_SECONDS).message for each in futures] == list("abcdef")
        assert crowd.gate.calls == [["a"], ["b", "c"], ["d", "e"], ["f"]]


class TestErrors:
    def test_an_error_of_one_is_heard_by_that_one_alone(self, crowd: Crowd) -> None:
        crowd.gate.answer = lambda each: ConflictError("not you") if each.message == "c" else committed(each)
        futures = [crowd.comes(name) for name in "abcd"]
        crowd.gate.let()
        crowd.gate.let()
        with pytest.raises(ConflictError, match="not you"):
            futures[2].result(LONG_SECONDS)
        assert [futures[each].result(LONG_SECONDS).message for each in (0, 1, 3)] == ["a", "b", "d"]

    def test_an_error_of_all_is_heard_by_all_and_the_next_goes_on(self, crowd: Crowd) -> None:
        futures = [crowd.comes(name) for name in "abc"]
        crowd.gate.let()
        futures[0].result(LONG_SECONDS)
        eventually(lambda: len(crowd.gate.calls) == 2)
        crowd.gate.fails = UnavailableError("the store is away; nothing was committed")
        last = crowd.comes("d")
        crowd.gate.let()
        crowd.gate.let()
        for each in futures[1:]:
            with pytest.raises(UnavailableError):
                each.result(LONG_SECONDS)
        assert last.result(LONG_SECONDS).message == "d"

    @pytest.mark.hazard("P3")
    @pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError()], ids=["stopped", "broken"])
    def test_p3_of_a_leader_that_is_stopped_the_others_do_not_know(self, crowd: Crowd, error: BaseException) -> None:
        futures = [crowd.comes(name) for name in "abc"]
        crowd.gate.let()
        futures[0].result(LONG_SECONDS)
        eventually(lambda: len(crowd.gate.calls) == 2)
        last = crowd.comes("d")
        crowd.gate.fails = error
        crowd.gate.let()
        crowd.gate.let()
        with pytest.raises(type(error)):
            futures[1].result(LONG_SECONDS)
        with pytest.raises(CommitOutcomeUnknownError) as caught:
            futures[2].result(LONG_SECONDS)
        assert caught.value.operation == asked("c").operation
        assert last.result(LONG_SECONDS).message == "d"

    def test_one_whose_time_is_over_is_not_carried(self, crowd: Crowd) -> None:
        """It is asked when its turn comes, not when it comes."""
        over = threading.Event()

        def check() -> None:
            if over.is_set():
                raise ConflictError("its lease has passed")

        futures = [crowd.comes("a"), crowd.comes("b"), crowd.comes("c", check=check)]
        over.set()
        crowd.gate.let()
        crowd.gate.let()
        assert [each.result(LONG_SECONDS).message for each in futures[:2]] == ["a", "b"]
        with pytest.raises(ConflictError, match="lease"):
            futures[2].result(LONG_SECONDS)
        assert crowd.gate.calls == [["a"], ["b"]]

    def test_when_nobody_may_commit_nobody_does(self, crowd: Crowd) -> None:
        def check() -> None:
            raise ConflictError("its lease has passed")

        with pytest.raises(ConflictError):
            crowd.group.commit(asked("a"), check=check)
        crowd.gate.held = False
        assert crowd.group.commit(asked("b"), check=lambda: None).message == "b"
        assert crowd.gate.calls == [["b"]]

    def test_one_that_is_stopped_while_it_waits_is_not_carried(self, crowd: Crowd) -> None:
        first = crowd.comes("a")

        def stop() -> None:
            eventually(lambda: len(crowd.group._waiting) == 1)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        waiting = started(stop)
        with pytest.raises(KeyboardInterrupt):
            crowd.group.commit(asked("b"), check=lambda: None)
        waiting.result(LONG_SECONDS)
        last = crowd.comes("c")
        crowd.gate.let()
        crowd.gate.let()
        assert [each.result(LONG_SECONDS).message for each in (first, last)] == ["a", "c"]
        assert crowd.gate.calls == [["a"], ["c"]]

    def test_one_that_is_stopped_when_it_was_to_lead_lets_the_next_lead(
        self, crowd: Crowd, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = crowd.comes("a")

        class Stopped(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                super().wait(timeout)
                raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(group_module, "_Member", _member_with(Stopped))
            second = crowd.comes("b")
        last = crowd.comes("c")
        crowd.gate.let()
        crowd.gate.let()
        with pytest.raises(KeyboardInterrupt):
            second.result(LONG_SECONDS)
        assert [each.result(LONG_SECONDS).message for each in (first, last)] == ["a", "c"]
        assert crowd.gate.calls == [["a"], ["c"]]


def _member_with(event: type[threading.Event]) -> Callable[..., object]:
    real = group_module._Member
    return lambda request, check, _: real(request, check, event())


class TestOnALake:
    """Threads of one process that publish for real."""

    @pytest.fixture
    def world(self) -> PublishWorld:
        return PublishWorld()

    @contextmanager
    def gathered(self, process: Process, count: int) -> Iterator[None]:
        """The first commit within the block waits until so many others wait behind it."""
        group, catalog = process.writing.publisher._group, process.catalog
        commit_all, waited = catalog.commit_all, threading.Event()

        def gathering(requests: Sequence[CommitRequest]) -> tuple[Commit | HeadwaterError, ...]:
            if not waited.is_set():
                waited.set()
                eventually(lambda: len(group._waiting) == count)
            return commit_all(requests)

        catalog.commit_all = gathering  # type: ignore[method-assign]
        yield
        catalog.commit_all = commit_all  # type: ignore[method-assign]

    def manifests(self, world: PublishWorld) -> int:
        return len(list(world.store.list("_headwater/catalog/manifest")))

    def test_many_writers_of_their_own_tables_need_two_manifests(self, world: PublishWorld) -> None:
        process = world.process()
        names = [f"t{number}" for number in range(8)]
        process.create(*names)
        wishes = [process.wish({name: 1}) for name in names]
        before = self.manifests(world)
        with self.gathered(process, 7), ThreadPoolExecutor(8) as pool:
            commits = list(pool.map(process.writing.publisher.publish, wishes))
        assert self.manifests(world) == before + 2
        other = world.process()
        log = list(other.catalog.log(other.catalog.ref("main").hash))
        assert {each.operation for each in log[:8]} == {each.operation for each in wishes}
        assert [each.operation for each in commits] == [each.operation for each in wishes]
        assert all(other.ids(name) == [0, 1] for name in names)
        assert all(other.head_is_pinned(name) for name in names)
        assert other.sidecars() == 0

    @pytest.mark.hazard("P8")
    def test_p8_who_read_what_another_of_the_batch_wrote_has_lost(self, world: PublishWorld) -> None:
        process = world.process()
        process.create("t1", "t2", "t3")
        first, writer = process.wish({"t3": 1}), process.wish({"t1": 1})
        reader = process.wish({"t2": 1}, reads=("t1",))
        with self.gathered(process, 2), ThreadPoolExecutor(3) as pool:
            futures = []
            for number, wish in enumerate((first, writer, reader)):
                futures.append(pool.submit(process.writing.publisher.publish, wish))
                if number == 0:
                    eventually(lambda: process.writing.publisher._group._is_led)
                elif number == 1:
                    eventually(lambda: len(process.writing.publisher._group._waiting) == 1)
            assert futures[1].result(LONG_SECONDS).operation == writer.operation
            with pytest.raises(ExpectedVersionMismatchError, match="t1"):
                futures[2].result(LONG_SECONDS)
        assert (process.ids("t1"), process.ids("t2"), process.ids("t3")) == ([0, 1], [0], [0, 1])
        assert process.head_is_pinned("t2")
        assert process.sidecars() == 0

    @pytest.mark.hazard("P1")
    def test_p1_a_lease_that_ends_in_the_queue_is_not_committed(self, world: PublishWorld) -> None:
        process = world.process()
        process.create("t1", "t2")
        first, late = process.wish({"t1": 1}), process.wish({"t2": 1})
        group, catalog = process.writing.publisher._group, process.catalog
        commit_all = catalog.commit_all
        calls: list[int] = []

        def slow(requests: Sequence[CommitRequest]) -> tuple[Commit | HeadwaterError, ...]:
            calls.append(len(requests))
            if len(calls) == 1:
                eventually(lambda: len(group._waiting) == 1)
                world.clock.advance(OVER)
            return commit_all(requests)

        catalog.commit_all = slow  # type: ignore[method-assign]
        with ThreadPoolExecutor(2) as pool:
            one = pool.submit(process.writing.publisher.publish, first)
            eventually(lambda: len(calls) == 1)
            two = pool.submit(process.writing.publisher.publish, late)
            assert one.result(LONG_SECONDS).actor == "ann"
            # Others may have begun to undo it, so it ends as theirs do: its heads had moved, and it is finished.
            assert two.result(LONG_SECONDS).actor == RECOVERY_ACTOR
        assert process.ids("t2") == [0, 1]
        assert process.head_is_pinned("t2")
        assert process.sidecars() == 0

    @pytest.mark.hazard("P3")
    @pytest.mark.parametrize("landed", [True, False], ids=["landed", "absent"])
    def test_p3_of_a_lost_manifest_every_writer_is_told_its_own(self, world: PublishWorld, landed: bool) -> None:
        """The store answers nothing any more: unknown, and a recoverer settles each alike."""

        class Silent(HookedStore):
            silent = False

            def put(self, path: str, *args: Any, **more: Any) -> str:
                if self.silent and path.endswith(".manifest"):
                    if landed:
                        super().put(path, *args, **more)
                    self.silent_reads = True
                    raise StorageOutcomeUnknownError("memory://", path, "no answer")
                return super().put(path, *args, **more)

            silent_reads = False

            def get(self, path: str, **more: Any) -> Any:
                if self.silent_reads and path.endswith(".manifest"):
                    raise UnavailableError("the store is away")
                return super().get(path, **more)

        store = Silent(world.store)
        process, names = world.process(store), ["t1", "t2", "t3"]
        process.create(*names)
        wishes = [process.wish({name: 1}) for name in names]
        outcomes: list[BaseException | None] = []
        store.silent = True
        with self.gathered(process, 2), ThreadPoolExecutor(3) as pool:
            futures = [pool.submit(process.writing.publisher.publish, wish) for wish in wishes]
            outcomes = [each.exception(LONG_SECONDS) for each in futures]
        for outcome, wish in zip(outcomes, wishes, strict=True):
            assert isinstance(outcome, PublishOutcomeUnknownError)
            assert outcome.operation == wish.operation
        other = world.process()
        world.clock.advance(OVER)
        for wish in wishes:
            assert other.writing.recovery.settle(wish.operation) is not None  # its heads had all moved
        assert all(other.ids(name) == [0, 1] for name in names)
        assert other.sidecars() == 0

    def test_a_busy_catalog_is_tried_again_and_then_left_to_recovery(self, world: PublishWorld) -> None:
        process = world.process()
        process.create("t1")
        catalog, tries = process.catalog, []

        def busy(requests: Sequence[CommitRequest]) -> tuple[Commit | HeadwaterError, ...]:
            tries.append(len(requests))
            raise CatalogBusyError("memory://")

        commit_all = catalog.commit_all
        wish = process.wish({"t1": 1})
        catalog.commit_all = busy  # type: ignore[method-assign]
        restored = catalog.commit
        catalog.commit = lambda request: _one(commit_all([request]))  # type: ignore[method-assign]
        done = process.writing.publisher.publish(wish)
        catalog.commit, catalog.commit_all = restored, commit_all  # type: ignore[method-assign]
        assert len(tries) == PUBLISH_RETRIES + 1
        assert (done.actor, done.operation) == (RECOVERY_ACTOR, wish.operation)  # its heads had moved: it is finished
        assert process.ids("t1") == [0, 1]
        assert process.sidecars() == 0

    @pytest.mark.parametrize("seed", range(3))
    def test_threads_that_cross_lose_nothing_and_make_nothing_up(self, seed: int) -> None:
        """Each adds to two of four tables, again when it lost; answers get lost on the way. The model is a dict."""
        store = HookedStore(PublishWorld(seed=seed).store)
        world = PublishWorld(store, seed=seed + 100)
        names = ["t0", "t1", "t2", "t3"]
        world.process().create(*names)
        processes = [world.process(), world.process()]
        done: list[tuple[str, int]] = []
        branch = processes[0].catalog.create_ref(RefKind.BRANCH, "side", processes[0].catalog.ref("main").hash)

        def work(writer: int) -> None:
            process = processes[writer % 2]
            randomness = seeded(seed * 100 + writer)
            for turn in range(3):
                number = 1 + writer * 10 + turn
                pair = [names[(writer + turn) % 4], names[(writer + turn + 1 + randomness.randbytes(1)[0] % 3) % 4]]
                if number % 7 == 0:
                    store.after("put", ".manifest", lose)
                for _ in range(200):
                    try:
                        process.append(dict.fromkeys(pair, number), branch="side" if writer == 5 else "main")
                    except ConflictError:
                        continue
                    if writer != 5:
                        done.extend((name, number) for name in pair)
                    break
                else:
                    raise AssertionError(f"writer {writer} never got a turn")

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(work, range(6)))
        reader = world.process()
        for name in names:
            assert reader.ids(name) == [0, *sorted(number for each, number in done if each == name)]
            assert reader.head_is_pinned(name)
        assert reader.sidecars() == 0
        assert reader.catalog.ref("side").incarnation == branch.incarnation
        assert sum(len(reader.ids(name, branch="side")) - 1 for name in names) == 6
        content = reader.catalog.content(reader.catalog.ref("main").hash, [TableKey.parse("t0")])
        assert isinstance(content[TableKey.parse("t0")], TableContent)


def _one(answers: tuple[Commit | HeadwaterError, ...]) -> Commit:
    [answer] = answers
    if isinstance(answer, HeadwaterError):
        raise answer
    return answer
