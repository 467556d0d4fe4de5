"""How much a node takes at a time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Sizes of messages, and how many calls go side by side; more are refused at once, none waits in a queue."""

    request_bytes: int = 64 << 20
    piece_bytes: int = 1 << 20
    calls: int = 32
    requests_of_a_stream: int = 4
    batch_rows: int = 1 << 20
