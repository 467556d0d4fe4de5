"""Immutable objects by the digest of their bytes: `objects/<2 hex>/<62 hex>`.

They are put unconditionally, because a lost answer is simply asked for again: the same name means the same bytes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headwater.catalog.embedded.codec import digest_of
from headwater.catalog.embedded.model import OBJECTS
from headwater.kernel.errors import CorruptError
from headwater.storage.port import ObjectStore, Overwrite

CACHE_BYTES = 32 * 1024 * 1024

T = TypeVar("T")
R = TypeVar("R")


def path_of(digest: str) -> str:
    """Where the object of this digest is."""
    return f"{OBJECTS}/{digest[:2]}/{digest[2:]}"


class Objects:
    """The objects of one lake, as one process reads and writes them. Safe to share among threads."""

    def __init__(self, store: ObjectStore, *, workers: int, cache_bytes: int = CACHE_BYTES) -> None:
        self._store = store
        self._workers = workers
        self._cache_bytes = cache_bytes
        self._cached: OrderedDict[str, bytes] = OrderedDict()
        self._cached_bytes = 0
        self._lock = threading.Lock()

    def get(self, digest: str) -> bytes:
        """The bytes, checked against their name; `ObjectNotFoundError` when they are not there."""
        data = self._remembered(digest)
        if data is not None:
            return data
        path = path_of(digest)
        data = self._store.get(path).data
        if digest_of(data) != digest:
            raise CorruptError(
                f"{self._store.name}: {path} is damaged: its bytes are not those that its name promises",
                hint="restore it from a copy of the lake",
                path=path,
            )
        self._keep(digest, data)
        return data

    def get_all(self, digests: Iterable[str]) -> dict[str, bytes]:
        """Several at once."""
        found = {digest: self._remembered(digest) for digest in digests}
        missing = sorted(digest for digest, data in found.items() if data is None)
        fetched = dict(zip(missing, self._each(self.get, missing), strict=True))
        return {digest: data if data is not None else fetched[digest] for digest, data in found.items()}

    def put_all(self, objects: Mapping[str, bytes]) -> None:
        """Store them all, side by side; the order among them does not matter, because nothing refers to them yet."""
        self._each(lambda digest: self._store.put(path_of(digest), objects[digest], Overwrite()), sorted(objects))
        for digest, data in objects.items():
            self._keep(digest, data)

    def _remembered(self, digest: str) -> bytes | None:
        with self._lock:
            data = self._cached.get(digest)
            if data is not None:
                self._cached.move_to_end(digest)
            return data

    def _each(self, action: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if len(items) < 2 or self._workers < 2:
            return [action(item) for item in items]
        with ThreadPoolExecutor(min(self._workers, len(items))) as pool:
            return list(pool.map(action, items))

    def _keep(self, digest: str, data: bytes) -> None:
        with self._lock:
            if digest in self._cached or len(data) > self._cache_bytes:
                return
            self._cached[digest] = data
            self._cached_bytes += len(data)
            while self._cached_bytes > self._cache_bytes:
                _, evicted = self._cached.popitem(last=False)
                self._cached_bytes -= len(evicted)
