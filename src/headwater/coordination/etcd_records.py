"""How long etcd remembers the operations that were recorded in it."""

from __future__ import annotations

from collections.abc import Callable

from headwater.coordination.model import Lease
from headwater.coordination.port import OUTCOMES_KEPT_SECONDS
from headwater.kernel.clock import Clock


class RecordsLease:
    """The lease under which operations are recorded, so that etcd forgets them by itself.

    A lease lasts twice as long as a record must, and is replaced by a new one at half time. There is no lock, which
    a fork could leave held for ever: threads that come at once may grant one lease each, and all of them serve.
    """

    def __init__(self, grant: Callable[[float], Lease], clock: Clock) -> None:
        self._grant = grant
        self._clock = clock
        self._held: tuple[int, float] | None = None

    def current(self) -> int:
        """A lease that lives long enough for a new record."""
        held, now = self._held, self._clock.monotonic()
        if held is None or now >= held[1]:
            held = (self._grant(2 * OUTCOMES_KEPT_SECONDS).id, now + OUTCOMES_KEPT_SECONDS)
            self._held = held
        return held[0]

    def forget(self) -> None:
        """The server does not know it any more."""
        self._held = None
