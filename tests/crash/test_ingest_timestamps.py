"""A real process that holds the timestamps, killed and stopped between what is durable and what it tells.

What is true is the raw rows of the database.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from headwater.ingest.timestamps import TimestampService
from headwater.kernel.failpoints import Failpoint
from tests.crash.child import child
from tests.crash.timestamps_actor import take

ACTOR = "tests.crash.timestamps_actor"
POINT = Failpoint.TIMESTAMPS_AFTER_PERSIST

pytestmark = pytest.mark.slow


def rows(path: Path, sql: str) -> list[Any]:
    with sqlite3.connect(path) as connection:
        return connection.execute(sql).fetchall()


def high(path: Path) -> int:
    [[found]] = rows(path, "SELECT high FROM ingest_time_state")
    return int(found)


def still_open(path: Path) -> list[tuple[int, int]]:
    return rows(path, "SELECT transaction_id, timestamp FROM ingest_time_writes WHERE outcome = 'open' ORDER BY 1")


def next_holder(path: Path) -> TimestampService:
    """Takes over as if the lease of the one before had passed."""
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM coordination_entries")
    return take(path, "test")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Timestamps up to 10 are complete, 20 is open."""
    path = tmp_path / "state.db"
    service = take(path, "before")
    service.keep_alive(11)
    service.begin(timestamp=20)
    service.close()
    return path


@pytest.mark.parametrize("number", [15, 0])
@pytest.mark.proves("ingest/timestamps")
def test_a_timestamp_that_was_begun_and_not_told(state: Path, number: int) -> None:
    with child(ACTOR, str(state), "begin", str(number), environ={}, failpoints=f"{POINT}=kill") as actor:
        assert actor.killed() == []
    [first, lost] = still_open(state)
    assert lost[1] == (number or 21)
    service = next_holder(state)
    assert [(each.id, each.timestamp) for each in service.open_writes()] == sorted([first, lost], key=lambda it: it[1])
    if number:
        assert service.begin(timestamp=number).id == lost[0], "to begin it again is the same transaction"
    else:
        assert service.begin().timestamp == 22, "it is not given again"
        service.roll_back(lost[0])
    assert service.watermarks().high == 11


def test_a_commit_that_was_not_told(state: Path) -> None:
    [[transaction_id, _]] = still_open(state)
    with child(ACTOR, str(state), "commit", str(transaction_id), environ={}, failpoints=f"{POINT}=kill") as actor:
        assert actor.killed() == []
    assert (high(state), still_open(state)) == (21, [])
    service = next_holder(state)
    service.commit(transaction_id)
    assert service.watermarks().high == 21


def test_a_watermark_that_was_not_shown(state: Path) -> None:
    with child(ACTOR, str(state), "alive", "18", environ={}, failpoints=f"{POINT}=kill") as actor:
        assert actor.killed() == []
    assert next_holder(state).watermarks().high == 18


@pytest.mark.proves("ingest/timestamps")
def test_a_holder_that_slept_is_fenced(state: Path) -> None:
    """It was about to show a watermark when another took over: by then it must not."""
    with child(ACTOR, str(state), "alive", "18", environ={}, failpoints=f"{POINT}=stop") as actor:
        actor.wait_stopped()
        service = next_holder(state)
        service.commit(still_open(state)[0][0])
        assert actor.resumed() == [{"outcome": "fenced"}]
    assert service.watermarks().high == 21
