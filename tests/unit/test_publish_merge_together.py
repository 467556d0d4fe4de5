"""Merges of sides that are each sound on their own: what they make together is judged, or it is no merge."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef

from headwater.lake import Lake
from headwater.publish.branches.model import MergeConflictError
from headwater.publish.errors import ConstraintViolationError
from headwater.tables.model import TableUsageError
from tests.fixtures.lakes import LakeWorld
from tests.unit.test_publish_branches import alter, conflicts, files_of, run

pytestmark = pytest.mark.proves("publish/branches")


def parted(lake: LakeWorld, script: str, *rows: str) -> Lake:
    """A lake that a script has made, with rows, and a branch `dev` of it."""
    found = lake.lake
    found.apply(script, actor="ann")
    if rows:
        run(found, *rows)
    found.create_branch("dev")
    return found


# Columns and constraints


@pytest.mark.parametrize("both", [False, True], ids=["one side has rows", "both have rows"])
def test_a_null_of_one_side_meets_not_null_of_the_other(lake: LakeWorld, both: bool) -> None:
    home = parted(lake, "create table t (id int primary key, a int)", "insert into t values (1, 1)")
    home.apply("alter table t alter a set not null", actor="ann", branch="dev")
    if both:
        run(home, "insert into t values (3, 3)", branch="dev")
    run(home, "insert into t values (2, null)")
    before = files_of(home)
    with pytest.raises(ConstraintViolationError, match="column a is null"):
        home.merge("dev", actor="ann")
    assert files_of(home) == before
    run(home, "update t set a = 2 where id = 2")
    home.merge("dev", actor="ann")
    assert home.query("select count(*) n from t where a is not null").to_pylist() == [{"n": 3 if both else 2}]


def test_a_required_column_of_an_empty_table_meets_rows(lake: LakeWorld) -> None:
    home = parted(lake, "create table t (id int)")
    home.apply("alter table t add column a int not null", actor="ann", branch="dev")
    run(home, "insert into t values (1)")
    with pytest.raises(ConstraintViolationError, match="column a is null"):
        home.merge("dev", actor="ann")


@pytest.mark.parametrize("change", ["rename column a to b", "drop column a", "rename column a to b, add column a int"])
@pytest.mark.parametrize("checked", ["main", "dev"])
@pytest.mark.parametrize("key", ["", " primary key"], ids=["without a key", "with a key"])
def test_a_check_speaks_of_columns_that_are_there(lake: LakeWorld, change: str, checked: str, key: str) -> None:
    home = parted(lake, f"create table t (id int{key}, a int)", "insert into t values (1, 1)")
    home.apply(f"alter table t {change}", actor="ann", branch="dev" if checked == "main" else "main")
    home.apply("alter table t add check (a > 0)", actor="ann", branch=checked)
    [(table, (reason, _))] = conflicts(home).items()
    assert table == "default.t"
    assert reason == "has constraints of one side that speak of a, which the other dropped or renamed"
    home.apply("alter table t drop constraint t_check", actor="ann", branch=checked)
    home.merge("dev", actor="ann")


@pytest.mark.parametrize("change", ["rename column id to ident", "drop primary key"])
@pytest.mark.parametrize("referring", ["main", "dev"])
def test_a_foreign_key_leads_to_the_key(lake: LakeWorld, change: str, referring: str) -> None:
    home = parted(lake, "create table p (id int primary key); create table c (p int)", "insert into p values (1)")
    home.apply(f"alter table p {change}", actor="ann", branch="dev" if referring == "main" else "main")
    home.apply("alter table c add foreign key (p) references p", actor="ann", branch=referring)
    [(table, (reason, _))] = conflicts(home).items()
    assert table == "default.c"
    assert "constraint c_p_fkey" in reason


def test_a_new_table_refers_to_one_that_the_target_has_renamed(lake: LakeWorld) -> None:
    home = parted(lake, "create table p (id int primary key)")
    home.apply("create table c (p int references p)", actor="ann", branch="dev")
    home.apply("alter table p rename to q", actor="ann")
    reason = "refers to default.p, which one side has dropped or renamed"
    assert conflicts(home) == {"default.c": (reason, ())}


# Tags of snapshots


def tagged(name: str) -> Callable[[TableMetadata], TableMetadata]:
    def change(each: TableMetadata) -> TableMetadata:
        assert each.current_snapshot_id is not None
        made = SnapshotRef.model_validate({"snapshot-id": each.current_snapshot_id, "type": "tag"})
        return each.model_copy(update={"refs": {**each.refs, name: made}})

    return change


def test_tags_of_snapshots_are_combined_one_by_one(lake: LakeWorld) -> None:
    home = parted(lake, "create table t (id int primary key)", "insert into t values (1)")
    alter(home, "t", tagged("ours"))
    run(home, "insert into t values (2)", branch="dev")
    alter(home, "t", tagged("theirs"), branch="dev")
    home.merge("dev", actor="ann")
    assert home.table("t").metadata.refs.keys() == {"main", "ours", "theirs"}
    assert home.query("select count(*) n from t").to_pylist() == [{"n": 2}]
    alter(home, "t", tagged("both"))
    alter(home, "t", tagged("both"), branch="dev")
    run(home, "insert into t values (3)")
    alter(home, "t", tagged("late"), branch="dev")
    home.merge("dev", actor="ann")
    assert home.table("t").metadata.refs.keys() == {"main", "ours", "theirs", "both", "late"}
    alter(home, "t", tagged("both"))
    run(home, "insert into t values (4)", branch="dev")
    alter(home, "t", tagged("both"), branch="dev")
    with pytest.raises(MergeConflictError, match="a snapshot called both"):
        home.merge("dev", actor="ann")


# Values


def test_uuids_within_other_columns(lake: LakeWorld) -> None:
    home = parted(
        lake,
        "create table t (id int primary key, s struct<u: uuid, f: fixed(2)>, l array<uuid>, m map<string, uuid>, "
        "n array<struct<u: uuid, at: timestamptz>>)",
    )

    def insert(place: int, branch: str) -> None:
        text = f"'{UUID(int=place)}'"
        run(
            home,
            f"insert into t values ({place}, {{'u': {text}, 'f': 'ab'::blob}}, [{text}, null], map {{'k': {text}}}, "
            f"[null, {{'u': {text}, 'at': '2026-11-15 10:00:00+00'}}])",
            f"insert into t (id) values ({place + 10})",
            branch=branch,
        )

    insert(1, "dev")
    insert(2, "main")
    home.merge("dev", actor="ann")
    found = {row["id"]: row for row in home.query("select id, s.u, l[1] l, m['k'] m, n[2].u n from t").to_pylist()}
    for place in (1, 2):
        assert {found[place][each] for each in ("u", "l", "m", "n")} == {UUID(int=place)}
        assert {found[place + 10][each] for each in ("u", "l", "m", "n")} == {None}


def test_a_column_of_the_unknown_type(lake: LakeWorld) -> None:
    script = (
        "create table t (id int primary key, u unknown, s struct<a: int, u: unknown>) with ('format-version' = '3')"
    )
    home = parted(lake, script, "insert into t (id) values (1)")
    run(home, "insert into t (id, s) values (2, {'a': 2, 'u': null})", branch="dev")
    run(home, "insert into t (id) values (3)", "update t set s = {'a': 1, 'u': null} where id = 1")
    home.merge("dev", actor="ann")
    assert home.query("select id, u, s.a from t order by id").to_pylist() == [
        {"id": 1, "u": None, "a": 1},
        {"id": 2, "u": None, "a": 2},
        {"id": 3, "u": None, "a": None},
    ]
    with pytest.raises(TableUsageError, match="column u"):
        run(home, "insert into t (id, u) values (4, 5)")
