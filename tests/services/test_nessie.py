"""A lake on a real Nessie, by the commands and by the Python API: what a user does with it, in two regions."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import headwater
from headwater.app import App
from headwater.kernel import settings
from headwater.kernel.errors import RefusedError, UsageError
from headwater.regions.errors import UnknownRegionError
from headwater.regions.registry import parse_registry
from tests.cli.test_cli import Run, run
from tests.fixtures.nessie import reset
from tests.fixtures.rest import app_of, serving

__all__ = ["run"]  # the fixture

pytestmark = [pytest.mark.services, pytest.mark.proves("catalog/nessie")]


@pytest.fixture
def url(nessie_url: str, tmp_path: Path) -> str:
    """The URL of an empty repository, with a folder as its warehouse."""
    reset(nessie_url)
    (tmp_path / "us").mkdir()
    return f"nessie+{nessie_url}/api/v2?warehouse=file://{tmp_path}/us"


def test_the_commands(run: Run, url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no lake"):
        headwater.open(url)
    script, rows = tmp_path / "schema.sql", tmp_path / "rows.csv"
    script.write_text("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR); CREATE VIEW w AS SELECT count(*) AS n FROM t")
    rows.write_text("id,v\n1,a\n2,b\n")
    for words in (
        ("init", url),
        ("schema", "apply", url, script),
        ("load", url, "t", rows),
        ("mutate", url, "UPDATE t SET v = 'z' WHERE id = 2"),
        ("branch", "create", url, "side"),
        ("mutate", url, "INSERT INTO t VALUES (3, 'c')", "--branch", "side"),
        ("branch", "merge", url, "side"),
        ("tag", "create", url, "v1"),
    ):
        result = run(*words)
        assert result.code == 0, result.err
    found = run("query", url, "SELECT id, v, n FROM t, w ORDER BY id", "--json").out.splitlines()
    assert [tuple(json.loads(line).values()) for line in found] == [(1, "a", 3), (2, "z", 3), (3, "c", 3)]
    log = json.loads(run("commits", url, "--json").out)
    assert [len(each["parents"]) for each in log] == [2, 1, 1, 1, 0]
    assert run("sidecars", url).out == "nothing is pending\n"
    assert run("recover", url).out == "nothing is pending\n"
    told = run("doctor", url, "--rounds", "1", "--json").json()
    assert {"lake", "compare-and-swap"} <= {each["name"] for each in told["checks"] if each["ok"]}
    refused = run("cleanup", url)
    assert (refused.code, "not ours alone" in refused.err) == (RefusedError.exit_code, True)


def test_engines_by_our_own_server(url: str) -> None:
    """Nessie speaks to engines by itself; who comes by our server meets the same tables, and our constraints."""
    lake = headwater.init(url)
    with serving(app_of(lake)) as served:
        catalog = served.catalog()
        made = catalog.create_table("default.r", pa.schema([("a", pa.int64())]))
        made.append(pa.table({"a": [1, 2]}))
        lake.load("r", pa.table({"a": [10]}), actor="us")
        assert sorted(catalog.load_table("default.r").scan().to_arrow()["a"].to_pylist()) == [1, 2, 10]
        catalog.rename_table("default.r", "default.s")
        assert lake.query("SELECT sum(a) AS n FROM s").to_pylist() == [{"n": 13}]


def test_writers_of_two_regions(url: str, tmp_path: Path) -> None:
    headwater.init(url)
    app = App(settings.load(environ={}))
    rules = f"""
        version: 2
        regions:
          us-east: {{local_prefix: "file://{tmp_path}/us/"}}
          eu-central: {{local_prefix: "file://{tmp_path}/eu/"}}
        sources: ["file://{tmp_path}/us/", "file://{tmp_path}/eu/"]
    """
    app.open_publisher(url).publish(parse_registry(rules), actor="test")
    us, eu = (app.open_lake(url, region=each) for each in ("us-east", "eu-central"))
    us.apply("CREATE TABLE t (id BIGINT PRIMARY KEY)", actor="us")
    us.load("t", pa.table({"id": [1]}), actor="us")
    before = _files(tmp_path / "us")
    eu.load("t", pa.table({"id": [2]}), actor="eu")
    with eu.transaction(actor="eu") as transaction:
        transaction.sql("DELETE FROM t WHERE id = 1")
    assert _files(tmp_path / "us") == before
    assert any(each.suffix == ".parquet" for each in _files(tmp_path / "eu"))
    # Whoever has the lake open in no region finds the others' files by the registry.
    for lake in (us, eu, app.open_lake(url), app.open_lake(url, read_only=True)):
        assert lake.query("SELECT id FROM t").to_pylist() == [{"id": 2}]
    with pytest.raises(UnknownRegionError):
        app.open_lake(url, region="nowhere")


def _files(folder: Path) -> set[Path]:
    return {each for each in folder.rglob("*") if each.is_file() and "_headwater" not in each.parts}
