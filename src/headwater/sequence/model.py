"""What the sequence protocol talks about."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from headwater.kernel.errors import ConflictError, CorruptError, OutcomeUnknownError, UsageError
from headwater.kernel.ids import Ulid
from headwater.storage.paths import check_prefix, join

FIRST_ID = 1
LAST_ID = 2**64 - 1
ID_DIGITS = 20
GC_FOLDER = "gc"

_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_RESERVED = (GC_FOLDER, "_headwater")
_SUFFIX = re.compile(r"(\.[A-Za-z0-9_-]+)+")


@dataclass(frozen=True)
class Namespace:
    """One line of history: objects `<root>/<name>/<id><suffix>`.

    In a shared folder, files with another ending belong to somebody else and are passed over; otherwise
    everything in the folder must be an object of the sequence.
    """

    root: str
    name: str
    suffix: str
    shared_folder: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", check_prefix(self.root))
        if not _NAME.fullmatch(self.name) or self.name in _RESERVED or self.name.endswith((".pins", ".boundary")):
            raise UsageError(
                f"{self.name!r} cannot name a namespace",
                hint="letters, digits, '_', '-' and single dots within; names of our own bookkeeping are reserved",
                namespace=self.name,
            )
        if not _SUFFIX.fullmatch(self.suffix):
            raise UsageError(f"{self.suffix!r} cannot be a suffix", hint="like .manifest", suffix=self.suffix)

    @property
    def folder(self) -> str:
        """Where the objects are."""
        return join(self.root, self.name)

    @property
    def boundary_path(self) -> str:
        """Where the boundary is."""
        return join(self.root, f"{GC_FOLDER}/{self.name}.boundary")

    @property
    def pins_folder(self) -> str:
        """Where the pins are."""
        return join(self.root, f"{GC_FOLDER}/{self.name}.pins")

    def path_of(self, number: int) -> str:
        """The object that holds this id."""
        if not FIRST_ID <= number <= LAST_ID:
            raise UsageError(f"{number} is not an id", hint=f"ids go from {FIRST_ID} to {LAST_ID}", id=number)
        return f"{self.folder}/{number:0{ID_DIGITS}d}{self.suffix}"


@dataclass(frozen=True)
class Entry:
    """One object of the history: who wrote it, on top of whose object, and what it says."""

    id: int
    writer: Ulid
    previous: Ulid | None
    payload: bytes


@dataclass(frozen=True)
class Listed:
    """An object as a list shows it; the time is the store's own."""

    id: int
    path: str
    last_modified: datetime


@dataclass(frozen=True)
class Pin:
    """A promise, with an end, that the collector keeps one object. Only a granted one speaks for another (S7)."""

    pin: Ulid
    holder: str
    granted: bool
    expires_at: datetime


@dataclass(frozen=True)
class PinRecord:
    """All pins of one object, in one object of their own, so that they are read and changed as one (hazard S9).

    It names the object by id and writer, because a stalled writer may come to sit at an id whose object was
    collected (S4). `attempt` names the put that wrote it, so no two puts have the same bytes (S13).
    """

    id: int
    writer: Ulid
    pins: tuple[Pin, ...]
    attempt: Ulid | None = field(default=None, compare=False)

    def with_pin(self, pin: Pin) -> PinRecord:
        """The record with this pin added, or replaced by its newer state."""
        others = tuple(each for each in self.pins if each.pin != pin.pin)
        return replace(self, pins=(*others, pin))

    def without(self, pin: Ulid) -> PinRecord:
        """The record without this pin."""
        return replace(self, pins=tuple(each for each in self.pins if each.pin != pin))


@dataclass(frozen=True)
class HeldPin:
    """What a client holds in its hand: its pin, and what it pins."""

    id: int
    writer: Ulid
    pin: Pin


@dataclass(frozen=True)
class Collection:
    """What one collection did, or would do: where the boundary goes, and which objects behind it go away."""

    latest: int | None
    boundary_before: int
    boundary_after: int
    deleted: tuple[int, ...]
    pinned: tuple[int, ...]


@dataclass(frozen=True)
class Retention:
    """How old an object must be to be collected, and how far clocks may differ."""

    min_age: timedelta
    clock_skew: timedelta = timedelta(seconds=60)

    def __post_init__(self) -> None:
        if self.min_age < timedelta(0) or self.clock_skew < timedelta(0):
            raise UsageError("min_age and clock_skew cannot be negative")


class SequenceConflictError(ConflictError):
    """Somebody else holds this id. It is proven that our object is not, and will not be, in the history."""

    def __init__(self, path: str, writer: Ulid) -> None:
        super().__init__(
            f"{path} was taken by another writer",
            hint="read the latest object and try again",
            path=path,
            operation=writer,
        )


class SequenceOutcomeUnknownError(OutcomeUnknownError):
    """Whether our object is in the history cannot be told from what is left of it."""

    def __init__(self, path: str, number: int, writer: Ulid, reason: str) -> None:
        super().__init__(
            f"whether {path} was committed is not known: {reason}",
            operation=writer,
            hint=f"look for writer {writer} in the history before doing the work again",
            path=path,
            id=number,
        )
        self.id = number


class BoundaryLostError(CorruptError):
    """A boundary that was seen before is gone, or has gone backwards. Nothing may be written any more."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            f"the boundary {path} {what}; this process stops writing here",
            hint="boundaries are never deleted: find out who did, and restore it, before any writer starts again",
            path=path,
        )


class PinLostError(ConflictError):
    """The object can no longer be kept: it may be gone already. Read the latest object, and pin that."""
