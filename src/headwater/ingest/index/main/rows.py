"""The statements of the main index."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from headwater.ingest.index.main import tables
from headwater.ingest.index.main.decide import FlushMarker, Ranges

_range = tables.ranges.c
_marker = tables.markers.c
_NAMES = ("first_row_id", "count", "file_id", "row_group", "first_offset")


def next_row_id(connection: Connection) -> int:
    """The first row id that nobody has reserved."""
    return int(connection.execute(sa.select(tables.counter.c.next_row_id)).scalar_one())


def reserve(connection: Connection, end: int) -> None:
    """All row ids below `end` are taken."""
    counter = tables.counter
    connection.execute(sa.update(counter).where(counter.c.next_row_id < end).values(next_row_id=end))


def all_ranges(connection: Connection) -> Ranges:
    """Every durable range, in the order of row ids."""
    found = connection.execute(sa.select(*(_range[name] for name in _NAMES)).order_by(_range.first_row_id))
    return Ranges.of_rows([tuple(row) for row in found])


def ranges_of_file(connection: Connection, file_id: int) -> Ranges:
    """The durable ranges of a file, in the order of row ids."""
    wanted = sa.select(*(_range[name] for name in _NAMES)).where(_range.file_id == file_id)
    return Ranges.of_rows([tuple(row) for row in connection.execute(wanted.order_by(_range.first_row_id))])


def replace_file(connection: Connection, file_id: int, ranges: Ranges, marker: FlushMarker) -> None:
    """These are the ranges of the file, and the marker says so. No ranges: the file is forgotten."""
    connection.execute(sa.delete(tables.ranges).where(_range.file_id == file_id))
    connection.execute(sa.delete(tables.markers).where(_marker.file_id == file_id))
    if len(ranges):
        rows = [dict(zip(_NAMES, row, strict=True)) for row in ranges.to_rows()]
        connection.execute(sa.insert(tables.ranges), rows)
        values = {"range_count": marker.range_count, "row_count": marker.row_count, "hash": marker.hash}
        connection.execute(sa.insert(tables.markers).values(file_id=file_id, **values))


def marker_of(connection: Connection, file_id: int) -> FlushMarker | None:
    """What the last flush of the file said."""
    row = connection.execute(sa.select(tables.markers).where(_marker.file_id == file_id)).one_or_none()
    return None if row is None else FlushMarker(row.range_count, row.row_count, row.hash)


def files_between(connection: Connection, first: int, last: int) -> list[int]:
    """Files that have durable ranges with row ids from `first` to `last`."""
    touches = (_range.first_row_id <= last) & (_range.first_row_id + _range.count > first)
    return list(connection.execute(sa.select(_range.file_id).where(touches).distinct()).scalars())
