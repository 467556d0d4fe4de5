"""The heartbeat: a commit on a branch of its own now and then, for the region's catalog to show.

Promise: the lag of replication is how long the region has lacked something that the primary has. It is told of what was
seen in the region, and a `main` on which nothing happens does not make it grow: then beats are what is waited for.

A beat is the only thing on its branch, one key that comes and goes, so that nothing of the lake is changed. One that
cannot be made, or not be looked for, is told in the log and stops nobody.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import Final

from headwater.catalog.errors import CommitNotFoundError, RefExistsError, RefNotFoundError
from headwater.catalog.model import Commit, CommitRequest, Delete, NamespaceContent, Put, TableKey
from headwater.catalog.port import Catalog
from headwater.kernel.clock import Clock
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.ids import new_ulid
from headwater.kernel.logs import Log
from headwater.kernel.metrics import Metrics
from headwater.kernel.randomness import Randomness
from headwater.sync.model import ORIGIN_BRANCH, SYNC_ACTOR
from headwater.sync.observe.decide import commits_within, is_beat_due, lacking_seconds
from headwater.sync.observe.metrics import COMMIT_RATE, HEARTBEAT, REPLICATION_LAG

# A branch for each region, because one process at a time beats for it.
HEARTBEAT_BRANCH: Final = "replication_heartbeat_"
# Often enough for an alarm after a few minutes, seldom enough that a year of them is little.
BEAT_EVERY: Final = timedelta(seconds=60)

_BEAT: Final = TableKey.of_namespace(("heartbeat",))
_RATE_OVER: Final = timedelta(minutes=1)
# Commits, and beats, that are looked through.
_LOOKED_AT: Final = 1_000
_log = Log("sync.heartbeat")


class Heartbeat:
    """Beats for one region. `regional` is the catalog as the region sees it; where there is but one, none is needed."""

    def __init__(
        self,
        catalog: Catalog,
        regional: Catalog,
        *,
        region: str,
        clock: Clock,
        randomness: Randomness,
        metrics: Metrics,
    ) -> None:
        self._catalog = catalog
        self._regional = regional
        self._region = region
        self._branch = f"{HEARTBEAT_BRANCH}{region}"
        self._clock = clock
        self._randomness = randomness
        self._metrics = metrics

    def beat(self) -> None:
        """Make one, unless the last is young enough."""
        if self._regional is self._catalog:
            return
        try:
            self._beat()
        except HeadwaterError as error:
            _log.warning("no heartbeat could be made", region=self._region, error=str(error))

    def look(self) -> None:
        """Tell how far the region is with them, and how much is committed to `main`."""
        try:
            recent = islice(self._catalog.log(self._catalog.ref(ORIGIN_BRANCH).hash), _LOOKED_AT)
            times = (each.committed_at for each in recent)
            self._metrics.level(COMMIT_RATE, commits_within(times, self._clock.now(), _RATE_OVER))
            self._look()
        except HeadwaterError as error:
            # What was told last stays, and the time of the last heartbeat says how old it is.
            _log.warning("no heartbeat could be looked for", region=self._region, error=str(error))

    def _beat(self) -> None:
        head = self._head()
        last = _commit_at(self._catalog, head)
        if last is not None and not is_beat_due(last.committed_at, self._clock.now(), BEAT_EVERY):
            return
        held = self._catalog.content(head, [_BEAT]).get(_BEAT)
        put = Put(NamespaceContent(new_ulid(self._clock, self._randomness)))
        self._catalog.commit(
            CommitRequest(
                branch=self._branch,
                head=None,
                changes={_BEAT: put if held is None else Delete()},
                expected={_BEAT: held},
                actor=SYNC_ACTOR,
                message=f"a heartbeat for {self._region}",
                operation=new_ulid(self._clock, self._randomness),
            )
        )

    def _head(self) -> str:
        try:
            return self._catalog.ref(self._branch).hash
        except RefNotFoundError:
            try:
                return self._catalog.create_empty_branch(self._branch).hash
            except RefExistsError:
                return self._catalog.ref(self._branch).hash

    def _look(self) -> None:
        now = self._clock.now()
        if self._regional is self._catalog:
            self._metrics.level(REPLICATION_LAG, 0, region=self._region)
            self._metrics.level(HEARTBEAT, now.timestamp(), region=self._region)
            return
        shown = _commit_at(self._regional, self._regional.ref(self._branch).hash)
        if shown is None:
            return  # not even the first has arrived
        beats = islice(self._catalog.log(self._catalog.ref(self._branch).hash), _LOOKED_AT)
        lag = lacking_seconds(shown.hash, ((each.hash, each.committed_at) for each in beats), now)
        self._metrics.level(REPLICATION_LAG, lag, region=self._region)
        self._metrics.level(HEARTBEAT, shown.committed_at.timestamp(), region=self._region)


def _commit_at(catalog: Catalog, head: str) -> Commit | None:
    try:
        return catalog.commit_at(head)
    except CommitNotFoundError:
        return None  # a branch without a commit
