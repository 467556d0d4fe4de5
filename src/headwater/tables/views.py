"""Iceberg views (specification v1): SQL in one or more dialects, and the schema that it yields."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import count

from pydantic import ValidationError as PydanticValidationError
from pyiceberg.exceptions import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.view.metadata import (
    SQLViewRepresentation,
    ViewHistoryEntry,
    ViewMetadata,
    ViewRepresentation,
    ViewVersion,
)

from headwater.kernel.clock import Clock
from headwater.kernel.ids import Ulid
from headwater.kernel.randomness import Randomness
from headwater.tables.avro import DAMAGE, said
from headwater.tables.create import uuid_from
from headwater.tables.head import INCARNATION, OPERATION
from headwater.tables.model import TableCorruptError, TableUsageError, UnsupportedTableError
from headwater.tables.properties import check_properties
from headwater.tables.rules import FreshIds, check_all_names, millis

VIEW_FORMAT_VERSION = 1
VERSIONS_TO_KEEP = "version.history.num-entries"
_DEFAULT_VERSIONS_TO_KEEP = 10


def new_view(
    schema: Schema,
    *,
    location: str,
    sql: Mapping[str, str],
    default_namespace: Sequence[str],
    default_catalog: str | None = None,
    properties: Mapping[str, str] | None = None,
    incarnation: Ulid,
    operation: Ulid,
    clock: Clock,
    randomness: Randomness,
) -> ViewMetadata:
    """The first metadata of a view; `sql` is its text by dialect."""
    check_properties(properties or {})
    fresh = _fresh(schema, schema_id=0)
    now_ms = millis(clock.now())
    version = _version(1, fresh.schema_id, now_ms, sql, default_namespace, default_catalog)
    return ViewMetadata(
        view_uuid=str(uuid_from(randomness)),
        format_version=VIEW_FORMAT_VERSION,
        location=location.rstrip("/"),
        schemas=[fresh],
        current_version_id=version.version_id,
        versions=[version],
        version_log=[ViewHistoryEntry(timestamp_ms=now_ms, version_id=version.version_id)],
        properties={**(properties or {}), INCARNATION: incarnation, OPERATION: operation},
    )


def replace_view(
    view: ViewMetadata,
    schema: Schema,
    *,
    sql: Mapping[str, str],
    default_namespace: Sequence[str],
    default_catalog: str | None = None,
    drop_dialects: bool = False,
    now: datetime,
) -> ViewMetadata:
    """The view with a new current version; older ones stay, up to the number that its properties say.

    A version that was there before becomes current again under its old id. A dialect of the current version that is
    not given anew is refused, because its readers would lose the view, unless `drop_dialects` says that it is meant.
    """
    lost = _dialects(current_version(view)) - {each.casefold() for each in sql}
    if lost and not drop_dialects:
        raise TableUsageError(
            f"the view would lose its SQL for {', '.join(sorted(lost))}",
            hint="give the text for every dialect, or say that they shall go",
            dialects=sorted(lost),
        )
    new_id = max(each.schema_id for each in view.schemas) + 1
    fresh = _fresh(schema, schema_id=new_id)
    schema_id = next((each.schema_id for each in view.schemas if each == fresh), new_id)
    now_ms = max(millis(now), view.version_log[-1].timestamp_ms if view.version_log else 0)
    version_id = max(each.version_id for each in view.versions) + 1
    version = _version(version_id, schema_id, now_ms, sql, default_namespace, default_catalog)
    known = next((each for each in view.versions if _same(each, version)), None)
    if known is not None and known.version_id == view.current_version_id:
        return view
    current_id = (known or version).version_id
    versions = kept_versions(view, [*view.versions, *(() if known else (version,))], current_id)
    kept_ids = {each.version_id for each in versions}
    log: list[ViewHistoryEntry] = []
    for entry in (*view.version_log, ViewHistoryEntry(timestamp_ms=now_ms, version_id=current_id)):
        log = [*log, entry] if entry.version_id in kept_ids else []
    update = {
        "schemas": [*view.schemas, *((fresh,) if schema_id == new_id else ())],
        "current_version_id": current_id,
        "versions": versions,
        "version_log": log,
    }
    return view.model_copy(update=update)


def current_version(view: ViewMetadata) -> ViewVersion:
    """The version that readers see."""
    return next(each for each in view.versions if each.version_id == view.current_version_id)


def encode_view(view: ViewMetadata) -> bytes:
    """The bytes of a view's metadata file."""
    return view.model_dump_json().encode()


def decode_view(data: bytes, location: str) -> ViewMetadata:
    """What the bytes say; `TableCorruptError` names the location when they make no sense."""
    try:
        document = json.loads(data)
        version = document["format-version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise TableCorruptError(location, "is not the metadata of a view, or was cut short") from None
    if isinstance(version, int) and version > VIEW_FORMAT_VERSION:
        raise UnsupportedTableError(
            f"{location} has view format version {version}", hint=f"{VIEW_FORMAT_VERSION} is supported", path=location
        )
    try:
        view = ViewMetadata.model_validate(document)
    except (*DAMAGE, PydanticValidationError, ValidationError) as error:
        raise TableCorruptError(location, f"is not the metadata of a view: {said(error)}") from error
    schema_ids = {each.schema_id for each in view.schemas}
    if view.current_version_id not in {each.version_id for each in view.versions}:
        raise TableCorruptError(location, f"has no version {view.current_version_id}, though it is current")
    for each in view.versions:
        if each.schema_id not in schema_ids:
            raise TableCorruptError(location, f"has no schema {each.schema_id} for version {each.version_id}")
    return view


def _version(
    version_id: int,
    schema_id: int,
    now_ms: int,
    sql: Mapping[str, str],
    default_namespace: Sequence[str],
    default_catalog: str | None,
) -> ViewVersion:
    if not sql or len({each.casefold() for each in sql}) < len(sql):
        raise TableUsageError(
            f"a view needs SQL, once for each dialect: {', '.join(sql) or 'none was given'}", hint="name a dialect once"
        )
    for dialect, text in sql.items():
        if not text.strip() or not dialect.strip():
            raise TableUsageError(f"the SQL for dialect {dialect!r} is empty", hint="write it", dialect=dialect)
    return ViewVersion(
        version_id=version_id,
        schema_id=schema_id,
        timestamp_ms=now_ms,
        summary={"engine-name": "headwater"},
        representations=[
            ViewRepresentation(root=SQLViewRepresentation(type="sql", sql=text, dialect=dialect))
            for dialect, text in sql.items()
        ],
        default_catalog=default_catalog,
        default_namespace=tuple(default_namespace),
    )


def _fresh(schema: Schema, *, schema_id: int) -> Schema:
    check_all_names(schema.fields)
    return Schema(*FreshIds(count(1).__next__).fields(schema.fields), schema_id=schema_id)


def _dialects(version: ViewVersion) -> set[str]:
    return {each.root.dialect.casefold() for each in version.representations}


def _same(one: ViewVersion, other: ViewVersion) -> bool:
    def meaning(version: ViewVersion) -> tuple[object, ...]:
        texts = {each.root.dialect.casefold(): each.root.sql for each in version.representations}
        return (version.schema_id, texts, version.default_catalog, version.default_namespace)

    return meaning(one) == meaning(other)


def kept_versions(view: ViewMetadata, versions: list[ViewVersion], current_id: int) -> list[ViewVersion]:
    """The current version and the newest others."""
    try:
        number = max(1, int(view.properties.get(VERSIONS_TO_KEEP, _DEFAULT_VERSIONS_TO_KEEP)))
    except ValueError:
        raise TableUsageError(
            f"property {VERSIONS_TO_KEEP} is not a number", hint="set it to one", property=VERSIONS_TO_KEEP
        ) from None
    newest_first = sorted(versions, key=lambda each: (each.version_id == current_id, each.version_id), reverse=True)
    kept_ids = {each.version_id for each in newest_first[:number]}
    return [each for each in versions if each.version_id in kept_ids]
