"""Rows that differ between versions of a table, asked of DuckDB on the files that differ.

Data files that all versions have with the same deletes hold the same rows in each, so they are not read. A primary key
is unique in every version, so a row that differs has no other row of its key in those files.

Values are compared so that null equals null and NaN equals NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata

from headwater import query
from headwater.catalog.model import TableKey
from headwater.publish.branches.decide import differing_files
from headwater.publish.branches.documents import primary_key
from headwater.publish.branches.model import MOST_KEYS_NAMED, Conflict
from headwater.publish.sql.selects import FILE, POSITION, ROW_ID, WAS, Shape
from headwater.publish.sql.working import WorkingTable
from headwater.query import OpenTable, QueryOptions
from headwater.query.types import name
from headwater.tables.files import Files
from headwater.tables.model import FILE_COLUMN, POSITION_COLUMN, ROW_ID_COLUMN
from headwater.tables.scan import plan_scan

_SOURCE, _TARGET = (TableKey(("merge",), each) for each in ("source", "target"))
# Names that no column of a table has.
_THERE, _CONFLICT, _STAYS = "__headwater_there", "__headwater_conflict", "__headwater_stays"
_KEY = "__headwater_key_"


@dataclass(frozen=True)
class Asking:
    """What asking about rows needs."""

    files: Files
    options: QueryOptions


def changed_rows(
    asking: Asking, bases: Sequence[TableMetadata], source: TableMetadata, target: WorkingTable
) -> Conflict | None:
    """Lay over the target what the source changed since the base, unless a row stands in the way.

    Of several bases all must say that the source alone changed a row. Bases and source are given in the shape that the
    target has.
    """
    metadata, key = target.version.metadata, target.shape.table
    sides = {_SOURCE: source, _TARGET: metadata, **{_base(place): each for place, each in enumerate(bases)}}
    files = differing_files([plan_scan(asking.files, each).tasks for each in sides.values()])
    tables = {side: OpenTable(each, None, only) for (side, each), only in zip(sides.items(), files, strict=True)}
    keys = primary_key(metadata)
    twice = _ask(asking, tables, " UNION ALL ".join(_repeated(each, keys) for each in sides))
    if twice.num_rows:
        return Conflict(key, "has several rows of one primary key", _named(twice.slice(0, MOST_KEYS_NAMED), keys))
    found = _ask(asking, tables, _question(target.shape, keys, len(bases)), positions=_TARGET)
    conflicts = found.filter(found[_CONFLICT])
    if conflicts.num_rows:
        reason = f"has rows that both sides changed in different ways, {conflicts.num_rows} in all"
        return Conflict(key, reason, _named(conflicts.slice(0, MOST_KEYS_NAMED), keys, prefix=_KEY))
    target.remove(found.filter(found[FILE].is_valid()))
    added = found.filter(found[_STAYS])
    ids = added[ROW_ID] if target.shape.keeps_ids else None
    target.append(added.select(list(target.shape.columns)), ids)
    return None


def rows_of_differing_files(
    asking: Asking, old: TableMetadata, new: TableMetadata, columns: Sequence[str]
) -> tuple[pa.Table, pa.Table]:
    """These columns of the rows that the old version has and of those that the new one has, where their files differ.

    A row that only moved from file to file is in both.
    """
    plans = [plan_scan(asking.files, each).tasks for each in (old, new)]
    files = differing_files(plans)
    tables = {_TARGET: OpenTable(old, None, files[0]), _SOURCE: OpenTable(new, None, files[1])}
    chosen = ", ".join(name(each) for each in columns)
    return (
        _ask(asking, tables, f"SELECT {chosen} FROM {_sql(_TARGET)}"),
        _ask(asking, tables, f"SELECT {chosen} FROM {_sql(_SOURCE)}"),
    )


def _question(shape: Shape, keys: Sequence[str], base_count: int) -> str:
    """Every row that the source changed and that is not on the target what it is on the source."""
    columns, bases = shape.columns, [f"b{place}" for place in range(base_count)]
    changed = " OR ".join(_differ("s", each, columns) for each in bases)
    alone = " AND ".join(f"({_differ('s', each, columns)}) AND NOT ({_differ('t', each, columns)})" for each in bases)
    found = [
        f"NOT ({alone}) AS {_CONFLICT}",
        f"s.{_THERE} IS NOT NULL AS {_STAYS}",
        f"t.{FILE_COLUMN} AS {FILE}",
        f"t.{POSITION_COLUMN} AS {POSITION}",
        *([f"t.{ROW_ID_COLUMN} AS {ROW_ID}"] if shape.keeps_ids else []),
        *(f"{_either(['s', *bases], each)} AS {name(_KEY + each)}" for each in keys),
        *(f"s.{name(each)} AS {name(each)}" for each in columns),
        *(f"t.{name(each)} AS {name(WAS + each)}" for each in shape.needed),
    ]
    joined, known = _there(_SOURCE, "s"), ["s"]
    for place, each in enumerate(bases):
        joined += f" FULL JOIN {_there(_base(place), each)} ON {_same(known, each, keys)}"
        known.append(each)
    order = ", ".join(name(_KEY + each) for each in keys)
    return (
        f"SELECT {', '.join(found)} FROM {joined} LEFT JOIN {_there(_TARGET, 't')} ON {_same(known, 't', keys)} "
        f"WHERE ({changed}) AND ({_differ('s', 't', columns)}) ORDER BY {order}"
    )


def _base(place: int) -> TableKey:
    return TableKey(("merge",), f"base{place}")


def _there(side: TableKey, alias: str) -> str:
    return f"(SELECT TRUE AS {_THERE}, * FROM {_sql(side)}) AS {alias}"


def _same(known: Sequence[str], other: str, keys: Sequence[str]) -> str:
    return " AND ".join(f"{_either(known, each)} = {other}.{name(each)}" for each in keys)


def _either(sides: Sequence[str], column: str) -> str:
    """The value of a key's column on whichever side has the row."""
    return f"coalesce({', '.join(f'{each}.{name(column)}' for each in sides)})"


def _differ(one: str, other: str, columns: Sequence[str]) -> str:
    return " OR ".join(f"{one}.{each} IS DISTINCT FROM {other}.{each}" for each in (_THERE, *map(name, columns)))


def _repeated(side: TableKey, keys: Sequence[str]) -> str:
    chosen = ", ".join(name(each) for each in keys)
    return f"(SELECT {chosen} FROM {_sql(side)} GROUP BY {chosen} HAVING count(*) > 1 LIMIT {MOST_KEYS_NAMED})"


def _named(rows: pa.Table, keys: Sequence[str], *, prefix: str = "") -> tuple[str, ...]:
    return tuple(", ".join(f"{each} = {row[prefix + each]}" for each in keys) for row in rows.to_pylist())


def _sql(side: TableKey) -> str:
    return ".".join(name(each) for each in side.elements)


def _ask(
    asking: Asking, tables: Mapping[TableKey, OpenTable], sql: str, *, positions: TableKey | None = None
) -> pa.Table:
    options = replace(asking.options, positions=frozenset({positions} if positions else ()))
    return query.run(sql, _Sides(tables), asking.files, options=options)


class _Sides:
    """The versions of one table, as tables of their own."""

    def __init__(self, tables: Mapping[TableKey, OpenTable]) -> None:
        self._tables = tables

    def names(self) -> Iterator[TableKey]:
        """All of them."""
        return iter(self._tables)

    def open(self, key: TableKey) -> OpenTable | None:
        """One of them."""
        return self._tables.get(key)
