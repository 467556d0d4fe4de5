"""Seeded schedules of promoters and an engine on a model of Nessie that loses answers.

Before each request somebody else may work: an engine that commits to `main`, or another promoter, with a run of its own
or with one that is under way elsewhere. Answers are lost, requests land late, and a server takes its own commit for
somebody else's. What a replica shows is then judged by the server's own state.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta

import httpx
import pytest

from headwater.catalog.model import Content, NamespaceContent, TableContent, TableKey
from headwater.catalog.nessie.protocol import NessieCatalog
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.ids import new_ulid
from headwater.kernel.metrics import Metrics
from headwater.kernel.randomness import seeded
from headwater.sync.model import ORIGIN_HASH, Times, origin_to_show
from headwater.sync.promote.model import Next
from headwater.sync.promote.protocol import Ended, Promoter, Wanted
from tests.unit.nessie_world import World

SEEDS = range(16)
BRANCH = "main_replica_eu"
TABLES = (TableKey.parse("t"), TableKey.parse("u"))
SECOND = timedelta(seconds=1)
# How long a server goes on with a request whose sender has gone.
SERVER_SECONDS = 5.0

pytestmark = pytest.mark.slow


@dataclass
class Schedule:
    """One history, made by a seed."""

    seed: int
    said: list[tuple[Wanted, Ended]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.randomness = seeded(f"promoters {self.seed}")
        self.world = World()
        self.engine = self.world.open()
        self.promoters = [self._promoter(self.world.open()) for _ in range(2)]
        self.begun: list[Wanted] = []
        self.depth = 0
        self._late: list[tuple[float, httpx.Request, str]] = []
        self.answer = self.world.server._answer
        self.world.server._answer = self._answer  # type: ignore[method-assign, assignment]

    def run(self) -> None:
        for _ in range(12):
            self._write()
            self._promote()
        while self._land_late():
            pass

    def _promoter(self, catalog: NessieCatalog) -> tuple[NessieCatalog, Promoter]:
        return catalog, Promoter(
            catalog,
            self.world.open(),
            clock=self.world.clock,
            randomness=self.randomness,
            metrics=Metrics(),
            gate_patience=3 * SECOND,
            poll=SECOND,
        )

    def _write(self) -> None:
        """An engine changes, makes or drops a table; nothing happens to its own requests."""
        faulty, self.world.server._answer = self.world.server._answer, self.answer  # type: ignore[method-assign]
        try:
            key = self.random.choice(TABLES)
            is_there = key in self.engine.content(self.world.server.refs["main"][1], [key])
            number = self.random.randrange(3)  # few, so that a table is often put back to what it was
            version = TableContent("x", f"s3://us/{number}", number, 0, 0, 0)
            self.world.foreign({key: None if is_there and self.random.random() < 0.2 else version})
        finally:
            self.world.server._answer = faulty  # type: ignore[method-assign]

    def _promote(self) -> None:
        catalog, promoter = self.random.choice(self.promoters)
        try:
            if self.begun and self.random.random() < 0.4:
                wanted = self.random.choice(self.begun)
            else:
                wanted = self._plan(catalog, promoter)
                self.begun.append(wanted)
            self.said.append((wanted, promoter.promote(wanted, lambda: None)))
        except HeadwaterError:
            pass  # out of reach, or not known: the run is taken up again, or not

    def _plan(self, catalog: NessieCatalog, promoter: Promoter) -> Wanted:
        """From what the replica shows to one of the newest commits, as a run does it."""
        replica = promoter.replica(BRANCH)
        log = list(catalog.log(catalog.ref("main").hash, limit=3))
        target = origin_to_show(self.random.choice(log))
        if replica.origin is None:
            after: dict[TableKey, Content | None] = dict(catalog.contents(target.hash))
        else:
            after = {each.key: each.after for each in catalog.diff(replica.origin.hash, target.hash)}
        now = self.world.clock.now()
        return Wanted(
            "eu",
            new_ulid(self.world.clock, self.randomness),
            replica,
            target,
            {key: _local(each) for key, each in after.items()},
            is_full=replica.origin is None,
            is_subset=False,
            made_with="rules",
            times=Times(target.created_at, now, now, now),
        )

    def _answer(self, asked: httpx.Request, path: str) -> httpx.Response:
        if self.depth < 2 and self.random.random() < 0.1:
            self.depth += 1
            self.random.choice((self._write, self._promote, self._land_late))()
            self.depth -= 1
        if asked.method == "GET" or path.endswith("/contents") or self.random.random() > 0.2:
            return self.answer(asked, path)
        match self.random.choice(("done", "never", "late", "itself")):
            case "itself":
                told = self.answer(asked, path)
                return httpx.Response(409, json={"message": "itself"}, request=asked) if told.is_success else told
            case "done":
                self.answer(asked, path)
            case "late":
                self._late.append((self.world.clock.monotonic() + SERVER_SECONDS, asked, path))
        raise httpx.ReadTimeout("lost", request=asked)

    def _land_late(self) -> bool:
        self._late = [each for each in self._late if each[0] >= self.world.clock.monotonic()]
        if not self._late:
            return False
        _, asked, path = self._late.pop(self.random.randrange(len(self._late)))
        self.answer(asked, path)
        return True

    def judge(self) -> None:
        server = self.world.server
        main = [each.hash for each in reversed(server._log(server.refs["main"][1]))]
        replica = list(reversed(server._log(server.refs[BRANCH][1]))) if BRANCH in server.refs else []
        origins = [each.meta["allProperties"][ORIGIN_HASH][0] for each in replica]
        for made, origin in zip(replica, origins, strict=True):
            shown = {key: each["metadataLocation"] for key, each in made.contents.items() if key[-1] in ("t", "u")}
            held = server._commits[origin].contents
            assert shown == {
                key: f"eu/{each['metadataLocation']}" for key, each in held.items() if key[-1] in ("t", "u")
            }
        steps = [main.index(origin) for origin in origins]
        assert steps == sorted(set(steps)), "it goes forward, and to each commit once"
        runs = Counter(each.meta["allProperties"]["headwater.operation"][0] for each in replica)
        assert not runs or max(runs.values()) == 1
        for wanted, ended in self.said:
            if ended.next is Next.COMMIT:
                assert ended.commit is not None
                assert runs[wanted.run] == 1


def _local(content: Content | None) -> Content | None:
    if content is None or isinstance(content, NamespaceContent):
        return content
    return replace(content, metadata_location=f"eu/{content.metadata_location}")


@pytest.mark.hazard("R1", "R2")
def test_r1_r2_histories() -> None:
    ends: set[Next] = set()
    for seed in SEEDS:
        schedule = Schedule(seed)
        schedule.run()
        schedule.judge()
        ends |= {ended.next for _, ended in schedule.said}
    # The schedules reach every end that does not need a region that lags.
    assert ends == {Next.COMMIT, Next.STOP, Next.PLAN_AGAIN}


def test_the_same_seed_gives_the_same_history() -> None:
    histories = []
    for _ in range(2):
        schedule = Schedule(5)
        schedule.run()
        histories.append([ended.next for _, ended in schedule.said])
    assert histories[0] == histories[1]
