"""Reading one data file of a scan as Arrow, in the schema of the scan, without the rows that were deleted.

Columns are found by field id. What a file does not hold comes from its partition, else from the column's initial
default, else it is null. Only the columns that are asked for, or that a filter or an equality delete looks at, are
read, a row group at a time.

The order for each batch: deleted positions, equality deletes, filter, projection. Positions count all rows of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import extract_field_ids
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyroaring import BitMap64

from headwater.tables.arrow import plain_schema
from headwater.tables.equality_deletes import load_equality_deletes
from headwater.tables.extra_columns import EXTRA_COLUMNS, EXTRA_IDS, extra_column
from headwater.tables.file_columns import name_mapping
from headwater.tables.files import FileReader
from headwater.tables.fitting import Fitting, fit_columns
from headwater.tables.leaves import check_types
from headwater.tables.model import POSITION_COLUMN, FileTask, ScanPlan, TableUsageError
from headwater.tables.parquet_source import ROWS_PER_BATCH, ParquetSource, no_columns
from headwater.tables.position_deletes import deleted_positions
from headwater.tables.row_filter import GroupFilter, bind_filter, matching_rows
from headwater.tables.stored_columns import columns_of_file, key_of, partition_constants

__all__ = ["EXTRA_COLUMNS", "deleted_positions", "positions_of", "read_schema", "read_task"]

_ALWAYS_TRUE = AlwaysTrue()
# Every batch is compared with all equality deletes, so batches are large when there are any.
_ROWS_PER_BATCH_COMPARED = 1 << 20


def read_schema(plan: ScanPlan, columns: tuple[str, ...] | None = None, extra: frozenset[str] = frozenset()) -> Schema:
    """The schema of what `read_task` yields: the columns in the order asked for, then the extra ones."""
    if columns is None:
        chosen = plan.schema.fields
    else:
        by_name = {each.name: each for each in plan.schema.fields}
        for name in columns:
            if name not in by_name:
                raise TableUsageError(
                    f"column {name} is not in the table", hint=f"the table has {', '.join(by_name)}", column=name
                )
        chosen = tuple(by_name[name] for name in columns)
    for name in sorted(extra - EXTRA_COLUMNS.keys()):
        raise TableUsageError(
            f"column {name} is not one that a scan can add",
            hint=f"it can add {', '.join(EXTRA_COLUMNS)}",
            column=name,
        )
    schema = Schema(*chosen, *(field for name, field in EXTRA_COLUMNS.items() if name in extra))
    check_types(schema)
    return schema


def read_task(
    files: FileReader,
    task: FileTask,
    *,
    plan: ScanPlan,
    columns: tuple[str, ...] | None = None,
    row_filter: BooleanExpression = _ALWAYS_TRUE,
    extra: frozenset[str] = frozenset(),
) -> Iterator[pa.RecordBatch]:
    """The live rows of one data file that match, batch by batch; none of the batches is empty."""
    schema = read_schema(plan, columns, extra)
    bound = bind_filter(row_filter, plan.schema)
    if isinstance(bound, AlwaysFalse):
        return iter(())
    return _scan(files, task, plan, schema, bound)


def _scan(
    files: FileReader, task: FileTask, plan: ScanPlan, schema: Schema, bound: BooleanExpression
) -> Iterator[pa.RecordBatch]:
    arrow = plain_schema(schema.fields)
    source = ParquetSource(files, task.file, name_mapping(plan.metadata))
    fitting = columns_of_file(task.file.file_path, source.names, partition_constants(task.file, plan.metadata))
    compared = () if isinstance(bound, AlwaysTrue) else sorted(extract_field_ids(bound))
    filtered = tuple(key_of(plan.schema, each) for each in compared)
    equality = load_equality_deletes(files, task, plan)
    deleted = np.asarray(deleted_positions(files, task).to_array(), dtype=np.int64)
    needed = [
        *schema.fields,
        *(each.field for each in filtered),
        *(key.field for each in equality for key in each.keys),
    ]
    rows_per_batch = _ROWS_PER_BATCH_COMPARED if equality else ROWS_PER_BATCH
    groups = GroupFilter(bound, {each.field_id: each.kind for each in filtered}) if filtered else None
    for position, batch in source.batches(needed, rows_per_batch, groups):
        kept = np.ones(batch.num_rows, dtype=bool)
        first, last = np.searchsorted(deleted, (position, position + batch.num_rows))
        kept[deleted[first:last] - position] = False
        for each in equality:
            kept &= each.kept(batch, fitting)
        if not isinstance(bound, AlwaysTrue):
            found = {each.field_id: each.values(batch, fitting) for each in filtered}
            kept &= matching_rows(bound, found, batch.num_rows)
        if kept.any():
            yield _shown(batch, position, kept, task, schema, arrow, fitting)


def _shown(
    batch: pa.RecordBatch,
    position: int,
    kept: np.ndarray[Any, Any],
    task: FileTask,
    schema: Schema,
    arrow: pa.Schema,
    fitting: Fitting,
) -> pa.RecordBatch:
    """The rows that are kept, in the schema of the scan."""
    places = np.flatnonzero(kept)
    if len(places) < batch.num_rows:
        batch = batch.take(pa.array(places)) if batch.num_columns else no_columns(len(places))
    positions = pa.array(places + position, pa.int64())
    own = [each for each in schema.fields if each.field_id not in EXTRA_IDS]
    arrays = fit_columns(batch, own, fitting)
    arrays += [
        extra_column(each.name, batch, positions, task, fitting) for each in schema.fields if each.field_id in EXTRA_IDS
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow) if arrays else no_columns(len(places))


def positions_of(files: FileReader, task: FileTask, metadata: TableMetadata, row_filter: BooleanExpression) -> BitMap64:
    """Positions of the live rows of a data file that match the filter, by the current schema."""
    plan = ScanPlan(metadata, metadata.schema(), None, (task,))
    found = BitMap64()
    for batch in read_task(
        files, task, plan=plan, columns=(), row_filter=row_filter, extra=frozenset({POSITION_COLUMN})
    ):
        found |= BitMap64(batch.column(0).to_numpy().astype(np.uint64))
    return found
