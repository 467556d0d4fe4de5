"""The names under which the state of replication is watched."""

from __future__ import annotations

from headwater.kernel.metrics import Metric, MetricKind

_LAG_BUCKETS = (1, 2.5, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600)

REGIONAL_COMMIT_LAG = Metric(
    "regional_commit_lag_seconds",
    MetricKind.HISTOGRAM,
    "From a commit of main to the commit of the replica that shows it.",
    ("region",),
    _LAG_BUCKETS,
)
END_TO_END_LAG = Metric(
    "sync_job_end_to_end_lag_seconds",
    MetricKind.HISTOGRAM,
    "From a commit of main until it was copied, localised and promoted, for each table that it changed.",
    ("region", "table"),
    _LAG_BUCKETS,
)
READ_READY_LAG = Metric(
    "regional_read_ready_lag_seconds",
    MetricKind.HISTOGRAM,
    "From a commit of main until readers of the region see it, for each table that it changed.",
    ("region", "table"),
    _LAG_BUCKETS,
)
WRITER_LAG = Metric(
    "writer_to_regional_read_ready_lag_seconds",
    MetricKind.HISTOGRAM,
    "From the last file of a writer until readers of the region see its commit, for each table that it changed.",
    ("region", "table"),
    _LAG_BUCKETS,
)
VISIBILITY_LAG = Metric(
    "replica_visibility_lag_seconds",
    MetricKind.HISTOGRAM,
    "From a commit of main until the region's catalog shows it.",
    ("region",),
    _LAG_BUCKETS,
)
REPLICATION_LAG = Metric(
    "catalog_db_replication_lag_seconds",
    MetricKind.GAUGE,
    "How long the region's catalog has lacked the oldest heartbeat that it does not show; 0 when it shows all.",
    ("region",),
)
HEARTBEAT = Metric(
    "replication_heartbeat_timestamp_seconds",
    MetricKind.GAUGE,
    "When the newest heartbeat that the region's catalog shows was made, in seconds since 1970.",
    ("region",),
)
COMMIT_RATE = Metric("nessie_commit_rate_per_min", MetricKind.GAUGE, "Commits to main within the last minute.")
OLDEST_PENDING = Metric(
    "oldest_pending_commit_age_seconds",
    MetricKind.GAUGE,
    "Age of the oldest commit of main that the replica does not show yet; 0 when it shows all.",
    ("region",),
)
CONFLICTS = Metric(
    "commit_conflict_total", MetricKind.COUNTER, "Promotions that lost the race for the replica branch.", ("region",)
)
FAST_FORWARDS = Metric(
    "fast_forward_activations_total",
    MetricKind.COUNTER,
    "Runs that went straight to the newest commit because too much was pending.",
    ("region",),
)
