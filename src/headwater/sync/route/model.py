"""What a region's readers may choose from, and what is known of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta


class Consistency(enum.StrEnum):
    """What a reader needs: what was just written, or what is near."""

    STRONG = "strong"
    LOCAL = "local"


class Way(enum.StrEnum):
    """Where it reads: the replica beside it, or `main` where writes go."""

    LOCAL = "local"
    PRIMARY = "primary"


@dataclass(frozen=True)
class RouteState:
    """The way that a region's readers are sent, since when, and since when the local one has been well again."""

    way: Way
    since: datetime
    well_since: datetime | None = None


@dataclass(frozen=True)
class Health:
    """How the local replica is: what is wrong with it, and since when it lacks a commit of `main`; None: nothing."""

    fault: str | None = None
    lacks_since: datetime | None = None


@dataclass(frozen=True)
class RouteLimits:
    """How stale a replica may be, and how long it has to be well before readers come back."""

    stale_after: timedelta
    well_for: timedelta


@dataclass(frozen=True)
class Routed:
    """The next state, why, and whether sync is asked to go straight to the newest."""

    state: RouteState
    reason: str
    asks_forward: bool = False
