"""Which files are read, what a look at one means, and what is done about it. Pure."""

from __future__ import annotations

import enum
import hashlib

from headwater.sync.verify.model import Finding, Verdict, VerifyItem

_WHOLE = 1 << 64


class Remedy(enum.StrEnum):
    """What is done about a finding.

    nothing   it is right
    copy      nothing is there: it is copied where nothing is, which can harm nobody
    replace   what is there is ours, and wrong: it is copied once more, over it
    fail      what is there may be somebody's, or nothing can be proven: a person must look
    """

    NOTHING = "nothing"
    COPY = "copy"
    REPLACE = "replace"
    FAIL = "fail"


def is_sampled(uri: str, rate: float) -> bool:
    """Whether the file is in a sample of this rate: by a digest of its name, so that every run reads the same ones."""
    return int.from_bytes(hashlib.sha256(uri.encode()).digest()[:8]) < rate * _WHOLE


def is_read(verified: VerifyItem, rate: float) -> bool:
    """Whether the file's bytes are compared. One that is where it always was has nothing to be compared with."""
    item = verified.item
    if item.source == item.destination and item.checksum is None:
        return False
    return verified.must_read or is_sampled(item.destination, rate)


def by_size(verified: VerifyItem, actual_bytes: int | None) -> Finding:
    """What the length of a file tells; `None` when there is none."""
    expected_bytes = verified.item.size_bytes
    if actual_bytes is None:
        return Finding(verified, Verdict.MISSING, str(expected_bytes))
    verdict = Verdict.RIGHT if actual_bytes == expected_bytes else Verdict.SIZE
    return Finding(verified, verdict, str(expected_bytes), str(actual_bytes))


def by_content(verified: VerifyItem, expected: str | None, actual: str, origin: str | None, read_bytes: int) -> Finding:
    """What the bytes of a file tell, beside the checksum that they must have, if anybody can say it."""
    if expected is None:
        return Finding(verified, Verdict.UNPROVEN, actual=actual, read_bytes=read_bytes)
    verdict = Verdict.RIGHT if actual == expected else Verdict.CONTENT
    return Finding(verified, verdict, expected, actual, origin, read_bytes)


def remedy(finding: Finding) -> Remedy:
    """What is done about a first finding; a second one that is not right fails."""
    match finding.verdict:
        case Verdict.RIGHT:
            return Remedy.NOTHING
        case Verdict.MISSING:
            return Remedy.COPY
        case Verdict.SIZE | Verdict.CONTENT:
            # A file of its name in a third region proves nothing against a copy of the source that is gone.
            is_proven = finding.origin in (None, finding.verified.item.source)
            return Remedy.REPLACE if finding.verified.may_replace and is_proven else Remedy.FAIL
        case Verdict.UNPROVEN:
            return Remedy.FAIL
