"""Changes of a table that touch no data: each makes a new document from a document and writes nothing.

A change that changes nothing returns the very document that it was given. Schemas, specs and orders that were there
before are found again under their old ids; ids of columns and of partition fields are never given twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError as PydanticValidationError
from pyiceberg.exceptions import ValidationError
from pyiceberg.partitioning import PartitionSpec, validate_partition_name
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV1
from pyiceberg.table.name_mapping import update_mapping
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, UNSORTED_SORT_ORDER_ID
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import NestedField, StructType

from headwater.tables.columns import Draft, SchemaChange
from headwater.tables.drafts import changed
from headwater.tables.model import TableUsageError
from headwater.tables.partitions import (
    SortBy,
    SpecChange,
    changed_fields,
    check_sort_order,
    check_spec,
    new_sort_order,
)
from headwater.tables.properties import NAME_MAPPING, check_properties
from headwater.tables.rules import check_format_version, check_schema, checked, later

_ROOT_ID = -1  # what PyIceberg calls the parent of a table's own columns


def change_schema(metadata: TableMetadata, changes: Sequence[SchemaChange], now: datetime) -> TableMetadata:
    """The table with its columns changed, one change after the other."""
    old = metadata.schema()
    draft = Draft(
        old.fields,
        tuple(old.identifier_field_ids),
        metadata.last_column_id,
        metadata.format_version,
        has_rows(metadata),
    )
    for change in changes:
        draft = changed(draft, change)
    _check_still_needed(metadata, draft)
    new = _schema_of(draft, next_id=max(each.schema_id for each in metadata.schemas) + 1)
    check_schema(new, metadata.format_version)
    _check_partition_names(metadata, new)
    known = next((each for each in metadata.schemas if _same_schema(each, new)), None)
    if known is not None and known.schema_id == metadata.current_schema_id:
        return metadata
    current = known or new
    update: dict[str, Any] = {
        "schemas": [*metadata.schemas, *(() if known else (new,))],
        "current_schema_id": current.schema_id,
        "last_column_id": draft.last_column_id,
        "last_updated_ms": later(metadata, now),
        "properties": _mapped_names(metadata, old, current),
    }
    if isinstance(metadata, TableMetadataV1):
        update["schema_"] = current
    return checked(metadata.model_copy(update=update))


def has_rows(metadata: TableMetadata) -> bool:
    """Whether any snapshot holds rows, or may hold some."""
    return any(each.summary is None or each.summary["total-records"] != "0" for each in metadata.snapshots)


def _schema_of(draft: Draft, *, next_id: int) -> Schema:
    try:
        return Schema(*draft.fields, schema_id=next_id, identifier_field_ids=sorted(draft.identifier_ids))
    except ValueError as error:
        raise TableUsageError(
            f"the schema would not be valid: {error}", hint="identifier columns are required and primitive"
        ) from error


def _same_schema(one: Schema, other: Schema) -> bool:
    return one.fields == other.fields and set(one.identifier_field_ids) == set(other.identifier_field_ids)


def _check_still_needed(metadata: TableMetadata, draft: Draft) -> None:
    """Refuse to drop a column that something else of the table is made from.

    Old specs count too: files written under them are still read by their partition values.
    """
    old = metadata.schema()
    users = dict.fromkeys(draft.identifier_ids, "the identifier")
    users |= {each.source_id: "the sort order" for each in metadata.sort_order().fields}
    for spec in metadata.partition_specs:
        for field in spec.fields:
            if not isinstance(field.transform, VoidTransform):
                users[field.source_id] = f"partition field {field.name} of spec {spec.spec_id}"
    kept = index_by_id(StructType(*draft.fields))
    for field_id in sorted(index_by_id(old).keys() - kept.keys()):
        if field_id in users:
            name = old.find_column_name(field_id)
            raise TableUsageError(
                f"column {name} cannot be dropped: {users[field_id]} uses it",
                hint="change that first; a spec goes when no file needs it and old snapshots are expired",
                column=name,
            )


def _check_partition_names(metadata: TableMetadata, new: Schema) -> None:
    for field in metadata.spec().fields:
        try:
            validate_partition_name(field.name, field.transform, field.source_id, new, set())
        except ValueError as error:
            raise TableUsageError(
                f"a column cannot be called {field.name}: a partition field has that name",
                hint="choose another name, or rename the partition field",
                column=field.name,
            ) from error


def _mapped_names(metadata: TableMetadata, old: Schema, new: Schema) -> dict[str, str]:
    """The properties, with new names in the mapping by which files without field ids are read."""
    mapping = metadata.name_mapping()
    if mapping is None:
        return metadata.properties
    before, after, parents = index_by_id(old), index_by_id(new), new._lazy_id_to_parent
    renamed = {each: after[each] for each in before.keys() & after.keys() if before[each].name != after[each].name}
    added: dict[int, list[NestedField]] = {}
    for field_id in sorted(after.keys() - before.keys()):
        parent_id = parents.get(field_id, _ROOT_ID)
        if parent_id in before or parent_id == _ROOT_ID:
            added.setdefault(parent_id, []).append(after[field_id])
    return {**metadata.properties, NAME_MAPPING: update_mapping(mapping, renamed, added).model_dump_json()}


def change_spec(metadata: TableMetadata, changes: Sequence[SpecChange], now: datetime) -> TableMetadata:
    """The table with its partitioning changed for files to come."""
    fields, last_field_id = changed_fields(metadata, changes)
    new_id = max(each.spec_id for each in metadata.partition_specs) + 1
    spec = PartitionSpec(*fields, spec_id=new_id)
    check_spec(spec, metadata.schema())
    known = next((each for each in metadata.partition_specs if spec.compatible_with(each)), None)
    if known is not None and known.spec_id == metadata.default_spec_id:
        return metadata
    default = known or spec
    update: dict[str, Any] = {
        "partition_specs": [*metadata.partition_specs, *(() if known else (spec,))],
        "default_spec_id": default.spec_id,
        "last_partition_id": max(last_field_id, metadata.last_partition_id or 0),
        "last_updated_ms": later(metadata, now),
    }
    if isinstance(metadata, TableMetadataV1):
        update["partition_spec"] = [field.model_dump() for field in default.fields]
    return checked(metadata.model_copy(update=update))


def set_sort_order(metadata: TableMetadata, fields: Sequence[SortBy], now: datetime) -> TableMetadata:
    """The table with another order for files to come; none if `fields` is empty."""
    new_id = max((each.order_id for each in metadata.sort_orders), default=UNSORTED_SORT_ORDER_ID) + 1
    order = new_sort_order(metadata.schema(), fields, new_id)
    if order.is_unsorted:
        order = UNSORTED_SORT_ORDER
    check_sort_order(order, metadata.schema())
    known = next((each for each in metadata.sort_orders if each.fields == order.fields), None)
    default_id = (known or order).order_id
    if default_id == metadata.default_sort_order_id:
        return metadata
    update = {
        "sort_orders": [*metadata.sort_orders, *(() if known else (order,))],
        "default_sort_order_id": default_id,
        "last_updated_ms": later(metadata, now),
    }
    return checked(metadata.model_copy(update=update))


def set_properties(
    metadata: TableMetadata, values: Mapping[str, str], removed: Iterable[str], now: datetime
) -> TableMetadata:
    """The table with properties set and removed; to remove what is not there is no error."""
    gone = frozenset(removed)
    check_properties(values, gone)
    properties = {key: value for key, value in metadata.properties.items() if key not in gone} | dict(values)
    if properties == metadata.properties:
        return metadata
    return checked(metadata.model_copy(update={"properties": properties, "last_updated_ms": later(metadata, now)}))


def upgrade(metadata: TableMetadata, format_version: int, now: datetime) -> TableMetadata:
    """The table in a newer format version. There is no way back."""
    if format_version == metadata.format_version:
        return metadata
    check_format_version(format_version)
    if format_version < metadata.format_version:
        raise TableUsageError(
            f"the table has format version {metadata.format_version} and cannot go back to {format_version}",
            hint="older readers would miss what the newer version holds",
            format_version=metadata.format_version,
        )
    document = metadata.model_dump(mode="json")
    for legacy in ("schema", "partition-spec"):
        document.pop(legacy, None)
    document |= {"format-version": format_version, "last-updated-ms": later(metadata, now)}
    if format_version == 3:
        document["next-row-id"] = 0  # rows that are there get their ids from the next snapshot on
    try:
        return TableMetadataUtil.parse_obj(document)
    except (ValidationError, PydanticValidationError) as error:
        raise TableUsageError(f"the table cannot be upgraded: {error}", hint="mend what it names") from error
