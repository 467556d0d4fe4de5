"""One query over nodes: every table that they feed as it is at one timestamp, and every other as the lake has it.

Promise: all rows of all fed tables are those of one read-only transaction, of every node of the topology, or there is
an error. The rows of the lake's own files are not read for a fed table: the nodes hold all of it.

Order, and why it is this one:

    ask each node how it is     READY with this topology, or nothing is begun
    begin to read               the timestamp R, which the low watermark does not pass from now on
    scan, when SQL names it     the parts of all nodes at R, side by side: what the plan of the SQL can depend on, by
                                columns and predicates; the topology's hash goes with the request
    renew                       after the last row of a table: it proves that the transaction lasted until then
    commit                      at the end of the query, however it ends

Commit point: none, nothing is written. A crash leaves a read-only transaction that ends when its lease has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TypeAlias

import pyarrow as pa
from pyiceberg.expressions import AlwaysFalse, BooleanExpression
from pyiceberg.io.pyarrow import schema_to_pyarrow

from headwater.catalog.model import TableKey
from headwater.ingest.client import NodeClient, Times
from headwater.ingest.fresh.decide import fed_tables, other_columns, pushed, refuse_other_columns
from headwater.ingest.fresh.merging import merged
from headwater.ingest.fresh.model import NodeNotReadyError, NodesDifferError, NodeState, ReadLostError
from headwater.ingest.model import TABLE_MARK, Timestamp
from headwater.ingest.topology import Node, Topology
from headwater.kernel.clock import Clock
from headwater.kernel.errors import HeadwaterError, UnavailableError, UsageError
from headwater.kernel.logs import Log
from headwater.query import OpenTable, OpenView, Pending, TableSource
from headwater.rpc.ingest.v1 import ingest_pb2 as pb

LaidOver: TypeAlias = Callable[[TableSource], tuple[TableSource, Pending]]
"""Lays what nodes hold over the tables of a lake."""

_log = Log("ingest")
_ROWS_AT_A_TIME = 1 << 17


@contextmanager
def fresh_reads(topology: Topology, *, clock: Clock, timeout_seconds: float = 60.0) -> Iterator[LaidOver]:
    """What to lay over a lake's tables, for as long as the block lasts. One node that does not answer is an error."""
    with ExitStack() as stack:
        clients = {
            node: stack.enter_context(NodeClient(node.address, timeout_seconds=timeout_seconds))
            for node in topology.nodes
        }
        fed = fed_tables(topology, [_state(node, client) for node, client in clients.items()])
        times = stack.enter_context(Times([node.address for node in topology.nodes], timeout_seconds=timeout_seconds))
        reading = stack.enter_context(_reading(times, clock))
        nodes = _Nodes(topology, clients, fed, reading)
        yield lambda lake: nodes.over(lake)


def _state(node: Node, client: NodeClient) -> NodeState:
    try:
        found = client.call(client.node.GetStatus, pb.GetStatusRequest())
    except UnavailableError as error:
        raise NodeNotReadyError(
            f"node {node.name} at {node.address} does not answer, and a part of each table is there",
            hint=error.hint,
            node=node.address,
        ) from error
    state = pb.LifecycleState.Name(found.state).removeprefix("LIFECYCLE_STATE_").lower()
    return NodeState(node.name, node.address, state, found.topology_hash, frozenset(found.tables))


class _Reading:
    """A read-only transaction that is kept alive while something is read."""

    def __init__(self, times: Times, begun: pb.BeginTransactionResponse, clock: Clock) -> None:
        self.timestamp: Timestamp = begun.timestamp
        self._times = times
        self._id = begun.transaction_id
        self._every_seconds = begun.lease_seconds / 3
        self._clock = clock
        self._renewed_at = clock.monotonic()

    def renew(self) -> None:
        """Read on for another lease; raises when the transaction is over, and with it what its timestamp holds."""
        asked_at = self._clock.monotonic()
        try:
            self._times.call("KeepAlive", pb.KeepAliveRequest(transaction_ids=[self._id]))
        except UsageError as error:
            raise ReadLostError(
                f"the read at {self.timestamp} is over: what was scanned may not be whole",
                hint="ask again; a reader that is silent for longer than its lease is given up",
                timestamp=self.timestamp,
            ) from error
        self._renewed_at = asked_at

    def renew_when_due(self) -> None:
        """The same, several times within a lease."""
        if self._clock.monotonic() - self._renewed_at >= self._every_seconds:
            self.renew()

    def end(self) -> None:
        """It is not needed any more. If nobody hears it, its lease ends it."""
        try:
            self._times.call("CommitTransaction", pb.CommitTransactionRequest(transaction_id=self._id))
        except HeadwaterError as error:
            _log.warning("a read-only transaction is left to its lease", error=str(error))


@contextmanager
def _reading(times: Times, clock: Clock) -> Iterator[_Reading]:
    reading = _Reading(times, times.call("BeginTransaction", pb.BeginTransactionRequest(read_only=True)), clock)
    try:
        yield reading
    finally:
        reading.end()


class _Nodes:
    """All nodes at one timestamp."""

    def __init__(
        self, topology: Topology, clients: dict[Node, NodeClient], fed: dict[TableKey, str], reading: _Reading
    ) -> None:
        self._topology = topology
        self._clients = clients
        self._fed = fed
        self._reading = reading

    def over(self, lake: TableSource) -> tuple[TableSource, Pending]:
        """The lake's tables without the rows of fed ones, and those rows, read from the nodes when they are needed."""
        tables = _FreshTables(lake, self)
        return tables, Pending(late={key: partial(self._late, tables, key) for key in self._fed})

    def _late(
        self, tables: _FreshTables, key: TableKey, columns: Sequence[str], rows: BooleanExpression
    ) -> Iterator[pa.Table]:
        wanted = tables.schemas[key]
        return self.scan(key, pa.schema([wanted.field(name) for name in columns], wanted.metadata), rows)

    def feed(self, key: TableKey) -> bool:
        """Whether the table is theirs."""
        return key in self._fed

    def scan(self, key: TableKey, wanted: pa.Schema, rows: BooleanExpression) -> Iterator[pa.Table]:
        """These columns of at least the rows of a table that fit, of all nodes, which are read side by side."""
        if rows == AlwaysFalse():
            return
        sources = [partial(self._part, key, wanted, rows, node) for node in self._clients]
        waiting, count = list[pa.RecordBatch](), 0
        for batch in merged(sources):
            waiting.append(batch)
            count += batch.num_rows
            if count >= _ROWS_AT_A_TIME:
                yield pa.Table.from_batches(waiting, wanted)
                waiting, count = [], 0
            self._reading.renew_when_due()
        if waiting:
            yield pa.Table.from_batches(waiting, wanted)
        self._reading.renew()

    def _part(self, key: TableKey, wanted: pa.Schema, rows: BooleanExpression, node: Node) -> Iterator[pa.RecordBatch]:
        try:
            reader = self._clients[node].scan(
                self._fed[key],
                self._reading.timestamp,
                columns=wanted.names,
                predicates=pushed(rows, wanted.names),
                topology_hash=self._topology.hash,
            )
        except UsageError as error:
            if "column" not in error.fields:
                raise
            raise other_columns(str(key), node.name) from error
        refuse_other_columns(str(key), node.name, reader.schema, wanted)
        yield from reader


class _FreshTables:
    """A `TableSource` whose fed tables have none of the lake's files. `schemas` are those of what was opened."""

    def __init__(self, lake: TableSource, nodes: _Nodes) -> None:
        self._lake = lake
        self._nodes = nodes
        self.schemas: dict[TableKey, pa.Schema] = {}

    def names(self) -> Iterable[TableKey]:
        """Every table and view of the lake."""
        return self._lake.names()

    def open(self, key: TableKey) -> OpenTable | OpenView | None:
        """The table or view of this name, or None."""
        found = self._lake.open(key)
        if found is None or not self._nodes.feed(key):
            return found
        if isinstance(found, OpenView):
            raise NodesDifferError(f"nodes feed {key}, and in the lake it is a view", hint="rename the view")
        columns = schema_to_pyarrow(found.metadata.schema(), include_field_ids=True)
        self.schemas[key] = columns.with_metadata({TABLE_MARK: str(found.metadata.table_uuid).encode()})
        return OpenTable(found.metadata, data_files=frozenset())
