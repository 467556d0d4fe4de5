"""The right to sync a region: one process at a time, by a leased key that is kept alive while work is done.

A process that is stopped for longer than its lease loses the key, and learns of it at the next look. What it does in
between is refused by its fence: every note in the database carries it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headwater.coordination import Coordination, Held, acquire
from headwater.kernel.errors import ConflictError, HeadwaterError
from headwater.kernel.logs import Log

_log = Log("sync")


class RegionBusyError(ConflictError):
    """Another process syncs the region."""

    def __init__(self, region: str, holder: str) -> None:
        super().__init__(
            f"{region} is being synced by {holder}",
            hint="let it go on; if it has died, its lease ends by itself",
            region=region,
            holder=holder,
        )


class RegionLease:
    """A key that is held, and kept alive by a thread; `renewed` is done with each renewal."""

    def __init__(self, held: Held, ttl_seconds: float) -> None:
        self._held = held
        self._every_seconds = ttl_seconds / 3
        self._over = threading.Event()
        self._lost: HeadwaterError | None = None
        self._others: list[Callable[[], None]] = []
        self._beat = threading.Lock()
        self._thread = threading.Thread(target=self._keep, name="sync-lease", daemon=True)

    @property
    def fence(self) -> int:
        """Higher than that of everybody who had it before."""
        return self._held.fence

    def check(self) -> None:
        """Raise when it was lost."""
        if self._lost is not None:
            raise self._lost
        self._held.verify()

    @contextmanager
    def renewing(self, other: Callable[[], None]) -> Iterator[None]:
        """While the block lasts, renew this, too, with the same beat; it is over when no beat is under way."""
        self._others.append(other)
        try:
            yield
        finally:
            # A beat that still went on would find what the caller now gives back, and take it for lost.
            with self._beat:
                self._others.remove(other)

    def start(self) -> None:
        """Begin to keep it alive."""
        self._thread.start()

    def stop(self) -> None:
        """Give it back; who cannot be told that it is free finds out when the lease ends."""
        self._over.set()
        self._thread.join()
        try:
            self._held.release()
        except HeadwaterError as error:
            # What was done under it is done, or has failed for a reason of its own.
            _log.warning("a lease was not given back, and ends by itself", key=self._held.key, error=str(error))

    def _keep(self) -> None:
        while not self._over.wait(self._every_seconds):
            try:
                self._held.keep_alive()
                with self._beat:  # nobody leaves meanwhile
                    for each in tuple(self._others):
                        each()
            except ConflictError as error:
                self._lost = error
                _log.error("the sync of a region was lost to another process", key=self._held.key, error=str(error))
                return
            except HeadwaterError as error:
                _log.warning("a lease could not be renewed, and is tried again", key=self._held.key, error=str(error))


@contextmanager
def leased(coordination: Coordination, region: str, holder: str, ttl_seconds: float) -> Iterator[RegionLease]:
    """The right to sync the region, or `RegionBusyError`."""
    key = f"sync/{region}"
    held = acquire(coordination, key, holder, ttl_seconds)
    if held is None:
        entry = coordination.get(key)
        raise RegionBusyError(region, "another process" if entry is None else entry.value.decode(errors="replace"))
    lease = RegionLease(held, ttl_seconds)
    lease.start()
    try:
        yield lease
    finally:
        lease.stop()
