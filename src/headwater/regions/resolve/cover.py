"""Which regions' files no rule covers: what is written there would reach no other region. Pure."""

from __future__ import annotations

from headwater.regions.registry.model import Registry


def uncovered(registry: Registry) -> tuple[str, ...]:
    """Regions whose local prefix lies under no source and no override, by name; a lone region lacks nothing.

    That is no mistake by itself: a region in which nobody writes needs no rule. A file of it that is written all the
    same is refused by every other region's run.
    """
    prefixes = (*registry.sources, *(each.match_from for each in registry.overrides))
    return tuple(
        each.name
        for each in registry.regions
        if len(registry.regions) > 1 and not each.local_prefix.startswith(prefixes)
    )
