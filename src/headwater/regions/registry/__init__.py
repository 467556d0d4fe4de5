"""The storage registry: its rules, read from YAML with the line of each mistake, and as canonical JSON."""

from headwater.regions.registry.codec import digest_of
from headwater.regions.registry.loading import load_registry, parse_registry
from headwater.regions.registry.model import DestPolicy, Mode, Override, Region, Registry

__all__ = [
    "DestPolicy",
    "Mode",
    "Override",
    "Region",
    "Registry",
    "digest_of",
    "load_registry",
    "parse_registry",
]
