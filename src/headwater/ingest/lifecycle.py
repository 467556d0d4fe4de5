"""Whether a node answers. Recovery is not built yet, so a node that is run stays in RECOVERING and refuses.

Only the harness of the tests makes a node READY, by `ready_for_tests`; the commands never call it.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Callable

from headwater.kernel.errors import HeadwaterError, RefusedError


class LifecycleState(enum.StrEnum):
    """What a node says of itself."""

    RECOVERING = "recovering"
    READY = "ready"
    FAILED = "failed"


class NotReadyError(RefusedError):
    """The node does not answer yet, or not any more; nothing was done."""


class NodeFailedError(HeadwaterError):
    """The node cannot say any more what it holds, and takes nothing until it has recovered."""


class Lifecycle:
    """RECOVERING, then READY, then perhaps FAILED, which is the end. Safe to share among threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Watchers look at the state themselves, so whoever is told last must have looked last. A watcher may call back.
        self._telling = threading.RLock()
        self._state = LifecycleState.RECOVERING
        self._failure: BaseException | None = None
        self._watchers: tuple[Callable[[], None], ...] = ()

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call this now, and after each change."""
        with self._telling:
            self._watchers = (*self._watchers, watcher)
            watcher()

    @property
    def state(self) -> LifecycleState:
        """What it is now."""
        return self._state

    @property
    def failure(self) -> BaseException | None:
        """Why it failed, if it did."""
        return self._failure

    def ready_for_tests(self) -> None:
        """READY without recovery. Nothing that a user can reach calls this: what a crash lost would stay lost."""
        with self._lock:
            if self._state is LifecycleState.RECOVERING:
                self._state = LifecycleState.READY
        self._tell()

    def fail(self, error: BaseException) -> None:
        """It cannot vouch for what it holds any more. The first reason stays."""
        with self._lock:
            self._failure = self._failure or error
            self._state = LifecycleState.FAILED
        self._tell()

    def refuse_failed(self) -> None:
        """Raise when it has failed, whatever it was before."""
        if self._failure is not None:
            raise NodeFailedError(f"the node has failed: {self._failure}", hint="start it again") from self._failure

    def refuse_unless_ready(self) -> None:
        """Raise unless it is READY."""
        if self._state is LifecycleState.FAILED:
            raise NotReadyError(f"the node has failed: {self._failure}", hint="start it again") from self._failure
        if self._state is not LifecycleState.READY:
            raise NotReadyError(
                "the node is recovering", hint="recovery is not built yet: this version of the node only runs in tests"
            )

    def _tell(self) -> None:
        with self._telling:  # one after the other
            for watcher in self._watchers:
                watcher()
