"""Manifest lists and manifests, read in every version.

Files in a manifest inherit what their manifest knows: sequence numbers, snapshot, partition spec, row ids. Entries
come out of here with all of it filled in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256

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

from headwater.tables.avro import DAMAGE, RecordReader, said
from headwater.tables.files import FileReader
from headwater.tables.model import LiveFile, TableCorruptError, TableFile, UnsupportedTableError

# In a snapshot's summary: the digest of its manifest list, the list's length, and a mark of where it was written.
MANIFEST_LIST_SEAL = "headwater.manifest-list-sha256"
# Places in a manifest's line, in the order of MANIFEST_LIST_FILE_SCHEMAS[3].
_CONTENT, _FIRST_ROW_ID = 3, 15
_COUNTS = slice(7, 13)

_lists = RecordReader(
    MANIFEST_LIST_FILE_SCHEMAS[3], types={-1: ManifestFile, 508: PartitionFieldSummary}, enums={517: ManifestContent}
)
_entries = RecordReader(
    MANIFEST_ENTRY_SCHEMAS[3],
    types={-1: ManifestEntry, 2: TableFile},
    enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
)


def read_manifest_list(
    files: FileReader, snapshot: Snapshot, *, spec_ids: Collection[int] | None = None
) -> tuple[ManifestFile, ...]:
    """Every manifest of the snapshot; none may be of another partition spec than `spec_ids`, where those are given."""
    location = snapshot.manifest_list
    if not location:
        raise UnsupportedTableError(
            f"snapshot {snapshot.snapshot_id} has no manifest list, only a list of manifests",
            hint="rewrite the table with a writer that is younger than 2019",
            snapshot=snapshot.snapshot_id,
        )
    data = files.read(location)
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    check_sealed(location, summary, data)
    _, manifests = _lists.read(data, location)
    if not manifests and summary.get("total-data-files", "0") != "0":
        raise TableCorruptError(location, "is empty, though its snapshot has data files")
    seen: set[str] = set()
    for manifest in manifests:
        _check_line(manifest, location)
        if manifest.manifest_path in seen:
            raise TableCorruptError(location, f"names {manifest.manifest_path} twice")
        if spec_ids is not None and manifest.partition_spec_id not in spec_ids:
            raise TableCorruptError(
                location,
                f"says that {manifest.manifest_path} is of partition spec {manifest.partition_spec_id}, "
                "which the table does not know",
            )
        seen.add(manifest.manifest_path)
    return tuple(manifests)


def check_sealed(location: str, summary: Mapping[str, str], data: bytes) -> None:
    """Refuse a manifest list that is not the one that its snapshot was made with, where the snapshot can tell.

    Totals in summaries are no proof: writers are known that get them wrong. What we sealed ourselves is one.
    """
    if not _fits_seal(summary.get(MANIFEST_LIST_SEAL), location, data):
        raise TableCorruptError(location, f"has {len(data)} bytes that are not those that its snapshot was made with")


def manifest_list_seal(location: str, data: bytes) -> str:
    """What a snapshot's summary says, under `MANIFEST_LIST_SEAL`, of the manifest list at this very location."""
    return f"{sha256(data).hexdigest()}:{len(data)}:{_mark(location)}"


def _fits_seal(seal: str | None, location: str, data: bytes) -> bool:
    """A list that was moved was written anew by whoever moved it, and its seal is of no use any more."""
    return seal is None or not seal.endswith(f":{_mark(location)}") or seal == manifest_list_seal(location, data)


def _mark(location: str) -> str:
    return sha256(location.encode()).hexdigest()[:16]


def _check_line(manifest: ManifestFile, location: str) -> None:
    path, length, spec_id = manifest.manifest_path, manifest.manifest_length, manifest.partition_spec_id
    try:
        manifest[_CONTENT] = ManifestContent(manifest[_CONTENT])  # v1 lists have none, and default to a number
        is_sound = bool(path) and isinstance(path, str) and length >= 0 and spec_id >= 0
        is_sound = is_sound and all(count is None or count >= 0 for count in _counts(manifest))
    except DAMAGE:
        is_sound = False
    if not is_sound:
        raise TableCorruptError(location, f"has a line that makes no sense, for {path!r}")


def read_manifest(files: FileReader, manifest: ManifestFile) -> list[ManifestEntry]:
    """Every entry of the manifest, the deleted ones too, with what they inherit from it."""
    path = manifest.manifest_path
    header, entries = _entries.read(files.read(path), path)
    kind = "deletes" if manifest.content is ManifestContent.DELETES else "data"
    written = header.get("content", "data")
    if written != kind:
        raise TableCorruptError(path, f"holds {written}, though the manifest list says {kind}")
    spec_id = str(manifest.partition_spec_id)
    if header.get("partition-spec-id", spec_id) != spec_id:
        raise TableCorruptError(
            path, f"is of partition spec {header['partition-spec-id']}, though the manifest list says {spec_id}"
        )
    counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
    # An Avro file that is cut between two blocks looks whole; the manifest list knows better.
    if None not in counts and len(entries) != sum(count or 0 for count in counts):
        raise TableCorruptError(
            path, f"has {len(entries)} entries, and {sum(c or 0 for c in counts)} by the manifest list"
        )
    try:
        _inherit(entries, manifest)
    except DAMAGE as error:
        raise TableCorruptError(path, f"has an entry that makes no sense: {said(error)}") from error
    return entries


def _inherit(entries: Sequence[ManifestEntry], manifest: ManifestFile) -> None:
    sequence_number, added_by, spec_id = (
        manifest.sequence_number or 0,
        manifest.added_snapshot_id,
        manifest.partition_spec_id,
    )
    next_row_id = first_row_id_of(manifest)
    is_of_data = manifest.content is ManifestContent.DATA
    for entry in entries:
        values = entry._data
        if values[1] is None:
            values[1] = added_by
        if values[0] is ManifestEntryStatus.ADDED or sequence_number == 0:
            if values[2] is None:
                values[2] = sequence_number
            if values[3] is None:
                values[3] = sequence_number
        elif values[2] is None and values[0] is not ManifestEntryStatus.DELETED:
            raise ValueError("a file of an older snapshot has no sequence number")
        file = values[4]
        file._spec_id = spec_id
        known = file._data
        known[0] = DataFileContent(known[0])  # v1 manifests have none, and default to a number
        if (known[0] is DataFileContent.DATA) is not is_of_data:
            raise ValueError(f"{known[1]} does not belong into a manifest of this kind")
        if not isinstance(known[1], str) or known[4] < 0 or known[5] < 0:
            raise ValueError(f"{known[1]} has {known[4]} rows in {known[5]} bytes")
        if next_row_id is not None and values[0] is not ManifestEntryStatus.DELETED and known[16] is None:
            known[16] = next_row_id
            next_row_id += known[4]


def _counts(manifest: ManifestFile) -> tuple[int | None, ...]:
    """Files and rows, added, existing and deleted; lists of v1 tables may leave any of them out."""
    return tuple(manifest._data[_COUNTS])


def with_counts(files: FileReader, manifest: ManifestFile) -> ManifestFile:
    """The line with all six counts; the manifest is read only when one of them is missing.

    A count that is not known is not 0: whoever finds 0 passes the manifest over.
    """
    if None not in _counts(manifest):
        return manifest
    found = {status: [0, 0] for status in ManifestEntryStatus}
    for entry in read_manifest(files, manifest):
        found[entry.status][0] += 1
        found[entry.status][1] += entry.data_file.record_count
    order = (ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED)
    values = list(manifest._data)
    values[_COUNTS] = [found[status][what] for what in (0, 1) for status in order]
    return ManifestFile(*values)


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
