"""One open Parquet file, read a row group at a time and only in the columns that are needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import FileFormat
from pyiceberg.table.name_mapping import MappedField
from pyiceberg.types import DateType, IntegerType, LongType, NestedField, PrimitiveType, TimestampType, TimestamptzType

from headwater.tables.file_columns import FileColumns
from headwater.tables.files import FileReader
from headwater.tables.model import TableCorruptError, TableFile, UnsupportedTableError
from headwater.tables.row_filter import GroupFilter
from headwater.tables.span_file import open_span_file

ROWS_PER_BATCH = 1 << 17
# Stored types whose statistics are bounds as they stand: in all others NaN, a unit or an order may hide something.
_BOUNDED: dict[type[PrimitiveType], tuple[pa.DataType, ...]] = {
    IntegerType: (pa.int32(),),
    LongType: (pa.int32(), pa.int64()),
    DateType: (pa.date32(),),
    TimestampType: (pa.timestamp("us"),),
    TimestamptzType: (pa.timestamp("us", "UTC"),),
}


class ParquetSource:
    """One open Parquet file, and which of its columns has which field id."""

    def __init__(self, files: FileReader, file: TableFile, mapping: Sequence[MappedField] | None) -> None:
        self.location = file.file_path
        if file.file_format != FileFormat.PARQUET:
            raise UnsupportedTableError(
                f"{self.location} is a file of the format {file.file_format.value}, and only Parquet is read",
                hint="rewrite it as Parquet with an engine that reads it",
                path=self.location,
                format=file.file_format.value,
            )
        source = open_span_file(files, self.location, file.file_size_in_bytes)
        with _naming(self.location):
            self._parquet = pq.ParquetFile(
                source, pre_buffer=True, coerce_int96_timestamp_unit="us", page_checksum_verification=True
            )
            self._columns = FileColumns(self._parquet.schema_arrow, mapping, self.location)
        self.names = self._columns.names
        self._check(file)

    def _check(self, file: TableFile) -> None:
        """A footer has no checksum. What the manifest knows of it too must be the same in both."""
        footer = self._parquet.metadata
        in_groups = sum(footer.row_group(group).num_rows for group in range(footer.num_row_groups))
        if not file.record_count == footer.num_rows == in_groups:
            raise TableCorruptError(
                self.location,
                f"has {in_groups} rows, {footer.num_rows} by its footer, {file.record_count} by its manifest",
            )
        if self._columns.has_own_ids:  # those of a name mapping may have changed
            lost = sorted((file.value_counts or {}).keys() - self.names.keys())
            if lost:
                raise TableCorruptError(
                    self.location, f"has no column with the id {lost[0]}, though its manifest says so"
                )

    def batches(
        self, fields: Iterable[NestedField], rows_per_batch: int, groups: GroupFilter | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The columns that these fields need, with the position of the first row of each batch.

        Row groups that cannot match, by what Parquet says of them, are left out.
        """
        columns = self._columns.leaves_for(fields)
        position = 0
        for group in range(self._parquet.num_row_groups):
            rows = self._parquet.metadata.row_group(group).num_rows
            if groups is not None and not groups.may_match(self._measured(group, groups.kinds)):
                position += rows
                continue
            seen = 0
            for batch in self._group(group, rows, columns, rows_per_batch):
                yield position + seen, batch
                seen += batch.num_rows
            if seen != rows:
                raise TableCorruptError(self.location, f"has {seen} rows where its footer says {rows}")
            position += rows

    def _group(self, group: int, rows: int, columns: list[int], rows_per_batch: int) -> Iterator[pa.RecordBatch]:
        if not columns:  # nothing but the number of rows is asked for
            yield from (no_columns(min(rows_per_batch, rows - at)) for at in range(0, rows, rows_per_batch))
            return
        with _naming(self.location):
            yield from self._parquet.reader.iter_batches(rows_per_batch, row_groups=[group], column_indices=columns)

    def _measured(self, group: int, kinds: Mapping[int, PrimitiveType]) -> TableFile:
        """One row group, as if it were a file, with what its statistics tell of these columns."""
        footer = self._parquet.metadata.row_group(group)
        nulls: dict[int, int] = {}
        bounds: tuple[dict[int, bytes], dict[int, bytes]] = ({}, {})
        for field_id, kind in kinds.items():
            leaf, found = self._columns.plain_leaves.get(field_id, (None, None))
            chunk = None if leaf is None else footer.column(leaf)
            if chunk is None or not chunk.is_stats_set:
                continue
            if chunk.statistics.has_null_count:
                nulls[field_id] = chunk.statistics.null_count
            if chunk.statistics.has_min_max and found in _BOUNDED.get(type(kind), ()):
                bounds[0][field_id] = to_bytes(kind, chunk.statistics.min_raw)
                bounds[1][field_id] = to_bytes(kind, chunk.statistics.max_raw)
        measured = TableFile.from_args(
            _table_format_version=3,
            record_count=footer.num_rows,
            value_counts=dict.fromkeys(nulls, footer.num_rows),
            null_value_counts=nulls,
            lower_bounds=bounds[0],
            upper_bounds=bounds[1],
        )
        return cast(TableFile, measured)


def no_columns(rows: int) -> pa.RecordBatch:
    """A batch that has rows, and nothing in them."""
    return pa.RecordBatch.from_struct_array(
        pa.StructArray.from_arrays([], fields=[], mask=pa.array(np.zeros(rows, dtype=bool)))
    )


@contextmanager
def _naming(location: str) -> Iterator[None]:
    """Errors of the Parquet reader become errors that name the file."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, UnicodeDecodeError) as error:
        raise TableCorruptError(location, f"cannot be read as Parquet: {error}") from error
