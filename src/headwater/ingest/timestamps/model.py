"""What the timestamp service speaks about: transactions, watermarks, and how it refuses."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.ingest.model import Timestamp
from headwater.kernel.errors import ConflictError, RefusedError, UnavailableError, UsageError


@dataclass(frozen=True, slots=True)
class Transaction:
    """What whoever began a transaction is told.

    A write carries the timestamp of its effects; `is_resend` says that its timestamp is complete already. A read-only
    one carries the timestamp to read at, and ends by itself when it was not renewed for `lease_seconds`.
    """

    id: int
    timestamp: Timestamp
    is_read_only: bool = False
    is_resend: bool = False
    lease_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Watermarks:
    """How far things are, all at one moment."""

    high: Timestamp
    """Exclusive: every timestamp below it is complete."""

    low: Timestamp
    """No open read-only transaction reads below it, and none will begin there."""

    @property
    def read_timestamp(self) -> Timestamp:
        """The newest timestamp that can be read."""
        return self.high - 1

    @property
    def safe_gc_timestamp(self) -> Timestamp:
        """Up to here deletions may be folded and old rows dropped: below the low watermark."""
        return max(0, self.low - 1)


@dataclass(frozen=True, slots=True)
class Write:
    """An open write transaction. One that is a re-send holds nothing back."""

    id: int
    timestamp: Timestamp
    is_resend: bool


@dataclass(frozen=True, slots=True)
class Read:
    """An open read-only transaction, and until when it counts, by the holder's monotonic clock."""

    id: int
    timestamp: Timestamp
    expires_at: float


@dataclass(frozen=True, slots=True)
class State:
    """All that the service knows. Everything but reads, and how long the low watermark rests, is durable."""

    high: Timestamp = 1
    low: Timestamp = 0
    newest: Timestamp = 0
    """The highest timestamp that was begun, or of which it is known that nothing comes below."""

    complete_below: Timestamp = 1
    """What the high watermark would be if no write were open: past the newest committed, and past keep-alives."""

    writes: Mapping[int, Write] = field(default_factory=dict)
    reads: Mapping[int, Read] = field(default_factory=dict)
    low_rests_until: float = 0.0


class WriteOutcome(enum.StrEnum):
    """What became of a write transaction."""

    OPEN = "open"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"


class FencedError(ConflictError):
    """The lease of the timestamp service is somebody else's by now, or over: this holder answers no more."""

    def __init__(self, topology: str, epoch: int, reason: str) -> None:
        super().__init__(
            f"the timestamp service of {topology} is not held with epoch {epoch} any more: {reason}",
            hint="ask the present holder",
            topology=topology,
            epoch=epoch,
        )


class TakenError(UnavailableError):
    """Another node holds the timestamp service."""

    def __init__(self, topology: str, holder: str | None) -> None:
        super().__init__(
            f"the timestamp service of {topology} is held by {holder or 'another node'}",
            hint=f"ask {holder or 'again in a moment'}; it is free when its lease has passed",
            topology=topology,
            holder=holder,
        )


class UnknownTransactionError(UsageError):
    """No open transaction has this id: it never was, its lease is over, or it ended long ago."""

    def __init__(self, transaction_id: int, reason: str) -> None:
        super().__init__(
            f"transaction {transaction_id} {reason}",
            hint="begin again: a write with the same timestamp, a read at a newer one",
            transaction_id=transaction_id,
        )


class TimestampOutOfRangeError(RefusedError):
    """The timestamp is no position, or cannot be read (any more, or yet); nothing was changed."""
