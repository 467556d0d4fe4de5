"""`headwater cleanup` and `repair`, as a person or a script meets them."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.kernel import failpoints
from headwater.kernel.clock import SystemClock
from headwater.kernel.failpoints import Action, Failpoint
from headwater.kernel.ids import ulid_of
from headwater.kernel.randomness import seeded
from headwater.publish.errors import PublishOutcomeUnknownError
from headwater.tables.naming import token_of
from tests.cli.test_cli import Run, run
from tests.fixtures.lakes import LakeWorld

__all__ = ["run"]  # the fixture

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


@pytest.fixture
def bank(lake: LakeWorld) -> LakeWorld:
    for name in ("a", "b"):
        lake.lake.create_table(name, ROWS.schema, actor="ann")
    change(lake)
    return lake


def change(bank: LakeWorld) -> None:
    with bank.lake.transaction(actor="ann") as tx:
        tx.insert("a", ROWS)
        tx.insert("b", ROWS)


def litter(bank: LakeWorld, *, days: int) -> Path:
    """A file that somebody staged so many days ago, and never published."""
    when = SystemClock().now() - timedelta(days=days)
    operation = ulid_of(int(when.timestamp() * 1000) << 80)
    file = Path(bank.url) / "tables" / f"00000-00000-{token_of(operation, seeded(days))}.parquet"
    file.write_bytes(b"litter")
    return file


def documents(bank: LakeWorld, name: str) -> list[Path]:
    return sorted(Path(bank.url).glob(f"tables/default/{name}-*/metadata/0*.metadata.json")) or sorted(
        Path(bank.url).glob(f"tables/{name}-*/metadata/0*.metadata.json")
    )


def drift(bank: LakeWorld, name: str) -> None:
    """A head further on, by hand."""
    *_, last = documents(bank, name)
    number = int(last.name[:20])
    last.with_name(f"{number + 1:020}.metadata.json").write_bytes(last.read_bytes())


class TestCleanup:
    def test_what_is_old_goes(self, run: Run, bank: LakeWorld) -> None:
        old, young = litter(bank, days=5), litter(bank, days=1)
        dry = run("cleanup", bank.url, "--dry-run")
        assert (dry.code, f"would delete tables/{old.name}" in dry.out) == (0, True), dry.err
        assert "would delete 1 object, 6 bytes" in dry.out
        assert old.exists()
        done = run("cleanup", bank.url, "--json").json()
        assert [each["path"] for each in done["deleted"]] == [f"tables/{old.name}"]
        assert (done["dry_run"], done["deleted_bytes"], done["kept"], done["residue"]) == (False, 6, [], [])
        assert (old.exists(), young.exists()) == (False, True)
        assert f"deleted tables/{young.name}" in run("cleanup", bank.url, "--older-than", "12h").out
        assert json.loads(run("query", bank.url, "select count(*) c from a", "--json").out) == {"c": 2}

    def test_what_stays_is_told(self, run: Run, bank: LakeWorld) -> None:
        strange = Path(bank.url) / "tables" / "strange.parquet"
        strange.write_bytes(b"x")
        then = SystemClock().now().timestamp() - 9 * 86400
        os.utime(strange, (then, then))
        told = run("cleanup", bank.url)
        assert "kept tables/strange.parquet: its name does not tell its operation" in told.out
        [kept] = run("cleanup", bank.url, "--json").json()["kept"]
        assert kept == {"path": "tables/strange.parquet", "why": "its name does not tell its operation", "detail": ""}

    @pytest.mark.parametrize("age", ["3", "soon", "-3d"])
    def test_an_age_that_is_none(self, run: Run, bank: LakeWorld, age: str) -> None:
        assert run("cleanup", bank.url, f"--older-than={age}").code == 2

    def test_a_folder_that_is_no_lake(self, run: Run, tmp_path: Path) -> None:
        assert run("cleanup", str(tmp_path / "nothing")).code == 2


class TestRepair:
    def test_nothing_to_repair(self, run: Run, bank: LakeWorld) -> None:
        assert run("repair", bank.url).out == "every head is where its branch pins it\n"

    def test_a_head_that_drifted(self, run: Run, bank: LakeWorld) -> None:
        drift(bank, "a")
        failed = run("mutate", bank.url, "delete from a")
        assert (failed.code, "headwater repair" in failed.err) == (4, True), failed.err
        dry = run("repair", bank.url, "--dry-run", "--json").json()
        assert [(each["table"], each["state"]) for each in dry["drifts"]] == [("default.a", "ahead of its pin")]
        assert dry["commits"] == {}
        done = run("repair", bank.url, "--actor", "eve")
        assert (done.code, "default.a" in done.out, "repaired main by " in done.out) == (0, True, True), done.err
        [commit, *_] = json.loads(run("commits", bank.url, "--json").out)
        assert commit["actor"] == "headwater:recovery"
        assert commit["properties"]["headwater.recovery.kind"] == "repaired"
        assert commit["properties"]["headwater.recovery.for-actor"] == "eve"
        assert run("repair", bank.url).out == "every head is where its branch pins it\n"
        assert run("mutate", bank.url, "delete from a").code == 0

    @pytest.mark.parametrize("words", [(), ("--dry-run",)])
    def test_a_head_behind_its_pin(self, run: Run, bank: LakeWorld, words: tuple[str, ...]) -> None:
        documents(bank, "b")[-1].unlink()
        failed = run("repair", bank.url, *words)
        assert (failed.code, "default.b (pinned at 2, head at 1)" in failed.err) == (1, True), failed.err
        assert ("behind its pin" in failed.out) is bool(words)

    def test_refused_while_a_change_is_pending(self, run: Run, bank: LakeWorld) -> None:
        armed = failpoints.arm(Failpoint.PUBLISH_AFTER_HEAD, Action.ERROR, only_hit=1)
        with armed, pytest.raises(PublishOutcomeUnknownError) as caught:
            change(bank)
        for words in ((), ("--dry-run",), ("--json",)):
            refused = run("repair", bank.url, *words)
            assert (refused.code, caught.value.operation in refused.err) == (4, True), refused.err
