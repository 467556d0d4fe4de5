"""Manifest lists and manifests, read in every version.

Files in a manifest inherit what their manifest knows: sequence numbers, snapshot, partition spec, row ids. Entries
come out of here with all of it filled in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyiceberg.manifest import (
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.table.snapshots import Snapshot

from headwater.tables.avro import DAMAGE, RecordReader
from headwater.tables.files import FileReader
from headwater.tables.model import LiveFile, TableCorruptError, TableFile, UnsupportedTableError

# Places in a manifest's line, in the order of MANIFEST_LIST_FILE_SCHEMAS[3].
_CONTENT, _FIRST_ROW_ID = 3, 15

_lists = RecordReader(
    MANIFEST_LIST_FILE_SCHEMAS[3], types={-1: ManifestFile, 508: PartitionFieldSummary}, enums={517: ManifestContent}
)
_entries = RecordReader(
    MANIFEST_ENTRY_SCHEMAS[3],
    types={-1: ManifestEntry, 2: TableFile},
    enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
)


def read_manifest_list(files: FileReader, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
    """Every manifest of the snapshot."""
    if not snapshot.manifest_list:
        raise UnsupportedTableError(
            f"snapshot {snapshot.snapshot_id} has no manifest list, only a list of manifests",
            hint="rewrite the table with a writer that is younger than 2019",
            snapshot=snapshot.snapshot_id,
        )
    _, manifests = _lists.read(files.read(snapshot.manifest_list), snapshot.manifest_list)
    if (
        not manifests
        and snapshot.summary
        and snapshot.summary.additional_properties.get("total-data-files", "0") != "0"
    ):
        raise TableCorruptError(snapshot.manifest_list, "is empty, though its snapshot has data files")
    for manifest in manifests:
        manifest[_CONTENT] = ManifestContent(manifest[_CONTENT])  # v1 lists have none, and default to a number
    return tuple(manifests)


def read_manifest(files: FileReader, manifest: ManifestFile) -> list[ManifestEntry]:
    """Every entry of the manifest, the deleted ones too, with what they inherit from it."""
    data = files.read(manifest.manifest_path)
    header, entries = _entries.read(data, manifest.manifest_path)
    kind = "deletes" if manifest.content is ManifestContent.DELETES else "data"
    if header.get("content", "data") != kind:
        raise TableCorruptError(
            manifest.manifest_path, f"holds {header['content']}, though the manifest list says {kind}"
        )
    counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
    # An Avro file that is cut between two blocks looks whole; the manifest list knows better.
    if None not in counts and len(entries) != sum(count or 0 for count in counts):
        raise TableCorruptError(
            manifest.manifest_path,
            f"has {len(entries)} entries, and {sum(c or 0 for c in counts)} by the manifest list",
        )
    try:
        _inherit(entries, manifest)
    except DAMAGE as error:
        raise TableCorruptError(manifest.manifest_path, f"has an entry that makes no sense: {error}") from error
    return entries


def _inherit(entries: Sequence[ManifestEntry], manifest: ManifestFile) -> None:
    sequence_number, added_by, spec_id = (
        manifest.sequence_number or 0,
        manifest.added_snapshot_id,
        manifest.partition_spec_id,
    )
    next_row_id = first_row_id_of(manifest)
    for entry in entries:
        values = entry._data
        if values[1] is None:
            values[1] = added_by
        if values[0] is ManifestEntryStatus.ADDED or sequence_number == 0:
            if values[2] is None:
                values[2] = sequence_number
            if values[3] is None:
                values[3] = sequence_number
        file = values[4]
        file._spec_id = spec_id
        file._data[0] = DataFileContent(file._data[0])  # v1 manifests have none, and default to a number
        if next_row_id is not None and values[0] is not ManifestEntryStatus.DELETED and file._data[16] is None:
            file._data[16] = next_row_id
            next_row_id += file._data[4]


def live_files(entries: Iterable[ManifestEntry]) -> list[LiveFile]:
    """The files that are there."""
    return [live(entry) for entry in entries if entry.status is not ManifestEntryStatus.DELETED]


def live(entry: ManifestEntry) -> LiveFile:
    """The entry's file with its numbers."""
    file = entry.data_file
    assert isinstance(file, TableFile)
    return LiveFile(file, entry.sequence_number or 0, entry.file_sequence_number, entry.snapshot_id)


def first_row_id_of(manifest: ManifestFile) -> int | None:
    """Row id of the first row in the manifest's first data file (v3)."""
    value: int | None = manifest[_FIRST_ROW_ID]
    return value


def with_first_row_id(manifest: ManifestFile, first_row_id: int) -> ManifestFile:
    """The line with its row ids assigned."""
    values = list(manifest._data)
    values[_FIRST_ROW_ID] = first_row_id
    return ManifestFile(*values)
