"""Which snapshots a table lets go of. Only references go: whether a file may be deleted is decided elsewhere.

The rules are those of Iceberg. A branch or tag goes when its snapshot is older than the ref may be; `main` never does.
A branch keeps its head, the newest of its history up to a count, and what is younger than an age. A snapshot that
no ref leads to goes when it is older than that age.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import SnapshotLogEntry

from headwater.tables.model import TableUsageError
from headwater.tables.refs import ancestors
from headwater.tables.rules import checked, later, millis

MAX_SNAPSHOT_AGE_MS = "history.expire.max-snapshot-age-ms"
MIN_SNAPSHOTS_TO_KEEP = "history.expire.min-snapshots-to-keep"
MAX_REF_AGE_MS = "history.expire.max-ref-age-ms"

_DEFAULT_MAX_SNAPSHOT_AGE_MS = 5 * 24 * 60 * 60 * 1000
_DEFAULT_MIN_SNAPSHOTS_TO_KEEP = 1
_FOR_EVER_MS = 2**63 - 1


def expire(
    metadata: TableMetadata,
    *,
    older_than: datetime | None = None,
    keep_last: int | None = None,
    now: datetime,
    drop_unused_schemas: bool = False,
    used_specs: Iterable[int] | None = None,
) -> TableMetadata:
    """The table without old snapshots; the document itself if all of them stay.

    Without `older_than` and `keep_last` the table's properties decide; a branch's own settings always win.
    `used_specs` are the partition specs of every manifest that stays reachable: other specs are dropped. Without it
    all of them stay, because the metadata alone does not know.
    """
    if keep_last is not None and keep_last < 1:
        raise TableUsageError(f"{keep_last} snapshots cannot be kept", hint="at least 1 stays", keep_last=keep_last)
    age_ms = _number(metadata, MAX_SNAPSHOT_AGE_MS, _DEFAULT_MAX_SNAPSHOT_AGE_MS)
    oldest_ms = millis(older_than) if older_than is not None else millis(now) - age_ms
    keep = keep_last or max(1, _number(metadata, MIN_SNAPSHOTS_TO_KEEP, _DEFAULT_MIN_SNAPSHOTS_TO_KEEP))
    refs = retained_refs(metadata, now)
    kept = retained_snapshots(metadata, refs, oldest_ms, keep, now)
    update: dict[str, object] = {}
    if len(refs) < len(metadata.refs):
        update["refs"] = refs
    if any(each.snapshot_id not in kept for each in metadata.snapshots):
        update |= _without_snapshots(metadata, kept)
    if drop_unused_schemas:
        update |= _without_schemas(metadata, kept)
    if used_specs is not None:
        update |= _without_specs(metadata, frozenset(used_specs))
    if not update:
        return metadata
    return checked(metadata.model_copy(update={**update, "last_updated_ms": later(metadata, now)}))


def retained_refs(metadata: TableMetadata, now: datetime) -> dict[str, SnapshotRef]:
    """The refs that stay: `main`, and what is not older than it may be. A ref to nothing goes."""
    default_age_ms = _number(metadata, MAX_REF_AGE_MS, _FOR_EVER_MS)
    kept: dict[str, SnapshotRef] = {}
    for name, ref in metadata.refs.items():
        snapshot = metadata.snapshot_by_id(ref.snapshot_id)
        may_age_ms = ref.max_ref_age_ms if ref.max_ref_age_ms is not None else default_age_ms
        if name == MAIN_BRANCH or (snapshot and millis(now) - snapshot.timestamp_ms <= may_age_ms):
            kept[name] = ref
    return kept


def retained_snapshots(
    metadata: TableMetadata, refs: dict[str, SnapshotRef], oldest_ms: int, keep_last: int, now: datetime
) -> frozenset[int]:
    """The snapshots that stay, by id."""
    # What is current, and what a ref names, stays whatever its age.
    kept = {ref.snapshot_id for ref in refs.values()} | {metadata.current_snapshot_id}
    referenced = set(kept)
    for ref in refs.values():
        if ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
            continue
        own_age_ms, own_count = ref.max_snapshot_age_ms, ref.min_snapshots_to_keep
        branch_oldest_ms = oldest_ms if own_age_ms is None else millis(now) - own_age_ms
        count = keep_last if own_count is None else own_count
        line = list(ancestors(metadata, ref.snapshot_id))
        referenced |= {each.snapshot_id for each in line}
        for place, each in enumerate(line):
            if place >= count and each.timestamp_ms < branch_oldest_ms:
                break
            kept.add(each.snapshot_id)
    loose = (each for each in metadata.snapshots if each.snapshot_id not in referenced)
    kept |= {each.snapshot_id for each in loose if each.timestamp_ms >= oldest_ms}
    return frozenset(each for each in kept if each is not None)


def _without_snapshots(metadata: TableMetadata, kept: frozenset[int]) -> dict[str, object]:
    gone = {each.snapshot_id for each in metadata.snapshots} - kept
    log: list[SnapshotLogEntry] = []
    for entry in metadata.snapshot_log:
        if entry.snapshot_id in kept:
            log.append(entry)
        else:  # time travel would go wrong across a gap, so the log begins after the last one
            log.clear()
    return {
        "snapshots": [each for each in metadata.snapshots if each.snapshot_id in kept],
        "snapshot_log": log,
        "statistics": [each for each in metadata.statistics if each.snapshot_id not in gone],
        "partition_statistics": [each for each in metadata.partition_statistics if each.snapshot_id not in gone],
    }


def _without_schemas(metadata: TableMetadata, kept: frozenset[int]) -> dict[str, object]:
    """Snapshots of old writers do not say their schema: then every schema stays.

    So does the newest one that has a column which no other has: deletes may be by the values of a dropped column.
    """
    used = {each.schema_id for each in metadata.snapshots if each.snapshot_id in kept} | {metadata.current_schema_id}
    if None in used:
        return {}
    known = {field_id for each in metadata.schemas if each.schema_id in used for field_id in each.field_ids}
    for each in sorted(metadata.schemas, key=lambda schema: -schema.schema_id):
        if not each.field_ids <= known:
            used.add(each.schema_id)
            known |= each.field_ids
    schemas = [each for each in metadata.schemas if each.schema_id in used]
    return {} if len(schemas) == len(metadata.schemas) else {"schemas": schemas}


def _without_specs(metadata: TableMetadata, used: frozenset[int]) -> dict[str, object]:
    needed = used | {metadata.default_spec_id}
    specs = [each for each in metadata.partition_specs if each.spec_id in needed]
    return {} if len(specs) == len(metadata.partition_specs) else {"partition_specs": specs}


def _number(metadata: TableMetadata, key: str, default: int) -> int:
    value = metadata.properties.get(key, str(default))
    try:
        return int(value)
    except ValueError:
        raise TableUsageError(
            f"property {key} is {value!r}, which is not a number", hint="set it to one, or remove it", property=key
        ) from None
