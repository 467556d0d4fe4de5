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
    assert run("route", lake, "--region", "eu").out == f"main at {lake}\n"
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
    ],
)
def test_what_was_meant_is_not_guessed(run: Run, regions: Regions, arguments: tuple[str, ...], told: str) -> None:
    command, *options = arguments
    found = run(command, regions.url, *options)
    assert found.code == 2
    assert told in found.err
    assert found.out == ""
    assert regions.tables("main").keys() == {"default.t"}
