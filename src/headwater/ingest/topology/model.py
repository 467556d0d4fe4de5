"""What a topology is made of."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.kernel.errors import UsageError


class TopologyError(UsageError):
    """The topology file is wrong; `place` says where."""


@dataclass(frozen=True, slots=True)
class Node:
    """A process that owns virtual nodes, and where it answers."""

    name: str
    host: str
    port: int
    virtual_nodes: tuple[int, ...]

    @property
    def address(self) -> str:
        """Host and port, as gRPC takes them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
