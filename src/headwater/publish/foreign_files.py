"""The files that another engine brings, looked at before a table refers to them (P5).

Nothing that a snapshot says of its files is taken on trust where it would harm other readers:

    manifests     all can be read, and count their entries right: who finds a wrong zero passes rows over
    new files     are there, as long as they are said to be, inside the lake, and no data file twice
    statistics    the same
    specs         those of every manifest stay, or it could not be read any more

A manifest is known when the snapshot that it is carried over from says the same of it; every other is new, whatever is
said of it. The same holds for the files in a new manifest. Bounds, and how many rows a file has, are believed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.manifest import DataFileContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from headwater.catalog.model import TableKey
from headwater.storage.errors import ObjectNotFoundError
from headwater.tables.files import Files
from headwater.tables.manifests import live, read_manifest, read_manifest_list
from headwater.tables.model import LiveFile, TableCorruptError, TableUsageError
from headwater.tables.scan import live_in

# Properties by which engines choose where they write.
_PLACES = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
# How many files are asked for at a time.
_ASKERS = 32
_STATUSES = (ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED)


def check_places(files: Files, before: TableMetadata | None, after: TableMetadata) -> None:
    """Refuse properties that make engines write where the lake does not look: all that they commit would be refused."""
    held = {} if before is None else before.properties
    for name in _PLACES:
        value = after.properties.get(name)
        if value is not None and value != held.get(name):
            files.place(f"{value.rstrip('/')}/x")


def brought_files(
    files: Files, key: TableKey, before: TableMetadata | None, after: TableMetadata
) -> dict[int, tuple[LiveFile, ...]]:
    """What each new snapshot brings, by its id; an error that says so when anything is wrong with it."""
    held = () if before is None else before.snapshots
    known = {each.snapshot_id for each in held}
    brought = {}
    lists = _Lists(files, after)
    for snapshot in after.snapshots:
        if snapshot.snapshot_id in known:
            continue
        try:
            found = tuple(_brought(files, lists, snapshot, before))
            _check_stored(files, ((each.file.file_path, each.file.file_size_in_bytes) for each in found))
        except TableCorruptError as error:
            raise TableUsageError(
                f"snapshot {snapshot.snapshot_id} of {key} cannot be read: {error.message}",
                hint="store its files before it is committed",
                table=str(key),
                snapshot=snapshot.snapshot_id,
            ) from error
        brought[snapshot.snapshot_id] = found
    _check_others(files, key, before, after, lists)
    return brought


class _Lists:
    """Manifest lists, each read once, of a table whose specs are known."""

    def __init__(self, files: Files, metadata: TableMetadata) -> None:
        self._files = files
        self._specs = metadata.specs().keys()
        self._read: dict[int, tuple[ManifestFile, ...]] = {}
        self._snapshots = {each.snapshot_id: each for each in metadata.snapshots}

    def of(self, snapshot: Snapshot) -> tuple[ManifestFile, ...]:
        """The manifests of a snapshot."""
        if snapshot.snapshot_id not in self._read:
            self._read[snapshot.snapshot_id] = read_manifest_list(self._files, snapshot, spec_ids=self._specs)
        return self._read[snapshot.snapshot_id]

    def before(self, snapshot: Snapshot, current: int | None) -> dict[str, ManifestFile]:
        """The manifests that a snapshot may carry over, by path; those of one that cannot be read are not known."""
        found: dict[str, ManifestFile] = {}
        for number in {snapshot.parent_snapshot_id, current} - {snapshot.snapshot_id}:
            base = None if number is None else self._snapshots.get(number)
            if base is not None:
                try:
                    found |= {each.manifest_path: each for each in self.of(base)}
                except TableCorruptError:
                    continue
        return found


def _brought(files: Files, lists: _Lists, snapshot: Snapshot, before: TableMetadata | None) -> Iterator[LiveFile]:
    manifests = lists.of(snapshot)
    fresh = [each for each in manifests if each.added_snapshot_id == snapshot.snapshot_id]
    inherited: dict[str, ManifestFile] | None = None
    if len(fresh) < len(manifests):
        inherited = lists.before(snapshot, None if before is None else before.current_snapshot_id)
        fresh += [
            each
            for each in manifests
            if each.added_snapshot_id != snapshot.snapshot_id and not _is_same(each, inherited.get(each.manifest_path))
        ]
    entries = [entry for each in fresh for entry in _entries(files, each)]
    kept = [each for each in entries if each.status is ManifestEntryStatus.EXISTING]
    known: set[str] = set()
    if kept:
        if inherited is None:
            inherited = lists.before(snapshot, None if before is None else before.current_snapshot_id)
        there = {each.manifest_path for each in manifests}
        replaced = [each for path, each in inherited.items() if path not in there]
        known = {each.file.file_path for each in (live_in(files, replaced) if replaced else ())}
    seen: set[str] = set()
    for entry in entries:
        file = entry.data_file
        if entry.status is ManifestEntryStatus.DELETED:
            continue
        files.place(file.file_path)
        if file.content is DataFileContent.DATA:
            if file.file_path in seen:
                raise TableCorruptError(file.file_path, "is in it twice")
            seen.add(file.file_path)
        if entry.status is ManifestEntryStatus.ADDED or file.file_path not in known:
            yield live(entry)


def _is_same(line: ManifestFile, before: ManifestFile | None) -> bool:
    """Whether a manifest list says the same of a manifest as the one before, as far as readers go by it."""
    return before is not None and _said(line) == _said(before)


def _said(line: ManifestFile) -> tuple[object, ...]:
    counts = (line.added_files_count, line.existing_files_count, line.deleted_files_count)
    return (line.partition_spec_id, line.content, line.sequence_number, line.added_snapshot_id, *counts)


def _entries(files: Files, manifest: ManifestFile) -> list[ManifestEntry]:
    """The entries, which the manifest list counts right wherever it counts them; read from inside the lake alone."""
    entries = read_manifest(files, manifest)
    found = Counter(each.status for each in entries)
    counts = (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count)
    for status, count in zip(_STATUSES, counts, strict=True):
        if count is not None and count != found[status]:
            raise TableCorruptError(
                manifest.manifest_path,
                f"has {found[status]} {status.name.lower()} files, and {count} by the manifest list",
            )
    return entries


def _check_stored(files: Files, sizes: Iterable[tuple[str, int]]) -> None:
    """Every file is there, and as long as it is said to be."""
    wanted: Sequence[tuple[str, int]] = sorted(set(sizes))
    if len(wanted) < 2:
        for each in wanted:
            _check_one(files, each)
        return
    with ThreadPoolExecutor(min(_ASKERS, len(wanted)), thread_name_prefix="foreign") as pool:
        list(pool.map(lambda each: _check_one(files, each), wanted))


def _check_one(files: Files, wanted: tuple[str, int]) -> None:
    location, size_bytes = wanted
    store, path = files.place(location)
    try:
        found = store.head(path).size_bytes
    except ObjectNotFoundError:
        raise TableCorruptError(location, "is missing") from None
    if found != size_bytes:
        raise TableCorruptError(location, f"has {found} bytes, and not {size_bytes}")


def _check_others(
    files: Files, key: TableKey, before: TableMetadata | None, after: TableMetadata, lists: _Lists
) -> None:
    """Statistics that are new, and specs that go."""
    held = () if before is None else (*before.statistics, *before.partition_statistics)
    fresh = [each for each in (*after.statistics, *after.partition_statistics) if each not in held]
    try:
        _check_stored(files, ((each.statistics_path, each.file_size_in_bytes) for each in fresh))
        if before is not None and before.specs().keys() - after.specs().keys():
            for snapshot in after.snapshots:
                lists.of(snapshot)
    except TableCorruptError as error:
        raise TableUsageError(
            f"{key} could not be read so: {error.message}", hint="keep what its files need", table=str(key)
        ) from error
