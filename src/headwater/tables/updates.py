"""The updates of a table's document that other engines send, as the Iceberg REST protocol names them.

PyIceberg models them; they are applied here, as its Java peer does it: a schema, spec or order that is there already is
found again under its own id and never added twice, `-1` means what was added last, and what is to be removed and is not
there is no error. Snapshots and refs are in `update_snapshots`. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import assert_never

from pyiceberg.exceptions import CommitFailedException, ValidationError
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AddSortOrderUpdate,
    AssignUUIDUpdate,
    RemovePartitionSpecsUpdate,
    RemovePartitionStatisticsUpdate,
    RemovePropertiesUpdate,
    RemoveSchemasUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetLocationUpdate,
    SetPartitionStatisticsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
    TableUpdate,
    UpgradeFormatVersionUpdate,
)

from headwater.tables.evolve import upgrade
from headwater.tables.metadata import decode_metadata, encode_metadata
from headwater.tables.model import TableCorruptError, TableUsageError
from headwater.tables.properties import OWN_PREFIX, STATISTICS_COLUMNS, STATISTICS_PARTITIONS, check_properties
from headwater.tables.rules import check_schema, later
from headwater.tables.update_snapshots import (
    with_ref,
    with_snapshot,
    with_statistics,
    without_ref,
    without_snapshots,
    without_statistics,
)

_LAST_ADDED = -1
_NOT_SENT = "a change of that kind cannot be made to this table"


def apply_updates(metadata: TableMetadata, updates: Sequence[TableUpdate], now: datetime) -> TableMetadata:
    """The document with all updates made, one after the other; the very document when they change nothing."""
    change = _Updating(metadata, now)
    for each in updates:
        try:
            change.apply(each)
        except (ValueError, KeyError, TypeError, AttributeError, ValidationError, CommitFailedException) as error:
            raise TableUsageError(f"{each.action} cannot be applied: {error}", hint=_NOT_SENT) from error
    made = change.metadata
    if made is metadata:
        return metadata
    made = made.model_copy(update={"last_updated_ms": max(later(metadata, now), made.last_updated_ms)})
    try:
        if _differs_in_properties_alone(metadata, made):
            json.dumps(made.properties, ensure_ascii=False).encode()  # all else was valid before: can these be written?
            return made
        for schema in made.schemas:
            check_schema(schema, made.format_version)
        made.spec().check_compatible(made.schema())
        made.sort_order().check_compatible(made.schema())
        return decode_metadata(encode_metadata(made), made.location)
    except (ValueError, KeyError, TypeError, StopIteration, ValidationError, TableCorruptError) as error:
        raise TableUsageError(f"the updates make a document that is not valid: {error}", hint=_NOT_SENT) from error


def _differs_in_properties_alone(before: TableMetadata, after: TableMetadata) -> bool:
    others = type(after).model_fields.keys() - {"properties", "last_updated_ms"}
    return type(before) is type(after) and all(getattr(before, name) is getattr(after, name) for name in others)


def echoed(held: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The properties without those of the lake that only say again what is so: clients send all that they know."""
    declared = (STATISTICS_COLUMNS, STATISTICS_PARTITIONS)
    return {
        key: value
        for key, value in given.items()
        if not key.startswith(OWN_PREFIX) or key in declared or held.get(key) != value
    }


class _Updating:
    """A document that is being changed, and what was added to it last."""

    def __init__(self, metadata: TableMetadata, now: datetime) -> None:
        self.metadata = metadata
        self._now = now
        self._last: dict[type, int] = {}
        self._added: set[int] = set()

    def apply(self, update: TableUpdate) -> None:  # noqa: C901  (one case for each kind)
        """One update."""
        match update:
            case AssignUUIDUpdate():
                self._refuse_other(update.uuid == self.metadata.table_uuid, "the table has a uuid, and keeps it")
            case SetLocationUpdate():
                same = update.location.rstrip("/") == self.metadata.location.rstrip("/")
                self._refuse_other(same, f"the lake keeps the table at {self.metadata.location}")
            case UpgradeFormatVersionUpdate():
                self.metadata = upgrade(self.metadata, update.format_version, self._now)
            case AddSchemaUpdate():
                self._add_schema(update.schema_)
            case SetCurrentSchemaUpdate():
                self._choose("current_schema_id", self._chosen(Schema, update.schema_id), self.metadata.schemas)
            case AddPartitionSpecUpdate():
                self._add_spec(update.spec)
            case SetDefaultSpecUpdate():
                self._choose(
                    "default_spec_id", self._chosen(PartitionSpec, update.spec_id), self.metadata.partition_specs
                )
            case AddSortOrderUpdate():
                self._add_order(update.sort_order)
            case SetDefaultSortOrderUpdate():
                wanted = self._chosen(SortOrder, update.sort_order_id)
                self._choose("default_sort_order_id", wanted, self.metadata.sort_orders)
            case SetPropertiesUpdate():
                self._set_properties(echoed(self.metadata.properties, update.updates), ())
            case RemovePropertiesUpdate():
                self._set_properties({}, update.removals)
            case AddSnapshotUpdate():
                self.metadata = with_snapshot(self.metadata, update.snapshot)
                self._added.add(update.snapshot.snapshot_id)
            case SetSnapshotRefUpdate():
                is_added, now_ms = update.snapshot_id in self._added, later(self.metadata, self._now)
                self.metadata = with_ref(self.metadata, update, is_added=is_added, now_ms=now_ms)
            case RemoveSnapshotRefUpdate():
                self.metadata = without_ref(self.metadata, update.ref_name)
            case RemoveSnapshotsUpdate():
                self.metadata = without_snapshots(self.metadata, update.snapshot_ids)
            case SetStatisticsUpdate():
                self.metadata = with_statistics(self.metadata, update.statistics)
            case SetPartitionStatisticsUpdate():
                self.metadata = with_statistics(self.metadata, update.partition_statistics)
            case RemoveStatisticsUpdate():
                self.metadata = without_statistics(self.metadata, "statistics", update.snapshot_id)
            case RemovePartitionStatisticsUpdate():
                self.metadata = without_statistics(self.metadata, "partition_statistics", update.snapshot_id)
            case RemoveSchemasUpdate():
                self._remove_schemas(update.schema_ids)
            case RemovePartitionSpecsUpdate():
                self._remove_specs(update.spec_ids)
            case _:
                assert_never(update)

    def _refuse_other(self, is_same: bool, why: str) -> None:  # noqa: FBT001
        if not is_same:
            raise ValueError(why)

    def _set_properties(self, values: Mapping[str, str], removed: Sequence[str]) -> None:
        check_properties(values, removed)
        held = self.metadata.properties
        made = {key: value for key, value in held.items() if key not in removed} | dict(values)
        if made != held:
            self.metadata = self.metadata.model_copy(update={"properties": made})

    def _add_schema(self, given: Schema) -> None:
        held = self.metadata.schemas
        for each in held:
            if each.fields == given.fields and set(each.identifier_field_ids) == set(given.identifier_field_ids):
                self._last[Schema] = each.schema_id
                return
        number = _free(given.schema_id, [each.schema_id for each in held])
        made = given.model_copy(update={"schema_id": number})
        last = max(self.metadata.last_column_id, given.highest_field_id)
        self.metadata = self.metadata.model_copy(update={"schemas": [*held, made], "last_column_id": last})
        self._last[Schema] = number

    def _add_spec(self, given: PartitionSpec) -> None:
        held = self.metadata.partition_specs
        for each in held:
            if each.fields == given.fields:
                self._last[PartitionSpec] = each.spec_id
                return
        number = _free(given.spec_id, [each.spec_id for each in held])
        ids = [each.field_id for each in given.fields]
        last = max([self.metadata.last_partition_id or PARTITION_FIELD_ID_START - 1, *ids])
        made = PartitionSpec(*given.fields, spec_id=number)
        update = {"partition_specs": [*held, made], "last_partition_id": last}
        self.metadata = self.metadata.model_copy(update=update)
        self._last[PartitionSpec] = number

    def _add_order(self, given: SortOrder) -> None:
        held = self.metadata.sort_orders
        for each in held:
            if each.fields == given.fields:
                self._last[SortOrder] = each.order_id
                return
        number = UNSORTED_SORT_ORDER.order_id
        if given.fields:
            number = max(1, _free(given.order_id, [UNSORTED_SORT_ORDER.order_id, *(each.order_id for each in held)]))
        made = SortOrder(*given.fields, order_id=number)
        self.metadata = self.metadata.model_copy(update={"sort_orders": [*held, made]})
        self._last[SortOrder] = number

    def _chosen(self, kind: type, number: int) -> int:
        if number != _LAST_ADDED:
            return number
        if kind not in self._last:
            raise ValueError("nothing was added before it")
        return self._last[kind]

    def _choose(self, name: str, number: int, among: Sequence[Schema | PartitionSpec | SortOrder]) -> None:
        if getattr(self.metadata, name) == number:
            return
        if number not in [_id_of(each) for each in among]:
            raise ValueError(f"there is no {number} among {', '.join(str(_id_of(each)) for each in among)}")
        self.metadata = self.metadata.model_copy(update={name: number})

    def _remove_schemas(self, gone: Sequence[int]) -> None:
        """Schemas that are current, or those of a snapshot that stays, are needed to read it."""
        used = {self.metadata.current_schema_id, *(each.schema_id for each in self.metadata.snapshots)}
        if needed := sorted(used & set(gone), key=str):
            raise ValueError(f"schema {needed[0]} is in use")
        left = [each for each in self.metadata.schemas if each.schema_id not in gone]
        if len(left) < len(self.metadata.schemas):
            self.metadata = self.metadata.model_copy(update={"schemas": left})

    def _remove_specs(self, gone: Sequence[int]) -> None:
        """Whether a manifest is of such a spec is not known here: who applies the change looks at that."""
        if self.metadata.default_spec_id in gone:
            raise ValueError(f"spec {self.metadata.default_spec_id} is the default")
        left = [each for each in self.metadata.partition_specs if each.spec_id not in gone]
        if len(left) < len(self.metadata.partition_specs):
            self.metadata = self.metadata.model_copy(update={"partition_specs": left})


def _free(wanted: int, taken: Sequence[int]) -> int:
    """The id that was asked for, or the next when it is taken: ids are never given twice."""
    return max([wanted, *(each + 1 for each in taken)]) if wanted in taken or wanted < 0 else wanted


def _id_of(each: Schema | PartitionSpec | SortOrder) -> int:
    match each:
        case Schema():
            return each.schema_id
        case PartitionSpec():
            return each.spec_id
        case SortOrder():
            return each.order_id
