"""Which snapshots, refs and other references a table lets go of."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import SnapshotLogEntry
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.types import LongType

from headwater.tables.columns import AddColumn, DropColumn, SchemaChange
from headwater.tables.evolve import change_schema, change_spec, set_properties
from headwater.tables.expire import expire
from headwater.tables.model import TableUsageError
from headwater.tables.partitions import AddPartitionField
from headwater.tables.refs import set_current_snapshot
from headwater.tables.rules import millis
from tests.unit.table_documents import at, ref, snapshot, stored, table, with_history

DAY_MS = 86_400_000
TAG = SnapshotRefType.TAG
NOW = at(10)

# 1 ← 2 ← 3 ← 4 ← 5 is the line of main; 6 and 7 leave it at 2, and so does 8, which is nobody's. Each is made on the
# day that it is called after.
HISTORY = [
    snapshot(1, 1),
    snapshot(2, 2, parent=1),
    snapshot(3, 3, parent=2),
    snapshot(4, 4, parent=3),
    snapshot(5, 5, parent=4),
    snapshot(6, 6, parent=2),
    snapshot(7, 7, parent=6),
    snapshot(8, 8, parent=2),
]


def history(refs: dict[str, SnapshotRef] | None = None, **properties: str) -> TableMetadata:
    base = table(properties={key.replace("_", "-"): value for key, value in properties.items()})
    return with_history(base, HISTORY, refs={"main": ref(5)} | (refs or {}))


def kept(metadata: TableMetadata, **options: Any) -> set[int]:
    new = expire(metadata, now=NOW, **options)
    assert stored(new) == new
    return {each.snapshot_id for each in new.snapshots}


def settings(**values: int) -> dict[str, str]:
    names = {"age": "max-snapshot-age-ms", "keep": "min-snapshots-to-keep", "ref_age": "max-ref-age-ms"}
    return {f"history.expire.{names[key]}": str(value) for key, value in values.items()}


@pytest.mark.parametrize(
    ("refs", "days", "keep", "expected"),
    [
        # A line keeps its head, whatever its age; the newest up to a count; and what is not older than the limit.
        ({}, 10, 1, {5}),
        ({}, 10, 3, {3, 4, 5}),
        ({}, 10, 99, {1, 2, 3, 4, 5}),
        ({}, 4, 1, {4, 5, 6, 7, 8}),
        ({}, 4, 3, {3, 4, 5, 6, 7, 8}),
        # What is exactly as old as the limit is not older.
        ({}, 8, 1, {5, 8}),
        ({}, 0, 1, {1, 2, 3, 4, 5, 6, 7, 8}),
        # Another branch keeps its own line, a tag only its snapshot.
        ({"dev": ref(7)}, 10, 1, {5, 7}),
        ({"dev": ref(7)}, 10, 3, {2, 3, 4, 5, 6, 7}),
        ({"dev": ref(7)}, 6.5, 1, {5, 7, 8}),
        ({"old": ref(2, TAG)}, 10, 1, {2, 5}),
        ({"old": ref(6, TAG)}, 10, 2, {4, 5, 6}),
        # A branch's own settings win over what is asked for.
        ({"dev": ref(7, min_snapshots_to_keep=2)}, 10, 1, {5, 6, 7}),
        ({"dev": ref(7, min_snapshots_to_keep=1)}, 10, 2, {4, 5, 7}),
        ({"dev": ref(7, max_snapshot_age_ms=4 * DAY_MS)}, 10, 1, {5, 6, 7}),
        ({"main": ref(5, min_snapshots_to_keep=4)}, 10, 1, {2, 3, 4, 5}),
        # A ref that is too old goes, and then its snapshots are like any other.
        ({"dev": ref(7, max_ref_age_ms=2 * DAY_MS)}, 10, 1, {5}),
        ({"dev": ref(7, max_ref_age_ms=3 * DAY_MS)}, 10, 1, {5, 7}),
        ({"old": ref(2, TAG, max_ref_age_ms=DAY_MS)}, 10, 1, {5}),
        ({"main": ref(5, max_ref_age_ms=1)}, 10, 1, {5}),
        # A line that was cut behind a snapshot that is too old stays cut.
        ({"dev": ref(7)}, 2, 1, {2, 3, 4, 5, 6, 7, 8}),
    ],
)
def test_what_stays(refs: dict[str, SnapshotRef], days: float, keep: int, expected: set[int]) -> None:
    assert kept(history(refs), older_than=at(days), keep_last=keep) == expected


@pytest.mark.parametrize(
    ("properties", "options", "expected"),
    [
        ({}, {}, {5, 6, 7, 8}),  # five days, and one snapshot
        (settings(age=DAY_MS), {}, {5}),
        (settings(age=DAY_MS, keep=2), {}, {4, 5}),
        (settings(age=DAY_MS, keep=2), {"keep_last": 1}, {5}),
        (settings(age=DAY_MS, keep=2), {"older_than": at(4)}, {4, 5, 6, 7, 8}),
    ],
)
def test_properties_decide_what_is_not_asked_for(
    properties: dict[str, str], options: dict[str, Any], expected: set[int]
) -> None:
    assert kept(set_properties(history(), properties, (), at(9)), **options) == expected


def test_the_age_of_refs_by_property() -> None:
    base = set_properties(history({"dev": ref(7), "old": ref(2, TAG)}), settings(ref_age=4 * DAY_MS), (), at(9))
    new = expire(base, older_than=NOW, keep_last=1, now=NOW)
    assert set(new.refs) == {"main", "dev"}
    assert {each.snapshot_id for each in new.snapshots} == {5, 7}


def test_a_ref_to_nothing_goes() -> None:
    base = history().model_copy(update={"refs": {"main": ref(5), "gone": ref(99, TAG)}})
    assert set(expire(base, older_than=at(0), now=NOW).refs) == {"main"}


def test_what_drops_nothing_is_the_same_document() -> None:
    base = history()
    assert expire(base, older_than=at(0), keep_last=1, now=NOW) is base
    assert expire(table(), older_than=NOW, keep_last=1, now=NOW) == table()


def test_a_table_that_other_engines_may_not_clean_is_expired_here() -> None:
    assert history().properties["gc.enabled"] == "false"
    new = expire(history(), older_than=NOW, keep_last=1, now=NOW)
    assert (len(new.snapshots), new.last_updated_ms) == (1, millis(NOW))


def test_everything_else_stays() -> None:
    base = history()
    new = expire(base, older_than=NOW, keep_last=2, now=NOW)
    untouched = set(type(base).model_fields) - {"snapshots", "snapshot_log", "last_updated_ms"}
    assert {each: getattr(new, each) for each in untouched} == {each: getattr(base, each) for each in untouched}


class TestLog:
    def log(self, entries: list[int], current: int, **options: Any) -> list[int]:
        log = [SnapshotLogEntry(snapshot_id=each, timestamp_ms=place) for place, each in enumerate(entries)]
        base = set_current_snapshot(history(), current, at(9)) if current != 5 else history()
        new = expire(base.model_copy(update={"snapshot_log": log}), now=NOW, **options)
        return [each.snapshot_id for each in new.snapshot_log]

    def test_entries_before_one_that_went_go_too(self) -> None:
        assert self.log([1, 2, 3, 4, 5], 5, older_than=NOW, keep_last=3) == [3, 4, 5]
        # 8 was current for a while and went: what was current before it is no longer known.
        assert self.log([3, 4, 8, 4, 5], 5, older_than=NOW, keep_last=3) == [4, 5]
        assert self.log([5, 8, 5], 5, older_than=NOW, keep_last=1) == [5]

    def test_the_log_stays_when_no_snapshot_goes(self) -> None:
        assert self.log([1, 8, 5], 5, older_than=at(0)) == [1, 8, 5]


class TestStatistics:
    def base(self) -> TableMetadata:
        blob: dict[str, Any] = {"file-footer-size-in-bytes": 1, "blob-metadata": []}
        files = [
            {"snapshot-id": each, "statistics-path": f"s3://lake/t/{each}", "file-size-in-bytes": 1} for each in (1, 5)
        ]
        return history().model_copy(
            update={
                "statistics": [StatisticsFile.model_validate(each | blob) for each in files],
                "partition_statistics": [PartitionStatisticsFile.model_validate(each) for each in files],
            }
        )

    def test_they_go_with_their_snapshot(self) -> None:
        new = stored(expire(self.base(), older_than=NOW, keep_last=1, now=NOW))
        assert [each.snapshot_id for each in new.statistics] == [5]
        assert [each.snapshot_id for each in new.partition_statistics] == [5]


class TestSchemasAndSpecs:
    def base(self) -> TableMetadata:
        metadata = table()
        for number in range(3):
            metadata = change_schema(metadata, [AddColumn(f"x{number}", LongType())], at(0))
            metadata = change_spec(metadata, [AddPartitionField(f"x{number}")], at(0))
        return metadata  # schemas 0 to 3, of which 3 is current; specs likewise

    def test_only_if_asked_for(self) -> None:
        base = with_history(self.base(), [snapshot(1, 1, schema_id=0), snapshot(2, 2, parent=1, schema_id=2)])
        new = stored(expire(base, older_than=NOW, keep_last=1, now=NOW))
        assert len(new.schemas) == len(new.partition_specs) == 4
        new = stored(expire(base, older_than=NOW, keep_last=1, now=NOW, drop_unused_schemas=True, used_specs=[1]))
        assert [each.schema_id for each in new.schemas] == [2, 3]
        assert [each.spec_id for each in new.partition_specs] == [1, 3]
        assert (new.last_column_id, new.last_partition_id) == (base.last_column_id, base.last_partition_id)

    def test_a_snapshot_that_does_not_say_its_schema_keeps_all(self) -> None:
        base = with_history(self.base(), [snapshot(1, 1), snapshot(2, 2, parent=1, schema_id=None)])
        assert len(expire(base, older_than=NOW, keep_last=1, now=NOW, drop_unused_schemas=True).schemas) == 4

    def test_the_last_schema_with_a_dropped_column_stays(self) -> None:
        """Equality deletes may be by its values, and are read by that schema."""
        metadata = table()
        changes: list[SchemaChange] = [AddColumn("x", LongType()), AddColumn("y", LongType())]
        for change in [*changes, DropColumn("x"), DropColumn("y")]:
            metadata = change_schema(metadata, [change], at(0))
        base = with_history(metadata, [snapshot(1, 1, schema_id=0), snapshot(2, 2, parent=1, schema_id=0)])
        new = stored(expire(base, older_than=NOW, keep_last=1, now=NOW, drop_unused_schemas=True))
        assert [each.schema_id for each in new.schemas] == [0, 2, 3]
        assert new.current_schema_id == base.current_schema_id == 0
        ids = {each for schema in base.schemas for each in schema.field_ids}
        assert {each for schema in new.schemas for each in schema.field_ids} == ids


@pytest.mark.parametrize("number", [0, -1])
def test_at_least_one_is_kept(number: int) -> None:
    with pytest.raises(TableUsageError, match="cannot be kept"):
        expire(history(), older_than=NOW, keep_last=number, now=NOW)


def test_a_property_that_is_not_a_number_is_named() -> None:
    base = set_properties(history(), {"history.expire.max-ref-age-ms": "long"}, (), NOW)
    with pytest.raises(TableUsageError, match=r"history\.expire\.max-ref-age-ms"):
        expire(base, older_than=NOW, keep_last=1, now=NOW)


def test_snapshots_that_claim_to_be_their_own_ancestors_end_somewhere() -> None:
    base = with_history(table(), [snapshot(1, 1, parent=2), snapshot(2, 2, parent=1)])
    assert kept(base, older_than=NOW, keep_last=9) == {1, 2}


@given(
    st.lists(st.integers(0, 10), min_size=1, max_size=10),
    st.dictionaries(st.sampled_from(["main", "a", "b"]), st.tuples(st.integers(1, 10), st.booleans()), max_size=3),
    st.integers(0, 12),
    st.integers(1, 4),
)
def test_heads_always_stay_and_what_goes_is_old(
    parents: list[int], wished: dict[str, tuple[int, bool]], days: int, keep: int
) -> None:
    count = len(parents)
    snapshots = [snapshot(each, each, parent=(parents[each - 1] % each) or None) for each in range(1, count + 1)]
    refs = {
        name: ref((number - 1) % count + 1, TAG if is_tag and name != "main" else SnapshotRefType.BRANCH)
        for name, (number, is_tag) in wished.items()
    }
    base = with_history(table(), snapshots, refs={"main": ref(count)} | refs)
    new = expire(base, older_than=at(days), keep_last=keep, now=at(12))
    left = {each.snapshot_id for each in new.snapshots}
    assert new.refs == base.refs
    assert {each.snapshot_id for each in base.refs.values()} | {base.current_snapshot_id} <= left
    assert all(each.timestamp_ms < millis(at(days)) for each in snapshots if each.snapshot_id not in left)
    assert expire(new, older_than=at(days), keep_last=keep, now=at(12)) is new
    assert stored(new) == new
