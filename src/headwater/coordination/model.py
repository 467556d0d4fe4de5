"""The nouns of coordination, and the errors that only it has."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.kernel.errors import ConflictError


@dataclass(frozen=True)
class Lease:
    """A promise to come back within `ttl_seconds`, which may be longer than was asked for."""

    id: int
    ttl_seconds: float


@dataclass(frozen=True)
class Entry:
    """A key as it stood at some revision. `version` counts its puts since it was created."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int | None = None


@dataclass(frozen=True)
class Listing:
    """Entries in the order of their keys, and the revision that they are from: watch after it misses nothing."""

    revision: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Absent:
    """The key does not exist."""

    key: str


@dataclass(frozen=True)
class ModifiedAt:
    """The key exists, and was last put at this revision."""

    key: str
    mod_revision: int


@dataclass(frozen=True)
class CreatedAt:
    """The key exists without a break since this revision: the check of a fencing token."""

    key: str
    create_revision: int


@dataclass(frozen=True)
class LeasedBy:
    """The key exists and hangs on this lease, which is therefore alive."""

    key: str
    lease: int


Compare = Absent | ModifiedAt | CreatedAt | LeasedBy


@dataclass(frozen=True)
class Put:
    """Create or overwrite. With a lease the key vanishes with it; without one it stays."""

    key: str
    value: bytes
    lease: int | None = None


@dataclass(frozen=True)
class Delete:
    """Delete, if it exists."""

    key: str


Operation = Put | Delete


@dataclass(frozen=True)
class Event:
    """What happened to a key: its new entry, or `None` when it was deleted or its lease expired."""

    key: str
    entry: Entry | None


@dataclass(frozen=True)
class Batch:
    """All that happened at one revision, so that its revision is always a safe place to resume from."""

    revision: int
    events: tuple[Event, ...]


class LeaseExpiredError(ConflictError):
    """The lease has expired or was revoked, and whatever hung on it is gone."""


class CompactedError(ConflictError):
    """The history that was asked for is forgotten: list again, and watch from there."""


def failed(compare: Compare, actual: Entry | None) -> str | None:
    """Why `compare` does not hold against the key's present entry, or `None` when it does."""
    match compare:
        case Absent():
            return None if actual is None else "absent"
        case ModifiedAt():
            held = actual is not None and actual.mod_revision == compare.mod_revision
            return None if held else f"modified at {compare.mod_revision}"
        case CreatedAt():
            held = actual is not None and actual.create_revision == compare.create_revision
            return None if held else f"created at {compare.create_revision}"
        case LeasedBy():
            held = actual is not None and actual.lease == compare.lease
            return None if held else f"leased by {compare.lease}"


def conflict(compare: Compare, expected: str, actual: Entry | None) -> ConflictError:
    """The error for the first compare that failed."""
    found = "absent"
    if actual is not None:
        found = f"created at {actual.create_revision}, modified at {actual.mod_revision}"
        found += f", leased by {actual.lease}" if actual.lease is not None else ""
    return ConflictError(
        f"{compare.key} was expected to be {expected}, but is {found}",
        hint="read again, then retry",
        key=compare.key,
        expected=expected,
        actual=found,
    )


def lease_expired(lease: int, key: str | None = None) -> LeaseExpiredError:
    """The error for a lease that is not there any more."""
    about = {} if key is None else {"key": key}
    return LeaseExpiredError(f"lease {lease} has expired", hint="acquire again", lease=lease, **about)


def compacted(after_revision: int, oldest: int) -> CompactedError:
    """The error for a watch that starts in forgotten history."""
    return CompactedError(
        f"the history after revision {after_revision} is gone; the oldest kept is {oldest}",
        hint="list again, and watch after the revision of the list",
        after_revision=after_revision,
        oldest_revision=oldest,
    )


def abandoned(operation: str) -> ConflictError:
    """The error for a transaction that arrives after its outcome was settled."""
    return ConflictError(
        f"operation {operation} was settled as not done before it arrived",
        hint="try again under a new id",
        operation=operation,
    )
