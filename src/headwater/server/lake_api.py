"""The lake API: what changes a lake. Every change goes through the publisher, as one commit in its caller's name."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from headwater.kernel.errors import HeadwaterError
from headwater.publish.load.model import Mode
from headwater.publish.model import Attempt
from headwater.server.asking import (
    Administering,
    Branch,
    Expected,
    Key,
    Served,
    Tag,
    Writer,
    Writing,
    asked,
    only_known_parameters,
)
from headwater.server.bodies import ConflictProblem, MergeWish, Mutation, NewBranch, NewTag, Problem, Script
from headwater.server.once import Asked, Body, Done, Work, carry_out
from headwater.server.positions import pointing_into
from headwater.server.replicas import refuse_replica
from headwater.server.serving import Serving
from headwater.server.shapes import recovered_shape, ref_shape
from headwater.server.uploads import FORMATS, received

REPLAYED = "Idempotent-Replayed"

PROBLEMS: dict[int | str, dict[str, Any]] = {
    **{status: {"model": Problem} for status in (400, 401, 403, 404, 408, 410, 413, 415, 422, 429, 500, 503)},
    409: {"model": ConflictProblem},
}

router = APIRouter(prefix="/v1", tags=["write"], responses=PROBLEMS, dependencies=[Depends(only_known_parameters)])


@router.post("/{branch:path}/mutate")
def mutate(
    branch: Branch,
    wish: Mutation,
    serving: Served,
    caller: Writing,
    request: Request,
    response: Response,
    key: Key = None,
) -> Body:
    """Run statements as one transaction: all of them land, or none."""

    def work(attempt: Attempt) -> Body:
        rows = []
        with serving.lake.transaction(
            branch=branch, actor=caller.actor, message=wish.message, attempt=attempt
        ) as transaction:
            for place, sql in enumerate(wish.statements):
                try:
                    with pointing_into(sql):
                        rows.append(transaction.sql(sql))
                except HeadwaterError as error:
                    error.fields["statement"] = place
                    raise
        commit = transaction.commit
        return {"operation": attempt.operation, "commit": commit.hash if commit else None, "rows": rows}

    return _done(serving, asked(request, caller, branch, key, wish.model_dump_json()), work, request, response)


@router.post(
    "/{branch:path}/load",
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {each: {"schema": {"type": "string", "format": "binary"}} for each in FORMATS},
        }
    },
)
async def load(
    branch: Branch,
    table: Annotated[str, Query(description="The table to load into.", examples=["accounts"])],
    serving: Served,
    caller: Writer,
    request: Request,
    response: Response,
    mode: Annotated[Mode, Query(description="How the rows meet those of the table.")] = Mode.APPEND,
    on: Annotated[list[str] | None, Query(description="Columns to merge by; the primary key by default.")] = None,
    message: Annotated[str | None, Query(min_length=1, max_length=10_000, description="Why, for the log.")] = None,
    key: Key = None,
) -> Body:
    """Load the rows of the body, in Arrow IPC, Parquet, NDJSON or CSV by its content type, as one commit."""
    refuse_replica(branch)
    serving.writes.refuse_if_full()
    # A body may come slowly: it takes nobody's place until it is there.
    async with received(request, serving.settings.load_bytes) as upload:

        def work(attempt: Attempt) -> Body:
            with upload.speaking_of_the_body():
                loaded = serving.lake.load(
                    table,
                    upload.path,
                    str(mode),
                    branch=branch,
                    actor=caller.actor,
                    message=message,
                    on=on,
                    format=str(upload.format),
                    attempt=attempt,
                )
            return {
                "operation": attempt.operation,
                "commit": loaded.commit.hash if loaded.commit else None,
                "rows": loaded.rows,
                "updated": loaded.updated,
                "files": loaded.files,
            }

        wanted = asked(request, caller, branch, key, upload.digest)
        with serving.writes.enter():
            return await run_in_threadpool(_done, serving, wanted, work, request, response)


@router.post("/{branch:path}/schema")
def apply_schema(
    branch: Branch,
    script: Script,
    serving: Served,
    caller: Writing,
    request: Request,
    response: Response,
    key: Key = None,
) -> Body:
    """Apply a script of DDL as one commit, or only see what it would change."""

    def work(attempt: Attempt) -> Body:
        applied = serving.lake.apply(
            script.sql,
            branch=branch,
            actor=caller.actor,
            message=script.message,
            dry_run=script.dry_run,
            attempt=attempt,
        )
        return {
            "operation": attempt.operation,
            "commit": applied.commit.hash if applied.commit else None,
            "changes": [each.as_json() for each in applied.changes],
            "dry_run": applied.dry_run,
        }

    return _done(serving, asked(request, caller, branch, key, script.model_dump_json()), work, request, response)


@router.post("/{branch:path}/merge")
def merge(
    branch: Branch,
    wish: MergeWish,
    serving: Served,
    caller: Writing,
    request: Request,
    response: Response,
    key: Key = None,
) -> Body:
    """Bring what changed on a branch, tag or commit into this branch, as one commit with two parents."""

    def work(attempt: Attempt) -> Body:
        merged = serving.lake.merge(wish.source, branch, actor=caller.actor, message=wish.message, attempt=attempt)
        return {
            "operation": attempt.operation,
            "commit": merged.commit.hash if merged.commit else None,
            "tables": [str(each) for each in merged.tables],
        }

    return _done(serving, asked(request, caller, branch, key, wish.model_dump_json()), work, request, response)


@router.post("/branches", status_code=201)
def create_branch(
    wish: NewBranch, serving: Served, caller: Writing, request: Request, response: Response, key: Key = None
) -> Body:
    """Make a branch; it begins with everything that is at the commit, and nothing is copied."""

    def work(_: Attempt) -> Body:
        return ref_shape(serving.lake.create_branch(wish.name, wish.at))

    wanted = asked(request, caller, wish.name, key, wish.model_dump_json())
    return _done(serving, wanted, work, request, response)


@router.delete("/branches/{branch:path}")
def delete_branch(branch: Branch, serving: Served, _caller: Administering, expected: Expected = None) -> Body:
    """Delete a branch; what was merged elsewhere stays there."""
    with serving.flights.flying(serving.new_operation()):
        serving.lake.delete_branch(branch, expected=expected)
    return {"deleted": branch}


@router.post("/tags", status_code=201)
def create_tag(
    wish: NewTag, serving: Served, caller: Writing, request: Request, response: Response, key: Key = None
) -> Body:
    """Give a commit a name that stays with it, and keeps it."""

    def work(_: Attempt) -> Body:
        return ref_shape(serving.lake.create_tag(wish.name, wish.at))

    wanted = asked(request, caller, wish.name, key, wish.model_dump_json())
    return _done(serving, wanted, work, request, response)


@router.delete("/tags/{tag:path}")
def delete_tag(tag: Tag, serving: Served, _caller: Administering, expected: Expected = None) -> Body:
    """Delete a tag; its commit stays as long as history is kept."""
    with serving.flights.flying(serving.new_operation()):
        serving.lake.delete_tag(tag, expected=expected)
    return {"deleted": tag}


@router.post("/recover")
def recover(serving: Served, _caller: Administering) -> Body:
    """Recover now what dead writers left behind, as the server does by itself from time to time."""
    with serving.flights.flying(serving.new_operation()):
        return {"recovered": [recovered_shape(each) for each in serving.lake.writing.recovery.sweep()]}


def _done(serving: Serving, wanted: Asked, work: Work, request: Request, response: Response) -> Body:
    refuse_replica(wanted.branch)
    attempt = serving.attempt()
    request.state.branch, request.state.operation = wanted.branch, attempt.operation
    done: Done = carry_out(serving, wanted, work, attempt)
    request.state.operation = done.body.get("operation")
    if done.is_replayed:
        response.headers[REPLAYED] = "true"
    return done.body
