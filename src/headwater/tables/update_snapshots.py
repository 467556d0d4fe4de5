"""Snapshots, refs and statistics of a table's document, changed as the Iceberg REST protocol describes it. Pure.

What is gone already is no error: two engines may expire the same snapshot. The history of the current snapshot stays in
the order of time, whatever the clocks of engines say: there are engines that cannot load a table where it is not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, TableMetadataV3
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import SetSnapshotRefUpdate

from headwater.kernel.errors import ConflictError


class SnapshotOvertakenError(ConflictError):
    """The snapshot was numbered for a table on which others have committed since."""

    def __init__(self, snapshot: int, why: str) -> None:
        super().__init__(
            f"snapshot {snapshot} is overtaken: {why}",
            hint="load the table again, make the snapshot anew, and retry",
            snapshot=snapshot,
        )


def with_snapshot(metadata: TableMetadata, snapshot: Snapshot) -> TableMetadata:
    """The document with one more snapshot, which no ref leads to yet."""
    if not (metadata.schemas and metadata.partition_specs and metadata.sort_orders):
        raise ValueError("a table has a schema, a spec and a sort order before it has a snapshot")
    if metadata.snapshot_by_id(snapshot.snapshot_id) is not None:
        raise ValueError(f"snapshot {snapshot.snapshot_id} is there already")
    if snapshot.schema_id is not None and snapshot.schema_id not in [each.schema_id for each in metadata.schemas]:
        raise ValueError(f"there is no schema {snapshot.schema_id}")
    following: dict[str, Any] = {
        "snapshots": [*metadata.snapshots, snapshot],
        "last_updated_ms": max(metadata.last_updated_ms, snapshot.timestamp_ms),
    }
    if not isinstance(metadata, TableMetadataV1):
        following["last_sequence_number"] = _sequence_number(metadata.last_sequence_number, snapshot)
    if isinstance(metadata, TableMetadataV3):
        following["next_row_id"] = _next_row_id(metadata.next_row_id or 0, snapshot)
    return metadata.model_copy(update=following)


def _sequence_number(last: int, snapshot: Snapshot) -> int:
    number = snapshot.sequence_number
    if number is None:
        raise ValueError("it has no sequence number")
    if number <= last:
        raise SnapshotOvertakenError(
            snapshot.snapshot_id, f"its sequence number {number} is not above the last, {last}"
        )
    return number


def _next_row_id(following: int, snapshot: Snapshot) -> int:
    first, added = snapshot.first_row_id, snapshot.added_rows
    if first is None or added is None or added < 0:
        raise ValueError("it does not say how many row ids it takes")
    if first < following:
        raise SnapshotOvertakenError(snapshot.snapshot_id, f"its row ids begin at {first}, and {following} is the next")
    # They count on from where the snapshot begins, so that no id is given twice.
    return first + added


def with_ref(metadata: TableMetadata, update: SetSnapshotRefUpdate, *, is_added: bool, now_ms: int) -> TableMetadata:
    """The document with a branch or tag set; `is_added` says that its snapshot came by the same change."""
    ref = _ref(update)
    if metadata.refs.get(update.ref_name) == ref:
        return metadata
    snapshot = metadata.snapshot_by_id(ref.snapshot_id)
    if snapshot is None:
        raise ValueError(f"there is no snapshot {ref.snapshot_id}")
    following: dict[str, Any] = {"refs": {**metadata.refs, update.ref_name: ref}}
    if update.ref_name == MAIN_BRANCH and metadata.current_snapshot_id != ref.snapshot_id:
        moment = snapshot.timestamp_ms if is_added else now_ms
        if metadata.snapshot_log:
            moment = max(moment, metadata.snapshot_log[-1].timestamp_ms)
        entry = SnapshotLogEntry(snapshot_id=ref.snapshot_id, timestamp_ms=moment)
        following["current_snapshot_id"] = ref.snapshot_id
        following["snapshot_log"] = [*metadata.snapshot_log, entry]
        following["last_updated_ms"] = max(metadata.last_updated_ms, moment)
    return metadata.model_copy(update=following)


def _ref(update: SetSnapshotRefUpdate) -> SnapshotRef:
    kept, is_tag = (update.min_snapshots_to_keep, update.max_snapshot_age_ms), update.type == SnapshotRefType.TAG
    if not update.ref_name:
        raise ValueError("a ref has a name")
    if update.ref_name == MAIN_BRANCH and is_tag:
        raise ValueError(f"{MAIN_BRANCH} is a branch")
    if is_tag and kept != (None, None):
        raise ValueError("a tag keeps one snapshot, and says nothing of others")
    if any(each is not None and each <= 0 for each in (*kept, update.max_ref_age_ms)):
        raise ValueError("what a ref keeps, and for how long, is above zero")
    return SnapshotRef(
        snapshot_id=update.snapshot_id,
        snapshot_ref_type=update.type,
        min_snapshots_to_keep=update.min_snapshots_to_keep,
        max_snapshot_age_ms=update.max_snapshot_age_ms,
        max_ref_age_ms=update.max_ref_age_ms,
    )


def without_ref(metadata: TableMetadata, name: str) -> TableMetadata:
    """The document without a branch or tag; without `main` the table is empty."""
    if name not in metadata.refs:
        return metadata
    following: dict[str, Any] = {"refs": {key: ref for key, ref in metadata.refs.items() if key != name}}
    if name == MAIN_BRANCH:
        following["current_snapshot_id"] = None
    return metadata.model_copy(update=following)


def without_snapshots(metadata: TableMetadata, gone: Collection[int]) -> TableMetadata:
    """The document without snapshots, and without the refs and statistics of theirs.

    History before a snapshot that goes is forgotten: with a gap in it, who looks back in time would see wrong rows.
    """
    if not any(each.snapshot_id in gone for each in metadata.snapshots):
        return metadata
    for name in [name for name, ref in metadata.refs.items() if ref.snapshot_id in gone]:
        metadata = without_ref(metadata, name)
    log: list[SnapshotLogEntry] = []
    for each in metadata.snapshot_log:
        log = [] if each.snapshot_id in gone else [*log, each]
    update = {
        "snapshots": [each for each in metadata.snapshots if each.snapshot_id not in gone],
        "snapshot_log": log,
        "statistics": _of_others(metadata.statistics, gone),
        "partition_statistics": _of_others(metadata.partition_statistics, gone),
    }
    return metadata.model_copy(update=update)


def with_statistics(metadata: TableMetadata, given: StatisticsFile | PartitionStatisticsFile) -> TableMetadata:
    """The document with these statistics, in the place of any other of their kind and snapshot."""
    name = "statistics" if isinstance(given, StatisticsFile) else "partition_statistics"
    held = getattr(metadata, name)
    if given in held:
        return metadata
    return metadata.model_copy(update={name: [*_of_others(held, (given.snapshot_id,)), given]})


def without_statistics(metadata: TableMetadata, name: str, snapshot: int) -> TableMetadata:
    """The document without the statistics of a snapshot; `name` says of which kind."""
    held = getattr(metadata, name)
    left = _of_others(held, (snapshot,))
    return metadata if len(left) == len(held) else metadata.model_copy(update={name: left})


def _of_others(held: Sequence[Any], snapshots: Collection[int]) -> list[Any]:
    return [each for each in held if each.snapshot_id not in snapshots]
