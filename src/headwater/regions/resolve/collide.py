"""No two files with one destination (hazard R6): a copy would stand for another file, and be deleted with it.

Prefixes alone cannot tell: by design every source lands under one local prefix, and names are usually unique. So the
registry shows which rules share a target (`sharing`), and each run checks the files that it really has. A run on Spark
groups its plan by destination and hands the groups of several sources to `collision`; a small one calls
`check_injective`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headwater.regions.errors import CollisionError
from headwater.regions.registry.model import Registry
from headwater.regions.resolve.model import Resolution


def check_injective(resolutions: Iterable[Resolution]) -> Iterator[Resolution]:
    """The same resolutions, one by one; `CollisionError` at the first whose destination is another file's.

    It remembers every destination that it has seen: one batch, or one run of a size that fits into memory.
    """
    seen: dict[str, Resolution] = {}
    for each in resolutions:
        first = seen.setdefault(each.destination, each)
        if first.source != each.source:
            raise collision(first, each)
        yield each


def collision(first: Resolution, second: Resolution) -> CollisionError:
    """Two files of one destination, each with the rule that sent it there."""
    return CollisionError(first.destination, (first.source, str(first.rule)), (second.source, str(second.rule)))


def sharing(registry: Registry) -> dict[str, tuple[str, ...]]:
    """By region: the prefixes whose files all land under its local prefix, where equal names would collide."""
    found = {}
    taken = {each.match_from for each in registry.overrides}
    for region in registry.regions:
        prefixes = [each.match_from for each in registry.overrides if each.to_region == region.name]
        if registry.dest_policy.region in (None, region.name):
            prefixes += [each for each in registry.sources if each not in taken]
        # What lies in the region keeps its name.
        others = {each for each in prefixes if not each.startswith(region.local_prefix)}
        found[region.name] = tuple(sorted({region.local_prefix, *others}))
    return found
