"""What the next run would do: its own diff and plan, without claims and lists. Nothing is changed.

What would stop the run stops this too, and is told in the same words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.sync.diff.protocol import diff_table, find_goal
from headwater.sync.opening import Ground, open_syncing
from headwater.sync.plan.model import BatchLimits
from headwater.sync.plan.presence import HeadPresence
from headwater.sync.plan.protocol import Planning, foreseen
from headwater.sync.runs.model import RunSpec
from headwater.sync.steps import PLAN_HERE, entries_of, needed_files


@dataclass(frozen=True)
class Outlook:
    """What a run would change, and copy. Of very many files it is not looked which are there: then that is None."""

    tables: tuple[str, ...]
    others: tuple[str, ...]
    files: int
    copied_files: int | None
    copied_bytes: int | None


def look_ahead(ground: Ground, spec: RunSpec) -> Outlook:
    """What the run of this spec would do."""
    sync, ahead = ground.settings.sync, open_syncing(ground).status().replica.ahead
    planning = Planning(
        ground.files,
        ground.generation.resolver(ground.region),
        HeadPresence(ground.files, workers=sync.verify_concurrency),
        lambda *_: (),  # nothing is claimed
        "",  # and no list is written
        BatchLimits(sync.batch_files, sync.batch_bytes),
        spec.shipped,
    )
    goal = find_goal(ground.catalog, spec.shown, spec.target, spec.tables, ahead)
    diffs = [diff_table(planning.files, each, spec.history) for each in goal.tables]
    manifests = tuple({each.manifest_path: each for diff in diffs for each in diff.manifests}.values())
    statistics = [each for diff in diffs for each in diff.statistics]
    made = Outlook(
        tuple(sorted(str(each.key) for each in goal.tables)),
        tuple(sorted(str(key) for key in goal.others)),
        entries_of(manifests) + len(statistics),
        None,
        None,
    )
    if made.files > PLAN_HERE:
        return made
    files = list(foreseen(planning, needed_files(planning, manifests, statistics)))
    copied = [each.size_bytes for each in files if not each.is_present]
    return replace(made, files=len(files), copied_files=len(copied), copied_bytes=sum(copied))
