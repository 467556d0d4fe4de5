"""Which node owns which virtual nodes: one static file, the same for all nodes and everybody who writes to them."""

from headwater.ingest.topology.model import Node, TopologyError
from headwater.ingest.topology.topology import Topology

__all__ = ["Node", "Topology", "TopologyError"]
