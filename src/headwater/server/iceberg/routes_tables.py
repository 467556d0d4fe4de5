"""The routes of tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse

from headwater.catalog.model import Ref, TableContent, TableKey
from headwater.publish.schema.wanted import DropTable, RenameTable, Statement
from headwater.server.iceberg import tables
from headwater.server.iceberg.context import JSON, Context, key_in, key_of
from headwater.server.iceberg.decide import refuse_taken
from headwater.server.iceberg.errors import BodyError
from headwater.server.iceberg.model import (
    CommitBody,
    CreateTableBody,
    RegisterBody,
    RenameBody,
    TableChange,
    TransactionBody,
)
from headwater.server.iceberg.reading import matches
from headwater.server.iceberg.routes_namespaces import Body, PageSize, PageToken

_ALL = "/v1/{prefix}/namespaces/{namespace}/tables"
_ONE = "/v1/{prefix}/namespaces/{namespace}/tables/{table}"


def add_routes(router: APIRouter, context: Context) -> None:
    """Everything about tables."""
    _add_reading(router, context)
    _add_making(router, context)
    _add_changing(router, context)


def _add_reading(router: APIRouter, context: Context) -> None:
    reading = context.reading

    @router.get(_ALL)
    def list_tables(
        request: Request, prefix: str, namespace: str, token: PageToken = None, size: PageSize = None
    ) -> Response:
        """The tables in a namespace."""
        return context.listed(request, prefix, namespace, TableContent, token, size)

    @router.get(_ONE)
    def load_table(
        request: Request,
        prefix: str,
        namespace: str,
        table: str,
        snapshots: Annotated[str | None, Query()] = None,
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        """A table as the branch holds it."""
        content = reading.table(context.readable(request, prefix), key_of(namespace, table))
        secrets = context.sees_secrets(request)
        tag = reading.etag_of(content, snapshots, secrets=secrets)
        if matches(tag, if_none_match):
            return Response(status_code=304, headers={"ETag": tag})
        return Response(
            reading.loaded_table(content, snapshots, secrets=secrets), media_type=JSON, headers={"ETag": tag}
        )

    @router.head(_ONE)
    def table_exists(request: Request, prefix: str, namespace: str, table: str) -> Response:
        """Whether there is such a table."""
        reading.table(context.readable(request, prefix), key_of(namespace, table))
        return Response(status_code=204)

    @router.get(f"{_ONE}/credentials")
    def load_credentials(request: Request, prefix: str, namespace: str, table: str) -> Response:
        """Credentials are not vended: whoever reads the files has its own."""
        reading.table(context.readable(request, prefix), key_of(namespace, table))
        return JSONResponse({"storage-credentials": []})

    @router.post(f"{_ONE}/metrics")
    def report_metrics(request: Request, prefix: str, namespace: str, table: str) -> Response:
        """What a client measured is taken, and not kept."""
        reading.table(context.readable(request, prefix), key_of(namespace, table))
        return Response(status_code=204)


def _add_making(router: APIRouter, context: Context) -> None:
    @router.post(_ALL)
    def create_table(request: Request, prefix: str, namespace: str, body: Body) -> Response:
        """A new table; one that is staged is only described."""
        wanted = context.asked(request, CreateTableBody, body)
        key = key_of(namespace, wanted.name)
        if wanted.stage_create:
            return context.staged(request, prefix, key, wanted)
        landed = context.land(request, prefix, lambda desk: tables.creation(desk, key, wanted))
        return context.shown_table(landed, key)

    @router.post("/v1/{prefix}/namespaces/{namespace}/register")
    def register_table(request: Request, prefix: str, namespace: str, body: Body) -> Response:
        """A table whose document is there already."""
        wanted = context.asked(request, RegisterBody, body)
        key = key_of(namespace, wanted.name)
        landed = context.land(request, prefix, lambda desk: tables.registration(desk, key, wanted))
        return context.shown_table(landed, key)


def _add_changing(router: APIRouter, context: Context) -> None:
    reading = context.reading

    @router.post(_ONE)
    def commit_table(request: Request, prefix: str, namespace: str, table: str, body: Body) -> Response:
        """Change a table, or make one whose creation was staged."""
        wanted, key = context.asked(request, CommitBody, body), key_of(namespace, table)
        change = TableChange(key, wanted.requirements, wanted.updates)
        landed = context.land(request, prefix, lambda desk: tables.change(desk, [change]))
        return context.shown_table(landed, key)

    @router.post("/v1/{prefix}/transactions/commit")
    def commit_transaction(request: Request, prefix: str, body: Body) -> Response:
        """Change several tables as one commit."""
        wanted = context.asked(request, TransactionBody, body)
        changes = [
            TableChange(key_in(each.identifier), each.requirements, each.updates) for each in wanted.table_changes
        ]
        if len({each.key for each in changes}) < len(changes):
            raise BodyError("a table is changed twice", hint="put the updates of a table together")
        context.land(request, prefix, lambda desk: tables.change(desk, changes))
        return Response(status_code=204)

    @router.delete(_ONE)
    def drop_table(request: Request, prefix: str, namespace: str, table: str) -> Response:
        """The table goes from the branch. Its files stay, whatever is asked for: the history needs them (P5)."""
        context.apply(request, prefix, _drop(context, key_of(namespace, table)))
        return Response(status_code=204)

    @router.post(f"{_ONE}/unregister")
    def unregister_table(request: Request, prefix: str, namespace: str, table: str) -> Response:
        """The same, for whoever registers it elsewhere: what it was is told."""
        key = key_of(namespace, table)
        return context.gone_table(context.apply(request, prefix, _drop(context, key)), key)

    @router.post("/v1/{prefix}/tables/rename")
    def rename_table(request: Request, prefix: str, body: Body) -> Response:
        """Another name for the same table."""
        wanted = context.asked(request, RenameBody, body)
        key, to = key_in(wanted.source), key_in(wanted.destination)

        def looked_at(ref: Ref) -> Statement:
            reading.table(ref, key)
            reading.namespace(ref, to.namespace)
            siblings = (each for each in reading.inside(ref, to.namespace) if each != key)
            refuse_taken(to, reading.content(ref, to), siblings)
            return Statement(RenameTable(key, to), f"rename {key} to {to}")

        context.apply(request, prefix, looked_at)
        return Response(status_code=204)


def _drop(context: Context, key: TableKey) -> Callable[[Ref], Statement]:
    def looked_at(ref: Ref) -> Statement:
        context.reading.table(ref, key)
        return Statement(DropTable(key), f"drop {key}")

    return looked_at
