"""Deletes by equality: rows that have the same keys as a deleted one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from headwater.tables.file_columns import name_mapping
from headwater.tables.files import FileReader
from headwater.tables.fitting import Fitting
from headwater.tables.model import FileTask, ScanPlan, TableCorruptError, TableFile
from headwater.tables.parquet_source import ROWS_PER_BATCH, ParquetSource
from headwater.tables.stored_columns import Key, columns_of_file, key_of


@dataclass(frozen=True)
class EqualityDeletes:
    """Rows that are equal to one of these in all keys are deleted; a null equals a null."""

    keys: tuple[Key, ...]
    deleted: pa.Table

    def kept(self, batch: pa.RecordBatch, fitting: Fitting) -> np.ndarray[Any, Any]:
        """Which rows of the batch are not deleted."""
        names = self.deleted.column_names
        rows = pa.table([each.values(batch, fitting) for each in self.keys], names=names)
        # Grouping is what compares nulls as equal.
        both = pa.concat_tables([self.deleted, rows]).append_column(
            "row", pa.array(np.concatenate((np.full(self.deleted.num_rows, -1), np.arange(batch.num_rows))))
        )
        grouped = both.group_by(names, use_threads=False).aggregate([("row", "min"), ("row", "list")])
        hit = grouped.filter(pc.equal(grouped.column("row_min"), -1)).column("row_list")
        places = pc.list_flatten(hit).to_numpy()
        kept = np.ones(batch.num_rows, dtype=bool)
        kept[places[places >= 0]] = False
        return kept


def load_equality_deletes(files: FileReader, task: FileTask, plan: ScanPlan) -> list[EqualityDeletes]:
    """The task's equality deletes, those by the same columns together."""
    by_ids: dict[tuple[int, ...], list[TableFile]] = {}
    for each in task.equality:
        if not each.equality_ids:
            raise TableCorruptError(each.file_path, "is an equality delete file without equality ids")
        by_ids.setdefault(tuple(sorted(each.equality_ids)), []).append(each)
    loaded = (_load_equality(files, ids, group, plan) for ids, group in by_ids.items())
    return [each for each in loaded if each is not None]


def _load_equality(
    files: FileReader, ids: tuple[int, ...], deletes: Sequence[TableFile], plan: ScanPlan
) -> EqualityDeletes | None:
    keys = tuple(key_of(_schema_with(each, plan, deletes[0]), each) for each in ids)
    names = [str(each) for each in ids]
    tables = []
    for file in deletes:
        source = ParquetSource(files, file, name_mapping(plan.metadata))
        missing = [each for each in ids if each not in source.names]
        if missing:
            raise TableCorruptError(file.file_path, f"deletes by field {missing[0]}, and has no such column")
        fitting = columns_of_file(file.file_path, source.names, {})
        tables += [
            pa.table([each.values(batch, fitting) for each in keys], names=names)
            for _, batch in source.batches((each.field for each in keys), ROWS_PER_BATCH)
        ]
    if not tables:
        return None
    distinct = pa.concat_tables(tables).group_by(names, use_threads=False).aggregate([]).select(names)
    return EqualityDeletes(keys, distinct)


def _schema_with(field_id: int, plan: ScanPlan, deletes: TableFile) -> Schema:
    """The schema to compare a column by: that of the scan, or the newest that still had the column."""
    for schema in (plan.schema, plan.metadata.schema(), *sorted(plan.metadata.schemas, key=lambda s: -s.schema_id)):
        if field_id in schema.field_ids:
            return schema
    raise TableCorruptError(deletes.file_path, f"deletes by field {field_id}, which no schema of the table has")
