"""The names under which a Nessie server is watched, from the side of who asks it."""

from __future__ import annotations

from headwater.kernel.metrics import Metric, MetricKind

_BUCKETS_MS = (1, 2.5, 5, 10, 25, 50, 100, 200, 500, 1000, 2500, 5000, 10000, 30000)

API_LATENCY = Metric(
    "nessie_api_latency_ms",
    MetricKind.HISTOGRAM,
    "Milliseconds from a request to Nessie to its answer, by operation; what went unanswered is among them.",
    ("operation",),
    _BUCKETS_MS,
)
COMMIT_LATENCY = Metric(
    "commit_latency_ms",
    MetricKind.HISTOGRAM,
    "Milliseconds that Nessie took to answer a commit.",
    buckets=_BUCKETS_MS,
)
# The operation whose latency has a metric of its own.
COMMIT = "commit"


def operation_of(method: str, path: str) -> str:
    """What a request asks for, by its shape: names of refs and hashes are in none of the answers."""
    match method, path.split("/"):
        case "GET", ["trees"]:
            return "listRefs"
        case "POST", ["trees"]:
            return "createRef"
        case "GET", ["trees", _]:
            return "getRef"
        case "PUT", ["trees", _]:
            return "assignRef"
        case "DELETE", ["trees", _]:
            return "deleteRef"
        case _, ["trees", _, "history", "commit"]:
            return COMMIT
        case _, ["trees", _, "history"]:
            return "log"
        case _, ["trees", _, "diff", _]:
            return "diff"
        case _, ["trees", _, ("contents" | "entries") as what]:
            return what
        case _, ["config"]:
            return "config"
        case _:
            return "other"
