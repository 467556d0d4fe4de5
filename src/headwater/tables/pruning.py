"""Proofs, from metadata alone, that a manifest or a file holds no row that matches. What cannot be read proves nothing.

PyIceberg projects filters onto partitions and compares them with bounds. It is not asked about partition values that
it would take for others: those of a column that was dropped, those that wrapped around, and those of years that
Python does not have.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import (
    _InclusiveMetricsEvaluator,
    expression_evaluator,
    inclusive_projection,
    manifest_evaluator,
)
from pyiceberg.manifest import ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType

from headwater.tables.model import TableCorruptError, TableFile

# What comes of bounds that are too short, or are no text.
UNREADABLE = (struct.error, ValueError, ArithmeticError, IndexError)


class Pruning:
    """What can be left out of a scan with a settled filter (`filters.settle_filter`)."""

    def __init__(
        self, metadata: TableMetadata, schema: Schema, row_filter: BooleanExpression, *, case_sensitive: bool
    ) -> None:
        self._metadata = metadata
        self._schema = schema
        self._filter = row_filter
        self._case_sensitive = case_sensitive
        self._everything = isinstance(row_filter, AlwaysTrue)
        # A count of rows that is zero or less is one that its writer did not know.
        self._metrics = _InclusiveMetricsEvaluator(
            schema, row_filter, case_sensitive=case_sensitive, include_empty_files=True
        )
        self._specs = metadata.specs()
        self._by_spec: dict[int, _OfPartitions | None] = {}

    def may_match_manifest(self, manifest: ManifestFile) -> bool:
        """Whether the bounds of the partition values let a row match."""
        if self._everything:
            return True
        of_partitions = self._of_partitions(manifest.partition_spec_id, manifest.manifest_path)
        if of_partitions is None:
            return True
        try:
            return of_partitions.may_match_manifest(manifest)
        except UNREADABLE:
            return True

    def may_match_file(self, file: TableFile) -> bool:
        """Whether the file's partition and column bounds let a row match."""
        if self._everything:
            return True
        of_partitions = self._of_partitions(file.spec_id, file.file_path)
        if of_partitions is not None and not of_partitions.may_match(file):
            return False
        try:
            return self._metrics.eval(file)
        except UNREADABLE:
            return True

    def _of_partitions(self, spec_id: int, location: str) -> _OfPartitions | None:
        """How partitions of this spec are judged; None when they prove nothing."""
        if spec_id not in self._by_spec:
            spec = spec_of(self._metadata, spec_id, location)
            self._by_spec[spec_id] = self._judging(spec)
        return self._by_spec[spec_id]

    def _judging(self, spec: PartitionSpec) -> _OfPartitions | None:
        if not all(field.source_id in self._schema._lazy_id_to_field for field in spec.fields):
            return None  # a source column was dropped
        try:
            projected = inclusive_projection(self._schema, spec, self._case_sensitive)(self._filter)
        except OverflowError:  # the filter is about a year that Python does not have
            return None
        partition_schema = Schema(*spec.partition_type(self._schema).fields)
        return _OfPartitions(
            manifest_evaluator(spec, self._schema, projected, self._case_sensitive),
            expression_evaluator(partition_schema, projected, self._case_sensitive),
            _wrapping_fields(spec, self._schema),
        )


def spec_of(metadata: TableMetadata, spec_id: int, location: str) -> PartitionSpec:
    """A partition spec of the table, by which this file was written."""
    spec = metadata.specs().get(spec_id)
    if spec is None:
        raise TableCorruptError(location, f"is of partition spec {spec_id}, which the table does not have")
    return spec


@dataclass(frozen=True)
class _Wrapping:
    """A truncated number of few bits. The smallest ones have no value below them, and become large ones."""

    place: int
    width: int
    kind: IntegerType | LongType

    def in_file(self, value: object) -> bool:
        """Whether this value has wrapped around: it is no multiple of the width, as all others are."""
        return isinstance(value, int) and value % self.width != 0

    def in_manifest(self, manifest: ManifestFile) -> bool:
        """Whether a value up to the upper bound may have wrapped around."""
        bound = manifest.partitions[self.place].upper_bound if manifest.partitions else None
        return bound is not None and int(from_bytes(self.kind, bound)) > self.kind.max - self.width


@dataclass(frozen=True)
class _OfPartitions:
    """The filter, projected onto the partitions of one spec."""

    of_manifest: Callable[[ManifestFile], bool]
    of_record: Callable[[Record], bool]
    wrapping: Sequence[_Wrapping]

    def may_match_manifest(self, manifest: ManifestFile) -> bool:
        """Whether a partition of the manifest may hold a row that matches."""
        return any(each.in_manifest(manifest) for each in self.wrapping) or self.of_manifest(manifest)

    def may_match(self, file: TableFile) -> bool:
        """Whether the partition of the file may hold a row that matches."""
        values = [file.partition[place] for place in range(len(file.partition))]
        if any(each.in_file(values[each.place]) for each in self.wrapping):
            return True
        # Literals of UUIDs are octets.
        return self.of_record(Record(*(each.bytes if isinstance(each, UUID) else each for each in values)))


def _wrapping_fields(spec: PartitionSpec, schema: Schema) -> tuple[_Wrapping, ...]:
    found = []
    for place, field in enumerate(spec.fields):
        kind = schema.find_type(field.source_id)
        if isinstance(field.transform, TruncateTransform) and isinstance(kind, IntegerType | LongType):
            found.append(_Wrapping(place, field.transform.width, kind))
    return tuple(found)
