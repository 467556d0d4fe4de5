"""How long etcd remembers the operations that were recorded in it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headwater.coordination.model import Lease
from headwater.coordination.port import OUTCOMES_KEPT_SECONDS
from headwater.kernel.clock import Clock


class RecordsLease:
    """The lease under which operations are recorded, so that etcd forgets them by itself.

    A lease lasts twice as long as a record must, and is replaced by a new one at half time.
    """

    def __init__(self, grant: Callable[[float], Lease], clock: Clock) -> None:
        self._grant = grant
        self._clock = clock
        self._lock = threading.Lock()
        self._lease: int | None = None
        self._replace_at = 0.0

    def current(self) -> int:
        """A lease that lives long enough for a new record."""
        with self._lock:
            if self._lease is None or self._clock.monotonic() >= self._replace_at:
                self._lease = self._grant(2 * OUTCOMES_KEPT_SECONDS).id
                self._replace_at = self._clock.monotonic() + OUTCOMES_KEPT_SECONDS
            return self._lease

    def forget(self) -> None:
        """The server does not know it any more."""
        with self._lock:
            self._lease = None
