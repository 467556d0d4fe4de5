"""The routes of namespaces."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import JSONResponse

from headwater.catalog.model import NamespaceContent, TableKey
from headwater.server.iceberg import others
from headwater.server.iceberg.context import Context
from headwater.server.iceberg.decide import namespace_of, page
from headwater.server.iceberg.model import CreateNamespaceBody, NamespacePropertiesBody
from headwater.server.iceberg.routing import raw_body

Body = Annotated[bytes, Depends(raw_body)]
PageToken = Annotated[str | None, Query(alias="pageToken")]
PageSize = Annotated[int | None, Query(alias="pageSize")]

_ALL = "/v1/{prefix}/namespaces"
_ONE = "/v1/{prefix}/namespaces/{namespace}"


def add_routes(router: APIRouter, context: Context) -> None:
    """Everything about namespaces."""
    reading = context.reading

    @router.get(_ALL)
    def list_namespaces(
        request: Request,
        prefix: str,
        parent: str | None = None,
        token: PageToken = None,
        size: PageSize = None,
    ) -> Response:
        """The namespaces in a namespace, or at the top."""
        ref = context.readable(request, prefix)
        within = namespace_of(parent) if parent else ()
        if within:
            reading.namespace(ref, within)
        shown, following = page(reading.names(ref, within, NamespaceContent), token, size)
        return JSONResponse({"namespaces": [list(each) for each in shown], "next-page-token": following})

    @router.post(_ALL)
    def create_namespace(request: Request, prefix: str, body: Body) -> Response:
        """A new namespace."""
        wanted = context.asked(request, CreateNamespaceBody, body)
        context.land(request, prefix, lambda desk: others.new_namespace(desk, wanted))
        return JSONResponse({"namespace": wanted.namespace, "properties": wanted.properties})

    @router.get(_ONE)
    def load_namespace(request: Request, prefix: str, namespace: str) -> Response:
        """A namespace and its properties."""
        name = namespace_of(namespace)
        content = reading.namespace(context.readable(request, prefix), name)
        return JSONResponse({"namespace": list(name), "properties": dict(content.properties)})

    @router.head(_ONE)
    def namespace_exists(request: Request, prefix: str, namespace: str) -> Response:
        """Whether there is such a namespace."""
        reading.namespace(context.readable(request, prefix), namespace_of(namespace))
        return Response(status_code=204)

    @router.delete(_ONE)
    def drop_namespace(request: Request, prefix: str, namespace: str) -> Response:
        """The namespace goes, if nothing is in it."""
        key = TableKey.of_namespace(namespace_of(namespace))
        context.land(request, prefix, lambda desk: others.dropped_namespace(desk, key))
        return Response(status_code=204)

    @router.post(f"{_ONE}/properties")
    def change_namespace(request: Request, prefix: str, namespace: str, body: Body) -> Response:
        """Properties of a namespace are set and removed."""
        key, wanted = (
            TableKey.of_namespace(namespace_of(namespace)),
            context.asked(request, NamespacePropertiesBody, body),
        )
        landed = context.land(request, prefix, lambda desk: others.changed_namespace(desk, key, wanted))
        held = context.properties_before(landed, key)
        removals = list(dict.fromkeys(wanted.removals))
        return JSONResponse(
            {
                "updated": sorted(wanted.updates),
                "removed": [each for each in removals if each in held],
                "missing": [each for each in removals if each not in held],
            }
        )
