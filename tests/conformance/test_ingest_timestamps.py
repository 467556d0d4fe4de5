"""The timestamp service means the same on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from headwater.coordination import DatabaseCoordination
from headwater.database import Database, open_database
from headwater.ingest.timestamps import FencedError, TakenError, TimestampService, Watermarks, open_timestamps, tables
from headwater.kernel.clock import ManualClock
from headwater.kernel.errors import HeadwaterError

BACKENDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.services)]


@pytest.fixture(params=BACKENDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    is_server = request.param == "postgresql"
    target = str(request.getfixturevalue("postgres_database")) if is_server else str(tmp_path / "state.db")
    with open_database(target) as opened:
        yield opened


def opened(database: Database, holder: str = "a:1", clock: ManualClock | None = None) -> TimestampService:
    coordination = DatabaseCoordination(database)
    return open_timestamps(
        database,
        coordination,
        "bank",
        holder,
        clock=clock or ManualClock(),
        lease_seconds=600,
        read_lease_seconds=60,
    )


def expire(database: Database) -> None:
    """Let the lease of whoever holds the service end now."""
    with database.write() as connection:
        connection.exec_driver_sql("DELETE FROM coordination_entries")


def test_the_tables_are_what_the_migrations_make(database: Database) -> None:
    opened(database)
    with database.read() as connection:
        inspector = sa.inspect(connection)
        for each in tables.metadata.sorted_tables:
            made = {column["name"]: column["nullable"] for column in inspector.get_columns(each.name)}
            assert made == {column.name: bool(column.nullable) for column in each.columns}
            keys = inspector.get_pk_constraint(each.name)["constrained_columns"]
            assert keys == [column.name for column in each.primary_key.columns]


@pytest.mark.proves("ingest/timestamps")
def test_from_one_holder_to_the_next(database: Database) -> None:
    first = opened(database)
    held, done = first.begin_at([10, 11])
    first.commit(done.id)
    reader = first.begin(read_only=True)
    assert (reader.timestamp, first.watermarks()) == (9, Watermarks(10, 0))
    with pytest.raises(TakenError, match="held by a:1"):
        opened(database, "b:1")
    expire(database)
    clock = ManualClock()
    second = opened(database, "b:1", clock)
    for call in (first.begin, first.watermarks, lambda: first.commit(held.id), lambda: first.commit(done.id)):
        with pytest.raises(FencedError):
            call()
    assert second.begin(timestamp=10).id == held.id
    second.commit(done.id)
    second.commit(held.id)
    assert second.watermarks() == Watermarks(12, 0), "for readers of the holder before"
    clock.sleep(60)
    assert second.watermarks() == Watermarks(12, 11)
    assert second.begin().timestamp == 12
    assert second.begin(timestamp=11).is_resend


def test_many_at_once_get_timestamps_of_their_own(database: Database) -> None:
    service = opened(database)

    def work(number: int) -> list[int]:
        given = []
        for _ in range(4):
            begun = service.begin()
            assert service.begin(read_only=True).timestamp < begun.timestamp
            service.commit(begun.id)
            given.append(begun.timestamp)
        return given

    with ThreadPoolExecutor(4) as pool:
        given = [each for some in pool.map(work, range(4)) for each in some]
    assert sorted(given) == list(range(1, 17))
    assert service.watermarks().high == 17
    assert service.open_writes() == ()


def test_the_database_itself_refuses_watermarks_out_of_order(database: Database) -> None:
    opened(database)
    for wrong in ("low = high", "high = complete_below + 1"):
        with pytest.raises(HeadwaterError), database.write() as connection:
            connection.exec_driver_sql(f"UPDATE ingest_time_state SET {wrong}")
