"""`--region` of the commands that write: their files go to that region, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_cli import Run, run
from tests.unit.sync_world import Regions, ids

__all__ = ["run"]  # the fixture


@pytest.fixture
def regions(tmp_path: Path) -> Regions:
    made = Regions(tmp_path)
    lake = made.app.open_lake(made.url)
    lake.apply("CREATE TABLE t (id BIGINT PRIMARY KEY)", actor="ann")
    for number in range(2):
        lake.load("t", ids(number), actor="ann")
    lake.create_branch("side")
    lake.load("t", ids(7), actor="ann", branch="side")
    lake.load("t", ids(8), actor="ann")
    (tmp_path / "rows.csv").write_text("id\n9\n")
    (tmp_path / "more.sql").write_text("CREATE TABLE u AS SELECT 1")
    return made


def files(folder: Path) -> set[Path]:
    return {each for each in folder.rglob("*") if each.suffix in (".parquet", ".avro", ".puffin", ".stats")}


COMMANDS = [
    ("load", "t", "rows.csv"),
    ("mutate", "INSERT INTO t VALUES (9)"),
    ("mutate", "DELETE FROM t WHERE id = 1"),
    ("branch merge", "side"),
    ("optimize", "t", "--min-files", "2"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_written_goes_to_the_region(run: Run, regions: Regions, command: tuple[str, ...]) -> None:
    folder, (name, *words) = regions.folder, command
    before = files(folder / "lake")
    arguments = [str(folder / each) if each.endswith(".csv") else each for each in words]
    found = run(*name.split(), regions.url, *arguments, "--region", "eu")
    assert found.code == 0, found.err
    assert files(folder / "lake") == before
    assert files(folder / "eu")
    assert not files(folder / "us")


@pytest.mark.parametrize("command", [*COMMANDS, ("schema apply", "more.sql"), ("indices", "t")])
def test_an_unknown_region_changes_nothing(run: Run, regions: Regions, command: tuple[str, ...]) -> None:
    folder, (name, *words) = regions.folder, command
    before, head = files(folder), regions.app.open_lake(regions.url, read_only=True).resolve()
    found = run(*name.split(), regions.url, *words, "--region", "mars")
    assert (found.code, found.out) == (2, "")
    assert "error: the registry has no region 'mars'\n  way out: regions are asia, eu, us\n" in found.err
    assert files(folder) == before
    assert regions.app.open_lake(regions.url, read_only=True).resolve() == head


def test_the_option_goes_before_the_settings(run: Run, regions: Regions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_REGION", "us")
    assert run("mutate", regions.url, "INSERT INTO t VALUES (5)", "--region", "eu").code == 0
    assert files(regions.folder / "eu")
    assert not files(regions.folder / "us")
