"""What a fresh machine lacks is said in one sentence."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "bootstrap.py"


@pytest.fixture
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("tool", "sentence"), [("java", "Java 17 or 21 is needed"), ("go", "Go is needed to build the S3")]
)
def test_a_missing_tool_is_one_sentence(tmp_path: Path, tool: str, sentence: str) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "run", "--need", tool],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith(sentence)


def test_java_may_be_named_by_java_home(bootstrap: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    bootstrap.require("java")


def test_an_old_python_is_one_sentence(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "OLDEST", (3, 98))
    monkeypatch.setattr(bootstrap, "TOO_NEW", (3, 99))
    with pytest.raises(SystemExit, match=r"^Python 3\.11 or newer .* is needed"):
        bootstrap.suitable_python()


def test_another_python_on_the_path_is_found(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "python3.12").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(bootstrap.sys, "executable", "/no/such/python")
    assert bootstrap.suitable_python() == "python3.12"


def test_nothing_is_done_when_everything_is_in_place(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "is_installed", lambda profile: profile == "dev")
    monkeypatch.setattr(bootstrap, "make_environment", pytest.fail)
    monkeypatch.setattr(sys, "argv", ["bootstrap.py", "run"])
    bootstrap.main()


def test_an_environment_that_was_moved_is_noticed(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its scripts, and the package in it, still lead to where it was made."""
    here = bootstrap.digest_of("run")
    (tmp_path / "pyproject.toml").write_bytes((bootstrap.ROOT / "pyproject.toml").read_bytes())
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    assert bootstrap.digest_of("run") != here


def test_a_changed_pin_is_noticed(bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("build.txt", "run.txt"):
        (tmp_path / name).write_text("one")
    monkeypatch.setattr(bootstrap, "REQUIREMENTS", tmp_path)
    monkeypatch.setattr(bootstrap, "VENV", tmp_path)
    monkeypatch.setattr(bootstrap, "PYTHON", Path(sys.executable))
    bootstrap.stamp("run").write_text(bootstrap.digest_of("run"))
    assert bootstrap.is_installed("run")
    (tmp_path / "run.txt").write_text("two")
    assert not bootstrap.is_installed("run")
