"""Everything that writing to a lake needs, put together for one process."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

from headwater.catalog.port import Catalog
from headwater.kernel.clock import Clock
from headwater.kernel.errors import RefusedError
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.randomness import Randomness
from headwater.publish.cleanup.protocol import Cleanup
from headwater.publish.direct.protocol import DirectPublisher
from headwater.publish.direct.recovery import DirectRecovery, NoSidecars
from headwater.publish.heads import Heads
from headwater.publish.model import Attempt
from headwater.publish.optimize.jobs import COMPACTIONS, Jobs
from headwater.publish.protocol import LEASE, Publisher
from headwater.publish.queues import WriteQueues
from headwater.publish.recovery import CLOCK_SKEW, Recovery
from headwater.publish.repair.protocol import Repair
from headwater.publish.sidecars import Sidecars
from headwater.sequence.protocol import Sequencer
from headwater.storage.port import ObjectStore
from headwater.tables.files import Files
from headwater.tables.placing import Placing
from headwater.tables.snapshot import Staging


@dataclass(frozen=True)
class _Common:
    catalog: Catalog
    files: Files
    store: ObjectStore
    location: str
    jobs: Jobs
    clock: Clock
    randomness: Randomness
    placing: Placing

    def staging(self, attempt: Attempt | None = None) -> Staging:
        """What one change is staged with: it has an operation of its own, or that of an attempt."""
        operation = attempt.operation if attempt is not None else new_ulid(self.clock, self.randomness)
        return Staging(self.files, self.clock, self.randomness, operation, self.placing)


@dataclass(frozen=True)
class Writing(_Common):
    """The publisher and recoverer of a lake whose tables have heads, and what they stand on.

    `location` is the lake's root.
    """

    sidecars: Sidecars
    heads: Heads
    recovery: Recovery
    publisher: Publisher

    @property
    def repair(self) -> Repair:
        """What sees to drift that no sidecar explains."""
        return Repair(
            self.catalog,
            self.files,
            self.heads,
            self.sidecars,
            self.recovery,
            clock=self.clock,
            randomness=self.randomness,
        )

    @property
    def cleanup(self) -> Cleanup:
        """What deletes files that nothing ever referenced."""
        return Cleanup(self.catalog, self.files, self.sidecars, location=self.location, clock=self.clock)


@dataclass(frozen=True)
class DirectWriting(_Common):
    """The same where tables have no heads: one commit says it all, and there are no sidecars."""

    sidecars: NoSidecars
    recovery: DirectRecovery
    publisher: DirectPublisher
    heads: None = None

    @property
    def repair(self) -> NoReturn:
        """Refused: there are no heads that could drift."""
        raise RefusedError(
            f"{self.catalog.name} has nothing to repair: its tables have no heads that could drift",
            lake=self.catalog.name,
        )

    @property
    def cleanup(self) -> NoReturn:
        """Refused: others put files beside ours."""
        raise RefusedError(
            f"{self.catalog.name} cannot be cleaned up here: its files are not ours alone to delete",
            hint="engines commit to it without us; what they stage looks like what nothing refers to",
            lake=self.catalog.name,
        )


AnyWriting = Writing | DirectWriting


def open_writing(
    catalog: Catalog,
    files: Files,
    store: ObjectStore,
    *,
    location: str,
    clock: Clock,
    randomness: Randomness,
    lease: timedelta = LEASE,
    skew: timedelta = CLOCK_SKEW,
    local_prefix: str | None = None,
) -> Writing:
    """What writes to a lake whose tables have heads. With a `local_prefix`, that of a region, new files go there."""
    if catalog.heads is None:
        raise RefusedError(f"{catalog.name} cannot be written here: its tables have no heads")
    heads, sidecars = Heads(catalog.heads, location), Sidecars(store)
    process = new_ulid(clock, randomness)
    recovery = Recovery(catalog, files, heads, sidecars, WriteQueues(), process=process, clock=clock, skew=skew)
    publisher = Publisher(catalog, files, heads, sidecars, recovery, clock=clock, randomness=randomness, lease=lease)
    return Writing(
        catalog=catalog,
        files=files,
        store=store,
        location=location,
        jobs=_jobs(store, process, clock, randomness, skew),
        clock=clock,
        randomness=randomness,
        placing=Placing(location, local_prefix),
        sidecars=sidecars,
        heads=heads,
        recovery=recovery,
        publisher=publisher,
    )


def open_direct_writing(
    catalog: Catalog,
    files: Files,
    store: ObjectStore,
    *,
    location: str,
    clock: Clock,
    randomness: Randomness,
    skew: timedelta = CLOCK_SKEW,
    local_prefix: str | None = None,
) -> DirectWriting:
    """What writes to a lake whose tables have no heads, and whose catalog commits by itself."""
    placing = Placing(location, local_prefix)
    return DirectWriting(
        catalog=catalog,
        files=files,
        store=store,
        location=location,
        jobs=_jobs(store, new_ulid(clock, randomness), clock, randomness, skew),
        clock=clock,
        randomness=randomness,
        placing=placing,
        sidecars=NoSidecars(),
        recovery=DirectRecovery(catalog, clock),
        publisher=DirectPublisher(catalog, files, placing=placing, clock=clock, randomness=randomness),
    )


def _jobs(store: ObjectStore, process: Ulid, clock: Clock, randomness: Randomness, skew: timedelta) -> Jobs:
    compactions = Sequencer(store, COMPACTIONS, clock=clock, randomness=randomness)
    return Jobs(compactions, process=process, skew=skew)
