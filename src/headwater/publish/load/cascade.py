"""What an overwrite takes along: rows of other tables that refer to keys that vanish, by a key that cascades."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from headwater.catalog.model import TableContent, TableKey
from headwater.publish.constraints.cascade import cascading
from headwater.publish.constraints.values import grown
from headwater.publish.model import TableWish
from headwater.publish.questions import Questions
from headwater.publish.sql import selects
from headwater.publish.sql.working import WorkingTable
from headwater.publish.state import State
from headwater.tables.model import TableVersion
from headwater.tables.operations import edit_planned
from headwater.tables.scan import plan_scan
from headwater.tables.snapshot import Staging


def taken_along(
    questions: Questions, state: State, key: TableKey, version: TableVersion, removed: pa.Table, added: pa.Table
) -> dict[TableKey, WorkingTable]:
    """The tables that lose rows, and which: those that refer to what the overwritten table loses, and on from there.

    The rows that are loaded stay, even if they refer to what goes: then the load is refused, when it is checked.
    """
    children: dict[TableKey, WorkingTable] = {}
    before = questions.pending
    waiting: list[tuple[TableKey, TableVersion, pa.Table, pa.Table | None]] = [(key, version, removed, added)]
    while waiting:
        parent, document, went, came = waiting.pop()
        for link in cascading(questions, parent, document.metadata):
            keys = grown(went, came, link.parent_columns, number=0)
            if keys is None or link.child == key:
                continue
            child = children.setdefault(link.child, _working(state, link.child))
            sql = selects.referring(child.shape, link.columns, keys)
            gone = questions(sql, {keys.key: keys.rows}, places_of=link.child)
            child.remove(gone)
            questions.pending = replace(
                before, deletes={**before.deletes, **{each: table.deletes for each, table in children.items()}}
            )
            if gone.num_rows:
                waiting.append((link.child, child.version, child.was(gone), None))
    return {each: table for each, table in children.items() if table.is_changed}


def _working(state: State, key: TableKey) -> WorkingTable:
    version, pinned = state.table(key), state.content(key)
    assert isinstance(pinned, TableContent)
    return WorkingTable(key, version, pinned)


def staged_child(staging: Staging, state: State, key: TableKey, child: WorkingTable) -> TableWish:
    """The table without those rows, to be published together with what took them along."""
    tasks = {task.file.file_path: task for task in plan_scan(state.files, child.version.metadata).tasks}
    deletes = [(tasks[path], positions) for path, positions in child.deletes.items()]
    return TableWish(key, child.pinned, edit_planned(staging, child.version, deletes, None))
