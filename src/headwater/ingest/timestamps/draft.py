"""What the steps of a turn make of the state, before it is durable: pure, and not shared.

A step that is refused leaves the draft as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headwater.ingest.model import Timestamp
from headwater.ingest.timestamps import decide
from headwater.ingest.timestamps.model import State, Transaction, Write, WriteOutcome


@dataclass
class Draft:
    """The state as it will be, what has to be written for that, and the time by the holder's clock."""

    state: State
    now: float
    next_id: int
    added: dict[int, Write] = field(default_factory=dict)
    ended: dict[int, WriteOutcome] = field(default_factory=dict)

    def begin_writes(self, timestamps: Sequence[Timestamp | None]) -> tuple[Transaction, ...]:
        """Begin writes, or find those that are open at their timestamps."""
        self.state, begun = decide.begin_writes(self.state, self.next_id, timestamps)
        self.added.update({write.id: write for write in begun if write.id >= self.next_id})
        self.next_id += len(timestamps)
        return tuple(Transaction(each.id, each.timestamp, is_resend=each.is_resend) for each in begun)

    def begin_reads(self, timestamps: Sequence[Timestamp | None], lease_seconds: float) -> tuple[Transaction, ...]:
        """Begin reads."""
        self.state, begun = decide.begin_reads(self.state, self.next_id, timestamps, self.now, lease_seconds)
        self.next_id += len(timestamps)
        return tuple(
            Transaction(each.id, each.timestamp, is_read_only=True, lease_seconds=lease_seconds) for each in begun
        )

    def end(self, transaction_id: int, outcome: WriteOutcome) -> bool:
        """End a transaction that is open; false when it is not."""
        if transaction_id in self.state.reads:
            self.state = decide.end_read(self.state, transaction_id)
        elif transaction_id in self.state.writes:
            step = decide.commit_write if outcome is WriteOutcome.COMMITTED else decide.roll_back_write
            self.state = step(self.state, transaction_id)
            self.ended[transaction_id] = outcome
        else:
            return False
        return True

    def keep_alive(self, position: Timestamp, reads: Sequence[int], lease_seconds: float) -> None:
        """Nothing that is not open yet begins below `position`, and reads go on for another lease."""
        renewed = decide.renew_reads(self.state, reads, self.now, lease_seconds)
        self.state = decide.keep_alive(renewed, position)
