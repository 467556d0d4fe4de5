"""Deletes of rows laid over those that are there already, and only over those.

A snapshot replaces what was deleted by position in a file. So it must know all of it: a task that was planned on
another version of the table may miss some, and the rows would come back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyroaring import BitMap64

from headwater.tables.file_columns import name_mapping
from headwater.tables.files import FileReader
from headwater.tables.model import Edit, FileTask, LiveFile, TableFile, TableUsageError
from headwater.tables.parquet_source import ParquetSource
from headwater.tables.position_deletes import deleted_positions
from headwater.tables.scan import DeleteIndex


@dataclass(frozen=True)
class Settled:
    """An edit with its deletes laid over those that are there; files in which no row is left are removed."""

    removed: frozenset[str]
    deletes: Mapping[str, tuple[BitMap64, TableFile]]

    @property
    def touched(self) -> frozenset[str]:
        """Data files whose deletes are replaced, or go with them."""
        return self.removed | self.deletes.keys()


def settle(files: FileReader, metadata: TableMetadata, edit: Edit) -> Settled:
    """The edit, its deletes laid over those of its tasks."""
    removed = set(edit.removed)
    asked: dict[str, tuple[FileTask, BitMap64]] = {}
    for each in edit.deletes:
        if each.positions and each.task.file.file_path not in removed:
            task, positions = asked.get(each.task.file.file_path, (each.task, BitMap64()))
            asked[task.file.file_path] = (task, positions | each.positions)
    deletes: dict[str, tuple[BitMap64, TableFile]] = {}
    for path, (task, positions) in asked.items():
        if positions.max() >= task.file.record_count:
            raise TableUsageError(
                f"{path} has {task.file.record_count} rows, so none at position {positions.max()}", path=path
            )
        merged = positions | deleted_positions(files, task)
        if len(merged) == task.file.record_count:
            # Opening the file compares the count with its footer: more rows than that would go with it.
            ParquetSource(files, task.file, name_mapping(metadata))
            removed.add(path)
        else:
            deletes[path] = (merged, task.file)
    return Settled(frozenset(removed), deletes)


def refuse_stale(metadata: TableMetadata, edit: Edit, found: Iterable[LiveFile]) -> None:
    """Refuse to replace deletes that the edit does not know: it would bring the rows back."""
    if not edit.deletes:
        return
    index = DeleteIndex(found, metadata.specs())
    for each in edit.deletes:
        task = each.task
        if not same_deletes(task, index.task(LiveFile(task.file, task.sequence_number, None, None))):
            raise another_version(task.file.file_path, metadata)


def same_deletes(one: FileTask, other: FileTask) -> bool:
    """Whether the same deletes apply in both tasks of one file."""
    return _deletes_of(one) == _deletes_of(other)


def _deletes_of(task: FileTask) -> set[tuple[str, int | None]]:
    vector = () if task.vector is None else (task.vector,)
    return {(each.file_path, each.content_offset) for each in (*vector, *task.positions, *task.equality)}


def another_version(path: str, metadata: TableMetadata) -> TableUsageError:
    """The error for a task that is not of the base."""
    return TableUsageError(
        f"the change of {path} was planned on another version of {metadata.location}",
        hint="plan it again, on the version that it is to follow",
        path=path,
    )
