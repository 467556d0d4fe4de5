"""Writers killed and stopped at every step of a publish, and recoverers too: the balances always add up."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from headwater.app import App
from headwater.kernel import settings
from headwater.kernel.failpoints import Failpoint
from headwater.lake import Lake
from tests.crash.child import child
from tests.crash.publish_actor import ACCOUNTS
from tests.crash.test_catalog import Place, place
from tests.fixtures.lakes import LakeWorld

PUBLISH = [Failpoint.PUBLISH_AFTER_SIDECAR, Failpoint.PUBLISH_AFTER_HEAD, Failpoint.PUBLISH_AFTER_COMMIT]
RECOVERY = [Failpoint.RECOVERY_AFTER_RESTORE, Failpoint.RECOVERY_AFTER_PUBLISH]
ACTOR = "tests.crash.publish_actor"
__all__ = ["place"]  # the fixture
# A lease that is over before the next process has started, and clocks that agree: they are one machine's.
QUICK = {"HEADWATER_PUBLISH_LEASE_SECONDS": "2", "HEADWATER_SEQUENCE_CLOCK_SKEW_SECONDS": "0"}
LEASE_SECONDS = 2.2

both = pytest.mark.parametrize("place", ["file", pytest.param("s3", marks=pytest.mark.services)], indirect=True)
pytestmark = [pytest.mark.slow, pytest.mark.proves("publish")]


def app_of(place: Place) -> App:
    return App(settings.load(environ={**place.environ, **QUICK}))


@pytest.fixture
def bank(place: Place) -> Place:
    world = LakeWorld(app_of(place), place.url)
    world.create("accounts", pa.table({"id": range(ACCOUNTS), "balance": [100] * ACCOUNTS}), format_version=3)
    kinds = pa.schema(
        [("operation", pa.string()), ("giver", pa.int64()), ("taker", pa.int64()), ("amount", pa.int64())]
    )
    world.create("transfers", kinds.empty_table())
    entries = pa.schema([("operation", pa.string()), ("account", pa.int64()), ("amount", pa.int64())])
    world.create("entries", entries.empty_table(), format_version=3)
    return place


def add_up(lake: Lake) -> set[str]:
    """What a reader sees is whole; the operations that it sees."""
    [row] = lake.query(
        "select (select sum(balance) from accounts) total, (select coalesce(sum(amount), 0) from entries) entered, "
        "(select count(*) from (select id from accounts a where balance <> 100 + "
        "(select coalesce(sum(amount), 0) from entries e where e.account = a.id))) wrong, "
        "(select count(*) from transfers) transfers, (select count(*) from entries) entries"
    ).to_pylist()
    assert (row["total"], row["entered"], row["wrong"]) == (100 * ACCOUNTS, 0, 0), row
    assert row["entries"] == 2 * row["transfers"]
    return set(lake.query("select operation from transfers").column("operation").to_pylist())


def judge(seen: set[str], said: list[dict[str, Any]]) -> None:
    for report in said:
        if report["outcome"] == "committed":
            assert report["operation"] in seen, report
        elif report["outcome"] == "conflict":
            assert report["operation"] not in seen, report


@both
@pytest.mark.parametrize(
    ("point", "nth"), [(PUBLISH[0], 2), (PUBLISH[1], 4), (PUBLISH[1], 6), (PUBLISH[2], 2)], ids=str
)
def test_a_writer_killed_on_its_way(bank: Place, point: Failpoint, nth: int) -> None:
    environ = {**bank.environ, **QUICK}
    with child(ACTOR, bank.url, "eve", "20", environ=environ, failpoints=f"{point}=kill@{nth}") as victim:
        said = victim.killed()
    assert said[-1]["outcome"] == "trying"
    app = app_of(bank)
    reading = app.open_lake(bank.url, read_only=True)
    judge(add_up(reading), said)  # before anybody has recovered anything
    app.clock.sleep(LEASE_SECONDS)
    lake = app.open_lake(bank.url)
    seen = add_up(lake)
    judge(seen, said)
    moved = point is Failpoint.PUBLISH_AFTER_COMMIT or nth == 6
    assert (said[-1]["operation"] in seen) is moved
    with child(ACTOR, bank.url, "bob", "2", environ=environ) as successor:
        after = successor.finished()
    assert [report["outcome"] for report in after if report["outcome"] != "trying"] == ["committed"] * 2
    judge(add_up(lake), [*said, *after])
    assert list(app.open_store(bank.url).list("__recovery")) == []


@both
@pytest.mark.parametrize("point", [PUBLISH[0], PUBLISH[1]], ids=str)
def test_a_writer_that_stalls_past_its_lease(bank: Place, point: Failpoint) -> None:
    environ = {**bank.environ, **QUICK}
    with child(ACTOR, bank.url, "eve", "1", environ=environ, failpoints=f"{point}=stop@1") as sleeper:
        sleeper.wait_stopped()
        app_of(bank).clock.sleep(LEASE_SECONDS)
        with child(ACTOR, bank.url, "bob", "3", environ=environ) as other:
            said = other.finished()
        assert sum(report["outcome"] == "committed" for report in said) == 3
        said += sleeper.resumed()
    lake = app_of(bank).open_lake(bank.url)
    judge(add_up(lake), said)
    assert said[-1]["outcome"] == "conflict"


@both
@pytest.mark.parametrize("point", RECOVERY, ids=str)
def test_a_recoverer_killed_twice(bank: Place, point: Failpoint) -> None:
    environ = {**bank.environ, **QUICK}
    head = f"{Failpoint.PUBLISH_AFTER_HEAD}=kill@2"
    with child(ACTOR, bank.url, "eve", "1", environ=environ, failpoints=head) as victim:
        said = victim.killed()
    app_of(bank).clock.sleep(LEASE_SECONDS)
    for _ in range(2):
        with child("tests.crash.sweep_actor", bank.url, environ=environ, failpoints=f"{point}=kill@1") as recoverer:
            recoverer.killed()
    lake = app_of(bank).open_lake(bank.url)
    judge(add_up(lake), said)
    recoveries = [
        each for each in lake.catalog.log(lake.catalog.ref("main").hash) if each.actor == "headwater:recovery"
    ]
    assert len(recoveries) == 1
    assert json.loads(recoveries[0].properties["headwater.recovery.tables"])


def test_every_failpoint_is_exercised() -> None:
    """Each of these is armed above, and each test asserts that its process died or stopped of it."""
    assert {point for point in Failpoint if point.startswith("publish.")} == {*PUBLISH, *RECOVERY}
