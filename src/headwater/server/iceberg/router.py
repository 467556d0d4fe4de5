"""The Iceberg REST catalog as routes, to be mounted under `/iceberg`.

`GET /v1/config?warehouse=<branch>` says the prefix of the branch, under which everything else is. Without a warehouse
it is `main`; a tag is a warehouse too, and takes no writes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse

from headwater.access.model import Role
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.kernel.errors import HeadwaterError
from headwater.lake import Lake
from headwater.server.iceberg import routes_namespaces, routes_tables, routes_views
from headwater.server.iceberg.context import ActorOf, Context
from headwater.server.iceberg.decide import prefix_of
from headwater.server.iceberg.protocol import Commits, Terms
from headwater.server.iceberg.reading import Reading
from headwater.server.iceberg.routes_namespaces import Body
from headwater.server.iceberg.routing import ProtocolRoute, error_response, form

TOKEN_SECONDS = 3600
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105
_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_CONFIG, _TOKENS = "/v1/config", "/v1/oauth/tokens"


def router(
    lake: Lake,
    actor_of: ActorOf,
    *,
    is_token: Callable[[str], bool] = bool,
    config: Mapping[str, str] | None = None,
    terms: Terms = Terms(),  # noqa: B008  (frozen)
) -> APIRouter:
    """The catalog of a lake.

    `actor_of` says who calls, or refuses. `is_token` says whether a text is a valid token, for clients that insist on
    asking for one by their secret. `config` goes to clients with every table: how its files are reached. `terms` say
    how writes are taken.
    """
    made = APIRouter(route_class=ProtocolRoute)
    context = Context(lake, Reading(lake, config or {}), Commits(lake, terms), actor_of)
    for each in (routes_namespaces, routes_tables, routes_views):
        each.add_routes(made, context)
    # In the order of the routes, so that what is told is what there is.
    told = [f"{method} {each.path}" for each in made.routes for method in sorted(each.methods)]  # type: ignore[attr-defined]
    _add_beginning(made, context, told, config or {}, is_token)
    return made


def _add_beginning(
    made: APIRouter, context: Context, told: list[str], config: Mapping[str, str], is_token: Callable[[str], bool]
) -> None:
    """What a client asks before anything else, and how every other address is answered."""

    @made.get(_CONFIG)
    def get_config(request: Request, warehouse: str | None = None) -> Response:
        """Where a branch is, and what can be asked there."""
        context.actor_of(request, Role.READER)
        ref = context.reading.ref(prefix_of(warehouse or DEFAULT_BRANCH))
        overrides = {"prefix": prefix_of(ref.name)}
        return JSONResponse({"defaults": dict(config), "overrides": overrides, "endpoints": told})

    @made.post(_TOKENS)
    def get_token(body: Body, authorization: Annotated[str | None, Header()] = None) -> Response:
        """The token of who knows it: the secret is the token."""
        given = form(body)
        if given.get("grant_type") not in ("client_credentials", _EXCHANGE):
            return _refused_token(400, "unsupported_grant_type", "ask by client_credentials")
        secret = given.get("client_secret") or given.get("subject_token") or _basic(authorization)
        try:
            is_valid = bool(secret) and is_token(secret)
        except HeadwaterError:
            is_valid = False
        if not is_valid:
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

    @made.api_route("/v1/{rest:path}", methods=["GET", "HEAD", "POST", "PUT", "DELETE"], include_in_schema=False)
    def anything_else(rest: str) -> Response:
        """What is none of the protocol's addresses."""
        return error_response(404, "NotFoundException", f"there is nothing at /v1/{rest}")


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
