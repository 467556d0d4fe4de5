"""What README shows is what happens: its script, its commands and its Python, one after the other, word for word."""

from __future__ import annotations

import re
import shlex
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headwater
from headwater.cli.main import COMMANDS
from tests.cli.test_cli import Run, run

__all__ = ["run"]  # the fixture

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def block(language: str, first: str) -> str:
    """The block of code that begins with these words."""
    [found] = re.findall(rf"^```{language}\n({re.escape(first)}.*?)^```$", README, re.M | re.S)
    return str(found)


def test_using_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tables.sql").write_text(block("sql", "-- tables.sql"))
    total = pa.array([Decimal("1.00"), Decimal("2.50")], pa.decimal128(10, 2))
    pq.write_table(pa.table({"id": [1, 2], "customer": [1, 1], "total": total}), tmp_path / "orders.parquet")
    told = {}
    for line in block("", "headwater init").splitlines():
        name, *words = shlex.split(line, comments=True)
        result = run(*words)
        assert (name, result.code, result.err.replace("(1 row)\n", "")) == ("headwater", 0, ""), line
        told[line.split("   #")[0]] = result.out
    counted = {line: out.split()[-1] for line, out in told.items() if " query " in line}
    assert list(counted.values()) == ["0", "2"], counted
    exec(block("python", "import headwater"), {})
    lake = headwater.open("my-lake")
    assert lake.query("select name, tier, total from customers join orders on customer = customers.id").to_pylist() == [
        {"name": "bob", "tier": "gold", "total": Decimal("12.50")}
    ]


def test_regions(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tour of the regions, with another folder for /srv."""
    (tmp_path / "tables.sql").write_text(block("sql", "-- tables.sql"))
    (tmp_path / "regions.yaml").write_text(block("yaml", "# regions.yaml").replace("/srv/", f"{tmp_path}/"))
    told = {}
    for line in block("", "export HEADWATER_LAKE").replace("/srv/", f"{tmp_path}/").splitlines():
        words = shlex.split(line, comments=True)
        variables = [each for each in words if re.match(r"HEADWATER_\w+=", each)]
        with monkeypatch.context() as patch:
            for each in variables:
                (monkeypatch if words[0] == "export" else patch).setenv(*each.split("=", 1))
            if words[0] == "export":
                continue
            name, *words = words[len(variables) :]
            result = run(*words)
        assert (name, result.code) == ("headwater", 0), (line, result.err)
        told[" ".join(words[:2])] = result.out
    assert re.search(r"^1 +ann +new$", told["query select * from customers"], re.M)
    assert "all of it" in told["sync status"]
    assert f"{tmp_path}/eu-central/x.parquet" in told["registry resolve"]
    # What was written in one region is in all three, under the same name.
    regions = [tmp_path / name / "tables" for name in ("us-east", "eu-central", "asia-south")]
    names = [{file.name for file in region.rglob("*.parquet")} for region in regions]
    assert names[0] == names[1] == names[2]
    assert len(names[0]) == 1


def test_every_command_is_one() -> None:
    text = "\n".join(re.findall(r"^```\n(.*?)^```$", README, re.M | re.S))
    named = set(re.findall(r"^(?:HEADWATER_\w+=\S+ )*headwater ([a-z-]+)", text, re.M))
    assert {"init", "sync", "route", "connect", "bootstrap", "registry"} <= named <= set(COMMANDS)


def test_every_variable_of_the_dags_is_one() -> None:
    dag = (ROOT / "dags" / "iceberg_sync.py").read_text()
    named = set(re.findall(r"HEADWATER_DAG_\w+", README))
    assert named
    assert {name for name in named if f"    {name} " not in dag} == set()
