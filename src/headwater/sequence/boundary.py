"""The boundary object: `<root>/gc/<name>.boundary`, an inclusive high-water mark that only rises.

Ids at or behind it may have been collected. It is read by conditional GET: a cached value counts only when the
store has just said that it is still the same.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from headwater.kernel.clock import Clock
from headwater.kernel.errors import HeadwaterError, UnavailableError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.logs import Log
from headwater.kernel.metrics import Metric, MetricKind, Metrics
from headwater.kernel.retry import Retry
from headwater.sequence.codec import decode_boundary, encode_boundary
from headwater.sequence.model import BoundaryLostError, Namespace
from headwater.storage.errors import ObjectNotFoundError, PreconditionFailedError, StorageOutcomeUnknownError
from headwater.storage.port import Create, ObjectStore, Update

CHECK_SECONDS = Metric(
    "sequence_boundary_check_seconds", MetricKind.HISTOGRAM, "Time to check a boundary.", labels=("namespace",)
)
ADVANCE_ATTEMPTS = Metric(
    "sequence_boundary_advance_attempts_total",
    MetricKind.COUNTER,
    "Tries to advance a boundary, lost ones included.",
    labels=("namespace",),
)

_log = Log("sequence")


@dataclass(frozen=True)
class _Seen:
    etag: str
    value: int


class Boundary:
    """One namespace's boundary as this process has seen it."""

    def __init__(self, store: ObjectStore, namespace: Namespace, clock: Clock, metrics: Metrics, retry: Retry) -> None:
        self._store = store
        self._namespace = namespace
        self._path = namespace.boundary_path
        self._clock = clock
        self._metrics = metrics
        self._retry = retry
        self._lock = threading.Lock()
        self._seen: _Seen | None = None
        self._was_read = False
        self._lost: BoundaryLostError | None = None

    def read(self) -> int:
        """The durable value now; 0 if there has never been one. Fatal when it vanished or went backwards."""
        seen = self._look()
        return seen.value if seen else 0

    def advance(self, wish: int) -> int:
        """Raise the durable value to at least `wish`, against any number of other collectors; returns the value."""
        data = encode_boundary(wish)
        patience = self._retry.patience()
        last: int | None = None
        while True:
            seen = self._look()
            value = seen.value if seen else 0
            if value >= wish:
                return value
            # Losing to another collector is progress. Losing to nobody, or hearing nothing, must have an end.
            if value == last and not patience.wait():
                raise self._stuck(wish)
            last = value
            hit(Failpoint.ADVANCE_AFTER_READ)
            self._metrics.count(ADVANCE_ATTEMPTS, namespace=self._namespace.name)
            try:
                # The condition is what this very thread has just seen, whatever others see meanwhile.
                self._store.put(self._path, data, Update(seen.etag) if seen else Create())
                hit(Failpoint.ADVANCE_AFTER_PUT)
            except (PreconditionFailedError, StorageOutcomeUnknownError):
                continue
            except HeadwaterError as error:
                _log.warning("boundary not advanced", namespace=self._namespace.name, wish=wish, error=str(error))
                raise

    def refuse_if_lost(self) -> None:
        """After the boundary was lost nothing may be written through this object any more."""
        if self._lost is not None:
            raise self._lost

    def require_readable(self) -> None:
        """Before a first write: a boundary that cannot be read must be found out while nothing is written."""
        self.refuse_if_lost()
        if not self._was_read:
            self.read()

    def _look(self) -> _Seen | None:
        self.refuse_if_lost()
        started = self._clock.monotonic()
        before = self._seen
        try:
            after = self._fetch(before)
        finally:
            self._metrics.observe(CHECK_SECONDS, self._clock.monotonic() - started, namespace=self._namespace.name)
        # The request began after `before` was seen, so whatever it found can only be newer.
        if before is not None and after is None:
            raise self._fatal("was seen and is gone")
        if before is not None and after is not None and after.value < before.value:
            raise self._fatal(f"went back from {before.value} to {after.value}")
        with self._lock:
            # Another thread may have seen more meanwhile; what was seen is never forgotten.
            if after is not None and (self._seen is None or after.value >= self._seen.value):
                self._seen = after
            self._was_read = True
        return after

    def _fetch(self, seen: _Seen | None) -> _Seen | None:
        try:
            fetched = self._store.get_if_changed(self._path, seen.etag) if seen else self._store.get(self._path)
        except ObjectNotFoundError:
            return None
        if fetched is None:
            return seen
        assert fetched.meta.etag is not None  # a whole get always has one
        return _Seen(fetched.meta.etag, decode_boundary(fetched.data, self._path))

    def _fatal(self, what: str) -> BoundaryLostError:
        self._lost = BoundaryLostError(self._path, what)
        _log.error("boundary lost", namespace=self._namespace.name, path=self._path, what=what)
        return self._lost

    def _stuck(self, wish: int) -> HeadwaterError:
        _log.warning("boundary not advanced", namespace=self._namespace.name, wish=wish, error="no progress")
        return UnavailableError(
            f"{self._path} could not be raised to {wish}: the store neither takes nor refuses it", path=self._path
        )
