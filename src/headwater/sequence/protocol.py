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
    prepare the object   nothing, or what a put that was killed leaves in a folder (residue.py)
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
from typing import Self

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
from headwater.storage.port import Capability, Create, Prepared

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
        with self.move(payload, after=after, writer=writer) as move:
            move.create()
            return move.settle()

    def move(self, payload: bytes, *, after: Entry | None, writer: Ulid | None = None) -> Move:
        """The same in steps, for those who move several histories in order."""
        self.boundary.require_readable()
        number = after.id + 1 if after else FIRST_ID
        identity = writer or new_ulid(self.clock, self.randomness)
        entry = Entry(number, identity, after.writer if after else None, payload)
        return Move(self, entry, self._codec.encode(Body(entry.writer, entry.previous, payload)))

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
                    self.settle(number)
                    return True
                case Step.CONFLICT:
                    return False
                case Step.CREATE_AGAIN | Step.UNKNOWN:
                    return None

    def committed(self, entry: Entry, path: str, create: Callable[[], PutAnswer]) -> Entry:
        """The entry, once it is certain that it is in the history; else the error that says why not."""
        match self._settle(entry, path, create):
            case Step.COMMITTED:
                hit(Failpoint.WRITE_AFTER_CHECK)
                self._hint = entry
                return entry
            case Step.CONFLICT:
                raise SequenceConflictError(path, entry.writer)
            case _:
                reason = "what could prove it is gone, or silent"
                raise SequenceOutcomeUnknownError(path, entry.id, entry.writer, reason)

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
                    case Step.COMMITTED if facts.put is not PutAnswer.CREATED:
                        self.settle(entry.id)  # it is ours and it is seen, and yet its sync may have failed (S11)
                        return step
                    case Step.COMMITTED | Step.CONFLICT | Step.UNKNOWN:
                        if facts.behind_boundary and step is not Step.COMMITTED:
                            self._tell_stale(entry)
                        return step
        except HeadwaterError as error:
            if facts.put is PutAnswer.REFUSED and not facts.ever_lost and facts.occupant is not Occupant.OURS:
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


class Move:
    """One write in steps. Whoever makes one enters it: what was prepared and not created goes when it is left.

    `prepare` and `sync` may be left out. They touch nothing that others see, so those of several moves can run side by
    side. `create` is the commit point. Nobody may rely on it before `settle` has returned.
    """

    def __init__(self, sequencer: Sequencer, entry: Entry, data: bytes) -> None:
        self._sequencer = sequencer
        self._entry = entry
        self._data = data
        self._path = sequencer.namespace.path_of(entry.id)
        self._prepared: Prepared | None = None
        self._synced: PutAnswer | None = None
        self._settled: Entry | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._prepared is not None:
            self._prepared.discard()

    def prepare(self) -> None:
        """Store the bytes where nobody sees them; an error here means that nothing happened."""
        self._prepared = self._sequencer.store.prepare(self._path, self._data)

    def create(self) -> None:
        """Take the id, or raise as `Sequencer.write` does; what is not simply created is settled at once."""
        hit(Failpoint.WRITE_BEFORE_CREATE)
        if self._prepared is None:
            self.prepare()
        assert self._prepared is not None
        answer = _answer(self._prepared.create)
        if answer is not PutAnswer.CREATED:
            self._settled = self._settle(answer)

    def sync(self) -> None:
        """Make durable what was created; several can be synced side by side."""
        if self._settled is None and self._synced is None:
            assert self._prepared is not None
            self._synced = _answer(self._prepared.settle)

    def settle(self) -> Entry:
        """The entry, durable and seen ahead of the boundary, or the error of `Sequencer.write`."""
        self.sync()
        if self._settled is None:
            assert self._synced is not None
            self._settled = self._settle(self._synced)
        return self._settled

    def _settle(self, answer: PutAnswer) -> Entry:
        answers = iter([answer])
        return self._sequencer.committed(self._entry, self._path, lambda: next(answers, None) or self._again())

    def _again(self) -> PutAnswer:
        return _answer(lambda: self._sequencer.store.put(self._path, self._data, Create()))


def _answer(request: Callable[[], object]) -> PutAnswer:
    """What became of a create, where that is known; any other error means that nothing happened."""
    try:
        request()
    except PreconditionFailedError:
        return PutAnswer.REFUSED
    except StorageOutcomeUnknownError:
        return PutAnswer.LOST
    return PutAnswer.CREATED
