"""Where readers are sent means the same on both databases, however many ask at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from headwater.database import open_database
from headwater.sync.route.model import Health, RouteLimits, Way
from headwater.sync.route.store import Routes

BACKENDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.services)]
LIMITS = RouteLimits(timedelta(seconds=60), timedelta(0))
WELL, DOWN = Health(), Health(fault="does not answer")


@pytest.fixture(params=BACKENDS)
def routes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Routes]:
    is_server = request.param == "postgresql"
    target = str(request.getfixturevalue("postgres_database")) if is_server else str(tmp_path / "state.db")
    with open_database(target) as opened:
        yield Routes(opened)


def test_what_was_decided_is_kept(routes: Routes) -> None:
    assert routes.route("eu", WELL, LIMITS).state.way is Way.LOCAL
    left = routes.route("eu", DOWN, LIMITS)
    assert (left.state.way, left.asks_forward) == (Way.PRIMARY, True)
    patient = RouteLimits(timedelta(seconds=60), timedelta(hours=1))
    watched = routes.route("eu", WELL, patient).state
    assert (watched.way, watched.since) == (Way.PRIMARY, left.state.since)
    assert routes.route("eu", WELL, patient).state == watched
    assert routes.route("us", WELL, patient).state.way is Way.LOCAL


def test_readers_who_ask_at_once_are_all_answered(routes: Routes) -> None:
    """A region's engines start together. Whoever only asks is not told to try again."""
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda number: routes.route("eu", DOWN if number % 2 else WELL, LIMITS), range(40))
        assert {each.state.way for each in answers} == {Way.LOCAL, Way.PRIMARY}
