"""Each safety rule, broken by one line, must turn its test red. A mutation is a TOML file beside this one:

rule = "S2"                          # a hazard's number, or the invariant's name
file = "src/headwater/…"             # where
old = "…"                            # the line, or a part of it that occurs once
new = "…"                            # what a hurried person might write instead
test = "tests/…::test_…"             # what notices
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from queue import SimpleQueue

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(Path(__file__).parent.glob("*.toml"))
WORKERS = 3  # much of their time they wait for servers and leases
TIMES = count(1_600_000_000)
KEYS = {"rule", "file", "old", "new", "test"}

pytestmark = pytest.mark.slow


def load(file: Path) -> dict[str, str]:
    mutation = tomllib.loads(file.read_text())
    assert set(mutation) == KEYS, f"{file.name} has {set(mutation)}"
    assert "\n" not in mutation["old"] + mutation["new"], f"{file.name} changes more than one line"
    return mutation


def make_copy(folder: Path) -> Path:
    """A copy of the sources and tests that may be broken."""
    ignore = shutil.ignore_patterns("__pycache__")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", folder / "pyproject.toml")
    return folder


class Runner:
    """A copy of the tree, and a process that runs tests in it; see forks.py."""

    def __init__(self, folder: Path) -> None:
        self.folder = make_copy(folder)
        command = [sys.executable, str(Path(__file__).with_name("forks.py"))]
        self._process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def run(self, *tests: str, timeout_seconds: int = 240) -> tuple[int, str]:
        """Run these tests on the sources as they are now."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"folder": str(self.folder), "tests": tests, "timeout_seconds": timeout_seconds}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer["code"], answer["out"]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def run_mutated(runner: Runner, file: Path) -> tuple[int, str]:
    """Break one line, run its test, mend it again."""
    mutation = load(file)
    source = runner.folder / mutation["file"]
    text = source.read_text()
    if text.count(mutation["old"]) != 1:
        return -1, f"{mutation['old']!r} occurs {text.count(mutation['old'])} times in {mutation['file']}"
    rewrite(source, text.replace(mutation["old"], mutation["new"]))
    try:
        return runner.run(mutation["test"])
    finally:
        rewrite(source, text)


def rewrite(source: Path, text: str) -> None:
    """Each version has a time of its own, so that no bytecode of another version is taken for its."""
    source.write_text(text)
    when = next(TIMES)
    os.utime(source, (when, when))


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """What became of the chosen mutations, tried side by side, each worker on a copy of its own."""
    chosen = [item.callspec.params.get("file") for item in request.session.items if hasattr(item, "callspec")]
    files = [file for file in chosen if file in FILES]
    runners = [Runner(tmp_path_factory.mktemp("mutated")) for _ in range(WORKERS)]
    free: SimpleQueue[Runner] = SimpleQueue()
    for runner in runners:
        free.put(runner)

    def attempt(file: Path) -> tuple[int, str]:
        runner = free.get()
        try:
            return run_mutated(runner, file)
        finally:
            free.put(runner)

    try:
        with ThreadPoolExecutor(WORKERS) as pool:
            return dict(zip([file.stem for file in files], pool.map(attempt, files), strict=True))
    finally:
        for runner in runners:
            runner.close()


@pytest.mark.timeout(1200)
def test_the_tests_are_green_without_a_mutation(tmp_path: Path) -> None:
    """Otherwise red would prove nothing."""
    tests = sorted({load(file)["test"] for file in FILES})
    # Those that need a server run in the suite itself; here it is the copy that is tested.
    runner = Runner(tmp_path)
    code, out = runner.run(*tests, "-m", "not services", timeout_seconds=900)
    runner.close()
    assert code == 0, out


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_mutation_is_noticed(outcomes: dict[str, tuple[int, str]], file: Path) -> None:
    code, out = outcomes[file.stem]
    lines = out.splitlines()
    noticed = code == 1 and any(line.startswith("FAILED ") for line in lines)
    assert noticed, f"{load(file)['rule']} can be broken unnoticed:\n{out}"
    assert not any(line.startswith("ERROR tests/") for line in lines), f"red for another reason:\n{out}"
