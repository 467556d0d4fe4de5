"""A process that lasts remembers the registry that it has seen: the sync of a region, run after run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headwater.app import App
from headwater.kernel import settings
from headwater.kernel.errors import CorruptError
from headwater.regions.rollout.client import FAILURES, GENERATION, RELOADS
from headwater.regions.rollout.model import POINTER_PATH, path_of
from tests.unit.sync_world import Regions, ids

pytestmark = pytest.mark.proves("regions/registry")


@pytest.fixture
def regions(tmp_path: Path) -> Regions:
    made = Regions(tmp_path)
    made.lake("us").create_table("t", ids(1).schema, actor="ann")
    return made


def place(regions: Regions, path: str) -> Path:
    return Path(regions.url) / "_headwater" / path


def publish_another(regions: Regions) -> None:
    more = replace(regions.registry, sources=(*regions.registry.sources, f"{regions.folder.as_uri()}/old/"))
    regions.app.open_publisher(regions.url).publish(more, actor="ann")


def test_a_registry_that_was_damaged_does_not_stop_who_knows_it(regions: Regions) -> None:
    assert len(regions.sync()) > 0
    place(regions, path_of(1)).write_bytes(b"rubbish")
    place(regions, POINTER_PATH).write_bytes(b"rubbish")
    regions.app.open_lake(regions.url).load("t", ids(1), actor="ann")
    (run,) = regions.sync()
    assert run.spec.generation == 1
    assert regions.rows("default.t") == [{"id": 1}]
    assert regions.app.metrics.value(FAILURES) == 1
    assert regions.app.metrics.value(GENERATION) == 1
    # Who begins now has no last good one, and stops with the file named.
    beginner = App(settings.load(environ={}))
    with pytest.raises(CorruptError, match=r"registry/current\.json is damaged"), beginner.open_sync(regions.url, "eu"):
        pass


@pytest.mark.hazard("R10")
def test_r10_the_next_run_does_not_go_back(regions: Regions) -> None:
    pointer = place(regions, POINTER_PATH)
    old = pointer.read_bytes()
    publish_another(regions)
    regions.sync()
    pointer.write_bytes(old)
    regions.lake().load("t", ids(1), actor="ann")
    (run,) = regions.sync()
    assert run.spec.generation == 2


def test_a_new_generation_is_for_the_next_run(regions: Regions) -> None:
    regions.sync()
    publish_another(regions)
    regions.lake().load("t", ids(1), actor="ann")
    (run,) = regions.sync()
    assert run.spec.generation == 2
    assert regions.app.metrics.value(RELOADS) == 2
    regions.sync()
    assert regions.app.metrics.value(RELOADS) == 2, "a look that finds nothing new is no reload"
