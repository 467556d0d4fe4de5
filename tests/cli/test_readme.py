"""What README shows is what happens: its script, its commands and its Python, one after the other, word for word."""

from __future__ import annotations

import re
import shlex
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import headwater
from tests.cli.test_cli import Run, run

__all__ = ["run"]  # the fixture

README = (Path(__file__).parents[2] / "README.md").read_text()


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
