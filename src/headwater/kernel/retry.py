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

    def patience(self) -> Patience:
        """Fresh patience, for one piece of work."""
        return Patience(self)

    def call(self, action: Callable[[], T], *, on: tuple[type[Exception], ...]) -> T:
        """Run `action` until it stops raising one of `on`; the last error is raised when patience ends."""
        patience = self.patience()
        while True:
            try:
                return action()
            except on:
                if not patience.wait():
                    raise


class Patience:
    """What is left of the attempts and the budget for one piece of work."""

    def __init__(self, retry: Retry) -> None:
        self._clock = retry.clock
        self._budget_seconds = retry.policy.budget_seconds
        self._deadline: float | None = None
        self._delays = retry.policy.delays(retry.randomness)

    def wait(self) -> bool:
        """Pause before another attempt; False, at once, when there is to be none.

        The budget begins with the first pause: an attempt that took long to fail has not used it up.
        """
        if self._deadline is None:
            self._deadline = self._clock.monotonic() + self._budget_seconds
        delay = next(self._delays, None)
        if delay is None or self._clock.monotonic() + delay > self._deadline:
            return False
        self._clock.sleep(delay)
        return True
