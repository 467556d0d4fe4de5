"""How a request of the protocol is taken, and every error answered in the protocol's own shape."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote_plus

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import ValidationError
from pyiceberg.typedef import IcebergBaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import Scope

from headwater.kernel.errors import HeadwaterError
from headwater.kernel.logs import Log
from headwater.server.iceberg.errors import UNFORESEEN, BodyError, answer_to

RETRY_AFTER_SECONDS = "2"
_log = Log("server")

B = TypeVar("B", bound=IcebergBaseModel)


def error_response(status: int, kind: str, message: str) -> Response:
    """An error in the protocol's shape."""
    headers = {"Retry-After": RETRY_AFTER_SECONDS} if status in (429, 503) else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    body = {"error": {"message": message, "type": kind, "code": status}}
    return JSONResponse(body, status_code=status, headers=headers)


def response_to(error: Exception) -> Response:
    """The answer to an error."""
    answer = answer_to(error)
    if isinstance(error, HeadwaterError):
        if answer.status >= 500:
            _log.warning("a request of the Iceberg protocol failed", error=str(error), status=answer.status)
        return error_response(answer.status, answer.type, str(error))
    _log.error("a request of the Iceberg protocol failed in a way that nobody foresaw", cause=error)
    return error_response(UNFORESEEN.status, UNFORESEEN.type, "something went wrong; the server's log has more")


class ProtocolRoute(APIRoute):
    """A route whose errors are in the protocol's shape, whatever application it is mounted in.

    Its address is taken apart before it is decoded: names may hold a slash, and Java's clients write a space as a plus.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether the address as it was sent is one of this route, and the names in it."""
        raw = scope.get("raw_path")
        if not raw:
            return super().matches(scope)
        found, child = super().matches({**scope, "path": raw.decode("latin-1")})
        given = child.get("path_params", {})
        return found, {**child, "path_params": {name: unquote_plus(str(each)) for name, each in given.items()}}

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with its errors answered."""
        handler = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestValidationError as error:
                first = error.errors()[0]
                where = ".".join(str(part) for part in first["loc"])
                return response_to(BodyError(f"{where}: {first['msg']}"))
            except ClientDisconnect:
                raise  # nobody hears an answer, and nothing has begun
            except HTTPException as error:
                kind = "NotAuthorizedException" if error.status_code == 401 else "BadRequestException"
                return error_response(error.status_code, kind, str(error.detail))
            except Exception as error:
                return response_to(error)

        return answered


class ProtocolRouter(APIRouter):
    """The routes under a prefix, all of whose addresses are the protocol's: they are tried for no other, and only once.

    The framework would look for the route twice, once to know whether there is one.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether the address is under the prefix; what is none of the protocol's is answered further down."""
        if not self.prefix or scope["type"] != "http":
            return super().matches(scope)
        return (Match.FULL if scope["path"].startswith(f"{self.prefix}/") else Match.NONE), {}


async def raw_body(request: Request) -> bytes:
    """The body as it came."""
    body = await request.body()
    request.state.body_digest = hashlib.sha256(body).hexdigest()
    return body


def parsed(model: type[B], body: bytes) -> B:
    """The body as the protocol describes it."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BodyError(f"the request is not what it should be: {where}: {first['msg']}") from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BodyError(f"the request is not what it should be: {error}") from error


def form(body: bytes) -> dict[str, str]:
    """The fields of a form."""
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=50))
    except ValueError as error:
        raise BodyError(f"the form cannot be read: {error}") from error
