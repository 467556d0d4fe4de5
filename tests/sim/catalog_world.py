"""Committers, makers of refs, holders and collectors over one lake on one faulty store, by a seed."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from headwater.catalog.embedded.hold import Hold
from headwater.catalog.embedded.open import init_embedded, open_embedded
from headwater.catalog.embedded.protocol import EmbeddedCatalog
from headwater.catalog.errors import RefConflictError
from headwater.catalog.model import Commit, CommitRequest, Put, RefKind, TableContent, TableKey
from headwater.kernel.errors import HeadwaterError, OutcomeUnknownError
from headwater.kernel.ids import new_ulid
from headwater.kernel.metrics import Metrics
from headwater.kernel.retry import Retry, RetryPolicy
from headwater.sequence.collect import Collector
from headwater.sequence.model import Namespace, Retention
from headwater.sequence.pins import Pins
from headwater.sequence.protocol import Sequencer
from headwater.storage.faulty import Faults, FaultyStore
from headwater.storage.memory import MemoryStore
from headwater.storage.port import ObjectStore
from headwater.storage.retrying import RetryingStore
from tests.sim.catalog_history import OBJECTS, CatalogTruth, check, operation_version
from tests.sim.history import Record, RecordingStore, Report
from tests.sim.scheduler import PausingStore, Scheduler

POLICY = RetryPolicy(attempts=4, first_seconds=0.2, longest_seconds=2.0, budget_seconds=60.0)
TABLES = [TableKey(("default",), name) for name in ("a", "b", "c")]
BRANCHES = ["main", "side"]
HISTORY = timedelta(seconds=12)
STAGING = timedelta(seconds=5)
MIN_AGE = timedelta(seconds=10)
HOLD_TTL = timedelta(seconds=45)
METRICS = Metrics()


@dataclass
class Outcome:
    """A finished history: what happened, and a digest by which two runs of one seed are compared."""

    truth: CatalogTruth
    record: Record
    digest: str


def run(seed: int) -> Outcome:
    """Play the history of this seed to its end and check it."""
    world = _World(seed)
    world.play()
    truth = check(world.record)
    told = repr((world.scheduler.trace, world.record))
    return Outcome(truth, world.record, hashlib.sha256(told.encode()).hexdigest())


class _World:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"catalog world {seed}")
        self.scheduler = Scheduler(
            seed,
            stall_probability=self.dice.choice([0.0, 0.02, 0.06]),
            longest_stall_seconds=self.dice.choice([10, 30, 80]),
        )
        self.record = Record()
        recorder = RecordingStore(MemoryStore(self.scheduler), self.record)
        trouble = self.dice.choice([0.0, 0.03, 0.1])
        faults = Faults(
            before=trouble, after=trouble, late=trouble, delay=trouble, longest_delay_seconds=5, partial=trouble
        )
        self.faulty = FaultyStore(recorder, faults, self.scheduler, self.scheduler.random)
        lake = init_embedded(recorder, clock=self.scheduler, randomness=self.scheduler.random, workers=1)
        lake.create_ref(RefKind.BRANCH, "side", lake.ref("main").hash)

    def play(self) -> None:
        for number in range(self.dice.choice([1, 2, 3])):
            self.scheduler.spawn(f"committer-{number}", self._committer(self.dice.choice([4, 7])))
        for number in range(self.dice.choice([0, 1, 2])):
            self.scheduler.spawn(f"group-{number}", self._group(self.dice.choice([3, 5])))
        self.scheduler.spawn("brancher", self._brancher("x", 8))
        self.scheduler.spawn("tagger", self._brancher("y", 8))
        self.scheduler.spawn("holder", self._holder(4))
        for number in range(self.dice.choice([1, 2])):
            self.scheduler.spawn(f"collector-{number}", self._collector(12))
        self.scheduler.run(most_steps=200_000)
        self.faulty.land_everything()

    def _store(self) -> ObjectStore:
        return RetryingStore(
            PausingStore(self.faulty, self.scheduler), Retry(POLICY, self.scheduler, self.scheduler.random)
        )

    def _open(self) -> EmbeddedCatalog:
        """Each actor is a process of its own: it shares nothing with the others but the store."""
        while True:
            try:
                return open_embedded(
                    self._store(),
                    clock=self.scheduler,
                    randomness=self.scheduler.random,
                    metrics=METRICS,
                    policy=POLICY,
                    workers=1,
                    hold_ttl=HOLD_TTL,
                )
            except HeadwaterError:
                self.scheduler.sleep(1)

    def _nap(self, longest_seconds: float) -> None:
        self.scheduler.sleep(self.scheduler.random.random() * longest_seconds)

    def _committer(self, works: int) -> Callable[[], None]:
        def act() -> None:
            catalog = self._open()
            for _ in range(works):
                self._nap(6)
                try:
                    wanted = self._request(catalog)
                except HeadwaterError:
                    continue
                for _ in range(4):
                    self._nap(2)  # what it rests on may change meanwhile
                    head = self._try(catalog, wanted)
                    if head is None:
                        break
                    merged = None if wanted.merge_parent == head else wanted.merge_parent
                    wanted = self._renamed(replace(wanted, head=head, merge_parent=merged))

        return act

    def _group(self, works: int) -> Callable[[], None]:
        """Several requests at once, on whatever the heads are, some of which rest on the same table."""

        def act() -> None:
            catalog = self._open()
            for _ in range(works):
                self._nap(6)
                try:
                    wanted = [
                        replace(self._request(catalog), head=None, merge_parent=None)
                        for _ in range(self.scheduler.random.choice([2, 3]))
                    ]
                except HeadwaterError:
                    continue
                self._nap(2)
                begun = self.record.tick()
                answers: Sequence[Commit | HeadwaterError]
                try:
                    answers = catalog.commit_all(wanted)
                except HeadwaterError as error:
                    answers = [error] * len(wanted)
                for request, answer in zip(wanted, answers, strict=True):
                    match answer:
                        case Commit():
                            self._report("committed", begun, request.operation)
                        case OutcomeUnknownError():
                            self._report("unknown", begun, answer.operation)
                        case _:
                            self._report("conflict", begun, request.operation)

        return act

    def _request(self, catalog: EmbeddedCatalog) -> CommitRequest:
        dice = self.scheduler.random
        branch = dice.choice(BRANCHES)
        touched, read = dice.sample(TABLES, 2)
        head = catalog.ref(branch).hash
        others = [None, None, *(ref.hash for ref in catalog.refs() if ref.hash != head)]
        present = catalog.content(head, [touched, read])
        before = present.get(read)
        properties = {
            "touches": str(touched),
            "read": str(read),
            "read-version": before.metadata_location if isinstance(before, TableContent) else "",
        }
        request = CommitRequest(
            branch=branch,
            head=head,
            changes={},
            expected={touched: present.get(touched), read: before},
            actor="sim",
            message="work",
            operation=new_ulid(self.scheduler, dice),
            properties=properties,
            merge_parent=dice.choice(others),
        )
        return self._renamed(request)

    def _renamed(self, request: CommitRequest) -> CommitRequest:
        """The same wish as a new operation: one that was told a conflict must never be in the log."""
        operation = new_ulid(self.scheduler, self.scheduler.random)
        touched = TableKey.parse(request.properties["touches"])
        before = request.expected[touched]
        version = operation_version(before.metadata_location if isinstance(before, TableContent) else None, operation)
        content = TableContent(str(touched), version, None, 0, 0, 0)
        return replace(request, operation=operation, changes={touched: Put(content)})

    def _try(self, catalog: EmbeddedCatalog, request: CommitRequest) -> str | None:
        """The head to try again on, if only the branch was lost."""
        begun = self.record.tick()
        try:
            catalog.commit(request)
        except OutcomeUnknownError as error:
            self._report("unknown", begun, error.operation)
        except RefConflictError as error:
            self._report("conflict", begun, request.operation)
            return error.actual
        except HeadwaterError:
            self._report("conflict", begun, request.operation)  # whatever it was, it says that nothing landed
        else:
            self._report("committed", begun, request.operation)
        return None

    def _some_commit(self, catalog: EmbeddedCatalog) -> str:
        branch = self.scheduler.random.choice(BRANCHES)
        return self.scheduler.random.choice([each.hash for each in catalog.log(catalog.ref(branch).hash)])

    def _brancher(self, prefix: str, rounds: int) -> Callable[[], None]:
        def act() -> None:
            catalog = self._open()
            for number in range(rounds):
                self._nap(8)
                try:
                    at = self._some_commit(catalog)
                except HeadwaterError:
                    continue
                self._nap(8)
                if self._create(catalog, f"{prefix}{number}", at) and self.scheduler.random.random() < 0.5:
                    self._nap(10)
                    try:
                        catalog.delete_ref(f"{prefix}{number}", at)
                    except HeadwaterError:
                        continue

        return act

    def _create(self, catalog: EmbeddedCatalog, name: str, at: str) -> bool:
        begun = self.record.tick()
        try:
            catalog.create_ref(RefKind.TAG, name, at)
        except OutcomeUnknownError:
            return False
        except HeadwaterError:
            self._report("not created", begun, name)
            return False
        self._report("created", begun, name)
        return True

    def _holder(self, rounds: int) -> Callable[[], None]:
        def act() -> None:
            catalog = self._open()
            for _ in range(rounds):
                self._nap(10)
                try:
                    at = self._some_commit(catalog)
                    self._nap(10)
                    with catalog.hold(at, holder="sim") as held:
                        begun = self.record.tick()
                        assert isinstance(held, Hold)
                        for _ in range(self.scheduler.random.choice([1, 3])):
                            self._nap(60)
                            held.renew()  # too late, now and then
                        held.check()
                        self._report("held", begun, at)
                except HeadwaterError:
                    continue

        return act

    def _collector(self, rounds: int) -> Callable[[], None]:
        def act() -> None:
            catalog, store = self._open(), self._store()
            sequencer = Sequencer(
                store,
                Namespace("_headwater/catalog", "manifest", ".manifest"),
                clock=self.scheduler,
                randomness=self.scheduler.random,
                metrics=METRICS,
                policy=POLICY,
            )
            for _ in range(rounds):
                self._nap(12)
                try:
                    self._sweep(catalog, store, sequencer)
                except HeadwaterError:
                    continue  # what it did not get done, another run will

        return act

    def _sweep(self, catalog: EmbeddedCatalog, store: ObjectStore, sequencer: Sequencer) -> None:
        """A collector that owes what the protocol says: horizons, the manifest, the pins, and only then deletes."""
        now = self.scheduler.now()
        catalog.publish_history_horizon(now - HISTORY)
        staging = catalog.publish_staging_horizon(now - STAGING)
        if self.scheduler.random.random() < 0.75:  # old manifests may stay: what they keep is a matter of pins alone
            Collector(sequencer, Retention(MIN_AGE, timedelta(0))).collect()
        latest = sequencer.latest()
        assert latest is not None
        now = self.scheduler.now()
        pinned = Pins(sequencer).pinned(now, Retention(MIN_AGE, timedelta(0)))
        payloads = [latest.payload, *(sequencer.read(number).payload for number in sorted(pinned))]
        manifests: list[dict[str, Any]] = [json.loads(payload) for payload in payloads]
        heads = {ref["hash"] for manifest in manifests for ref in manifest["refs"].values()}
        horizon = min(manifest["horizons"]["history"] or "" for manifest in manifests)
        listed = list(store.list(OBJECTS.rstrip("/")))
        commits: dict[str, dict[str, Any]] = {}
        live: set[str] = set()
        for meta in listed:
            values = json.loads(store.get(meta.path).data)
            digest = meta.path.removeprefix(OBJECTS).replace("/", "")
            if values["kind"] == "commit":
                commits[digest] = values
        young = {digest for digest, values in commits.items() if values["committed_at"] >= horizon}
        superseded = {parent["hash"] for digest in young for parent in commits[digest]["parents"][:1]}
        for digest in (heads | young | superseded) & commits.keys():
            live |= {digest, *commits[digest]["tree"].values()}
        for meta in listed:
            digest = meta.path.removeprefix(OBJECTS).replace("/", "")
            if digest not in live and meta.last_modified < staging:
                store.delete(meta.path)

    def _report(self, kind: str, begun: int, what: str) -> None:
        self.record.reports.append(Report(kind, begun, self.record.tick(), writer=what))
