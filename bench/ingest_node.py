"""A node in a process of its own: what `headwater node run` does, and READY, which only a harness may say.

`python -m bench.ingest_node NODE.TOML` prints READY when it answers, and ends at SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from headwater.app import App
from headwater.ingest.config import load_config
from headwater.ingest.service.limits import ServiceLimits
from headwater.ingest.service.running import keep_for_good, running
from headwater.kernel import logs, settings


def main() -> None:
    logs.configure("text", "WARNING")
    config = load_config(Path(sys.argv[1]))
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    limits = ServiceLimits(
        request_bytes=config.service.request_bytes, batch_rows=config.service.batch_rows, calls=config.service.calls
    )
    with App(settings.load(environ={})).open_node(config) as opened:
        address = opened.node.topology.node(config.name).address
        with running(opened.node, opened.keeper, address, limits):
            keep_for_good()
            opened.node.lifecycle.ready_for_tests()
            print("READY", flush=True)
            over.wait()


if __name__ == "__main__":
    main()
