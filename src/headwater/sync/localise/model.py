"""What localising talks about, and the two ports that it needs: a mapping of paths, and the list of its outputs."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headwater.sync.runs.model import History
from headwater.tables.files import Files

# Part of every output's name: raise it whenever the same inputs would give other bytes.
WRITER_VERSION = 1


class Mapping(Protocol):
    """Where files have their place in the region; `regions.resolve.Resolver`, with a digest of its rules."""

    @property
    def digest(self) -> str:
        """Mappings of one digest answer alike."""
        ...

    def destination(self, uri: str) -> str:
        """Where the region reads this file; raises when no rule says."""
        ...

    def folder(self, uri: str) -> str:
        """The place of a folder, such as a table's location."""
        ...


class OutputKind(enum.StrEnum):
    """What an output is; its kind is its file name's ending, too."""

    METADATA = "metadata"
    MANIFEST_LIST = "manifest-list"
    MANIFEST = "manifest"
    POSITION_DELETES = "position-deletes"
    VECTORS = "vectors"


@dataclass(frozen=True)
class Output:
    """A file that exists in one region only, because it was made there (hazard G4)."""

    location: str
    kind: OutputKind
    source: str


class Outputs(Protocol):
    """The list of outputs, and the claim of this run on them (hazards G3, G4)."""

    def record(self, outputs: Sequence[Output]) -> None:
        """List and claim them, before they are looked for or written; again and again changes nothing."""
        ...


@dataclass(frozen=True)
class Place:
    """Where and how one region's tables are localised.

    `files` reaches the sources, wherever they are, and `prefix`, which is reserved for outputs and under no table.
    """

    files: Files
    mapping: Mapping
    outputs: Outputs
    prefix: str
    history: History = History.FULL


@dataclass(frozen=True)
class ManifestWork:
    """One manifest that has to be localised. `entries` is what the manifest list says of it, where it says it."""

    source: str
    version: str
    is_deletes: bool
    length_bytes: int
    entries: int | None = None


@dataclass(frozen=True)
class ManifestDone:
    """What one manifest has become, and what that took."""

    source: str
    location: str
    length_bytes: int
    manifests_read: int = 0
    manifests_written: int = 0
    deletes_written: int = 0


@dataclass(frozen=True)
class Localised:
    """A table whose metadata names the region's files alone, and what that took."""

    source: str
    location: str
    snapshot_ids: tuple[int, ...]
    lists_read: int = 0
    lists_written: int = 0
    manifests_read: int = 0
    manifests_written: int = 0
    manifests_reused: int = 0
    deletes_written: int = 0
