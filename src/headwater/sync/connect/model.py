"""Where an engine finds a replica, and what it is told."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field


class Engine(enum.StrEnum):
    """Engines that read Iceberg tables by a catalog."""

    SPARK = "spark"
    TRINO = "trino"
    DUCKDB = "duckdb"
    PYICEBERG = "pyiceberg"


@dataclass(frozen=True)
class Served:
    """A lake's own server, whose Iceberg REST catalog has every branch for a warehouse."""

    uri: str
    branch: str


@dataclass(frozen=True)
class OnNessie:
    """Nessie: `regional` is the API that the region's readers ask, `primary` the one that takes writes."""

    regional: str
    primary: str
    branch: str


@dataclass(frozen=True)
class Bucket:
    """How engines reach S3; keys are theirs to know."""

    endpoint: str | None
    region: str
    is_virtual_hosted: bool


@dataclass(frozen=True)
class Place:
    """What one region's engines need to know. `bucket` is None where files are in folders."""

    catalog: Served | OnNessie
    local_prefix: str
    bucket: Bucket | None = None
    needs_token: bool = False


@dataclass(frozen=True)
class Connection:
    """Settings of one engine: those of the catalog that reads, those of the one that writes, and what is left to do.

    `text` is both as the engine takes them, and no secret is in it.
    """

    engine: Engine
    reader: Mapping[str, str]
    text: str
    writer: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
