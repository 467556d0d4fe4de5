"""What is verified, and what was found."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.kernel.errors import HeadwaterError
from headwater.sync.copy.model import CopyItem


@dataclass(frozen=True)
class VerifyItem:
    """A file that the replica will name.

    `may_replace`: nothing was at the destination when the run was planned, so that what is there now is a copy of
    ours, and may be made again. Otherwise it may be somebody's original, and is never overwritten (R6).
    `must_read`: its bytes are compared, whatever the sample.
    """

    item: CopyItem
    may_replace: bool = False
    must_read: bool = False


class Verdict(enum.StrEnum):
    """What was found at a destination.

    right       there, of the right size, and with the right bytes if they were compared
    missing     nothing is there
    size        it has another length
    content     it has the length, and other bytes
    unproven    its bytes were to be compared, and no copy is left to compare them with
    """

    RIGHT = "right"
    MISSING = "missing"
    SIZE = "size"
    CONTENT = "content"
    UNPROVEN = "unproven"


@dataclass(frozen=True)
class Finding:
    """One look at one file. `origin` is where its bytes can be had from again, if they were compared with a file."""

    verified: VerifyItem
    verdict: Verdict
    expected: str = ""
    actual: str = ""
    origin: str | None = None
    read_bytes: int = 0

    @property
    def is_right(self) -> bool:
        """Whether there is nothing to do about it."""
        return self.verdict is Verdict.RIGHT

    def __str__(self) -> str:
        item = self.verified.item
        match self.verdict:
            case Verdict.MISSING:
                return f"{item.destination} is missing"
            case Verdict.UNPROVEN:
                return f"{item.destination} cannot be compared: {item.source} is gone from every region"
            case Verdict.SIZE:
                return f"{item.destination} has {self.actual} bytes and not {self.expected}"
            case _:
                return f"{item.destination} has the SHA-256 {self.actual} and not {self.expected}"


@dataclass(frozen=True)
class VerifyReport:
    """What was looked at."""

    checked_files: int = 0
    read_files: int = 0
    read_bytes: int = 0
    recopied_files: int = 0


class VerifyFailedError(HeadwaterError):
    """Files are not what they should be, also after they were copied again; the replica stays where it was."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        first = findings[0]
        more = f"; and {len(findings) - 1} more files are wrong" if len(findings) > 1 else ""
        occupied = first.verdict in (Verdict.SIZE, Verdict.CONTENT) and not first.verified.may_replace
        super().__init__(
            f"{first}{more}",
            hint=(
                "it was there before this run: two files have one destination, or it is damaged; remove the wrong one"
                if occupied
                else "compare it with its source, which may be damaged"
            ),
            files=[each.verified.item.destination for each in findings],
            sources=[each.verified.item.source for each in findings],
            verdicts=[str(each.verdict) for each in findings],
            expected=first.expected,
            actual=first.actual,
        )
        self.findings = tuple(findings)
