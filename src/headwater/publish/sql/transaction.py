"""A transaction: statements over any number of tables, and one commit at the end, or none.

Nothing moves and nothing is stored until every statement has succeeded. Later statements see earlier ones. All of them
see the lake as it stood when the transaction began; at the end, every table that was touched or read must still be at
that version (P8), and every constraint must hold. A statement that fails leaves the transaction as it was before it.
Statements of several threads take turns.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from headwater.catalog.model import Commit, TableKey
from headwater.kernel.errors import UsageError
from headwater.publish.model import TableWish, Wish, WriterKind
from headwater.publish.sql.execution import execute
from headwater.publish.sql.parsing import parse
from headwater.publish.sql.working import GivenRows, WorkingTable
from headwater.publish.sql.workspace import Workspace
from headwater.publish.state import State
from headwater.query import QueryOptions
from headwater.query.model import QueryUsageError
from headwater.tables.operations import edit_planned
from headwater.tables.scan import plan_scan
from headwater.tables.snapshot import Staging

_PLACE = re.compile(r" \((line|at) [0-9:]+\)$")


class Transaction:
    """One transaction, until its block ends."""

    def __init__(self, state: State, *, staging: Staging, actor: str, message: str, options: QueryOptions) -> None:
        self._state = state
        self._staging = staging
        self._actor = actor
        self._message = message
        self._space = Workspace(state, options)
        self._turn = threading.RLock()
        self._has_ended = False
        self.operation = staging.operation
        self.commit: Commit | None = None
        # Of each statement so far, how many rows it added, changed or deleted.
        self.rows: list[int] = []

    def insert(self, table: str, rows: GivenRows) -> int:
        """Add rows; columns are taken by name, and one that is not given has its default, or is null."""
        with self._turn_of_one(), self._space.all_or_nothing():
            working = self._space.table(TableKey.parse(table))
            fitted = working.fit(rows)
            working.append(fitted)
            return self._counted(int(fitted.num_rows))

    def query(self, sql: str) -> pa.Table:
        """The answer to a SELECT, with what this transaction has done so far."""
        with self._turn_of_one():
            return self._space.ask(sql)

    def sql(self, sql: str) -> int:
        """Run INSERT, UPDATE, DELETE or MERGE; returns how many rows it added, changed or deleted.

        Rows that a cascade deletes are not counted.
        """
        with self._turn_of_one(), self._space.all_or_nothing():
            statement = parse(sql)
            try:
                return self._counted(execute(self._space, statement))
            except QueryUsageError as error:
                raise _without_place(error) from error

    def end(self) -> None:
        """No statement runs any more."""
        with self._turn:
            self._has_ended = True

    def wish(self) -> Wish | None:
        """What is to be published, its constraints judged; None when nothing was changed."""
        changed = self._space.changed
        if not changed:
            return None
        self._space.check()
        return Wish(
            kind=WriterKind.TRANSACTION,
            actor=self._actor,
            message=self._message,
            branch=self._state.ref.name,
            branch_incarnation=self._state.ref.incarnation,
            operation=self.operation,
            tables=tuple(self._staged(key, each) for key, each in changed.items()),
            reads=self._space.reads,
        )

    def _staged(self, key: TableKey, working: WorkingTable) -> TableWish:
        deletes = []
        if working.deletes:
            plan = plan_scan(self._state.files, working.version.metadata)
            tasks = {task.file.file_path: task for task in plan.tasks}
            deletes = [(tasks[path], positions) for path, positions in working.deletes.items()]
        staged = edit_planned(self._staging, working.version, deletes, working.staged_rows)
        return TableWish(key, working.pinned, staged)

    def _counted(self, rows: int) -> int:
        self.rows.append(rows)
        return rows

    @contextmanager
    def _turn_of_one(self) -> Iterator[None]:
        """One statement runs: another thread's, begun meanwhile, would be lost when this one fails."""
        with self._turn:
            if self._has_ended:
                raise UsageError("the transaction has ended", hint="begin another", operation=self.operation)
            yield


def _without_place(error: QueryUsageError) -> QueryUsageError:
    """The place is one in a SELECT of ours, which the author of the statement has never seen."""
    fields = {key: value for key, value in error.fields.items() if key not in ("line", "column")}
    return QueryUsageError(_PLACE.sub("", error.message), hint=error.hint, **fields)
