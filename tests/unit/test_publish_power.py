"""What a power cut leaves of a lake in a folder, whoever died before it: a name lasts once its folder was synced."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from headwater.kernel import failpoints
from headwater.kernel.clock import ManualClock
from headwater.kernel.failpoints import Action, Failpoint
from headwater.kernel.randomness import seeded
from headwater.publish.errors import PublishOutcomeUnknownError
from headwater.publish.model import Verdict
from headwater.storage.file import FileStore
from headwater.storage.folders import Folders
from tests.unit.publish_world import OVER, Process, PublishWorld

NAMES = ("t1", "t2", "t3")


class Killed(BaseException):
    """The process ends here: nothing of it catches this."""


class Plug:
    """Knows which names a power cut would take: those that appeared and whose folder was not synced since."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loose: set[Path] = set()
        self.at_sync: Callable[[Path], None] = lambda _: None
        # How many steps are left to whoever is at work; None: it lives on.
        self.steps_left: int | None = None
        link, rename, delete = os.link, os.rename, FileStore.delete

        def linked(source: Path, target: Path) -> None:
            self._step()
            link(source, target)
            self.loose.add(target)
            self._step()

        def renamed(source: Path, target: Path) -> None:
            self._step()
            is_new = not target.exists()
            rename(source, target)
            self.loose |= {target} if is_new else set()
            self._step()

        def synced(_: Folders, folder: Path) -> None:
            self._step()
            self.at_sync(folder)
            self.loose = {each for each in self.loose if each.parent != folder}

        def deleted(store: FileStore, path: str, *, if_match: str | None = None) -> None:
            self._step()
            delete(store, path, if_match=if_match)  # at worst it lasts, synced or not
            self._step()

        monkeypatch.setattr(os, "link", linked)
        monkeypatch.setattr(os, "rename", renamed)
        monkeypatch.setattr(Folders, "sync", synced)
        monkeypatch.setattr(FileStore, "delete", deleted)

    def _step(self) -> None:
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise Killed

    def is_killed(self, work: Callable[[], object], steps: int) -> bool:
        """Let somebody work for so many steps; whether that was the end of it."""
        self.steps_left = steps
        try:
            work()
        except Killed:
            return True
        finally:
            self.steps_left = None
        return False

    def kill_at(self, part: str) -> None:
        """Whoever syncs a folder of this name next is killed before it has done so."""

        def kill(folder: Path) -> None:
            if part in str(folder):
                self.at_sync = lambda _: None
                raise Killed(part)

        self.at_sync = kill

    def pull(self) -> None:
        """The power is gone, and comes back."""
        for each in self.loose:
            each.unlink(missing_ok=True)
        self.loose.clear()


@pytest.fixture
def world(tmp_path: Path) -> PublishWorld:
    world = PublishWorld(FileStore(tmp_path, ManualClock(), seeded(7), durable=False))
    world.process().create(*NAMES)
    return world


@pytest.fixture
def plug(world: PublishWorld, monkeypatch: pytest.MonkeyPatch) -> Plug:
    """From when the lake is made."""
    return Plug(monkeypatch)


def leave(process: Process, after_heads: int) -> None:
    """A writer of all three tables that dies when it has moved so many heads."""
    with (
        failpoints.arm(Failpoint.PUBLISH_AFTER_HEAD, Action.ERROR, only_hit=after_heads),
        pytest.raises(PublishOutcomeUnknownError),
    ):
        process.append(dict.fromkeys(NAMES, 1))


def whole(world: PublishWorld, expected: list[int]) -> None:
    """After everything that is due was recovered, every table has these rows, and its head is what is pinned."""
    world.clock.advance(OVER)
    process = world.process()
    process.writing.recovery.sweep()
    assert [process.ids(name) for name in NAMES] == [expected] * 3
    assert all(process.head_is_pinned(name) for name in NAMES)
    process.append(dict.fromkeys(NAMES, 9))
    assert [process.ids(name) for name in NAMES] == [[*expected, 9]] * 3


@pytest.mark.hazard("P20")
def test_p20_who_rolls_forward_makes_the_heads_durable_before_it_pins_them(world: PublishWorld, plug: Plug) -> None:
    leave(world.process(), after_heads=3)
    assert len(plug.loose) == 3
    world.clock.advance(OVER)
    [done] = world.process().writing.recovery.sweep()
    assert done.verdict is Verdict.FORWARD
    plug.pull()
    whole(world, [0, 1])


@pytest.mark.hazard("P20")
def test_p20_a_writer_that_finishes_its_own_change_does_so_too(world: PublishWorld, plug: Plug) -> None:
    process = world.process()
    leave(process, after_heads=3)
    [done] = process.writing.recovery.refresh()
    assert done.verdict is Verdict.FORWARD
    plug.pull()
    whole(world, [0, 1])


@pytest.mark.hazard("P20")
def test_p20_a_note_that_is_found_is_durable_before_it_is_obeyed(world: PublishWorld, plug: Plug) -> None:
    plug.kill_at("__recovery")
    with pytest.raises(Killed):
        world.process().append(dict.fromkeys(NAMES, 1))
    world.clock.advance(OVER)
    with failpoints.arm(Failpoint.RECOVERY_AFTER_RESTORE, Action.ERROR), pytest.raises(failpoints.FailpointError):
        world.process().writing.recovery.sweep()
    plug.pull()
    whole(world, [0])


@pytest.mark.hazard("P20")
def test_p20_who_finds_a_head_restored_makes_that_durable_before_it_pins_it(world: PublishWorld, plug: Plug) -> None:
    leave(world.process(), after_heads=1)
    world.clock.advance(OVER)
    plug.kill_at("/t1-")
    with pytest.raises(Killed):
        world.process().writing.recovery.sweep()
    [done] = world.process().writing.recovery.sweep()
    assert done.verdict is Verdict.BACK
    plug.pull()
    whole(world, [0])


@pytest.mark.hazard("P20")
def test_p20_a_commit_that_is_found_is_durable_before_its_note_goes(world: PublishWorld, plug: Plug) -> None:
    leave(world.process(), after_heads=3)
    world.clock.advance(OVER)
    plug.kill_at("/manifest")
    with pytest.raises(Killed):
        world.process().writing.recovery.sweep()
    [done] = world.process().writing.recovery.sweep()
    assert done.verdict is Verdict.PUBLISHED
    plug.pull()
    whole(world, [0, 1])


@pytest.mark.parametrize("after_heads", [1, 2, 3])
def test_a_power_cut_among_the_heads_leaves_all_or_nothing(world: PublishWorld, plug: Plug, after_heads: int) -> None:
    leave(world.process(), after_heads=after_heads)
    lost = sorted(plug.loose)[0]
    plug.loose = {lost}  # of those that are not synced, any may have lasted
    plug.pull()
    whole(world, [0])


def test_a_writer_and_its_recoverer_die_anywhere_and_the_power_goes(
    world: PublishWorld, plug: Plug, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each step of the writer, with another end for its recoverer each time, and other names that are gone."""
    assert isinstance(world.store, FileStore)
    made = world.store.root
    outcomes: list[list[int]] = []
    for steps in count():
        world.store = FileStore(tmp_path_factory.mktemp("cut") / "lake", world.clock, world.randomness, durable=False)
        shutil.copytree(made, world.store.root)
        writer = world.process()
        wish = writer.wish(dict.fromkeys(NAMES, 1))
        writer.files.write([file for each in wish.tables if each.staged for file in each.staged.files])
        monkeypatch.setattr(writer.files, "write", lambda _: None)  # stored already
        is_over = not plug.is_killed(lambda: writer.writing.publisher.publish(wish), steps)  # noqa: B023
        world.clock.advance(OVER)
        plug.is_killed(world.process().writing.recovery.sweep, steps * 7 % 23)
        if steps % 3:  # of names that are not synced any folder may have kept its own
            plug.loose = {each for each in plug.loose if (len(each.parent.name) + steps) % 2}
        plug.pull()
        world.clock.advance(OVER)
        after = world.process()
        after.writing.recovery.sweep()
        rows = [after.ids(name) for name in NAMES]
        assert rows in ([[0]] * 3, [[0, 1]] * 3), steps
        assert all(after.head_is_pinned(name) for name in NAMES), steps
        outcomes.append(rows[0])
        if is_over:
            break
    assert outcomes[0] == [0]
    assert outcomes[-1] == [0, 1]  # it was reported
    assert len(outcomes) > 15


@pytest.mark.hazard("S11")
@pytest.mark.parametrize("part", ["/t2-", "/manifest/"])
def test_s11_what_cannot_be_made_durable_is_not_reported(world: PublishWorld, plug: Plug, part: str) -> None:
    """It is seen, but a disk that does not sync promises nothing."""
    process = world.process()

    def fails(folder: Path) -> None:
        if any(each.parent == folder and part in str(each) and each.name.startswith("0000000") for each in plug.loose):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    plug.at_sync = fails
    with pytest.raises(PublishOutcomeUnknownError, match="may not be durable"):
        process.append(dict.fromkeys(NAMES, 1))
    plug.at_sync = lambda _: None
    plug.pull()
    assert len({tuple(process.ids(name)) for name in NAMES}) == 1
    world.clock.advance(OVER)
    world.process().writing.recovery.sweep()
    again = world.process()
    assert len({tuple(again.ids(name)) for name in NAMES}) == 1
    assert all(again.head_is_pinned(name) for name in NAMES)
