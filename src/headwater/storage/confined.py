"""Stores that can do less: only read, or only see one prefix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from headwater.storage.errors import ReadOnlyError
from headwater.storage.paths import check_path, check_prefix, join
from headwater.storage.port import Capability, Fetched, ObjectMeta, ObjectStore, PutMode
from headwater.storage.wrapper import StoreWrapper


class ReadOnlyStore(StoreWrapper):
    """Refuses every change."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Conditional reads at most."""
        return self._inner.capabilities & {Capability.CONDITIONAL_GET}

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:  # noqa: ARG002
        """Refused."""
        raise self._refusal(path)

    def delete(self, path: str, *, if_match: str | None = None) -> None:  # noqa: ARG002
        """Refused."""
        raise self._refusal(path)

    def delete_prefix(self, prefix: str) -> int:
        """Refused."""
        raise self._refusal(prefix)

    def copy(self, source: str, target: str) -> None:  # noqa: ARG002
        """Refused."""
        raise self._refusal(target)

    def _refusal(self, path: str) -> ReadOnlyError:
        return ReadOnlyError(f"{self.name} is open for reading only; {path} was not changed", path=path)


class ConfinedStore(StoreWrapper):
    """Everything under one prefix. A path that would lead out of it is refused, like any bad path."""

    def __init__(self, inner: ObjectStore, prefix: str) -> None:
        super().__init__(inner)
        self._prefix = check_prefix(prefix)

    @property
    def name(self) -> str:
        """The inner name with the prefix."""
        return join(self._inner.name.removesuffix("/"), self._prefix) if self._prefix else self._inner.name

    def get(self, path: str, *, span: tuple[int, int] | None = None) -> Fetched:
        """Under the prefix."""
        fetched = self._inner.get(self._into(path), span=span)
        return Fetched(fetched.data, replace(fetched.meta, path=path))

    def get_if_changed(self, path: str, etag: str) -> Fetched | None:
        """Under the prefix."""
        fetched = self._inner.get_if_changed(self._into(path), etag)
        return fetched and Fetched(fetched.data, replace(fetched.meta, path=path))

    def head(self, path: str) -> ObjectMeta:
        """Under the prefix."""
        return replace(self._inner.head(self._into(path)), path=path)

    def exists(self, path: str) -> bool:
        """Under the prefix."""
        return self._inner.exists(self._into(path))

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        """Under the prefix."""
        return self._inner.put(self._into(path), data, mode, tags=tags)

    def settle(self, path: str) -> None:
        """Under the prefix."""
        self._inner.settle(self._into(path))

    def delete(self, path: str, *, if_match: str | None = None) -> None:
        """Under the prefix."""
        self._inner.delete(self._into(path), if_match=if_match)

    def delete_prefix(self, prefix: str) -> int:
        """Under the prefix."""
        return self._inner.delete_prefix(self._into(prefix.removesuffix("/")))

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        """Under the prefix."""
        checked = check_prefix(prefix)
        inside = join(self._prefix, checked) if checked else self._prefix
        after = None if start_after is None else join(self._prefix, start_after)
        skip = len(self._prefix) + 1 if self._prefix else 0
        for meta in self._inner.list(inside, start_after=after):
            yield replace(meta, path=meta.path[skip:])

    def copy(self, source: str, target: str) -> None:
        """Under the prefix."""
        self._inner.copy(self._into(source), self._into(target))

    def _into(self, path: str) -> str:
        return join(self._prefix, check_path(path))
