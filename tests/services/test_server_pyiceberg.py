"""Everything that PyIceberg can do, through the Iceberg REST catalog of lakes in folders and in buckets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import DoubleType, FloatType, IntegerType, LongType, NestedField, StringType
from pyiceberg.view.metadata import SQLViewRepresentation, ViewVersion

from headwater.lake import Lake
from tests.fixtures.rest import IN_BUCKET, app_of, lake_in, serving

pytestmark = [
    pytest.mark.proves("server/iceberg"),
    pytest.mark.filterwarnings("ignore:Merge on read is not yet supported"),
    pytest.mark.filterwarnings("ignore:Delete operation did not match"),
]

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "part", StringType()),
    NestedField(3, "n", IntegerType()),
)
ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False), ("part", pa.string()), ("n", pa.int32())])
PARTITIONED = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))


class Shop:
    """A branch of a lake, and PyIceberg's catalog of it."""

    def __init__(self, lake: Lake, branch: str, catalog: RestCatalog) -> None:
        self.lake = lake
        self.branch = branch
        self.catalog = catalog

    def ours(self, sql: str) -> list[tuple[Any, ...]]:
        """What the lake says, by its own query engine."""
        return [tuple(each.values()) for each in self.lake.query(sql, branch=self.branch).to_pylist()]

    def commits(self) -> int:
        return len(list(self.lake.catalog.log(self.lake.resolve(branch=self.branch))))


@pytest.fixture(scope="module", params=["folder", IN_BUCKET])
def shops(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Shop]]:
    place = lake_in(request, Path(tmp_path_factory.mktemp("served")), request.param)
    place.lake.create_branch("feature/x")
    with serving(app_of(place.lake, config=place.config)) as served:
        yield {
            branch: Shop(place.lake, branch, served.catalog(branch, token="pyiceberg", **place.keys))
            for branch in ("main", "feature/x")
        }


@pytest.fixture(params=["main", "feature/x"])
def shop(request: pytest.FixtureRequest, shops: dict[str, Shop]) -> Shop:
    return shops[request.param]


def rows(*values: tuple[int, str | None, int | None]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(ARROW.names, each, strict=True)) for each in values], schema=ARROW)


def found(table: Table, **options: Any) -> list[tuple[Any, ...]]:
    return sorted(tuple(each.values()) for each in table.scan(**options).to_arrow().to_pylist())


def test_rows(shop: Shop) -> None:
    table = shop.catalog.create_table("default.t", SCHEMA, partition_spec=PARTITIONED)
    table.append(rows((1, "a", 1), (2, "a", 2), (3, "b", 3)))
    first = table.current_snapshot()
    assert first is not None
    table.overwrite(rows((4, "b", 4)), "part == 'b'")
    table.dynamic_partition_overwrite(rows((5, "a", 5), (6, "c", 6)))
    assert found(table) == [(4, "b", 4), (5, "a", 5), (6, "c", 6)]
    result = table.upsert(rows((4, "b", 44), (7, "c", 7)), join_cols=["id"])
    assert (result.rows_updated, result.rows_inserted) == (1, 1)
    table.delete("id = 5")
    expected = [(4, "b", 44), (6, "c", 6), (7, "c", 7)]
    fresh = shop.catalog.load_table("default.t")
    assert found(fresh) == shop.ours("SELECT * FROM t ORDER BY id") == expected
    assert found(fresh, snapshot_id=first.snapshot_id) == [(1, "a", 1), (2, "a", 2), (3, "b", 3)]
    assert found(fresh, row_filter="part = 'c'", selected_fields=("id",)) == [(6,), (7,)]
    with fresh.manage_snapshots() as manage:
        manage.create_tag(first.snapshot_id, "first").create_branch(first.snapshot_id, "audit")
    fresh.append(rows((9, "z", 9)), branch="audit")
    assert found(shop.catalog.load_table("default.t")) == expected
    assert len(fresh.scan().use_ref("first").to_arrow()) == 3
    assert len(shop.catalog.load_table("default.t").scan().use_ref("audit").to_arrow()) == 4
    fresh.manage_snapshots().remove_tag("first").remove_branch("audit").commit()
    fresh.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    assert shop.ours("SELECT * FROM t ORDER BY id") == [(1, "a", 1), (2, "a", 2), (3, "b", 3)]


def test_schema_and_layout(shop: Shop) -> None:
    table = shop.catalog.create_table("default.s", SCHEMA)
    table.append(rows((1, "a", 1)))
    with table.update_schema() as update:
        update.add_column("f", FloatType())
        update.add_column("gone", StringType())
    with table.update_schema() as update:
        update.rename_column("n", "number")
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.update_column("number", LongType())
        update.update_column("f", DoubleType())
        update.move_first("f")
        update.move_after("part", "number")
        update.delete_column("gone")
        update.make_column_optional("id")
    assert [(each.name, str(each.field_type), each.required) for each in table.schema().fields] == [
        ("f", "double", False),
        ("id", "long", False),
        ("number", "long", False),
        ("part", "string", False),
    ]
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.update_column("id", required=True)
        update.set_identifier_fields("id")
    with table.update_schema() as update:
        update.union_by_name(Schema(NestedField(2, "more", StringType())))
    with table.update_spec() as spec:
        spec.add_field("id", BucketTransform(4), "shard")
        spec.add_field("part", TruncateTransform(1), "letter")
    table.append(table.scan().to_arrow().slice(0, 0))
    table.append(pa.Table.from_pylist([{"id": 2, "part": "b"}], schema=table.schema().as_arrow()))
    with table.update_spec() as spec:
        spec.remove_field("letter")
        spec.rename_field("shard", "bucket")
    with table.update_sort_order() as order:
        order.asc("id", IdentityTransform())
    table.append(pa.Table.from_pylist([{"id": 3, "number": 2**40}], schema=table.schema().as_arrow()))
    fresh = shop.catalog.load_table("default.s")
    assert [each.name for each in fresh.spec().fields] == ["bucket"]
    assert len(fresh.sort_order().fields) == 1
    assert fresh.schema().identifier_field_names() == {"id"}
    expected = [(1, 1, "a", None), (2, None, "b", None), (3, 2**40, None, None)]
    assert shop.ours("SELECT id, number, part, more FROM s ORDER BY id") == expected
    assert sorted(found(fresh, selected_fields=("id", "number", "part", "more"))) == expected


def test_properties_and_transactions(shop: Shop) -> None:
    table = shop.catalog.create_table("default.p", SCHEMA, properties={"team": "ann"})
    before = shop.commits()
    with table.transaction() as transaction:
        transaction.set_properties(team="bob", write="much")
        transaction.remove_properties("write")
        with transaction.update_schema() as update:
            update.add_column("extra", StringType())
        transaction.append(rows((1, "a", 1)))
        transaction.delete("id = 1")
        transaction.append(rows((2, "b", 2)))
    assert shop.commits() == before + 1
    fresh = shop.catalog.load_table("default.p")
    assert (fresh.properties["team"], "write" in fresh.properties) == ("bob", False)
    assert shop.ours("SELECT * FROM p") == [(2, "b", 2, None)]
    late, slow = shop.catalog.load_table("default.p"), shop.catalog.load_table("default.p")
    fresh.append(rows((3, "c", 3)))
    slow.append(rows((4, "d", 4)))  # it has lost, and does its work again
    assert shop.ours("SELECT id FROM p ORDER BY id") == [(2,), (3,), (4,)]
    fresh.refresh()
    fresh.update_schema().add_column("x", StringType()).commit()
    with pytest.raises(CommitFailedException), late.update_schema() as update:
        update.add_column("y", StringType())
    assert shop.catalog.load_table("default.p").schema().column_names[-1] == "x"


def test_names(shop: Shop) -> None:
    catalog = shop.catalog
    catalog.create_namespace("db.inner" if catalog.namespace_exists("db") else "db", {"owner": "ann"})
    catalog.create_namespace_if_not_exists("db.inner")
    assert catalog.list_namespaces() == [("db",), ("default",)]
    assert catalog.list_namespaces("db") == [("db", "inner")]
    assert catalog.load_namespace_properties("db") == {"owner": "ann"}
    summary = catalog.update_namespace_properties("db", {"nothing"}, {"owner": "bob"})
    assert (summary.updated, summary.missing) == (["owner"], ["nothing"])
    made = catalog.create_table_if_not_exists("db.t", SCHEMA)
    assert made.properties["gc.enabled"] == "false"
    made.append(rows((1, "a", 1)))
    assert catalog.create_table_if_not_exists("db.t", SCHEMA).name() == ("db", "t")
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table("db.t", SCHEMA)
    catalog.rename_table("db.t", "db.inner.u")
    assert (catalog.table_exists("db.t"), catalog.table_exists("db.inner.u")) == (False, True)
    # Registered under another name it is another table: what is written to one is not in the other.
    again = catalog.register_table("db.again", catalog.load_table("db.inner.u").metadata_location)
    again.append(rows((2, "b", 2)))
    assert shop.ours("SELECT id FROM db.again ORDER BY id") == [(1,), (2,)]
    assert found(catalog.load_table("db.inner.u")) == [(1, "a", 1)]
    catalog.drop_table("db.inner.u")
    with pytest.raises(NoSuchTableError):
        catalog.load_table("db.inner.u")
    assert found(catalog.load_table("db.again")) == [(1, "a", 1), (2, "b", 2)]
    catalog.purge_table("db.again")
    assert catalog.list_tables("db") == []
    catalog.drop_namespace("db.inner")
    catalog.drop_namespace("db")


def test_a_table_is_made_with_its_rows(shop: Shop) -> None:
    before = shop.commits()
    with shop.catalog.create_table_transaction("default.made", SCHEMA, partition_spec=PARTITIONED) as transaction:
        transaction.append(rows((1, "a", 1)))
        transaction.set_properties(team="ann")
        assert not shop.catalog.table_exists("default.made")
    assert shop.commits() == before + 1
    assert shop.ours("SELECT * FROM made") == [(1, "a", 1)]


def test_views(shop: Shop) -> None:
    shop.catalog.create_table("default.base", SCHEMA).append(rows((1, "a", 1), (2, "b", 2)))
    version = ViewVersion(
        version_id=1,
        schema_id=1,
        timestamp_ms=1_700_000_000_000,
        summary={},
        representations=[SQLViewRepresentation(type="sql", sql="SELECT id FROM base WHERE id > 1", dialect="duckdb")],
        default_namespace=["default"],
    )
    schema = Schema(NestedField(1, "id", LongType()))
    made = shop.catalog.create_view("default.few", schema, version)
    assert made.current_version().representations[0].root.sql == version.representations[0].root.sql
    assert shop.catalog.view_exists("default.few")
    assert shop.catalog.list_views("default") == [("default", "few")]
    assert shop.ours("SELECT * FROM few") == [(2,)]
    shop.catalog.drop_view("default.few")
    assert shop.catalog.list_views("default") == []
