"""What a piece of SQL is, read without binding or running any of it: one question, and what it names.

DuckDB's own parser says what the statement is. Reading files is refused here by name, and once more by DuckDB itself
when the query runs (protocol.py): binding a `read_csv` would already open the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import duckdb

from headwater.query.failures import nested_too_deeply, usage_error
from headwater.query.model import QueryRefusedError, QueryUsageError
from headwater.query.references import Names, Reference, folded, names_in
from headwater.query.tokens import tokens_of

Fetch = Callable[[str, list[Any]], list[tuple[Any, ...]]]

# With which words a question begins. PRAGMA is missing on purpose: DuckDB's parser takes some of them for SELECTs.
_RESHAPING = frozenset({"PIVOT", "UNPIVOT", "PIVOT_WIDER", "PIVOT_LONGER"})
_ABOUT_TABLES = frozenset({"DESCRIBE", "DESC", "SUMMARIZE"})
_QUESTIONS = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE"}) | _ABOUT_TABLES | _RESHAPING
# Table functions that make rows from their arguments alone.
_HARMLESS = frozenset({"range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree"})
# Functions that show what DuckDB is set to, write into its log, or bind SQL that nobody has checked.
_REFUSED = frozenset({"current_setting", "getvariable", "json_serialize_plan", "write_log"})
# DuckDB's own tables that a query may read; any other name in these schemas is one of the lake, or nothing.
_OWN_TABLES = {
    b"information_schema": frozenset({b"character_sets", b"columns", b"schemata", b"tables"}),
    b"pg_catalog": frozenset({b"pg_attribute", b"pg_class", b"pg_namespace", b"pg_tables", b"pg_type"}),
}
_WORD = re.compile(r"[A-Za-z_]+")


@dataclass(frozen=True)
class Statement:
    """One question. `explained` says how it begins when it only asks how `question` would be answered."""

    question: str
    explained: str
    names: Names
    may_filter: bool

    @property
    def references(self) -> tuple[Reference, ...]:
        """The tables of the lake that it names."""
        return tuple(each for each in self.names.tables if not _is_duckdbs(each))


def read_statement(fetch: Fetch, sql: str) -> Statement:
    """The one question that `sql` is; anything else is refused. `fetch` asks a DuckDB, which needs no tables."""
    explained, question = _split_explain(_only(sql))
    first = _first_word(question)
    if first not in _QUESTIONS and not question.lstrip().startswith("("):
        raise QueryRefusedError(
            f"a query only asks, and {first or 'this'} does more", hint="begin with SELECT, WITH, FROM or VALUES"
        )
    tree = _tree(fetch, question)
    _check_functions(tree)
    return Statement(question, explained, names_in(tree), may_filter=_may_filter(tree))


def read_view(fetch: Fetch, sql: str) -> Statement:
    """The one question that a view asks. How it would be answered, or what a table is like, are no rows of a view."""
    found = read_statement(fetch, sql)
    if found.explained or _first_word(found.question) in _ABOUT_TABLES:
        raise QueryUsageError(
            f"a view is a query, and this one begins with {_first_word(sql)}", hint="begin with SELECT, WITH or FROM"
        )
    return found


def _check_functions(tree: Any) -> None:
    called = {str(node["function"]["function_name"]).lower() for node in _nodes(tree, "TABLE_FUNCTION")}
    if refused := sorted(called - _HARMLESS):
        raise QueryRefusedError(
            f"a query reads tables of the lake alone, and not by {refused[0]}()",
            hint="load the data into a table first",
            function=refused[0],
        )
    if refused := sorted({str(node.get("function_name")).lower() for node in _walk(tree)} & _REFUSED):
        raise QueryRefusedError(f"a query may not call {refused[0]}()", function=refused[0])
    if any(node["table_name"] for node in _nodes(tree, "SHOW_REF")):
        raise QueryUsageError("the query does not say which table it asks about", hint="DESCRIBE a table by its name")


def _is_duckdbs(reference: Reference) -> bool:
    *schema, table = map(folded, reference.parts)
    return len(schema) == 1 and table in _OWN_TABLES.get(schema[0], frozenset())


def _only(sql: str) -> str:
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise usage_error(error) from None
    if not statements:
        raise QueryUsageError("the query is empty", hint="begin with SELECT, WITH, FROM or VALUES")
    if len(statements) > 1:
        if _first_word(sql) in _RESHAPING:
            raise QueryUsageError("PIVOT must say which columns it makes", hint="PIVOT t ON c IN (…)")
        raise QueryUsageError(f"a query is one statement, and these are {len(statements)}", statements=len(statements))
    return sql


def _split_explain(sql: str) -> tuple[str, str]:
    """The beginning by which a statement asks for a plan, and the statement proper."""
    tokens = tokens_of(sql)
    words = [token.text.upper() for token in tokens]
    if not tokens or words[0] != "EXPLAIN":
        return "", sql
    index = 1
    if index < len(tokens) and words[index] in ("ANALYZE", "ANALYSE"):
        index += 1
    if words[index : index + 1] == ["("] and words[index + 1 : index + 2] in (["FORMAT"], ["ANALYZE"]):
        while index < len(tokens) and words[index] != ")":
            index += 1
        index += 1
    data = sql.encode()
    start = tokens[index].at_byte if index < len(tokens) else len(data)
    return data[:start].decode(), _only(data[start:].decode())


def _first_word(sql: str) -> str:
    tokens = tokens_of(sql)
    found = _WORD.match(tokens[0].text) if tokens else None
    return found[0].upper() if found else ""


def _tree(fetch: Fetch, sql: str) -> Any:
    ((text,),) = fetch("SELECT json_serialize_sql(?)", [sql])
    try:
        tree = json.loads(text)
    except RecursionError:
        raise nested_too_deeply() from None
    if tree["error"]:
        raise QueryUsageError(tree["error_message"], hint="a query is one SELECT")
    return tree


def _nodes(tree: Any, kind: str) -> Iterator[dict[str, Any]]:
    return (node for node in _walk(tree) if node.get("type") == kind)


def _walk(tree: Any) -> Iterator[dict[str, Any]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _may_filter(tree: Any) -> bool:
    """Whether anything in it could leave rows out. When in doubt: yes."""
    return any(
        node.get("where_clause")
        or node.get("having")
        or node.get("qualify")
        or node.get("type") in ("JOIN", "SHOW_REF")
        for node in _walk(tree)
    )
