"""The catalog within the server: who may ask, how many at a time, and for how long."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Request

from headwater.access.model import Role
from headwater.kernel.errors import HeadwaterError
from headwater.server.iceberg.protocol import Terms
from headwater.server.iceberg.router import router
from headwater.server.serving import Serving

PREFIX = "/iceberg"
# What PyIceberg sends when it was given no token.
_NO_TOKEN = "Bearer None"  # noqa: S105


def catalog_routes(serving: Serving, *, config: Mapping[str, str] | None = None) -> APIRouter:
    """The Iceberg REST catalog of the lake that is served. `config` goes to clients with every table."""

    def actor_of(request: Request, role: Role) -> str:
        headers = request.headers
        given = headers.get("authorization")
        caller = serving.admit(None if given == _NO_TOKEN else given, headers.get("host", ""), role)
        request.state.caller = caller
        return caller.actor

    def is_token(text: str) -> bool:
        try:
            return bool(serving.tokens.caller(text).actor)
        except HeadwaterError:
            return False

    terms = Terms(serving.writes.enter, serving.attempt)
    made = APIRouter(prefix=PREFIX, tags=["iceberg"], include_in_schema=False)
    made.include_router(router(serving.lake, actor_of, is_token=is_token, config=config, terms=terms))
    return made
