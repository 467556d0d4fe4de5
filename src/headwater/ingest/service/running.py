"""A node that runs: all of it, or nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from headwater.ingest.client import Times
from headwater.ingest.model import Timestamp
from headwater.ingest.node import Node
from headwater.ingest.service.keeper import TimeKeeper
from headwater.ingest.service.limits import ServiceLimits
from headwater.ingest.service.server import NodeServer
from headwater.ingest.service.time import TimeCalls
from headwater.rpc.ingest.v1 import ingest_pb2 as pb

GRACE_SECONDS = 10.0
_WATERMARKS_SECONDS = 2.0


@contextmanager
def running(
    node: Node,
    keeper: TimeKeeper,
    address: str,
    limits: ServiceLimits = ServiceLimits(),  # noqa: B008  (frozen)
    *,
    grace_seconds: float = GRACE_SECONDS,
) -> Iterator[int]:
    """Publishing, answering, keeping time; says the port. When one cannot begin, those before it end.

    The node listens before it asks for the time, so that a holder who is named answers. At the end the time is given
    away first, so that another keeps it while calls under way finish here.
    """
    server = NodeServer(node, TimeCalls(keeper.service), limits)
    with ExitStack() as stack:
        # This node names whoever keeps the time.
        times = stack.enter_context(Times([node.topology.node(node.name).address], timeout_seconds=_WATERMARKS_SECONDS))
        stack.callback(node.stop)
        node.start(lambda: _safe_timestamp(times))
        stack.callback(server.stop, grace_seconds)
        stack.callback(keeper.stop)
        port = server.start(address)
        keeper.start()
        yield port


def keep_for_good() -> None:
    """What is there by now stays as long as the process: the collector of garbage need not go through it again.

    All of it takes 0.1 seconds, during which nothing is answered.
    """
    gc.collect()
    gc.freeze()


def _safe_timestamp(times: Times) -> Timestamp:
    found: Timestamp = times.call("GetWatermarks", pb.GetWatermarksRequest()).safe_gc_timestamp
    return found
