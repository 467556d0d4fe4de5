"""Which files a snapshot needs for a filter, and which deletes apply to each.

Pure over a reader. A file is left out only when its metadata proves that no row of it can match.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import (
    _InclusiveMetricsEvaluator,
    bind,
    expression_evaluator,
    inclusive_projection,
    manifest_evaluator,
)
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from headwater.tables.files import FileReader
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

ALWAYS_TRUE = AlwaysTrue()
# How many manifests are fetched at a time; decoding them is the interpreter's own work.
_FETCHERS = 8


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
    _refuse_misfit(schema, row_filter, case_sensitive=case_sensitive)
    manifests = read_manifest_list(files, snapshot)
    data = [each for each in manifests if each.content is ManifestContent.DATA and _has_files(each)]
    pruning = _Pruning(metadata, schema, row_filter, case_sensitive=case_sensitive)
    wanted = [each for each in data if pruning.may_match_manifest(each)]
    found = live_in(files, wanted)
    kept = [each for each in found if pruning.may_match_file(each.file)]
    deletes = [each for each in manifests if each.content is ManifestContent.DELETES and _has_files(each)]
    index = DeleteIndex(live_in(files, deletes) if kept else ())
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


def _refuse_misfit(schema: Schema, row_filter: BooleanExpression, *, case_sensitive: bool) -> None:
    try:
        bind(schema, row_filter, case_sensitive=case_sensitive)
    except (ValueError, TypeError) as error:
        raise TableUsageError(f"the filter {row_filter} does not fit the table: {error}") from error


def _has_files(manifest: ManifestFile) -> bool:
    return manifest.has_added_files() or manifest.has_existing_files()


class _Pruning:
    """Proofs, from metadata alone, that a manifest or a file holds no row that matches."""

    def __init__(
        self, metadata: TableMetadata, schema: Schema, row_filter: BooleanExpression, *, case_sensitive: bool
    ) -> None:
        self._metadata = metadata
        self._schema = schema
        self._filter = row_filter
        self._case_sensitive = case_sensitive
        self._everything = isinstance(row_filter, AlwaysTrue)
        self._metrics = (
            None if self._everything else _InclusiveMetricsEvaluator(schema, row_filter, case_sensitive=case_sensitive)
        )
        self._specs = metadata.specs()
        self._by_spec: dict[int, tuple[Callable[[ManifestFile], bool], Callable[[TableFile], bool]]] = {}

    def may_match_manifest(self, manifest: ManifestFile) -> bool:
        """Whether the bounds of the partition values let a row match."""
        return self._everything or self._evaluators(manifest.partition_spec_id)[0](manifest)

    def may_match_file(self, file: TableFile) -> bool:
        """Whether the file's partition and column bounds let a row match."""
        if self._metrics is None:
            return True
        return self._evaluators(file.spec_id)[1](file) and self._metrics.eval(file)

    def _evaluators(self, spec_id: int) -> tuple[Callable[[ManifestFile], bool], Callable[[TableFile], bool]]:
        if spec_id not in self._by_spec:
            spec = self._specs[spec_id]
            known = all(field.source_id in self._schema._lazy_id_to_field for field in spec.fields)
            if not known:  # a source column was dropped: its partition values prove nothing
                self._by_spec[spec_id] = (lambda _: True, lambda _: True)
                return self._by_spec[spec_id]
            projected = inclusive_projection(self._schema, spec, self._case_sensitive)(self._filter)
            partition_schema = Schema(*spec.partition_type(self._schema).fields)
            of_partition = expression_evaluator(partition_schema, projected, self._case_sensitive)
            self._by_spec[spec_id] = (
                manifest_evaluator(spec, self._schema, projected, self._case_sensitive),
                lambda file: of_partition(file.partition),
            )
        return self._by_spec[spec_id]


class DeleteIndex:
    """Which delete files apply to a data file, by the rules of the specification.

    - A deletion vector applies to the file it names, if it is not older. It stands for all position deletes.
    - A position delete file applies within its partition, if it is not older; its bounds may name one file.
    - An equality delete file applies to older files of its partition, or to all if it has no partition.
    """

    def __init__(self, deletes: Iterable[LiveFile]) -> None:
        self._vectors: dict[str, LiveFile] = {}
        self._by_path: defaultdict[str, list[LiveFile]] = defaultdict(list)
        self._by_partition: defaultdict[tuple[object, ...], list[LiveFile]] = defaultdict(list)
        self._equality: defaultdict[tuple[object, ...] | None, list[LiveFile]] = defaultdict(list)
        for each in deletes:
            self._add(each)

    def task(self, data: LiveFile) -> FileTask:
        """The data file with the deletes that apply to it."""
        file, number = data.file, data.sequence_number
        partition = _partition_of(file)
        vector = self._vectors.get(file.file_path)
        if vector is not None and vector.sequence_number < number:
            vector = None
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
            # A partition without values is that of an unpartitioned spec: such deletes are global.
            self._equality[_partition_of(file) if len(file.partition) else None].append(each)
        elif file.is_vector:
            target = file.referenced_data_file
            if target is None or target in self._vectors:
                what = "names no data file" if target is None else f"is the second deletion vector of {target}"
                raise TableCorruptError(file.file_path, what)
            self._vectors[target] = each
        elif target := target_of(file):
            self._by_path[target].append(each)
        else:
            self._by_partition[_partition_of(file)].append(each)


def target_of(file: TableFile) -> str | None:
    """The one data file that a position delete file is about, if its metadata says so."""
    if file.referenced_data_file is not None:
        return file.referenced_data_file
    lower, upper = _path_bounds(file)
    # Bounds that were cut are never equal: the upper one is rounded up.
    return lower if lower == upper else None


def _may_be_about(file: TableFile, path: str) -> bool:
    lower, upper = _path_bounds(file)
    if file.referenced_data_file is not None:
        return file.referenced_data_file == path
    return (lower is None or lower <= path) and (upper is None or path <= upper or path.startswith(upper))


def _path_bounds(file: TableFile) -> tuple[str | None, str | None]:
    lower = (file.lower_bounds or {}).get(DELETE_FILE_PATH_ID)
    upper = (file.upper_bounds or {}).get(DELETE_FILE_PATH_ID)
    return (lower.decode() if lower is not None else None, upper.decode() if upper is not None else None)


def _partition_of(file: TableFile) -> tuple[object, ...]:
    return (file.spec_id, *(file.partition[place] for place in range(len(file.partition))))
