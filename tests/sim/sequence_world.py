"""Many writers, collectors, readers and pinners over one faulty store, by a seed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from headwater.kernel.errors import HeadwaterError, OutcomeUnknownError
from headwater.kernel.ids import parse_ulid
from headwater.kernel.metrics import Metrics
from headwater.kernel.retry import Retry, RetryPolicy
from headwater.sequence.collect import Collector
from headwater.sequence.model import (
    HeldPin,
    Namespace,
    Retention,
    SequenceConflictError,
    SequenceOutcomeUnknownError,
)
from headwater.sequence.pins import Pins
from headwater.sequence.protocol import Sequencer
from headwater.storage.faulty import Faults, FaultyStore
from headwater.storage.memory import MemoryStore
from headwater.storage.retrying import RetryingStore
from tests.sim.history import Record, RecordingStore, Report, Truth, check
from tests.sim.scheduler import PausingStore, Scheduler

FOLDER = "lake/manifest"
MIN_AGE_SECONDS = 10.0
POLICY = RetryPolicy(attempts=4, first_seconds=0.2, longest_seconds=2.0, budget_seconds=60.0)
PIN_TTL = timedelta(seconds=MIN_AGE_SECONDS * 3)
METRICS = Metrics()


@dataclass
class Outcome:
    """A finished history: what happened, and a digest by which two runs of one seed are compared."""

    truth: Truth
    record: Record
    digest: str


def run(seed: int) -> Outcome:
    """Play the history of this seed to its end and check it."""
    world = _World(seed)
    world.play()
    truth = check(world.record, FOLDER)
    told = repr((world.scheduler.trace, world.record))
    return Outcome(truth, world.record, hashlib.sha256(told.encode()).hexdigest())


class _World:
    def __init__(self, seed: int) -> None:
        dice = random.Random(f"world {seed}")
        self.scheduler = Scheduler(
            seed,
            stall_probability=dice.choice([0.0, 0.02, 0.08]),
            longest_stall_seconds=MIN_AGE_SECONDS * dice.choice([1, 3, 8]),
        )
        self.record = Record()
        recorder = RecordingStore(MemoryStore(self.scheduler), self.record)
        trouble = dice.choice([0.0, 0.03, 0.1])
        faults = Faults(
            before=trouble, after=trouble, late=trouble, delay=trouble, longest_delay_seconds=5, partial=trouble
        )
        self.faulty = FaultyStore(recorder, faults, self.scheduler, self.scheduler.random)
        self.dice = dice

    def play(self) -> None:
        for number in range(self.dice.choice([2, 3, 4])):
            self.scheduler.spawn(f"writer-{number}", self._writer(number, self.dice.choice([2, 4, 6])))
        for number in range(self.dice.choice([1, 2])):
            self.scheduler.spawn(f"collector-{number}", self._collector(self.dice.choice([2, 4])))
        self.scheduler.spawn("reader", self._reader(4))
        for number in range(self.dice.choice([1, 2])):
            self.scheduler.spawn(f"pinner-{number}", self._pinner(3))
        self.scheduler.run()
        self.faulty.land_everything()

    def _sequencer(self) -> Sequencer:
        """Each actor is a process of its own: it shares nothing with the others but the store."""
        store = RetryingStore(
            PausingStore(self.faulty, self.scheduler), Retry(POLICY, self.scheduler, self.scheduler.random)
        )
        return Sequencer(
            store,
            Namespace("lake", "manifest", ".manifest"),
            clock=self.scheduler,
            randomness=self.scheduler.random,
            metrics=METRICS,
            policy=POLICY,
        )

    def _writer(self, number: int, writes: int) -> Callable[[], None]:
        def act() -> None:
            sequencer = self._sequencer()
            for work in range(writes):
                payload = f"work {work} of writer {number}".encode()
                while not self._write_once(sequencer, payload):
                    self.scheduler.sleep(self.scheduler.random.random() * 3)

        return act

    def _write_once(self, sequencer: Sequencer, payload: bytes) -> bool:
        """Whether this piece of work is over: committed, or of unknown outcome, so that nobody may repeat it."""
        try:
            latest = sequencer.latest()
        except HeadwaterError:
            return False
        self.scheduler.pause()  # a writer may stall between reading and writing
        begun = self.record.tick()
        try:
            entry = sequencer.write(payload, after=latest)
        except SequenceConflictError as error:
            self._report("conflict", begun, writer=str(error.fields["operation"]))
            return False
        except SequenceOutcomeUnknownError as error:
            self._report("unknown", begun, writer=error.operation)
            return self._resolve(sequencer, latest.id + 1 if latest else 1, payload, error)
        except HeadwaterError:
            return False  # says that nothing was changed
        self._report("committed", begun, entry.id, entry.writer, payload)
        return True

    def _resolve(self, sequencer: Sequencer, number: int, payload: bytes, error: OutcomeUnknownError) -> bool:
        """Ask later by identity. Proven either way, the answer is held to the same promise as a write's."""
        begun = self.record.tick()
        try:
            settled = sequencer.outcome(number, parse_ulid(error.operation))
        except HeadwaterError:
            return True
        if settled is False:
            self._report("conflict", begun, writer=error.operation)
            return False
        if settled is True:
            self._report("committed", begun, number, error.operation, payload)
        return True

    def _collector(self, rounds: int) -> Callable[[], None]:
        def act() -> None:
            collector = Collector(self._sequencer(), Retention(timedelta(seconds=MIN_AGE_SECONDS), timedelta(0)))
            for _ in range(rounds):
                self.scheduler.sleep(self.scheduler.random.random() * MIN_AGE_SECONDS * 2)
                try:
                    collector.collect()
                except HeadwaterError:
                    continue  # what it did not get done, another run will

        return act

    def _reader(self, reads: int) -> Callable[[], None]:
        def act() -> None:
            sequencer = self._sequencer()
            for _ in range(reads):
                self.scheduler.sleep(self.scheduler.random.random() * MIN_AGE_SECONDS)
                begun = self.record.tick()
                try:
                    latest = sequencer.latest()
                except HeadwaterError:
                    continue
                self._report("latest", begun, latest.id if latest else 0, latest.writer if latest else "")

        return act

    def _pinner(self, rounds: int) -> Callable[[], None]:
        def act() -> None:
            sequencer = self._sequencer()
            pins = Pins(sequencer)
            for _ in range(rounds):
                self.scheduler.sleep(self.scheduler.random.random() * MIN_AGE_SECONDS)
                try:
                    latest = sequencer.latest()
                    if latest is None:
                        continue
                    self.scheduler.sleep(self.scheduler.random.random() * MIN_AGE_SECONDS * 2)
                    held = pins.pin(latest, ttl=PIN_TTL, holder="reader")
                    for _ in range(self.scheduler.random.randrange(0, 3)):
                        self._hold(held)
                        held = pins.renew(held, ttl=PIN_TTL)
                    self._hold(held)
                    pins.release(held)
                except HeadwaterError:
                    continue

        return act

    def _hold(self, held: HeldPin) -> None:
        """Rely on the pin for a while, within its time."""
        begun = self.record.tick()
        until = held.pin.expires_at - timedelta(seconds=2)
        self.scheduler.sleep(self.scheduler.random.random() * max(0.0, (until - self.scheduler.now()).total_seconds()))
        if self.scheduler.now() < held.pin.expires_at:
            self._report("pinned", begun, held.id, held.writer)

    def _report(self, kind: str, begun: int, number: int = 0, writer: str = "", payload: bytes = b"") -> None:
        self.record.reports.append(Report(kind, begun, self.record.tick(), number, writer, payload))
