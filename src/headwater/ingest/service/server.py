"""The gRPC server of a node: limits, health, reflection."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from headwater.ingest.lifecycle import LifecycleState
from headwater.ingest.node import Node
from headwater.ingest.service.gate import Gate
from headwater.ingest.service.interceptor import Statuses
from headwater.ingest.service.limits import ServiceLimits
from headwater.ingest.service.node import NodeService
from headwater.ingest.service.time import TimeCalls
from headwater.kernel.errors import UnavailableError
from headwater.rpc.ingest.v1 import ingest_pb2 as pb
from headwater.rpc.ingest.v1 import ingest_pb2_grpc as stubs

_INGEST = pb.DESCRIPTOR.services_by_name["IngestNode"].full_name
_TIMESTAMPS = pb.DESCRIPTOR.services_by_name["Timestamps"].full_name
_STATUSES = health_pb2.HealthCheckResponse
_LIGHT_CALLS = 32


class NodeServer:
    """A node that listens. Made whole or not at all; nothing listens before `start`."""

    def __init__(
        self,
        node: Node,
        times: TimeCalls | None = None,
        limits: ServiceLimits = ServiceLimits(),  # noqa: B008  (frozen)
    ) -> None:
        self._node = node
        self._health = health.HealthServicer()
        node.lifecycle.watch(self.report)
        self._calls = ThreadPoolExecutor(limits.calls + _LIGHT_CALLS, thread_name_prefix=f"calls of {node.name}")
        self._server = grpc.server(
            self._calls,
            interceptors=[Statuses(Gate(limits.calls))],
            maximum_concurrent_rpcs=limits.calls + _LIGHT_CALLS,
            options=(
                # A message that is a little too large is read and refused with a reason; gRPC ends what is far beyond.
                ("grpc.max_receive_message_length", 2 * limits.request_bytes),
                ("grpc.max_send_message_length", 2 * limits.request_bytes),
                ("grpc.so_reuseport", 0),
                # A client that is gone without a word frees what it holds.
                ("grpc.keepalive_time_ms", 30_000),
                ("grpc.keepalive_timeout_ms", 10_000),
            ),
        )
        stubs.add_IngestNodeServicer_to_server(NodeService(node, limits), self._server)  # type: ignore[no-untyped-call]
        names = [_INGEST, health.SERVICE_NAME, reflection.SERVICE_NAME]
        if times is not None:
            stubs.add_TimestampsServicer_to_server(times, self._server)  # type: ignore[no-untyped-call]
            names.append(_TIMESTAMPS)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(names, self._server)

    def start(self, address: str) -> int:
        """Listen; says the port."""
        try:
            port: int = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise UnavailableError(
                f"nothing can listen at {address}", hint="another process may have the port", address=address
            ) from error
        self._server.start()
        return port

    def report(self) -> None:
        """Tell the health service what the lifecycle says."""
        is_ready = self._node.lifecycle.state is LifecycleState.READY
        status = _STATUSES.SERVING if is_ready else _STATUSES.NOT_SERVING
        for name in ("", _INGEST):
            self._health.set(name, status)

    def stop(self, grace_seconds: float) -> None:
        """Take nothing new, and let what is under way end.

        After the grace callers hear no answer, but what they began goes on to its end: the index is closed next.
        """
        self._health.enter_graceful_shutdown()
        self._server.stop(grace_seconds).wait()
        self._calls.shutdown()
