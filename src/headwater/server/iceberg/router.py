"""The Iceberg REST catalog as routes, to be mounted under `/iceberg`.

`GET /v1/config?warehouse=<branch>` says the prefix of the branch, under which everything else is. Without a warehouse
it is `main`; a tag is a warehouse too, and takes no writes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from headwater.access.model import Role
from headwater.catalog.errors import RefNotFoundError
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.lake import Lake
from headwater.server.iceberg import routes_namespaces, routes_tables, routes_views
from headwater.server.iceberg.context import ActorOf, Context, Once, as_often_as_sent
from headwater.server.iceberg.decide import prefix_of
from headwater.server.iceberg.errors import BodyError, NotFoundError
from headwater.server.iceberg.protocol import Commits
from headwater.server.iceberg.reading import Reading
from headwater.server.iceberg.routes_namespaces import Body
from headwater.server.iceberg.routing import ProtocolRoute, ProtocolRouter, error_response, form

TOKEN_SECONDS = 3600
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_CONFIG, _TOKENS = "/v1/config", "/v1/oauth/tokens"


@dataclass(frozen=True)
class Terms:
    """How writes are taken: `room` lets one in, or refuses; `once` carries it out, and keeps keys for so long."""

    room: Callable[[], AbstractContextManager[None]] = nullcontext
    once: Once = as_often_as_sent
    keys_kept_seconds: float | None = None


def router(
    lake: Lake,
    actor_of: ActorOf,
    *,
    is_token: Callable[[str], bool] = bool,
    config: Mapping[str, str] | None = None,
    terms: Terms = Terms(),  # noqa: B008  (frozen)
    prefix: str = "",
) -> APIRouter:
    """The catalog of a lake, under a prefix if there is one.

    `actor_of` says who calls, or refuses. `is_token` says whether a text is a valid token, for clients that insist on
    asking for one by their secret. `config` goes to clients with every table: how its files are reached; what of it is
    a secret, to those who may write. `terms` say how writes are taken.
    """
    made = ProtocolRouter(prefix=prefix, tags=["iceberg"], route_class=ProtocolRoute, include_in_schema=False)
    context = Context(lake, Reading(lake, config or {}), Commits(lake, terms.room), actor_of, terms.once)
    for each in (routes_namespaces, routes_tables, routes_views):
        each.add_routes(made, context)
    # In the order of the routes, so that what is told is what there is.
    routes = [each for each in made.routes if isinstance(each, APIRoute)]
    told = [f"{method} {each.path.removeprefix(prefix)}" for each in routes for method in sorted(each.methods or ())]
    _add_config(made, context, {"endpoints": told, **_keys(terms)})
    _add_tokens(made, is_token)

    @made.api_route("/v1/{rest:path}", methods=["GET", "HEAD", "POST", "PUT", "DELETE"], include_in_schema=False)
    def anything_else(rest: str) -> Response:
        """What is none of the protocol's addresses."""
        return error_response(404, "NotFoundException", f"there is nothing at /v1/{rest}")

    return made


def _keys(terms: Terms) -> dict[str, str]:
    """How long a key is good for; clients send one only where they hear of that."""
    seconds = terms.keys_kept_seconds
    return {} if seconds is None else {"idempotency-key-lifetime": f"PT{int(seconds)}S"}


def _add_config(made: APIRouter, context: Context, told: Mapping[str, object]) -> None:
    """What a client asks before anything else."""

    @made.get(_CONFIG)
    def get_config(request: Request, warehouse: str | None = None) -> Response:
        """Where a branch is, and what can be asked there."""
        context.actor_of(request, Role.READER)
        name = warehouse or DEFAULT_BRANCH
        try:
            ref = context.reading.ref(prefix_of(name))
        except RefNotFoundError as error:
            raise NotFoundError("warehouse", name) from error
        defaults = context.reading.config(secrets=context.sees_secrets(request))
        return JSONResponse({"defaults": dict(defaults), "overrides": {"prefix": prefix_of(ref.name)}, **told})


def _add_tokens(made: APIRouter, is_token: Callable[[str], bool]) -> None:
    @made.post(_TOKENS)
    def get_token(body: Body, authorization: Annotated[str | None, Header()] = None) -> Response:
        """The token of who knows it: the secret is the token."""
        try:
            given = form(body)
        except BodyError as error:
            return _refused_token(400, "invalid_request", error.message)
        if given.get("grant_type") not in ("client_credentials", _EXCHANGE):
            return _refused_token(400, "unsupported_grant_type", "ask by client_credentials")
        secret = given.get("client_secret") or given.get("subject_token") or _basic(authorization)
        if not secret or not is_token(secret):
            return _refused_token(401, "invalid_client", "the client_secret is no valid token")
        return JSONResponse(
            {
                "access_token": secret,
                "token_type": "bearer",
                "expires_in": TOKEN_SECONDS,
                "issued_token_type": _ACCESS_TOKEN,
            },
            headers={"Cache-Control": "no-store"},
        )


def _refused_token(status: int, error: str, why: str) -> Response:
    return JSONResponse({"error": error, "error_description": why}, status_code=status)


def _basic(authorization: str | None) -> str:
    """The password of a client that says who it is in a header."""
    kind, _, text = (authorization or "").partition(" ")
    if kind.lower() != "basic":
        return ""
    try:
        return base64.b64decode(text, validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return ""
