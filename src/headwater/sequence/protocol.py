"""Writing the history of one namespace; reading it is in history.py.

Promise: every write that is reported as committed is in one contiguous, duplicate-free history, and no write
that is reported as a conflict is, whatever stalls, dies or loses its answer.

Invariants (the first is the collector's, in collect.py):

    1  No id is deleted before the durable boundary covers it.
    2  No write is reported as committed before the boundary was seen below its id, after its object was created.
    3  The latest object is one that the boundary, read after it, does not cover.

Commit point: the create-if-absent of object `latest + 1`. It counts while the boundary is below it.

Steps of a write, and what a crash after each leaves behind:

    find the latest      nothing
    create the object    either a commit that nobody reported, which its writer's ULID identifies, or, if the id
                         had been collected already, an object behind the boundary that no reader takes for
                         history and the next collection deletes
    read the boundary    the same
    report               a commit

Requests of a write in the steady state: the create and one conditional read of the boundary; a caller that
looks for the latest first adds one probe and one more boundary read. None depends on the length of the history.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headwater.kernel.errors import HeadwaterError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.logs import Log
from headwater.kernel.metrics import Metric, MetricKind
from headwater.sequence.codec import Body
from headwater.sequence.decide import Facts, Occupant, PutAnswer, Step, Successor, next_step
from headwater.sequence.history import READING, History
from headwater.sequence.model import FIRST_ID, Entry, SequenceConflictError, SequenceOutcomeUnknownError
from headwater.storage.errors import ObjectNotFoundError, PreconditionFailedError, StorageOutcomeUnknownError
from headwater.storage.port import Capability, Create

STALE_WRITES = Metric(
    "sequence_stale_writes_rejected_total",
    MetricKind.COUNTER,
    "Writes that found their id at or behind the boundary after creating it.",
    labels=("namespace",),
)

WRITING = READING | {Capability.CREATE, Capability.UPDATE}

_log = Log("sequence")


class Sequencer(History):
    """One namespace's history, as one process reads and writes it. Safe to share among threads."""

    needed = WRITING

    def write(self, payload: bytes, *, after: Entry | None, writer: Ulid | None = None) -> Entry:
        """Commit `payload` as the successor of `after` (None: as the first entry).

        `writer` is the identity of the write, for those who have told of it beforehand; nobody uses one twice.
        Raises `SequenceConflictError` when it is proven that it did not commit, and
        `SequenceOutcomeUnknownError` when that cannot be told.
        """
        self.boundary.require_readable()
        number = after.id + 1 if after else FIRST_ID
        identity = writer or new_ulid(self.clock, self.randomness)
        entry = Entry(number, identity, after.writer if after else None, payload)
        data = self._codec.encode(Body(entry.writer, entry.previous, payload))
        path = self.namespace.path_of(number)
        hit(Failpoint.WRITE_BEFORE_CREATE)
        step = self._settle(entry, path, lambda: self._create(path, data))
        match step:
            case Step.COMMITTED:
                hit(Failpoint.WRITE_AFTER_CHECK)
                self._hint = entry
                return entry
            case Step.CONFLICT:
                raise SequenceConflictError(path, entry.writer)
            case _:
                raise SequenceOutcomeUnknownError(path, number, entry.writer, "what could prove it is gone, or silent")

    def update(self, change: Callable[[Entry | None], bytes]) -> Entry:
        """Read the latest, let `change` make the next payload from it, write; again while others win."""
        patience = self.retry.patience()
        while True:
            latest = self.latest()
            try:
                return self.write(change(latest), after=latest)
            except SequenceConflictError:
                if not patience.wait():
                    raise

    def outcome(self, number: int, writer: Ulid) -> bool | None:
        """Whether the write with this identity committed, as far as can be told now; changes nothing."""
        facts = Facts(PutAnswer.LOST, ever_lost=True, may_create=False)
        entry = Entry(number, writer, None, b"")
        while True:
            step = next_step(facts)
            match step:
                case Step.READ_OCCUPANT | Step.READ_BOUNDARY | Step.READ_SUCCESSOR:
                    facts = self._learn(facts, step, entry)
                case Step.COMMITTED:
                    return True
                case Step.CONFLICT:
                    return False
                case Step.CREATE_AGAIN | Step.UNKNOWN:
                    return None

    def _create(self, path: str, data: bytes) -> PutAnswer:
        try:
            self.store.put(path, data, Create())
        except PreconditionFailedError:
            return PutAnswer.REFUSED
        except StorageOutcomeUnknownError:
            return PutAnswer.LOST
        return PutAnswer.CREATED

    def _settle(self, entry: Entry, path: str, create: Callable[[], PutAnswer]) -> Step:
        """Create, then find out what may be reported, as `decide.next_step` says."""
        patience = self.retry.patience()
        answer = create()  # an error here means that nothing happened
        facts = Facts(answer, ever_lost=answer is PutAnswer.LOST)
        try:
            hit(Failpoint.WRITE_AFTER_CREATE)
            while True:
                step = next_step(facts)
                match step:
                    case Step.READ_OCCUPANT | Step.READ_BOUNDARY | Step.READ_SUCCESSOR:
                        facts = self._learn(facts, step, entry)
                    case Step.CREATE_AGAIN if patience.wait():
                        answer = create()
                        facts = Facts(answer, ever_lost=True)
                    case Step.CREATE_AGAIN:
                        facts = replace(facts, may_create=False)
                    case Step.COMMITTED | Step.CONFLICT | Step.UNKNOWN:
                        if facts.behind_boundary and step is not Step.COMMITTED:
                            self._tell_stale(entry)
                        return step
        except HeadwaterError as error:
            if facts.put is PutAnswer.REFUSED and not facts.ever_lost:
                raise
            raise SequenceOutcomeUnknownError(path, entry.id, entry.writer, str(error)) from error

    def _learn(self, facts: Facts, step: Step, entry: Entry) -> Facts:
        match step:
            case Step.READ_OCCUPANT:
                return replace(facts, occupant=self._occupant(entry))
            case Step.READ_BOUNDARY:
                return replace(facts, behind_boundary=self._is_behind(entry))
            case _:
                return replace(facts, successor=self._successor(entry))

    def _occupant(self, entry: Entry) -> Occupant:
        try:
            return Occupant.OURS if self.read(entry.id).writer == entry.writer else Occupant.FOREIGN
        except ObjectNotFoundError:
            return Occupant.NOBODY

    def _successor(self, entry: Entry) -> Successor:
        try:
            previous = self.read(entry.id + 1).previous
        except ObjectNotFoundError:
            return Successor.GONE
        return Successor.NAMES_US if previous == entry.writer else Successor.NAMES_ANOTHER

    def _is_behind(self, entry: Entry) -> bool:
        return entry.id <= self.boundary.read()

    def _tell_stale(self, entry: Entry) -> None:
        self.metrics.count(STALE_WRITES, namespace=self.namespace.name)
        _log.warning("stale write refused", namespace=self.namespace.name, id=entry.id, operation=entry.writer)
