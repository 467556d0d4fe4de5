"""Retry with jitter and a budget: a caller waits a bounded time, and many callers do not wait in step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from headwater.kernel.clock import Clock
from headwater.kernel.randomness import Randomness

T = TypeVar("T")


@dataclass(frozen=True)
class RetryPolicy:
    """How often, how long, and how long in all."""

    attempts: int = 6
    first_seconds: float = 0.05
    longest_seconds: float = 2.0
    budget_seconds: float = 15.0

    def delays(self, randomness: Randomness) -> Iterator[float]:
        """The pauses between attempts: full jitter over an exponentially growing ceiling."""
        ceiling = self.first_seconds
        for _ in range(self.attempts - 1):
            yield randomness.random() * ceiling
            ceiling = min(ceiling * 2, self.longest_seconds)


@dataclass(frozen=True)
class Retry:
    """A policy with the clock and the randomness that it runs on."""

    policy: RetryPolicy
    clock: Clock
    randomness: Randomness

    def pauses(self) -> Iterator[None]:
        """Yield once before each attempt, pausing in between, until attempts or budget are used up."""
        deadline = self.clock.monotonic() + self.policy.budget_seconds
        yield
        for delay in self.policy.delays(self.randomness):
            if self.clock.monotonic() + delay > deadline:
                return
            self.clock.sleep(delay)
            yield

    def call(self, action: Callable[[], T], *, on: tuple[type[Exception], ...]) -> T:
        """Run `action` until it stops raising one of `on`; the last error is raised when patience ends."""
        last: Exception | None = None
        for _ in self.pauses():
            try:
                return action()
            except on as error:
                last = error
        assert last is not None  # pauses() yields at least once
        raise last
