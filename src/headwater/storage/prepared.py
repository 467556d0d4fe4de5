"""A create in steps, so that several can be made ready side by side and then appear one after the other.

    prepare    the bytes are stored, under no name that anybody could list or address; an error here changed nothing
    create     the object gets its name, if that is free: everybody sees it
    settle     the name is durable; until then a power cut may undo it, so nothing that relies on it may be written

A store that cannot do that prepares nothing, and creates the object whole. A crash before `create` leaves what a crash
within a put leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from headwater.storage.port import Create, Prepared, PutMode


class Puts(Protocol):
    """Where an object can be created whole."""

    def put(self, path: str, data: bytes, mode: PutMode) -> str:
        """See the port."""
        ...


@dataclass(frozen=True)
class Unprepared:
    """An object of a store that has no steps."""

    store: Puts
    path: str
    data: bytes

    def create(self) -> None:
        """The whole put."""
        self.store.put(self.path, self.data, Create())

    def settle(self) -> None:
        """Done already."""

    def discard(self) -> None:
        """There is nothing."""


@dataclass(frozen=True)
class Around:
    """An object of a wrapped store, whose create is done by the wrapper's rules."""

    inner: Prepared
    by: Callable[[Callable[[], None]], None]

    def create(self) -> None:
        """The inner create, as the wrapper does it."""
        self.by(self.inner.create)

    def settle(self) -> None:
        """See the port."""
        self.inner.settle()

    def discard(self) -> None:
        """See the port."""
        self.inner.discard()
