"""The whole way of the data, on three folders: writes in several regions, replicas with local paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.sync.model import origin_of
from headwater.sync.runs.model import RunState, Step
from tests.unit.sync_world import Regions, ids


@pytest.fixture
def regions(tmp_path: Path) -> Regions:
    return Regions(tmp_path)


def rows(*numbers: int) -> list[dict[str, int]]:
    return [{"id": number} for number in sorted(numbers)]


def test_writes_of_two_regions_are_read_from_the_own_folder_of_a_third(regions: Regions) -> None:
    regions.lake("us").create_table("t", ids(1).schema, actor="ann")
    regions.lake("us").load("t", ids(1, 2), actor="ann")
    regions.lake("asia").load("t", ids(3), actor="ann")
    done = regions.sync("eu")
    assert {each.state for each in done} == {RunState.DONE}
    assert regions.rows("default.t") == rows(1, 2, 3)
    local = f"{(regions.folder / 'eu').as_uri()}/"
    assert {path for path in regions.paths("default.t") if not path.startswith(local)} == set()
    # And with everything else gone.
    for name in ("us", "asia", "lake/tables"):
        (regions.folder / name).rename(regions.folder / name.replace("/", "-gone-"))
    assert regions.rows("default.t") == rows(1, 2, 3)


def test_commit_by_commit_in_the_order_of_main(regions: Regions) -> None:
    lake = regions.lake("us")
    lake.create_table("t", ids(1).schema, actor="ann")
    regions.sync()
    for number in range(3):
        lake.load("t", ids(number), actor="ann")
    done = regions.sync()
    assert [each.done for each in done] == [Step.OBSERVE] * 3
    catalog = lake.catalog
    promoted = [origin_of(each.properties) for each in catalog.log(catalog.ref("main_replica_eu").hash)]
    shown = [each.hash for each in promoted if each is not None]
    assert shown[:3] == [each.hash for each in catalog.log(catalog.ref("main").hash)][:3]
    assert regions.sync() == []
    assert regions.status().pending is None


def test_updates_and_deletes(regions: Regions) -> None:
    lake = regions.lake("us")
    lake.apply("create table t (id bigint primary key, v text)", actor="ann")
    with lake.transaction(actor="ann") as change:
        change.sql("insert into t values (1, 'a'), (2, 'b'), (3, 'c')")
    regions.sync()
    with regions.lake("asia").transaction(actor="bob") as change:
        change.sql("update t set v = 'B' where id = 2")
        change.sql("delete from t where id = 3")
    regions.sync()
    assert regions.rows("default.t") == [{"id": 1, "v": "a"}, {"id": 2, "v": "B"}]
    lake.apply("alter table t add column w int", actor="ann")
    regions.sync()
    assert regions.rows("default.t") == [{"id": 1, "v": "a", "w": None}, {"id": 2, "v": "B", "w": None}]


def test_drops_renames_views_and_namespaces_are_carried(regions: Regions) -> None:
    lake = regions.lake("us")
    lake.apply("create namespace sales; create table sales.t (id bigint); create table u (id bigint)", actor="ann")
    lake.apply("create view v as select id from u", actor="ann")
    regions.sync()
    assert set(regions.tables("main_replica_eu")) == {"sales.t", "default.u", "default.v"}
    lake.apply("drop view v; alter table u rename to w; drop table sales.t", actor="ann")
    regions.sync()
    assert set(regions.tables("main_replica_eu")) == {"default.w"}


def test_a_table_dropped_and_made_anew(regions: Regions) -> None:
    lake = regions.lake("us")
    lake.create_table("t", ids(1).schema, actor="ann")
    lake.load("t", ids(1), actor="ann")
    regions.sync()
    lake.apply("drop table t", actor="ann")
    lake.create_table("t", ids(1).schema, actor="ann")
    lake.load("t", ids(2), actor="ann")
    regions.sync()
    assert regions.rows("default.t") == rows(2)
