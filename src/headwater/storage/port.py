"""The object store port. One conformance suite (tests/conformance/test_storage.py) holds every backend to it.

- A put is whole or absent: no reader sees part of an object.
- `Create` and `Update` are atomic among all processes: of any number of concurrent ones, at most one wins.
- Reads see every put that was answered before they began.
- An etag names content: equal etags mean equal bytes. It comes with every whole get and every put; `head`
  and `list` carry it where the backend knows it for free.
- Prefixes are aligned to segments: `a/b` holds `a/b/c`, not `a/bc`. Lists are in the order of code points.
- Deleting what is not there succeeds.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from headwater.storage.errors import MissingCapabilityError


class Capability(enum.StrEnum):
    """What not every store can do."""

    CREATE = "create-if-absent"
    UPDATE = "update-if-match"
    CONDITIONAL_GET = "get-if-none-match"
    CONDITIONAL_DELETE = "delete-if-match"
    TAGS = "object-tags"


@dataclass(frozen=True)
class Create:
    """Put only if there is no object yet."""


@dataclass(frozen=True)
class Update:
    """Put only if the object still has this etag."""

    etag: str


@dataclass(frozen=True)
class Overwrite:
    """Put whatever is there."""


PutMode = Create | Update | Overwrite


@dataclass(frozen=True)
class ObjectMeta:
    """What a store says about an object without its bytes. `last_modified` is the store's own time."""

    path: str
    size_bytes: int
    last_modified: datetime
    etag: str | None = None


@dataclass(frozen=True)
class Fetched:
    """An object's bytes (or the asked range of them) and what the store says about it."""

    data: bytes
    meta: ObjectMeta


class HasCapabilities(Protocol):
    """Anything with a name that can do something: a store, or what a probe has shown of one."""

    @property
    def name(self) -> str:
        """The store's URL, without secrets; errors begin with it."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do beyond the common operations."""
        ...


class Prepared(Protocol):
    """An object that is on its way; prepared.py says what each step means."""

    def create(self) -> None:
        """Let everybody see it, if there is no object of its name yet."""
        ...

    def settle(self) -> None:
        """Make sure that it stays."""
        ...

    def discard(self) -> None:
        """Leave nothing behind of what was not created."""
        ...


class ObjectStore(HasCapabilities, Protocol):
    """A flat space of named, immutable-until-replaced byte strings."""

    def get(self, path: str, *, span: tuple[int, int] | None = None) -> Fetched:
        """The whole object, or its bytes in [start, end); an end past the object's is cut."""
        ...

    def get_if_changed(self, path: str, etag: str) -> Fetched | None:
        """The object, or None while it still has this etag. Never answered from a cache."""
        ...

    def head(self, path: str) -> ObjectMeta:
        """What the store says about the object."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is an object. Raises when the store will not say."""
        ...

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        """Store the object on the condition that `mode` names; returns its etag."""
        ...

    def prepare(self, path: str, data: bytes) -> Prepared:
        """Make ready to create the object: nobody sees anything of it yet."""
        ...

    def settle(self, path: str) -> None:
        """Make sure that an object that is seen stays: whoever made it may have died before it was durable."""
        ...

    def delete(self, path: str, *, if_match: str | None = None) -> None:
        """Remove the object; with `if_match` only while it has this etag."""
        ...

    def delete_prefix(self, prefix: str) -> int:
        """Remove everything under the prefix, which may not be empty; returns how many objects."""
        ...

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        """Objects under the prefix, in order, page by page; only those behind `start_after`, a whole path."""
        ...

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store, overwriting the target."""
        ...


def require(store: HasCapabilities, needed: frozenset[Capability], *, by: str) -> None:
    """Refuse a store that lacks one of the capabilities on which the safety of `by` depends."""
    missing = sorted(needed - store.capabilities)
    if missing:
        raise MissingCapabilityError(
            f"{store.name} has no {', '.join(missing)}, which {by} needs",
            hint="use a store that has it: a folder, AWS S3, Google Cloud Storage; and no cache in front",
            store=store.name,
            missing=[str(capability) for capability in missing],
        )
