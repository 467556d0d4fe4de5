"""Write queues: one for each table and branch, in this process. Whoever needs several takes them in one order."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from headwater.catalog.model import TableKey


class WriteQueues:
    """Keeps writers of one process out of each other's way; other processes are kept out by versions and leases."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[tuple[str, TableKey], threading.RLock] = {}

    @contextmanager
    def hold(self, branch: str, keys: Iterable[TableKey]) -> Iterator[None]:
        """Wait for all of these queues, in the order of keys, and keep them for as long as the context lasts."""
        with ExitStack() as stack:
            for key in sorted(set(keys)):
                stack.enter_context(self._lock(branch, key))
            yield

    @contextmanager
    def hold_if_free(self, branch: str, keys: Iterable[TableKey]) -> Iterator[bool]:
        """The same, without waiting; False, and none of them is kept, while somebody of this process has one."""
        with ExitStack() as stack:
            for lock in [self._lock(branch, key) for key in sorted(set(keys))]:
                if not lock.acquire(blocking=False):
                    stack.close()
                    yield False
                    return
                stack.callback(lock.release)
            yield True

    def _lock(self, branch: str, key: TableKey) -> threading.RLock:
        with self._guard:
            return self._locks.setdefault((branch, key), threading.RLock())
