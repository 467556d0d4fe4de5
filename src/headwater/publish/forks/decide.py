"""What a fork is, from what was read of it, and to which fork a path belongs. Pure.

pinned by its branch    planned in by a sidecar    used by a commit    standing
yes                     any                        any                 LEGITIMATE
any                     yes                        any                 LEGITIMATE
any                     any                        yes                 LEGITIMATE
no                      no                         no                  ORPHAN
anything else: one of them could not be read                           INDETERMINATE
"""

from __future__ import annotations

import re

from headwater.kernel.ids import Ulid
from headwater.publish.forks.model import ForkFacts, ForkStanding
from headwater.publish.heads import FORKS
from headwater.tables.head import METADATA_FOLDER

_FORK = re.compile(rf"(.+/{FORKS}/([0-7][0-9A-HJKMNP-TV-Z]{{25}}))/{METADATA_FOLDER}/[^/]+")


def standing_of(facts: ForkFacts) -> ForkStanding:
    """Whether anybody needs the fork."""
    if facts.is_pinned or facts.planned_by or facts.is_used:
        return ForkStanding.LEGITIMATE
    if facts.is_pinned is None or facts.planned_by is None or facts.is_used is None:
        return ForkStanding.INDETERMINATE
    return ForkStanding.ORPHAN


def incarnation_of(root: str) -> Ulid | None:
    """The branch incarnation whose fork the sequence at this root is; None for a table's own sequence."""
    found = fork_of(f"{root}/{METADATA_FOLDER}/x")
    return None if found is None else found[1]


def fork_of(path: str) -> tuple[str, Ulid] | None:
    """The root of the fork that holds the object at this path, and the branch incarnation that it belongs to."""
    found = _FORK.fullmatch(path)
    return None if found is None else (found[1], Ulid(found[2]))
