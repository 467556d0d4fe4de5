"""The tables that a transaction works on, over the lake as it stood when the transaction began."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa

from headwater.catalog.model import Content, TableContent, TableKey
from headwater.publish.constraints.check import Changed, check_changes
from headwater.publish.questions import Questions
from headwater.publish.sql.working import Mark, WorkingTable
from headwater.publish.state import State
from headwater.query import Pending, QueryOptions


class Workspace:
    """Touched tables with what is laid over them, and questions about all tables that see it."""

    def __init__(self, state: State, options: QueryOptions) -> None:
        self._state = state
        self._questions = Questions(state, options)
        self._tables: dict[TableKey, WorkingTable] = {}

    @property
    def questions(self) -> Questions:
        """Who answers, on committed and pending rows as they are now."""
        self._questions.pending = Pending(
            rows={key: each.rows for key, each in self._tables.items() if each.rows.num_rows},
            deletes={key: each.deletes for key, each in self._tables.items() if each.deletes},
        )
        return self._questions

    @property
    def changed(self) -> dict[TableKey, WorkingTable]:
        """The tables of which there is something to commit."""
        return {key: each for key, each in self._tables.items() if each.is_changed}

    @property
    def reads(self) -> dict[TableKey, Content | None]:
        """The versions of tables that were read or touched, and are not changed (P8)."""
        touched, changed = {key: each.pinned for key, each in self._tables.items()}, self.changed
        return {key: each for key, each in {**self._questions.reads, **touched}.items() if key not in changed}

    def table(self, key: TableKey) -> WorkingTable:
        """The table, touched."""
        if key in self._tables:
            return self._tables[key]
        pinned = self._state.content(key)
        if pinned is None:
            # SQL does not tell capitals from small letters, so that is how a SELECT would find it too.
            alike = [each for each in self._state.names() if str(each).lower() == str(key).lower()]
            if len(alike) == 1 and alike[0] != key:
                return self.table(alike[0])
        version = self._state.table(key)
        assert isinstance(pinned, TableContent)
        self._tables[key] = WorkingTable(key, version, pinned)
        return self._tables[key]

    def ask(
        self, sql: str, placed: WorkingTable | None = None, *, shown: Mapping[TableKey, pa.Table] | None = None
    ) -> pa.Table:
        """The answer to a SELECT; `placed` is the table whose rows say where they are."""
        return self.questions(sql, shown or {}, places_of=None if placed is None else placed.shape.table)

    def check(self) -> None:
        """Raise ConstraintViolationError unless every constraint holds on the rows as they are now."""
        changed = {key: Changed(each.version.metadata, each.rows, each.removed) for key, each in self.changed.items()}
        check_changes(self.questions, changed)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """What is done within happens as a whole, or, whatever ends it, not at all."""
        marks = {key: each.mark() for key, each in self._tables.items()}
        try:
            yield
        except BaseException:
            # What was touched here for the first time has no changes any more, but it was read: its version counts.
            self._tables = {key: _set_back(each, marks.get(key)) for key, each in self._tables.items()}
            raise


def _set_back(working: WorkingTable, mark: Mark | None) -> WorkingTable:
    if mark is None:
        return WorkingTable(working.shape.table, working.version, working.pinned)
    working.reset(mark)
    return working
