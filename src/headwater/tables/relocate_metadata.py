"""A metadata.json that names other paths: of the table, its manifest lists, its statistics.

Its metadata log is empty: what came before it are documents in another place, with other paths in them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headwater.tables.avro import DAMAGE, said
from headwater.tables.manifests import MANIFEST_LIST_SEAL
from headwater.tables.metadata import NEWEST_VERSION, decode_document
from headwater.tables.model import TableCorruptError, UnsupportedTableError
from headwater.tables.relocate import Resolve

# Where writers put what they write, in place of a folder of the table's location.
PATH_PROPERTIES: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


@dataclass(frozen=True)
class MovedList:
    """What a snapshot's manifest list has become, and the seal of the new one."""

    location: str
    seal: str | None


def open_document(data: bytes, location: str) -> dict[str, Any]:
    """The JSON of a metadata.json that can be relocated: of a version that is known, and not encrypted."""
    document = decode_document(data, location)
    version = document["format-version"]
    if not 1 <= version <= NEWEST_VERSION:
        raise UnsupportedTableError(
            f"{location} is a table of Iceberg format version {version}",
            hint=f"versions 1 to {NEWEST_VERSION} are known; upgrade headwater",
            path=location,
            format_version=version,
        )
    try:
        snapshots = document.get("snapshots") or []
        encrypted = [each["snapshot-id"] for each in snapshots if each.get("key-id")]
        listless = [each["snapshot-id"] for each in snapshots if not each.get("manifest-list")]
    except DAMAGE as error:
        raise TableCorruptError(location, f"is not table metadata: {said(error)}") from error
    if encrypted or listless:
        what = "is encrypted" if encrypted else "has no manifest list, only a list of manifests"
        raise UnsupportedTableError(
            f"{location}: snapshot {(encrypted or listless)[0]} {what}, which cannot be relocated",
            hint="expire the snapshot, or rewrite the table with another engine",
            path=location,
            snapshot=(encrypted or listless)[0],
        )
    return document


def relocate_metadata(
    document: Mapping[str, Any],
    location: str,
    resolve: Resolve,
    resolve_folder: Resolve,
    lists: Mapping[int, MovedList],
) -> bytes:
    """The document of the snapshots in `lists`, each with its new manifest list; the others are gone from it.

    With all of its snapshots the table keeps its history; with some, it looks as if the others had been expired.
    """
    try:
        moved = json.loads(json.dumps(document))
        moved["location"] = resolve_folder(moved["location"])
        moved["snapshots"] = [
            _snapshot(each, lists[each["snapshot-id"]])
            for each in moved.get("snapshots") or []
            if each["snapshot-id"] in lists
        ]
        moved["snapshot-log"] = _since_the_last_gap(moved.get("snapshot-log") or [], lists)
        moved["metadata-log"] = []
        if moved.get("refs") is not None:
            moved["refs"] = {name: ref for name, ref in moved["refs"].items() if ref["snapshot-id"] in lists}
        for name in ("statistics", "partition-statistics"):
            if moved.get(name) is not None:
                moved[name] = [
                    {**each, "statistics-path": resolve(each["statistics-path"])}
                    for each in moved[name]
                    if each["snapshot-id"] in lists
                ]
        properties = moved.get("properties") or {}
        for name in PATH_PROPERTIES:
            if name in properties:
                properties[name] = resolve_folder(properties[name])
    except DAMAGE as error:
        raise TableCorruptError(location, f"is not table metadata: {said(error)}") from error
    return json.dumps(moved, separators=(",", ":")).encode()


def _since_the_last_gap(log: Sequence[dict[str, Any]], lists: Mapping[int, MovedList]) -> list[dict[str, Any]]:
    """Which snapshot was current when, as far back as all of them are there.

    With a gap in it the log would say of the time of a snapshot that is gone that an older one was current.
    """
    gaps = [place for place, each in enumerate(log) if each["snapshot-id"] not in lists]
    return list(log[gaps[-1] + 1 :] if gaps else log)


def _snapshot(snapshot: dict[str, Any], moved: MovedList) -> dict[str, Any]:
    summary = dict(snapshot.get("summary") or {})
    if MANIFEST_LIST_SEAL in summary:
        # The old one is of a list at another place.
        del summary[MANIFEST_LIST_SEAL]
        if moved.seal is not None:
            summary[MANIFEST_LIST_SEAL] = moved.seal
    changed = {**snapshot, "manifest-list": moved.location}
    return {**changed, "summary": summary} if "summary" in snapshot else changed
