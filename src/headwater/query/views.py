"""Stored views in DuckDB's words: unqualified names get the view's own namespace, other dialects are translated."""

from __future__ import annotations

from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import traverse_scope

from headwater.catalog.names import DEFAULT_NAMESPACE
from headwater.query.model import OpenView
from headwater.tables.model import UnsupportedTableError

DUCKDB = "duckdb"


def view_sql(view: OpenView, name: str) -> str:
    """The view's query as DuckDB understands it."""
    dialect = view.dialect.lower()
    if dialect == DUCKDB and view.default_namespace == (DEFAULT_NAMESPACE,):
        return view.sql
    try:
        statements = sqlglot.parse(view.sql, read=dialect)
    except (SqlglotError, ValueError) as error:
        raise UnsupportedTableError(
            f"view {name} cannot be translated from {view.dialect}: {str(error).splitlines()[0]}",
            hint="store it with a representation in the dialect duckdb",
            view=name,
            dialect=view.dialect,
        ) from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise UnsupportedTableError(f"view {name} is not one query", view=name)
    query = statements[0]
    _qualify(query, view.default_namespace)
    return query.sql(dialect=DUCKDB)


def _qualify(query: exp.Query, namespace: tuple[str, ...]) -> None:
    """Write the namespace of every table as one quoted name; names of common table expressions stay."""
    ours: set[int] = set()
    for scope in traverse_scope(query):
        ours |= {id(source) for source in scope.sources.values() if isinstance(source, exp.Table)}
    for table in list(query.find_all(exp.Table)):
        if not isinstance(table.this, exp.Identifier):
            continue
        parts: list[Any] = [part.name for part in table.parts]
        if len(parts) > 1:
            _set_namespace(table, tuple(parts[:-1]))
        elif id(table) in ours or not _is_cte(table):
            _set_namespace(table, namespace)


def _is_cte(table: exp.Table) -> bool:
    """Whether an unqualified name means a common table expression of a query around it."""
    node: Any = table
    while node is not None:
        ctes = node.args.get("with_") or node.args.get("with")
        if ctes is not None and any(each.alias == table.name for each in ctes.expressions):
            return True
        node = node.parent
    return False


def _set_namespace(table: exp.Table, namespace: tuple[str, ...]) -> None:
    table.set("catalog", None)
    table.set("db", exp.to_identifier(".".join(namespace), quoted=True))
