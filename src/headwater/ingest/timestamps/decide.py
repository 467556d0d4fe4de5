"""The steps of the timestamp service: pure.

The high watermark is exclusive: every timestamp below it is complete. It is the lower of two things, and never falls:

    the least timestamp of an open write        its effects are not complete yet
    `complete_below`                            past the newest committed write, or where a keep-alive says that
                                                nothing comes below; further up, timestamps may still begin

A write that begins:

    its timestamp            then
    none                     the next one: above everything that was begun or announced
    that of an open write    that very transaction again: its answer was lost
    below the high mark      a re-send: allowed, marked, and holds nothing back
    any other                open; the high watermark stays at or below it until it ends

The low watermark is the least timestamp of open read-only transactions, the read timestamp when there are none, and
never falls. It rests for a while after the service changed hands, because the new holder does not know the old one's
readers: whoever is not renewed in that time has lost its lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from headwater.ingest.model import MAXIMUM_TIMESTAMP, Timestamp
from headwater.ingest.timestamps.model import (
    Read,
    State,
    TimestampOutOfRangeError,
    UnknownTransactionError,
    Watermarks,
    Write,
)


def begin_write(state: State, transaction_id: int, timestamp: Timestamp | None) -> tuple[State, Write]:
    """Begin a write; the row of the table."""
    state, [begun] = begin_writes(state, transaction_id, [timestamp])
    return state, begun


def begin_writes(
    state: State, first_id: int, timestamps: Sequence[Timestamp | None]
) -> tuple[State, tuple[Write, ...]]:
    """Begin several, one after the other, with ids from `first_id` on."""
    newest, writes, begun = state.newest, dict(state.writes), list[Write]()
    by_timestamp = {write.timestamp: write for write in writes.values()}
    for transaction_id, timestamp in enumerate(timestamps, first_id):
        moment = _checked(newest + 1 if timestamp is None else timestamp, lowest=1)
        if moment not in by_timestamp:
            write = Write(transaction_id, moment, is_resend=moment < state.high)
            writes[transaction_id] = by_timestamp[moment] = write
            newest = max(newest, moment)
        begun.append(by_timestamp[moment])
    return replace(state, writes=writes, newest=newest), tuple(begun)


def commit_write(state: State, transaction_id: int) -> State:
    """The effects of a write are complete and acknowledged."""
    state, ended = _without_write(state, transaction_id)
    return advanced(replace(state, complete_below=max(state.complete_below, ended.timestamp + 1)))


def roll_back_write(state: State, transaction_id: int) -> State:
    """A write has no effects and will have none."""
    return advanced(_without_write(state, transaction_id)[0])


def keep_alive(state: State, position: Timestamp) -> State:
    """Nothing that is not open yet will begin below `position`."""
    position = _checked(position, lowest=0)
    complete_below = max(state.complete_below, position)
    return advanced(replace(state, complete_below=complete_below, newest=max(state.newest, position - 1)))


def advanced(state: State) -> State:
    """The high watermark, as far as it may go; it never falls."""
    holding = (write.timestamp for write in state.writes.values() if not write.is_resend)
    return replace(state, high=max(state.high, min([state.complete_below, *holding])))


def begin_read(
    state: State, transaction_id: int, timestamp: Timestamp | None, now: float, lease_seconds: float
) -> tuple[State, Read]:
    """Begin to read at the newest complete timestamp, or at one that can still be read."""
    state, [begun] = begin_reads(state, transaction_id, [timestamp], now, lease_seconds)
    return state, begun


def begin_reads(
    state: State, first_id: int, timestamps: Sequence[Timestamp | None], now: float, lease_seconds: float
) -> tuple[State, tuple[Read, ...]]:
    """Begin several, with ids from `first_id` on; all, or none."""
    newest = state.high - 1
    begun = []
    for transaction_id, timestamp in enumerate(timestamps, first_id):
        moment = newest if timestamp is None else timestamp
        if not state.low <= moment <= newest:
            raise TimestampOutOfRangeError(
                f"{moment} cannot be read {'any more' if moment < state.low else 'yet'}",
                hint=f"from {state.low} to {newest} can be read now",
                timestamp=moment,
                low_watermark=state.low,
                read_timestamp=newest,
            )
        begun.append(Read(transaction_id, moment, now + lease_seconds))
    return replace(state, reads={**state.reads, **{each.id: each for each in begun}}), tuple(begun)


def renew_reads(state: State, transaction_ids: Iterable[int], now: float, lease_seconds: float) -> State:
    """Let the time of open reads start anew. One that is over is refused, and then none is renewed."""
    renewed = dict(state.reads)
    for each in transaction_ids:
        if each not in renewed:
            raise UnknownTransactionError(each, "is no open read: its lease may be over")
        renewed[each] = replace(renewed[each], expires_at=now + lease_seconds)
    return replace(state, reads=renewed)


def end_read(state: State, transaction_id: int) -> State:
    """Nobody reads there any more."""
    return replace(state, reads={id_: read for id_, read in state.reads.items() if id_ != transaction_id})


def settled(state: State, now: float) -> State:
    """Reads whose lease is over end, and the low watermark goes as far as it may; it never falls."""
    reads = {id_: read for id_, read in state.reads.items() if now < read.expires_at}
    if now < state.low_rests_until:
        return replace(state, reads=reads)
    least = min([state.high - 1, *(read.timestamp for read in reads.values())])
    return replace(state, reads=reads, low=max(state.low, least))


def watermarks(state: State) -> Watermarks:
    """What is shown."""
    return Watermarks(state.high, state.low)


def _without_write(state: State, transaction_id: int) -> tuple[State, Write]:
    ended = state.writes[transaction_id]
    left = {id_: write for id_, write in state.writes.items() if id_ != transaction_id}
    return replace(state, writes=left), ended


def _checked(timestamp: Timestamp, *, lowest: int) -> Timestamp:
    if not lowest <= timestamp <= MAXIMUM_TIMESTAMP:
        raise TimestampOutOfRangeError(
            f"{timestamp} is no position", hint=f"{lowest} to {MAXIMUM_TIMESTAMP}", timestamp=timestamp
        )
    return int(timestamp)
