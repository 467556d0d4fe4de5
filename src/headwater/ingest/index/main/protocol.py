"""The main index: row id to file, row group and offset.

Promise: a row id is given once, over restarts too. A range is readable as soon as `put_main_index_entries` returned,
and survives everything once `flush_index_entries_of_file` did.

Invariants:

    1  Row ids are reserved in the database before the first of them is given, and what a restart leaves unused stays
       so. Ranges that are put back (from the footers of files, into a new database) raise the counter, too.
    2  A flush: snapshot of the buffer, commit of ranges and marker in one transaction, and only then does the snapshot
       leave the buffer. What was put meanwhile stays there.
    3  A row has one place. The same range twice changes nothing; another place for a known row is refused.
    4  A file's marker is the count and hash of its durable ranges, whichever call changed them last.

Commit points: the database transactions of `allocate`, `flush_index_entries_of_file` and `delete_main_index_range`.
What a crash after each step leaves behind:

    reserve row ids        ids that nobody has: a gap
    put in the buffer      nothing: the rows themselves were in memory, too, and are replayed
    ranges and marker      the file's ranges, whole; a second flush writes the same again
    drop from the buffer   the same

All durable ranges are also in memory, as sorted columns: some forty bytes for each row group.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headwater.database import Database, migrate, open_database
from headwater.ingest.index.errors import IndexBackendError, RangeOverlapError
from headwater.ingest.index.main import decide, rows
from headwater.ingest.index.main.decide import NONE, FlushMarker, Ranges
from headwater.ingest.model import Int64s, Locations, RowRange, Stream
from headwater.kernel.errors import CorruptError, HeadwaterError, UsageError
from headwater.kernel.failpoints import Failpoint, hit

MIGRATIONS = Path(__file__).parents[1] / "migrations"
CHUNK_ROW_IDS = 1_000_000
"""So many row ids are reserved at once: one commit for each million rows."""

STREAM_ROW_IDS = 1 << 16
"""So many of them are set aside for a stream at once."""

# So many ranges are kept as they came, until they are sorted in among the others.
_LOOSE_RANGES = 64


class MainIndex:
    """The main index of a node. Safe to share among threads: readers take a snapshot and wait for nobody's disk."""

    def __init__(self, database: Database, *, owns_database: bool = False) -> None:
        self._database = database
        self._owns_database = owns_database
        # Held for moments, around the columns in memory. Never while the disk is waited for.
        self._lock = threading.Lock()
        # Held around changes of durable ranges, so that one sees the other's.
        self._flushing = threading.Lock()
        self._allocating = threading.Lock()
        self._next = self._reserved = 0
        self._set_aside: dict[Stream, tuple[int, int]] = {}
        self._loose = NONE
        self._buffer = NONE
        with self._translated("open"):
            migrate(database, "ingest_index", MIGRATIONS)
            with database.read() as connection:
                self._durable = rows.all_ranges(connection)

    @classmethod
    def open(cls, path: Path) -> MainIndex:
        """Open the database file at `path`, or make a new one."""
        return cls(open_database(path), owns_database=True)

    def allocate(self, count: int, stream: Stream | None = None) -> int:
        """Row ids without a gap, for `count` rows; says the first. They are never given again.

        A stream's follow each other, so that its appends join: a range for each block, not one for each request.
        """
        if count < 1:
            raise UsageError(f"row ids for {count} rows", hint="an append has at least one row", count=count)
        with self._allocating:
            if stream is None:
                return self._taken(count)
            first, end = self._set_aside.get(stream, (0, 0))
            if first + count > end:  # what is left of it is given up
                many = max(count, STREAM_ROW_IDS)
                first = self._taken(many)
                end = first + many
            self._set_aside[stream] = first + count, end
            return first

    def put_main_index_entries(self, ranges: Sequence[RowRange]) -> None:
        """Rows get their places, readable at once and durable with their file's flush."""
        for each in ranges:
            _check(each)
        new = Ranges.of(ranges)
        if (new.firsts[1:] < new.ends[:-1]).any():
            raise RangeOverlapError("ranges of one call overlap", hint="each row has one place")
        with self._lock:
            unknown = [each for each in ranges if not self._is_known(each)]
            self._loose = decide.union([self._loose, new if len(unknown) == len(ranges) else Ranges.of(unknown)])
            if len(self._loose) > _LOOSE_RANGES:
                self._buffer, self._loose = decide.union([self._buffer, self._loose]), NONE
        with self._allocating:
            self._next = max(self._next, *(each.last_row_id + 1 for each in ranges), 0)
            # What a stream gets next was never put; if it is now, it was put back from elsewhere.
            for stream, (first, end) in list(self._set_aside.items()):
                if any(each.last_row_id >= first and each.first_row_id < end for each in ranges):
                    del self._set_aside[stream]

    def locate(self, row_ids: Int64s) -> Locations:
        """Where rows are; -1 in all columns where that is not known."""
        with self._lock:
            parts = [self._durable, self._buffer, self._loose]
        _, found = decide.locate(parts[0], row_ids)
        for part in parts[1:]:
            if len(part):
                is_known, here = decide.locate(part, row_ids)
                found.file_ids[is_known] = here.file_ids[is_known]
                found.row_groups[is_known] = here.row_groups[is_known]
                found.offsets[is_known] = here.offsets[is_known]
        return found

    def ranges_of_file(self, file_id: int) -> tuple[RowRange, ...]:
        """All ranges of a file, durable or not, in the order of row ids; those that go on are joined."""
        with self._lock:
            parts = [decide.of_file(part, file_id) for part in (self._durable, self._buffer, self._loose)]
        return decide.union(parts).to_row_ranges()

    def flush_index_entries_of_file(self, file_id: int) -> FlushMarker:
        """All ranges of the file are durable, with a marker that says what they are. To repeat it changes nothing."""
        with self._flushing:
            with self._lock:
                waiting = decide.union([decide.of_file(part, file_id) for part in (self._buffer, self._loose)])
            hit(Failpoint.MAIN_FLUSH_AFTER_SNAPSHOT)
            with self._translated("flush"), self._database.write(operation=f"flush file {file_id}") as connection:
                # A commit whose outcome was not heard may have left in the database what still waits.
                before = _without_all(rows.ranges_of_file(connection, file_id), waiting)
                whole = decide.union([before, waiting])
                marker = decide.marker_of(whole)
                rows.replace_file(connection, file_id, whole, marker)
                if len(whole):
                    rows.reserve(connection, int(whole.ends[-1]))
            hit(Failpoint.MAIN_FLUSH_AFTER_COMMIT)
            # Not before the commit: until then the buffer is the only place that knows them.
            with self._lock:
                self._durable = decide.union([decide.but_file(self._durable, file_id), whole])
                buffer = decide.union([self._buffer, self._loose])
                late = _without_all(decide.of_file(buffer, file_id), waiting)
                self._buffer, self._loose = decide.union([decide.but_file(buffer, file_id), late]), NONE
        return marker

    def delete_main_index_range(self, first: int, last: int) -> None:
        """Rows from `first` to `last` have no place any more, durably. To repeat it changes nothing."""
        if last < first:
            raise UsageError(f"no row ids from {first} to {last}", hint="the last is not below the first")
        with self._flushing:
            with self._translated("delete"), self._database.write() as connection:
                for file_id in rows.files_between(connection, first, last):
                    left = decide.without(rows.ranges_of_file(connection, file_id), first, last)
                    rows.replace_file(connection, file_id, left, decide.marker_of(left))
            with self._lock:
                self._durable = decide.without(self._durable, first, last)
                self._buffer = decide.without(self._buffer, first, last)
                self._loose = decide.without(self._loose, first, last)

    def check_marker(self, file_id: int) -> FlushMarker | None:
        """The marker of a file whose durable ranges are what it says, None for a file that was never flushed.

        `CorruptError`: ranges and marker differ, so that the ranges must be made again from the file's footer.
        """
        with self._translated("read"), self._database.read() as connection:
            said = rows.marker_of(connection, file_id)
            found = decide.marker_of(rows.ranges_of_file(connection, file_id))
        if found != (said or decide.marker_of(NONE)):
            raise CorruptError(
                f"the ranges of file {file_id} are not those that were flushed",
                hint="make them again from the footer of the file",
                file_id=file_id,
                expected=said and said.hash,
                actual=found.hash,
            )
        return said

    def close(self) -> None:
        """Close the database, if it is the index's own."""
        if self._owns_database:
            self._database.close()

    def _is_known(self, wanted: RowRange) -> bool:
        """Whether this very range is known; a range of which only a part is, or elsewhere, is refused."""
        first, last = wanted.first_row_id, wanted.last_row_id
        parts = (self._durable, self._buffer, self._loose)
        if not any(decide.has_any(part, first, last) for part in parts):
            return False
        found = decide.union([decide.between(part, first, last) for part in parts])
        if len(found) and found.to_row_ranges() != (wanted,):
            raise RangeOverlapError(
                f"row ids {first} to {last} already have another place, in file {found.rows[0, 2]}",
                hint="row ids come from allocate, and are used once",
                first_row_id=first,
                last_row_id=last,
                file_id=wanted.file_id,
                known_file_id=int(found.rows[0, 2]),
            )
        return len(found) > 0

    def _taken(self, count: int) -> int:
        if self._next + count > self._reserved:
            with self._translated("reserve row ids"), self._database.write() as connection:
                # What is left of the last chunk is given up.
                start = max(rows.next_row_id(connection), self._next)
                end = start + max(count, CHUNK_ROW_IDS)
                rows.reserve(connection, end)
            hit(Failpoint.MAIN_AFTER_RESERVE)
            self._next, self._reserved = start, end
        first = self._next
        self._next += count
        return first

    @contextmanager
    def _translated(self, action: str) -> Iterator[None]:
        try:
            yield
        except HeadwaterError as error:
            raise IndexBackendError(
                f"the main index failed to {action}: {error.message}",
                hint=error.hint or "see that the disk is there and has room, then send it again",
                action=action,
                cause=error.kind,
            ) from error


def _without_all(ranges: Ranges, gone: Ranges) -> Ranges:
    for first, count, *_ in gone.to_rows():
        ranges = decide.without(ranges, first, first + count - 1)
    return ranges


def _check(each: RowRange) -> None:
    if each.count < 1 or min(each.first_row_id, each.file_id, each.row_group, each.first_offset) < 0:
        raise UsageError(f"{each} is no range of rows", hint="it has at least one row, and no number is below 0")
