"""Where in the SQL something is wrong, when whoever found it knows only what it is called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.kernel.errors import HeadwaterError, UsageError

_QUOTED = re.compile(r'"([^"\n]+)"')
_AT_END = "at end of input"


@contextmanager
def pointing_into(sql: str) -> Iterator[None]:
    """Errors from within point at the place in this SQL, if it can be only one."""
    try:
        yield
    except UsageError as error:
        if "line" not in error.fields and (found := position_of(sql, error)) is not None:
            error.fields["line"], error.fields["column_number"] = found
        raise


def position_of(sql: str, error: HeadwaterError) -> tuple[int, int] | None:
    """Line and column, from 1, of the one place where the name that the error is about stands; None: not known."""
    if _AT_END in error.message:
        return _line_and_column(sql, len(sql.rstrip()))
    for name in _names(error):
        found = list(re.finditer(rf'(?<![\w"])"?{re.escape(name)}(?!\w)', sql, re.I))
        if len(found) == 1:
            return _line_and_column(sql, found[0].start())
    return None


def _names(error: HeadwaterError) -> Iterator[str]:
    """What the error names: as a field, or as the first word in quotes."""
    for field in ("column", "table", "function"):
        value = error.fields.get(field)
        if isinstance(value, str) and value:
            yield value.rpartition(".")[2]
    if (quoted := _QUOTED.search(error.message)) is not None:
        yield quoted[1]


def _line_and_column(sql: str, place: int) -> tuple[int, int]:
    before = sql[:place]
    return before.count("\n") + 1, place - (before.rfind("\n") + 1) + 1
