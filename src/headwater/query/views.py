"""Stored views in DuckDB's words. What is in its dialect already is never rewritten by any parser but its own."""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from headwater.query.model import OpenView
from headwater.tables.model import UnsupportedTableError

DUCKDB = "duckdb"


def view_sql(view: OpenView, name: str) -> str:
    """The view's query as DuckDB understands it; names without a namespace stay without one."""
    dialect = view.dialect.lower()
    if dialect == DUCKDB:
        return view.sql
    try:
        statements = sqlglot.parse(view.sql, read=dialect)
    except (SqlglotError, ValueError, RecursionError) as error:
        raise UnsupportedTableError(
            f"view {name} cannot be translated from {view.dialect}: {(str(error).splitlines() or [''])[0]}",
            hint="store it with a representation in the dialect duckdb",
            view=name,
            dialect=view.dialect,
        ) from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise UnsupportedTableError(f"view {name} is not one query", view=name)
    for table in list(statements[0].find_all(exp.Table)):
        _join_namespace(table)
    return statements[0].sql(dialect=DUCKDB)


def _join_namespace(table: exp.Table) -> None:
    """Write the namespace as one name: DuckDB's grammar has no room for those of many parts."""
    namespace = [part.name for part in table.parts[:-1]]
    if isinstance(table.this, exp.Identifier | exp.Dot) and namespace:
        table.set("this", exp.to_identifier(table.parts[-1].name, quoted=True))
        table.set("catalog", None)
        table.set("db", exp.to_identifier(".".join(namespace), quoted=True))
