"""Makes `.venv` what the pinned requirements say, with nothing but a Python that is there already.

    python3 tools/bootstrap.py run|dev [--need java,go]

Written for old Pythons too, so that they can say in one sentence what is missing. Does nothing, at once, when
everything is in place.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
HOME_MARK = VENV / "headwater.home"
REQUIREMENTS = ROOT / "requirements"
OLDEST, TOO_NEW = (3, 11), (3, 15)
NEEDS = {
    "java": "Java 17 or 21 is needed to run Spark: install it and put `java` on the PATH, or set JAVA_HOME.",
    "go": "Go is needed to build the S3 server of the safety tests: install it and put `go` on the PATH.",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("profile", choices=["run", "dev"])
    parser.add_argument("--need", default="", help="comma-separated: java, go")
    options = parser.parse_args()
    interpreter = suitable_python()
    for tool in filter(None, options.need.split(",")):
        require(tool)
    # What the tests need holds all that running needs, in the same versions.
    if is_installed(options.profile) or is_installed("dev"):
        return
    lock = os.open(str(ROOT), os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)  # until the process ends: two commands on a fresh clone take turns
    if is_installed(options.profile) or is_installed("dev"):
        return
    make_environment(interpreter)
    for name in files_of(options.profile):
        print(f"installing requirements/{name}", file=sys.stderr, flush=True)
        pip("--require-hashes", "-r", str(REQUIREMENTS / name))
    pip("--no-deps", "-e", str(ROOT))
    stamp(options.profile).write_text(digest_of(options.profile))


def suitable_python() -> str:
    """A Python of the right age: the one that runs this, or another on the PATH."""
    candidates = [sys.executable] + [f"python3.{minor}" for minor in range(TOO_NEW[1] - 1, OLDEST[1] - 1, -1)]
    for candidate in candidates:
        ask = [candidate, "-c", "import sys; print(*sys.version_info[:2])"]
        try:
            answer = subprocess.check_output(ask, stderr=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError):
            continue
        if OLDEST <= tuple(int(part) for part in answer.split()) < TOO_NEW:
            return candidate
    sys.exit("Python 3.11 or newer (below 3.15) is needed: install it and put it on the PATH.")


def require(tool: str) -> None:
    """End in one sentence if the tool is not there."""
    java_home = os.environ.get("JAVA_HOME")
    if tool == "java" and java_home and (Path(java_home) / "bin" / "java").exists():
        return
    if shutil.which(tool) is None:
        sys.exit(NEEDS[tool])


def make_environment(interpreter: str) -> None:
    """Make `.venv`, unless it is there and works; one that was moved or copied here belongs to another place."""
    works = PYTHON.exists() and subprocess.call([str(PYTHON), "-c", "import pip"], stderr=subprocess.DEVNULL) == 0
    if works and HOME_MARK.exists() and HOME_MARK.read_text() == str(ROOT):
        return
    print("making .venv", file=sys.stderr, flush=True)
    shutil.rmtree(str(VENV), ignore_errors=True)
    if subprocess.call([interpreter, "-m", "venv", str(VENV)], stdout=subprocess.DEVNULL) != 0:
        sys.exit("Python's venv module does not work here (on Debian: install python3-venv).")
    HOME_MARK.write_text(str(ROOT))


def pip(*arguments: str) -> None:
    """Install; what is built from source is built with the pinned tools."""
    quiet = ["--disable-pip-version-check", "--quiet", "--no-input"]
    # A user's wish to install elsewhere is not meant for an environment of its own.
    environ = {
        name: value for name, value in os.environ.items() if name not in ("PIP_TARGET", "PIP_PREFIX", "PIP_USER")
    }
    command = [str(PYTHON), "-m", "pip", "install", *quiet, "--no-build-isolation", *arguments]
    if subprocess.call(command, env=environ) != 0:
        sys.exit("Installing the pinned packages failed; pip's own words are above.")


def files_of(profile: str) -> List[str]:
    """The requirement files of a profile, in the order in which they are installed."""
    return ["build.txt", f"{profile}.txt"]


def digest_of(profile: str) -> str:
    """What the environment was made from."""
    digest = hashlib.sha256(str(ROOT).encode() + (ROOT / "pyproject.toml").read_bytes())
    for name in files_of(profile):
        digest.update((REQUIREMENTS / name).read_bytes())
    return digest.hexdigest()


def stamp(profile: str) -> Path:
    """Where that is noted."""
    return VENV / f"headwater-{profile}.installed"


def is_installed(profile: str) -> bool:
    """Whether the environment is up to date with the files."""
    return PYTHON.exists() and stamp(profile).exists() and stamp(profile).read_text() == digest_of(profile)


if __name__ == "__main__":
    main()
