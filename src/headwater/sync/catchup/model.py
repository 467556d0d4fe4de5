"""How far a replica is behind, and when that is too much."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from headwater.sync.model import Origin


@dataclass(frozen=True)
class Pending:
    """The commits of `main` that a replica does not show yet: how many, the oldest, and the newest.

    `count` stops where nobody needs to know it more exactly: one more than what a fast-forward takes.
    """

    count: int
    oldest: Origin
    newest: Origin


@dataclass(frozen=True)
class Limits:
    """What is too much: commits or time behind lead straight to the newest, lag or backlog raise the alarm."""

    forward_commits: int
    forward_after: timedelta
    alarm_after: timedelta
    alarm_backlog_bytes: int


@dataclass(frozen=True)
class Target:
    """The commit that a run goes to; `is_forward` when it passes over others on the way."""

    origin: Origin
    is_forward: bool = False


@dataclass(frozen=True)
class Pressure:
    """What is told to whoever may write more slowly: why, in words; nothing when all is well."""

    reasons: tuple[str, ...] = ()

    @property
    def is_raised(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.reasons)
