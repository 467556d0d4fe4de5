"""Randomness as an argument, so that the same seed gives the same history."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")


class Randomness(Protocol):
    """The part of `random.Random` that the product uses."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...

    def randbytes(self, n: int) -> bytes:
        """`n` random bytes."""
        ...

    def randrange(self, start: int, stop: int) -> int:
        """An integer in [start, stop)."""
        ...

    def choice(self, seq: Sequence[T]) -> T:
        """One of `seq`."""
        ...


def system_randomness() -> Randomness:
    """The operating system's entropy."""
    return random.SystemRandom()


def seeded(seed: int | str) -> Randomness:
    """A repeatable stream of numbers."""
    return random.Random(seed)
