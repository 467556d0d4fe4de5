"""The application: routes, the answers to errors, and what runs beside the requests.

`create_app` takes everything that it stands on, so that tests serve any lake with any clock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing

import anyio.to_thread
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from headwater import __version__
from headwater.app import LAKE_MARKER
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.kernel.errors import CorruptError, HeadwaterError, UnavailableError
from headwater.kernel.logs import Log
from headwater.server import lake_api, lake_api_reading
from headwater.server.asking import Reader, Served
from headwater.server.errors import answer_to
from headwater.server.limits import Bodies
from headwater.server.problems import Problem, problem
from headwater.server.serving import Serving
from headwater.server.sweeping import Sweeper
from headwater.server.uploads import Uploads
from headwater.server.watching import Watched

# Threads beside those that write and query: for whoever looks at lists, and for the tokens of all.
_OTHER_THREADS = 16

_CODES = {
    401: "unauthorized",
    404: "not_found",
    405: "method_not_allowed",
    408: "body_timeout",
    413: "too_large",
    415: "unsupported_media_type",
}

_ROOT = (
    f"Headwater {__version__}: the lake API is under /v1 and described by /openapi.json, the Iceberg REST catalog is "
    "under /iceberg; /healthz and /readyz tell how it is\n"
)

_log = Log("server")


def create_app(serving: Serving, *, routers: tuple[APIRouter, ...] = ()) -> FastAPI:
    """The application that serves a lake; `routers` are other protocols, which see to tokens themselves."""
    app = FastAPI(
        title="Headwater",
        version=__version__,
        description="The lake API. Errors have one shape: `error`, `code`, `hint`, and what they are about.",
        lifespan=_running(serving),
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.serving = serving
    # Other protocols first: they know their addresses by a prefix, and whoever asks them waits for no other route.
    for each in (*routers, lake_api.router, lake_api_reading.router, _own_routes()):
        app.include_router(each)
    app.add_exception_handler(HeadwaterError, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(ClientDisconnect, _answer_nobody)
    app.add_middleware(
        Bodies, most_bytes=_longest(serving), still_seconds=serving.settings.body_seconds, known=serving.is_known
    )
    app.add_middleware(Watched, metrics=serving.metrics, clock=serving.clock)
    app.add_middleware(HeadAsGet)
    return app


class HeadAsGet:
    """ASGI: whoever asks for the head of an answer gets that of GET. The catalog of Iceberg has heads of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; the body of the answer is left out further down."""
        if scope["type"] == "http" and scope["method"] == "HEAD" and not scope["path"].startswith("/iceberg"):
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)


def _running(serving: Serving) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """While the application runs, what dead writers leave behind is swept; at its end, writes are waited for."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        settings = serving.settings
        threads = settings.writes_in_flight + settings.queries_in_flight + _OTHER_THREADS
        anyio.to_thread.current_default_thread_limiter().total_tokens = threads
        sweeper = Sweeper(serving)
        app.state.sweeper = sweeper
        sweeper.start()
        try:
            with closing(Uploads(serving.temp_directory)) as app.state.uploads:
                yield
        finally:
            # Who still queries has had the time to end by itself.
            serving.stops.ask_all()
            sweeper.stop()
            # What writes has a deadline of its own; nothing is cut off half way. Whoever gave up on its client is no
            # longer in the gate, and a protocol of others is not among the flights: both are waited for.
            patience = settings.write_seconds + settings.drain_seconds
            has_landed = await run_in_threadpool(serving.flights.wait_until_landed, patience)
            if not has_landed or not await run_in_threadpool(serving.writes.wait_until_empty, patience):
                _log.warning("writes are still under way at the end; they are recovered by whoever opens the lake next")

    return lifespan


def _own_routes() -> APIRouter:
    router = APIRouter(tags=["server"])

    @router.get("/", response_class=PlainTextResponse)
    async def root() -> str:
        """What this is, and where to look."""
        return _ROOT

    @router.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Whether the process lives."""
        return {"status": "ok"}

    @router.get("/readyz", responses={503: {**lake_api.PROBLEMS[503], "description": "The lake cannot be reached."}})
    def readyz(serving: Served) -> dict[str, str]:
        """Whether the lake can be reached."""
        lake = serving.lake
        lake.catalog.ref(DEFAULT_BRANCH)
        try:
            if lake.catalog.heads is not None:  # a folder that was moved away, or is no longer mounted
                lake.files.read(f"{lake.location}/{LAKE_MARKER}")
        except CorruptError as error:
            raise UnavailableError(f"{lake.name} is not there any more", hint="bring it back, or stop") from error
        return {"status": "ready"}

    @router.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {}}}, **{each: lake_api.PROBLEMS[each] for each in (401, 403, 503)}},
    )
    def metrics(serving: Served, _caller: Reader) -> Response:
        """Counts and durations in the Prometheus text format."""
        return Response(serving.metrics.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def _longest(serving: Serving) -> Callable[[str], int]:
    def most_bytes(path: str) -> int:
        is_load = path.startswith("/v1/") and path.endswith("/load")
        return serving.settings.load_bytes if is_load else serving.settings.request_bytes

    return most_bytes


async def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HeadwaterError)
    answer = answer_to(error, branch=getattr(request.state, "branch", None))
    request.state.code = answer.code
    if answer.status >= 500:
        _log.warning("a request failed", path=request.url.path, status=answer.status, error=str(error))
    return Problem(dict(answer.body), answer.status, headers=dict(answer.headers))


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if request.method == "POST" and not (kind.startswith("application/") and kind.endswith("json")):
        said = f"the body is {kind}" if kind else "the body has no content type"
        request.state.code = "unsupported_media_type"
        return problem(415, "unsupported_media_type", said, hint="send JSON as application/json")
    found = [{"where": ".".join(map(str, each["loc"])), "what": each["msg"]} for each in error.errors()]
    first, request.state.code = found[0], "invalid_request"
    message = f"the request is not what this route takes: {first['where']}: {first['what']}"
    return problem(422, "invalid_request", message, hint="/openapi.json tells what it takes", problems=found)


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    request.state.code = _CODES.get(error.status_code, "invalid_request")
    message, hint = str(error.detail), None
    if error.status_code == 404:
        message, hint = f"there is nothing at {request.url.path}", "/ tells what there is, and /openapi.json all of it"
    elif error.status_code == 405:
        message, hint = f"{request.url.path} does not take {request.method}", "/openapi.json tells what it takes"
    response = problem(error.status_code, request.state.code, message, hint)
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response


async def _answer_nobody(_request: Request, _error: Exception) -> Response:
    """Who has gone before the request was whole hears nothing."""
    return problem(400, "disconnected", "the request broke off")
