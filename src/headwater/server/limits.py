"""How much at a time: bodies, and what is under way."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import anyio
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.kernel.ids import Ulid
from headwater.kernel.metrics import Metric, MetricKind, Metrics
from headwater.query import Stop
from headwater.server.errors import TooManyError

IN_FLIGHT = Metric(
    "headwater_server_in_flight", MetricKind.GAUGE, "Requests that are being carried out, by kind.", ("kind",)
)

# How much of a body is taken before anybody asks who sends it.
FREE_BYTES = 64 * 1024
# Of how many operations that ended here it is remembered that they did.
_ENDED_KEPT = 10_000


class Gate:
    """Lets at most so many in at a time, and tells whoever comes too many at once."""

    def __init__(self, kind: str, limit: int, metrics: Metrics) -> None:
        self._kind = kind
        self._limit = limit
        self._metrics = metrics
        self._lock = threading.Condition(threading.RLock())
        self._inside = 0

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Go in, or hear that too many are in."""
        with self._lock:
            self.refuse_if_full()
            self._count(1)
        try:
            yield
        finally:
            with self._lock:
                self._count(-1)
                self._lock.notify_all()

    def refuse_if_full(self) -> None:
        """Tell whoever is about to come that too many are in, before the trouble of coming."""
        with self._lock:
            if self._inside >= self._limit:
                raise TooManyError(self._kind, self._limit)

    def wait_until_empty(self, seconds: float) -> bool:
        """Wait until nobody is in; whether that is so."""
        with self._lock:
            return self._lock.wait_for(lambda: self._inside == 0, seconds)

    def _count(self, change: int) -> None:
        self._inside += change
        self._metrics.level(IN_FLIGHT, self._inside, kind=self._kind)


class Stops:
    """The queries that run in this process, and how each is ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[Stop] = set()

    @contextmanager
    def of(self, stop: Stop) -> Iterator[None]:
        """The query runs for as long as the block does."""
        with self._lock:
            self._running.add(stop)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(stop)

    @property
    def count(self) -> int:
        """How many run."""
        with self._lock:
            return len(self._running)

    def ask_all(self) -> None:
        """End them all."""
        with self._lock:
            running = list(self._running)
        for each in running:
            each.ask()


class Flights:
    """Which operations run in this process, and which have ended here: only what has ended may be settled.

    They are counted by the threads that do the work: those go on when the server gives up waiting for them.
    """

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._running: set[Ulid] = set()
        self._ended: OrderedDict[Ulid, None] = OrderedDict()

    @contextmanager
    def flying(self, operation: Ulid) -> Iterator[None]:
        """The operation runs for as long as the block does."""
        with self._lock:
            self._running.add(operation)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(operation)
                self._ended[operation] = None
                if len(self._ended) > _ENDED_KEPT:
                    self._ended.popitem(last=False)
                self._lock.notify_all()

    def wait_until_landed(self, seconds: float) -> bool:
        """Wait until nothing runs; whether that is so."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._running, seconds)

    def is_running(self, operation: Ulid) -> bool:
        """Whether it runs here."""
        with self._lock:
            return operation in self._running

    def has_ended(self, operation: Ulid) -> bool:
        """Whether it ran here, and has ended."""
        with self._lock:
            return operation in self._ended


class Bodies:
    """ASGI: no body is longer than it may be, and none stands still for longer than it may.

    Bodies are read before routes look at tokens. So whoever sends more than a little is looked at here: `known` says
    whether the request is of somebody, and thousands of strangers cannot fill the memory.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        most_bytes: Callable[[str], int],
        still_seconds: float,
        known: Callable[[Mapping[str, str]], bool],
    ) -> None:
        self._app = app
        self._known = known
        self._most_bytes = most_bytes
        self._still_seconds = still_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, its body measured on the way."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most, seen, is_whole, is_known = self._most_bytes(scope["path"]), 0, False, False

        async def measured() -> Message:
            nonlocal seen, is_whole, is_known
            if is_whole:  # what comes now is only that the client has gone
                return await receive()
            with anyio.move_on_after(self._still_seconds) as waiting:
                message = await receive()
            if waiting.cancelled_caught:
                raise HTTPException(408, "the body of the request stood still for too long")
            seen += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if seen > most:
                raise too_long(most)
            if seen > FREE_BYTES and not is_known:
                is_known = await run_in_threadpool(self._known, Headers(scope=scope))
                if not is_known:
                    raise HTTPException(401, "a token is needed", headers={"WWW-Authenticate": "Bearer"})
            return message

        await self._app(scope, measured, send)


def too_long(most: int) -> HTTPException:
    """What is said to a body that is too long."""
    return HTTPException(413, f"the body of the request is longer than {most} bytes")
