"""What is copied, and what became of it. The plan step makes batches; verify reads the same items again."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headwater.kernel.errors import HeadwaterError, UnavailableError
from headwater.storage.port import ObjectStore


@dataclass(frozen=True)
class CopyItem:
    """One file: where it is, where it must be, how long it is, and its SHA-256 (hex) where somebody knows it."""

    source: str
    destination: str
    size_bytes: int
    checksum: str | None = None


@dataclass(frozen=True)
class CopyBatch:
    """Files that are copied together and reported together. The id is the plan's; it names the batch in reports."""

    id: str
    items: tuple[CopyItem, ...]

    @property
    def size_bytes(self) -> int:
        """What the batch moves if nothing of it is there yet."""
        return sum(item.size_bytes for item in self.items)


class Outcome(enum.StrEnum):
    """What became of one file.

    copied      it was not there, and this run wrote it: these bytes are ours to replace if they prove wrong
    present     something of its name and size was there already; it was left as it is
    failed      it is not there, or something else is in its place, and `reason` says why
    vanished    the source has no such file, and neither has any other region
    """

    COPIED = "copied"
    PRESENT = "present"
    FAILED = "failed"
    VANISHED = "vanished"


@dataclass(frozen=True)
class Copied:
    """One file after the batch; `origin` is the URI that the bytes came from, which need not be the planned one.

    `is_out_of_reach`: it failed because a store did not answer, which says nothing of the file.
    """

    item: CopyItem
    outcome: Outcome
    origin: str
    reason: str = ""
    is_out_of_reach: bool = False

    @property
    def is_there(self) -> bool:
        """Whether the destination has the file now."""
        return self.outcome in (Outcome.COPIED, Outcome.PRESENT)


@dataclass(frozen=True)
class BatchReport:
    """What became of a batch: one entry for each of its items, in their order."""

    batch: str
    files: tuple[Copied, ...]
    transferred_bytes: int
    seconds: float

    @property
    def lacking(self) -> tuple[Copied, ...]:
        """The files that are not at their destination."""
        return tuple(each for each in self.files if not each.is_there)


@dataclass(frozen=True)
class Leg:
    """Files with one pair of roots: what one run of a mover takes. Each name is relative to both roots.

    A leg of one file whose name changes on the way has that file's own URIs as roots, and no name for it.
    """

    source_root: str
    destination_root: str
    items: tuple[tuple[str, CopyItem], ...]


@dataclass(frozen=True)
class Moved:
    """What a mover says of a leg: the names that it wrote, those that were there, and why others failed.

    A name in none of the three was not found at the source.
    """

    copied: frozenset[str] = frozenset()
    present: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict)
    transferred_bytes: int = 0


class Mover(Protocol):
    """Moves files to where nothing is yet."""

    def move(self, leg: Leg, progress: Progress, *, replace: bool = False) -> Moved:
        """Copy a leg. What is at a destination stays as it is, unless `replace` says that it is ours to overwrite."""
        ...


class Progress(Protocol):
    """Told now and then how far a leg is."""

    def __call__(self, transferred_bytes: int, /) -> None:
        """So many bytes since the leg began."""
        ...


class Locator(Protocol):
    """Finds the store of a URI: `tables.files.Files`."""

    def place(self, location: str) -> tuple[ObjectStore, str]:
        """The store, and the path in it."""
        ...


class Alternatives(Protocol):
    """Where else a file may be."""

    def __call__(self, uri: str, /) -> Sequence[str]:
        """The URIs that the file has in other regions, the best first; empty when no other can have it."""
        ...


class Completions(Protocol):
    """Where the plan notes what is done."""

    def __call__(self, report: BatchReport, /) -> None:
        """Note the batch; durable when it returns. A batch that is noted is not copied again."""
        ...


class CopyFailedError(HeadwaterError):
    """Some files could not be copied; the others were. The replica stays where it was, and the next run goes on."""

    def __init__(self, lacking: Sequence[Copied]) -> None:
        first = lacking[0]
        more = f", and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        super().__init__(
            f"{first.item.source} could not be copied to {first.item.destination}: {first.reason}{more}",
            hint="files that were copied stay; run it again when the cause is gone",
            files=[each.item.source for each in lacking],
            destinations=[each.item.destination for each in lacking],
            outcomes=[str(each.outcome) for each in lacking],
        )
        self.lacking = tuple(lacking)


class CopyOutOfReachError(CopyFailedError, UnavailableError):
    """No file was refused or lost: stores did not answer. The run is taken up again where it stands."""


def failure(lacking: Sequence[Copied]) -> CopyFailedError:
    """The error that says of these files that they are not there."""
    kind = CopyOutOfReachError if all(each.is_out_of_reach for each in lacking) else CopyFailedError
    return kind(lacking)
