"""A seeded scheduler: many actors, one at a time, in an order that the seed decides.

Actors are plain functions in greenlets. They give up control at every request to the store and whenever they
sleep, so the product's own blocking code runs unchanged. Time stands still except when an actor sleeps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import TypeVar

from greenlet import getcurrent, greenlet

from headwater.storage.port import Fetched, ObjectMeta, ObjectStore, PutMode
from headwater.storage.wrapper import StoreWrapper

T = TypeVar("T")

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Actor:
    name: str
    body: greenlet
    ready_at: float = 0.0
    error: BaseException | None = field(default=None)


class Scheduler:
    """Runs actors to their end. It is also the clock of everything in the simulation."""

    def __init__(self, seed: int, *, stall_probability: float, longest_stall_seconds: float) -> None:
        self.random = random.Random(seed)
        self.time = 0.0
        self.steps = 0
        self.trace: list[tuple[int, str]] = []
        self._actors: list[Actor] = []
        self._hub = getcurrent()
        self._stall_probability = stall_probability
        self._longest_stall_seconds = longest_stall_seconds

    def spawn(self, name: str, action: Callable[[], None]) -> Actor:
        """A new actor; one that is made by another begins at that moment."""
        actor = Actor(name, greenlet(action, parent=self._hub), ready_at=self.time)
        self._actors.append(actor)
        return actor

    def kill(self, actor: Actor) -> greenlet:
        """Never let it run again, and let it clean up nothing; its body must be kept, or it would notice."""
        if actor in self._actors:
            self._actors.remove(actor)
        return actor.body

    def run(self, *, most_steps: int = 50_000) -> None:
        waiting = self._actors
        while waiting:
            ready = [actor for actor in waiting if actor.ready_at <= self.time]
            if not ready:
                self.time = min(actor.ready_at for actor in waiting)
                continue
            actor = self.random.choice(ready)
            self.steps += 1
            assert self.steps < most_steps, "the simulation does not end"
            self.trace.append((self.steps, actor.name))
            self._current = actor
            actor.body.switch()
            if actor.body.dead:
                waiting.remove(actor)

    def pause(self) -> None:
        """Let others run; now and then for longer than a collector's patience."""
        if getcurrent() is self._hub:
            return
        if self.random.random() < self._stall_probability:
            self._current.ready_at = self.time + self.random.random() * self._longest_stall_seconds
        self._hub.switch()

    # The Clock port.

    def now(self) -> datetime:
        return START + timedelta(seconds=self.time)

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        if getcurrent() is self._hub:
            self.time += seconds
            return
        self._current.ready_at = self.time + seconds
        self._hub.switch()


class PausingStore(StoreWrapper):
    """Gives up control before a request takes effect and again before its answer arrives."""

    def __init__(self, inner: ObjectStore, scheduler: Scheduler) -> None:
        super().__init__(inner)
        self._scheduler = scheduler

    def _around(self, action: Callable[[], T]) -> T:
        self._scheduler.pause()
        try:
            return action()
        finally:
            self._scheduler.pause()

    def get(self, path: str, *, span: tuple[int, int] | None = None) -> Fetched:
        return self._around(lambda: self._inner.get(path, span=span))

    def get_if_changed(self, path: str, etag: str) -> Fetched | None:
        return self._around(lambda: self._inner.get_if_changed(path, etag))

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        return self._around(lambda: self._inner.put(path, data, mode, tags=tags))

    def delete(self, path: str, *, if_match: str | None = None) -> None:
        self._around(lambda: self._inner.delete(path, if_match=if_match))

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        """Two objects a page, with time for others in between: a list is no snapshot."""
        last = start_after
        while True:
            page = self._around(partial(self._page, prefix, last))
            yield from page
            if len(page) < 2:
                return
            last = page[-1].path

    def _page(self, prefix: str, after: str | None) -> Sequence[ObjectMeta]:
        return tuple(islice(self._inner.list(prefix, start_after=after), 2))
