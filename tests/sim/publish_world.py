"""Four writers in two processes over one lake on one faulty store, by a seed: they race, stall, die and give up.

A process that dies takes both of its writers with it, wherever they are, and is opened anew, which sweeps. Beside them
one rewrites files, and another cleans up what nobody refers to. Data files and manifests never change and are not
fought over: they take a way without faults.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import EqualTo

from headwater.catalog.embedded.open import init_embedded, open_embedded
from headwater.catalog.model import TableContent, TableKey
from headwater.kernel.errors import ConflictError, HeadwaterError, OutcomeUnknownError
from headwater.kernel.ids import new_ulid
from headwater.kernel.metrics import Metrics
from headwater.kernel.retry import Retry, RetryPolicy
from headwater.publish import group, protocol, queues
from headwater.publish.cleanup.protocol import Cleanup
from headwater.publish.heads import HOME
from headwater.publish.model import TableWish, Wish, WriterKind
from headwater.publish.service import Writing, open_writing
from headwater.storage.faulty import Faults, FaultyStore
from headwater.storage.memory import MemoryStore
from headwater.storage.port import ObjectStore
from headwater.storage.retrying import RetryingStore
from headwater.storage.wrapper import StoreWrapper
from headwater.tables.create import new_table
from headwater.tables.files import Files
from headwater.tables.metadata import decode_metadata
from headwater.tables.model import Staged, TableUsageError, TableVersion
from headwater.tables.operations import append, delete, rewrite
from headwater.tables.read import read_task
from headwater.tables.scan import plan_scan
from tests.sim.cooperation import cooperating
from tests.sim.history import Record, RecordingStore, Report
from tests.sim.publish_history import PROPERTY, PublishTruth, check
from tests.sim.scheduler import PausingStore, Scheduler
from tests.unit.publish_world import SCHEMA

POLICY = RetryPolicy(attempts=2, first_seconds=0.2, longest_seconds=2.0, budget_seconds=5.0)
LAKE = "s3://bucket/lake"
TABLES = [TableKey(("default",), f"t{number}") for number in range(4)]
LEASE, SKEW = timedelta(seconds=20), timedelta(seconds=5)
# Who has staged for longer than this finds its files gone, and its publish refused (P10).
YOUNG = timedelta(seconds=25)
METRICS = Metrics()


@dataclass
class Outcome:
    """A finished history: what happened, and a digest by which two runs of one seed are compared."""

    truth: PublishTruth
    record: Record
    digest: str
    deaths: int
    cleaned: int


def run(seed: int) -> Outcome:
    """Play the history of this seed to its end and check it."""
    world = _World(seed)
    with cooperating(world.scheduler, queues, protocol, group):
        world.play()
    truth = check(world.record, LAKE + "/", world.files())
    told = repr((world.scheduler.trace, world.record))
    return Outcome(truth, world.record, hashlib.sha256(told.encode()).hexdigest(), world.deaths, world.cleaned)


class _MortalStore(StoreWrapper):
    """The way of one process to the store; it ends when the process does."""

    is_dead = False

    def _alive(self) -> None:
        if self.is_dead:
            raise SystemExit

    def get(self, *given: Any, **named: Any) -> Any:
        self._alive()
        return self._inner.get(*given, **named)

    def put(self, *given: Any, **named: Any) -> Any:
        self._alive()
        return self._inner.put(*given, **named)

    def delete(self, *given: Any, **named: Any) -> Any:
        self._alive()
        return self._inner.delete(*given, **named)


class _SlowStore(StoreWrapper):
    """Gives others time before it lists, and before each delete."""

    def __init__(self, inner: ObjectStore, scheduler: Scheduler) -> None:
        super().__init__(inner)
        self._scheduler = scheduler

    def list(self, *given: Any, **named: Any) -> Any:
        self._scheduler.pause()
        return iter(tuple(self._inner.list(*given, **named)))

    def delete(self, *given: Any, **named: Any) -> Any:
        self._scheduler.pause()
        return self._inner.delete(*given, **named)


class _Process:
    """A process that has the lake open. Its writers share its queues, as threads would."""

    def __init__(self, world: _World, store: ObjectStore, data: ObjectStore | None = None) -> None:
        catalog = open_embedded(
            store,
            clock=world.scheduler,
            randomness=world.scheduler.random,
            metrics=METRICS,
            policy=POLICY,
            workers=1,
        )
        self.catalog = catalog
        self.files = Files({LAKE: data or world.memory})
        self.writing: Writing = open_writing(
            catalog,
            self.files,
            store,
            location=LAKE,
            clock=world.scheduler,
            randomness=world.scheduler.random,
            lease=LEASE,
            skew=SKEW,
        )

    def version(self, content: TableContent) -> TableVersion:
        location = content.metadata_location
        return TableVersion(decode_metadata(self.files.read(location), location), location)

    def ids(self, version: TableVersion) -> list[int]:
        plan = plan_scan(self.files, version.metadata)
        batches = [batch for task in plan.tasks for batch in read_task(self.files, task, plan=plan)]
        return [int(number) for batch in batches for number in batch.column("id").to_pylist()]


class _World:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"publish world {seed}")
        self.scheduler = Scheduler(
            seed,
            stall_probability=self.dice.choice([0.0, 0.005, 0.02]),
            longest_stall_seconds=self.dice.choice([10, 40]),
        )
        self.record = Record()
        self.memory = MemoryStore(self.scheduler)
        self.recorder = RecordingStore(self.memory, self.record)
        trouble = self.dice.choice([0.0, 0.03, 0.1])
        faults = Faults(
            before=trouble, after=trouble, late=trouble / 2, delay=trouble, longest_delay_seconds=5, partial=trouble
        )
        self.faulty = FaultyStore(self.recorder, faults, self.scheduler, self.scheduler.random)
        self.numbers = iter(range(1, 1_000_000))
        self.deaths = self.cleaned = 0
        self._graves: list[object] = []
        init_embedded(self.recorder, clock=self.scheduler, randomness=self.scheduler.random, workers=1)

    def files(self) -> dict[str, bytes]:
        return {meta.path: self.memory.get(meta.path).data for meta in self.memory.list()}

    def play(self) -> None:
        self._found(_Process(self, self.recorder))
        for number in range(2):
            self.scheduler.spawn(f"process-{number}", self._process(number))
        self.scheduler.spawn("rewriter", self._rewriter(4))
        self.scheduler.spawn("cleaner", self._cleaner(3))
        self.scheduler.run(most_steps=400_000)
        self.faulty.land_everything()
        self.scheduler.time += (LEASE + SKEW).total_seconds() + 1
        last = _Process(self, self.recorder)
        last.writing.recovery.sweep()
        for key in TABLES:
            assert self._publish(last, self._wish(last, {key: "+"}, ())) == "committed", f"{key} is stuck"

    def _found(self, process: _Process) -> None:
        ref, staging = process.catalog.ref("main"), process.writing.staging()
        tables = []
        for key in TABLES:
            incarnation = new_ulid(self.scheduler, self.scheduler.random)
            metadata = new_table(
                SCHEMA,
                location=f"{LAKE}/tables/{key.name}-{incarnation}",
                properties={"write.delete.mode": "merge-on-read"},
                incarnation=incarnation,
                operation=staging.operation,
                clock=self.scheduler,
                randomness=self.scheduler.random,
            )
            metadata = metadata.model_copy(update={"properties": {**metadata.properties, HOME: ref.incarnation}})
            tables.append(TableWish(key, None, Staged(metadata)))
        process.writing.publisher.publish(self._wished(process, tables, staging.operation, {}, {}))

    # A process, its death and its next life

    def _process(self, number: int) -> Callable[[], None]:
        """Opens the lake, lets two writers work in it, and may be killed meanwhile; then again."""

        def act() -> None:
            for life in range(3):
                store, data = _MortalStore(self.faulty), _MortalStore(self.memory)
                process = self._opened(store, data)
                ends_at = self.scheduler.time + self.dice.random() * 60
                is_killed = life < 2 and self.dice.random() < 0.6
                writers = [
                    self.scheduler.spawn(f"writer-{number}-{life}-{each}", self._writer(process, 4))
                    for each in range(2)
                ]
                while any(not writer.body.dead for writer in writers):
                    if is_killed and self.scheduler.time >= ends_at:
                        store.is_dead = data.is_dead = True
                        self.deaths += 1
                        self._graves += [self.scheduler.kill(writer) for writer in writers]
                        break
                    self.scheduler.sleep(1)

        return act

    def _opened(self, store: ObjectStore, data: ObjectStore | None = None) -> _Process:
        paused = RetryingStore(
            PausingStore(store, self.scheduler), Retry(POLICY, self.scheduler, self.scheduler.random)
        )
        while True:
            try:
                process = _Process(self, paused, data)
                process.writing.recovery.sweep()
            except HeadwaterError:
                self.scheduler.sleep(2)  # such a process would not have come up
            else:
                return process

    # Writers

    def _writer(self, process: _Process, works: int) -> Callable[[], None]:
        def act() -> None:
            dice = self.scheduler.random
            for _ in range(works):
                self.scheduler.sleep(dice.random() * 8)
                touched = dice.sample(TABLES, dice.choice([1, 2, 2, 3]))
                reads = [key for key in TABLES if key not in touched and dice.random() < 0.4]
                for _ in range(3):
                    try:
                        wish = self._wish(process, {key: dice.choice("++-") for key in touched}, reads)
                    except HeadwaterError:
                        break
                    if dice.random() < 0.1:
                        break  # the user changed their mind: what was staged stays behind
                    if self._publish(process, wish) != "conflict":
                        break

        return act

    def _wish(self, process: _Process, touched: Mapping[TableKey, str], reads: Any) -> Wish:
        staging = process.writing.staging()
        at = process.catalog.ref("main").hash
        present = process.catalog.content(at, [*touched, *reads])
        tables, writes = [], {}
        for key, sign in touched.items():
            pinned = present[key]
            assert isinstance(pinned, TableContent)
            base = process.version(pinned)
            ids = process.ids(base) if sign == "-" else []
            if ids:
                number = self.scheduler.random.choice(ids)
                staged = delete(staging, base, EqualTo("id", number))  # type: ignore[call-arg]
                writes[str(key)] = ("-", number)
            else:
                number = next(self.numbers)
                rows = pa.table({"id": pa.array([number], pa.int64()), "v": [staging.operation]})
                staged = append(staging, base, rows)
                writes[str(key)] = ("+", number)
            tables.append(TableWish(key, pinned, staged))
        read = {key: present[key] for key in reads}
        return self._wished(process, tables, staging.operation, read, writes)

    def _wished(self, process: _Process, tables: list[TableWish], operation: Any, reads: Any, writes: Any) -> Wish:
        ref = process.catalog.ref("main")
        told = {
            "writes": writes,
            "reads": {str(key): content.metadata_location for key, content in reads.items()},
        }
        return Wish(
            WriterKind.TRANSACTION,
            "sim",
            "work",
            "main",
            ref.incarnation,
            operation,
            tuple(tables),
            reads,
            {PROPERTY: json.dumps(told)} if writes else {},
        )

    def _publish(self, process: _Process, wish: Wish) -> str:
        begun = self.record.tick()
        try:
            process.writing.publisher.publish(wish)
        except OutcomeUnknownError:
            told = "unknown"
        except HeadwaterError as error:
            told = "conflict"  # whatever it was, it says that nothing landed
            if not isinstance(error, ConflictError):
                self.scheduler.sleep(1)
        else:
            told = "committed"
        self.record.reports.append(Report(told, begun, self.record.tick(), writer=wish.operation))
        return told

    # Rewriting

    def _rewriter(self, rounds: int) -> Callable[[], None]:
        def act() -> None:
            process = self._opened(self.faulty)
            for _ in range(rounds):
                self.scheduler.sleep(self.scheduler.random.random() * 15)
                try:
                    self._rewrite(process, self.scheduler.random.choice(TABLES))
                except (HeadwaterError, TableUsageError):
                    continue

        return act

    def _rewrite(self, process: _Process, key: TableKey) -> None:
        pinned = process.catalog.content(process.catalog.ref("main").hash, [key])[key]
        assert isinstance(pinned, TableContent)
        base, staging = process.version(pinned), process.writing.staging()
        staged = rewrite(staging, base, plan_scan(process.files, base.metadata).tasks)
        wish = self._wished(process, [TableWish(key, pinned, staged)], staging.operation, {}, {})
        self._publish(process, replace(wish, kind=WriterKind.OPTIMIZE))

    # Cleaning up

    def _cleaner(self, rounds: int) -> Callable[[], None]:
        def act() -> None:
            process = self._opened(self.faulty)
            cleanup = Cleanup(
                process.catalog,
                Files({LAKE: _SlowStore(self.memory, self.scheduler)}),
                process.writing.sidecars,
                location=LAKE,
                clock=self.scheduler,
                margin=timedelta(seconds=1),
            )
            for _ in range(rounds):
                self.scheduler.sleep(self.scheduler.random.random() * 40)
                try:
                    self.cleaned += len(cleanup.run(older_than=YOUNG).deleted)
                except HeadwaterError:
                    continue

        return act
