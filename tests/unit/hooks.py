"""A store that lets a test step in just before or after one request: interleavings written down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from headwater.storage.port import Fetched, ObjectMeta, ObjectStore, PutMode
from headwater.storage.wrapper import StoreWrapper

T = TypeVar("T")


class HookedStore(StoreWrapper):
    """Each hook runs once, at the first request of its kind whose path ends as it says."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.calls: list[tuple[str, str]] = []
        self._hooks: list[tuple[str, str, str, Callable[[], object]]] = []

    def before(self, op: str, ending: str, action: Callable[[], object]) -> None:
        self._hooks.append(("before", op, ending, action))

    def after(self, op: str, ending: str, action: Callable[[], object]) -> None:
        self._hooks.append(("after", op, ending, action))

    def _around(self, op: str, path: str, action: Callable[[], T]) -> T:
        self.calls.append((op, path))
        self._fire("before", op, path)
        result = action()
        self._fire("after", op, path)
        return result

    def _fire(self, when: str, op: str, path: str) -> None:
        for hook in list(self._hooks):
            if hook[0] == when and hook[1] == op and path.endswith(hook[2]):
                self._hooks.remove(hook)
                hook[3]()

    def get(self, path: str, *, span: tuple[int, int] | None = None) -> Fetched:
        return self._around("get", path, lambda: self._inner.get(path, span=span))

    def get_if_changed(self, path: str, etag: str) -> Fetched | None:
        return self._around("get", path, lambda: self._inner.get_if_changed(path, etag))

    def head(self, path: str) -> ObjectMeta:
        return self._around("head", path, lambda: self._inner.head(path))

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        return self._around("put", path, lambda: self._inner.put(path, data, mode, tags=tags))

    def delete(self, path: str, *, if_match: str | None = None) -> None:
        self._around("delete", path, lambda: self._inner.delete(path, if_match=if_match))

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        return self._around("list", prefix, lambda: self._inner.list(prefix, start_after=start_after))
