"""Promotions on a real catalog, with others in the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from headwater.catalog.embedded.protocol import EmbeddedCatalog
from headwater.catalog.model import Content, NamespaceContent, RefKind, TableContent, TableKey, ViewContent
from headwater.catalog.port import Catalog
from headwater.kernel.errors import UnavailableError
from headwater.kernel.failpoints import Action, Failpoint, FailpointError, arm
from headwater.kernel.metrics import Metrics
from headwater.sync.model import Origin, Replica, Times, origin_of, origin_to_show
from headwater.sync.observe.metrics import CONFLICTS
from headwater.sync.promote.model import Next
from headwater.sync.promote.protocol import Ended, Promoter, Wanted, is_part_of
from tests.unit.catalog_world import World

BRANCH = "main_replica_eu"
DEFAULT = TableKey.of_namespace(("default",))
T, U = TableKey.parse("t"), TableKey.parse("u")
SECOND = timedelta(seconds=1)


class Stage:
    """A lake with a replica branch, and promoters in as many processes as a test wants."""

    def __init__(self) -> None:
        self.world = World()
        self.catalog = self.world.open()
        self.metrics = Metrics()

    def promoter(self, catalog: Catalog | None = None, regional: Catalog | None = None) -> Promoter:
        return Promoter(
            catalog or self.world.other(),
            regional or self.world.other(),
            clock=self.world.clock,
            randomness=self.world.randomness,
            metrics=self.metrics,
            gate_patience=10 * SECOND,
            poll=SECOND,
        )

    def main(self, contents: Mapping[TableKey, Content | None]) -> Origin:
        """One more commit of main."""
        return origin_to_show(self.catalog.commit(self.world.request(contents)))

    def wanted(
        self, target: Origin, localised: Mapping[TableKey, Content | None], replica: Replica | None = None, **more: bool
    ) -> Wanted:
        now = self.world.clock.now()
        if more.get("is_full"):
            localised = {DEFAULT: NamespaceContent("default"), **localised}
        return Wanted(
            "eu",
            self.world.fresh(),
            replica or self.promoter().replica(BRANCH),
            target,
            localised,
            is_full=more.get("is_full", False),
            is_subset=more.get("is_subset", False),
            made_with="rules",
            times=Times(target.created_at, now, now, now),
        )

    def promote(self, wanted: Wanted, promoter: Promoter | None = None) -> Ended:
        return (promoter or self.promoter()).promote(wanted, lambda: None)

    def shown(self) -> dict[str, str]:
        head = self.catalog.ref(BRANCH).hash
        return {
            str(key): each.metadata_location
            for key, each in self.catalog.contents(head)
            if not isinstance(each, NamespaceContent)
        }

    def origin(self) -> Origin | None:
        return origin_of(self.catalog.commit_at(self.catalog.ref(BRANCH).hash).properties)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def local(name: str) -> TableContent:
    return TableContent(name, f"eu/{name}", 1, 0, 0, 0)


def test_all_tables_of_a_commit_at_once(stage: Stage) -> None:
    target = stage.main({T: stage.world.table(), U: stage.world.table()})
    ended = stage.promote(stage.wanted(target, {T: local("t"), U: local("u")}, is_full=True))
    assert ended.next is Next.COMMIT
    assert ended.commit is not None
    assert stage.shown() == {"default.t": "eu/t", "default.u": "eu/u"}
    assert stage.origin() == target
    assert ended.commit.actor == "headwater:sync"
    assert {"origin_main_created_ts", "data_copy_end_ts", "localize_end_ts", "replica_commit_created_ts"} <= set(
        ended.commit.properties
    )
    later = stage.main({T: None})
    assert stage.promote(stage.wanted(later, {T: None})).next is Next.COMMIT
    assert stage.shown() == {"default.u": "eu/u"}


@pytest.mark.hazard("R7")
def test_a_replica_begins_empty_and_a_subset_leaves_its_origin(stage: Stage) -> None:
    first = stage.main({T: stage.world.table(), U: stage.world.table()})
    assert stage.promoter().replica(BRANCH).origin is None
    assert stage.shown() == {}
    stage.promote(stage.wanted(first, {T: local("t")}, is_subset=True))
    assert stage.shown() == {"default.t": "eu/t"}
    assert stage.origin() is None
    stage.promote(stage.wanted(first, {T: local("t"), U: local("u")}, is_full=True))
    second = stage.main({T: stage.world.table(2), U: stage.world.table(2)})
    stage.promote(stage.wanted(second, {T: local("t2")}, is_subset=True))
    assert stage.shown() == {"default.t": "eu/t2", "default.u": "eu/u"}
    assert stage.origin() == first
    assert stage.promoter().replica(BRANCH).shown("rules") == first
    assert stage.promoter().replica(BRANCH).shown("other rules") is None


@pytest.mark.hazard("R2")
def test_who_stalled_never_takes_the_replica_back(stage: Stage) -> None:
    five, seven = (stage.main({T: stage.world.table(number)}) for number in (5, 7))
    stalled = stage.wanted(five, {T: local("t5")})
    assert stage.promote(stage.wanted(seven, {T: local("t7")})).next is Next.COMMIT
    assert stage.promote(stalled).next is Next.STOP
    # Also when it learns of the other only by the conflict.
    blind = stage.promoter()
    target = stage.main({T: stage.world.table(9)})
    stale = stage.wanted(target, {T: local("t8")})
    stage.promote(stage.wanted(stage.main({T: stage.world.table(10)}), {T: local("t10")}))
    assert blind._commit(stale).next is Next.STOP
    assert stage.metrics.value(CONFLICTS, region="eu") == 1
    assert stage.shown() == {"default.t": "eu/t10"}


def test_who_lost_to_an_older_one_plans_again(stage: Stage) -> None:
    five, seven = (stage.main({T: stage.world.table(number)}) for number in (5, 7))
    late = stage.wanted(seven, {T: local("t7")})
    stage.promote(stage.wanted(five, {T: local("t5")}))
    assert stage.promote(late).next is Next.PLAN_AGAIN
    assert stage.shown() == {"default.t": "eu/t5"}


def test_main_that_was_moved_back_is_followed(stage: Stage) -> None:
    five, seven = (stage.main({T: stage.world.table(number)}) for number in (5, 7))
    stage.promote(stage.wanted(seven, {T: local("t7")}))
    stage.catalog.assign_ref("main", five.hash, seven.hash)
    assert stage.promote(stage.wanted(five, {T: local("t5")})).next is Next.COMMIT
    assert stage.origin() == five
    assert stage.promote(stage.wanted(seven, {T: local("t7")})).next is Next.PLAN_AGAIN


class Regional:
    """A region's catalog that shows things late."""

    def __init__(self, catalog: EmbeddedCatalog, at: str) -> None:
        self._catalog = catalog
        self.at = at
        self.fails = False

    def ref(self, name: str) -> object:
        return replace(self._catalog.ref(name), hash=self.at)

    def content(self, at: str, keys: tuple[TableKey, ...]) -> object:
        if self.fails:
            raise UnavailableError("the region's catalog answers 500")
        return self._catalog.content(at, keys)

    def __getattr__(self, name: str) -> object:
        return getattr(self._catalog, name)


@pytest.mark.hazard("R4")
@pytest.mark.parametrize("how", ["ref", "contents"])
def test_the_gate(stage: Stage, how: str) -> None:
    before = stage.catalog.ref("main").hash
    target = stage.main({T: stage.world.table()})
    regional = Regional(stage.world.other(), before if how == "ref" else target.hash)
    regional.fails = how == "contents"
    shut = stage.promoter(regional=regional)  # type: ignore[arg-type]
    ended = stage.promote(stage.wanted(target, {T: local("t")}), shut)
    assert ended.next is Next.GIVE_UP
    assert target.hash in ended.reason
    assert stage.shown() == {}
    regional.at, regional.fails = target.hash, False
    assert stage.promote(stage.wanted(target, {T: local("t")}), shut).next is Next.COMMIT


@pytest.mark.hazard("G3")
def test_what_is_not_held_is_not_shown(stage: Stage) -> None:
    target = stage.main({T: stage.world.table()})

    def lapsed() -> None:
        raise UnavailableError("the claims have lapsed")

    wanted = stage.wanted(target, {T: local("t")})
    with pytest.raises(UnavailableError, match="lapsed"):
        stage.promoter().promote(wanted, lapsed)
    assert stage.shown() == {}


def test_a_run_that_died_in_the_act_finds_its_commit(stage: Stage) -> None:
    target = stage.main({T: stage.world.table()})
    wanted = stage.wanted(target, {T: local("t")})
    with arm(Failpoint.PROMOTE_AFTER_COMMIT, Action.ERROR), pytest.raises(FailpointError):
        stage.promote(wanted)
    head = stage.catalog.ref(BRANCH).hash
    ended = stage.promote(wanted)
    assert ended.commit is not None
    assert ended.commit.hash == head == stage.catalog.ref(BRANCH).hash


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_name_that_becomes_something_else(stage: Stage, is_killed: bool) -> None:
    first = stage.main({T: stage.world.table(), U: stage.world.table()})
    stage.promote(stage.wanted(first, {T: local("t"), U: local("u")}, is_full=True))
    second = stage.main({U: stage.world.table(2)})
    view = ViewContent("v", "eu/view", 1, 0)
    wanted = stage.wanted(second, {T: view})
    if is_killed:
        with arm(Failpoint.PROMOTE_AFTER_REMOVALS, Action.ERROR), pytest.raises(FailpointError):
            stage.promote(wanted)
        assert stage.shown() == {"default.u": "eu/u"}
        assert stage.origin() == first  # it is not taken for more than it was
        wanted = stage.wanted(second, {T: view})
    assert stage.promote(wanted).next is Next.COMMIT
    assert stage.shown() == {"default.t": "eu/view", "default.u": "eu/u"}


def test_a_table_made_anew_takes_its_place_in_one_commit(stage: Stage) -> None:
    first = stage.main({T: stage.world.table()})
    stage.promote(stage.wanted(first, {T: local("t")}, is_full=True))
    second = stage.main({T: None})
    third = stage.main({T: stage.world.table()})
    assert stage.promote(stage.wanted(third, {T: local("another")})).next is Next.COMMIT
    assert [stage.origin(), stage.shown()] == [third, {"default.t": "eu/another"}]
    assert is_part_of(stage.catalog, second, third.hash)


def test_namespaces_are_carried(stage: Stage) -> None:
    space = TableKey.of_namespace(("sales",))
    inner = TableKey(("sales",), "t")
    target = stage.main({space: NamespaceContent("n", {"a": "1"})})
    target = stage.main({inner: stage.world.table()})
    localised: dict[TableKey, Content | None] = {space: NamespaceContent("n", {"a": "1"}), inner: local("t")}
    stage.promote(stage.wanted(target, localised, is_full=True))
    assert stage.shown() == {"sales.t": "eu/t"}
    stage.main({inner: None})
    target = stage.main({space: None})
    stage.promote(stage.wanted(target, {DEFAULT: NamespaceContent("d")}, is_full=True))
    assert stage.shown() == {}


@pytest.mark.hazard("R1")
def test_of_two_that_promote_at_once_one_wins(stage: Stage) -> None:
    target = stage.main({T: stage.world.table()})
    one, other = stage.wanted(target, {T: local("one")}), stage.wanted(target, {T: local("other")})
    answers: list[Ended] = []

    def meanwhile() -> None:
        answers.append(stage.promote(other))

    answers.append(stage.promoter().promote(one, _once(meanwhile)))
    assert [each.next for each in answers] == [Next.COMMIT, Next.STOP]
    assert stage.shown() == {"default.t": "eu/other"}
    stage.catalog.create_ref(RefKind.TAG, "kept", stage.catalog.ref(BRANCH).hash)


def _once(work: Callable[[], None]) -> Callable[[], None]:
    """Between the last look and the commit."""
    waiting = [work]

    def run() -> None:
        if waiting:
            waiting.pop()()

    return run


@pytest.mark.hazard("R7")
def test_r7_a_subset_made_in_another_way_leaves_nothing_known(stage: Stage) -> None:
    """What the replica had of the table before may be collected, so the next run looks at everything."""
    first = stage.main({T: stage.world.table(), U: stage.world.table()})
    stage.promote(stage.wanted(first, {T: local("t"), U: local("u")}, is_full=True))
    second = stage.main({T: stage.world.table(2)})
    stage.promote(replace(stage.wanted(second, {T: local("t2")}, is_subset=True), made_with="other rules"))
    found = stage.promoter().replica(BRANCH)
    assert (found.origin, found.made_with, found.ahead) == (first, None, (T,))
    stage.promote(stage.wanted(second, {T: local("t3"), U: local("u")}, is_full=True))
    found = stage.promoter().replica(BRANCH)
    assert (found.origin, found.made_with, found.ahead) == (second, "rules", ())
