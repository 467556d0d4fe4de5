"""Routing: ask the replica how it is, decide, and ask sync to hurry when readers had to leave it.

Promise: a reader is never sent to a replica that does not answer or is too stale, as far as can be seen now, and not to
and fro. Nothing of the lake is changed.

A catalog is opened when it is asked: one that cannot be opened does not answer. While the primary is out of reach,
nobody can say how stale a replica is, and readers stay where they are. While the database is out of reach, what was
decided before is not known, and each is sent by what can be seen now: a replica that is well is read all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headwater.catalog.errors import CommitNotFoundError, RefNotFoundError
from headwater.catalog.port import Catalog
from headwater.kernel.clock import Clock
from headwater.kernel.errors import ConflictError, CorruptError, UnavailableError, UsageError
from headwater.sync.catchup.protocol import pending
from headwater.sync.model import ORIGIN_BRANCH, Origin, origin_of
from headwater.sync.route.decide import first, step
from headwater.sync.route.model import Consistency, Health, Routed, RouteLimits, Way
from headwater.sync.route.store import Routes
from headwater.sync.runs.store import Runs

# Commits of `main` that are looked through for the oldest that the replica lacks.
_LOOKED_AT: Final = 1_000
# A repository that has not arrived yet is no lake, which is a mistake of nobody's.
_OUT_OF_REACH: Final = (RefNotFoundError, CommitNotFoundError, UnavailableError, CorruptError, UsageError)


@dataclass(frozen=True)
class Endpoint:
    """A catalog: its address, for engines, and how it is opened."""

    url: str
    opened: Callable[[], Catalog]


@dataclass(frozen=True)
class Route:
    """Which catalog and branch a reader should use now, since when, and why; `main` is for ever."""

    way: Way
    endpoint: str
    branch: str
    reason: str
    since: datetime | None = None


@dataclass(frozen=True)
class Memory:
    """What readers were told before, and where sync is asked to hurry."""

    routes: Routes
    runs: Runs


class Router:
    """The routes of one region. `primary` is where writes go, `regional` what the region has of it."""

    def __init__(
        self,
        region: str,
        branch: str,
        *,
        primary: Endpoint,
        regional: Endpoint,
        memory: Callable[[], Memory],
        limits: RouteLimits,
        clock: Clock,
    ) -> None:
        self._region = region
        self._branch = branch
        self._primary = primary
        self._regional = regional
        self._memory = memory
        self._limits = limits
        self._clock = clock

    def route(self, consistency: Consistency) -> Route:
        """Where a reader of the region should read now."""
        if consistency is Consistency.STRONG:
            return Route(Way.PRIMARY, self._primary.url, ORIGIN_BRANCH, "what was just written is at the primary")
        health = self._health()
        try:
            routed = self._decided(health)
            return self._route(routed, routed.reason, routed.state.since)
        except UnavailableError as error:
            now = self._clock.now()
            routed = step(first(now), health, now, self._limits)
            return self._route(routed, f"{routed.reason}; what was decided before is not known: {error.message}", None)

    def _decided(self, health: Health) -> Routed:
        memory = self._memory()
        routed = memory.routes.route(self._region, health, self._limits)
        if routed.asks_forward and not memory.runs.forward_is_asked(self._region):
            with suppress(ConflictError):  # somebody else is at it; if it was not to ask, the next reader does
                memory.runs.ask_forward(self._region)
        return routed

    def _route(self, routed: Routed, reason: str, since: datetime | None) -> Route:
        if routed.state.way is Way.LOCAL:
            return Route(Way.LOCAL, self._regional.url, self._branch, reason, since)
        return Route(Way.PRIMARY, self._primary.url, ORIGIN_BRANCH, reason, since)

    def _health(self) -> Health:
        try:
            catalog = self._regional.opened()
            shown = origin_of(catalog.commit_at(catalog.ref(self._branch).hash).properties)
        except RefNotFoundError:
            shown = None
        except _OUT_OF_REACH as error:
            return Health(fault=f"does not answer: {error.message}")
        if shown is None:
            return Health(fault="shows nothing yet")
        return Health(lacks_since=self._lacks_since(shown))

    def _lacks_since(self, shown: Origin) -> datetime | None:
        try:
            found = pending(self._primary.opened(), shown, at_most=_LOOKED_AT)
        except _OUT_OF_REACH:
            return None  # nobody can say; and nobody could read there
        if found is None:
            return None
        # Of a replica that is so far behind the oldest was not reached; it is younger than what is shown.
        return shown.created_at if found.count > _LOOKED_AT else found.oldest.created_at
