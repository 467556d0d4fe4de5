"""Everything that writing to a lake needs, put together for one process."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from headwater.catalog.port import Catalog
from headwater.kernel.clock import Clock
from headwater.kernel.errors import RefusedError
from headwater.kernel.ids import new_ulid
from headwater.kernel.randomness import Randomness
from headwater.publish.cleanup.protocol import Cleanup
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
from headwater.tables.snapshot import Staging


@dataclass(frozen=True)
class Writing:
    """A lake's publisher and recoverer, and what they stand on. `location` is the lake's root."""

    catalog: Catalog
    files: Files
    store: ObjectStore
    location: str
    sidecars: Sidecars
    heads: Heads
    recovery: Recovery
    publisher: Publisher
    jobs: Jobs
    clock: Clock
    randomness: Randomness

    def staging(self, attempt: Attempt | None = None) -> Staging:
        """What one change is staged with: it has an operation of its own, or that of an attempt."""
        operation = attempt.operation if attempt is not None else new_ulid(self.clock, self.randomness)
        return Staging(self.files, self.clock, self.randomness, operation)

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
) -> Writing:
    """The publisher of a lake whose tables have heads of their own."""
    if catalog.heads is None:
        raise RefusedError(f"{catalog.name} cannot be written here: its tables have no heads")
    heads, sidecars = Heads(catalog.heads, location), Sidecars(store)
    process = new_ulid(clock, randomness)
    recovery = Recovery(catalog, files, heads, sidecars, WriteQueues(), process=process, clock=clock, skew=skew)
    publisher = Publisher(catalog, files, heads, sidecars, recovery, clock=clock, randomness=randomness, lease=lease)
    compactions = Sequencer(store, COMPACTIONS, clock=clock, randomness=randomness)
    jobs = Jobs(compactions, process=process, skew=skew)
    return Writing(catalog, files, store, location, sidecars, heads, recovery, publisher, jobs, clock, randomness)
