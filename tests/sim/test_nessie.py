"""Seeded schedules of processes and an engine on a model of Nessie that loses answers, and lets requests land late.

Each request may first let somebody else work: an engine that commits without us, another process's whole commit, or a
request that its sender has given up. What was reported is then judged by the log alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import httpx
import pytest

from headwater.catalog.model import Commit, CommitRequest, Content, NamespaceContent, RefKind, TableContent, TableKey
from headwater.catalog.nessie.model import NO_ANCESTOR
from headwater.catalog.nessie.protocol import NessieCatalog
from headwater.kernel.errors import ConflictError, HeadwaterError, OutcomeUnknownError, UnavailableError
from tests.conformance.catalogs import key, put, request, space
from tests.unit.nessie_world import World

SEEDS = range(16)
TABLES = [key(name) for name in ("a", "b", "c", "d")]
BRANCHES = ("main", "main_replica_eu")
STATUSES = (None, 500, 503)
# How long a server goes on with a request whose sender has gone: Nessie's own limit for a commit.
SERVER_SECONDS = 5.0

pytestmark = pytest.mark.slow


@dataclass
class Schedule:
    """One history, made by a seed."""

    seed: int
    said: list[tuple[CommitRequest, Commit | HeadwaterError]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.world = World()
        self.processes = [self.world.open() for _ in range(3)]
        first = self.processes[0]
        first.create_ref(RefKind.BRANCH, BRANCHES[1], NO_ANCESTOR)
        put(first, {space("default"): NamespaceContent("x")}, BRANCHES[1])
        self.depth = self.versions = 0
        self._late: list[tuple[float, httpx.Request, str]] = []
        self.answer = self.world.server._answer
        self.world.server._answer = self._answer  # type: ignore[method-assign, assignment]

    def run(self) -> None:
        for _ in range(25):
            self._commit(self.random.choice(self.processes))
        while self._land_late():  # whatever is still on its way arrives in the end
            pass

    def version(self) -> TableContent:
        self.versions += 1
        return TableContent("x", f"s3://lake/{self.versions}", self.versions, 0, 0, 0)

    def _answer(self, asked: httpx.Request, path: str) -> httpx.Response:
        if self.depth < 2 and self.random.random() < 0.15:
            self.depth += 1
            self._meanwhile()
            self.depth -= 1
        if asked.method == "GET" or path.endswith("/contents") or self.random.random() > 0.15:
            return self.answer(asked, path)
        # Lost: it was done, it is never done, it is done later, or the server takes what it did for somebody else's.
        match self.random.choice(("done", "never", "late", "itself")):
            case "itself":
                told = self.answer(asked, path)
                return httpx.Response(409, json={"message": "itself"}, request=asked) if told.is_success else told
            case "done":
                self.answer(asked, path)
            case "late":
                self._late.append((self.world.clock.monotonic() + SERVER_SECONDS, asked, path))
        status = self.random.choice(STATUSES)
        if status is None:
            raise httpx.ReadTimeout("lost", request=asked)
        return httpx.Response(status, json={"message": "lost"}, request=asked)

    def _meanwhile(self) -> None:
        if self.random.random() < 0.6 and self._land_late():
            return
        if self.random.random() < 0.5:
            self._engine()
        else:
            self._commit(self.random.choice(self.processes))

    def _land_late(self) -> bool:
        """Let a request that its sender gave up be done, within the time that a server has for it."""
        self._late = [each for each in self._late if each[0] >= self.world.clock.monotonic()]
        if not self._late:
            return False
        _, asked, path = self._late.pop(self.random.randrange(len(self._late)))
        self.answer(asked, path)
        return True

    def _engine(self) -> None:
        wanted = self.random.choice(TABLES)
        depth, self.depth = self.depth, 9  # nothing happens to an engine's own requests
        lost, self.world.server._answer = self.world.server._answer, self.answer  # type: ignore[method-assign]
        try:
            head = self.world.server.refs["main"][1]
            is_there = wanted in self.processes[0].content(head, [wanted])
            gone = is_there and self.random.random() < 0.3
            self.world.foreign({wanted: None if gone else self.version()})
        finally:
            self.depth, self.world.server._answer = depth, lost  # type: ignore[method-assign]

    def _commit(self, catalog: NessieCatalog) -> None:
        branch = self.random.choice(BRANCHES)
        try:
            wanted = self._request(catalog, branch)
        except HeadwaterError:
            return  # a read that nobody answered
        try:
            self.said.append((wanted, catalog.commit(wanted)))
        except HeadwaterError as error:
            self.said.append((wanted, error))

    def _request(self, catalog: NessieCatalog, branch: str) -> CommitRequest:
        changed = self.random.sample(TABLES, self.random.choice((1, 2)))
        read = [each for each in self.random.sample(TABLES, 2) if each not in changed]
        made = request(catalog, {each: self.version() for each in changed}, branch)
        expected = {**made.expected, **{each: catalog.content(str(made.head), [each]).get(each) for each in read}}
        return replace(made, expected=expected, head=self.random.choice((made.head, None)))

    def judge(self) -> None:
        """Each success is in its log once, nothing else is, but what is unknown; each stands on what it rests on."""
        reader, self.world.server._answer = self.world.open(), self.answer  # type: ignore[method-assign]
        logs = {branch: list(reader.log(self.world.server.refs[branch][1])) for branch in BRANCHES}
        for wanted, answer in self.said:
            found = [each for each in logs[wanted.branch] if each.operation == wanted.operation]
            assert all(each.operation != wanted.operation for each in logs[_other(wanted.branch)])
            if isinstance(answer, Commit):
                assert found == [answer]
            elif isinstance(answer, (ConflictError, UnavailableError)):
                assert found == [], (wanted.operation, answer)
            else:
                assert isinstance(answer, OutcomeUnknownError), answer
                assert len(found) <= 1
            for commit in found:
                parent = commit.parents[0]
                assert wanted.head in (None, parent)
                assert _held(reader, parent, wanted) == dict(wanted.expected)


def _held(reader: NessieCatalog, at: str, wanted: CommitRequest) -> dict[TableKey, Content | None]:
    found = reader.content(at, list(wanted.expected))
    return {each: found.get(each) for each in wanted.expected}


def _other(branch: str) -> str:
    return BRANCHES[1 - BRANCHES.index(branch)]


@pytest.mark.hazard("R1", "P3", "P8")
def test_r1_p3_p8_histories() -> None:
    kinds: set[str] = set()
    for seed in SEEDS:
        schedule = Schedule(seed)
        schedule.run()
        schedule.judge()
        kinds |= {type(answer).__name__ for _, answer in schedule.said}
    # The schedules reach every end that there is.
    assert {"Commit", "ExpectedVersionMismatchError", "RefConflictError", "UnavailableError"} <= kinds


def test_the_same_seed_gives_the_same_history() -> None:
    histories = []
    for _ in range(2):
        schedule = Schedule(7)
        schedule.run()
        histories.append([(type(answer).__name__, wanted.branch) for wanted, answer in schedule.said])
    assert histories[0] == histories[1]
