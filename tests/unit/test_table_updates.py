"""The updates that other engines send, one by one, on the document alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import TypeAdapter
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.table.update import TableUpdate
from pyiceberg.types import LongType, NestedField, StringType

from headwater.kernel.clock import ManualClock
from headwater.kernel.ids import Ulid
from headwater.kernel.randomness import seeded
from headwater.tables.create import new_table
from headwater.tables.model import TableUsageError
from headwater.tables.updates import apply_updates, blank, echoed

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()))
_adapter: TypeAdapter[Any] = TypeAdapter(TableUpdate)


def updates(*given: dict[str, Any]) -> list[Any]:
    return [_adapter.validate_python(each) for each in given]


def table(format_version: int = 2) -> TableMetadata:
    return new_table(
        SCHEMA,
        location="s3://bucket/t",
        format_version=format_version,
        incarnation=Ulid("01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        operation=Ulid("01ARZ3NDEKTSV4RRFFQ69G5FAW"),
        clock=ManualClock(),
        randomness=seeded(1),
    )


def snapshot(number: int, sequence: int, **more: Any) -> dict[str, Any]:
    return {
        "action": "add-snapshot",
        "snapshot": {
            "snapshot-id": number,
            "sequence-number": sequence,
            "timestamp-ms": 1,
            "manifest-list": "s3://bucket/t/metadata/x.avro",
            "summary": {"operation": "append"},
            "schema-id": 0,
            **more,
        },
    }


def main_at(number: int) -> dict[str, Any]:
    return {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": number}


def test_what_changes_nothing_is_the_same_document() -> None:
    before = table()
    same = {"action": "add-schema", "schema": SCHEMA.model_dump()}
    assert apply_updates(before, updates(same, {"action": "set-current-schema", "schema-id": -1}), NOW) is before
    assert apply_updates(before, (), NOW) is before


def test_time_goes_on() -> None:
    before = table()
    after = apply_updates(before, updates({"action": "set-properties", "updates": {"a": "b"}}), NOW)
    assert after.last_updated_ms > before.last_updated_ms
    earlier = apply_updates(
        after, updates({"action": "set-properties", "updates": {"a": "c"}}), datetime(2000, 1, 1, tzinfo=UTC)
    )
    assert earlier.last_updated_ms == after.last_updated_ms


def test_a_sequence_number_only_rises() -> None:
    first = apply_updates(table(), updates(snapshot(1, 1), main_at(1)), NOW)
    assert (first.current_snapshot_id, first.last_sequence_number) == (1, 1)  # type: ignore[union-attr]
    for sequence in (0, 1):
        with pytest.raises(TableUsageError, match="not above the last"):
            apply_updates(first, updates(snapshot(2, sequence)), NOW)
    with pytest.raises(TableUsageError, match="already exists"):
        apply_updates(first, updates(snapshot(1, 2)), NOW)


def test_row_ids_count_on() -> None:
    first = apply_updates(table(3), updates(snapshot(1, 1, **{"first-row-id": 0, "added-rows": 5}), main_at(1)), NOW)
    assert isinstance(first, TableMetadataV3)
    assert first.next_row_id == 5
    second = apply_updates(first, updates(snapshot(2, 2, **{"first-row-id": 8, "added-rows": 2})), NOW)
    assert isinstance(second, TableMetadataV3)
    assert second.next_row_id == 10
    for bad in ({}, {"first-row-id": 4, "added-rows": 1}, {"first-row-id": 5}, {"first-row-id": 5, "added-rows": -1}):
        with pytest.raises(TableUsageError):
            apply_updates(first, updates(snapshot(2, 2, **bad)), NOW)


def test_refs_come_and_go() -> None:
    moved = apply_updates(table(), updates(snapshot(1, 1), main_at(1), snapshot(2, 2), main_at(2)), NOW)
    tag = {"action": "set-snapshot-ref", "ref-name": "t", "type": "tag", "snapshot-id": 1}
    tagged = apply_updates(moved, updates(tag), NOW)
    assert set(tagged.refs) == {"main", "t"}
    back = apply_updates(tagged, updates(main_at(1), {"action": "remove-snapshot-ref", "ref-name": "t"}), NOW)
    assert (back.current_snapshot_id, set(back.refs)) == (1, {"main"})
    left = apply_updates(moved, updates({"action": "remove-snapshots", "snapshot-ids": [1]}), NOW)
    assert [each.snapshot_id for each in left.snapshots] == [2]
    gone = apply_updates(moved, updates({"action": "remove-snapshot-ref", "ref-name": "main"}), NOW)
    assert gone.current_snapshot_id is None


@pytest.mark.parametrize(
    "schema",
    [
        Schema(NestedField(1, "id", LongType()), NestedField(2, "v", LongType())),
        Schema(NestedField(2, "v", StringType())),
    ],
)
def test_another_schema_gets_an_id_of_its_own(schema: Schema) -> None:
    added = {"action": "add-schema", "schema": schema.model_dump()}
    after = apply_updates(table(), updates(added, {"action": "set-current-schema", "schema-id": -1}), NOW)
    assert [each.schema_id for each in after.schemas] == [0, 1]
    assert after.current_schema_id == 1
    assert after.last_column_id == 2


def test_a_column_that_partitions_stays() -> None:
    spec = {"spec-id": 0, "fields": [{"source-id": 1, "field-id": 1000, "transform": "identity", "name": "id"}]}
    made = apply_updates(
        table(), updates({"action": "add-spec", "spec": spec}, {"action": "set-default-spec", "spec-id": -1}), NOW
    )
    bare = {"action": "add-schema", "schema": Schema(NestedField(2, "v", StringType())).model_dump()}
    with pytest.raises(TableUsageError, match="not valid"):
        apply_updates(made, updates(bare, {"action": "set-current-schema", "schema-id": -1}), NOW)


def test_nothing_becomes_a_table_by_its_updates() -> None:
    number = UUID(int=7)
    given = updates(
        {"action": "assign-uuid", "uuid": str(number)},
        {"action": "upgrade-format-version", "format-version": 3},
        {"action": "add-schema", "schema": SCHEMA.model_dump()},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": "s3://bucket/t/"},
    )
    made = apply_updates(blank(given, fresh_uuid=UUID(int=1), now=NOW), given, NOW)
    assert (made.table_uuid, made.format_version, made.location) == (number, 3, "s3://bucket/t")
    assert made.schema() == SCHEMA
    for left_out in ("add-schema", "add-spec", "add-sort-order"):
        few = [each for each in given if each.action != left_out]
        with pytest.raises(TableUsageError):
            apply_updates(blank(few, fresh_uuid=UUID(int=1), now=NOW), few, NOW)


def test_what_is_only_said_again_is_left_out() -> None:
    held = {"headwater.x": "1", "a": "1"}
    given = {"headwater.x": "1", "headwater.y": "2", "a": "1", "headwater.statistics.columns": "id"}
    assert echoed(held, given) == {"headwater.y": "2", "a": "1", "headwater.statistics.columns": "id"}
