"""A merge killed at every step: the target has all of it or nothing, and the next merge finds its way."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from headwater.app import App
from headwater.kernel import settings
from headwater.kernel.failpoints import Failpoint
from headwater.lake import Lake
from tests.crash.child import child
from tests.crash.places import Place, place

ACTOR = "tests.crash.merge_actor"
__all__ = ["place"]  # the fixture
# A lease that is over before the next process has started, and clocks that agree: they are one machine's.
QUICK = {"HEADWATER_PUBLISH_LEASE_SECONDS": "2", "HEADWATER_SEQUENCE_CLOCK_SKEW_SECONDS": "0"}
LEASE_SECONDS = 2.2
KEYED = Schema(
    NestedField(1, "id", LongType(), required=True), NestedField(2, "n", LongType()), identifier_field_ids=[1]
)
# What main holds before the merge and after it: of a table that both sides changed, one that dev changed, one it made.
BEFORE = {"shared": {1: 10, 2: 22}, "one": {1: 10}, "made": None}
AFTER = {"shared": {1: 11, 2: 22}, "one": {1: 11}, "made": {1: 1}}
HEADS = 3

pytestmark = [pytest.mark.slow, pytest.mark.proves("publish")]


def app_of(place: Place) -> App:
    return App(settings.load(environ={**place.environ, **QUICK}))


def run(lake: Lake, *statements: str, branch: str) -> None:
    with lake.transaction(branch=branch, actor="ann") as tx:
        for sql in statements:
            tx.sql(sql)


@pytest.fixture
def parted(place: Place) -> Place:
    lake = app_of(place).init_lake(place.url)
    for name in ("shared", "one"):
        lake.create_table(name, KEYED, actor="ann", format_version=3)
    run(lake, "insert into shared values (1, 10), (2, 20)", "insert into one values (1, 10)", branch="main")
    lake.create_branch("dev")
    lake.create_table("made", KEYED, actor="ann", branch="dev")
    run(
        lake,
        "update shared set n = 11 where id = 1",
        "update one set n = 11",
        "insert into made values (1, 1)",
        branch="dev",
    )
    run(lake, "update shared set n = 22 where id = 2", branch="main")
    return place


def seen(lake: Lake) -> dict[str, dict[int, int] | None]:
    there = {each.key.name for each in lake.tables()}
    return {
        name: {row["id"]: row["n"] for row in lake.query(f"select * from {name}").to_pylist()}
        if name in there
        else None
        for name in BEFORE
    }


@pytest.mark.parametrize("place", ["file", pytest.param("s3", marks=pytest.mark.services)], indirect=True)
@pytest.mark.parametrize(
    ("point", "nth", "lands"),
    [
        (Failpoint.PUBLISH_AFTER_SIDECAR, 1, False),
        (Failpoint.PUBLISH_AFTER_HEAD, 1, False),
        (Failpoint.PUBLISH_AFTER_HEAD, HEADS, True),
        (Failpoint.PUBLISH_AFTER_COMMIT, 1, True),
    ],
    ids=str,
)
def test_p7_a_merge_killed_on_its_way(parted: Place, point: Failpoint, nth: int, lands: bool) -> None:
    environ = {**parted.environ, **QUICK}
    with child(ACTOR, parted.url, environ=environ, failpoints=f"{point}=kill@{nth}") as victim:
        assert victim.killed() == [{"outcome": "trying"}]
    app = app_of(parted)
    published = point is Failpoint.PUBLISH_AFTER_COMMIT
    assert seen(app.open_lake(parted.url, read_only=True)) == (AFTER if published else BEFORE)
    app.clock.sleep(LEASE_SECONDS)
    lake = app.open_lake(parted.url)  # which sweeps
    assert seen(lake) == (AFTER if lands else BEFORE)
    with child(ACTOR, parted.url, environ=environ) as successor:
        told = successor.finished()[-1]["outcome"]
    assert told == ("nothing to merge" if lands else "merged")
    assert seen(lake) == AFTER
    merges = [each for each in lake.catalog.log(lake.catalog.ref("main").hash) if len(each.parents) == 2]
    assert [each.parents[1] for each in merges] == [lake.catalog.ref("dev").hash]
    lake.delete_branch("dev")
    run(lake, *(f"insert into {name} values (9, 9)" for name in AFTER), branch="main")
    assert seen(lake) == {name: {**(held or {}), 9: 9} for name, held in AFTER.items()}
    assert list(app.open_store(parted.url).list("__recovery")) == []
