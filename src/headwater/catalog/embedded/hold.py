"""Holding a commit: a pin on the manifest that the reader stands on, renewed while it is needed.

A renewal counts only if the old pin had not ended when the new one was granted: in between, a collector may have run.

Who holds a commit that another of the process holds already shares its pin, while that is renewed in time: the pin does
not know for how many it stands. It goes when the last of them lets go.

A collector reads the pins after it has published its horizon, and keeps everything that is kept by the manifest of any
pin. The holder looks at the horizon after its pin is granted: one of the two sees the other. A hold that ends, or whose
process dies, leaves a pin that expires by itself: excess only.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from headwater.catalog.errors import BehindHorizonError
from headwater.kernel.clock import Clock
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.logs import Log
from headwater.sequence.model import HeldPin, PinLostError
from headwater.sequence.pins import Pins

HOLD_TTL = timedelta(minutes=10)

_BEGIN_AGAIN = "what was read since may be incomplete: begin again"

_log = Log("catalog")


class Unheld:
    """Nothing is held, because the lake is open for reading only: all that can be told is what the horizon says."""

    def __init__(self, judge: Callable[[], None]) -> None:
        self._judge = judge

    def check(self) -> None:
        """Raise `PinLostError` when the horizon has passed the commit."""
        try:
            self._judge()
        except BehindHorizonError as error:
            raise PinLostError(error.message, hint=_BEGIN_AGAIN, **error.fields) from error


class Hold:
    """A pin and the thread that renews it, at a third of its life, in the machine's own time."""

    def __init__(self, pins: Pins, held: HeldPin, *, ttl: timedelta, clock: Clock) -> None:
        self._pins = pins
        self._held = held
        self._ttl = ttl
        self._clock = clock
        self._process = os.getpid()
        self._lost: PinLostError | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"hold-{held.pin.pin}", daemon=True)

    def check(self) -> None:
        """Raise `PinLostError` when what is held may have been collected; once lost, it stays lost."""
        now = self._clock.now()  # before the pin is looked at, which may be renewed meanwhile
        self._lose_if_ended(self._held, now)
        if self._lost is not None:
            raise self._lost

    def has_time(self) -> bool:
        """Whether it was renewed in time, so that another may lean on it."""
        if self._process != os.getpid():
            return False  # a forked child knows nothing of when its parent lets go
        return self._lost is None and self._held.pin.expires_at - self._clock.now() >= self._ttl / 2

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def renew(self) -> None:
        """One renewal. One that fails for now is tried again next time, while the pin lasts; a lost pin stays lost."""
        old = self._held
        try:
            renewed = self._pins.renew(old, ttl=self._ttl)
            # The machine slept, or the store was away: meanwhile nobody kept anything, whatever is granted now.
            self._lose_if_ended(old, self._clock.now())
            self._held = renewed
            if self._lost is not None:
                self._pins.release(renewed)
        except PinLostError as error:
            self._lose(error)
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

    def _lose_if_ended(self, held: HeldPin, now: datetime) -> None:
        if now >= held.pin.expires_at:
            ended = f"the pin of manifest {held.id} ended at {held.pin.expires_at.isoformat()}"
            self._lose(PinLostError(ended, hint=_BEGIN_AGAIN, id=held.id))

    def _lose(self, error: PinLostError) -> None:
        if self._lost is None:
            self._lost = error
            _log.warning("hold lost", id=self._held.id, holder=self._held.pin.holder, error=str(error))
        self._over.set()

    def _keep(self) -> None:
        while not self._over.wait(self._ttl.total_seconds() / 3):
            self.renew()


class Holds:
    """The holds of one process, by the commit that they hold. Safe to share among threads."""

    def __init__(self) -> None:
        self._holds: dict[str, list[Hold]] = {}  # one is there as often as it is shared
        self._turns: dict[str, tuple[threading.Lock, int]] = {}  # with how many hold or want the turn
        self._lock = threading.Lock()

    @contextmanager
    def turn(self, at: str) -> Iterator[None]:
        """One at a time looks for a hold of this commit to share, and makes one if there is none."""
        with self._lock:
            lock, others = self._turns.get(at, (threading.Lock(), 0))
            self._turns[at] = (lock, others + 1)
        try:
            with lock:
                yield
        finally:
            with self._lock:
                _, left = self._turns.pop(at)
                if left > 1:
                    self._turns[at] = (lock, left - 1)

    def share(self, at: str) -> Hold | None:
        """A hold of the commit that has time left, and stands for one more from now on."""
        with self._lock:
            found = next((hold for hold in self._holds.get(at, ()) if hold.has_time()), None)
            if found is not None:
                self._holds[at].append(found)
            return found

    def add(self, at: str, hold: Hold) -> None:
        """From now on it holds the commit."""
        with self._lock:
            self._holds.setdefault(at, []).append(hold)

    def remove(self, at: str, hold: Hold) -> bool:
        """No longer, for one of those who share it; whether that was the last."""
        with self._lock:
            self._holds[at].remove(hold)
            is_last = hold not in self._holds[at]
            if not self._holds[at]:
                del self._holds[at]
            return is_last

    def check(self, at: str) -> bool:
        """Whether the commit is held; `PinLostError` when it was, and every hold of it is lost."""
        with self._lock:
            holds = tuple(self._holds.get(at, ()))
        lost: PinLostError | None = None
        for hold in holds:
            try:
                hold.check()
            except PinLostError as error:
                lost = error
            else:
                return True
        if lost is not None:
            raise lost
        return False
