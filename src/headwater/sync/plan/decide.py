"""Which files are copied, which are only looked at, and how they go together. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headwater.regions.resolve import Resolution
from headwater.sync.diff.model import Needed
from headwater.sync.plan.model import BatchLimits, Found, NotYetThereError, OccupiedError, PlannedFile, SizesDifferError
from headwater.sync.runs.model import Shipped
from headwater.tables.reach import ReachKind

# Files that hold paths are written anew by localise, and the replica shows no copy of the original.
REWRITTEN = frozenset({ReachKind.POSITION_DELETES, ReachKind.DELETION_VECTOR})


def is_shown(needed: Needed) -> bool:
    """Whether the replica shows the file itself, or a copy of it."""
    return needed.kind not in REWRITTEN


def may_stay(needed: Needed, resolution: Resolution) -> bool:
    """Whether a file with paths in it may be shown where it is: localise leaves it there if all of them are local.

    It is not judged by its size: engines are known to write a wrong one into their manifests, and localise reads it.
    """
    return needed.kind in REWRITTEN and resolution.is_local


def once(placed: Iterable[tuple[Resolution, int]]) -> Iterator[tuple[Resolution, int]]:
    """Each file once, however it is spelled; manifests that do not agree about one are an error.

    Remembers every file that it has seen.
    """
    seen: dict[str, int] = {}
    for resolution, size_bytes in placed:
        known = seen.setdefault(resolution.source, -1)
        if known == -1:
            seen[resolution.source] = size_bytes
            yield resolution, size_bytes
        elif known != size_bytes:
            raise SizesDifferError(resolution.source, known, size_bytes)


def planned(resolution: Resolution, size_bytes: int, found: Found | None, shipped: Shipped = Shipped.NO) -> PlannedFile:
    """What is done about one file.

    there, of the same size      not copied; its bytes are compared unless its checksum is known, or it was shipped
    there, of another size       refused: nothing is overwritten
    not there, and ours to copy  copied
    not there, and local         copied all the same: it is looked for in the other regions
    not there, kept elsewhere    refused until the region that keeps it has it
    """
    source, destination = resolution.source, resolution.destination
    if found is not None:
        if found.size_bytes != size_bytes:
            raise OccupiedError(source, destination, size_bytes, found.size_bytes)
        must_read = shipped is Shipped.NO and found.checksum is None and not resolution.is_local
        return PlannedFile(source, destination, size_bytes, is_present=True, must_read=must_read)
    if resolution.is_elsewhere:
        raise NotYetThereError(source, destination, resolution.region)
    return PlannedFile(source, destination, size_bytes)


def batched(files: Iterable[PlannedFile], limits: BatchLimits) -> Iterator[tuple[PlannedFile, ...]]:
    """The files in batches, in their order; what is there already weighs nothing, but counts."""
    waiting: list[PlannedFile] = []
    size_bytes = 0
    for each in files:
        weight = 0 if each.is_present else each.size_bytes
        if waiting and (len(waiting) >= limits.files or size_bytes + weight > limits.size_bytes):
            yield tuple(waiting)
            waiting, size_bytes = [], 0
        waiting.append(each)
        size_bytes += weight
    if waiting:
        yield tuple(waiting)
