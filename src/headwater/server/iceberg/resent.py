"""Whether a change that cannot be made was made before: its sender did not hear the answer, and sends it again. Pure.

To say that such a change has lost would make its sender delete files that the lake needs (P5); to say that it has won
would tell of updates that may never have been. A snapshot is known by its manifest list, which one engine writes once.
Where it is gone again, its sequence number tells, which is given once. A request lands as a whole, but the same
snapshot may come in another request: so all that was asked for must be in force, or nothing is said of it.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, AssignUUIDUpdate, SetSnapshotRefUpdate, TableUpdate

from headwater.kernel.errors import HeadwaterError
from headwater.tables.updates import apply_updates


class Sending(enum.Enum):
    """What is known of a change that is sent: it is not in the table, or is, or nobody can say."""

    FIRST = enum.auto()
    AGAIN = enum.auto()
    UNKNOWN = enum.auto()


def added_snapshots(updates: Iterable[TableUpdate]) -> list[Snapshot]:
    """The snapshots that the change brings."""
    return [each.snapshot for each in updates if isinstance(each, AddSnapshotUpdate)]


def sending(
    updates: Sequence[TableUpdate], metadata: TableMetadata, now: datetime, gone: Collection[Snapshot] = ()
) -> Sending:
    """Whether this very change is in the table; `gone` are snapshots that older documents of the table show."""
    held = {each.snapshot_id: each.manifest_list for each in (*gone, *metadata.snapshots)}
    for each in added_snapshots(updates):
        if each.snapshot_id in held:
            if held[each.snapshot_id] != each.manifest_list:
                return Sending.FIRST
        elif not was_given(each, metadata) or any(_is_numbered_alike(each, other) for other in gone):
            return Sending.FIRST
    return Sending.AGAIN if _is_in_force(updates, metadata, now) else Sending.UNKNOWN


def creating(updates: Sequence[TableUpdate], metadata: TableMetadata, now: datetime) -> Sending:
    """The same for a staged create: whether the table that is there is the very one.

    Without rows there is no file that its maker would delete: what is not the very same has lost.
    """
    given = [each.uuid for each in updates if isinstance(each, AssignUUIDUpdate)]
    found = sending(updates, metadata, now) if metadata.table_uuid in given else Sending.FIRST
    return Sending.FIRST if found is Sending.UNKNOWN and not added_snapshots(updates) else found


def was_given(snapshot: Snapshot, metadata: TableMetadata) -> bool:
    """Whether some snapshot had this one's sequence number, and is gone: it may have been this one."""
    number = snapshot.sequence_number
    if isinstance(metadata, TableMetadataV1) or number is None or number > metadata.last_sequence_number:
        return False
    return not any(_is_numbered_alike(snapshot, each) for each in metadata.snapshots)


def _is_numbered_alike(one: Snapshot, other: Snapshot) -> bool:
    return one.sequence_number == other.sequence_number


def _is_in_force(updates: Sequence[TableUpdate], metadata: TableMetadata, now: datetime) -> bool:
    """Whether everything that was asked for is so, as far as the table still shows it."""
    added = {each.snapshot_id for each in added_snapshots(updates)}
    if not added <= {each.snapshot_id for each in metadata.snapshots}:
        return False
    rest = []
    for each in updates:
        if isinstance(each, AddSnapshotUpdate):
            continue
        if isinstance(each, SetSnapshotRefUpdate) and each.snapshot_id in added:
            if each.snapshot_id not in _been_at(metadata, each.ref_name):
                return False
            continue
        rest.append(each)
    try:
        return apply_updates(metadata, rest, now) is metadata
    except HeadwaterError:
        return False


def _been_at(metadata: TableMetadata, ref: str) -> set[int]:
    """The snapshots that a ref is at, or has passed."""
    found = {each.snapshot_id for each in metadata.snapshot_log} if ref == MAIN_BRANCH else set[int]()
    at = metadata.refs[ref].snapshot_id if ref in metadata.refs else None
    while at is not None and at not in found:
        found.add(at)
        snapshot = metadata.snapshot_by_id(at)
        at = snapshot.parent_snapshot_id if snapshot is not None else None
    return found
