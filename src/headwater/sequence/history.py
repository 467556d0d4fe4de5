"""Reading the history of one namespace: its latest entry, any entry, what is there.

The latest object is found from a hint and a few probes, whatever the length of the history; only a process that
has no hint yet lists what lies ahead of the boundary. Whatever was found counts only if the boundary, read after
it, does not cover it (hazard S1). Ahead of the boundary history has no gaps: one is damage, and an error (S12).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headwater.kernel.clock import Clock
from headwater.kernel.errors import CorruptError
from headwater.kernel.metrics import Metrics
from headwater.kernel.randomness import Randomness
from headwater.kernel.retry import Retry, RetryPolicy
from headwater.sequence.boundary import Boundary
from headwater.sequence.codec import BodyCodec, EnvelopeCodec, id_of
from headwater.sequence.decide import newest_gap
from headwater.sequence.model import LAST_ID, Entry, Listed, Namespace
from headwater.storage.errors import ObjectNotFoundError
from headwater.storage.port import Capability, ObjectStore, require

READING = frozenset({Capability.CONDITIONAL_GET})

# How many successors of the hint are read one by one before the search leaps.
_PROBES = 3
# How often a search for the latest starts again because a collector overtook it.
_ROUNDS = 10


class History:
    """One namespace's history, as one process reads it. Safe to share among threads."""

    needed = READING

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
    ) -> None:
        require(store, self.needed, by=f"the sequence {namespace.folder}")
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

    def known(self, number: int) -> Entry:
        """The same for an id that is certainly in the history: from memory if it was the latest that was seen here."""
        return self.remembered(number) or self.read(number)

    def remembered(self, number: int) -> Entry | None:
        """The entry at this id, if it was the latest that was seen here."""
        hint = self._hint
        return hint if hint is not None and hint.id == number else None

    def settle(self, number: int) -> None:
        """Make sure that an entry that was seen stays: others may have died before theirs was durable."""
        self.store.settle(self.namespace.path_of(number))

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
