"""How a query ends before its answer: by a signal, by its time limit, by the end of its context."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from headwater.kernel.errors import UsageError
from headwater.query import QueryOptions, damage, stream
from headwater.query.deadline import Deadline
from headwater.query.failures import is_interrupt, may_be_a_file
from headwater.query.model import QueryMemoryError, QueryTimeoutError, QueryUsageError
from headwater.tables.properties import NAME_MAPPING
from tests.unit.query_world import QueryWorld, folder_world

NUMBERS = Schema(NestedField(1, "id", LongType()))
# More than 20 seconds of work for two cores.
SLOW = "SELECT count(*) FROM range(50000) a, range(50000) b WHERE (a.range * b.range) % 7 = 3"
SOON_SECONDS = 8.0


class EndedError(Exception):
    """What the handler of a signal raises."""


@pytest.fixture
def world(tmp_path: Path) -> QueryWorld:
    world = folder_world(tmp_path / "lake")
    world.table("t", NUMBERS, numbers(1000))
    return world


def numbers(count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(count), pa.int64())})


@contextmanager
def alarm(after_seconds: float) -> Iterator[None]:
    """A signal in a while, whose handler raises."""

    def ring(*_: object) -> None:
        raise EndedError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, after_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def whole(world: QueryWorld) -> None:
    world.run(SLOW)


def streamed(world: QueryWorld) -> None:
    with stream(SLOW, world, world.files, options=QueryOptions(threads=2)) as reader:
        reader.read_all()


@pytest.mark.parametrize("ask", [whole, streamed])
def test_a_signal_ends_the_query_and_is_what_the_caller_sees(
    world: QueryWorld, ask: Callable[[QueryWorld], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_now(*_: object) -> None:
        pytest.fail("a person ended the query, and files were looked at")

    monkeypatch.setattr(damage, "read_task", not_now)
    began = time.monotonic()
    with alarm(0.5), pytest.raises(EndedError):
        ask(world)
    assert time.monotonic() - began < SOON_SECONDS
    assert not [each for each in threading.enumerate() if each.name.startswith("query")]


def test_a_stream_that_is_left_ends_its_query(world: QueryWorld) -> None:
    """The first batches come at once; the rest would take long."""
    sql = "SELECT a.range FROM range(50000) a, range(50000) b WHERE a.range < 5 OR hash(a.range * b.range) = 1"
    began = time.monotonic()
    with stream(sql, world, world.files, options=QueryOptions(threads=2, batch_rows=1000)) as reader:
        assert reader.read_next_batch().num_rows > 0
    assert time.monotonic() - began < SOON_SECONDS


def test_a_stream_ends_with_its_context(world: QueryWorld) -> None:
    with stream("SELECT * FROM t", world, world.files, options=QueryOptions(batch_rows=10)) as reader:
        assert reader.read_next_batch().num_rows > 0
    for _ in range(2):
        with pytest.raises(QueryUsageError, match="the query has ended, and with it its stream"):
            reader.read_next_batch()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("Query interrupted"), True),
        (duckdb.InterruptException("INTERRUPT Error: Interrupted!"), True),
        (pa.ArrowInvalid("INTERRUPT Error: Interrupted!"), True),
        (duckdb.InvalidInputException("Invalid Input Error: Query interrupted"), False),
    ],
)
def test_what_a_person_has_ended(error: Exception, *, expected: bool) -> None:
    assert is_interrupt(error) == expected


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT error('x') FROM t",
        "SELECT 9223372036854775807 + id FROM t",
        "SELECT strptime(id::VARCHAR || 'x', '%Y') FROM t",
        "SELECT regexp_matches(id::VARCHAR, '(') FROM t",
        "SELECT sqrt(-1 - id) FROM t",
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_an_error_in_the_sql_does_not_read_the_tables(
    world: QueryWorld, sql: str, monkeypatch: pytest.MonkeyPatch, *, streaming: bool
) -> None:
    looked: list[object] = []

    def look(*_: object, **__: object) -> tuple[object, ...]:
        looked.append(sql)
        return ()

    def ask() -> None:
        if not streaming:
            world.run(sql)
        with stream(sql, world, world.files) as reader:
            reader.read_all()

    monkeypatch.setattr(damage, "read_task", look)
    with pytest.raises(QueryUsageError):
        ask()
    assert looked == []


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (duckdb.IOException("IO Error: cannot read"), True),
        (duckdb.InvalidInputException('Invalid Input Error: Failed to read file "/x/1.parquet"'), True),
        (duckdb.Error("Out of buffer"), True),
        (duckdb.Error("Mismatch Type Error: no"), False),
        (duckdb.InvalidInputException("Invalid Input Error: no"), False),
        (duckdb.OutOfRangeException("Out of Range Error: no"), False),
    ],
)
def test_which_errors_may_be_those_of_a_file(error: duckdb.Error, *, expected: bool) -> None:
    assert may_be_a_file(error) == expected


def test_the_look_for_damage_ends_in_time(world: QueryWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is read for ever is read no longer than the query may take."""

    def for_ever(*_: object, **__: object) -> Iterator[None]:
        for _number in range(1000):
            time.sleep(0.02)
            yield

    monkeypatch.setattr(damage, "read_task", for_ever)
    with pytest.raises(QueryTimeoutError):
        world.run("SELECT error('parquet') FROM t", timeout_seconds=1)


def test_copying_ends_in_time(world: QueryWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    mapping = '[{"field-id": 1, "names": ["id"]}]'
    key = world.table("m", NUMBERS, numbers(10), properties={NAME_MAPPING: mapping})
    (batch,) = numbers(10).to_batches()

    def for_ever(*_: object, **__: object) -> Iterator[pa.RecordBatch]:
        for _number in range(1000):
            time.sleep(0.02)
            yield batch

    monkeypatch.setattr("headwater.query.relations.read_task", for_ever)
    assert key in world.tables
    with pytest.raises(QueryTimeoutError):
        world.run("SELECT * FROM m", timeout_seconds=1)


def test_the_deadline_is_told_until_the_query_has_ended() -> None:
    """What begins just as the time is over would not notice one interrupt."""
    told = threading.Semaphore(0)
    deadline = Deadline(0.01, told.release)
    assert all(told.acquire(timeout=5) for _ in range(3))
    with pytest.raises(QueryTimeoutError):
        deadline.check()
    deadline.close()
    assert not [each for each in threading.enumerate() if isinstance(each, threading.Timer)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory_limit_bytes", 10**25),
        ("timeout_seconds", 1e10),
        ("timeout_seconds", float("nan")),
        ("timeout_seconds", float("inf")),
        ("threads", 10**6),
        ("threads", 0.5),
        ("batch_rows", 10**12),
    ],
)
def test_options_beyond_all_bounds(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=name):
        QueryOptions(**{name: value})  # type: ignore[arg-type]


def test_a_memory_limit_that_is_too_small_for_anything(world: QueryWorld) -> None:
    with pytest.raises(QueryMemoryError, match="the query needs more than it may use"):
        world.run("SELECT 1", memory_limit_bytes=1)
