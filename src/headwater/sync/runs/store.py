"""Runs in the database.

Promise: what a step has finished is known to whoever takes the run up, and a process that lost its region changes
nothing any more, however long it slept.

Invariants:

    1  A region has at most one run that is running.
    2  Each change carries the fence of its process and lands only while no higher one was shown.
    3  A step is finished after everything that it did is durable; batches, one by one, after their files are.
    4  The plan of a run, and what it localised, are kept until it ends, and no longer.

Commit point: the transaction of each call. A crash leaves a run with the last step that was finished; the next process
does the following one again, from the batches that are not done.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Row

from headwater.catalog.model import Content, TableKey
from headwater.database import Database, migrate
from headwater.kernel.errors import RefusedError
from headwater.kernel.ids import Ulid
from headwater.sync.model import Origin
from headwater.sync.runs import tables
from headwater.sync.runs.codec import decode_content, decode_key, encode_content, encode_key
from headwater.sync.runs.model import (
    Backlog,
    History,
    PlannedBatch,
    Run,
    RunLostError,
    RunSpec,
    RunState,
    Shipped,
    Step,
)

MIGRATIONS = Path(__file__).parent / "migrations"

_BATCHES_AT_ONCE = 1_000


class Runs:
    """The runs of all regions. Safe to share among threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        migrate(database, "sync", MIGRATIONS)

    def running(self, region: str) -> Run | None:
        """The run of the region that has not ended, if there is one."""
        with self._database.read() as connection:
            return _running(connection, region)

    def last(self, region: str, *, limit: int = 10) -> tuple[Run, ...]:
        """The newest runs of the region, the newest first."""
        query = sa.select(tables.runs).where(tables.runs.c.region == region)
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(tables.runs.c.id.desc()).limit(limit)).all()
        return tuple(_as_run(row) for row in rows)

    def run(self, run: Ulid) -> Run | None:
        """The run of this id."""
        with self._database.read() as connection:
            row = connection.execute(sa.select(tables.runs).where(tables.runs.c.id == run)).first()
        return None if row is None else _as_run(row)

    def take(self, region: str, fence: int) -> None:
        """Show the fence of the process that syncs the region now: lower ones are of no use from here on."""
        with self._database.write() as connection:
            known = _fence(connection, region)
            if known is not None and known > fence:
                raise RunLostError(region, fence, known)
            if known is None:
                connection.execute(sa.insert(tables.regions).values(region=region, fence=fence))
            else:
                same = tables.regions.c.region == region
                connection.execute(sa.update(tables.regions).where(same).values(fence=fence))

    def begin(self, run: Ulid, spec: RunSpec, fence: int) -> Run:
        """A new run; refused while the region has one that is running."""
        with self._fenced(spec.region, fence, run) as connection:
            found = _running(connection, spec.region)
            if found is not None:
                raise RefusedError(
                    f"the sync of {spec.region} has a run that has not ended: {found.id}",
                    hint="go on with it, or abandon it",
                    run=found.id,
                )
            made = Run(run, spec, RunState.RUNNING, None, self._database.now(connection))
            connection.execute(sa.insert(tables.runs).values(_as_row(made)))
        return made

    def finish(self, run: Run, step: Step, fence: int, *, promoted: str | None = None) -> Run:
        """The step has ended, and everything that it did is durable. The last step ends the run."""
        with self._fenced(run.spec.region, fence, run.id) as connection:
            ended = {**run.ended, step: self._database.now(connection)}
            changed = replace(run, done=step, ended=ended, promoted=promoted or run.promoted)
            if changed.next_step is None:
                changed = replace(changed, state=RunState.DONE)
            _update(connection, changed)
        return changed

    def rewind(self, run: Run, fence: int) -> Run:
        """Plan again: what was found, copied and verified since may be gone. What is promoted stays so."""
        if run.done is None or run.done in (Step.DIFF, Step.PROMOTE, Step.OBSERVE):
            return run
        with self._fenced(run.spec.region, fence, run.id) as connection:
            changed = replace(run, done=Step.DIFF, ended={Step.DIFF: run.ended[Step.DIFF]})
            _update(connection, changed)
        return changed

    def end(self, run: Run, state: RunState, fence: int, *, error: str | None = None) -> Run:
        """The run ends before its last step."""
        with self._fenced(run.spec.region, fence, run.id) as connection:
            changed = replace(run, state=state, error=error)
            _update(connection, changed)
        return changed

    def plan(self, run: Run, batches: Iterable[PlannedBatch], fence: int) -> None:
        """Replace the plan of the run. Batches are taken some at a time, and nothing is locked while they are made.

        A crash leaves a part of the plan, which the next one replaces: it counts once its step is finished.
        """
        with self._fenced(run.spec.region, fence, run.id) as connection:
            connection.execute(sa.delete(tables.batches).where(tables.batches.c.run == run.id))
        rest = iter(batches)
        while rows := [{"run": run.id, **vars(each)} for each in islice(rest, _BATCHES_AT_ONCE)]:
            with self._fenced(run.spec.region, fence, run.id) as connection:
                connection.execute(sa.insert(tables.batches), rows)

    def batches(self, run: Run) -> tuple[PlannedBatch, ...]:
        """The plan of the run."""
        columns = [each for each in tables.batches.c if each.name != "run"]
        query = sa.select(*columns).where(tables.batches.c.run == run.id).order_by(tables.batches.c.number)
        with self._database.read() as connection:
            return tuple(PlannedBatch(**row._mapping) for row in connection.execute(query))

    def note(self, run: Run, number: int, fence: int, *, is_copied: bool = False, is_verified: bool = False) -> None:
        """Everything of the batch is copied, or verified."""
        values = {name: True for name, is_so in (("is_copied", is_copied), ("is_verified", is_verified)) if is_so}
        with self._fenced(run.spec.region, fence, run.id) as connection:
            same = sa.and_(tables.batches.c.run == run.id, tables.batches.c.number == number)
            connection.execute(sa.update(tables.batches).where(same).values(**values))

    def keep_localised(self, run: Run, contents: Mapping[TableKey, Content | None], fence: int) -> None:
        """What the run has localised, all of it, so that it need not be done again."""
        rows = [
            {"run": run.id, "key": encode_key(key), "content": None if each is None else encode_content(each)}
            for key, each in contents.items()
        ]
        with self._fenced(run.spec.region, fence, run.id) as connection:
            connection.execute(sa.delete(tables.localised).where(tables.localised.c.run == run.id))
            if rows:
                connection.execute(sa.insert(tables.localised), rows)

    def localised(self, run: Run) -> dict[TableKey, Content | None]:
        """What the run has localised."""
        query = sa.select(tables.localised).where(tables.localised.c.run == run.id).order_by(tables.localised.c.key)
        with self._database.read() as connection:
            return {
                decode_key(row.key): None if row.content is None else decode_content(row.content)
                for row in connection.execute(query)
            }

    def backlog(self, region: str) -> Backlog:
        """What the running run of the region has planned and not copied."""
        found = tables.batches.join(tables.runs, tables.runs.c.id == tables.batches.c.run)
        query = sa.select(
            sa.func.coalesce(sa.func.sum(tables.batches.c.files), 0),
            sa.func.coalesce(sa.func.sum(tables.batches.c.size_bytes), 0),
        ).select_from(found)
        is_open = sa.and_(tables.runs.c.region == region, tables.runs.c.state == RunState.RUNNING)
        with self._database.read() as connection:
            row = connection.execute(query.where(is_open, tables.batches.c.is_copied.is_(False))).one()
        return Backlog(int(row[0]), int(row[1]))

    def ask_forward(self, region: str) -> None:
        """Ask whoever syncs the region to go straight to the newest commit."""
        self._set_forward(region, is_asked=True)

    def forward_is_asked(self, region: str) -> bool:
        """Whether somebody has asked for that, and it has not happened since."""
        with self._database.read() as connection:
            row = connection.execute(sa.select(tables.regions).where(tables.regions.c.region == region)).first()
        return row is not None and row.forward_asked_at is not None

    def forward_is_done(self, region: str) -> None:
        """The replica is at the newest commit."""
        self._set_forward(region, is_asked=False)

    def _set_forward(self, region: str, *, is_asked: bool) -> None:
        with self._database.write() as connection:
            moment = self._database.now(connection) if is_asked else None
            if _fence(connection, region) is None:
                connection.execute(sa.insert(tables.regions).values(region=region, fence=0))
            same = tables.regions.c.region == region
            connection.execute(sa.update(tables.regions).where(same).values(forward_asked_at=moment))

    @contextmanager
    def _fenced(self, region: str, fence: int, run: Ulid) -> Iterator[Connection]:
        with self._database.write(operation=run) as connection:
            known = _fence(connection, region)
            if known != fence:
                raise RunLostError(region, fence, known or 0)
            yield connection


def _fence(connection: Connection, region: str) -> int | None:
    found: int | None = connection.scalar(sa.select(tables.regions.c.fence).where(tables.regions.c.region == region))
    return found


def _running(connection: Connection, region: str) -> Run | None:
    is_open = sa.and_(tables.runs.c.region == region, tables.runs.c.state == RunState.RUNNING)
    row = connection.execute(sa.select(tables.runs).where(is_open)).one_or_none()
    return None if row is None else _as_run(row)


def _update(connection: Connection, run: Run) -> None:
    connection.execute(sa.update(tables.runs).where(tables.runs.c.id == run.id).values(_as_row(run)))
    if run.state is not RunState.RUNNING:
        # Nobody goes on with it: what was noted on the way would only grow.
        for each in (tables.batches, tables.localised):
            connection.execute(sa.delete(each).where(each.c.run == run.id))


def _as_row(run: Run) -> Mapping[str, object]:
    spec = run.spec
    return {
        "id": run.id,
        "region": spec.region,
        "target_hash": spec.target.hash,
        "target_created_at": spec.target.created_at,
        "shown_hash": spec.shown.hash if spec.shown else None,
        "shown_created_at": spec.shown.created_at if spec.shown else None,
        "replica_head": spec.replica_head,
        "generation": spec.generation,
        "history": str(spec.history),
        "tables": None if spec.tables is None else json.dumps([encode_key(each) for each in spec.tables]),
        "is_forward": spec.is_forward,
        "shipped": str(spec.shipped),
        "state": str(run.state),
        "done": str(run.done) if run.done else None,
        "began_at": run.began_at,
        "ended": json.dumps({str(step): at.isoformat() for step, at in run.ended.items()}),
        "promoted": run.promoted,
        "error": run.error,
    }


def _as_run(row: Row[Any]) -> Run:
    keys = None if row.tables is None else tuple(decode_key(each) for each in json.loads(row.tables))
    shown = None if row.shown_hash is None else Origin(row.shown_hash, row.shown_created_at)
    spec = RunSpec(
        row.region,
        Origin(row.target_hash, row.target_created_at),
        shown,
        row.replica_head,
        row.generation,
        History(row.history),
        keys,
        bool(row.is_forward),
        Shipped(row.shipped),
    )
    ended = {Step(step): datetime.fromisoformat(at) for step, at in json.loads(row.ended).items()}
    done = Step(row.done) if row.done else None
    return Run(Ulid(row.id), spec, RunState(row.state), done, row.began_at, ended, row.promoted, row.error)
