"""The publish world with writers that fight over names: tables that come, go and are renamed, views, a namespace, and
a branch that is made and deleted all the time, while somebody repairs what is not broken.

At the end nothing is pending, every head is where its branch pins it, every table takes the next write, and what was
reported is what the logs hold: committed once, or, where a conflict was told, not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headwater.catalog.model import Content, NamespaceContent, Ref, RefKind, TableContent, TableKey, ViewContent
from headwater.kernel.errors import HeadwaterError, OutcomeUnknownError
from headwater.kernel.ids import Ulid, new_ulid
from headwater.publish import group, protocol, queues
from headwater.publish.heads import HOME
from headwater.publish.model import Replaced, TableWish, Wish, WriterKind
from headwater.tables.create import new_table
from headwater.tables.model import Staged
from headwater.tables.operations import append
from headwater.tables.snapshot import Staging
from tests.sim.cooperation import cooperating
from tests.sim.publish_world import LAKE, LEASE, SKEW, TABLES, _Process, _World
from tests.unit.publish_world import SCHEMA, rows

BRANCH = "dev"
M = TableKey.of_namespace(("m",))
NAMES = [*(TableKey(("default",), f"n{number}") for number in range(3)), TableKey(("m",), "x")]


def run(seed: int) -> Counter[str]:
    """Play the history of this seed to its end and check it; what was told, and how often."""
    world = _NamesWorld(seed)
    with cooperating(world.scheduler, queues, protocol, group):
        world.play()
    return Counter(told for told, _, _ in world.told)


@dataclass
class _Draft:
    """A wish that is being made up."""

    process: _Process
    ref: Ref
    staging: Staging
    present: Mapping[TableKey, Content]
    tables: list[TableWish] = field(default_factory=list)
    others: dict[TableKey, Replaced] = field(default_factory=dict)
    reads: dict[TableKey, Content | None] = field(default_factory=dict)

    @property
    def touched(self) -> set[TableKey]:
        return {*self.others, *(key for each in self.tables for key in each.keys)}

    def wish(self) -> Wish:
        reads = {key: content for key, content in self.reads.items() if key not in self.touched}
        ref, operation = self.ref, self.staging.operation
        tables = tuple(self.tables)
        kind = WriterKind.SCHEMA_APPLY
        return Wish(kind, "sim", "names", ref.name, ref.incarnation, operation, tables, reads, {}, self.others)


class _NamesWorld(_World):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.told: list[tuple[str, Ulid, Ulid]] = []

    def play(self) -> None:
        self._found(_Process(self, self.recorder))
        for number in range(2):
            self.scheduler.spawn(f"process-{number}", self._process(number))
        self.scheduler.spawn("brancher", self._now_and_then(self._branch))
        self.scheduler.spawn("repairer", self._now_and_then(lambda process: process.writing.repair.run(actor="sim")))
        self.scheduler.run(most_steps=400_000)
        self.faulty.land_everything()
        self.scheduler.time += (LEASE + SKEW).total_seconds() + 1
        last = _Process(self, self.recorder)
        last.writing.recovery.sweep()
        assert not last.writing.sidecars.pending()
        for ref in last.catalog.refs():
            for key, content in last.catalog.contents(ref.hash):
                if isinstance(content, TableContent):
                    self._check_table(last, ref, key, content)
        self._check_logs(last)

    def _check_table(self, last: _Process, ref: Ref, key: TableKey, content: TableContent) -> None:
        path = last.writing.heads.path_for(last.version(content).metadata, ref.incarnation)
        latest, pinned_id = last.writing.heads.sequence(path).latest(), last.writing.heads.id_in(path, content)
        assert not pinned_id or (latest is not None and latest.id == pinned_id), f"{key} has drifted on {ref.name}"
        draft = self._draft(last, ref.name)
        self._add_row(draft, key)
        assert self._tell(last, draft.wish()) == "committed", f"{key} is stuck on {ref.name}"

    def _check_logs(self, last: _Process) -> None:
        """Of a branch that is gone nothing can be said any more."""
        logs = {
            ref.incarnation: Counter(commit.operation for commit in last.catalog.log(ref.hash))
            for ref in last.catalog.refs()
        }
        for told, operation, incarnation in self.told:
            if incarnation in logs and told != "unknown":
                assert logs[incarnation][operation] == (1 if told == "committed" else 0), f"{told}: {operation}"

    # Actors

    def _now_and_then(self, work: Callable[[_Process], object]) -> Callable[[], None]:
        def act() -> None:
            process = self._opened(self.faulty)
            for _ in range(4):
                self.scheduler.sleep(self.scheduler.random.random() * 25)
                try:
                    work(process)
                except HeadwaterError:
                    continue

        return act

    def _branch(self, process: _Process) -> None:
        refs = {ref.name: ref for ref in process.catalog.refs()}
        if BRANCH in refs:
            process.catalog.delete_ref(BRANCH, refs[BRANCH].hash)
        else:
            process.catalog.create_ref(RefKind.BRANCH, BRANCH, refs["main"].hash)

    def _writer(self, process: _Process, works: int) -> Callable[[], None]:
        def act() -> None:
            dice = self.scheduler.random
            for _ in range(works):
                self.scheduler.sleep(dice.random() * 8)
                for _ in range(3):
                    try:
                        has_branch = any(ref.name == BRANCH for ref in process.catalog.refs())
                        draft = self._draft(process, BRANCH if has_branch and dice.random() < 0.3 else "main")
                        self._fill(draft)
                    except HeadwaterError:
                        break
                    if self._tell(process, draft.wish()) != "conflict":
                        break

        return act

    def _tell(self, process: _Process, wish: Wish) -> str:
        try:
            process.writing.publisher.publish(wish)
        except OutcomeUnknownError:
            told = "unknown"
        except HeadwaterError:
            told = "conflict"  # whatever it was, it says that nothing landed
        else:
            told = "committed"
        self.told.append((told, wish.operation, wish.branch_incarnation))
        return told

    # Wishes

    def _draft(self, process: _Process, branch: str) -> _Draft:
        ref, staging = process.catalog.ref(branch), process.writing.staging()
        return _Draft(process, ref, staging, dict(process.catalog.contents(ref.hash)))

    def _fill(self, draft: _Draft) -> None:
        dice = self.scheduler.random
        for key in dice.sample(NAMES, dice.choice([1, 1, 2])):
            if key not in draft.touched:
                self._change(draft, key)
        for key in dice.sample(TABLES, dice.choice([0, 1, 1, 2])):
            self._add_row(draft, key)
        is_empty = not any(key.is_in(("m",)) for key in (*draft.present, *draft.touched))
        if M in draft.present and is_empty and dice.random() < 0.3:
            draft.others[M] = Replaced(draft.present[M], None)
        read = dice.choice(TABLES)
        draft.reads[read] = draft.present[read]

    def _change(self, draft: _Draft, key: TableKey) -> None:
        """A name that is free is taken; what is there goes, moves on to another name, or gets a row."""
        dice, held = self.scheduler.random, draft.present.get(key)
        if key.parent == M and M not in draft.present:
            draft.others[M] = Replaced(None, NamespaceContent(new_ulid(self.scheduler, dice), {}))
        elif key.parent == M:
            draft.reads[M] = draft.present[M]
        free = [each for each in NAMES[:3] if each not in draft.present and each not in draft.touched and each != key]
        if held is None and dice.random() < 0.3:
            draft.others[key] = Replaced(None, ViewContent(new_ulid(self.scheduler, dice), f"{LAKE}/views/{key}", 1, 0))
        elif held is None:
            draft.tables.append(self._born(draft, key))
        elif not isinstance(held, TableContent):
            draft.others[key] = Replaced(held, None)
        elif dice.random() < 0.4:
            draft.tables.append(TableWish(key, held, None))
        elif free and dice.random() < 0.5:
            metadata = draft.process.version(held).metadata
            draft.tables.append(TableWish(dice.choice(free), held, Staged(metadata), renamed_from=key))
        else:
            self._add_row(draft, key)

    def _born(self, draft: _Draft, key: TableKey) -> TableWish:
        incarnation = new_ulid(self.scheduler, self.scheduler.random)
        metadata = new_table(
            SCHEMA,
            location=f"{LAKE}/tables/{key.name}-{incarnation}",
            incarnation=incarnation,
            operation=draft.staging.operation,
            clock=self.scheduler,
            randomness=self.scheduler.random,
        )
        home = {**metadata.properties, HOME: draft.ref.incarnation}
        return TableWish(key, None, Staged(metadata.model_copy(update={"properties": home})))

    def _add_row(self, draft: _Draft, key: TableKey) -> None:
        held = draft.present[key]
        assert isinstance(held, TableContent)
        row = rows(next(self.numbers), "x")
        draft.tables.append(TableWish(key, held, append(draft.staging, draft.process.version(held), row)))
