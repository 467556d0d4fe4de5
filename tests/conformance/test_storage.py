"""One suite that every backend of the object store port passes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import ConflictError, RefusedError, UsageError
from headwater.kernel.randomness import system_randomness
from headwater.storage.errors import (
    InvalidPathError,
    MissingCapabilityError,
    ObjectNotFoundError,
    PreconditionFailedError,
)
from headwater.storage.port import Capability, Create, ObjectStore, Overwrite, Update, require
from headwater.storage.probe import probe, race
from tests.fixtures.stores import BACKENDS, SAFE_BACKENDS

pytestmark = pytest.mark.proves("storage/file", "storage/s3")

everywhere = pytest.mark.parametrize("store", BACKENDS, indirect=True)


@everywhere
class TestObjects:
    def test_put_then_get(self, store: ObjectStore) -> None:
        etag = store.put("a/b", b"hello", Create())
        fetched = store.get("a/b")
        assert fetched.data == b"hello"
        assert fetched.meta.etag == etag
        assert fetched.meta.size_bytes == 5
        assert fetched.meta.path == "a/b"

    def test_empty_object(self, store: ObjectStore) -> None:
        store.put("empty", b"", Create())
        assert store.get("empty").data == b""
        assert store.head("empty").size_bytes == 0

    def test_large_object_is_whole(self, store: ObjectStore) -> None:
        data = bytes(range(256)) * 40_000
        store.put("large", data, Create())
        assert store.get("large").data == data

    def test_ranges(self, store: ObjectStore) -> None:
        store.put("digits", b"0123456789", Create())
        assert store.get("digits", span=(2, 5)).data == b"234"
        assert store.get("digits", span=(8, 100)).data == b"89"

    @pytest.mark.parametrize("span", [(10, 12), (5, 5), (5, 3), (-1, 2)])
    def test_bad_range_is_refused(self, store: ObjectStore, span: tuple[int, int]) -> None:
        store.put("digits", b"0123456789", Create())
        with pytest.raises(UsageError, match="digits"):
            store.get("digits", span=span)

    def test_missing_object(self, store: ObjectStore) -> None:
        for call in (store.get, store.head, lambda path: store.get(path, span=(0, 1))):
            with pytest.raises(ObjectNotFoundError) as caught:
                call("no/such")
            assert str(caught.value.fields["path"]).endswith("no/such")
        with pytest.raises(ObjectNotFoundError):
            store.get_if_changed("no/such", "etag")
        assert store.exists("no/such") is False

    def test_a_prefix_is_not_an_object(self, store: ObjectStore) -> None:
        store.put("folder/object", b"1", Create())
        assert store.exists("folder") is False
        with pytest.raises(ObjectNotFoundError):
            store.get("folder")

    def test_conditional_get(self, store: ObjectStore) -> None:
        first = store.put("x", b"1", Create())
        assert store.get_if_changed("x", first) is None
        second = store.put("x", b"2", Overwrite())
        changed = store.get_if_changed("x", first)
        assert changed is not None
        assert (changed.data, changed.meta.etag) == (b"2", second)

    def test_head_and_exists(self, store: ObjectStore) -> None:
        before = datetime.now(UTC)
        etag = store.put("x", b"123", Create())
        meta = store.head("x")
        assert (meta.path, meta.size_bytes) == ("x", 3)
        assert meta.etag in (None, etag)
        assert abs(meta.last_modified - before) < timedelta(minutes=1)
        assert store.exists("x")

    def test_delete_is_idempotent(self, store: ObjectStore) -> None:
        store.put("x", b"1", Create())
        store.delete("x")
        store.delete("x")
        assert not store.exists("x")

    def test_delete_prefix(self, store: ObjectStore) -> None:
        for path in ("p/a", "p/b/c", "pp/a", "q"):
            store.put(path, b"1", Create())
        assert store.delete_prefix("p") == 2
        assert [meta.path for meta in store.list()] == ["pp/a", "q"]
        assert store.delete_prefix("p") == 0

    @pytest.mark.parametrize("prefix", ["", "/"])
    def test_delete_of_everything_is_refused(self, store: ObjectStore, prefix: str) -> None:
        store.put("x", b"1", Create())
        with pytest.raises(InvalidPathError):
            store.delete_prefix(prefix)
        assert store.exists("x")

    def test_copy(self, store: ObjectStore) -> None:
        store.put("from", b"1", Create())
        store.put("to/here", b"old", Create())
        store.copy("from", "to/here")
        assert store.get("to/here").data == b"1"
        assert store.get("from").data == b"1"

    def test_copy_of_nothing(self, store: ObjectStore) -> None:
        with pytest.raises(ObjectNotFoundError) as caught:
            store.copy("nothing", "to")
        assert str(caught.value.fields["path"]).endswith("nothing")
        assert not store.exists("to")

    @pytest.mark.parametrize(
        "path",
        ["", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a/./b", "a\nb", "a\x00b", "a\x7f", ".hw-x", "x" * 1025],
    )
    def test_bad_paths_are_refused(self, store: ObjectStore, path: str) -> None:
        for call in (
            lambda: store.get(path),
            lambda: store.head(path),
            lambda: store.exists(path),
            lambda: store.put(path, b"", Create()),
            lambda: store.put(path, b"", Overwrite()),
            lambda: store.delete(path),
            lambda: store.copy("x", path),
        ):
            with pytest.raises((InvalidPathError, ObjectNotFoundError)) as caught:
                call()
            if not isinstance(caught.value, InvalidPathError):
                # copy may look for its source first
                assert str(caught.value.fields["path"]).endswith("x")

    @pytest.mark.parametrize(
        "path", ["with space", "ünï/çødé", "a=b/c&d", "pct%20", "100%", "plus+", "#hash", "q?x=1", "日本/語"]
    )
    def test_unusual_names_are_kept(self, store: ObjectStore, path: str) -> None:
        store.put(path, path.encode(), Create())
        assert store.get(path).data == path.encode()
        assert [meta.path for meta in store.list()] == [path]
        store.delete(path)
        assert not store.exists(path)

    def test_what_is_not_there_because_something_else_is(self, store: ObjectStore) -> None:
        """`f` is an object, so `f/x` is none; `d` is a folder, so `d` is none."""
        store.put("f", b"1", Create())
        store.put("d/x", b"1", Create())
        assert store.exists("f/x") is False
        with pytest.raises(ObjectNotFoundError):
            store.get("f/x")
        store.delete("f/x")
        store.delete("d")
        assert list(store.list("f")) == []
        assert [meta.path for meta in store.list()] == ["d/x", "f"]

    def test_an_object_may_take_the_place_of_a_folder_that_is_empty(self, store: ObjectStore) -> None:
        store.put("a/b/c", b"1", Create())
        store.delete("a/b/c")
        store.put("a", b"2", Create())
        assert store.get("a").data == b"2"
        store.put("o/x", b"1", Create())
        store.delete("o/x")
        store.put("o", b"3", Overwrite())
        assert [meta.path for meta in store.list()] == ["a", "o"]


@everywhere
class TestPrepared:
    def test_it_is_seen_when_it_is_created_and_not_before(self, store: ObjectStore) -> None:
        prepared = store.prepare("a/x", b"1")
        assert not store.exists("a/x")
        assert list(store.list()) == []
        prepared.create()
        assert store.get("a/x").data == b"1"
        prepared.settle()
        prepared.discard()
        assert [(meta.path, store.get(meta.path).data) for meta in store.list()] == [("a/x", b"1")]

    def test_of_two_the_first_that_is_created_wins(self, store: ObjectStore) -> None:
        first, second = store.prepare("a/x", b"1"), store.prepare("a/x", b"2")
        second.create()
        with pytest.raises(PreconditionFailedError):
            first.create()
        assert store.get("a/x").data == b"2"

    def test_what_is_seen_can_be_made_to_stay(self, store: ObjectStore) -> None:
        etag = store.put("a/x", b"1", Create())
        store.settle("a/x")
        assert store.get_if_changed("a/x", etag) is None
        with pytest.raises(InvalidPathError):
            store.settle("../x")

    def test_one_that_is_discarded_was_never_there(self, store: ObjectStore) -> None:
        store.prepare("a/x", b"1").discard()
        assert list(store.list()) == []
        store.put("a/x", b"2", Create())
        assert store.get("a/x").data == b"2"


@everywhere
class TestConditions:
    def test_create_only_once(self, store: ObjectStore) -> None:
        store.put("x", b"1", Create())
        with pytest.raises(PreconditionFailedError) as caught:
            store.put("x", b"2", Create())
        assert isinstance(caught.value, ConflictError)
        assert store.get("x").data == b"1"

    def test_create_again_after_delete(self, store: ObjectStore) -> None:
        store.put("x", b"1", Create())
        store.delete("x")
        store.put("x", b"2", Create())
        assert store.get("x").data == b"2"

    def test_update_needs_the_right_etag(self, store: ObjectStore) -> None:
        first = store.put("x", b"1", Create())
        second = store.put("x", b"2", Update(first))
        with pytest.raises(PreconditionFailedError):
            store.put("x", b"3", Update(first))
        assert store.get("x").data == b"2"
        store.put("x", b"4", Update(second))
        assert store.get("x").data == b"4"

    def test_update_of_nothing(self, store: ObjectStore) -> None:
        etag = store.put("x", b"1", Create())
        store.delete("x")
        with pytest.raises(PreconditionFailedError):
            store.put("x", b"2", Update(etag))
        with pytest.raises(PreconditionFailedError):
            store.put("not/even/a/folder", b"2", Update(etag))
        assert list(store.list()) == []

    def test_overwrite(self, store: ObjectStore) -> None:
        store.put("x", b"1", Overwrite())
        store.put("x", b"2", Overwrite())
        assert store.get("x").data == b"2"

    def test_conditional_delete_where_it_can(self, store: ObjectStore) -> None:
        first = store.put("x", b"1", Create())
        second = store.put("x", b"2", Overwrite())
        if Capability.CONDITIONAL_DELETE not in store.capabilities:
            with pytest.raises(MissingCapabilityError):
                store.delete("x", if_match=second)
            assert store.exists("x")
            return
        with pytest.raises(PreconditionFailedError):
            store.delete("x", if_match=first)
        assert store.exists("x")
        store.delete("x", if_match=second)
        assert not store.exists("x")
        with pytest.raises(PreconditionFailedError):
            store.delete("x", if_match=second)

    def test_tags_where_it_can(self, store: ObjectStore) -> None:
        if Capability.TAGS in store.capabilities:
            store.put("x", b"1", Create(), tags={"state": "doomed"})
            assert store.get("x").data == b"1"
        else:
            with pytest.raises(MissingCapabilityError):
                store.put("x", b"1", Create(), tags={"state": "doomed"})
            assert not store.exists("x")

    def test_probe_shows_what_is_claimed(self, store: ObjectStore) -> None:
        assert probe(store, SystemClock(), system_randomness()) == store.capabilities
        assert list(store.list()) == []

    def test_equal_content_written_twice_in_one_tick_has_one_etag_and_other_content_another(
        self, store: ObjectStore
    ) -> None:
        etags = [store.put("x", content, Overwrite()) for content in (b"1", b"2", b"1")]
        assert etags[0] == etags[2] != etags[1]


@everywhere
class TestLists:
    def test_order_and_prefix(self, store: ObjectStore) -> None:
        paths = ["a", "a-b/c", "a.b", "a/b", "a/b/c", "ab", "b/1", "b/10", "b/2"]
        for path in paths:
            if path not in ("a", "a/b"):  # a folder cannot be an object as well
                store.put(path, b"1", Create())
        listed = [meta.path for meta in store.list()]
        assert listed == sorted(path for path in paths if path not in ("a", "a/b"))
        assert [meta.path for meta in store.list("b")] == ["b/1", "b/10", "b/2"]
        assert [meta.path for meta in store.list("b/")] == ["b/1", "b/10", "b/2"]
        assert [meta.path for meta in store.list("a")] == ["a/b/c"]
        assert list(store.list("nothing/here")) == []

    def test_start_after(self, store: ObjectStore) -> None:
        for number in range(5):
            store.put(f"n/{number}", b"1", Create())
        store.put("o", b"1", Create())
        behind = [meta.path for meta in store.list("n", start_after="n/3")]
        assert behind == ["n/4"]
        assert [meta.path for meta in store.list("n", start_after="n/4")] == []
        assert [meta.path for meta in store.list("", start_after="n/4")] == ["o"]

    def test_start_after_within_folders(self, store: ObjectStore) -> None:
        for path in ("d/1/a", "d/1/b", "d/2/a", "d/3"):
            store.put(path, b"1", Create())
        assert [meta.path for meta in store.list("d", start_after="d/1/a")] == ["d/1/b", "d/2/a", "d/3"]
        assert [meta.path for meta in store.list("d", start_after="d/1/z")] == ["d/2/a", "d/3"]

    def test_sizes_and_times(self, store: ObjectStore) -> None:
        store.put("x", b"12345", Create())
        [meta] = store.list()
        assert meta.size_bytes == 5
        assert abs(meta.last_modified - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.services
@pytest.mark.parametrize("store", ["moto", "versitygw"], indirect=True)
def test_lists_go_beyond_one_page(store: ObjectStore) -> None:
    paths = [f"many/{number:05d}" for number in range(1100)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda path: store.put(path, b"", Create()), paths))
    assert [meta.path for meta in store.list("many")] == paths
    assert store.delete_prefix("many") == 1100


@pytest.mark.parametrize("store", SAFE_BACKENDS, indirect=True)
class TestRaces:
    def test_one_of_many_creators_wins(self, store: ObjectStore) -> None:
        result = race(store, SystemClock(), system_randomness(), writers=32, rounds=200)
        assert result.clean, result
        assert result.rounds == 200

    def test_one_of_many_updaters_wins(self, store: ObjectStore) -> None:
        etag = store.put("counter", b"0", Create())
        for round_number in range(1, 16):
            start = threading.Barrier(8)

            def attempt(
                writer: int, number: int = round_number, etag: str = etag, start: threading.Barrier = start
            ) -> str | None:
                start.wait()
                try:
                    return store.put("counter", f"{number}/{writer}".encode(), Update(etag))
                except PreconditionFailedError:
                    return None

            with ThreadPoolExecutor(8) as pool:
                won = [tag for tag in pool.map(attempt, range(8)) if tag is not None]
            assert len(won) == 1
            etag = won[0]
        assert store.get("counter").meta.etag == etag

    def test_readers_see_whole_objects_while_they_are_replaced(self, store: ObjectStore) -> None:
        def content(number: int) -> bytes:
            return bytes([number]) * 200_000

        store.put("x", content(0), Create())
        stop = threading.Event()

        def read() -> int:
            reads = 0
            while not stop.is_set():
                data = store.get("x").data
                assert data == content(data[0])
                reads += 1
            return reads

        with ThreadPoolExecutor(2) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            for number in range(1, 30):
                store.put("x", content(number), Overwrite())
            stop.set()
            assert all(reader.result() > 0 for reader in readers)


def test_a_store_without_what_is_needed_is_refused_by_name(open_backend: Callable[[str], ObjectStore]) -> None:
    store = open_backend("file")
    with pytest.raises(
        MissingCapabilityError, match=r"file://.* has no object-tags, which the inventory needs"
    ) as caught:
        require(store, frozenset({Capability.TAGS}), by="the inventory")
    assert isinstance(caught.value, RefusedError)
