"""Routing: ask the replica how it is, decide, and ask sync to hurry when readers had to leave it.

Promise: a reader is never sent to a replica that does not answer or is too stale, as far as can be seen now, and not to
and fro. Nothing of the lake is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from headwater.catalog.errors import CommitNotFoundError, RefNotFoundError
from headwater.catalog.port import Catalog
from headwater.kernel.errors import CorruptError, UnavailableError
from headwater.sync.catchup.protocol import pending
from headwater.sync.model import ORIGIN_BRANCH, Origin, origin_of
from headwater.sync.route.model import Consistency, Health, RouteLimits, Way
from headwater.sync.route.store import Routes
from headwater.sync.runs.store import Runs

# Commits of `main` that are looked through for the oldest that the replica lacks.
_LOOKED_AT: Final = 1_000
_OUT_OF_REACH: Final = (RefNotFoundError, CommitNotFoundError, UnavailableError, CorruptError)


@dataclass(frozen=True)
class Route:
    """Which catalog and branch a reader should use now, and why."""

    way: Way
    endpoint: str
    branch: str
    reason: str


class Router:
    """The routes of one region. `catalog` is where writes go, `regional` what the region has of it."""

    def __init__(
        self,
        region: str,
        branch: str,
        *,
        catalog: Catalog,
        regional: Catalog,
        routes: Routes,
        runs: Runs,
        limits: RouteLimits,
    ) -> None:
        self._region = region
        self._branch = branch
        self._catalog = catalog
        self._regional = regional
        self._routes = routes
        self._runs = runs
        self._limits = limits

    def route(self, consistency: Consistency) -> Route:
        """Where a reader of the region should read now."""
        if consistency is Consistency.STRONG:
            return Route(Way.PRIMARY, self._catalog.name, ORIGIN_BRANCH, "what was just written is at the primary")
        routed = self._routes.route(self._region, self._health(), self._limits)
        if routed.asks_forward:
            self._runs.ask_forward(self._region)
        if routed.state.way is Way.LOCAL:
            return Route(Way.LOCAL, self._regional.name, self._branch, routed.reason)
        return Route(Way.PRIMARY, self._catalog.name, ORIGIN_BRANCH, routed.reason)

    def _health(self) -> Health:
        try:
            head = self._regional.ref(self._branch).hash
            shown = origin_of(self._regional.commit_at(head).properties)
        except _OUT_OF_REACH:
            return Health(is_up=False)
        if shown is None:
            return Health(is_up=False)  # there is nothing to read yet
        return Health(is_up=True, lacks_since=self._lacks_since(shown))

    def _lacks_since(self, shown: Origin) -> datetime | None:
        try:
            found = pending(self._catalog, shown, at_most=_LOOKED_AT)
        except _OUT_OF_REACH:
            return None  # nobody can say; and nobody could read there
        return None if found is None else found.oldest.created_at
