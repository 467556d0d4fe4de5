"""What requests about namespaces and views come to: drafts, made on one commit of the branch."""

from __future__ import annotations

from pyiceberg.view.metadata import ViewMetadata

from headwater.catalog.model import NamespaceContent, TableKey, ViewContent
from headwater.kernel.errors import UsageError
from headwater.kernel.ids import new_ulid
from headwater.publish.creation import VIEWS, place_of
from headwater.publish.model import Replaced
from headwater.server.iceberg.errors import BodyError, NotFoundError, RequirementFailedError, UnprocessableError
from headwater.server.iceberg.model import (
    CreateNamespaceBody,
    CreateViewBody,
    NamespacePropertiesBody,
    RegisterViewBody,
    ViewCommitBody,
)
from headwater.server.iceberg.protocol import Desk, Draft
from headwater.server.iceberg.views import changed_view, made_view, next_document
from headwater.tables.create import uuid_from
from headwater.tables.head import INCARNATION
from headwater.tables.model import NewFile, TableCorruptError
from headwater.tables.properties import OWN_PREFIX
from headwater.tables.views import current_version, decode_view, encode_view


def new_namespace(desk: Desk, body: CreateNamespaceBody) -> Draft:
    """A new namespace."""
    key = TableKey.of_namespace(tuple(body.namespace))
    around = desk.free(key)
    content = NamespaceContent(new_ulid(desk.staging.clock, desk.staging.randomness), body.properties)
    return Draft(f"create namespace {key}", reads=around, others={key: Replaced(None, content)})


def dropped_namespace(desk: Desk, key: TableKey) -> Draft:
    """The namespace goes; the catalog judges at the commit whether it is empty."""
    return Draft(f"drop namespace {key}", others={key: Replaced(_namespace(desk, key), None)})


def changed_namespace(desk: Desk, key: TableKey, body: NamespacePropertiesBody) -> Draft | None:
    """The namespace with properties set and removed."""
    before = _namespace(desk, key)
    both = sorted(set(body.removals) & body.updates.keys())
    if both:
        raise UnprocessableError(f"property {both[0]} is both set and removed", hint="do one of the two")
    kept = {name: value for name, value in before.properties.items() if name not in body.removals}
    properties = {**kept, **body.updates}
    if properties == dict(before.properties):
        return None
    after = NamespaceContent(before.content_id, properties)
    return Draft(f"change namespace {key}", others={key: Replaced(before, after)})


def _namespace(desk: Desk, key: TableKey) -> NamespaceContent:
    content = desk.state.content(key)
    if not isinstance(content, NamespaceContent):
        raise NotFoundError("namespace", key)
    return content


def new_view(desk: Desk, key: TableKey, body: CreateViewBody) -> Draft:
    """A new view."""
    if body.location is not None:
        raise BodyError(f"the lake chooses the place of {key} by itself", hint="leave the location out")
    around = desk.free(key)
    incarnation = new_ulid(desk.staging.clock, desk.staging.randomness)
    view = made_view(
        body,
        location=place_of(desk.lake, VIEWS, key, incarnation),
        uuid=str(uuid_from(desk.staging.randomness)),
        incarnation=incarnation,
        now=desk.staging.clock.now(),
    )
    content, file = _stored(desk, view, incarnation)
    return Draft(f"create view {key}", reads=around, others={key: Replaced(None, content)}, files=(file,))


def registered_view(desk: Desk, key: TableKey, body: RegisterViewBody) -> Draft:
    """A view made from a document that is there; its new ones go to a place of its own."""
    around = desk.free(key)
    location = body.metadata_location
    try:
        found = decode_view(desk.state.files.read(location), location)
    except TableCorruptError as error:
        raise UsageError(
            f"the view at {location} cannot be registered: {error.message}", hint="it must be whole", path=location
        ) from error
    incarnation = new_ulid(desk.staging.clock, desk.staging.randomness)
    others = {name: value for name, value in found.properties.items() if not name.startswith(OWN_PREFIX)}
    update = {
        "location": place_of(desk.lake, VIEWS, key, incarnation),
        "properties": {**others, INCARNATION: incarnation},
    }
    content, file = _stored(desk, found.model_copy(update=update), incarnation)
    return Draft(f"register view {key}", reads=around, others={key: Replaced(None, content)}, files=(file,))


def changed_view_draft(desk: Desk, key: TableKey, body: ViewCommitBody) -> Draft | None:
    """The next version of a view; None when it stays what it is."""
    before = _view(desk, key)
    view = decode_view(desk.state.files.read(before.metadata_location), before.metadata_location)
    for each in body.requirements:
        if str(each.uuid) != str(view.view_uuid):
            raise RequirementFailedError(key, f"it is view {view.view_uuid}, not {each.uuid}")
    after = changed_view(view, body.updates, desk.staging.clock.now())
    if after is view:
        return None
    content, file = _stored(desk, after, before.content_id)
    return Draft(f"change view {key}", others={key: Replaced(before, content)}, files=(file,))


def dropped_view(desk: Desk, key: TableKey) -> Draft:
    """The view goes."""
    return Draft(f"drop view {key}", others={key: Replaced(_view(desk, key), None)})


def renamed_view(desk: Desk, key: TableKey, to: TableKey) -> Draft:
    """Another name for the same view."""
    content = _view(desk, key)
    around = desk.free(to)
    others = {key: Replaced(content, None), to: Replaced(None, content)}
    return Draft(f"rename view {key} to {to}", reads=around, others=others)


def _view(desk: Desk, key: TableKey) -> ViewContent:
    content = desk.state.content(key)
    if not isinstance(content, ViewContent):
        raise NotFoundError("view", key)
    return content


def _stored(desk: Desk, view: ViewMetadata, identity: str) -> tuple[ViewContent, NewFile]:
    """The document under a name of its own, and what the catalog holds for it."""
    operation = desk.staging.operation
    document, version = next_document(view, operation), current_version(view)
    folder = desk.staging.placing.view_folder_of(view)
    location = f"{folder}/metadata/{version.version_id:05}-{operation}.metadata.json"
    content = ViewContent(identity, location, version.version_id, version.schema_id)
    return content, NewFile(location, encode_view(document))
