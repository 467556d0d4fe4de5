"""What a head that is not at its pin means. Pure.

head at its pin        nothing to do
head ahead of it       AHEAD: the pinned document is written behind what is there, and pinned
head behind it         BEHIND: a pin is published after its head has moved, so objects were removed; a person looks
"""

from __future__ import annotations

from headwater.publish.repair.model import DriftState


def drift_of(pinned_id: int, latest_id: int) -> DriftState | None:
    """Where the head is, beside its pin; None when it is at it."""
    if latest_id == pinned_id:
        return None
    return DriftState.AHEAD if latest_id > pinned_id else DriftState.BEHIND
