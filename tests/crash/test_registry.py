"""Real processes that publish the registry, killed and stopped at every failpoint of it, on folders and S3.

What is true is the raw JSON of the pointer and of the generation that it names.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from headwater.app import App
from headwater.kernel import settings
from headwater.kernel.failpoints import Failpoint
from headwater.regions.rollout import Publisher
from tests.crash.child import child
from tests.crash.places import Place, both, place
from tests.crash.registry_actor import rules

ACTOR = "tests.crash.registry_actor"
POINTS = [Failpoint.REGISTRY_AFTER_OBJECT, Failpoint.REGISTRY_AFTER_POINTER]
__all__ = ["place"]  # the fixture

pytestmark = [pytest.mark.slow, pytest.mark.proves("regions/crash")]


def publisher(place: Place) -> Publisher:
    return App(settings.load(environ={**place.environ, "HEADWATER_REGISTRY": place.url})).open_publisher()


def newest(place: Place) -> dict[str, Any]:
    """The generation that the pointer names, from the bytes alone."""
    store = place.app().open_store(place.url)
    pointer = json.loads(store.get("registry/current.json").data)
    data = store.get(f"registry/v2/registry-{pointer['generation']}.json").data
    assert hashlib.sha256(data).hexdigest() == pointer["checksum"]
    found: dict[str, Any] = json.loads(data)
    assert found["generation"] == pointer["generation"]
    return found


@both
@pytest.mark.parametrize("point", POINTS)
def test_a_publisher_that_was_killed(place: Place, point: Failpoint) -> None:
    first = publisher(place).publish(rules("first"), actor="test")
    with child(ACTOR, place.url, "second", environ=place.environ, failpoints=f"{point}=kill") as actor:
        assert actor.killed() == []
    landed = point is Failpoint.REGISTRY_AFTER_POINTER
    assert newest(place)["registry"]["sources"] == ["s3://second/" if landed else "s3://first/"]
    with child(ACTOR, place.url, "second", environ=place.environ) as actor:
        [told] = actor.finished()
    assert told == {"outcome": "published", "generation": first.number + (1 if landed else 2)}
    assert newest(place)["generation"] == told["generation"]


@both
def test_a_publisher_that_slept_while_another_published(place: Place) -> None:
    publisher(place).publish(rules("first"), actor="test")
    failpoints = f"{Failpoint.REGISTRY_AFTER_OBJECT}=stop"
    with child(ACTOR, place.url, "slow", environ=place.environ, failpoints=failpoints) as slow:
        slow.wait_stopped()
        made = publisher(place).publish(rules("fast"), actor="test")
        assert slow.resumed() == [{"outcome": "conflict"}]
    assert (newest(place)["generation"], newest(place)["registry"]["sources"]) == (made.number, ["s3://fast/"])
