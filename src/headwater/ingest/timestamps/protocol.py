"""The timestamp service of a topology: who holds its lease answers, and remembers in the database.

Promise: a timestamp below the high watermark is complete; a timestamp is given to one transaction; neither watermark
ever falls, also not when the service restarts or changes hands; while a read-only transaction lasts, the low watermark
does not pass it. A write is complete only once `commit` was called for it: after its effects are complete and
acknowledged.

Invariants:

    1  What is shown is durable first: open writes and their timestamps, both watermarks, ids of transactions.
    2  The epoch is the fence of the lease, and only grows. Each change is made on condition that it is ours, under a
       lock on the topology's row; each answer without a change is given after a look at it. A holder whose lease is
       over by its own clock does not even look.
    3  Memory is what was durable last. After a failure whose outcome is not known it is read anew.
    4  Open writes are never given up by themselves: a timestamp that will not be complete must not be passed.
       Reads are in memory alone; a new holder lets the low watermark rest until all of the old one's are over, by
       the lease that the old one gave them, which is durable.

Commit point: the transaction of each call. What a crash after each step leaves behind:

    acquire the lease    a lease that passes by itself
    take over            the epoch: the holder before is fenced
    begin, durable       an open write that its owner does not know of: to begin the same timestamp again gives that
                         very transaction. One whose timestamp was given shows in `open_writes`, until rolled back
    commit, durable      the write is complete; to commit it again says so
    keep_alive, durable  the same mark when it is said again
    a read, told         a read that the new holder does not know: the low watermark rests until its lease is over

`roll_back` is for a write that has no effects and will have none. A source's transaction that failed is begun again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from headwater.coordination import Coordination, Held, LeaseExpiredError, acquire
from headwater.database import Database, Isolation, migrate
from headwater.ingest.model import Timestamp
from headwater.ingest.timestamps import decide, rows
from headwater.ingest.timestamps.draft import Draft
from headwater.ingest.timestamps.model import (
    FencedError,
    State,
    TakenError,
    Transaction,
    UnknownTransactionError,
    Watermarks,
    Write,
    WriteOutcome,
)
from headwater.ingest.timestamps.rows import Stored
from headwater.ingest.timestamps.turns import Turns
from headwater.kernel.clock import Clock
from headwater.kernel.errors import HeadwaterError, UsageError
from headwater.kernel.failpoints import Failpoint, hit

MIGRATIONS = Path(__file__).parent / "migrations"
MAXIMUM_BATCH = 10_000
IDS_AHEAD = 1_000
OUTCOMES_KEPT = 10_000
_MAXIMUM_NAME = 128


def open_timestamps(
    database: Database,
    coordination: Coordination,
    topology: str,
    holder: str,
    *,
    clock: Clock,
    lease_seconds: float = 10.0,
    read_lease_seconds: float = 60.0,
) -> TimestampService:
    """Take the lease of a topology's timestamps, and go on where the holder before left off.

    `holder` says where the service can be asked. `TakenError`: another has it. `keep_lease` must be called several
    times within `lease_seconds`; nothing runs in the background.
    """
    if not 1 <= len(topology) <= _MAXIMUM_NAME:
        raise UsageError(f"{topology!r} names no topology", hint=f"1 to {_MAXIMUM_NAME} characters", topology=topology)
    if not 0 < read_lease_seconds < float("inf"):
        said = f"readers cannot be given {read_lease_seconds} seconds"
        raise UsageError(said, hint="above 0", read_lease_seconds=read_lease_seconds)
    key = f"ingest/timestamps/{topology}"
    asked_at = clock.monotonic()
    held = acquire(coordination, key, holder, lease_seconds)
    if held is None:
        entry = coordination.get(key)
        raise TakenError(topology, None if entry is None else entry.value.decode())
    try:
        # Not before: those who only ask who has it, and ask again and again, leave the database alone.
        migrate(database, "ingest_timestamps", MIGRATIONS)
        stored = _take_over(database, topology, held.fence, read_lease_seconds)
    except BaseException:
        with suppress(HeadwaterError):
            held.release()
        raise
    # The holder before told its readers that they may go on for so long; it may have had another setting than this one.
    state = replace(stored.state, low_rests_until=clock.monotonic() + stored.read_lease_seconds)
    good_until = asked_at + held.lease.ttl_seconds
    return TimestampService(
        database, held, topology, replace(stored, state=state), clock, read_lease_seconds, good_until
    )


def _take_over(database: Database, topology: str, epoch: int, read_lease_seconds: float) -> Stored:
    """Raise the epoch, which ends the holder before; one that is not above it came too late.

    The longer of both leases of reads stays durable while the low watermark rests: the next holder may come by then.
    """
    with database.write(operation=f"epoch {epoch} of {topology}", isolation=Isolation.OWN_LOCKS) as connection:
        found = rows.load(connection, topology)
        if found is None:
            stored = Stored(epoch, 0, read_lease_seconds, State())
            rows.add_state(connection, topology, stored)
            return stored
        if epoch <= found.epoch:
            raise FencedError(topology, epoch, f"epoch {found.epoch} has begun")
        longer = max(found.read_lease_seconds, read_lease_seconds)
        stored = replace(found, epoch=epoch, read_lease_seconds=longer)
        rows.put_state(connection, topology, stored, epoch=found.epoch)
    return stored


class TimestampService:
    """Timestamps, transactions and watermarks of one topology. Safe to share among threads."""

    def __init__(
        self,
        database: Database,
        held: Held,
        topology: str,
        stored: Stored,
        clock: Clock,
        read_lease_seconds: float,
        good_until: float,
    ) -> None:
        self.topology = topology
        self.epoch = stored.epoch
        self._database = database
        self._held = held
        self._clock = clock
        self._read_lease_seconds = read_lease_seconds
        self._good_until = good_until
        self._stored = stored
        self._next_id = stored.last_transaction + 1
        self._is_unsure = False
        self._turns = Turns(self._turn)

    def begin(self, *, read_only: bool = False, timestamp: Timestamp | None = None) -> Transaction:
        """Begin a write at the source's timestamp or the next one, or a read at a timestamp or the newest."""
        [begun] = self._begin([timestamp], read_only=read_only)
        return begun

    def begin_batch(self, count: int, *, read_only: bool = False) -> tuple[Transaction, ...]:
        """Begin several: writes at the next timestamps, or reads at the newest."""
        return self._begin([None] * _checked_count(count), read_only=read_only)

    def begin_at(self, timestamps: Sequence[Timestamp]) -> tuple[Transaction, ...]:
        """Begin a write at each of these timestamps of the source; all, or none."""
        _checked_count(len(timestamps))
        return self._begin(timestamps, read_only=False)

    def commit(self, transaction_id: int) -> None:
        """A write's effects are complete and acknowledged, or a read is over. Again changes nothing for a write."""
        self._turns.take(lambda draft: self._end(draft, transaction_id, WriteOutcome.COMMITTED))

    def roll_back(self, transaction_id: int) -> None:
        """A write has no effects and will have none, or a read is over. Again changes nothing for a write."""
        self._turns.take(lambda draft: self._end(draft, transaction_id, WriteOutcome.ROLLED_BACK))

    def keep_alive(self, position: Timestamp, reads: Sequence[int] = ()) -> None:
        """The source says that nothing which is not open yet will begin below `position`; and these reads go on.

        If a read is over, or the position is none, all of it is refused.
        """
        self._turns.take(lambda draft: draft.keep_alive(position, reads, self._read_lease_seconds))

    def renew(self, transaction_ids: Sequence[int]) -> None:
        """Go on reading for another lease. One that is over is refused, and then none is renewed."""
        self.keep_alive(0, transaction_ids)

    def watermarks(self) -> Watermarks:
        """Both watermarks, and what follows from them."""
        return self._turns.take(lambda draft: decide.watermarks(draft.state))

    def open_writes(self) -> tuple[Write, ...]:
        """What holds the high watermark, the lowest timestamp first: for operators and owners that came back."""
        return self._turns.take(
            lambda draft: tuple(sorted(draft.state.writes.values(), key=lambda each: each.timestamp))
        )

    def keep_lease(self) -> None:
        """Hold on to the service for another lease. `FencedError`: it is lost, and another may have it."""
        asked_at = self._clock.monotonic()
        try:
            self._held.keep_alive()
        except LeaseExpiredError as error:
            raise FencedError(self.topology, self.epoch, "its lease has expired") from error
        self._good_until = asked_at + self._held.lease.ttl_seconds

    def close(self) -> None:
        """Give the lease back. Afterwards nothing is answered."""
        self._good_until = float("-inf")
        self._held.release()

    def _begin(self, timestamps: Sequence[Timestamp | None], *, read_only: bool) -> tuple[Transaction, ...]:
        if read_only:
            return self._turns.take(lambda draft: draft.begin_reads(timestamps, self._read_lease_seconds))
        return self._turns.take(lambda draft: draft.begin_writes(timestamps))

    def _end(self, draft: Draft, transaction_id: int, outcome: WriteOutcome) -> None:
        if not draft.end(transaction_id, outcome):
            self._check_ended(draft, transaction_id, outcome)

    def _check_ended(self, draft: Draft, transaction_id: int, wanted: WriteOutcome) -> None:
        """It is not open: was it ended like this before?"""
        found = draft.ended.get(transaction_id)
        if found is None and 0 < transaction_id <= self._stored.last_transaction:
            with self._database.read() as connection:
                self._refuse_other(rows.epoch(connection, self.topology))
                found = rows.outcome(connection, self.topology, transaction_id)
        if found is None:
            raise UnknownTransactionError(transaction_id, "is not open: it never was, its lease is over, or it is old")
        if found is not wanted:
            raise UnknownTransactionError(transaction_id, f"is {found}")

    @contextmanager
    def _turn(self) -> Iterator[Draft]:
        """A draft of what is true now; what it has become is durable, and then true, when the block ends."""
        now = self._clock.monotonic()
        if now >= self._good_until:
            raise FencedError(self.topology, self.epoch, "its lease has passed")
        if self._is_unsure:
            self._read_anew()
        draft = Draft(decide.settled(self._stored.state, now), now, self._next_id)
        yield draft
        stored = self._wanted(draft)
        if _durable(stored) != _durable(self._stored) or draft.added or draft.ended:
            self._persist(stored, draft)
        else:
            with self._database.read() as connection:
                self._refuse_other(rows.epoch(connection, self.topology))
        self._stored, self._next_id = stored, draft.next_id

    def _wanted(self, draft: Draft) -> Stored:
        """What the draft comes to. Ids are made durable ahead of use, so that a read costs no write of its own."""
        ids = self._stored.last_transaction
        if draft.next_id > ids + 1:
            ids = draft.next_id - 1 + IDS_AHEAD
        is_resting = draft.now < draft.state.low_rests_until
        lease_seconds = self._stored.read_lease_seconds if is_resting else self._read_lease_seconds
        return Stored(self.epoch, ids, lease_seconds, decide.settled(draft.state, draft.now))

    def _persist(self, stored: Stored, draft: Draft) -> None:
        self._is_unsure = True
        operation = f"timestamps of {self.topology}"
        with self._database.write(operation=operation, isolation=Isolation.OWN_LOCKS) as connection:
            if not rows.put_state(connection, self.topology, stored, epoch=self.epoch):
                self._refuse_other(rows.epoch(connection, self.topology))
            rows.add_writes(connection, self.topology, tuple(draft.added.values()))
            rows.end_writes(connection, self.topology, draft.ended)
            if stored.last_transaction != self._stored.last_transaction:
                rows.forget_writes(connection, self.topology, draft.next_id - OUTCOMES_KEPT)
        hit(Failpoint.TIMESTAMPS_AFTER_PERSIST)
        self._is_unsure = False

    def _read_anew(self) -> None:
        """After a failure whose outcome is not known. Reads and the rest of the low watermark are ours to know."""
        with self._database.read() as connection:
            found = rows.load(connection, self.topology, lock=False)
        self._refuse_other(None if found is None else found.epoch)
        assert found is not None, "its epoch is ours"
        known = self._stored.state
        state = replace(found.state, reads=known.reads, low_rests_until=known.low_rests_until)
        self._stored, self._next_id = replace(found, state=state), found.last_transaction + 1
        self._is_unsure = False

    def _refuse_other(self, epoch: int | None) -> None:
        if epoch != self.epoch:
            raise FencedError(self.topology, self.epoch, f"epoch {epoch} has begun")


def _checked_count(count: int) -> int:
    if not 1 <= count <= MAXIMUM_BATCH:
        raise UsageError(f"{count} transactions cannot be begun together", hint=f"1 to {MAXIMUM_BATCH}", count=count)
    return count


def _durable(stored: Stored) -> tuple[float, ...]:
    """What of it is in the row of the topology."""
    state, lease_seconds = stored.state, stored.read_lease_seconds
    return (stored.last_transaction, lease_seconds, state.high, state.low, state.newest, state.complete_below)
