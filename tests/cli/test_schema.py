"""`headwater schema apply` and `show`, as a person or a script meets them."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from tests.cli.test_cli import Run, run
from tests.fixtures.lakes import LakeWorld

__all__ = ["run"]  # the fixture

SCRIPT = """
create namespace shop;
create table shop.customers (id bigint primary key, name string);
create table shop.orders (id bigint, customer bigint references shop.customers);
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "schema.sql"
    path.write_text(SCRIPT)
    return path


def test_a_dry_run_then_the_same_then_what_is_there(run: Run, lake: LakeWorld, file: Path) -> None:
    tried = run("schema", "apply", lake.url, file, "--dry-run")
    assert tried.code == 0
    assert tried.out.splitlines() == [
        "would create namespace shop",
        "would create table shop.customers",
        "would create table shop.orders",
    ]
    assert list(lake.lake.tables()) == []
    done = run("schema", "apply", lake.url, file, "--json", "--actor", "ann", "--message", "the shop")
    assert done.code == 0
    said = done.json()
    assert [(each["action"], each["kind"], each["name"]) for each in said["changes"]] == [
        ("create", "namespace", "shop"),
        ("create", "table", "shop.customers"),
        ("create", "table", "shop.orders"),
    ]
    commit = next(lake.lake.catalog.log(lake.lake.catalog.ref("main").hash))
    assert (commit.hash, commit.actor, commit.message) == (said["commit"], "ann", "the shop")
    again = run("schema", "apply", lake.url, file)
    assert again.code == 2
    assert "there is a namespace shop already" in again.err
    assert "2:1" in again.err

    shown = run("schema", "show", lake.url)
    assert shown.code == 0
    other = file.with_name("other.sql")
    other.write_text(shown.out)
    assert run("init", file.with_name("copy")).code == 0
    assert run("schema", "apply", file.with_name("copy"), other).code == 0
    assert run("schema", "show", file.with_name("copy")).out == shown.out
    one = run("schema", "show", lake.url, "shop.customers", "--json")
    assert one.json()["script"].startswith('CREATE TABLE "shop"."customers"')


def test_from_standard_input(run: Run, lake: LakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def give(script: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(script)))

    give(b"create table t (x int)")
    assert run("schema", "apply", lake.url, "-").code == 0
    give(b"alter table t rename to u")
    assert run("schema", "apply", lake.url, "-").out.splitlines()[0] == "rename table default.u (was default.t)"
    give(b"create table if not exists u (x int)")
    assert "nothing changes" in run("schema", "apply", lake.url, "-").out
    give(b"create table \xff")
    assert run("schema", "apply", lake.url, "-").code == 2


def test_exit_codes(run: Run, lake: LakeWorld, file: Path) -> None:
    run("schema", "apply", lake.url, file)
    cases = {
        "create table shop.orders (x int)": 2,
        "create tabel x (y int)": 2,
        "drop table shop.customers": 4,
        "alter table shop.orders set tblproperties ('gc.enabled' = 'true')": 4,
    }
    for script, code in cases.items():
        file.write_text(script)
        refused = run("schema", "apply", lake.url, file, "--json")
        assert refused.code == code, script
        assert json.loads(refused.err)["line"] == 1
    assert run("schema", "apply", lake.url, "missing.sql").code == 2
    assert run("schema", "apply", lake.url).code == 2
    assert run("schema", "show", lake.url, "nothing").code == 2


def test_the_lake_of_the_settings(run: Run, lake: LakeWorld, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_LAKE", lake.url)
    assert run("schema", "apply", file).code == 0
    assert run("schema", "show", "shop.orders").out.startswith('CREATE TABLE "shop"."orders"')
    assert run("schema", "show").out == run("schema", "show", lake.url).out
