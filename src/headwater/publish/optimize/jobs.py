"""Where jobs are kept: the sequenced namespace `compactions` of the lake. Every change is the next object of it.

Nothing that a reader of tables sees rests on it: it keeps two processes from doing the same work, and tells people what
was done. Who publishes is judged by versions, as every writer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from headwater.kernel.errors import HeadwaterError
from headwater.kernel.ids import Ulid
from headwater.kernel.logs import Log
from headwater.publish.optimize.codec import decode_compactions, encode_compactions
from headwater.publish.optimize.decide import begun, ended, renewed, running
from headwater.publish.optimize.model import Compactions, Job, Run, RunState
from headwater.sequence.collect import Collector
from headwater.sequence.model import Entry, Namespace, Retention
from headwater.sequence.protocol import Sequencer

COMPACTIONS = Namespace("_headwater", "compactions", ".compactions")
# How long a run is taken for alive after it was last heard of.
JOB_LEASE = timedelta(minutes=10)
# Older states are of no use to anybody; how many pile up before they are collected.
RETENTION = timedelta(days=1)
COLLECT_EVERY = 100

_log = Log("optimize")


class Jobs:
    """The jobs of a lake, as one process sees and changes them."""

    def __init__(self, sequencer: Sequencer, *, process: Ulid, skew: timedelta, lease: timedelta = JOB_LEASE) -> None:
        self._sequencer = sequencer
        self._clock = sequencer.clock
        self._process = process
        self._lease = lease
        self._skew = skew

    def read(self) -> Compactions:
        """Every job that is kept."""
        return self._decoded(self._sequencer.latest())

    def begin(self, job: Job) -> Run:
        """Record that a job runs from now on; `TableHeldError` while another one of the table does."""
        now = self._clock.now()
        run = Run(self._process, now, now + self._lease)
        self._update(lambda state: begun(state, job, run, now=now, skew=self._skew))
        return run

    def renew(self, job: Ulid, run: Run) -> Run:
        """The run with a longer lease, once a third of it is over; `RunLostError` when it was taken for dead."""
        now = self._clock.now()
        if run.lease_until - now > self._lease * 2 / 3:
            return run
        self._update(lambda state: renewed(state, job, now + self._lease))
        return replace(run, lease_until=now + self._lease)

    def check(self, job: Ulid) -> None:
        """Raise `RunLostError` when the run was taken for dead."""
        running(self.read(), job)

    def end(self, job: Ulid, run: Run, state: RunState, *, why: str = "", commit: str | None = None) -> None:
        """Record how a run ended. One that cannot be recorded is a nuisance, not an error: its lease passes."""
        over = replace(run, state=state, ended_at=self._clock.now(), why=why, commit=commit)
        try:
            entry = self._update(lambda found: ended(found, job, over))
            if entry.id % COLLECT_EVERY == 0:
                Collector(self._sequencer, Retention(RETENTION, self._skew)).collect()
        except HeadwaterError as error:
            _log.warning("the end of a job was not recorded", job=job, state=str(state), error=str(error))

    def _update(self, change: Callable[[Compactions], Compactions]) -> Entry:
        return self._sequencer.update(lambda entry: encode_compactions(change(self._decoded(entry))))

    def _decoded(self, entry: Entry | None) -> Compactions:
        if entry is None:
            return Compactions()
        return decode_compactions(entry.payload, COMPACTIONS.path_of(entry.id))
