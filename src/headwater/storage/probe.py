"""Does the store keep its promises? Asked at open (`probe`), and at length by `headwater doctor` (`race`).

The probes work on objects under `_headwater/probe/` and remove them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from headwater.kernel.clock import Clock
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.ids import new_ulid
from headwater.kernel.randomness import Randomness
from headwater.storage.errors import (
    MissingCapabilityError,
    PreconditionFailedError,
    StorageError,
    StorageOutcomeUnknownError,
    TransientError,
)
from headwater.storage.port import Capability, Create, ObjectStore, Update

PREFIX = "_headwater/probe"
_TRIES = 20
_START_SECONDS = 60.0


def probe(store: ObjectStore, clock: Clock, randomness: Randomness) -> frozenset[Capability]:
    """The capabilities that the store claims and, of those that compare, has just shown."""
    shown = set(store.capabilities)
    with _scratch(store, clock, randomness) as path:
        try:
            first = store.put(path, b"one", Create())
        except (StorageError, MissingCapabilityError) as error:
            if not _cannot(error):
                raise
            return frozenset(shown - {Capability.CREATE, Capability.UPDATE, Capability.CONDITIONAL_GET})
        if Capability.CONDITIONAL_GET in shown and store.get_if_changed(path, first) is not None:
            shown.discard(Capability.CONDITIONAL_GET)
        if _accepts(lambda: store.put(path, b"two", Create())):
            shown.discard(Capability.CREATE)
        current = store.get(path).meta.etag or ""
        if not _accepts(lambda: store.put(path, b"three", Update(current))):
            shown.discard(Capability.UPDATE)
        if _accepts(lambda: store.put(path, b"four", Update(current))):
            shown.discard(Capability.UPDATE)
    return frozenset(shown)


@dataclass(frozen=True)
class RaceResult:
    """How often several writers, or none, were told that they had created the same object."""

    rounds: int
    writers: int
    double_wins: int
    no_wins: int
    wrong_content: int

    @property
    def clean(self) -> bool:
        """Whether exactly one writer won each round, and its bytes are what is stored."""
        return not (self.double_wins or self.no_wins or self.wrong_content)

    def plus(self, other: RaceResult) -> RaceResult:
        """Both races as one."""
        return RaceResult(
            self.rounds + other.rounds,
            self.writers,
            self.double_wins + other.double_wins,
            self.no_wins + other.no_wins,
            self.wrong_content + other.wrong_content,
        )


def race(
    store: ObjectStore,
    clock: Clock,
    randomness: Randomness,
    *,
    writers: int = 32,
    rounds: int = 200,
    payload_bytes: int = 4096,
) -> RaceResult:
    """Let many writers create the same object at the same moment, again and again."""
    tally = {"double": 0, "none": 0, "wrong": 0}
    with ThreadPoolExecutor(writers) as pool:
        for _ in range(rounds):
            with _scratch(store, clock, randomness) as path:
                start = threading.Barrier(writers)
                payloads = [f"{number:08d}".encode() * (payload_bytes // 8) for number in range(writers)]

                def attempt(payload: bytes, path: str = path, start: threading.Barrier = start) -> bool | None:
                    start.wait(_START_SECONDS)
                    return _creates(store, path, payload)

                answers = list(pool.map(attempt, payloads))
                winners = [payload for payload, won in zip(payloads, answers, strict=True) if won]
                unknown = any(won is None for won in answers)
                tally["double"] += len(winners) > 1
                tally["none"] += not winners and not unknown
                tally["wrong"] += len(winners) == 1 and store.get(path).data != winners[0]
    return RaceResult(rounds, writers, tally["double"], tally["none"], tally["wrong"])


def _creates(store: ObjectStore, path: str, payload: bytes) -> bool | None:
    """Whether the create won; None when its answer was lost, or it never got through."""
    for _ in range(_TRIES):
        try:
            store.put(path, payload, Create())
        except PreconditionFailedError:
            return False
        except StorageOutcomeUnknownError:
            return None
        except TransientError:
            continue
        return True
    return None


def _accepts(put: Callable[[], str]) -> bool:
    """Whether the store did it. That it does not know such puts at all is a no; that it is down is an error."""
    try:
        put()
    except PreconditionFailedError:
        return False
    except (StorageError, MissingCapabilityError) as error:
        if not _cannot(error):
            raise
        return False
    return True


def _cannot(error: HeadwaterError) -> bool:
    """Whether this means that the store does not know such a put; that it is ill, or missing, means something else."""
    return isinstance(error, MissingCapabilityError) or error.fields.get("status") in (400, 405, 501)


@contextmanager
def _scratch(store: ObjectStore, clock: Clock, randomness: Randomness) -> Iterator[str]:
    path = f"{PREFIX}/{new_ulid(clock, randomness)}"
    try:
        yield path
    finally:
        with suppress(HeadwaterError):
            store.delete(path)
