"""Names of new files say whose they are: each holds the operation that staged it, so that what never got into any
commit can be told from what did.

    <operation>-<8 hex digits>              in small letters, somewhere in the file's name, between `-` and `-` or `.`
    <5 digits>-<operation>.metadata.json    of a view

One operation may stage for a table more than once, so the operation alone would not be unique.
"""

from __future__ import annotations

import re

from headwater.kernel.ids import Ulid
from headwater.kernel.randomness import Randomness

_TOKEN = re.compile(r"(?:^|-)([0-7][0-9a-hjkmnp-tv-z]{25})-[0-9a-f]{8}(?=[-.])")
_VIEW = re.compile(r"[0-9]{5,}-([0-7][0-9A-HJKMNP-TV-Z]{25})\.metadata\.json")


def token_of(operation: Ulid, randomness: Randomness) -> str:
    """A part of a name that is unique, and tells the operation."""
    return f"{operation.lower()}-{randomness.randbytes(4).hex()}"


def operation_of(path: str) -> Ulid | None:
    """The operation that staged the file; None when its name does not tell, because somebody else wrote it."""
    name = path.rpartition("/")[2]
    found = _TOKEN.findall(name) or _VIEW.findall(name)
    return Ulid(found[0].upper()) if len(found) == 1 else None
