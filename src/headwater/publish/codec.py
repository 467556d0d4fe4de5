"""The durable bytes of a sidecar, as docs/formats.md describes them: JSON with a version and a digest of the rest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from headwater.catalog.embedded.codec import decode_content, encode_content
from headwater.catalog.model import Content, TableContent, TableKey
from headwater.kernel.errors import CorruptError, UsageError
from headwater.kernel.ids import parse_ulid
from headwater.publish.errors import SidecarCorruptError
from headwater.publish.model import PlannedHead, Replaced, Sidecar, WriterKind

FORMAT = 1


def encode_sidecar(sidecar: Sidecar) -> bytes:
    """One JSON object, sealed by the digest of the rest of it."""
    values: dict[str, Any] = {
        "format": FORMAT,
        "operation": sidecar.operation,
        "kind": str(sidecar.kind),
        "actor": sidecar.actor,
        "message": sidecar.message,
        "branch": sidecar.branch,
        "branch_incarnation": sidecar.branch_incarnation,
        "process": sidecar.process,
        "lease_until": sidecar.lease_until.astimezone(UTC).isoformat(),
        "heads": [_head(each) for each in sidecar.heads],
        "drops": _contents(sidecar.drops),
        "reads": _contents(sidecar.reads),
        "properties": dict(sidecar.properties),
        "others": {str(key): _replaced(each) for key, each in sorted(sidecar.others.items())},
        "merge_parent": sidecar.merge_parent,
        "since": sidecar.since,
    }
    # On one line: the encoder that indents takes ten times as long, and longer with each table.
    return json.dumps({**values, "sha256": _seal(values)}).encode()


def decode_sidecar(data: bytes, path: str) -> Sidecar:
    """The note; one that is damaged, or newer than this version, is an error: nobody may guess."""
    try:
        values: dict[str, Any] = json.loads(data)
        if int(values["format"]) > FORMAT:
            raise SidecarCorruptError(path, f"has format {values['format']}, newer than {FORMAT}")
        sound = values.pop("sha256") == _seal(values)
        sidecar = Sidecar(
            operation=parse_ulid(values["operation"]),
            kind=WriterKind(values["kind"]),
            actor=str(values["actor"]),
            message=str(values["message"]),
            branch=str(values["branch"]),
            branch_incarnation=parse_ulid(values["branch_incarnation"]),
            process=parse_ulid(values["process"]),
            lease_until=_moment(values["lease_until"]),
            heads=tuple(_read_head(each, path) for each in values["heads"]),
            drops=_tables(values["drops"], path),
            reads=_read_contents(values["reads"], path),
            properties={str(name): str(value) for name, value in values["properties"].items()},
            others={_key(name): _read_replaced(each, path) for name, each in values["others"].items()},
            merge_parent=str(values["merge_parent"]) if values["merge_parent"] is not None else None,
            since=str(values["since"]) if values.get("since") is not None else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError, UsageError, RecursionError, OverflowError) as error:
        raise SidecarCorruptError(path, f"is not a sidecar, or is damaged: {error}") from error
    except CorruptError as error:
        raise SidecarCorruptError(path, error.message) from error
    if not sound:
        raise SidecarCorruptError(path, "is damaged: its digest is another")
    return sidecar


def _head(head: PlannedHead) -> dict[str, Any]:
    return {
        "table": str(head.key),
        "path": head.path,
        "incarnation": head.incarnation,
        "pinned": encode_content(head.pinned) if head.pinned else None,
        "expected_id": head.expected_id,
        "planned_id": head.planned_id,
        "identity": head.identity,
        "planned": encode_content(head.planned),
        "renamed_from": str(head.renamed_from) if head.renamed_from else None,
    }


def _read_head(values: Mapping[str, Any], path: str) -> PlannedHead:
    pinned = decode_content(values["pinned"], path) if values["pinned"] else None
    planned = decode_content(values["planned"], path)
    if not isinstance(planned, TableContent) or not isinstance(pinned, (TableContent, type(None))):
        raise TypeError("a head is of a table")
    return PlannedHead(
        TableKey.parse(values["table"]),
        str(values["path"]),
        str(values["incarnation"]),
        pinned,
        int(values["expected_id"]),
        parse_ulid(values["identity"]),
        planned,
        TableKey.parse(values["renamed_from"]) if values["renamed_from"] else None,
    )


def _replaced(replaced: Replaced) -> dict[str, Any]:
    return {
        "before": encode_content(replaced.before) if replaced.before is not None else None,
        "after": encode_content(replaced.after) if replaced.after is not None else None,
    }


def _read_replaced(values: Mapping[str, Any], path: str) -> Replaced:
    before, after = (decode_content(values[each], path) if values[each] else None for each in ("before", "after"))
    return Replaced(before, after)


def _key(text: str) -> TableKey:
    """The key of a table, view or namespace as it was spelled: one of a single part is a namespace at the top."""
    *namespace, name = text.split(".")
    return TableKey(tuple(namespace), name)


def _contents(contents: Mapping[TableKey, Content | None]) -> dict[str, Any]:
    return {str(key): encode_content(each) if each is not None else None for key, each in sorted(contents.items())}


def _read_contents(values: Mapping[str, Any], path: str) -> dict[TableKey, Content | None]:
    return {_key(key): decode_content(each, path) if each else None for key, each in values.items()}


def _tables(values: Mapping[str, Any], path: str) -> dict[TableKey, TableContent]:
    found = _read_contents(values, path)
    if not all(isinstance(each, TableContent) for each in found.values()):
        raise TypeError("what is dropped is a table")
    return {key: each for key, each in found.items() if isinstance(each, TableContent)}


def _moment(text: str) -> datetime:
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        raise ValueError(text)
    return when.astimezone(UTC)


def _seal(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
