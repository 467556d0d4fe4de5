"""The catalog within the server: who may ask, how many at a time, and for how long."""

from __future__ import annotations

from fastapi import APIRouter, Request

from headwater.access.model import Role, TokenRefusedError
from headwater.kernel.errors import UsageError
from headwater.kernel.settings import ServerSettings
from headwater.publish.model import Attempt
from headwater.server.asking import asked
from headwater.server.iceberg.protocol import Landed, Work
from headwater.server.iceberg.router import Terms, router
from headwater.server.once import carry_out
from headwater.server.serving import Serving

PREFIX = "/iceberg"


def catalog_routes(serving: Serving) -> APIRouter:
    """The Iceberg REST catalog of the lake that is served."""

    def actor_of(request: Request, role: Role) -> str:
        caller = serving.admit(request.headers, role)
        request.state.caller = caller
        return caller.actor

    def is_token(text: str) -> bool:
        try:
            return bool(serving.tokens.caller(text).actor)
        except TokenRefusedError:
            return False

    def once(request: Request, branch: str, work: Work) -> Landed:
        def done(attempt: Attempt) -> dict[str, object]:
            landed = work(attempt)
            return {"operation": attempt.operation, "commit": landed.hash, "is_made": landed.is_made}

        key, said = request.headers.get("idempotency-key"), getattr(request.state, "body_digest", "")
        found = carry_out(serving, asked(request, request.state.caller, branch, key, said), done).body
        # What was settled by the log alone is a commit.
        return Landed(str(found["commit"]), is_made=bool(found.get("is_made", True)))

    terms = Terms(serving.writes.enter, once, serving.settings.keys_kept_seconds)
    config = _config(serving.settings)
    return router(serving.lake, actor_of, is_token=is_token, config=config, terms=terms, prefix=PREFIX)


def _config(settings: ServerSettings) -> dict[str, str]:
    """What engines get with every table. It is whatever the setting says: credentials are not there by themselves."""
    pairs = [each.partition("=") for each in settings.iceberg_config]
    for place, (name, equals, _) in enumerate(pairs, 1):
        if not equals or not name:
            # What it says instead may be a secret.
            raise UsageError("server.iceberg_config is not made of name=value", hint="s3.endpoint=http://…", part=place)
    return {name: value for name, _, value in pairs}
