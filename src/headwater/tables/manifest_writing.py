"""Manifests and manifest lists written, in v2 and v3.

Entries are written with what they must keep, and without what they inherit from their manifest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    FileFormat,
    ManifestContent,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
    construct_partition_summaries,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, ListType, NestedField, StructType

from headwater.tables.avro import avro_schema, write_avro
from headwater.tables.model import LiveFile, TableFile, TableUsageError

# Ids of the fields of a data file that only v3 knows.
_V3_ONLY = frozenset({142, 144, 145})
_EQUALITY_IDS = 135
_MAPS = frozenset({108, 109, 110, 125, 128, 137})


@dataclass(frozen=True)
class EntryToWrite:
    """An entry of a manifest that is to be written."""

    status: ManifestEntryStatus
    live: LiveFile


@dataclass(frozen=True)
class ManifestTerms:
    """What all manifests of one staged snapshot have in common."""

    metadata: TableMetadata
    snapshot_id: int
    sequence_number: int

    @property
    def version(self) -> int:
        """Format version of the table."""
        return self.metadata.format_version


def write_manifest(
    terms: ManifestTerms, location: str, content: ManifestContent, spec: PartitionSpec, entries: Sequence[EntryToWrite]
) -> tuple[ManifestFile, bytes]:
    """One manifest, and the line of the manifest list that tells of it, with its true length."""
    schema = terms.metadata.schema()
    partition_type = _partition_type(terms.metadata, spec)
    header = {
        "schema": schema.model_dump_json(),
        "schema-id": str(schema.schema_id),
        "partition-spec": json.dumps([field.model_dump(by_alias=True, mode="json") for field in spec.fields]),
        "partition-spec-id": str(spec.spec_id),
        "format-version": str(terms.version),
        "content": "deletes" if content is ManifestContent.DELETES else "data",
    }
    fields = _file_fields(terms.version)
    names = tuple(_avro_name(field.name) for field in partition_type.fields)
    data = write_avro(
        _entry_schema(terms.version, partition_type),
        [_entry_record(each, terms, fields, names) for each in entries],
        header,
    )
    return _line(terms, location, content, spec, entries, partition_type, len(data)), data


def write_manifest_list(
    terms: ManifestTerms, parent_snapshot_id: int | None, manifests: Sequence[ManifestFile], first_row_id: int | None
) -> bytes:
    """The manifest list of a snapshot; every line must have its counts (see `manifests.with_counts`)."""
    header = {
        "snapshot-id": str(terms.snapshot_id),
        "parent-snapshot-id": "null" if parent_snapshot_id is None else str(parent_snapshot_id),
        "sequence-number": str(terms.sequence_number),
        "format-version": str(terms.version),
    }
    if first_row_id is not None:
        header["first-row-id"] = str(first_row_id)
    fields = MANIFEST_LIST_FILE_SCHEMAS[terms.version].fields
    records = [_list_record(manifest, fields) for manifest in manifests]
    return write_avro(_list_schema(terms.version), records, header)


def _partition_type(metadata: TableMetadata, spec: PartitionSpec) -> StructType:
    """The spec's type, by whichever schema still knows its sources."""
    for schema in (metadata.schema(), *reversed(metadata.schemas)):
        if all(field.source_id in schema._lazy_id_to_field for field in spec.fields):
            return spec.partition_type(schema)
    return spec.partition_type(metadata.schema())


@lru_cache(maxsize=8)
def _file_fields(version: int) -> tuple[tuple[int, NestedField], ...]:
    """The fields of a data file that this version writes, each with its place in a `TableFile`."""
    fields = []
    for place, field in enumerate(DATA_FILE_TYPE[3].fields):
        if version < 3 and field.field_id in _V3_ONLY:
            continue
        if field.field_id == _EQUALITY_IDS:  # PyIceberg says long; the specification says int
            field = field.model_copy(update={"field_type": ListType(136, IntegerType(), element_required=True)})
        fields.append((place, field))
    return tuple(fields)


@lru_cache(maxsize=256)
def _entry_schema(version: int, partition_type: StructType) -> object:
    partition = StructType(
        *(
            NestedField(each.field_id, _avro_name(each.name), each.field_type, required=False)
            for each in partition_type.fields
        )
    )
    data_file = StructType(
        *(
            field.model_copy(update={"field_type": partition}) if field.field_id == 102 else field
            for _, field in _file_fields(version)
        )
    )
    fields = (
        field.model_copy(update={"field_type": data_file}) if field.field_id == 2 else field
        for field in MANIFEST_ENTRY_SCHEMAS[version].fields
    )
    return avro_schema(Schema(*fields), "manifest_entry")


@lru_cache(maxsize=8)
def _list_schema(version: int) -> object:
    return avro_schema(MANIFEST_LIST_FILE_SCHEMAS[version], "manifest_file")


def _avro_name(name: str) -> str:
    """A name that Avro allows, spelled as Iceberg's own writers do; readers go by field id."""
    spelled = re.sub(r"[^A-Za-z0-9_]", lambda found: f"_x{ord(found[0]):X}", name)
    return f"_{spelled}" if not spelled or spelled[0].isdigit() else spelled


def _entry_record(
    entry: EntryToWrite, terms: ManifestTerms, fields: Sequence[tuple[int, NestedField]], partition_names: Sequence[str]
) -> dict[str, Any]:
    each = entry.live
    # What the new snapshot adds inherits its number from the manifest, unless it was given another one.
    inherits = entry.status is ManifestEntryStatus.ADDED and each.sequence_number == terms.sequence_number
    return {
        "status": int(entry.status),
        "snapshot_id": terms.snapshot_id if entry.status is not ManifestEntryStatus.EXISTING else each.snapshot_id,
        "sequence_number": None if inherits else each.sequence_number,
        "file_sequence_number": None if entry.status is ManifestEntryStatus.ADDED else each.file_sequence_number,
        "data_file": _file_record(each.file, fields, partition_names),
    }


def _file_record(
    file: TableFile, fields: Sequence[tuple[int, NestedField]], partition_names: Sequence[str]
) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for place, field in fields:
        value = file._data[place]
        if field.field_id in _MAPS and value is not None:
            value = [{"key": key, "value": each} for key, each in value.items()]
        elif field.field_id == 102:
            value = _partition_record(value, partition_names)
        elif field.field_id == 134:
            value = int(value)
        elif field.field_id == 101:
            value = value.value if isinstance(value, FileFormat) else str(value).upper()
        record[field.name] = value
    return record


def _partition_record(partition: Record, names: Sequence[str]) -> Mapping[str, object]:
    return {name: getattr(partition[place], "bytes", partition[place]) for place, name in enumerate(names)}


def _list_record(manifest: ManifestFile, fields: Sequence[NestedField]) -> dict[str, Any]:
    record: dict[str, Any] = {}
    for place, field in enumerate(fields):
        value = manifest[place]
        if field.field_id == 517:
            value = int(value)
        elif field.field_id == 507 and value is not None:
            value = [
                {
                    "contains_null": each.contains_null,
                    "contains_nan": each.contains_nan,
                    "lower_bound": each.lower_bound,
                    "upper_bound": each.upper_bound,
                }
                for each in value
            ]
        elif value is None and field.required:
            # Written as 0, a count that is not known would hide the manifest from every reader.
            raise TableUsageError(
                f"{field.name} of {manifest.manifest_path} is not known, so no manifest list can name it",
                hint="count its entries first",
                path=manifest.manifest_path,
            )
        record[field.name] = value
    return record


def _line(
    terms: ManifestTerms,
    location: str,
    content: ManifestContent,
    spec: PartitionSpec,
    entries: Sequence[EntryToWrite],
    partition_type: StructType,
    length: int,
) -> ManifestFile:
    counts = {status: [0, 0] for status in ManifestEntryStatus}
    for each in entries:
        counts[each.status][0] += 1
        counts[each.status][1] += each.live.file.record_count
    added, existing, deleted = (
        counts[ManifestEntryStatus.ADDED],
        counts[ManifestEntryStatus.EXISTING],
        counts[ManifestEntryStatus.DELETED],
    )
    numbers = [each.live.sequence_number for each in entries if each.status is not ManifestEntryStatus.DELETED]
    return ManifestFile(
        location,
        length,
        spec.spec_id,
        content,
        terms.sequence_number,
        min(numbers, default=terms.sequence_number),
        terms.snapshot_id,
        added[0],
        existing[0],
        deleted[0],
        added[1],
        existing[1],
        deleted[1],
        _summaries(spec, partition_type, [each.live.file.partition for each in entries]),
        None,
        None,
    )


def _summaries(
    spec: PartitionSpec, partition_type: StructType, partitions: list[Record]
) -> list[PartitionFieldSummary]:
    """Bounds of the partition values, in whichever schema the type was found."""
    return construct_partition_summaries(_TypedSpec(spec, partition_type), Schema(), partitions)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _TypedSpec:
    """A spec whose partition type is known already."""

    spec: PartitionSpec
    type: StructType

    def partition_type(self, _: Schema) -> StructType:
        """The known type."""
        return self.type
