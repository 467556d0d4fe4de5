"""Which tables, manifest lists, manifests and statistics have to be looked at. Pure.

Never by snapshot ids: a snapshot that was expired or rewritten takes the id with it, and its live files stay. What is
new is what the replica's version of the table does not name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from pyiceberg.manifest import ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from headwater.catalog.model import Content, Difference, NamespaceContent, TableContent, TableKey, ViewContent
from headwater.sync.diff.model import Goal, Needed, TableGoal
from headwater.sync.runs.model import History
from headwater.tables.reach import ReachKind


def goal_of_all(contents: Iterable[tuple[TableKey, Content]], subset: Sequence[TableKey] | None) -> Goal:
    """Everything at the target, with nothing known of what the replica has."""
    return _goal([Difference(key, None, content) for key, content in contents], subset, is_full=subset is None)


def goal_of_changes(differences: Iterable[Difference], subset: Sequence[TableKey] | None) -> Goal:
    """What changed on `main` between the commit that the replica shows and the target."""
    return _goal(differences, subset, is_full=False)


def with_ahead(
    differences: Iterable[Difference], ahead: Sequence[TableKey], contents: Mapping[TableKey, Content]
) -> tuple[Difference, ...]:
    """The differences, and names that the replica shows otherwise: of these nothing that it had is taken for there.

    A subset has moved them on, so what they had before may have been collected since. `contents` are the target's.
    """
    others = [each for each in differences if each.key not in ahead]
    return (*others, *(Difference(key, None, contents.get(key)) for key in ahead))


def _goal(differences: Iterable[Difference], subset: Sequence[TableKey] | None, *, is_full: bool) -> Goal:
    tables: list[TableGoal] = []
    others: dict[TableKey, Content | None] = {}
    differences = list(differences)
    # By identity: a table that was renamed has its files under its old name, and one made anew under its name has none.
    befores = {each.before.content_id: each.before for each in differences if isinstance(each.before, TableContent)}
    for each in differences:
        if not _is_wanted(each.key, each.after, subset):
            continue
        match each.after:
            case TableContent():
                tables.append(TableGoal(each.key, each.after, befores.get(each.after.content_id)))
            case ViewContent() | NamespaceContent() | None:
                others[each.key] = each.after
            case _:
                assert_never(each.after)
    return Goal(tuple(tables), others, is_full)


def _is_wanted(key: TableKey, after: Content | None, subset: Sequence[TableKey] | None) -> bool:
    """Whether a subset asks for it; a table needs the namespaces around it."""
    if subset is None or key in subset:
        return True
    return isinstance(after, NamespaceContent) and any(each.is_in(key.elements) for each in subset)


def kept(metadata: TableMetadata, history: History) -> list[Snapshot]:
    """The snapshots that the replica shall have."""
    if history is History.FULL:
        return list(metadata.snapshots)
    current = metadata.current_snapshot()
    return [] if current is None else [current]


def lists_to_read(after: TableMetadata, before: TableMetadata | None, history: History) -> list[Snapshot]:
    """The snapshots whose manifest lists the replica's version does not name."""
    known = set() if before is None else {each.manifest_list for each in kept(before, history)}
    return [each for each in kept(after, history) if each.manifest_list not in known]


def manifests_to_read(found: Iterable[ManifestFile], known: Iterable[ManifestFile]) -> dict[str, ManifestFile]:
    """Manifests, by path, that are in lists to read and not in the list that the replica shows."""
    paths = {each.manifest_path for each in known}
    return {each.manifest_path: each for each in found if each.manifest_path not in paths}


def statistics_needed(after: TableMetadata, before: TableMetadata | None, history: History) -> list[Needed]:
    """Statistics that the replica's version does not name; those of snapshots that it does not keep stay away."""
    wanted = {each.snapshot_id for each in kept(after, history)} if history is History.CURRENT else None
    # Of what the document of before names, the replica has what it kept.
    had = None if before is None or wanted is None else {each.snapshot_id for each in kept(before, history)}
    known = set(_statistics(before, had)) if before is not None else set()
    return [each for each in _statistics(after, wanted) if each not in known]


def _statistics(metadata: TableMetadata, snapshots: set[int] | None) -> list[Needed]:
    named: Mapping[ReachKind, Sequence[tuple[int, str, int]]] = {
        ReachKind.STATISTICS: [
            (each.snapshot_id, each.statistics_path, each.file_size_in_bytes) for each in metadata.statistics
        ],
        ReachKind.PARTITION_STATISTICS: [
            (each.snapshot_id, each.statistics_path, each.file_size_in_bytes) for each in metadata.partition_statistics
        ],
    }
    return [
        Needed(kind, path, size_bytes)
        for kind, entries in named.items()
        for snapshot_id, path, size_bytes in entries
        if snapshots is None or snapshot_id in snapshots
    ]
