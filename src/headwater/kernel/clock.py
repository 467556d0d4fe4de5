"""Time as an argument: nothing in the product reads the wall clock except through a `Clock`."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Where a protocol gets its time from."""

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards; only differences mean something."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let this much time pass."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """The wall clock, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some fixed point."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        time.sleep(seconds)


class ManualClock:
    """A clock that moves only when told to: for tests and simulation."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed_seconds = 0.0

    def now(self) -> datetime:
        """The start plus whatever was slept or advanced."""
        return self._start + timedelta(seconds=self._elapsed_seconds)

    def monotonic(self) -> float:
        """Seconds since the start."""
        return self._elapsed_seconds

    def sleep(self, seconds: float) -> None:
        """Advance at once instead of blocking."""
        self._elapsed_seconds += max(0.0, seconds)

    def advance(self, delta: timedelta) -> None:
        """Let time pass."""
        self.sleep(delta.total_seconds())
