"""Publishing the registry and following it: immutable generations, and one pointer that only rises."""

from headwater.regions.rollout.client import FOLLOWING, RegistryClient
from headwater.regions.rollout.model import Generation, Link, Pointer
from headwater.regions.rollout.protocol import WRITING, Publisher
from headwater.regions.rollout.published import Newest, Published

__all__ = [
    "FOLLOWING",
    "WRITING",
    "Generation",
    "Link",
    "Newest",
    "Pointer",
    "Published",
    "Publisher",
    "RegistryClient",
]
