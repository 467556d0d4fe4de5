"""How much a node takes at a time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Sizes of messages, and how many writes and scans go side by side; more are refused at once, none waits.

    A stream of requests is one call, of which one request at a time is read and applied.
    """

    request_bytes: int = 64 << 20
    piece_bytes: int = 1 << 20
    calls: int = 32
    batch_rows: int = 1 << 20
