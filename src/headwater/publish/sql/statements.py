"""Statements that change tables: INSERT, UPDATE, DELETE and MERGE, each as one typed value whose parts are SQL.

What a statement needs to know of rows it asks by SELECTs, which `query/` runs over committed and pending rows. `given`
is the WITH in front of a statement, for every SELECT that it asks.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.catalog.model import TableKey
from headwater.kernel.errors import UsageError


class StatementError(UsageError):
    """The SQL is not a statement that can be run in a transaction; says where."""


@dataclass(frozen=True)
class Insert:
    """Add rows: `columns` are those that the source gives, all of them when None; or they go by the source's names."""

    table: TableKey
    columns: tuple[str, ...] | None
    source: str
    by_name: bool = False
    given: str = ""


@dataclass(frozen=True)
class Update:
    """Set columns of the rows that match; `others` is the SQL of what else the FROM names."""

    table: TableKey
    alias: str
    settings: tuple[tuple[str, str], ...]
    others: str
    where: str | None
    given: str = ""


@dataclass(frozen=True)
class DeleteRows:
    """Delete the rows that match."""

    table: TableKey
    alias: str
    others: str
    where: str | None
    given: str = ""


@dataclass(frozen=True)
class When:
    """One WHEN of a merge: of rows that match, of rows of the source alone, or (`by_source`) of the table alone.

    `settings` are of an update or insert; None deletes. One that does nothing keeps rows from those behind it.
    """

    matched: bool
    condition: str | None
    settings: tuple[tuple[str, str], ...] | None
    all_columns: bool = False
    by_source: bool = False
    does_nothing: bool = False

    @property
    def kind(self) -> tuple[bool, bool]:
        """Those of one kind are about the same rows."""
        return self.matched, self.by_source

    @property
    def finds_rows(self) -> bool:
        """Whether it is about rows of the table; otherwise about rows that it does not have yet."""
        return self.matched or self.by_source


@dataclass(frozen=True)
class Merge:
    """Lay a source over a table. One `is_fickle` that might have other rows when it is asked again."""

    table: TableKey
    alias: str
    source: str
    source_alias: str
    on: str
    whens: tuple[When, ...]
    given: str = ""
    is_fickle: bool = False


Statement = Insert | Update | DeleteRows | Merge
