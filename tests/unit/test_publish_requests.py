"""What a publish asks of the store, and what it stores side by side."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import pytest

from headwater.kernel import failpoints
from headwater.kernel.clock import ManualClock
from headwater.kernel.failpoints import Action, Failpoint
from headwater.publish.errors import PublishOutcomeUnknownError
from headwater.storage.errors import PreconditionFailedError
from headwater.storage.memory import MemoryStore
from headwater.storage.port import Create, PutMode
from headwater.storage.wrapper import StoreWrapper
from headwater.tables.files import Files
from headwater.tables.model import NewFile, OutsideLakeError
from tests.unit.hooks import HookedStore
from tests.unit.publish_world import PublishWorld

LAKE = "s3://bucket/lake"
LONG_SECONDS = 10.0


class Meeting(StoreWrapper):
    """A store in which so many puts must be on their way at once before any of them goes on."""

    def __init__(self, inner: MemoryStore, count: int) -> None:
        super().__init__(inner)
        self._everybody = threading.Barrier(count)

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        self._everybody.wait(LONG_SECONDS)
        return super().put(path, data, mode, tags=tags)


def files(*names: str) -> list[NewFile]:
    return [NewFile(f"{LAKE}/{name}", name.encode()) for name in names]


class TestFiles:
    def test_they_are_stored_side_by_side(self) -> None:
        store = MemoryStore(ManualClock())
        Files({LAKE: Meeting(store, 4)}, workers=4).write(files("a", "b", "c", "d"))
        assert {meta.path: store.get(meta.path).data for meta in store.list()} == {
            name: name.encode() for name in "abcd"
        }

    @pytest.mark.parametrize("workers", [1, 3])
    def test_nothing_is_stored_when_one_would_lie_outside(self, workers: int) -> None:
        store = MemoryStore(ManualClock())
        wanted = [*files("a", "b"), NewFile("s3://elsewhere/c", b"c")]
        with pytest.raises(OutsideLakeError):
            Files({LAKE: store}, workers=workers).write(wanted)
        assert list(store.list()) == []

    @pytest.mark.parametrize("workers", [1, 3])
    def test_one_that_is_there_already_is_an_error_and_stays(self, workers: int) -> None:
        store = MemoryStore(ManualClock())
        store.put("b", b"before", Create())
        with pytest.raises(PreconditionFailedError):
            Files({LAKE: store}, workers=workers).write(files("a", "b", "c"))
        assert store.get("b").data == b"before"


class TestSidecars:
    def test_those_of_the_own_process_are_not_read_again(self) -> None:
        """Of many writers at once each looks through all sidecars."""
        world = PublishWorld()
        store = HookedStore(world.store)
        process, other = world.process(store), world.process(store)
        process.create("t1", "t2")
        wish = process.wish({"t1": 1})
        with (
            failpoints.arm(Failpoint.PUBLISH_AFTER_SIDECAR, Action.ERROR),
            pytest.raises((PublishOutcomeUnknownError, failpoints.FailpointError)),
        ):
            process.writing.publisher.publish(wish)

        def reads(sidecars_of: object) -> int:
            store.calls.clear()
            [found] = sidecars_of.writing.sidecars.pending()  # type: ignore[attr-defined]
            assert found.operation == wish.operation
            return len([path for op, path in store.calls if op == "get"])

        assert (reads(process), reads(other)) == (0, 1)
        store.delete(f"__recovery/{wish.operation}.json")  # by somebody else: what is remembered is not made up
        assert process.writing.sidecars.pending() == ()
        assert process.writing.sidecars.read(wish.operation) is None

    def test_a_publish_of_one_table(self) -> None:
        """In the steady state: each request that is added here is one that every writer waits for."""
        world = PublishWorld()
        store = HookedStore(world.store)
        process = world.process(store)
        process.create("t1")
        for number in range(1, 4):
            process.append({"t1": number})
        wish = process.wish({"t1": 9})
        with process.catalog.hold(process.catalog.ref("main").hash, holder="a transaction"):
            store.calls.clear()
            process.writing.publisher.publish(wish)
            calls = list(store.calls)
        kinds = [f"{op} {_kind(path)}" for op, path in calls]
        assert kinds == [
            "list sidecar",
            *["get manifest", "get boundary"],  # is everything as it was?
            *["put file"] * 3,
            "put sidecar",
            *["put head", "get boundary"],
            *["get manifest", "get boundary", "put object", "put object", "put manifest", "get boundary"],
            "delete sidecar",
        ]


def _kind(path: str) -> str:
    if path.startswith("__recovery"):
        return "sidecar"
    if path.endswith(".boundary"):
        return "boundary"
    if path.endswith(".manifest"):
        return "manifest"
    if "/objects/" in path:
        return "object"
    return "head" if path.endswith(".metadata.json") else "file"
