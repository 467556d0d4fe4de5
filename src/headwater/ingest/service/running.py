"""A node that runs: all of it, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from headwater.ingest.node import Node
from headwater.ingest.service.keeper import TimeKeeper
from headwater.ingest.service.limits import ServiceLimits
from headwater.ingest.service.server import NodeServer
from headwater.ingest.service.time import TimeCalls

GRACE_SECONDS = 10.0


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

    The node listens before it asks for the time, so that a holder who is named answers. At the end calls under way
    finish first, then the time is given away.
    """
    server = NodeServer(node, TimeCalls(keeper.service), limits)
    with ExitStack() as stack:
        stack.callback(node.stop)
        node.start()
        stack.callback(keeper.stop)
        stack.callback(server.stop, grace_seconds)
        port = server.start(address)
        keeper.start()
        yield port
