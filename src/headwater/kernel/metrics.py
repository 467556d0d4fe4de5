"""The metric facade: rooms declare what they measure as constants, and `Metrics` keeps the numbers.

A `Metrics` owns its registry, so two lakes in one process do not mix, and tests start from zero.
"""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class MetricKind(enum.Enum):
    """What a metric does over time."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class Metric:
    """A metric's name, meaning and labels. Counters end in `_total`, durations in `_seconds`."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """Counts, levels and durations of one process or one lake."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._collectors: dict[str, Counter | Gauge | Histogram] = {}
        self._lock = threading.Lock()

    def count(self, metric: Metric, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        collector = self._collector(metric)
        assert isinstance(collector, Counter), metric
        (collector.labels(**labels) if labels else collector).inc(amount)

    def level(self, metric: Metric, value: float, **labels: str) -> None:
        """Set a gauge."""
        collector = self._collector(metric)
        assert isinstance(collector, Gauge), metric
        (collector.labels(**labels) if labels else collector).set(value)

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        """Add one observation to a histogram."""
        collector = self._collector(metric)
        assert isinstance(collector, Histogram), metric
        (collector.labels(**labels) if labels else collector).observe(value)

    def value(self, metric: Metric, **labels: str) -> float:
        """The present value (for a histogram, how many were observed); 0 when nothing was recorded."""
        name = metric.name + ("_count" if metric.kind is MetricKind.HISTOGRAM else "")
        return self.registry.get_sample_value(name, labels) or 0.0

    def exposition(self) -> bytes:
        """Everything in the Prometheus text format."""
        return generate_latest(self.registry)

    def _collector(self, metric: Metric) -> Counter | Gauge | Histogram:
        with self._lock:
            collector = self._collectors.get(metric.name)
            if collector is None:
                collector = self._make(metric)
                self._collectors[metric.name] = collector
            return collector

    def _make(self, metric: Metric) -> Counter | Gauge | Histogram:
        match metric.kind:
            case MetricKind.COUNTER:
                return Counter(metric.name, metric.help, metric.labels, registry=self.registry)
            case MetricKind.GAUGE:
                return Gauge(metric.name, metric.help, metric.labels, registry=self.registry)
            case MetricKind.HISTOGRAM:
                return Histogram(
                    metric.name, metric.help, metric.labels, registry=self.registry, buckets=metric.buckets
                )
