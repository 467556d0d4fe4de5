"""Planning: files that are needed become batches, each with its list in the region's reserved folder.

Promise: every file of a plan was claimed before it was looked for (G3), so that what is found stays until the run ends.
No two files of a plan have one destination (R6), and nothing is planned over what is there.

Invariants:

    1  Claim, then look, then plan. A file that is being deleted cannot be claimed, and ends the plan.
    2  A list is named by its content and written before the batch is noted in the database: whoever reads a batch finds
       its list, and planning the same again writes nothing new.

    3  A list goes when its run has ended, and nobody will read it again. It was never published, and holds names only.

Commit point: `Runs.plan`, which takes the batches that come out of here. What a crash before it leaves behind: claims,
which go with the run, and lists that no plan names, which go with the lists of the run.
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
from headwater.sync.plan.decide import batched, is_shown, may_stay, once, planned
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
    numbers = count(1)
    for each in made(planning, _distinct(planning, needed)):
        yield PlannedBatch(next(numbers), *each)


def foreseen(planning: Planning, needed: Iterable[Needed]) -> Iterator[PlannedFile]:
    """The files of a plan, of which nothing is written; whether any is claimed is the planning's."""
    return _looked_at(planning, _distinct(planning, needed))


def _distinct(planning: Planning, needed: Iterable[Needed]) -> Iterator[Placed]:
    """Each file once, and no two of one destination."""
    sizes: dict[str, int] = {}

    def resolved() -> Iterator[Resolution]:
        for resolution, size_bytes in once(placed(planning, needed)):
            sizes[resolution.source] = size_bytes
            yield resolution

    return ((each, sizes.pop(each.source)) for each in check_injective(resolved()))


def placed(planning: Planning, needed: Iterable[Needed]) -> Iterator[Placed]:
    """Files with their places. Those that localise reads are left out; what it may leave as it is, is claimed."""
    staying: list[Resolution] = []
    for each in needed:
        resolution = planning.resolver.resolve(each.uri)
        if is_shown(each):
            yield resolution, each.size_bytes
        elif may_stay(each, resolution):
            staying.append(resolution)
        if len(staying) >= _AT_ONCE:
            _claim(planning, staying)
            staying = []
    _claim(planning, staying)


def _claim(planning: Planning, resolutions: Iterable[Resolution]) -> None:
    by_region: dict[str, list[str]] = {}
    for each in resolutions:
        by_region.setdefault(each.region, []).append(each.destination)
    for region, uris in by_region.items():
        if deleting := planning.claim(region, uris):
            raise BeingDeletedError(region, deleting)


def made(planning: Planning, distinct: Iterable[Placed]) -> Iterator[tuple[int, int, str]]:
    """Batches, as the number of files, the bytes to copy, and where the list is. Holds one batch at a time."""
    for files in batched(_looked_at(planning, distinct), planning.limits):
        size_bytes = sum(each.size_bytes for each in files if not each.is_present)
        yield len(files), size_bytes, _write(planning, files)


def read_batch(files: Files, batch: PlannedBatch) -> tuple[PlannedFile, ...]:
    """The files of a batch."""
    return decode_batch(files.read(batch.list_uri), batch.list_uri)


def remove_lists(files: Files, folder: str, is_ended: Callable[[str], bool]) -> int:
    """Remove the lists of all runs under the folder that have ended, however they did; returns how many.

    Those of a run that is running stay, and so do those of a run that is not known: it may be of another lake.
    """
    store, prefix = files.place(f"{folder.rstrip('/')}/run")
    prefix = prefix.removesuffix("run")
    removed = 0
    ended: dict[str, bool] = {}
    for each in store.list(prefix):
        run, slash, _ = each.path.removeprefix(prefix).partition("/")
        if run not in ended:
            ended[run] = bool(slash) and is_ended(run)
        if ended[run]:
            store.delete(each.path)
            removed += 1
    return removed


def _looked_at(planning: Planning, distinct: Iterable[Placed]) -> Iterator[PlannedFile]:
    rest = iter(distinct)
    missing: list[PlannedFile] = []
    lacking = 0
    while some := list(islice(rest, _AT_ONCE)):
        _claim(planning, [resolution for resolution, _ in some])
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
