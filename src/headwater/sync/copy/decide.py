"""How a batch is cut into legs, and what is done about a file that did not arrive. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from headwater.kernel.errors import RefusedError
from headwater.sync.copy.model import CopyItem, Leg, Moved

# When so many files of a leg fail, the cause is not in the files: more tries would only take longer to say so.
RETRIED_ALONE = 20
# Scheme, nothing, bucket (empty for a folder): what stands before a path, when a URI is cut at its slashes.
_ROOT_PARTS = 3


class Next(enum.StrEnum):
    """What is done about a file that a mover has not brought.

    there       it is at its destination: whoever brought it, it is there
    occupied    something else is: it is never overwritten (R6), and no retry changes that
    elsewhere   the source has no such file: it is looked for in the other regions
    alone       source and destination are fine: the file is tried again by itself
    """

    THERE = "there"
    OCCUPIED = "occupied"
    ELSEWHERE = "elsewhere"
    ALONE = "alone"


def legs(items: Iterable[CopyItem], prefixes: Sequence[str] = ()) -> tuple[Leg, ...]:
    """The files by pairs of roots, each file once; the order within a leg is that of the items.

    `prefixes` are those of regions: a root never ends above one, because what leads to a store hangs on them.

    A file that should be where it already is (a local one that is missing) has no way to go, and is in no leg. Two
    files with one destination are refused: whichever came second would be taken for the first (R6).
    """
    sources: dict[str, str] = {}
    grouped: dict[tuple[str, str], list[tuple[str, CopyItem]]] = {}
    for item in items:
        known = sources.setdefault(item.destination, item.source)
        if known != item.source:
            raise RefusedError(
                f"{known} and {item.source} have one destination, {item.destination}",
                hint="change the registry so that each file has a place of its own",
                sources=[known, item.source],
                destination=item.destination,
            )
        if item.source != item.destination:
            source_root, destination_root, name = roots(item.source, item.destination, prefixes)
            grouped.setdefault((source_root, destination_root), []).append((name, item))
    return tuple(Leg(*pair, tuple(dict.fromkeys(named))) for pair, named in grouped.items())


def roots(source: str, destination: str, prefixes: Sequence[str] = ()) -> tuple[str, str, str]:
    """The roots under which both have the same name, and that name, as long as it can be."""
    first, second = source.split("/"), destination.split("/")
    same = 0
    longest = min(len(first) - _least_root(source, prefixes), len(second) - _least_root(destination, prefixes))
    while same < longest and first[-1 - same] == second[-1 - same]:
        same += 1
    if same == 0:
        return source, destination, ""
    return "/".join(first[:-same]), "/".join(second[:-same]), "/".join(first[-same:])


def _least_root(uri: str, prefixes: Sequence[str]) -> int:
    """How many parts of the URI belong to its root in any case."""
    return max((prefix.count("/") for prefix in prefixes if uri.startswith(prefix)), default=_ROOT_PARTS)


def alone(item: CopyItem, source: str, prefixes: Sequence[str] = ()) -> Leg:
    """A leg of one file, from this source."""
    source_root, destination_root, name = roots(source, item.destination, prefixes)
    return Leg(source_root, destination_root, ((name, item),))


def next_step(item: CopyItem, *, source_bytes: int | None, destination_bytes: int | None) -> Next:
    """What is done about a file that is not known to be there, by the sizes that both ends have now, if any."""
    if destination_bytes is not None:
        return Next.THERE if destination_bytes == item.size_bytes else Next.OCCUPIED
    if source_bytes is None or item.source == item.destination:
        return Next.ELSEWHERE
    return Next.ALONE


def is_worth_a_retry(failures: int) -> bool:
    """Whether files of a leg with so many failures are tried again one by one."""
    return failures <= RETRIED_ALONE


def throughput(samples: Sequence[tuple[float, int]], now_seconds: float, window_seconds: float = 60.0) -> float:
    """Bytes a second over the last minute, from (time, bytes so far) in their order; 0 before there are two."""
    recent = [sample for sample in samples if sample[0] >= now_seconds - window_seconds]
    if len(recent) < 2 or recent[-1][0] <= recent[0][0]:
        return 0.0
    return (recent[-1][1] - recent[0][1]) / (recent[-1][0] - recent[0][0])


def merged(parts: Iterable[Moved]) -> Moved:
    """What several movers say of parts of one leg, as one."""
    copied: set[str] = set()
    present: set[str] = set()
    failed: dict[str, str] = {}
    transferred_bytes = 0
    for part in parts:
        copied |= part.copied
        present |= part.present
        failed |= part.failed
        transferred_bytes += part.transferred_bytes
    return Moved(frozenset(copied), frozenset(present), failed, transferred_bytes)
