"""The first metadata of a table: what it holds, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import (
    DoubleType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
    UnknownType,
)

from headwater.kernel.errors import HeadwaterError, RefusedError, UsageError
from headwater.kernel.ids import Ulid
from headwater.kernel.randomness import seeded
from headwater.tables.create import schema_from_arrow, uuid_from
from headwater.tables.metadata import encode_metadata
from headwater.tables.model import TableUsageError, UnsupportedTableError
from headwater.tables.partitions import AddPartitionField, SortBy
from headwater.tables.rules import millis
from tests.unit.table_documents import COLUMNS, INCARNATION, OPERATION, START, stored, table


@pytest.mark.parametrize("version", [2, 3])
def test_a_new_table_is_what_others_read(version: int) -> None:
    made = table(format_version=version)
    document = json.loads(encode_metadata(made))
    read = TableMetadataUtil.parse_obj(document)
    assert read == made
    assert (document["format-version"], document["last-sequence-number"]) == (version, 0)
    assert document.get("next-row-id") == (0 if version == 3 else None)
    assert document["last-updated-ms"] == millis(START)
    assert document["properties"] == {
        "gc.enabled": "false",
        "write.delete.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.merge.mode": "merge-on-read",
        "headwater.incarnation": INCARNATION,
        "headwater.operation": OPERATION,
    }
    assert "current-snapshot-id" not in document
    assert document["partition-specs"] == [{"spec-id": 0, "fields": []}]
    assert document["sort-orders"] == [{"order-id": 0, "fields": []}]
    assert document["last-partition-id"] == 999


def test_columns_get_new_ids_in_the_order_that_other_engines_give_them() -> None:
    made = table()
    assert made.schema() == assign_fresh_schema_ids(COLUMNS)
    assert [each.field_id for each in made.schema().fields] == [1, 2, 3, 4, 5, 6, 7]
    assert made.last_column_id == made.schema().highest_field_id == 13
    assert made.schema().identifier_field_ids == [1]
    assert made.schema().find_field("born").doc == "a day"


def test_the_uuid_comes_from_the_randomness() -> None:
    assert table().table_uuid == table().table_uuid == uuid_from(seeded(1))
    assert uuid_from(seeded(1)) != uuid_from(seeded(2))
    assert uuid_from(seeded(1)).version == 4


def test_spec_and_order_by_ids_follow_their_columns() -> None:
    spec = PartitionSpec(
        PartitionField(40, 7, DayTransform(), "seen_day"), PartitionField(31, 8, IdentityTransform(), "city")
    )
    order = SortOrder(SortField(60, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST), order_id=9)
    made = stored(table(spec=spec, sort_order=order))
    names = [(made.schema().find_column_name(each.source_id), each.field_id) for each in made.spec().fields]
    assert names == [("seen", 1000), ("home.city", 1001)]
    assert made.last_partition_id == 1001
    assert made.sort_order().order_id == made.default_sort_order_id == 1
    assert made.schema().find_column_name(made.sort_order().fields[0].source_id) == "name"


def test_spec_and_order_by_names() -> None:
    fields = [
        AddPartitionField("id", "bucket[8]"),
        AddPartitionField(("home", "city")),
        AddPartitionField("born", "month"),
    ]
    made = stored(table(spec=fields, sort_order=[SortBy("name", descending=True), SortBy("id", "bucket[4]")]))
    assert [each.name for each in made.spec().fields] == ["id_bucket_8", "home.city", "born_month"]
    assert made.spec().fields[0].transform == BucketTransform(8)
    one, two = made.sort_order().fields
    assert (one.direction, one.null_order) == (SortDirection.DESC, NullOrder.NULLS_LAST)
    assert (two.direction, two.null_order) == (SortDirection.ASC, NullOrder.NULLS_FIRST)


def test_defaults_and_nested_defaults_are_kept_in_v3() -> None:
    inner = StructType(NestedField(9, "n", IntegerType(), write_default=4))
    made = stored(
        table(Schema(NestedField(8, "s", inner), NestedField(5, "x", LongType(), write_default=3)), format_version=3)
    )
    assert made.schema().find_field("x").write_default == 3
    assert made.schema().find_field("s.n").write_default == 4


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        (TimestampNanoType(), 2),
        (TimestamptzNanoType(), 2),
        (UnknownType(), 2),
        (ListType(5, TimestampNanoType()), 2),
        (StructType(NestedField(5, "x", UnknownType())), 2),
    ],
)
def test_types_of_v3_are_refused_on_v2_by_name(kind: IcebergType, version: int) -> None:
    schema = Schema(NestedField(1, "fine", LongType()), NestedField(2, "late", kind))
    with pytest.raises(TableUsageError, match=r"late.*needs format version 3") as raised:
        table(schema, format_version=version)
    assert raised.value.hint == "upgrade the table to 3"
    assert str(raised.value.fields["column"]).startswith("late")
    assert table(schema, format_version=3).schema().fields[1].name == "late"


@pytest.mark.parametrize("nested", [False, True])
def test_defaults_are_refused_on_v2(nested: bool) -> None:
    field = NestedField(2, "x", LongType(), write_default=3)
    schema = Schema(NestedField(1, "s", StructType(field)) if nested else field)
    with pytest.raises(TableUsageError, match="x has a default, which needs format version 3"):
        table(schema)


@pytest.mark.parametrize(("version", "error"), [(0, UsageError), (1, UsageError), (4, UnsupportedTableError)])
def test_other_versions_are_refused(version: int, error: type[HeadwaterError]) -> None:
    with pytest.raises(error, match=f"version {version}"):
        table(format_version=version)


def fields(*names: str) -> list[NestedField]:
    return [NestedField(number, name, StringType()) for number, name in enumerate(names, 1)]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (fields("a", "A"), "column A differs from a only in case"),
        (fields("_row_id"), "_row_id is a name that Iceberg reserves"),
        (fields(""), "cannot name a column"),
        (fields(" a"), "cannot name a column"),
        ([NestedField(9, "s", StructType(*fields("b", "B")))], "column B differs from b only in case"),
        ([NestedField(9, "s", ListType(8, StructType(*fields("_pos"))))], "_pos is a name"),
        ([NestedField(9, "u", UnknownType(), required=True)], "u is required, but its type is unknown"),
    ],
)
def test_columns_that_cannot_be(schema: list[NestedField], message: str) -> None:
    with pytest.raises(TableUsageError, match=message):
        table(Schema(*schema), format_version=3)


def test_geometry_is_refused() -> None:
    with pytest.raises(UnsupportedTableError, match="where has type geometry"):
        table(Schema(NestedField(1, "where", GeometryType())), format_version=3)


def test_an_id_that_means_no_column_or_several_is_refused() -> None:
    spec = PartitionSpec(PartitionField(99, 1000, IdentityTransform(), "p"))
    with pytest.raises(TableUsageError, match="99 is the id of no columns"):
        table(spec=spec)
    same = Schema(NestedField(-1, "a", LongType()), NestedField(-1, "b", LongType()))
    assert [each.field_id for each in table(same).schema().fields] == [1, 2]
    with pytest.raises(TableUsageError, match="-1 is the id of 2 columns"):
        table(same, spec=PartitionSpec(PartitionField(-1, 1000, IdentityTransform(), "p")))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ([AddPartitionField("gone")], "there is no column gone"),
        ([AddPartitionField("id", "bucket")], "bucket is not a transform"),
        ([AddPartitionField("id", "zorder")], "zorder is not a transform"),
        ([AddPartitionField("id", "void")], "void is not a transform"),
        ([AddPartitionField("name", "day")], "cannot be partitioned by day\\(name\\)"),
        ([AddPartitionField("home")], "cannot be partitioned by"),
        ([AddPartitionField(("tags", "element", "tag"))], "cannot be partitioned by"),
        ([AddPartitionField("id"), AddPartitionField("id", name="again")], "says the same"),
        ([AddPartitionField("seen", "day"), AddPartitionField("seen", "year")], "says the same"),
        ([AddPartitionField("id", name="p"), AddPartitionField("name", name="p")], "says the same"),
        ([AddPartitionField("id", "bucket[4]", name="name")], "name that exists in schema"),
    ],
)
def test_specs_that_cannot_be(spec: list[AddPartitionField], message: str) -> None:
    with pytest.raises(TableUsageError, match=message):
        table(spec=spec)


def test_an_order_that_cannot_be() -> None:
    with pytest.raises(TableUsageError, match="cannot be sorted"):
        table(sort_order=[SortBy("home")])


@pytest.mark.parametrize(
    "column", [NestedField(1, "x", DoubleType(), required=True), NestedField(1, "x", LongType(), required=False)]
)
def test_identifiers_that_cannot_be(column: NestedField) -> None:
    schema = Schema.model_construct(fields=(column,), identifier_field_ids=[1], schema_id=0, type="struct")
    with pytest.raises(TableUsageError, match="the schema is not valid"):
        table(schema)


@pytest.mark.parametrize(
    ("properties", "error"),
    [
        ({"headwater.incarnation": "x"}, TableUsageError),
        ({"headwater.anything": "x"}, TableUsageError),
        ({"format-version": "3"}, TableUsageError),
        ({"current-snapshot-id": "3"}, TableUsageError),
        ({"a": 3}, TableUsageError),
    ],
)
def test_properties_that_are_not_ones(properties: dict[str, Any], error: type[HeadwaterError]) -> None:
    with pytest.raises(error) as raised:
        table(properties=properties)
    assert raised.value.fields["property"] in properties


def test_p5_no_table_lets_other_engines_delete_files() -> None:
    with pytest.raises(RefusedError, match="stays false"):
        table(properties={"gc.enabled": "true"})
    assert table(properties={"gc.enabled": "FALSE"}).properties["gc.enabled"] == "FALSE"


def test_properties_of_the_maker_win() -> None:
    made = table(properties={"write.merge.mode": "copy-on-write", "format-version": "2", "owner": "me"})
    assert made.properties["write.merge.mode"] == "copy-on-write"
    assert made.properties["owner"] == "me"
    assert "format-version" not in made.properties
    assert made.properties["headwater.incarnation"] == Ulid(INCARNATION)


def test_arrow_schemas() -> None:
    arrow = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("when", pa.timestamp("us", "UTC")),
            pa.field("points", pa.list_(pa.struct([pa.field("x", pa.float32())]))),
            pa.field("price", pa.decimal128(9, 2)),
        ]
    )
    schema = schema_from_arrow(arrow)
    assert [(each.field_id, str(each)) for each in schema.fields] == [
        (1, "1: id: required long"),
        (2, "2: when: optional timestamptz"),
        (3, "3: points: optional list<struct<6: x: optional float>>"),
        (4, "4: price: optional decimal(9, 2)"),
    ]
    assert table(schema).schema() == schema


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (pa.field("odd", pa.uint64()), "column odd has the Arrow type uint64.*decimal128"),
        (pa.field("odd", pa.struct([pa.field("deep", pa.uint32())])), "column deep has the Arrow type uint32.*int64"),
        (pa.field("odd", pa.list_(pa.uint64())), "uint64"),
        (pa.field("odd", pa.timestamp("ns")), "odd.*timestamp\\[ns\\]"),
        (pa.field("odd", pa.duration("s")), "odd.*duration"),
        (pa.field("odd", pa.null()), "odd"),
        (pa.field("odd", pa.decimal256(50, 2)), "odd"),
    ],
)
def test_arrow_types_that_have_no_place(field: pa.Field, message: str) -> None:
    with pytest.raises(TableUsageError, match=message):
        schema_from_arrow(pa.schema([pa.field("fine", pa.int8()), field]))


def test_arrow_types_that_v3_has_a_place_for() -> None:
    arrow = pa.schema([pa.field("ns", pa.timestamp("ns")), pa.field("nothing", pa.null())])
    schema = schema_from_arrow(arrow, format_version=3)
    assert [str(each.field_type) for each in schema.fields] == ["timestamp_ns", "unknown"]
