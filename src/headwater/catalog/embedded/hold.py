"""Holding a commit: a pin on the manifest that the reader stands on, renewed while it is needed.

A collector reads the pins after it has published its horizon, and keeps everything that is kept by the manifest of any
pin. The holder looks at the horizon after its pin is granted: one of the two sees the other. A hold that ends, or whose
process dies, leaves a pin that expires by itself: excess only.
"""

from __future__ import annotations

import threading
from datetime import timedelta

from headwater.kernel.clock import Clock
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.logs import Log
from headwater.sequence.model import HeldPin, PinLostError
from headwater.sequence.pins import Pins

HOLD_TTL = timedelta(minutes=10)

_log = Log("catalog")


class Unheld:
    """Nothing is held, because the lake is open for reading only."""

    def check(self) -> None:
        """Nothing was promised, so nothing is lost."""


class Hold:
    """A pin and the thread that renews it, at a third of its life, in the machine's own time."""

    def __init__(self, pins: Pins, held: HeldPin, *, ttl: timedelta, clock: Clock) -> None:
        self._pins = pins
        self._held = held
        self._ttl = ttl
        self._clock = clock
        self._lost: PinLostError | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"hold-{held.pin.pin}", daemon=True)

    def check(self) -> None:
        """Raise `PinLostError` when what is held may have been collected."""
        if self._lost is not None:
            raise self._lost
        if self._clock.now() >= self._held.pin.expires_at:
            raise PinLostError(
                f"the pin of manifest {self._held.id} ended at {self._held.pin.expires_at.isoformat()}",
                hint="what was read since may be incomplete: begin again",
                id=self._held.id,
            )

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def renew(self) -> None:
        """One renewal. One that fails for now is tried again next time, while the pin lasts; a lost pin stays lost."""
        try:
            self._held = self._pins.renew(self._held, ttl=self._ttl)
        except PinLostError as error:
            self._lost = error
            self._over.set()
            _log.warning("hold lost", id=self._held.id, holder=self._held.pin.holder, error=str(error))
        except HeadwaterError as error:
            _log.warning("hold not renewed", id=self._held.id, holder=self._held.pin.holder, error=str(error))

    def end(self) -> None:
        """Stop renewing, and let go."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            self._pins.release(self._held)
        except HeadwaterError as error:
            _log.debug("pin left to expire", id=self._held.id, error=str(error))

    def _keep(self) -> None:
        while not self._over.wait(self._ttl.total_seconds() / 3):
            self.renew()
