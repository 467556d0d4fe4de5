"""The SQL of statements and of checks: DuckDB's, as sqlglot reads it and says it again.

DuckDB is asked what sqlglot says again, so that has to mean what was written, or be refused.
"""

from __future__ import annotations

from sqlglot import ErrorLevel, exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import UnsupportedError

from headwater.kernel.errors import UsageError


class AsWritten(DuckDB):
    """DuckDB's, whose JSON paths are not made into others: the key `a.b` would become `b` within `a`."""

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        """The path as it stands."""
        return path


def said(tree: exp.Expr, *, comments: bool = True) -> str:
    """The SQL of it. An argument that DuckDB does not know is refused: left out, the rest would mean something else."""
    try:
        return tree.sql(dialect=AsWritten, comments=comments, unsupported_level=ErrorLevel.RAISE)
    except UnsupportedError as error:
        what, _, _ = str(error).partition(" when targeting")
        raise UsageError(f"DuckDB cannot say this: {what}", hint="use a function that DuckDB has") from None
