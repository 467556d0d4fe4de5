"""Whether the nodes of a topology make a whole, which tables they feed, and which rows of them are asked for."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotNull,
    StartsWith,
    UnboundPredicate,
)
from pyiceberg.expressions.literals import (
    BooleanLiteral,
    DateLiteral,
    DecimalLiteral,
    Literal,
    LongLiteral,
    StringLiteral,
    TimestampLiteral,
)

from headwater.catalog.model import TableKey
from headwater.ingest.fresh.model import NodeNotReadyError, NodesDifferError, NodeState
from headwater.ingest.model import TABLE_MARK
from headwater.ingest.topology import Topology
from headwater.rpc.ingest.v1 import ingest_pb2 as pb

_EPOCH = dt.date(1970, 1, 1)
_MOST_PREDICATES = 50
_UNARY: dict[type[BooleanExpression], str] = {IsNull: "is null", NotNull: "is not null"}
_COMPARISONS: dict[type[BooleanExpression], str] = {
    EqualTo: "=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    StartsWith: ">=",  # what begins with a text is not below it
}


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
    """Raise unless a node gives the lake's table, and its columns by name, type and field id."""
    if _mark(scanned) != _mark(wanted):
        raise NodesDifferError(
            f"node {node} feeds another table that was called {table}",
            hint="start the node again, and feed it what the new table holds",
            table=table,
            node=node,
        )
    if scanned.equals(wanted) and _ids(scanned) == _ids(wanted):
        return
    raise other_columns(table, node)


def other_columns(table: str, node: str) -> NodesDifferError:
    """The schema of the lake's table has changed since the node was started."""
    return NodesDifferError(
        f"node {node} holds {table} with other columns than the lake has now",
        hint="start the node again after a change of the schema",
        table=table,
        node=node,
    )


def pushed(condition: BooleanExpression, columns: Collection[str]) -> list[pb.Predicate]:
    """What a node can leave out: predicates that hold for at least the rows for which the condition holds.

    Columns beside those that are read are not compared, because nobody would see that they are others by now. Nor are
    numbers with NaN among them, which has another place in the order there.
    """
    if isinstance(condition, And):
        found = [*pushed(condition.left, columns), *pushed(condition.right, columns)]
        return found[:_MOST_PREDICATES]
    kind = type(condition)
    if not isinstance(condition, UnboundPredicate) or str(condition.term.name) not in columns:  # type: ignore[attr-defined]
        return []
    name = str(condition.term.name)  # type: ignore[attr-defined]
    if kind in _UNARY:
        return [pb.Predicate(column=name, comparison=_UNARY[kind])]
    literal = _literal(condition.literal) if kind in _COMPARISONS else None  # type: ignore[attr-defined]
    return [pb.Predicate(column=name, comparison=_COMPARISONS[kind], **literal)] if literal else []


def _literal(literal: Literal[Any]) -> dict[str, Any] | None:
    value = literal.value
    match literal:
        case BooleanLiteral():
            return {"boolean": value}
        case LongLiteral() | TimestampLiteral():
            return {"integer": value}
        case StringLiteral():
            return {"text": value}
        case DateLiteral():
            return {"text": (_EPOCH + dt.timedelta(days=value)).isoformat()}
        case DecimalLiteral():
            return {"text": f"{value:f}"}
    return None


def _mark(schema: pa.Schema) -> bytes | None:
    return (schema.metadata or {}).get(TABLE_MARK)


def _ids(schema: pa.Schema) -> list[bytes | None]:
    return [(field.metadata or {}).get(b"PARQUET:field_id") for field in schema]
