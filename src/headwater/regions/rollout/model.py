"""A published registry, and the pointer that says which one is the newest."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from headwater.kernel.ids import Ulid
from headwater.regions.registry.model import Registry
from headwater.regions.resolve.resolver import Resolver

FOLDER = "registry"
POINTER_PATH = f"{FOLDER}/current.json"
FIRST_GENERATION = 1


@dataclass(frozen=True)
class Link:
    """A generation, named beyond doubt: its number, and the SHA-256 of its bytes."""

    generation: int
    checksum: str


@dataclass(frozen=True)
class Generation:
    """One published registry. It never changes; the next one names it as its `previous`.

    `writer` is the identity of the publication; `restores` is the generation whose rules a rollback took up again.
    """

    number: int
    registry: Registry
    writer: Ulid
    actor: str
    published_at: datetime
    valid_from: datetime
    previous: Link | None = None
    restores: int | None = None

    def resolver(self, region: str) -> Resolver:
        """The rules of this generation, seen from a region: what a piece of work keeps until its end."""
        return Resolver(self.registry, region)


@dataclass(frozen=True)
class Pointer:
    """Which generation is the newest, and from when on it is in force."""

    link: Link
    valid_from: datetime


def path_of(number: int) -> str:
    """Where a generation is stored."""
    return f"{FOLDER}/v2/registry-{number}.json"
