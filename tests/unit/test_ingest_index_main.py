"""The main index through its calls: row ids, places, flushes, markers, faults, threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from headwater.database import open_database
from headwater.ingest.index import IndexBackendError, MainIndex, RangeOverlapError
from headwater.ingest.index.main import protocol, rows, tables
from headwater.ingest.model import RowRange, Stream
from headwater.kernel.errors import CorruptError, UnavailableError, UsageError
from headwater.kernel.failpoints import Action, Failpoint, FailpointError, arm
from tests.unit.ingest_index_world import ids

ONE = RowRange(1, 10, 5, 0, 0)
TWO = RowRange(11, 10, 5, 0, 10)
OTHER = RowRange(21, 5, 6, 3, 100)


@pytest.fixture
def main(tmp_path: Path) -> Iterator[MainIndex]:
    opened = MainIndex.open(tmp_path / "main.db")
    yield opened
    opened.close()


def again(tmp_path: Path, main: MainIndex) -> MainIndex:
    main.close()
    return MainIndex.open(tmp_path / "main.db")


def places(main: MainIndex, *row_ids: int) -> list[tuple[int, int, int]]:
    found = main.locate(ids(*row_ids))
    return list(zip(found.file_ids.tolist(), found.row_groups.tolist(), found.offsets.tolist(), strict=True))


class TestRowIds:
    def test_they_follow_each_other(self, main: MainIndex) -> None:
        assert [main.allocate(3), main.allocate(1), main.allocate(2)] == [1, 4, 5]

    def test_a_restart_never_gives_one_again(self, tmp_path: Path, main: MainIndex) -> None:
        given = {main.allocate(2)}
        for _ in range(3):
            main = again(tmp_path, main)
            first = main.allocate(2)
            assert first > max(given) + 1
            given.add(first)
        main.close()

    def test_two_that_have_the_same_file_open(self, tmp_path: Path, main: MainIndex) -> None:
        other = MainIndex.open(tmp_path / "main.db")
        spans = [(each.allocate(400_000), 400_000) for _ in range(4) for each in (main, other)]
        assert all(first + count <= after for (first, count), (after, _) in pairwise(sorted(spans)))
        other.close()

    def test_more_than_a_chunk(self, main: MainIndex) -> None:
        first = main.allocate(protocol.CHUNK_ROW_IDS * 2 + 1)
        assert main.allocate(1) >= first + protocol.CHUNK_ROW_IDS * 2 + 1

    def test_threads_share_them(self, main: MainIndex) -> None:
        with ThreadPoolExecutor(4) as pool:
            firsts = list(pool.map(lambda _: main.allocate(7), range(200)))
        assert sorted(firsts) == list(range(1, 1401, 7))

    def test_those_of_a_stream_follow_each_other(self, main: MainIndex) -> None:
        """So that the appends of a block are one range, whatever other streams append in between."""
        one, other = Stream(7, 0), Stream(7, 1)
        for number in range(100):
            for stream, file_id in ((one, 5), (other, 6)):
                main.put_main_index_entries([RowRange(main.allocate(3, stream), 3, file_id, 0, 3 * number)])
        assert [len(main.ranges_of_file(each)) for each in (5, 6)] == [1, 1]

    def test_those_of_streams_are_given_once(self, main: MainIndex) -> None:
        streams = [Stream(7, 0), Stream(7, 1), None]
        counts = [1, 40_000, 30_000, 100_000, 7] * 3
        spans = sorted((main.allocate(count, each), count) for count in counts for each in streams)
        assert all(first + count <= after for (first, count), (after, _) in pairwise(spans))

    def test_ids_that_are_put_back_are_not_given_to_a_stream(self, main: MainIndex) -> None:
        stream = Stream(7, 0)
        first = main.allocate(1, stream)
        main.put_main_index_entries([RowRange(first + 5, 10, 5, 0, 0)])
        assert main.allocate(20, stream) >= first + 15

    def test_ids_that_are_put_back_are_not_given_either(self, tmp_path: Path, main: MainIndex) -> None:
        main.allocate(1)
        main.put_main_index_entries([RowRange(5, 10, 5, 0, 0), RowRange(3_000_000, 10, 5, 1, 0)])
        assert main.allocate(1) >= 3_000_010
        main.flush_index_entries_of_file(5)
        rebuilt = again(tmp_path, main)
        assert rebuilt.allocate(1) >= 3_000_010
        rebuilt.close()

    def test_a_new_database_knows_ids_from_what_was_flushed_into_it(self, tmp_path: Path, main: MainIndex) -> None:
        main.put_main_index_entries([RowRange(3_000_000, 10, 5, 1, 0)])
        main.flush_index_entries_of_file(5)
        rebuilt = again(tmp_path, main)
        assert rebuilt.allocate(1) == 3_000_010
        rebuilt.close()

    def test_none_are_refused(self, main: MainIndex) -> None:
        with pytest.raises(UsageError, match="0 rows"):
            main.allocate(0)

    def test_an_error_after_the_reservation_costs_a_gap(self, main: MainIndex) -> None:
        with arm(Failpoint.MAIN_AFTER_RESERVE, Action.ERROR), pytest.raises(FailpointError):
            main.allocate(1)
        assert main.allocate(1) > 1


class TestPlaces:
    def test_they_are_readable_at_once(self, main: MainIndex) -> None:
        main.put_main_index_entries([ONE, OTHER])
        assert places(main, 10, 1, 11, 22, -1, 10**9) == [
            (5, 0, 9),
            (5, 0, 0),
            (-1, -1, -1),
            (6, 3, 101),
            (-1, -1, -1),
            (-1, -1, -1),
        ]
        assert places(main) == []

    def test_many_small_ones(self, main: MainIndex) -> None:
        """More than are kept loose, of several streams that take turns."""
        expected = list[tuple[int, int, int]]()
        for number in range(300):
            main.put_main_index_entries([RowRange(1 + 2 * number, 2, number % 3, 0, 2 * (number // 3))])
            expected += [(number % 3, 0, 2 * (number // 3)), (number % 3, 0, 2 * (number // 3) + 1)]
        assert places(main, *range(1, 601)) == expected

    def test_what_goes_on_is_joined(self, main: MainIndex) -> None:
        main.put_main_index_entries([ONE])
        main.put_main_index_entries([TWO])
        assert main.ranges_of_file(5) == (RowRange(1, 20, 5, 0, 0),)

    def test_the_same_again_changes_nothing(self, main: MainIndex) -> None:
        main.put_main_index_entries([ONE])
        main.put_main_index_entries([ONE, TWO])
        main.flush_index_entries_of_file(5)
        main.put_main_index_entries([TWO])
        assert main.ranges_of_file(5) == (RowRange(1, 20, 5, 0, 0),)

    @pytest.mark.parametrize(
        "wrong",
        [RowRange(1, 10, 6, 0, 0), RowRange(1, 10, 5, 1, 0), RowRange(1, 10, 5, 0, 1), RowRange(10, 2, 5, 0, 9)],
    )
    @pytest.mark.parametrize("is_flushed", [False, True])
    def test_a_row_has_one_place(self, main: MainIndex, wrong: RowRange, is_flushed: bool) -> None:
        main.put_main_index_entries([ONE])
        if is_flushed:
            main.flush_index_entries_of_file(5)
        with pytest.raises(RangeOverlapError) as caught:
            main.put_main_index_entries([OTHER, wrong])
        assert caught.value.fields["known_file_id"] == 5
        assert main.ranges_of_file(5) == (ONE,)
        assert main.ranges_of_file(6) == ()

    def test_ranges_of_one_call_overlap(self, main: MainIndex) -> None:
        with pytest.raises(RangeOverlapError):
            main.put_main_index_entries([ONE, RowRange(10, 1, 5, 0, 9)])
        assert main.ranges_of_file(5) == ()

    @pytest.mark.parametrize("wrong", [RowRange(1, 0, 5, 0, 0), RowRange(-1, 1, 5, 0, 0), RowRange(1, 1, 5, -1, 0)])
    def test_no_range(self, main: MainIndex, wrong: RowRange) -> None:
        with pytest.raises(UsageError, match="no range of rows"):
            main.put_main_index_entries([OTHER, wrong])
        assert main.ranges_of_file(6) == ()


class TestFlush:
    def test_it_makes_a_file_durable_and_no_other(self, tmp_path: Path, main: MainIndex) -> None:
        main.put_main_index_entries([TWO, ONE, OTHER])
        marker = main.flush_index_entries_of_file(5)
        assert (marker.range_count, marker.row_count) == (1, 20)
        reopened = again(tmp_path, main)
        assert places(reopened, 20, 21) == [(5, 0, 19), (-1, -1, -1)]
        assert reopened.check_marker(5) == marker
        assert reopened.check_marker(6) is None
        reopened.close()

    def test_to_repeat_it_changes_nothing(self, main: MainIndex) -> None:
        main.put_main_index_entries([ONE])
        first = main.flush_index_entries_of_file(5)
        assert main.flush_index_entries_of_file(5) == first
        main.put_main_index_entries([TWO])
        second = main.flush_index_entries_of_file(5)
        assert (second.range_count, second.row_count) == (1, 20)
        assert main.check_marker(5) == second

    def test_a_file_without_ranges(self, main: MainIndex) -> None:
        assert main.flush_index_entries_of_file(9).row_count == 0
        assert main.check_marker(9) is None

    @pytest.mark.parametrize("point", [Failpoint.MAIN_FLUSH_AFTER_SNAPSHOT, Failpoint.MAIN_FLUSH_AFTER_COMMIT])
    @pytest.mark.hazard("I21")
    def test_the_buffer_is_kept_until_the_commit(self, main: MainIndex, point: Failpoint) -> None:
        main.put_main_index_entries([ONE])
        with arm(point, Action.ERROR), pytest.raises(FailpointError):
            main.flush_index_entries_of_file(5)
        assert places(main, 1, 10) == [(5, 0, 0), (5, 0, 9)]
        assert main.flush_index_entries_of_file(5).row_count == 10
        assert places(main, 1, 10) == [(5, 0, 0), (5, 0, 9)]

    def test_a_failing_commit_keeps_the_buffer(self, main: MainIndex, monkeypatch: pytest.MonkeyPatch) -> None:
        main.put_main_index_entries([ONE])

        def broken(*_: Any) -> None:
            raise UnavailableError("the disk is full")

        with monkeypatch.context() as patched:
            patched.setattr(rows, "replace_file", broken)
            with pytest.raises(IndexBackendError, match="failed to flush: the disk is full"):
                main.flush_index_entries_of_file(5)
        assert places(main, 1) == [(5, 0, 0)]
        assert main.check_marker(5) is None
        assert main.flush_index_entries_of_file(5).row_count == 10

    def test_what_is_put_meanwhile_stays_in_the_buffer(self, main: MainIndex, monkeypatch: pytest.MonkeyPatch) -> None:
        main.put_main_index_entries([ONE])
        plain = rows.replace_file

        def meanwhile(*arguments: Any) -> None:
            plain(*arguments)
            main.put_main_index_entries([TWO])

        with monkeypatch.context() as patched:
            patched.setattr(rows, "replace_file", meanwhile)
            assert main.flush_index_entries_of_file(5).row_count == 10
        assert places(main, 10, 11, 20) == [(5, 0, 9), (5, 0, 10), (5, 0, 19)]
        assert main.flush_index_entries_of_file(5).row_count == 20

    def test_damage_is_noticed(self, tmp_path: Path, main: MainIndex) -> None:
        main.put_main_index_entries([ONE, OTHER])
        for file_id in (5, 6):
            main.flush_index_entries_of_file(file_id)
        with open_database(tmp_path / "main.db") as database, database.write() as connection:
            connection.execute(sa.update(tables.ranges).where(tables.ranges.c.file_id == 5).values(first_offset=1))
            connection.execute(sa.delete(tables.markers).where(tables.markers.c.file_id == 6))
        for file_id in (5, 6):
            with pytest.raises(CorruptError, match=f"file {file_id}") as caught:
                main.check_marker(file_id)
            assert "footer" in str(caught.value.hint)


class TestDelete:
    @pytest.mark.parametrize("is_flushed", [False, True])
    def test_a_range_out_of_the_middle(self, tmp_path: Path, main: MainIndex, is_flushed: bool) -> None:
        main.put_main_index_entries([ONE, TWO, OTHER])
        if is_flushed:
            main.flush_index_entries_of_file(5)
        for _ in range(2):
            main.delete_main_index_range(8, 15)
        left = (RowRange(1, 7, 5, 0, 0), RowRange(16, 5, 5, 0, 15))
        assert main.ranges_of_file(5) == left
        assert places(main, 7, 8, 15, 16, 21) == [(5, 0, 6), (-1, -1, -1), (-1, -1, -1), (5, 0, 15), (6, 3, 100)]
        if is_flushed:
            reopened = again(tmp_path, main)
            assert reopened.ranges_of_file(5) == left
            assert reopened.check_marker(5) is not None
            reopened.close()

    def test_what_a_flush_left_whose_end_was_not_heard(self, tmp_path: Path, main: MainIndex) -> None:
        main.put_main_index_entries([ONE])
        with arm(Failpoint.MAIN_FLUSH_AFTER_COMMIT, Action.ERROR), pytest.raises(FailpointError):
            main.flush_index_entries_of_file(5)
        main.delete_main_index_range(1, 10)
        reopened = again(tmp_path, main)
        assert reopened.ranges_of_file(5) == ()
        reopened.close()

    def test_a_whole_file(self, main: MainIndex) -> None:
        main.put_main_index_entries([ONE])
        main.flush_index_entries_of_file(5)
        main.delete_main_index_range(1, 10)
        assert main.ranges_of_file(5) == ()
        assert main.check_marker(5) is None

    def test_a_failing_backend_deletes_nothing(self, main: MainIndex, monkeypatch: pytest.MonkeyPatch) -> None:
        main.put_main_index_entries([ONE])
        main.flush_index_entries_of_file(5)

        def broken(*_: Any) -> None:
            raise UnavailableError("the disk is gone")

        with monkeypatch.context() as patched:
            patched.setattr(rows, "replace_file", broken)
            with pytest.raises(IndexBackendError):
                main.delete_main_index_range(1, 10)
        assert main.ranges_of_file(5) == (ONE,)

    def test_backwards(self, main: MainIndex) -> None:
        with pytest.raises(UsageError, match="no row ids from 5 to 4"):
            main.delete_main_index_range(5, 4)


def test_each_call_says_when_the_backend_fails(tmp_path: Path) -> None:
    main = MainIndex.open(tmp_path / "main.db")
    main.put_main_index_entries([ONE])
    main.flush_index_entries_of_file(5)
    main.close()
    calls: list[Callable[[], object]] = [
        lambda: main.allocate(1),
        lambda: main.flush_index_entries_of_file(5),
        lambda: main.delete_main_index_range(1, 2),
        lambda: main.check_marker(5),
    ]
    for call in calls:
        with pytest.raises(IndexBackendError) as caught:
            call()
        assert caught.value.hint
    (tmp_path / "damaged.db").write_bytes(b"no database" * 1000)
    with pytest.raises(IndexBackendError, match="failed to open"):
        MainIndex.open(tmp_path / "damaged.db")


@pytest.mark.proves("ingest/index")
def test_streams_and_flushes_at_once(main: MainIndex) -> None:
    """Each stream puts, reads back and flushes its own files; nobody loses a row."""

    def stream(file_id: int) -> None:
        offset = 0
        for number in range(30):
            first = main.allocate(3)
            main.put_main_index_entries([RowRange(first, 3, file_id, 0, offset)])
            assert places(main, first, first + 2) == [(file_id, 0, offset), (file_id, 0, offset + 2)]
            offset += 3
            if number % 10 == 9:
                main.flush_index_entries_of_file(file_id)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(stream, file_id) for file_id in range(4)]:
            done.result()
    for file_id in range(4):
        marker = main.check_marker(file_id)
        assert marker is not None
        assert marker.row_count == 90
