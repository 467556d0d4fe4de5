"""Retry around a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from headwater.kernel.retry import Retry
from headwater.storage.errors import StorageOutcomeUnknownError, TransientError
from headwater.storage.port import Fetched, ObjectMeta, ObjectStore, Overwrite, Prepared, PutMode
from headwater.storage.prepared import Around
from headwater.storage.wrapper import StoreWrapper

T = TypeVar("T")


class RetryingStore(StoreWrapper):
    """Tries again what had no effect, and what may be done twice.

    A conditional put whose answer was lost is neither: trying it again would report our own success as
    somebody else's. It goes to the caller, who knows its identity.
    """

    def __init__(self, inner: ObjectStore, retry: Retry) -> None:
        super().__init__(inner)
        self._retry = retry

    def get(self, path: str, *, span: tuple[int, int] | None = None) -> Fetched:
        """Retried."""
        return self._again(lambda: self._inner.get(path, span=span))

    def get_if_changed(self, path: str, etag: str) -> Fetched | None:
        """Retried."""
        return self._again(lambda: self._inner.get_if_changed(path, etag))

    def head(self, path: str) -> ObjectMeta:
        """Retried."""
        return self._again(lambda: self._inner.head(path))

    def exists(self, path: str) -> bool:
        """Retried."""
        return self._again(lambda: self._inner.exists(path))

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        """Retried while it had no effect; an overwrite also when that is not known."""

        def attempt() -> str:
            return self._inner.put(path, data, mode, tags=tags)

        return self._again(attempt) if isinstance(mode, Overwrite) else self._retry.call(attempt, on=(TransientError,))

    def prepare(self, path: str, data: bytes) -> Prepared:
        """Retried, and so is the create while it had no effect."""
        prepared = self._again(lambda: self._inner.prepare(path, data))
        return Around(prepared, lambda create: self._retry.call(create, on=(TransientError,)))

    def settle(self, path: str) -> None:
        """Retried."""
        self._again(lambda: self._inner.settle(path))

    def delete(self, path: str, *, if_match: str | None = None) -> None:
        """Retried; a conditional delete only while it had no effect."""

        def attempt() -> None:
            self._inner.delete(path, if_match=if_match)

        if if_match is None:
            self._again(attempt)
        else:
            self._retry.call(attempt, on=(TransientError,))

    def delete_prefix(self, prefix: str) -> int:
        """Retried; counts what the last try deleted."""
        return self._again(lambda: self._inner.delete_prefix(prefix))

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        """A list that breaks off goes on behind the last object that it gave."""
        last = start_after
        patience = self._retry.patience()
        while True:
            try:
                for meta in self._inner.list(prefix, start_after=last):
                    last = meta.path
                    yield meta
                    patience = self._retry.patience()  # it gets on
            except TransientError:
                if not patience.wait():
                    raise
            else:
                return

    def copy(self, source: str, target: str) -> None:
        """Retried."""
        self._again(lambda: self._inner.copy(source, target))

    def _again(self, action: Callable[[], T]) -> T:
        return self._retry.call(action, on=(TransientError, StorageOutcomeUnknownError))
