"""Every request is counted, timed and told in the log: who asked, what, and how it was answered.

What nobody foresaw is answered here too. Behind the first bytes of an answer nothing can be answered any more: then the
connection breaks off, so that nobody takes what arrived for the whole.
"""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.kernel.clock import Clock
from headwater.kernel.logs import Log
from headwater.kernel.metrics import Metric, MetricKind, Metrics
from headwater.server.errors import settle_url
from headwater.server.problems import Problem, problem

REQUESTS = Metric(
    "headwater_server_requests_total",
    MetricKind.COUNTER,
    "Requests answered, by route, method and status.",
    ("route", "method", "status"),
)
SECONDS = Metric(
    "headwater_server_request_seconds",
    MetricKind.HISTOGRAM,
    "Time from a request to the end of its answer, by route.",
    ("route",),
)

# A label has only so many values, whatever clients make up.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

_UNFORESEEN = problem(500, "failed", "something went wrong that was not foreseen", "the server's log tells more")

_log = Log("server.requests")


def _cut_off(scope: Scope) -> Problem:
    """What is said to whoever is not waited for any more: a write may have been carried out, or will be."""
    state: dict[str, Any] = scope.get("state", {})
    said = "the server was told to stop, and did not wait for this any longer"
    operation = state.get("operation")
    if operation is None:
        return problem(500, "stopping", said, "ask again elsewhere; what a write has come to is told by the log")
    settle = settle_url(operation, state.get("branch"))
    hint = "ask the URL in `settle` before doing the work again, or send it again with the same Idempotency-Key"
    return problem(500, "outcome_unknown", said, hint, operation=operation, settle=settle)


class Watched:
    """ASGI: counts and times what passes through."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, clock: Clock) -> None:
        self._app = app
        self._metrics = metrics
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and tell what came of it; one that broke off has the status 0."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, is_whole = self._clock.monotonic(), 0, False

        async def watched(message: Message) -> None:
            nonlocal status, is_whole
            if message["type"] == "http.response.start":
                status = message["status"]
            is_whole = is_whole or (message["type"] == "http.response.body" and not message.get("more_body"))
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:  # uvicorn would close the connection of an answer that is whole
            _log.error("a request failed in a way that was not foreseen", cause=error, path=scope["path"])
            if status == 0:
                await _UNFORESEEN(scope, receive, watched)
        except asyncio.CancelledError:  # the server has waited long enough for it, and ends
            if status == 0:
                await _cut_off(scope)(scope, receive, watched)
        finally:
            self._tell(scope, status if is_whole else 0, self._clock.monotonic() - began)

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if route != "none" and scope["method"] in _METHODS else "any"
        self._metrics.count(REQUESTS, route=route, method=method, status=str(status))
        self._metrics.observe(SECONDS, seconds, route=route)
        state: dict[str, Any] = scope.get("state", {})
        caller = state.get("caller")
        _log.info(
            "answered",
            method=scope["method"],
            path=scope["path"],
            status=status,
            code=state.get("code"),
            actor=caller.actor if caller else None,
            operation=state.get("operation"),
            seconds=round(seconds, 4),
        )
