"""What a benchmark is, and how two sides are measured fairly: in turns, so that the machine's moods hit both."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from headwater.kernel.clock import SystemClock


@dataclass(frozen=True)
class Result:
    """A row of the table. `ratio` is oriented so that the figure holds when it is at least `goal`."""

    name: str
    ours: float
    peer: float
    unit: str
    ratio: float
    goal: float

    @property
    def holds(self) -> bool:
        return self.ratio >= self.goal


def rate(action: Callable[[], object], count: int) -> float:
    """How often a second `action` runs."""
    clock = SystemClock()
    started = clock.monotonic()
    for _ in range(count):
        action()
    return count / (clock.monotonic() - started)


def compare_rates(
    name: str, ours: Callable[[], object], peer: Callable[[], object], *, count: int, rounds: int, goal: float
) -> Result:
    """Both rates, as medians over rounds in which the two take turns; the ratio is the median of the rounds'."""
    rate(ours, count // 5 + 1)
    rate(peer, count // 5 + 1)
    pairs = [(rate(ours, count), rate(peer, count)) for _ in range(rounds)]
    return Result(
        name,
        statistics.median(first for first, _ in pairs),
        statistics.median(second for _, second in pairs),
        "per second",
        statistics.median(first / second for first, second in pairs),
        goal,
    )
