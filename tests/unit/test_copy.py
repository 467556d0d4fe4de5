"""Copying through its public face, in memory; the oracle is the dictionary of what was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import ConflictError, UnavailableError
from headwater.kernel.randomness import system_randomness
from headwater.storage.errors import ObjectNotFoundError, TransientError
from headwater.storage.file import FileStore
from headwater.storage.port import Create, ObjectMeta
from headwater.sync.copy.metrics import BACKLOG_BYTES, BACKLOG_FILES, THROUGHPUT, TRANSFERRED
from headwater.sync.copy.model import (
    BatchReport,
    CopyBatch,
    CopyFailedError,
    CopyItem,
    CopyOutOfReachError,
    Leg,
    Outcome,
)
from headwater.sync.copy.stores import StoreMover
from headwater.sync.runs.model import Backlog
from headwater.tables.files import Files
from tests.unit.copy_world import World

pytestmark = pytest.mark.proves("copying between regions")


def test_every_file_arrives_and_each_batch_is_noted() -> None:
    world = World()
    batches = [
        [world.item(f"b{batch}/{number}", f"{batch}-{number}".encode()) for number in range(5)] for batch in range(4)
    ]
    world.copy(*batches)
    for batch, items in enumerate(batches):
        assert [world.read(each.destination) for each in items] == [f"{batch}-{n}".encode() for n in range(5)]
    assert sorted(report.batch for report in world.noted) == ["0", "1", "2", "3"]
    assert {each.outcome for report in world.noted for each in report.files} == {Outcome.COPIED}
    assert world.metrics.value(BACKLOG_FILES, region="eu") == 0
    assert world.metrics.value(BACKLOG_BYTES, region="eu") == 0
    assert world.metrics.value(TRANSFERRED, region="eu") == 4 * 5 * 3


def test_copying_again_changes_nothing() -> None:
    world = World()
    items = [world.item(f"f{number}") for number in range(3)]
    world.copy(items)
    world.copy(items)
    assert [each.outcome for each in world.noted[1].files] == [Outcome.PRESENT] * 3
    assert world.noted[1].transferred_bytes == 0
    assert world.metrics.value(TRANSFERRED, region="eu") == 12


def test_throughput_is_shown() -> None:
    world = World()
    batch = CopyBatch("b", (world.item("a", b"x" * 600),))
    seen: list[float] = []
    world.clock.sleep(6)
    world.copier.run([batch], lambda _: seen.append(world.metrics.value(THROUGHPUT, region="eu")), Backlog())
    assert seen == [pytest.approx(100)]
    assert world.metrics.value(THROUGHPUT, region="eu") == 0


def test_a_file_that_fails_is_retried_alone() -> None:
    world = World()
    items = [world.item(f"f{number}") for number in range(4)]
    world.mover.failing = {"f2": 1}
    world.copy(items)
    assert [world.read(each.destination) for each in items] == [b"data"] * 4
    assert [len(leg.items) for leg in world.mover.legs] == [4, 1]
    assert [each.outcome for each in world.noted[0].files] == [Outcome.COPIED] * 4


def test_a_file_that_fails_again_is_named_and_the_others_are_there() -> None:
    world = World()
    first = [world.item(f"f{number}") for number in range(4)]
    second = [world.item("later")]
    world.mover.failing = {"f2": 2}
    with pytest.raises(CopyFailedError, match="s3://us/f2 could not be copied to s3://eu/lake/f2: no luck") as caught:
        world.copy(first, second)
    assert caught.value.fields["files"] == ["s3://us/f2"]
    assert [world.read(each.destination) for each in (*first, *second)] == [b"data"] * 2 + [None] + [b"data"] * 2
    assert [report.batch for report in world.noted] == ["1"]
    assert world.metrics.value(BACKLOG_FILES, region="eu") == 1
    world.copy(first)  # the next run goes on
    assert world.read(first[2].destination) == b"data"


def test_when_many_files_fail_they_are_not_tried_one_by_one() -> None:
    world = World()
    items = [world.item(f"f{number}") for number in range(30)]
    world.mover.failing = {f"f{number}": 9 for number in range(25)}
    with pytest.raises(CopyFailedError, match="and 24 more") as caught:
        world.copy(items)
    assert len(world.mover.legs) == 1
    assert {each.reason[:7] for each in caught.value.lacking} == {"no luck"}


@pytest.mark.hazard("R6")
def test_r6_what_is_there_is_never_overwritten() -> None:
    world = World()
    same, other = world.item("same", b"four"), world.item("other", b"four")
    world.write("eu", "same", b"ours")
    world.write("eu", "other", b"of another length")
    with pytest.raises(CopyFailedError, match=r"s3://us/other.*something else is there, of 17 bytes and not 4"):
        world.copy([same, other])
    assert world.read(same.destination) == b"ours"
    assert world.read(other.destination) == b"of another length"


@pytest.mark.hazard("R6")
def test_r6_a_file_that_appears_in_the_last_moment_is_not_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    item = world.item("f", b"four")
    look = world.stores["eu"].head

    def slow(path: str) -> ObjectMeta:
        try:
            return look(path)
        except ObjectNotFoundError:
            world.write("eu", path, b"ours is longer")
            raise

    monkeypatch.setattr(world.stores["eu"], "head", slow)
    with pytest.raises(CopyFailedError, match="something else is there"):
        world.copy([item])
    assert world.read(item.destination) == b"ours is longer"


def test_a_source_that_vanished_is_found_in_another_region() -> None:
    world = World()
    file = CopyItem("s3://us/t/x", "s3://eu/lake/t/x", 4)
    world.write("asia", "t/x", b"from")
    world.copy([file, world.item("t/y")])
    assert world.read(file.destination) == b"from"
    found = world.noted[0].files[0]
    assert (found.outcome, found.origin) == (Outcome.COPIED, "s3://asia/t/x")


def test_another_regions_file_of_another_size_is_not_taken_for_it() -> None:
    world = World()
    world.write("asia", "x", b"another one")
    with pytest.raises(CopyFailedError, match="it has vanished: it is not at s3://us/x, s3://asia/x") as caught:
        world.copy([CopyItem("s3://us/x", "s3://eu/lake/x", 4)])
    assert caught.value.lacking[0].outcome is Outcome.VANISHED
    assert len(world.mover.legs) == 1  # nobody even began to bring it
    assert world.read("s3://eu/lake/x") is None
    assert world.noted == []


def test_a_local_file_that_is_missing_comes_from_another_region() -> None:
    world = World()
    world.write("us", "x", b"data")
    world.copy([CopyItem("s3://eu/lake/x", "s3://eu/lake/x", 4)])
    assert world.read("s3://eu/lake/x") == b"data"
    assert world.noted[0].files[0].origin == "s3://us/x"


def test_a_source_that_vanished_after_it_was_copied_is_not_missed() -> None:
    world = World()
    file = world.item("x")
    world.copy([file])
    world.stores["us"].delete("x")
    world.copy([file])
    assert world.noted[1].files[0].outcome is Outcome.PRESENT


def test_a_store_that_does_not_answer_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file has not vanished: no other region is asked for it, and it is not called lost."""
    world = World()
    file = world.item("x")
    world.write("asia", "x", b"data")
    world.mover.failing = {"x": 9}

    def silent(path: str) -> ObjectMeta:
        raise TransientError("s3://us", path, "connection refused")

    monkeypatch.setattr(world.stores["us"], "head", silent)
    with pytest.raises(CopyOutOfReachError, match="no luck") as caught:
        world.copy([file])
    assert caught.value.lacking[0].outcome is Outcome.FAILED
    assert caught.value.exit_code == UnavailableError.exit_code
    assert world.read(file.destination) is None
    with pytest.raises(CopyFailedError) as both:
        world.copy([file, CopyItem("s3://eu/lake/gone", "s3://eu/lake/gone", 4)])
    assert isinstance(both.value, CopyOutOfReachError)  # the other regions are silent about that one, too
    world.mover.failing["y"] = 9
    with pytest.raises(CopyFailedError) as other:
        world.copy([file, world.item("y", source="asia")])
    assert not isinstance(other.value, UnavailableError)


def test_a_region_that_is_silent_is_not_a_region_without_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    def silent(path: str) -> ObjectMeta:
        raise TransientError("s3://asia", path, "connection refused")

    monkeypatch.setattr(world.stores["asia"], "head", silent)
    with pytest.raises(CopyOutOfReachError, match="another region is silent") as caught:
        world.copy([CopyItem("s3://us/x", "s3://eu/lake/x", 4)])
    assert caught.value.lacking[0].outcome is Outcome.FAILED


def test_batches_are_taken_as_there_is_room_for_them() -> None:
    """Never all at once: a plan may be larger than the memory."""
    world = World()
    made = [CopyBatch(str(number), (world.item(f"f{number}"),)) for number in range(20)]
    taken = 0
    ahead: list[int] = []

    def lazily() -> Iterator[CopyBatch]:
        nonlocal taken
        for batch in made:
            taken += 1
            yield batch

    world.copier.run(lazily(), lambda _: ahead.append(taken - len(ahead)), Backlog())
    assert len(ahead) == 20
    assert max(ahead) <= 4


def test_a_run_that_ends_early_begins_no_more_legs() -> None:
    """The lease was lost, say: what is under way ends, and nothing is tried again or begun."""
    world = World()
    batches = [CopyBatch(str(number), (world.item(f"f{number}"),)) for number in range(50)]

    def lost(_: BatchReport) -> None:
        raise ConflictError("another process has the region")

    with pytest.raises(ConflictError):
        world.copier.run(batches, lost, Backlog())
    assert len(world.mover.legs) <= 4
    assert world.copier.copy(batches[-1]).lacking[0].reason == "the run was stopped"
    world.copier.run(batches, world.noted.append, Backlog())
    assert len(world.noted) == 50


def test_folders_are_copied_whole_and_only_where_nothing_is(tmp_path: Path) -> None:
    clock, randomness = SystemClock(), system_randomness()
    stores = {f"file://{tmp_path / name}": FileStore(tmp_path / name, clock, randomness) for name in ("us", "eu")}
    mover = StoreMover(Files(stores))
    names = [f"deep/er/f {number}" for number in range(10)]
    for name in names:
        (tmp_path / "us" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "us" / name).write_bytes(name.encode() * 100)
    (tmp_path / "eu" / "deep" / "er").mkdir(parents=True)
    (tmp_path / "eu" / names[0]).write_bytes(b"occupied")
    items = tuple((name, CopyItem("", "", len(name) * 100)) for name in (*names, "gone"))
    progress: list[int] = []
    leg = Leg(f"file://{tmp_path / 'us'}", f"file://{tmp_path / 'eu'}", items)
    moved = mover.move(leg, progress.append)
    assert moved.copied == set(names[1:])
    assert set(moved.failed) == {names[0]}
    assert moved.transferred_bytes == progress[-1] == sum(len(name) * 100 for name in names[1:])
    assert (tmp_path / "eu" / names[0]).read_bytes() == b"occupied"
    for name in names[1:]:
        assert (tmp_path / "eu" / name).read_bytes() == name.encode() * 100
    assert mover.move(leg, progress.append).present == set(names[1:])
    replaced = mover.move(Leg(leg.source_root, leg.destination_root, items[:1]), progress.append, replace=True)
    assert replaced.copied == {names[0]}
    assert (tmp_path / "eu" / names[0]).read_bytes() == names[0].encode() * 100
    left = [path.name for path in (tmp_path / "eu").rglob("*") if path.is_file()]
    assert sorted(left) == sorted(Path(name).name for name in names)


def test_a_source_of_another_length_is_not_copied(tmp_path: Path) -> None:
    """What was cut, or written anew under its name: a copy would stand in the way when the right one is back."""
    clock, randomness = SystemClock(), system_randomness()
    stores = {f"file://{tmp_path / name}": FileStore(tmp_path / name, clock, randomness) for name in ("us", "eu")}
    stores[f"file://{tmp_path / 'us'}"].put("x", b"cut", Create())
    leg = Leg(f"file://{tmp_path / 'us'}", f"file://{tmp_path / 'eu'}", (("x", CopyItem("", "", 8)),))
    moved = StoreMover(Files(stores)).move(leg, lambda _: None)
    assert moved.failed == {"x": "the source has 3 bytes, and 8 by its metadata"}
    assert not (tmp_path / "eu" / "x").exists()
