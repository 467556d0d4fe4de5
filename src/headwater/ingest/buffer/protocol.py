"""Segments become files that queries may see.

Promise: a file is REGULAR only when its bytes are whole and checked, its index entries are durable, and every file of
its stream that begins with an older block is REGULAR. Its rows are seen once at every moment: from the buffer until the
file is admitted, from the file after that.

For each segment, in this order:

1. physical close: encode what was not written ahead, put, check length and every byte, and that the footer says what
   memory knows;
2. durable flush of its index entries, primary and main;
3. one update of the file table: REGULAR, number of row groups, hull of row ids (the commit point);
4. admission: registry and visibility take the file, and the segment leaves the buffer, in one breath.

Steps 1 and 2 of several segments of a stream may end in any order; steps 3 and 4 happen in the order of first blocks.

| it dies after | what is left |
|---|---|
| put | an object that a TEMPORARY_INGEST row names; replay makes the rows again, the sweeper deletes it |
| index flush | the same, and index entries into a file that is not visible: orphans, which resolve as not found |
| REGULAR | a file that no checkpoint has captured: recovery retires it, replay makes its rows again |
| admission | the same |

A step that fails is taken again at the next turn; the file stays as it was. A failed admission stops the node: the file
table would say REGULAR of what the node does not know.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa

from headwater.ingest.buffer.model import AdmittedFile, PublishBarrierError
from headwater.ingest.buffer.registry import FileRegistry
from headwater.ingest.buffer.segment import Segment
from headwater.ingest.buffer.stream import StreamBuffer
from headwater.ingest.buffer.writing import Encoding, FileFormat, store
from headwater.ingest.visibility.index import VisibilityIndex
from headwater.kernel.errors import HeadwaterError
from headwater.storage.port import ObjectStore


class DurableIndex(Protocol):
    """What makes the index entries of files durable."""

    def flush_primary(self) -> None:
        """All primary entries that were made are durable after this."""
        ...

    def flush_file(self, file_id: int) -> None:
        """All entries of the main index that are of the file are durable after this."""
        ...


class FileTable(Protocol):
    """What makes a file REGULAR."""

    def publish_regular(self, file_id: int, num_row_group: int, min_row_id: int, max_row_id: int) -> None:
        """One update; a second one that says the same changes nothing."""
        ...


class Publisher:
    """Publishes the segments of streams; timer, seal and close all come through here. Safe to share among threads."""

    def __init__(
        self,
        *,
        files: ObjectStore,
        table: FileTable,
        index: DurableIndex,
        registry: FileRegistry,
        visibility: VisibilityIndex,
        form: FileFormat = FileFormat(),  # noqa: B008  (frozen)
        fail: Callable[[BaseException], None],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._files = files
        self._table = table
        self._index = index
        self._registry = registry
        self._visibility = visibility
        self._form = form
        self._fail = fail
        self._check = check
        self._encodings: dict[int, Encoding] = {}
        self._turns: dict[int, threading.Lock] = {}
        self._guard = threading.Lock()

    def publish(self, *buffers: StreamBuffer) -> int:
        """Publish what the streams have sealed; returns how many files became REGULAR.

        One that cannot be published holds no other stream back; the error at the end names the first such file. What is
        complete of segments that are still open is written ahead. `check` raises when nothing may become REGULAR.
        """
        failures: list[PublishBarrierError] = []
        closed: list[Segment] = []
        for buffer in buffers:
            with _noted(failures):  # what is older than a file that fails need not wait for it
                for segment in buffer.sealed():
                    self._close(buffer, segment)
                    closed.append(segment)
        with _noted(failures):
            self._flush_index([each for each in closed if not each.state.index_flushed], failures)
        done = 0
        for buffer in buffers:
            with _noted(failures), self._turn(buffer):
                for segment in buffer.sealed():
                    if not segment.state.index_flushed:
                        break  # sealed meanwhile, or another thread prepares it: its turn comes
                    self._check()
                    self._make_regular(segment)
                    self._admit(buffer, segment)
                    done += 1
        for buffer in buffers:
            with _noted(failures):
                self._write_ahead(buffer)
        if failures:
            raise failures[0]
        return done

    def _write_ahead(self, buffer: StreamBuffer) -> None:
        if (complete := buffer.complete()) is None or not complete[1]:
            return
        segment, blocks = complete
        with segment.preparing, _Barrier(segment, "written"):
            if not segment.state.physical_closed:
                with self._encoding(segment, buffer) as encoding:
                    encoding.write(blocks)

    @contextmanager
    def _encoding(self, segment: Segment, buffer: StreamBuffer) -> Iterator[Encoding]:
        """What is made of the segment's file; after an error it is begun anew."""
        if (encoding := self._encodings.get(segment.file_id)) is None:
            encoding = self._encodings[segment.file_id] = Encoding(buffer.shape.schema, self._form)
        try:
            yield encoding
        except BaseException:
            self._encodings.pop(segment.file_id, None)
            raise

    def _close(self, buffer: StreamBuffer, segment: Segment) -> None:
        with segment.preparing:
            if not segment.state.physical_closed:
                with _Barrier(segment, "closed"):
                    with self._encoding(segment, buffer) as encoding:
                        data = encoding.finish(segment.blocks)
                    store(segment, data, self._files)
                segment.state.physical_closed = True
                del self._encodings[segment.file_id]

    def _flush_index(self, segments: Sequence[Segment], failures: list[PublishBarrierError]) -> None:
        """The primary index once for all of them: to write it out costs as much for one file as for many."""
        if not segments:
            return
        with _Barrier(segments[0], "flushed"):
            self._index.flush_primary()
        for each in segments:
            with _noted(failures), _Barrier(each, "flushed"):
                self._index.flush_file(each.file_id)
                each.state.index_flushed = True

    def _make_regular(self, segment: Segment) -> None:
        if segment.state.metadata_regular:
            return
        assert segment.min_row_id is not None
        assert segment.max_row_id is not None
        with _Barrier(segment, "made REGULAR"):
            self._table.publish_regular(segment.file_id, len(segment.blocks), segment.min_row_id, segment.max_row_id)
        segment.state.metadata_regular = True

    def _admit(self, buffer: StreamBuffer, segment: Segment) -> None:
        try:
            with buffer.leaving(segment):
                self._registry.register(_facts(segment))
                self._visibility.admit(segment.file_id, [block.visibility for block in segment.blocks])
        except BaseException as error:
            self._fail(error)
            raise
        segment.state.registry_admitted = True

    def _turn(self, buffer: StreamBuffer) -> threading.Lock:
        with self._guard:
            return self._turns.setdefault(id(buffer), threading.Lock())


class _Barrier:
    """Says which file did not get past which step."""

    def __init__(self, segment: Segment, what: str) -> None:
        self._segment = segment
        self._what = what

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, HeadwaterError | pa.ArrowException) and not isinstance(error, PublishBarrierError):
            raise PublishBarrierError(
                f"{self._segment.name} could not be {self._what}: {getattr(error, 'message', error)}",
                hint="its rows are still read from the buffer; it is tried again",
                file_id=self._segment.file_id,
            ) from error


@contextmanager
def _noted(failures: list[PublishBarrierError]) -> Iterator[None]:
    try:
        yield
    except PublishBarrierError as error:
        failures.append(error)


def _facts(segment: Segment) -> AdmittedFile:
    assert segment.min_timestamp is not None
    assert segment.max_timestamp is not None
    return AdmittedFile(
        segment.file_id,
        segment.name,
        segment.stream,
        segment.first_block_id,
        segment.min_timestamp,
        segment.max_timestamp,
        tuple(block.visible_size for block in segment.blocks),
    )
