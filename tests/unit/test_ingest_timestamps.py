"""Watermarks and transactions: every row of the tables, and a service against a plain model of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from headwater.coordination import DatabaseCoordination
from headwater.database import Database, open_database
from headwater.ingest.timestamps import (
    FencedError,
    TakenError,
    TimestampOutOfRangeError,
    TimestampService,
    Transaction,
    UnknownTransactionError,
    Watermarks,
    open_timestamps,
    protocol,
)
from headwater.ingest.timestamps import decide as rules
from headwater.ingest.timestamps.model import State
from headwater.ingest.timestamps.turns import Turns
from headwater.ingest.visibility import RowGroupVisibility
from headwater.kernel.clock import ManualClock
from headwater.kernel.errors import UnavailableError, UsageError
from headwater.kernel.failpoints import Action, Failpoint, FailpointError, arm

SECOND = timedelta(seconds=1)
LEASE_SECONDS, READ_SECONDS = 10.0, 60.0


def after(*steps: tuple[str, int]) -> State:
    """The state after writes that begin and commit by their timestamps (their ids), and keep-alives."""
    state = State()
    for what, timestamp in steps:
        match what:
            case "begin":
                state, _ = rules.begin_write(state, timestamp, timestamp)
            case "commit":
                state = rules.commit_write(state, timestamp)
            case "roll back":
                state = rules.roll_back_write(state, timestamp)
            case "alive":
                state = rules.keep_alive(state, timestamp)
    return state


@pytest.mark.parametrize(
    ("steps", "high"),
    [
        ([], 1),
        ([("begin", 5)], 1),
        ([("begin", 5), ("commit", 5)], 6),
        ([("begin", 5), ("begin", 8), ("commit", 8)], 5),
        ([("begin", 5), ("begin", 8), ("commit", 5)], 6),
        ([("begin", 5), ("begin", 8), ("commit", 8), ("commit", 5)], 9),
        ([("begin", 8), ("begin", 5), ("commit", 8), ("commit", 5)], 9),
        ([("begin", 5), ("begin", 8), ("commit", 8), ("roll back", 5)], 9),
        ([("begin", 5), ("roll back", 5)], 1),
        ([("alive", 5)], 5),
        ([("alive", 5), ("alive", 3)], 5),
        ([("begin", 5), ("alive", 9)], 5),
        ([("begin", 5), ("alive", 9), ("commit", 5)], 9),
        ([("begin", 9), ("alive", 9), ("commit", 9)], 10),
        ([("alive", 9), ("begin", 4)], 9),
        ([("alive", 9), ("begin", 4), ("begin", 12), ("commit", 12)], 13),
        ([("alive", 9), ("begin", 4), ("commit", 4)], 9),
        ([("alive", 9), ("begin", 9), ("begin", 12), ("commit", 12)], 9),
    ],
)
@pytest.mark.hazard("I16")
def test_the_high_watermark(steps: list[tuple[str, int]], high: int) -> None:
    state = after(*steps)
    assert state.high == high
    assert rules.watermarks(state).read_timestamp == high - 1


def test_a_timestamp_that_is_given_is_above_everything() -> None:
    for steps, given in [([], 1), ([("begin", 5)], 6), ([("alive", 5)], 5), ([("begin", 5), ("roll back", 5)], 6)]:
        _, write = rules.begin_write(after(*steps), 99, None)
        assert (write.timestamp, write.is_resend) == (given, False)


def test_a_write_below_the_high_watermark_is_a_re_send() -> None:
    state = after(("alive", 9))
    assert [rules.begin_write(state, 99, at)[1].is_resend for at in (8, 9, 10)] == [True, False, False]


def test_to_begin_an_open_timestamp_again_is_the_same_transaction() -> None:
    state = after(("begin", 5))
    again, write = rules.begin_write(state, 99, 5)
    assert (again, write.id) == (state, 5)


def test_the_low_watermark() -> None:
    state = after(("alive", 10))
    assert rules.settled(state, 0).low == 9, "nobody reads: the read timestamp"
    state, _ = rules.begin_read(state, 1, None, 0, 60)
    state = rules.keep_alive(state, 20)
    state, _ = rules.begin_read(state, 2, None, 30, 60)
    assert [rules.settled(state, now).low for now in (31, 59.9, 60, 89.9, 90)] == [9, 9, 19, 19, 19]
    assert rules.settled(rules.keep_alive(state, 30), 90).low == 29
    renewed = rules.renew_reads(state, [1], 50, 60)
    assert [rules.settled(renewed, now).low for now in (60, 109, 110)] == [9, 9, 19]
    assert rules.settled(rules.end_read(state, 1), 31).low == 19
    fallen = rules.settled(State(high=20, low=15, complete_below=20), 0)
    assert fallen.low == 19


def test_the_low_watermark_rests_after_a_change_of_hands() -> None:
    state = State(high=20, low=5, newest=19, complete_below=20, low_rests_until=60)
    assert [rules.settled(state, now).low for now in (0, 59, 60)] == [5, 5, 19]


@pytest.mark.parametrize(("low", "asked", "allowed"), [(5, 4, False), (5, 5, True), (5, 9, True), (5, 10, False)])
def test_what_can_be_read(low: int, asked: int, allowed: bool) -> None:
    state = State(high=10, low=low, complete_below=10)
    if allowed:
        assert rules.begin_read(state, 1, asked, 0, 60)[1].timestamp == asked
        return
    with pytest.raises(TimestampOutOfRangeError, match="any more" if asked < low else "yet") as refused:
        rules.begin_read(state, 1, asked, 0, 60)
    assert refused.value.fields == {"timestamp": asked, "low_watermark": 5, "read_timestamp": 9}


@pytest.mark.parametrize("timestamp", [0, -1, 2**63 - 1])
def test_a_timestamp_that_is_none(timestamp: int) -> None:
    with pytest.raises(TimestampOutOfRangeError):
        rules.begin_write(State(), 1, timestamp)


def test_what_may_be_folded_is_below_the_low_watermark() -> None:
    assert Watermarks(high=10, low=7).safe_gc_timestamp == 6
    assert Watermarks(high=1, low=0).safe_gc_timestamp == 0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def database(tmp_path: Path, clock: ManualClock) -> Iterator[Database]:
    with open_database(tmp_path / "state.db", clock=clock) as opened:
        yield opened


def opened(
    database: Database, clock: ManualClock, holder: str = "a:1", read_seconds: float = READ_SECONDS
) -> TimestampService:
    coordination = DatabaseCoordination(database)
    return open_timestamps(
        database,
        coordination,
        "bank",
        holder,
        clock=clock,
        lease_seconds=LEASE_SECONDS,
        read_lease_seconds=read_seconds,
    )


def held(service: TimestampService, clock: ManualClock, seconds: int) -> None:
    """Let time go by, during which the lease is kept."""
    for _ in range(0, seconds, 5):
        clock.advance(5 * SECOND)
        service.keep_lease()


def lapsed(database: Database, clock: ManualClock, holder: str = "b:1") -> TimestampService:
    """The next holder, after the one before fell silent."""
    clock.advance(11 * SECOND)
    return opened(database, clock, holder)


def test_a_write_is_complete_when_it_is_committed(database: Database, clock: ManualClock) -> None:
    service = opened(database, clock)
    assert service.watermarks() == Watermarks(1, 0)
    first, second = service.begin(timestamp=5), service.begin()
    assert (first.timestamp, second.timestamp) == (5, 6)
    assert first == Transaction(first.id, 5)
    service.commit(second.id)
    assert service.watermarks().high == 5
    assert service.begin(read_only=True).timestamp == 4
    assert [write.timestamp for write in service.open_writes()] == [5]
    service.commit(first.id)
    assert service.watermarks().high == 7
    assert service.begin(timestamp=5).is_resend
    assert service.watermarks().high == 7


def test_to_end_again_is_answered_the_same(database: Database, clock: ManualClock) -> None:
    service = opened(database, clock)
    first, second = service.begin_at([5, 6])
    for _ in range(2):
        service.commit(first.id)
        service.roll_back(second.id)
    for call, reason in ((service.roll_back, "is committed"), (service.commit, "is rolled-back")):
        with pytest.raises(UnknownTransactionError, match=reason):
            call(first.id if reason == "is committed" else second.id)
    with pytest.raises(UnknownTransactionError) as refused:
        service.commit(99)
    assert refused.value.fields == {"transaction_id": 99}


def test_a_batch_is_begun_whole_or_not_at_all(database: Database, clock: ManualClock) -> None:
    service = opened(database, clock)
    assert [each.timestamp for each in service.begin_batch(2)] == [1, 2]
    assert [each.timestamp for each in service.begin_at([9, 7])] == [9, 7]
    with pytest.raises(TimestampOutOfRangeError):
        service.begin_at([20, 0])
    for wrong in (0, -1, 10_001):
        with pytest.raises(UsageError, match="1 to 10000"):
            service.begin_batch(wrong)
    with pytest.raises(UsageError):
        service.begin_at([])
    assert [write.timestamp for write in service.open_writes()] == [1, 2, 7, 9]
    assert service.begin().timestamp == 10
    reads = service.begin_batch(3, read_only=True)
    assert [(each.timestamp, each.lease_seconds) for each in reads] == [(0, READ_SECONDS)] * 3
    assert len({each.id for each in reads}) == 3


def test_a_reader_holds_the_low_watermark_until_its_lease_is_over(database: Database, clock: ManualClock) -> None:
    service = opened(database, clock)
    clock.advance(9 * SECOND)
    service.keep_lease()
    service.keep_alive(10)
    reader = service.begin(read_only=True)
    service.keep_alive(20)
    assert service.watermarks() == Watermarks(20, 0), "it rests after a start"
    for _ in range(7):
        clock.advance(8 * SECOND)
        service.keep_lease()
    assert service.watermarks() == Watermarks(20, 9)
    service.renew([reader.id])
    for _ in range(7):
        clock.advance(8 * SECOND)
        service.keep_lease()
    assert service.watermarks() == Watermarks(20, 9)
    clock.advance(5 * SECOND)
    assert service.watermarks() == Watermarks(20, 19)
    for call in (service.commit, service.roll_back, lambda id_: service.renew([id_])):
        with pytest.raises(UnknownTransactionError, match="lease"):
            call(reader.id)


def test_readers_that_say_goodbye_let_go(database: Database, clock: ManualClock) -> None:
    service = opened(database, clock)
    for _ in range(8):
        clock.advance(8 * SECOND)
        service.keep_lease()
    service.keep_alive(10)
    first, second = service.begin_batch(2, read_only=True)
    third = service.begin(read_only=True, timestamp=9)
    service.keep_alive(20)
    service.commit(first.id)
    service.roll_back(second.id)
    assert service.watermarks().low == 9
    service.commit(third.id)
    assert service.watermarks() == Watermarks(20, 19)


def test_nothing_goes_backwards_when_the_service_changes_hands(database: Database, clock: ManualClock) -> None:
    service = opened(database, clock)
    kept, committed = service.begin(timestamp=30), service.begin(timestamp=31)
    given = service.begin()
    service.commit(committed.id)
    service.keep_alive(25)
    reader = service.begin(read_only=True)
    before = service.watermarks()
    other = lapsed(database, clock)
    assert other.watermarks() == before == Watermarks(30, 0)
    assert [write.id for write in other.open_writes()] == [kept.id, given.id]
    assert other.begin().timestamp == given.timestamp + 1, "a timestamp is given once"
    assert other.begin(read_only=True).id > max(given.id, reader.id), "and an id, too"
    other.commit(committed.id)
    other.commit(kept.id)
    assert other.watermarks().high == 32
    assert other.begin(timestamp=given.timestamp).id == given.id
    with pytest.raises(UnknownTransactionError):
        other.renew([reader.id])
    assert other.begin(read_only=True, timestamp=reader.timestamp).timestamp == 29, "it can still be read there"


def test_a_watermark_is_durable_before_it_is_shown(database: Database, clock: ManualClock) -> None:
    service = opened(database, clock)
    for _ in range(8):
        clock.advance(8 * SECOND)
        service.keep_lease()
    service.keep_alive(10)
    reader = service.begin(read_only=True)
    service.keep_alive(20)
    service.commit(reader.id)
    shown = service.watermarks()
    assert shown == Watermarks(20, 19)
    assert lapsed(database, clock).watermarks() == shown


def test_the_low_watermark_rests_for_readers_of_the_holder_before(database: Database, clock: ManualClock) -> None:
    service = opened(database, clock)
    service.keep_alive(10)
    reader = service.begin(read_only=True)
    other = lapsed(database, clock)
    other.keep_alive(50)
    for _ in range(6):
        clock.advance(8 * SECOND)
        other.keep_lease()
        assert other.watermarks().low <= reader.timestamp
    clock.advance(9 * SECOND)
    other.keep_lease()
    clock.advance(3 * SECOND)
    assert other.watermarks().low == 49


def test_the_low_watermark_rests_by_the_lease_that_readers_were_told(database: Database, clock: ManualClock) -> None:
    """The next holder has a shorter setting, and so has the one after it, which comes while the low watermark rests."""
    service = opened(database, clock, read_seconds=600.0)
    service.keep_alive(10)
    assert service.begin(read_only=True).lease_seconds == 600.0
    other = lapsed(database, clock)
    other.keep_alive(30)
    third = lapsed(database, clock, "c:1")
    held(third, clock, 595)
    assert third.watermarks().low == 0, "the reader of the first may be at 9 still"
    held(third, clock, 5)
    assert third.watermarks().low == 29
    fourth = lapsed(database, clock, "d:1")
    fourth.keep_alive(40)
    held(fourth, clock, 55)
    low = fourth.watermarks().low
    held(fourth, clock, 5)
    assert (low, fourth.watermarks().low) == (29, 39), "by now all readers have the shorter lease"


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_lease_of_reads_that_cannot_be(database: Database, clock: ManualClock, seconds: float) -> None:
    with pytest.raises(UsageError, match="readers cannot be given"):
        opened(database, clock, read_seconds=seconds)
    assert opened(database, clock).epoch, "nothing was taken"


class Faulty:
    """A coordinator whose n-th call is not answered: it was not heard, or its answer was lost."""

    def __init__(self, real: DatabaseCoordination, number: int, is_done: bool) -> None:
        self._real, self._number, self._is_done = real, number, is_done
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., object]:
        def call(*args: object) -> object:
            self.calls.append(name)
            if len(self.calls) - 1 != self._number:
                return getattr(self._real, name)(*args)
            if self._is_done:
                getattr(self._real, name)(*args)
            raise UnavailableError("no answer")

        return call


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("number", range(5))
def test_a_coordinator_that_falls_silent_at_any_call(
    database: Database, clock: ManualClock, number: int, is_done: bool
) -> None:
    """To take the lease, to renew it and to give it back: what was shown stands, and the next one goes on from it."""
    first = opened(database, clock)
    first.keep_alive(20)
    write = first.begin()
    clock.advance(11 * SECOND)
    faulty = Faulty(DatabaseCoordination(database), number, is_done)
    shown = Watermarks(20, 0)
    try:
        service = open_timestamps(
            database,
            faulty,  # type: ignore[arg-type]
            "bank",
            "b:1",
            clock=clock,
            lease_seconds=LEASE_SECONDS,
            read_lease_seconds=READ_SECONDS,
        )
        shown = service.watermarks()
        service.keep_lease()
        service.close()
    except UnavailableError:
        pass
    assert len(faulty.calls) > number, "all calls are tried"
    with pytest.raises(FencedError):
        first.watermarks()
    other = lapsed(database, clock, "c:1")
    assert (other.watermarks().high, shown.high) == (20, 20)
    assert [each.id for each in other.open_writes()] == [write.id]
    other.commit(write.id)
    assert other.watermarks().high == 21


def test_reads_and_the_position_are_kept_alive_together_or_not(database: Database, clock: ManualClock) -> None:
    service = opened(database, clock)
    service.keep_alive(5)
    read = service.begin(read_only=True)
    with pytest.raises(UnknownTransactionError):
        service.keep_alive(9, [read.id, 999])
    held(service, clock, 50)
    service.keep_alive(9, [read.id])
    held(service, clock, 50)
    with pytest.raises(TimestampOutOfRangeError):
        service.keep_alive(2**63, [read.id])
    assert service.watermarks() == Watermarks(9, 4), "what was refused changed nothing"
    held(service, clock, 10)
    assert service.watermarks() == Watermarks(9, 8), "it was not renewed either"


@pytest.mark.parametrize("transaction_id", [0, -1, 77, 2**63, 2**64 - 1])
def test_an_id_that_nobody_was_given(database: Database, clock: ManualClock, transaction_id: int) -> None:
    service = opened(database, clock)
    service.begin(timestamp=5)
    for end in (service.commit, service.roll_back, lambda id_: service.renew([id_])):
        with pytest.raises(UnknownTransactionError) as refused:
            end(transaction_id)
        assert refused.value.fields == {"transaction_id": transaction_id}


def test_who_only_asks_leaves_the_database_alone(
    database: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(database, clock)
    monkeypatch.setattr(protocol, "migrate", lambda *_: pytest.fail("a node that does not hold the time asks often"))
    with pytest.raises(TakenError, match="a:1"):
        opened(database, clock, "b:1")


def test_the_holder_may_be_gone_when_it_is_asked_for(
    database: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there when the lease was asked for; then it went. Nobody is named, and it is free the next time."""
    monkeypatch.setattr(protocol, "acquire", lambda *_: None)
    with pytest.raises(TakenError, match="another node") as taken:
        opened(database, clock)
    assert taken.value.fields["holder"] is None
    monkeypatch.undo()
    assert opened(database, clock).watermarks().high == 1


def test_the_one_that_lost_its_lease_answers_nothing(database: Database, clock: ManualClock) -> None:
    service = opened(database, clock)
    write, read = service.begin(timestamp=5), service.begin(read_only=True)
    with pytest.raises(TakenError, match="held by a:1") as taken:
        opened(database, clock, "b:1")
    assert taken.value.fields["holder"] == "a:1"
    other = lapsed(database, clock)
    calls = [
        service.begin,
        lambda: service.begin(read_only=True),
        lambda: service.commit(write.id),
        lambda: service.commit(99),
        lambda: service.roll_back(write.id),
        lambda: service.keep_alive(9),
        lambda: service.renew([read.id]),
        service.watermarks,
        service.open_writes,
    ]
    for good_until in (service._good_until, float("inf")):
        service._good_until = good_until  # its own clock may stand still, and it must be refused all the same
        for call in calls:
            with pytest.raises(FencedError) as fenced:
                call()
            assert fenced.value.fields == {"topology": "bank", "epoch": service.epoch}
    with pytest.raises(FencedError):
        service.keep_lease()
    assert other.epoch > service.epoch
    assert [each.timestamp for each in other.open_writes()] == [5]
    assert other.watermarks().high == 1


@pytest.mark.parametrize("call", ["watermarks", "open_writes", "read", "renew", "leave"])
def test_the_one_that_was_followed_does_not_even_read(database: Database, clock: ManualClock, call: str) -> None:
    """What costs no write of its own is refused too, though its own clock stands still."""
    service = opened(database, clock)
    reader = service.begin(read_only=True)
    lapsed(database, clock)
    service._good_until = float("inf")
    calls: dict[str, Callable[[], object]] = {
        "watermarks": service.watermarks,
        "open_writes": service.open_writes,
        "read": lambda: service.begin(read_only=True),
        "renew": lambda: service.renew([reader.id]),
        "leave": lambda: service.commit(reader.id),
    }
    with pytest.raises(FencedError, match="has begun"):
        calls[call]()


def test_one_that_came_late_does_not_take_over(database: Database, clock: ManualClock) -> None:
    """It won the lease, slept, lost it to another, and only then would raise the epoch."""
    service = opened(database, clock)
    with pytest.raises(FencedError, match=f"epoch {service.epoch} has begun"):
        protocol._take_over(database, "bank", service.epoch - 1, READ_SECONDS)
    service.begin()


def test_a_service_that_was_closed_is_free_at_once(database: Database, clock: ManualClock) -> None:
    service = opened(database, clock)
    service.close()
    with pytest.raises(FencedError):
        service.watermarks()
    assert opened(database, clock, "b:1").begin().timestamp == 1


def test_topologies_are_apart(database: Database, clock: ManualClock) -> None:
    service = opened(database, clock)
    service.keep_alive(50)
    service.begin()
    other = open_timestamps(database, DatabaseCoordination(database), "shop", "a:1", clock=clock)
    assert (other.watermarks().high, other.open_writes()) == (1, ())
    for name in ("", "x" * 129):
        with pytest.raises(UsageError):
            open_timestamps(database, DatabaseCoordination(database), name, "a:1", clock=clock)


@pytest.mark.parametrize("call", ["begin", "commit", "alive"])
def test_after_an_unknown_outcome_the_truth_is_read(database: Database, clock: ManualClock, call: str) -> None:
    service = opened(database, clock)
    write = service.begin(timestamp=5)
    calls: dict[str, Callable[[], object]] = {
        "begin": lambda: service.begin(timestamp=7),
        "commit": lambda: service.commit(write.id),
        "alive": lambda: service.keep_alive(5),
    }
    with arm(Failpoint.TIMESTAMPS_AFTER_PERSIST, Action.ERROR), pytest.raises(FailpointError):
        calls[call]()
    if call == "begin":
        [_, lost] = service.open_writes()
        assert service.begin(timestamp=7).id == lost.id, "what was not told is given again"
        assert service.begin().timestamp == 8
    else:
        assert service.watermarks().high == (6 if call == "commit" else 5)
    service.commit(write.id)
    assert service.watermarks().high == 6


def test_outcomes_are_kept_for_a_while_and_open_writes_for_ever(
    database: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "IDS_AHEAD", 4)
    monkeypatch.setattr(protocol, "OUTCOMES_KEPT", 10)
    service = opened(database, clock)
    stays, first = service.begin(timestamp=1), service.begin()
    service.commit(first.id)
    last = first
    for _ in range(30):
        last = service.begin()
        service.commit(last.id)
    service.commit(last.id)
    with pytest.raises(UnknownTransactionError):
        service.commit(first.id)
    other = lapsed(database, clock)
    assert [write.id for write in other.open_writes()] == [stays.id]
    assert other.watermarks().high == 1


def test_those_that_come_together_share_a_turn() -> None:
    """One is at work; by the time it is done five more wait, and one of them does it for all."""
    turns, begun, work = list[list[int]](), threading.Event(), threading.Event()

    @contextmanager
    def turn() -> Iterator[list[int]]:
        draft = list[int]()
        yield draft
        if 0 in draft:
            begun.set()
            assert work.wait(60)
        turns.append(draft)

    def step(number: int) -> Callable[[list[int]], int]:
        def act(draft: list[int]) -> int:
            if number == 3:
                raise UsageError("three is refused")
            draft.append(number)
            return number * 10

        return act

    shared = Turns(turn)
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(shared.take, step(0))
        assert begun.wait(60)
        others = [pool.submit(shared.take, step(number)) for number in range(1, 6)]
        while len(shared._queue) < 5:
            first.done()
        work.set()
        assert first.result() == 0
        assert [each.result() for each in others if each is not others[2]] == [10, 20, 40, 50]
        with pytest.raises(UsageError):
            others[2].result()
    assert (turns[0], sorted(turns[1]), len(turns)) == ([0], [1, 2, 4, 5], 2)


class Model(RuleBasedStateMachine):
    """The service, restarted at any time, against sets of timestamps."""

    database: Database
    clock: ManualClock
    numbers: Iterator[int]

    def __init__(self) -> None:
        super().__init__()
        self.topology = f"bank-{next(self.numbers)}"
        self.coordination = DatabaseCoordination(self.database)
        self.service = self.take()
        self.open: dict[int, Transaction] = {}
        self.reads: dict[int, tuple[int, float]] = {}
        self.given: set[int] = set()
        self.below = self.high = 1
        self.shown = Watermarks(1, 0)
        self.group = RowGroupVisibility(1)

    def take(self) -> TimestampService:
        leases = {"lease_seconds": 10_000.0, "read_lease_seconds": READ_SECONDS}
        return open_timestamps(self.database, self.coordination, self.topology, "a:1", clock=self.clock, **leases)

    @rule(timestamp=st.none() | st.integers(1, 40))
    def begin(self, timestamp: int | None) -> None:
        begun = self.service.begin(timestamp=timestamp)
        if timestamp is None:
            assert begun.timestamp not in self.given
            assert begun.timestamp >= self.shown.high
        assert begun.is_resend == (begun.timestamp < self.shown.high) or begun.id in self.open
        assert begun.id in self.open or begun.timestamp not in {each.timestamp for each in self.open.values()}
        self.given.add(begun.timestamp)
        self.open[begun.id] = begun

    @precondition(lambda self: self.open)
    @rule(data=st.data(), commit=st.booleans())
    def end(self, data: st.DataObject, commit: bool) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.open)))
        for _ in range(2):
            (self.service.commit if commit else self.service.roll_back)(chosen)
        ended = self.open.pop(chosen)
        if commit:
            self.below = max(self.below, ended.timestamp + 1)

    @rule(position=st.integers(0, 45))
    def alive(self, position: int) -> None:
        self.service.keep_alive(position)
        self.below = max(self.below, position)

    @rule()
    def read(self) -> None:
        begun = self.service.begin(read_only=True)
        assert begun.timestamp == self.shown.read_timestamp
        self.reads[begun.id] = (begun.timestamp, self.clock.monotonic() + READ_SECONDS)

    @precondition(lambda self: any(id_ > 0 for id_ in self.reads))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(sorted(id_ for id_ in self.reads if id_ > 0)))
        if self.reads.pop(chosen)[1] > self.clock.monotonic():
            self.service.commit(chosen)

    @rule(seconds=st.sampled_from([10, 40, 70]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds * SECOND)
        self.service.keep_lease()

    @rule(is_crash=st.booleans())
    def restart(self, is_crash: bool) -> None:
        if is_crash:
            self.service._held.release()  # as if its time had passed; its memory is gone
        else:
            self.service.close()
        old, self.service = self.service, self.take()
        with pytest.raises(FencedError):
            old.watermarks()
        # Readers of before may read on to the end of their leases, and are then over.
        self.reads = {-abs(id_): read for id_, read in self.reads.items()}

    @invariant()
    def watermarks_are_right(self) -> None:
        now = self.service.watermarks()
        assert now.low >= self.shown.low
        holding = [each.timestamp for each in self.open.values() if not each.is_resend]
        assert all(now.high <= each for each in holding), "an open write is not complete"
        self.high = max(self.high, min([self.below, *holding]))
        assert now.high == self.high
        living = [at for at, until in self.reads.values() if until > self.clock.monotonic()]
        assert all(now.low <= at for at in living), "a reader holds the low watermark"
        self.group.fold(now.safe_gc_timestamp)
        for at in [*living, now.read_timestamp]:
            assert self.group.visible_mask(at).all(), "what is folded is below every reader"
        self.shown = now


@pytest.mark.proves("ingest/timestamps")
def test_the_service_against_a_model(database: Database, clock: ManualClock) -> None:
    class Here(Model):
        pass

    Here.database, Here.clock, Here.numbers = database, clock, iter(range(10**6))
    run_state_machine_as_test(Here, settings=settings(max_examples=15, stateful_step_count=20))
