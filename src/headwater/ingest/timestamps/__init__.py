"""Timestamps of a topology: transactions, the high and the low watermark, what may be read and what may be folded."""

from headwater.ingest.timestamps.model import (
    FencedError,
    TakenError,
    TimestampOutOfRangeError,
    Transaction,
    UnknownTransactionError,
    Watermarks,
    Write,
)
from headwater.ingest.timestamps.protocol import TimestampService, open_timestamps

__all__ = [
    "FencedError",
    "TakenError",
    "TimestampOutOfRangeError",
    "TimestampService",
    "Transaction",
    "UnknownTransactionError",
    "Watermarks",
    "Write",
    "open_timestamps",
]
