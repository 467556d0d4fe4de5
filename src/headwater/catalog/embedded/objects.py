"""Immutable objects by the digest of their bytes: `objects/<2 hex>/<62 hex>`.

They are put unconditionally, because a lost answer is simply asked for again: the same name means the same bytes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

from headwater.catalog.embedded.codec import digest_of
from headwater.catalog.embedded.model import OBJECTS
from headwater.kernel.errors import CorruptError
from headwater.kernel.workers import Workers
from headwater.storage.port import ObjectStore, Overwrite

CACHE_BYTES = 64 * 1024 * 1024
# Objects are kept as what their bytes mean, which takes about so many times their place.
DECODED_TIMES = 5

T = TypeVar("T")
# From bytes, and the path that an error would name, to what they mean.
Decode = Callable[[bytes, str], T]


def path_of(digest: str) -> str:
    """Where the object of this digest is."""
    return f"{OBJECTS}/{digest[:2]}/{digest[2:]}"


@dataclass(frozen=True)
class Encoded:
    """An object to be stored: its bytes, and what `decode` would make of them, so that nobody here decodes them."""

    data: bytes
    decode: Decode[object]
    value: object


class ReadsObjects(Protocol):
    """Where objects can be read."""

    def get(self, digest: str, decode: Decode[T]) -> T:
        """The object; `ObjectNotFoundError` when it is not there."""
        ...

    def get_all(self, digests: Iterable[str], decode: Decode[T]) -> dict[str, T]:
        """Several at once."""
        ...

    def are_there(self, digests: Iterable[str]) -> bool:
        """Whether all of them are stored."""
        ...


class Objects:
    """The objects of one lake, as one process reads and writes them. Safe to share among threads.

    What is handed out is shared with everybody who asks for it, and is not to be changed.
    """

    def __init__(self, store: ObjectStore, *, workers: int, cache_bytes: int = CACHE_BYTES) -> None:
        self._store = store
        self._workers = Workers(workers - 1, "objects")
        self._cache_bytes = cache_bytes
        # By digest and by how it was decoded, lest one kind is taken for another; with the place that each takes.
        self._cached: OrderedDict[tuple[str, Decode[object]], tuple[object, int]] = OrderedDict()
        self._cached_bytes = 0
        self._lock = threading.Lock()

    def get(self, digest: str, decode: Decode[T]) -> T:
        """The object, its bytes checked against their name; `ObjectNotFoundError` when it is not there."""
        found = self._remembered(digest, decode)
        if found is not None:
            return found
        path = path_of(digest)
        data = self._store.get(path).data
        if digest_of(data) != digest:
            raise CorruptError(
                f"{self._store.name}: {path} is damaged: its bytes are not those that its name promises",
                hint="restore it from a copy of the lake",
                path=path,
            )
        value = decode(data, path)
        self._keep(digest, Encoded(data, decode, value))
        return value

    def get_all(self, digests: Iterable[str], decode: Decode[T]) -> dict[str, T]:
        """Several at once."""
        found = {digest: self._remembered(digest, decode) for digest in digests}
        missing = sorted(digest for digest, value in found.items() if value is None)
        fetched = dict(zip(missing, self._workers.each(lambda digest: self.get(digest, decode), missing), strict=True))
        return {digest: value if value is not None else fetched[digest] for digest, value in found.items()}

    def are_there(self, digests: Iterable[str]) -> bool:
        """Whether all of them are stored, by asking the store."""
        return all(self._workers.each(lambda digest: self._store.exists(path_of(digest)), sorted(set(digests))))

    def names(self) -> frozenset[str]:
        """The digests of all that is stored, by asking the store."""
        return frozenset("".join(meta.path.split("/")[-2:]) for meta in self._store.list(OBJECTS))

    def put_all(self, objects: Mapping[str, Encoded]) -> None:
        """Store them all, side by side; the order among them does not matter, because nothing refers to them yet."""
        self._workers.each(
            lambda digest: self._store.put(path_of(digest), objects[digest].data, Overwrite()), sorted(objects)
        )
        for digest, encoded in objects.items():
            self._keep(digest, encoded)

    def _remembered(self, digest: str, decode: Decode[T]) -> T | None:
        key = (digest, decode)
        with self._lock:
            found = self._cached.get(key)
            if found is None:
                return None
            self._cached.move_to_end(key)
            return cast(T, found[0])

    def _keep(self, digest: str, encoded: Encoded) -> None:
        key, place_bytes = (digest, encoded.decode), len(encoded.data) * DECODED_TIMES
        with self._lock:
            if key in self._cached or place_bytes > self._cache_bytes:
                return
            self._cached[key] = (encoded.value, place_bytes)
            self._cached_bytes += place_bytes
            while self._cached_bytes > self._cache_bytes:
                _, (_, freed_bytes) = self._cached.popitem(last=False)
                self._cached_bytes -= freed_bytes


class Planned:
    """Objects that are about to be stored, in front of those that are: commits can be judged on one that is not yet."""

    def __init__(self, stored: Objects) -> None:
        self._stored = stored
        self._planned: dict[str, Encoded] = {}

    def add(self, objects: Mapping[str, Encoded]) -> None:
        """From now on these are read too."""
        self._planned.update(objects)

    def get(self, digest: str, decode: Decode[T]) -> T:
        """The object, planned or stored."""
        planned = self._of_kind(digest, decode)
        return planned if planned is not None else self._stored.get(digest, decode)

    def get_all(self, digests: Iterable[str], decode: Decode[T]) -> dict[str, T]:
        """Several at once."""
        wanted = {digest: self._of_kind(digest, decode) for digest in digests}
        stored = self._stored.get_all((digest for digest, value in wanted.items() if value is None), decode)
        return {digest: value if value is not None else stored[digest] for digest, value in wanted.items()}

    def are_there(self, digests: Iterable[str]) -> bool:
        """Whether all of them are stored; what is only planned is not."""
        return self._stored.are_there(digests)

    def _of_kind(self, digest: str, decode: Decode[T]) -> T | None:
        encoded = self._planned.get(digest)
        return cast(T, encoded.value) if encoded is not None and encoded.decode is decode else None
