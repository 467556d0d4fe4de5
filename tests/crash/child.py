"""Starting, watching and ending a child process that is meant to die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


class Child:
    """A running actor."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def killed(self) -> list[dict[str, Any]]:
        """What it said before its failpoint killed it; it must have died of that and nothing else."""
        out, err = self._process.communicate(timeout=60)
        assert self._process.returncode == -signal.SIGKILL, (self._process.returncode, out, err)
        return _lines(out)

    def wait_stopped(self) -> None:
        """Return when its failpoint has stopped it."""
        state = os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        assert state is not None
        assert state.si_code == os.CLD_STOPPED, self._process.communicate(timeout=60)

    def resumed(self) -> list[dict[str, Any]]:
        """Let it go on; what it said by its end."""
        self._process.send_signal(signal.SIGCONT)
        return self.finished()

    def finished(self) -> list[dict[str, Any]]:
        """What it said; it must have ended well."""
        out, err = self._process.communicate(timeout=60)
        assert self._process.returncode == 0, (self._process.returncode, out, err)
        return _lines(out)


@contextmanager
def child(module: str, *arguments: str, environ: Mapping[str, str], failpoints: str = "") -> Iterator[Child]:
    """Run `python -m module arguments`; it is gone when the block is left, whatever happens."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, **environ, "HEADWATER_FAILPOINTS": failpoints},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Child(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def _lines(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]
