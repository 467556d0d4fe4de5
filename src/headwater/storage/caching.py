"""A cache in front of a store, for immutable objects only."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from headwater.storage.errors import MissingCapabilityError
from headwater.storage.port import Capability, Fetched, ObjectStore, Overwrite, PutMode
from headwater.storage.spans import cut
from headwater.storage.wrapper import StoreWrapper


class CachingStore(StoreWrapper):
    """Keeps whole objects that were read, for data that never changes once it is written.

    It cannot know what another process did meanwhile, so it refuses conditional reads and writes, and
    lists them as missing: whoever's safety depends on them cannot be opened over it (hazard S5).
    """

    def __init__(self, inner: ObjectStore, *, capacity_bytes: int) -> None:
        super().__init__(inner)
        self._capacity_bytes = capacity_bytes
        self._held_bytes = 0
        self._objects: OrderedDict[str, Fetched] = OrderedDict()
        self._changes = 0
        self._lock = threading.Lock()

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Nothing that compares."""
        return self._inner.capabilities & {Capability.TAGS}

    def get(self, path: str, *, span: tuple[int, int] | None = None) -> Fetched:
        """From the cache when it is there; a range of an object that is not held goes to the store."""
        with self._lock:
            held = self._objects.get(path)
            changes = self._changes
            if held is not None:
                self._objects.move_to_end(path)
        if held is not None:
            return Fetched(cut(held.data, span, path), held.meta)
        fetched = self._inner.get(path, span=span)
        if span is None:
            self._hold(path, fetched, changes)
        return fetched

    def get_if_changed(self, path: str, etag: str) -> Fetched | None:  # noqa: ARG002
        """Refused."""
        raise self._refusal(path, Capability.CONDITIONAL_GET)

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        """Overwrite only."""
        if not isinstance(mode, Overwrite):
            raise self._refusal(path, Capability.CREATE)
        with self._changing(path):
            return self._inner.put(path, data, mode, tags=tags)

    def delete(self, path: str, *, if_match: str | None = None) -> None:
        """Unconditional only."""
        if if_match is not None:
            raise self._refusal(path, Capability.CONDITIONAL_DELETE)
        with self._changing(path):
            self._inner.delete(path)

    def delete_prefix(self, prefix: str) -> int:
        """Forgets everything."""
        with self._changing(None):
            return self._inner.delete_prefix(prefix)

    def copy(self, source: str, target: str) -> None:
        """Forgets the target."""
        with self._changing(target):
            self._inner.copy(source, target)

    @contextmanager
    def _changing(self, path: str | None) -> Iterator[None]:
        """What is being changed is not held before, nor what somebody read while it was being changed."""
        try:
            yield
        finally:
            with self._lock:
                self._changes += 1
                self._drop(path)

    def _hold(self, path: str, fetched: Fetched, changes: int) -> None:
        with self._lock:
            if len(fetched.data) > self._capacity_bytes or changes != self._changes:
                return
            self._drop(path)
            self._objects[path] = fetched
            self._held_bytes += len(fetched.data)
            while self._held_bytes > self._capacity_bytes:
                _, evicted = self._objects.popitem(last=False)
                self._held_bytes -= len(evicted.data)

    def _drop(self, path: str | None) -> None:
        if path is None:
            self._objects.clear()
            self._held_bytes = 0
        elif path in self._objects:
            self._held_bytes -= len(self._objects.pop(path).data)

    def _refusal(self, path: str, capability: Capability) -> MissingCapabilityError:
        return MissingCapabilityError(
            f"{self.name} is behind a cache, which has no {capability}",
            hint="use the store without its cache",
            path=path,
        )
