"""The routes of views."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from headwater.catalog.model import ViewContent
from headwater.server.iceberg import others
from headwater.server.iceberg.context import JSON, Context, key_in, key_of
from headwater.server.iceberg.model import CreateViewBody, RegisterViewBody, RenameBody, ViewCommitBody
from headwater.server.iceberg.routes_namespaces import Body, PageSize, PageToken

_ALL = "/v1/{prefix}/namespaces/{namespace}/views"
_ONE = "/v1/{prefix}/namespaces/{namespace}/views/{view}"


def add_routes(router: APIRouter, context: Context) -> None:
    """Everything about views."""
    reading = context.reading

    @router.get(_ALL)
    def list_views(
        request: Request, prefix: str, namespace: str, token: PageToken = None, size: PageSize = None
    ) -> Response:
        """The views in a namespace."""
        return context.listed(request, prefix, namespace, ViewContent, token, size)

    @router.post(_ALL)
    def create_view(request: Request, prefix: str, namespace: str, body: Body) -> Response:
        """A new view."""
        wanted = context.asked(request, CreateViewBody, body)
        key = key_of(namespace, wanted.name)
        landed = context.land(request, prefix, lambda desk: others.new_view(desk, key, wanted))
        return context.shown_view(landed, key)

    @router.post("/v1/{prefix}/namespaces/{namespace}/register-view")
    def register_view(request: Request, prefix: str, namespace: str, body: Body) -> Response:
        """A view whose document is there already."""
        wanted = context.asked(request, RegisterViewBody, body)
        key = key_of(namespace, wanted.name)
        landed = context.land(request, prefix, lambda desk: others.registered_view(desk, key, wanted))
        return context.shown_view(landed, key)

    @router.get(_ONE)
    def load_view(request: Request, prefix: str, namespace: str, view: str) -> Response:
        """A view as the branch holds it."""
        content = reading.view(context.readable(request, prefix), key_of(namespace, view))
        return Response(reading.loaded_view(content), media_type=JSON)

    @router.head(_ONE)
    def view_exists(request: Request, prefix: str, namespace: str, view: str) -> Response:
        """Whether there is such a view."""
        reading.view(context.readable(request, prefix), key_of(namespace, view))
        return Response(status_code=204)

    @router.post(_ONE)
    def replace_view(request: Request, prefix: str, namespace: str, view: str, body: Body) -> Response:
        """Change a view."""
        wanted, key = context.asked(request, ViewCommitBody, body), key_of(namespace, view)
        landed = context.land(request, prefix, lambda desk: others.changed_view_draft(desk, key, wanted))
        return context.shown_view(landed, key)

    @router.delete(_ONE)
    def drop_view(request: Request, prefix: str, namespace: str, view: str) -> Response:
        """The view goes."""
        key = key_of(namespace, view)
        context.land(request, prefix, lambda desk: others.dropped_view(desk, key))
        return Response(status_code=204)

    @router.post("/v1/{prefix}/views/rename")
    def rename_view(request: Request, prefix: str, body: Body) -> Response:
        """Another name for the same view."""
        wanted = context.asked(request, RenameBody, body)
        key, to = key_in(wanted.source), key_in(wanted.destination)
        context.land(request, prefix, lambda desk: others.renamed_view(desk, key, to))
        return Response(status_code=204)
