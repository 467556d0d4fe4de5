"""Views as clients of the protocol make and change them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.view.metadata import ViewHistoryEntry, ViewMetadata, ViewVersion

from headwater.kernel.ids import Ulid
from headwater.server.iceberg.errors import BodyError
from headwater.server.iceberg.model import (
    AddViewSchema,
    AddViewVersion,
    AssignUuid,
    CreateViewBody,
    RemoveViewProperties,
    SetCurrentViewVersion,
    SetViewLocation,
    SetViewProperties,
    UpgradeFormat,
    ViewUpdate,
)
from headwater.tables.head import INCARNATION, OPERATION
from headwater.tables.properties import check_properties
from headwater.tables.rules import check_all_names, millis
from headwater.tables.updates import echoed
from headwater.tables.views import VIEW_FORMAT_VERSION, kept_versions

_LAST_ADDED = -1


def made_view(body: CreateViewBody, *, location: str, uuid: str, incarnation: Ulid, now: datetime) -> ViewMetadata:
    """The first document of a view."""
    check_properties(body.properties)
    _check_version(body.view_version)
    check_all_names(body.schema_.fields)
    schema = body.schema_.model_copy(update={"schema_id": 0})
    version = body.view_version.model_copy(update={"version_id": 1, "schema_id": 0, "timestamp_ms": millis(now)})
    return ViewMetadata(
        view_uuid=uuid,
        format_version=VIEW_FORMAT_VERSION,
        location=location,
        schemas=[schema],
        current_version_id=1,
        versions=[version],
        version_log=[ViewHistoryEntry(timestamp_ms=version.timestamp_ms, version_id=1)],
        properties={**body.properties, INCARNATION: incarnation},
    )


def changed_view(view: ViewMetadata, updates: Sequence[ViewUpdate], now: datetime) -> ViewMetadata:
    """The view with all updates made, one after the other; the very view when they change nothing."""
    change = _Updating(view, now)
    for each in updates:
        change.apply(each)
    return change.view


def next_document(view: ViewMetadata, operation: Ulid) -> ViewMetadata:
    """The view as the operation stores it."""
    return view.model_copy(update={"properties": {**view.properties, OPERATION: operation}})


class _Updating:
    """A view that is being changed, and what was added to it last."""

    def __init__(self, view: ViewMetadata, now: datetime) -> None:
        self.view = view
        self._now_ms = max(millis(now), view.version_log[-1].timestamp_ms if view.version_log else 0)
        self._last_schema: int | None = None
        self._last_version: int | None = None

    def apply(self, update: ViewUpdate) -> None:
        """One update."""
        match update:
            case AssignUuid():
                self._refuse(str(update.uuid) != str(self.view.view_uuid), "the view has a uuid, and keeps it")
            case UpgradeFormat():
                self._refuse(update.format_version != VIEW_FORMAT_VERSION, "views have one format version")
            case SetViewLocation():
                other = update.location.rstrip("/") != self.view.location.rstrip("/")
                self._refuse(other, f"the lake keeps the view at {self.view.location}")
            case AddViewSchema():
                self._add_schema(update.schema_)
            case SetViewProperties():
                self._set_properties(echoed(self.view.properties, update.updates), ())
            case RemoveViewProperties():
                self._set_properties({}, update.removals)
            case AddViewVersion():
                self._add_version(update.view_version)
            case SetCurrentViewVersion():
                self._choose(update.view_version_id)

    def _refuse(self, is_other: bool, why: str) -> None:  # noqa: FBT001
        if is_other:
            raise BodyError(f"the view cannot be changed so: {why}")

    def _change(self, **update: Any) -> None:
        self.view = self.view.model_copy(update=update)

    def _set_properties(self, values: Mapping[str, str], removed: Sequence[str]) -> None:
        check_properties(values, removed)
        held = self.view.properties
        made = {key: value for key, value in held.items() if key not in removed} | dict(values)
        if made != held:
            self._change(properties=made)

    def _add_schema(self, given: Schema) -> None:
        check_all_names(given.fields)
        for each in self.view.schemas:
            if each.fields == given.fields:
                self._last_schema = each.schema_id
                return
        self._last_schema = max((each.schema_id for each in self.view.schemas), default=-1) + 1
        self._change(schemas=[*self.view.schemas, given.model_copy(update={"schema_id": self._last_schema})])

    def _add_version(self, given: ViewVersion) -> None:
        _check_version(given)
        schema_id = self._last_schema if given.schema_id == _LAST_ADDED else given.schema_id
        if schema_id is None or schema_id not in [each.schema_id for each in self.view.schemas]:
            raise BodyError(f"the view has no schema {given.schema_id}", hint="add it before the version")
        made = given.model_copy(update={"schema_id": schema_id, "timestamp_ms": self._now_ms})
        for each in self.view.versions:
            if _meaning(each) == _meaning(made):
                self._last_version = each.version_id
                return
        self._last_version = max(each.version_id for each in self.view.versions) + 1
        self._change(versions=[*self.view.versions, made.model_copy(update={"version_id": self._last_version})])

    def _choose(self, wanted: int) -> None:
        number = self._last_version if wanted == _LAST_ADDED else wanted
        # A client numbers the version that it adds by itself; what it was given here stands for it.
        if number is None or number not in [each.version_id for each in self.view.versions]:
            raise BodyError(f"the view has no version {wanted}", hint="add it before it is made current")
        if number == self.view.current_version_id:
            return
        entry = ViewHistoryEntry(timestamp_ms=self._now_ms, version_id=number)
        versions = kept_versions(self.view, self.view.versions, number)
        kept = {each.version_id for each in versions}
        log: list[ViewHistoryEntry] = []
        for each in (*self.view.version_log, entry):
            log = [*log, each] if each.version_id in kept else []
        self._change(current_version_id=number, versions=versions, version_log=log)


def _check_version(version: ViewVersion) -> None:
    dialects = [each.root.dialect.casefold() for each in version.representations]
    if not dialects or len(set(dialects)) < len(dialects):
        raise BodyError("a view needs SQL, once for each dialect", hint="name each dialect once")
    if not all(each.root.sql.strip() and each.root.dialect.strip() for each in version.representations):
        raise BodyError("a view's SQL and its dialect are not empty", hint="write both")


def _meaning(version: ViewVersion) -> tuple[object, ...]:
    texts = {each.root.dialect.casefold(): each.root.sql for each in version.representations}
    return (version.schema_id, texts, version.default_catalog, tuple(version.default_namespace), version.summary)
