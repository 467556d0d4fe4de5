"""The primary index through its calls: versions, order, putting back, pruning, faults, threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import lmdb
import numpy as np
import pytest

from headwater.ingest.index import (
    DuplicateKeysError,
    IndexBackendError,
    IndexMovedError,
    IndexOrderError,
    PrimaryIndex,
)
from headwater.ingest.index.primary import codec, protocol
from headwater.ingest.index.primary.model import Held
from headwater.ingest.keys import keys_of
from headwater.ingest.model import Bools, Int64s, Resolved, Stream
from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import CorruptError, UsageError
from headwater.kernel.failpoints import Action, Failpoint, FailpointError, arm
from headwater.kernel.randomness import system_randomness
from tests.unit.ingest_index_world import FILE, TABLE, World, everything, ids, named, nothing

MINE = Stream(TABLE, 0)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    opened = World.open(tmp_path)
    yield opened
    opened.close()


class TestReadingOnce:
    """What was resolved is not read again by the write, unless somebody may have written the keys meanwhile."""

    @staticmethod
    def _replaced(world: World, meanwhile: Callable[[], object]) -> tuple[list[int], int]:
        """The rows that the key had, and how often the write read it."""
        world.put(["k"], 1)
        keys = named(["k"])
        world.primary.resolve_primary(TABLE, keys, everything, MINE)
        meanwhile()
        reads = list[int]()
        with pytest.MonkeyPatch.context() as patch:
            held = protocol._held

            def noted(transaction: Any, wanted: codec.StoredKeys) -> Held:
                reads.append(1)
                return held(transaction, wanted)

            patch.setattr(protocol, "_held", noted)
            world.primary.put_primary_entries_only(TABLE, keys, 9, world.rows(1))
        return [timestamp for timestamp, _ in world.versions("k")], len(reads)

    def test_nobody_wrote(self, world: World) -> None:
        assert self._replaced(world, lambda: None) == ([9, 1], 0)

    def test_another_stream_wrote_its_own_keys(self, world: World) -> None:
        def meanwhile() -> None:
            others = named(["other"])
            world.primary.resolve_primary(TABLE, others, everything, Stream(TABLE, 1))
            world.primary.put_primary_entries_only(TABLE, others, 5, world.rows(1))

        assert self._replaced(world, meanwhile) == ([9, 1], 0)

    def test_the_same_stream_wrote(self, world: World) -> None:
        def meanwhile() -> None:
            same = named(["k"])
            world.primary.resolve_primary(TABLE, same, everything, MINE)
            world.primary.put_primary_entries_only(TABLE, same, 5, world.rows(1))

        assert self._replaced(world, meanwhile) == ([9, 5, 1], 1)

    def test_somebody_wrote_who_did_not_say_whose_keys(self, world: World) -> None:
        assert self._replaced(world, lambda: world.put(["k"], 5)) == ([9, 5, 1], 1)

    def test_a_write_that_was_undone_changes_nothing(self, world: World) -> None:
        def meanwhile() -> None:
            with arm(Failpoint.PRIMARY_BEFORE_COMMIT, Action.ERROR), pytest.raises(FailpointError):
                world.put(["k"], 5)

        assert self._replaced(world, meanwhile)[0] == [9, 1]


class TestResolving:
    def test_found_missing_tombstoned_and_orphaned(self, world: World) -> None:
        live = world.put(["live"], 1)[0]
        orphan = world.put(["orphan"], 1, file_id=71)[0]
        unplaced = world.main.allocate(1)
        world.primary.put_primary_entries_only(TABLE, named(["unplaced"]), 1, ids(unplaced))
        world.put(["gone"], 1)
        world.delete(["gone"], 2)
        names = ["unplaced", "gone", "missing", "orphan", "live"]
        resolved = world.primary.resolve_primary(TABLE, named(names), lambda files: files == FILE)
        assert resolved.is_found.tolist() == [False, False, False, False, True]
        assert resolved.row_ids.tolist() == [unplaced, -1, -1, orphan, live]
        assert resolved.timestamps.tolist() == [1, 2, -1, 1, 1]
        assert resolved.locations.file_ids.tolist() == [-1, -1, -1, 71, FILE]
        assert resolved.locations.offsets.tolist()[4] == live

    def test_the_files_are_asked_for_once_each(self, world: World) -> None:
        world.put([f"k{number}" for number in range(50)], 1)
        asked = list[list[int]]()

        def visible(files: Int64s) -> Bools:
            asked.append(files.tolist())
            return everything(files)

        world.primary.resolve_primary(TABLE, named([f"k{number}" for number in range(50)]), visible)
        assert asked == [[FILE]]

    def test_no_file_is_visible(self, world: World) -> None:
        world.put(["a"], 1)
        assert not world.primary.resolve_primary(TABLE, named(["a"]), nothing).is_found.any()

    def test_no_keys(self, world: World) -> None:
        assert len(world.resolve([]).row_ids) == 0
        world.primary.put_primary_entries_only(TABLE, named([]), 1, ids())
        world.primary.restore_primary_entries(TABLE, named([]), world.resolve([]), 1)
        assert len(world.primary.versions_of(TABLE, named([])).places) == 0

    def test_tables_are_apart(self, world: World) -> None:
        row = world.put(["a"], 1)[0]
        other = world.rows(1)
        world.primary.put_primary_entries_only(TABLE + 1, named(["a"]), 1, other)
        assert world.resolve(["a"]).row_ids.tolist() == [row]
        assert world.primary.resolve_primary(TABLE + 1, named(["a"]), everything).row_ids.tolist() == other.tolist()

    def test_keys_of_any_length_are_told_apart(self, world: World) -> None:
        """A long key is stored as its digest, and a short one may look like that digest."""
        long = b"x" * 129
        digest = codec.stored(TABLE, keys_of([long])).keys[0][4:]
        keys = [b"", b"x" * 128, long, b"x" * 130, b"x" * 2**20, digest]
        rows = world.rows(len(keys))
        world.primary.put_primary_entries_only(TABLE, keys_of(keys), 1, rows)
        assert world.primary.resolve_primary(TABLE, keys_of(keys), everything).row_ids.tolist() == rows.tolist()
        assert world.primary.versions(TABLE, b"x" * 2**20)[0].row_id == rows[4]


class TestVersions:
    def test_what_is_replaced_becomes_history(self, world: World) -> None:
        first = world.put(["a"], 1)[0]
        second = world.put(["a"], 2)[0]
        world.delete(["a"], 3)
        third = world.put(["a"], 3)[0]
        assert world.versions("a") == [(3, third), (3, None), (2, second), (1, first)]

    @pytest.mark.hazard("I1")
    def test_i1_a_row_that_was_replaced_within_its_timestamp_is_kept(self, world: World) -> None:
        """Its deletion may be lost with the memory, and its file may not: replay must find it."""
        first, second = world.put(["a"], 5)[0], world.put(["a"], 5)[0]
        assert world.versions("a") == [(5, second), (5, first)]

    @pytest.mark.hazard("I1")
    def test_i1_versions_lie_beneath_a_tombstone(self, world: World) -> None:
        row = world.put(["a"], 1)[0]
        world.delete(["a"], 2)
        assert not world.resolve(["a"]).is_found.any()
        assert world.versions("a") == [(2, None), (1, row)]

    def test_the_same_call_twice_changes_nothing(self, world: World) -> None:
        rows = world.put(["a", "b"], 1)
        world.primary.put_primary_entries_only(TABLE, named(["a", "b"]), 1, rows)
        assert world.versions("a") == [(1, rows[0])]
        resolved = world.resolve(["a", "b"])
        for _ in range(2):
            world.primary.tombstone_primary_resolved(TABLE, named(["a", "b"]), 2, resolved)
        assert world.versions("b") == [(2, None), (1, rows[1])]
        new = world.rows(1)
        seen = world.resolve(["a"])
        for _ in range(2):
            world.primary.update_primary_resolved(TABLE, named(["a"]), 3, seen, new)
        assert world.versions("a") == [(3, new[0]), (2, None), (1, rows[0])]

    def test_a_missing_key_gets_no_tombstone(self, world: World) -> None:
        world.delete(["a"], 1)
        assert world.versions("a") == []

    def test_of_many_keys_at_once(self, world: World) -> None:
        """More than a chunk of history holds, and chains of different lengths."""
        names = [f"k{number:04}" for number in range(300)]
        first = world.put(names, 1)
        second = world.put(names[::2], 2)
        found = world.primary.versions_of(TABLE, named(names))
        expected = list[tuple[int, int, int]]()
        for place in range(300):
            if place % 2 == 0:
                expected.append((place, 2, int(second[place // 2])))
            expected.append((place, 1, int(first[place])))
        columns = (found.places.tolist(), found.timestamps.tolist(), found.row_ids.tolist())
        assert list(zip(*columns, strict=True)) == expected

    def test_they_survive_a_restart(self, world: World) -> None:
        rows = world.put(["a"], 1)
        world.main.flush_index_entries_of_file(FILE)
        incarnation = world.primary.incarnation
        again = world.reopened()
        assert again.versions("a") == [(1, rows[0])]
        assert again.resolve(["a"]).is_found.all()
        assert again.primary.incarnation == incarnation
        again.close()

    @pytest.mark.hazard("I17")
    def test_i17_a_new_index_has_another_incarnation(self, world: World, tmp_path: Path) -> None:
        other = World.open(tmp_path / "other")
        assert other.primary.incarnation != world.primary.incarnation
        other.close()


class TestRefusals:
    def test_time_never_goes_back_and_nothing_is_written(self, world: World) -> None:
        world.put(["b"], 5)
        before = world.versions("b")
        with pytest.raises(IndexOrderError) as caught:
            world.put(["a", "b"], 4)
        assert (caught.value.fields["place"], caught.value.fields["newest"]) == (1, 5)
        assert (world.versions("a"), world.versions("b")) == ([], before)
        with pytest.raises(IndexOrderError):
            world.delete(["b"], 4)

    def test_a_late_key_at_the_end_of_a_large_batch_refuses_all_of_it(self, world: World) -> None:
        """Keys are written some at a time, in one transaction."""
        names = [f"{number:05}" for number in range(2_500)]
        world.put(names[-1:], 5)
        with pytest.raises(IndexOrderError) as caught:
            world.put(list(reversed(names)), 4)
        assert caught.value.fields["place"] == 0
        assert world.versions(names[0]) == []
        assert len(world.put(names, 5)) == 2_500
        assert set(world.resolve(names).timestamps.tolist()) == {5}

    def test_what_moved_since_it_was_resolved(self, world: World) -> None:
        world.put(["a"], 1)
        seen = world.resolve(["a"])
        world.put(["a"], 2)
        with pytest.raises(IndexMovedError):
            world.primary.update_primary_resolved(TABLE, named(["a"]), 3, seen, world.rows(1))
        with pytest.raises(IndexMovedError):
            world.primary.tombstone_primary_resolved(TABLE, named(["a"]), 3, seen)
        assert len(world.versions("a")) == 2

    def test_a_key_twice(self, world: World) -> None:
        calls: list[Callable[[], object]] = [
            lambda: world.resolve(["a", "b", "a"]),
            lambda: world.primary.put_primary_entries_only(TABLE, named(["a", "b", "a"]), 1, ids(1, 2, 3)),
        ]
        for call in calls:
            with pytest.raises(DuplicateKeysError) as caught:
                call()
            assert caught.value.fields["places"] == [0, 2]
        assert world.versions("b") == []

    @pytest.mark.parametrize(
        ("timestamp", "rows", "says"), [(0, [1], "no timestamp"), (1, [1, 2], "2 row ids"), (1, [-1], "below 0")]
    )
    def test_wrong_input(self, world: World, timestamp: int, rows: list[int], says: str) -> None:
        with pytest.raises(UsageError, match=says):
            world.primary.put_primary_entries_only(TABLE, named(["a"]), timestamp, ids(*rows))

    def test_resolved_of_other_keys(self, world: World) -> None:
        with pytest.raises(UsageError, match="2 keys and 1 resolved"):
            world.primary.tombstone_primary_resolved(TABLE, named(["a", "b"]), 1, world.resolve(["a"]))

    @pytest.mark.parametrize("table", [-1, 2**31])
    def test_no_such_table(self, world: World, table: int) -> None:
        with pytest.raises(UsageError, match="not a table's number"):
            world.primary.resolve_primary(table, named(["a"]), everything)

    def test_a_newer_format(self, tmp_path: Path) -> None:
        world = World.open(tmp_path)
        with world.primary._environment.writing() as transaction:
            transaction.put(b"format", b"2", db=world.primary._environment.about)
        world.primary.close()
        with pytest.raises(CorruptError, match="format 2"):
            PrimaryIndex.open(
                tmp_path / "primary", world.main, clock=SystemClock(), randomness=system_randomness(), map_bytes=2**28
            )
        world.main.close()

    def test_a_closed_index(self, tmp_path: Path) -> None:
        world = World.open(tmp_path)
        world.close()
        world.primary.close()
        with pytest.raises(UsageError, match="is closed"):
            world.primary.versions(TABLE, b"a")


class TestPuttingBack:
    def test_what_a_timestamp_did_to_each_key(self, world: World) -> None:
        world.put(["kept", "deleted", "replaced", "updated"], 1)
        names = ["kept", "deleted", "replaced", "updated", "new", "missing"]
        seen, before = world.resolve(names), {name: world.versions(name) for name in names}
        world.delete(["deleted", "replaced"], 2)
        world.put(["replaced", "updated", "new"], 2)
        world.delete(["new"], 2)
        for _ in range(2):
            world.primary.restore_primary_entries(TABLE, named(names), seen, 2)
            assert {name: world.versions(name) for name in names} == before

    def test_to_what_an_earlier_part_of_the_timestamp_left(self, world: World) -> None:
        world.put(["a"], 1)
        world.delete(["a"], 2)
        seen, before = world.resolve(["a"]), world.versions("a")
        world.put(["a"], 2)
        world.primary.restore_primary_entries(TABLE, named(["a"]), seen, 2)
        assert world.versions("a") == before

    def test_a_later_timestamp_is_not_taken_back(self, world: World) -> None:
        world.put(["a", "b"], 1)
        seen = world.resolve(["a", "b"])
        world.delete(["a"], 2)
        world.put(["b"], 3)
        with pytest.raises(IndexMovedError):
            world.primary.restore_primary_entries(TABLE, named(["a", "b"]), seen, 2)
        assert world.versions("a")[0] == (2, None)

    def test_afterwards_the_key_goes_on(self, world: World) -> None:
        first = world.put(["a"], 1)[0]
        seen = world.resolve(["a"])
        world.put(["a"], 2)
        world.primary.restore_primary_entries(TABLE, named(["a"]), seen, 2)
        second = world.put(["a"], 2)[0]
        assert world.versions("a") == [(2, second), (1, first)]


class TestPruning:
    @pytest.mark.hazard("I1")
    def test_i1_what_was_replaced_at_or_after_the_start_is_kept(self, world: World) -> None:
        rows = [int(world.put(["a"], timestamp)[0]) for timestamp in (1, 2, 3, 4)]
        world.primary.prune(TABLE, 3)
        assert world.versions("a") == [(4, rows[3]), (3, rows[2]), (2, rows[1])]
        world.primary.prune(TABLE, 5)
        assert world.versions("a") == [(4, rows[3])]

    def test_keys_that_were_deleted_before_it_are_forgotten(self, world: World) -> None:
        for name in ("gone", "later", "again", "back"):
            world.put([name], 1)
        world.delete(["gone", "again", "back"], 2)
        world.put(["again", "back"], 3)
        world.delete(["again", "later"], 4)
        world.primary.prune(TABLE, 4)
        assert world.versions("gone") == []
        assert [timestamp for timestamp, _ in world.versions("later")] == [4, 1]
        assert [timestamp for timestamp, _ in world.versions("again")] == [4, 3]
        assert [timestamp for timestamp, _ in world.versions("back")] == [3]

    @pytest.mark.hazard("I20")
    def test_a_pruned_number_never_means_another_key(self, world: World) -> None:
        rows = [int(world.put(["a"], timestamp)[0]) for timestamp in (1, 2)]
        world.primary.prune(TABLE, 9)
        world.put(["b"], 3)
        world.put(["b"], 4)
        assert world.versions("a") == [(2, rows[1])]
        again = world.reopened()
        again.put(["b"], 5)
        assert again.versions("a") == [(2, rows[1])]
        again.close()

    def test_other_tables_keep_theirs(self, world: World) -> None:
        for timestamp in (1, 2):
            world.primary.put_primary_entries_only(TABLE + 1, named(["a"]), timestamp, world.rows(1))
        world.primary.prune(TABLE, 9)
        assert len(world.primary.versions(TABLE + 1, b"a")) == 2
        assert world.primary.prune(TABLE + 1, 9) == 1

    def test_it_is_done_in_parts(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("headwater.ingest.index.primary.pruning._PRUNED_TOGETHER", 2)
        for timestamp in range(1, 8):
            world.put(["a"], timestamp)
        assert world.primary.prune(TABLE, 9) == 6
        assert len(world.versions("a")) == 1


class Faulty:
    """LMDB's transactions, of which one call fails."""

    def __init__(self, inner: Any, fails: Callable[[str], bool]) -> None:
        self._inner, self._fails = inner, fails

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def call(*arguments: Any, **named: Any) -> Any:
            if self._fails(name):
                raise lmdb.Error(f"{name} failed")
            made = value(*arguments, **named)
            return Faulty(made, self._fails) if name in ("begin", "cursor") else made

        return call

    def __enter__(self) -> Self:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None and self._fails("commit"):
            self._inner.abort()
            raise lmdb.Error("commit failed")
        self._inner.__exit__(*error)


def actions(world: World, seen_before: Resolved) -> dict[str, Callable[[], object]]:
    keys = named(["a", "b", "c"])
    seen = world.primary.resolve_primary(TABLE, keys, everything)
    rows = world.rows(3)
    primary = world.primary
    return {
        "put": lambda: primary.put_primary_entries_only(TABLE, keys, 3, rows),
        "tombstone": lambda: primary.tombstone_primary_resolved(TABLE, keys, 3, seen),
        "update": lambda: primary.update_primary_resolved(TABLE, keys, 3, seen, rows),
        "restore": lambda: primary.restore_primary_entries(TABLE, keys, seen_before, 2),
        "resolve": lambda: primary.resolve_primary(TABLE, keys, everything),
        "versions": lambda: primary.versions(TABLE, b"a"),
        "flush": primary.flush,
    }


class TestFaults:
    @pytest.mark.parametrize("action", ["put", "tombstone", "update", "restore", "resolve", "versions", "flush"])
    @pytest.mark.proves("ingest/index")
    def test_each_call_of_the_backend_may_fail(self, world: World, action: str) -> None:
        """Whichever fails: BACKEND_ERROR, nothing landed, and the same call then succeeds."""
        world.put(["a", "b"], 1)
        seen_before = world.resolve(["a", "b", "c"])
        world.delete(["b"], 2)
        world.put(["a", "c"], 2)
        perform = actions(world, seen_before)[action]
        before = {name: world.versions(name) for name in "abc"}
        environment = world.primary._environment
        plain, failures = environment._lmdb, 0
        while True:
            count = iter(range(10**6))

            def fails(_name: str, count: Iterator[int] = count, number: int = failures) -> bool:
                return next(count) == number

            environment._lmdb = Faulty(plain, fails)  # type: ignore[assignment]
            try:
                perform()
                break
            except IndexBackendError:
                failures += 1
            finally:
                environment._lmdb = plain
            assert {name: world.versions(name) for name in "abc"} == before
        assert failures >= (1 if action == "flush" else 3)
        if action in ("put", "tombstone", "update", "restore"):
            assert {name: world.versions(name) for name in "abc"} != before

    def test_a_full_index(self, tmp_path: Path) -> None:
        world = World.open(tmp_path, map_bytes=2**20)
        world.put(["a"], 1)
        with pytest.raises(IndexBackendError, match="failed to write") as caught:
            world.put([f"{number:0100}" for number in range(9_000)], 2)
        assert "spread its virtual nodes" in str(caught.value.hint)
        assert len(world.versions("a")) == 1
        world.close()

    def test_a_full_disk(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        free = SimpleNamespace(f_bavail=5_000, f_frsize=4_096)
        monkeypatch.setattr(os, "statvfs", lambda _: free)
        with pytest.raises(IndexBackendError, match="bytes are free") as caught:
            world.primary.refuse_full(2_000)
        assert "room" in str(caught.value.hint)
        world.primary.refuse_full(1)

    def test_an_index_that_is_nearly_full(self, tmp_path: Path) -> None:
        world = World.open(tmp_path, map_bytes=2**25)
        world.primary.refuse_full(100)
        with pytest.raises(IndexBackendError, match="bytes are left") as caught:
            world.primary.refuse_full(2_000)
        assert "spread its virtual nodes" in str(caught.value.hint)
        world.put([f"{number:0100}" for number in range(150_000)], 2)
        with pytest.raises(IndexBackendError, match="bytes are left"):
            world.primary.refuse_full(100)
        world.close()

    def test_an_error_before_the_commit_leaves_nothing(self, world: World) -> None:
        with arm(Failpoint.PRIMARY_BEFORE_COMMIT, Action.ERROR), pytest.raises(FailpointError):
            world.put(["a"], 1)
        assert world.versions("a") == []
        assert len(world.put(["a"], 1)) == 1

    def test_a_folder_that_cannot_be(self, tmp_path: Path) -> None:
        (tmp_path / "primary").write_text("a file")
        with pytest.raises(IndexBackendError, match="failed to open"):
            World.open(tmp_path)


class TestThreads:
    def test_readers_see_whole_batches_and_writers_wait_for_each_other(self, world: World) -> None:
        streams, names = 3, [f"k{number:03}" for number in range(200)]
        started, torn = threading.Barrier(streams + 1), list[object]()

        def write(stream: int) -> None:
            started.wait()
            for timestamp in range(1, 16):
                mine = [f"{stream}{name}" for name in names]
                world.put(mine, timestamp)

        def read() -> None:
            started.wait()
            for _ in range(40):
                for stream in range(streams):
                    seen = world.resolve([f"{stream}{name}" for name in names]).timestamps
                    if len(np.unique(seen)) != 1:
                        torn.append(seen)

        with ThreadPoolExecutor(streams + 1) as pool:
            work = [pool.submit(write, stream) for stream in range(streams)] + [pool.submit(read)]
            for each in work:
                each.result()
        assert torn == []
        for stream in range(streams):
            assert [timestamp for timestamp, _ in world.versions(f"{stream}k007")] == list(range(15, 0, -1))


class TestGolden:
    def test_the_bytes_of_each_tree(self, world: World) -> None:
        """Every later version must still read these."""
        world.put(["a"], 1)
        world.put(["a"], 0x0203)
        world.delete(["a"], 0x0304)
        environment = world.primary._environment

        def tree(name: str) -> dict[bytes, bytes]:
            with environment.reading() as transaction:
                return dict(transaction.cursor(getattr(environment, name)))

        def record(*numbers: int) -> bytes:
            return b"".join(number.to_bytes(8, "little", signed=True) for number in numbers)

        table = b"\0\0\0\7"
        number = [count.to_bytes(8, "big") for count in range(2)]
        assert tree("current") == {table + b"a": record(0x0304, -1, 80)}
        assert tree("history") == {
            table + number[0]: record(0x0203) + record(1, 1, -1),
            table + number[1]: record(0x0304) + record(0x0203, 2, 0),
        }
        deleted = table + (0x0304).to_bytes(8, "big") + number[1]
        assert tree("tombstones") == {deleted: b"\1\0\0\0" + b"\5" + table + b"a"}
        about = tree("about")
        assert set(about) == {b"format", b"incarnation", b"next"}
        assert (about[b"format"], about[b"next"]) == (b"1", b"2")
        assert about[b"incarnation"].decode() == world.primary.incarnation
