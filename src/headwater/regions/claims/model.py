"""What claims talk about: runs that need files, and executors that delete them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime

from headwater.kernel.ids import Ulid


@dataclass(frozen=True)
class ClaimRun:
    """A run that holds claims, by one attempt at it: a later attempt has a higher fence.

    Its claims hold until `expires_at`, by the database's clock.
    """

    run: Ulid
    region: str
    fence: int
    expires_at: datetime


@dataclass(frozen=True)
class Opened:
    """A run that was opened; `keeps_claims` says that what an earlier attempt claimed has been held without a break."""

    run: ClaimRun
    keeps_claims: bool


@dataclass(frozen=True)
class Claimed:
    """What a claim came to: how many files are claimed, and which are not, because they are being deleted."""

    count: int
    deleting: tuple[str, ...]


@dataclass(frozen=True)
class Deletion:
    """A file that an executor is deleting, and until when nobody else may."""

    executor: Ulid
    lease_until: datetime


class OpenVerdict(enum.Enum):
    """What becomes of a run that is opened."""

    OPEN = "open"
    ADOPT = "adopt"
    RESTART = "restart"
    FENCED = "fenced"
    FOREIGN = "foreign"


class RunVerdict(enum.Enum):
    """Whether a run may rely on its claims."""

    HOLDS = "holds"
    GONE = "it is not known: it was released, or lapsed long ago"
    FENCED = "a later attempt has begun"
    LAPSED = "its lease is over"
    TOO_SHORT = "too little of its lease is left"


class DeleteVerdict(enum.StrEnum):
    """What an executor is told about one file. Only the first three allow it to delete."""

    ENTERED = "entered"
    OURS = "ours"
    TAKEN_OVER = "taken-over"
    CLAIMED = "claimed"
    BUSY = "busy"

    @property
    def may_delete(self) -> bool:
        """Whether the file may be deleted now."""
        return self in (DeleteVerdict.ENTERED, DeleteVerdict.OURS, DeleteVerdict.TAKEN_OVER)
