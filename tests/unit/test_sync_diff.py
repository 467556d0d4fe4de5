"""What a run needs, beside what PyIceberg says that the tables hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from headwater.app import App
from headwater.catalog.model import Content, Difference, NamespaceContent, TableContent, TableKey, ViewContent
from headwater.kernel import settings
from headwater.sync.diff.decide import goal_of_all, goal_of_changes, with_ahead
from headwater.sync.diff.manifest import live_files
from headwater.sync.diff.model import TableGoal
from headwater.sync.diff.protocol import TableDiff, diff_table, find_goal
from headwater.sync.model import Origin
from headwater.sync.runs.model import History
from headwater.tables.reach import ReachKind
from tests.fixtures.lakes import LakeWorld

T, U, V = (TableKey.parse(name) for name in "tuv")


@pytest.fixture
def world(tmp_path: Path) -> LakeWorld:
    return LakeWorld(App(settings.load(environ={})), str(tmp_path / "lake"))


def shown_at(world: LakeWorld) -> Origin:
    commit = world.lake.catalog.commit_at(world.lake.resolve())
    return Origin(commit.hash, commit.committed_at)


def needed(world: LakeWorld, diff: TableDiff) -> set[tuple[ReachKind, str]]:
    found = {(each.kind, each.uri) for each in diff.statistics}
    for manifest in diff.manifests:
        found.update((each.kind, each.uri) for each in live_files(world.lake.files, manifest))
    return found


def held(location: str, table: str = "all_files") -> set[str]:
    """The files of all snapshots of a table, or of its current one, by PyIceberg."""
    inspect = StaticTable.from_metadata(location).inspect
    return set(getattr(inspect, table)()["file_path"].to_pylist())


def only_table(world: LakeWorld, shown: Origin | None, history: History = History.FULL) -> TableDiff:
    (goal,) = find_goal(world.lake.catalog, shown, shown_at(world), None).tables
    return diff_table(world.lake.files, goal, history)


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


@pytest.mark.parametrize("version", [2, 3])
def test_a_commit_costs_what_it_brings(world: LakeWorld, version: int) -> None:
    world.create("t", ids(1), format_version=version)
    first = only_table(world, None)
    before = held(first.goal.after.metadata_location)
    assert {uri for _, uri in needed(world, first)} == before
    shown = shown_at(world)
    for number in range(3):
        world.lake.load("t", ids(number), actor="ann")
    diff = only_table(world, shown)
    assert len(diff.manifests) == 3
    assert {uri for _, uri in needed(world, diff)} == held(diff.goal.after.metadata_location) - before


def test_nothing_live_is_missed_after_manifests_are_written_anew_and_snapshots_expire(world: LakeWorld) -> None:
    for number in range(3):
        if number == 0:
            world.create("t", ids(number))
        else:
            world.lake.load("t", ids(number), actor="ann")
    shown = shown_at(world)
    world.lake.optimize("t", actor="ann", min_files=2)
    with world.lake.transaction(actor="ann") as change:
        change.sql("delete from t where id = 1")
    diff = only_table(world, shown, History.CURRENT)
    live = held(diff.goal.after.metadata_location, "files")
    assert live
    assert live <= {uri for _, uri in needed(world, diff)} | held(diff.goal.before.metadata_location)  # type: ignore[union-attr]


def test_deletes_have_their_kind(world: LakeWorld) -> None:
    world.create("t", ids(*range(100)), format_version=3)
    shown = shown_at(world)
    with world.lake.transaction(actor="ann") as change:
        change.sql("delete from t where id = 1")
    assert {kind for kind, _ in needed(world, only_table(world, shown))} == {ReachKind.DELETION_VECTOR}


def test_only_the_current_snapshot(world: LakeWorld) -> None:
    world.create("t", ids(1))
    with world.lake.transaction(actor="ann") as change:
        change.sql("delete from t")
    world.lake.load("t", ids(2), actor="ann")
    diff = only_table(world, None, History.CURRENT)
    full = only_table(world, None, History.FULL)
    assert {uri for _, uri in needed(world, diff)} == held(diff.goal.after.metadata_location, "files")
    assert needed(world, diff) < needed(world, full)


def test_a_table_that_was_made_anew_shares_nothing(world: LakeWorld) -> None:
    world.create("t", ids(1))
    shown = shown_at(world)
    world.lake.apply("drop table t", actor="ann")
    world.create("t", ids(2))
    diff = only_table(world, shown)
    assert {uri for _, uri in needed(world, diff)} == held(diff.goal.after.metadata_location)


def test_what_the_replica_shows_is_not_known(world: LakeWorld) -> None:
    world.create("t", ids(1))
    target = shown_at(world)
    lost = Origin("f" * 64, target.created_at)
    goal = find_goal(world.lake.catalog, lost, target, None)
    assert goal.is_full
    assert [each.key for each in goal.tables] == [T]
    assert goal.tables[0].before is None


def test_a_document_of_before_that_is_gone_costs_more_and_misses_nothing(world: LakeWorld) -> None:
    world.create("t", ids(1))
    shown = shown_at(world)
    world.lake.load("t", ids(2), actor="ann")
    (goal,) = find_goal(world.lake.catalog, shown, shown_at(world), None).tables
    assert goal.before is not None
    Path(goal.before.metadata_location.removeprefix("file://")).unlink()
    diff = diff_table(world.lake.files, goal, History.FULL)
    assert {uri for _, uri in needed(world, diff)} == held(goal.after.metadata_location)


class TestGoals:
    TABLE, OLD = TableContent("a", "new", 1, 0, 0, 0), TableContent("a", "old", 1, 0, 0, 0)
    VIEW, SPACE = ViewContent("v", "view", 1, 0), NamespaceContent("n")
    X = TableKey.of_namespace(("x",))

    def test_changes(self) -> None:
        other, gone = replace(self.TABLE, content_id="b"), replace(self.OLD, content_id="c")
        goal = goal_of_changes(
            [
                Difference(T, self.OLD, self.TABLE),
                Difference(U, self.VIEW, other),
                Difference(V, gone, None),
                Difference(self.X, None, self.SPACE),
            ],
            None,
        )
        assert goal.tables == (TableGoal(T, self.TABLE, self.OLD), TableGoal(U, other, None))
        assert goal.others == {V: None, self.X: self.SPACE}
        assert not goal.is_full

    def test_a_table_is_known_by_its_identity_and_not_by_its_name(self) -> None:
        anew = replace(self.TABLE, content_id="b")
        renamed = [Difference(T, self.OLD, anew), Difference(U, None, self.TABLE)]
        assert goal_of_changes(renamed, None).tables == (TableGoal(T, anew, None), TableGoal(U, self.TABLE, self.OLD))
        assert goal_of_changes(renamed, [U]).tables == (TableGoal(U, self.TABLE, self.OLD),)

    @pytest.mark.hazard("R7")
    def test_r7_what_a_subset_brought_further_is_looked_at_whatever_main_did_to_it(self) -> None:
        changes = (Difference(T, self.OLD, self.TABLE),)
        assert with_ahead(changes, [], {}) == changes
        assert with_ahead(changes, [T, U, V], {T: self.TABLE, U: self.VIEW}) == (
            Difference(T, None, self.TABLE),
            Difference(U, None, self.VIEW),
            Difference(V, None, None),
        )

    @pytest.mark.hazard("R7")
    def test_a_subset_is_never_everything(self) -> None:
        inner, outer = TableKey.parse("x.y.t"), TableKey.of_namespace(("x", "y"))
        contents: list[tuple[TableKey, Content]] = [
            (T, self.TABLE),
            (inner, self.TABLE),
            (outer, self.SPACE),
            (self.X, self.SPACE),
            (U, self.VIEW),
        ]
        goal = goal_of_all(contents, [inner])
        assert [each.key for each in goal.tables] == [inner]
        assert set(goal.others) == {outer, self.X}
        assert not goal.is_full
        assert goal_of_all(contents, None).is_full


def test_a_renamed_table_costs_nothing_new(world: LakeWorld) -> None:
    world.create("t", ids(1))
    shown = shown_at(world)
    world.lake.apply("alter table t rename to u", actor="ann")
    (goal,) = find_goal(world.lake.catalog, shown, shown_at(world), None).tables
    assert goal.key == U
    assert diff_table(world.lake.files, goal, History.FULL).manifests == ()
