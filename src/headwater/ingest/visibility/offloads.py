"""Timestamps at which readers hold folding, and how far folding has come.

Promise: nothing that a held timestamp sees is folded away, for as long as its lease lasts; one that was folded away is
refused when it is asked for. A reader that dies without a word holds nothing longer than that: after its lease a
read below the base is refused, not wrong.
"""

from __future__ import annotations

import itertools
import threading

from headwater.ingest.model import Timestamp
from headwater.ingest.visibility.model import BelowBaseError
from headwater.kernel.clock import Clock


class Offloads:
    """What readers hold. Safe to share among threads."""

    def __init__(self, clock: Clock, lease_seconds: float) -> None:
        self.lease_seconds = lease_seconds
        self._clock = clock
        self._guard = threading.Lock()
        self._held: dict[int, tuple[Timestamp, float]] = {}
        # Above those of the process before, whose readers may still come to let go.
        self._ids = itertools.count(int(clock.now().timestamp() * 1_000_000))
        self._folded: Timestamp = 0

    def register(self, timestamp: Timestamp) -> int:
        """Hold a timestamp for a lease, under an id that nobody else has; one below what is folded is refused."""
        with self._guard:
            if timestamp < self._folded:
                raise BelowBaseError(timestamp, self._folded)
            offload_id = next(self._ids)
            self._held[offload_id] = timestamp, self._clock.monotonic() + self.lease_seconds
            return offload_id

    def unregister(self, offload_id: int) -> None:
        """Let go. One that is over already, or never was, changes nothing."""
        with self._guard:
            self._held.pop(offload_id, None)

    def fold(self, wanted: Timestamp) -> Timestamp:
        """How far may be folded, at most to `wanted`; nobody can hold less from now on."""
        with self._guard:
            now = self._clock.monotonic()
            self._held = {number: each for number, each in self._held.items() if each[1] > now}
            up_to = min([wanted, *(timestamp for timestamp, _ in self._held.values())])
            self._folded = max(self._folded, up_to)
            return up_to
