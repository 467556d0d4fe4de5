"""Which tables and views the SQL means, followed through views; nothing else is opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches

import duckdb

from headwater.catalog.model import TableKey
from headwater.catalog.names import DEFAULT_NAMESPACE
from headwater.kernel.errors import UsageError
from headwater.query.failures import about
from headwater.query.model import OpenTable, OpenView, Pending, QueryUsageError, TableSource
from headwater.query.statement import Reference, Statement, qualify_nested, read_statement
from headwater.query.views import view_sql

_SUGGESTIONS = 3


@dataclass(frozen=True)
class NamedView:
    """A view that the query uses, in DuckDB's words."""

    sql: str
    columns: tuple[str, ...]


@dataclass
class Resolved:
    """What the query uses. Views stand behind everything that they use themselves."""

    tables: dict[TableKey, OpenTable] = field(default_factory=dict)
    views: dict[TableKey, NamedView] = field(default_factory=dict)
    question: str = ""


def resolve(parser: duckdb.DuckDBPyConnection, statement: Statement, source: TableSource, pending: Pending) -> Resolved:
    """Open every table that the statement needs."""
    resolver = _Resolver(parser, source, pending)
    resolver.resolved.question = resolver.follow(statement, ())
    return resolver.resolved


class _Resolver:
    def __init__(self, parser: duckdb.DuckDBPyConnection, source: TableSource, pending: Pending) -> None:
        self._parser = parser
        self._source = source
        self._pending = pending
        self._known: list[TableKey] | None = None
        self._spelled: dict[str, TableKey] = {}
        self.resolved = Resolved()

    def follow(self, statement: Statement, within: tuple[TableKey, ...]) -> str:
        """Open what the statement names; returns it with names as DuckDB takes them."""
        nested = []
        for reference in sorted(statement.references, key=str):
            key = self._key(reference)
            found = self._open(key)
            if found is None and (other := self._otherwise_spelled(key)) is not None:
                key, found = other, self._open(other)
            if found is None:
                if len(reference.parts) == 1 and reference.parts[0].lower() in statement.ctes:
                    continue
                raise self._unknown(key)
            if len(reference.parts) > 2:
                nested.append(reference.parts)
            self._keep(key, found, within)
        return qualify_nested(statement.question, nested)

    def _keep(self, key: TableKey, found: OpenTable | OpenView, within: tuple[TableKey, ...]) -> None:
        other = self._spelled.setdefault(str(key).lower(), key)
        if other != key:
            raise QueryUsageError(f"{key} and {other} differ in capitals alone, and SQL cannot tell them apart")
        if isinstance(found, OpenTable):
            self.resolved.tables[key] = found
            return
        if key in within:
            raise QueryUsageError(f"view {key} uses itself", view=str(key))
        if key not in self.resolved.views:
            with about(str(key)):
                inner = read_statement(self._parser, view_sql(found, str(key)))
            sql = self.follow(inner, (*within, key))
            self.resolved.views[key] = NamedView(sql, found.columns)

    def _open(self, key: TableKey) -> OpenTable | OpenView | None:
        if key in self._pending.overrides:
            return OpenTable(self._pending.overrides[key])
        return self._source.open(key)

    def _key(self, reference: Reference) -> TableKey:
        *namespace, table = reference.parts
        elements = tuple(part for each in namespace for part in each.split(".")) or (DEFAULT_NAMESPACE,)
        try:
            return TableKey(elements, table)
        except UsageError:
            raise QueryUsageError(f"there is no table {reference}", table=str(reference)) from None

    def _names(self) -> list[TableKey]:
        if self._known is None:
            self._known = sorted({*self._source.names(), *self._pending.overrides})
        return self._known

    def _otherwise_spelled(self, key: TableKey) -> TableKey | None:
        found = [each for each in self._names() if str(each).lower() == str(key).lower()]
        return found[0] if len(found) == 1 else None

    def _unknown(self, key: TableKey) -> QueryUsageError:
        by_text = {_short(each).lower(): each for each in self._names()}
        near = get_close_matches(_short(key).lower(), by_text, _SUGGESTIONS, 0.5)
        near += [text for text, each in by_text.items() if each.name.lower() == key.name.lower() and text not in near]
        shown = ", ".join(_short(by_text[text]) for text in near[:_SUGGESTIONS])
        hint = f"did you mean {shown}?" if shown else "list the tables to see what is there"
        return QueryUsageError(f"there is no table {_short(key)}", hint=hint, table=str(key))


def _short(key: TableKey) -> str:
    return key.name if key.namespace == (DEFAULT_NAMESPACE,) else str(key)
