"""Which files a snapshot needs for a filter, and which deletes apply to each.

Pure over a reader. A file is left out only when its metadata proves that no row of it can match.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import VoidTransform

from headwater.tables.files import FileReader
from headwater.tables.filters import settle_filter
from headwater.tables.manifests import live_files, read_manifest, read_manifest_list
from headwater.tables.model import (
    DELETE_FILE_PATH_ID,
    FileTask,
    LiveFile,
    ScanPlan,
    TableCorruptError,
    TableFile,
    TableUsageError,
)
from headwater.tables.pruning import Pruning

ALWAYS_TRUE = AlwaysTrue()
# How many manifests are fetched at a time; decoding them is the interpreter's own work.
_FETCHERS = 8
# NaN is not equal to itself, but it is one partition.
_NAN = object()


def plan_scan(
    files: FileReader,
    metadata: TableMetadata,
    *,
    snapshot_id: int | None = None,
    row_filter: BooleanExpression = ALWAYS_TRUE,
    case_sensitive: bool = True,
) -> ScanPlan:
    """What has to be read of the table at its current snapshot, or at this one, for rows that match the filter."""
    snapshot, schema = _state_at(metadata, snapshot_id)
    if snapshot is None:
        return ScanPlan(metadata, schema, None, ())
    settled = settle_filter(row_filter, schema, case_sensitive=case_sensitive)
    manifests = read_manifest_list(files, snapshot, spec_ids=metadata.specs().keys())
    data = [each for each in manifests if each.content is ManifestContent.DATA and _has_files(each)]
    pruning = Pruning(metadata, schema, settled, case_sensitive=case_sensitive)
    wanted = [each for each in data if pruning.may_match_manifest(each)]
    found = live_in(files, wanted)
    kept = [each for each in found if pruning.may_match_file(each.file)]
    deletes = [each for each in manifests if each.content is ManifestContent.DELETES and _has_files(each)]
    index = DeleteIndex(live_in(files, deletes) if kept else (), metadata.specs())
    return ScanPlan(
        metadata,
        schema,
        snapshot,
        tuple(index.task(each) for each in kept),
        skipped_files=len(found) - len(kept),
        skipped_manifests=len(data) - len(wanted),
    )


def live_in(files: FileReader, manifests: Sequence[ManifestFile]) -> list[LiveFile]:
    """The files that are live in these manifests, in order."""
    return [
        each for manifest, fetched in fetch(files, manifests) for each in live_files(read_manifest(fetched, manifest))
    ]


def fetch(files: FileReader, manifests: Sequence[ManifestFile]) -> Iterator[tuple[ManifestFile, FileReader]]:
    """Each manifest with a reader that has its bytes; several are fetched at a time."""
    if len(manifests) == 1:
        yield manifests[0], files
        return
    with ThreadPoolExecutor(_FETCHERS, thread_name_prefix="manifests") as pool:
        for manifest, data in zip(
            manifests, pool.map(lambda each: files.read(each.manifest_path), manifests), strict=True
        ):
            yield manifest, _Fetched(data)


class _Fetched:
    """A reader of the one file that was fetched."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, location: str, *, span: tuple[int, int] | None = None) -> bytes:  # noqa: ARG002
        return self._data if span is None else self._data[span[0] : span[1]]


def _state_at(metadata: TableMetadata, snapshot_id: int | None) -> tuple[Snapshot | None, Schema]:
    if snapshot_id is None:
        return metadata.current_snapshot(), metadata.schema()
    snapshot = metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        known = ", ".join(str(each.snapshot_id) for each in metadata.snapshots[-5:]) or "none"
        raise TableUsageError(
            f"{metadata.location} has no snapshot {snapshot_id}",
            hint=f"the last ones are {known}",
            snapshot=snapshot_id,
        )
    return snapshot, _schema_of(metadata, snapshot)


def _schema_of(metadata: TableMetadata, snapshot: Snapshot) -> Schema:
    if snapshot.schema_id is None:
        return metadata.schema()
    for schema in metadata.schemas:
        if schema.schema_id == snapshot.schema_id:
            return schema
    raise TableCorruptError(
        metadata.location, f"has no schema {snapshot.schema_id}, in which snapshot {snapshot.snapshot_id} was written"
    )


def _has_files(manifest: ManifestFile) -> bool:
    return manifest.has_added_files() or manifest.has_existing_files()


class DeleteIndex:
    """Which delete files apply to a data file, by the rules of the specification.

    - A deletion vector applies to the file it names, and is not older. It stands for all position deletes.
    - A position delete file applies within its partition, if it is not older; its bounds may name one file.
    - An equality delete file applies to older files of its partition, or to all if its spec partitions by nothing.
    """

    def __init__(self, deletes: Iterable[LiveFile], specs: Mapping[int, PartitionSpec]) -> None:
        self._global_specs = {
            spec_id
            for spec_id, spec in specs.items()
            if all(isinstance(field.transform, VoidTransform) for field in spec.fields)
        }
        self._vectors: dict[str, LiveFile] = {}
        self._by_path: defaultdict[str, list[LiveFile]] = defaultdict(list)
        self._by_partition: defaultdict[tuple[object, ...], list[LiveFile]] = defaultdict(list)
        self._equality: defaultdict[tuple[object, ...] | None, list[LiveFile]] = defaultdict(list)
        for each in deletes:
            self._add(each)

    def task(self, data: LiveFile) -> FileTask:
        """The data file with the deletes that apply to it."""
        file, number = data.file, data.sequence_number
        partition = partition_key(file)
        vector = self._vectors.get(file.file_path)
        if vector is not None and vector.sequence_number < number:
            raise TableCorruptError(
                vector.file.file_path, f"has a deletion vector that is older than its data file {file.file_path}"
            )
        positions: list[LiveFile] = []
        if vector is None:
            positions = [
                each
                for each in (*self._by_path.get(file.file_path, ()), *self._by_partition.get(partition, ()))
                if each.sequence_number >= number and _may_be_about(each.file, file.file_path)
            ]
        equality = [
            each
            for each in (*self._equality.get(None, ()), *self._equality.get(partition, ()))
            if each.sequence_number > number
        ]
        return FileTask(
            file,
            number,
            vector.file if vector else None,
            tuple(each.file for each in positions),
            tuple(each.file for each in equality),
        )

    def _add(self, each: LiveFile) -> None:
        file = each.file
        if file.content is DataFileContent.EQUALITY_DELETES:
            self._equality[None if file.spec_id in self._global_specs else partition_key(file)].append(each)
        elif file.is_vector:
            target = file.referenced_data_file
            if target is None or target in self._vectors:
                what = "names no data file" if target is None else f"is the second deletion vector of {target}"
                raise TableCorruptError(file.file_path, what)
            self._vectors[target] = each
        elif target := target_of(file):
            self._by_path[target].append(each)
        else:
            self._by_partition[partition_key(file)].append(each)


def target_of(file: TableFile) -> str | None:
    """The one data file that a position delete file is about, if its metadata says so."""
    if file.referenced_data_file is not None:
        return file.referenced_data_file
    lower, upper = _path_bounds(file)
    # Bounds that were cut are never equal: the upper one is rounded up.
    return lower if lower == upper else None


def _may_be_about(file: TableFile, path: str) -> bool:
    if file.referenced_data_file is not None:
        return file.referenced_data_file == path
    lower, upper = _path_bounds(file)
    return (lower is None or lower <= path) and (upper is None or path <= upper or path.startswith(upper))


def _path_bounds(file: TableFile) -> tuple[str | None, str | None]:
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    return _path(lower.get(DELETE_FILE_PATH_ID)), _path(upper.get(DELETE_FILE_PATH_ID))


def _path(bound: bytes | None) -> str | None:
    """A bound that is no text, or was cut within a character, proves nothing."""
    try:
        return None if bound is None else bound.decode()
    except UnicodeDecodeError:
        return None


def partition_key(file: TableFile) -> tuple[object, ...]:
    """The partition of a file, as something that equals itself."""
    values = (file.partition[place] for place in range(len(file.partition)))
    return (file.spec_id, *(_NAN if value != value else value for value in values))
