"""Where readers of a region are sent, by command after command; and sync, which is asked to hurry."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headwater.app import App
from headwater.cli.route import route
from headwater.kernel.clock import SystemClock
from headwater.sync.observe.metrics import FAST_FORWARDS
from headwater.sync.route.model import Consistency, Way
from headwater.sync.route.protocol import Route
from tests.unit.sync_world import Regions, ids

# A Nessie that nobody runs.
NOBODY = "nessie+http://127.0.0.1:9/api/v2?warehouse=file:///tmp/nobody"


class SetClock(SystemClock):
    """Shows the time that it was set to. Who waits for a lock really waits: that moves no hands."""

    def __init__(self) -> None:
        self.shown = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.shown


class Readers:
    """Readers of eu, who may lag 60 s, and come back after 30 s in which all was well."""

    def __init__(self, folder: Path) -> None:
        self.clock = SetClock()
        limits = {"HEADWATER_SYNC_STALE_AFTER_SECONDS": "60", "HEADWATER_SYNC_WELL_FOR_SECONDS": "30"}
        self.regions = Regions(folder, self.clock, **limits)
        self.endpoint = Path(self.regions.url).as_uri()
        self.lake = self.regions.lake("us")
        self.lake.create_table("t", ids(1).schema, actor="ann")

    def asked(self, *options: str, app: App | None = None) -> dict[str, Any]:
        """What one command says."""
        arguments = [self.regions.url, "--region", "eu", "--json", *options]
        found = CliRunner().invoke(route, arguments, obj=app or self.regions.app, catch_exceptions=False)
        answer: dict[str, Any] = json.loads(found.stdout)
        return answer

    def later(self, seconds: float) -> None:
        self.clock.shown += timedelta(seconds=seconds)

    def write(self, *numbers: int) -> None:
        self.lake.load("t", ids(*numbers), actor="ann")


@pytest.fixture
def readers(tmp_path: Path) -> Readers:
    return Readers(tmp_path)


def test_the_answer_has_one_shape(readers: Readers) -> None:
    readers.regions.sync()
    assert readers.asked() == {
        "region": "eu",
        "consistency": "local",
        "way": "local",
        "endpoint": readers.endpoint,
        "branch": "main_replica_eu",
        "reason": "the local replica is well",
        "since": "2026-01-01T00:00:00+00:00",
    }
    assert readers.asked("--consistency", "strong") == {
        "region": "eu",
        "consistency": "strong",
        "way": "primary",
        "endpoint": readers.endpoint,
        "branch": "main",
        "reason": "what was just written is at the primary",
        "since": None,
    }


def test_a_replica_that_shows_nothing_yet_is_not_read(readers: Readers) -> None:
    left = readers.asked()
    assert (left["way"], left["reason"]) == ("primary", "the local replica shows nothing yet")
    readers.regions.sync()
    assert readers.asked()["way"] == "primary"  # observed for a while
    readers.later(30)
    assert readers.asked()["way"] == "local"


def test_away_at_once_and_back_after_the_window(readers: Readers) -> None:
    readers.regions.sync()
    readers.write(1)
    assert readers.asked()["way"] == "local"
    readers.later(60)
    assert readers.asked()["way"] == "local"
    readers.later(1)
    left = readers.asked()
    assert (left["way"], left["branch"]) == ("primary", "main")
    assert left["reason"] == "the local replica is 61 s behind, more than 60 s"
    readers.regions.sync()
    ways = []
    for second in range(40):
        if second == 10:
            readers.write(2)
            readers.later(61)  # stale once more: the window begins anew
            readers.asked()
            readers.regions.sync()
        ways.append(readers.asked()["way"])
        readers.later(1)
    assert ways == ["primary"] * 40
    assert readers.asked()["way"] == "local"


def test_nobody_is_sent_to_and_fro_by_a_replica_that_comes_and_goes(readers: Readers) -> None:
    readers.regions.sync()
    ways = []
    for number in range(2):
        readers.write(number)
        readers.later(61)
        ways.append(readers.asked()["way"])
        readers.regions.sync()
        readers.later(20)
        ways.append(readers.asked()["way"])
    assert set(ways) == {"primary"}


def test_a_fallback_asks_sync_to_go_to_the_newest_and_it_does(readers: Readers) -> None:
    readers.regions.sync()
    for number in range(3):
        readers.write(number)
    readers.later(61)
    assert readers.asked()["way"] == "primary"
    (done,) = readers.regions.sync()
    assert done.spec.is_forward
    assert readers.regions.app.metrics.value(FAST_FORWARDS, region="eu") == 1
    assert readers.regions.rows("default.t") == [{"id": 0}, {"id": 1}, {"id": 2}]
    # It was asked once: after that it is commit by commit again.
    for number in range(2):
        readers.write(3 + number)
    assert [each.spec.is_forward for each in readers.regions.sync()] == [False, False]


def test_what_one_commit_satisfies_is_not_asked_for_ever(readers: Readers) -> None:
    readers.regions.sync()
    readers.write(1)
    readers.later(61)
    assert readers.asked()["way"] == "primary"
    assert len(readers.regions.sync()) == 1
    for number in range(2):
        readers.write(2 + number)
    assert [each.spec.is_forward for each in readers.regions.sync()] == [False, False]


def test_a_region_whose_catalog_is_down(readers: Readers) -> None:
    readers.regions.sync()
    assert readers.asked()["way"] == "local"
    app = readers.regions.app
    storage = app.settings.storage.model_copy(update={"retry_attempts": 1})
    down = app.settings.model_copy(
        update={"sync": app.settings.sync.model_copy(update={"catalog": NOBODY}), "storage": storage}
    )
    found = readers.asked(app=replace(app, settings=down))
    assert (found["way"], found["endpoint"], found["branch"]) == ("primary", readers.endpoint, "main")
    assert found["reason"].startswith(
        "the local replica does not answer: no Nessie answers at http://127.0.0.1:9/api/v2: "
    )
    assert readers.asked()["way"] == "primary"
    readers.later(30)
    back = readers.asked()
    assert (back["way"], back["endpoint"]) == ("local", readers.endpoint)


def test_readers_find_their_way_while_the_database_is_away(readers: Readers) -> None:
    """It is at the primary: when that is lost, a replica that is well is read all the same."""
    readers.regions.sync()
    app = readers.regions.app
    away = replace(app, settings=app.settings.model_copy(update={"database": "postgresql://127.0.0.1:9/nobody"}))
    found = readers.asked(app=away)
    assert (found["way"], found["branch"], found["since"]) == ("local", "main_replica_eu", None)
    assert found["reason"].startswith("the local replica is well; what was decided before is not known: postgresql://")
    readers.write(1)
    readers.later(61)
    stale = readers.asked(app=away)
    assert (stale["way"], stale["branch"]) == ("primary", "main")


def test_all_who_ask_at_once_are_answered(readers: Readers) -> None:
    readers.regions.sync()
    readers.write(1)
    readers.later(61)

    def ask(_: int) -> Route:
        with readers.regions.app.open_router(readers.regions.url, "eu") as router:
            return router.route(Consistency.LOCAL)

    with ThreadPoolExecutor(4) as pool:
        answers = set(pool.map(ask, range(8)))
    assert [(each.way, each.since) for each in answers] == [(Way.PRIMARY, readers.clock.shown)]


def test_a_region_that_nobody_knows(readers: Readers) -> None:
    arguments = [readers.regions.url, "--region", "mars"]
    found = CliRunner().invoke(route, arguments, obj=readers.regions.app)
    assert "mars" in str(found.exception)
