"""What has to be localised, and by whom. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.sync.localise.model import ManifestWork
from headwater.sync.runs.model import History
from headwater.tables.relocate_lists import ListLine

# With less to do, others would take longer to be asked than it takes to do it. About a second of work on one core.
SPREAD_FROM = 100_000
# A delete file is read and written; an entry in a manifest of data files is not.
_DELETES_WEIGH = 1_000
# Where a manifest list does not say how many entries a manifest has.
_BYTES_PER_ENTRY = 100


@dataclass(frozen=True)
class SnapshotToKeep:
    """A snapshot that the replica shall have. `version` tells it from any other that had its manifest list's name."""

    snapshot_id: int
    manifest_list: str
    version: str


def snapshots_to_keep(document: Mapping[str, Any], history: History) -> tuple[SnapshotToKeep, ...]:
    """All that the table has, or the current one."""
    current = document.get("current-snapshot-id")
    return tuple(
        SnapshotToKeep(
            each["snapshot-id"],
            each["manifest-list"],
            f"{each['snapshot-id']}:{each.get('sequence-number') or 0}:{each.get('timestamp-ms')}",
        )
        for each in document.get("snapshots") or ()
        if history is History.FULL or each["snapshot-id"] == current
    )


def work_of(line: ListLine) -> ManifestWork:
    """What a line of a manifest list asks for."""
    version = f"{line.length_bytes}:{line.added_snapshot_id}:{line.sequence_number}"
    return ManifestWork(line.location, version, line.is_deletes, line.length_bytes, line.entries)


def weight_of(work: ManifestWork) -> int:
    """How much there is to do, in entries of a manifest of data files."""
    entries = work.length_bytes // _BYTES_PER_ENTRY if work.entries is None else work.entries
    return 1 + entries * (_DELETES_WEIGH if work.is_deletes else 1)


def is_worth_spreading(works: Iterable[ManifestWork]) -> bool:
    """Whether others should help."""
    return sum(weight_of(each) for each in works) >= SPREAD_FROM


def in_tasks(works: Sequence[ManifestWork], most: int) -> list[list[ManifestWork]]:
    """At most so many tasks of about the same weight: the heaviest first, each to whoever has least."""
    tasks: list[list[ManifestWork]] = [[] for _ in range(max(1, min(most, len(works))))]
    loads = [0] * len(tasks)
    for work in sorted(works, key=lambda each: (-weight_of(each), each.source)):
        lightest = loads.index(min(loads))
        tasks[lightest].append(work)
        loads[lightest] += weight_of(work)
    return [each for each in tasks if each]
