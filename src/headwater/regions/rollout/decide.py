"""What may be concluded about a swap of the pointer, and which generation is in force: pure.

    answer to the swap    pointer now    ours in its history    then
    done                  -              -                      committed
    refused, never lost   -              -                      conflict: an honest refusal changed nothing
    lost                  ours           -                      committed
    lost                  as before      -                      swap again: the first may still be on its way, and
                                                                whichever arrives second is refused
    lost                  moved          yes                    committed: others have published on top of ours
    lost                  moved          no                     conflict: it was bound to what is gone, and cannot land
    lost                  moved          cannot be told         unknown
    lost, out of patience as before      -                      unknown

After a lost answer nothing is taken for granted, a later refusal included: it may be our own success that refuses us.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from headwater.regions.rollout.model import Generation, Link, Pointer


class Answer(enum.Enum):
    """What the store said to the swap."""

    DONE = "done"
    REFUSED = "refused"
    LOST = "lost"


class Seen(enum.Enum):
    """The pointer, read after the swap."""

    OURS = "ours"
    AS_BEFORE = "as before"
    MOVED = "moved"


class Step(enum.Enum):
    """What is to be done next, or what is to be told."""

    READ_POINTER = "read pointer"
    READ_HISTORY = "read history"
    SWAP_AGAIN = "swap again"
    COMMITTED = "committed"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Facts:
    """What is known of one swap so far."""

    answer: Answer
    ever_lost: bool
    seen: Seen | None = None
    in_history: bool | None = None
    history_is_read: bool = False
    may_swap: bool = True


def next_step(facts: Facts) -> Step:
    """The row of the table above that these facts are in."""
    if facts.answer is Answer.DONE:
        return Step.COMMITTED
    if not facts.ever_lost:
        return Step.CONFLICT
    match facts.seen:
        case None:
            return Step.READ_POINTER
        case Seen.OURS:
            return Step.COMMITTED
        case Seen.AS_BEFORE:
            return Step.SWAP_AGAIN if facts.may_swap else Step.UNKNOWN
        case Seen.MOVED if not facts.history_is_read:
            return Step.READ_HISTORY
        case Seen.MOVED if facts.in_history is None:
            return Step.UNKNOWN
        case Seen.MOVED:
            return Step.COMMITTED if facts.in_history else Step.CONFLICT


def next_number(newest: Pointer | None, taken: int) -> int:
    """The number after everything that is known: the newest generation, and those that dead publishers left."""
    return max(newest.link.generation if newest is not None else 0, taken) + 1


def in_force(newest_first: Iterable[Generation], now: datetime) -> Generation | None:
    """The newest generation whose time has come. As time passes it only grows."""
    return next((each for each in newest_first if each.valid_from <= now), None)


def may_follow(seen: Link, offered: Link) -> bool:
    """Whether a client that has seen one pointer may follow another: only upwards (hazard R10)."""
    return offered == seen or offered.generation > seen.generation
