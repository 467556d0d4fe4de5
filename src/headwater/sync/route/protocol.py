"""Routing: ask the replica how it is, decide, and ask sync to hurry when readers had to leave it.

Promise: a reader is never sent to a replica that does not answer or is too stale, as far as can be seen now, and not to
and fro. Nothing of the lake is changed.

A catalog is opened when it is asked: one that cannot be opened does not answer. While the primary is out of reach,
nobody can say how stale a replica is, and readers stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headwater.catalog.errors import CommitNotFoundError, RefNotFoundError
from headwater.catalog.port import Catalog
from headwater.kernel.errors import CorruptError, UnavailableError, UsageError
from headwater.sync.catchup.protocol import pending
from headwater.sync.model import ORIGIN_BRANCH, Origin, origin_of
from headwater.sync.route.model import Consistency, Health, RouteLimits, Way
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


class Router:
    """The routes of one region. `primary` is where writes go, `regional` what the region has of it."""

    def __init__(
        self,
        region: str,
        branch: str,
        *,
        primary: Endpoint,
        regional: Endpoint,
        routes: Routes,
        runs: Runs,
        limits: RouteLimits,
    ) -> None:
        self._region = region
        self._branch = branch
        self._primary = primary
        self._regional = regional
        self._routes = routes
        self._runs = runs
        self._limits = limits

    def route(self, consistency: Consistency) -> Route:
        """Where a reader of the region should read now."""
        if consistency is Consistency.STRONG:
            return Route(Way.PRIMARY, self._primary.url, ORIGIN_BRANCH, "what was just written is at the primary")
        routed = self._routes.route(self._region, self._health(), self._limits)
        if routed.asks_forward:
            self._runs.ask_forward(self._region)
        if routed.state.way is Way.LOCAL:
            return Route(Way.LOCAL, self._regional.url, self._branch, routed.reason, routed.state.since)
        return Route(Way.PRIMARY, self._primary.url, ORIGIN_BRANCH, routed.reason, routed.state.since)

    def _health(self) -> Health:
        try:
            catalog = self._regional.opened()
            shown = origin_of(catalog.commit_at(catalog.ref(self._branch).hash).properties)
        except _OUT_OF_REACH:
            return Health(is_up=False)
        if shown is None:
            return Health(is_up=False)  # there is nothing to read yet
        return Health(is_up=True, lacks_since=self._lacks_since(shown))

    def _lacks_since(self, shown: Origin) -> datetime | None:
        try:
            found = pending(self._primary.opened(), shown, at_most=_LOOKED_AT)
        except _OUT_OF_REACH:
            return None  # nobody can say; and nobody could read there
        if found is None:
            return None
        # Of a replica that is so far behind the oldest was not reached; it is younger than what is shown.
        return shown.created_at if found.count > _LOOKED_AT else found.oldest.created_at
