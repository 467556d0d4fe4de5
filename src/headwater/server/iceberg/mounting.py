"""The catalog within the server: who may ask, how many at a time, and for how long."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Request

from headwater.access.model import Role
from headwater.kernel.errors import HeadwaterError
from headwater.server.asking import needs
from headwater.server.iceberg.protocol import Terms
from headwater.server.iceberg.router import router
from headwater.server.serving import Serving

PREFIX = "/iceberg"


def catalog_routes(serving: Serving, *, config: Mapping[str, str] | None = None) -> APIRouter:
    """The Iceberg REST catalog of the lake that is served. `config` goes to clients with every table."""

    def actor_of(request: Request, role: Role) -> str:
        return needs(role)(request).actor

    def is_token(text: str) -> bool:
        try:
            return bool(serving.tokens.caller(text).actor)
        except HeadwaterError:
            return False

    terms = Terms(serving.writes.enter, serving.attempt)
    made = APIRouter(prefix=PREFIX, tags=["iceberg"], include_in_schema=False)
    made.include_router(router(serving.lake, actor_of, is_token=is_token, config=config, terms=terms))
    return made
