"""How a job is told of, by what was planned and what was written. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.catalog.model import Commit
from headwater.publish.optimize.model import End, Job, Plan, Run, Spec, TableOutcome
from headwater.tables.operations import Rewritten


def planned(spec: Spec, plan: Plan) -> TableOutcome:
    """What would be done."""
    files, size_bytes, with_deletes = counted(plan)
    return TableOutcome(
        spec.table,
        End.NOTHING if plan.is_empty else End.PLANNED,
        files_before=files,
        files_after=len(plan.groups),
        bytes_before=size_bytes,
        files_with_deletes=with_deletes,
        statistics=plan.statistics,
    )


def published(job: Job, run: Run, plan: Plan, written: Sequence[Rewritten], commit: Commit) -> TableOutcome:
    """What was done."""
    tasks = [task for group in written for task in group.tasks]
    added = [file for group in written for file in group.added]
    left_out = len(plan.groups) - len(written)
    return TableOutcome(
        job.spec.table,
        End.PUBLISHED,
        files_before=len(tasks),
        files_after=len(added),
        bytes_before=sum(task.file.file_size_in_bytes for task in tasks),
        bytes_after=sum(file.file_size_in_bytes for file in added),
        files_with_deletes=sum(task.has_deletes for task in tasks),
        statistics=plan.statistics,
        rebases=run.rebases,
        job=job.id,
        commit=commit,
        why=f"{left_out} groups were left out, because others changed their files meanwhile" if left_out else "",
    )


def given_up(job: Job, run: Run, why: str) -> TableOutcome:
    """Why nothing was done."""
    return TableOutcome(
        job.spec.table,
        End.GIVEN_UP,
        rebases=run.rebases,
        job=job.id,
        why=f"{why}; nothing was changed, try again",
    )


def counted(plan: Plan) -> tuple[int, int, int]:
    """How many files are written again, their bytes, and how many of them have deletes."""
    inputs = plan.inputs
    return len(inputs), sum(each.file.file_size_in_bytes for each in inputs), sum(each.has_deletes for each in inputs)
