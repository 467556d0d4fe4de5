"""What DuckDB says when it fails, told apart by what the caller must do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from headwater.kernel.errors import HeadwaterError
from headwater.query.model import QueryMemoryError, QueryRefusedError, QueryUsageError

_PLACE = re.compile(r"\n+LINE (\d+): (.*)\n( *)\^\s*$", re.DOTALL)
_HEAD = "LINE {}: "
_INTERRUPTED = ("Query interrupted", "INTERRUPT Error: ")  # no error of a user's making begins like this
_OF_FILES = (duckdb.IOException, duckdb.InternalException, duckdb.SerializationException, duckdb.FatalException)
_SPEAKS_OF_FILES = re.compile(r"parquet|headwater://|decompress|invalid unicode", re.IGNORECASE)
_KIND = re.compile(r"[A-Z][A-Za-z ]* Error: ")  # what a library beneath DuckDB says has no such beginning
_KINDS = (
    duckdb.OutOfMemoryException,
    duckdb.ConversionException,
    duckdb.OutOfRangeException,
    duckdb.InvalidInputException,
    duckdb.IOException,
    duckdb.BinderException,
    duckdb.InternalException,
    duckdb.FatalException,
    duckdb.SerializationException,
    duckdb.NotImplementedException,
)


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


def nested_too_deeply() -> QueryUsageError:
    """The error for SQL that has more levels than can be followed."""
    return QueryUsageError(
        "the SQL is nested too deeply to be read", hint="name parts of it by WITH, or write long chains as IN (…)"
    )


def usage_error(error: duckdb.Error, *, is_as_written: bool = True) -> QueryUsageError:
    """Wrong SQL, in DuckDB's own words, with line and column where it tells them of the text as it was written."""
    text = str(error).strip()
    found = _PLACE.search(str(error))
    if found is None:
        return QueryUsageError(text)
    message, line = text[: found.start()], int(found[1])
    column = len(found[3]) - len(_HEAD.format(line)) + 1
    # Of a long line DuckDB shows a part; then only the line is known.
    if found[2].startswith("...") or column < 1 or not is_as_written:
        return QueryUsageError(f"{message} (line {line})", line=line)
    return QueryUsageError(f"{message} (at {line}:{column})", line=line, column=column)


def translate(error: duckdb.Error, *, is_as_written: bool = True) -> HeadwaterError:
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
    return usage_error(error, is_as_written=is_as_written)


def is_interrupt(error: Exception) -> bool:
    """Whether a person, and nothing in the query, has ended it. DuckDB swallows the signal that told it so."""
    return isinstance(error, duckdb.InterruptException) or str(error).startswith(_INTERRUPTED)


def may_be_a_file(error: duckdb.Error) -> bool:
    """Whether a broken file could have caused this: then the files are looked at. Most errors are in the SQL."""
    text = str(error)
    is_nameless = type(error) is duckdb.Error and _KIND.match(text) is None
    return is_nameless or isinstance(error, _OF_FILES) or _SPEAKS_OF_FILES.search(text) is not None


def as_duckdb(error: Exception) -> duckdb.Error | None:
    """What DuckDB said through Arrow, which knows no kinds of errors but DuckDB's words for them."""
    text = str(error)
    said = text.replace(" ", "").lower()
    for kind in _KINDS:
        if said.startswith(kind.__name__.removesuffix("Exception").lower()):
            return kind(text)
    return duckdb.Error(text) if isinstance(error, pa.ArrowException | RuntimeError) else None
