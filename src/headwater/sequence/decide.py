"""The decisions of the sequence protocol, without I/O: what a write may report, what a collector may delete."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from headwater.kernel.ids import Ulid
from headwater.sequence.model import Listed, PinRecord, Retention


class PutAnswer(enum.Enum):
    """What the store said to our last create."""

    CREATED = "created"
    REFUSED = "refused"
    LOST = "lost"


class Occupant(enum.Enum):
    """Whose object was found at the id, after the put."""

    OURS = "ours"
    FOREIGN = "foreign"
    NOBODY = "nobody"


class Successor(enum.Enum):
    """Whom the object at the next id names as its predecessor. It was prepared on the id's true holder."""

    NAMES_US = "names us"
    NAMES_ANOTHER = "names another"
    GONE = "gone"


class Step(enum.Enum):
    """What to find out next, or what to report."""

    READ_OCCUPANT = "read occupant"
    READ_BOUNDARY = "read boundary"
    READ_SUCCESSOR = "read successor"
    CREATE_AGAIN = "create again"
    COMMITTED = "committed"
    CONFLICT = "conflict"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Facts:
    """What a writer knows about its object so far. Each fact was read after the ones above it."""

    put: PutAnswer
    ever_lost: bool = False
    may_create: bool = True
    occupant: Occupant | None = None
    behind_boundary: bool | None = None
    successor: Successor | None = None


def next_step(facts: Facts) -> Step:
    """The way from a put to its report.

    - Ours and ahead of the boundary: committed. This is invariant 2.
    - Ours but behind it: either others built on our object before it was passed, or we sit at an id that was
      collected long ago. Only the next object can tell; "conflict" would be a guess (hazard S2).
    - Refused, and no answer of ours was ever lost: nothing of ours can be anywhere.
    - An answer was lost and the id is free: create the same object again, never a new one (hazard S3).
    - An answer was lost and the id is somebody else's: ahead of the boundary the id was never collected, so
      ours was never there. Behind it ours may have come and gone: again only the next object can tell.
    - Nobody is there and we may not create (any more): behind the boundary the next object may tell; ahead of it
      our put may still land.
    """
    if facts.put is PutAnswer.CREATED or facts.occupant is Occupant.OURS:
        if facts.behind_boundary is None:
            return Step.READ_BOUNDARY
        return _by_successor(facts) if facts.behind_boundary else Step.COMMITTED
    if facts.occupant is None:
        return Step.READ_OCCUPANT
    if facts.put is PutAnswer.REFUSED and not facts.ever_lost:
        return Step.CONFLICT
    if facts.occupant is Occupant.NOBODY and facts.may_create:
        return Step.CREATE_AGAIN
    if facts.behind_boundary is None:
        return Step.READ_BOUNDARY
    if facts.behind_boundary:
        return _by_successor(facts)
    return Step.CONFLICT if facts.occupant is Occupant.FOREIGN else Step.UNKNOWN


def _by_successor(facts: Facts) -> Step:
    match facts.successor:
        case None:
            return Step.READ_SUCCESSOR
        case Successor.NAMES_US:
            return Step.COMMITTED
        case Successor.NAMES_ANOTHER:
            return Step.CONFLICT
        case Successor.GONE:
            return Step.UNKNOWN


def old_enough(listed: Listed, now: datetime, retention: Retention) -> bool:
    """Whether the store's own time makes the object older than `min_age`."""
    return now - listed.last_modified > retention.min_age


def wished_boundary(listing: Sequence[Listed], now: datetime, retention: Retention) -> int | None:
    """The largest id that is old enough and not the latest."""
    latest = latest_id(listing)
    return max((each.id for each in listing if each.id != latest and old_enough(each, now, retention)), default=None)


def deletable(
    listing: Sequence[Listed], boundary: int, pinned: frozenset[int], now: datetime, retention: Retention
) -> tuple[Listed, ...]:
    """What may go: behind the durable boundary (invariant 1), old enough, not the latest, not pinned."""
    latest = latest_id(listing)
    return tuple(
        each
        for each in listing
        if each.id <= boundary and each.id != latest and each.id not in pinned and old_enough(each, now, retention)
    )


def latest_id(listing: Iterable[Listed]) -> int | None:
    """The largest id."""
    return max((each.id for each in listing), default=None)


def newest_gap(numbers: Iterable[int], start_after: int) -> int | None:
    """The largest id that is missing in an ascending list of ids that should go on right behind `start_after`.

    Ahead of the boundary history is contiguous, so a gap there is damage, not age.
    """
    gap = None
    expected = start_after + 1
    for number in numbers:
        if number != expected:
            gap = number - 1
        expected = number + 1
    return gap


def is_active(record: PinRecord, now: datetime, retention: Retention) -> bool:
    """Whether a collector must respect the record: while any pin, asked or granted, has not ended by any clock."""
    return any(now <= pin.expires_at + retention.clock_skew for pin in record.pins)


def may_grant(wanted: Ulid, record: PinRecord, boundary: int, now: datetime) -> bool:
    """Whether a pin that stands in the record, as it was written, holds. Boundary and time were read after that.

    Nothing was collected up to its id; or another pin, granted and still not ended, vouches that no collector took
    the object before ours was there to be seen. An asked pin vouches for nobody: two askers that came too late
    would vouch for each other (hazard S7).
    """
    if boundary < record.id:
        return True
    return any(pin.granted and now < pin.expires_at for pin in record.pins if pin.pin != wanted)
