"""What clients load: documents as they are stored, and lists of names.

A document never changes, so what is made of it for clients is kept by its location, and its location is its ETag.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

from headwater.catalog.model import Content, NamespaceContent, Ref, TableContent, TableKey, ViewContent
from headwater.lake import Lake
from headwater.server.iceberg.decide import Name, branch_of, config_for
from headwater.server.iceberg.errors import BodyError, NotFoundError
from headwater.tables.metadata import decode_document
from headwater.tables.properties import GC_ENABLED

ALL, REFS = "all", "refs"
# A table with a long history has a document of many megabytes, and another one after each commit.
_KEPT_BYTES = 64 * 1024 * 1024


class Kept:
    """The documents that were used last, as many as there is room for. Safe to share among threads."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self.size_bytes = 0

    def found(self, key: Hashable, made: Callable[[], bytes]) -> bytes:
        """What is kept under the key, or is made now; two that come at once may both make it."""
        with self._lock:
            document = self._held.get(key)
            if document is not None:
                self._held.move_to_end(key)
                return document
        document = made()
        with self._lock:
            if key not in self._held and len(document) <= self._most_bytes:
                self._held[key] = document
                self.size_bytes += len(document)
            while self.size_bytes > self._most_bytes:
                _, gone = self._held.popitem(last=False)
                self.size_bytes -= len(gone)
        return document


class Reading:
    """Answers about the branches of a lake. Safe to share among threads."""

    def __init__(self, lake: Lake, config: Mapping[str, str]) -> None:
        self._lake = lake
        self._configs = {secrets: config_for(config, secrets=secrets) for secrets in (True, False)}
        self._kept = Kept(_KEPT_BYTES)

    @property
    def has_secrets(self) -> bool:
        """Whether some of what clients get of the store is not for all of them."""
        return self._configs[True] != self._configs[False]

    def config(self, *, secrets: bool) -> Mapping[str, str]:
        """What clients get with every table: how its files are reached."""
        return self._configs[secrets]

    def ref(self, prefix: str) -> Ref:
        """The branch or tag that a prefix means."""
        return self._lake.catalog.ref(branch_of(prefix))

    def content(self, ref: Ref, key: TableKey) -> Content | None:
        """What the branch holds under this name."""
        return self._lake.catalog.known_content(ref.hash, [key]).get(key)

    def table(self, ref: Ref, key: TableKey) -> TableContent:
        """The table, or the protocol's error."""
        content = self.content(ref, key)
        if not isinstance(content, TableContent):
            raise NotFoundError("table", key)
        return content

    def view(self, ref: Ref, key: TableKey) -> ViewContent:
        """The view, or the protocol's error."""
        content = self.content(ref, key)
        if not isinstance(content, ViewContent):
            raise NotFoundError("view", key)
        return content

    def namespace(self, ref: Ref, namespace: Name) -> NamespaceContent:
        """The namespace, or the protocol's error."""
        key = TableKey.of_namespace(namespace)
        content = self.content(ref, key)
        if not isinstance(content, NamespaceContent):
            raise NotFoundError("namespace", key)
        return content

    def names(self, ref: Ref, namespace: Name, kind: type[Content]) -> list[Name]:
        """The names of such things that are in the namespace itself, in order."""
        return sorted(key.elements for key in self.inside(ref, namespace, kind))

    def inside(self, ref: Ref, namespace: Name, kind: Any = object) -> Iterator[TableKey]:
        """Everything of a kind that is in the namespace itself."""
        found = self._lake.catalog.contents(ref.hash, namespace=namespace or None)
        return (key for key, content in found if key.namespace == namespace and isinstance(content, kind))

    def loaded_table(self, content: TableContent, snapshots: str | None = None, *, secrets: bool) -> bytes:
        """The answer that loads a table, with all of its snapshots or with those that refs lead to."""
        mode = snapshots or ALL
        if mode not in (ALL, REFS):
            raise BodyError(f"snapshots is {mode!r}", hint=f"{ALL} or {REFS}")
        location = content.metadata_location
        document = self._kept.found((location, mode), lambda: self._made_document(content, mode))
        return self.wrapped(location, document, secrets=secrets)

    def loaded_view(self, content: ViewContent) -> bytes:
        """The answer that loads a view, which has no files that need a secret."""
        location = content.metadata_location
        return self.wrapped(location, self._lake.metadata_of(content).model_dump_json().encode(), secrets=False)

    def wrapped(self, location: str | None, document: bytes, *, secrets: bool) -> bytes:
        """A document in the shape in which it is loaded."""
        place, config = json.dumps(location).encode(), json.dumps(self._configs[secrets]).encode()
        return b'{"metadata-location":%b,"metadata":%b,"config":%b}' % (place, document, config)

    def etag_of(self, content: TableContent, snapshots: str | None, *, secrets: bool) -> str:
        """What tells one answer from another: the document, how much of it, and what goes with it."""
        told = "\n".join((content.metadata_location, snapshots or ALL, json.dumps(self._configs[secrets])))
        return f'"{hashlib.sha256(told.encode()).hexdigest()[:32]}"'

    def _made_document(self, content: TableContent, mode: str) -> bytes:
        location, written = content.metadata_location, self._lake.remembered_document(content)
        if written is not None and mode == ALL and self._is_kept_from_cleaning(content):
            return written  # as it is: whoever has just made a change is shown what was stored
        document = decode_document(written or self._lake.files.read(location), location)
        document["properties"] = {**(document.get("properties") or {}), GC_ENABLED: "false"}
        if mode == REFS:
            kept = {each["snapshot-id"] for each in (document.get("refs") or {}).values()}
            kept.add(document.get("current-snapshot-id"))
            document["snapshots"] = [each for each in document.get("snapshots") or () if each["snapshot-id"] in kept]
        return json.dumps(document, separators=(",", ":")).encode()

    def _is_kept_from_cleaning(self, content: TableContent) -> bool:
        """Whether the document says by itself what clients are told: that they delete no files (P5)."""
        return self._lake.metadata_of(content).properties.get(GC_ENABLED) == "false"


def matches(etag: str, wanted: str | None) -> bool:
    """Whether the client has this answer already; a weak tag compares like a strong one."""
    given = [each.strip().removeprefix("W/") for each in (wanted or "").split(",")]
    return etag in given
