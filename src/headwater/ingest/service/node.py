"""The calls of writers, readers and operators, on the parts of a node."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import numpy as np

from headwater.ingest.apply.model import BadRequestError, TableUpdate, UpdateRequest
from headwater.ingest.keys import encode
from headwater.ingest.lifecycle import LifecycleState
from headwater.ingest.model import MAXIMUM_TIMESTAMP, Position, Timestamp
from headwater.ingest.node import Node
from headwater.ingest.scan.model import Comparison, Predicate, ScanRequest
from headwater.ingest.service.failures import CallerGoneError
from headwater.ingest.service.ipc import Room, batch_of, pieces_of
from headwater.ingest.service.key_text import checked_key, key_of
from headwater.ingest.service.limits import ServiceLimits
from headwater.kernel.errors import RefusedError
from headwater.rpc.ingest.v1 import ingest_pb2 as pb
from headwater.rpc.ingest.v1.ingest_pb2_grpc import IngestNodeServicer

_STATES = {
    LifecycleState.RECOVERING: pb.LIFECYCLE_STATE_RECOVERING,
    LifecycleState.READY: pb.LIFECYCLE_STATE_READY,
    LifecycleState.FAILED: pb.LIFECYCLE_STATE_FAILED,
}

_KEY_BYTES = 1 << 20
_MOST_PREDICATES = 100


class NodeService(IngestNodeServicer):
    """Translates messages; what they mean is decided below. Errors become statuses in `interceptor`."""

    def __init__(self, node: Node, limits: ServiceLimits) -> None:
        self._node = node
        self._limits = limits

    def UpdateRecord(self, request: pb.UpdateRecordRequest, context: grpc.ServicerContext) -> pb.UpdateRecordResponse:
        """Apply one request."""
        return self._update(request, context)

    def StreamUpdateRecord(
        self, request_iterator: Iterator[pb.UpdateRecordRequest], context: grpc.ServicerContext
    ) -> Iterator[pb.UpdateRecordResponse]:
        """Apply requests in their order. The next is asked for when the last was answered: the sender waits."""
        for request in request_iterator:
            yield self._update(request, context)

    def _update(self, request: pb.UpdateRecordRequest, context: grpc.ServicerContext) -> pb.UpdateRecordResponse:
        self._node.lifecycle.refuse_unless_ready()
        self._refuse_other_topology(request.topology_hash)
        if request.HasField("replay"):
            raise BadRequestError("the node is not recovering", hint="leave `replay` out")
        self._refuse_too_large(request)
        update = update_of(request, self._limits)
        _check_waits(context)
        self._node.applier.apply(update)
        return pb.UpdateRecordResponse(timestamp=request.timestamp, sequence=request.sequence)

    def AddWriteBuffer(
        self, request: pb.AddWriteBufferRequest, context: grpc.ServicerContext
    ) -> pb.AddWriteBufferResponse:
        """Make the buffer of a stream."""
        self._node.lifecycle.refuse_unless_ready()
        self._node.add_write_buffer(request.table, request.virtual_node)
        return pb.AddWriteBufferResponse()

    def Scan(self, request: pb.ScanRequest, context: grpc.ServicerContext) -> Iterator[memoryview]:
        """Rows of a table at a timestamp, in pieces that become messages when they are sent."""
        self._node.lifecycle.refuse_unless_ready()
        self._refuse_other_topology(request.topology_hash)
        schema, batches = self._node.scan(scan_of(request), lambda: _check_waits(context))
        yield from pieces_of(schema, batches, self._limits.piece_bytes)

    def QueryVisibility(
        self, request: pb.QueryVisibilityRequest, context: grpc.ServicerContext
    ) -> pb.QueryVisibilityResponse:
        """The deleted rows of row groups at a timestamp."""
        self._node.lifecycle.refuse_unless_ready()
        found = self._node.query_visibility(
            readable(request.timestamp), [(each.file_id, each.row_group) for each in request.row_groups]
        )
        return pb.QueryVisibilityResponse(
            row_groups=[
                pb.RowGroupVisibility(row_group=asked, base_timestamp=base, deleted=deleted)
                for asked, (base, deleted) in zip(request.row_groups, found, strict=True)
            ]
        )

    def GetWriteBuffer(
        self, request: pb.GetWriteBufferRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.GetWriteBufferResponse]:
        """Rows that are in no admitted file yet."""
        self._node.lifecycle.refuse_unless_ready()
        file_ids, schema, batches = self._node.write_buffer(
            request.table, request.virtual_node, readable(request.timestamp)
        )
        yield pb.GetWriteBufferResponse(file_ids=file_ids)
        for piece in pieces_of(schema, batches, self._limits.piece_bytes):
            yield pb.GetWriteBufferResponse(piece=bytes(piece))

    def RegisterOffload(
        self, request: pb.RegisterOffloadRequest, context: grpc.ServicerContext
    ) -> pb.RegisterOffloadResponse:
        """Keep what this timestamp sees readable while folding goes on, for a lease."""
        self._node.lifecycle.refuse_unless_ready()
        offloads = self._node.offloads
        offload_id = offloads.register(readable(request.timestamp))
        return pb.RegisterOffloadResponse(offload_id=offload_id, lease_seconds=offloads.lease_seconds)

    def UnregisterOffload(
        self, request: pb.UnregisterOffloadRequest, context: grpc.ServicerContext
    ) -> pb.UnregisterOffloadResponse:
        """Its reader is done."""
        self._node.offloads.unregister(request.offload_id)
        return pb.UnregisterOffloadResponse()

    def AddVisibility(
        self, request: pb.AddVisibilityRequest, context: grpc.ServicerContext
    ) -> pb.AddVisibilityResponse:
        """Visibility comes with admission; a file that is not admitted is refused."""
        self._node.lifecycle.refuse_unless_ready()
        self._node.refuse_not_admitted(request.file_id)
        return pb.AddVisibilityResponse()

    def ListFiles(self, request: pb.ListFilesRequest, context: grpc.ServicerContext) -> pb.ListFilesResponse:
        """Every file of a table, in every state."""
        return pb.ListFilesResponse(
            files=[
                pb.FileStatus(
                    file_id=each.file_id,
                    name=each.name,
                    type=each.type,
                    row_groups=each.num_row_group,
                    min_row_id=each.min_row_id or 0,
                    max_row_id=each.max_row_id or 0,
                )
                for each in self._node.list_files(request.table)
            ]
        )

    def LookUpKey(self, request: pb.LookUpKeyRequest, context: grpc.ServicerContext) -> pb.LookUpKeyResponse:
        """All that the index knows of a key."""
        shape = self._node.table(request.table)
        if request.texts:
            key = key_of(request.texts, shape)
        else:
            key = checked_key(batch_of(request.key, "the key columns", most_rows=1, room=Room(_KEY_BYTES)), shape)
        home, versions = self._node.versions(request.table, encode(key, shape.key))
        rows = np.array([-1 if each.row_id is None else each.row_id for each in versions], dtype=np.int64)
        places = self._node.index.main.locate(rows)
        return pb.LookUpKeyResponse(
            virtual_node=home,
            versions=[
                pb.KeyVersion(
                    timestamp=each.timestamp,
                    is_tombstone=each.row_id is None,
                    row_id=each.row_id or 0,
                    is_located=bool(places.file_ids[place] >= 0),
                    file_id=max(int(places.file_ids[place]), 0),
                    row_group=max(int(places.row_groups[place]), 0),
                    offset=max(int(places.offsets[place]), 0),
                )
                for place, each in enumerate(versions)
            ],
        )

    def GetStatus(self, request: pb.GetStatusRequest, context: grpc.ServicerContext) -> pb.GetStatusResponse:
        """The node as it is."""
        node = self._node
        return pb.GetStatusResponse(
            node=node.name,
            state=_STATES[node.lifecycle.state],
            topology_hash=node.topology.hash,
            failure=str(node.lifecycle.failure or ""),
            tables=sorted(node.tables),
            streams=[
                pb.StreamStatus(
                    table=each.table,
                    virtual_node=each.virtual_node,
                    applied_timestamp=each.applied.timestamp,
                    applied_sequence=each.applied.sequence,
                    buffered_rows=each.buffered_rows,
                    buffered_bytes=each.buffered_bytes,
                    files=each.files,
                )
                for each in node.streams()
            ],
        )

    def GetRecoveryReplayTs(
        self, request: pb.GetRecoveryReplayTsRequest, context: grpc.ServicerContext
    ) -> pb.GetRecoveryReplayTsResponse:
        """Not built yet."""
        raise _not_built()

    def MarkReady(self, request: pb.MarkReadyRequest, context: grpc.ServicerContext) -> pb.MarkReadyResponse:
        """Not built yet."""
        raise _not_built()

    def _refuse_too_large(self, request: pb.UpdateRecordRequest) -> None:
        size_bytes, most_bytes = request.ByteSize(), self._limits.request_bytes
        if size_bytes > most_bytes:
            raise BadRequestError(
                f"the request has {size_bytes} bytes, and {most_bytes} may be in one",
                hint="send several requests with one timestamp, the next sequence each",
                size_bytes=size_bytes,
            )

    def _refuse_other_topology(self, said: str) -> None:
        if said and said != self._node.topology.hash:
            raise RefusedError(
                f"the node runs with topology {self._node.topology.hash}, the request with {said}",
                hint="give the same topology file to nodes, writers and readers",
            )


def update_of(message: pb.UpdateRecordRequest, limits: ServiceLimits) -> UpdateRequest:
    """A request as the node means it; batches over the limit are refused."""
    updates = []
    room = Room(limits.request_bytes)
    for each in message.updates:
        parts = {
            part: batch_of(getattr(each, part), f"{part} of {each.table}", most_rows=limits.batch_rows, room=room)
            for part in ("deletes", "inserts", "updates")
        }
        updates.append(TableUpdate(each.table, each.virtual_node, each.key_timestamp, **parts))
    return UpdateRequest(Position(message.timestamp, message.sequence), tuple(updates))


def scan_of(message: pb.ScanRequest) -> ScanRequest:
    """A scan as the node means it."""
    if len(message.predicates) > _MOST_PREDICATES:
        # Arrow follows them by recursion, and would end the process.
        raise BadRequestError(
            f"{len(message.predicates)} predicates were given, and {_MOST_PREDICATES} may be",
            hint="leave the others to the reader",
        )
    return ScanRequest(
        message.table,
        readable(message.timestamp),
        columns=tuple(message.columns) or None,
        predicates=tuple(_predicate(each) for each in message.predicates),
        virtual_nodes=frozenset(message.virtual_nodes) or None,
    )


def readable(timestamp: Timestamp) -> Timestamp:
    """The timestamp of a read; one that no write can have is refused."""
    if timestamp > MAXIMUM_TIMESTAMP:
        raise BadRequestError(
            f"{timestamp} is no timestamp to read at", hint=f"at most {MAXIMUM_TIMESTAMP}", timestamp=timestamp
        )
    return timestamp


def _predicate(message: pb.Predicate) -> Predicate:
    try:
        comparison = Comparison(message.comparison)
    except ValueError:
        raise BadRequestError(
            f"{message.comparison!r} compares nothing", hint="one of " + ", ".join(Comparison)
        ) from None
    kind = message.WhichOneof("literal")
    is_unary = comparison in (Comparison.IS_NULL, Comparison.IS_NOT_NULL)
    if is_unary != (kind is None):
        raise BadRequestError(f"{comparison} takes {'no' if is_unary else 'a'} literal", column=message.column)
    return Predicate(message.column, comparison, getattr(message, kind) if kind else None)


def _check_waits(context: grpc.ServicerContext) -> None:
    if not context.is_active():
        raise CallerGoneError("nobody waits for the answer any more", hint="send it again, with a longer deadline")


def _not_built() -> RefusedError:
    return RefusedError(
        "recovery is not built yet", hint="this version of the node only runs in tests; see docs/decisions/0024"
    )
