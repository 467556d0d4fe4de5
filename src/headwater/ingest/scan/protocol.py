"""Rows of a table at a timestamp, from files and buffers together.

Promise: every row whose commit is at or below the timestamp and whose deletion is not, once; whatever is written,
published or folded meanwhile. The view of each stream is taken before its first row is given; files of a view stay
readable because a read-only transaction holds the low watermark. Below the base of a row group the scan is
refused, not wrong. Nothing here waits for a writer, except for the moment in which a view is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.ingest.apply.model import BadRequestError
from headwater.ingest.buffer.buffers import Buffers
from headwater.ingest.buffer.model import AdmittedFile, BlockView
from headwater.ingest.buffer.registry import RegistryError
from headwater.ingest.model import TABLE_MARK, TIMESTAMP_COLUMN, Bools, TableShape, Timestamp
from headwater.ingest.scan.ahead import ahead
from headwater.ingest.scan.decide import (
    Ages,
    RowTest,
    ages_of,
    columns_to_read,
    matching,
    may_fit,
    may_hold,
    output_schema,
    row_tests,
)
from headwater.ingest.scan.footers import Footer, Footers
from headwater.ingest.scan.model import ScanRequest
from headwater.ingest.visibility.index import VisibilityIndex
from headwater.ingest.visibility.row_group import RowGroupVisibility

T = TypeVar("T")

# Row groups that one scan reads at a time; as many more wait for their reader, whatever the size of the table.
_THREADS = min(4, pa.cpu_count())
# Parts of fewer rows than this are joined: each would be a message of its own.
_FEW_ROWS = 4096
# Row groups in which little is found, one after the other, before a reader gets it, and is told that the scan goes on.
_SILENT_PARTS = 16


class Scanner:
    """Answers scans. Safe to share among threads."""

    def __init__(
        self,
        *,
        tables: Mapping[str, TableShape],
        buffers: Buffers,
        visibility: VisibilityIndex,
        open_file: Callable[[str], pa.NativeFile],
    ) -> None:
        self._tables = tables
        self._buffers = buffers
        self._visibility = visibility
        self._open_file = open_file
        self._footers = Footers()

    def scan(
        self, request: ScanRequest, check: Callable[[], None] = lambda: None
    ) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """The columns and the rows. What is wrong with the request is said before the first row.

        `check` is called before each row group and block, and may raise: a scan that finds nothing gives no batch in
        which it could be stopped.
        """
        shape = self._tables.get(request.table)
        if shape is None:
            raise BadRequestError(
                f"table {request.table} is unknown", hint="the node holds " + ", ".join(sorted(self._tables))
            )
        if request.timestamp < 0:
            raise BadRequestError("a timestamp is not negative", timestamp=request.timestamp)
        schema = output_schema(request, shape)
        tests = row_tests(request.predicates, shape)
        views = [
            buffer.view()
            for buffer in self._buffers.of_table(shape.id)
            if request.virtual_nodes is None or buffer.stream.virtual_node in request.virtual_nodes
        ]
        files = [file for view in views for file in view.files if file.min_timestamp <= request.timestamp]
        blocks = [block for view in views for block in view.blocks]
        marked = schema.with_metadata({TABLE_MARK: shape.uuid.encode()})
        return marked, self._rows(_Wanted(request, shape, schema, tests), files, blocks, check)

    def _rows(
        self, wanted: _Wanted, files: list[AdmittedFile], blocks: list[BlockView], check: Callable[[], None]
    ) -> Iterator[pa.RecordBatch]:
        groups = [(file, number) for file in files for number in range(len(file.rows_by_group))]
        worth_it = (each for each in _checked(groups, check) if self._may_matter(wanted, *each))
        silent = 0
        for batches in ahead(lambda each: self._of_group(wanted, *each), worth_it, _THREADS):
            yield from batches
            silent = 0 if any(each.num_rows >= _FEW_ROWS for each in batches) else silent + 1
            if silent == _SILENT_PARTS:
                yield pa.RecordBatch.from_pylist([], wanted.schema)  # who waits hears that the scan goes on
                silent = 0
        for block in _checked(blocks, check):
            block.visibility.refuse_below_base(wanted.request.timestamp)  # whether or not a row of it fits
            if not may_fit(wanted.request.predicates, wanted.shape, block):
                continue
            has_later_rows = block.max_timestamp > wanted.request.timestamp
            columns = columns_to_read(wanted.request, wanted.schema, has_later_rows=has_later_rows)
            yield from rows_of_block(block, columns, wanted.request.timestamp, wanted.tests, wanted.schema)

    def _may_matter(self, wanted: _Wanted, file: AdmittedFile, number: int) -> bool:
        """Whether a row group is worth a thread, by a footer that is known. What must be refused is left to it."""
        footer = self._footers.get(file.file_id)
        group = self._visibility.get(file.file_id, number)
        if footer is None or group is None or group.base_timestamp > wanted.request.timestamp:
            return True
        return _may_give(wanted, footer, number)

    def _of_group(self, wanted: _Wanted, file: AdmittedFile, number: int) -> list[pa.RecordBatch]:
        """The rows of one row group; nothing is read of one that cannot have any."""
        request = wanted.request
        if (group := self._visibility.get(file.file_id, number)) is None:
            raise RegistryError(f"file {file.file_id} is registered and row group {number} of it has no visibility")
        mask = _mask(group, request.timestamp, file.rows_by_group[number])
        if mask is not None and not mask.any():
            return []
        footer = self._footers.get(file.file_id)
        if footer is not None and not _may_give(wanted, footer, number):
            return []
        with self._open_file(file.name) as source:
            # Each thread has its own reader: one of pyarrow's is not made for two.
            metadata = None if footer is None else footer.metadata
            parquet = pq.ParquetFile(source, metadata=metadata, page_checksum_verification=True, pre_buffer=True)
            if footer is None:
                footer = Footer(parquet.metadata)
                self._footers.keep(file.file_id, footer)
                if not _may_give(wanted, footer, number):
                    return []
            has_later_rows = ages_of(footer.column(number, TIMESTAMP_COLUMN), request.timestamp) is not Ages.NONE_LATER
            columns = columns_to_read(request, wanted.schema, has_later_rows=has_later_rows)
            rows = parquet.read_row_group(number, columns, use_threads=False)
        if len(rows.column_names) < len(columns):
            rows = _with_unknown(rows, columns, file.rows_by_group[number])
        return list(_taken(rows, (mask, matching(wanted.tests, rows)), request.timestamp, wanted.schema))


def _with_unknown(rows: pa.Table, columns: list[str], count: int) -> pa.Table:
    """Columns of type unknown are in no file; each of their values is null."""
    return pa.table({each: rows.column(each) if each in rows.column_names else pa.nulls(count) for each in columns})


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A scan that was found to make sense."""

    request: ScanRequest
    shape: TableShape
    schema: pa.Schema
    tests: tuple[RowTest, ...]


def _may_give(wanted: _Wanted, footer: Footer, number: int) -> bool:
    if ages_of(footer.column(number, TIMESTAMP_COLUMN), wanted.request.timestamp) is Ages.ALL_LATER:
        return False
    return all(may_hold(each, wanted.shape, footer.column(number, each.column)) for each in wanted.request.predicates)


def _checked(parts: Sequence[T], check: Callable[[], None]) -> Iterator[T]:
    for each in parts:
        check()
        yield each


def rows_of_block(
    block: BlockView, columns: list[str], timestamp: Timestamp, tests: Sequence[RowTest], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """What a block shows at a timestamp. Where no row fits, it is not asked which ones are deleted."""
    rows = block.rows.select(columns)
    fits = matching(tests, rows)
    if fits is not None and not fits.any():
        return iter(())
    return _taken(rows, (fits, _mask(block.visibility, timestamp, rows.num_rows)), timestamp, schema)


def _mask(group: RowGroupVisibility, timestamp: Timestamp, count: int) -> Bools | None:
    """Which rows are not deleted; nothing where none is. A timestamp below the base is refused either way."""
    group.refuse_below_base(timestamp)
    return group.visible_mask(timestamp)[:count] if group.has_deletions else None


def _taken(
    rows: pa.Table, masks: tuple[Bools | None, ...], timestamp: Timestamp, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    known = [each for each in masks if each is not None]
    if TIMESTAMP_COLUMN in rows.column_names:
        known.append(rows.column(TIMESTAMP_COLUMN).to_numpy() <= timestamp)
    if known:
        mask = reduce(np.logical_and, known)
        rows = rows if mask.all() else rows.filter(pa.array(mask))
    if rows.num_rows:
        yield from _joined(rows.select(schema.names).cast(schema)).to_batches()


def _joined(rows: pa.Table) -> pa.Table:
    parts = max((each.num_chunks for each in rows.columns), default=0)
    return rows.combine_chunks() if rows.num_rows < parts * _FEW_ROWS else rows
