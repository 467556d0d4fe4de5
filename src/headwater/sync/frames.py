"""Spark as the helper of a run: only asked when there is enough to do, and only then started."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from pyiceberg.manifest import ManifestFile

from headwater.sync.diff.model import Needed
from headwater.sync.localise.frames import spread_on
from headwater.sync.localise.model import ManifestDone, ManifestWork, Place
from headwater.sync.plan.frames import plan_on
from headwater.sync.plan.protocol import Planning
from headwater.sync.runs.model import PlannedBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Sent(Protocol):
    """Opens, wherever it is sent, what a run is planned and localised with; it can be pickled."""

    def planning(self) -> Planning:
        """What plans are made with."""
        ...

    def place(self) -> Place:
        """What manifests are localised with."""
        ...


class SparkHelpers:
    """Plans and localises on Spark. `session` starts it, or finds the one that runs."""

    def __init__(self, session: Callable[[], SparkSession], sent: Sent, *, tasks: int) -> None:
        self._session = session
        self._sent = sent
        self._tasks = tasks

    def plan(self, manifests: Sequence[ManifestFile], others: Sequence[Needed]) -> Iterator[PlannedBatch]:
        """The batches of a plan."""
        return plan_on(self._session(), self._sent.planning, manifests, others, tasks=self._tasks)

    def localise(self, works: Sequence[ManifestWork]) -> Iterable[ManifestDone]:
        """Manifests, localised."""
        return spread_on(self._session(), self._sent.place, tasks=self._tasks)(works)
