"""What becomes of a file when a change is asked for: pure.

    asked for    the file is                         then
    add          not there, and temporary            change
    add          there, just so                      done already
    publish      TEMPORARY_INGEST                    change
    publish      REGULAR, with the same hull         done already: an answer was lost
    swap in      TEMPORARY_GC                        change
    swap in      REGULAR, with the same hull         done already
    retire       REGULAR                             change
    retire       RETIRED, with the same cleanup_at   done already
    delete       TEMPORARY_*, RETIRED                change
    anything     anything else, or no such file      refused

A change of several files happens to all of them, or is done already for all of them; otherwise it is refused whole.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from headwater.ingest.files.model import TEMPORARY, FileRow, FileTableError, FileType, Hull, NewFile
from headwater.ingest.files.names import SHAPE, parse_name
from headwater.kernel.errors import UsageError


class Verdict(enum.Enum):
    """Whether there is something to do."""

    CHANGE = "change"
    DONE_ALREADY = "done already"


def check_new(files: Sequence[NewFile]) -> None:
    """Refuse files that cannot begin to be."""
    for file in files:
        if file.type not in TEMPORARY:
            raise FileTableError(
                f"file {file.file_id} cannot begin as {file.type}",
                hint="a file begins as temporary, and is published when its bytes are there",
                file_id=file.file_id,
                type=str(file.type),
            )
        if file.file_id < 1 or not file.name or "/" in file.name or "\0" in file.name:
            raise UsageError(
                f"file {file.file_id} cannot be named {file.name!r}", hint=SHAPE, file_id=file.file_id, name=file.name
            )


def checked_types(types: Collection[FileType]) -> frozenset[FileType]:
    """These types; a word that is none of them is refused."""
    try:
        return frozenset(FileType(each) for each in types)
    except ValueError as error:
        raise UsageError(f"{error}", hint=", ".join(FileType)) from None


def add_verdict(found: Sequence[FileRow], files: Sequence[NewFile]) -> Verdict:
    """Whether files are added."""
    if not found:
        return Verdict.CHANGE
    there = {NewFile(row.file_id, row.name, row.path_id, row.type) for row in found}
    if there == set(files):
        return Verdict.DONE_ALREADY
    raise FileTableError(
        f"file {found[0].file_id} is in the file table already, as {found[0].type} {found[0].name}",
        hint="reserve_ids gives ids that are free",
        file_id=found[0].file_id,
        type=str(found[0].type),
    )


def publish_verdict(found: FileRow | None, file_id: int, hull: Hull, came_from: FileType) -> Verdict:
    """Whether a file becomes REGULAR; `came_from` is what its writer left it as."""
    if found is not None and found.type is came_from:
        return Verdict.CHANGE
    if found is not None and found.type is FileType.REGULAR and found.hull == hull:
        return Verdict.DONE_ALREADY
    raise _refused("published", found, file_id, f"it must be {came_from}, or published just so")


def retire_verdict(found: Sequence[FileRow], file_ids: Sequence[int], cleanup_at: datetime) -> Verdict:
    """Whether files become RETIRED."""
    verdicts = set()
    for file_id, row in _paired(found, file_ids):
        if row is not None and row.type is FileType.REGULAR:
            verdicts.add(Verdict.CHANGE)
        elif row is not None and row.type is FileType.RETIRED and row.cleanup_at == cleanup_at:
            verdicts.add(Verdict.DONE_ALREADY)
        else:
            raise _refused("retired", row, file_id, "it must be REGULAR, or retired just so")
    return _one("retired", verdicts, file_ids)


def swap_verdict(publish: Verdict, retire: Verdict, new: int, olds: Sequence[int]) -> Verdict:
    """Both halves of a swap are still to do, or both are done."""
    return _one("swapped", {publish, retire}, [new, *olds])


def check_one_table(found: Sequence[FileRow], table_ids: Mapping[int, int]) -> None:
    """Refuse to swap a file of one table for those of another, whose rows would be gone. `table_ids` is by path."""
    tables = {table_ids[row.path_id]: row.file_id for row in found}
    if len(tables) > 1:
        raise FileTableError(
            f"files {sorted(tables.values())} belong to different tables: {sorted(tables)}",
            hint="a file takes the place of files of its own table; nothing was changed",
            file_ids=[row.file_id for row in found],
            table_ids=sorted(tables),
        )


def check_delete(found: Sequence[FileRow], file_ids: Sequence[int]) -> None:
    """Refuse to forget a file that queries may see."""
    for file_id, row in _paired(found, file_ids):
        if row is None or row.type is FileType.REGULAR:
            raise _refused("deleted", row, file_id, "it must be temporary or RETIRED")


def check_ids(file_ids: Sequence[int]) -> None:
    """Refuse a list that names a file twice, or none."""
    if not file_ids or len(set(file_ids)) != len(file_ids):
        raise UsageError(
            "the same file is named twice" if file_ids else "no file is named",
            hint="each file once",
            file_ids=list(file_ids),
        )


def check_moment(moment: datetime) -> None:
    """Refuse a time that does not say where it was read."""
    if moment.tzinfo is None:
        raise UsageError(f"{moment.isoformat()} has no time zone", hint="times are UTC")


def temporary_due(
    rows: Iterable[FileRow], ttl_seconds: float, now: datetime
) -> tuple[tuple[FileRow, ...], tuple[FileRow, ...]]:
    """The temporary files whose time is up by their names, and those whose names do not say."""
    check_moment(now)
    if not (math.isfinite(ttl_seconds) and ttl_seconds >= 0):
        raise UsageError(f"files cannot live for {ttl_seconds} seconds", hint="0 or more", ttl_seconds=ttl_seconds)
    due, unreadable = list[FileRow](), list[FileRow]()
    for row in rows:
        try:
            created_at = parse_name(row.name).created_at
        except UsageError:
            unreadable.append(row)
            continue
        if row.type in TEMPORARY and (now - created_at).total_seconds() >= ttl_seconds:
            due.append(row)
    return tuple(due), tuple(unreadable)


def retired_due(rows: Iterable[FileRow], now: datetime) -> tuple[FileRow, ...]:
    """The retired files whose bytes may go."""
    check_moment(now)
    return tuple(row for row in rows if row.cleanup_at is not None and row.cleanup_at <= now)


def _paired(found: Sequence[FileRow], file_ids: Sequence[int]) -> Iterable[tuple[int, FileRow | None]]:
    by_id = {row.file_id: row for row in found}
    return [(file_id, by_id.get(file_id)) for file_id in file_ids]


def _one(what: str, verdicts: set[Verdict], file_ids: Sequence[int]) -> Verdict:
    if len(verdicts) == 1:
        return verdicts.pop()
    raise FileTableError(
        f"some of the files {list(file_ids)} were {what} already, and others not",
        hint="read the file table again, then decide anew",
        file_ids=list(file_ids),
    )


def _refused(what: str, found: FileRow | None, file_id: int, rule: str) -> FileTableError:
    state = "not in the file table" if found is None else str(found.type)
    return FileTableError(
        f"file {file_id} cannot be {what}: it is {state}",
        hint=f"{rule}; nothing was changed",
        file_id=file_id,
        type=None if found is None else str(found.type),
    )
