"""When a query has to be over: at its time, or when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock, Thread, Timer

from headwater.query.model import QueryStoppedError, QueryTimeoutError

_AGAIN_SECONDS = 0.05


class Stop:
    """Ends a query from another thread, however far it is; one that begins later ends at once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._end: Callable[[], None] | None = None
        self._is_asked = False

    @property
    def is_asked(self) -> bool:
        """Whether the query is to end."""
        return self._is_asked

    def ask(self) -> None:
        """End the query, soon."""
        with self._lock:
            is_first, self._is_asked = not self._is_asked, True
            end = self._end if is_first else None
        if end is not None:
            end()

    def ends(self, end: Callable[[], None]) -> None:
        """This is how the query is ended."""
        with self._lock:
            self._end = end
            is_asked = self._is_asked
        if is_asked:
            end()


class Deadline:
    """Calls `interrupt` when the time is over, and again until it is closed: what begins just then does not notice."""

    def __init__(self, timeout_seconds: float | None, interrupt: Callable[[], None], stop: Stop | None = None) -> None:
        self._timeout_seconds = timeout_seconds
        self._interrupt = interrupt
        self._over = Event()
        self._closed = Event()
        self._timer = None if timeout_seconds is None else Timer(timeout_seconds, self._expire)
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        self._stop = stop
        if stop is not None:
            stop.ends(lambda: Thread(target=self._expire, name="stop", daemon=True).start())

    @property
    def error(self) -> QueryTimeoutError | QueryStoppedError | None:
        """What to say, once the time is over."""
        if not self._over.is_set():
            return None
        is_stopped = self._stop is not None and self._stop.is_asked
        return QueryStoppedError() if is_stopped else QueryTimeoutError(self._timeout_seconds or 0)

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
