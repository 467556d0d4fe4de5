"""`headwater branch` and `headwater tag`, as a person or a script meets them."""

from __future__ import annotations

import json

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from tests.cli.test_cli import Run, run
from tests.fixtures.lakes import LakeWorld

__all__ = ["run"]  # the fixture

KEYED = Schema(
    NestedField(1, "id", LongType(), required=True), NestedField(2, "n", LongType()), identifier_field_ids=[1]
)


@pytest.fixture
def shop(lake: LakeWorld) -> LakeWorld:
    lake.lake.create_table("t", KEYED, actor="ann")
    change(lake, "insert into t values (1, 10), (2, 20)", branch="main")
    lake.lake.create_branch("dev")
    return lake


def change(lake: LakeWorld, sql: str, branch: str) -> None:
    with lake.lake.transaction(branch=branch, actor="ann") as tx:
        tx.sql(sql)


def rows(run: Run, lake: LakeWorld) -> list[tuple[int, int]]:
    out = run("query", lake.url, "select id, n from t order by id", "--json").out
    return [tuple(json.loads(line).values()) for line in out.splitlines()]


def test_create_list_delete(run: Run, shop: LakeWorld) -> None:
    made = run("branch", "create", shop.url, "work", "--at", "dev", "--json").json()
    assert (made["name"], made["kind"], made["hash"]) == ("work", "branch", shop.lake.catalog.ref("dev").hash)
    assert run("branch", "create", shop.url, "more").out.startswith("more is at ")
    listed = json.loads(run("branch", "list", shop.url, "--json").out)
    assert [each["name"] for each in listed] == ["dev", "main", "more", "work"]
    assert "work" in run("branch", "list", shop.url).out
    assert run("branch", "delete", shop.url, "work", "--json").json() == {"deleted": "work"}
    assert run("branch", "delete", shop.url, "more").out == "deleted more\n"
    assert [ref.name for ref in shop.lake.branches()] == ["dev", "main"]


def test_tags(run: Run, shop: LakeWorld) -> None:
    assert run("tag", "list", shop.url).out == "there are none\n"
    assert run("tag", "create", shop.url, "v1", "--json").json()["kind"] == "tag"
    assert [each["name"] for each in json.loads(run("tag", "list", shop.url, "--json").out)] == ["v1"]
    assert run("branch", "delete", shop.url, "v1").code == 2
    assert run("tag", "delete", shop.url, "v1").out == "deleted v1\n"


def test_what_is_refused(run: Run, shop: LakeWorld) -> None:
    old = shop.lake.catalog.ref("dev").hash
    change(shop, "delete from t", "dev")
    for words, code, said in (
        (("create", shop.url, "dev"), 3, "exists already"),
        (("create", shop.url, "no good"), 2, "cannot name a branch"),
        (("create", shop.url, "x", "--at", "nowhere"), 2, "nowhere"),
        (("delete", shop.url, "main"), 4, "stays"),
        (("delete", shop.url, "nowhere"), 2, "nowhere"),
        (("delete", shop.url, "dev", "--expected", old), 3, "not at"),
        (("merge", shop.url, "nowhere"), 2, "nowhere"),
        (("merge", shop.url), 2, "SOURCE"),
    ):
        failed = run("branch", *words)
        assert (failed.code, said in failed.err) == (code, True), (words, failed.err)


def test_merge(run: Run, shop: LakeWorld) -> None:
    change(shop, "update t set n = 11 where id = 1", "dev")
    change(shop, "update t set n = 22 where id = 2", "main")
    done = run("branch", "merge", shop.url, "dev", "--actor", "bob", "--message", "as agreed", "--json")
    assert done.code == 0, done.err
    assert done.json()["tables"] == ["default.t"]
    [commit, *_] = json.loads(run("commits", shop.url, "--json").out)
    assert (commit["hash"], commit["actor"], commit["message"]) == (done.json()["commit"], "bob", "as agreed")
    assert len(commit["parents"]) == 2
    assert rows(run, shop) == [(1, 11), (2, 22)]
    again = run("branch", "merge", shop.url, "dev")
    assert (again.code, again.out) == (0, "main has everything of dev already, so nothing was committed\n")
    assert run("branch", "merge", shop.url, "dev", "--json").json() == {"commit": None, "tables": []}
    back = run("branch", "merge", shop.url, "main", "--into", "dev")
    assert back.out.splitlines()[1:] == ["  default.t"]


def test_a_merge_that_conflicts(run: Run, shop: LakeWorld) -> None:
    change(shop, "update t set n = 1", "dev")
    change(shop, "update t set n = 2", "main")
    failed = run("branch", "merge", shop.url, "dev", "--json")
    assert failed.code == 3
    error = json.loads(failed.err)
    assert error["kind"] == "MergeConflict"
    reason = "has rows that both sides changed in different ways, 2 in all"
    assert error["conflicts"] == [{"table": "default.t", "reason": reason, "keys": ["id = 1", "id = 2"]}]
    assert error["hint"]
    assert rows(run, shop) == [(1, 2), (2, 2)]
