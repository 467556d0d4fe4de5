"""What stands in for `threading` where actors of one simulated process wait for each other.

Actors are greenlets of one thread, so a real lock would either let everybody in or stop the world.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Self

import pytest
from greenlet import getcurrent

from tests.sim.scheduler import Scheduler

# How long who waits for another looks away. Time stands still while anybody can go on, so it costs nothing.
LOOK_AGAIN_SECONDS = 0.01


class Lock:
    """May be taken again by who holds it, like `threading.RLock`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._owner: object = None
        self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        waited = 0.0
        while self._owner is not None and self._owner is not getcurrent():
            if not blocking or 0 <= timeout <= waited:
                return False
            self._scheduler.sleep(LOOK_AGAIN_SECONDS)
            waited += LOOK_AGAIN_SECONDS
        self._owner = getcurrent()
        self._depth += 1
        return True

    def release(self) -> None:
        assert self._owner is getcurrent()
        self._depth -= 1
        if self._depth == 0:
            self._owner = None

    def locked(self) -> bool:
        return self._owner is not None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition(Lock):
    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._rounds = 0

    def wait(self, timeout: float | None = None) -> bool:
        seen, waited, depth = self._rounds, 0.0, self._depth
        self._depth, self._owner = 0, None
        while self._rounds == seen and (timeout is None or waited < timeout):
            self._scheduler.sleep(LOOK_AGAIN_SECONDS)
            waited += LOOK_AGAIN_SECONDS
        self.acquire()
        self._depth = depth
        return self._rounds != seen

    def wait_for(self, predicate: Any, timeout: float | None = None) -> bool:
        while not predicate():
            if not self.wait(timeout) and timeout is not None:
                return bool(predicate())
        return True

    def notify_all(self) -> None:
        self._rounds += 1

    def notify(self, n: int = 1) -> None:
        self._rounds += 1


class Event:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        waited = 0.0
        while not self._is_set and (timeout is None or waited < timeout):
            self._scheduler.sleep(LOOK_AGAIN_SECONDS)
            waited += LOOK_AGAIN_SECONDS
        return self._is_set


class Threading:
    """The part of `threading` that publishing uses."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.Lock = self.RLock = lambda: Lock(scheduler)
        self.Condition = lambda *_: Condition(scheduler)
        self.Event = lambda: Event(scheduler)

    def current_thread(self) -> object:
        return getcurrent()

    def main_thread(self) -> None:
        """No actor is the one that is asked to stop."""

    def get_ident(self) -> int:
        return id(getcurrent())


@contextmanager
def cooperating(scheduler: Scheduler, *modules: ModuleType) -> Iterator[None]:
    """While it lasts, these modules wait the way of the scheduler."""
    with pytest.MonkeyPatch.context() as patch:
        for module in modules:
            if hasattr(module, "threading"):
                patch.setattr(module, "threading", Threading(scheduler))
        yield
