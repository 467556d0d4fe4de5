"""Commits on Nessie whose answer says something else than what was done, or comes very late."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import count

import httpx
import pytest

from headwater.catalog.errors import CommitOutcomeUnknownError, RefConflictError
from headwater.catalog.model import NamespaceContent, Ref, RefKind
from headwater.catalog.nessie.decide import settle_seconds
from headwater.catalog.nessie.model import NO_ANCESTOR, SETTLE_SECONDS
from headwater.catalog.nessie.protocol import NessieCatalog
from headwater.kernel.errors import RefusedError
from tests.conformance.catalogs import fresh, key, put, read, request, space, table
from tests.unit.nessie_world import COMMIT, World

T, U = key("t"), key("u")
REPLICA = "main_replica_eu"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def catalog(world: World) -> NessieCatalog:
    made = world.open()
    made.create_ref(RefKind.BRANCH, REPLICA, NO_ANCESTOR)
    put(made, {space("default"): NamespaceContent(fresh())}, REPLICA)
    return made


def operations(catalog: NessieCatalog, branch: str) -> list[str | None]:
    return [each.operation for each in catalog.log(catalog.ref(branch).hash)]


class TestConflictsWithItself:
    """A server that does not know whether it has committed tries again, and is told that somebody was faster."""

    @pytest.mark.hazard("P3")
    @pytest.mark.parametrize("branch", ["main", REPLICA])
    def test_p3_it_is_no_conflict(self, world: World, catalog: NessieCatalog, branch: str) -> None:
        wanted = request(catalog, {T: table()}, branch)
        if branch == "main":
            wanted = replace(wanted, head=None)
        world.server.lose("POST", COMMIT, is_done=True, status=409)
        assert catalog.commit(wanted).operation == wanted.operation
        assert operations(catalog, branch).count(wanted.operation) == 1

    @pytest.mark.hazard("P3")
    def test_p3_nor_of_an_assignment(self, world: World, catalog: NessieCatalog) -> None:
        wanted = request(catalog, {T: table()})
        world.server.lose("PUT", "^trees/main@", is_done=True, status=409)
        assert catalog.commit(wanted).parents == (wanted.head,)
        assert operations(catalog, "main").count(wanted.operation) == 1

    @pytest.mark.hazard("P3")
    def test_p3_also_when_others_have_built_on_it(self, world: World, catalog: NessieCatalog) -> None:
        wanted = request(catalog, {T: table()}, REPLICA)
        world.server.lose("POST", COMMIT, is_done=True, status=409)
        world.once_before("GET", "/history", lambda: put(world.open(), {U: table()}, REPLICA))
        made = catalog.commit(wanted)
        assert made.parents == (wanted.head,)
        assert catalog.ref(REPLICA).hash != made.hash
        assert set(read(catalog, catalog.ref(REPLICA).hash)) == {"default.t", "default.u"}

    def test_a_temporary_branch_that_is_there_is_ours(self, world: World, catalog: NessieCatalog) -> None:
        wanted = request(catalog, {T: table()})
        world.server.lose("POST", "^trees$", is_done=True, status=409)
        assert catalog.commit(wanted).parents == (wanted.head,)
        assert world.temporaries == []

    def test_two_that_make_the_first_ref_at_once_both_record_theirs(self) -> None:
        world = World()
        one, other = world.open(), world.open()
        head = one.ref("main").hash
        made: list[Ref] = []
        creations = count()

        def hook(method: str, path: str) -> None:
            # The first is that of the ref; the second is that of the branch on which records are kept.
            if (method, path) == ("POST", "trees") and next(creations) == 1:
                made.append(other.create_ref(RefKind.BRANCH, "b", head))

        world.server.before = hook
        made.append(one.create_ref(RefKind.BRANCH, "a", head))
        assert {each.name: each.incarnation for each in one.refs() if each.name != "main"} == {
            each.name: each.incarnation for each in made
        }
        assert len(world.open()._all_records()) == 2

    def test_a_true_conflict_stays_one(self, world: World, catalog: NessieCatalog) -> None:
        wanted = request(catalog, {T: table()}, REPLICA)
        world.once_before("POST", "/history/commit", lambda: put(world.open(), {U: table()}, REPLICA))
        with pytest.raises(RefConflictError):
            catalog.commit(wanted)
        assert wanted.operation not in operations(catalog, REPLICA)

    @pytest.mark.hazard("P3")
    def test_p3_who_cannot_look_does_not_know(self, world: World, catalog: NessieCatalog) -> None:
        wanted = request(catalog, {T: table()}, REPLICA)
        world.server.lose("POST", COMMIT, is_done=True, status=409)

        def down() -> None:
            world.server.is_down = True

        world.once_before("GET", "/history", down)
        with pytest.raises(CommitOutcomeUnknownError, match=wanted.operation):
            catalog.commit(wanted)


class TestSlowServers:
    @pytest.mark.parametrize(("count", "seconds"), [(1, 15.02), (50, 16.0), (5_000, 115.0)])
    def test_a_large_commit_has_more_time(self, count: int, seconds: float) -> None:
        assert settle_seconds(count) == pytest.approx(seconds)

    @pytest.mark.hazard("P3")
    def test_p3_its_time_begins_when_its_sender_gives_up(self, world: World, catalog: NessieCatalog) -> None:
        """Whoever waits for an answer longer than a server may take would look once, too early, and be sure."""
        wanted = replace(request(catalog, {T: table()}), head=None)
        late: list[tuple[httpx.Request, str]] = []
        answer, looked = world.server._answer, count()

        def hold_back(asked: httpx.Request, path: str) -> httpx.Response:
            if path.endswith("/history/commit"):
                late.append((asked, path))
                world.clock.advance(timedelta(seconds=2 * SETTLE_SECONDS))
                raise httpx.ReadTimeout("held back", request=asked)
            if late and path.endswith("/history") and next(looked) == 3:
                answer(*late.pop())
            return answer(asked, path)

        world.server._answer = hold_back  # type: ignore[method-assign, assignment]
        assert catalog.commit(wanted).operation == wanted.operation

    def test_a_commit_that_is_too_large_is_refused_at_once(self, world: World, catalog: NessieCatalog) -> None:
        """The server has not looked at it: nobody waits for it, and nobody tries it again."""
        wanted, began = request(catalog, {T: table()}, REPLICA), world.clock.monotonic()
        world.server.lose("POST", COMMIT, is_done=False, status=413)
        with pytest.raises(RefusedError, match="so much") as caught:
            catalog.commit(wanted)
        assert "max-body-size" in str(caught.value.hint)
        assert world.clock.monotonic() == began
