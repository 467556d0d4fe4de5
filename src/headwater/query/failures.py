"""What DuckDB says when it fails, told apart by what the caller must do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from headwater.kernel.errors import HeadwaterError
from headwater.query.model import QueryMemoryError, QueryRefusedError, QueryUsageError

_PLACE = re.compile(r"\n+LINE (\d+): (.*)\n( *)\^\s*$", re.DOTALL)
_HEAD = "LINE {}: "


@contextmanager
def about(table: str) -> Iterator[None]:
    """Errors from within say which table they are about."""
    try:
        yield
    except HeadwaterError as error:
        if "table" not in error.fields:
            error.fields["table"] = table
            error.message = f"table {table}: {error.message}"
            error.args = (error.message,)
        raise


def usage_error(error: duckdb.Error) -> QueryUsageError:
    """Wrong SQL, in DuckDB's own words, with line and column where it tells them."""
    text = str(error).strip()
    found = _PLACE.search(str(error))
    if found is None:
        return QueryUsageError(text)
    message, line = text[: found.start()], int(found[1])
    column = len(found[3]) - len(_HEAD.format(line)) + 1
    # Of a long line DuckDB shows a part; then only the line is known.
    if found[2].startswith("...") or column < 1:
        return QueryUsageError(f"{message} (line {line})", line=line)
    return QueryUsageError(f"{message} (at {line}:{column})", line=line, column=column)


def translate(error: duckdb.Error) -> HeadwaterError:
    """The error that a caller sees, for one that is not about a file."""
    text = str(error).strip()
    match error:
        case duckdb.PermissionException():
            return QueryRefusedError(f"a query may not do this: {text.splitlines()[0]}")
        case duckdb.OutOfMemoryException():
            return QueryMemoryError(
                f"the query needs more than it may use: {text.splitlines()[0]}",
                hint="raise its memory limit, or give it a temporary folder with more room",
            )
    return usage_error(error)


def may_be_a_file(error: duckdb.Error) -> bool:
    """Whether a broken file could have caused this: then the files are looked at."""
    kinds = (
        duckdb.IOException,
        duckdb.InvalidInputException,
        duckdb.InternalException,
        duckdb.SerializationException,
        duckdb.OutOfRangeException,
        duckdb.FatalException,
    )
    return isinstance(error, kinds) or type(error) is duckdb.Error
