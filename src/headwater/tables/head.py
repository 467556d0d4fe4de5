"""How a table's metadata.json is an object of its own sequence: writer and predecessor are table properties."""

from __future__ import annotations

import json
from typing import Any

from headwater.kernel.errors import UsageError
from headwater.kernel.ids import parse_ulid
from headwater.sequence.codec import Body
from headwater.sequence.model import Namespace
from headwater.tables.model import TableCorruptError

METADATA_FOLDER = "metadata"
METADATA_SUFFIX = ".metadata.json"

WRITER = "headwater.writer"
PREVIOUS = "headwater.previous"
OPERATION = "headwater.operation"
INCARNATION = "headwater.incarnation"


def head_namespace(table_path: str) -> Namespace:
    """The sequence of a table's metadata; manifests and other files share its folder."""
    return Namespace(table_path, METADATA_FOLDER, METADATA_SUFFIX, shared_folder=True)


class MetadataCodec:
    """Carries the writer's ULID in the properties of the table metadata that is the payload."""

    def encode(self, body: Body) -> bytes:
        """The metadata with its writer in it; bytes that name them already stay as they are."""
        if _is_signed(body):
            return body.payload
        document = json.loads(body.payload)
        properties = document.setdefault("properties", {})
        if properties.get(WRITER) == body.writer and properties.get(PREVIOUS) == body.previous:
            return body.payload
        properties[WRITER] = body.writer
        properties.pop(PREVIOUS, None)
        if body.previous is not None:
            properties[PREVIOUS] = body.previous
        return json.dumps(document, separators=(",", ":")).encode()

    def decode(self, data: bytes, path: str) -> Body:
        """Who wrote the metadata, and all of it."""
        try:
            document: Any = json.loads(data)
            properties = document["properties"]
            previous = properties.get(PREVIOUS)
            return Body(parse_ulid(properties[WRITER]), parse_ulid(previous) if previous else None, data)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, UsageError):
            raise TableCorruptError(path, "is not table metadata written here, or was cut short") from None


def _is_signed(body: Body) -> bool:
    """Whether the bytes name writer and predecessor, as whoever plans a head writes them: known without reading it all.

    A writer's ULID is its alone, so nobody else can have put it there; a quote within a text would be escaped.
    """
    if f'"{WRITER}":"{body.writer}"'.encode() not in body.payload:
        return False
    if body.previous is None:
        return f'"{PREVIOUS}"'.encode() not in body.payload
    return f'"{PREVIOUS}":"{body.previous}"'.encode() in body.payload
