"""Rows of a table at a timestamp, from files and buffers together.

Promise: every row whose commit is at or below the timestamp and whose deletion is not, once; whatever is written,
published or folded meanwhile. The view of each stream is taken before its first row is given; files of a view stay
readable because a read-only transaction holds the low watermark. Below the base of a row group the scan is
refused, not wrong. Nothing here waits for a writer, except for the moment in which a view is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.ingest.apply.model import BadRequestError
from headwater.ingest.buffer.buffers import Buffers
from headwater.ingest.buffer.model import AdmittedFile, BlockView
from headwater.ingest.buffer.registry import RegistryError
from headwater.ingest.model import TIMESTAMP_COLUMN, Bools, TableShape, Timestamp
from headwater.ingest.scan.decide import columns_to_read, may_hold, output_schema, row_filter
from headwater.ingest.scan.model import ScanRequest
from headwater.ingest.visibility.index import VisibilityIndex
from headwater.ingest.visibility.row_group import RowGroupVisibility


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
        where = row_filter(request.predicates, shape)
        views = [
            buffer.view()
            for buffer in self._buffers.of_table(shape.id)
            if request.virtual_nodes is None or buffer.stream.virtual_node in request.virtual_nodes
        ]
        files = [file for view in views for file in view.files if file.min_timestamp <= request.timestamp]
        blocks = [block for view in views for block in view.blocks]
        return schema, self._rows(request, shape, schema, where, files, blocks, check)

    def _rows(
        self,
        request: ScanRequest,
        shape: TableShape,
        schema: pa.Schema,
        where: pc.Expression | None,
        files: list[AdmittedFile],
        blocks: list[BlockView],
        check: Callable[[], None],
    ) -> Iterator[pa.RecordBatch]:
        for file in files:
            for rows, mask in self._of_file(request, shape, schema, file, check):
                yield from _taken(rows, mask, request.timestamp, where, schema)
        for block in blocks:
            check()
            columns = columns_to_read(request, schema, has_later_rows=True)
            yield from rows_of_block(block, columns, request.timestamp, where, schema)

    def _of_file(
        self,
        request: ScanRequest,
        shape: TableShape,
        schema: pa.Schema,
        file: AdmittedFile,
        check: Callable[[], None],
    ) -> Iterator[tuple[pa.Table, Bools]]:
        columns = columns_to_read(request, schema, has_later_rows=file.max_timestamp > request.timestamp)
        groups = [self._group(file.file_id, number) for number in range(len(file.rows_by_group))]
        with self._open_file(file.name) as source:
            parquet = pq.ParquetFile(source, page_checksum_verification=True)
            for number, count in enumerate(file.rows_by_group):
                check()
                if not may_hold(request.predicates, shape, parquet.metadata.row_group(number)):
                    continue
                mask = groups[number].visible_mask(request.timestamp)[:count]
                if mask.any():
                    yield parquet.read_row_group(number, columns), mask

    def _group(self, file_id: int, number: int) -> RowGroupVisibility:
        if (group := self._visibility.get(file_id, number)) is None:
            raise RegistryError(f"file {file_id} is registered and row group {number} of it has no visibility")
        return group


def rows_of_block(
    block: BlockView, columns: list[str], timestamp: Timestamp, where: pc.Expression | None, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """What a block shows at a timestamp."""
    mask = block.visibility.visible_mask(timestamp)[: block.rows.num_rows]
    return _taken(block.rows.select(columns), mask, timestamp, where, schema)


def _taken(
    rows: pa.Table, mask: Bools, timestamp: Timestamp, where: pc.Expression | None, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    if TIMESTAMP_COLUMN in rows.column_names:
        stamps = rows.column(TIMESTAMP_COLUMN).to_numpy()
        mask = mask & (stamps <= timestamp)
    if not mask.all():
        rows = rows.filter(pa.array(mask))
    if where is not None:
        rows = rows.filter(where)
    if rows.num_rows:
        yield from rows.select(schema.names).cast(schema).to_batches()
