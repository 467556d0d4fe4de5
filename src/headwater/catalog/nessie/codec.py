"""Nessie's JSON, and what it means here. Pure.

Tables and views that hold fields which we do not know keep only those that we do: a version is what it points at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, assert_never

from headwater.catalog.model import (
    Commit,
    Content,
    NamespaceContent,
    RefKind,
    TableContent,
    TableKey,
    ViewContent,
)
from headwater.catalog.nessie.model import MERGE_PARENT_PROPERTY, NO_ANCESTOR, Conflict, Json
from headwater.kernel.errors import UnavailableError, UsageError
from headwater.kernel.ids import Ulid, parse_ulid

# What Iceberg's own Nessie catalog writes where a table has no snapshot yet.
_NO_SNAPSHOT = -1
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?Z")
_KINDS = {"BRANCH": RefKind.BRANCH, "TAG": RefKind.TAG}
# A value of ours is stored as this kind of content: other tools list tables, views and namespaces, and leave it alone.
_OWN_TYPE, _OWN_DIALECT = "UDF", "headwater"


class StrangeAnswerError(UnavailableError):
    """What answered is no Nessie that we know; nothing was changed by what we could not read."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the answer is not Nessie's: {what}", hint="is this the URL of a Nessie, with /api/v2?")


def key_to_json(elements: tuple[str, ...]) -> Json:
    """A key."""
    return {"elements": list(elements)}


def elements_of(answer: Any) -> tuple[str, ...]:
    """The parts of a key's name."""
    return tuple(answer["elements"])


def key_of(elements: tuple[str, ...]) -> TableKey | None:
    """The key, or None where a lake could not name it."""
    try:
        return TableKey(elements[:-1], elements[-1])
    except UsageError:
        return None


def content_to_json(key: TableKey, content: Content, content_id: str | None) -> Json:
    """A content as a commit puts it; without an id it is new, and Nessie gives it one."""
    body: Json = {} if content_id is None else {"id": content_id}
    match content:
        case TableContent():
            body |= {
                "type": "ICEBERG_TABLE",
                "metadataLocation": content.metadata_location,
                "snapshotId": _NO_SNAPSHOT if content.snapshot_id is None else content.snapshot_id,
                "schemaId": content.schema_id,
                "specId": content.spec_id,
                "sortOrderId": content.sort_order_id,
            }
        case ViewContent():
            body |= {
                "type": "ICEBERG_VIEW",
                "metadataLocation": content.metadata_location,
                "versionId": content.version_id,
                "schemaId": content.schema_id,
            }
        case NamespaceContent():
            body |= {"type": "NAMESPACE", "elements": list(key.elements), "properties": dict(content.properties)}
        case _:
            assert_never(content)
    return body


def content_of(answer: Any) -> Content | None:
    """A content, or None where it is of a kind that a lake does not know."""
    content_id = answer.get("id") or ""
    match answer["type"]:
        case "ICEBERG_TABLE":
            snapshot = answer["snapshotId"]
            return TableContent(
                content_id,
                answer["metadataLocation"],
                None if snapshot == _NO_SNAPSHOT else snapshot,
                answer["schemaId"],
                answer["specId"],
                answer["sortOrderId"],
            )
        case "ICEBERG_VIEW":
            return ViewContent(content_id, answer["metadataLocation"], answer["versionId"], answer["schemaId"])
        case "NAMESPACE":
            return NamespaceContent(content_id, dict(answer.get("properties") or {}))
        case _:
            return None


def own_value(value: str, content_id: str | None) -> Json:
    """A value of ours."""
    return {"type": _OWN_TYPE, "dialect": _OWN_DIALECT, "sqlText": value} | ({"id": content_id} if content_id else {})


def own_value_of(answer: Any) -> Ulid | None:
    """The ULID that a content holds, if it is a value of ours."""
    if answer["type"] != _OWN_TYPE or answer.get("dialect") != _OWN_DIALECT:
        return None
    try:
        return parse_ulid(answer["sqlText"])
    except (UsageError, KeyError, TypeError):
        return None


def kind_of(answer: Any) -> RefKind:
    """Whether a ref is a branch or a tag."""
    return _KINDS[answer["type"]]


def commit_of(entry: Any) -> tuple[Commit, datetime]:
    """An entry of the log, and the time that its own server gave it."""
    meta = entry["commitMeta"]
    properties = {name: values[0] for name, values in (meta.get("allProperties") or {}).items() if values}
    merged = properties.pop(MERGE_PARENT_PROPERTY, None)
    first, *others = meta.get("parentCommitHashes") or [entry.get("parentCommitHash") or NO_ANCESTOR]
    parents = [first, *([merged] if merged else []), *others]
    authors = meta.get("authors") or []
    time = time_of(meta["commitTime"])
    commit = Commit(
        hash=meta["hash"],
        parents=tuple(each for each in parents if each != NO_ANCESTOR),
        # An engine that does not say who it is leaves it empty.
        actor=next((each for each in (*authors, meta.get("committer")) if each), "unknown"),
        message=meta["message"],
        properties=properties,
        committed_at=time,
    )
    return commit, time


def time_of(text: str) -> datetime:
    """A moment of Nessie's, which counts nanoseconds; cut to microseconds, so never later than it was."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise StrangeAnswerError(f"the time {text!r}")
    micros = int((found[2] or "0").ljust(9, "0")[:6])
    return datetime.fromisoformat(found[1]).replace(tzinfo=UTC) + timedelta(microseconds=micros)


def conflicts_of(answer: Mapping[str, Any]) -> tuple[Conflict, ...]:
    """Which keys a commit failed on, as far as Nessie says (it does to clients of spec 2)."""
    details = answer.get("errorDetails") or {}
    return tuple(
        Conflict(each.get("conflictType") or "UNKNOWN", elements_of(each["key"]) if each.get("key") else None)
        for each in details.get("conflicts") or ()
    )
