"""Reading what is missing, and computing statistics."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.types import BinaryType, PrimitiveType, StringType

from headwater.publish.indices.theta import THETA_BLOB, ThetaSketch
from headwater.tables.arrow import as_numbers
from headwater.tables.blooms import lacks_bloom
from headwater.tables.file_columns import name_mapping
from headwater.tables.files import FileReader
from headwater.tables.head import METADATA_FOLDER, OPERATION
from headwater.tables.leaves import Leaf, column_of, leaves
from headwater.tables.manifests import live, read_manifest, read_manifest_list
from headwater.tables.metadata_log import with_log_entry
from headwater.tables.model import FileTask, LiveFile, NewFile, ScanPlan, Staged, TableVersion
from headwater.tables.naming import token_of
from headwater.tables.read import read_task
from headwater.tables.snapshot import Staging
from headwater.tables.statistics import attach_partition_statistics, attach_statistics, partition_statistics
from headwater.tables.vectors import Blob, write_puffin

# How many footers are read at a time.
_READERS = 8
_PUFFIN_FOOTER_TRAILER_BYTES = 12


def files_without_blooms(
    files: FileReader, metadata: TableMetadata, tasks: Sequence[FileTask], field_ids: Collection[int]
) -> frozenset[str]:
    """Which of these files lack a filter for one of the columns, by their footers."""
    if not field_ids:
        return frozenset()
    mapping = name_mapping(metadata)
    with ThreadPoolExecutor(_READERS, thread_name_prefix="footers") as pool:
        lacks = pool.map(lambda task: lacks_bloom(files, task.file, mapping, field_ids), tasks)
        return frozenset(task.file.file_path for task, each in zip(tasks, lacks, strict=True) if each)


def with_statistics(
    staging: Staging,
    base: TableVersion,
    scan: ScanPlan,
    staged: Staged | None,
    *,
    columns: Sequence[str],
    partitions: bool,
    pulse: Callable[[], None],
) -> Staged:
    """What is staged, or the base where nothing is, with statistics of its snapshot.

    A rewrite keeps the rows, so the rows of the base are counted. `pulse` is called now and then.
    """
    made = staged or Staged(_touched(base, staging))
    metadata, new_files = made.metadata, []
    if columns:
        file, described = _column_statistics(staging, metadata, scan, columns, pulse)
        metadata = attach_statistics(metadata, described, staging.clock.now())
        new_files.append(file)
    if partitions:
        live_now, removed = _entries(_Staged(staging.files, made.files), metadata)
        snapshot_id = metadata.current_snapshot_id
        assert snapshot_id is not None
        file, about = partition_statistics(
            metadata,
            snapshot_id,
            live_now,
            removed=removed,
            randomness=staging.randomness,
            operation=staging.operation,
            placing=staging.placing,
        )
        metadata = attach_partition_statistics(metadata, about, staging.clock.now())
        new_files.append(file)
    return Staged(metadata, (*made.files, *new_files))


def _touched(base: TableVersion, staging: Staging) -> TableMetadata:
    """The base as the beginning of its next version."""
    properties = {**base.metadata.properties, OPERATION: staging.operation}
    metadata = base.metadata.model_copy(update={"properties": properties})
    return with_log_entry(metadata, base.location, base.metadata.last_updated_ms) if base.location else metadata


def _column_statistics(
    staging: Staging, metadata: TableMetadata, scan: ScanPlan, columns: Sequence[str], pulse: Callable[[], None]
) -> tuple[NewFile, StatisticsFile]:
    snapshot = metadata.current_snapshot()
    assert snapshot is not None
    by_name = {leaf.name: leaf for leaf in leaves(scan.schema.fields)}
    wanted = [by_name[name] for name in columns]
    sketches = _sketched(staging.files, scan, wanted, pulse)
    number = snapshot.sequence_number or 0
    blobs = [
        Blob(
            THETA_BLOB,
            (leaf.field_id,),
            sketch.to_bytes(),
            snapshot.snapshot_id,
            number,
            {"ndv": str(sketch.estimate)},
        )
        for leaf, sketch in zip(wanted, sketches, strict=True)
    ]
    data, _ = write_puffin(blobs, {"created-by": "Headwater"})
    token = token_of(staging.operation, staging.randomness)
    location = f"{staging.placing.folder_of(metadata)}/{METADATA_FOLDER}/{snapshot.snapshot_id}-{token}.stats"
    footer_bytes = int(struct.unpack("<I", data[-_PUFFIN_FOOTER_TRAILER_BYTES:][:4])[0])
    described = StatisticsFile(
        snapshot_id=snapshot.snapshot_id,
        statistics_path=location,
        file_size_in_bytes=len(data),
        # With the magic before it and the trailer behind it, as the specification counts.
        file_footer_size_in_bytes=footer_bytes + 4 + _PUFFIN_FOOTER_TRAILER_BYTES,
        blob_metadata=[
            BlobMetadata(
                type=THETA_BLOB,
                snapshot_id=blob.snapshot_id,
                sequence_number=blob.sequence_number,
                fields=list(blob.fields),
                properties=dict(blob.properties),
            )
            for blob in blobs
        ],
    )
    return NewFile(location, data), described


def _sketched(
    files: FileReader, scan: ScanPlan, wanted: Sequence[Leaf], pulse: Callable[[], None]
) -> list[ThetaSketch]:
    sketches = [ThetaSketch() for _ in wanted]
    roots = tuple(dict.fromkeys(leaf.path[0] for leaf in wanted))
    for task in scan.tasks:
        for batch in read_task(files, task, plan=scan, columns=roots):
            table = pa.Table.from_batches([batch])
            for leaf, sketch in zip(wanted, sketches, strict=True):
                sketch.add(_serialised(column_of(table, leaf), leaf.kind))
        pulse()
    return sketches


def _serialised(column: pa.ChunkedArray, kind: PrimitiveType) -> list[bytes]:
    """The different values of a column, without nulls, in Iceberg's single-value serialisation."""
    # As numbers where Iceberg has numbers: moments beyond Python's years have no object of their own.
    values = pc.unique(pc.drop_null(as_numbers(column)))
    if isinstance(kind, StringType | BinaryType):
        binary: list[bytes] = values.cast(pa.large_binary()).to_pylist()
        return binary
    return [to_bytes(kind, each) for each in values.to_pylist()]


class _Staged:
    """Reads files that are staged and not stored yet, and all others."""

    def __init__(self, files: FileReader, staged: Sequence[NewFile]) -> None:
        self._files = files
        self._staged = {each.location: each.data for each in staged}

    def read(self, location: str, *, span: tuple[int, int] | None = None) -> bytes:
        data = self._staged.get(location)
        if data is None:
            return self._files.read(location, span=span)
        return data if span is None else data[span[0] : span[1]]


def _entries(files: FileReader, metadata: TableMetadata) -> tuple[list[LiveFile], list[LiveFile]]:
    """The files of the current snapshot, and those that it let go."""
    snapshot = metadata.current_snapshot()
    assert snapshot is not None
    there: list[LiveFile] = []
    gone: list[LiveFile] = []
    for manifest in read_manifest_list(files, snapshot, spec_ids=metadata.specs().keys()):
        for entry in read_manifest(files, manifest):
            (gone if entry.status is ManifestEntryStatus.DELETED else there).append(live(entry))
    return there, gone
