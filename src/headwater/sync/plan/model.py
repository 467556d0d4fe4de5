"""A plan: files, each with its place in the region, in batches that are copied and verified together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headwater.kernel.errors import CorruptError, RefusedError


@dataclass(frozen=True)
class Found:
    """What lies at a destination already. `checksum` is its SHA-256, where a report or an earlier copy tells it."""

    size_bytes: int
    checksum: str | None = None


class Presence(Protocol):
    """Knows what is there: by asking for each object, or from an inventory that is fresh enough."""

    def look(self, uris: Sequence[str]) -> Mapping[str, Found]:
        """Those of the URIs that are there."""
        ...


@dataclass(frozen=True)
class PlannedFile:
    """One file that a run needs.

    `is_present`: it is there in the right size, and is not copied. `must_read`: nobody here has copied or read it, so
    that verify compares its bytes, whatever its sample.
    """

    source: str
    destination: str
    size_bytes: int
    is_present: bool = False
    must_read: bool = False


@dataclass(frozen=True)
class BatchLimits:
    """How much goes into one batch at most; a file that is larger has one of its own."""

    files: int
    size_bytes: int


class OccupiedError(RefusedError):
    """Something else is where a file should be copied to; it is never overwritten (R6)."""

    def __init__(self, source: str, destination: str, expected_bytes: int, actual_bytes: int) -> None:
        is_local = source == destination
        told = "by its table's metadata it has" if is_local else f"{source}, which belongs there, has"
        super().__init__(
            f"{destination} has {actual_bytes} bytes, and {told} {expected_bytes}",
            hint=(
                "it was damaged, or written anew: put back what the table was written with"
                if is_local
                else "two files share one destination, or a copy is damaged: look at both, and remove the wrong one"
            ),
            source=source,
            destination=destination,
            expected=expected_bytes,
            actual=actual_bytes,
        )


class NotYetThereError(RefusedError):
    """Another region keeps the file for all (an override), and has not copied it yet (R8)."""

    def __init__(self, source: str, destination: str, region: str) -> None:
        super().__init__(
            f"{destination} is not there yet: {region} keeps {source} for all regions",
            hint=f"sync {region} first; this region goes on afterwards",
            source=source,
            destination=destination,
            region=region,
        )


class NotLoadedError(RefusedError):
    """Files that were said to be loaded are not there, and nothing is to be copied."""

    def __init__(self, missing: Sequence[PlannedFile], count: int) -> None:
        more = f", and {count - 1} more" if count > 1 else ""
        super().__init__(
            f"{missing[0].destination} was not loaded{more}: it is needed for {missing[0].source}",
            hint="load what is missing, or let it be copied: leave out --no-copy",
            files=[each.destination for each in missing],
            sources=[each.source for each in missing],
            count=count,
        )


class SizesDifferError(CorruptError):
    """Two manifests tell different sizes of one file."""

    def __init__(self, uri: str, first_bytes: int, second_bytes: int) -> None:
        super().__init__(
            f"{uri} has {first_bytes} bytes by one manifest, and {second_bytes} by another",
            hint="one of the manifests is wrong: repair the table on main",
            uri=uri,
        )
