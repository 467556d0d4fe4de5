"""How many heavy calls go side by side. What does not fit is refused at once: a queue would only hide the load."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.kernel.errors import UnavailableError

# Calls that work on rows. The others are light and always pass: whoever watches a busy node must still reach it, and a
# writer that cannot end its transaction would hold everybody's watermark.
HEAVY = frozenset({"UpdateRecord", "StreamUpdateRecord", "Scan", "GetWriteBuffer", "QueryVisibility"})

WATCHERS = 16
"""Health and reflection: who watches stays for as long as it likes, and must leave room for the light calls."""
_FOREIGN = "/grpc."


class TooManyCallsError(UnavailableError):
    """The node has its hands full; nothing was done."""


class Gate:
    """Lets so many calls in. Safe to share among threads."""

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._free = threading.Semaphore(calls)
        self._watching = threading.Semaphore(WATCHERS)

    @contextmanager
    def entered(self, method: str) -> Iterator[None]:
        """Within the block the call is under way; `method` is its full name."""
        if method.rpartition("/")[2] in HEAVY:
            with _one_of(self._free, f"{self._calls} writes and scans are under way"):
                yield
        elif method.startswith(_FOREIGN):
            with _one_of(self._watching, f"{WATCHERS} watch the node's health, or look at its calls"):
                yield
        else:
            yield


@contextmanager
def _one_of(places: threading.Semaphore, taken: str) -> Iterator[None]:
    if not places.acquire(blocking=False):
        raise TooManyCallsError(taken, hint="send it again in a moment")
    try:
        yield
    finally:
        places.release()
