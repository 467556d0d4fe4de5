"""The seven steps of a run, each on what the database says of it: doing one again changes nothing.

    diff        what the target needs that the replica may lack: read, so that what cannot be read stops the run here
    plan        files with their places, claimed, in batches; the batches are noted
    copy        batch by batch; each is noted when all of it is there
    verify      the same, with the files that are there already among them
    localise    metadata that names the region's files; what came out is noted
    promote     the replica moves
    observe     the region's readers see it

Everything that a step needs of the ones before it is in the database, in the lists of the batches, or follows from the
run's commits, which never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol

from pyiceberg.manifest import ManifestFile

from headwater.catalog.model import Commit, Content, TableContent, TableKey, ViewContent
from headwater.catalog.port import Catalog
from headwater.kernel.clock import Clock
from headwater.kernel.errors import CorruptError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.regions.claims import ClaimRun, Claims
from headwater.sync.copy.model import BatchReport, CopyBatch, CopyItem
from headwater.sync.copy.protocol import Copier
from headwater.sync.diff.manifest import live_files
from headwater.sync.diff.model import Goal, Needed
from headwater.sync.diff.protocol import TableDiff, diff_table, find_goal
from headwater.sync.localise.decide import is_worth_spreading
from headwater.sync.localise.manifest import localise_manifests
from headwater.sync.localise.model import ManifestDone, ManifestWork, Place
from headwater.sync.localise.protocol import localise
from headwater.sync.localise.view import localise_view
from headwater.sync.model import Replica, Times
from headwater.sync.observe.protocol import Observer, Seen
from headwater.sync.plan.model import PlannedFile
from headwater.sync.plan.protocol import Planning, plan, read_batch
from headwater.sync.promote.protocol import Ended, Promoter, Wanted
from headwater.sync.runs.model import PlannedBatch, Run, Step
from headwater.sync.runs.store import Runs
from headwater.sync.verify.model import VerifyItem
from headwater.sync.verify.protocol import Verifier

# Below so many files a plan is made here: they fit into memory, and others would take longer to be asked.
PLAN_HERE = 50_000


class Helpers(Protocol):
    """Others who do the work when there is much of it: Spark."""

    def plan(self, manifests: Sequence[ManifestFile], others: Sequence[Needed]) -> Iterator[PlannedBatch]:
        """The batches of a plan."""
        ...

    def localise(self, works: Sequence[ManifestWork]) -> Iterable[ManifestDone]:
        """Manifests, localised."""
        ...


@dataclass(frozen=True)
class Parts:
    """What the steps of one run are done with; `claimed` is the run's hold on files, renewed elsewhere."""

    catalog: Catalog
    runs: Runs
    claims: Claims
    claimed: ClaimRun
    planning: Planning
    place: Place
    copier: Copier
    verifier: Verifier
    promoter: Promoter
    observer: Observer
    clock: Clock
    branch: str
    made_with: str
    promote_within: timedelta
    helpers: Callable[[], Helpers] | None = None


class Steps:
    """One run, step by step, under one fence."""

    def __init__(self, parts: Parts, run: Run, fence: int) -> None:
        self._parts = parts
        self._run = run
        self._fence = fence
        self._diffs: tuple[TableDiff, ...] | None = None

    def at(self, run: Run) -> None:
        """The run as it stands now."""
        self._run = run

    def diff(self) -> Goal:
        """Read what the target needs."""
        self._parts.observer.look_for(self._run.spec.target)
        goal = self._goal()
        self._read(goal)
        return goal

    def plan(self) -> tuple[PlannedBatch, ...]:
        """Claim and look for every file, and note the batches."""
        parts = self._parts
        diffs = self._read(self._goal())
        manifests = tuple({each.manifest_path: each for diff in diffs for each in diff.manifests}.values())
        statistics = [each for diff in diffs for each in diff.statistics]
        helpers = parts.helpers() if parts.helpers is not None and entries_of(manifests) > PLAN_HERE else None
        batches = (
            helpers.plan(manifests, statistics)
            if helpers is not None
            else plan(parts.planning, needed_files(parts.planning, manifests, statistics))
        )
        parts.runs.plan(self._run, batches, self._fence)
        hit(Failpoint.SYNC_AFTER_PLAN)
        return parts.runs.batches(self._run)

    def copy(self) -> None:
        """Copy what is not there."""
        parts, run = self._parts, self._run
        waiting = (each for each in parts.runs.batches(run) if not each.is_copied)

        def done(report: BatchReport) -> None:
            parts.runs.note(run, int(report.batch), self._fence, is_copied=True)

        parts.copier.run((self._to_copy(each) for each in waiting), done, parts.runs.backlog(run.spec.region))

    def verify(self) -> None:
        """Look at every file, whoever brought it."""
        parts, run = self._parts, self._run
        for batch in parts.runs.batches(run):
            if not batch.is_verified:
                files = read_batch(parts.planning.files, batch)
                parts.verifier.verify(_to_verify(each) for each in files)
                parts.runs.note(run, batch.number, self._fence, is_verified=True)

    def localise(self) -> dict[TableKey, Content | None]:
        """Write metadata that names the region's files, and note what came out."""
        parts, goal = self._parts, self._goal()
        shown = self._shown([each.key for each in goal.tables])
        made: dict[TableKey, Content | None] = {}
        for each in goal.tables:
            made[each.key] = self._localised(each.after, shown.get(each.key))
        for key, content in goal.others.items():
            made[key] = self._localised_view(content) if isinstance(content, ViewContent) else content
        parts.runs.keep_localised(self._run, made, self._fence)
        hit(Failpoint.SYNC_AFTER_LOCALISE)
        return made

    def promote(self) -> Ended:
        """Move the replica, if it may."""
        parts, spec = self._parts, self._run.spec
        localised = parts.runs.localised(self._run)
        ended = self._run.ended
        times = Times(
            spec.target.created_at, ended[Step.COPY], ended[Step.LOCALISE], ended[Step.LOCALISE]
        )  # the last is set by whoever commits
        wanted = Wanted(
            spec.region,
            self._run.id,
            self._replica(),
            spec.target,
            localised,
            is_full=self._goal().is_full,
            is_subset=spec.tables is not None,
            made_with=parts.made_with,
            times=times,
        )
        moved = parts.promoter.promote(wanted, self._held)
        parts.observer.look_for(spec.target)  # the gate has waited for it
        return moved

    def observe(self) -> Seen:
        """Wait until the region's readers see the promoted commit."""
        parts, run = self._parts, self._run
        return parts.observer.observe(parts.branch, self.promoted(), run.spec.target, parts.runs.localised(run))

    def promoted(self) -> Commit:
        """The commit that this run has made."""
        if self._run.promoted is None:
            raise CorruptError(f"run {self._run.id} has promoted nothing", run=self._run.id)
        return self._parts.catalog.commit_at(self._run.promoted)

    def _goal(self) -> Goal:
        spec = self._run.spec
        return find_goal(self._parts.catalog, spec.shown, spec.target, spec.tables, self._replica().ahead)

    def _replica(self) -> Replica:
        """The replica that the run was planned on."""
        return self._parts.promoter.replica_at(self._parts.branch, self._run.spec.replica_head)

    def _read(self, goal: Goal) -> tuple[TableDiff, ...]:
        if self._diffs is None:
            files, history = self._parts.planning.files, self._run.spec.history
            self._diffs = tuple(diff_table(files, each, history) for each in goal.tables)
        return self._diffs

    def _shown(self, keys: Sequence[TableKey]) -> Mapping[TableKey, Content]:
        return self._parts.catalog.content(self._run.spec.replica_head, keys)

    def _to_copy(self, batch: PlannedBatch) -> CopyBatch:
        files = read_batch(self._parts.planning.files, batch)
        items = tuple(_item(each) for each in files if not each.is_present)
        return CopyBatch(str(batch.number), items)

    def _localised(self, after: TableContent, shown: Content | None) -> TableContent:
        parts = self._parts
        promoted = shown.metadata_location if isinstance(shown, TableContent) else None
        made = localise(parts.place, after.metadata_location, spread=self._spread, promoted=promoted)
        return replace(after, metadata_location=made.location)

    def _spread(self, works: Sequence[ManifestWork]) -> Iterable[ManifestDone]:
        """Manifests, localised; a few of them here, with what is open already."""
        parts = self._parts
        if parts.helpers is None or not is_worth_spreading(works):
            return localise_manifests(parts.place, works)
        return parts.helpers().localise(works)

    def _localised_view(self, content: ViewContent) -> ViewContent:
        return replace(content, metadata_location=localise_view(self._parts.place, content.metadata_location))

    def _held(self) -> None:
        self._parts.claims.hold(self._parts.claimed, self._parts.promote_within.total_seconds())


def entries_of(manifests: Sequence[ManifestFile]) -> int:
    """How many files they name, as far as their lists say."""
    counts = ((each.added_files_count, each.existing_files_count) for each in manifests)
    return sum((added or 0) + (existing or 0) for added, existing in counts)


def needed_files(
    planning: Planning, manifests: Sequence[ManifestFile], statistics: Sequence[Needed]
) -> Iterator[Needed]:
    """Every file that the manifests name as live, and the statistics."""
    yield from statistics
    for manifest in manifests:
        yield from live_files(planning.files, manifest)


def _item(file: PlannedFile) -> CopyItem:
    return CopyItem(file.source, file.destination, file.size_bytes)


def _to_verify(file: PlannedFile) -> VerifyItem:
    return VerifyItem(_item(file), may_replace=not file.is_present, must_read=file.must_read)
