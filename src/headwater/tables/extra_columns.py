"""Columns of a scan that are not of the table: where a row is stored, and its lineage."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import LongType, NestedField, StringType

from headwater.tables.fitting import Fitting, fit_columns
from headwater.tables.model import (
    FILE_COLUMN,
    FILE_COLUMN_ID,
    POSITION_COLUMN,
    POSITION_COLUMN_ID,
    ROW_ID_COLUMN,
    ROW_ID_COLUMN_ID,
    UPDATED_COLUMN,
    UPDATED_COLUMN_ID,
    FileTask,
)

# What a row of v3 carries with it when it is written again.
LINEAGE = (
    NestedField(ROW_ID_COLUMN_ID, ROW_ID_COLUMN, LongType()),
    NestedField(UPDATED_COLUMN_ID, UPDATED_COLUMN, LongType()),
)
# The columns of a scan that are not of the table, in the order in which they are shown.
EXTRA_COLUMNS = {
    FILE_COLUMN: NestedField(FILE_COLUMN_ID, FILE_COLUMN, StringType()),
    POSITION_COLUMN: NestedField(POSITION_COLUMN_ID, POSITION_COLUMN, LongType()),
    **{each.name: each for each in LINEAGE},
}
EXTRA_IDS = frozenset(each.field_id for each in EXTRA_COLUMNS.values())


def extra_column(name: str, batch: pa.RecordBatch, positions: pa.Array, task: FileTask, fitting: Fitting) -> pa.Array:
    """One of the extra columns, for rows of a batch that are at these positions of the file."""
    first_row_id = task.file.first_row_id
    match name:
        case "_file":
            return pa.repeat(pa.scalar(task.file.file_path, pa.large_string()), len(positions))
        case "_pos":
            return positions
    field = EXTRA_COLUMNS[name]
    stored = fitting.name_of(field)
    own = fit_columns(batch, (field,), fitting)[0] if stored is not None else pa.nulls(len(positions), pa.int64())
    if first_row_id is None:  # written before the table had row ids
        return own
    if name == ROW_ID_COLUMN:
        return pc.coalesce(own, pc.add(positions, first_row_id))
    return pc.coalesce(own, pa.scalar(task.sequence_number, pa.int64()))
