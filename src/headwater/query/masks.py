"""Masks: one bit for each row of a data file, set where the row is deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from headwater.tables.files import Files, normalise
from headwater.tables.model import FileTask, TableCorruptError
from headwater.tables.read import deleted_positions

MASKS_AT_A_TIME_BYTES = 64 << 20
_READERS = 8
_NAMES = ("file", "location", "first_row_id", "sequence", "bits")
_KINDS = (pa.int32(), pa.string(), pa.int64(), pa.int64(), pa.binary())


def file_rows(files: Files, tasks: Sequence[FileTask], deletes: Mapping[str, BitMap64] | None) -> Iterator[pa.Table]:
    """What a scan joins to each file: its place, name and numbers, and its mask unless `deletes` is None.

    A bounded number of masks is held at a time.
    """
    rows: list[tuple[object, ...]] = []
    size_bytes = 0
    for place, (task, mask) in enumerate(zip(tasks, _masks(files, tasks, deletes), strict=True)):
        first = task.file.first_row_id
        rows.append((place, task.file.file_path, first, None if first is None else task.sequence_number, mask))
        size_bytes += len(mask or b"")
        if size_bytes > MASKS_AT_A_TIME_BYTES or place == len(tasks) - 1:
            columns = zip(*rows, strict=True)
            yield pa.table([pa.array(each, kind) for each, kind in zip(columns, _KINDS, strict=True)], _NAMES)
            rows, size_bytes = [], 0


def _masks(files: Files, tasks: Sequence[FileTask], deletes: Mapping[str, BitMap64] | None) -> Iterator[bytes | None]:
    if deletes is None:
        yield from (None for _ in tasks)
    elif all(normalise(task.file.file_path).startswith("file://") for task in tasks):
        yield from (mask_of(files, task, deletes) for task in tasks)
    else:
        with ThreadPoolExecutor(_READERS, thread_name_prefix="deletes") as pool:
            yield from pool.map(lambda task: mask_of(files, task, deletes), tasks)


def mask_of(files: Files, task: FileTask, deletes: Mapping[str, BitMap64]) -> bytes:
    """A bit for each row of the file, from the left; set where the row is deleted."""
    bits = np.zeros(task.file.record_count, np.uint8)
    for positions in (deleted_positions(files, task), deletes.get(normalise(task.file.file_path))):
        if positions:
            check_within(positions, task)
            bits[np.asarray(positions.to_array())] = 1
    return np.packbits(bits).tobytes()


def check_within(positions: BitMap64, task: FileTask) -> None:
    """Refuse positions that the file does not have."""
    if positions.max() >= task.file.record_count:
        raise TableCorruptError(
            task.file.file_path, f"has {task.file.record_count} rows, and row {positions.max()} of it is deleted"
        )
