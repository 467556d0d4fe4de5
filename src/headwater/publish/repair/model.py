"""What a repair finds, and what it did about it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.catalog.model import TableContent, TableKey
from headwater.kernel.ids import Ulid


class DriftState(enum.StrEnum):
    """Where a head is found, when it is not at its pin. Behind it cannot be: somebody removed objects."""

    AHEAD = "ahead of its pin"
    BEHIND = "behind its pin"


@dataclass(frozen=True)
class Drift:
    """A head that is not where its branch pins it; `path` is its sequence, `pinned` what the branch holds."""

    branch: str
    branch_incarnation: Ulid
    key: TableKey
    path: str
    pinned: TableContent
    pinned_id: int
    latest_id: int
    state: DriftState


@dataclass(frozen=True)
class Repaired:
    """The drift that was found and, by branch, the commit that ended it; no commits where nothing was to be done."""

    drifts: tuple[Drift, ...]
    commits: Mapping[str, str] = field(default_factory=dict)

    @property
    def behind(self) -> tuple[Drift, ...]:
        """What a repair cannot mend."""
        return tuple(each for each in self.drifts if each.state is DriftState.BEHIND)
