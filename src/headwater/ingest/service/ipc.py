"""Arrow batches inside messages: IPC streams, read whole and checked, written in pieces."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from headwater.ingest.apply.model import BadRequestError
from headwater.tables.claims import claimed

_SEVERAL = "send several requests with one timestamp, the next sequence each"
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
# What a message has beside its rows: a head, and for each column its lengths and what fills up its buffers.
_HEAD_BYTES = 1024
_COLUMN_BYTES = 512
_SMALL_BYTES = 1 << 14
_FEW = 8


class Room:
    """How many bytes the parts of a request may still unfold to, all together."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._taken_bytes = 0

    def take(self, size_bytes: int, what: str) -> None:
        """Take so many, or refuse them."""
        self._taken_bytes += size_bytes
        if self._taken_bytes > self._most_bytes:
            raise BadRequestError(
                f"{what} unfold to too much: {self._most_bytes} bytes may be in one request, all parts together",
                hint=_SEVERAL,
                size_bytes=self._taken_bytes,
            )


def batch_of(data: bytes, what: str, *, most_rows: int, room: Room) -> pa.RecordBatch | None:
    """The one batch of a stream, its pieces put together; nothing where no bytes came."""
    if not data:
        return None
    try:
        _refuse_what_unfolds(data, what, most_rows, room)
        with pa.ipc.open_stream(data) as stream:
            _refuse_hidden_views(stream.schema, what)
            table = stream.read_all()
        room.take(sum(_viewed_bytes(each) for column in table.columns for each in column.chunks), what)
        table.validate(full=True)
        whole = table.unify_dictionaries().combine_chunks()
        if whole.num_rows and whole.num_columns:
            return whole.to_batches()[0]
        return pa.RecordBatch.from_arrays([pa.array([], each.type) for each in whole.schema], schema=whole.schema)
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        # A name that is no UTF-8 is a ValueError.
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise BadRequestError(
            f"{what} are not an Arrow IPC stream: {said}", hint="send what pyarrow.ipc writes"
        ) from error


def _refuse_what_unfolds(data: bytes, what: str, most_rows: int, room: Room) -> None:
    """Count before anything is unfolded: a few compressed bytes may hold more than the node's memory."""
    rows = 0
    for message in pa.ipc.MessageReader.open_stream(data):
        more_rows, size_bytes = claimed(message.metadata.to_pybytes(), message.body)
        rows += more_rows
        if rows > most_rows:
            raise BadRequestError(
                f"{what} have {rows} rows, and {most_rows} may be in one batch", hint=_SEVERAL, rows=rows
            )
        room.take(size_bytes, what)


def _refuse_hidden_views(schema: pa.Schema, what: str) -> None:
    for field in schema:
        if not _is_view(field.type) and _has_views(field.type):
            raise BadRequestError(
                f"{field.name} of {what} is {field.type}, whose views cannot be counted",
                hint="send strings and bytes inside of others as large_string and large_binary",
            )


def _has_views(kind: pa.DataType) -> bool:
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    if isinstance(kind, pa.BaseExtensionType):
        inner.append(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        inner.append(kind.value_type)
    return _is_view(kind) or any(map(_has_views, inner))


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _viewed_bytes(column: pa.Array) -> int:
    """What views point at, each for itself: many may point at the same, and all become text of their own."""
    if not _is_view(column.type) or not len(column):
        return 0
    views = np.frombuffer(column.buffers()[1], np.int32)[: 4 * (column.offset + len(column))]
    lengths = views[4 * column.offset :: 4].astype(np.int64)
    return int(lengths[lengths > 0].sum())


def bytes_of(batch: pa.RecordBatch) -> bytes:
    """A batch as a stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def pieces_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[memoryview]:
    """A stream in pieces of at most so many bytes.

    A large message of the stream is a piece, or several: who reads it then copies it once. Small ones, each of which
    would cost as much to send, share a piece, a few at a time; an empty batch says that somebody waits for them.
    """
    few, count = bytearray(), 0
    for message, is_waited_for in _messages(schema, batches, most_bytes):
        is_small = len(message) <= _SMALL_BYTES
        if few and not (is_small and len(few) + len(message) <= most_bytes):
            yield memoryview(few)
            few, count = bytearray(), 0
        if not is_small or len(message) > most_bytes:
            yield from _cut(message, most_bytes)
            continue
        few += message
        count += 1
        if is_waited_for or count == _FEW:
            yield memoryview(few)
            few, count = bytearray(), 0
    if few:
        yield memoryview(few)


def _messages(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], most_bytes: int
) -> Iterator[tuple[memoryview, bool]]:
    yield memoryview(schema.serialize()), False
    for batch in batches:
        for part in _parts(batch, most_bytes):
            yield memoryview(part.serialize()), not batch.num_rows
    yield memoryview(_END_OF_STREAM), False


def _parts(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """The batch in parts of as many rows as a piece holds."""
    room_bytes = max(most_bytes - _HEAD_BYTES - _COLUMN_BYTES * batch.num_columns, most_bytes // 2)
    rows = max(1, batch.num_rows // max(1, -(-batch.nbytes // room_bytes)))  # a batch may be empty
    for start in range(0, max(1, batch.num_rows), rows):
        yield batch.slice(start, rows)


def _cut(message: memoryview, most_bytes: int) -> Iterator[memoryview]:
    for start in range(0, len(message), most_bytes):
        yield message[start : start + most_bytes]
