"""The updates that other engines send, one by one, on the document alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pydantic import TypeAdapter
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.table.update import TableUpdate, update_table_metadata
from pyiceberg.types import LongType, NestedField, StringType

from headwater.kernel.clock import ManualClock
from headwater.kernel.ids import Ulid
from headwater.kernel.randomness import seeded
from headwater.tables.blank import blank
from headwater.tables.create import new_table
from headwater.tables.model import TableUsageError
from headwater.tables.update_snapshots import SnapshotOvertakenError
from headwater.tables.updates import apply_updates, echoed

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
        with pytest.raises(SnapshotOvertakenError, match="not above the last"):
            apply_updates(first, updates(snapshot(2, sequence)), NOW)
    for bad in (snapshot(1, 2), snapshot(2, 2, **{"schema-id": 9}), snapshot(2, 2, **{"sequence-number": None})):
        with pytest.raises(TableUsageError):
            apply_updates(first, updates(bad), NOW)


def test_row_ids_count_on() -> None:
    first = apply_updates(table(3), updates(snapshot(1, 1, **{"first-row-id": 0, "added-rows": 5}), main_at(1)), NOW)
    assert isinstance(first, TableMetadataV3)
    assert first.next_row_id == 5
    second = apply_updates(first, updates(snapshot(2, 2, **{"first-row-id": 8, "added-rows": 2})), NOW)
    assert isinstance(second, TableMetadataV3)
    assert second.next_row_id == 10
    for bad in ({}, {"first-row-id": 5}, {"first-row-id": 5, "added-rows": -1}):
        with pytest.raises(TableUsageError):
            apply_updates(first, updates(snapshot(2, 2, **bad)), NOW)
    with pytest.raises(SnapshotOvertakenError, match="row ids"):
        apply_updates(first, updates(snapshot(2, 2, **{"first-row-id": 4, "added-rows": 1})), NOW)


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


def test_what_is_set_on_a_ref_makes_sense() -> None:
    moved = apply_updates(table(), updates(snapshot(1, 1), main_at(1)), NOW)
    kept = {"min-snapshots-to-keep": 2, "max-snapshot-age-ms": 5, "max-ref-age-ms": 7}
    branch = {"action": "set-snapshot-ref", "ref-name": "b", "type": "branch", "snapshot-id": 1}
    tag = {**branch, "ref-name": "t", "type": "tag"}
    made = apply_updates(moved, updates({**branch, **kept}, {**tag, "max-ref-age-ms": 7}), NOW)
    assert made.refs["b"].min_snapshots_to_keep == 2
    for bad in (
        {**branch, "snapshot-id": 9},
        {**branch, "ref-name": ""},
        {**branch, "max-ref-age-ms": 0},
        {**branch, "min-snapshots-to-keep": -1},
        {**tag, "min-snapshots-to-keep": 1},
        {**tag, "ref-name": "main"},
    ):
        with pytest.raises(TableUsageError):
            apply_updates(made, updates(bad), NOW)


def test_history_is_in_order_whatever_clocks_say() -> None:
    """Java's clients do not load a table whose snapshot log is not in the order of time."""
    moved = table()
    for number, moment in enumerate((10**14, 5, 10**13), 1):
        moved = apply_updates(
            moved, updates(snapshot(number, number, **{"timestamp-ms": moment}), main_at(number)), NOW
        )
    back = apply_updates(moved, updates(main_at(1)), NOW)
    moments = [each.timestamp_ms for each in back.snapshot_log]
    assert (moments, back.last_updated_ms) == (sorted(moments), 10**14)


def statistics(number: int) -> list[dict[str, Any]]:
    file = {"snapshot-id": number, "statistics-path": "s3://bucket/t/x", "file-size-in-bytes": 1}
    whole = {**file, "file-footer-size-in-bytes": 1, "blob-metadata": []}
    return [
        {"action": "set-statistics", "snapshot-id": number, "statistics": whole},
        {"action": "set-partition-statistics", "partition-statistics": file},
    ]


def test_what_belongs_to_a_snapshot_goes_with_it() -> None:
    """PyIceberg leaves partition statistics of snapshots that are gone, and gaps in the history."""
    moved = apply_updates(
        table(),
        updates(*(each for number in (1, 2, 3) for each in (snapshot(number, number), main_at(number)))),
        NOW,
    )
    tag = {"action": "set-snapshot-ref", "ref-name": "t", "type": "tag", "snapshot-id": 2}
    full = apply_updates(moved, updates(tag, *statistics(2), *statistics(3)), NOW)
    assert (len(full.statistics), len(full.partition_statistics)) == (2, 2)
    assert apply_updates(full, updates(*statistics(2)), NOW) is full
    left = apply_updates(full, updates({"action": "remove-snapshots", "snapshot-ids": [2, 9]}), NOW)
    assert [each.snapshot_id for each in left.snapshots] == [1, 3]
    assert [each.snapshot_id for each in left.snapshot_log] == [3]
    assert [each.snapshot_id for each in (*left.statistics, *left.partition_statistics)] == [3, 3]
    assert set(left.refs) == {"main"}


def test_what_snapshots_need_stays() -> None:
    wider = Schema(*SCHEMA.fields, NestedField(3, "w", LongType()))
    added = {"action": "add-schema", "schema": wider.model_dump()}
    moved = apply_updates(table(), updates(snapshot(1, 1), main_at(1), added), NOW)
    gone = {"action": "remove-schemas", "schema-ids": [1]}
    assert [each.schema_id for each in apply_updates(moved, updates(gone), NOW).schemas] == [0]
    now_current = updates({"action": "set-current-schema", "schema-id": 1})
    for needed in ([0], [1], [0, 1]):
        with pytest.raises(TableUsageError, match="in use"):
            apply_updates(moved, [*now_current, *updates({**gone, "schema-ids": needed})], NOW)


ORDER = {
    "order-id": 1,
    "fields": [{"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}],
}
SPEC = {"spec-id": 1, "fields": [{"source-id": 1, "field-id": 1000, "transform": "bucket[4]", "name": "b"}]}
WIDER = Schema(*SCHEMA.fields, NestedField(3, "w", LongType()), schema_id=1)
HONEST = [
    [snapshot(1, 1), main_at(1)],
    [snapshot(1, 1), main_at(1), snapshot(2, 2, **{"parent-snapshot-id": 1}), main_at(2)],
    [snapshot(1, 1), main_at(1), {**main_at(1), "ref-name": "t", "type": "tag", "max-ref-age-ms": 3}],
    [snapshot(1, 1), main_at(1), {"action": "remove-snapshot-ref", "ref-name": "main"}],
    [snapshot(1, 1), snapshot(2, 2), main_at(2), {"action": "remove-snapshots", "snapshot-ids": [1]}],
    [snapshot(1, 1), main_at(1), *statistics(1)],
    [snapshot(1, 1), *statistics(1), {"action": "remove-statistics", "snapshot-id": 1}],
    [snapshot(1, 1), *statistics(1), {"action": "remove-partition-statistics", "snapshot-id": 1}],
    [{"action": "add-schema", "schema": WIDER.model_dump()}, {"action": "set-current-schema", "schema-id": 1}],
    [{"action": "add-schema", "schema": WIDER.model_dump()}, {"action": "remove-schemas", "schema-ids": [1]}],
    [{"action": "add-spec", "spec": SPEC}, {"action": "set-default-spec", "spec-id": -1}],
    [{"action": "add-spec", "spec": SPEC}, {"action": "remove-partition-specs", "spec-ids": [1]}],
    [{"action": "add-sort-order", "sort-order": ORDER}, {"action": "set-default-sort-order", "sort-order-id": -1}],
    [{"action": "set-properties", "updates": {"a": "b"}}, {"action": "remove-properties", "removals": ["a"]}],
    [{"action": "set-properties", "updates": {"a": "b", "c": "d"}}],
]


@pytest.mark.parametrize("given", HONEST)
@pytest.mark.parametrize("format_version", [2, 3])
def test_pyiceberg_makes_the_same_document(format_version: int, given: list[dict[str, Any]]) -> None:
    """Where it has the same opinion; times aside, since it looks at the clock of the machine."""
    before, rows = table(format_version), iter(range(0, 100, 5))

    def with_row_ids(update: dict[str, Any]) -> dict[str, Any]:
        if format_version < 3 or update["action"] != "add-snapshot":
            return update
        return {**update, "snapshot": {**update["snapshot"], "first-row-id": next(rows), "added-rows": 5}}

    told = updates(*map(with_row_ids, given))
    ours, theirs = apply_updates(before, told, NOW), update_table_metadata(before, tuple(told))
    assert _timeless(ours) == _timeless(theirs)


def _timeless(metadata: TableMetadata) -> Any:
    document = metadata.model_dump(mode="json", exclude={"last_updated_ms"})
    document.pop("last-updated-ms", None)
    document["snapshot-log"] = [each["snapshot-id"] for each in document["snapshot-log"]]
    return document
