"""What all stores around stores have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headwater.storage.port import Capability, Fetched, ObjectMeta, ObjectStore, Prepared, PutMode
from headwater.storage.prepared import Unprepared


class StoreWrapper:
    """Passes everything on; wrappers override what they change."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    @property
    def inner(self) -> ObjectStore:
        """The store that is wrapped."""
        return self._inner

    @property
    def name(self) -> str:
        """The inner store's name."""
        return self._inner.name

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The inner store's capabilities."""
        return self._inner.capabilities

    def get(self, path: str, *, span: tuple[int, int] | None = None) -> Fetched:
        """See the port."""
        return self._inner.get(path, span=span)

    def get_if_changed(self, path: str, etag: str) -> Fetched | None:
        """See the port."""
        return self._inner.get_if_changed(path, etag)

    def head(self, path: str) -> ObjectMeta:
        """See the port."""
        return self._inner.head(path)

    def exists(self, path: str) -> bool:
        """See the port."""
        return self._inner.exists(path)

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        """See the port."""
        return self._inner.put(path, data, mode, tags=tags)

    def prepare(self, path: str, data: bytes) -> Prepared:
        """By our own put: a wrapper that changes what a put is does not pass the inner one's steps on."""
        return Unprepared(self, path, data)

    def settle(self, path: str) -> None:
        """See the port."""
        self._inner.settle(path)

    def delete(self, path: str, *, if_match: str | None = None) -> None:
        """See the port."""
        self._inner.delete(path, if_match=if_match)

    def delete_prefix(self, prefix: str) -> int:
        """See the port."""
        return self._inner.delete_prefix(prefix)

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        """See the port."""
        return self._inner.list(prefix, start_after=start_after)

    def copy(self, source: str, target: str) -> None:
        """See the port."""
        self._inner.copy(source, target)
