"""Every commit that is stored, and when a change began: what a cleanup asks the catalog."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from headwater.catalog.embedded.objects import path_of
from headwater.catalog.errors import BeganTooEarlyError
from headwater.catalog.model import RefKind
from headwater.kernel import failpoints
from headwater.kernel.errors import CorruptError
from headwater.kernel.failpoints import Action, Failpoint
from headwater.storage.port import Overwrite
from tests.unit.catalog_world import T, U, World

SECOND = timedelta(seconds=1)


def hashes(world: World) -> dict[str, bool]:
    """Each commit by its hash, and whether it can be read; none comes twice."""
    found = list(world.other().retained())
    assert max(Counter(each.commit.hash for each in found).values()) == 1
    return {each.commit.hash: each.is_readable for each in found}


def staged(world: World) -> set[str]:
    """A commit whose writer died before its manifest; the objects that it left."""
    before = world.objects()
    catalog = world.other()
    armed = failpoints.arm(Failpoint.CATALOG_COMMIT_AFTER_OBJECTS, Action.ERROR)
    with armed, pytest.raises(failpoints.FailpointError):
        catalog.commit(world.request({U: world.table()}, on=catalog))
    return world.objects() - before


class TestRetained:
    def test_what_any_ref_leads_to_and_what_none_does_any_more(self) -> None:
        world = World()
        first = world.other().ref("main").hash
        one = world.put()
        world.other().create_ref(RefKind.BRANCH, "dev", one.hash)
        two, three = world.put(branch="dev"), world.put()
        world.other().create_ref(RefKind.TAG, "v1", one.hash)
        world.other().delete_ref("dev", two.hash)
        assert hashes(world) == dict.fromkeys([first, one.hash, two.hash, three.hash], True)

    def test_a_merged_parent(self) -> None:
        world = World()
        one = world.put()
        catalog = world.other()
        catalog.create_ref(RefKind.BRANCH, "dev", one.hash)
        two = world.put({U: world.table()}, branch="dev")
        merged = catalog.commit(replace(world.request({T: world.table()}, on=catalog), merge_parent=two.hash))
        catalog.delete_ref("dev", two.hash)
        assert {merged.hash, two.hash, one.hash} <= hashes(world).keys()

    def test_a_commit_on_its_way(self) -> None:
        world = World()
        before = hashes(world)
        left = staged(world)
        assert len(left) == 2
        [(_, is_readable)] = hashes(world).items() - before.items()
        assert is_readable

    def test_half_a_commit_cannot_be_read(self) -> None:
        world = World()
        before = hashes(world)
        left = staged(world)
        [whole] = hashes(world).keys() - before.keys()
        [shard] = left - {path_of(whole)}
        world.memory.delete(shard)
        assert hashes(world) == {**before, whole: False}

    def test_what_is_behind_the_horizon(self) -> None:
        world = World()
        one, two, three = (world.put() for _ in range(3))
        world.other().publish_history_horizon(three.committed_at)
        found = hashes(world)
        assert (found[one.hash], found[two.hash], found[three.hash]) == (False, False, True)

    def test_a_ref_keeps_what_it_stands_on(self) -> None:
        world = World()
        one, _, three = (world.put() for _ in range(3))
        world.other().create_ref(RefKind.TAG, "v1", one.hash)
        world.other().publish_history_horizon(three.committed_at)
        assert hashes(world)[one.hash]

    def test_what_was_collected_is_no_damage(self) -> None:
        world = World()
        one, _, three = (world.put() for _ in range(3))
        world.other().publish_history_horizon(three.committed_at)
        world.memory.delete(path_of(one.hash))
        assert one.hash not in hashes(world)

    def test_what_is_missing_is_damage(self) -> None:
        world = World()
        one, _ = world.put(), world.put()
        world.memory.delete(path_of(one.hash))
        with pytest.raises(CorruptError, match=one.hash):
            hashes(world)

    def test_what_cannot_be_read_is_an_error(self) -> None:
        world = World()
        world.memory.put(path_of("ab" * 32), b"{}", Overwrite())
        with pytest.raises(CorruptError):
            hashes(world)


@pytest.mark.hazard("P10")
class TestBegan:
    def test_p10_before_the_staging_horizon_is_refused(self) -> None:
        world = World()
        catalog, began_at = world.other(), world.clock.now()
        world.clock.advance(SECOND)
        catalog.publish_staging_horizon(world.clock.now())
        request = world.request({T: world.table()}, on=catalog)
        before, head = world.objects(), catalog.ref("main")
        with pytest.raises(BeganTooEarlyError) as caught:
            catalog.commit(replace(request, began_at=began_at))
        assert caught.value.fields["began_at"] == began_at.isoformat()
        assert (world.objects(), catalog.ref("main")) == (before, head)
        catalog.commit(replace(request, began_at=world.clock.now()))  # at the horizon is not before it

    def test_p10_a_horizon_that_comes_between_is_seen_too(self) -> None:
        """Judged on one manifest, refused by the next: the commit follows on the one that has the horizon."""
        world = World()
        catalog, other = world.open(), world.other()
        request = replace(world.request({T: world.table()}, on=catalog), began_at=world.clock.now())
        world.clock.advance(SECOND)
        world.store.before("put", ".manifest", lambda: other.publish_staging_horizon(world.clock.now()))
        with pytest.raises(BeganTooEarlyError):
            catalog.commit(request)
        assert catalog.outcome("main", request.operation) is None

    def test_who_staged_nothing_does_not_say(self) -> None:
        world = World()
        world.clock.advance(SECOND)
        world.other().publish_staging_horizon(world.clock.now())
        assert world.put().hash == world.other().ref("main").hash
