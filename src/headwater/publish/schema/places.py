"""Places in a script, and errors that name them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from headwater.kernel.errors import HeadwaterError, RefusedError, UsageError


@dataclass(frozen=True)
class Place:
    """Where in a script something stands; both count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


class SchemaError(UsageError):
    """The script is wrong, or asks for what cannot be; says where. Nothing was changed."""


class SchemaRefusedError(RefusedError):
    """What the script asks for would be unsafe; says where. Nothing was changed."""


def located(error: HeadwaterError, at: Place | None) -> HeadwaterError:
    """The error, with the place of the statement that it is about; None: no script was read."""
    if at is None or isinstance(error, (SchemaError, SchemaRefusedError)) or "line" in error.fields:
        return error
    kind = SchemaRefusedError if isinstance(error, RefusedError) else SchemaError
    fields = {**error.fields, "line": at.line, "column_number": at.column}
    return kind(f"{error.message} (in the statement at {at})", hint=error.hint, **fields)


@contextmanager
def placed(at: Place | None) -> Iterator[None]:
    """What is wrong within is told with the place of its statement."""
    try:
        yield
    except (UsageError, RefusedError) as error:
        raise located(error, at) from error
