"""Loading rows into one table.

Promise: rows that are loaded are in the table, all of them and exactly once, in one commit; of a load that fails, no
reader ever sees anything. What is loaded satisfies the constraints of the table as it stands at that commit.

Invariants:

    1  Data files are stored before the publish begins, under names that tell the operation; until the commit nothing
       refers to them.
    2  The wish expects the very version of the table that the rows were fitted to, matched with and checked against,
       and the versions of all tables that its constraints read (P8).
    3  Of rows in the source that have one key the last counts; a merge never gives a row of the table two successors.

Commit point: that of the publish (publish/protocol.py).

Steps, and what a crash after each leaves behind:

    read, fit, write files   files that nothing refers to: cleanup removes them
    check, stage             the same
    publish                  what publish/protocol.py says

Append and overwrite write while they read: rows are in memory only as far as the write buffer reaches, and of the rest
only the columns that constraints mention. A merge needs all its rows at once, to find which of them is the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.snapshots import Operation

from headwater.catalog.model import TableContent, TableKey
from headwater.kernel.errors import UsageError
from headwater.publish.constraints.check import Changed, check_changes, columns_needed
from headwater.publish.constraints.codec import constraints_of
from headwater.publish.load.cascade import staged_child, taken_along
from headwater.publish.load.conform import conformed
from headwater.publish.load.decide import columns_given, counts_what_goes, may_violate, merge_key, only_primary_key
from headwater.publish.load.model import Fitted, LoadOptions, Mode, Piece, Prepared
from headwater.publish.load.writing import FileWriting
from headwater.publish.model import TableWish, Wish, WriterKind
from headwater.publish.questions import Questions
from headwater.publish.sql.working import WorkingTable
from headwater.publish.state import State
from headwater.query import Pending, QueryOptions
from headwater.tables.arrow import plain_schema
from headwater.tables.merge import Matches, find_matches, last_of_each, with_row_ids
from headwater.tables.model import Edit, RowDeletes, ScanPlan, TableUsageError, TableVersion
from headwater.tables.parquet import FileSink
from headwater.tables.read import read_task
from headwater.tables.scan import plan_scan
from headwater.tables.snapshot import Staging, stage_snapshot


@dataclass(frozen=True)
class _Change:
    """What a load does to the table: files that come, what goes, and what that comes to; and to others with it."""

    edit: Edit
    operation: Operation
    rows: int
    updated: int = 0
    children: Mapping[TableKey, WorkingTable] = field(default_factory=dict)

    @property
    def is_none(self) -> bool:
        """Whether the table stays as it is."""
        return not (self.edit.added or self.edit.removed or self.edit.deletes)


def prepare(
    state: State,
    key: TableKey,
    pieces: Iterable[Piece],
    mode: Mode,
    *,
    staging: Staging,
    sink: FileSink,
    on: Sequence[str] | None,
    actor: str,
    message: str,
    options: LoadOptions,
    query_options: QueryOptions,
) -> Prepared:
    """Write the rows, check them, and say what is to be published."""
    if on is not None and mode is not Mode.MERGE:
        raise UsageError(f"key columns are named, and nothing is merged: the mode is {mode}", hint="leave them out")
    version, pinned = state.table(key), state.content(key)
    assert isinstance(pinned, TableContent)
    questions = Questions(state, query_options)
    load = _Load(state, key, version, FileWriting(staging, version.metadata, sink, options), questions)
    rows = conformed(pieces, version.metadata.schema())
    match mode:
        case Mode.APPEND:
            change = load.append(rows)
        case Mode.OVERWRITE:
            change = load.overwrite(rows)
        case Mode.MERGE:
            change = load.merge(rows, on)
        case _:
            assert_never(mode)
    if change.is_none:
        return Prepared(None)
    staged = stage_snapshot(staging, version, change.edit, change.operation)
    children = [staged_child(staging, state, each, child) for each, child in change.children.items()]
    wish = Wish(
        kind=WriterKind.LOAD,
        actor=actor,
        message=message,
        branch=state.ref.name,
        branch_incarnation=state.ref.incarnation,
        operation=staging.operation,
        tables=(TableWish(key, pinned, staged), *children),
        reads={read: found for read, found in questions.reads.items() if read not in {key, *change.children}},
    )
    return Prepared(wish, change.rows, change.updated, len(change.edit.added))


class _Load:
    """One load of one table."""

    def __init__(
        self, state: State, key: TableKey, version: TableVersion, writing: FileWriting, questions: Questions
    ) -> None:
        self._state = state
        self._files = state.files
        self._key = key
        self._version = version
        self._metadata = version.metadata
        self._constraints = constraints_of(version.metadata)
        self._writing = writing
        self._questions = questions
        self._needed = list(columns_needed(version.metadata)) if may_violate(self._constraints) else []
        self._kept: list[pa.RecordBatch] = []
        self._rows = 0

    def append(self, rows: Iterable[Fitted]) -> _Change:
        """Add the rows."""
        added = self._writing.write(self._streamed(rows))
        if added and self._needed:
            self._questions.pending = Pending(rows={self._key: self._kept_rows()})
            self._check(self._kept_rows(), None)
        return _Change(Edit(added=added), Operation.APPEND, self._rows)

    def overwrite(self, rows: Iterable[Fitted]) -> _Change:
        """Put the rows, of which there may be none, in the place of all that are there."""
        added = self._writing.write(self._streamed(rows))
        plan = plan_scan(self._files, self._metadata)
        children: dict[TableKey, WorkingTable] = {}
        if self._needed:
            kept, removed = self._kept_rows(), None
            empty = self._metadata.model_copy(update={"current_snapshot_id": None})
            self._questions.pending = Pending(rows={self._key: kept}, overrides={self._key: empty})
            if counts_what_goes(self._constraints):
                removed = self._all_of(plan)
                children = taken_along(self._questions, self._state, self._key, self._version, removed, kept)
            self._check(kept, removed, children)
        gone = frozenset(task.file.file_path for task in plan.tasks)
        return _Change(Edit(added=added, removed=gone), Operation.OVERWRITE, self._rows, children=children)

    def merge(self, rows: Iterable[Fitted], on: Sequence[str] | None) -> _Change:
        """Put the rows in the place of those with the same key, and add those whose key is new."""
        keys = merge_key(self._key, self._metadata, self._constraints, on)
        source, given = self._collected(rows)
        self._refuse_null_keys(source, keys)
        source = last_of_each(source, keys)
        judged = self._needed and not only_primary_key(self._constraints, keys)
        missing = [each.name for each in self._metadata.schema().fields if each.name not in given]
        carried = list(dict.fromkeys((*missing, *(self._needed if judged else ()))))
        found = find_matches(self._files, self._version, source, on=keys, columns=carried)
        self._refuse_ambiguous(found, source, keys)
        source = _carried_over(source, found, missing)
        if judged:
            deletes = {task.file.file_path: positions for task, positions in found.deletes}
            kept = source.select(self._needed)
            self._questions.pending = Pending(rows={self._key: kept}, deletes={self._key: deletes})
            self._check(kept, found.rows.select(self._needed))
        added = self._writing.write(with_row_ids(source, self._version, found).to_batches())
        deleted = tuple(RowDeletes(task, positions) for task, positions in found.deletes)
        operation = Operation.OVERWRITE if deleted else Operation.APPEND
        return _Change(Edit(added=added, deletes=deleted), operation, source.num_rows, len(found.source))

    def _streamed(self, rows: Iterable[Fitted]) -> Iterator[pa.RecordBatch]:
        """The rows on their way into files; of those that are gone, what constraints need is kept."""
        for each in rows:
            self._rows += each.batch.num_rows
            if self._needed and each.batch.num_rows:
                self._kept.append(each.batch.select(self._needed))
            yield each.batch

    def _kept_rows(self) -> pa.Table:
        return pa.Table.from_batches(self._kept, self._arrow(self._needed))

    def _collected(self, rows: Iterable[Fitted]) -> tuple[pa.Table, frozenset[str]]:
        pieces = list(rows)
        names = [each.name for each in self._metadata.schema().fields]
        table = pa.Table.from_batches([each.batch for each in pieces], self._arrow(names))
        return table, columns_given(pieces)

    def _all_of(self, plan: ScanPlan) -> pa.Table:
        """What constraints need of all rows that are there."""
        columns = tuple(self._needed)
        batches = [batch for task in plan.tasks for batch in read_task(self._files, task, plan=plan, columns=columns)]
        return pa.Table.from_batches(batches, self._arrow(self._needed))

    def _arrow(self, names: Sequence[str]) -> pa.Schema:
        fields = {each.name: each for each in self._metadata.schema().fields}
        return plain_schema([fields[name] for name in names])

    def _check(
        self, added: pa.Table, removed: pa.Table | None, children: Mapping[TableKey, WorkingTable] | None = None
    ) -> None:
        changed = {self._key: Changed(self._metadata, added, removed)}
        for key, each in (children or {}).items():
            changed[key] = Changed(each.version.metadata, each.rows, each.removed)
        check_changes(self._questions, changed)

    def _refuse_null_keys(self, source: pa.Table, keys: Sequence[str]) -> None:
        for name in keys:
            if source[name].null_count:
                row = pc.index(source[name].is_null(), pa.scalar(value=True)).as_py() + 1
                raise TableUsageError(
                    f"row {row}: the key column {name} is null, so the row cannot be told from others",
                    hint="fill it, or leave the row out",
                    column=name,
                    row=row,
                )

    def _refuse_ambiguous(self, found: Matches, source: pa.Table, keys: Sequence[str]) -> None:
        """A row of the source takes the place of one row, not of several: which of them would it be?"""
        places, counts = np.unique(found.source, return_counts=True)
        if len(places) == len(found.source):
            return
        place = int(places[np.argmax(counts > 1)])
        [row] = source.select(list(keys)).slice(place, 1).to_pylist()
        told = ", ".join(f"{name} {value!r}" for name, value in row.items())
        raise TableUsageError(
            f"{self._key} has {int(counts.max())} rows with the key {told}",
            hint="merge by columns that tell its rows apart",
            table=str(self._key),
            columns=list(keys),
        )


def _carried_over(source: pa.Table, found: Matches, columns: Sequence[str]) -> pa.Table:
    """The source, where rows that match keep what the table has in these columns, which were not given."""
    if not columns or not len(found.source):
        return source
    places = np.arange(len(found.source), len(found.source) + source.num_rows)
    places[found.source] = np.arange(len(found.source))
    chosen = pa.array(places)
    for name in columns:
        both = pa.chunked_array([*found.rows[name].chunks, *source[name].chunks], source[name].type)
        source = source.set_column(source.column_names.index(name), source.schema.field(name), both.take(chosen))
    return source
