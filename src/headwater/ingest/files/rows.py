"""Rows of the file table, read and written inside a transaction of the caller's."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from headwater.ingest.files import tables
from headwater.ingest.files.model import FileRow, FileTableError, FileType, Hull, NewFile, TablePath
from headwater.kernel.errors import CorruptError

_file = tables.files.c
_path = tables.paths.c
_state = tables.state.c
# So many ids in one statement: SQLite takes some 30,000 parameters.
_AT_ONCE = 10_000
_KNOWN = [str(each) for each in FileType]


def lock_state(connection: Connection) -> tuple[int, int]:
    """The last file id and the last path id; nobody else gives ids until the transaction ends."""
    row = connection.execute(sa.select(tables.state).with_for_update()).one_or_none()
    if row is None:
        raise CorruptError("the file table has lost its state row", hint="restore the database from a backup")
    return row.last_file_id, row.last_path_id


def put_state(connection: Connection, *, last_file_id: int, last_path_id: int) -> None:
    """Remember the ids that were given."""
    connection.execute(sa.update(tables.state).values(last_file_id=last_file_id, last_path_id=last_path_id))


def path(connection: Connection, path_id: int) -> TablePath | None:
    """A path by its id."""
    row = connection.execute(sa.select(tables.paths).where(_path.path_id == path_id)).one_or_none()
    return None if row is None else TablePath(row.path_id, row.table_id, row.uri)


def paths_of(connection: Connection, table_id: int) -> tuple[TablePath, ...]:
    """The paths of a table, the oldest first."""
    rows = connection.execute(sa.select(tables.paths).where(_path.table_id == table_id).order_by(_path.path_id))
    return tuple(TablePath(row.path_id, row.table_id, row.uri) for row in rows)


def add_path(connection: Connection, added: TablePath) -> None:
    """A new path."""
    values = {"path_id": added.path_id, "table_id": added.table_id, "uri": added.uri}
    connection.execute(sa.insert(tables.paths).values(values))


def by_type(connection: Connection, path_id: int | None, types: Collection[FileType]) -> tuple[FileRow, ...]:
    """The files of these types in a path, or in all of them. A state that nobody knows is an error, not an absence."""
    wanted = [str(each) for each in types]
    where = sa.or_(_file.type.in_(wanted), _file.type.not_in(_KNOWN))
    if path_id is not None:
        where = sa.and_(where, _file.path_id == path_id)
    found = connection.execute(sa.select(tables.files).where(where).order_by(_file.file_id))
    return tuple(as_file(row) for row in found)


def lock_files(connection: Connection, file_ids: Sequence[int]) -> list[FileRow]:
    """Those of these files that exist, locked in one order."""
    found = list[FileRow]()
    for some in _chunks(sorted(file_ids)):
        wanted = sa.select(tables.files).where(_file.file_id.in_(some)).order_by(_file.file_id)
        found += [as_file(row) for row in connection.execute(wanted.with_for_update())]
    return found


def add_files(connection: Connection, files: Sequence[NewFile]) -> None:
    """New files, whose hulls are not known yet."""
    values = [
        {
            "file_id": each.file_id,
            "name": each.name,
            "type": str(each.type),
            "num_row_group": 0,
            "path_id": each.path_id,
        }
        for each in files
    ]
    connection.execute(sa.insert(tables.files), values)


def publish(connection: Connection, file_id: int, hull: Hull, came_from: FileType) -> None:
    """Make one file REGULAR, in one update of its type and hull."""
    done = connection.execute(
        sa.update(tables.files)
        .where(_file.file_id == file_id, _file.type == str(came_from))
        .values(
            type=str(FileType.REGULAR),
            num_row_group=hull.num_row_group,
            min_row_id=hull.min_row_id,
            max_row_id=hull.max_row_id,
        )
    )
    check_count("published", done.rowcount, [file_id])


def retire(connection: Connection, file_ids: Sequence[int], cleanup_at: datetime) -> None:
    """Make REGULAR files RETIRED."""
    count = 0
    for some in _chunks(file_ids):
        regular = sa.update(tables.files).where(_file.file_id.in_(some), _file.type == str(FileType.REGULAR))
        count += connection.execute(regular.values(type=str(FileType.RETIRED), cleanup_at=cleanup_at)).rowcount
    check_count("retired", count, file_ids)


def delete(connection: Connection, file_ids: Sequence[int]) -> None:
    """Forget files."""
    count = 0
    for some in _chunks(file_ids):
        gone = sa.delete(tables.files).where(_file.file_id.in_(some), _file.type != str(FileType.REGULAR))
        count += connection.execute(gone).rowcount
    check_count("deleted", count, file_ids)


def check_count(what: str, count: int, file_ids: Sequence[int]) -> None:
    """Refuse, and so undo, a change that hit another number of files than it was asked for."""
    if count != len(file_ids):
        raise FileTableError(
            f"{count} files would have been {what}, of {len(file_ids)}",
            hint="nothing was changed; read the file table again",
            file_ids=list(file_ids),
            count=count,
        )


def as_file(row: Row[Any]) -> FileRow:
    """A row of `tables.files`; a state that is none of the four is an error."""
    try:
        known = FileType(row.type)
    except ValueError:
        raise CorruptError(
            f"file {row.file_id} is in the state {row.type!r}, which there is not",
            hint="the file table was made by another version; start with a fresh one",
            file_id=row.file_id,
            type=row.type,
        ) from None
    hull = row.num_row_group, row.path_id, row.min_row_id, row.max_row_id
    return FileRow(row.file_id, row.name, known, *hull, row.cleanup_at)


def _chunks(file_ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(file_ids), _AT_ONCE):
        yield file_ids[start : start + _AT_ONCE]
