"""Reading what a run needs: catalog, documents, manifest lists. Manifests themselves are read elsewhere, by many.

Promise: every file that is live in a kept snapshot of a goal's table is in a manifest, or among the statistics, that
this names, or was needed by the version that the replica shows. Nothing is written here.

A commit of ten files on a table of a hundred thousand costs two documents, two manifest lists and one manifest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata

from headwater.catalog.errors import BehindHorizonError, CommitNotFoundError
from headwater.catalog.model import TableKey
from headwater.catalog.port import Catalog
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.logs import Log
from headwater.sync.diff.decide import (
    goal_of_all,
    goal_of_changes,
    lists_to_read,
    manifests_to_read,
    statistics_needed,
    with_ahead,
)
from headwater.sync.diff.model import Goal, Needed, TableGoal
from headwater.sync.model import Origin
from headwater.sync.runs.model import History
from headwater.tables.files import FileReader
from headwater.tables.manifests import read_manifest_list
from headwater.tables.metadata import decode_metadata

_log = Log("sync.diff")


@dataclass(frozen=True)
class TableDiff:
    """What has to be read of one table, and its statistics; its document is the target's."""

    goal: TableGoal
    metadata: TableMetadata
    manifests: tuple[ManifestFile, ...]
    statistics: tuple[Needed, ...]


def find_goal(
    catalog: Catalog,
    shown: Origin | None,
    target: Origin,
    subset: Sequence[TableKey] | None,
    ahead: Sequence[TableKey] = (),
) -> Goal:
    """What changed since the commit that the replica shows; everything, when that is not known or not kept.

    `ahead` are names that the replica shows otherwise than that commit does: they are looked at, changed or not.
    """
    if shown is not None:
        try:
            changes = catalog.diff(shown.hash, target.hash)
            if ahead:
                changes = with_ahead(changes, ahead, catalog.content(target.hash, ahead))
            return goal_of_changes(changes, subset)
        except (CommitNotFoundError, BehindHorizonError) as error:
            _log.info("a full diff: what the replica shows is not kept", shown=shown.hash, error=str(error))
    return goal_of_all(catalog.contents(target.hash), subset)


def diff_table(files: FileReader, goal: TableGoal, history: History) -> TableDiff:
    """The manifests of a table that the replica's version does not name."""
    after = decode_metadata(files.read(goal.after.metadata_location), goal.after.metadata_location)
    before = _before(files, goal)
    found: dict[str, ManifestFile] = {}
    for snapshot in lists_to_read(after, before, history):
        found.update((each.manifest_path, each) for each in read_manifest_list(files, snapshot))
    known = _known(files, before)
    manifests = manifests_to_read(found.values(), known)
    return TableDiff(goal, after, tuple(manifests.values()), tuple(statistics_needed(after, before, history)))


def _before(files: FileReader, goal: TableGoal) -> TableMetadata | None:
    """The document that the replica's version was made from. Without it more is looked at, and nothing is missed."""
    if goal.before is None or goal.before.content_id != goal.after.content_id:
        return None
    location = goal.before.metadata_location
    try:
        return decode_metadata(files.read(location), location)
    except HeadwaterError as error:
        _log.info("a full diff of a table: its older document cannot be read", table=str(goal.key), error=str(error))
        return None


def _known(files: FileReader, before: TableMetadata | None) -> Sequence[ManifestFile]:
    current = None if before is None else before.current_snapshot()
    if current is None:
        return ()
    try:
        return read_manifest_list(files, current)
    except HeadwaterError as error:
        _log.info("more is looked at: an older manifest list cannot be read", error=str(error))
        return ()
