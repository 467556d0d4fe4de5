"""A node from the other side: what feeders, readers and commands call. It knows the node only by its messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import grpc
import pyarrow as pa

from headwater.kernel.errors import HeadwaterError, RefusedError, UnavailableError, UsageError
from headwater.rpc.ingest.v1 import ingest_pb2 as pb
from headwater.rpc.ingest.v1 import ingest_pb2_grpc as stubs

_KINDS: dict[grpc.StatusCode, type[HeadwaterError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: UsageError,
    grpc.StatusCode.FAILED_PRECONDITION: RefusedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: UnavailableError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: UnavailableError,
}
_MESSAGE_BYTES = 64 << 20


class NodeClient:
    """A connection to one node. Errors arrive as the kinds that the node raised."""

    def __init__(self, address: str, *, timeout_seconds: float = 60.0) -> None:
        self.address = address
        self._timeout_seconds = timeout_seconds
        self._channel = grpc.insecure_channel(
            address,
            options=[
                ("grpc.max_receive_message_length", _MESSAGE_BYTES),
                ("grpc.max_send_message_length", _MESSAGE_BYTES),
            ],
        )
        self.node = stubs.IngestNodeStub(self._channel)  # type: ignore[no-untyped-call]
        self.time = stubs.TimestampsStub(self._channel)  # type: ignore[no-untyped-call]

    def __enter__(self) -> NodeClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def call(self, method: Callable[..., Any], request: object) -> Any:
        """One answer to one request."""
        with translated(self.address):
            return method(request, timeout=self._timeout_seconds)

    def update(self, request: pb.UpdateRecordRequest) -> pb.UpdateRecordResponse:
        """Apply one request."""
        answer: pb.UpdateRecordResponse = self.call(self.node.UpdateRecord, request)
        return answer

    def scan(
        self,
        table: str,
        timestamp: int,
        *,
        columns: Sequence[str] = (),
        predicates: Sequence[pb.Predicate] = (),
        topology_hash: str = "",
    ) -> pa.RecordBatchReader:
        """Rows of the node's part of a table at a timestamp, as they come."""
        request = pb.ScanRequest(
            table=table, timestamp=timestamp, columns=columns, predicates=predicates, topology_hash=topology_hash
        )
        with translated(self.address):
            pieces = _Pieces(self.node.Scan(request, timeout=self._timeout_seconds), self.address)
            return pa.ipc.open_stream(pa.PythonFile(pieces, "r"))


class _Pieces:
    """The pieces of a stream as a file that is read once."""

    closed = False

    def __init__(self, answers: Iterator[pb.ScanResponse], address: str) -> None:
        self._answers = answers
        self._address = address
        self._left = memoryview(b"")

    def read(self, size: int = -1) -> bytes:
        parts, wanted = [], size
        while wanted:
            if not self._left:
                with translated(self._address):
                    answer = next(self._answers, None)
                if answer is None:
                    break
                self._left = memoryview(answer.piece)
            taken = self._left if wanted < 0 else self._left[:wanted]
            self._left = self._left[len(taken) :]
            parts.append(taken)
            wanted -= len(taken) if wanted > 0 else 0
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def flush(self) -> None: ...

    def close(self) -> None: ...


@contextmanager
def translated(address: str) -> Iterator[None]:
    """Statuses become errors again, with what the node said of them."""
    try:
        yield
    except grpc.RpcError as error:
        code, details = error.code(), error.details() or ""
        trailer: Sequence[tuple[str, str]] = error.trailing_metadata() or ()  # type: ignore[assignment]
        said = [value for name, value in trailer if name == "headwater-error"]
        told: dict[str, Any] = json.loads(said[0]) if said else {}
        kind = _KINDS.get(code, HeadwaterError)
        message = told.pop("error", None) or f"{address} says {code.name}: {details}"
        hint = told.pop("hint", None) or ("is the node running?" if code is grpc.StatusCode.UNAVAILABLE else None)
        told.pop("kind", None)
        raise kind(message, hint=hint, **{"node": address} | told) from error
