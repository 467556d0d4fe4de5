"""Statistics files that a table names, and the one kind that is computed here: partition statistics.

Theta sketches in Puffin files (`apache-datasketches-theta-v1`) are kept, and their counts shown; they are made in
`publish/indices`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType, IntegerType, LongType, NestedField, StructType

from headwater.kernel.ids import Ulid
from headwater.kernel.randomness import Randomness
from headwater.tables.create import uuid_from
from headwater.tables.head import METADATA_FOLDER
from headwater.tables.model import LiveFile, NewFile, TableCorruptError, TableUsageError
from headwater.tables.naming import token_of
from headwater.tables.placing import Placing
from headwater.tables.rules import checked, later


def attach_statistics(metadata: TableMetadata, file: StatisticsFile, now: datetime) -> TableMetadata:
    """The table with a statistics file for a snapshot, in place of any other of that snapshot."""
    _require(metadata, file.snapshot_id)
    others = [each for each in metadata.statistics if each.snapshot_id != file.snapshot_id]
    return _with(metadata, "statistics", metadata.statistics, [*others, file], now)


def remove_statistics(metadata: TableMetadata, snapshot_id: int, now: datetime) -> TableMetadata:
    """The table without the statistics file of a snapshot."""
    others = [each for each in metadata.statistics if each.snapshot_id != snapshot_id]
    return _with(metadata, "statistics", metadata.statistics, others, now)


def attach_partition_statistics(metadata: TableMetadata, file: PartitionStatisticsFile, now: datetime) -> TableMetadata:
    """The table with a partition statistics file for a snapshot, in place of any other of that snapshot."""
    _require(metadata, file.snapshot_id)
    others = [each for each in metadata.partition_statistics if each.snapshot_id != file.snapshot_id]
    return _with(metadata, "partition_statistics", metadata.partition_statistics, [*others, file], now)


def remove_partition_statistics(metadata: TableMetadata, snapshot_id: int, now: datetime) -> TableMetadata:
    """The table without the partition statistics file of a snapshot."""
    others = [each for each in metadata.partition_statistics if each.snapshot_id != snapshot_id]
    return _with(metadata, "partition_statistics", metadata.partition_statistics, others, now)


def distinct_counts(metadata: TableMetadata, snapshot_id: int) -> dict[int, int]:
    """How many different values each column has, by field id, as the snapshot's statistics file says it."""
    counts: dict[int, int] = {}
    for file in metadata.statistics:
        if file.snapshot_id == snapshot_id:
            for blob in file.blob_metadata:
                known = (blob.properties or {}).get("ndv", "")
                if len(blob.fields) == 1 and known.isdecimal():
                    counts[blob.fields[0]] = int(known)
    return counts


@dataclass
class _Partition:
    """What the files of one partition under one spec come to."""

    values: tuple[Any, ...]
    spec_id: int
    data_record_count: int = 0
    data_file_count: int = 0
    total_data_file_size_in_bytes: int = 0
    position_delete_record_count: int = 0
    position_delete_file_count: int = 0
    equality_delete_record_count: int = 0
    equality_delete_file_count: int = 0
    total_record_count: int | None = None
    last_updated_at: int | None = None
    last_updated_snapshot_id: int | None = None
    dv_count: int = 0
    vector_record_count: int = field(default=0, repr=False)

    def add(self, live: LiveFile) -> None:
        """Count a file that is there."""
        file = live.file
        if file.is_vector:
            self.position_delete_record_count += file.record_count
            self.vector_record_count += file.record_count
            self.dv_count += 1
        elif file.content is DataFileContent.POSITION_DELETES:
            self.position_delete_record_count += file.record_count
            self.position_delete_file_count += 1
        elif file.content is DataFileContent.EQUALITY_DELETES:
            self.equality_delete_record_count += file.record_count
            self.equality_delete_file_count += 1
        else:
            self.data_record_count += file.record_count
            self.data_file_count += 1
            self.total_data_file_size_in_bytes += file.file_size_in_bytes

    def touch(self, snapshot_id: int, timestamp_ms: int) -> None:
        """A snapshot added to the partition, or took from it."""
        if self.last_updated_at is None or timestamp_ms >= self.last_updated_at:
            self.last_updated_at, self.last_updated_snapshot_id = timestamp_ms, snapshot_id


def partition_statistics(
    metadata: TableMetadata,
    snapshot_id: int,
    live: Iterable[LiveFile],
    *,
    removed: Iterable[LiveFile] = (),
    randomness: Randomness,
    operation: Ulid | None = None,
    placing: Placing = Placing(),  # noqa: B008  (frozen)
) -> tuple[NewFile, PartitionStatisticsFile]:
    """The partition statistics of a snapshot from its live files: a Parquet file, and what the metadata says of it.

    `removed` are the deleted entries of the snapshot's manifests; they only tell when a partition last changed.
    """
    _require(metadata, snapshot_id)
    kind = unified_partition_type(metadata)
    if not kind.fields:
        raise TableUsageError("the table has no partitions", hint="partition statistics need a partitioned table")
    rows = _counted(metadata, kind, live, removed)
    data = _parquet(statistics_schema(metadata, kind), rows)
    token = token_of(operation, randomness) if operation else uuid_from(randomness)
    name = f"partition-stats-{snapshot_id}-{token}.parquet"
    location = f"{placing.folder_of(metadata)}/{METADATA_FOLDER}/{name}"
    described = PartitionStatisticsFile(snapshot_id=snapshot_id, statistics_path=location, file_size_in_bytes=len(data))
    return NewFile(location, data), described


def unified_partition_type(metadata: TableMetadata) -> StructType:
    """Every field that was ever in a spec, by field id; the newest spec says its name."""
    chosen: dict[int, NestedField] = {}
    for spec in sorted(metadata.partition_specs, key=lambda each: each.spec_id, reverse=True):
        for each in spec.fields:
            if each.field_id not in chosen and not isinstance(each.transform, VoidTransform):
                kind = each.transform.result_type(_source_type(metadata, each.source_id))
                chosen[each.field_id] = NestedField(each.field_id, each.name, kind)
    return StructType(*(chosen[each] for each in sorted(chosen)))


def statistics_schema(metadata: TableMetadata, partition: StructType) -> Schema:
    """The columns of a partition statistics file, under the ids that the specification gives them."""
    is_v3 = metadata.format_version >= 3
    fields = [
        NestedField(1, "partition", partition, required=True),
        NestedField(2, "spec_id", IntegerType(), required=True),
        NestedField(3, "data_record_count", LongType(), required=True),
        NestedField(4, "data_file_count", IntegerType(), required=True),
        NestedField(5, "total_data_file_size_in_bytes", LongType(), required=True),
        NestedField(6, "position_delete_record_count", LongType(), required=is_v3),
        NestedField(7, "position_delete_file_count", IntegerType(), required=is_v3),
        NestedField(8, "equality_delete_record_count", LongType(), required=is_v3),
        NestedField(9, "equality_delete_file_count", IntegerType(), required=is_v3),
        NestedField(10, "total_record_count", LongType()),
        NestedField(11, "last_updated_at", LongType()),
        NestedField(12, "last_updated_snapshot_id", LongType()),
    ]
    if is_v3:
        fields.append(NestedField(13, "dv_count", IntegerType(), required=True))
    return Schema(*fields)


def _counted(
    metadata: TableMetadata, kind: StructType, live: Iterable[LiveFile], removed: Iterable[LiveFile]
) -> list[_Partition]:
    places = {each.field_id: place for place, each in enumerate(kind.fields)}
    # For each spec: where each of its values goes in the unified partition.
    targets = {
        spec.spec_id: tuple(places.get(each.field_id) for each in spec.fields) for spec in metadata.partition_specs
    }
    times = {each.snapshot_id: each.timestamp_ms for each in metadata.snapshots}
    rows: dict[tuple[int, tuple[Any, ...]], _Partition] = {}

    def row_of(each: LiveFile) -> _Partition:
        spec_id = each.file.spec_id
        if spec_id not in targets:
            raise TableCorruptError(each.file.file_path, f"has partition spec {spec_id}, which the table does not know")
        values: list[Any] = [None] * len(places)
        for place, target in enumerate(targets[spec_id]):
            if target is not None:
                values[target] = each.file.partition[place]
        return rows.setdefault((spec_id, tuple(values)), _Partition(tuple(values), spec_id))

    for each in live:
        row_of(each).add(each)
        if each.snapshot_id is not None and each.snapshot_id in times:
            row_of(each).touch(each.snapshot_id, times[each.snapshot_id])
    deletes_are_exact = not any(
        row.position_delete_file_count or row.equality_delete_file_count for row in rows.values()
    )
    for row in rows.values():
        # Only vectors say exactly how many rows are gone; equality deletes may reach into other partitions.
        row.total_record_count = row.data_record_count - row.vector_record_count if deletes_are_exact else None
    for each in removed:
        if each.snapshot_id is not None and each.snapshot_id in times:
            row_of(each).touch(each.snapshot_id, times[each.snapshot_id])
    return sorted(rows.values(), key=lambda row: (*(_nulls_first(each) for each in row.values), row.spec_id))


def _nulls_first(value: Any) -> tuple[bool, Any]:
    return (value is not None, 0 if value is None else value)


def _parquet(schema: Schema, rows: Sequence[_Partition]) -> bytes:
    arrow = schema_to_pyarrow(schema)
    partition = arrow.field("partition").type
    children = [partition.field(place) for place in range(partition.num_fields)]
    values = [_array([row.values[place] for row in rows], child.type) for place, child in enumerate(children)]
    columns = [pa.StructArray.from_arrays(values, fields=children)]
    columns += [pa.array([getattr(row, name) for row in rows], arrow.field(name).type) for name in arrow.names[1:]]
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(columns, schema=arrow), out, compression="zstd")
    data: bytes = out.getvalue().to_pybytes()
    return data


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if isinstance(kind, pa.UuidType):
        storage = pa.array([getattr(each, "bytes", each) for each in values], kind.storage_type)
        return pa.ExtensionArray.from_storage(kind, storage)
    return pa.array(values, kind)


def _source_type(metadata: TableMetadata, source_id: int) -> IcebergType:
    for schema in (metadata.schema(), *reversed(metadata.schemas)):
        try:
            return schema.find_type(source_id)
        except ValueError:
            continue
    raise TableUsageError(
        f"no schema of the table has column {source_id}, which a partition field uses",
        hint="the spec is older than the oldest schema that was kept",
        field_id=source_id,
    )


def _with(
    metadata: TableMetadata, name: str, old: Sequence[object], new: Sequence[object], now: datetime
) -> TableMetadata:
    if list(old) == list(new):
        return metadata
    return checked(metadata.model_copy(update={name: list(new), "last_updated_ms": later(metadata, now)}))


def _require(metadata: TableMetadata, snapshot_id: int) -> None:
    if metadata.snapshot_by_id(snapshot_id) is None:
        raise TableUsageError(
            f"the table has no snapshot {snapshot_id}", hint="it may have been expired", snapshot=snapshot_id
        )
