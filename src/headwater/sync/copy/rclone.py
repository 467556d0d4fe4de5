"""Moving files with rclone, which knows every store: one process for a leg, whose JSON log says what it did.

    --files-from0      the very names, separated by NUL; nothing else is looked at, and nothing is listed
    --immutable        what is at a destination stays; something else there is an error of that file (R6)
    --size-only        what has the size is taken as the same: verify compares the bytes, rclone would compare times
    --retries 1        a file that fails is retried by us, alone, and named
    --s3-no-head       no request after each upload to look at it: verify looks at all of them

A store's upload is whole or absent, also when rclone is killed; of a large one, parts may stay behind that nobody can
see, which a bucket's lifecycle rule for unfinished uploads clears away. rclone looks, then uploads: a file that
appears between the two is overwritten. Only one process syncs a region at a time, and the names of files are unique.

rclone does not outlive us: it writes its statistics every second, and dies when nobody is there to read them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from headwater.kernel.errors import UnavailableError
from headwater.kernel.logs import Log
from headwater.sync.copy.model import Leg, Moved, Progress
from headwater.sync.copy.remotes import Remotes

_LOW_LEVEL_RETRIES = 3
# So many failures, and not one file copied: the store is out of reach. rclone would try every file, each slower.
_HOPELESS_FAILURES = 10
# rclone takes a file that is not there for an empty configuration.
_NO_CONFIGURATION = "/notfound"
_log = Log("sync.copy")


@dataclass(frozen=True)
class RcloneOptions:
    """How one rclone runs. Without a `configuration` it knows the remotes that we describe, and no others."""

    program: str
    transfers: int = 8
    bandwidth_bytes_per_second: int | None = None
    idle_seconds: float = 300.0
    configuration: str | None = None


def find_rclone(chosen: str | None, environ: Mapping[str, str]) -> str:
    """The program: the one that the settings name, the one beside this Python, or one on the PATH."""
    beside = Path(sys.executable).with_name("rclone")
    found = shutil.which(chosen or str(beside), path=environ.get("PATH"))
    if found is None and chosen is None:
        found = shutil.which("rclone", path=environ.get("PATH"))
    if found is None:
        raise UnavailableError(
            f"rclone is not there: {chosen}" if chosen else "copying between buckets needs rclone",
            hint="pip install 'headwater[sync]', or name the program in `sync.rclone`",
        )
    return found


class RcloneMover:
    """Runs rclone."""

    def __init__(self, options: RcloneOptions, remotes: Remotes, environ: Mapping[str, str]) -> None:
        self._options = options
        self._remotes = remotes
        # What the process's own environment says of a remote stands.
        self._environ = {**remotes.environment, **environ}

    def move(self, leg: Leg, progress: Progress, *, replace: bool = False) -> Moved:
        """Copy a leg by one process."""
        names = [name for name, _ in leg.items]
        argv = self._command(leg, is_single=names == [""], replace=replace)
        # Files without a name: whatever happens to us, nothing of them stays.
        with tempfile.TemporaryFile() as wanted, tempfile.TemporaryFile() as matching:
            wanted.write(b"\0".join(name.encode() for name in names))
            wanted.seek(0)
            said = _Said()
            process = subprocess.Popen(argv, stdin=wanted, stdout=matching, stderr=subprocess.PIPE, env=self._environ)
            try:
                assert process.stderr is not None
                for line in process.stderr:
                    said.hear(line, progress)
                    if said.is_hopeless:
                        process.kill()
                status = process.wait()
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
                if process.stderr is not None:
                    process.stderr.close()
            return said.moved(names, _lines(matching), status)

    def _command(self, leg: Leg, *, is_single: bool, replace: bool) -> list[str]:
        options = self._options
        source, destination = (self._remotes.path(root) for root in (leg.source_root, leg.destination_root))
        argv = [options.program, "copyto" if is_single else "copy", source, destination]
        argv += [] if is_single else ["--files-from0", "-", "--no-traverse"]
        argv += ["--ignore-times"] if replace else ["--immutable", "--size-only"]
        argv += [
            "--match",
            "-",
            "--use-json-log",
            "--log-level",
            "INFO",
            "--stats",
            "1s",
            "--stats-log-level",
            "NOTICE",
        ]
        argv += ["--retries", "1", "--low-level-retries", str(_LOW_LEVEL_RETRIES)]
        argv += ["--transfers", str(options.transfers), "--checkers", str(2 * options.transfers)]
        argv += ["--contimeout", "10s", "--timeout", f"{options.idle_seconds:.0f}s"]
        argv += ["--s3-no-head", "--s3-no-check-bucket"]
        argv += ["--config", options.configuration or _NO_CONFIGURATION]
        if options.bandwidth_bytes_per_second is not None:
            argv += ["--bwlimit", f"{options.bandwidth_bytes_per_second}B"]
        return argv


class _Said:
    """What rclone said so far: a JSON object a line."""

    def __init__(self) -> None:
        self._copied: set[str] = set()
        self._errors: dict[str, str] = {}
        self._transferred_bytes = 0
        self._last = "rclone said nothing"

    @property
    def is_hopeless(self) -> bool:
        """Whether nothing works, and there is no sense in going on."""
        return not self._copied and len(self._errors) >= _HOPELESS_FAILURES

    def hear(self, line: bytes, progress: Progress) -> None:
        """One line of its log."""
        try:
            said = json.loads(line)
        except ValueError:
            self._last = line.decode(errors="replace").strip() or self._last  # a crash, say
            return
        message, level, name = str(said.get("msg", "")), said.get("level"), said.get("object")
        stats = said.get("stats")
        if isinstance(stats, dict):
            self._transferred_bytes = int(stats.get("bytes", 0))
            progress(self._transferred_bytes)
        elif name is not None and "Copied (" in message:
            self._copied.add(name)
        elif level in ("error", "critical"):
            self._last = message
            if name is not None:
                self._errors[name] = message

    def moved(self, names: list[str], matching: Iterable[str], status: int) -> Moved:
        """What became of these names, given the list of those that matched, and the exit status.

        After a success, a name that was not spoken of has no file at the source. After a failure nobody can tell.
        """
        if names == [""]:  # it speaks of a single file by its last name
            copied, present = {""} if self._copied else set(), {""} if any(matching) else set()
            errors = {"": next(iter(self._errors.values()), self._last)} if self._errors else {}
        else:
            copied, present, errors = self._copied, set(matching), self._errors
        arrived = (copied | present) - errors.keys()
        failed = {name: errors[name] for name in names if name in errors}
        if status != 0:
            failed |= {name: self._last for name in names if name not in arrived and name not in failed}
            _log.warning("rclone failed", status=status, files=len(failed), last=self._last)
        wanted = arrived.intersection(names)
        return Moved(frozenset(wanted & copied), frozenset(wanted - copied), failed, self._transferred_bytes)


def _lines(file: IO[bytes]) -> list[str]:
    file.seek(0)
    return [line.decode() for line in file.read().split(b"\n") if line]
