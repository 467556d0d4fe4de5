"""`headwater mutate`, `sidecars` and `recover`, as a person or a script meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.kernel import failpoints
from headwater.kernel.failpoints import Action, Failpoint
from headwater.publish.errors import PublishOutcomeUnknownError
from tests.cli.test_cli import Run, run
from tests.fixtures.lakes import LakeWorld

__all__ = ["run"]  # the fixture


@pytest.fixture
def bank(lake: LakeWorld) -> LakeWorld:
    lake.create("a", pa.table({"id": [1, 2], "n": [10, 20]}), format_version=3)
    lake.create("b", pa.table({"id": [1], "n": [5]}))
    return lake


@pytest.fixture
def pending(bank: LakeWorld) -> str:
    """A change whose writer died between its heads; its operation."""
    armed = failpoints.arm(Failpoint.PUBLISH_AFTER_HEAD, Action.ERROR, only_hit=1)
    with armed, pytest.raises(PublishOutcomeUnknownError) as caught:
        change(bank)
    return caught.value.operation


def change(bank: LakeWorld) -> None:
    with bank.lake.transaction(actor="eve") as tx:
        tx.sql("update a set n = 0")
        tx.sql("update b set n = 0")


def test_mutate(run: Run, bank: LakeWorld) -> None:
    done = run("mutate", bank.url, "update a set n = n - 1 where id = 1", "insert into b values (9, 1)", "--json")
    assert done.code == 0, done.err
    assert done.json()["rows"] == [1, 1]
    [commit, *_] = json.loads(run("commits", bank.url, "--json").out)
    assert commit["hash"] == done.json()["commit"]
    assert commit["properties"]["headwater.operation"] == done.json()["operation"]
    assert json.loads(run("query", bank.url, "select sum(n)::int s from a", "--json").out) == {"s": 29}


def test_mutate_all_or_nothing(run: Run, bank: LakeWorld) -> None:
    failed = run("mutate", bank.url, "delete from a", "update b set nope = 1")
    assert (failed.code, "has no column nope" in failed.err) == (2, True)
    assert json.loads(run("query", bank.url, "select count(*) c from a", "--json").out) == {"c": 2}
    nothing = run("mutate", bank.url, "delete from a where false", "--actor", "ann")
    assert "nothing changed, so nothing was committed" in nothing.out


def test_the_lake_of_the_settings(run: Run, bank: LakeWorld, tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text(f'lake = "{bank.url}"\n')
    assert run("mutate", "delete from a where id = 1").code == 0
    assert run("sidecars").out == "nothing is pending\n"
    assert run("recover").out == "nothing is pending\n"


def test_a_change_that_is_pending(run: Run, bank: LakeWorld, pending: str) -> None:
    shown = run("sidecars", bank.url)
    assert pending in shown.out
    assert "default.a, default.b" in shown.out
    [sidecar] = json.loads(run("sidecars", bank.url, "--json").out)
    assert sidecar["operation"] == pending
    assert [table["planned_id"] for table in sidecar["tables"]]
    for words in (("--dry-run",), ()):
        waiting = run("recover", bank.url, *words)
        assert (waiting.out, waiting.err) == (f"{pending}  waits for the end of its lease\n", "")
    assert run("recover", bank.url, "--json").json() == {"dry_run": False, "recovered": [], "waiting": [pending]}
    unsettled = run("recover", bank.url, "--operation", pending)
    assert (unsettled.code, pending in unsettled.err) == (3, True)


def test_recovery(run: Run, bank: LakeWorld, pending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The note itself says how long its writer may be alive; a minute, so the clock is read as if it had passed.
    moved = "headwater.publish.recovery.Recovery._is_over"
    monkeypatch.setattr(moved, lambda self, sidecar: True)
    planned = run("recover", bank.url, "--dry-run", "--json").json()
    assert [each["verdict"] for each in planned["recovered"]] == ["rolled back"]
    assert len(json.loads(run("sidecars", bank.url, "--json").out)) == 1
    both = run("recover", bank.url, "--operation", pending, "--dry-run")
    assert (both.code, "there is no dry run of it" in both.err) == (2, True)
    for command in ("optimize", "indices", "cleanup", "repair"):
        run(command, bank.url, "--dry-run")
    (Path(bank.url).parent / "new.sql").write_text("create table c (id int)")
    run("schema", "apply", bank.url, Path(bank.url).parent / "new.sql", "--dry-run")
    assert len(json.loads(run("sidecars", bank.url, "--json").out)) == 1  # a dry run recovers nothing
    done = run("recover", bank.url)
    assert f"{pending}  rolled back" in done.out
    assert done.err == ""
    assert run("recover", bank.url, "--operation", pending).out == "not committed, and never will be\n"
    assert json.loads(run("query", bank.url, "select sum(n)::int s from a", "--json").out) == {"s": 30}
    [commit, *_] = json.loads(run("commits", bank.url, "--actor", "headwater:recovery", "--json").out)
    assert commit["properties"]["headwater.recovery.operation"] == pending


def test_a_dry_run_of_a_script_publishes_nothing_of_others(
    run: Run, bank: LakeWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change whose heads have all moved would be rolled forward by any write; a dry run is none."""
    armed = failpoints.arm(Failpoint.PUBLISH_AFTER_HEAD, Action.ERROR, only_hit=2)
    with armed, pytest.raises(PublishOutcomeUnknownError):
        change(bank)
    monkeypatch.setattr("headwater.publish.recovery.Recovery._is_over", lambda self, sidecar: True)
    head = bank.lake.catalog.ref("main").hash
    (tmp_path / "new.sql").write_text("create table c (id int)")
    assert run("schema", "apply", bank.url, tmp_path / "new.sql", "--dry-run").out == "would create table default.c\n"
    assert bank.lake.catalog.ref("main").hash == head
    assert run("schema", "apply", bank.url, tmp_path / "new.sql").code == 0
    assert [each.actor for each in bank.lake.catalog.log(bank.lake.catalog.ref("main").hash)][1] == "headwater:recovery"


def test_a_user_without_a_name(run: Run, bank: LakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as a number that no file of users knows."""

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert run("mutate", bank.url, "delete from a where id = 1").out.startswith("1 row\ncommitted ")
    [commit, *_] = json.loads(run("commits", bank.url, "--json").out)
    assert commit["actor"].startswith("uid-")


def test_an_operation_that_is_none(run: Run, bank: LakeWorld) -> None:
    assert run("recover", bank.url, "--operation", "nonsense").code == 2


def test_a_sidecar_that_cannot_be_read(run: Run, bank: LakeWorld) -> None:
    broken = Path(bank.url) / "__recovery" / "01ARZ3NDEKTSV4RRFFQ69G5FAV.json"
    broken.parent.mkdir()
    broken.write_text("{}")
    for words in (("sidecars", bank.url), ("recover", bank.url), ("mutate", bank.url, "delete from a")):
        result = run(*words)
        assert (result.code, broken.name in result.err) == (1, True), result.err
    assert run("query", bank.url, "select 1 as one", "--json").out == '{"one": 1}\n'
