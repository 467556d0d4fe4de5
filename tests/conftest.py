"""What all tests share: real services on demand, and no trace of a test in the next one."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import psutil
import pytest

from headwater.kernel import failpoints

# The same examples for the same code, so that red stays red; and nothing is kept in the working folder.
hypothesis.settings.register_profile("headwater", database=None, derandomize=True, deadline=None)
hypothesis.settings.load_profile("headwater")

pytest_plugins = [
    "tests.fixtures.airflow",
    "tests.fixtures.services",
    "tests.fixtures.spark",
    "tests.fixtures.lakes",
    "tests.fixtures.stores",
    "tests.fixtures.tables",
]


def pytest_configure(config: pytest.Config) -> None:
    """A run has a temporary folder of its own, so that what it leaves is its own, and goes when the process does."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-tests-"))
    folder.chmod(0o711)  # servers of another user pass through it
    # Registered before Spark's own, so that it runs after it.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1", "localhost"]))


@pytest.fixture(scope="session", autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """Made before all other fixtures and ended after them: by then every process and folder of ours is gone."""
    yield
    left = [child for child in psutil.Process().children(recursive=True) if not _is_spark(child)]
    assert not left, f"left running: {left}"
    folders = [path.name for path in Path(tempfile.gettempdir()).glob("headwater-*")]
    # Spark's own folder goes with its process, when the interpreter ends.
    assert [name for name in folders if not name.startswith("headwater-spark-")] == []


def _is_spark(process: psutil.Process) -> bool:
    try:
        # Its Java processes, and the Python ones that they start, which go with them.
        return any("org.apache.spark" in part or "py4j" in part or "pyspark." in part for part in process.cmdline())
    except psutil.Error:
        return True  # it has just ended


@pytest.fixture(autouse=True)
def _clean_slate(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No HEADWATER_* variable of the machine reaches a test; nothing armed or configured outlives one."""
    for name in list(os.environ):
        if name.startswith("HEADWATER_") and name != "HEADWATER_CACHE":
            monkeypatch.delenv(name)
    yield
    failpoints._armed.clear()
    logger = logging.getLogger("headwater")
    logger.handlers = []
    logger.propagate = True
    logger.setLevel(logging.NOTSET)
