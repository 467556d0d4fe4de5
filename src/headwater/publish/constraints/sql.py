"""The questions by which constraints are judged, as SQL. Nothing here asks.

A question is about all rows, or about some values alone, which a change brought or took away: then it reads the files
that may hold them, and never groups a whole table for the sake of a few rows. Its answer are the rows that are wrong,
a few of them, each as a text that a person can read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.catalog.model import TableKey
from headwater.publish.constraints.values import Shown, Values, table
from headwater.query.types import name, value

EXAMPLES = 3
LONGEST_EXAMPLE = 200
# In a check, `t.a` is the part a of a column t: so the rows are called what no column is.
_ROW = "headwater_row"
_COMMA = ", ', ', "
PRIMARY_KEY = "primary key"
NOT_NULL = "not null"


@dataclass(frozen=True)
class Question:
    """Which rows of a table break a constraint: `sql` gives a text for some of them, and `told` says what is wrong."""

    table: TableKey
    constraint: str
    told: str
    sql: str
    shown: Mapping[TableKey, pa.Table] = field(default_factory=dict)


@dataclass(frozen=True)
class Link:
    """A foreign key with its columns as both tables spell them."""

    name: str
    child: TableKey
    columns: tuple[str, ...]
    parent: TableKey
    parent_columns: tuple[str, ...]


def nulls(key: TableKey, column: str, shown_as: Sequence[str]) -> Question:
    """Rows that have no value where there must be one."""
    sql = f"SELECT {_example(shown_as, 't')} FROM {table(key)} AS t WHERE t.{name(column)} IS NULL"
    return Question(key, NOT_NULL, f"column {column} is null in the row with", _few(sql))


def failing(
    key: TableKey, constraint: str, expression: str, shown_as: Sequence[str], *, among: Shown | None = None
) -> Question:
    """Rows for which a check is false."""
    source = table(among.key if among else key)
    sql = f"SELECT {_example(shown_as, _ROW)} FROM {source} AS {_ROW} WHERE NOT ({expression})"
    return Question(key, constraint, f"{expression} is false for", _few(sql), _shown(among))


def shared(
    key: TableKey, constraint: str, columns: Sequence[str], *, at_most: int = 1, among: Values | None = None
) -> Question:
    """Values that more rows share than may."""
    own = _columns("t", columns)
    some = f" AND ({', '.join(own)}) IN (SELECT {_keys('s', columns)} FROM {among.source})" if among else ""
    bounds = among.bounds(own) if among else ""
    sql = (
        f"SELECT {_example(columns, 't')} FROM {table(key)} AS t WHERE {_given(own)}{bounds}{some} "
        f"GROUP BY {', '.join(own)} HAVING count(*) > {at_most}"
    )
    rows = "more than one row has" if at_most == 1 else f"more than {at_most} rows have"
    return Question(key, constraint, rows, _few(sql), _shown(among))


def orphans(link: Link, *, among: Values | None = None) -> Question:
    """Values of the child that no row of the parent has."""
    source = among.source if among else _distinct(link.child, link.columns)
    sql = f"SELECT {_example(link.columns, 's', keys=True)} FROM {source} WHERE NOT {_exists(link, among)}"
    told = f"{link.parent} has no row for"
    return Question(link.child, link.name, told, _few(sql), _shown(among))


def abandoned(link: Link, among: Values) -> Question:
    """Keys that the parent has lost while rows of the child still have them."""
    own = _columns("c", link.columns)
    referred = f"EXISTS (SELECT 1 FROM {table(link.child)} AS c WHERE {_matches(own)}{among.bounds(own)})"
    sql = f"SELECT {_example(link.parent_columns, 's', keys=True)} FROM {among.source} WHERE {referred}"
    told = f"rows refer to rows that are gone from {link.parent}:"
    return Question(link.child, link.name, told, _few(sql), _shown(among))


def lonely(link: Link, constraint: str, at_least: int, *, among: Values | None = None) -> Question:
    """Rows of the parent that too few rows of the child refer to."""
    own = _columns("c", link.columns)
    source = among.source if among else _distinct(link.parent, link.parent_columns)
    there = _exists(link, among) if among else "TRUE"
    bounds = among.bounds(own) if among else ""
    keys = _keys("s", own)
    sql = (
        f"SELECT {_example(link.parent_columns, 's', keys=True)} FROM {source} "
        f"LEFT JOIN {table(link.child)} AS c ON {_matches(own)}{bounds} WHERE {there} "
        f"GROUP BY {keys} HAVING count({own[0]}) < {at_least}"
    )
    told = f"there are fewer than {at_least} rows for the row of {link.parent} with"
    return Question(link.child, constraint, told, _few(sql), _shown(among))


def combined(questions: Sequence[Question]) -> str:
    """All of them as one: each row of the answer says which question it belongs to."""
    parts = (
        f"(SELECT {place} AS question, example FROM ({each.sql}) AS q{place})" for place, each in enumerate(questions)
    )
    return " UNION ALL ".join(parts)


def _few(sql: str) -> str:
    return f"SELECT * FROM ({sql}) AS wrong ORDER BY ALL LIMIT {EXAMPLES}"


def _example(columns: Sequence[str], alias: str, *, keys: bool = False) -> str:
    """A text that names a row by these columns."""
    given = [f"{alias}.k{place}" if keys else f"{alias}.{name(each)}" for place, each in enumerate(columns)]
    parts = (
        f"{value(f'{each} = ')}, coalesce(CAST({from_} AS VARCHAR), 'null')"
        for each, from_ in zip(columns, given, strict=True)
    )
    return f"left(concat({_COMMA.join(parts)}), {LONGEST_EXAMPLE}) AS example"


def _columns(alias: str, columns: Sequence[str]) -> list[str]:
    return [f"{alias}.{name(each)}" for each in columns]


def _keys(alias: str, columns: Sequence[str]) -> str:
    return ", ".join(f"{alias}.k{place}" for place in range(len(columns)))


def _given(columns: Sequence[str]) -> str:
    return " AND ".join(f"{each} IS NOT NULL" for each in columns)


def _matches(columns: Sequence[str]) -> str:
    return " AND ".join(f"{each} = s.k{place}" for place, each in enumerate(columns))


def _distinct(key: TableKey, columns: Sequence[str]) -> str:
    own = _columns("t", columns)
    named = ", ".join(f"{each} AS k{place}" for place, each in enumerate(own))
    return f"(SELECT DISTINCT {named} FROM {table(key)} AS t WHERE {_given(own)}) AS s"


def _exists(link: Link, among: Values | None) -> str:
    own = _columns("p", link.parent_columns)
    bounds = among.bounds(own) if among else ""
    return f"EXISTS (SELECT 1 FROM {table(link.parent)} AS p WHERE {_matches(own)}{bounds})"


def _shown(among: Shown | None) -> Mapping[TableKey, pa.Table]:
    return {among.key: among.rows} if among else {}
