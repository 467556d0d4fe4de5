"""The heartbeat of replication, the lags that are told by it, and the file that metrics are kept in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headwater.app import App
from headwater.catalog.model import Ref
from headwater.catalog.nessie.metrics import API_LATENCY, COMMIT_LATENCY, operation_of
from headwater.catalog.nessie.open import init_nessie
from headwater.catalog.port import Catalog
from headwater.cli.sync import sync
from headwater.kernel import settings
from headwater.kernel.errors import UnavailableError
from headwater.kernel.metrics import Metrics
from headwater.kernel.randomness import system_randomness
from headwater.sync.observe.decide import commits_within, is_beat_due, lacking_seconds
from headwater.sync.observe.heartbeat import BEAT_EVERY, HEARTBEAT_BRANCH, Heartbeat
from headwater.sync.observe.metrics import COMMIT_RATE, HEARTBEAT, REPLICATION_LAG, VISIBILITY_LAG
from tests.unit.nessie_world import PATIENT, World
from tests.unit.sync_world import Regions, ids

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BRANCH = f"{HEARTBEAT_BRANCH}eu"


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


@pytest.mark.parametrize(("age_seconds", "is_due"), [(0, False), (59.9, False), (60, True), (-5, False)])
def test_a_beat_is_due(age_seconds: float, is_due: bool) -> None:
    assert is_beat_due(ago(age_seconds), NOW, timedelta(seconds=60)) is is_due


@pytest.mark.parametrize(
    ("shown", "lag_seconds"),
    [
        ("c", 0.0),  # all of them
        ("b", 10.0),
        ("a", 70.0),  # since the first that it lacks, not since the last that it has
        ("gone", 130.0),
    ],
)
def test_how_long_a_region_lacks_something(shown: str, lag_seconds: float) -> None:
    beats = [("c", ago(10)), ("b", ago(70)), ("a", ago(130))]
    assert lacking_seconds(shown, beats, NOW) == lag_seconds


def test_a_clock_that_is_ahead_makes_no_lag_below_nothing() -> None:
    assert lacking_seconds("a", [("b", ago(-3)), ("a", ago(60))], NOW) == 0.0


def test_commits_of_the_last_minute() -> None:
    minute = timedelta(minutes=1)
    assert commits_within([], NOW, minute) == 0
    assert commits_within([ago(1), ago(60), ago(61), ago(2)], NOW, minute) == 2


class Lagging:
    """A region's catalog that shows a branch as it was, or does not answer."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.stands: Ref | None = None
        self.is_down = False

    def ref(self, name: str) -> Ref:
        if self.is_down:
            raise UnavailableError("no answer")
        return self.stands if self.stands is not None and name == BRANCH else self._catalog.ref(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)


class Beating:
    """A heartbeat on the model of Nessie, for a region whose catalog can fall behind."""

    def __init__(self) -> None:
        self.world = World()
        self.clock = self.world.clock
        self.world.server.clock = self.clock.now
        self.catalog = self.world.open()
        self.region = Lagging(self.world.open())
        self.metrics = Metrics()
        self.heart = Heartbeat(
            self.catalog,
            self.region,
            region="eu",
            clock=self.clock,
            randomness=system_randomness(),
            metrics=self.metrics,
        )

    @property
    def beats(self) -> int:
        return len(list(self.catalog.log(self.catalog.ref(BRANCH).hash)))

    @property
    def lag_seconds(self) -> float:
        self.heart.look()
        return self.metrics.value(REPLICATION_LAG, region="eu")


def test_a_beat_is_made_when_the_last_is_old() -> None:
    beating = Beating()
    main = beating.catalog.ref("main").hash
    for expected in (1, 2, 3):
        beating.heart.beat()
        beating.heart.beat()  # too soon
        assert beating.beats == expected
        beating.clock.sleep(BEAT_EVERY.total_seconds())
    assert beating.catalog.ref("main").hash == main


def test_a_region_that_falls_behind_and_catches_up() -> None:
    beating = Beating()
    beating.heart.beat()
    assert beating.lag_seconds == 0
    first = beating.clock.now()
    beating.region.stands = beating.catalog.ref(BRANCH)
    beating.clock.sleep(3600)  # nothing happens, and nobody beats: that is no lag
    assert beating.lag_seconds == 0
    beating.heart.beat()
    beating.clock.sleep(90)
    beating.heart.beat()
    beating.clock.sleep(5)
    assert beating.lag_seconds == 95
    assert beating.metrics.value(HEARTBEAT, region="eu") == first.timestamp()
    beating.region.stands = None
    assert beating.lag_seconds == 0
    assert beating.metrics.value(HEARTBEAT, region="eu") == first.timestamp() + 3600 + 90


def test_a_region_that_does_not_answer_stops_nothing() -> None:
    beating = Beating()
    beating.heart.look()  # there is no such branch yet
    beating.region.is_down = True
    beating.heart.beat()
    beating.heart.look()
    assert beating.beats == 1
    assert beating.metrics.value(COMMIT_RATE) == 1


def test_a_primary_that_does_not_answer_stops_nothing() -> None:
    beating = Beating()
    down = Lagging(beating.catalog)
    down.is_down = True
    heart = Heartbeat(
        down,
        beating.catalog,
        region="eu",
        clock=beating.clock,
        randomness=system_randomness(),
        metrics=beating.metrics,
    )
    heart.beat()
    heart.look()
    assert beating.metrics.value(HEARTBEAT, region="eu") == 0


def test_where_there_is_but_one_catalog_nobody_beats(tmp_path: Path) -> None:
    regions = Regions(tmp_path)
    regions.lake().create_table("t", ids(1).schema, actor="ann")
    regions.sync()
    regions.status()
    metrics = regions.app.metrics
    names = [ref.name for ref in regions.lake().catalog.refs()]
    assert not [name for name in names if name.startswith(HEARTBEAT_BRANCH)]
    assert metrics.value(REPLICATION_LAG, region="eu") == 0
    assert metrics.value(HEARTBEAT, region="eu") > 0
    assert metrics.value(COMMIT_RATE) >= 1
    assert metrics.value(VISIBILITY_LAG, region="eu") == 1


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [
        ("GET", "config", "config"),
        ("GET", "trees", "listRefs"),
        ("POST", "trees", "createRef"),
        ("GET", "trees/a%2Fb", "getRef"),
        ("PUT", "trees/main@aa", "assignRef"),
        ("DELETE", "trees/main@aa", "deleteRef"),
        ("POST", "trees/main@aa/history/commit", "commit"),
        ("GET", "trees/@aa/history", "log"),
        ("GET", "trees/@aa/diff/@bb", "diff"),
        ("POST", "trees/@aa/contents", "contents"),
        ("GET", "trees/@aa/entries", "entries"),
        ("GET", "trees/main/something/new", "other"),
    ],
)
def test_requests_are_told_by_what_they_ask_for(method: str, path: str, operation: str) -> None:
    assert operation_of(method, path) == operation


def test_every_request_to_nessie_is_measured() -> None:
    world, metrics = World(), Metrics()
    world.server.before = lambda _method, _path: world.clock.sleep(0.25)
    options = {"clock": world.clock, "randomness": system_randomness(), "policy": PATIENT}
    catalog = init_nessie(world.url, **options, transport=world.server, metrics=metrics)  # type: ignore[arg-type]
    catalog.create_empty_branch("side")
    assert metrics.value(API_LATENCY, operation="getRef") >= 1
    assert metrics.value(COMMIT_LATENCY) == metrics.value(API_LATENCY, operation="commit") >= 1
    told = metrics.registry.get_sample_value("nessie_api_latency_ms_sum", {"operation": "config"})
    assert told == 250


def run_once(regions: Regions, file: Path) -> Result:
    app = App(settings.load(environ={"HEADWATER_SYNC_METRICS_FILE": str(file)}))
    return CliRunner().invoke(sync, ["run", regions.url, "--region", "eu"], obj=app)


def test_a_sync_keeps_its_metrics_in_a_file(tmp_path: Path) -> None:
    regions, file = Regions(tmp_path), tmp_path / "headwater.prom"
    regions.lake().create_table("t", ids(1).schema, actor="ann")
    regions.lake().load("t", ids(1), actor="ann")
    assert run_once(regions, file).exit_code == 0
    text = file.read_text()
    assert 'oldest_pending_commit_age_seconds{region="eu"} 0.0' in text
    assert 'commit_conflict_total{region="eu"} 0.0' in text
    assert 'replication_heartbeat_timestamp_seconds{region="eu"}' in text  # which is known only to who looks at the end
    assert 'regional_read_ready_lag_seconds_count{region="eu",table="default.t"}' in text
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_a_sync_that_fails_tells_how_it_stands(tmp_path: Path) -> None:
    regions, file = Regions(tmp_path), tmp_path / "headwater.prom"
    lake = regions.lake()
    lake.create_table("t", ids(1).schema, actor="ann")
    lake.load("t", ids(1), actor="ann")
    [data] = (regions.folder / "us").rglob("*.parquet")
    data.unlink()
    assert run_once(regions, file).exit_code != 0
    [age] = [line for line in file.read_text().splitlines() if line.startswith("oldest_pending_commit_age_seconds{")]
    assert float(age.split()[-1]) > 0


def test_a_file_that_cannot_be_written_stops_no_sync(tmp_path: Path) -> None:
    regions = Regions(tmp_path)
    regions.lake().create_table("t", ids(1).schema, actor="ann")
    assert run_once(regions, tmp_path / "absent" / "headwater.prom").exit_code == 0
    assert regions.status().pending is None
