"""Counting of requests around a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from headwater.kernel.metrics import Metric, MetricKind, Metrics
from headwater.storage.port import Fetched, ObjectMeta, ObjectStore, Prepared, PutMode
from headwater.storage.prepared import Around
from headwater.storage.wrapper import StoreWrapper

API_CALLS = Metric("storage_api_calls_total", MetricKind.COUNTER, "Requests to object stores.", labels=("region", "op"))


class MeteredStore(StoreWrapper):
    """Counts requests in `storage_api_calls_total{region,op}`. Below a retry it counts every try."""

    def __init__(self, inner: ObjectStore, metrics: Metrics, region: str) -> None:
        super().__init__(inner)
        self._metrics = metrics
        self._region = region

    def get(self, path: str, *, span: tuple[int, int] | None = None) -> Fetched:
        """Counted as `get`."""
        self._count("get")
        return self._inner.get(path, span=span)

    def get_if_changed(self, path: str, etag: str) -> Fetched | None:
        """Counted as `get`."""
        self._count("get")
        return self._inner.get_if_changed(path, etag)

    def head(self, path: str) -> ObjectMeta:
        """Counted as `head`."""
        self._count("head")
        return self._inner.head(path)

    def exists(self, path: str) -> bool:
        """Counted as `head`."""
        self._count("head")
        return self._inner.exists(path)

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        """Counted as `put`."""
        self._count("put")
        return self._inner.put(path, data, mode, tags=tags)

    def prepare(self, path: str, data: bytes) -> Prepared:
        """Counted as `put` when it is created."""

        def counted(create: Callable[[], None]) -> None:
            self._count("put")
            create()

        return Around(self._inner.prepare(path, data), counted)

    def delete(self, path: str, *, if_match: str | None = None) -> None:
        """Counted as `delete`."""
        self._count("delete")
        self._inner.delete(path, if_match=if_match)

    def delete_prefix(self, prefix: str) -> int:
        """Counted as one `delete`, and one `list`."""
        self._count("list")
        self._count("delete")
        return self._inner.delete_prefix(prefix)

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        """Counted as one `list` for each thousand objects, as stores page them."""
        self._count("list")
        for number, meta in enumerate(self._inner.list(prefix, start_after=start_after)):
            if number and number % 1000 == 0:
                self._count("list")
            yield meta

    def copy(self, source: str, target: str) -> None:
        """Counted as `copy`."""
        self._count("copy")
        self._inner.copy(source, target)

    def _count(self, op: str) -> None:
        self._metrics.count(API_CALLS, region=self._region, op=op)
