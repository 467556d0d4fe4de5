"""What a piece of SQL is, read without binding or running any of it: one question, and the tables that it names.

DuckDB's own parser says what the statement is. Reading files is refused here by name, and once more by DuckDB itself
when the query runs (protocol.py): binding a `read_csv` would already open the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from headwater.query.failures import usage_error
from headwater.query.model import QueryRefusedError, QueryUsageError

# With which words a question begins. PRAGMA is missing on purpose: DuckDB's parser takes some of them for SELECTs.
_QUESTIONS = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE", "DESCRIBE", "DESC", "SUMMARIZE"})
_RESHAPING = frozenset({"PIVOT", "UNPIVOT", "PIVOT_WIDER", "PIVOT_LONGER"})
# Table functions that make rows from their arguments alone.
_HARMLESS = frozenset({"range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree"})
_OWN_SCHEMAS = frozenset({"information_schema", "pg_catalog"})
_WORD = re.compile(r"[A-Za-z_]+")


@dataclass(frozen=True)
class Reference:
    """A table as the SQL names it: one to three parts."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True)
class Statement:
    """One question. `explained` says how it begins when it only asks how `question` would be answered."""

    question: str
    explained: str
    references: frozenset[Reference]
    ctes: frozenset[str]
    may_filter: bool


def read_statement(parser: duckdb.DuckDBPyConnection, sql: str) -> Statement:
    """The one question that `sql` is; anything else is refused. `parser` needs no tables."""
    explained, question = _split_explain(_only(sql))
    first = _first_word(question)
    if first not in _QUESTIONS | _RESHAPING and not question.lstrip().startswith("("):
        raise QueryRefusedError(
            f"a query only asks, and {first or 'this'} does more", hint="begin with SELECT, WITH, FROM or VALUES"
        )
    tree = _tree(parser, question)
    functions = {str(node["function"]["function_name"]).lower() for node in _nodes(tree, "TABLE_FUNCTION")}
    if refused := sorted(functions - _HARMLESS):
        raise QueryRefusedError(
            f"a query reads tables of the lake alone, and not by {refused[0]}()",
            hint="load the data into a table first",
            function=refused[0],
        )
    references = {_reference(node) for node in _nodes(tree, "BASE_TABLE")}
    return Statement(
        question,
        explained,
        frozenset(each for each in references if each.parts[0].lower() not in _OWN_SCHEMAS),
        frozenset(_cte_names(tree)),
        may_filter=_may_filter(tree),
    )


def qualify_nested(sql: str, nested: Sequence[tuple[str, ...]]) -> str:
    """`sql` with `a.b.t` written as `"a.b".t` for each of these names: DuckDB would take `a` for a database."""
    tokens = _tokens(sql)
    out, at, index = [], 0, 0
    while index < len(tokens):
        match = next((name for name in nested if _matches(tokens, index, name)), None)
        if match is None:
            index += 1
            continue
        namespace = ".".join(match[:-1]).replace('"', '""')
        last = tokens[index + 2 * len(match) - 2]
        out += [sql[at : tokens[index][0]], f'"{namespace}".']
        at = last[0]
        index += 2 * len(match) - 1
    return "".join([*out, sql[at:]])


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
    tokens = _tokens(sql)
    if not tokens or tokens[0][1].upper() != "EXPLAIN":
        return "", sql
    index = 1
    if index < len(tokens) and tokens[index][1].upper() in ("ANALYZE", "ANALYSE"):
        index += 1
    if index < len(tokens) and tokens[index][1] == "(" and tokens[index + 1][1].upper() in ("FORMAT", "ANALYZE"):
        while index < len(tokens) and tokens[index][1] != ")":
            index += 1
        index += 1
    start = tokens[index][0] if index < len(tokens) else len(sql)
    return sql[:start], _only(sql[start:])


def _first_word(sql: str) -> str:
    tokens = _tokens(sql)
    found = _WORD.match(tokens[0][1]) if tokens else None
    return found[0].upper() if found else ""


def _tokens(sql: str) -> list[tuple[int, str]]:
    """Start and text of each token, comments left out. DuckDB counts bytes."""
    data = sql.encode()
    starts = [start for start, kind in duckdb.tokenize(sql) if kind.name != "comment"]
    tokens = []
    for start, end in zip(starts, [*starts[1:], len(data)], strict=True):
        text = data[start:end].decode(errors="replace")
        tokens.append((len(data[:start].decode(errors="replace")), _trimmed(text)))
    return tokens


def _trimmed(text: str) -> str:
    """The token without the white space and comments that follow it."""
    if text.startswith(('"', "'")):
        end = text.rfind(text[0])
        return text[: end + 1]
    return re.split(r"\s|--|/\*", text, maxsplit=1)[0]


def _matches(tokens: list[tuple[int, str]], index: int, name: tuple[str, ...]) -> bool:
    length = 2 * len(name) - 1
    texts = [text for _, text in tokens[index : index + length]]
    if len(texts) < length or (index > 0 and tokens[index - 1][1] == "."):
        return False
    return all(text == "." for text in texts[1::2]) and tuple(map(_unquoted, texts[::2])) == tuple(
        part.lower() for part in name
    )


def _unquoted(text: str) -> str:
    return (text[1:-1].replace('""', '"') if text.startswith('"') else text).lower()


def _tree(parser: duckdb.DuckDBPyConnection, sql: str) -> Any:
    found = parser.execute("SELECT json_serialize_sql(?)", [sql]).fetchone()
    assert found is not None
    tree = json.loads(found[0])
    if tree["error"]:
        raise QueryUsageError(tree["error_message"], hint="a query is one SELECT")
    return tree


def _nodes(tree: Any, kind: str) -> Iterator[dict[str, Any]]:
    for node in _walk(tree):
        if node.get("type") == kind:
            yield node


def _walk(tree: Any) -> Iterator[dict[str, Any]]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _reference(node: dict[str, Any]) -> Reference:
    if node.get("at_clause"):
        raise QueryUsageError(
            f"{node['table_name']} AT (…) is not known here", hint="ask for the whole lake at a hash or a time: `at`"
        )
    return Reference(tuple(part for key in ("catalog_name", "schema_name", "table_name") if (part := node[key])))


def _cte_names(tree: Any) -> Iterator[str]:
    for node in _walk(tree):
        ctes = node.get("cte_map")
        if isinstance(ctes, dict):
            yield from (str(each["key"]).lower() for each in ctes.get("map") or ())


def _may_filter(tree: Any) -> bool:
    """Whether anything in it could leave rows out. When in doubt: yes."""
    return any(
        node.get("where_clause")
        or node.get("having")
        or node.get("qualify")
        or node.get("type") in ("JOIN", "SHOW_REF")
        for node in _walk(tree)
    )
