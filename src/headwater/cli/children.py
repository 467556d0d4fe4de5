"""Processes of the demo: each ends with the block that it was started for."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Self

from headwater.kernel.errors import HeadwaterError
from headwater.kernel.settings import environment


class Child:
    """This very command in a process of its own, with other words and a few variables more."""

    def __init__(self, *words: str, variables: Mapping[str, str]) -> None:
        command = [sys.executable, "-m", "headwater", "--log-level", "error", *words]
        self._process = subprocess.Popen(command, env={**environment(), **variables}, stdout=subprocess.PIPE)
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    @property
    def is_at_work(self) -> bool:
        """Whether the process lives."""
        return self._process.poll() is None

    @property
    def end(self) -> str:
        """How the process ended."""
        code = self._process.wait()
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"

    @property
    def answer(self) -> dict[str, Any]:
        """What it says at the end."""
        out, _ = self._process.communicate()
        if self._process.returncode:
            raise HeadwaterError(f"a process of the demo ended with {self._process.returncode}")
        answer: dict[str, Any] = json.loads(out)
        return answer
