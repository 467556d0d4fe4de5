"""Errors on their way from a task to the driver: as a row, because Spark would make a page of text of an exception."""

from __future__ import annotations

import json
from typing import Final

from headwater.kernel.errors import (
    ConflictError,
    CorruptError,
    HeadwaterError,
    RefusedError,
    UnavailableError,
    UsageError,
)

_KINDS: Final = {
    each.__name__: each for each in (UsageError, ConflictError, RefusedError, UnavailableError, CorruptError)
}


def told(error: HeadwaterError) -> str:
    """The error as text, with its kind, its hint and its fields."""
    kind = next((each.__name__ for each in type(error).__mro__ if each.__name__ in _KINDS), "")
    said = {"kind": kind, "message": error.message, "hint": error.hint, "fields": error.fields}
    return json.dumps(said, default=str)


def raised(text: str) -> HeadwaterError:
    """The error that `told` made this text of: of the same kind, if not of the same class."""
    error = json.loads(text)
    return _KINDS.get(error["kind"], HeadwaterError)(error["message"], hint=error["hint"], **error["fields"])
