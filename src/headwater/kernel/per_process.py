"""Things that must not cross a fork: sockets, file locks, pools with their own mutexes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """Makes one `T` per process, at first use. A forked child gets its own and never touches its parent's."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        # The parent's stays referenced in a child, because to collect it there would close it: libpq would say
        # goodbye on the parent's socket, and SQLite would checkpoint under locks that the child does not hold.
        self._by_pid: dict[int, T] = {}

    def get(self) -> T:
        """This process's own. Two threads that race get the same one; no lock, since a lock could be held in a fork."""
        pid = os.getpid()
        mine = self._by_pid.get(pid)
        return mine if mine is not None else self._by_pid.setdefault(pid, self._make())

    def made(self) -> Iterator[T]:
        """What this process made, if it did, and forgets: the caller closes it."""
        mine = self._by_pid.pop(os.getpid(), None)
        if mine is not None:
            yield mine
