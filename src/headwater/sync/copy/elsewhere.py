"""Where else a file may be, by the registry: under the same name in the other regions."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.regions.registry.model import Registry


class Elsewhere:
    """The places that one registry gives to a file."""

    def __init__(self, registry: Registry) -> None:
        self._local = tuple(region.local_prefix for region in registry.regions)
        self._known = sorted({*self._local, *registry.sources}, key=len, reverse=True)

    def __call__(self, uri: str, /) -> Sequence[str]:
        """The URIs that a file of this one may have in every region, without itself."""
        prefix = next((each for each in self._known if uri.startswith(each)), None)
        if prefix is None:
            return ()
        places = (local + uri[len(prefix) :] for local in self._local)
        return tuple(place for place in places if place != uri)
