"""Two recoverers of one change: what they tell the log, they tell once."""

from __future__ import annotations

import pytest

from headwater.catalog.model import Commit
from headwater.kernel import failpoints
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.failpoints import Action, Failpoint
from headwater.kernel.ids import Ulid
from headwater.publish.model import RECOVERY_ACTOR
from tests.unit.publish_world import OVER, PublishWorld


@pytest.mark.hazard("P13")
@pytest.mark.parametrize(
    "point", [Failpoint.PUBLISH_AFTER_SIDECAR, Failpoint.PUBLISH_AFTER_HEAD, Failpoint.PUBLISH_AFTER_COMMIT]
)
def test_p13_two_recoverers_that_both_find_nothing_in_the_log_tell_it_once(
    point: Failpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second does all of the work between the first one's look into the log and its commit."""
    world = PublishWorld()
    writer = world.process()
    writer.create("t1", "t2")
    with failpoints.arm(point, Action.ERROR, only_hit=1), pytest.raises(HeadwaterError):
        writer.append({"t1": 1, "t2": 1})
    world.clock.advance(OVER)
    first, second = world.process(), world.process()
    look, pending = first.catalog.outcome, [second.writing.recovery.sweep]

    def outcome(branch: str, operation: Ulid, *, above: str | None = None) -> Commit | None:
        found = look(branch, operation, above=above)
        if found is None and pending and operation != sidecar.operation:
            pending.pop()()
        return found

    [sidecar] = first.writing.sidecars.pending()
    monkeypatch.setattr(first.catalog, "outcome", outcome)
    first.writing.recovery.sweep()
    assert not pending, "the second one never ran"
    assert first.actors().count(RECOVERY_ACTOR) == 1
    assert first.sidecars() == 0
    assert all(first.head_is_pinned(name) for name in ("t1", "t2"))
