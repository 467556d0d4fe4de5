"""`node.toml`: what a node is told. Topology and directory are relative to the file, the lake as commands take it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headwater.kernel.errors import UsageError


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Numbers(_Section):
    """Words that stand for what they are: `true` is no number, and neither is "1"."""

    model_config = ConfigDict(strict=True)


class BufferSection(_Numbers):
    """Sizes of what waits in memory."""

    block_rows: int = Field(1 << 16, ge=1, le=1 << 22, description="Rows of a row group.")
    segment_blocks: int = Field(16, ge=1, le=1024, description="Row groups of a file.")
    unpublished_bytes: int = Field(1 << 29, ge=1 << 20, description="What may wait for its file; more is refused.")
    flush_seconds: float = Field(60.0, gt=0, le=86_400, description="After this time a file is made of what there is.")


class ServiceSection(_Numbers):
    """Limits of requests."""

    request_bytes: int = Field(64 << 20, ge=1 << 16, le=1 << 29, description="The largest message.")
    batch_rows: int = Field(1 << 20, ge=1, description="Rows of one batch.")
    calls: int = Field(32, ge=1, le=1024, description="Writes and scans side by side; more are refused at once.")


class TimeSection(_Numbers):
    """The timestamp service, which one of the nodes keeps."""

    name: str | None = Field(
        None, min_length=1, max_length=128, description="How nodes that share time call it; by default the lake's own."
    )
    lease_seconds: float = Field(10.0, ge=1, le=600, description="Without its holder for so long, another takes over.")
    read_lease_seconds: float = Field(
        60.0, ge=1, le=86_400, description="A reader or offload that is silent for so long is over."
    )


class NodeConfig(_Section):
    """One node."""

    name: str = Field(min_length=1, description="The node's name in the topology.")
    lake: str = Field(min_length=1, description="The lake whose tables it feeds.")
    topology: Path = Field(description="The topology file, the same for all nodes.")
    directory: Path = Field(description="Where its index lives; its own, on a local disk.")
    tables: tuple[str, ...] = Field(min_length=1, description="The tables that it takes; each has a primary key.")
    buffer: BufferSection = BufferSection()
    service: ServiceSection = ServiceSection()
    time: TimeSection = TimeSection()


def load_config(path: Path) -> NodeConfig:
    """Read and check a node's file; an error names the place."""
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="name a readable TOML file", path=str(path)) from error
    try:
        config = NodeConfig.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(each) for each in first["loc"])
        raise UsageError(f"{path}: {place}: {first['msg']}", hint="see docs/ingest.md", path=str(path)) from None
    base = path.resolve().parent
    return config.model_copy(update={"topology": base / config.topology, "directory": base / config.directory})
