"""The names in a piece of SQL: which of them mean tables, and how they are written for DuckDB.

A name means a common table expression only where that is in scope, and its scope is DuckDB's own: the query that
declares it and what is declared after it; itself only in the recursive part. A name that we took for one and DuckDB did
not would be looked up among DuckDB's own tables, and then among files.

Names are changed in the text, at the place where DuckDB's parser found them; all the rest stays as it was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headwater.query.model import QueryUsageError
from headwater.query.tokens import tokens_of
from headwater.query.types import name

DATABASE = "memory"
# What a namespace must not be called within DuckDB: its own schemas, and ours.
INTERNAL = "headwater internal"
_TAKEN = frozenset({b"information_schema", b"pg_catalog", INTERNAL.encode()})
_MADE = "namespace "
# A name of two parts that begins like this could be a database of DuckDB's.
_DATABASES = frozenset({DATABASE.encode(), b"temp", b"system", b"main"})
_RECURRING = b"recurring"


@dataclass(frozen=True)
class Reference:
    """A table or column as the SQL names it, in its parts, and where."""

    parts: tuple[str, ...]
    at_byte: int

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True)
class Names:
    """What a statement names. `called` holds every alias and table name that a column may begin with, folded."""

    tables: tuple[Reference, ...]
    columns: tuple[Reference, ...]
    called: frozenset[bytes]


def folded(text: str) -> bytes:
    """A name without its capitals, as DuckDB compares them: only the letters of ASCII have any."""
    return text.encode(errors="surrogatepass").lower()


def schema_of(namespace: tuple[str, ...]) -> str:
    """What a namespace is called within DuckDB. No two have one name."""
    text = ".".join(namespace)
    return _MADE + text if folded(text) in _TAKEN or text.lower().startswith(_MADE) else text


def is_found_as_written(reference: Reference, namespace: tuple[str, ...], *, within_view: bool) -> bool:
    """Whether DuckDB finds the table of this namespace as it is named. Views have search paths of their own."""
    *said, _table = reference.parts
    if not said:
        return not within_view
    return len(said) == 1 and folded(said[0]) == folded(schema_of(namespace)) and folded(said[0]) not in _DATABASES


def names_in(tree: Any) -> Names:
    """Every name in the parsed statement that may mean a table or a column."""
    tables, columns, called = [], [], set()
    for node, scope in _scoped(tree):
        kind = node.get("type")
        if kind == "COLUMN_REF":
            columns.append(Reference(tuple(node["column_names"]), node["query_location"]))
        if isinstance(node.get("alias"), str):
            called.add(folded(node["alias"]))
        if kind == "BASE_TABLE":
            if node["schema_name"] == "":
                called.add(folded(node["table_name"]))
            if not _is_cte(node, scope):
                tables.append(_reference(node))
    return Names(tuple(tables), tuple(columns), frozenset(called))


def respelled(sql: str, names: Names, schemas: Mapping[Reference, str]) -> str:
    """`sql` in which these tables are named by their schema within DuckDB, and so are columns that begin with them."""
    if not schemas:
        return sql
    changes: dict[int, tuple[Reference, int, str]] = {}
    for table, schema in schemas.items():
        changes[table.at_byte] = (table, len(table.parts), f"{name(DATABASE)}.{name(schema)}.{name(table.parts[-1])}")
    for column in names.columns:
        for table, schema in schemas.items():
            if _begins_with(column, table) and folded(column.parts[0]) not in names.called:
                changes[column.at_byte] = (column, len(table.parts), f"{name(schema)}.{name(table.parts[-1])}")
    return _spliced(sql, changes)


def _spliced(sql: str, changes: Mapping[int, tuple[Reference, int, str]]) -> str:
    data, tokens = sql.encode(), tokens_of(sql)
    places = {token.at_byte: index for index, token in enumerate(tokens)}
    out, done = b"", 0
    for at_byte, (reference, parts, text) in sorted(changes.items(), key=lambda each: each[0]):
        first = places.get(at_byte)
        found = [] if first is None else tokens[first : first + 2 * parts - 1]
        if [_unquoted(each.text) for each in found[::2]] != [folded(each) for each in reference.parts[:parts]]:
            raise QueryUsageError(f"the name {reference} cannot be read", hint="write it with plain quotation marks")
        out += data[done:at_byte] + text.encode()
        done = found[-1].at_byte + len(found[-1].text.encode())
    return (out + data[done:]).decode()


def _unquoted(text: str) -> bytes:
    return folded(text[1:-1].replace(text[0] * 2, text[0]) if text.startswith(('"', "'")) else text)


def _begins_with(column: Reference, table: Reference) -> bool:
    size = len(table.parts)
    return 1 < size < len(column.parts) and [*map(folded, column.parts[:size])] == [*map(folded, table.parts)]


def _scoped(tree: Any) -> Iterator[tuple[dict[str, Any], frozenset[bytes]]]:
    """Every node, with the names of the common table expressions that it can see."""
    waiting: list[tuple[Any, frozenset[bytes]]] = [(tree, frozenset())]
    while waiting:
        node, scope = waiting.pop()
        if isinstance(node, list):
            waiting.extend((each, scope) for each in node)
        elif isinstance(node, dict):
            yield node, scope
            for each in (node.get("cte_map") or {}).get("map") or ():
                waiting.append((each["value"], scope))
                scope |= {folded(each["key"])}
            for key, value in node.items():
                itself = node.get("type") == "RECURSIVE_CTE_NODE" and key == "right"
                if key != "cte_map":
                    waiting.append((value, scope | {folded(node["cte_name"])} if itself else scope))


def _is_cte(node: Mapping[str, Any], scope: frozenset[bytes]) -> bool:
    schema = folded(node["schema_name"])
    return not node["catalog_name"] and schema in (b"", _RECURRING) and folded(node["table_name"]) in scope


def _reference(node: Mapping[str, Any]) -> Reference:
    if node.get("at_clause"):
        raise QueryUsageError(
            f"{node['table_name']} AT (…) is not known here", hint="ask for the whole lake at a hash or a time: `at`"
        )
    parts = (node[key] for key in ("catalog_name", "schema_name", "table_name"))
    return Reference(tuple(part for part in parts if part), node["query_location"])
