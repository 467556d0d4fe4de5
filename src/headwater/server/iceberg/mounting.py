"""The catalog within the server: who may ask, how many at a time, and for how long."""

from __future__ import annotations

from fastapi import APIRouter, Request

from headwater.access.model import Role
from headwater.kernel.errors import HeadwaterError, UsageError
from headwater.kernel.settings import ServerSettings
from headwater.server.iceberg.protocol import Terms
from headwater.server.iceberg.router import router
from headwater.server.serving import Serving

PREFIX = "/iceberg"
# What PyIceberg sends when it was given no token.
_NO_TOKEN = "Bearer None"  # noqa: S105


def catalog_routes(serving: Serving) -> APIRouter:
    """The Iceberg REST catalog of the lake that is served."""

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
    made.include_router(
        router(serving.lake, actor_of, is_token=is_token, config=_config(serving.settings), terms=terms)
    )
    return made


def _config(settings: ServerSettings) -> dict[str, str]:
    """What engines get with every table. It is whatever the setting says: credentials are not there by themselves."""
    pairs = [each.partition("=") for each in settings.iceberg_config]
    for name, equals, _ in pairs:
        if not equals or not name:
            raise UsageError("server.iceberg_config is not made of name=value", hint="s3.endpoint=http://…", part=name)
    return {name: value for name, _, value in pairs}
