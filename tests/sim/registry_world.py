"""Publishers, one who rolls back, and clients over one faulty store, by a seed; and a checker that shares no code.

The truth is the sequence of pointers as the recorder saw them, read as plain JSON.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headwater.kernel.errors import HeadwaterError
from headwater.kernel.metrics import Metrics
from headwater.kernel.retry import Retry, RetryPolicy
from headwater.regions.errors import RegistryConflictError, RegistryOutcomeUnknownError
from headwater.regions.registry import Registry, parse_registry
from headwater.regions.rollout import Generation, Publisher, RegistryClient
from headwater.storage.faulty import Faults, FaultyStore
from headwater.storage.memory import MemoryStore
from headwater.storage.port import ObjectStore
from headwater.storage.retrying import RetryingStore
from tests.sim.history import BrokenPromiseError, Record, RecordingStore, Report
from tests.sim.scheduler import PausingStore, Scheduler

POLICY = RetryPolicy(attempts=4, first_seconds=0.2, longest_seconds=2.0, budget_seconds=60.0)
POINTER = "registry/current.json"


@dataclass
class Truth:
    """What the bytes tell: (moment, generation, checksum) of each pointer, and each stored generation by checksum."""

    pointers: list[tuple[int, int, str]] = field(default_factory=list)
    stored: dict[str, dict[str, Any]] = field(default_factory=dict)

    def moment_of(self, writer: str) -> int | None:
        """When this writer's generation became the newest."""
        return next((moment for moment, _, sum_ in self.pointers if self.stored[sum_]["writer"] == writer), None)


@dataclass
class Outcome:
    truth: Truth
    record: Record
    digest: str


def run(seed: int) -> Outcome:
    """Play the history of this seed to its end and check it."""
    world = _World(seed)
    world.play()
    truth = check(world.record, world.clients)
    told = repr((world.scheduler.trace, world.record))
    return Outcome(truth, world.record, hashlib.sha256(told.encode()).hexdigest())


class _World:
    def __init__(self, seed: int) -> None:
        dice = random.Random(f"registry {seed}")
        self.scheduler = Scheduler(
            seed, stall_probability=dice.choice([0.0, 0.05, 0.2]), longest_stall_seconds=dice.choice([5, 40])
        )
        self.record = Record()
        recorder = RecordingStore(MemoryStore(self.scheduler), self.record)
        trouble = dice.choice([0.0, 0.05, 0.15, 0.45])
        faults = Faults(before=trouble, after=trouble, late=trouble, delay=trouble, longest_delay_seconds=5)
        self.faulty = FaultyStore(recorder, faults, self.scheduler, self.scheduler.random)
        self.dice = dice
        self.clients: dict[str, list[tuple[int, int]]] = {}
        self.generations: list[Generation] = []

    def play(self) -> None:
        for number in range(self.dice.choice([2, 3])):
            self.scheduler.spawn(f"publisher-{number}", self._publisher(number, self.dice.choice([2, 3])))
        self.scheduler.spawn("rollback", self._rollback(2))
        for number in range(2):
            self.clients[f"client-{number}"] = []
            self.scheduler.spawn(f"client-{number}", self._client(f"client-{number}", 5))
        self.scheduler.run()
        self.faulty.land_everything()

    def _store(self) -> ObjectStore:
        """Each actor is a process of its own."""
        retry = Retry(POLICY, self.scheduler, self.scheduler.random)
        return RetryingStore(PausingStore(self.faulty, self.scheduler), retry)

    def _new_publisher(self) -> Publisher:
        return Publisher(self._store(), clock=self.scheduler, randomness=self.scheduler.random, policy=POLICY)

    def _publisher(self, number: int, times: int) -> Callable[[], None]:
        def act() -> None:
            publisher = self._new_publisher()
            for work in range(times):
                self.scheduler.sleep(self.scheduler.random.random() * 10)
                self._attempt(lambda work=work: publisher.publish(rules(number, work), actor=f"p{number}"))  # type: ignore[misc]

        return act

    def _rollback(self, times: int) -> Callable[[], None]:
        def act() -> None:
            publisher = self._new_publisher()
            for _ in range(times):
                self.scheduler.sleep(self.scheduler.random.random() * 20)
                try:
                    newest = publisher.newest()
                except HeadwaterError:
                    continue
                if newest is not None and newest.pointer.link.generation > 1:
                    wanted = self.scheduler.random.randrange(1, newest.pointer.link.generation)
                    self._attempt(lambda wanted=wanted: publisher.rollback(wanted, actor="r"))  # type: ignore[misc]

        return act

    def _attempt(self, act: Callable[[], Generation]) -> None:
        """Tell how it ended. The writer of a conflict is not in its error: the checker finds it by elimination."""
        begun = self.record.tick()
        before = set(self._writers())
        try:
            made = act()
        except RegistryConflictError as error:
            self._report("conflict", begun, number=error.generation)
        except RegistryOutcomeUnknownError as error:
            self._report("unknown", begun, writer=error.operation)
        except HeadwaterError:
            self._report("nothing", begun)
        else:
            # Rules that are in force already are answered with the generation that has them.
            kind = "published" if made.writer not in before else "present"
            self._report(kind, begun, number=made.number, writer=made.writer)

    def _writers(self) -> list[str]:
        stored = [change for change in self.record.changes if change.path != POINTER]
        return [json.loads(change.data)["writer"] for change in stored]

    def _client(self, name: str, polls: int) -> Callable[[], None]:
        def act() -> None:
            client = RegistryClient(self._store(), clock=self.scheduler, metrics=Metrics(), poll_seconds=0)
            for _ in range(polls):
                self.scheduler.sleep(self.scheduler.random.random() * 12)
                try:
                    number = client.current().number
                except HeadwaterError:
                    continue  # nothing to fall back on yet
                self.clients[name].append((self.record.tick(), number))

        return act

    def _report(self, kind: str, begun: int, *, number: int = 0, writer: str = "") -> None:
        self.record.reports.append(Report(kind, begun, self.record.tick(), number, writer))


def rules(number: int, work: int) -> Registry:
    return parse_registry(
        f"{{version: 2, regions: {{us: {{local_prefix: s3://us/}}}}, sources: ['s3://bucket-{number}-{work}/']}}"
    )


def check(record: Record, clients: dict[str, list[tuple[int, int]]]) -> Truth:
    """Every promise, against what happened to the bytes."""
    truth = Truth()
    paths: dict[str, bytes] = {}
    for change in record.changes:
        values = json.loads(change.data)
        if change.path != POINTER:
            if change.path in paths:
                raise BrokenPromiseError("a generation was changed", change.path)
            paths[change.path] = change.data
            truth.stored[hashlib.sha256(change.data).hexdigest()] = values
            continue
        _check_pointer(truth, values, change.moment)
    for report in record.reports:
        _check_report(report, truth)
    for name, seen in clients.items():
        _check_client(name, seen, truth)
    return truth


def _check_pointer(truth: Truth, values: dict[str, Any], moment: int) -> None:
    stored = truth.stored.get(values["checksum"])
    if stored is None or stored["generation"] != values["generation"]:
        raise BrokenPromiseError("the pointer names what is not there", str(values))
    before = truth.pointers[-1] if truth.pointers else None
    if before is not None and values["generation"] <= before[1]:
        raise BrokenPromiseError("the pointer did not rise", f"{before} to {values}")
    named = stored["previous"] and (stored["previous"]["generation"], stored["previous"]["checksum"])
    if named != (before and before[1:]):
        raise BrokenPromiseError("somebody was overwritten unseen", f"{named} is not {before}")
    if stored["restores"] is not None:
        old = [truth.stored[sum_] for _, number, sum_ in truth.pointers if number == stored["restores"]]
        if not old or old[0]["registry"] != stored["registry"]:
            raise BrokenPromiseError("a rollback has other rules", str(stored["restores"]))
    truth.pointers.append((moment, values["generation"], values["checksum"]))


def _check_report(report: Report, truth: Truth) -> None:
    match report.kind:
        case "published":
            moment = truth.moment_of(report.writer)
            if moment is None or not report.begun < moment < report.ended:
                raise BrokenPromiseError("success that is not in the history", str(report))
        case "present":
            moment = truth.moment_of(report.writer)
            if moment is None or moment > report.ended:
                raise BrokenPromiseError("rules that are not in force", str(report))
        case "conflict":
            # What this attempt stored carries the number that it tells; nobody else can have stored that number.
            if any(number == report.id and moment > report.begun for moment, number, _ in truth.pointers):
                raise BrokenPromiseError("a conflict in the history", str(report))


def _check_client(name: str, seen: list[tuple[int, int]], truth: Truth) -> None:
    numbers = [number for _, number in seen]
    if numbers != sorted(numbers):
        raise BrokenPromiseError("a client went back", f"{name}: {numbers}")
    for moment, number in seen:
        if not any(each == number and at < moment for at, each, _ in truth.pointers):
            raise BrokenPromiseError("a client saw what was not published", f"{name}: {number}")
