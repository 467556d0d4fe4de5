"""`route`, `connect` and `bootstrap` as a person or a script meets them: exit codes, and errors with a way out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_cli import Run, run
from tests.unit.sync_world import Regions, ids

__all__ = ["run"]  # the fixture


@pytest.fixture
def regions(tmp_path: Path) -> Regions:
    made = Regions(tmp_path)
    made.lake("us").create_table("t", ids(1).schema, actor="ann")
    return made


def test_from_nothing_to_a_replica_that_is_read(run: Run, regions: Regions) -> None:
    lake = regions.url
    assert run("route", lake, "--region", "eu").out == f"main at {Path(lake).as_uri()}\n"
    begun = run("bootstrap", lake, "--region", "eu", "--from-loaded-data")
    assert begun.code == 0
    assert "`headwater sync run` goes on from there" in begun.out
    assert run("sync", "run", lake, "--region", "eu").out == "eu shows what main shows\n"
    again = run("bootstrap", lake, "--region", "eu", "--from-loaded-data", "--json")
    assert again.code == 4
    assert "sync run" in json.loads(again.err)["hint"]
    connected = run("connect", lake, "--region", "eu", "--engine", "spark")
    assert connected.code == 0
    assert "spark.sql.catalog.headwater.warehouse" in connected.out


def test_a_table_that_was_dropped_is_known_by_the_replica(run: Run, regions: Regions) -> None:
    """It can still be named: the subset run takes it away there, too."""
    regions.sync()
    regions.lake("us").apply("DROP TABLE t", actor="ann")
    assert run("sync", "run", regions.url, "--region", "eu", "--table", "t").code == 0
    assert regions.tables("main_replica_eu") == {}
    assert run("sync", "run", regions.url, "--region", "eu", "--table", "t").code == 2


def test_a_database_that_does_not_answer_is_named_without_its_password(
    run: Run, regions: Regions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_DATABASE", "postgresql://me:hunter2@127.0.0.1:9/x")
    there = (regions.url, "--region", "eu")
    for command in (("sync", "status", *there), ("sync", "run", *there), ("bootstrap", *there, "--from-loaded-data")):
        found = run(*command)
        assert (found.code, found.out) == (5, "")
        assert "postgresql://***@127.0.0.1:9/x" in found.err
        assert "way out: is the server up, and are address and password in the setting `database` right?" in found.err
        assert "hunter2" not in found.err
    routed = run("route", *there)
    assert routed.code == 0, "readers find their way all the same"
    assert "hunter2" not in routed.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("route", "--region", "mars"), "mars"),
        (("route",), "--region"),
        (("route", "--region", "eu", "--consistency", "weak"), "weak"),
        (("connect", "--region", "mars", "--engine", "spark"), "mars"),
        (("connect", "--region", "eu", "--engine", "excel"), "excel"),
        (("connect", "--region", "eu", "--engine", "spark", "--server", "nowhere"), "--server"),
        (("bootstrap", "--region", "eu"), "--from-loaded-data"),
        (("bootstrap", "--region", "mars", "--from-loaded-data"), "mars"),
        (("sync check", "--region", "eu"), "the replica of eu shows nothing yet"),
        (
            ("sync run", "--region", "eu", "--table", "nope"),
            "neither main nor the replica of eu has a table default.nope",
        ),
        (("sync plan", "--region", "eu", "--table", "nope"), "a table default.nope"),
        (("sync run", "--region", "mars"), "the registry has no region 'mars'"),
    ],
)
def test_what_was_meant_is_not_guessed(run: Run, regions: Regions, arguments: tuple[str, ...], told: str) -> None:
    command, *options = arguments
    found = run(*command.split(), regions.url, *options)
    assert found.code == 2
    assert told in found.err
    assert found.out == ""
    assert regions.tables("main").keys() == {"default.t"}
