"""What is said about a fork of a table."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from headwater.kernel.ids import Ulid


class ForkStanding(enum.StrEnum):
    """Whether anybody needs what lies in a fork. Only a confirmed orphan may be taken for nobody's."""

    LEGITIMATE = "legitimate"
    ORPHAN = "orphan"
    INDETERMINATE = "indeterminate"


@dataclass(frozen=True)
class ForkFacts:
    """What a fresh read says of a fork; None where the read failed.

    `is_pinned`: the branch of that incarnation lives, and pins a version in it. `planned_by`: the operations of pending
    sidecars that plan a move in it. `is_used`: a ref, a tag or any retained commit uses a version of it.
    """

    is_pinned: bool | None
    planned_by: tuple[Ulid, ...] | None
    is_used: bool | None
