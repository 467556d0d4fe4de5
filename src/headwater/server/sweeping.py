"""What a server does from time to time: recover what dead writers left behind (P1), and forget old keys.

A lake that is opened for each command is swept at each open. A server opens it once: without a timer, the change of a
writer that died meanwhile would stand in the way of others until the server is started anew.
"""

from __future__ import annotations

import threading
from datetime import timedelta

from headwater.kernel.errors import HeadwaterError
from headwater.kernel.logs import Log
from headwater.kernel.metrics import Metric, MetricKind
from headwater.server.serving import Serving

SWEEPS = Metric(
    "headwater_server_sweeps_total", MetricKind.COUNTER, "Sweeps for changes of dead writers, by outcome.", ("outcome",)
)
RECOVERED = Metric(
    "headwater_server_recovered_total", MetricKind.COUNTER, "Changes of dead writers that were recovered, by verdict.",
    ("verdict",),
)  # fmt: skip

_log = Log("server")


class Sweeper:
    """A thread that sweeps once in each lease; whoever opened the lake has swept it then."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; a sweep that is under way is waited for."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def sweep(self) -> None:
        """One sweep. What cannot be recovered now is told, and tried again next time."""
        serving = self._serving
        try:
            for each in serving.lake.writing.recovery.sweep():
                serving.metrics.count(RECOVERED, verdict=str(each.verdict))
            serving.requests.forget(timedelta(seconds=serving.settings.keys_kept_seconds))
        except HeadwaterError as error:
            serving.metrics.count(SWEEPS, outcome="failed")
            _log.warning("the sweep was not finished", error=str(error))
        else:
            serving.metrics.count(SWEEPS, outcome="done")

    def _run(self) -> None:
        while not self._over.wait(self._serving.sweep_every.total_seconds()):
            try:
                self.sweep()
            except Exception as error:  # the next one may do better, and nobody else would notice
                _log.error("the sweep failed in a way that was not foreseen", cause=error)
