"""Every file that a metadata document leads to.

What is not named here may be taken for garbage, so nothing is left out: also the metadata log, and statistics of every
kind. Deleted entries are left out: their files may be gone, and another snapshot names them if it needs them. A file
that cannot be read is never passed over in silence.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyiceberg.manifest import DataFileContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from headwater.kernel.errors import HeadwaterError
from headwater.tables.files import FileReader
from headwater.tables.manifests import live, read_manifest, read_manifest_list
from headwater.tables.model import TableFile, TableUsageError


class ReachKind(enum.Enum):
    """What a file is to its table."""

    METADATA = "metadata"
    METADATA_LOG = "metadata log"
    MANIFEST_LIST = "manifest list"
    MANIFEST = "manifest"
    DATA = "data"
    POSITION_DELETES = "position deletes"
    EQUALITY_DELETES = "equality deletes"
    DELETION_VECTOR = "deletion vector"
    STATISTICS = "statistics"
    PARTITION_STATISTICS = "partition statistics"


@dataclass(frozen=True)
class Reached:
    """A file that is needed, spelled as the metadata spells it, and the first snapshot that was seen to need it."""

    kind: ReachKind
    location: str
    size_bytes: int | None = None
    snapshot_id: int | None = None


@dataclass(frozen=True)
class Unreadable:
    """A file that is needed and cannot be read: what it leads to is unknown."""

    kind: ReachKind
    location: str
    snapshot_id: int
    error: HeadwaterError


def reach(
    files: FileReader, metadata: TableMetadata, *, metadata_location: str, snapshots: Iterable[int] | None = None
) -> Iterator[Reached]:
    """Each file once per kind, for all snapshots or for some; the metadata and its log are always among them.

    The first file that cannot be read ends the walk with its error: half of an answer is no answer.
    """
    found = reach_leniently(files, metadata, metadata_location=metadata_location, snapshots=snapshots)
    return _strictly(found)


def reach_leniently(
    files: FileReader, metadata: TableMetadata, *, metadata_location: str, snapshots: Iterable[int] | None = None
) -> Iterator[Reached | Unreadable]:
    """Like `reach`, but says what cannot be read and goes on with the rest: to show, never to decide a delete."""
    chosen = metadata.snapshots if snapshots is None else [_snapshot(metadata, each) for each in snapshots]
    return _once(_walk(files, metadata, metadata_location, chosen, is_partial=snapshots is not None))


def reach_all(
    files: FileReader, versions: Iterable[tuple[str, TableMetadata]]
) -> Iterator[tuple[str, Reached | Unreadable]]:
    """What many documents lead to, each file with the location of the first that does; what they share is walked once.

    What cannot be read is said, and the rest goes on: whoever decides a delete asks whether anything was unreadable.
    """
    lists: set[str] = set()
    read: set[str] = set()
    for location, metadata in versions:
        for each in _walk(files, metadata, location, (), is_partial=False):
            yield location, each
        for snapshot in metadata.snapshots:
            if snapshot.manifest_list and snapshot.manifest_list in lists:
                continue
            lists.add(snapshot.manifest_list)
            for each in _of_snapshot(files, snapshot, read):
                yield location, each


def _strictly(found: Iterator[Reached | Unreadable]) -> Iterator[Reached]:
    for each in found:
        if isinstance(each, Unreadable):
            raise each.error
        yield each


def _once(found: Iterator[Reached | Unreadable]) -> Iterator[Reached | Unreadable]:
    seen: set[tuple[ReachKind, str]] = set()
    for each in found:
        if isinstance(each, Unreadable) or (each.kind, each.location) not in seen:
            yield each
        seen.add((each.kind, each.location))


def _walk(
    files: FileReader, metadata: TableMetadata, metadata_location: str, chosen: Iterable[Snapshot], *, is_partial: bool
) -> Iterator[Reached | Unreadable]:
    yield Reached(ReachKind.METADATA, metadata_location)
    for entry in metadata.metadata_log:
        yield Reached(ReachKind.METADATA_LOG, entry.metadata_file)
    read: set[str] = set()
    wanted: set[int] = set()
    for snapshot in chosen:
        wanted.add(snapshot.snapshot_id)
        yield from _of_snapshot(files, snapshot, read)
    # Statistics of a snapshot that is gone are still named by the metadata.
    for table in metadata.statistics:
        if not is_partial or table.snapshot_id in wanted:
            yield Reached(ReachKind.STATISTICS, table.statistics_path, table.file_size_in_bytes, table.snapshot_id)
    for part in metadata.partition_statistics:
        if not is_partial or part.snapshot_id in wanted:
            yield Reached(
                ReachKind.PARTITION_STATISTICS, part.statistics_path, part.file_size_in_bytes, part.snapshot_id
            )


def _of_snapshot(files: FileReader, snapshot: Snapshot, read: set[str]) -> Iterator[Reached | Unreadable]:
    """What one snapshot leads to; manifests in `read` were walked for an earlier one."""
    snapshot_id = snapshot.snapshot_id
    if snapshot.manifest_list:
        yield Reached(ReachKind.MANIFEST_LIST, snapshot.manifest_list, None, snapshot_id)
    try:
        manifests = read_manifest_list(files, snapshot)
    except HeadwaterError as error:
        yield Unreadable(ReachKind.MANIFEST_LIST, snapshot.manifest_list, snapshot_id, error)
        return
    for manifest in manifests:
        if manifest.manifest_path in read:
            continue
        read.add(manifest.manifest_path)
        yield Reached(ReachKind.MANIFEST, manifest.manifest_path, manifest.manifest_length, snapshot_id)
        yield from _of_manifest(files, manifest, snapshot_id)


def _of_manifest(files: FileReader, manifest: ManifestFile, snapshot_id: int) -> Iterator[Reached | Unreadable]:
    try:
        entries = read_manifest(files, manifest)
    except HeadwaterError as error:
        yield Unreadable(ReachKind.MANIFEST, manifest.manifest_path, snapshot_id, error)
        return
    for entry in entries:
        if entry.status is not ManifestEntryStatus.DELETED:
            file = live(entry).file
            yield Reached(kind_of(file), file.file_path, file.file_size_in_bytes, snapshot_id)


def kind_of(file: TableFile) -> ReachKind:
    """What a file in a manifest is."""
    if file.is_vector:
        return ReachKind.DELETION_VECTOR
    match file.content:
        case DataFileContent.POSITION_DELETES:
            return ReachKind.POSITION_DELETES
        case DataFileContent.EQUALITY_DELETES:
            return ReachKind.EQUALITY_DELETES
        case _:
            return ReachKind.DATA


def _snapshot(metadata: TableMetadata, snapshot_id: int) -> Snapshot:
    found = metadata.snapshot_by_id(snapshot_id)
    if found is None:
        raise TableUsageError(
            f"the table has no snapshot {snapshot_id}", hint="it may have been expired", snapshot=snapshot_id
        )
    return found
