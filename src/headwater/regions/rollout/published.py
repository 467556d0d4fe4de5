"""Reading what was published: the pointer, and the generations that it leads to. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from headwater.kernel.errors import CorruptError, UsageError
from headwater.regions.errors import NoRegistryError
from headwater.regions.rollout.codec import checksum_of, decode_generation, decode_pointer
from headwater.regions.rollout.decide import in_force
from headwater.regions.rollout.model import POINTER_PATH, Generation, Link, Pointer, path_of
from headwater.storage.errors import ObjectNotFoundError
from headwater.storage.port import ObjectStore


@dataclass(frozen=True)
class Newest:
    """The pointer as it was read, and the etag on which a swap depends."""

    pointer: Pointer
    etag: str


class Published:
    """The published generations under one prefix of a store, to be read."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def newest(self) -> Newest | None:
        """The pointer, or None where nothing was ever published."""
        try:
            fetched = self._store.get(POINTER_PATH)
        except ObjectNotFoundError:
            return None
        return Newest(decode_pointer(fetched.data, self._named(POINTER_PATH)), str(fetched.meta.etag))

    def newest_if_changed(self, etag: str) -> Newest | None:
        """The pointer, or None while it still is what it was."""
        try:
            fetched = self._store.get_if_changed(POINTER_PATH, etag)
        except ObjectNotFoundError:
            path = self._named(POINTER_PATH)
            raise CorruptError(f"{path} was there and is gone", hint="find out who deleted it", path=path) from None
        if fetched is None:
            return None
        return Newest(decode_pointer(fetched.data, self._named(POINTER_PATH)), str(fetched.meta.etag))

    def load(self, link: Link) -> Generation:
        """The generation that the link names: its bytes must have that checksum."""
        path = self._named(path_of(link.generation))
        try:
            data = self._store.get(path_of(link.generation)).data
        except ObjectNotFoundError:
            raise CorruptError(f"{path} is missing, though it was published", path=path) from None
        if checksum_of(data) != link.checksum:
            raise CorruptError(
                f"{path} does not have the checksum {link.checksum}",
                hint="it was changed after it was published: publish the registry again from its file",
                path=path,
                expected=link.checksum,
                actual=checksum_of(data),
            )
        generation = decode_generation(data, path)
        if generation.number != link.generation:
            raise CorruptError(f"{path} holds generation {generation.number}", path=path)
        return generation

    def history(self, newest: Pointer) -> Iterator[Generation]:
        """The generations that were the newest once, from this one back to the first; each is read when asked for."""
        link: Link | None = newest.link
        while link is not None:
            generation = self.load(link)
            yield generation
            if generation.previous is not None and generation.previous.generation >= link.generation:
                raise CorruptError(f"generation {link.generation} names a later one as its predecessor")
            link = generation.previous

    def in_force(self, now: datetime) -> Generation:
        """The newest generation whose time has come: for one piece of work. A process that lasts has a client."""
        newest = self.newest_or_refuse()
        seen: list[Generation] = []
        for generation in self.history(newest.pointer):
            seen.append(generation)
            if (found := in_force(seen, now)) is not None:
                return found
        raise self.too_early(seen)

    def too_early(self, everything: Sequence[Generation]) -> NoRegistryError:
        """Generations were published, and the time of none of them has come."""
        first = min(each.valid_from for each in everything).isoformat()
        return NoRegistryError(
            f"the first registry of {self._store.name} is in force from {first} on",
            hint="wait, or publish one that is in force at once: `headwater registry publish FILE`",
            valid_from=first,
        )

    def newest_or_refuse(self) -> Newest:
        """The pointer; where nothing was ever published, an error that says so."""
        newest = self.newest()
        if newest is None:
            raise NoRegistryError(
                f"no registry was published in {self._store.name}",
                hint="`headwater registry publish FILE` does so; `registry` names another place for it",
                path=self._named(POINTER_PATH),
            )
        return newest

    def find(self, newest: Pointer, number: int) -> Generation:
        """The generation of this number; one that was never the newest is refused, whatever is stored under it."""
        for generation in self.history(newest):
            if generation.number == number:
                return generation
            if generation.number < number:
                break
        raise UsageError(
            f"generation {number} was never in force", hint="`headwater registry show --history` lists those that were"
        )

    def _named(self, path: str) -> str:
        return f"{self._store.name.removesuffix('/')}/{path}"
