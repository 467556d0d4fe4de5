"""Branches and tags of one table's snapshots, as Iceberg has them; branches of a lake are another matter."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from headwater.tables.model import TableUsageError
from headwater.tables.rules import checked, later


def ancestors(metadata: TableMetadata, snapshot_id: int | None) -> Iterator[Snapshot]:
    """A snapshot, its parent and so on, as far as they are there."""
    by_id = {each.snapshot_id: each for each in metadata.snapshots}
    while (snapshot := by_id.pop(snapshot_id, None) if snapshot_id is not None else None) is not None:
        yield snapshot
        snapshot_id = snapshot.parent_snapshot_id


def set_ref(
    metadata: TableMetadata,
    name: str,
    snapshot_id: int,
    *,
    kind: SnapshotRefType = SnapshotRefType.BRANCH,
    min_snapshots_to_keep: int | None = None,
    max_snapshot_age_ms: int | None = None,
    max_ref_age_ms: int | None = None,
    now: datetime,
) -> TableMetadata:
    """The table with a branch or a tag at a snapshot, new or moved; how long it is kept is said anew each time.

    `main` is where the table itself is.
    """
    if not name:
        raise TableUsageError("a ref needs a name", hint="name it")
    _require(metadata, snapshot_id)
    old = metadata.refs.get(name)
    expected = SnapshotRefType.BRANCH if name == MAIN_BRANCH else old.snapshot_ref_type if old else kind
    if kind is not expected:
        raise TableUsageError(
            f"{name} is a {expected} and cannot become a {kind}", hint="choose another name", ref=name
        )
    try:
        ref = SnapshotRef(
            snapshot_id=snapshot_id,
            snapshot_ref_type=kind,
            min_snapshots_to_keep=min_snapshots_to_keep,
            max_snapshot_age_ms=max_snapshot_age_ms,
            max_ref_age_ms=max_ref_age_ms,
        )
    except (ValidationError, ValueError) as error:
        raise TableUsageError(
            f"{name} cannot be kept so: {error}",
            hint="ages and counts are above zero; only branches have counts",
            ref=name,
        ) from error
    if ref == old:
        return metadata
    return _with_ref(metadata, name, ref, now)


def remove_ref(metadata: TableMetadata, name: str, now: datetime) -> TableMetadata:
    """The table without a branch or a tag; the snapshots stay until they are expired."""
    if name == MAIN_BRANCH:
        raise TableUsageError(f"{name} cannot be removed", hint="it is the table itself", ref=name)
    if name not in metadata.refs:
        there = ", ".join(sorted(metadata.refs)) or "none"
        raise TableUsageError(f"there is no branch or tag {name}", hint=f"there are: {there}", ref=name)
    refs = {key: ref for key, ref in metadata.refs.items() if key != name}
    return checked(metadata.model_copy(update={"refs": refs, "last_updated_ms": later(metadata, now)}))


def set_current_snapshot(metadata: TableMetadata, snapshot_id: int, now: datetime) -> TableMetadata:
    """The table at any snapshot that it still has."""
    _require(metadata, snapshot_id)
    main = metadata.refs.get(MAIN_BRANCH)
    if main is None:
        return set_ref(metadata, MAIN_BRANCH, snapshot_id, now=now)
    if metadata.current_snapshot_id == snapshot_id:
        return metadata
    return _with_ref(metadata, MAIN_BRANCH, main.model_copy(update={"snapshot_id": snapshot_id}), now)


def rollback_to(metadata: TableMetadata, snapshot_id: int, now: datetime) -> TableMetadata:
    """The table back at a snapshot that it came from."""
    _require(metadata, snapshot_id)
    if all(each.snapshot_id != snapshot_id for each in ancestors(metadata, metadata.current_snapshot_id)):
        raise TableUsageError(
            f"snapshot {snapshot_id} is not one that the table came from",
            hint="a rollback goes back in the table's own history",
            snapshot=snapshot_id,
        )
    return set_current_snapshot(metadata, snapshot_id, now)


def _with_ref(metadata: TableMetadata, name: str, ref: SnapshotRef, now: datetime) -> TableMetadata:
    updated_ms = later(metadata, now)
    update: dict[str, object] = {"refs": {**metadata.refs, name: ref}, "last_updated_ms": updated_ms}
    if name == MAIN_BRANCH and metadata.current_snapshot_id != ref.snapshot_id:
        update["current_snapshot_id"] = ref.snapshot_id
        entry = SnapshotLogEntry(snapshot_id=ref.snapshot_id, timestamp_ms=updated_ms)
        update["snapshot_log"] = [*metadata.snapshot_log, entry]
    return checked(metadata.model_copy(update=update))


def _require(metadata: TableMetadata, snapshot_id: int) -> None:
    if metadata.snapshot_by_id(snapshot_id) is None:
        raise TableUsageError(
            f"the table has no snapshot {snapshot_id}",
            hint="it may have been expired; look at the table's history",
            snapshot=snapshot_id,
        )
