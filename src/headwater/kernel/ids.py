"""ULIDs: 128-bit names that sort by the millisecond they were made in."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NewType

from headwater.kernel.clock import Clock
from headwater.kernel.errors import UsageError
from headwater.kernel.randomness import Randomness

Ulid = NewType("Ulid", str)

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_SHAPE = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")


def new_ulid(clock: Clock, randomness: Randomness) -> Ulid:
    """A fresh id: 48 bits of milliseconds, 80 bits of randomness, in Crockford's base 32."""
    milliseconds = int(clock.now().timestamp() * 1000)
    return ulid_of((milliseconds << 80) | int.from_bytes(randomness.randbytes(10), "big"))


def ulid_of(number: int) -> Ulid:
    """The id that these 128 bits spell."""
    return Ulid("".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -5, -5)))


def parse_ulid(text: str) -> Ulid:
    """The id that `text` spells, or a `UsageError`."""
    if not _SHAPE.fullmatch(text):
        raise UsageError(f"{text!r} is not a ULID", hint="a ULID has 26 characters of Crockford's base 32")
    return Ulid(text)


def time_of(ulid: Ulid) -> datetime:
    """When the id was made, to the millisecond, by its maker's clock."""
    milliseconds = 0
    for character in ulid[:10]:
        milliseconds = milliseconds * 32 + _ALPHABET.index(character)
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
