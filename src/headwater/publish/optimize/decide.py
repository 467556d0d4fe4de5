"""Which files are written again, whether that still holds on a later version, and whose turn it is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from pyiceberg.manifest import FileFormat

from headwater.kernel.ids import Ulid
from headwater.publish.optimize.errors import RunLostError, TableHeldError
from headwater.publish.optimize.model import Compactions, Job, Run, RunState, Spec
from headwater.tables.model import FileTask, ScanPlan
from headwater.tables.operations import Rewritten
from headwater.tables.scan import partition_key, target_of
from headwater.tables.settling import same_deletes

# A file is small below this part of the wanted size, as in Iceberg's own rewrites.
SMALL = 0.75
# A file may get larger than wanted by this much, so that no crumb is left over.
LARGEST = 1.5
# How many runs that have ended are kept, for people to look at.
ENDED_KEPT = 100


# Which files


def plan_groups(tasks: Sequence[FileTask], spec: Spec, target_bytes: int) -> tuple[tuple[FileTask, ...], ...]:
    """The files that are to be written again: small ones together, and those of which much is deleted.

    Files of one partition are packed in the order of their age, so that rows that came together stay together.
    """
    by_partition: dict[tuple[object, ...], list[FileTask]] = {}
    for task in sorted(tasks, key=lambda each: each.sequence_number):
        if task.file.file_format == FileFormat.PARQUET and (_is_small(task, target_bytes) or folds(task, spec)):
            by_partition.setdefault(partition_key(task.file), []).append(task)
    groups = [group for chosen in by_partition.values() for group in _packed(chosen, target_bytes)]
    return tuple(group for group in groups if _is_worth_it(group, spec))


def folds(task: FileTask, spec: Spec) -> bool:
    """Whether the deletes of a file are folded into it."""
    if not task.has_deletes:
        return False
    ratio = deleted_ratio(task)
    return spec.all_deletes or ratio is None or ratio >= spec.delete_ratio


def deleted_ratio(task: FileTask) -> float | None:
    """Which part of the file's rows is deleted; None when metadata alone does not say it."""
    if task.equality or any(target_of(each) != task.file.file_path for each in task.positions):
        return None
    gone = task.vector.record_count if task.vector else sum(each.record_count for each in task.positions)
    return min(1.0, gone / max(1, task.file.record_count))


def _is_small(task: FileTask, target_bytes: int) -> bool:
    return task.file.file_size_in_bytes < target_bytes * SMALL


def _packed(tasks: Sequence[FileTask], target_bytes: int) -> list[tuple[FileTask, ...]]:
    groups: list[list[FileTask]] = []
    room = 0.0
    for task in tasks:
        live_bytes = task.file.file_size_in_bytes * (1 - (deleted_ratio(task) or 0))
        if not groups or live_bytes > room:
            groups.append([])
            room = target_bytes
        groups[-1].append(task)
        room -= live_bytes
    return [tuple(each) for each in groups]


def _is_worth_it(group: Sequence[FileTask], spec: Spec) -> bool:
    return len(group) >= max(2, spec.min_files) or any(folds(task, spec) for task in group)


# On a later version


def that_hold(groups: Sequence[Rewritten], read: ScanPlan, now: ScanPlan) -> tuple[Rewritten, ...]:
    """The groups that may take the place of their inputs on a later version than the one that was read (P11).

    Every input is still there, under the same number, with the same row ids and the same deletes; otherwise a delete
    would be lost, or an id. Files that went over to another partition spec do not hold: an equality delete of that
    spec, which did not apply to the inputs, would apply to them.
    """
    if _snapshot_id(read) == _snapshot_id(now):
        return tuple(groups)
    if read.metadata.format_version != now.metadata.format_version:
        return ()
    found = {task.file.file_path: task for task in now.tasks}
    return tuple(each for each in groups if _holds(each, found))


def _snapshot_id(scan: ScanPlan) -> int | None:
    return scan.snapshot.snapshot_id if scan.snapshot else None


def _holds(group: Rewritten, found: Mapping[str, FileTask]) -> bool:
    specs = {file.spec_id for file in (*(task.file for task in group.tasks), *group.added)}
    return len(specs) == 1 and all(_is_unchanged(task, found.get(task.file.file_path)) for task in group.tasks)


def _is_unchanged(task: FileTask, now: FileTask | None) -> bool:
    return (
        now is not None
        and same_deletes(task, now)
        and task.sequence_number == now.sequence_number
        and task.file.first_row_id == now.file.first_row_id
    )


# Whose turn it is


def begun(state: Compactions, job: Job, run: Run, *, now: datetime, skew: timedelta) -> Compactions:
    """The jobs with this one running. Who holds the table is waited for; a dead run is abandoned."""
    runs = dict(state.runs)
    for number, (other, its) in state.runs.items():
        if not _is_of_same_table(other, job) or its.state is not RunState.RUNNING:
            continue
        if now < its.lease_until + skew:
            raise TableHeldError(job.spec.table, job.spec.branch, number, other.actor, its.lease_until + skew)
        runs[number] = (other, replace(its, state=RunState.ABANDONED, ended_at=now, why="its lease passed"))
    return _trimmed({**runs, job.id: (job, run)})


def renewed(state: Compactions, job: Ulid, lease_until: datetime) -> Compactions:
    """The jobs with a longer lease for this one, which must still be running."""
    found, run = running(state, job)
    return Compactions({**state.runs, job: (found, replace(run, lease_until=lease_until))})


def ended(state: Compactions, job: Ulid, end: Run) -> Compactions:
    """The jobs with this one at its end; one that was abandoned meanwhile and landed after all is told as it ended."""
    if job not in state.runs:
        return state
    return _trimmed({**state.runs, job: (state.runs[job][0], end)})


def running(state: Compactions, job: Ulid) -> tuple[Job, Run]:
    """The job and its run, which nobody else has taken for dead."""
    found = state.runs.get(job)
    if found is None or found[1].state is not RunState.RUNNING:
        raise RunLostError(job)
    return found


def _is_of_same_table(one: Job, other: Job) -> bool:
    return (one.incarnation, one.branch_incarnation) == (other.incarnation, other.branch_incarnation)


def _trimmed(runs: Mapping[Ulid, tuple[Job, Run]]) -> Compactions:
    over = [number for number, (_, run) in sorted(runs.items()) if run.state is not RunState.RUNNING]
    dropped = frozenset(over[: max(0, len(over) - ENDED_KEPT)])
    return Compactions({number: each for number, each in sorted(runs.items()) if number not in dropped})
