"""Where a file belongs, and why."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class RuleKind(enum.StrEnum):
    """Which kind of rule decided, in the order in which they are asked."""

    LOCAL = "local"
    OVERRIDE = "override"
    SOURCE = "source"


@dataclass(frozen=True, slots=True)
class Rule:
    """Files under `prefix` have their place under `target`, the local prefix of `region`, by the rest of their name."""

    kind: RuleKind
    prefix: str
    target: str
    region: str

    def __str__(self) -> str:
        if self.kind is RuleKind.LOCAL:
            return f"local_prefix {self.prefix}"
        return f"{self.kind} {self.prefix} to {self.region}"


@dataclass(frozen=True, slots=True)
class Resolution:
    """Both URIs are canonical: localised metadata names `destination`, and a copy, if one is due, goes there.

    `region` is whose storage the destination is in. It differs from the region that asked only by an override, or by
    `specific_region`: then the one that asked verifies, and neither copies nor deletes (hazard R8).
    """

    source: str
    destination: str
    region: str
    asked_by: str
    rule: Rule

    @property
    def is_local(self) -> bool:
        """Whether the file is where the region that asked reads it already."""
        return self.source == self.destination

    @property
    def is_elsewhere(self) -> bool:
        """Whether the destination is in another region: an exemption from local paths, to be verified there."""
        return self.region != self.asked_by

    @property
    def must_copy(self) -> bool:
        """Whether the region that asked has to copy the file."""
        return not self.is_local and not self.is_elsewhere
