"""One store, one clock, many processes: the stage for interleavings of the sequence protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta

from headwater.kernel.clock import ManualClock
from headwater.kernel.randomness import seeded
from headwater.sequence.codec import Body, EnvelopeCodec
from headwater.sequence.collect import Collector
from headwater.sequence.model import (
    Entry,
    Namespace,
    Retention,
)
from headwater.sequence.protocol import Sequencer
from headwater.storage.errors import (
    ObjectNotFoundError,
    StorageOutcomeUnknownError,
)
from headwater.storage.memory import MemoryStore
from headwater.storage.port import Fetched, ObjectStore, PutMode
from tests.unit.hooks import HookedStore

NAMESPACE = Namespace("lake", "manifest", ".manifest")
BOUNDARY = "lake/gc/manifest.boundary"
MIN_AGE = timedelta(seconds=60)


class World:
    """One store, one clock, and as many independent processes as a test opens."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.memory = MemoryStore(self.clock)
        self.store = HookedStore(self.memory)
        self.randomness = seeded(7)

    def open(self, store: ObjectStore | None = None) -> Sequencer:
        return Sequencer(store or self.store, NAMESPACE, clock=self.clock, randomness=self.randomness)

    def other(self) -> Sequencer:
        """A process whose requests run no hooks."""
        return self.open(self.memory)

    def append(self, count: int) -> list[Entry]:
        sequencer = self.other()
        return [sequencer.update(lambda latest: f"{latest.id if latest else 0}+1".encode()) for _ in range(count)]

    def collect(self) -> None:
        self.clock.advance(MIN_AGE * 2)
        Collector(self.other(), Retention(MIN_AGE, timedelta(0))).collect()

    def overtake(self) -> None:
        """What others do while somebody stalls: write on, and collect what was there."""
        self.append(3)
        self.collect()

    def ids(self) -> list[int]:
        return [each.id for each in self.other().listing()]


def lose() -> None:
    """The answer to a request is lost."""
    raise StorageOutcomeUnknownError("memory://", "x", "the answer was lost")


class RememberingCodec(EnvelopeCodec):
    def __init__(self) -> None:
        self.encoded: list[bytes] = []

    def encode(self, body: Body) -> bytes:
        self.encoded.append(super().encode(body))
        return self.encoded[-1]


class SlowAbsence(HookedStore):
    """Something happens between the moment in which an object was found absent and the answer."""

    meanwhile: Callable[[], None] | None = None

    def get(self, path: str, *, span: tuple[int, int] | None = None) -> Fetched:
        try:
            return super().get(path, span=span)
        except ObjectNotFoundError:
            action, self.meanwhile = self.meanwhile, None
            if action:
                action()
            raise


class LosesPuts(HookedStore):
    """The n-th puts do not arrive, and may land later."""

    def __init__(self, inner: ObjectStore, lost: tuple[int, ...]) -> None:
        super().__init__(inner)
        self._lost = lost
        self._count = 0
        self.flying: list[tuple[str, bytes, PutMode]] = []

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        self._count += 1
        if self._count in self._lost:
            self.flying.append((path, data, mode))
            raise StorageOutcomeUnknownError("memory://", path, "lost")
        return super().put(path, data, mode, tags=tags)
