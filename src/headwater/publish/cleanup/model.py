"""What a cleanup looks at, what it knows, and what it did."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from headwater.kernel.ids import Ulid


@dataclass(frozen=True)
class Found:
    """An object of the lake, as a list shows it; the time is the store's own."""

    path: str
    size_bytes: int
    last_modified: datetime


@dataclass(frozen=True)
class StagedFile:
    """A file whose name tells the operation that staged it, or a document of a table that was never made."""

    found: Found
    operation: Ulid


@dataclass(frozen=True)
class Fork:
    """The objects of a table's fork on a branch; `root` is that of its sequence."""

    root: str
    incarnation: Ulid
    objects: tuple[Found, ...]


class Fate(enum.StrEnum):
    """What becomes of an object, and why. All but the first keep it."""

    NEVER_REFERENCED = "nothing ever referenced it"
    YOUNG = "its operation is younger than the staging horizon"
    COMMITTED = "its operation is in the log"
    PENDING = "its operation has a sidecar"
    REACHED = "a commit leads to it"
    BEHIND_HISTORY = "it is older than the history that is kept, so it may have been referenced"
    UNREADABLE = "what its table leads to cannot be read"
    UNKNOWN = "its name does not tell its operation"
    BRANCH_LIVES = "its branch lives"
    INDETERMINATE = "what was known could not be confirmed"
    NOT_DELETED = "it could not be deleted"


# What nobody needs to be told: it is as it should be.
AS_IT_SHOULD_BE = frozenset({Fate.YOUNG, Fate.COMMITTED, Fate.PENDING, Fate.REACHED, Fate.BRANCH_LIVES})


@dataclass(frozen=True)
class Known:
    """Everything that a cleanup is decided on.

    `horizon` is the staging horizon; changes that began before it can never be committed. `history` is the history
    horizon: commits before it may be forgotten. `margin` is how far clocks may differ. `committed` and `pending` are
    the operations of every retained commit and of every sidecar, `planned` the sequences that sidecars plan in.
    `reached` are the paths that any retained commit leads to. `tables` are the folders of all tables in any retained
    commit, `unreadable` those of which something could not be read. `live` are the incarnations of the branches.
    """

    horizon: datetime
    history: datetime | None
    margin: timedelta
    committed: frozenset[Ulid]
    pending: frozenset[Ulid]
    planned: frozenset[str]
    reached: frozenset[str]
    tables: frozenset[str]
    unreadable: frozenset[str]
    live: frozenset[Ulid]


@dataclass(frozen=True)
class Kept:
    """An object that stays though nothing is known to need it, or that could not be judged."""

    path: str
    why: Fate
    detail: str = ""


@dataclass(frozen=True)
class Cleaned:
    """What a cleanup did, or would do: the horizon that it published, what is gone, and what is worth telling."""

    horizon: datetime
    deleted: tuple[Found, ...]
    kept: tuple[Kept, ...] = ()
    residue: tuple[Found, ...] = field(default=())

    @property
    def deleted_bytes(self) -> int:
        """The size of all that is gone."""
        return sum(each.size_bytes for each in (*self.deleted, *self.residue))
