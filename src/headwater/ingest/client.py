"""A node from the other side: what feeders, readers and commands call. It knows the node only by its messages."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import grpc
import pyarrow as pa

from headwater.ingest import pieces
from headwater.kernel.errors import ConflictError, HeadwaterError, RefusedError, UnavailableError, UsageError
from headwater.rpc.ingest.v1 import ingest_pb2 as pb
from headwater.rpc.ingest.v1 import ingest_pb2_grpc as stubs

_KINDS: dict[grpc.StatusCode, type[HeadwaterError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: UsageError,
    grpc.StatusCode.FAILED_PRECONDITION: RefusedError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: UnavailableError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: UnavailableError,
    grpc.StatusCode.CANCELLED: UnavailableError,
    grpc.StatusCode.ABORTED: ConflictError,
}
_ANSWER_BYTES = 128 << 20
_HINTS = {
    grpc.StatusCode.UNAVAILABLE: "is the node running?",
    grpc.StatusCode.DEADLINE_EXCEEDED: "it may have been done: send the same again, with more time",
    grpc.StatusCode.UNIMPLEMENTED: "the node is of another version, or does not run this service",
}
_TOO_LARGE = "message larger than max"  # gRPC's own words
_HOPS = 3
_SERVICE = pb.DESCRIPTOR.services_by_name["IngestNode"].full_name


class NodeClient:
    """A connection to one node. Errors arrive as the kinds that the node raised."""

    def __init__(self, address: str, *, timeout_seconds: float = 60.0) -> None:
        self.address = address
        self._timeout_seconds = timeout_seconds
        self._channel = grpc.insecure_channel(
            address,
            options=[
                ("grpc.max_receive_message_length", _ANSWER_BYTES),
                # The node says what it takes.
                ("grpc.max_send_message_length", -1),
            ],
        )
        self.node = stubs.IngestNodeStub(self._channel)  # type: ignore[no-untyped-call]
        self.time = stubs.TimestampsStub(self._channel)  # type: ignore[no-untyped-call]
        self._scan = self._channel.unary_stream(f"/{_SERVICE}/Scan", pb.ScanRequest.SerializeToString, pieces.read)

    def __enter__(self) -> Self:
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
        """Rows of the node's part of a table at a timestamp, as they come: there is no end to how long it may take.

        The node is given up when nothing comes for the client's time. A reader that is let go ends the scan.
        """
        try:
            request = pb.ScanRequest(
                table=table, timestamp=timestamp, columns=columns, predicates=predicates, topology_hash=topology_hash
            )
        except ValueError as error:
            raise UsageError(f"no scan can be asked for like this: {error}", hint="timestamps are 0 or more") from error
        call: Any = self._scan(request)
        with translated(self.address):
            return pa.ipc.open_stream(pa.PythonFile(_Pieces(call, self.address, self._timeout_seconds), "r"))


class Times:
    """The timestamp service of some nodes, wherever it is: who does not keep the time names who does.

    A call whose answer is lost is made again, perhaps of another node: all but the begin of a write that asks for the
    next timestamp may be repeated. Such a begin is sent once, to the one who was found to keep the time.
    """

    def __init__(self, addresses: Sequence[str], *, timeout_seconds: float = 60.0) -> None:
        self._addresses = tuple(addresses)
        self._timeout_seconds = timeout_seconds
        self._clients: dict[str, NodeClient] = {}
        self.holder: str | None = None
        """Who answered last."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients.values():
            client.__exit__(kind, error, trace)

    def call(self, name: str, request: object) -> Any:
        """The answer of the holder to the method of this name."""
        if not _may_be_repeated(request):
            return self._call_once(name, request)
        refusals = []
        for first in dict.fromkeys(each for each in (self.holder, *self._addresses) if each):
            try:
                return self._follow(first, name, request)
            except (UnavailableError, ConflictError) as error:
                refusals.append(error.message)
        raise UnavailableError(
            "nobody keeps the time: " + "; ".join(refusals),
            hint="start a node; after a crash the next takes over when the lease has passed",
            nodes=list(self._addresses),
        )

    def _call_once(self, name: str, request: object) -> Any:
        if self.holder is None:
            self.call("GetWatermarks", pb.GetWatermarksRequest())
        holder, self.holder = self.holder, None  # who does not answer is looked for anew the next time
        assert holder is not None, "it has just answered"
        return self._follow(holder, name, request)

    def _follow(self, address: str, name: str, request: object) -> Any:
        for _ in range(_HOPS):
            try:
                answer = self._client(address).call(getattr(self._client(address).time, name), request)
            except RefusedError as error:
                # Only who does not keep the time names a holder.
                if "holder" not in error.fields:
                    raise
                address = str(error.fields["holder"])
            else:
                self.holder = address
                return answer
        raise UnavailableError(f"the time changes hands; {address} was named last", hint="ask again in a moment")

    def _client(self, address: str) -> NodeClient:
        if address not in self._clients:
            self._clients[address] = NodeClient(address, timeout_seconds=self._timeout_seconds)
        return self._clients[address]


def _may_be_repeated(request: object) -> bool:
    """Whether two of it are as good as one: each begin of a write at the next timestamp is another write."""
    if isinstance(request, pb.BeginTransactionRequest):
        return request.read_only or request.timestamp > 0
    return not isinstance(request, pb.BeginTransactionBatchRequest) or request.read_only


class _Patience:
    """Ends a call whose next piece is waited for longer than so many seconds, and at most twice as long.

    A deadline of gRPC would be one for all pieces, and also run while the reader is busy with the last.
    """

    def __init__(self, call: Any, seconds: float) -> None:
        self.seconds = seconds
        self.is_late = False
        self.is_over = threading.Event()
        self._waits = 0
        self._is_waiting = False
        threading.Thread(target=self._watch, args=(call,), name="patience", daemon=True).start()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """For as long as the block lasts, a piece is waited for."""
        self._waits, self._is_waiting = self._waits + 1, True
        try:
            yield
        finally:
            self._is_waiting = False

    def _watch(self, call: Any) -> None:
        seen = 0
        while not self.is_over.wait(self.seconds):
            if self._is_waiting and self._waits == seen:
                self.is_late = True
                call.cancel()
                return
            seen = self._waits


class _Pieces:
    """The pieces of a stream as a file that is read once."""

    closed = False

    def __init__(self, call: Any, address: str, patience_seconds: float) -> None:
        self._call = call
        self._address = address
        self._patience = _Patience(call, patience_seconds)
        self._left = memoryview(b"")

    def __del__(self) -> None:
        # Nobody will read on: the node need not go on either.
        self._patience.is_over.set()
        self._call.cancel()

    def _next(self) -> memoryview | None:
        """The next piece, None at the end."""
        try:
            with translated(self._address), self._patience.waiting():
                found: memoryview | None = next(self._call, None)
                return found
        except UnavailableError as error:
            if not self._patience.is_late:
                raise
            raise UnavailableError(
                f"{self._address} sent nothing for {self._patience.seconds:g} seconds",
                hint="look at it with `headwater node status`, and ask again",
                node=self._address,
            ) from error

    def read(self, size: int = -1) -> bytes:
        parts, wanted = [], size
        while wanted:
            if not self._left:
                answer = self._next()
                if answer is None:
                    break
                self._left = answer
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
        if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in details.lower():
            raise UsageError(
                f"the message is larger than {address} takes: {details}", hint="send fewer rows at a time", node=address
            ) from error
        kind = _KINDS.get(code, HeadwaterError)
        says = "cannot be reached" if code is grpc.StatusCode.UNAVAILABLE else f"says {code.name}"
        message = told.pop("error", None) or f"{address} {says}: {details}"
        hint = told.pop("hint", None) or _HINTS.get(code)
        told.pop("kind", None)
        raise kind(message, hint=hint, **{"node": address} | told) from error
