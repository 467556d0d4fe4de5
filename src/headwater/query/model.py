"""What a query is given: where tables come from, what is laid over them, what it may use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table.metadata import TableMetadata
from pyroaring import BitMap64

from headwater.catalog.model import TableKey
from headwater.kernel.errors import RefusedError, UnavailableError, UsageError


@dataclass(frozen=True)
class OpenTable:
    """A table as it stands at the hash of the query; at its current snapshot, unless another is named.

    Where `data_files` are named, the table shows the rows of these files alone: no others are read.
    """

    metadata: TableMetadata
    snapshot_id: int | None = None
    data_files: frozenset[str] | None = None


@dataclass(frozen=True)
class OpenView:
    """A stored query. Names in it that have no namespace are in `default_namespace`."""

    sql: str
    dialect: str
    default_namespace: tuple[str, ...]
    columns: tuple[str, ...] = ()


class TableSource(Protocol):
    """The tables and views of one consistent state. Only what a query names is opened."""

    def names(self) -> Iterable[TableKey]:
        """Every table and view; asked only to find what a mistyped name may have meant."""
        ...

    def open(self, key: TableKey) -> OpenTable | OpenView | None:
        """The table or view of this name, or None."""
        ...


ReadRows: TypeAlias = Callable[[Sequence[str], BooleanExpression], Iterable[pa.Table]]
"""These columns of at least the rows for which the condition holds."""


@dataclass(frozen=True)
class Pending:
    """What a transaction has done and not committed, laid over the committed state.

    `rows` are appended to the table, `deletes` are positions by location of the data file, and `overrides` are
    tables that are new or have another schema than the committed one. What `late` gives is appended too: it is read
    once it is known what of it the query can depend on.
    """

    rows: Mapping[TableKey, pa.Table] = field(default_factory=dict)
    late: Mapping[TableKey, ReadRows] = field(default_factory=dict)
    deletes: Mapping[TableKey, Mapping[str, BitMap64]] = field(default_factory=dict)
    overrides: Mapping[TableKey, TableMetadata] = field(default_factory=dict)


MOST_SECONDS = 10**8  # three years: more than any query takes, and less than a timer can hold
MOST_BYTES = 2**60
MOST_THREADS = 1024
MOST_ROWS = 2**31 - 1


@dataclass(frozen=True)
class QueryOptions:
    """What a query may use, and which tables show where their rows are.

    A table in `positions` has the columns `_file` and `_pos`, on v3 also `_row_id` and
    `_last_updated_sequence_number`. Of a pending row `_file` is NULL and `_pos` its index in the pending table.
    What does not fit into memory goes to a folder of the query's own in `temp_directory`, gone when the query is.
    """

    memory_limit_bytes: int | None = None
    threads: int | None = None
    temp_directory: Path | None = None
    timeout_seconds: float | None = None
    positions: frozenset[TableKey] = frozenset()
    batch_rows: int = 100_000

    def __post_init__(self) -> None:
        for name, most in (
            ("memory_limit_bytes", MOST_BYTES),
            ("threads", MOST_THREADS),
            ("timeout_seconds", MOST_SECONDS),
            ("batch_rows", MOST_ROWS),
        ):
            value = getattr(self, name)
            if value is None:
                continue
            if not 0 < value <= most:
                raise UsageError(
                    f"{name} is {value}, and must be more than 0 and at most {most}", option=name, most=most
                )
            if name != "timeout_seconds" and value != int(value):
                raise UsageError(f"{name} is {value}, and must be a whole number", option=name)


class QueryUsageError(UsageError):
    """The SQL is wrong, or names what is not there. DuckDB's own words, with the place where it tells one."""


class QueryRefusedError(RefusedError):
    """The SQL asks for more than a query may do."""


class QueryTimeoutError(UnavailableError):
    """The query did not end within its time."""

    def __init__(self, timeout_seconds: float) -> None:
        super().__init__(
            f"the query did not end within {timeout_seconds:g} seconds",
            hint="give it more time, or let it read less",
            timeout_seconds=timeout_seconds,
        )


class QueryStoppedError(UnavailableError):
    """Somebody asked for the end of the query before it came to it."""

    def __init__(self) -> None:
        super().__init__("the query was ended before it had its answer", hint="ask it again")


class QueryMemoryError(UnavailableError):
    """The query needs more memory, or more room for temporary files, than it may use."""
