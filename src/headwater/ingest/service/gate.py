"""How many heavy calls go side by side. What does not fit is refused at once: a queue would only hide the load."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.kernel.errors import UnavailableError

# Calls that work on rows. The others are light and always pass: whoever watches a busy node must still reach it, and a
# writer that cannot end its transaction would hold everybody's watermark.
HEAVY = frozenset({"UpdateRecord", "StreamUpdateRecord", "Scan", "GetWriteBuffer", "QueryVisibility"})


class TooManyCallsError(UnavailableError):
    """The node has its hands full; nothing was done."""


class Gate:
    """Lets so many calls in. Safe to share among threads."""

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._free = threading.Semaphore(calls)

    @contextmanager
    def entered(self, method: str) -> Iterator[None]:
        """Within the block the call is under way; `method` is its full name."""
        if method.rpartition("/")[2] not in HEAVY:
            yield
            return
        if not self._free.acquire(blocking=False):
            raise TooManyCallsError(
                f"{self._calls} writes and scans are under way", hint="send it again in a moment", calls=self._calls
            )
        try:
            yield
        finally:
            self._free.release()
