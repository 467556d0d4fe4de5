"""Sources that have their only place in one region (`specific_region`): that one copies, the others read it there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headwater.regions.errors import MisplacedError
from headwater.regions.registry import DestPolicy, Mode
from headwater.sync.check.model import Checked, Fault
from headwater.sync.check.protocol import Checker
from tests.unit.sync_world import Regions, ids


def made(folder: Path, *, ensure_local_prefix: bool) -> Regions:
    """A table with a file of each region; everything has its place in us."""
    regions = Regions(folder)
    policy = DestPolicy(Mode.SPECIFIC_REGION, "us", ensure_local_prefix)
    regions.app.open_publisher(regions.url).publish(replace(regions.registry, dest_policy=policy), actor="ann")
    regions.lake("us").create_table("t", ids(1).schema, actor="ann")
    for number, name in enumerate(("us", "eu", "asia")):
        regions.lake(name).load("t", ids(number), actor="ann")
    regions.sync("us")
    return regions


def checked(regions: Regions, region: str) -> Checked:
    with regions.syncing(region) as (syncing, ground):
        checker = Checker(ground.catalog, ground.files, ground.generation.registry, region)
        return checker.check(syncing.status().replica)


@pytest.mark.hazard("R8")
def test_r8_the_others_read_it_there_and_their_check_lists_it(tmp_path: Path) -> None:
    regions = made(tmp_path, ensure_local_prefix=False)
    regions.sync("eu")
    assert regions.rows("default.t", "eu") == [{"id": 0}, {"id": 1}, {"id": 2}]
    found = checked(regions, "eu")
    assert found.is_sound, found.findings
    assert len(found.exempt) == 2, "its own file is at home"
    assert all(each.startswith(f"{(tmp_path / 'us').as_uri()}/") for each in found.exempt)
    assert checked(regions, "us").exempt == ()
    # What is exempt has to be there all the same.
    lost = Path(found.exempt[0].removeprefix("file://"))
    lost.unlink()
    assert [(each.fault, each.path) for each in checked(regions, "eu").findings] == [(Fault.MISSING, lost.as_uri())]


def test_where_files_are_promised_to_be_local_the_others_have_no_replica(tmp_path: Path) -> None:
    regions = made(tmp_path, ensure_local_prefix=True)
    with pytest.raises(MisplacedError, match="run this in the region that dest_policy names"):
        regions.sync("eu")
    assert regions.tables("main_replica_eu") == {}
    assert checked(regions, "us").is_sound
