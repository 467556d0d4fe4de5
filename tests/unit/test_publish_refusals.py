"""What is refused before anything is written: no note, no head, no word in the log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.catalog.errors import ExpectedVersionMismatchError
from headwater.catalog.model import RefKind
from headwater.kernel import failpoints
from headwater.kernel.errors import OutcomeUnknownError, UsageError
from headwater.kernel.failpoints import Action, Failpoint
from tests.unit.publish_world import PublishWorld


@pytest.fixture
def world() -> PublishWorld:
    made = PublishWorld()
    made.process().create("t1", "t2")
    return made


def everything(world: PublishWorld) -> dict[str, bytes]:
    return {meta.path: world.store.get(meta.path).data for meta in world.store.list()}


@pytest.mark.hazard("P19")
@pytest.mark.parametrize("change", [{"actor": ""}, {"actor": "a\nb"}, {"message": "\x00"}])
def test_p19_what_no_commit_can_say_is_refused_before_the_note(world: PublishWorld, change: dict[str, str]) -> None:
    process = world.process()
    wish = replace(process.wish({"t1": 1, "t2": 1}), **change)  # type: ignore[arg-type]
    before = everything(world)
    with pytest.raises(UsageError):
        process.writing.publisher.publish(wish)
    assert everything(world) == before


@pytest.mark.hazard("P19")
def test_p19_a_tag_takes_no_commits(world: PublishWorld) -> None:
    process = world.process()
    tag = process.catalog.create_ref(RefKind.TAG, "v1", process.catalog.ref("main").hash)
    wish = replace(process.wish({"t1": 1}), branch="v1", branch_incarnation=tag.incarnation)
    before = everything(world)
    with pytest.raises(UsageError, match="v1 is a tag"):
        process.writing.publisher.publish(wish)
    assert everything(world) == before


def test_a_race_that_is_lost_already_leaves_no_trace(world: PublishWorld) -> None:
    """Another process, which may be alive, has moved the head and not published yet."""
    other, process = world.process(), world.process()
    with (
        failpoints.arm(Failpoint.PUBLISH_AFTER_HEAD, Action.ERROR, only_hit=1),
        pytest.raises(OutcomeUnknownError),
    ):
        other.append({"t1": 1, "t2": 1})
    before = everything(world)
    with pytest.raises(ExpectedVersionMismatchError, match=r"default\.t1"):
        process.append({"t1": 2})
    assert everything(world) == before
    assert process.ids("t1") == [0]
