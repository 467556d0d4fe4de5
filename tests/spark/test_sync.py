"""The steps of a sync on Spark, and its proof by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.kernel.errors import CorruptError, RefusedError
from headwater.sync import steps
from headwater.sync.check.frames import rows_of
from headwater.sync.check.protocol import Checker
from headwater.sync.localise import decide
from headwater.sync.runs.model import RunState
from tests.unit.localise_world import add_files
from tests.unit.sync_world import ids
from tests.unit.test_sync_beyond import SCHEMA, Beyond, data_file, parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.slow, pytest.mark.proves("sync spark")]


@pytest.fixture
def regions(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Beyond:
    """Regions whose every step goes to Spark, however little there is to do; the session is the one that runs."""
    monkeypatch.setattr(steps, "PLAN_HERE", -1)
    monkeypatch.setattr(decide, "SPREAD_FROM", 0)
    return Beyond(tmp_path, HEADWATER_SYNC_BATCH_FILES="2")


def test_every_step_on_spark(regions: Beyond, spark: SparkSession) -> None:
    lake = regions.lake("us")
    lake.apply("create table t (id bigint, v text)", actor="ann")
    for number in range(5):
        with regions.lake("us" if number % 2 else "asia").transaction(actor="ann") as change:
            change.sql(f"insert into t values ({number}, 'x')")
    with lake.transaction(actor="ann") as change:
        change.sql("delete from t where id = 3")
    assert {each.state for each in regions.sync()} == {RunState.DONE}
    assert regions.rows("default.t") == [{"id": number, "v": "x"} for number in (0, 1, 2, 4)]
    local = f"{(regions.folder / 'eu').as_uri()}/"
    assert {path for path in regions.paths("default.t") if not path.startswith(local)} == set()
    with regions.syncing() as (syncing, ground):
        checker = Checker(ground.catalog, ground.files, ground.generation.registry, "eu")
        found = checker.check(syncing.status().replica, lambda location: rows_of(spark, location))
    assert found.findings == ()
    assert found.rows == {"default.t": 4}


def test_what_a_task_refuses_is_told_as_it_is(regions: Beyond) -> None:
    lake = regions.lake("us")
    lake.create_table("t", ids(1).schema, actor="ann")
    lake.load("t", ids(1), actor="ann")
    (file,) = (regions.folder / "us").rglob("*.parquet")
    twin = regions.folder / "eu" / file.relative_to(regions.folder / "us")
    twin.parent.mkdir(parents=True)
    twin.write_bytes(b"somebody else's")
    with pytest.raises(RefusedError, match=f"{twin} has 15 bytes"):
        regions.sync()
    assert regions.status().runs[0].state is RunState.FAILED
    assert regions.tables("main_replica_eu") == {}
    twin.unlink()
    assert regions.sync()[-1].state is RunState.DONE


@pytest.mark.hazard("R6")
def test_r6_two_files_of_one_destination_in_different_tasks(regions: Beyond) -> None:
    """Neither task sees both: they meet where destinations are grouped."""
    engine = regions.engine
    empty = engine.create(SCHEMA)
    data = parquet(1)
    uris = [f"{(regions.folder / region).as_uri()}/t/data/x.parquet" for region in ("us", "asia")]
    for uri in uris:
        file = Path(uri.removeprefix("file://"))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    first, second = (data_file(uri, data, 1) for uri in uris)
    regions.show("t", add_files(engine, add_files(engine, empty, first), second))
    with pytest.raises(RefusedError) as caught:
        regions.sync()
    assert all(uri in str(caught.value) for uri in uris)
    longer = data_file(uris[0], data + b"!", 1)
    regions.show("t", add_files(engine, add_files(engine, engine.create(SCHEMA, name="u"), first), longer))
    with pytest.raises(CorruptError, match="by one manifest, and"):
        regions.sync()
    assert regions.tables("main_replica_eu") == {}
