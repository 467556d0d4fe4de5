"""The first thing a server's process runs: wait for the word, give up root, bind to the parent, become the server.

It runs as a script of its own, with an interpreter that loads nothing else. Its standard input is the gate:
the starter writes the order only after it has recorded this process durably, so a starter that dies in between
closes the gate and no server is ever left that nobody knows of.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Read the order from standard input and carry it out; the process never returns from it."""
    # A session of its own: the whole group can be signalled, and a Ctrl-C at a terminal does not reach it.
    os.setsid()
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        sys.exit("the starter went away before it gave the word")
    order = json.loads(line)
    if order["uid"] is not None:
        os.setgroups([])
        os.setgid(order["gid"])
        os.setuid(order["uid"])
    if order["death_signal"] is not None:
        # After setuid, which would clear it.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, order["death_signal"], 0, 0, 0)
        if os.getppid() != order["parent"]:
            sys.exit("the starter died")
    os.umask(0o077)
    os.chdir(order["cwd"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # The interpreter ignores these two, and an ignored signal would stay ignored in the server.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    os.execv(order["argv"][0], order["argv"])  # noqa: S606 (no shell is wanted)


if __name__ == "__main__":
    main()
