"""Syncs that need files and executors that delete them, over one store and one database, by a seed (hazard G3).

The truth is what happens to the bytes: when a replica is promoted every file of it exists, and no file that a replica
shows is ever deleted. Actors stall anywhere, syncs overlap, and executors die after they have marked a file.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime

import sqlalchemy as sa

from headwater.database import Database
from headwater.kernel.clock import Clock, ManualClock
from headwater.kernel.ids import new_ulid
from headwater.regions import tables
from headwater.regions.claims import Claims
from headwater.regions.errors import RunEndedError
from headwater.storage.memory import MemoryStore
from headwater.storage.port import Overwrite, PutMode
from headwater.storage.wrapper import StoreWrapper
from tests.sim.history import BrokenPromiseError
from tests.sim.scheduler import PausingStore, Scheduler

REGION = "eu"
FILES = [f"f{number}" for number in range(3)]
# How long one request may be on its way. Leases are longer than what is done under them, and this.
LONGEST_STALL_SECONDS = 6.0
LEASE_SECONDS = 30.0
PROMOTE_SECONDS = 14.0
DELETE_LEASE_SECONDS = 25.0


class BorrowedClock:
    """The clock of a database that outlives its histories: always that of the present one."""

    def __init__(self) -> None:
        self.inner: Clock = ManualClock()

    def now(self) -> datetime:
        return self.inner.now()

    def monotonic(self) -> float:
        return self.inner.monotonic()

    def sleep(self, seconds: float) -> None:
        self.inner.sleep(seconds)


class World:
    """One history."""

    def __init__(self, seed: int, database: Database) -> None:
        dice = random.Random(f"claims {seed}")
        stalls = dice.choice([0.05, 0.2, 0.4])
        self.scheduler = Scheduler(seed, stall_probability=stalls, longest_stall_seconds=LONGEST_STALL_SECONDS)
        self.naps = dice.choice([0.0, 0.1, 0.3])
        self.bytes = _Watched(MemoryStore(self.scheduler), self)
        self.store = PausingStore(self.bytes, self.scheduler)
        self.claims = Claims(database)
        self.shown: frozenset[str] = frozenset()
        self.version = 0
        self.fence = 0
        self.happened: Counter[str] = Counter()
        self.history: list[str] = []

    def play(self) -> str:
        """To its end; a digest of what happened."""
        for number in range(2):
            self.scheduler.spawn(f"sync-{number}", self._repeated(5, self._sync))
            self.scheduler.spawn(f"executor-{number}", self._repeated(8, self._execute))
        self.scheduler.run()
        return hashlib.sha256(repr((self.scheduler.trace, self.history)).encode()).hexdigest()

    def tell(self, what: str, detail: object = "") -> None:
        self.happened[what] += 1
        self.history.append(f"{self.scheduler.time:.3f} {what} {detail}")

    def _nap(self) -> None:
        """A process may stand still between two requests, for longer than any lease."""
        if self.scheduler.random.random() < self.naps:
            self.scheduler.sleep(self.scheduler.random.random() * 2 * LEASE_SECONDS)
        else:
            self.scheduler.pause()

    def _repeated(self, times: int, act: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(times):
                self.scheduler.sleep(self.scheduler.random.random() * 10)
                act()

        return run

    def _sync(self) -> None:
        self.fence += 1
        version, needed = self.version, frozenset(self.scheduler.random.sample(FILES, 2))
        run = new_ulid(self.scheduler, self.scheduler.random)
        opened = self.claims.open(run, REGION, fence=self.fence, lease_seconds=LEASE_SECONDS).run
        self._nap()
        try:
            if self.claims.claim(opened, [_uri(each) for each in sorted(needed)]).deleting:
                self.tell("sync met a deletion")
                return
            for each in sorted(needed):
                if self.bytes.exists(each):
                    self.tell("skipped")
                    self._nap()
                else:
                    self.store.put(each, b"", Overwrite())
            self._nap()
            before = self.scheduler.monotonic()
            self.claims.hold(opened, PROMOTE_SECONDS)
            self._nap()
        except RunEndedError:
            self.tell("sync ended")
            return
        if self.scheduler.monotonic() - before <= PROMOTE_SECONDS and self.version == version:
            self._promote(needed)
            self.scheduler.pause()
        self.claims.release(opened)

    def _promote(self, needed: frozenset[str]) -> None:
        missing = [each for each in sorted(needed) if not self.bytes.exists(each)]
        if missing:
            raise BrokenPromiseError("a replica shows what is not there", f"{missing} at {self.scheduler.time}")
        self.shown, self.version = needed, self.version + 1
        self.tell("promoted", sorted(needed))

    def _execute(self) -> None:
        executor = new_ulid(self.scheduler, self.scheduler.random)
        due = self.scheduler.random.sample(FILES, 1)  # a list that may be old: what is on it may be live again
        before = self.scheduler.monotonic()
        found = self.claims.begin_delete(
            REGION, [_uri(each) for each in due], executor, lease_seconds=DELETE_LEASE_SECONDS
        )
        self._nap()
        for uri, verdict in found.items():
            self.tell(verdict)
            if not verdict.may_delete:
                continue
            if self.scheduler.random.random() < 0.1:
                self.tell("executor died")
                return
            name = uri.rpartition("/")[2]
            # Whatever was promoted before the mark is seen now; whoever claims after it sees the mark.
            if name not in self.shown:
                self._nap()
                left = DELETE_LEASE_SECONDS - (self.scheduler.monotonic() - before)
                if left <= 2 * LONGEST_STALL_SECONDS:
                    continue  # it stays marked, for the next one
                self.store.delete(name)
            self.claims.end_delete(REGION, [uri], executor)
            self.scheduler.pause()


class _Watched(StoreWrapper):
    """Sees each delete at the moment at which it takes effect."""

    def __init__(self, inner: MemoryStore, world: World) -> None:
        super().__init__(inner)
        self._world = world

    def delete(self, path: str, *, if_match: str | None = None) -> None:
        if path in self._world.shown:
            raise BrokenPromiseError("what a replica shows was deleted", f"{path} at {self._world.scheduler.time}")
        self._world.tell("deleted", path)
        self._inner.delete(path, if_match=if_match)

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        self._world.tell("copied", path)
        return self._inner.put(path, data, mode, tags=tags)


def run(seed: int, database: Database, clock: BorrowedClock) -> World:
    """Play the history of this seed on a database that is emptied first."""
    with database.write() as connection:
        for table in reversed(tables.metadata.sorted_tables):
            connection.execute(sa.delete(table))
    world = World(seed, database)
    clock.inner = world.scheduler
    world.history.append(world.play())
    return world


def _uri(name: str) -> str:
    return f"s3://eu/{name}"
