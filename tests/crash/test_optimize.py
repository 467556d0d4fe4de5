"""Rewrites killed and stopped at every step: rows stay what they are, and the table goes on without a person."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.app import App
from headwater.kernel import settings
from headwater.kernel.clock import SystemClock
from headwater.kernel.failpoints import Failpoint
from headwater.lake import Lake
from headwater.publish.optimize.errors import TableHeldError
from headwater.publish.optimize.model import End, RunState
from headwater.tables.scan import plan_scan
from tests.crash.child import child
from tests.crash.places import Place, both, place
from tests.crash.sweep_actor import LateClock

OPTIMIZE = [Failpoint.OPTIMIZE_AFTER_JOB, Failpoint.OPTIMIZE_AFTER_FILES]
PUBLISH = [Failpoint.PUBLISH_AFTER_SIDECAR, Failpoint.PUBLISH_AFTER_HEAD, Failpoint.PUBLISH_AFTER_COMMIT]
ACTOR = "tests.crash.optimize_actor"
ROWS = {1: "a", 3: "b", 4: "b"}
__all__ = ["place"]  # the fixture

pytestmark = [pytest.mark.slow, pytest.mark.proves("publish")]


def lake_of(place: Place, *, late: bool = False) -> Lake:
    return App(settings.load(environ=place.environ), clock=LateClock() if late else SystemClock()).open_lake(place.url)


@pytest.fixture
def table(place: Place) -> Place:
    """Three files, one of them with a delete."""
    lake = App(settings.load(environ=place.environ)).init_lake(place.url)
    lake.create_table(
        "t",
        pa.schema([("id", pa.int64()), ("v", pa.string())]),
        actor="ann",
        format_version=3,
        properties={"headwater.statistics.columns": "id"},
    )
    for ids, v in (((1, 2), "a"), ((3,), "b"), ((4,), "b")):
        with lake.transaction(actor="ann") as transaction:
            transaction.insert("t", pa.table({"id": ids, "v": [v] * len(ids)}))
    with lake.transaction(actor="ann") as transaction:
        transaction.sql("delete from t where id = 2")
    return place


def rows_of(lake: Lake) -> dict[int, str]:
    rows = lake.query("select id, v from t").to_pylist()
    found = {row["id"]: row["v"] for row in rows}
    assert len(found) == len(rows)
    return found


def files_of(lake: Lake) -> int:
    return len(plan_scan(lake.files, lake.table("t").metadata).tasks)


@both
@pytest.mark.parametrize("point", [*OPTIMIZE, *PUBLISH], ids=str)
def test_a_rewrite_killed_on_its_way(table: Place, point: Failpoint) -> None:
    with child(ACTOR, table.url, "optimize", environ=table.environ, failpoints=f"{point}=kill@1") as victim:
        victim.killed()
    early = lake_of(table)
    assert rows_of(early) == ROWS
    if point in OPTIMIZE:
        with pytest.raises(TableHeldError):
            early.optimize("t", actor="bob")
        with early.transaction(actor="bob") as transaction:  # everybody else goes on at once
            transaction.sql("delete from t where id = 1")
    late = lake_of(table, late=True)
    expected = {each: v for each, v in ROWS.items() if each != 1 or point not in OPTIMIZE}
    assert rows_of(late) == expected
    [done] = late.optimize("t", actor="bob", deletes=True).tables
    is_done = point in PUBLISH[1:]  # it was published, or rolled forward
    assert done.end is (End.NOTHING if is_done else End.PUBLISHED)
    assert (rows_of(late), files_of(late)) == (expected, 1)
    states = [run.state for _, run in late.writing.jobs.read().runs.values()]
    assert states == ([RunState.RUNNING] if is_done else [RunState.ABANDONED, RunState.PUBLISHED])
    assert late.writing.sidecars.pending() == ()


@both
def test_a_rewrite_that_stalls_past_its_lease(table: Place) -> None:
    point = Failpoint.OPTIMIZE_AFTER_FILES
    with child(ACTOR, table.url, "optimize", environ=table.environ, failpoints=f"{point}=stop@1") as sleeper:
        sleeper.wait_stopped()
        late = lake_of(table, late=True)
        with late.transaction(actor="bob") as transaction:
            transaction.sql("delete from t where id = 4")
        assert late.optimize("t", actor="bob").tables[0].end is End.PUBLISHED
        [said] = sleeper.resumed()
    assert said["end"] == "given up"  # its files are no longer what they were
    assert rows_of(late) == {1: "a", 3: "b"}
    assert files_of(late) == 1


@both
@pytest.mark.parametrize("point", [OPTIMIZE[0], PUBLISH[1]], ids=str)
def test_the_building_of_indices_killed_on_its_way(table: Place, point: Failpoint) -> None:
    with child(ACTOR, table.url, "indices", environ=table.environ, failpoints=f"{point}=kill@1") as victim:
        victim.killed()
    late = lake_of(table, late=True)
    [done] = late.ensure_indices("t", actor="bob").tables
    assert done.end is (End.NOTHING if point in PUBLISH else End.PUBLISHED)
    [known] = late.table("t").metadata.statistics
    assert known.blob_metadata[0].properties == {"ndv": "3"}
    assert rows_of(late) == ROWS


def test_every_failpoint_is_exercised() -> None:
    """Each of these is armed above, and each test asserts that its process died or stopped of it."""
    assert {point for point in Failpoint if point.startswith("optimize.")} == set(OPTIMIZE)
