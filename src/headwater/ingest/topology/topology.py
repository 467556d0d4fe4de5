"""A topology: nodes, and the virtual nodes that each of them owns."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from headwater.ingest.keys import Keys, virtual_nodes
from headwater.ingest.model import Int64s
from headwater.ingest.topology.model import Node, TopologyError
from headwater.ingest.topology.reading import Reader
from headwater.kernel.errors import UsageError


@dataclass(frozen=True)
class Topology:
    """Nodes by name; each virtual node from 0 to `virtual_node_count - 1` belongs to one of them."""

    nodes: tuple[Node, ...]
    virtual_node_count: int

    @classmethod
    def load(cls, path: Path) -> Topology:
        """Read and check a topology file; `TopologyError` names the place that is wrong."""
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            said = f"the topology {path} cannot be read: {error}"
            raise TopologyError(said, hint="name a readable TOML file", path=str(path), place="file") from error
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, path: str = "topology") -> Topology:
        """The topology that `text` describes; `path` is how errors call it."""
        nodes, count = Reader(path).read(text)
        return cls(nodes, count)

    def node_of(self, virtual_node: int) -> Node:
        """The owner of a virtual node."""
        if not 0 <= virtual_node < self.virtual_node_count:
            raise UsageError(
                f"there is no virtual node {virtual_node}",
                hint=f"they are numbered from 0 to {self.virtual_node_count - 1}",
                virtual_node=virtual_node,
            )
        return self._owners[virtual_node]

    def node(self, name: str) -> Node:
        """The node of this name."""
        for node in self.nodes:
            if node.name == name:
                return node
        names = ", ".join(node.name for node in self.nodes)
        raise UsageError(f"the topology has no node {name!r}", hint=f"its nodes are {names}", node=name)

    def virtual_nodes_of(self, keys: Keys) -> Int64s:
        """The virtual node of each key."""
        return virtual_nodes(keys.hashes(), self.virtual_node_count)

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the content, whatever order and comments it was written with; of this JSON, without spaces:

        `{"nodes":[{"host":…,"name":…,"port":…,"virtual_nodes":[…]},…],"virtual_nodes":n}`, nodes by name.
        """
        nodes = [
            {"name": node.name, "host": node.host, "port": node.port, "virtual_nodes": sorted(node.virtual_nodes)}
            for node in sorted(self.nodes, key=lambda node: node.name)
        ]
        content = {"nodes": nodes, "virtual_nodes": self.virtual_node_count}
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    @cached_property
    def _owners(self) -> dict[int, Node]:
        return {number: node for node in self.nodes for number in node.virtual_nodes}
