"""Cleanup: what nothing ever referenced goes, and nothing else does."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from headwater.catalog.errors import BeganTooEarlyError
from headwater.catalog.model import RefKind, TableContent
from headwater.kernel import failpoints
from headwater.kernel.errors import RefusedError, UsageError
from headwater.kernel.failpoints import Action, Failpoint
from headwater.kernel.ids import Ulid, new_ulid, ulid_of
from headwater.kernel.randomness import seeded
from headwater.publish.cleanup.decide import (
    fate_of_file,
    fate_of_fork,
    in_order,
    is_bookkeeping,
)
from headwater.publish.cleanup.model import Cleaned, Fate, Fork, Found, Known, StagedFile
from headwater.publish.errors import PublishOutcomeUnknownError, SidecarCorruptError
from headwater.publish.model import Verdict, Wish
from headwater.storage.errors import TransientError
from headwater.storage.port import ObjectMeta, ObjectStore, Overwrite, PutMode
from headwater.storage.wrapper import StoreWrapper
from headwater.tables.naming import operation_of, token_of
from tests.fixtures.lakes import LakeWorld
from tests.unit.publish_world import LAKE, OVER, Process, PublishWorld
from tests.unit.test_publish_forks import content, fork_path, put_behind
from tests.unit.test_publish_protocol import die_at, interrupt

pytestmark = pytest.mark.proves("publish/cleanup")

DAY = timedelta(days=1)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def made_at(when: datetime, low: int = 1) -> Ulid:
    return ulid_of((int(when.timestamp() * 1000) << 80) | low)


def paths(store: ObjectStore) -> set[str]:
    """Everything but the catalog's own."""
    return {meta.path for meta in store.list() if not meta.path.startswith("_headwater/")}


def clean(process: Process, *, older_than: timedelta = timedelta(0), dry_run: bool = False) -> Cleaned:
    return process.writing.cleanup.run(older_than=older_than, dry_run=dry_run)


def abandon(process: Process, wish: Wish) -> set[str]:
    """Store what a change has staged, as a load does while it goes on, and never publish it."""
    files = [file for table in wish.tables if table.staged for file in table.staged.files]
    process.files.write(files)
    return {file.location.removeprefix(f"{LAKE}/") for file in files}


@pytest.fixture
def world() -> PublishWorld:
    made = PublishWorld()
    process = made.process()
    process.create("t1", "t2")
    process.append({"t1": 1, "t2": 1})
    made.clock.advance(DAY)
    return made


class TestNames:
    def test_new_files_tell_their_operation(self, world: PublishWorld) -> None:
        process = world.process()
        wish = process.wish({"t1": 5})
        staged = abandon(process, wish)
        assert len(staged) == 3  # data, manifest, manifest list
        assert {operation_of(path) for path in staged} == {wish.operation}

    def test_one_operation_may_stage_twice(self) -> None:
        operation, randomness = made_at(NOON), seeded(1)
        one, two = (token_of(operation, randomness) for _ in range(2))
        assert one != two
        assert operation_of(f"x/00000-00000-{one}.parquet") == operation_of(f"snap-7-1-{two}.avro") == operation

    @pytest.mark.parametrize(
        "name",
        [
            "00000-0-0f1e2d3c-aaaa-bbbb-cccc-0123456789ab.parquet",
            "00000-00000-00112233445566778899aabbccddeeff.parquet",
            "01arz3ndektsv4rrffq69g5fav.parquet",
            "01arz3ndektsv4rrffq69g5fav-0123456.parquet",
            "81arz3ndektsv4rrffq69g5fav-01234567.parquet",
            "01arz3ndektsv4rrffq69g5fav-01234567-01arz3ndektsv4rrffq69g5faw-01234567.parquet",
            "01arz3ndektsv4rrffq69g5fav-01234567/x.parquet",
            "",
        ],
    )
    def test_names_that_others_gave_tell_nothing(self, name: str) -> None:
        assert operation_of(f"tables/t/data/{name}") is None

    def test_a_view_tells_its_operation(self) -> None:
        operation = made_at(NOON)
        assert operation_of(f"views/v/metadata/00003-{operation}.metadata.json") == operation

    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            ("_headwater/catalog/manifest/00000000000000000001.manifest", True),
            ("__recovery/x.json", True),
            ("gc/x.boundary", True),
            ("tables/t/gc/metadata.boundary", True),
            ("tables/t/jobs/00000000000000000001.job", True),
            ("tables/t/metadata/00000000000000000001.metadata.json", False),
            ("tables/t/data/x.parquet", False),
        ],
    )
    def test_what_is_not_a_tables_file(self, path: str, expected: bool) -> None:
        assert is_bookkeeping(path) is expected


BEFORE = NOON - timedelta(hours=1)
OLD = made_at(BEFORE)
KNOWN = Known(
    horizon=NOON,
    history=None,
    margin=timedelta(minutes=1),
    committed=frozenset(),
    pending=frozenset(),
    planned=frozenset(),
    reached=frozenset(),
    tables=frozenset({"tables/t", "tables/u"}),
    unreadable=frozenset(),
    live=frozenset(),
)
FILE = StagedFile(Found("tables/t/data/x.parquet", 7, BEFORE), OLD)
ROOT = f"tables/t/branches/{OLD}"
DOCUMENT = Found(f"{ROOT}/metadata/00000000000000000001.metadata.json", 7, BEFORE)
FORK = Fork(ROOT, OLD, (DOCUMENT,))


class TestFates:
    @pytest.mark.parametrize(
        ("change", "fate"),
        [
            ({}, Fate.NEVER_REFERENCED),
            ({"horizon": BEFORE}, Fate.YOUNG),
            ({"horizon": BEFORE + timedelta(milliseconds=1)}, Fate.NEVER_REFERENCED),
            ({"history": BEFORE}, Fate.BEHIND_HISTORY),
            ({"history": BEFORE - timedelta(seconds=59)}, Fate.BEHIND_HISTORY),
            ({"history": BEFORE - timedelta(minutes=1)}, Fate.NEVER_REFERENCED),
            ({"committed": frozenset({OLD})}, Fate.COMMITTED),
            ({"pending": frozenset({OLD})}, Fate.PENDING),
            ({"reached": frozenset({FILE.found.path})}, Fate.REACHED),
            ({"unreadable": frozenset({"tables/t"})}, Fate.UNREADABLE),
            ({"unreadable": frozenset({"tables/u"})}, Fate.NEVER_REFERENCED),
            # Nobody knows whose it is, so whatever cannot be read may lead to it.
            ({"unreadable": frozenset({"tables/u"}), "tables": frozenset({"tables/u"})}, Fate.UNREADABLE),
        ],
    )
    def test_of_a_staged_file(self, change: dict[str, object], fate: Fate) -> None:
        assert fate_of_file(FILE, replace(KNOWN, **change)) is fate  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("change", "fate"),
        [
            ({}, Fate.NEVER_REFERENCED),
            ({"live": frozenset({OLD})}, Fate.BRANCH_LIVES),
            ({"history": BEFORE}, Fate.BEHIND_HISTORY),
            ({"planned": frozenset({ROOT})}, Fate.PENDING),
            ({"reached": frozenset({DOCUMENT.path})}, Fate.REACHED),
            ({"unreadable": frozenset({"tables/t"})}, Fate.UNREADABLE),
            ({"horizon": BEFORE + timedelta(seconds=59)}, Fate.YOUNG),
        ],
    )
    def test_of_a_fork(self, change: dict[str, object], fate: Fate) -> None:
        assert fate_of_fork(FORK, replace(KNOWN, **change)) is fate  # type: ignore[arg-type]

    def test_children_go_before_parents(self) -> None:
        one, two = made_at(BEFORE), made_at(BEFORE + timedelta(seconds=1))
        wanted = [
            f"tables/t/branches/{two}/metadata/00000000000000000002.metadata.json",
            f"tables/t/branches/{two}/metadata/00000000000000000001.metadata.json",
            f"tables/t/branches/{one}/metadata/00000000000000000001.metadata.json",
            "tables/never/metadata/00000000000000000001.metadata.json",
            "tables/t/metadata/snap-1-1-x.avro",
            "tables/a/metadata/m.avro",
            "tables/t/data/x.parquet",
        ]
        found = in_order(Found(path, 0, BEFORE) for path in sorted(wanted))
        assert [each.path for each in found] == wanted


class TestStagedFiles:
    def test_what_was_never_published_goes_and_nothing_else(self, world: PublishWorld) -> None:
        process = world.process()
        before = paths(world.store)
        litter = abandon(process, process.wish({"t1": 5, "t2": 5}))
        world.clock.advance(DAY)
        done = clean(process, older_than=timedelta(hours=1))
        assert {each.path for each in done.deleted} == litter
        assert paths(world.store) == before
        assert done.kept == ()
        assert done.deleted_bytes == sum(each.size_bytes for each in done.deleted) > 0
        assert process.ids("t1") == process.ids("t2") == [0, 1]
        process.append({"t1": 6})
        assert clean(process).deleted == ()

    def test_what_is_young_stays_and_may_be_published(self, world: PublishWorld) -> None:
        process = world.process()
        old = abandon(process, process.wish({"t1": 5}))
        world.clock.advance(timedelta(hours=2))
        young = process.wish({"t1": 6})
        done = clean(process, older_than=timedelta(hours=1))
        assert {each.path for each in done.deleted} == old
        process.writing.publisher.publish(young)
        assert process.ids("t1") == [0, 1, 6]

    def test_a_dry_run_tells_what_a_run_would_do(self, world: PublishWorld) -> None:
        process = world.process()
        wish = process.wish({"t1": 5})
        litter = abandon(process, process.wish({"t2": 5}))
        world.clock.advance(DAY)
        before, manifests = paths(world.store), process.catalog.horizons()
        dry = clean(process, dry_run=True)
        assert {each.path for each in dry.deleted} == litter
        assert (paths(world.store), process.catalog.horizons()) == (before, manifests)
        process.writing.publisher.publish(wish)  # no horizon was published
        assert clean(process).deleted == dry.deleted

    def test_history_is_not_litter(self, world: PublishWorld) -> None:
        """Of older commits, of a tag, of a branch that is gone: whatever any commit referenced stays."""
        process = world.process()
        process.catalog.create_ref(RefKind.BRANCH, "dev", process.catalog.ref("main").hash)
        process.append({"t1": 7}, branch="dev")
        gone = process.catalog.ref("dev")
        process.catalog.create_ref(RefKind.TAG, "v1", process.catalog.ref("main").hash)
        process.append({"t1": 8})
        process.catalog.delete_ref("dev", gone.hash)
        before = paths(world.store)
        world.clock.advance(DAY)
        assert clean(process) == Cleaned(process.catalog.horizons().staging, ())  # type: ignore[arg-type]
        assert paths(world.store) == before
        process.catalog.create_ref(RefKind.BRANCH, "again", gone.hash)
        assert process.ids("t1", branch="again") == [0, 1, 7]

    def test_what_another_operation_published_is_reached(self, world: PublishWorld) -> None:
        """The log does not know the operation that staged it; the commit leads to it all the same."""
        process = world.process()
        wish = process.wish({"t1": 5})
        process.writing.publisher.publish(replace(wish, operation=new_ulid(world.clock, world.randomness)))
        world.clock.advance(DAY)
        assert clean(process).deleted == ()
        assert process.ids("t1") == [0, 1, 5]

    def test_what_history_may_have_forgotten_is_left_to_others(self, world: PublishWorld) -> None:
        process = world.process()
        litter = abandon(process, process.wish({"t1": 5}))
        world.clock.advance(DAY)
        process.append({"t1": 6})
        process.catalog.publish_history_horizon(world.clock.now())
        world.clock.advance(DAY)
        done = clean(process)
        assert done.deleted == ()
        assert {each.path for each in done.kept} >= litter
        assert {each.why for each in done.kept} == {Fate.BEHIND_HISTORY}

    def test_names_that_tell_nothing_are_told_and_kept(self, world: PublishWorld) -> None:
        process = world.process()
        world.store.put("tables/t1/data/somebody-elses.parquet", b"x", Overwrite())
        world.clock.advance(DAY)
        [kept] = clean(process).kept
        assert (kept.path, kept.why) == ("tables/t1/data/somebody-elses.parquet", Fate.UNKNOWN)

    def test_a_table_that_was_never_made(self, world: PublishWorld) -> None:
        process, other = world.process(), world.process()
        before = paths(world.store)
        armed = failpoints.arm(Failpoint.PUBLISH_AFTER_SIDECAR, Action.ERROR)
        with armed, pytest.raises((PublishOutcomeUnknownError, failpoints.FailpointError)):
            process.create("t9")
        world.clock.advance(OVER)
        other.writing.recovery.sweep()  # leaves a tombstone
        tombstones = {path for path in paths(world.store) - before if path.endswith(".metadata.json")}
        assert len(tombstones) == 1
        world.clock.advance(DAY)
        clean(other)
        assert paths(world.store) == before
        other.create("t9")
        assert other.ids("t9") == [0]

    @pytest.mark.parametrize("age", [timedelta(seconds=-1), timedelta(days=-9)])
    def test_the_future_is_refused(self, world: PublishWorld, age: timedelta) -> None:
        with pytest.raises(UsageError):
            clean(world.process(), older_than=age)
        assert world.process().catalog.horizons().staging is None


@pytest.mark.hazard("P10")
class TestStalledStaging:
    def test_p10_staged_long_ago_then_cleaned_up_then_published(self, world: PublishWorld) -> None:
        process, other = world.process(), world.process()
        wish = process.wish({"t1": 5, "t2": 5})
        litter = abandon(process, wish)
        staged = tuple(replace(each, staged=replace(each.staged, files=())) for each in wish.tables if each.staged)
        world.clock.advance(DAY)
        clean(other, older_than=timedelta(hours=1))
        before = paths(world.store)
        assert not litter & before
        with pytest.raises(BeganTooEarlyError, match="before the staging horizon"):
            process.writing.publisher.publish(replace(wish, tables=staged))
        assert paths(world.store) == before  # not even a note
        self._whole(process)

    @pytest.mark.parametrize("nth", [1, 2, 3, 4])
    def test_p10_cleaned_up_while_it_publishes(self, world: PublishWorld, nth: int) -> None:
        """Before its note, after it, after one head, after all: judged at the commit itself."""
        other = world.process()
        run = lambda: clean(other)  # noqa: E731
        store = Noticing(world.store, run if nth == 1 else None)
        process = world.process(store)
        wish = process.wish({"t1": 5, "t2": 5})
        world.clock.advance(timedelta(seconds=1))
        point = Failpoint.PUBLISH_AFTER_SIDECAR if nth == 2 else Failpoint.PUBLISH_AFTER_HEAD
        with interrupt(point, run if nth > 1 else bool, nth=max(1, nth - 2)), pytest.raises(BeganTooEarlyError):
            process.writing.publisher.publish(wish)
        self._whole(process)
        assert process.catalog.outcome("main", wish.operation) is None
        world.clock.advance(DAY)
        clean(other)
        assert not [path for path in paths(world.store) if operation_of(path) == wish.operation]

    def test_p10_a_dead_writer_behind_the_horizon_is_rolled_back(self, world: PublishWorld) -> None:
        """All of its heads have moved; but what it staged may be gone."""
        process, other = world.process(), world.process()
        die_at(Failpoint.PUBLISH_AFTER_HEAD, process, {"t1": 5, "t2": 5}, nth=2)
        world.clock.advance(OVER)
        kept = paths(world.store)
        clean(other)
        assert paths(world.store) == kept  # its sidecar keeps it
        [recovered] = other.writing.recovery.sweep()
        assert recovered.verdict is Verdict.BACK
        self._whole(other)
        clean(other)
        self._whole(other)
        other.append({"t1": 9, "t2": 9})
        assert other.ids("t2") == [0, 1, 9]

    def test_p10_a_change_that_began_later_is_not_held_up(self, world: PublishWorld) -> None:
        process, other = world.process(), world.process()
        world.clock.advance(DAY)
        with interrupt(Failpoint.PUBLISH_AFTER_SIDECAR, lambda: clean(other)):
            process.append({"t1": 5, "t2": 5})
        assert process.ids("t1") == [0, 1, 5]

    def test_p10_a_writer_that_writes_on_leaves_only_litter(self, world: PublishWorld) -> None:
        process, other = world.process(), world.process()
        wish = process.wish({"t1": 5})
        world.clock.advance(DAY)
        clean(other)
        litter = abandon(process, wish)
        with pytest.raises(BeganTooEarlyError):
            process.writing.publisher.publish(wish)
        assert {each.path for each in clean(other).deleted} == litter

    def _whole(self, process: Process) -> None:
        assert process.ids("t1") == process.ids("t2") == [0, 1]
        assert process.head_is_pinned("t1")
        assert process.head_is_pinned("t2")
        assert process.sidecars() == 0


class TestMissingKnowledge:
    def test_an_unreadable_manifest_keeps_its_table(self, world: PublishWorld) -> None:
        process = world.process()
        one, two = abandon(process, process.wish({"t1": 5})), abandon(process, process.wish({"t2": 5}))
        world.clock.advance(DAY)
        listed = next(path for path in sorted(paths(world.store) - one) if "/t1-" in path and "snap-" in path)
        sound = world.store.get(listed).data
        world.store.put(listed, b"damaged", Overwrite())
        done = clean(process)
        assert {each.path for each in done.deleted} == two
        assert {(each.path, each.why) for each in done.kept} == {(path, Fate.UNREADABLE) for path in one}
        world.store.put(listed, sound, Overwrite())
        assert {each.path for each in clean(process).deleted} == one

    def test_a_missing_document_keeps_its_table_and_what_is_nobodys(self, world: PublishWorld) -> None:
        process = world.process()
        one = abandon(process, process.wish({"t1": 5}))
        stray = f"elsewhere/{token_of(made_at(world.clock.now()), world.randomness)}-x.parquet"
        world.store.put(stray, b"x", Overwrite())
        world.clock.advance(DAY)
        pinned = content(process).metadata_location.removeprefix(f"{LAKE}/")
        sound = world.store.get(pinned).data
        world.store.delete(pinned)
        fresh = world.process()
        done = clean(fresh)
        assert done.deleted == ()
        assert {each.path for each in done.kept if each.why is Fate.UNREADABLE} == {*one, stray}
        world.store.put(pinned, sound, Overwrite())
        assert {each.path for each in clean(fresh).deleted} == {*one, stray}

    def test_a_sidecar_that_cannot_be_read_stops_it(self, world: PublishWorld) -> None:
        process = world.process()
        litter = abandon(process, process.wish({"t1": 5}))
        world.store.put("__recovery/01ARZ3NDEKTSV4RRFFQ69G5FAV.json", b"{}", Overwrite())
        world.clock.advance(DAY)
        with pytest.raises(SidecarCorruptError):
            clean(process)
        assert litter <= paths(world.store)

    def test_indeterminate_re_check_skipped_then_converges(self, world: PublishWorld) -> None:
        """The seed's scenario: what was an orphan at the first look cannot be confirmed at the second."""
        setup = world.process()
        litter = abandon(setup, setup.wish({"t1": 5}))
        fork = orphaned_fork(world)
        world.clock.advance(DAY)
        store = Noticing(world.store)
        process = world.process(store)
        store.lists_left = 2  # before the list, and at the first look; the second look fails
        done = clean(process)
        assert done.deleted == ()
        assert {(each.path, each.why) for each in done.kept} == {(path, Fate.INDETERMINATE) for path in litter | fork}
        assert litter | fork <= paths(world.store)
        store.lists_left = None
        assert {each.path for each in clean(process).deleted} == litter | fork

    def test_what_is_noted_between_the_two_looks_stays(self, world: PublishWorld) -> None:
        """Its commit will be refused; but while its sidecar is there, what it staged is there too."""
        writer = world.process()
        wish = writer.wish({"t1": 5})
        litter = abandon(writer, wish)
        world.clock.advance(timedelta(seconds=1))
        bare = tuple(replace(each, staged=replace(each.staged, files=())) for each in wish.tables if each.staged)

        def note() -> None:
            armed = failpoints.arm(Failpoint.PUBLISH_AFTER_SIDECAR, Action.ERROR)
            with armed, pytest.raises((PublishOutcomeUnknownError, failpoints.FailpointError)):
                writer.writing.publisher.publish(replace(wish, tables=bare))

        process = world.process(Noticing(world.store, before_list=note))
        assert clean(process).deleted == ()
        assert litter <= paths(world.store)

    def test_what_cannot_be_deleted_is_told_then_converges(self, world: PublishWorld) -> None:
        process = world.process(store := Noticing(world.store))
        litter = abandon(process, process.wish({"t1": 5}))
        world.clock.advance(DAY)
        store.stuck = stuck = min(litter)
        done = clean(process)
        assert {each.path for each in done.deleted} == litter - {stuck}
        assert [(each.path, each.why) for each in done.kept] == [(stuck, Fate.NOT_DELETED)]
        store.stuck = ""
        assert {each.path for each in clean(process).deleted} == {stuck}


def orphaned_fork(world: PublishWorld) -> set[str]:
    """A writer dies between its heads, then its branch is deleted: what it left is nobody's."""
    process, other = world.process(), world.process()
    before = paths(world.store)
    process.catalog.create_ref(RefKind.BRANCH, "dev", process.catalog.ref("main").hash)
    die_at(Failpoint.PUBLISH_AFTER_HEAD, process, {"t1": 7, "t2": 7}, branch="dev")
    other.catalog.delete_ref("dev", other.catalog.ref("dev").hash)
    world.clock.advance(OVER)
    [recovered] = other.writing.recovery.sweep()
    assert recovered.verdict is Verdict.DISCARD
    left = paths(world.store) - before
    assert [path for path in left if "/branches/" in path]
    return left


class TestForks:
    def test_orphaned_fork(self, world: PublishWorld) -> None:
        process = world.process()
        before = paths(world.store)
        left = orphaned_fork(world)
        world.clock.advance(DAY)
        assert {each.path for each in clean(process).deleted} == left
        assert paths(world.store) == before

    def test_a_fork_of_a_branch_that_lives_stays(self, world: PublishWorld) -> None:
        process = world.process()
        process.catalog.create_ref(RefKind.BRANCH, "dev", process.catalog.ref("main").hash)
        put_behind(process, path := fork_path(process))
        world.clock.advance(DAY)
        assert clean(process).deleted == ()
        assert [each for each in paths(world.store) if each.startswith(path)]
        process.append({"t1": 7}, branch="dev")
        assert process.ids("t1", branch="dev") == [0, 1, 7]

    @pytest.mark.hazard("P7")
    def test_p7_a_fork_that_a_retained_commit_uses_stays(self, world: PublishWorld) -> None:
        process = world.process()
        process.catalog.create_ref(RefKind.BRANCH, "dev", process.catalog.ref("main").hash)
        process.append({"t1": 7}, branch="dev")
        process.append({"t1": 8}, branch="dev")
        used = content(process, branch="dev").metadata_location.removeprefix(f"{LAKE}/")
        process.catalog.delete_ref("dev", process.catalog.ref("dev").hash)
        world.clock.advance(DAY)
        assert clean(process).deleted == ()
        assert used in paths(world.store)

    def test_a_pending_sidecar_keeps_a_fork(self, world: PublishWorld) -> None:
        process, other = world.process(), world.process()
        process.catalog.create_ref(RefKind.BRANCH, "dev", process.catalog.ref("main").hash)
        die_at(Failpoint.PUBLISH_AFTER_HEAD, process, {"t1": 7, "t2": 7}, branch="dev")
        other.catalog.delete_ref("dev", other.catalog.ref("dev").hash)
        world.clock.advance(DAY)
        before = paths(world.store)
        assert clean(other).deleted == ()
        assert paths(world.store) == before

    def test_younger_branches_go_first(self, world: PublishWorld) -> None:
        process = world.process(store := Noticing(world.store))
        main, forks = process.catalog.ref("main").hash, []
        for name in ("dev", "next"):
            world.clock.advance(timedelta(seconds=1))
            process.catalog.create_ref(RefKind.BRANCH, name, main)
            forks.append(path := fork_path(process, branch=name))
            put_behind(process, path, times=2)
            process.catalog.delete_ref(name, main)
        world.clock.advance(DAY)
        clean(process)
        wanted = [f"{root}/metadata/{number:020}.metadata.json" for root in reversed(forks) for number in (2, 1)]
        assert store.deleted == wanted


class Noticing(StoreWrapper):
    """A store that can be interrupted, silenced and jammed."""

    def __init__(
        self,
        inner: ObjectStore,
        before_note: Callable[[], object] | None = None,
        before_list: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(inner)
        self._before_note = before_note
        self._before_list, self._lists = before_list, 0
        self.lists_left: int | None = None
        self.stuck = ""
        self.deleted: list[str] = []

    def put(self, path: str, data: bytes, mode: PutMode, **options: object) -> str:
        if path.startswith("__recovery/") and self._before_note is not None:
            action, self._before_note = self._before_note, None
            action()
        return super().put(path, data, mode, **options)  # type: ignore[arg-type]

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        if prefix == "__recovery" and self.lists_left is not None:
            if self.lists_left == 0:
                raise TransientError(self.name, prefix, "silent")
            self.lists_left -= 1
        if prefix == "__recovery" and self._before_list is not None:
            self._lists += 1
            if self._lists == 3:  # the second look
                self._before_list()
        return super().list(prefix, start_after=start_after)

    def delete(self, path: str, *, if_match: str | None = None) -> None:
        if path == self.stuck:
            raise TransientError(self.name, path, "stuck")
        self.deleted.append(path)
        super().delete(path, if_match=if_match)


class TestAnyHistory:
    """Random histories with deaths, deleted branches and cleanups, beside a plain model of what each commit held."""

    @pytest.mark.parametrize("seed", range(4))
    def test_every_commit_reads_as_it_did(self, seed: int) -> None:
        world, dice = PublishWorld(seed=seed), Random(seed)
        process = world.process()
        process.create("t1", "t2")
        held: dict[str, dict[str, list[int]]] = {}
        now: dict[str, dict[str, list[int]]] = {"main": {"t1": [0], "t2": [0]}}
        for number in range(1, 40):
            world.clock.advance(timedelta(minutes=dice.randint(1, 200)))
            branch = dice.choice(sorted(now))
            tables = dice.sample(["t1", "t2"], dice.randint(1, 2))
            match dice.choice(["write", "write", "write", "die", "stage", "branch", "delete", "clean"]):
                case "write":
                    process.append(dict.fromkeys(tables, number), branch=branch)
                    now[branch] = {key: rows + [number] * (key in tables) for key, rows in now[branch].items()}
                case "die":
                    die_at(Failpoint.PUBLISH_AFTER_HEAD, world.process(), {"t1": number, "t2": number}, branch=branch)
                    world.clock.advance(OVER)
                    process.writing.recovery.sweep()
                case "stage":
                    abandon(process, process.wish(dict.fromkeys(tables, number), branch=branch))
                case "branch" if f"b{number}" not in now:
                    process.catalog.create_ref(RefKind.BRANCH, f"b{number}", process.catalog.ref(branch).hash)
                    now[f"b{number}"] = dict(now[branch])
                case "delete" if branch != "main":
                    process.catalog.delete_ref(branch, process.catalog.ref(branch).hash)
                    del now[branch]
                case "clean":
                    clean(process, older_than=timedelta(minutes=dice.randint(0, 400)))
            for name, tables_now in now.items():
                held[process.catalog.ref(name).hash] = tables_now
        world.clock.advance(DAY)
        clean(process)
        self._nothing_is_lost(process, held)
        committed = {each.commit.operation for each in process.catalog.retained()}
        named = {path: operation_of(path) for path in paths(world.store)}
        assert not [path for path, operation in named.items() if operation and operation not in committed]
        assert clean(process).deleted == ()

    def _nothing_is_lost(self, process: Process, held: dict[str, dict[str, list[int]]]) -> None:
        for number, (commit, expected) in enumerate(held.items()):
            name = f"look{number}"
            process.catalog.create_ref(RefKind.BRANCH, name, commit)
            assert {key: process.ids(key, branch=name) for key in expected} == expected
            process.catalog.delete_ref(name, commit)


class TestFolder:
    """On files, through the lake that users hold; PyIceberg reads what is left."""

    def test_every_retained_commit_reads_the_same(self, lake: LakeWorld) -> None:
        rows = pa.table({"id": pa.array([1, 2], pa.int64())})
        lake.lake.create_table("t", rows.schema, actor="ann")
        for _ in range(3):
            with lake.lake.transaction(actor="ann") as tx:
                tx.insert("t", rows)
        with lake.lake.transaction(actor="ann") as tx:
            tx.sql("delete from t where id = 1")
        before = {each: self._read(each) for each in self._versions(lake)}
        litter = Path(lake.url) / "tables" / f"00000-00000-{token_of(made_at(NOON - DAY * 999), seeded(1))}.parquet"
        litter.write_bytes(b"x")
        done = lake.lake.cleanup(older_than=timedelta(0))
        assert [each.path for each in done.deleted] == [f"tables/{litter.name}"]
        assert not litter.exists()
        assert {each: self._read(each) for each in self._versions(lake)} == before
        assert len(before) == 5

    @pytest.mark.parametrize("dry_run", [False, True])
    def test_an_age_beyond_all_dates(self, lake: LakeWorld, dry_run: bool) -> None:
        with pytest.raises(UsageError, match="nothing is as old as that"):
            lake.lake.cleanup(older_than=timedelta(days=10**6), dry_run=dry_run)

    def test_what_killed_puts_left(self, lake: LakeWorld) -> None:
        folder = Path(lake.url) / "tables"
        folder.mkdir(exist_ok=True)
        old, young = folder / ".hw-00.tmp", folder / ".hw-01.tmp"
        for file in (old, young):
            file.write_bytes(b"half")
        os.utime(old, (1_700_000_000, 1_700_000_000))
        assert [each.path for each in lake.lake.cleanup(dry_run=True).residue] == ["tables/.hw-00.tmp"]
        assert old.exists()
        done = lake.lake.cleanup()
        assert [each.path for each in done.residue] == ["tables/.hw-00.tmp"]
        assert done.deleted_bytes == 4
        assert (old.exists(), young.exists()) == (False, True)

    def test_a_lake_that_is_only_read_is_not_cleaned_up(self, lake: LakeWorld) -> None:
        with pytest.raises(RefusedError):
            lake.app.open_lake(lake.url, read_only=True).cleanup()

    def _versions(self, lake: LakeWorld) -> list[str]:
        catalog, found = lake.lake.catalog, []
        for commit in catalog.log(catalog.ref("main").hash):
            contents = (content for _, content in catalog.contents(commit.hash))
            found += [each.metadata_location for each in contents if isinstance(each, TableContent)]
        return found

    def _read(self, location: str) -> list[int]:
        return sorted(StaticTable.from_metadata(location).scan().to_arrow()["id"].to_pylist())
