"""Random lives of runs and executors on SQLite, each answer compared with a dictionary that knows the promise alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from headwater.database import open_database
from headwater.kernel.clock import ManualClock
from headwater.kernel.ids import Ulid, ulid_of
from headwater.regions.claims import ClaimRun, Claims
from headwater.regions.errors import RunEndedError

pytestmark = pytest.mark.proves("regions/claims")

URIS = [f"s3://eu/{name}" for name in "abcd"]
EXECUTORS = [ulid_of(1), ulid_of(2)]
STEPS = 400


@dataclass
class Model:
    """What is promised, in seconds of one clock."""

    now: float = 0.0
    fence: int = 0
    ends: dict[ClaimRun, float] = field(default_factory=dict)
    claims: dict[str, set[ClaimRun]] = field(default_factory=lambda: {uri: set() for uri in URIS})
    marks: dict[str, tuple[Ulid, float]] = field(default_factory=dict)

    def is_alive(self, run: ClaimRun) -> bool:
        return self.now < self.ends.get(run, 0.0)

    def may_act(self, run: ClaimRun) -> bool:
        return self.is_alive(run) and run.fence == self.fence

    def is_protected(self, uri: str) -> bool:
        return any(self.is_alive(run) for run in self.claims[uri])


class World:
    """One database and one model, which must tell the same."""

    def __init__(self, claims: Claims, clock: ManualClock, dice: Random) -> None:
        self.claims, self.clock, self.dice, self.model = claims, clock, dice, Model()
        self.runs: list[ClaimRun] = []
        self.told: set[str] = set()

    def some(self) -> list[str]:
        return self.dice.sample(URIS, self.dice.randint(1, 3))

    def step(self) -> None:
        actions = [
            self.open,
            self.claim,
            self.claim,
            self.renew,
            self.release,
            self.delete,
            self.delete,
            self.end,
            self.hold,
        ]
        self.dice.choice(actions)()
        if self.dice.random() < 0.3:
            seconds = self.dice.choice([1.0, 4.0, 11.0])
            self.clock.sleep(seconds)
            self.model.now += seconds
        assert self.claims.claimed(URIS) == {uri for uri in URIS if self.model.is_protected(uri)}

    def open(self) -> None:
        self.model.fence += self.dice.choice([0, 1])
        run = ulid_of(1000 + len(self.runs))
        opened = self.claims.open(run, "eu", fence=self.model.fence, lease_seconds=10).run
        self.runs.append(opened)
        self.model.ends[opened] = self.model.now + 10

    def claim(self) -> None:
        for run in self.dice.sample(self.runs, min(1, len(self.runs))):
            wanted = self.some()
            try:
                deleting = set(self.claims.claim(run, wanted).deleting)
            except RunEndedError:
                self.tell("claim refused", not self.model.may_act(run))
                continue
            self.tell("claimed", self.model.may_act(run))
            assert deleting == {uri for uri in wanted if uri in self.model.marks}
            for uri in set(wanted) - deleting:
                self.model.claims[uri].add(run)

    def renew(self) -> None:
        for run in self.dice.sample(self.runs, min(1, len(self.runs))):
            try:
                self.claims.renew(run, 10)
            except RunEndedError:
                self.tell("renewal refused", not self.model.may_act(run))
                continue
            self.tell("renewed", self.model.may_act(run))
            self.model.ends[run] = self.model.now + 10

    def hold(self) -> None:
        for run in self.dice.sample(self.runs, min(1, len(self.runs))):
            try:
                self.claims.hold(run, 5)
            except RunEndedError:
                self.tell("not held", not self.model.may_act(run) or self.model.ends[run] < self.model.now + 5)
                continue
            self.tell("held", self.model.may_act(run))
            for uri in URIS:
                assert run not in self.model.claims[uri] or uri not in self.model.marks

    def release(self) -> None:
        for run in self.dice.sample(self.runs, min(1, len(self.runs))):
            self.claims.release(run)
            self.model.ends.pop(run, None)

    def delete(self) -> None:
        executor, wanted = self.dice.choice(EXECUTORS), self.some()
        verdicts = self.claims.begin_delete("eu", wanted, executor, lease_seconds=6)
        for uri in wanted:
            owner, until = self.model.marks.get(uri, (executor, 0.0))
            free = uri in self.model.marks or not self.model.is_protected(uri)
            allowed = free and (owner == executor or until <= self.model.now)
            assert verdicts[uri].may_delete == allowed, (uri, verdicts[uri])
            self.told.add(str(verdicts[uri]))
            if allowed:
                self.model.marks[uri] = (executor, self.model.now + 6)

    def end(self) -> None:
        executor, wanted = self.dice.choice(EXECUTORS), self.some()
        self.claims.end_delete("eu", wanted, executor)
        for uri in wanted:
            if self.model.marks.get(uri, (None,))[0] == executor:
                del self.model.marks[uri]

    def tell(self, what: str, is_right: bool) -> None:
        assert is_right, what
        self.told.add(what)


@pytest.mark.hazard("G3")
def test_g3_random_lives_keep_the_promise(tmp_path: Path) -> None:
    clock = ManualClock()
    with open_database(tmp_path / "state.db", clock=clock) as database:
        world = World(Claims(database), clock, Random(7))
        for _ in range(STEPS):
            world.step()
    refusals = {"claim refused", "renewal refused", "not held"}
    verdicts = {"entered", "ours", "taken-over", "claimed", "busy"}
    assert world.told == refusals | verdicts | {"claimed", "renewed", "held"}, "some of it never happened"


def test_time_moves_the_model_and_the_database_alike(tmp_path: Path) -> None:
    clock = ManualClock()
    with open_database(tmp_path / "state.db", clock=clock) as database:
        claims = Claims(database)
        run = claims.open(ulid_of(5), "eu", fence=1, lease_seconds=10).run
        clock.advance(timedelta(seconds=9.9))
        claims.hold(run, 0)
        clock.advance(timedelta(seconds=0.1))
        with pytest.raises(RunEndedError):
            claims.hold(run, 0)
