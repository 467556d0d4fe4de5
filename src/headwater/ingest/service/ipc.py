"""Arrow batches inside messages: IPC streams, read whole and checked, written in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from headwater.ingest.apply.model import BadRequestError


def batch_of(data: bytes, what: str) -> pa.RecordBatch | None:
    """The one batch of a stream, its pieces put together; nothing where no bytes came."""
    if not data:
        return None
    try:
        with pa.ipc.open_stream(data) as stream:
            table = stream.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise BadRequestError(
            f"{what} are not an Arrow IPC stream: {str(error).splitlines()[0]}", hint="send what pyarrow.ipc writes"
        ) from error
    whole = table.unify_dictionaries().combine_chunks()
    return (
        whole.to_batches()[0]
        if whole.num_rows
        else pa.RecordBatch.from_arrays([pa.array([], each.type) for each in whole.schema], schema=whole.schema)
    )


def bytes_of(batch: pa.RecordBatch) -> bytes:
    """A batch as a stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def pieces_of(schema: pa.Schema, batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[bytes]:
    """A stream in pieces of at most so many bytes; each batch is sent as soon as it is there."""
    sink = _Sink()
    writer = pa.ipc.new_stream(pa.PythonFile(sink, "w"), schema)
    try:
        for batch in batches:
            writer.write_batch(batch)
            yield from sink.taken(most_bytes)
    finally:
        writer.close()
    yield from sink.taken(most_bytes)


class _Sink:
    """Keeps what is written until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: pa.Buffer) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def taken(self, most_bytes: int) -> Iterator[bytes]:
        whole, self._parts = b"".join(self._parts), []
        for start in range(0, len(whole), most_bytes):
            yield whole[start : start + most_bytes]
