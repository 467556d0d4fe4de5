"""Servers that are meant to die: each is a process of its own, forked from one that has everything imported already.

Read from standard input, one JSON line each: `{"lake", "port", "off_seconds", "environ", "early", "late"}` starts a
server and is answered by `{"pid", "address"}`, or by `{"pid", "address": null}` if it died before it took requests. The
failpoints `early` are armed before the lake is opened, `late` once requests are taken, so that they meet requests and
not what was left to recover. `{"pid"}` waits for the end of one, and is answered by `{"code"}`. When there is nothing
more to read, those that live are killed.

The clock of a server is as far off as it was told to be. One whose clock is ahead of that of the one before it finds
the leases of that one over, and nobody has to wait. That is fair to the dead alone: servers that live at the same time
have the same clock.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import datetime, timedelta
from typing import Any

from headwater.app import App
from headwater.kernel import failpoints, settings
from headwater.kernel.clock import SystemClock
from headwater.server.main import serve


class ShiftedClock(SystemClock):
    """The machine's clock, some seconds off."""

    def __init__(self, off_seconds: float) -> None:
        self._off = timedelta(seconds=off_seconds)

    def now(self) -> datetime:
        return super().now() + self._off


def main() -> None:
    living = set[int]()
    for line in sys.stdin:
        asked = json.loads(line)
        if "pid" in asked:
            _, status = os.waitpid(asked["pid"], 0)
            living.discard(asked["pid"])
            answer: dict[str, Any] = {"code": os.waitstatus_to_exitcode(status)}
        else:
            answer = _born(asked)
            living.add(answer["pid"])
        print(json.dumps(answer), flush=True)
    for each in living:
        os.kill(each, signal.SIGKILL)
        os.waitpid(each, 0)


def _born(asked: dict[str, Any]) -> dict[str, Any]:
    hearing, telling = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(hearing)
        try:
            _live(asked, telling)
        finally:
            os._exit(1)
    os.close(telling)
    with os.fdopen(hearing) as said:
        return {"pid": child, "address": said.readline() or None}


def _live(asked: dict[str, Any], telling: int) -> None:
    """Serve until told to stop, or killed. Standard output is the nursery's own."""
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)

    def ready(address: str) -> None:
        failpoints.arm_from(asked["late"])
        os.write(telling, address.encode())
        os.close(telling)

    failpoints.arm_from(asked["early"])
    chosen = {"HEADWATER_SERVER_PORT": str(asked["port"]), **asked["environ"]}
    app = App(settings.load(environ=chosen), ShiftedClock(asked["off_seconds"]))
    try:
        serve(app, asked["lake"], app.settings.server, ready=ready)
    finally:
        sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
