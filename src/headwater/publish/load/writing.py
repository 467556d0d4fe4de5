"""The stage of a load that writes data files: several at a time, while the next rows are read.

What is in memory is bounded by the write buffer: one share of it is being filled, the others are being written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform

from headwater.publish.load.model import LoadOptions
from headwater.tables.layout import MEGABYTE
from headwater.tables.model import TableFile
from headwater.tables.parquet import FileSink, WriteOptions, write_rows
from headwater.tables.snapshot import Staging

_FIRST_SHARE_BYTES = 48 * MEGABYTE


@dataclass(frozen=True)
class _Share:
    """Rows for one file, or a few; what is not full is the last."""

    batches: list[pa.RecordBatch]
    is_full: bool


@dataclass(frozen=True)
class FileWriting:
    """Writes rows into data files of one table, straight to the store. Nobody refers to them until the publish."""

    staging: Staging
    metadata: TableMetadata
    sink: FileSink
    options: LoadOptions

    def write(self, batches: Iterable[pa.RecordBatch]) -> tuple[TableFile, ...]:
        """The files, in the order of their rows. After an error nothing new is begun."""
        if any(not isinstance(each.transform, VoidTransform) for each in self.metadata.spec().fields):
            # The whole buffer at once, or each partition would get a small file for each share of it.
            return self._files(batches, self.options.concurrency)
        shares = _shares(batches, min(_FIRST_SHARE_BYTES, self._most_bytes), self._most_bytes)
        first = next(shares, None)
        if first is None:
            return ()
        return self._in_parallel(chain([first], shares)) if first.is_full else self._files(first.batches, 1)

    @property
    def _most_bytes(self) -> int:
        """A share of the buffer: all but one of them are being written."""
        return self.options.buffer_bytes // (self.options.concurrency + 1)

    def _in_parallel(self, shares: Iterable[_Share]) -> tuple[TableFile, ...]:
        written: list[TableFile] = []
        running: deque[Future[tuple[TableFile, ...]]] = deque()
        with ThreadPoolExecutor(self.options.concurrency, thread_name_prefix="load") as pool:
            try:
                for share in shares:
                    if len(running) == self.options.concurrency:
                        written += running.popleft().result()
                    running.append(pool.submit(self._files, share.batches, 1))
                while running:
                    written += running.popleft().result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        return tuple(written)

    def _files(self, batches: Iterable[pa.RecordBatch], threads: int) -> tuple[TableFile, ...]:
        return write_rows(
            batches,
            metadata=self.metadata,
            files=self.sink,
            randomness=self.staging.randomness,
            operation=self.staging.operation,
            placing=self.staging.placing,
            options=WriteOptions(threads=threads, buffer_size_bytes=self.options.buffer_bytes),
        )


def _shares(batches: Iterable[pa.RecordBatch], share_bytes: int, most_bytes: int) -> Iterator[_Share]:
    """Each twice as large as the one before, up to the most: small loads keep all busy, large ones make large files."""
    share: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in batches:
        if batch.num_rows:
            share.append(batch)
            size_bytes += batch.nbytes
        if size_bytes >= share_bytes:
            yield _Share(share, is_full=True)
            share, size_bytes = [], 0
            share_bytes = min(2 * share_bytes, most_bytes)
    if share:
        yield _Share(share, is_full=False)
