"""Branches and merges on a real lake. What a merge makes of rows is compared with a dictionary, merged three ways."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from headwater import query
from headwater.catalog.errors import (
    ExpectedVersionMismatchError,
    RefConflictError,
    RefExistsError,
    RefNotFoundError,
)
from headwater.catalog.model import Commit, NamespaceContent, RefKind, TableContent, TableKey, ViewContent
from headwater.kernel import failpoints
from headwater.kernel.errors import RefusedError, UsageError
from headwater.kernel.failpoints import Action, Failpoint
from headwater.lake import Lake
from headwater.publish.branches.decide import TAKEN
from headwater.publish.branches.model import MergeConflictError
from headwater.publish.codec import decode_sidecar, encode_sidecar
from headwater.publish.constraints.codec import constraint_properties
from headwater.publish.constraints.model import ForeignKey
from headwater.publish.errors import ConstraintViolationError, PublishOutcomeUnknownError, RecoveryPendingError
from headwater.publish.model import Replaced, TableWish, Verdict, Wish, WriterKind
from headwater.publish.protocol import Publisher
from headwater.query import OpenTable, QueryOptions
from headwater.storage.errors import ReadOnlyError
from headwater.tables.columns import AddColumn, DropColumn, RenameColumn, SchemaChange
from headwater.tables.evolve import change_schema, set_properties
from headwater.tables.model import ROW_ID_COLUMN, Staged
from headwater.tables.operations import append
from headwater.tables.scan import plan_scan
from tests.fixtures.lakes import LakeWorld

pytestmark = pytest.mark.proves("publish/branches")

KEYED = Schema(
    NestedField(1, "id", LongType(), required=True), NestedField(2, "v", StringType()), identifier_field_ids=[1]
)
KEYLESS = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()))


@pytest.fixture
def home(lake: LakeWorld) -> Lake:
    """A lake with two tables that have keys, of which `t` has three rows, and a branch `dev` of it."""
    found = lake.lake
    found.create_table("t", KEYED, actor="ann", format_version=3)
    found.create_table("u", KEYED, actor="ann")
    run(found, "insert into t values (1, 'a'), (2, 'b'), (3, 'c')", "insert into u values (1, 'a')")
    found.create_branch("dev")
    return found


def run(lake: Lake, *statements: str, branch: str = "main") -> Commit | None:
    with lake.transaction(branch=branch, actor="ann") as tx:
        for sql in statements:
            tx.sql(sql)
    return tx.commit


def rows(lake: Lake, table: str = "t", branch: str = "main") -> dict[Any, Any]:
    found = lake.query(f"select * from {table}", branch=branch).to_pylist()
    columns = found[0].keys() if found else ()
    answer = {row["id"]: row["v"] if tuple(columns) == ("id", "v") else row for row in found}
    assert len(answer) == len(found)
    return answer


def alter(lake: Lake, name: str, change: Any, *, branch: str = "main") -> Commit:
    """Publish another document of a table."""
    key, ref = TableKey.parse(name), lake.catalog.ref(branch)
    pinned = lake.content(key, ref.hash)
    assert isinstance(pinned, TableContent)
    made: TableMetadata = change(lake.table(name, branch=branch).metadata)
    return publish(lake, branch, tables=(TableWish(key, pinned, Staged(made)),))


def publish(lake: Lake, branch: str = "main", **wish: Any) -> Commit:
    ref = lake.catalog.ref(branch)
    options = {"tables": (), **wish}
    return lake.writing.publisher.publish(
        Wish(
            WriterKind.SCHEMA_APPLY,
            "ann",
            "a change",
            branch,
            ref.incarnation,
            operation=lake.writing.staging().operation,
            **options,
        )
    )


def drop(lake: Lake, name: str, *, branch: str = "main") -> Commit:
    key = TableKey.parse(name)
    pinned = lake.content(key, lake.catalog.ref(branch).hash)
    assert isinstance(pinned, TableContent)
    return publish(lake, branch, tables=(TableWish(key, pinned, None),))


def now() -> datetime:
    return datetime.now(UTC)


def conflicts(lake: Lake, source: str = "dev", into: str = "main") -> dict[str, tuple[str, tuple[str, ...]]]:
    """What a merge says stands in its way; it must have changed nothing."""
    before = files_of(lake)
    with pytest.raises(MergeConflictError) as caught:
        lake.merge(source, into, actor="ann")
    assert files_of(lake) == before
    return {str(each.key): (each.reason, each.keys) for each in caught.value.conflicts}


def files_of(lake: Lake) -> list[str]:
    """Every object of the lake, apart from the notes of who holds what."""
    folder = Path(lake.location.removeprefix("file://"))
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(str(path) for path in found if not any(part.endswith(".pins") for part in path.parts))


# Refs


def test_branches_and_tags(home: Lake) -> None:
    assert [ref.name for ref in home.branches()] == ["dev", "main"]
    first = home.catalog.ref("main").hash
    run(home, "delete from t")
    assert home.create_branch("old", first).hash == first
    assert home.create_branch("older", "old").hash == first
    tag = home.create_tag("v1", "old")
    assert (tag.kind, tag.hash) == (RefKind.TAG, first)
    assert home.create_branch("from-tag", "v1").hash == first
    assert home.create_branch("new").hash == home.catalog.ref("main").hash
    assert [ref.name for ref in home.tags()] == ["v1"]
    home.delete_tag("v1")
    home.delete_branch("older")
    assert [ref.name for ref in home.catalog.refs()] == ["dev", "from-tag", "main", "new", "old"]
    assert rows(home, branch="old") == {1: "a", 2: "b", 3: "c"}


def test_refs_that_cannot_be(home: Lake) -> None:
    with pytest.raises(RefExistsError):
        home.create_branch("dev")
    with pytest.raises(UsageError):
        home.create_branch("no good")
    with pytest.raises(RefNotFoundError):
        home.create_branch("x", "nowhere")
    with pytest.raises(RefNotFoundError):
        home.delete_branch("nowhere")
    with pytest.raises(RefusedError):
        home.delete_branch("main")
    home.create_tag("v1")
    with pytest.raises(UsageError, match="v1 is a tag"):
        home.delete_branch("v1")
    with pytest.raises(UsageError, match="dev is a branch"):
        home.delete_tag("dev")
    with pytest.raises(UsageError, match="v1 is a tag"):
        home.merge("dev", "v1", actor="ann")
    with pytest.raises(RefNotFoundError):
        home.merge("nowhere", actor="ann")
    with pytest.raises(RefNotFoundError):
        home.merge("dev", "nowhere", actor="ann")


def test_a_branch_that_moved_is_not_deleted(home: Lake) -> None:
    seen = home.catalog.ref("dev").hash
    run(home, "delete from t", branch="dev")
    with pytest.raises(RefConflictError):
        home.delete_branch("dev", expected=seen)
    home.delete_branch("dev", expected=home.catalog.ref("dev").hash)
    assert [ref.name for ref in home.branches()] == ["main"]


@pytest.fixture
def died(home: Lake) -> str:
    """A change of `dev` whose writer died between its heads; its operation."""
    armed = failpoints.arm(Failpoint.PUBLISH_AFTER_HEAD, Action.ERROR, only_hit=1)
    with armed, pytest.raises(PublishOutcomeUnknownError) as caught:
        run(home, "update t set v = 'x'", "update u set v = 'x'", branch="dev")
    return caught.value.operation


def test_a_branch_that_is_being_written_is_not_deleted(home: Lake, died: str, lake: LakeWorld) -> None:
    another = lake.app.open_lake(lake.url, sweep=False)
    with pytest.raises(RecoveryPendingError, match=died):
        another.delete_branch("dev")
    assert "dev" in [ref.name for ref in home.branches()]


def test_what_a_dead_writer_left_is_settled_before_its_branch_goes(home: Lake, died: str) -> None:
    assert len(home.writing.sidecars.pending()) == 1
    home.delete_branch("dev")
    assert home.writing.sidecars.pending() == ()
    assert [ref.name for ref in home.branches()] == ["main"]


def test_a_reader_makes_no_branch(lake: LakeWorld, home: Lake) -> None:
    reader = lake.app.open_lake(lake.url, read_only=True)
    for attempt in (lambda: reader.create_branch("x"), lambda: reader.merge("dev", actor="ann")):
        with pytest.raises(ReadOnlyError):
            attempt()


# One side changed


def test_a_merge_is_one_commit_with_two_parents(home: Lake) -> None:
    run(home, "insert into t values (4, 'd')", "update u set v = 'z'", branch="dev")
    run(home, "insert into t values (5, 'e')")
    main, dev = home.catalog.ref("main").hash, home.catalog.ref("dev").hash
    merged = home.merge("dev", actor="bob", message="why not")
    assert merged.commit is not None
    assert merged.commit.parents == (main, dev)
    assert (merged.commit.actor, merged.commit.message) == ("bob", "why not")
    assert merged.commit.properties["headwater.merge.source"] == "dev"
    assert [str(each) for each in merged.tables] == ["default.t", "default.u"]
    assert rows(home) == {1: "a", 2: "b", 3: "c", 4: "d", 5: "e"}
    assert rows(home, "u") == {1: "z"}
    assert home.writing.sidecars.pending() == ()


def test_a_branch_that_is_only_ahead_is_merged_by_a_commit_too(home: Lake) -> None:
    run(home, "delete from t where id = 1", branch="dev")
    main, dev = home.catalog.ref("main").hash, home.catalog.ref("dev").hash
    merged = home.merge("dev", actor="ann")
    assert merged.commit is not None
    assert merged.commit.parents == (main, dev)
    assert rows(home) == {2: "b", 3: "c"}


def test_what_is_merged_is_not_merged_again(home: Lake) -> None:
    assert home.merge("dev", actor="ann") == home.merge("main", actor="ann")
    assert home.merge("dev", actor="ann").commit is None
    run(home, "delete from t where id = 1", branch="dev")
    assert home.merge("dev", actor="ann").commit is not None
    head = home.catalog.ref("main").hash
    again = home.merge("dev", actor="ann")
    assert (again.commit, again.tables) == (None, ())
    assert home.catalog.ref("main").hash == head


def test_back_and_forth(home: Lake) -> None:
    run(home, "update t set v = 'A' where id = 1", branch="dev")
    home.merge("dev", actor="ann")
    run(home, "update t set v = 'B' where id = 2")
    home.merge("main", "dev", actor="ann")
    assert rows(home, branch="dev") == {1: "A", 2: "B", 3: "c"}
    run(home, "update t set v = 'C' where id = 3", branch="dev")
    run(home, "update t set v = 'AA' where id = 1")
    home.merge("dev", actor="ann")
    home.merge("main", "dev", actor="ann")
    assert rows(home) == rows(home, branch="dev") == {1: "AA", 2: "B", 3: "C"}


def test_a_merge_that_changes_nothing_is_remembered(home: Lake) -> None:
    for branch in ("main", "dev"):
        run(home, "update t set v = 'same' where id = 1", branch=branch)
    merged = home.merge("dev", actor="ann")
    assert merged.commit is not None
    assert merged.tables == ()
    assert len(merged.commit.parents) == 2
    assert home.merge("dev", actor="ann").commit is None


def test_tables_made_and_dropped(home: Lake) -> None:
    home.create_table("made", KEYLESS, actor="ann", branch="dev")
    run(home, "insert into made values (1, 'x')", branch="dev")
    drop(home, "u", branch="dev")
    home.create_table("kept", KEYED, actor="ann")
    merged = home.merge("dev", actor="ann")
    assert [str(each) for each in merged.tables] == ["default.made", "default.u"]
    assert [str(each.key) for each in home.tables()] == ["default.kept", "default.made", "default.t"]
    run(home, "insert into made values (2, 'y')")
    assert rows(home, "made") == {1: "x", 2: "y"}
    assert rows(home, "made", "dev") == {1: "x"}


def test_a_table_that_was_renamed(home: Lake) -> None:
    old, new, ref = TableKey.parse("t"), TableKey.parse("moved"), home.catalog.ref("dev")
    pinned = home.content(old, ref.hash)
    assert isinstance(pinned, TableContent)
    metadata = home.table("t", branch="dev").metadata
    publish(home, "dev", tables=(TableWish(new, pinned, Staged(metadata), renamed_from=old),))
    run(home, "update moved set v = 'D' where id = 1", branch="dev")
    run(home, "update t set v = 'M' where id = 2")
    home.merge("dev", actor="ann")
    assert rows(home, "moved") == {1: "D", 2: "M", 3: "c"}
    assert old not in dict(home.catalog.contents(home.catalog.ref("main").hash))
    run(home, "insert into moved values (9, 'after')")


def test_views_and_namespaces(home: Lake, lake: LakeWorld) -> None:
    one, two = TableKey.of_namespace(("one",)), TableKey.of_namespace(("two",))
    empty = NamespaceContent("N1", {})
    publish(home, others={one: Replaced(None, empty)})
    home.create_branch("work")
    lake.create_view("shown", KEYED, {"duckdb": "select * from t"})
    held = home.catalog.content(home.catalog.ref("main").hash, [TableKey.parse("shown")])
    [content] = held.values()
    assert isinstance(content, ViewContent)
    shown = TableKey.parse("shown")
    publish(
        home,
        "work",
        others={
            one: Replaced(empty, None),
            two: Replaced(None, NamespaceContent("N2", {"a": "1"})),
            TableKey.parse("also"): Replaced(None, ViewContent("V2", content.metadata_location, 1, 0)),
        },
    )
    home.create_table("two.t", KEYED, actor="ann", branch="work")
    merged = home.merge("work", actor="ann")
    assert [str(each) for each in merged.tables] == ["default.also", "one", "two", "two.t"]
    after = dict(home.catalog.contents(home.catalog.ref("main").hash))
    assert one not in after
    assert after[two] == NamespaceContent("N2", {"a": "1"})
    assert home.query("select count(*) n from also").to_pylist() == [{"n": 3}]
    home.merge("main", "work", actor="ann")
    publish(home, "work", others={shown: Replaced(content, None)})
    home.merge("work", actor="ann")
    assert shown not in dict(home.catalog.contents(home.catalog.ref("main").hash))


# Both sides changed


def test_rows_by_primary_key(home: Lake) -> None:
    run(
        home,
        "update t set v = 'B' where id = 2",
        "delete from t where id = 3",
        "insert into t values (4, 'd')",
        branch="dev",
    )
    run(home, "update t set v = 'A' where id = 1", "insert into t values (5, 'e')")
    ids = {row["id"]: row[ROW_ID_COLUMN] for row in row_ids(home)}
    home.merge("dev", actor="ann")
    assert rows(home) == {1: "A", 2: "B", 4: "d", 5: "e"}
    after = {row["id"]: row[ROW_ID_COLUMN] for row in row_ids(home)}
    assert {each: after[each] for each in (1, 2, 5)} == {each: ids[each] for each in (1, 2, 5)}
    assert after[4] not in ids.values()


def row_ids(lake: Lake) -> list[dict[str, Any]]:
    class Source:
        def names(self) -> tuple[TableKey, ...]:
            return ()

        def open(self, key: TableKey) -> OpenTable:
            return OpenTable(lake.table(key).metadata)

    options = QueryOptions(positions=frozenset({TableKey.parse("t")}))
    found: list[dict[str, Any]] = query.run(
        f"select id, {ROW_ID_COLUMN} from t", Source(), lake.files, options=options
    ).to_pylist()
    return found


def test_the_same_change_on_both_sides_is_no_conflict(home: Lake) -> None:
    for branch in ("main", "dev"):
        run(
            home,
            "update t set v = null where id = 1",
            "delete from t where id = 2",
            "insert into t values (7, 'n')",
            branch=branch,
        )
    run(home, "update t set v = 'x' where id = 3", branch="dev")
    home.merge("dev", actor="ann")
    assert rows(home) == {1: None, 3: "x", 7: "n"}


def test_rows_that_conflict_are_named(home: Lake) -> None:
    run(home, "update t set v = 'dev'", "delete from u", "insert into t values (9, 'dev'), (8, 'dev')", branch="dev")
    run(home, "update t set v = 'main'", "update u set v = 'main'", "insert into t values (9, 'main')")
    found = conflicts(home)
    assert found == {
        "default.t": ("has rows that both sides changed in different ways, 4 in all", ("id = 1", "id = 2", "id = 3")),
        "default.u": ("has rows that both sides changed in different ways, 1 in all", ("id = 1",)),
    }
    assert home.writing.sidecars.pending() == ()
    assert rows(home) == {1: "main", 2: "main", 3: "main", 9: "main"}


def test_every_conflict_is_named_at_once(home: Lake) -> None:
    home.create_table("bare", KEYLESS, actor="ann")
    for name in ("gone", "back"):
        home.create_table(name, KEYED, actor="ann")
    home.create_branch("work")
    for branch in ("main", "work"):
        run(home, f"insert into bare values (1, '{branch}')", branch=branch)
        alter(
            home,
            "u",
            lambda each, branch=branch: change_schema(each, [AddColumn(branch, LongType())], now()),
            branch=branch,
        )
        home.create_table("new", KEYED, actor="ann", branch=branch)
    drop(home, "gone")
    run(home, "insert into gone values (1, 'x')", branch="work")
    drop(home, "back", branch="work")
    run(home, "insert into back values (1, 'x')")
    run(home, "update t set v = 'fine'", branch="work")
    found = {key: reason for key, (reason, _) in conflicts(home, "work").items()}
    assert found == {
        "default.back": "was dropped on the source and changed on the target",
        "default.bare": "has rows that were changed on both sides, and no primary key to combine them by",
        "default.gone": "was changed on the source and dropped on the target",
        "default.new": TAKEN,
        "default.u": "has columns, partitioning or an order that were changed on both sides",
    }
    assert rows(home) == {1: "a", 2: "b", 3: "c"}


@pytest.mark.parametrize("wider", ["main", "dev"])
def test_columns_of_one_side_and_rows_of_both(home: Lake, wider: str) -> None:
    changes: list[SchemaChange] = [AddColumn("n", LongType()), RenameColumn("v", "w")]
    alter(home, "t", lambda each: change_schema(each, changes, now()), branch=wider)
    other = {"main": "dev", "dev": "main"}[wider]
    run(home, "update t set n = 10 where id = 1", "insert into t values (4, 'd', 40)", branch=wider)
    run(home, "update t set v = 'B' where id = 2", "delete from t where id = 3", branch=other)
    home.merge("dev", actor="ann")
    assert home.query("select * from t order by id").to_pylist() == [
        {"id": 1, "w": "a", "n": 10},
        {"id": 2, "w": "B", "n": None},
        {"id": 4, "w": "d", "n": 40},
    ]


def test_rows_of_a_table_without_a_key_that_only_one_side_changed(home: Lake) -> None:
    home.create_table("bare", KEYLESS, actor="ann")
    run(home, "insert into bare values (1, 'a')")
    home.create_branch("work")
    run(home, "insert into bare values (2, 'b')", branch="work")
    alter(home, "bare", lambda each: set_properties(each, {"note": "main"}, (), now()))
    home.merge("work", actor="ann")
    assert rows(home, "bare") == {1: "a", 2: "b"}
    assert home.table("bare").metadata.properties["note"] == "main"


def test_a_table_that_is_another_one_on_each_side(home: Lake) -> None:
    drop(home, "u", branch="dev")
    home.create_table("u", KEYED, actor="ann", branch="dev")
    assert conflicts(home) == {"default.u": (TAKEN, ())}
    drop(home, "u")
    home.merge("dev", actor="ann")
    assert rows(home, "u") == {}


def test_a_rolled_back_change_is_no_change(home: Lake, died: str) -> None:
    """What a rollback restores on one side does not stand against what the other side changed."""
    home.writing.recovery.sweep()
    assert rows(home, branch="dev") == {1: "a", 2: "b", 3: "c"}
    drop(home, "t")
    alter(home, "u", lambda each: change_schema(each, [DropColumn("v")], now()))
    merged = home.merge("dev", actor="ann")
    assert merged.tables == ()
    assert [str(each.key) for each in home.tables()] == ["default.u"]


def test_several_rows_of_one_key_are_refused(home: Lake, lake: LakeWorld) -> None:
    """Keys are not unique where somebody else wrote; nothing is guessed then."""
    twice = pa.table({"id": pa.array([7, 7], pa.int64()), "v": ["x", "y"]})
    key, ref = TableKey.parse("t"), home.catalog.ref("dev")
    pinned = home.content(key, ref.hash)
    assert isinstance(pinned, TableContent)
    publish(home, "dev", tables=(TableWish(key, pinned, append(home.writing.staging(), home.table("t"), twice)),))
    run(home, "insert into t values (8, 'x')")
    assert conflicts(home) == {"default.t": ("has several rows of one primary key", ("id = 7",))}


KINDS: list[tuple[Any, Any, Any]] = [
    (BooleanType(), True, False),
    (IntegerType(), 1, 2),
    (LongType(), 2**40, -1),
    (FloatType(), math.nan, 1.5),
    (DoubleType(), math.nan, math.inf),
    (DecimalType(12, 3), Decimal("1.250"), Decimal("-7.001")),
    (DateType(), date(2026, 1, 2), date(1969, 1, 1)),
    (TimeType(), time(1, 2, 3, 4), time(0)),
    (TimestampType(), datetime.fromisoformat("2026-01-02T03:00"), datetime.fromisoformat("1969-01-01")),
    (TimestamptzType(), datetime(2026, 1, 2, 3, tzinfo=UTC), datetime(1969, 1, 1, tzinfo=UTC)),
    (StringType(), "é", ""),
    (UUIDType(), UUID(int=7), UUID(int=8)),
    (BinaryType(), b"\0\1", b""),
    (FixedType(2), b"ab", b"cd"),
    (ListType(90, LongType(), element_required=False), [1, None], []),
    (StructType(NestedField(91, "x", DoubleType())), {"x": math.nan}, {"x": None}),
    (MapType(92, StringType(), 93, LongType(), value_required=False), [("k", None)], [("k", 1)]),
]


@pytest.mark.parametrize("format_version", [2, 3])
def test_values_of_every_type(home: Lake, format_version: int) -> None:
    """A value that stays is no change, null and NaN included; one that changes arrives as it was."""
    fields = [NestedField(place, f"c{place}", kind) for place, (kind, _, _) in enumerate(KINDS, 2)]
    schema = Schema(NestedField(1, "id", LongType(), required=True), *fields, identifier_field_ids=[1])
    home.create_table("k", schema, actor="ann", format_version=format_version)
    arrow = schema_to_pyarrow(home.table("k").metadata.schema(), include_field_ids=False)
    first, second = ({f"c{place}": each[side] for place, each in enumerate(KINDS, 2)} for side in (1, 2))
    nothing = dict.fromkeys(first)

    def given(**wanted: Mapping[str, Any]) -> pa.Table:
        return pa.Table.from_pylist([{"id": int(name[1:]), **values} for name, values in wanted.items()], schema=arrow)

    def write(branch: str, table: pa.Table) -> None:
        with home.transaction(branch=branch, actor="ann") as tx:
            tx.sql(f"delete from k where id in ({', '.join(map(str, table['id'].to_pylist()))})")
            tx.insert("k", table)

    write("main", given(r1=first, r2=first, r3=nothing, r4=second, r5=nothing))
    home.create_branch("work")
    write("work", given(r1=second, r2=first, r3=nothing, r4=nothing))
    write("main", given(r2=second, r3=second, r4=second, r5=first))
    home.merge("work", actor="ann")
    expected = given(r1=second, r2=second, r3=second, r4=nothing, r5=first)
    assert repr(home.query("select * from k order by id").to_pylist()) == repr(expected.to_pylist())


def test_branches_that_were_merged_crosswise(home: Lake) -> None:
    """Each took the other's change; then one took it back. No base alone tells that from not having it yet."""
    run(home, "update t set v = 'M' where id = 1")
    run(home, "update t set v = 'D' where id = 2", branch="dev")
    main, dev = home.catalog.ref("main").hash, home.catalog.ref("dev").hash
    home.create_branch("before", main)
    home.merge(dev, actor="ann")
    home.merge("before", "dev", actor="ann")
    assert home.catalog.commit_at(home.catalog.ref("dev").hash).parents == (dev, main)
    assert rows(home) == rows(home, branch="dev") == {1: "M", 2: "D", 3: "c"}
    run(home, "update t set v = 'a' where id = 1", "update t set v = 'C' where id = 3")
    assert conflicts(home) == {
        "default.t": ("has rows that both sides changed in different ways, 1 in all", ("id = 1",))
    }
    run(home, "update t set v = 'a' where id = 1", "insert into t values (4, 'd')", branch="dev")
    home.merge("dev", actor="ann")
    assert rows(home) == {1: "a", 2: "D", 3: "C", 4: "d"}


# A dictionary, merged three ways


def merged_three_ways(
    base: dict[int, Any], source: dict[int, Any], target: dict[int, Any]
) -> tuple[dict[int, Any], set[int]]:
    """The rows, and the keys on which the sides disagree."""
    result, conflicting = dict(target), set()
    for key in base.keys() | source.keys() | target.keys():
        old, ours, theirs = (repr(each[key]) if key in each else None for each in (base, target, source))
        if theirs in (old, ours):
            continue
        if ours != old:
            conflicting.add(key)
        elif key in source:
            result[key] = source[key]
        else:
            del result[key]
    return result, conflicting


VALUES = [None, math.nan, 1.5, -0.5]
NUMBERED = Schema(
    NestedField(1, "id", LongType(), required=True), NestedField(2, "v", DoubleType()), identifier_field_ids=[1]
)


Model = dict[str, dict[int, float | None]]


def edit(lake: Lake, dice: random.Random, branch: str, before: Model) -> Model:
    """Some rows of each table go, and some of them come back with another value, or the same."""
    after = {}
    with lake.transaction(branch=branch, actor="ann") as tx:
        for table, held in before.items():
            keys = dice.sample(range(14), dice.randrange(2, 5))
            added = {key: dice.choice(VALUES) for key in keys if dice.random() < 0.7}
            tx.sql(f"delete from {table} where id in ({', '.join(map(str, keys))})")
            if added:
                tx.insert(table, [{"id": key, "v": value} for key, value in added.items()])
            after[table] = {**{key: value for key, value in held.items() if key not in keys}, **added}
    return after


def test_random_edits_on_two_branches(lake: LakeWorld) -> None:
    dice, home = random.Random(1), lake.lake
    for number, name in enumerate("ab"):
        home.create_table(name, NUMBERED, actor="ann", format_version=2 + number)
    main: Model = edit(home, dice, "main", {"a": {}, "b": {}})
    outcomes = []
    for number in range(6):
        base, branch = main, f"b{number}"
        home.create_branch(branch)
        source = edit(home, dice, branch, edit(home, dice, branch, base) if number == 3 else base)
        main = edit(home, dice, "main", base)
        expected = {name: merged_three_ways(base[name], source[name], main[name]) for name in main}
        wrong = {f"default.{name}": sorted(keys)[:3] for name, (_, keys) in expected.items() if keys}
        outcomes.append(bool(wrong))
        if wrong:
            found = {name: keys for name, (_, keys) in conflicts(home, branch).items()}
            assert found == {name: tuple(f"id = {key}" for key in keys) for name, keys in wrong.items()}
        else:
            home.merge(branch, actor="ann")
            main = {name: wanted for name, (wanted, _) in expected.items()}
        for name, wanted in main.items():
            assert repr(sorted(rows(home, name).items())) == repr(sorted(wanted.items()))
        home.delete_branch(branch)
    assert set(outcomes) == {True, False}


# P7: the source goes


def test_p7_everything_reads_when_the_merged_branch_and_its_forks_are_gone(home: Lake) -> None:
    home.create_table("made", KEYED, actor="ann", branch="dev")
    run(
        home,
        "insert into made values (1, 'x')",
        "update u set v = 'dev'",
        "insert into t values (4, 'd')",
        branch="dev",
    )
    run(home, "insert into t values (5, 'e')")
    incarnation = home.catalog.ref("dev").incarnation
    home.merge("dev", actor="ann")
    home.delete_branch("dev")
    folder = Path(home.location.removeprefix("file://"))
    for document in folder.rglob("*.metadata.json"):
        of_made = document.parent.parent.name.startswith("made-")  # made on dev: its own sequence is dev's
        if incarnation in document.parts or of_made:
            document.unlink()
    fresh = Lake(home.catalog, home.files, location=home.location, writing=home.writing)
    assert rows(fresh) == {1: "a", 2: "b", 3: "c", 4: "d", 5: "e"}
    assert rows(fresh, "u") == {1: "dev"}
    assert rows(fresh, "made") == {1: "x"}
    for name in ("t", "u", "made"):
        version = fresh.table(name)
        assert version.location is not None
        for location in (version.location, *(each.metadata_file for each in version.metadata.metadata_log)):
            assert fresh.files.read(location), name
        assert StaticTable.from_metadata(version.location).scan().to_arrow().num_rows == len(rows(fresh, name))
    run(fresh, *(f"insert into {name} values (99, 'after')" for name in ("t", "u", "made")))
    assert rows(fresh, "made") == {1: "x", 99: "after"}


def test_p7_a_branch_of_the_same_name_is_another(home: Lake) -> None:
    run(home, "update t set v = 'first'", branch="dev")
    home.merge("dev", actor="ann")
    home.delete_branch("dev")
    home.create_branch("dev")
    run(home, "update t set v = 'second' where id = 1", branch="dev")
    home.merge("dev", actor="ann")
    assert rows(home) == {1: "second", 2: "first", 3: "first"}


# P8 and constraints


@pytest.fixture
def shop(lake: LakeWorld) -> Lake:
    """Customers, and orders that refer to them, with a branch `dev`."""
    found = lake.lake
    orders = Schema(
        NestedField(1, "id", LongType(), required=True), NestedField(2, "v", LongType()), identifier_field_ids=[1]
    )
    found.create_table("customers", KEYED, actor="ann")
    found.create_table("orders", orders, actor="ann")
    link = ForeignKey("of_customer", ("v",), TableKey.parse("customers"), ("id",))

    def constrain(*args: Any) -> Any:
        wanted = {name: value for name, value in constraint_properties(*args).items() if value is not None}
        return lambda each: each.model_copy(update={"properties": {**each.properties, **wanted}})

    alter(found, "orders", constrain([link], []))
    alter(found, "customers", constrain([], [TableKey.parse("orders")]))
    run(found, "insert into customers values (1, 'Ann'), (2, 'Bob')", "insert into orders values (10, 1)")
    found.create_branch("dev")
    return found


@pytest.mark.parametrize(
    ("deleting", "ordering", "busy"), [("main", "dev", False), ("dev", "main", False), ("dev", "main", True)]
)
def test_a_merge_is_judged_by_the_constraints(shop: Lake, deleting: str, ordering: str, busy: bool) -> None:
    """Each side is sound on its own; together they are not. `busy`: both tables have changed on both sides."""
    also = ["insert into orders values (30, 1)", "insert into customers values (3, 'Zoe')"] if busy else []
    run(shop, "delete from customers where id = 2", *also[:1], branch=deleting)
    run(shop, "insert into orders values (20, 2)", *also[1:], branch=ordering)
    before = files_of(shop)
    with pytest.raises(ConstraintViolationError) as caught:
        shop.merge("dev", actor="ann")
    assert caught.value.fields["table"] in ("default.orders", "default.customers")
    assert caught.value.fields["constraint"] == "of_customer"
    assert files_of(shop) == before
    run(shop, "delete from orders where id = 20", branch=ordering)
    shop.merge("dev", actor="ann")
    assert rows(shop, "customers").keys() == ({1, 3} if busy else {1})
    assert rows(shop, "orders").keys() == ({10, 30} if busy else {10})


def test_rows_of_one_side_are_judged_by_new_constraints_of_the_other(shop: Lake) -> None:
    def required(each: TableMetadata) -> TableMetadata:
        link = ForeignKey("other", ("v",), TableKey.parse("customers"), ("id",))
        properties = {name: value for name, value in constraint_properties([link], []).items() if value is not None}
        return each.model_copy(update={"properties": {**each.properties, **properties}})

    loose = constraint_properties([], [])
    alter(
        shop,
        "orders",
        lambda each: each.model_copy(
            update={"properties": {k: v for k, v in each.properties.items() if k not in loose}}
        ),
    )
    shop.create_branch("work")
    alter(shop, "orders", required, branch="work")
    run(shop, "insert into orders values (50, 77)")
    with pytest.raises(ConstraintViolationError, match="other"):
        shop.merge("work", actor="ann")


@pytest.mark.parametrize("script", ["alter table c rename to moved", "drop table c"])
def test_nothing_may_refer_to_what_is_gone(lake: LakeWorld, script: str) -> None:
    home = lake.lake
    home.apply("create table c (id bigint not null primary key); create table d (id bigint)", actor="ann")
    home.create_branch("dev")
    home.apply(script, actor="ann", branch="dev")
    home.apply("create table e (id bigint, c bigint references c(id))", actor="ann")
    found = {key: reason for key, (reason, _) in conflicts(home).items()}
    if script.startswith("drop"):  # and that the table itself has changed on the target is the same story
        assert found == {"default.c": "was dropped on the source and changed on the target"}
    else:
        assert found == {"default.e": "refers to default.c, which one side has dropped or renamed"}
    home.apply("drop table e", actor="ann")
    home.merge("dev", actor="ann")
    assert [str(each.key) for each in home.tables()] == ["default.d", *(["default.moved"] if "moved" in script else [])]


def test_p8_what_the_merge_rests_on_must_not_change_meanwhile(shop: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between plan and publish: a table that is merged, one that a constraint was judged on, one that has no part."""
    publish_at_last = Publisher.publish

    def meanwhile(*statements: str) -> None:
        def interfering(self: Publisher, wish: Wish) -> Commit:
            monkeypatch.setattr(Publisher, "publish", publish_at_last)
            run(shop, *statements)
            return publish_at_last(self, wish)

        monkeypatch.setattr(Publisher, "publish", interfering)

    for name in ("t", "u"):
        shop.create_table(name, KEYED, actor="ann")
    run(shop, "insert into t values (1, 'a')")
    shop.create_branch("work")
    run(shop, "insert into orders values (20, 2)", "update t set v = 'same'", branch="work")
    run(shop, "update t set v = 'same'")
    meanwhile("insert into orders values (30, 1)")
    with pytest.raises(ExpectedVersionMismatchError, match="orders"):
        shop.merge("work", actor="ann")
    meanwhile("delete from customers where id = 2")
    with pytest.raises(ExpectedVersionMismatchError, match="customers"):
        shop.merge("work", actor="ann")
    run(shop, "insert into customers values (2, 'Bob')")
    meanwhile("update t set v = 'other'")  # the merge leaves it alone, because it is the same there
    with pytest.raises(ExpectedVersionMismatchError, match=r"default\.t"):
        shop.merge("work", actor="ann")
    run(shop, "update t set v = 'same'")
    meanwhile("insert into u values (9, 'x')")
    assert shop.merge("work", actor="ann").commit is not None
    assert rows(shop, "u") == {9: "x"}
    assert shop.writing.sidecars.pending() == ()


# Recovery


def test_a_recoverer_makes_the_same_merge(home: Lake) -> None:
    run(home, "update t set v = 'x'", "update u set v = 'x'", branch="dev")
    main, dev = home.catalog.ref("main").hash, home.catalog.ref("dev").hash
    armed = failpoints.arm(Failpoint.PUBLISH_AFTER_HEAD, Action.ERROR, only_hit=2)
    with armed, pytest.raises(PublishOutcomeUnknownError) as caught:
        home.merge("dev", actor="ann")
    [sidecar] = home.writing.sidecars.pending()
    assert (sidecar.kind, sidecar.merge_parent) == (WriterKind.MERGE, dev)
    assert decode_sidecar(encode_sidecar(sidecar), "x") == sidecar
    [recovered] = home.writing.recovery.sweep()
    assert recovered.verdict is Verdict.FORWARD
    commit = home.catalog.commit_at(home.catalog.ref("main").hash)
    assert (commit.parents, commit.operation) == ((main, dev), caught.value.operation)
    assert rows(home) == dict.fromkeys((1, 2, 3), "x")
    assert home.merge("dev", actor="ann").commit is None


def test_a_merge_of_a_new_table_that_was_rolled_back_can_be_done_again(home: Lake) -> None:
    """The rollback has left a tombstone where the table's first version on the target was to be."""
    home.create_table("made", KEYED, actor="ann", branch="dev")
    run(home, "insert into made values (1, 'x')", "update u set v = 'x'", branch="dev")
    armed = failpoints.arm(Failpoint.PUBLISH_AFTER_HEAD, Action.ERROR, only_hit=1)
    with armed, pytest.raises(PublishOutcomeUnknownError):
        home.merge("dev", actor="ann")
    [recovered] = home.writing.recovery.sweep()
    assert recovered.verdict is Verdict.BACK
    assert [str(each.key) for each in home.tables()] == ["default.t", "default.u"]
    home.merge("dev", actor="ann")
    assert (rows(home, "made"), rows(home, "u")) == ({1: "x"}, {1: "x"})


def test_p6_a_merge_whose_source_is_no_longer_kept_is_rolled_back(home: Lake) -> None:
    run(home, "update t set v = 'x'", branch="dev")
    armed = failpoints.arm(Failpoint.PUBLISH_AFTER_HEAD, Action.ERROR, only_hit=1)
    with armed, pytest.raises(PublishOutcomeUnknownError):
        home.merge("dev", actor="ann")
    home.catalog.delete_ref("dev", home.catalog.ref("dev").hash)
    home.catalog.publish_history_horizon(now())  # type: ignore[attr-defined]
    [recovered] = home.writing.recovery.sweep()
    assert recovered.verdict is Verdict.BACK
    assert rows(home) == {1: "a", 2: "b", 3: "c"}
    run(home, "insert into t values (4, 'd')")


def test_branches_whose_common_past_is_gone_are_not_merged(home: Lake) -> None:
    run(home, "update t set v = 'x'", branch="dev")
    run(home, "update u set v = 'x'", branch="dev")
    run(home, "update u set v = 'y'")
    run(home, "update u set v = 'z'")
    home.catalog.publish_history_horizon(now())  # type: ignore[attr-defined]
    with pytest.raises(RefusedError, match="no commit that both come from is kept"):
        home.merge("dev", actor="ann")


def test_an_unknown_field_of_the_source_survives(home: Lake) -> None:
    """A document of another writer may say more than we know; the merge carries it over."""
    run(home, "update t set v = 'x'", branch="dev")
    location = home.table("t", branch="dev").location
    assert location is not None
    path = Path(location.removeprefix("file://"))
    document = json.loads(path.read_bytes())
    path.write_text(json.dumps({**document, "foreign": {"a": 1}}))
    home.merge("dev", actor="ann")
    merged = home.table("t").location
    assert merged is not None
    assert json.loads(Path(merged.removeprefix("file://")).read_bytes())["foreign"] == {"a": 1}


def test_files_that_all_sides_have_are_not_read(home: Lake) -> None:
    for number in range(10, 14):
        run(home, f"insert into t values ({number}, 'x')")
    home.create_branch("work")
    run(home, "update t set v = 'w' where id = 11", branch="work")
    run(home, "update t set v = 'm' where id = 12")
    untouched = [Path(path.removeprefix("file://")) for path in data_files(home) if ids_in(path) in ([10], [13])]
    assert len(untouched) == 2
    for path in untouched:
        path.rename(path.with_suffix(".away"))
    home.merge("work", actor="ann")
    for path in untouched:
        path.with_suffix(".away").rename(path)
    assert rows(home) == {1: "a", 2: "b", 3: "c", 10: "x", 11: "w", 12: "m", 13: "x"}


def data_files(lake: Lake) -> list[str]:
    return [task.file.file_path for task in plan_scan(lake.files, lake.table("t").metadata).tasks]


def ids_in(path: str) -> list[int]:
    found: list[int] = pq.read_table(path.removeprefix("file://")).column("id").to_pylist()
    return found


def test_duckdb_agrees_about_what_differs() -> None:
    """The comparison that the merge rests on: null equals null and NaN equals NaN, also within values."""
    found = duckdb.sql(
        "select ('nan'::double is distinct from 'nan'::double), (null is distinct from null), "
        "([1, null] is distinct from [1, null]), ({'x': 'nan'::double} is distinct from {'x': 'nan'::double}), "
        "(null is distinct from 1), ([1] is distinct from [1, null])"
    ).fetchone()
    assert found == (False, False, False, False, True, True)
