"""A store that fails on purpose, by a seed: what a network and a tired server do to a client.

before    the request never arrived: nothing happened, and the caller is told to try again
after     it happened, or was refused, and the answer was lost
late      the answer was lost, and the change happens at some later moment, or never
delay     it takes a while
partial   a list breaks off in the middle
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from headwater.kernel.clock import Clock
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.randomness import Randomness
from headwater.storage.errors import StorageOutcomeUnknownError, TransientError
from headwater.storage.port import Fetched, ObjectMeta, ObjectStore, PutMode
from headwater.storage.wrapper import StoreWrapper

T = TypeVar("T")


@dataclass(frozen=True)
class Faults:
    """How probable each fault is, for each request."""

    before: float = 0.0
    after: float = 0.0
    late: float = 0.0
    delay: float = 0.0
    longest_delay_seconds: float = 1.0
    partial: float = 0.0


class FaultyStore(StoreWrapper):
    """Injects faults between the caller and the store."""

    def __init__(self, inner: ObjectStore, faults: Faults, clock: Clock, randomness: Randomness) -> None:
        super().__init__(inner)
        self._faults = faults
        self._clock = clock
        self._randomness = randomness
        self._in_flight: list[Callable[[], object]] = []

    def get(self, path: str, *, span: tuple[int, int] | None = None) -> Fetched:
        """May be told to try again."""
        return self._read(path, lambda: self._inner.get(path, span=span))

    def get_if_changed(self, path: str, etag: str) -> Fetched | None:
        """May be told to try again."""
        return self._read(path, lambda: self._inner.get_if_changed(path, etag))

    def head(self, path: str) -> ObjectMeta:
        """May be told to try again."""
        return self._read(path, lambda: self._inner.head(path))

    def exists(self, path: str) -> bool:
        """May be told to try again."""
        return self._read(path, lambda: self._inner.exists(path))

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        """May fail before, after, or late."""
        return self._change(path, lambda: self._inner.put(path, data, mode, tags=tags))

    def delete(self, path: str, *, if_match: str | None = None) -> None:
        """May fail before, after, or late."""
        self._change(path, lambda: self._inner.delete(path, if_match=if_match))

    def delete_prefix(self, prefix: str) -> int:
        """May fail before or after."""
        return self._change(prefix, lambda: self._inner.delete_prefix(prefix))

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        """May break off."""
        found = self._read(prefix, lambda: list(self._inner.list(prefix, start_after=start_after)))
        breaks_off = self._happens(self._faults.partial)
        for number, meta in enumerate(found):
            if breaks_off and number >= len(found) // 2:
                raise TransientError(self.name, prefix, "injected: the list broke off")
            yield meta

    def copy(self, source: str, target: str) -> None:
        """May fail before or after."""
        self._change(target, lambda: self._inner.copy(source, target))

    def land_everything(self) -> None:
        """Let every change that is still under way happen now."""
        while self._in_flight:
            self._land(self._in_flight.pop(0))

    def _read(self, path: str, action: Callable[[], T]) -> T:
        self._weather(path)
        return action()

    def _change(self, path: str, action: Callable[[], T]) -> T:
        self._weather(path)
        if self._happens(self._faults.late):
            self._in_flight.append(action)
            raise StorageOutcomeUnknownError(self.name, path, "injected: no answer yet")
        loses_answer = self._happens(self._faults.after)
        try:
            result = action()
        except HeadwaterError:
            if not loses_answer:
                raise
        if loses_answer:
            raise StorageOutcomeUnknownError(self.name, path, "injected: the answer was lost")
        return result

    def _weather(self, path: str) -> None:
        if self._in_flight and self._happens(0.3):
            self._land(self._in_flight.pop(self._randomness.randrange(0, len(self._in_flight))))
        if self._happens(self._faults.delay):
            self._clock.sleep(self._randomness.random() * self._faults.longest_delay_seconds)
        if self._happens(self._faults.before):
            raise TransientError(self.name, path, "injected: the request did not arrive")

    def _land(self, change: Callable[[], object]) -> None:
        if self._happens(0.25):
            return  # it never arrived after all
        try:
            change()
        except HeadwaterError:
            return  # refused, with nobody left to hear it

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self._randomness.random() < probability
