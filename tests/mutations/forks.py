"""Runs tests in forks of a process that has the large libraries in memory already, and nothing of the product.

Read from standard input, one JSON line each: `{"folder": …, "tests": […], "timeout_seconds": …}`. Answered by one JSON
line: `{"code": …, "out": …}`. Importing Arrow, DuckDB and PyIceberg anew for each mutation would take most of the time.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

LARGE = (
    "alembic",
    "duckdb",
    "fastavro",
    "hypothesis.strategies",
    "obstore",
    "pandas",
    "prometheus_client",
    "psycopg",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pydantic",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
    "sqlalchemy",
    "sqlglot",
)


def main() -> None:
    for name in LARGE:
        importlib.import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        with tempfile.TemporaryFile("w+") as out:
            code = _run(asked["folder"], asked["tests"], asked["timeout_seconds"], out.fileno())
            out.seek(0)
            print(json.dumps({"code": code, "out": out.read()[-3000:]}), flush=True)


def _run(folder: str, tests: list[str], timeout_seconds: int, out: int) -> int:
    child = os.fork()
    if child == 0:
        os._exit(_in_child(folder, tests, timeout_seconds, out))
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def _in_child(folder: str, tests: list[str], timeout_seconds: int, out: int) -> int:
    """The product and the tests are those in `folder`, as if the interpreter had been started there."""
    os.setsid()
    signal.alarm(timeout_seconds)
    devnull = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((devnull, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
    os.chdir(folder)
    sys.path[:0] = [folder, str(Path(folder) / "src")]
    os.environ["PYTHONPATH"] = str(Path(folder) / "src")
    assert not any(name.partition(".")[0] in ("headwater", "tests") for name in sys.modules)
    code = int(pytest.main(["-q", "-x", "--no-header", "--assert=plain", *tests]))
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    main()
