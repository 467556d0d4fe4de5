"""The names under which copying is watched."""

from __future__ import annotations

import threading

from headwater.kernel.clock import Clock
from headwater.kernel.metrics import Metric, MetricKind, Metrics
from headwater.sync.copy.decide import throughput
from headwater.sync.copy.model import BatchReport
from headwater.sync.runs.model import Backlog

BACKLOG_FILES = Metric(
    "copy_backlog_files", MetricKind.GAUGE, "Files that are planned and not copied yet.", ("region",)
)
BACKLOG_BYTES = Metric(
    "copy_backlog_bytes", MetricKind.GAUGE, "Bytes that are planned and not copied yet.", ("region",)
)
THROUGHPUT = Metric(
    "rclone_throughput_bytes_per_sec", MetricKind.GAUGE, "Bytes copied a second, over the last minute.", ("region",)
)
TRANSFERRED = Metric(
    "cross_region_data_transfer_bytes",
    MetricKind.GAUGE,  # a counter of this name would be exposed with `_total` behind it
    "Bytes that were moved between regions since the process began; it only grows.",
    ("region",),
)
_SAMPLES = 120


class Meter:
    """Turns what the legs of one region report into metrics; several threads report."""

    def __init__(self, metrics: Metrics, region: str, clock: Clock) -> None:
        self._metrics = metrics
        self._region = region
        self._clock = clock
        self._lock = threading.Lock()
        self._moved_bytes = 0
        self._samples: list[tuple[float, int]] = [(clock.monotonic(), 0)]
        self._waiting_files = 0
        self._waiting_bytes = 0
        self.ended()
        metrics.level(TRANSFERRED, metrics.value(TRANSFERRED, region=region), region=region)

    def waiting(self, backlog: Backlog) -> None:
        """So much is planned and not copied."""
        with self._lock:
            self._waiting_files, self._waiting_bytes = backlog.files, backlog.size_bytes
            self._show_backlog()

    def arrived(self, report: BatchReport) -> None:
        """A batch has ended; what it lacks is still waiting."""
        with self._lock:
            there = [each for each in report.files if each.is_there]
            self._waiting_files -= len(there)
            self._waiting_bytes -= sum(each.item.size_bytes for each in there)
            self._show_backlog()

    def moved(self, new_bytes: int) -> None:
        """So many more bytes have crossed."""
        with self._lock:
            self._moved_bytes += new_bytes
            self._samples = [*self._samples[-_SAMPLES:], (self._clock.monotonic(), self._moved_bytes)]
            rate = throughput(self._samples, self._clock.monotonic())
            self._metrics.level(THROUGHPUT, rate, region=self._region)
            so_far = self._metrics.value(TRANSFERRED, region=self._region)
            self._metrics.level(TRANSFERRED, so_far + new_bytes, region=self._region)

    def ended(self) -> None:
        """Nothing is moved any more; a rate that stays would be a lie."""
        self._metrics.level(THROUGHPUT, 0, region=self._region)

    def _show_backlog(self) -> None:
        self._metrics.level(BACKLOG_FILES, max(0, self._waiting_files), region=self._region)
        self._metrics.level(BACKLOG_BYTES, max(0, self._waiting_bytes), region=self._region)
