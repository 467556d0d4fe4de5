"""What the embedded catalog stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from headwater.catalog.model import Commit, Horizons, Ref
from headwater.kernel.ids import Ulid
from headwater.sequence.model import Namespace

# A folder or prefix that holds this object is a lake.
MARKER = "_headwater/lake.json"
ROOT = "_headwater/catalog"
MANIFEST = Namespace(ROOT, "manifest", ".manifest")
OBJECTS = f"{ROOT}/objects"


@dataclass(frozen=True)
class Marker:
    """What says that here is a lake, and which."""

    lake: Ulid
    created_at: datetime


@dataclass(frozen=True)
class Manifest:
    """The whole changeable state of a lake. `format` is the version in which it is stored."""

    format: int
    lake: Ulid
    refs: Mapping[str, Ref]
    horizons: Horizons = field(default_factory=Horizons)

    def with_ref(self, ref: Ref) -> Manifest:
        """With this ref added, or moved."""
        return replace(self, refs={**self.refs, ref.name: ref})

    def without_ref(self, name: str) -> Manifest:
        """Without this ref."""
        return replace(self, refs={each: ref for each, ref in self.refs.items() if each != name})


@dataclass(frozen=True)
class Shard:
    """A part of a tree: contents as they are stored, by the key's text, and the JSON of those written here."""

    contents: Mapping[str, Mapping[str, Any]]
    texts: Mapping[str, str] = field(default_factory=dict, compare=False)


# For each shard that is not empty, the digest of the object that holds it.
Tree = Mapping[int, str]


@dataclass(frozen=True)
class StoredCommit:
    """A commit with its tree. The parents' times tell whether they are behind the horizon without reading them."""

    commit: Commit
    parent_times: tuple[datetime, ...]
    tree: Tree
