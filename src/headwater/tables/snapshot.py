"""An edit of files becomes a snapshot: deletes, manifests, manifest list, metadata, bottom-up, with true lengths.

Nothing is stored and nothing moves: what comes out is a `Staged` change. Its base is the metadata that was given, and
only a commit that expects that very version may use it.

What a snapshot writes:

    added data files       one new manifest for each partition spec
    removed data files     the manifests that hold them, again, with the entry marked as deleted; their deletes go too
    deleted rows           v3: one Puffin file with a vector for each data file, merged with what was deleted before
                           v2: one position delete file for each data file, merged with the one before it
    everything else        stays in the manifests it is in; many small manifests are merged into one
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestFile
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import (
    CHANGED_PARTITION_COUNT_PROP,
    Operation,
    Snapshot,
    Summary,
    UpdateMetrics,
    update_snapshot_summaries,
)
from pyiceberg.table.update import AddSnapshotUpdate, SetPropertiesUpdate, SetSnapshotRefUpdate, update_table_metadata
from pyroaring import BitMap64

from headwater.kernel.clock import Clock
from headwater.kernel.ids import Ulid
from headwater.kernel.randomness import Randomness
from headwater.tables.files import FileReader
from headwater.tables.head import OPERATION
from headwater.tables.manifest_edit import ManifestEdit
from headwater.tables.manifest_writing import ManifestTerms, write_manifest_list
from headwater.tables.manifests import (
    MANIFEST_LIST_SEAL,
    first_row_id_of,
    manifest_list_seal,
    read_manifest_list,
    with_counts,
    with_first_row_id,
)
from headwater.tables.metadata_log import with_log_entry
from headwater.tables.model import (
    Edit,
    NewFile,
    Staged,
    TableFile,
    TableVersion,
    UnsupportedTableError,
)
from headwater.tables.naming import token_of
from headwater.tables.placing import Placing
from headwater.tables.position_deletes import position_delete_file
from headwater.tables.scan import partition_key, target_of
from headwater.tables.settling import refuse_stale, settle
from headwater.tables.vectors import write_vectors


@dataclass(frozen=True)
class Staging:
    """What staging needs beside the table: how files are read, time, randomness, whose change it is, where it goes."""

    files: FileReader
    clock: Clock
    randomness: Randomness
    operation: Ulid
    placing: Placing = field(default_factory=Placing)


def stage_snapshot(
    staging: Staging,
    base: TableVersion,
    edit: Edit,
    operation: Operation,
    *,
    properties: Mapping[str, str] | None = None,
) -> Staged:
    """The table with this edit made, as the next snapshot of its main branch."""
    metadata = base.metadata
    if metadata.format_version < 2:
        raise UnsupportedTableError(
            f"{metadata.location} is a table of format version 1, which is read but not written",
            hint="upgrade the table to version 2 first",
            path=metadata.location,
        )
    settled = settle(staging.files, metadata, edit)
    terms = ManifestTerms(metadata, _new_snapshot_id(metadata, staging), metadata.next_sequence_number())
    folder, token = staging.placing.folder_of(metadata), token_of(staging.operation, staging.randomness)
    delete_files, new_files = _write_deletes(terms.version, settled.deletes, f"{folder}/data/{token}")

    parent = metadata.current_snapshot()
    known = metadata.specs().keys()
    before = read_manifest_list(staging.files, parent, spec_ids=known) if parent else ()
    data = ManifestEdit(
        staging.files,
        terms,
        ManifestContent.DATA,
        prefix=f"{folder}/metadata/{token}-data",
        drops=lambda file: file.file_path in settled.removed,
        must_drop=settled.removed,
    )
    deletes = ManifestEdit(
        staging.files,
        terms,
        ManifestContent.DELETES,
        prefix=f"{folder}/metadata/{token}-deletes",
        drops=lambda file: file.content is DataFileContent.POSITION_DELETES and target_of(file) in settled.touched,
    )
    of_data = [each for each in before if each.content is ManifestContent.DATA]
    of_deletes = [each for each in before if each.content is ManifestContent.DELETES]
    manifests = [
        *data.apply(of_data, edit.added, edit.sequence_number),
        *deletes.apply(of_deletes, delete_files),
    ]
    refuse_stale(metadata, edit, deletes.found)
    first_row_id = (metadata.next_row_id or 0) if isinstance(metadata, TableMetadataV3) else None
    counted = [with_counts(staging.files, each) for each in manifests]
    manifests, assigned = _with_row_ids(counted, first_row_id)
    list_location = f"{folder}/metadata/snap-{terms.snapshot_id}-1-{token}.avro"
    listed = write_manifest_list(terms, parent.snapshot_id if parent else None, manifests, first_row_id)

    snapshot = Snapshot(
        snapshot_id=terms.snapshot_id,
        parent_snapshot_id=parent.snapshot_id if parent else None,
        sequence_number=terms.sequence_number,
        timestamp_ms=max(int(staging.clock.now().timestamp() * 1000), metadata.last_updated_ms),
        manifest_list=list_location,
        summary=_summary(
            operation,
            metadata,
            data,
            deletes,
            {
                **(properties or {}),
                OPERATION: staging.operation,
                MANIFEST_LIST_SEAL: manifest_list_seal(list_location, listed),
            },
        ),
        schema_id=metadata.current_schema_id,
        first_row_id=first_row_id,
        added_rows=assigned if first_row_id is not None else None,
    )
    return Staged(
        _with_snapshot(base, snapshot, staging.operation),
        (*new_files, *data.new_files, *deletes.new_files, NewFile(list_location, listed)),
    )


def _write_deletes(
    version: int, deletes: Mapping[str, tuple[BitMap64, TableFile]], prefix: str
) -> tuple[tuple[TableFile, ...], tuple[NewFile, ...]]:
    if not deletes:
        return (), ()
    if version >= 3:
        puffin, vectors = write_vectors(f"{prefix}-deletes.puffin", deletes)
        return vectors, (puffin,)
    written = [
        position_delete_file(f"{prefix}-{number:05}-deletes.parquet", positions, file)
        for number, (positions, file) in enumerate(deletes.values())
    ]
    return tuple(file for file, _ in written), tuple(new for _, new in written)


def _with_row_ids(manifests: list[ManifestFile], first_row_id: int | None) -> tuple[list[ManifestFile], int]:
    """Data manifests that have no row ids yet get them, one after the other (v3); how many ids were given out."""
    if first_row_id is None:
        return manifests, 0
    following = first_row_id
    assigned = []
    for manifest in manifests:
        if manifest.content is ManifestContent.DATA and first_row_id_of(manifest) is None:
            assigned.append(with_first_row_id(manifest, following))
            following += (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
        else:
            assigned.append(manifest)
    return assigned, following - first_row_id


def _summary(
    operation: Operation,
    metadata: TableMetadata,
    data: ManifestEdit,
    deletes: ManifestEdit,
    properties: Mapping[str, str],
) -> Summary:
    metrics = UpdateMetrics()
    for each in (*data.added, *deletes.added):
        metrics.add_file(each)
    for each in (*data.dropped, *deletes.dropped):
        metrics.remove_file(each)
    touched = (*data.added, *deletes.added, *data.dropped, *deletes.dropped)
    changed = {partition_key(each) for each in touched if len(each.partition)}
    counts = metrics.to_dict() | ({CHANGED_PARTITION_COUNT_PROP: str(len(changed))} if changed else {})
    # PyIceberg adds up totals for the operations that it can write itself; a replace adds up the same way.
    totals = update_snapshot_summaries(Summary(Operation.OVERWRITE, **counts), _totals_before(metadata))
    return Summary(operation, **{**totals.additional_properties, **properties})


def _totals_before(metadata: TableMetadata) -> Mapping[str, str] | None:
    """The totals that can be added to. What the parent does not say is left out from then on, and not taken for 0."""
    parent = metadata.current_snapshot()
    if parent is None:
        return None
    said = parent.summary.additional_properties if parent.summary else {}
    totals = {key: value for key, value in said.items() if key.startswith("total-") and value.isdecimal()}
    return totals or {"": ""}  # PyIceberg takes an empty one for that of an empty table


def _with_snapshot(base: TableVersion, snapshot: Snapshot, operation: Ulid) -> TableMetadata:
    main = base.metadata.refs.get(MAIN_BRANCH)
    updated = update_table_metadata(
        base.metadata,
        (
            AddSnapshotUpdate(snapshot=snapshot),
            SetSnapshotRefUpdate(
                ref_name=MAIN_BRANCH,
                type="branch",
                snapshot_id=snapshot.snapshot_id,
                max_ref_age_ms=main.max_ref_age_ms if main else None,
                max_snapshot_age_ms=main.max_snapshot_age_ms if main else None,
                min_snapshots_to_keep=main.min_snapshots_to_keep if main else None,
            ),
            SetPropertiesUpdate(updates={OPERATION: operation}),
        ),
    )
    return with_log_entry(updated, base.location, base.metadata.last_updated_ms) if base.location else updated


def _new_snapshot_id(metadata: TableMetadata, staging: Staging) -> int:
    taken = {each.snapshot_id for each in metadata.snapshots}
    while True:
        number = int.from_bytes(staging.randomness.randbytes(8), "big") >> 1
        if number and number not in taken:
            return number
