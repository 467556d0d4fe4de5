"""Changes of a table that touch no data: every row of what is allowed, and random histories of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV1
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.transforms import BucketTransform, VoidTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimeType,
    UnknownType,
    UUIDType,
)

from headwater.kernel.errors import HeadwaterError, RefusedError
from headwater.tables.columns import (
    AddColumn,
    DropColumn,
    MakeOptional,
    MakeRequired,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    SetDoc,
    SetIdentifierFields,
    WidenColumn,
)
from headwater.tables.evolve import (
    change_schema,
    change_spec,
    has_rows,
    set_properties,
    set_sort_order,
    upgrade,
)
from headwater.tables.metadata import encode_metadata
from headwater.tables.metadata_log import with_log_entry
from headwater.tables.model import TableUsageError, UnsupportedTableError
from headwater.tables.partitions import (
    AddPartitionField,
    RemovePartitionField,
    RenamePartitionField,
    SortBy,
    SpecChange,
)
from headwater.tables.properties import NAME_MAPPING
from headwater.tables.refs import remove_ref, rollback_to, set_current_snapshot, set_ref
from headwater.tables.rules import may_widen, millis
from tests.unit.table_documents import at, snapshot, stored, table, with_history

LATER = at(1)
ID, NAME, BORN, SEEN, HOME, CITY, ZIP = 1, 2, 3, 4, 5, 8, 9


def changed(*changes: SchemaChange, base: TableMetadata | None = None) -> TableMetadata:
    return stored(change_schema(base if base is not None else table(), changes, LATER))


def names(metadata: TableMetadata) -> list[str]:
    return [each.name for each in metadata.schema().fields]


def with_rows(**options: Any) -> TableMetadata:
    return with_history(table(**options), [snapshot(1, 0.5)])


def v1() -> TableMetadata:
    base = table(spec=[AddPartitionField("name"), AddPartitionField("born", "month")])
    document = base.model_dump(mode="json") | {"format-version": 1}
    document["schema"] = document["schemas"][0]
    document["partition-spec"] = document["partition-specs"][0]["fields"]
    return TableMetadataUtil.parse_obj(document)


class TestColumns:
    def test_a_new_column_has_a_new_id_and_comes_last(self) -> None:
        new = changed(AddColumn("age", IntegerType(), doc="in years"))
        field = new.schema().fields[-1]
        assert (field.name, field.field_id, field.required, field.doc) == ("age", 14, False, "in years")
        assert (new.last_column_id, new.current_schema_id, len(new.schemas)) == (14, 1, 2)
        assert new.last_updated_ms == millis(LATER)
        assert new.schemas[0] == table().schema()

    def test_a_new_struct_has_new_ids_throughout(self) -> None:
        inner = StructType(NestedField(1, "a", LongType()), NestedField(2, "b", ListType(3, LongType())))
        new = changed(AddColumn("s", inner))
        by_name = {new.schema().find_column_name(each): each for each in index_by_id(new.schema())}
        assert {by_name[each] for each in ("s", "s.a", "s.b", "s.b.element")} == {14, 15, 16, 17}
        assert new.last_column_id == 17

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            (AddColumn("x", LongType(), first=True), ["x", "id", "name"]),
            (AddColumn("x", LongType(), after="id"), ["id", "x", "name"]),
            (MoveColumn("name", first=True), ["name", "id", "born"]),
            (MoveColumn("name", before="id"), ["name", "id", "born"]),
            (MoveColumn("id", after="name"), ["name", "id", "born"]),
            (MoveColumn("born", before="name"), ["id", "born", "name"]),
            (DropColumn("name"), ["id", "born", "seen"]),
            (RenameColumn("name", "title"), ["id", "title", "born"]),
        ],
    )
    def test_places(self, change: SchemaChange, expected: list[str]) -> None:
        assert names(changed(change))[:3] == expected

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            (AddColumn(("home", "street"), StringType()), "home.street"),
            (AddColumn(("tags", "element", "weight"), FloatType()), "tags.element.weight"),
            (RenameColumn(("home", "city"), "town"), "home.town"),
            (RenameColumn(("tags", "element", "tag"), "label"), "tags.element.label"),
        ],
    )
    def test_within_structs_and_lists(self, change: SchemaChange, expected: str) -> None:
        assert expected in changed(change).schema().column_names

    def test_the_id_stays_whatever_else_changes(self) -> None:
        new = changed(
            RenameColumn(("home", "zip"), "code"),
            WidenColumn(("home", "code"), LongType()),
            MakeOptional(("home", "code")),
            SetDoc(("home", "code"), "postal"),
            MoveColumn(("home", "code"), first=True),
            RenameColumn("home", "address"),
            WidenColumn(("counts", "value"), LongType()),
        )
        field = new.schema().find_field("address.code")
        assert (field.field_id, field.required, field.doc) == (ZIP, False, "postal")
        assert field.field_type == LongType() == new.schema().find_type("counts.value")
        assert new.schema().find_field("address").field_id == HOME
        assert new.schema().find_column_name(CITY) == "address.city"

    def test_a_dropped_id_is_never_given_again(self) -> None:
        new = changed(AddColumn("x", LongType()))
        gone = changed(DropColumn("x"), base=new)
        assert (gone.current_schema_id, gone.last_column_id) == (0, 14)  # the first schema, found again
        again = changed(AddColumn("x", LongType()), base=gone)
        assert again.schema().find_field("x").field_id == 15
        assert changed(AddColumn("x", LongType()), DropColumn("x"), AddColumn("x", LongType())).last_column_id == 15

    def test_what_changes_nothing_is_the_same_document(self) -> None:
        base = table()
        assert change_schema(base, [], LATER) is base
        assert (
            change_schema(base, [SetDoc("born", "a day"), MakeOptional("name"), MoveColumn("id", first=True)], LATER)
            is base
        )
        assert change_schema(base, [WidenColumn("id", LongType()), MakeRequired("id")], LATER) is base

    def test_time_never_goes_back(self) -> None:
        assert change_schema(table(), [DropColumn("name")], at(-5)).last_updated_ms == table().last_updated_ms

    def test_identifiers(self) -> None:
        new = changed(RenameColumn("id", "key"))
        assert new.schema().identifier_field_names() == {"key"}
        freed = changed(SetIdentifierFields(()), DropColumn("id"))
        assert freed.schema().identifier_field_ids == []
        assert changed(MakeRequired("name"), SetIdentifierFields(("id", "name"))).schema().identifier_field_ids == [
            1,
            2,
        ]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (AddColumn("name", LongType()), "column name already exists"),
            (AddColumn("NAME", LongType()), "NAME differs from name only in case"),
            (AddColumn("_pos", LongType()), "reserves"),
            (AddColumn("x", LongType(), after="gone"), "there is no column gone"),
            (AddColumn(("name", "x"), LongType()), "there is no column name.x"),
            (AddColumn(("gone", "x"), LongType()), "there is no column gone.x"),
            (AddColumn(("counts", "key", "x"), LongType()), "keys of a map"),
            (AddColumn(("tags", "other"), LongType()), "neither dropped nor renamed"),
            (
                AddColumn("s", StructType(NestedField(1, "a", LongType()), NestedField(2, "A", LongType()))),
                "only in case",
            ),
            (AddColumn((), LongType()), "empty"),
            (DropColumn("gone"), "there is no column gone"),
            (DropColumn(("tags", "element")), "neither dropped nor renamed"),
            (RenameColumn(("counts", "value"), "x"), "neither dropped nor renamed"),
            (RenameColumn("name", "born"), "born already exists"),
            (RenameColumn("name", "_file"), "reserves"),
            (WidenColumn("id", IntegerType()), "cannot become int: it is long"),
            (WidenColumn("home", LongType()), "cannot become long"),
            (MoveColumn("id"), "where should id go"),
            (MoveColumn("id", first=True, after="name"), "where should id go"),
            (MoveColumn("id", after="id"), "there is no column id"),
            (SetIdentifierFields(("gone",)), "there is no column gone"),
            (SetIdentifierFields(("name",)), "not be valid"),
            (MakeOptional("id"), "not be valid"),
        ],
    )
    def test_refused(self, change: SchemaChange, message: str) -> None:
        with pytest.raises(TableUsageError, match=message):
            change_schema(table(), [change], LATER)

    def test_another_case_of_its_own_name_is_a_rename(self) -> None:
        assert "Name" in names(changed(RenameColumn("name", "Name")))

    @pytest.mark.parametrize(
        ("options", "column", "user"),
        [
            ({"spec": [AddPartitionField("name", "bucket[4]")]}, "name", "partition field name_bucket_4 of spec 0"),
            ({"spec": [AddPartitionField(("home", "city"), name="c")]}, "home", "partition field c of spec 0"),
            ({"sort_order": [SortBy("name")]}, "name", "the sort order"),
            ({}, "id", "the identifier"),
        ],
    )
    def test_a_column_in_use_is_not_dropped(self, options: dict[str, Any], column: str, user: str) -> None:
        with pytest.raises(TableUsageError, match=f"cannot be dropped: {user} uses it"):
            change_schema(table(**options), [DropColumn(column)], LATER)

    def test_a_column_of_an_old_spec_is_not_dropped_either(self) -> None:
        base = change_spec(table(spec=[AddPartitionField("name")]), [RemovePartitionField("name")], LATER)
        with pytest.raises(TableUsageError, match="partition field name of spec 0 uses it"):
            change_schema(base, [DropColumn("name")], LATER)

    def test_a_column_cannot_take_the_name_of_a_partition_field(self) -> None:
        base = table(spec=[AddPartitionField("name", "bucket[4]")])
        with pytest.raises(TableUsageError, match="a partition field has that name"):
            change_schema(base, [AddColumn("name_bucket_4", LongType())], LATER)

    def test_names_by_which_old_files_are_read_follow(self) -> None:
        mapping = create_mapping_from_schema(table().schema()).model_dump_json()
        base = set_properties(table(), {NAME_MAPPING: mapping}, (), LATER)
        new = changed(
            RenameColumn("name", "title"), AddColumn("x", LongType()), AddColumn(("home", "y"), LongType()), base=base
        )
        found = new.name_mapping()
        assert found is not None
        by_id = {each.field_id: each for each in found}
        assert by_id[NAME].names == ["name", "title"]
        assert by_id[new.schema().find_field("x").field_id].names == ["x"]
        assert [each.field_id for each in by_id[HOME].fields] == [CITY, ZIP, new.schema().find_field("home.y").field_id]

    def test_v1_keeps_its_own_copy_of_the_schema(self) -> None:
        new = change_schema(v1(), [AddColumn("x", LongType())], LATER)
        assert isinstance(new, TableMetadataV1)
        assert new.schema_ == new.schema()
        assert new.schema_.find_field("x").field_id == 14


class TestRows:
    """What depends on whether rows are there."""

    @pytest.mark.parametrize(
        ("snapshots", "expected"),
        [([], False), ([snapshot(1, 0, rows=0)], False), ([snapshot(1, 0, rows=3), snapshot(2, 1, rows=0)], True)],
    )
    def test_has_rows(self, snapshots: list[Any], expected: bool) -> None:
        assert has_rows(with_history(table(), snapshots) if snapshots else table()) is expected

    def test_a_snapshot_that_does_not_say_may_have_rows(self) -> None:
        silent = snapshot(1, 0).model_copy(update={"summary": None})
        assert has_rows(with_history(table(), [silent]))
        untotalled = snapshot(1, 0).model_copy(update={"summary": Summary(Operation.APPEND)})
        assert has_rows(with_history(table(), [untotalled]))

    @pytest.mark.parametrize(
        "change",
        [
            MakeRequired("name"),
            AddColumn("x", LongType(), required=True),
            AddColumn(("home", "x"), LongType(), required=True),
        ],
    )
    def test_rows_without_a_value_stand_against_a_required_column(self, change: SchemaChange) -> None:
        with pytest.raises(RefusedError, match="required"):
            change_schema(with_rows(), [change], LATER)
        assert changed(change).current_schema_id == 1

    def test_who_knows_that_there_are_no_nulls_may_say_so(self) -> None:
        assert changed(MakeRequired("name", no_nulls_known=True), base=with_rows()).schema().find_field("name").required

    def test_a_default_gives_old_rows_their_value(self) -> None:
        new = changed(AddColumn("x", LongType(), required=True, default=7), base=with_rows(format_version=3))
        field = new.schema().find_field("x")
        assert (field.initial_default, field.write_default, field.required) == (7, 7, True)


class TestDefaults:
    @pytest.mark.parametrize(
        ("kind", "value", "expected"),
        [
            (LongType(), 5, 5),
            (IntegerType(), 2**31 - 1, 2**31 - 1),
            (StringType(), "x", "x"),
            (BooleanType(), False, False),
            (DoubleType(), 1.5, 1.5),
            (DoubleType(), 0.1, 0.1),
            (FloatType(), 0.1, 0.10000000149011612),  # all that a float keeps of it
            (FloatType(), 2, 2.0),
            (DateType(), date(2026, 1, 2), date(2026, 1, 2)),
            (TimeType(), time(1, 2, 3), time(1, 2, 3)),
            (TimestampType(), datetime(2026, 1, 2), datetime(2026, 1, 2)),  # noqa: DTZ001
            (DecimalType(9, 2), Decimal("1.5"), Decimal("1.50")),
            (BinaryType(), b"ab", b"ab"),
            (UUIDType(), UUID(int=7), UUID(int=7)),
        ],
    )
    def test_a_value_of_the_type(self, kind: IcebergType, value: object, expected: object) -> None:
        field = changed(AddColumn("x", kind, default=value), base=table(format_version=3)).schema().find_field("x")
        assert field.initial_default == expected
        assert field.write_default == expected

    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            (IntegerType(), 2**31),
            (IntegerType(), "many"),
            (IntegerType(), True),
            (FloatType(), 1e300),
            (FloatType(), True),
            (StringType(), 5),
            (DecimalType(9, 2), Decimal("1.555")),
            (DecimalType(3, 2), Decimal("123.45")),
            (UUIDType(), "no"),
            (UnknownType(), 5),
            (StructType(NestedField(1, "a", LongType())), {}),
        ],
    )
    def test_a_value_that_is_not(self, kind: IcebergType, value: object) -> None:
        with pytest.raises(TableUsageError, match="cannot be the default of x"):
            change_schema(table(format_version=3), [AddColumn("x", kind, default=value)], LATER)

    def test_a_default_stays_the_same_when_a_float_is_widened(self) -> None:
        """Whether this lake or another writer spelled it."""
        base = changed(AddColumn("x", FloatType(), default=0.1), base=table(format_version=3))
        document = base.model_dump(mode="json")
        document["schemas"][-1]["fields"][-1] |= {"initial-default": 0.1, "write-default": 0.1}
        for metadata in (base, TableMetadataUtil.parse_obj(document)):
            field = changed(WidenColumn("x", DoubleType()), base=metadata).schema().find_field("x")
            assert (field.initial_default, field.write_default) == (0.10000000149011612, 0.10000000149011612)

    def test_v2_has_no_defaults_and_no_types_of_v3(self) -> None:
        with pytest.raises(TableUsageError, match="cannot have a default"):
            change_schema(table(), [AddColumn("x", LongType(), default=1)], LATER)
        with pytest.raises(TableUsageError, match="column x has type unknown, which needs format version 3"):
            change_schema(table(), [AddColumn("x", UnknownType())], LATER)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (IntegerType(), LongType(), True),
        (LongType(), IntegerType(), False),
        (FloatType(), DoubleType(), True),
        (DoubleType(), FloatType(), False),
        (DecimalType(9, 2), DecimalType(12, 2), True),
        (DecimalType(9, 2), DecimalType(12, 3), False),
        (DecimalType(9, 2), DecimalType(8, 2), False),
        (StringType(), BinaryType(), False),
        (BinaryType(), StringType(), False),
        (IntegerType(), DoubleType(), False),
        (DateType(), TimestampType(), False),
        (UnknownType(), StringType(), True),
        (UnknownType(), StructType(), False),
        (StringType(), StringType(), True),
    ],
)
def test_which_types_widen(old: IcebergType, new: IcebergType, expected: bool) -> None:
    assert may_widen(old, new) is expected


class TestSpecs:
    def spec(self, base: TableMetadata, *changes: SpecChange) -> TableMetadata:
        return stored(change_spec(base, changes, LATER))

    def test_fields_come_and_go(self) -> None:
        first = self.spec(table(), AddPartitionField("id", "bucket[4]"), AddPartitionField("born", "month"))
        assert [(each.field_id, each.name) for each in first.spec().fields] == [
            (1000, "id_bucket_4"),
            (1001, "born_month"),
        ]
        assert (first.default_spec_id, first.last_partition_id) == (1, 1001)
        second = self.spec(first, RemovePartitionField("id_bucket_4"), RenamePartitionField("born_month", "m"))
        assert [(each.field_id, each.name) for each in second.spec().fields] == [(1001, "m")]
        assert [each.spec_id for each in second.partition_specs] == [0, 1, 2]

    def test_an_old_field_comes_back_under_its_own_id(self) -> None:
        first = self.spec(table(), AddPartitionField("id", "bucket[4]"))
        none = self.spec(first, RemovePartitionField("id_bucket_4"))
        assert none.default_spec_id == 0  # the first spec, found again
        other = self.spec(none, AddPartitionField("name"))
        assert other.spec().fields[0].field_id == 1001
        back = self.spec(other, AddPartitionField("id", "bucket[4]"))
        assert [each.field_id for each in back.spec().fields] == [1001, 1000]
        named = self.spec(none, AddPartitionField("id", "bucket[4]", name="b"))
        assert (named.spec().fields[0].field_id, named.last_partition_id) == (1001, 1001)

    @pytest.mark.parametrize("version", [2, 3])
    def test_the_same_spec_is_the_same_document(self, version: int) -> None:
        base = table(spec=[AddPartitionField("name")], format_version=version)
        assert change_spec(base, [], LATER) is base
        assert change_spec(base, [RemovePartitionField("name"), AddPartitionField("name")], LATER) is base

    def test_v1_keeps_the_place_of_what_goes(self) -> None:
        new = change_spec(v1(), [RemovePartitionField("name")], LATER)
        assert next(type(each.transform) for each in new.spec().fields) is VoidTransform
        assert [each.field_id for each in new.spec().fields] == [1000, 1001]
        assert isinstance(new, TableMetadataV1)
        assert [each["field-id"] for each in new.partition_spec] == [1000, 1001]
        again = change_spec(new, [AddPartitionField("name", "bucket[3]", name="name_1000")], LATER)
        assert [each.name for each in again.spec().fields] == ["name", "born_month", "name_1000"]
        assert again.spec().fields[2].transform == BucketTransform(3)
        with pytest.raises(TableUsageError, match="there is no partition field name"):
            change_spec(new, [RemovePartitionField("name")], LATER)

    def test_v1_gives_the_name_of_what_went_away(self) -> None:
        new = change_spec(v1(), [RemovePartitionField("name"), AddPartitionField("name")], LATER)
        assert [(each.name, each.field_id) for each in new.spec().fields][::2] == [("name_1000", 1000), ("name", 1002)]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (RemovePartitionField("gone"), "there is no partition field gone"),
            (RenamePartitionField("gone", "x"), "there is no partition field gone"),
            (AddPartitionField("name"), "says the same"),
            (RenamePartitionField("name", "born"), "cannot be partitioned"),
            (AddPartitionField("gone"), "there is no column gone"),
        ],
    )
    def test_refused(self, change: SpecChange, message: str) -> None:
        with pytest.raises(TableUsageError, match=message):
            change_spec(table(spec=[AddPartitionField("name")]), [change], LATER)


class TestSortOrders:
    def test_orders_are_found_again(self) -> None:
        base = table()
        one = stored(set_sort_order(base, [SortBy("name")], LATER))
        two = stored(set_sort_order(one, [SortBy("name", descending=True), SortBy("id")], LATER))
        assert (one.default_sort_order_id, two.default_sort_order_id) == (1, 2)
        assert set_sort_order(two, [SortBy("name")], LATER).default_sort_order_id == 1
        assert set_sort_order(one, [SortBy("name")], LATER) is one
        assert stored(set_sort_order(two, [], LATER)).default_sort_order_id == 0
        assert len(two.sort_orders) == 3

    def test_no_order_where_there_always_was_one(self) -> None:
        new = stored(set_sort_order(table(sort_order=[SortBy("name")]), [], LATER))
        assert (new.default_sort_order_id, [each.order_id for each in new.sort_orders]) == (0, [1, 0])

    def test_refused(self) -> None:
        with pytest.raises(TableUsageError, match="there is no column gone"):
            set_sort_order(table(), [SortBy("gone")], LATER)


class TestProperties:
    def test_set_and_removed(self) -> None:
        one = set_properties(table(), {"a": "1", "b": "2"}, (), LATER)
        two = set_properties(one, {"b": "3"}, ["a", "never"], LATER)
        assert {key: two.properties.get(key) for key in "ab"} == {"a": None, "b": "3"}
        assert two.properties["headwater.incarnation"] == table().properties["headwater.incarnation"]
        assert set_properties(two, {"b": "3"}, ["a"], LATER) is two

    @pytest.mark.parametrize(
        ("values", "removed", "error"),
        [
            ({"headwater.writer": "x"}, (), TableUsageError),
            ({}, ("headwater.incarnation",), TableUsageError),
            ({"format-version": "3"}, (), TableUsageError),
            ({"uuid": "3"}, (), TableUsageError),
            ({"a": "1"}, ("a",), TableUsageError),
            ({"gc.enabled": "true"}, (), RefusedError),
            ({}, ("gc.enabled",), RefusedError),
        ],
    )
    def test_guarded(self, values: dict[str, str], removed: tuple[str, ...], error: type[HeadwaterError]) -> None:
        with pytest.raises(error):
            set_properties(table(), values, removed, LATER)


class TestUpgrade:
    def test_from_1_to_3(self) -> None:
        base = v1()
        two = upgrade(base, 2, LATER)
        document = two.model_dump(mode="json")
        assert (document["format-version"], document["last-sequence-number"]) == (2, 0)
        assert not {"schema", "partition-spec"} & set(document)
        assert two.schema() == base.schema()
        assert two.spec() == base.spec()
        assert two.table_uuid == base.table_uuid
        three = stored(upgrade(two, 3, LATER))
        assert three.model_dump(mode="json")["next-row-id"] == 0
        assert stored(upgrade(base, 3, LATER)) == three

    def test_history_comes_along(self) -> None:
        base = with_rows()
        new = stored(upgrade(base, 3, LATER))
        assert new.snapshots == base.snapshots
        assert (new.refs, new.snapshot_log) == (base.refs, base.snapshot_log)
        assert new.current_snapshot_id == 1

    def test_never_down_and_never_past_what_is_known(self) -> None:
        base = table(format_version=3)
        assert upgrade(base, 3, LATER) is base
        with pytest.raises(TableUsageError, match="cannot go back to 2"):
            upgrade(base, 2, LATER)
        with pytest.raises(UnsupportedTableError):
            upgrade(base, 4, LATER)


class TestRefs:
    def base(self) -> TableMetadata:
        return with_history(table(), [snapshot(1, 0), snapshot(2, 1, parent=1), snapshot(3, 2, parent=2)])

    def test_branches_and_tags(self) -> None:
        one = set_ref(self.base(), "audit", 2, kind=SnapshotRefType.TAG, max_ref_age_ms=5, now=at(3))
        two = stored(set_ref(one, "dev", 1, min_snapshots_to_keep=2, now=at(3)))
        assert {name: each.snapshot_id for name, each in two.refs.items()} == {"main": 3, "audit": 2, "dev": 1}
        assert two.refs["audit"].max_ref_age_ms == 5
        assert (two.current_snapshot_id, two.snapshot_log) == (3, self.base().snapshot_log)
        assert set_ref(two, "dev", 1, min_snapshots_to_keep=2, now=at(3)) is two
        assert "dev" not in stored(remove_ref(two, "dev", at(3))).refs

    @pytest.mark.parametrize("move", [set_current_snapshot, rollback_to])
    def test_the_table_goes_where_main_goes(self, move: Callable[..., TableMetadata]) -> None:
        new = stored(move(self.base(), 1, at(3)))
        assert (new.current_snapshot_id, new.refs["main"].snapshot_id) == (1, 1)
        assert (new.snapshot_log[-1].snapshot_id, new.snapshot_log[-1].timestamp_ms) == (1, millis(at(3)))
        assert len(new.snapshots) == 3
        assert set_ref(self.base(), "main", 1, now=at(3)) == move(self.base(), 1, at(3))
        assert move(self.base(), 3, at(3)) == self.base()

    def test_main_keeps_its_settings(self) -> None:
        base = set_ref(self.base(), "main", 3, min_snapshots_to_keep=9, now=at(3))
        assert rollback_to(base, 1, at(3)).refs["main"].min_snapshots_to_keep == 9

    def test_a_first_snapshot_becomes_current(self) -> None:
        loose = table().model_copy(update={"snapshots": [snapshot(1, 0)]})
        assert set_current_snapshot(loose, 1, at(1)).refs["main"].snapshot_id == 1

    def test_a_rollback_stays_in_its_own_history(self) -> None:
        base = with_history(table(), [snapshot(1, 0), snapshot(2, 1, parent=1), snapshot(3, 2, parent=1)])
        with pytest.raises(TableUsageError, match="not one that the table came from"):
            rollback_to(base, 2, at(3))
        assert set_current_snapshot(base, 2, at(3)).current_snapshot_id == 2

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda base: set_ref(base, "x", 9, now=LATER), "no snapshot 9"),
            (lambda base: set_ref(base, "", 1, now=LATER), "needs a name"),
            (lambda base: set_ref(base, "main", 1, kind=SnapshotRefType.TAG, now=LATER), "main is a branch"),
            (
                lambda base: set_ref(base, "x", 1, kind=SnapshotRefType.TAG, min_snapshots_to_keep=1, now=LATER),
                "cannot be kept",
            ),
            (lambda base: set_ref(base, "x", 1, max_ref_age_ms=0, now=LATER), "cannot be kept"),
            (lambda base: remove_ref(base, "main", LATER), "cannot be removed"),
            (lambda base: remove_ref(base, "x", LATER), "no branch or tag x"),
            (lambda base: rollback_to(base, 9, LATER), "no snapshot 9"),
        ],
    )
    def test_refused(self, change: Callable[[TableMetadata], TableMetadata], message: str) -> None:
        with pytest.raises(TableUsageError, match=message):
            change(self.base())


# --- random histories -------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "A", "name", "id"])
# The same few columns again and again, so that they come, go and come back.
PATHS: st.SearchStrategy[str | tuple[str, ...]] = st.sampled_from(
    ["a", "a", "a", "b", "name", "id", ("home", "a"), ("home", "city"), ("a", "a"), ("tags", "element", "a")]
)
TYPES = st.sampled_from(
    [
        IntegerType(),
        LongType(),
        FloatType(),
        DecimalType(5, 1),
        StructType(NestedField(1, "a", ListType(2, LongType()))),
    ]
)
CHANGES: st.SearchStrategy[SchemaChange] = st.one_of(
    st.builds(AddColumn, PATHS, TYPES, first=st.booleans()),
    st.builds(AddColumn, PATHS, TYPES),
    st.builds(DropColumn, PATHS),
    st.builds(DropColumn, PATHS),
    st.builds(RenameColumn, PATHS, NAMES),
    st.builds(WidenColumn, PATHS, TYPES),
    st.builds(MakeOptional, PATHS),
    st.builds(MakeRequired, PATHS),
    st.builds(MoveColumn, PATHS, first=st.just(True)),
    st.builds(SetDoc, PATHS, st.sampled_from([None, "said"])),
    st.builds(SetIdentifierFields, st.lists(NAMES, max_size=2).map(tuple)),
)


def kinds_by_id(schema: Schema) -> dict[int, IcebergType]:
    return {each: field.field_type for each, field in index_by_id(schema).items()}


@settings(max_examples=150)
@given(st.lists(st.lists(CHANGES, min_size=1, max_size=2), min_size=3, max_size=20), st.sampled_from([2, 3]))
def test_no_id_ever_means_another_column(history: list[list[SchemaChange]], version: int) -> None:
    metadata = table(format_version=version)
    ever = kinds_by_id(metadata.schema())
    alive = set(ever)
    for changes in history:
        before = metadata
        try:
            metadata = change_schema(metadata, changes, LATER)
        except HeadwaterError:
            assert metadata is before
            continue
        now = kinds_by_id(metadata.schema())
        assert metadata.last_column_id >= max(before.last_column_id, *now)
        assert {each.schema_id: each for each in before.schemas}.items() <= {
            each.schema_id: each for each in metadata.schemas
        }.items()
        for field_id, kind in now.items():
            # An id is new, or it is of a column of this type (or a narrower one) that never went.
            if field_id not in ever:
                assert field_id > before.last_column_id
            elif kind.is_primitive and ever[field_id].is_primitive:
                assert may_widen(ever[field_id], kind)
            assert field_id in alive or field_id not in ever
        ever |= now
        alive = set(now)
        assert len({each.schema_id for each in metadata.schemas}) == len(metadata.schemas)
        assert TableMetadataUtil.parse_obj(stored(metadata).model_dump(mode="json")) == metadata
        assert stored(metadata) == metadata
        assert encode_metadata(stored(metadata)) == encode_metadata(metadata)


SPEC_CHANGES: st.SearchStrategy[SpecChange] = st.one_of(
    st.builds(
        AddPartitionField,
        st.sampled_from(["id", "name", "seen"]),
        st.sampled_from(["identity", "bucket[4]", "day", "truncate[2]"]),
        st.sampled_from([None, "p", "q"]),
    ),
    st.builds(RemovePartitionField, st.sampled_from(["id", "name", "p", "q", "id_bucket_4", "seen_day"])),
    st.builds(RenamePartitionField, st.sampled_from(["id", "p", "seen_day"]), st.sampled_from(["p", "q", "r"])),
)


@settings(max_examples=150)
@given(st.lists(SPEC_CHANGES, max_size=15), st.sampled_from([1, 2, 3]))
def test_no_partition_field_id_ever_means_another_field(history: list[SpecChange], version: int) -> None:
    metadata = v1() if version == 1 else table(format_version=version)
    meaning: dict[int, tuple[int, str]] = {}
    for change in history:
        before = metadata
        try:
            metadata = change_spec(metadata, [change], LATER)
        except HeadwaterError:
            continue
        assert (metadata.last_partition_id or 0) >= (before.last_partition_id or 0)
        assert metadata.partition_specs[: len(before.partition_specs)] == before.partition_specs
        for spec in metadata.partition_specs:
            assert len({each.field_id for each in spec.fields}) == len(spec.fields)
            for field in spec.fields:
                if not isinstance(field.transform, VoidTransform):
                    said = (field.source_id, str(field.transform))
                    assert meaning.setdefault(field.field_id, said) == said
        assert TableMetadataUtil.parse_obj(metadata.model_dump(mode="json")).spec() == metadata.spec()


class TestLog:
    """Every document names those before it."""

    def test_an_entry_says_where_the_last_document_is_and_of_when(self) -> None:
        base = table()
        new = stored(with_log_entry(set_properties(base, {"a": "b"}, (), LATER), "s3://b/1.json", base.last_updated_ms))
        assert [(each.metadata_file, each.timestamp_ms) for each in new.metadata_log] == [
            ("s3://b/1.json", base.last_updated_ms)
        ]
        assert with_log_entry(new, "s3://b/1.json", base.last_updated_ms) is new

    @pytest.mark.parametrize(("most", "left"), [("2", ["3", "4"]), ("0", ["4"]), ("9", ["0", "1", "2", "3", "4"])])
    def test_old_entries_go(self, most: str, left: list[str]) -> None:
        metadata = set_properties(table(), {"write.metadata.previous-versions-max": most}, (), LATER)
        for number in range(5):
            metadata = with_log_entry(metadata, str(number), metadata.last_updated_ms)
        assert [each.metadata_file for each in metadata.metadata_log] == left

    def test_a_limit_that_is_no_number_is_named(self) -> None:
        metadata = set_properties(table(), {"write.metadata.previous-versions-max": "few"}, (), LATER)
        with pytest.raises(TableUsageError, match=r"write\.metadata\.previous-versions-max is 'few'"):
            with_log_entry(metadata, "x", 0)
