"""Each safety rule, broken by one line, must turn its test red. A mutation is a TOML file beside this one:

rule = "S2"                          # a hazard's number, or the invariant's name
file = "src/headwater/…"             # where
old = "…"                            # the line, or a part of it that occurs once
new = "…"                            # what a hurried person might write instead
test = "tests/…::test_…"             # what notices
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(Path(__file__).parent.glob("*.toml"))
KEYS = {"rule", "file", "old", "new", "test"}

pytestmark = pytest.mark.slow


def load(file: Path) -> dict[str, str]:
    mutation = tomllib.loads(file.read_text())
    assert set(mutation) == KEYS, f"{file.name} has {set(mutation)}"
    assert "\n" not in mutation["old"] + mutation["new"], f"{file.name} changes more than one line"
    return mutation


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the sources and tests that may be broken."""
    folder = tmp_path_factory.mktemp("mutated")
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("src", "tests", "docs", "specs"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder / name)
    yield folder
    shutil.rmtree(folder)


def run(folder: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """Run these tests on the sources in `folder`; no bytecode is kept that could outlive a change."""
    environ = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:randomly", *tests],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_the_tests_are_green_without_a_mutation(copy: Path) -> None:
    """Otherwise red would prove nothing."""
    tests = sorted({load(file)["test"] for file in FILES})
    result = run(copy, *tests)
    assert result.returncode == 0, result.stdout[-4000:]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_mutation_is_noticed(copy: Path, file: Path) -> None:
    mutation = load(file)
    source = copy / mutation["file"]
    text = source.read_text()
    assert text.count(mutation["old"]) == 1, f"{mutation['old']!r} occurs {text.count(mutation['old'])} times"
    source.write_text(text.replace(mutation["old"], mutation["new"]))
    try:
        result = run(copy, mutation["test"])
    finally:
        source.write_text(text)
    assert result.returncode == 1, f"{mutation['rule']} can be broken unnoticed:\n{result.stdout[-2000:]}"
