"""What a check finds."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Fault(enum.StrEnum):
    """What can be wrong with a replica.

    foreign path    a file, or one that it speaks of, is not under the region's own prefix, and no override says that
                    it may be
    missing         a file is not there
    size            a file has another length than the metadata tells
    unreadable      metadata cannot be read, so what it leads to is not known
    other rows      the table does not have the rows that `main` has
    """

    FOREIGN_PATH = "foreign path"
    MISSING = "missing"
    SIZE = "size"
    UNREADABLE = "unreadable"
    OTHER_ROWS = "other rows"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    table: str
    fault: Fault
    path: str
    detail: str = ""


@dataclass(frozen=True)
class Rows:
    """What tells whether two tables have the same rows, in any order: how many, and a sum of their hashes."""

    count: int
    checksum: str


@dataclass(frozen=True)
class Checked:
    """A replica after a check.

    `exempt` are files that an override keeps elsewhere, by design. `ahead` are names that a subset has brought further
    than the replica's origin: there is no commit of `main` whose rows they must have.
    """

    region: str
    head: str
    origin: str | None
    tables: int = 0
    files: int = 0
    exempt: tuple[str, ...] = ()
    ahead: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    rows: dict[str, int] = field(default_factory=dict)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings
