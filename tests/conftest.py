"""What all tests share: real services on demand, and no trace of a test in the next one."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from headwater.kernel import failpoints

pytest_plugins = ["tests.fixtures.services", "tests.fixtures.spark", "tests.fixtures.stores"]


@pytest.fixture(autouse=True)
def _clean_slate(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No HEADWATER_* variable of the machine reaches a test; nothing armed or configured outlives one."""
    import os

    for name in list(os.environ):
        if name.startswith("HEADWATER_") and name != "HEADWATER_CACHE":
            monkeypatch.delenv(name)
    yield
    failpoints._armed.clear()
    logger = logging.getLogger("headwater")
    logger.handlers = []
    logger.propagate = True
    logger.setLevel(logging.NOTSET)
