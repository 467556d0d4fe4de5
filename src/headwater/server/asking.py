"""What routes ask of a request before they do anything: who calls, is there room, under which key."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Annotated

from fastapi import Depends, Header, Path, Query, Request
from fastapi.routing import APIRoute

from headwater.access import Caller, Role
from headwater.server.errors import ShapeError
from headwater.server.once import Asked
from headwater.server.serving import Serving


def serving_of(request: Request) -> Serving:
    """What this app serves."""
    serving: Serving = request.app.state.serving
    return serving


def needs(role: Role) -> Callable[[Request], Caller]:
    """A dependency that lets those in who have the role; commits are in their name."""

    def admitted(request: Request) -> Caller:
        caller = serving_of(request).admit(request.headers, role)
        request.state.caller = caller
        return caller

    return admitted


def only_known_parameters(request: Request) -> None:
    """Refuse what the route does not know: who mistypes `expected` must not delete unconditionally."""
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = sorted(each.alias for each in route.dependant.query_params)
    for name in request.query_params:
        if name not in known:
            hint = f"it takes {', '.join(known)}" if known else "it takes none"
            raise ShapeError(422, "invalid_request", f"this route takes no parameter {name!r}", hint=hint)


Served = Annotated[Serving, Depends(serving_of)]
Reader = Annotated[Caller, Depends(needs(Role.READER))]
Writer = Annotated[Caller, Depends(needs(Role.WRITER))]
Admin = Annotated[Caller, Depends(needs(Role.ADMIN))]


async def room_to_write(serving: Served, caller: Writer) -> AsyncIterator[Caller]:
    """A place among those who write, or 429."""
    with serving.writes.enter():
        yield caller


async def room_to_administer(serving: Served, caller: Admin) -> AsyncIterator[Caller]:
    """The same for an admin."""
    with serving.writes.enter():
        yield caller


async def room_to_query(serving: Served, caller: Reader) -> AsyncIterator[Caller]:
    """A place among those who query, or 429."""
    with serving.queries.enter():
        yield caller


Writing = Annotated[Caller, Depends(room_to_write)]
Administering = Annotated[Caller, Depends(room_to_administer)]
Querying = Annotated[Caller, Depends(room_to_query)]

Branch = Annotated[
    str, Path(description="A branch; slashes in its name are written as they are, or as %2F.", examples=["main"])
]
Tag = Annotated[str, Path(description="A tag; slashes in its name like those of a branch.", examples=["v1"])]
Expected = Annotated[str | None, Query(description="Only while it is at this commit.")]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="With it, the same request may be sent again until it is answered: it is carried out once.",
    ),
]
At = Annotated[str | None, Query(description="A hash or its beginning, a tag, or a moment like 2026-11-15T09:30Z.")]


def asked(request: Request, caller: Caller, branch: str, key: str | None, body: str) -> Asked:
    """The write that is asked for; another body, address or parameter is another request.

    The address counts as it was sent: once decoded, a slash in a name looks like one between names.
    """
    address = request.scope["raw_path"].decode("latin-1")
    said = f"{request.method} {address}?{request.url.query}\n{body}"
    return Asked(caller, branch, key, hashlib.sha256(said.encode()).hexdigest())
