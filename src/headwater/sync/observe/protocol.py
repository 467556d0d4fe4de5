"""Observing: the region's readers see a promoted commit, and how long that took is told.

Promise: a lag is told of what was seen in the region, never of what should be there by now. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from headwater.catalog.errors import CommitNotFoundError, RefNotFoundError
from headwater.catalog.model import Commit, TableKey
from headwater.catalog.port import Catalog
from headwater.kernel.clock import Clock
from headwater.kernel.errors import CorruptError, UnavailableError
from headwater.kernel.logs import Log
from headwater.kernel.metrics import Metrics
from headwater.sync.model import ORIGIN_BRANCH, Origin, times_of
from headwater.sync.observe.decide import Lags, lags
from headwater.sync.observe.metrics import (
    END_TO_END_LAG,
    READ_READY_LAG,
    REGIONAL_COMMIT_LAG,
    VISIBILITY_LAG,
    WRITER_LAG,
)
from headwater.sync.promote.protocol import is_part_of

_log = Log("sync.observe")


@dataclass(frozen=True)
class Seen:
    """When the region showed the commit, and how long its way was; no lags of a commit that does not tell its times."""

    visible_at: datetime
    lags: Lags | None


class Observer:
    """Watches one region's own catalog."""

    def __init__(
        self,
        catalog: Catalog,
        regional: Catalog,
        *,
        region: str,
        clock: Clock,
        metrics: Metrics,
        patience: timedelta,
        poll: timedelta,
    ) -> None:
        self._catalog = catalog
        self._regional = regional
        self._region = region
        self._clock = clock
        self._metrics = metrics
        self._patience = patience
        self._poll = poll
        self._arrived: str | None = None

    def look_for(self, target: Origin) -> None:
        """Tell how long a commit of `main` took to the region's catalog, once, when it is there.

        It may have come before anybody looked: the lag is told as what it was at most.
        """
        if target.hash == self._arrived or not self._is_visible(ORIGIN_BRANCH, target):
            return
        self._arrived = target.hash
        lag_seconds = (self._clock.now() - target.created_at).total_seconds()
        self._metrics.observe(VISIBILITY_LAG, max(0.0, lag_seconds), region=self._region)

    def observe(self, branch: str, commit: Commit, target: Origin, tables: Iterable[TableKey]) -> Seen:
        """Wait until the region's readers see the commit, and tell the lags. `UnavailableError` when they do not."""
        began = self._clock.monotonic()
        wanted = Origin(commit.hash, commit.committed_at)
        while not self._is_visible(branch, wanted):
            if timedelta(seconds=self._clock.monotonic() - began) >= self._patience:
                _log.error("the region does not show what was promoted", region=self._region, commit=commit.hash)
                waited = f"{self._patience.total_seconds():.0f} s"
                raise UnavailableError(
                    f"{self._region} does not show {commit.hash} of {branch} after {waited}",
                    hint="look at the replication of the catalog's database; the next run goes on watching",
                    region=self._region,
                    commit=commit.hash,
                )
            self._clock.sleep(self._poll.total_seconds())
        return self._tell(commit, target, tables, self._clock.now())

    def _is_visible(self, branch: str, commit: Origin) -> bool:
        try:
            return is_part_of(self._regional, commit, self._regional.ref(branch).hash)
        except (RefNotFoundError, CommitNotFoundError, UnavailableError, CorruptError):
            return False  # a branch that was just made may not be whole yet (R4)

    def _tell(self, commit: Commit, target: Origin, tables: Iterable[TableKey], visible_at: datetime) -> Seen:
        times = times_of(commit.properties)
        if times is None:
            return Seen(visible_at, None)
        found = lags(times, visible_at, self._catalog.commit_at(target.hash).properties)
        self._metrics.observe(REGIONAL_COMMIT_LAG, found.regional_commit_seconds, region=self._region)
        for key in tables:
            labels = {"region": self._region, "table": str(key)}
            self._metrics.observe(END_TO_END_LAG, found.end_to_end_seconds, **labels)
            self._metrics.observe(READ_READY_LAG, found.read_ready_seconds, **labels)
            self._metrics.observe(WRITER_LAG, found.writer_to_read_ready_seconds, **labels)
        return Seen(visible_at, found)
