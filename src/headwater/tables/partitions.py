"""Partition specs and sort orders, by the names of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec, validate_partition_name
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    IdentityTransform,
    TimeTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    parse_transform,
)

from headwater.tables.columns import ColumnPath, spelled
from headwater.tables.model import TableUsageError


@dataclass(frozen=True)
class AddPartitionField:
    """Partition by a transform of a column, such as `identity`, `bucket[16]`, `truncate[4]`, `day`."""

    source: ColumnPath
    transform: str = "identity"
    name: str | None = None


@dataclass(frozen=True)
class RemovePartitionField:
    """Partition by this no longer; files that are there keep their partitions."""

    name: str


@dataclass(frozen=True)
class RenamePartitionField:
    """Another name for a partition field."""

    name: str
    new_name: str


SpecChange = AddPartitionField | RemovePartitionField | RenamePartitionField


@dataclass(frozen=True)
class SortBy:
    """Sort by a transform of a column; nulls come first when ascending and last when descending, unless told."""

    source: ColumnPath
    transform: str = "identity"
    descending: bool = False
    nulls_first: bool | None = None


def new_spec(schema: Schema, fields: Sequence[AddPartitionField]) -> PartitionSpec:
    """The first spec of a table."""
    made: list[PartitionField] = []
    for place, each in enumerate(fields):
        source_id, transform = _source(schema, each.source, each.transform)
        name = each.name or _default_name(schema, source_id, transform)
        made.append(PartitionField(source_id, PARTITION_FIELD_ID_START + place, transform, name))
    return PartitionSpec(*made)


def changed_fields(metadata: TableMetadata, changes: Sequence[SpecChange]) -> tuple[list[PartitionField], int]:
    """The fields of the default spec after the changes, and the highest field id ever given."""
    fields = list(metadata.spec().fields)
    last = metadata.last_partition_id or PARTITION_FIELD_ID_START - 1
    keeps_places = metadata.format_version == 1
    for change in changes:
        match change:
            case AddPartitionField():
                added, last = _added(metadata, change, last)
                _free_name(fields, added.name)
                fields.append(added)
            case RemovePartitionField(name):
                place = _index(fields, name)
                if keeps_places:  # v1 finds partition values by place, so the place must stay taken
                    fields[place] = fields[place].model_copy(update={"transform": VoidTransform()})
                else:
                    del fields[place]
            case RenamePartitionField(name, new_name):
                place = _index(fields, name)
                fields[place] = fields[place].model_copy(update={"name": new_name})
            case _:
                assert_never(change)
    return fields, last


def _added(metadata: TableMetadata, change: AddPartitionField, last: int) -> tuple[PartitionField, int]:
    schema = metadata.schema()
    source_id, transform = _source(schema, change.source, change.transform)
    # The same field of an earlier spec is the same field again: files written under it keep their meaning.
    if metadata.format_version > 1:
        for spec in reversed(metadata.partition_specs):
            for field in spec.fields:
                same = field.source_id == source_id and field.transform == transform
                if same and change.name in (None, field.name):
                    return field, last
    name = change.name or _default_name(schema, source_id, transform)
    return PartitionField(source_id, last + 1, transform, name), last + 1


def _free_name(fields: list[PartitionField], name: str) -> None:
    """A void field gives its name up."""
    for place, field in enumerate(fields):
        if field.name == name and isinstance(field.transform, VoidTransform):
            fields[place] = field.model_copy(update={"name": f"{name}_{field.field_id}"})


def _index(fields: Sequence[PartitionField], name: str) -> int:
    for place, field in enumerate(fields):
        if field.name == name and not isinstance(field.transform, VoidTransform):
            return place
    there = ", ".join(field.name for field in fields) or "unpartitioned"
    raise TableUsageError(f"there is no partition field {name}", hint=f"the table is {there}", partition_field=name)


def check_spec(spec: PartitionSpec, schema: Schema) -> None:
    """Refuse a spec that says the same twice, takes a column's name, or transforms what it cannot."""
    said: set[tuple[int, str]] = set()
    names: set[str] = set()
    try:
        spec.check_compatible(schema)
        for field in spec.fields:
            kind = "time" if isinstance(field.transform, TimeTransform) else str(field.transform)
            twice = (field.source_id, kind) in said and not isinstance(field.transform, VoidTransform)
            if twice or field.name in names or not field.name:
                raise ValueError("it says the same as another field, or has its name")  # noqa: TRY301
            validate_partition_name(field.name, field.transform, field.source_id, schema, set())
            said.add((field.source_id, kind))
            names.add(field.name)
    except (ValidationError, ValueError) as error:
        raise TableUsageError(
            f"the table cannot be partitioned by {spec_text(spec, schema)}: {error}",
            hint="each field needs a name of its own and a transform that its column allows",
        ) from error


def spec_text(spec: PartitionSpec, schema: Schema) -> str:
    """The spec as people write it."""
    return ", ".join(f"{each.transform}({schema.find_column_name(each.source_id)})" for each in spec.fields) or "none"


def new_sort_order(schema: Schema, fields: Sequence[SortBy], order_id: int) -> SortOrder:
    """A sort order by names of columns."""
    made: list[SortField] = []
    for each in fields:
        source_id, transform = _source(schema, each.source, each.transform)
        nulls_first = not each.descending if each.nulls_first is None else each.nulls_first
        direction = SortDirection.DESC if each.descending else SortDirection.ASC
        null_order = NullOrder.NULLS_FIRST if nulls_first else NullOrder.NULLS_LAST
        made.append(SortField(source_id, transform, direction, null_order))
    return SortOrder(*made, order_id=order_id)


def check_sort_order(order: SortOrder, schema: Schema) -> None:
    """Refuse an order by what cannot be sorted."""
    try:
        order.check_compatible(schema)
    except ValidationError as error:
        raise TableUsageError(f"the table cannot be sorted so: {error}", hint="sort by primitive columns") from error


def _source(schema: Schema, source: ColumnPath, transform: str) -> tuple[int, Transform[Any, Any]]:
    try:
        field = schema.find_field(spelled(source))
    except ValueError:
        raise TableUsageError(
            f"there is no column {spelled(source)}",
            hint=f"the columns are {', '.join(schema.column_names)}",
            column=spelled(source),
        ) from None
    try:
        parsed = parse_transform(transform)
    except (ValueError, ValidationError):
        parsed = UnknownTransform(transform)
    if isinstance(parsed, UnknownTransform | VoidTransform):
        raise TableUsageError(
            f"{transform} is not a transform",
            hint="identity, bucket[n], truncate[n], year, month, day, hour",
            transform=transform,
        )
    return field.field_id, parsed


def _default_name(schema: Schema, source_id: int, transform: Transform[Any, Any]) -> str:
    name = schema.find_column_name(source_id)
    assert name is not None  # the caller found the id in this schema
    match transform:
        case IdentityTransform():
            return name
        case BucketTransform():
            return f"{name}_bucket_{transform.num_buckets}"
        case TruncateTransform():
            return f"{name}_trunc_{transform.width}"
        case _:
            return f"{name}_{transform}"
