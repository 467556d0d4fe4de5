"""Which tables and views the SQL means, followed through views; nothing else is opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches

from headwater.catalog.model import TableKey
from headwater.catalog.names import DEFAULT_NAMESPACE
from headwater.kernel.errors import UsageError
from headwater.query.failures import about
from headwater.query.model import OpenTable, OpenView, Pending, QueryUsageError, TableSource
from headwater.query.references import Reference, folded, is_found_as_written, respelled, schema_of
from headwater.query.statement import Fetch, Statement, read_view
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


def resolve(fetch: Fetch, statement: Statement, source: TableSource, pending: Pending) -> Resolved:
    """Open every table that the statement needs. `fetch` asks a DuckDB, which needs no tables."""
    resolver = _Resolver(fetch, source, pending)
    resolver.resolved.question = resolver.follow(statement, (), (DEFAULT_NAMESPACE,))
    return resolver.resolved


class _Resolver:
    def __init__(self, fetch: Fetch, source: TableSource, pending: Pending) -> None:
        self._fetch = fetch
        self._source = source
        self._pending = pending
        self._known: list[TableKey] | None = None
        self._spelled: dict[bytes, TableKey] = {}
        self.resolved = Resolved()

    def follow(self, statement: Statement, within: tuple[TableKey, ...], default: tuple[str, ...]) -> str:
        """Open what the statement names, beginning in the namespace `default`; returns it with names for DuckDB."""
        schemas = {}
        for reference in sorted(statement.references, key=str):
            key = self._key(reference, default)
            found = self._open(key)
            if found is None and (other := self._otherwise_spelled(key)) is not None:
                key, found = other, self._open(other)
            if found is None:
                raise self._unknown(key)
            if not is_found_as_written(reference, key.namespace, within_view=bool(within)):
                schemas[reference] = schema_of(key.namespace)
            self._keep(key, found, within)
        return respelled(statement.question, statement.names, schemas)

    def _keep(self, key: TableKey, found: OpenTable | OpenView, within: tuple[TableKey, ...]) -> None:
        other = self._spelled.setdefault(folded(str(key)), key)
        if other != key:
            raise QueryUsageError(f"{key} and {other} differ in capitals alone, and SQL cannot tell them apart")
        if isinstance(found, OpenTable):
            self.resolved.tables[key] = found
            return
        if key in within:
            raise QueryUsageError(f"view {key} uses itself", view=str(key))
        if key not in self.resolved.views:
            with about(str(key)):
                inner = read_view(self._fetch, view_sql(found, str(key)))
            sql = self.follow(inner, (*within, key), found.default_namespace)
            self.resolved.views[key] = NamedView(sql, found.columns)

    def _open(self, key: TableKey) -> OpenTable | OpenView | None:
        if key in self._pending.overrides:
            return OpenTable(self._pending.overrides[key])
        return self._source.open(key)

    def _key(self, reference: Reference, default: tuple[str, ...]) -> TableKey:
        *namespace, table = reference.parts
        elements = tuple(part for each in namespace for part in each.split(".")) or default
        try:
            return TableKey(elements, table)
        except UsageError:
            raise QueryUsageError(f"there is no table {reference}", table=str(reference)) from None

    def _names(self) -> list[TableKey]:
        if self._known is None:
            self._known = sorted({*self._source.names(), *self._pending.overrides})
        return self._known

    def _otherwise_spelled(self, key: TableKey) -> TableKey | None:
        found = [each for each in self._names() if folded(str(each)) == folded(str(key))]
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
