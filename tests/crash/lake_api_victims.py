"""Servers that are to be killed: one process imports everything once, and each server is a child of it.

It reads orders, one JSON object a line, {"lake", "failpoints"}, and tells for each of them two things: where the server
listens, and by which signal it ended.
"""

from __future__ import annotations

import json
import os
import sys

from headwater.app import App
from headwater.kernel import failpoints
from headwater.kernel.settings import load
from headwater.server.main import serve

# What a victim claims is free soon, but not so soon that it is too late before it was killed. Its own sweeps are not
# among what is tried out here.
SETTINGS = {
    "HEADWATER_SERVER_WRITE_SECONDS": "5",
    "HEADWATER_PUBLISH_LEASE_SECONDS": "60",
    "HEADWATER_SEQUENCE_CLOCK_SKEW_SECONDS": "0.2",
    "HEADWATER_SERVER_PORT": "0",
}


def tell(**said: object) -> None:
    print(json.dumps(said), flush=True)


def serve_armed(order: dict[str, str]) -> None:
    app = App(load(environ=SETTINGS))

    def ready(address: str) -> None:
        failpoints.arm_from(order["failpoints"])
        tell(address=address, pid=os.getpid())

    serve(app, order["lake"], app.settings.server, ready=ready)


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            serve_armed(json.loads(line))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        tell(signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None)


if __name__ == "__main__":
    main()
