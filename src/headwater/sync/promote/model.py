"""What a promotion looks at, and what it comes to."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.catalog.model import Change, Content, TableKey


class Standing(enum.Enum):
    """Where the commit that a replica shows stands to the target of a run, on `main` as it is now."""

    NOWHERE = "nowhere"
    """The replica shows none."""
    BEHIND = "behind"
    AT = "at"
    PAST = "past"
    OFF_MAIN = "off main"
    """`main` was moved since: what the replica shows is no longer part of it."""


class Next(enum.Enum):
    """What a run does at its end."""

    COMMIT = "commit"
    WAIT = "wait"
    STOP = "stop"
    """Somebody else has brought the replica as far, or further: there is nothing left to do."""
    PLAN_AGAIN = "plan again"
    GIVE_UP = "give up"
    """The wait was too long: a person must hear of it, and the replica stays where it was."""


@dataclass(frozen=True)
class Gate:
    """What the region sees of the target: its commit in the regional `main`, and its contents."""

    is_visible: bool
    do_contents_load: bool

    @property
    def is_open(self) -> bool:
        """Whether readers of the region could follow the promotion."""
        return self.is_visible and self.do_contents_load


@dataclass(frozen=True)
class Promotion:
    """The changes that make a replica show the target, and the versions that they rest on.

    `removals` go first, in a commit of their own: a name that becomes something else cannot change in one.
    """

    changes: Mapping[TableKey, Change]
    expected: Mapping[TableKey, Content | None]
    removals: Mapping[TableKey, Content]
