"""Objects in a dictionary: for simulation and unit tests. Its clock stamps what it stores."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from headwater.kernel.clock import Clock
from headwater.storage.errors import ObjectNotFoundError, PreconditionFailedError
from headwater.storage.paths import check_path, check_prefix
from headwater.storage.port import Capability, Create, Fetched, ObjectMeta, Overwrite, Prepared, PutMode, Update
from headwater.storage.prepared import Unprepared
from headwater.storage.spans import cut, deletable_prefix


@dataclass(frozen=True)
class _Stored:
    data: bytes
    etag: str
    last_modified: datetime
    tags: Mapping[str, str]

    def meta(self, path: str) -> ObjectMeta:
        return ObjectMeta(path, len(self.data), self.last_modified, self.etag)


class MemoryStore:
    """A store that lives and dies with the process."""

    def __init__(self, clock: Clock, name: str = "memory://") -> None:
        self.name = name
        self.capabilities = frozenset(Capability)
        self._clock = clock
        self._objects: dict[str, _Stored] = {}
        self._lock = threading.Lock()

    def get(self, path: str, *, span: tuple[int, int] | None = None) -> Fetched:
        """The object, or a range of it."""
        stored = self._stored(path)
        return Fetched(cut(stored.data, span, path), stored.meta(path))

    def get_if_changed(self, path: str, etag: str) -> Fetched | None:
        """The object unless it has this etag."""
        fetched = self.get(path)
        return None if fetched.meta.etag == etag else fetched

    def head(self, path: str) -> ObjectMeta:
        """What is known of the object."""
        return self._stored(path).meta(path)

    def exists(self, path: str) -> bool:
        """Whether it is there."""
        return check_path(path) in self._objects

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        """Store under the condition."""
        check_path(path)
        etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
        with self._lock:
            present = self._objects.get(path)
            match mode:
                case Create() if present is not None:
                    raise PreconditionFailedError(self.name, path, "absent")
                case Update(expected) if present is None or present.etag != expected:
                    raise PreconditionFailedError(self.name, path, f"at etag {expected}")
                case Create() | Update() | Overwrite():
                    self._objects[path] = _Stored(bytes(data), etag, self._clock.now(), dict(tags or {}))
        return etag

    def prepare(self, path: str, data: bytes) -> Prepared:
        """There are no steps here."""
        return Unprepared(self, path, data)

    def settle(self, path: str) -> None:
        """What is seen here is there to stay."""
        check_path(path)

    def delete(self, path: str, *, if_match: str | None = None) -> None:
        """Remove, or leave what is not there."""
        check_path(path)
        with self._lock:
            present = self._objects.get(path)
            if if_match is not None and (present is None or present.etag != if_match):
                raise PreconditionFailedError(self.name, path, f"at etag {if_match}")
            self._objects.pop(path, None)

    def delete_prefix(self, prefix: str) -> int:
        """Remove a whole folder."""
        doomed = [meta.path for meta in self.list(deletable_prefix(prefix))]
        for path in doomed:
            self.delete(path)
        return len(doomed)

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        """A sorted snapshot."""
        prefix = check_prefix(prefix)
        folder = f"{prefix}/" if prefix else ""
        with self._lock:
            found = sorted(
                (path, stored)
                for path, stored in self._objects.items()
                if path.startswith(folder) and (start_after is None or path > start_after)
            )
        return iter([stored.meta(path) for path, stored in found])

    def copy(self, source: str, target: str) -> None:
        """Copy bytes and tags."""
        stored = self._stored(source)
        self.put(target, stored.data, Overwrite(), tags=stored.tags)

    def tags_of(self, path: str) -> Mapping[str, str]:
        """The tags that the object was put with."""
        return self._stored(path).tags

    def _stored(self, path: str) -> _Stored:
        try:
            return self._objects[check_path(path)]
        except KeyError:
            raise ObjectNotFoundError(self.name, path) from None
