"""Where else a file may be, by the registry: where the other regions have their copies of it."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.kernel.errors import HeadwaterError
from headwater.regions.registry.model import Registry
from headwater.regions.resolve import Replicas


class Elsewhere:
    """The places that one registry gives to a file."""

    def __init__(self, registry: Registry) -> None:
        self._replicas = Replicas(registry)

    def __call__(self, uri: str, /) -> Sequence[str]:
        """The other URIs that hold the file if all regions are in order; none when the other regions cannot have it."""
        try:
            return self._replicas.elsewhere(uri)
        except HeadwaterError:  # no rule of another region covers it: none has a copy
            return ()
