"""The metrics of a process that serves nobody: kept in a file, where Prometheus's node exporter collects them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headwater.app import App
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.logs import Log
from headwater.sync.protocol import Syncing

# As often as Prometheus commonly looks.
_EVERY_SECONDS: Final = 15.0
_log = Log("sync")


@contextmanager
def exported(app: App, syncing: Syncing) -> Iterator[None]:
    """While the block lasts, keep the file of the settings up to date; it is so when the block has ended, too.

    A sync that fails tells its last state all the same; a file that cannot be written stops no sync.
    """
    path = app.settings.sync.metrics_file
    if path is None:
        yield
        return

    def write() -> None:
        try:
            syncing.status()  # which looks at what does not happen by itself: how old the oldest commit is by now
            _write(Path(path), app.metrics.exposition())
        except (HeadwaterError, OSError) as error:
            _log.warning("the metrics could not be written", path=path, error=str(error))

    over = threading.Event()

    def keep() -> None:
        while not over.wait(_EVERY_SECONDS):
            write()

    thread = threading.Thread(target=keep, name="sync-metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        write()


def _write(path: Path, text: bytes) -> None:
    """Whoever reads it finds all of it, or all of what was there before."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(text)
    beside.replace(path)
