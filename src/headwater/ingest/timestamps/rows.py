"""Rows of the timestamp service, read and written inside a transaction of the caller's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from headwater.ingest.timestamps import tables
from headwater.ingest.timestamps.model import State, Write, WriteOutcome

_state = tables.state.c
_write = tables.writes.c


@dataclass(frozen=True, slots=True)
class Stored:
    """What is durable."""

    epoch: int
    last_transaction: int
    read_lease_seconds: float
    state: State


def load(connection: Connection, topology: str, *, lock: bool = True) -> Stored | None:
    """The state with all open writes, locked unless told otherwise; `None` for a topology that is new."""
    wanted = sa.select(tables.state).where(_state.topology == topology)
    row = connection.execute(wanted.with_for_update() if lock else wanted).one_or_none()
    if row is None:
        return None
    still_open = sa.select(tables.writes).where(_write.topology == topology, _write.outcome == str(WriteOutcome.OPEN))
    writes = {
        each.transaction_id: Write(each.transaction_id, each.timestamp, each.is_resend)
        for each in connection.execute(still_open.order_by(_write.transaction_id))
    }
    state = State(row.high, row.low, row.newest, row.complete_below, writes)
    return Stored(row.epoch, row.last_transaction, row.read_lease_seconds, state)


def epoch(connection: Connection, topology: str) -> int | None:
    """Who may write."""
    return connection.scalar(sa.select(_state.epoch).where(_state.topology == topology))


def add_state(connection: Connection, topology: str, stored: Stored) -> None:
    """A topology that is new."""
    connection.execute(sa.insert(tables.state).values(topology=topology, **_values(stored)))


def put_state(connection: Connection, topology: str, stored: Stored, *, epoch: int) -> bool:
    """Write down everything but the writes, and lock it; false when another epoch than this has begun."""
    held = sa.and_(_state.topology == topology, _state.epoch == epoch)
    return connection.execute(sa.update(tables.state).where(held).values(_values(stored))).rowcount == 1


def _values(stored: Stored) -> dict[str, float]:
    state = stored.state
    return {
        "epoch": stored.epoch,
        "high": state.high,
        "low": state.low,
        "newest": state.newest,
        "complete_below": state.complete_below,
        "last_transaction": stored.last_transaction,
        "read_lease_seconds": stored.read_lease_seconds,
    }


def add_writes(connection: Connection, topology: str, writes: Sequence[Write]) -> None:
    """Writes that have begun."""
    if writes:
        values = [
            {
                "topology": topology,
                "transaction_id": each.id,
                "timestamp": each.timestamp,
                "is_resend": each.is_resend,
                "outcome": str(WriteOutcome.OPEN),
            }
            for each in writes
        ]
        connection.execute(sa.insert(tables.writes), values)


def end_writes(connection: Connection, topology: str, ended: Mapping[int, WriteOutcome]) -> None:
    """Writes that have ended, each in its way."""
    for transaction_id, outcome in ended.items():
        one = sa.update(tables.writes).where(_write.topology == topology, _write.transaction_id == transaction_id)
        connection.execute(one.values(outcome=str(outcome)))


def forget_writes(connection: Connection, topology: str, before: int) -> None:
    """What became of writes so old that nobody asks any more. Open ones stay."""
    ended = sa.delete(tables.writes).where(_write.topology == topology, _write.outcome != str(WriteOutcome.OPEN))
    connection.execute(ended.where(_write.transaction_id < before))


def outcome(connection: Connection, topology: str, transaction_id: int) -> WriteOutcome | None:
    """What became of a write, if that is still known."""
    wanted = sa.select(_write.outcome).where(_write.topology == topology, _write.transaction_id == transaction_id)
    found = connection.scalar(wanted)
    return None if found is None else WriteOutcome(found)
