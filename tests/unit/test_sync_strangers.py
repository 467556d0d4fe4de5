"""A replica's branch is its own: one that somebody else has filled is not replaced by a replica (hazard R7)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headwater.kernel.errors import RefusedError
from tests.unit.sync_world import Regions, ids


@pytest.fixture
def regions(tmp_path: Path) -> Regions:
    made = Regions(tmp_path)
    made.lake("us").create_table("t", ids(1).schema, actor="ann")
    return made


def name_branch(regions: Regions, branch: str) -> None:
    """The registry says that this is eu's replica."""
    others = tuple(replace(each, branch=branch) if each.name == "eu" else each for each in regions.registry.regions)
    regions.app.open_publisher(regions.url).publish(replace(regions.registry, regions=others), actor="ann")


@pytest.mark.hazard("R7")
def test_r7_a_branch_of_somebody_s_work_is_not_taken_for_a_replica(regions: Regions) -> None:
    lake = regions.lake("us")
    lake.create_branch("dev")
    lake.create_table("mine", ids(1).schema, actor="ann", branch="dev")
    before, head = regions.tables("dev"), lake.resolve("dev")
    name_branch(regions, "dev")
    with pytest.raises(RefusedError, match="dev is no replica") as caught:
        regions.sync()
    assert "`branch` in the registry" in str(caught.value.hint)
    assert regions.tables("dev") == before
    assert lake.resolve("dev") == head
    lake.delete_branch("dev")
    regions.sync()
    assert regions.tables("dev").keys() == {"default.t"}


def test_a_branch_that_is_empty_is_a_beginning(regions: Regions) -> None:
    regions.lake("us").catalog.create_empty_branch("replicas/eu")
    name_branch(regions, "replicas/eu")
    regions.sync()
    assert regions.tables("replicas/eu").keys() == {"default.t"}


def test_a_replica_that_somebody_wrote_to_is_made_good(regions: Regions) -> None:
    """What it shows is not known any more, and it is still a replica: everything is looked at again."""
    regions.sync()
    lake = regions.lake("us")
    lake.create_table("intruder", ids(1).schema, actor="ann", branch="main_replica_eu")
    lake.load("t", ids(1), actor="ann")
    regions.sync()
    assert regions.tables("main_replica_eu").keys() == {"default.t"}
    assert regions.rows("default.t") == [{"id": 1}]
