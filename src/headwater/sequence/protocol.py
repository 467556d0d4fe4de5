"""Writing and reading the history of one namespace.

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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from headwater.kernel.clock import Clock
from headwater.kernel.errors import CorruptError, HeadwaterError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.logs import Log
from headwater.kernel.metrics import Metric, MetricKind, Metrics
from headwater.kernel.randomness import Randomness
from headwater.kernel.retry import Retry, RetryPolicy
from headwater.sequence.boundary import Boundary
from headwater.sequence.codec import Body, BodyCodec, EnvelopeCodec, id_of
from headwater.sequence.decide import Facts, Occupant, PutAnswer, Step, Successor, newest_gap, next_step
from headwater.sequence.model import (
    FIRST_ID,
    LAST_ID,
    Entry,
    Listed,
    Namespace,
    SequenceConflictError,
    SequenceOutcomeUnknownError,
)
from headwater.storage.errors import ObjectNotFoundError, PreconditionFailedError, StorageOutcomeUnknownError
from headwater.storage.port import Capability, Create, ObjectStore, require

STALE_WRITES = Metric(
    "sequence_stale_writes_rejected_total",
    MetricKind.COUNTER,
    "Writes that found their id at or behind the boundary after creating it.",
    labels=("namespace",),
)

READING = frozenset({Capability.CONDITIONAL_GET})
WRITING = READING | {Capability.CREATE, Capability.UPDATE}

# How many successors of the hint are read one by one before the search leaps.
_PROBES = 3
# How often a search for the latest starts again because a collector overtook it.
_ROUNDS = 10

_log = Log("sequence")


class Sequencer:
    """One namespace's history, as one process reads and writes it. Safe to share among threads."""

    def __init__(
        self,
        store: ObjectStore,
        namespace: Namespace,
        *,
        clock: Clock,
        randomness: Randomness,
        metrics: Metrics | None = None,
        codec: BodyCodec | None = None,
        policy: RetryPolicy | None = None,
        writable: bool = True,
    ) -> None:
        require(store, WRITING if writable else READING, by=f"the sequence {namespace.folder}")
        self.namespace = namespace
        self.store = store
        self.clock = clock
        self.randomness = randomness
        self.metrics = metrics or Metrics()
        self.retry = Retry(policy or RetryPolicy(), clock, randomness)
        self.boundary = Boundary(store, namespace, clock, self.metrics, self.retry)
        self._codec = codec or EnvelopeCodec()
        self._hint: Entry | None = None

    def latest(self) -> Entry | None:
        """The newest entry, or None while the namespace is empty."""
        for _ in range(_ROUNDS):
            hint = self._hint
            found = self._probe(hint) if hint else self._list_latest()
            # The boundary is read after the object: one that was read before could hide that the object, and
            # the successor that the probe did not find, were collected in between (hazard S1).
            boundary = self.boundary.read()
            if found is not None and found.id > boundary:
                self._hint = found
                return found
            self._hint = None
            if found is None and hint is None and boundary == 0:
                return None
        raise self._damaged("the boundary covers everything that is there")

    def read(self, number: int) -> Entry:
        """The entry at this id. One at or behind the boundary is only to be trusted while a pin holds it."""
        path = self.namespace.path_of(number)
        body = self._codec.decode(self.store.get(path).data, path)
        return Entry(number, body.writer, body.previous, body.payload)

    def write(self, payload: bytes, *, after: Entry | None) -> Entry:
        """Commit `payload` as the successor of `after` (None: as the first entry).

        Raises `SequenceConflictError` when it is proven that it did not commit, and
        `SequenceOutcomeUnknownError` when that cannot be told.
        """
        self.boundary.require_readable()
        number = after.id + 1 if after else FIRST_ID
        entry = Entry(number, new_ulid(self.clock, self.randomness), after.writer if after else None, payload)
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

    def listing(self, *, start_after: int = 0) -> Iterator[Listed]:
        """Every object of the namespace behind `start_after`, in order; a name that is not an id is an error."""
        after = self.namespace.path_of(start_after) if start_after else None
        for meta in self.store.list(self.namespace.folder, start_after=after):
            number = id_of(meta.path, self.namespace)
            if number is not None:
                yield Listed(number, meta.path, meta.last_modified)

    def refuse_damage(self, numbers: Sequence[int], boundary: int) -> None:
        """Raise when these ids, listed after `boundary` was read, cannot be the live history behind it."""
        if boundary and not numbers:
            raise self._damaged(f"the boundary, {boundary}, covers everything that is there")
        gap = newest_gap(numbers, boundary)
        if gap is not None and self._is_missing(gap):
            raise self._damaged(f"{self.namespace.path_of(gap)} is missing")

    def _probe(self, hint: Entry) -> Entry | None:
        """Follow the hint's successors one by one; when there are many, in leaps, because none can be missing."""
        found = hint
        for _ in range(_PROBES):
            if found.id == LAST_ID:
                return found
            try:
                found = self.read(found.id + 1)
            except ObjectNotFoundError:
                return found
        return self._leap(found)

    def _leap(self, start: Entry) -> Entry | None:
        """Double the stride while there is an object, then halve it: the last one there is, in few requests."""
        last, stride = start.id, 1
        while self._is_there(last + stride):
            last, stride = last + stride, stride * 2
        while stride > 1:
            stride //= 2
            if self._is_there(last + stride):
                last += stride
        return start if last == start.id else self._read_if_there(last)

    def _is_there(self, number: int) -> bool:
        return number <= LAST_ID and self.store.exists(self.namespace.path_of(number))

    def _is_missing(self, number: int) -> bool:
        """A list may pass over an object that is made meanwhile; so look again before calling it damage."""
        return not self._is_there(number) and number > self.boundary.read()

    def _list_latest(self) -> Entry | None:
        boundary = self.boundary.read()
        numbers = [listed.id for listed in self.listing(start_after=boundary)]
        self.refuse_damage(numbers, boundary)
        return self._read_if_there(numbers[-1]) if numbers else None

    def _read_if_there(self, number: int) -> Entry | None:
        try:
            return self.read(number)
        except ObjectNotFoundError:
            return None  # collected since; the caller's look at the boundary sees that

    def _damaged(self, what: str) -> CorruptError:
        return CorruptError(
            f"{self.store.name}: the history of {self.namespace.folder} is damaged: {what}",
            hint="objects or the boundary were removed by hand; `headwater sequence show` lists what is left",
            path=self.namespace.folder,
        )

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
