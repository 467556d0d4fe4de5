"""A sync of one region: run after run, until the replica shows what `main` shows.

Promise: a replica is always some commit of `main`, whole and with the region's own paths, and goes on in the order of
`main`. A process that dies, loses its lease or is stopped for a day loses nothing and spoils nothing: the next one
takes the run up where it stood.

Invariants:

    1  One process syncs a region at a time, under a leased key; its fence goes into every note, so that a process that
       lost the key notes nothing more. A promotion of such a one is refused by the replica's head.
    2  A run keeps the registry, the target and the history that it began with.
    3  A step is noted when all that it did is durable. What a dead process left is gone on with while everything that
       it rests on is as it was, and abandoned otherwise (runs/decide.py).
    4  The target is held while it is read: nothing that it leads to is collected meanwhile.
    5  What is refused or damaged ends the run and is told; what is out of reach leaves it to be taken up again. In
       neither case does the replica move.

Commit point: promote/protocol.py. What a crash after each step leaves behind is said at the head of that step's file;
here, a run with the steps that were noted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from headwater.catalog.errors import BehindHorizonError, CommitNotFoundError
from headwater.catalog.model import TableKey
from headwater.catalog.port import Catalog
from headwater.kernel.clock import Clock
from headwater.kernel.errors import (
    ConflictError,
    HeadwaterError,
    OutcomeUnknownError,
    RefusedError,
    UnavailableError,
    UsageError,
)
from headwater.kernel.ids import new_ulid
from headwater.kernel.logs import Log
from headwater.kernel.metrics import Metrics
from headwater.kernel.randomness import Randomness
from headwater.sync.catchup.decide import next_target, pressure
from headwater.sync.catchup.model import Limits, Pending, Pressure
from headwater.sync.catchup.protocol import pending
from headwater.sync.copy.metrics import BACKLOG_BYTES, BACKLOG_FILES
from headwater.sync.model import ORIGIN_BRANCH, Origin, Replica, origin_to_show
from headwater.sync.observe.heartbeat import Heartbeat
from headwater.sync.observe.metrics import CONFLICTS, FAST_FORWARDS, OLDEST_PENDING
from headwater.sync.promote.model import Next
from headwater.sync.promote.protocol import Promoter, is_part_of
from headwater.sync.runs.decide import reason_to_abandon
from headwater.sync.runs.model import STEPS, Backlog, History, Run, RunSpec, RunState, Shipped, Step
from headwater.sync.runs.store import Runs
from headwater.sync.steps import Steps

_log = Log("sync")

# So often a run is planned anew at once when what it rests on has changed.
PLANNED_ANEW = 3


class Leased(Protocol):
    """The right to sync a region: its fence, and a last look whether it is still held."""

    @property
    def fence(self) -> int:
        """Higher than that of everybody who had it before."""
        ...

    def check(self) -> None:
        """Raise when it was lost."""
        ...


class Workshop(Protocol):
    """Opens what the steps of one run need, with the registry that it began with; it is closed when the run ends."""

    def __call__(self, run: Run, fence: int, /) -> AbstractContextManager[tuple[Steps, bool]]:
        """The steps of the run, and whether what it claimed before was held without a break."""
        ...


@dataclass(frozen=True)
class Goals:
    """What is wanted of a replica: by which rules, how much history, which tables; a subset moves no origin (R7).

    Of a replica that begins with `shipped` files, the first commit that it shows is `cutover`; the newest by default.
    """

    generation: int
    made_with: str
    history: History
    tables: tuple[TableKey, ...] | None = None
    shipped: Shipped = Shipped.NO
    cutover: Origin | None = None

    @property
    def is_one_run(self) -> bool:
        """Whether there is nothing to be caught up with after one run."""
        return self.tables is not None or self.shipped is not Shipped.NO


class HandedOverError(RefusedError):
    """A replica that shows something already does not begin again."""

    def __init__(self, region: str, shown: Origin) -> None:
        super().__init__(
            f"{region} shows main at {shown.hash} already, and goes on from there",
            hint="`headwater sync run` brings it to what main shows",
            region=region,
            shown=shown.hash,
        )


@dataclass(frozen=True)
class Status:
    """How a region stands: what it shows, what it lacks, what is under way."""

    region: str
    replica: Replica
    pending: Pending | None
    backlog: Backlog
    pressure: Pressure
    runs: tuple[Run, ...]


class Syncing:
    """The sync of one region."""

    def __init__(
        self,
        region: str,
        branch: str,
        *,
        catalog: Catalog,
        runs: Runs,
        promoter: Promoter,
        workshop: Workshop,
        heartbeat: Heartbeat,
        limits: Limits,
        clock: Clock,
        randomness: Randomness,
        metrics: Metrics,
    ) -> None:
        self._region = region
        self._branch = branch
        self._catalog = catalog
        self._runs = runs
        self._promoter = promoter
        self._workshop = workshop
        self._heartbeat = heartbeat
        self._limits = limits
        self._clock = clock
        self._randomness = randomness
        self._metrics = metrics
        for counter in (CONFLICTS, FAST_FORWARDS):
            metrics.count(counter, 0, region=region)  # so that a first one is seen as one

    def status(self) -> Status:
        """How the region stands; changes nothing but the levels of its metrics."""
        replica = self._promoter.look(self._branch)
        waiting = self._pending(replica)
        backlog = self._runs.backlog(self._region)
        self._metrics.level(BACKLOG_FILES, backlog.files, region=self._region)
        self._metrics.level(BACKLOG_BYTES, backlog.size_bytes, region=self._region)
        self._heartbeat.look()
        raised = pressure(waiting, backlog.size_bytes, self._clock.now(), self._limits)
        return Status(self._region, replica, waiting, backlog, raised, self._runs.last(self._region))

    def catch_up(self, goals: Goals, leased: Leased, *, told: Callable[[Run, Step], None]) -> tuple[Run, ...]:
        """Run until the replica shows what `main` showed at the beginning, or more; returns the runs.

        `told` hears of each step that has ended.
        """
        self._runs.take(self._region, leased.fence)
        self._heartbeat.beat()
        self._promoter.replica(self._branch)  # which makes the branch
        newest = origin_to_show(self._catalog.commit_at(self._catalog.ref(ORIGIN_BRANCH).hash))
        done: list[Run] = []
        while (run := self._next(goals, leased.fence)) is not None:
            done.append(self._carry_out(run, leased, told))
            if goals.is_one_run:
                return tuple(done)
            if done[-1].state is RunState.ABANDONED:
                self._refuse_to_turn(done)
                continue  # planned anew: the replica does not show it yet
            if run.spec.target == newest or run.spec.target.created_at > newest.created_at:
                break  # whoever writes without a pause does not keep us here
        self._is_forward()
        return tuple(done)

    def advance(self, goals: Goals, leased: Leased, until: Step, *, told: Callable[[Run, Step], None]) -> Run | None:
        """Bring the run that is under way to the end of one step, and begin one if there is none; None: nothing to do.

        For schedulers that want each step as a task of its own. Steps that have to be done again are.
        """
        self._runs.take(self._region, leased.fence)
        self._heartbeat.beat()
        self._promoter.replica(self._branch)  # which makes the branch
        run = self._next(goals, leased.fence)
        if run is None:
            self._is_forward()
        if run is None or (run.done is not None and STEPS.index(run.done) >= STEPS.index(until)):
            return run
        return self._carry_out(run, leased, told, until=until)

    def next_spec(self, goals: Goals) -> RunSpec | None:
        """What the next run would be; None when the replica shows everything. Changes nothing."""
        replica = self._promoter.look(self._branch)
        shown = replica.shown(goals.made_with)
        if goals.is_one_run:
            newest = self._pending(Replica(self._branch, replica.head))
            if newest is None:
                return None
            self._refuse_unknown(goals.tables or (), newest.newest, replica)
            return self._spec(goals, replica, goals.cutover or newest.newest, is_forward=False)
        waiting = self._pending(Replica(self._branch, replica.head, shown))
        if replica.ahead:
            # After a subset straight to the newest: on the way there, its tables would be seen to go back.
            waiting = pending(self._catalog, None, at_most=1)
        target = next_target(
            waiting,
            self._clock.now(),
            self._limits,
            is_forward_asked=self._runs.forward_is_asked(self._region) or self._is_stuck(waiting),
        )
        return None if target is None else self._spec(goals, replica, target.origin, is_forward=target.is_forward)

    def _refuse_unknown(self, tables: Sequence[TableKey], target: Origin, replica: Replica) -> None:
        """A subset names what is there, or what the replica still shows."""
        known = {*self._catalog.content(target.hash, tables)}
        known |= {*self._catalog.content(replica.head, tables)} if replica.head else set()
        unknown = [str(each) for each in tables if each not in known]
        if unknown:
            raise UsageError(
                f"neither main nor the replica of {self._region} has a table {unknown[0]}",
                hint="`headwater tables` lists those of main",
                tables=unknown,
            )

    def _is_stuck(self, waiting: Pending | None) -> bool:
        """Whether the last run failed on the commit that is next: what has come since may have repaired it."""
        last = self._runs.last(self._region, limit=1)
        return waiting is not None and any(
            each.state is RunState.FAILED and each.spec.target == waiting.oldest for each in last
        )

    def _spec(self, goals: Goals, replica: Replica, target: Origin, *, is_forward: bool) -> RunSpec:
        return RunSpec(
            self._region,
            target,
            replica.shown(goals.made_with),
            replica.head,
            goals.generation,
            goals.history,
            goals.tables,
            is_forward,
            goals.shipped,
        )

    def _next(self, goals: Goals, fence: int) -> Run | None:
        """The run that is under way, if it can be gone on with, or a new one."""
        found, wanted = self._runs.running(self._region), self.next_spec(goals)
        if found is not None:
            found = self._with_its_commit(found, fence)
            reason = self._reason_to_abandon(found, wanted, goals)
            if reason is None:
                return found
            _log.info("a run is abandoned", region=self._region, run=found.id, reason=reason)
            self._runs.end(found, RunState.ABANDONED, fence, error=reason)
        if wanted is None:
            return None
        if wanted.shipped is not Shipped.NO:
            self._refuse_again(wanted)
        if wanted.is_forward:
            self._metrics.count(FAST_FORWARDS, region=self._region)
        return self._runs.begin(new_ulid(self._clock, self._randomness), wanted, fence)

    def _reason_to_abandon(self, found: Run, wanted: RunSpec | None, goals: Goals) -> str | None:
        replica = self._promoter.look(self._branch)
        compared = wanted or self._spec(goals, replica, found.spec.target, is_forward=False)
        main = self._catalog.ref(ORIGIN_BRANCH).hash
        is_on_main = is_part_of(self._catalog, found.spec.target, main)
        return reason_to_abandon(
            found,
            compared,
            is_target_on_main=is_on_main,
            is_promoted_there=self._is_there(found.promoted, replica.head),
            cutover=goals.cutover,
        )

    def _with_its_commit(self, run: Run, fence: int) -> Run:
        """The run, promoted if its commit is there: its process died, or lost the answer, before that was noted."""
        if run.done is None or run.done in (Step.PROMOTE, Step.OBSERVE):
            return run
        made = self._catalog.outcome(self._branch, run.id, above=run.spec.replica_head)
        return run if made is None else self._runs.finish(run, Step.PROMOTE, fence, promoted=made.hash)

    def _is_there(self, promoted: str | None, head: str) -> bool:
        """Whether the replica's branch still leads to what was promoted."""
        try:
            return promoted is not None and is_part_of(
                self._catalog, origin_to_show(self._catalog.commit_at(promoted)), head
            )
        except (CommitNotFoundError, BehindHorizonError):
            return False

    def _refuse_again(self, wanted: RunSpec) -> None:
        """A replica begins once, at a commit of `main`: all that comes after it is brought by the runs that follow."""
        shown = self._promoter.look(self._branch).origin  # by whatever rules it was made
        if shown is not None:
            raise HandedOverError(self._region, shown)
        if not is_part_of(self._catalog, wanted.target, self._catalog.ref(ORIGIN_BRANCH).hash):
            raise RefusedError(
                f"{wanted.target.hash} is not part of main",
                hint="name the commit of main, or its tag, that the shipped files were taken from",
                commit=wanted.target.hash,
            )

    def _refuse_to_turn(self, done: Sequence[Run]) -> None:
        """What it rests on may change under a run, but hardly under each."""
        if len(done) >= PLANNED_ANEW and all(each.state is RunState.ABANDONED for each in done[-PLANNED_ANEW:]):
            raise ConflictError(
                f"the sync of {self._region} was planned anew {PLANNED_ANEW} times in a row: {done[-1].error}",
                hint="try again, and see who else moves main or the replica",
                region=self._region,
            )

    def _is_forward(self) -> None:
        """The replica shows the newest: who asked for that, if anybody did, has it."""
        if self._runs.forward_is_asked(self._region):
            self._runs.forward_is_done(self._region)

    def _carry_out(
        self, run: Run, leased: Leased, told: Callable[[Run, Step], None], *, until: Step = STEPS[-1]
    ) -> Run:
        holder = f"the sync of {self._region}"
        with (
            self._catalog.hold(run.spec.target.hash, holder=holder),
            self._workshop(run, leased.fence) as (steps, is_held),
        ):
            if not is_held:
                # What was claimed may have been deleted since: it is looked for again (G3).
                run = self._runs.rewind(run, leased.fence)
            while (step := run.next_step) is not None and run.state is RunState.RUNNING:
                leased.check()
                try:
                    run = self._do(steps, run, step, leased.fence)
                except (UnavailableError, OutcomeUnknownError, ConflictError):
                    raise  # it is taken up again as it is
                except HeadwaterError as error:
                    self._runs.end(run, RunState.FAILED, leased.fence, error=str(error))
                    raise
                told(run, step)
                if step is until:
                    break
        return run

    def _do(self, steps: Steps, run: Run, step: Step, fence: int) -> Run:
        steps.at(run)
        promoted: str | None = None
        match step:
            case Step.DIFF:
                steps.diff()
            case Step.PLAN:
                steps.plan()
            case Step.COPY:
                steps.copy()
            case Step.VERIFY:
                steps.verify()
            case Step.LOCALISE:
                steps.localise()
            case Step.PROMOTE:
                ended = steps.promote()
                if ended.commit is None:
                    return self._unpromoted(run, ended.next, ended.reason, fence)
                promoted = ended.commit.hash
            case Step.OBSERVE:
                steps.observe()
        return self._runs.finish(run, step, fence, promoted=promoted)

    def _unpromoted(self, run: Run, what: Next, reason: str, fence: int) -> Run:
        match what:
            case Next.STOP:
                return self._runs.end(run, RunState.OVERTAKEN, fence, error=reason)
            case Next.PLAN_AGAIN:
                return self._runs.end(run, RunState.ABANDONED, fence, error=reason)
            case _:
                raise UnavailableError(reason, hint="the run goes on when the region has caught up", run=run.id)

    def _pending(self, replica: Replica) -> Pending | None:
        found = pending(self._catalog, replica.origin, at_most=self._limits.forward_commits + 1)
        age = timedelta(0) if found is None else self._clock.now() - found.oldest.created_at
        self._metrics.level(OLDEST_PENDING, max(0.0, age.total_seconds()), region=self._region)
        return found
