"""A run: one try to bring a replica to one commit of `main`."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime

from headwater.catalog.model import TableKey
from headwater.kernel.errors import ConflictError
from headwater.kernel.ids import Ulid
from headwater.sync.model import Origin


class Step(enum.StrEnum):
    """The seven steps, in their order."""

    DIFF = "diff"
    PLAN = "plan"
    COPY = "copy"
    VERIFY = "verify"
    LOCALISE = "localise"
    PROMOTE = "promote"
    OBSERVE = "observe"


STEPS = tuple(Step)


class RunState(enum.StrEnum):
    """How a run stands.

    running     it goes on, or its process has died and the next one takes it up
    done        readers of the region see its target
    overtaken   somebody else brought the replica as far, or further
    abandoned   what it rested on has changed; another run begins anew
    failed      a step was refused; `error` says why, and the replica stays where it was
    """

    RUNNING = "running"
    DONE = "done"
    OVERTAKEN = "overtaken"
    ABANDONED = "abandoned"
    FAILED = "failed"


class History(enum.StrEnum):
    """Which snapshots of a table a replica has: all that the table still has, or the current one."""

    FULL = "full"
    CURRENT = "current"


class Shipped(enum.StrEnum):
    """Whether the files of a run came another way than by our copies, on disks that were carried, and what that means.

    no      nothing did: what is there without our doing is read, byte for byte
    some    what is there is believed by its size and a sample of its bytes; what is not is copied
    all     the same, and what is not there is named and refused
    """

    NO = "no"
    SOME = "some"
    ALL = "all"


@dataclass(frozen=True)
class RunSpec:
    """What a run is for, and what it rests on: nothing of it changes while it runs.

    `shown` is what the replica showed at `replica_head` when the run began; None asks for a full diff. With `tables`
    it is a subset, which leaves the origin of the replica where it was (R7).
    """

    region: str
    target: Origin
    shown: Origin | None
    replica_head: str
    generation: int
    history: History = History.FULL
    tables: tuple[TableKey, ...] | None = None
    is_forward: bool = False
    shipped: Shipped = Shipped.NO


@dataclass(frozen=True)
class Run:
    """A run as the database has it. `done` is the last step that has ended, `ended` says when each did."""

    id: Ulid
    spec: RunSpec
    state: RunState
    done: Step | None
    began_at: datetime
    ended: dict[Step, datetime] = field(default_factory=dict)
    promoted: str | None = None
    error: str | None = None

    @property
    def next_step(self) -> Step | None:
        """The step that comes now; None when all have ended."""
        following = 0 if self.done is None else STEPS.index(self.done) + 1
        return STEPS[following] if following < len(STEPS) else None


@dataclass(frozen=True)
class PlannedBatch:
    """Files that are copied together. Which they are is in a list of its own, at `list_uri`."""

    number: int
    files: int
    size_bytes: int
    list_uri: str
    is_copied: bool = False
    is_verified: bool = False


@dataclass(frozen=True)
class Backlog:
    """What is planned and not copied yet."""

    files: int = 0
    size_bytes: int = 0


class RunLostError(ConflictError):
    """Another process has taken the region over; nothing was changed."""

    def __init__(self, region: str, fence: int, actual: int) -> None:
        super().__init__(
            f"the sync of {region} was taken over by another process",
            hint="let that one go on; nothing was changed by this one since",
            region=region,
            expected=fence,
            actual=actual,
        )
