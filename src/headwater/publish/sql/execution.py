"""Carrying out statements on the tables of a transaction: find rows by a SELECT, remove them, add others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import pyarrow as pa

from headwater.catalog.model import TableKey
from headwater.publish.constraints.cascade import cascading
from headwater.publish.constraints.values import grown
from headwater.publish.sql import selects
from headwater.publish.sql.statements import DeleteRows, Insert, Merge, Statement, StatementError, Update
from headwater.publish.sql.working import WorkingTable
from headwater.publish.sql.workspace import Workspace
from headwater.query.model import QueryUsageError


def execute(space: Workspace, statement: Statement) -> int:
    """How many rows the statement added, changed or deleted; rows that a cascade deletes are not counted."""
    match statement:
        case Insert():
            return _insert(space, statement)
        case Update():
            return _update(space, statement)
        case DeleteRows():
            return _delete(space, statement)
        case Merge():
            return _merge(space, statement)
        case _:
            assert_never(statement)


def _insert(space: Workspace, statement: Insert) -> int:
    working = space.table(statement.table)
    named = statement.columns or working.shape.columns
    if statement.by_name:
        named = tuple(space.ask(selects.source_columns(statement)).column_names)
    try:
        rows = space.ask(selects.inserted(statement, working.shape, named))
    except QueryUsageError:
        # Perhaps there are fewer columns than names, of which DuckDB speaks in words of a SELECT of ours.
        _check_width(statement.table, named, space.ask(selects.source_columns(statement)))
        raise
    _check_width(statement.table, named, rows)
    working.append(rows)
    return int(rows.num_rows)


def _update(space: Workspace, statement: Update) -> int:
    working = space.table(statement.table)
    found = space.ask(selects.updated(statement, working.shape), working)
    working.refuse_twice(found)
    ids = working.ids(found)
    working.remove(found)
    working.append(found.select(list(working.shape.columns)), ids)
    return int(found.num_rows)


def _delete(space: Workspace, statement: DeleteRows) -> int:
    working = space.table(statement.table)
    found = space.ask(selects.deleted(statement, working.shape), working)
    working.remove(found)
    _cascade(space, working, found)
    return int(found.num_rows)


def _merge(space: Workspace, statement: Merge) -> int:
    """Every WHEN is asked about the table as it was before the merge, then all of them are carried out."""
    working = space.table(statement.table)
    shape = working.shape
    changed: list[pa.Table] = []
    gone: list[pa.Table] = []
    added: list[pa.Table] = []
    held: dict[TableKey, pa.Table] = {}
    if statement.is_fickle:
        held = {selects.HELD: space.ask(selects.source_rows(statement))}
        statement = selects.with_held_source(statement)
    for when, guard in zip(statement.whens, selects.guards(statement.whens), strict=True):
        if when.does_nothing:
            continue
        if when.finds_rows:
            found = space.ask(selects.matched(statement, shape, when, guard), working, shown=held)
            (gone if when.settings is None else changed).append(found)
        else:
            added.append(space.ask(selects.unmatched(statement, shape, when, guard), shown=held))
    # Pending rows are named by their index, so ids are noted and rows removed before the first is added.
    ids = [working.ids(found) for found in changed]
    if changed or gone:
        places = [each for each in (*changed, *gone)[0].column_names if each not in shape.columns]
        matched = pa.concat_tables([found.select(places) for found in (*changed, *gone)])
        working.refuse_twice(matched)
        working.remove(matched)
    for found, kept in zip(changed, ids, strict=True):
        working.append(found.select(list(shape.columns)), kept)
    for rows in added:
        working.append(rows)
    for found in gone:
        _cascade(space, working, found)
    return sum(int(each.num_rows) for each in (*changed, *gone, *added))


def _cascade(space: Workspace, working: WorkingTable, found: pa.Table) -> None:
    """Delete what refers to the rows that were deleted, and what refers to that; each row goes once, so it ends."""
    waiting = [(working, found)]
    while waiting:
        parent, rows = waiting.pop()
        if not rows.num_rows:
            continue
        for link in cascading(space.questions, parent.shape.table, parent.version.metadata):
            keys = grown(parent.was(rows), None, link.parent_columns, number=0)
            if keys is None:
                continue
            child = space.table(link.child)
            sql = selects.referring(child.shape, link.columns, keys)
            gone = space.ask(sql, child, shown={keys.key: keys.rows})
            child.remove(gone)
            waiting.append((child, gone))


def _check_width(key: TableKey, named: Sequence[str], rows: pa.Table) -> None:
    if rows.num_columns != len(named):
        raise StatementError(
            f"{len(named)} columns of {key} are to be given, and {rows.num_columns} are",
            hint="name the columns behind the table: INSERT INTO t (a, b) …",
            table=str(key),
        )
