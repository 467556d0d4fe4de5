"""What all tests share: real services on demand, and no trace of a test in the next one."""

from __future__ import annotations

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

pytest_plugins = ["tests.fixtures.services", "tests.fixtures.spark", "tests.fixtures.stores"]


@pytest.fixture(scope="session", autouse=True)
def _nothing_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Made before all other fixtures and ended after them: by then every process and folder of ours is gone."""
    before = _ours_in_the_temporary_folder()
    yield
    left = [child for child in psutil.Process().children(recursive=True) if not _is_spark(child)]
    assert not left, f"left running: {left}"
    assert _ours_in_the_temporary_folder() <= before
    shutil.rmtree(tmp_path_factory.getbasetemp())


def _ours_in_the_temporary_folder() -> set[str]:
    """Spark's own folder goes when its process does, which is when the interpreter ends."""
    return {path.name for path in Path(tempfile.gettempdir()).glob("headwater-*") if "spark" not in path.name}


def _is_spark(process: psutil.Process) -> bool:
    try:
        return any("org.apache.spark" in part or "py4j" in part for part in process.cmdline())
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
