"""What nodes say of themselves before they are read, and how a fresh read refuses."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.kernel.errors import RefusedError, UnavailableError


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node, as it answered."""

    name: str
    address: str
    state: str
    topology_hash: str
    tables: frozenset[str]


class NodeNotReadyError(UnavailableError):
    """A node that owns a part of each table cannot be read, so nothing fresh can be."""


class NodesDifferError(RefusedError):
    """The nodes do not run with the same topology, tables or columns: what they hold is no whole."""


class ReadLostError(UnavailableError):
    """The transaction ended before the last row was read."""
