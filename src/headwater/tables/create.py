"""The first metadata of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from uuid import UUID

import pyarrow as pa
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, _ConvertToIcebergWithoutIDs, visit_pyarrow
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2, TableMetadataV3
from pyiceberg.table.sorting import INITIAL_SORT_ORDER_ID, UNSORTED_SORT_ORDER, SortField, SortOrder

from headwater.kernel.clock import Clock
from headwater.kernel.ids import Ulid
from headwater.kernel.randomness import Randomness
from headwater.tables.head import INCARNATION, OPERATION
from headwater.tables.model import TableUsageError
from headwater.tables.partitions import (
    AddPartitionField,
    SortBy,
    check_sort_order,
    check_spec,
    new_sort_order,
    new_spec,
)
from headwater.tables.properties import FORMAT_VERSION, check_properties
from headwater.tables.rules import FreshIds, check_all_names, check_format_version, check_schema, checked, millis

# What a table has unless its maker says otherwise. Other engines must not delete files of a lake (hazard P5).
DEFAULT_PROPERTIES: Mapping[str, str] = {
    "gc.enabled": "false",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
}


def new_table(
    schema: Schema,
    *,
    location: str,
    spec: PartitionSpec | Sequence[AddPartitionField] = UNPARTITIONED_PARTITION_SPEC,
    sort_order: SortOrder | Sequence[SortBy] = UNSORTED_SORT_ORDER,
    properties: Mapping[str, str] | None = None,
    format_version: int = 2,
    incarnation: Ulid,
    operation: Ulid,
    clock: Clock,
    randomness: Randomness,
) -> TableMetadata:
    """Metadata without a snapshot. Columns get ids from 1 on; a spec or order by ids means the ids of `schema`."""
    check_format_version(format_version)
    check_all_names(schema.fields)
    fresh, ids = _with_fresh_ids(schema)
    check_schema(fresh, format_version)
    made_spec = _fresh_spec(spec, ids) if isinstance(spec, PartitionSpec) else new_spec(fresh, spec)
    check_spec(made_spec, fresh)
    if isinstance(sort_order, SortOrder):
        order = _fresh_order(sort_order, ids)
    else:
        order = new_sort_order(fresh, sort_order, INITIAL_SORT_ORDER_ID)
    check_sort_order(order, fresh)
    if order.is_unsorted:
        order = UNSORTED_SORT_ORDER
    model = TableMetadataV3 if format_version == 3 else TableMetadataV2
    return checked(
        model(
            location=location.rstrip("/"),
            table_uuid=uuid_from(randomness),
            last_updated_ms=millis(clock.now()),
            last_column_id=fresh.highest_field_id,
            schemas=[fresh],
            current_schema_id=fresh.schema_id,
            partition_specs=[made_spec],
            default_spec_id=made_spec.spec_id,
            last_partition_id=made_spec.last_assigned_field_id,
            sort_orders=[order],
            default_sort_order_id=order.order_id,
            properties=_properties(properties or {}, format_version, incarnation, operation),
            **({"next_row_id": 0} if format_version == 3 else {}),
        )
    )


def uuid_from(randomness: Randomness) -> UUID:
    """A random (version 4) UUID."""
    return UUID(bytes=randomness.randbytes(16), version=4)


def schema_from_arrow(arrow: pa.Schema, *, format_version: int = 2) -> Schema:
    """The schema of a table that could hold such Arrow data, with ids from 1 on; refused where Iceberg has no type."""
    for field in arrow:
        _check_arrow(field)
    try:
        converted = visit_pyarrow(arrow, _ConvertToIcebergWithoutIDs(format_version=format_version))  # type: ignore[arg-type]
    except UnsupportedPyArrowTypeException as error:
        raise _unmapped(error.field.name, error.field.type, error.__cause__ or error) from error
    except (TypeError, ValueError) as error:
        raise TableUsageError(
            f"the Arrow schema cannot become a table's: {error}", hint="cast the columns that it names"
        ) from error
    assert isinstance(converted, Schema)
    return _with_fresh_ids(converted)[0]


def _check_arrow(field: pa.Field) -> None:
    """Types that PyIceberg would take, but whose values would not fit."""
    kind = field.type
    if kind in (pa.uint32(), pa.uint64()):
        wider = "int64" if kind == pa.uint32() else "decimal128(20, 0)"
        raise _unmapped(field.name, kind, f"Iceberg has no unsigned numbers; {wider} holds all of its values")
    for place in range(kind.num_fields):
        _check_arrow(kind.field(place))


def _unmapped(name: str, kind: object, why: object) -> TableUsageError:
    return TableUsageError(
        f"column {name} has the Arrow type {kind}, which no Iceberg type holds: {why}",
        hint="cast the column before it is written",
        column=name,
    )


def _with_fresh_ids(schema: Schema) -> tuple[Schema, FreshIds]:
    ids = FreshIds(count(1).__next__)
    fields = ids.fields(schema.fields)
    identifiers = sorted(ids.new_id(each) for each in schema.identifier_field_ids)
    try:
        return Schema(*fields, schema_id=0, identifier_field_ids=identifiers), ids
    except ValueError as error:
        raise TableUsageError(
            f"the schema is not valid: {error}", hint="identifier columns are required and primitive; names are unique"
        ) from error


def _fresh_spec(spec: PartitionSpec, ids: FreshIds) -> PartitionSpec:
    return PartitionSpec(
        *(
            PartitionField(ids.new_id(each.source_id), PARTITION_FIELD_ID_START + place, each.transform, each.name)
            for place, each in enumerate(spec.fields)
        )
    )


def _fresh_order(order: SortOrder, ids: FreshIds) -> SortOrder:
    fields = (
        SortField(ids.new_id(each.source_id), each.transform, each.direction, each.null_order) for each in order.fields
    )
    return SortOrder(*fields, order_id=INITIAL_SORT_ORDER_ID)


def _properties(given: Mapping[str, str], format_version: int, incarnation: Ulid, operation: Ulid) -> dict[str, str]:
    wanted = dict(given)
    # Clients of the REST protocol say the version as a property too; it is not one.
    if wanted.get(FORMAT_VERSION) == str(format_version):
        del wanted[FORMAT_VERSION]
    check_properties(wanted)
    return {**DEFAULT_PROPERTIES, **wanted, INCARNATION: incarnation, OPERATION: operation}
