"""Planning: files that are needed become batches, each with its list in the region's reserved folder.

Promise: every file of a plan was claimed before it was looked for (G3), so that what is found stays until the run ends.
No two files of a plan have one destination (R6), and nothing is planned over what is there.

Invariants:

    1  Claim, then look, then plan. A file that is being deleted cannot be claimed, and ends the plan.
    2  A list is named by its content and written before the batch is noted in the database: whoever reads a batch finds
       its list, and planning the same again writes nothing new.

Commit point: `Runs.plan`, which takes the batches that come out of here. What a crash before it leaves behind: claims,
which go with the run, and lists that no plan names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from typing import TypeAlias

from headwater.kernel.errors import ConflictError
from headwater.regions.resolve import Resolution, Resolver, check_injective
from headwater.storage.errors import PreconditionFailedError
from headwater.storage.port import Create
from headwater.sync.diff.model import Needed
from headwater.sync.plan.codec import decode_batch, encode_batch
from headwater.sync.plan.decide import batched, is_copied, once, planned
from headwater.sync.plan.model import BatchLimits, NotLoadedError, PlannedFile, Presence
from headwater.sync.runs.model import PlannedBatch, Shipped
from headwater.tables.files import Files

# Claims files of a region; returns those that are being deleted, and are not claimed.
Claim: TypeAlias = Callable[[str, Sequence[str]], Sequence[str]]
# A file with its place, and its size.
Placed: TypeAlias = tuple[Resolution, int]

# Files that are claimed and looked for together.
_AT_ONCE = 1_000
# Files that were not loaded, of which an error tells so many by name.
_NAMED = 20


@dataclass(frozen=True)
class Planning:
    """What a plan is made with. `lists_prefix` is the run's own, in the region's reserved folder."""

    files: Files
    resolver: Resolver
    presence: Presence
    claim: Claim
    lists_prefix: str
    limits: BatchLimits
    shipped: Shipped = Shipped.NO


class BeingDeletedError(ConflictError):
    """A file that is needed again is just being deleted; once it is gone it can be copied."""

    def __init__(self, region: str, uris: Sequence[str]) -> None:
        super().__init__(
            f"{uris[0]} is being deleted in {region}" + (f", and {len(uris) - 1} more" if len(uris) > 1 else ""),
            hint="run the sync again when the deletion has ended",
            region=region,
            files=list(uris),
        )


def plan(planning: Planning, needed: Iterable[Needed]) -> Iterator[PlannedBatch]:
    """The batches of a plan that is made here; its files are held in memory, so it is for runs of a moderate size."""
    copied = once(each for each in needed if is_copied(each))
    sizes: dict[str, int] = {}

    def resolved() -> Iterator[Resolution]:
        for each in copied:
            found = planning.resolver.resolve(each.uri)
            sizes[found.source] = each.size_bytes
            yield found

    placed = ((each, sizes[each.source]) for each in check_injective(resolved()))
    numbers = count(1)
    for each in made(planning, placed):
        yield PlannedBatch(next(numbers), *each)


def made(planning: Planning, placed: Iterable[Placed]) -> Iterator[tuple[int, int, str]]:
    """Batches, as the number of files, the bytes to copy, and where the list is. Holds one batch at a time."""
    for files in batched(_looked_at(planning, placed), planning.limits):
        size_bytes = sum(each.size_bytes for each in files if not each.is_present)
        yield len(files), size_bytes, _write(planning, files)


def read_batch(files: Files, batch: PlannedBatch) -> tuple[PlannedFile, ...]:
    """The files of a batch."""
    return decode_batch(files.read(batch.list_uri), batch.list_uri)


def _looked_at(planning: Planning, placed: Iterable[Placed]) -> Iterator[PlannedFile]:
    rest = iter(placed)
    missing: list[PlannedFile] = []
    lacking = 0
    while some := list(islice(rest, _AT_ONCE)):
        by_region: dict[str, list[str]] = {}
        for resolution, _ in some:
            by_region.setdefault(resolution.region, []).append(resolution.destination)
        for region, uris in by_region.items():
            if deleting := planning.claim(region, uris):
                raise BeingDeletedError(region, deleting)
        found = planning.presence.look([resolution.destination for resolution, _ in some])
        for resolution, size_bytes in some:
            file = planned(resolution, size_bytes, found.get(resolution.destination), planning.shipped)
            if planning.shipped is Shipped.ALL and not file.is_present:
                missing, lacking = [*missing, file][:_NAMED], lacking + 1
            yield file
    if missing:  # said at the end, of all of them
        raise NotLoadedError(missing, lacking)


def _write(planning: Planning, files: Sequence[PlannedFile]) -> str:
    data = encode_batch(files)
    location = f"{planning.lists_prefix.rstrip('/')}/{hashlib.sha256(data).hexdigest()}.parquet"
    store, path = planning.files.place(location)
    with suppress(PreconditionFailedError):  # the same, by its name
        store.put(path, data, Create())
    return location
