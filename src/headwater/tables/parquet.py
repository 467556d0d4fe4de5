"""Rows become data files: fitted to the schema, split by partition, sorted, encoded as Parquet, measured and stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Protocol, TypeAlias, TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from headwater.kernel.ids import Ulid
from headwater.kernel.randomness import Randomness
from headwater.tables.layout import MEGABYTE, Layout, layout_of, partition_folder
from headwater.tables.leaves import check_types
from headwater.tables.metrics import measure, split_offsets
from headwater.tables.model import NewFile, TableFile, TableUsageError
from headwater.tables.placing import Placing
from headwater.tables.split import sort_rows, split_rows
from headwater.tables.user_rows import batches_of, fit_rows, lineage_in

T = TypeVar("T")
Rows: TypeAlias = pa.Table | Iterable[pa.RecordBatch]

_ROWS_PER_GROUP = 1 << 20


class FileSink(Protocol):
    """Where new files go. Called from several threads."""

    def write(self, files: Iterable[NewFile]) -> None:
        """Store these files."""
        ...


@dataclass(frozen=True)
class WriteOptions:
    """How rows are written; what the files look like is said by the properties of the table."""

    threads: int = 4
    buffer_size_bytes: int = 512 * MEGABYTE


def write_rows(
    rows: Rows,
    *,
    metadata: TableMetadata,
    files: FileSink,
    randomness: Randomness,
    operation: Ulid | None = None,
    placing: Placing = Placing(),  # noqa: B008  (frozen)
    options: WriteOptions = WriteOptions(),  # noqa: B008  (frozen)
) -> tuple[TableFile, ...]:
    """Write rows into data files of the table as it is now, and store them; no row, no file.

    What was stored before an error is referenced by nobody; the names of files tell the operation, for cleanup.
    """
    schema = metadata.schema()
    check_types(schema)
    batches: Iterable[pa.RecordBatch] = batches_of(rows) if isinstance(rows, pa.Table) else rows
    layout: Layout | None = None
    numbers = count()
    written: list[TableFile] = []
    pending: list[pa.RecordBatch] = []
    pending_bytes = 0
    for batch in batches:
        if layout is None:
            layout = layout_of(metadata, lineage_in(batch, metadata), randomness, operation, placing)
        fitted = fit_rows(batch, schema, layout.fields)
        if fitted.num_rows:
            pending.append(fitted)
            pending_bytes += fitted.nbytes
        if pending_bytes >= options.buffer_size_bytes:
            written += _flush(pending, layout, files, numbers, options)
            pending, pending_bytes = [], 0
    if layout is not None and pending:
        written += _flush(pending, layout, files, numbers, options)
    return tuple(written)


def _flush(
    batches: list[pa.RecordBatch], layout: Layout, files: FileSink, numbers: Iterator[int], options: WriteOptions
) -> list[TableFile]:
    table = pa.Table.from_batches(batches).combine_chunks()
    parts = list(split_rows(table, layout.metadata))

    def job(record: Record, chosen: pa.Array | None, number: int) -> Callable[[], list[TableFile]]:
        return lambda: _store(table, chosen, record, number, layout, files)

    jobs = [job(record, chosen, next(numbers)) for record, chosen in parts]
    return [file for part in _in_parallel(jobs, options.threads) for file in part]


def _in_parallel(jobs: Sequence[Callable[[], T]], threads: int) -> list[T]:
    """The results in order. After an error nothing new is begun."""
    if threads < 2 or len(jobs) < 2:
        return [job() for job in jobs]
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(job) for job in jobs]
        try:
            return [each.result() for each in futures]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _store(
    rows: pa.Table, chosen: pa.Array | None, record: Record, number: int, layout: Layout, files: FileSink
) -> list[TableFile]:
    """Write the rows of one partition."""
    metadata, order = layout.metadata, layout.metadata.sort_order()
    part = rows if chosen is None else rows.take(chosen)
    folder = f"{layout.folder}/{partition_folder(record, metadata)}"
    written = []
    for place, (table, data, footer) in enumerate(_encoded(sort_rows(part, metadata.schema(), order), layout)):
        location = f"{folder}{number:05}-{place:05}-{layout.token}.parquet"
        entry = TableFile.from_args(
            _table_format_version=3,
            content=DataFileContent.DATA,
            file_path=location,
            file_format=FileFormat.PARQUET,
            partition=record,
            record_count=table.num_rows,
            file_size_in_bytes=len(data),
            split_offsets=split_offsets(footer),
            sort_order_id=order.order_id,
            **measure(table, layout.columns, layout.modes, footer),
        )
        entry.spec_id = metadata.default_spec_id
        files.write([NewFile(location, data)])
        written.append(cast(TableFile, entry))
    return written


def _encoded(table: pa.Table, layout: Layout) -> Iterator[tuple[pa.Table, bytes, pq.FileMetaData]]:
    """The rows as one or more Parquet files, each about as large as wanted."""
    row_bytes = max(1, math.ceil(table.nbytes / table.num_rows))
    group_rows = max(1, min(_ROWS_PER_GROUP, layout.group_bytes // row_bytes, layout.target_bytes // row_bytes))
    options, schema = layout.writer_options(group_rows), layout.arrow
    start = 0
    while start < table.num_rows:
        buffer, end = pa.BufferOutputStream(), start
        footers: list[pq.FileMetaData] = []
        try:
            with pq.ParquetWriter(buffer, schema, metadata_collector=footers, **options) as writer:
                while end < table.num_rows and (end == start or buffer.tell() < layout.target_bytes):
                    writer.write_table(table.slice(end, group_rows), row_group_size=group_rows)
                    end = min(end + group_rows, table.num_rows)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise TableUsageError(
                f"the rows cannot be written as Parquet: {error}",
                hint=f"check the properties write.parquet.* of {layout.metadata.location}",
                path=layout.metadata.location,
            ) from error
        yield table.slice(start, end - start), buffer.getvalue().to_pybytes(), footers[0]
        start = end
