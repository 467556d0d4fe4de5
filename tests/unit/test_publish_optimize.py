"""Optimizing: what is rewritten, that rows stay what they are whatever others do meanwhile, and whose turn it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, StringType

from headwater.catalog.errors import BeganTooEarlyError
from headwater.catalog.model import RefKind, TableContent, TableKey
from headwater.kernel.clock import ManualClock
from headwater.kernel.errors import ConflictError, HeadwaterError, UsageError
from headwater.kernel.failpoints import Failpoint
from headwater.kernel.ids import Ulid, new_ulid, time_of
from headwater.kernel.randomness import seeded
from headwater.lake import Lake
from headwater.publish.errors import DriftError
from headwater.publish.model import TableWish, Wish, WriterKind
from headwater.publish.optimize import jobs as jobs_module
from headwater.publish.optimize.codec import decode_compactions, encode_compactions
from headwater.publish.optimize.decide import ENDED_KEPT, begun, deleted_ratio, ended, plan_groups, renewed, that_hold
from headwater.publish.optimize.errors import CompactionsCorruptError, RunLostError, TableHeldError
from headwater.publish.optimize.jobs import COMPACTIONS, JOB_LEASE
from headwater.publish.optimize.model import Compactions, End, Job, Purpose, Run, RunState, Spec
from headwater.publish.optimize.planning import plan_of
from headwater.storage.errors import StorageError
from headwater.tables.columns import AddColumn, RenameColumn, SchemaChange, WidenColumn
from headwater.tables.evolve import change_schema, change_spec, upgrade
from headwater.tables.model import FileTask, ScanPlan, Staged, TableFile, TableUsageError, UnsupportedTableError
from headwater.tables.operations import Rewritten, rewrite_files, stage_rewrite
from headwater.tables.partitions import AddPartitionField
from headwater.tables.scan import plan_scan
from tests.unit.optimize_world import OptimizeWorld, cutting_in, world_of

pytestmark = pytest.mark.proves("publish/optimize")

GOLDEN = Path(__file__).parent / "golden" / "compactions-1.json"
KEY = TableKey.parse("t")
SPEC = Spec(KEY, "main")
TARGET = 1000
SKEW = timedelta(seconds=60)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = timedelta(minutes=20)


@pytest.fixture
def world(tmp_path: Path) -> OptimizeWorld:
    return OptimizeWorld(tmp_path)


# ---------------------------------------------------------------------------- which files, and whether they still hold


def file(name: str, size: int = 100, *, rows: int = 100, p: int | None = None, **options: Any) -> TableFile:
    made = TableFile.from_args(
        _table_format_version=3,
        content=options.pop("content", DataFileContent.DATA),
        file_path=name,
        file_format=options.pop("file_format", FileFormat.PARQUET),
        partition=Record() if p is None else Record(p),
        record_count=rows,
        file_size_in_bytes=size,
        **options,
    )
    made.spec_id = 0
    return cast(TableFile, made)


def vector(of: str, rows: int) -> TableFile:
    return file(
        "v.puffin", content=DataFileContent.POSITION_DELETES, rows=rows, referenced_data_file=of, content_offset=4
    )


def positions(of: str | None, rows: int) -> TableFile:
    return file("p.parquet", content=DataFileContent.POSITION_DELETES, rows=rows, referenced_data_file=of)


def task(name: str, size: int = 100, *, number: int = 1, p: int | None = None, **deletes: Any) -> FileTask:
    return FileTask(file(name, size, p=p), number, **deletes)


def named(groups: tuple[tuple[FileTask, ...], ...]) -> list[str]:
    return ["".join(each.file.file_path for each in group) for group in groups]


@pytest.mark.parametrize(
    ("tasks", "spec", "groups"),
    [
        ([task("a"), task("b")], SPEC, ["ab"]),
        ([task("a")], SPEC, []),
        ([], SPEC, []),
        # Large enough are left alone, and do not keep others apart.
        ([task("a"), task("b", 750), task("c")], SPEC, ["ac"]),
        ([task("a", 749), task("b", 200)], SPEC, ["ab"]),
        # Packed up to the wanted size, in the order of age.
        ([task("a", 700), task("b", 400), task("c", 500), task("d", 600)], SPEC, ["bc"]),
        ([task("a", 400, number=3), task("b", 500, number=1), task("c", 600, number=2)], SPEC, ["ca"]),
        # Partitions stay apart.
        ([task("a", p=1), task("b", p=2), task("c", p=1)], SPEC, ["ac"]),
        # So few are not worth it.
        ([task("a"), task("b")], Spec(KEY, "main", min_files=3), []),
        ([task("a"), task("b"), task("c")], Spec(KEY, "main", min_files=3), ["abc"]),
        ([task("a")], Spec(KEY, "main", min_files=1), []),
        # Deletes: by their part of the rows, or all; what metadata does not tell is folded.
        ([task("a", 900, vector=vector("a", 30))], SPEC, ["a"]),
        ([task("a", 900, vector=vector("a", 29))], SPEC, []),
        ([task("a", 900, vector=vector("a", 1))], Spec(KEY, "main", all_deletes=True), ["a"]),
        ([task("a", 900)], Spec(KEY, "main", all_deletes=True), []),
        ([task("a", 900, positions=(positions("a", 20), positions("a", 10)))], SPEC, ["a"]),
        ([task("a", 900, positions=(positions("a", 2),))], SPEC, []),
        ([task("a", 900, positions=(positions(None, 2),))], SPEC, ["a"]),
        ([task("a", 900, equality=(file("e", content=DataFileContent.EQUALITY_DELETES),))], SPEC, ["a"]),
        # What will be left of a file counts: two halves fit together.
        ([task("a", 900, vector=vector("a", 50)), task("b", 900, vector=vector("b", 50))], SPEC, ["ab"]),
        # Only Parquet is read.
        ([FileTask(file("a", file_format=FileFormat.ORC), 1), task("b"), task("c")], SPEC, ["bc"]),
    ],
)
def test_which_files_are_written_again(tasks: list[FileTask], spec: Spec, groups: list[str]) -> None:
    assert named(plan_groups(tasks, spec, TARGET)) == groups


def test_a_ratio_is_not_above_one() -> None:
    assert deleted_ratio(task("a", positions=(positions("a", 70), positions("a", 70)))) == 1
    assert deleted_ratio(FileTask(file("a", rows=0), 1)) == 0


def scan(*tasks: FileTask, snapshot: int, version: int = 3) -> ScanPlan:
    metadata = SimpleNamespace(format_version=version)
    return ScanPlan(metadata, None, SimpleNamespace(snapshot_id=snapshot), tasks)  # type: ignore[arg-type]


def with_row_ids(name: str, first: int | None) -> FileTask:
    return FileTask(file(name, first_row_id=first), 1)


A, B = with_row_ids("a", 0), with_row_ids("b", 100)
READ = scan(A, B, snapshot=1)
AB = Rewritten((A, B), (file("ab"),), 1)


@pytest.mark.hazard("P11")
@pytest.mark.parametrize(
    ("now", "holds"),
    [
        (scan(A, B, snapshot=1), True),
        (scan(A, B, task("c"), snapshot=2), True),
        (scan(A, snapshot=2), False),
        (scan(snapshot=2), False),
        (scan(A, FileTask(B.file, 1, vector=vector("b", 1)), snapshot=2), False),
        (scan(A, FileTask(B.file, 1, positions=(positions("b", 1),)), snapshot=2), False),
        (scan(A, FileTask(B.file, 1, equality=(file("e"),)), snapshot=2), False),
        (scan(A, FileTask(B.file, 2), snapshot=2), False),
        (scan(A, with_row_ids("b", 300), snapshot=2), False),
        (scan(A, with_row_ids("b", None), snapshot=2), False),
        (scan(A, B, snapshot=2, version=2), False),
    ],
)
def test_p11_what_was_rewritten_holds_while_its_inputs_are_what_they_were(now: ScanPlan, holds: bool) -> None:
    assert that_hold([AB], READ, now) == ((AB,) if holds else ())


@pytest.mark.hazard("P11")
def test_p11_groups_are_judged_one_by_one() -> None:
    one, two = Rewritten((A,), (file("x"),), 1), Rewritten((B,), (file("y"),), 1)
    assert that_hold([one, two], READ, scan(B, snapshot=2)) == (two,)


@pytest.mark.hazard("P11")
def test_p11_files_that_went_to_another_spec_hold_only_where_they_were_read() -> None:
    moved = file("ab")
    moved.spec_id = 1
    group = Rewritten((A, B), (moved,), 1)
    assert that_hold([group], READ, scan(A, B, snapshot=1)) == (group,)
    assert that_hold([group], READ, scan(A, B, snapshot=2)) == ()


# ---------------------------------------------------------------------------- whose turn it is


def ulid(seed: int) -> Ulid:
    return new_ulid(ManualClock(), seeded(seed))


def job(number: int, *, incarnation: str = "t-1", branch: int = 90) -> Job:
    return Job(ulid(number), SPEC, "ann", ulid(branch), incarnation, "file:///lake/t/1.metadata.json", 1, 2, 300)


def run(until: timedelta = JOB_LEASE, state: RunState = RunState.RUNNING) -> Run:
    return Run(ulid(50), NOW, NOW + until, state)


def state(*runs: tuple[Job, Run]) -> Compactions:
    return Compactions({each.id: (each, its) for each, its in runs})


class TestTurns:
    def test_a_table_has_one_run_at_a_time(self) -> None:
        held = state((job(1), run()))
        with pytest.raises(TableHeldError, match="is being rewritten by job") as caught:
            begun(held, job(2), run(), now=NOW + JOB_LEASE + SKEW - timedelta(seconds=1), skew=SKEW)
        assert caught.value.fields["job"] == job(1).id
        assert "try again after 2026-01-01T00:11:00+00:00" in (caught.value.hint or "")

    def test_one_whose_lease_has_passed_is_abandoned(self) -> None:
        after = begun(state((job(1), run())), job(2), run(), now=NOW + JOB_LEASE + SKEW, skew=SKEW)
        assert after.runs[job(1).id][1].state is RunState.ABANDONED
        assert after.runs[job(2).id][1].state is RunState.RUNNING

    @pytest.mark.parametrize(
        "other",
        [
            (job(1, incarnation="t-2"), run()),
            (job(1, branch=91), run()),
            *((job(1), run(state=each)) for each in RunState if each is not RunState.RUNNING),
        ],
    )
    def test_others_are_no_hindrance(self, other: tuple[Job, Run]) -> None:
        after = begun(state(other), job(2), run(), now=NOW, skew=SKEW)
        assert after.runs[job(1).id] == other
        assert after.runs[job(2).id][1].state is RunState.RUNNING

    def test_a_run_that_was_taken_for_dead_is_not_renewed(self) -> None:
        assert renewed(state((job(1), run())), job(1).id, NOW + LATER).runs[job(1).id][1].lease_until == NOW + LATER
        for dead in (state((job(1), run(state=RunState.ABANDONED))), state()):
            with pytest.raises(RunLostError):
                renewed(dead, job(1).id, NOW + LATER)

    def test_the_last_that_have_ended_are_kept(self) -> None:
        full = state(*((job(each), run(state=RunState.PUBLISHED)) for each in range(200, 200 + ENDED_KEPT)))
        running = {**full.runs, **state((job(1), run())).runs}
        after = ended(Compactions(running), job(1).id, run(state=RunState.FAILED))
        assert len(after.runs) == ENDED_KEPT
        assert ended(full, job(1).id, run(state=RunState.FAILED)) == full  # nobody knows it any more


JOBS = Compactions(
    {
        Ulid("01KDVQDG00AAAAAAAAAAAAAAAA"): (
            Job(
                Ulid("01KDVQDG00AAAAAAAAAAAAAAAA"),
                Spec(TableKey.parse("a.t"), "main", Purpose.COMPACT, 1000, 5, 0.5, all_deletes=True),
                "ann",
                Ulid("01KDVQDG00BBBBBBBBBBBBBBBB"),
                "01KDVQDG00CCCCCCCCCCCCCCCC",
                "file:///lake/t/metadata/00000000000000000007.metadata.json",
                2,
                9,
                4096,
            ),
            Run(Ulid("01KDVQDG00DDDDDDDDDDDDDDDD"), NOW, NOW + JOB_LEASE),
        ),
        Ulid("01KDVQDG01AAAAAAAAAAAAAAAA"): (
            Job(
                Ulid("01KDVQDG01AAAAAAAAAAAAAAAA"),
                Spec(TableKey.parse("u"), "dev", Purpose.INDICES),
                "bob",
                Ulid("01KDVQDG00BBBBBBBBBBBBBBBB"),
                "01KDVQDG01CCCCCCCCCCCCCCCC",
                "file:///lake/u/metadata/00000000000000000001.metadata.json",
                1,
                1,
                100,
            ),
            Run(Ulid("01KDVQDG00DDDDDDDDDDDDDDDD"), NOW, NOW, RunState.PUBLISHED, NOW + SKEW, 2, "abc", "why"),
        ),
    }
)


class TestFormat:
    def test_the_golden_file_is_read_and_written(self) -> None:
        assert decode_compactions(GOLDEN.read_bytes(), "x") == JOBS
        assert encode_compactions(JOBS) == GOLDEN.read_bytes()

    def test_a_newer_format_is_refused(self) -> None:
        newer = GOLDEN.read_bytes().replace(b'"format": 1', b'"format": 2')
        with pytest.raises(CompactionsCorruptError, match="format version 2, newer than 1"):
            decode_compactions(newer, "x")

    @pytest.mark.parametrize("damage", [(b'"jobs"', b'"sobs"'), (b'"running"', b'"resting"'), (b"}]", b"}")])
    def test_damage_is_an_error_that_names_the_file(self, damage: tuple[bytes, bytes]) -> None:
        with pytest.raises(CompactionsCorruptError, match="_headwater/x does not hold"):
            decode_compactions(GOLDEN.read_bytes().replace(*damage), "_headwater/x")


# ---------------------------------------------------------------------------- on a real lake


@pytest.mark.parametrize("version", [2, 3])
def test_small_files_become_one_and_deletes_are_folded(world: OptimizeWorld, version: int) -> None:
    world.create(format_version=version)
    for number in range(4):
        world.insert(number * 2, number * 2 + 1, v=f"v{number}")
    world.delete(3)
    world.update("new", 4)
    before = world.lineage() if version == 3 else {}
    assert len(world.tasks()) == 5
    [done] = world.lake.optimize("t", actor="bob").tables
    assert (done.end, done.files_before, done.files_after, done.files_with_deletes) == (End.PUBLISHED, 5, 1, 2)
    [left] = world.tasks()
    assert not left.has_deletes
    assert world.rows() == world.model
    assert version == 2 or world.lineage() == before
    assert done.commit is not None
    assert done.commit.actor == "bob"
    assert world.commits()[0] == "optimize default.t"
    assert world.lake.writing.sidecars.pending() == ()


def test_a_second_run_finds_nothing(world: OptimizeWorld) -> None:
    world.create()
    world.insert(1)
    world.insert(2)
    world.lake.optimize("t", actor="bob")
    before = world.objects()
    [again] = world.lake.optimize("t", actor="bob", deletes=True).tables
    assert (again.end, again.commit, again.job) == (End.NOTHING, None, None)
    assert world.objects() == before


def test_a_dry_run_tells_and_changes_nothing(world: OptimizeWorld) -> None:
    world.create()
    world.insert(1)
    world.insert(2)
    before = world.objects()
    [told] = world.lake.optimize("t", actor="bob", dry_run=True).tables
    assert (told.end, told.files_before, told.files_after) == (End.PLANNED, 2, 1)
    assert world.objects() == before
    [done] = world.lake.optimize("t", actor="bob").tables
    assert (done.files_before, done.files_after, done.bytes_before) == (2, 1, told.bytes_before)


def test_partitions_order_and_sizes(world: OptimizeWorld) -> None:
    by_p = AddPartitionField("p", "identity")
    world.create(partition_by=[by_p])
    for number in range(3):
        world.insert(*range(number * 10, number * 10 + 5), p=number % 2)
    world.insert(100, p=7)
    [done] = world.lake.optimize("t", actor="bob").tables
    assert (done.files_before, done.files_after) == (2, 1)  # of p=0 alone: the others have one file each
    assert sorted(task.file.partition[0] for task in world.tasks()) == [0, 1, 7]
    assert world.rows() == world.model
    # A smaller size: what is larger than that is left alone, so nothing happens.
    [none] = world.lake.optimize("t", actor="bob", target_size_bytes=100).tables
    assert none.end is End.NOTHING


def change(world: OptimizeWorld, changed: Callable[[TableMetadata], TableMetadata | None], lake: Lake) -> None:
    """Change the table's metadata, as a schema change does; None drops it."""
    ref, writing = lake.catalog.ref("main"), lake.writing
    pinned = lake.content(KEY, ref.hash)
    assert isinstance(pinned, TableContent)
    metadata = changed(lake.table("t").metadata)
    staged = None if metadata is None else Staged(metadata)
    writing.publisher.publish(
        Wish(
            WriterKind.SCHEMA_APPLY,
            "eve",
            "a change",
            "main",
            ref.incarnation,
            writing.staging().operation,
            (TableWish(KEY, pinned, staged),),
        )
    )


def test_a_table_whose_partitioning_has_changed(world: OptimizeWorld) -> None:
    """Files of the old spec go over to the new one."""
    world.create()
    for number in range(3):
        world.insert(number)
    by_id = [AddPartitionField("id", "bucket[2]")]
    change(world, lambda metadata: change_spec(metadata, by_id, world.clock.now()), world.lake)
    [done] = world.lake.optimize("t", actor="bob").tables
    assert done.end is End.PUBLISHED
    assert {task.file.spec_id for task in world.tasks()} == {1}
    assert world.rows() == world.model


def test_a_table_of_version_1_is_refused_before_anything_is_written(world: OptimizeWorld) -> None:
    world.create()
    scan = plan_scan(world.lake.files, world.lake.table("t").metadata)
    old = SimpleNamespace(**{**vars(scan.metadata), "format_version": 1})
    for name in ("schema", "sort_order", "specs"):
        setattr(old, name, getattr(scan.metadata, name))
    tasks = (task("a"), task("b"))
    with pytest.raises(UnsupportedTableError, match="upgrade the table"):
        plan_of(world.lake.files, replace(scan, metadata=old, tasks=tasks), SPEC)  # type: ignore[arg-type]


def test_progress_is_told_group_by_group(world: OptimizeWorld) -> None:
    world.create(partition_by=[AddPartitionField("p", "identity")])
    for number in range(2):
        world.insert_parts((number,), (number + 10,))
    told: list[tuple[str, int, int]] = []
    world.lake.optimize("t", actor="bob", progress=lambda key, done, total: told.append((str(key), done, total)))
    assert told == [("default.t", 1, 2), ("default.t", 2, 2)]


def test_a_branch_is_optimized_by_itself(world: OptimizeWorld) -> None:
    world.create()
    world.insert(1)
    world.insert(2)
    world.lake.catalog.create_ref(RefKind.BRANCH, "dev", world.lake.catalog.ref("main").hash)
    world.lake.optimize("t", branch="dev", actor="bob")
    assert (len(world.tasks(branch="dev")), len(world.tasks())) == (1, 2)
    assert world.rows(branch="dev") == world.rows() == world.model


def test_all_tables_and_one_that_fails(world: OptimizeWorld) -> None:
    for name in ("t", "u", "w"):
        world.create(name)
        world.insert(1, name=name)
        world.insert(2, name=name)
    path = world.tasks("u")[0].file.file_path
    store, at = world.lake.files.place(path)
    store.delete(at)
    found = world.lake.optimize(actor="bob")
    assert [(str(each.key), each.end) for each in found.tables] == [
        ("default.t", End.PUBLISHED),
        ("default.u", End.FAILED),
        ("default.w", End.PUBLISHED),
    ]
    [error] = found.errors
    assert error.fields["path"] == path
    with pytest.raises(type(error)):
        world.lake.optimize("u", actor="bob")
    assert {run.state for job, run in world.lake.writing.jobs.read().runs.values() if job.spec.table.name == "u"} == {
        RunState.FAILED
    }


@pytest.mark.parametrize(
    "options", [{"target_size_bytes": 0}, {"min_files": 0}, {"delete_ratio": 0.0}, {"delete_ratio": 1.5}]
)
def test_options_that_make_no_sense(world: OptimizeWorld, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        world.lake.optimize(actor="bob", **options)


def test_what_is_no_table(world: OptimizeWorld) -> None:
    world.create()
    with pytest.raises(UsageError, match=r"there is no table default\.tt"):
        world.lake.optimize("tt", actor="bob")
    assert world.lake.optimize(["t", "default.t"], actor="bob").tables[0].end is End.NOTHING  # empty, and named once


@pytest.mark.hazard("P11")
class TestOthersMeanwhile:
    """Between the reading of the files and the commit, another process publishes."""

    @pytest.fixture(params=[2, 3])
    def version(self, request: pytest.FixtureRequest) -> int:
        number: int = request.param
        return number

    @pytest.fixture
    def filled(self, world: OptimizeWorld, version: int) -> OptimizeWorld:
        world.create(format_version=version, partition_by=[AddPartitionField("p", "identity")])
        for number in range(3):
            world.insert_parts((number, number + 10), (number + 20, number + 30))
        return world

    def test_p11_rows_that_were_added_stay(self, filled: OptimizeWorld) -> None:
        with cutting_in(Failpoint.OPTIMIZE_AFTER_FILES, lambda: filled.insert(99, lake=filled.other)):
            [done] = filled.lake.optimize("t", actor="bob").tables
        assert (done.end, done.files_before) == (End.PUBLISHED, 6)
        assert len(filled.tasks()) == 3
        assert filled.rows() == filled.model

    @pytest.mark.parametrize("change", ["delete", "update"])
    def test_p11_rows_that_were_deleted_or_updated_stay_so(self, filled: OptimizeWorld, change: str) -> None:
        def meanwhile() -> None:
            filled.delete(1, lake=filled.other) if change == "delete" else filled.update("u", 1, lake=filled.other)

        before = filled.lineage() if filled.lake.table("t").metadata.format_version == 3 else {}
        with cutting_in(Failpoint.OPTIMIZE_AFTER_FILES, meanwhile):
            [done] = filled.lake.optimize("t", actor="bob").tables
        # The group of the other partition holds; that of the deleted row is left out, and said to be.
        assert (done.end, done.files_before, done.files_after) == (End.PUBLISHED, 3, 1)
        assert "1 groups were left out" in done.why
        assert filled.rows() == filled.model
        if before:
            after = filled.lineage()
            assert all(after[each] == before[each] for each in after if each != 1)
            assert change == "delete" or after[1][0] == before[1][0]

    def test_p11_nothing_that_holds_is_given_up(self, filled: OptimizeWorld) -> None:
        with cutting_in(Failpoint.OPTIMIZE_AFTER_FILES, lambda: filled.delete(1, 21, lake=filled.other)):
            [done] = filled.lake.optimize("t", actor="bob").tables
        assert (done.end, done.commit) == (End.GIVEN_UP, None)
        assert "nothing was changed" in done.why
        assert filled.rows() == filled.model
        [(_, run)] = filled.lake.writing.jobs.read().runs.values()
        assert run.state is RunState.GIVEN_UP
        assert filled.lake.optimize("t", actor="bob", deletes=True).tables[0].end is End.PUBLISHED
        assert filled.rows() == filled.model

    def test_p11_in_the_middle_of_the_publish(self, filled: OptimizeWorld) -> None:
        """The head was moved by somebody else after ours was noted: the loser steps back, and is rebased."""
        with cutting_in(Failpoint.PUBLISH_AFTER_SIDECAR, lambda: filled.delete(1, lake=filled.other)):
            [done] = filled.lake.optimize("t", actor="bob").tables
        assert (done.end, done.rebases, done.files_before) == (End.PUBLISHED, 1, 3)
        assert filled.rows() == filled.model
        assert filled.lake.writing.sidecars.pending() == ()
        filled.insert(77)  # the table is not stuck
        assert filled.rows() == filled.model

    def test_p11_it_is_rebased_five_times_and_no_more(self, filled: OptimizeWorld) -> None:
        others = [lambda number=number: filled.insert(number, lake=filled.other) for number in range(100, 120)]
        with cutting_in(Failpoint.PUBLISH_AFTER_SIDECAR, *others) as passed:
            [done] = filled.lake.optimize("t", actor="bob").tables
        assert (done.end, done.rebases, len(passed)) == (End.GIVEN_UP, 5, 6)
        assert "6 times in a row" in done.why
        assert filled.rows() == filled.model

    def test_p11_another_optimize_was_faster(self, filled: OptimizeWorld) -> None:
        """As after a lease that passed: the inputs are gone."""

        def meanwhile() -> None:
            filled.clock.advance(LATER)
            filled.other.optimize("t", actor="eve")

        with (
            cutting_in(Failpoint.OPTIMIZE_AFTER_JOB, meanwhile),
            pytest.raises(RunLostError),
        ):
            filled.lake.optimize("t", actor="bob")
        assert filled.rows() == filled.model
        states = [run.state for _, run in filled.lake.writing.jobs.read().runs.values()]
        assert states.count(RunState.PUBLISHED) == 1

    def test_the_table_goes(self, filled: OptimizeWorld) -> None:
        with cutting_in(Failpoint.OPTIMIZE_AFTER_FILES, lambda: change(filled, lambda _: None, filled.other)):
            [done] = filled.lake.optimize("t", actor="bob").tables
        assert done.end is End.GIVEN_UP

    def test_p11_the_schema_changes(self, filled: OptimizeWorld) -> None:
        """Columns go by their ids, so what was written before is as good as its inputs were."""
        changes: list[SchemaChange] = [
            AddColumn("w", StringType()),
            RenameColumn("v", "value"),
            WidenColumn("p", LongType()),
        ]

        def meanwhile() -> None:
            change(filled, lambda before: change_schema(before, changes, filled.clock.now()), filled.other)

        with cutting_in(Failpoint.OPTIMIZE_AFTER_FILES, meanwhile):
            [done] = filled.lake.optimize("t", actor="bob").tables
        assert (done.end, done.files_before) == (End.PUBLISHED, 6)
        rows = filled.lake.query("select id, value, p, w from t").to_pylist()
        assert {row["id"]: (row["value"], row["p"]) for row in rows} == filled.model
        assert {row["w"] for row in rows} == {None}

    def test_p11_the_format_version_changes(self, world: OptimizeWorld) -> None:
        """Rows get their ids with the new version: files that were written before have none."""
        world.create(format_version=2)
        world.insert(1)
        world.insert(2)

        def meanwhile() -> None:
            change(world, lambda before: upgrade(before, 3, world.clock.now()), world.other)
            world.insert(3, lake=world.other)

        with cutting_in(Failpoint.OPTIMIZE_AFTER_FILES, meanwhile):
            [done] = world.lake.optimize("t", actor="bob").tables
        assert done.end is End.GIVEN_UP
        assert world.rows() == world.model
        before = world.lineage()
        world.lake.optimize("t", actor="bob")
        assert world.lineage() == before


@pytest.mark.hazard("P11")
def test_p11_beside_a_busy_writer(world: OptimizeWorld) -> None:
    """One process changes rows, another one optimizes, at the same time; the writer tries again when it loses."""
    world.create(format_version=3)
    world.insert(*range(10))
    over, failed = Event(), []

    def optimize() -> None:
        lake = world.process()
        while not over.is_set():
            try:
                lake.optimize("t", actor="bob", deletes=True)
            except HeadwaterError as error:
                failed.append(error)
                return

    thread = Thread(target=optimize)
    thread.start()
    random, following = Random(7), iter(range(100, 1000))
    try:
        for _ in range(12):
            some = random.sample(sorted(world.model), 2)
            match random.randrange(3):
                case 0:
                    again(partial(world.delete, *some, lake=world.other))
                case 1:
                    again(partial(world.update, "u", *some, lake=world.other))
                case _:
                    again(partial(world.insert, next(following), lake=world.other))
    finally:
        over.set()
        thread.join()
    assert failed == []
    assert world.rows() == world.model
    assert any(message == "optimize default.t" for message in world.commits())


def again(step: Callable[[], None]) -> None:
    for _ in range(100):
        try:
            return step()
        except ConflictError:
            continue
    raise AssertionError("the writer never won")


@pytest.mark.hazard("P11")
@pytest.mark.parametrize("seed", range(4))
def test_p11_rows_and_ids_by_a_model(seed: int) -> None:
    """Random changes by another process at random moments of a few runs, against a dictionary."""
    random = Random(seed)
    with world_of(format_version=3) as world:
        known: dict[int, int] = {}
        following = iter(range(1000))
        for _ in range(2):
            for _ in range(2):
                world.insert(*(next(following) for _ in range(3)), v=f"v{random.random():.3f}")
            known |= {each: row for each, (row, _) in world.lineage().items()}
            point = random.choice([Failpoint.OPTIMIZE_AFTER_FILES, Failpoint.PUBLISH_AFTER_SIDECAR])

            def meanwhile(random: Random = random, known: dict[int, int] = known) -> None:
                some = random.sample(sorted(world.model), 2)
                match random.randrange(3):
                    case 0:
                        world.delete(*some, lake=world.other)
                    case 1:
                        world.update(f"u{random.random():.3f}", *some, lake=world.other)
                    case _:
                        world.insert(next(following), lake=world.other)

            with cutting_in(point, meanwhile):
                world.lake.optimize("t", actor="bob", deletes=True)
            assert world.rows() == world.model
            found = {each: row for each, (row, _) in world.lineage().items()}
            assert found == {each: known.get(each, found.get(each)) for each in world.model}
            assert len(set(found.values())) == len(found)


@pytest.mark.hazard("P11")
def test_p11_staging_itself_refuses_what_does_not_hold(world: OptimizeWorld) -> None:
    world.create(format_version=3)
    world.insert(1, 2)
    world.insert(3)
    staging, base = world.lake.writing.staging(), world.lake.table("t")
    scan = plan_scan(staging.files, base.metadata)
    written = rewrite_files(staging, scan, scan.tasks, sink=world.lake.files)
    world.delete(1)
    with pytest.raises(TableUsageError, match="planned on another version"):
        stage_rewrite(staging, world.lake.table("t"), [written])
    with pytest.raises(TableUsageError, match="not of one version"):
        stage_rewrite(staging, base, [])


# ---------------------------------------------------------------------------- jobs


class TestJobs:
    @pytest.fixture
    def ready(self, world: OptimizeWorld) -> OptimizeWorld:
        world.create()
        world.insert(1)
        world.insert(2)
        return world

    def test_a_job_is_recorded_before_the_first_file(self, ready: OptimizeWorld) -> None:
        before, seen = ready.objects(), []

        def look() -> None:
            [(job, run)] = ready.other.writing.jobs.read().runs.values()
            seen.append((job.files, job.actor, run.state, ready.objects() - before))

        with cutting_in(Failpoint.OPTIMIZE_AFTER_JOB, look):
            [done] = ready.lake.optimize("t", actor="bob").tables
        assert seen == [(2, "bob", RunState.RUNNING, {COMPACTIONS.path_of(1)})]
        [(job, run)] = ready.lake.writing.jobs.read().runs.values()
        assert done.commit is not None
        assert (job.id, run.state, run.commit) == (done.job, RunState.PUBLISHED, done.commit.hash)

    def test_the_second_of_two_is_refused(self, ready: OptimizeWorld) -> None:
        refused: list[TableHeldError] = []

        def second() -> None:
            with pytest.raises(TableHeldError) as caught:
                ready.other.optimize("t", actor="eve")
            refused.append(caught.value)

        with cutting_in(Failpoint.OPTIMIZE_AFTER_JOB, second):
            [done] = ready.lake.optimize("t", actor="bob").tables
        assert done.end is End.PUBLISHED
        [error] = refused
        assert (error.exit_code, error.fields["job"]) == (3, done.job)

    def test_a_job_of_a_dead_process_is_abandoned_after_its_lease(self, ready: OptimizeWorld) -> None:
        class Died(BaseException):
            pass

        def die() -> None:
            raise Died

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ready.lake.writing.jobs, "end", lambda *_, **__: None)  # the dead record nothing
            with cutting_in(Failpoint.OPTIMIZE_AFTER_FILES, die), pytest.raises(Died):
                ready.lake.optimize("t", actor="bob")
        with pytest.raises(TableHeldError):
            ready.other.optimize("t", actor="eve")
        ready.clock.advance(LATER)
        [done] = ready.process().optimize("t", actor="eve").tables
        assert done.end is End.PUBLISHED
        [(_, dead), (_, alive)] = ready.lake.writing.jobs.read().runs.values()
        assert (dead.state, alive.state) == (RunState.ABANDONED, RunState.PUBLISHED)
        assert ready.rows() == ready.model

    def test_a_request_to_stop_is_recorded(self, ready: OptimizeWorld) -> None:
        def stop() -> None:
            raise KeyboardInterrupt

        with cutting_in(Failpoint.OPTIMIZE_AFTER_FILES, stop), pytest.raises(KeyboardInterrupt):
            ready.lake.optimize("t", actor="bob")
        [(_, run)] = ready.lake.writing.jobs.read().runs.values()
        assert (run.state, run.why) == (RunState.FAILED, "KeyboardInterrupt")
        assert ready.lake.optimize("t", actor="bob").tables[0].end is End.PUBLISHED

    def test_a_run_renews_its_lease(self, ready: OptimizeWorld) -> None:
        with cutting_in(Failpoint.OPTIMIZE_AFTER_JOB, lambda: ready.clock.advance(JOB_LEASE * 3 / 4)):
            ready.lake.optimize("t", actor="bob")
        [(_, run)] = ready.lake.writing.jobs.read().runs.values()
        assert run.lease_until == run.started_at + JOB_LEASE * 3 / 4 + JOB_LEASE

    def test_an_end_that_cannot_be_recorded_is_no_error(
        self, ready: OptimizeWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise StorageError("the store is away")

        monkeypatch.setattr(jobs_module, "ended", fail)
        assert ready.lake.optimize("t", actor="bob").tables[0].end is End.PUBLISHED
        assert ready.rows() == ready.model

    def test_old_states_are_collected(self, ready: OptimizeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(jobs_module, "COLLECT_EVERY", 2)
        ready.lake.optimize("t", actor="bob")
        ready.insert(3)
        store = ready.lake.writing.store
        ready.clock.advance(timedelta(days=400 * 365))  # the store's own times are of this machine
        ready.process().optimize("t", actor="bob")
        left = [meta.path for meta in store.list(COMPACTIONS.folder)]
        assert left == [COMPACTIONS.path_of(4)]
        assert len(ready.process().writing.jobs.read().runs) == 2

    @pytest.mark.hazard("P10")
    def test_p10_a_rebase_does_not_make_a_job_younger(self, ready: OptimizeWorld) -> None:
        """Its files are as old as its beginning: behind a staging horizon they may be gone."""
        began = ready.clock.now()

        def meanwhile() -> None:
            ready.clock.advance(timedelta(seconds=10))
            ready.insert(9, lake=ready.other)

        with cutting_in(Failpoint.PUBLISH_AFTER_SIDECAR, meanwhile):
            [done] = ready.lake.optimize("t", actor="bob").tables
        assert done.commit is not None
        assert done.rebases == 1
        operation = done.commit.properties["headwater.operation"]
        assert operation != done.job
        assert time_of(Ulid(operation)) == began

    @pytest.mark.hazard("P10")
    def test_p10_one_that_began_before_the_horizon_is_refused(self, ready: OptimizeWorld) -> None:
        def meanwhile() -> None:
            ready.clock.advance(timedelta(minutes=4))
            keeping = ready.other.catalog.keeping
            assert keeping is not None
            keeping.publish_staging_horizon(ready.clock.now() - timedelta(seconds=1))

        with cutting_in(Failpoint.OPTIMIZE_AFTER_FILES, meanwhile), pytest.raises(BeganTooEarlyError):
            ready.lake.optimize("t", actor="bob")
        assert ready.rows() == ready.model

    @pytest.mark.hazard("P10")
    def test_p10_cleanup_keeps_what_a_rebase_committed_and_takes_what_was_given_up(self, ready: OptimizeWorld) -> None:
        """Files are named by the job; a rebase commits them under an operation of its own."""
        with cutting_in(Failpoint.PUBLISH_AFTER_SIDECAR, lambda: ready.insert(9, lake=ready.other)):
            [done] = ready.lake.optimize("t", actor="bob").tables
        assert done.rebases == 1
        with cutting_in(Failpoint.OPTIMIZE_AFTER_FILES, lambda: ready.delete(1, lake=ready.other)):
            [given_up] = ready.lake.optimize("t", actor="bob").tables
        assert (given_up.end, given_up.job is None) == (End.GIVEN_UP, False)
        ready.clock.advance(timedelta(hours=1))
        cleaned = ready.process().cleanup(older_than=timedelta(minutes=30))
        assert any(str(given_up.job).lower() in each.path for each in cleaned.deleted)
        assert not any(str(done.job).lower() in each.path and "/data/" in each.path for each in cleaned.deleted)
        assert ready.rows() == ready.model


@pytest.mark.hazard("P10")
def test_p10_cleanup_keeps_what_a_rebase_committed_behind_a_link(world: OptimizeWorld) -> None:
    """A list shows what lies there by its own path, the table spells that of the link."""
    world.create()
    world.insert(1)
    world.insert(2)
    data = Path(world.lake.table("t").metadata.location.removeprefix("file://")) / "data"
    data.rename(Path(world.url) / "elsewhere")
    data.symlink_to(Path(world.url) / "elsewhere")
    with cutting_in(Failpoint.PUBLISH_AFTER_SIDECAR, lambda: world.insert(9, lake=world.other)):
        [done] = world.lake.optimize("t", actor="bob").tables
    assert done.rebases == 1
    world.clock.advance(timedelta(hours=1))
    cleaned = world.process().cleanup(older_than=timedelta(minutes=30))
    assert not any(each.path.endswith(".parquet") for each in cleaned.deleted)
    assert world.rows() == world.model


def test_a_table_that_has_drifted_is_not_written_to(world: OptimizeWorld) -> None:
    world.create()
    world.insert(1)
    world.insert(2)
    version = world.lake.table("t")
    heads = world.lake.writing.heads
    assert heads is not None
    head = heads.sequence(heads.path_for(version.metadata, world.lake.catalog.ref("main").incarnation))
    latest = head.latest()
    assert latest is not None
    head.write(latest.payload, after=latest)
    before = world.objects()
    with pytest.raises(DriftError):
        world.lake.optimize("t", actor="bob")
    assert world.objects() == before


def test_rows_of_many_kinds(world: OptimizeWorld) -> None:
    """Nested values, nulls and NaN come through a rewrite as they were."""
    rows = pa.table(
        {
            "id": [1, 2],
            "f": [float("nan"), None],
            "l": [[1, None], None],
            "s": [{"a": "x"}, None],
        }
    )
    world.lake.create_table("k", rows.schema, actor="ann", format_version=3)
    for _ in range(2):
        with world.lake.transaction(actor="ann") as transaction:
            transaction.insert("k", rows)
    before = world.lake.query("select * from k order by id, f").to_pylist()
    world.lake.optimize("k", actor="bob")
    after = world.lake.query("select * from k order by id, f").to_pylist()
    assert str(after) == str(before)
    assert len(world.tasks("k")) == 1
