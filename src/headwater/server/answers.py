"""The answer to a query on its way out, batch by batch.

The first batch is made before the status is sent, so that what is wrong with the SQL is told by the status. An error
after that breaks the connection off: what arrived has no end, and no client takes it for the whole.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from itertools import chain
from typing import Any

import anyio
import pyarrow as pa
from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from headwater.catalog.errors import BehindHorizonError
from headwater.lake import Lake
from headwater.query import Stop
from headwater.query.output import rows_of, to_json, unique
from headwater.server.errors import ShapeError
from headwater.server.positions import pointing_into
from headwater.server.serving import Serving

ARROW, JSON, NDJSON = "application/vnd.apache.arrow.stream", "application/json", "application/x-ndjson"
# At what commit a query was answered.
COMMIT = "Headwater-Commit"


class QueryResponse(StreamingResponse):
    """A stream that ends its query when it ends, however it does."""

    def __init__(self, chunks: Iterator[bytes], stack: ExitStack, stop: Stop, **options: Any) -> None:
        super().__init__(chunks, **options)
        self._stack = stack
        self._stop = stop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            with anyio.CancelScope(shield=True):
                await run_in_threadpool(self._stack.close)

    async def listen_for_disconnect(self, receive: Receive) -> None:
        """Wait until the client goes; the query, which may be far from its next rows, ends then."""
        await super().listen_for_disconnect(receive)
        self._stop.ask()


@asynccontextmanager
async def ended_with(request: Request) -> AsyncIterator[Stop]:
    """What ends a query that has no answer yet, when its client goes or nobody waits for it any more."""
    stop = Stop()

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        stop.ask()

    watching = asyncio.ensure_future(watch())
    try:
        yield stop
    except BaseException:
        stop.ask()
        raise
    finally:
        watching.cancel()


def answered(serving: Serving, stop: Stop, sql: str, branch: str, at: str | None, accept: str) -> QueryResponse:
    """The response to a query; whatever can be wrong before its first rows is an error of ours."""
    kind = chosen(accept)
    stack = ExitStack()
    try:
        stack.enter_context(serving.stops.of(stop))
        with pointing_into(sql):
            at_hash, reader = _begun(serving.lake, stack, stop, sql, branch, at)
            first = next(reader, None)
    except BaseException:
        stack.close()
        raise
    batches = chain([] if first is None else [first], reader)
    chunks = {ARROW: _arrow, JSON: _json, NDJSON: _ndjson}[kind](reader.schema, batches)
    ending = _then_checked(chunks, stack)
    return QueryResponse(ending, stack, stop, media_type=kind, headers={COMMIT: at_hash})


def chosen(accept: str) -> str:
    """Which of our types an Accept header likes best; JSON when it does not mind."""
    best, best_weight = None, 0.0
    for part in accept.split(","):
        name, *parameters = (each.strip().lower() for each in part.split(";"))
        weight = next((_weight(each) for each in parameters if each.startswith("q=")), 1.0)
        kinds = [each for each in (JSON, ARROW, NDJSON) if name in (each, "*/*", f"{each.split('/')[0]}/*")]
        if kinds and weight > best_weight:
            best, best_weight = kinds[0], weight
    if best is None:
        raise ShapeError(
            406, "not_acceptable", f"no answer is {accept}", hint=f"accept one of {JSON}, {ARROW}, {NDJSON}"
        )
    return best


def _weight(text: str) -> float:
    try:
        return float(text.removeprefix("q="))
    except ValueError:
        return 0.0


def _begun(
    lake: Lake, stack: ExitStack, stop: Stop, sql: str, branch: str, at: str | None
) -> tuple[str, pa.RecordBatchReader]:
    at_hash = lake.resolve(at, branch=branch)
    try:
        return at_hash, stack.enter_context(lake.stream(sql, branch=branch, at=at_hash, stop=stop))
    except BehindHorizonError:
        # A head that was superseded and collected before it was held; any other commit stays where it is.
        if (newer := lake.resolve(at, branch=branch)) == at_hash:
            raise
        return newer, stack.enter_context(lake.stream(sql, branch=branch, at=newer, stop=stop))


def _then_checked(chunks: Iterator[bytes], stack: ExitStack) -> Iterator[bytes]:
    """The last piece goes out once the query has ended well: that what it read was kept until then is checked there."""
    held: bytes | None = None
    for each in chunks:
        if held is not None:
            yield held
        held = each
    stack.close()
    if held is not None:
        yield held


class _Sink:
    """What Arrow writes into; it is taken out piece by piece."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(self._pieces[-1])

    def flush(self) -> None:
        pass

    def taken(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def _arrow(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    sink = _Sink()
    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            if piece := sink.taken():
                yield piece
    yield sink.taken()


def _objects(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[list[str]]:
    """The rows of each batch, as JSON objects."""
    names = unique(schema.names)
    for batch in batches:
        yield [
            json.dumps(dict(zip(names, map(to_json, row), strict=True)), allow_nan=False, ensure_ascii=False)
            for row in rows_of([batch])
        ]


def _json(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    columns = [{"name": name, "type": str(kind)} for name, kind in zip(unique(schema.names), schema.types, strict=True)]
    yield f'{{"columns": {json.dumps(columns)}, "rows": ['.encode()
    before = ""
    for rows in _objects(schema, batches):
        if rows:
            yield (before + ",\n".join(rows)).encode()
            before = ",\n"
    yield b"]}"


def _ndjson(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    for rows in _objects(schema, batches):
        if rows:
            yield ("\n".join(rows) + "\n").encode()
    yield b""
