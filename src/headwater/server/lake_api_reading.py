"""The lake API: what only looks. Lists come in pages; `next` is what to send as `page` for the one that follows."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from headwater.catalog.errors import BehindHorizonError, RefNotFoundError
from headwater.catalog.model import Commit, RefKind, TableKey
from headwater.catalog.names import DEFAULT_BRANCH, looks_like_hash
from headwater.catalog.travel import WHOLE_HASH_DIGITS
from headwater.kernel.errors import UsageError
from headwater.kernel.ids import Ulid, parse_ulid, time_of
from headwater.publish.errors import RecoveryPendingError
from headwater.publish.model import RECOVERY_ACTOR
from headwater.server.answers import answered, ended_with
from headwater.server.asking import At, Branch, Querying, Reader, Served, Tag, Writer, only_known_parameters
from headwater.server.bodies import Question
from headwater.server.lake_api import PROBLEMS
from headwater.server.once import Body
from headwater.server.serving import Serving
from headwater.server.shapes import Shape, commit_shape, difference_shapes, ref_shape, sidecar_shape, table_shape

# How many commits one page looks through for those of an actor.
_LOOKED_THROUGH = 10_000
_LONGEST_WAIT_SECONDS = 60

router = APIRouter(
    prefix="/v1",
    tags=["read"],
    responses={**PROBLEMS, 406: PROBLEMS[400]},
    dependencies=[Depends(only_known_parameters)],
)

Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many at a time.")]
Page = Annotated[str | None, Query(description="`next` of the page before.")]


@router.post(
    "/{branch:path}/query",
    response_class=Response,
    responses={
        200: {
            "content": {
                "application/vnd.apache.arrow.stream": {"schema": {"type": "string", "format": "binary"}},
                "application/json": {},
                "application/x-ndjson": {"schema": {"type": "string"}},
            }
        }
    },
)
async def query(branch: Branch, question: Question, serving: Served, _caller: Querying, request: Request) -> Response:
    """Answer one SELECT, batch by batch: in Arrow IPC or JSON, as `Accept` says; one that breaks off is none."""
    accept = request.headers.get("accept", "*/*")
    async with ended_with(request) as stop:
        return await run_in_threadpool(answered, serving, stop, question.sql, branch, question.at, accept)


@router.get("/{branch:path}/commits")
def commits(
    branch: Branch,
    serving: Served,
    _caller: Reader,
    at: At = None,
    actor: Annotated[str | None, Query(description="Only commits of this actor.")] = None,
    limit: Limit = 50,
    page: Page = None,
) -> Body:
    """The log of a branch, newest first."""
    found, following = _log_page(serving, page or serving.lake.resolve(at, branch=branch), actor, limit)
    return {"commits": [commit_shape(each) for each in found], "next": following}


@router.get("/{branch:path}/commits/{commit}")
def one_commit(
    branch: Branch,
    commit: Annotated[str, Path(description="A hash or its beginning, a tag, or a moment.")],
    serving: Served,
    _caller: Reader,
) -> Body:
    """One commit, and which names it changed; null where its parent is no longer kept."""
    catalog = serving.lake.catalog
    found = catalog.commit_at(serving.lake.resolve(commit, branch=branch))
    changes: list[Shape] | None = None
    with suppress(BehindHorizonError):
        changes = difference_shapes(catalog.diff(found.parents[0], found.hash)) if found.parents else []
    return {**commit_shape(found), "changes": changes}


@router.get("/{branch:path}/tables")
def tables(
    branch: Branch, serving: Served, _caller: Reader, at: At = None, limit: Limit = 100, page: Page = None
) -> Body:
    """Every table and view at a commit; a page stays with the commit of the first."""
    at_hash, after = _parsed_page(page) if page else (serving.lake.resolve(at, branch=branch), None)
    found = list(islice(serving.lake.tables(at=at_hash, after=after), limit + 1))
    following = f"{at_hash}.{found[limit - 1].key}" if len(found) > limit else None
    return {"commit": at_hash, "tables": [table_shape(each) for each in found[:limit]], "next": following}


@router.get("/{branch:path}/schema")
def schema(branch: Branch, serving: Served, _caller: Reader, at: At = None) -> Body:
    """The script of DDL that makes the schema of a branch again."""
    return {"sql": serving.lake.schema_script(branch=branch, at=at)}


@router.get("/refs")
def refs(serving: Served, _caller: Reader) -> Body:
    """Every branch and tag."""
    return {"refs": [ref_shape(each) for each in serving.lake.catalog.refs()]}


@router.get("/sidecars")
def sidecars(serving: Served, _caller: Reader) -> Body:
    """Changes that have begun and not ended."""
    sound, broken = serving.lake.writing.sidecars.readable()
    return {"sidecars": [sidecar_shape(each) for each in sound], "unreadable": [each.message for each in broken]}


@router.get("/recoveries")
def recoveries(
    serving: Served, _caller: Reader, branch: str = DEFAULT_BRANCH, limit: Limit = 50, page: Page = None
) -> Body:
    """What recoverers told in the log of a branch, newest first."""
    found, following = _log_page(serving, page or serving.lake.resolve(branch=branch), RECOVERY_ACTOR, limit)
    return {"recoveries": [commit_shape(each) for each in found], "next": following}


@router.get("/operations/{operation}", responses={202: {"description": "It may still be under way: ask again."}})
def operation(
    operation: str, serving: Served, _caller: Writer, response: Response, branch: str = DEFAULT_BRANCH
) -> Body:
    """What became of an operation: `committed`, `absent` for good, or `pending`, which is status 202.

    Where it is open, it is settled: a change whose writer died is rolled forward or back, and the log tells of it.
    """
    known = parse_ulid(operation)
    commit, wait_seconds = _became(serving, known, branch)
    if wait_seconds is not None:
        response.status_code = 202
        response.headers["Retry-After"] = str(max(1, min(_LONGEST_WAIT_SECONDS, round(wait_seconds))))
        return {"operation": known, "state": "pending", "commit": None}
    return {
        "operation": known,
        "state": "committed" if commit else "absent",
        "commit": commit_shape(commit) if commit else None,
    }


# Behind all others: of `/branches/a/tables`, the tables of `branches/a` are meant.
@router.get("/branches/{branch:path}")
def branch_info(branch: Branch, serving: Served, _caller: Reader) -> Body:
    """A branch, and the commit that it is at. One whose name ends like a route is found among `refs` alone."""
    return _ref(serving, RefKind.BRANCH, branch)


@router.get("/tags/{tag:path}")
def tag_info(tag: Tag, serving: Served, _caller: Reader) -> Body:
    """A tag, and its commit."""
    return _ref(serving, RefKind.TAG, tag)


def _ref(serving: Serving, kind: RefKind, name: str) -> Body:
    ref = serving.lake.catalog.ref(name)
    if ref.kind is not kind:
        raise RefNotFoundError(name)
    return {**ref_shape(ref), "head": commit_shape(serving.lake.catalog.commit_at(ref.hash))}


def _became(serving: Serving, operation: Ulid, branch: str) -> tuple[Commit | None, float | None]:
    """Its commit, if there is one; or how long to wait before that can be said."""
    try:
        commit = serving.lake.catalog.outcome(branch, operation)
    except RefNotFoundError:
        commit = None
    if commit is not None:
        return commit, None
    # Only what has returned may be settled: its writer may be anywhere, but commits nothing after its deadline.
    left = (_began(operation) - serving.clock.now() + serving.skew).total_seconds() + serving.settings.write_seconds
    if serving.flights.is_running(operation):
        return None, 1.0
    if left > 0 and not serving.flights.has_ended(operation):
        return None, left
    try:
        return serving.lake.writing.recovery.settle(operation, branch=branch), None
    except RecoveryPendingError:
        return None, float(_LONGEST_WAIT_SECONDS)


def _began(operation: Ulid) -> datetime:
    try:
        return time_of(operation)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{operation} is of a time that there is not", operation=operation) from error


def _log_page(serving: Serving, start: str, actor: str | None, limit: int) -> tuple[list[Commit], str | None]:
    """Some commits from `start` on, and where the next page starts."""
    found: list[Commit] = []
    for place, each in enumerate(serving.lake.catalog.log(start)):
        if len(found) == limit or place == _LOOKED_THROUGH:
            return found, each.hash
        if actor is None or each.actor == actor:
            found.append(each)
    return found, None


def _parsed_page(page: str) -> tuple[str, TableKey]:
    at_hash, _, key = page.partition(".")
    if not key or len(at_hash) != WHOLE_HASH_DIGITS or not looks_like_hash(at_hash):
        raise UsageError(f"{page!r} is no page", hint="send `next` of the page before as it is")
    return at_hash, TableKey.parse(key)
