"""`headwater load`, as a person or a script meets it. DuckDB reads the same files to say what must be there."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from tests.cli.test_cli import Run, run
from tests.fixtures.lakes import LakeWorld

__all__ = ["run"]  # the fixture


@pytest.fixture
def shop(lake: LakeWorld) -> LakeWorld:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.decimal128(8, 2))])
    lake.lake.create_table("items", schema, actor="ann", format_version=3, primary_key=["id"])
    return lake


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    duck = duckdb.connect()
    rows = "SELECT n AS id, 'item ' || n AS name, (n * 1.25)::DECIMAL(8,2) AS price FROM range({}, {}) AS r(n)"
    duck.execute(f"COPY ({rows.format(0, 100)}) TO '{folder}/a.parquet'")
    duck.execute(f"COPY ({rows.format(100, 150)}) TO '{folder}/b.csv' (HEADER)")
    duck.execute(f"COPY ({rows.format(150, 180)}) TO '{folder}/c.ndjson' (FORMAT JSON)")
    return folder


def found(run: Run, shop: LakeWorld, sql: str) -> object:
    return json.loads(run("query", shop.url, sql, "--json").out)


def test_files_of_several_kinds_in_one_commit(run: Run, shop: LakeWorld, files: Path) -> None:
    given = [str(files / each) for each in ("a.parquet", "b.csv", "c.ndjson")]
    done = run("load", shop.url, "items", *given, "--actor", "ann", "--message", "first", "--json")
    assert done.code == 0, done.err
    assert {key: value for key, value in done.json().items() if key != "commit"} == {
        "rows": 180,
        "updated": 0,
        "files": 1,
    }
    [commit, *_] = json.loads(run("commits", shop.url, "--actor", "ann", "--json").out)
    assert (commit["hash"], commit["message"]) == (done.json()["commit"], "first")
    columns = "columns={'id': 'BIGINT', 'name': 'VARCHAR', 'price': 'DECIMAL(8,2)'}"
    [expected] = duckdb.sql(
        "SELECT count(*), sum(id), sum(price)::VARCHAR, count(DISTINCT name) FROM (SELECT * FROM "
        f"read_parquet('{given[0]}') UNION ALL SELECT * FROM read_csv('{given[1]}', {columns}) UNION ALL SELECT * FROM "
        f"read_json('{given[2]}', {columns}))"
    ).fetchall()
    answer = found(
        run, shop, "select count(*) a, sum(id)::bigint b, sum(price)::varchar c, count(distinct name) d from items"
    )
    assert isinstance(answer, dict)
    assert tuple(answer.values()) == expected


def test_merge_and_overwrite(run: Run, shop: LakeWorld, files: Path) -> None:
    assert run("load", shop.url, "items", str(files / "*.parquet")).out.startswith(
        "100 rows in 1 data file\ncommitted "
    )
    (files / "d.csv").write_text("id,name\n5,five\n500,five hundred\n5,V\n")
    merged = run("load", shop.url, "items", str(files / "d.csv"), "--mode", "merge")
    assert "2 rows in 1 data file, 1 of them in the place of others" in merged.out
    assert found(run, shop, "select name, price::varchar p from items where id = 5") == {"name": "V", "p": "6.25"}
    (files / "d.csv").write_text("name,price\nitem 6,1.00\n")
    assert run("load", shop.url, "items", str(files / "d.csv"), "--mode", "merge", "--on", "name").code == 2
    (files / "e.txt").write_text("id\n1\n")
    over = run("load", shop.url, "items", str(files / "e.txt"), "--mode", "overwrite", "--format", "csv", "--json")
    assert (over.code, over.json()["rows"]) == (0, 1)
    assert found(run, shop, "select count(*) c from items") == {"c": 1}
    (files / "e.txt").write_text("id\n")
    nothing = run("load", shop.url, "items", str(files / "e.txt"), "--format", "csv")
    assert "nothing changed, so nothing was committed" in nothing.out


def test_what_is_wrong_is_said_and_changes_nothing(run: Run, shop: LakeWorld, files: Path) -> None:
    before = run("commits", shop.url, "--json").out
    (files / "bad.csv").write_text("id,price\n1,1.00\n2,much\n")
    (files / "twice.csv").write_text("id\n1\n1\n")
    for words, told in (
        (("items", str(files / "bad.csv")), "row 2 of"),
        (("items", str(files / "twice.csv")), "primary key"),
        (("items", str(files / "nope.csv")), "there is no file"),
        (("nope", str(files / "b.csv")), "there is no table"),
        (("items",), "a file is missing"),
        (("items", str(files / "b.csv"), "--mode", "upsert"), "upsert"),
        (("items", str(files / "b.csv"), "--on", "id"), "leave them out"),
    ):
        failed = run("load", shop.url, *words)
        assert (failed.code, told in failed.err) == (2, True), failed.err
    as_json = run("load", shop.url, "items", str(files / "bad.csv"), "--json")
    assert (json.loads(as_json.err)["row"], json.loads(as_json.err)["column"]) == (2, "price")
    assert run("commits", shop.url, "--json").out == before


def test_the_lake_and_the_concurrency_of_the_settings(run: Run, shop: LakeWorld, files: Path, tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text(f'lake = "{shop.url}"\n[load]\nconcurrency = 3\n')
    given = [str(files / each) for each in ("b.csv", "c.ndjson")]
    assert run("load", "items", given[0]).code == 0
    assert run("load", "items", *given, "--mode", "merge").code == 0
    assert run("load", shop.url, "items", *given, "--mode", "overwrite").code == 0
    assert found(run, shop, "select count(*) c from items") == {"c": 80}
