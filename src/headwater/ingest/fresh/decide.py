"""Whether the nodes of a topology make a whole, and which tables they feed."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headwater.catalog.model import TableKey
from headwater.ingest.fresh.model import NodeNotReadyError, NodesDifferError, NodeState
from headwater.ingest.topology import Topology


def fed_tables(topology: Topology, states: Sequence[NodeState]) -> dict[TableKey, str]:
    """The tables that nodes feed, and what nodes call them. A node that is not READY, or differs, is an error."""
    for each in states:
        if each.topology_hash != topology.hash:
            raise NodesDifferError(
                f"node {each.name} runs with topology {each.topology_hash}, and the file here is {topology.hash}",
                hint="give the same topology file to nodes and readers",
                node=each.address,
            )
        if each.state != "ready":
            raise NodeNotReadyError(
                f"node {each.name} is {each.state}, and a part of each table is there",
                hint=f"see `headwater node status --node {each.address}`",
                node=each.address,
            )
    for each in states[1:]:
        if different := each.tables ^ states[0].tables:
            raise NodesDifferError(
                f"{each.name} and {states[0].name} do not feed the same tables: {', '.join(sorted(different))}",
                hint="list the same tables in each node's file",
                node=each.address,
            )
    return {TableKey.parse(name): name for each in states for name in each.tables}


def refuse_other_columns(table: str, node: str, scanned: pa.Schema, wanted: pa.Schema) -> None:
    """Raise unless a node gives the columns that the lake's table has, by name, type and field id."""
    if scanned.equals(wanted) and _ids(scanned) == _ids(wanted):
        return
    raise NodesDifferError(
        f"node {node} holds {table} with other columns than the lake has now",
        hint="start the node again after a change of the schema",
        table=table,
        node=node,
    )


def _ids(schema: pa.Schema) -> list[bytes | None]:
    return [(field.metadata or {}).get(b"PARQUET:field_id") for field in schema]
