"""`headwater optimize`, `indices` and `compactions`, as a person or a script meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.test_cli import Run, run
from tests.fixtures.lakes import LakeWorld

__all__ = ["run"]  # the fixture


@pytest.fixture
def filled(lake: LakeWorld) -> LakeWorld:
    for name in ("a", "b"):
        lake.lake.create_table(
            name,
            pa.schema([("id", pa.int64()), ("n", pa.int64())]),
            actor="ann",
            properties={"headwater.statistics.columns": "id"} if name == "b" else {},
        )
    for number in range(2):
        with lake.lake.transaction(actor="ann") as transaction:
            for name in ("a", "b"):
                transaction.insert(name, pa.table({"id": [number], "n": [1]}))
    return lake


def test_optimize(run: Run, filled: LakeWorld) -> None:
    told = run("optimize", filled.url, "a", "--dry-run")
    assert (told.code, "planned" in told.out, "2 -> 1" in told.out) == (0, True, True)
    assert run("compactions", filled.url).out == "there are no jobs\n"
    done = run("optimize", filled.url, "--actor", "bob", "--json")
    assert done.code == 0, done.err
    first, second = done.json()["tables"]
    assert (first["table"], first["end"], first["files_before"], first["files_after"]) == (
        "default.a",
        "published",
        2,
        1,
    )
    assert (second["statistics"], second["error"], done.json()["dry_run"]) == (["id"], None, False)
    [commit, *_] = json.loads(run("commits", filled.url, "--json").out)
    assert (commit["hash"], commit["actor"]) == (second["commit"], "bob")
    assert json.loads(run("query", filled.url, "select count(*) c from a", "--json").out) == {"c": 2}
    again = run("optimize", filled.url)
    assert (again.code, again.out.count("nothing to do")) == (0, 2)
    jobs = json.loads(run("compactions", filled.url, "--json").out)
    assert [(each["spec"]["table"], each["run"]["state"]) for each in jobs] == [
        ("default.a", "published"),
        ("default.b", "published"),
    ]
    assert "default.b" in run("compactions", filled.url).out


def test_deletes(run: Run, filled: LakeWorld) -> None:
    run("optimize", filled.url, "a")
    with filled.lake.transaction(actor="ann") as transaction:
        transaction.sql("delete from a where id = 1")
    assert run("optimize", filled.url, "a", "--delete-ratio", "0.6", "--json").json()["tables"][0]["commit"] is None
    folded = run("optimize", filled.url, "a", "--delete-ratio", "0.6", "--deletes", "--json").json()["tables"][0]
    assert (folded["end"], folded["files_with_deletes"]) == ("published", 1)


def test_indices(run: Run, filled: LakeWorld) -> None:
    assert run("indices", filled.url, "--json", "--dry-run").json()["tables"][1]["statistics"] == ["id"]
    built = run("indices", filled.url, "b", "--json").json()["tables"]
    assert [(each["table"], each["end"], each["files_before"]) for each in built] == [("default.b", "published", 0)]
    assert run("indices", filled.url).out.count("nothing to do") == 2


def test_the_lake_of_the_settings(run: Run, filled: LakeWorld, tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text(f'lake = "{filled.url}"\n')
    assert len(run("optimize", "a", "b", "--dry-run", "--json").json()["tables"]) == 2
    assert len(run("optimize", "--dry-run", "--json").json()["tables"]) == 2
    assert len(run("indices", filled.url, "a", "--json").json()["tables"]) == 1
    assert run("init", "other").code == 0
    assert run("optimize", "other").out == "there are no tables\n"  # a lake, though its name could be a table's


def test_what_goes_wrong(run: Run, filled: LakeWorld) -> None:
    missing = run("optimize", filled.url, "aa", "--json")
    assert (missing.code, "did you mean" in missing.err) == (2, True)
    assert run("optimize", filled.url, "--min-files", "0").code == 2
    assert run("optimize").code == 2
    with filled.lake.transaction(actor="ann") as transaction:
        transaction.insert("a", pa.table({"id": [5], "n": [5]}))
    folder = Path(filled.lake.table("a").metadata.location.removeprefix("file://")) / "data"
    next(folder.glob("*.parquet")).unlink()
    failed = run("optimize", filled.url, "--json")
    first, second = failed.json()["tables"]
    assert (failed.code, first["end"], second["end"]) == (1, "failed", "published")
    assert first["error"]["error"] in failed.err
