"""Writing files of one table again, and letting them take the place of the old ones.

Promise: rows, their ids and the numbers of their last updates are the same before and after, whatever others commit
meanwhile; nothing that they delete or add gets lost. A job that cannot keep that is given up, and nothing was changed.

Invariants:

    1  A job is recorded as running before its first file is written, and its end after it was published.
    2  Rewritten files take the place of their inputs only on a version that has all of these inputs, with the same
       deletes, ids and numbers as those that were read (P11). `stage_rewrite` refuses it once more by itself.
    3  A commit carries the time at which the job's first file was begun, in its operation: cleanup takes files that
       nothing refers to for forgotten only before a horizon, and who began before it cannot publish any more (P10).

Commit point: that of the publisher.

Steps, and what a crash after each leaves behind:

    record the job      a job that nobody works on: abandoned by the next one of the table, after its lease
    write files         the same, and files that nothing refers to, which cleanup deletes
    publish             the four steps of the publisher; a rebase is a publish anew, under an operation of its own
    record the end      nothing; before it, a job that is published and shown as running until its lease passes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from headwater.catalog.errors import CatalogBusyError, ExpectedVersionMismatchError, RefConflictError
from headwater.catalog.model import Ref, TableContent, TableKey
from headwater.catalog.port import Held
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.ids import Ulid, new_ulid, time_of, ulid_of
from headwater.kernel.logs import Log
from headwater.kernel.retry import Retry, RetryPolicy
from headwater.publish.drift import refuse_drift
from headwater.publish.indices.building import with_statistics
from headwater.publish.indices.decide import declared_by, with_declared
from headwater.publish.model import TableWish, Wish, WriterKind
from headwater.publish.optimize.decide import LARGEST, that_hold
from headwater.publish.optimize.model import End, Job, Plan, Progress, Purpose, Run, RunState, Spec, TableOutcome
from headwater.publish.optimize.outcomes import counted, given_up, planned, published
from headwater.publish.optimize.planning import plan_of
from headwater.publish.service import AnyWriting
from headwater.publish.state import State
from headwater.tables.layout import target_file_bytes
from headwater.tables.model import ScanPlan, Staged, TableVersion
from headwater.tables.operations import Rewritten, rewrite_files, stage_rewrite
from headwater.tables.scan import plan_scan
from headwater.tables.snapshot import Staging

# How often a job is rebased because others published first.
REBASES = 5
JOB = "headwater.compaction.job"

Stand = Callable[[], AbstractContextManager[tuple[State, Held]]]

_MOVED = (ExpectedVersionMismatchError, RefConflictError, CatalogBusyError)
_KINDS = {Purpose.COMPACT: WriterKind.OPTIMIZE, Purpose.INDICES: WriterKind.INDICES}
_MESSAGES = {Purpose.COMPACT: "optimize", Purpose.INDICES: "build the indices of"}

_log = Log("optimize")


@dataclass(frozen=True)
class _Stood:
    """The table as it was found: what the branch pins, and what is in it."""

    ref: Ref
    pinned: TableContent
    version: TableVersion
    scan: ScanPlan


@dataclass
class _Work:
    """A job on its way: what was read, what has been written, and the run's lease."""

    job: Job
    run: Run
    read: ScanPlan
    plan: Plan
    written: tuple[Rewritten, ...] = ()


class Rewriter:
    """Carries out jobs. `stand` gives the branch as it is now, held."""

    def __init__(self, writing: AnyWriting, stand: Stand, *, actor: str, progress: Progress | None = None) -> None:
        self._writing = writing
        self._stand = stand
        self._progress = progress
        self._actor = actor

    def look(self, spec: Spec) -> TableOutcome:
        """What would be done; changes nothing."""
        with self._stand() as (state, held):
            stood = self._find(state, spec)
            plan = plan_of(state.files, stood.scan, spec)
            held.check()
        return planned(spec, plan)

    def run(self, spec: Spec) -> TableOutcome:
        """Do it, on whatever the branch holds in the end."""
        with self._stand() as (state, held):
            stood = self._find(state, spec)
            work = self._begin(state, stood, spec)
            if work is None:
                return TableOutcome(spec.table, End.NOTHING)
            with self._ending(work):
                self._write(work)
                held.check()  # everything that was read was there
        with self._ending(work):
            return self._land(work)

    def _land(self, work: _Work) -> TableOutcome:
        """Publish on the version that is there; again when others were first, and as long as something holds (P11)."""
        patience = Retry(_PATIENCE, self._writing.clock, self._writing.randomness).patience()
        while True:
            with self._stand() as (state, held):
                stood = self._find_again(state, work)
                if stood is None or not self._rebase(work, stood):
                    return self._give_up(work, "others changed the same files, or what was to be built, meanwhile")
                try:
                    return self._publish(work, stood, held)
                except _MOVED as error:
                    _log.info("others published first", job=work.job.id, error=error.message)
            if not patience.wait():
                return self._give_up(work, f"others published first, {REBASES + 1} times in a row")
            work.run = replace(work.run, rebases=work.run.rebases + 1)

    @contextmanager
    def _ending(self, work: _Work) -> Iterator[None]:
        """A run that fails, or is asked to stop, says so; one that is killed cannot."""
        try:
            yield
        except BaseException as error:
            self._writing.jobs.end(work.job.id, work.run, RunState.FAILED, why=_said(error))
            raise

    # The steps

    def _find(self, state: State, spec: Spec) -> _Stood:
        """The table, whose head must be where its pin is: nothing is written to one that has drifted."""
        stood = _stood(state, spec.table)
        refuse_drift(
            self._writing,
            state.ref,
            spec.table,
            stood.pinned,
            stood.version.metadata,
            pending_too=spec.purpose is Purpose.INDICES,
        )
        return stood

    def _find_again(self, state: State, work: _Work) -> _Stood | None:
        """The same table on a later version; None when it has gone, or another has its name (P12)."""
        content = state.content(work.job.spec.table)
        if not isinstance(content, TableContent) or content.content_id != work.job.incarnation:
            return None
        if state.ref.incarnation != work.job.branch_incarnation:
            return None
        return _stood(state, work.job.spec.table)

    def _begin(self, state: State, stood: _Stood, spec: Spec) -> _Work | None:
        plan = plan_of(state.files, stood.scan, spec)
        if plan.is_empty:
            return None
        files, size_bytes, _ = counted(plan)
        job = Job(
            new_ulid(self._writing.clock, self._writing.randomness),
            spec,
            self._actor,
            stood.ref.incarnation,
            stood.pinned.content_id,
            stood.pinned.metadata_location,
            len(plan.groups),
            files,
            size_bytes,
        )
        run = self._writing.jobs.begin(job)
        hit(Failpoint.OPTIMIZE_AFTER_JOB)
        return _Work(job, run, stood.scan, plan)

    def _write(self, work: _Work) -> None:
        staging, written = replace(self._writing.staging(), operation=work.job.id), []
        wanted = work.job.spec.target_size_bytes or target_file_bytes(work.read.metadata)
        for group in work.plan.groups:
            largest = max(wanted, *(task.file.file_size_in_bytes for task in group))
            target = int(largest * LARGEST)
            written.append(rewrite_files(staging, work.read, group, sink=self._writing.files, target_size_bytes=target))
            self._pulse(work)
            if self._progress is not None:
                self._progress(work.job.spec.table, len(written), len(work.plan.groups))
        work.written = tuple(written)
        hit(Failpoint.OPTIMIZE_AFTER_FILES)

    def _rebase(self, work: _Work, stood: _Stood) -> bool:
        """Keep the groups that hold on the later version; whether anything is left to be done.

        Statistics are those that this version declares: a column may have gone, or have another name by now.
        """
        had, metadata = bool(work.written), stood.version.metadata
        work.written = that_hold(work.written, work.read, stood.scan)
        if had and not work.written:
            return False
        work.plan = with_declared(declared_by(metadata, strict=False), metadata, work.plan)
        return not work.plan.is_empty

    def _publish(self, work: _Work, stood: _Stood, held: Held) -> TableOutcome:
        staging = self._staging(work)
        staged = with_statistics(
            staging,
            stood.version,
            stood.scan,
            stage_rewrite(staging, stood.version, work.written) if work.written else None,
            columns=work.plan.statistics,
            partitions=work.plan.partition_statistics,
            pulse=lambda: self._pulse(work),
        )
        self._writing.jobs.check(work.job.id)
        held.check()
        commit = self._writing.publisher.publish(self._wish(work, stood, staging.operation, staged))
        self._writing.jobs.end(work.job.id, work.run, RunState.PUBLISHED, commit=commit.hash)
        return published(work.job, work.run, work.plan, work.written, commit)

    def _wish(self, work: _Work, stood: _Stood, operation: Ulid, staged: Staged) -> Wish:
        spec = work.job.spec
        return Wish(
            kind=_KINDS[spec.purpose],
            actor=self._actor,
            message=f"{_MESSAGES[spec.purpose]} {spec.table}",
            branch=spec.branch,
            branch_incarnation=stood.ref.incarnation,
            operation=operation,
            tables=(TableWish(spec.table, stood.pinned, staged),),
            properties={JOB: work.job.id},
        )

    def _staging(self, work: _Work) -> Staging:
        """The job is the operation of its first attempt; later ones have their own, of the same time (invariant 3)."""
        if not work.run.rebases:
            return replace(self._writing.staging(), operation=work.job.id)
        began_ms = round(time_of(work.job.id).timestamp() * 1000)
        operation = ulid_of((began_ms << 80) | int.from_bytes(self._writing.randomness.randbytes(10), "big"))
        return replace(self._writing.staging(), operation=operation)

    def _pulse(self, work: _Work) -> None:
        work.run = self._writing.jobs.renew(work.job.id, work.run)

    def _give_up(self, work: _Work, why: str) -> TableOutcome:
        self._writing.jobs.end(work.job.id, work.run, RunState.GIVEN_UP, why=why)
        return given_up(work.job, work.run, why)


_PATIENCE = RetryPolicy(attempts=REBASES + 1, first_seconds=0.1, longest_seconds=2.0, budget_seconds=60.0)


def _stood(state: State, key: TableKey) -> _Stood:
    version, pinned = state.table(key), state.content(key)
    assert isinstance(pinned, TableContent)
    return _Stood(state.ref, pinned, version, plan_scan(state.files, version.metadata))


def _said(error: BaseException) -> str:
    return error.message if isinstance(error, HeadwaterError) else type(error).__name__
