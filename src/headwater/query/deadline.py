"""When a query has to be over."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Timer

from headwater.query.model import QueryTimeoutError

_AGAIN_SECONDS = 0.05


class Deadline:
    """Calls `interrupt` when the time is over, and again until it is closed: what begins just then does not notice."""

    def __init__(self, timeout_seconds: float | None, interrupt: Callable[[], None]) -> None:
        self._timeout_seconds = timeout_seconds
        self._interrupt = interrupt
        self._over = Event()
        self._closed = Event()
        self._timer = None if timeout_seconds is None else Timer(timeout_seconds, self._expire)
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()

    @property
    def error(self) -> QueryTimeoutError | None:
        """What to say, once the time is over."""
        return QueryTimeoutError(self._timeout_seconds or 0) if self._over.is_set() else None

    def check(self) -> None:
        """End a query that does not ask DuckDB just now."""
        if (error := self.error) is not None:
            raise error

    def close(self) -> None:
        """The query is over; no interrupt comes after this."""
        self._closed.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer.join()

    def _expire(self) -> None:
        self._over.set()
        self._interrupt()
        while not self._closed.wait(_AGAIN_SECONDS):
            self._interrupt()
