"""The file table: which files a node has, and in which of four states.

Promise: a change happens whole or not at all, and once it returned it survives a crash. A change that is not exactly
what was asked for raises and leaves everything as it was; to repeat a publish, a retirement or a swap whose answer was
lost changes nothing.

Invariants:

    1  A row is locked before it is judged, and judged before it is changed; several are locked in the order of
       their ids. The update says again what it expects, and its count is checked.
    2  `cleanup_at` is set exactly on RETIRED files. The model refuses anything else, and so does the database.
    3  A file that queries may see is never forgotten: REGULAR becomes RETIRED first. The database refuses every way
       that `FileType` does not draw, too.
    4  A state that is none of the four is an error to whoever lists files, never an absence.
    5  An id is given once, whatever has been deleted since.

Commit point: the transaction of each call. What a crash after each step leaves behind:

    reserve_ids          ids that nobody uses
    add_files            a temporary file without bytes, or with some: due by the time in its name, then deleted
    publish_regular      a REGULAR file that the registry does not know: recovery retires it or takes it in
    atomic_swap_files    the new file REGULAR, the old ones RETIRED
    retire               files whose bytes wait for `cleanup_at`
    delete_files         nothing

Queries, planners, caches and compaction list files by `get_regular_files` alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from sqlalchemy.engine import Connection

from headwater.database import Database, Isolation, migrate
from headwater.ingest.files import decide, rows
from headwater.ingest.files.decide import Verdict
from headwater.ingest.files.model import (
    TEMPORARY,
    FileRow,
    FileTableError,
    FileType,
    Hull,
    NewFile,
    Replacement,
    TablePath,
)
from headwater.kernel.errors import UsageError
from headwater.kernel.logs import Log

MIGRATIONS = Path(__file__).parent / "migrations"

log = Log("ingest.files")


class FileTable:
    """The file table on an open database, whose tables it brings up to date first. Safe to share among threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        migrate(database, "ingest_files", MIGRATIONS)

    def add_path(self, table_id: int, uri: str) -> TablePath:
        """The path of a table's folder, made if it is new."""
        if not uri or "\0" in uri:
            raise UsageError(f"{uri!r} is no path", hint="a URI or a folder", uri=uri)
        with self._writing(f"add path {uri}") as connection:
            last_file_id, last_path_id = rows.lock_state(connection)
            for known in rows.paths_of(connection, table_id):
                if known.uri == uri:
                    return known
            added = TablePath(last_path_id + 1, table_id, uri)
            rows.add_path(connection, added)
            rows.put_state(connection, last_file_id=last_file_id, last_path_id=added.path_id)
        return added

    def path(self, path_id: int) -> TablePath:
        """A path by its id; an unknown one is refused."""
        with self._database.read() as connection:
            found = rows.path(connection, path_id)
        if found is None:
            raise FileTableError(f"there is no path {path_id}", hint="add_path makes one", path_id=path_id)
        return found

    def paths_of(self, table_id: int) -> tuple[TablePath, ...]:
        """The paths of a table, the oldest first."""
        with self._database.read() as connection:
            return rows.paths_of(connection, table_id)

    def reserve_ids(self, count: int) -> range:
        """File ids that nobody has had and nobody else will get."""
        if count < 1:
            raise UsageError(f"{count} ids cannot be reserved", hint="1 or more", count=count)
        with self._writing(f"reserve {count} file ids") as connection:
            last_file_id, last_path_id = rows.lock_state(connection)
            rows.put_state(connection, last_file_id=last_file_id + count, last_path_id=last_path_id)
        return range(last_file_id + 1, last_file_id + count + 1)

    def add_files(self, files: Sequence[NewFile]) -> None:
        """Add temporary files, before their bytes are written. Again with the same changes nothing."""
        decide.check_ids([each.file_id for each in files])
        decide.check_new(files)
        with self._writing(f"add {len(files)} files") as connection:
            last_file_id, last_path_id = rows.lock_state(connection)
            for path_id in sorted({each.path_id for each in files}):
                if rows.path(connection, path_id) is None:
                    raise FileTableError(f"there is no path {path_id}", hint="add_path makes one", path_id=path_id)
            found = rows.lock_files(connection, [each.file_id for each in files])
            if decide.add_verdict(found, files) is Verdict.DONE_ALREADY:
                return
            rows.add_files(connection, files)
            highest = max(last_file_id, *(each.file_id for each in files))
            rows.put_state(connection, last_file_id=highest, last_path_id=last_path_id)

    def publish_regular(self, file_id: int, num_row_group: int, min_row_id: int, max_row_id: int) -> None:
        """TEMPORARY_INGEST to REGULAR with its hull, in one update; done already just so is well, too."""
        hull = Hull(num_row_group, min_row_id, max_row_id)
        came_from = FileType.TEMPORARY_INGEST
        with self._writing(f"publish file {file_id}") as connection:
            found = rows.lock_files(connection, [file_id])
            if decide.publish_verdict(found[0] if found else None, file_id, hull, came_from) is Verdict.CHANGE:
                rows.publish(connection, file_id, hull, came_from)

    def retire(self, file_ids: Sequence[int], cleanup_at: datetime) -> None:
        """REGULAR to RETIRED, all of them; their bytes may go at `cleanup_at`."""
        decide.check_ids(file_ids)
        decide.check_moment(cleanup_at)
        with self._writing(f"retire {len(file_ids)} files") as connection:
            found = rows.lock_files(connection, file_ids)
            if decide.retire_verdict(found, file_ids, cleanup_at) is Verdict.CHANGE:
                rows.retire(connection, file_ids, cleanup_at)

    def atomic_swap_files(self, new: Replacement, olds: Sequence[int], cleanup_at: datetime) -> None:
        """One TEMPORARY_GC file becomes REGULAR in the moment in which the ones that it replaces become RETIRED."""
        decide.check_ids(olds)
        decide.check_ids([new.file_id, *olds])
        decide.check_moment(cleanup_at)
        came_from = FileType.TEMPORARY_GC
        with self._writing(f"swap in file {new.file_id}") as connection:
            found = rows.lock_files(connection, [new.file_id, *olds])
            known = {each: rows.path(connection, each) for each in {row.path_id for row in found}}
            decide.check_one_table(found, {each: path.table_id for each, path in known.items() if path is not None})
            row = next((each for each in found if each.file_id == new.file_id), None)
            publish = decide.publish_verdict(row, new.file_id, new.hull, came_from)
            retire = decide.retire_verdict(found, olds, cleanup_at)
            if decide.swap_verdict(publish, retire, new.file_id, olds) is Verdict.CHANGE:
                rows.publish(connection, new.file_id, new.hull, came_from)
                rows.retire(connection, olds, cleanup_at)

    def delete_files(self, file_ids: Sequence[int]) -> None:
        """Forget temporary and retired files, whose bytes are gone; a REGULAR one is refused."""
        decide.check_ids(file_ids)
        with self._writing(f"delete {len(file_ids)} files") as connection:
            decide.check_delete(rows.lock_files(connection, file_ids), file_ids)
            rows.delete(connection, file_ids)

    def get_files_by_type(self, path_id: int | None, types: Collection[FileType]) -> tuple[FileRow, ...]:
        """The files of these types, by id, in one path or in all: for sweepers, recovery and people."""
        wanted = decide.checked_types(types)
        with self._database.read() as connection:
            return rows.by_type(connection, path_id, wanted)

    def get_regular_files(self, path_id: int) -> tuple[FileRow, ...]:
        """The files that queries may see: the one listing for query, planner, cache and compaction."""
        return self.get_files_by_type(path_id, (FileType.REGULAR,))

    def list_temporary_files_due(self, ttl_seconds: float, now: datetime) -> tuple[FileRow, ...]:
        """Temporary files that are at least so old by the time in their names; other names are warned about."""
        found = self.get_files_by_type(None, TEMPORARY)
        due, unreadable = decide.temporary_due(found, ttl_seconds, now)
        for row in unreadable:
            log.warning("a temporary file's name does not say when it was made", file_id=row.file_id, name=row.name)
        return due

    def list_retired_files_due(self, now: datetime) -> tuple[FileRow, ...]:
        """Retired files whose `cleanup_at` has come."""
        return decide.retired_due(self.get_files_by_type(None, (FileType.RETIRED,)), now)

    @contextmanager
    def _writing(self, operation: str) -> Iterator[Connection]:
        with self._database.write(operation=operation, isolation=Isolation.OWN_LOCKS) as connection:
            yield connection
