"""The one error tree.

The second level says what the caller must do, and is what the command's exit code is made from:

    HeadwaterError            1  failed; the message and the hint say why
    ├── UsageError            2  the input is wrong: change it
    ├── ConflictError         3  somebody else won, and nothing of ours landed: read again, then retry
    ├── RefusedError          4  it would be unsafe: nothing was done
    ├── UnavailableError      5  a needed service does not answer: retry later
    ├── OutcomeUnknownError   1  it may or may not have happened: settle it by its identity, never retry blindly
    └── CorruptError          1  durable bytes are not what they should be: a person must look
"""

from __future__ import annotations

from typing import ClassVar


class HeadwaterError(Exception):
    """Anything that Headwater reports. `fields` names what it was about, `hint` the way out."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None, **fields: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.fields = fields

    @property
    def kind(self) -> str:
        """A stable name for machines: the class name without its ending."""
        return type(self).__name__.removesuffix("Error")

    def as_json(self) -> dict[str, object]:
        """The shape in which commands and servers report errors."""
        return {"error": self.message, "kind": self.kind, "hint": self.hint, **self.fields}

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(HeadwaterError):
    """The input is wrong; nothing was changed."""

    exit_code = 2


class ConflictError(HeadwaterError):
    """Somebody else won, and it is proven that nothing of ours landed."""

    exit_code = 3


class RefusedError(HeadwaterError):
    """Doing it would be unsafe; nothing was changed."""

    exit_code = 4


class UnavailableError(HeadwaterError):
    """A service that is needed does not answer."""

    exit_code = 5


class OutcomeUnknownError(HeadwaterError):
    """It may have happened or not. `operation` is the identity by which the truth can be found later."""

    def __init__(self, message: str, *, operation: str, hint: str | None = None, **fields: object) -> None:
        super().__init__(message, hint=hint, operation=operation, **fields)
        self.operation = operation


class CorruptError(HeadwaterError):
    """Durable bytes are damaged, or written by a newer version than this one."""
