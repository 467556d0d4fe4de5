"""The updates of a table's document that other engines send, as the Iceberg REST protocol names them.

PyIceberg models them and applies most of them. What it does otherwise than its Java peer is done here: a schema, spec
or order that is there already is found again under its own id and never added twice, `-1` means what was added last, a
property that is not there is no error, and row ids count on from where the snapshot says that they begin. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from pyiceberg.exceptions import CommitFailedException, ValidationError
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, TableMetadataV2, TableMetadataV3
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AddSortOrderUpdate,
    AssignUUIDUpdate,
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    TableUpdate,
    UpgradeFormatVersionUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)

from headwater.tables.evolve import upgrade
from headwater.tables.metadata import decode_metadata, encode_metadata
from headwater.tables.model import TableCorruptError, TableUsageError
from headwater.tables.properties import OWN_PREFIX, STATISTICS_COLUMNS, STATISTICS_PARTITIONS, check_properties
from headwater.tables.rules import check_format_version, check_schema, later, millis

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
        for schema in made.schemas:
            check_schema(schema, made.format_version)
        made.spec().check_compatible(made.schema())
        made.sort_order().check_compatible(made.schema())
        return decode_metadata(encode_metadata(made), made.location)
    except (ValueError, KeyError, TypeError, StopIteration, ValidationError, TableCorruptError) as error:
        raise TableUsageError(f"the updates make a document that is not valid: {error}", hint=_NOT_SENT) from error


def blank(updates: Sequence[TableUpdate], *, fresh_uuid: UUID, now: datetime) -> TableMetadata:
    """What the updates of a table that is to be made are applied to: a document that says nothing yet."""
    version = max((each.format_version for each in updates if isinstance(each, UpgradeFormatVersionUpdate)), default=2)
    check_format_version(version)
    given = next((each.uuid for each in updates if isinstance(each, AssignUUIDUpdate)), fresh_uuid)
    place = next((each.location for each in updates if isinstance(each, SetLocationUpdate)), "")
    model: Any = TableMetadataV3 if version == 3 else TableMetadataV2
    made: TableMetadata = model.model_construct(
        format_version=version,
        location=place.rstrip("/"),
        table_uuid=given,
        last_updated_ms=millis(now),
        last_column_id=0,
        schemas=[],
        current_schema_id=_LAST_ADDED,
        partition_specs=[],
        default_spec_id=_LAST_ADDED,
        last_partition_id=PARTITION_FIELD_ID_START - 1,
        properties={},
        current_snapshot_id=None,
        snapshots=[],
        snapshot_log=[],
        metadata_log=[],
        sort_orders=[],
        default_sort_order_id=_LAST_ADDED,
        refs={},
        statistics=[],
        partition_statistics=[],
        last_sequence_number=0,
        **({"next_row_id": 0} if version == 3 else {}),
    )
    return made


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
        self._context = _TableMetadataUpdateContext()
        self._last: dict[type, int] = {}

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
                self._add_snapshot(update)
            case _:
                self.metadata = _apply_table_update(update, self.metadata, self._context)

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

    def _add_snapshot(self, update: AddSnapshotUpdate) -> None:
        snapshot, before = update.snapshot, self.metadata
        if not isinstance(before, TableMetadataV1) and (snapshot.sequence_number or 0) <= before.last_sequence_number:
            raise ValueError(
                f"its sequence number {snapshot.sequence_number} is not above the last, {before.last_sequence_number}"
            )
        made = _apply_table_update(update, before, self._context)
        following: dict[str, Any] = {"last_updated_ms": max(before.last_updated_ms, snapshot.timestamp_ms)}
        if isinstance(made, TableMetadataV3):
            if snapshot.added_rows is None or snapshot.added_rows < 0 or snapshot.first_row_id is None:
                raise ValueError("it does not say how many row ids it takes")
            following["next_row_id"] = snapshot.first_row_id + snapshot.added_rows
        self.metadata = made.model_copy(update=following)


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
