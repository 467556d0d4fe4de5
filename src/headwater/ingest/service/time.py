"""The timestamp service over gRPC. The node that holds its lease answers; every other names that node."""

from __future__ import annotations

from collections.abc import Callable

import grpc

from headwater.ingest.timestamps.model import Transaction
from headwater.ingest.timestamps.protocol import TimestampService
from headwater.rpc.ingest.v1 import ingest_pb2 as pb
from headwater.rpc.ingest.v1.ingest_pb2_grpc import TimestampsServicer

_WRITES_TOLD = 1_000


class TimeCalls(TimestampsServicer):
    """Translates messages. `service` gives the timestamp service while this node holds its lease."""

    def __init__(self, service: Callable[[], TimestampService]) -> None:
        self._service = service

    def BeginTransaction(
        self, request: pb.BeginTransactionRequest, context: grpc.ServicerContext
    ) -> pb.BeginTransactionResponse:
        """Begin to write at a position of the source, or to read."""
        return _begun(self._service().begin(read_only=request.read_only, timestamp=request.timestamp or None))

    def BeginTransactionBatch(
        self, request: pb.BeginTransactionBatchRequest, context: grpc.ServicerContext
    ) -> pb.BeginTransactionBatchResponse:
        """Begin several."""
        begun = self._service().begin_batch(request.count, read_only=request.read_only)
        return pb.BeginTransactionBatchResponse(transactions=[_begun(each) for each in begun])

    def CommitTransaction(
        self, request: pb.CommitTransactionRequest, context: grpc.ServicerContext
    ) -> pb.CommitTransactionResponse:
        """All effects are complete and acknowledged; a read is over."""
        self._service().commit(request.transaction_id)
        return pb.CommitTransactionResponse()

    def RollbackTransaction(
        self, request: pb.RollbackTransactionRequest, context: grpc.ServicerContext
    ) -> pb.RollbackTransactionResponse:
        """There are no effects, and there will be none."""
        self._service().roll_back(request.transaction_id)
        return pb.RollbackTransactionResponse()

    def KeepAlive(self, request: pb.KeepAliveRequest, context: grpc.ServicerContext) -> pb.KeepAliveResponse:
        """Nothing below the position will come; these reads still go on."""
        self._service().keep_alive(request.timestamp, list(request.transaction_ids))
        return pb.KeepAliveResponse()

    def GetWatermarks(
        self, request: pb.GetWatermarksRequest, context: grpc.ServicerContext
    ) -> pb.GetWatermarksResponse:
        """Where time stands."""
        marks = self._service().watermarks()
        return pb.GetWatermarksResponse(
            high_watermark=marks.high,
            low_watermark=marks.low,
            read_timestamp=marks.read_timestamp,
            safe_gc_timestamp=marks.safe_gc_timestamp,
        )

    def ListOpenWrites(
        self, request: pb.ListOpenWritesRequest, context: grpc.ServicerContext
    ) -> pb.ListOpenWritesResponse:
        """What the high watermark waits for: writes whose owner may be gone, and that it or a person has to end."""
        # Re-sends hold nothing back, and come last.
        found = sorted(self._service().open_writes(), key=lambda each: each.is_resend)
        some = [
            pb.OpenWrite(transaction_id=each.id, timestamp=each.timestamp, is_resend=each.is_resend)
            for each in found[:_WRITES_TOLD]
        ]
        return pb.ListOpenWritesResponse(count=len(found), writes=some)


def _begun(transaction: Transaction) -> pb.BeginTransactionResponse:
    return pb.BeginTransactionResponse(
        transaction_id=transaction.id,
        timestamp=transaction.timestamp,
        is_resend=transaction.is_resend,
        lease_seconds=transaction.lease_seconds or 0,
    )
