"""What only a folder has: processes, leftovers, permissions, power cuts."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headwater.kernel.clock import ManualClock, SystemClock
from headwater.kernel.failpoints import Action, Failpoint, FailpointError, arm
from headwater.kernel.ids import Ulid
from headwater.kernel.randomness import seeded
from headwater.kernel.retry import Retry, RetryPolicy
from headwater.sequence.model import Namespace, SequenceOutcomeUnknownError
from headwater.sequence.protocol import Sequencer
from headwater.storage import file
from headwater.storage.errors import (
    ForbiddenError,
    InvalidPathError,
    MissingCapabilityError,
    ObjectNotFoundError,
    PreconditionFailedError,
    StorageError,
    StorageOutcomeUnknownError,
    StoreReplacedError,
)
from headwater.storage.file import FileStore
from headwater.storage.port import Create, Overwrite, PutMode, Update
from headwater.storage.retrying import RetryingStore
from headwater.storage.root import Root

COUNTER = """
import sys
from pathlib import Path
from headwater.kernel.clock import SystemClock
from headwater.kernel.randomness import system_randomness
from headwater.storage.errors import PreconditionFailedError
from headwater.storage.file import FileStore
from headwater.storage.port import Update

store = FileStore(Path(sys.argv[1]), SystemClock(), system_randomness(), durable=False)
for _ in range(100):
    while True:
        seen = store.get("counter")
        try:
            store.put("counter", str(int(seen.data) + 1).encode(), Update(seen.meta.etag))
            break
        except PreconditionFailedError:
            pass
"""


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "store", SystemClock(), seeded(1))


@pytest.mark.hazard("S6")
def test_s6_of_many_processes_one_update_wins(store: FileStore) -> None:
    """Four processes count to 400 by compare-and-swap: one lost update, and the sum is short."""
    store.put("counter", b"0", Create())
    # Each dawdles between its look and its write, or who does not keep the others out would often get away with it.
    slow = {**os.environ, "HEADWATER_FAILPOINTS": f"{Failpoint.FILE_UPDATE_LOCKED}=delay:1"}
    processes = [subprocess.Popen([sys.executable, "-c", COUNTER, str(store.root)], env=slow) for _ in range(4)]
    assert [process.wait(timeout=120) for process in processes] == [0] * 4
    assert store.get("counter").data == b"400"


@pytest.mark.hazard("S6")
def test_s6_residue_is_neither_listed_nor_addressable(store: FileStore) -> None:
    store.put("a/b", b"1", Create())
    residue = store.root / "a" / ".hw-0123.tmp"
    residue.write_bytes(b"half")
    assert [meta.path for meta in store.list()] == ["a/b"]
    with pytest.raises(InvalidPathError, match="reserved"):
        store.get("a/.hw-0123.tmp")
    assert residue.exists()


@pytest.mark.hazard("S6")
def test_s6_etags_are_content_not_time(store: FileStore) -> None:
    """Two writes of the same length within one tick of the clock."""
    first = store.put("x", b"1", Create())
    second = store.put("x", b"2", Overwrite())
    when = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    os.utime(store.root / "x", (when, when))
    assert first != second
    with pytest.raises(PreconditionFailedError):
        store.put("x", b"3", Update(first))


@pytest.mark.hazard("S6")
def test_s6_a_folder_that_was_replaced_does_not_split_the_lock(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening the folder and locking it, somebody removes it and makes it anew."""
    store.put("d/x", b"1", Create())
    real = fcntl.flock
    locked: list[int] = []

    def swap_folder_then_lock(descriptor: int, operation: int) -> None:
        if not locked:
            (store.root / "d").rename(store.root / "old")
            (store.root / "d").mkdir()
            (store.root / "d" / "x").write_bytes(b"1")
        locked.append(os.fstat(descriptor).st_ino)
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", swap_folder_then_lock)
    store.delete("d/x")
    assert len(locked) == 2
    assert locked[-1] == (store.root / "d").stat().st_ino
    assert not store.exists("d/x")


def test_a_file_system_without_hard_links_is_refused(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.check_file_system()
    store.put("x", b"1", Create())
    store.check_file_system()

    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(MissingCapabilityError, match=r"file://.* no hard links"):
        store.check_file_system()
    assert [path.name for path in store.root.iterdir()] == ["x"]


def test_a_failed_write_leaves_nothing(store: FileStore) -> None:
    with arm(Failpoint.FILE_PUT_TEMPORARY_SYNCED, Action.ERROR), pytest.raises(FailpointError):
        store.put("a/b", b"1", Create())
    store.put("a/b", b"1", Create())
    with arm(Failpoint.FILE_UPDATE_LOCKED, Action.ERROR), pytest.raises(FailpointError):
        store.put("a/b", b"2", Overwrite())
    assert [path.name for path in (store.root / "a").iterdir()] == ["b"]
    assert store.get("a/b").data == b"1"


def test_a_loser_leaves_nothing(store: FileStore) -> None:
    store.put("a/b", b"1", Create())
    with pytest.raises(PreconditionFailedError):
        store.put("a/b", b"2", Create())
    with pytest.raises(PreconditionFailedError):
        store.put("a/b", b"2", Update("other"))
    assert [path.name for path in (store.root / "a").iterdir()] == ["b"]


def test_forbidden_is_not_absent(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(self: Path, **_: object) -> os.stat_result:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", deny)
    with pytest.raises(ForbiddenError, match="secret"):
        store.exists("secret")
    with pytest.raises(ForbiddenError):
        store.head("secret")


def test_an_object_where_a_folder_should_be(store: FileStore) -> None:
    store.put("a", b"1", Create())
    with pytest.raises(StorageError, match="a/b"):
        store.put("a/b", b"2", Create())
    store.put("d/x", b"1", Create())
    with pytest.raises(StorageError, match="folder"):
        store.put("d", b"2", Create())
    with pytest.raises(StorageError):
        store.put("d", b"2", Overwrite())
    assert store.get("a").data == b"1"


def test_a_name_too_long_for_the_file_system(store: FileStore) -> None:
    with pytest.raises(StorageError, match="too long"):
        store.put("x" * 300, b"1", Create())


def test_a_full_disk_is_an_error_that_leaves_nothing(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        store.put("x", b"1", Create())
    assert list(store.list()) == []
    assert [path for path in store.root.rglob("*") if path.is_file()] == []


def test_everything_is_synced_before_it_is_seen(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """File, then name, then the folders above: the order that survives a power cut."""
    steps: list[str] = []
    real_sync, real_link = os.fsync, os.link

    def sync(descriptor: int) -> None:
        synced = Path(f"/proc/self/fd/{descriptor}").readlink()
        steps.append("sync folder" if synced.is_dir() else "sync file")
        real_sync(descriptor)

    def link(source: Path, target: Path) -> None:
        steps.append("link")
        real_link(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "link", link)
    store.put("new/folder/x", b"1", Create())
    assert steps[-3:] == ["sync file", "link", "sync folder"]
    # The store's own folder and both new ones were made known to the folder above them first.
    assert steps[:-3] == ["sync folder"] * 3


def test_links_are_not_followed_out_of_the_store_or_in_circles(store: FileStore, tmp_path: Path) -> None:
    store.put("data/mine", b"1", Create())
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / "precious").write_text("keep")
    (store.root / "data" / "out").symlink_to(outside)
    (store.root / "data" / "self").symlink_to(store.root / "data")
    assert [meta.path for meta in store.list()] == ["data/mine"]
    assert store.delete_prefix("data") == 1
    assert (outside / "precious").exists()


def test_what_is_not_a_file_is_no_object_and_hangs_nobody(store: FileStore) -> None:
    store.put("x", b"1", Create())
    os.mkfifo(store.root / "pipe")
    (store.root / "dangling").symlink_to("nowhere")
    assert [meta.path for meta in store.list()] == ["x"]
    for name in ("pipe", "dangling"):
        assert store.exists(name) is False
        with pytest.raises(ObjectNotFoundError):
            store.get(name)
        with pytest.raises(StorageError, match="something that is not a file"):
            store.put(name, b"2", Create())


@pytest.mark.hazard("S11")
@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE])
def test_s11_an_error_after_the_object_is_there_is_an_unknown_outcome(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Others may build on it already: neither "failed" nor "try again" would be true."""
    store.put("x", b"1", Create())

    def fail(folder: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(store._folders, "sync", fail)
    with pytest.raises(StorageOutcomeUnknownError, match="may not be durable"):
        store.put("y", b"2", Create())
    with pytest.raises(StorageOutcomeUnknownError):
        store.put("x", b"3", Overwrite())
    assert store.get("y").data == b"2"
    assert store.get("x").data == b"3"


@pytest.mark.hazard("S11")
def test_s11_the_writer_finds_out_by_its_identity(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sequencer = Sequencer(store, Namespace("", "n", ".x"), clock=SystemClock(), randomness=seeded(1))
    entry = sequencer.write(b"1", after=None)
    real, broken = store._folders.sync, [True]

    def fail_once(folder: Path) -> None:
        if broken and folder.name == "n":
            broken.clear()
            raise OSError(errno.EMFILE, "Too many open files")
        real(folder)

    monkeypatch.setattr(store._folders, "sync", fail_once)
    assert sequencer.write(b"2", after=entry).id == 2
    assert not broken


def test_a_missing_store_is_not_written_to_at_open(tmp_path: Path) -> None:
    FileStore(tmp_path / "no" / "such", SystemClock(), seeded(1)).check_file_system()
    assert list(tmp_path.iterdir()) == []


def test_a_time_that_is_no_date_is_named() -> None:
    """Some file systems can store it."""
    with pytest.raises(StorageError, match="x has a modification time"):
        file._meta("x", os.stat_result((0o100644, 0, 0, 1, 0, 0, 0, 0, 300_000_000_000, 0)))


def test_a_prepared_file_is_a_temporary_one_until_it_has_its_name(store: FileStore) -> None:
    def files() -> list[Path]:
        return [each for each in store.root.rglob("*") if each.is_file()]

    prepared = store.prepare("a/b", b"1")
    assert [path.suffix for path in files()] == [".tmp"]
    prepared.create()
    assert files() == [store.root / "a" / "b"]
    store.prepare("a/c", b"1").discard()
    with pytest.raises(PreconditionFailedError):
        store.prepare("a/b", b"2").create()
    assert files() == [store.root / "a" / "b"]


@pytest.mark.parametrize("mode", [Create(), Overwrite()])
def test_a_volume_that_is_mounted_within_the_store_takes_objects(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, mode: PutMode
) -> None:
    """No file can be linked or renamed from one volume to another: its bytes go over, and its name is given there."""

    def within(real: Callable[..., None]) -> Callable[..., None]:
        def give(source: Path, target: Path) -> None:
            if source.parent != target.parent:
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            real(source, target)

        return give

    monkeypatch.setattr(os, "link", within(os.link))
    monkeypatch.setattr(os, "rename", within(os.rename))
    store.put("mounted/first", b"1", mode)
    is_folder: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda number: is_folder.append(stat.S_ISDIR(os.fstat(number).st_mode)))
    store.put("mounted/x", b"1", mode)
    assert store.get("mounted/x").data == b"1"
    assert sorted(each.name for each in store.root.rglob("*")) == ["first", "mounted", "x"]
    assert is_folder == [False, False, True]  # the copy, too, is synced before it has its name


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT])
def test_who_may_write_to_a_folder_of_the_store_alone_writes_there(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    store.put("mine/x", b"1", Create())
    real = os.open

    def refused(path: Path, flags: int, *more: int) -> int:
        if flags & os.O_CREAT and Path(path).parent == store.root:
            raise OSError(code, os.strerror(code))
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", refused)
    store.put("mine/x", b"2", Overwrite())
    store.put("mine/y", b"3", Create())
    assert [store.get(f"mine/{name}").data for name in "xy"] == [b"2", b"3"]
    with pytest.raises(StorageError if code in (errno.ENOSPC, errno.EDQUOT) else ForbiddenError):
        store.put("z", b"4", Create())


def differ_by_group(folder: Path, _: pytest.MonkeyPatch) -> None:
    folder.chmod(folder.stat().st_mode | stat.S_ISGID)


def differ_by_permissions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def attribute(path: Path, name: str) -> bytes:
        if Path(path) == folder and name == "system.posix_acl_default":
            return b"others than at home"
        raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))

    monkeypatch.setattr(os, "getxattr", attribute, raising=False)


def differ_by_volume(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.stat

    def other_device(path: Path, **more: bool) -> os.stat_result:
        status = list(real(path, **more))
        status[stat.ST_DEV] += path == folder
        return os.stat_result(status)

    monkeypatch.setattr(Path, "stat", other_device)


@pytest.mark.parametrize("differ", [differ_by_group, differ_by_permissions, differ_by_volume])
def test_a_file_is_made_where_it_gets_what_its_folder_gives(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, differ: Callable[[Path, pytest.MonkeyPatch], None]
) -> None:
    """Its group and permissions stay those of the folder that it was made in, whatever names it gets later."""
    store.put("shared/x", b"1", Create())
    store.put("alike/x", b"1", Create())
    differ(store.root / "shared", monkeypatch)
    for folder, made_in in [("shared", store.root / "shared"), ("alike", store.root)]:
        prepared = store.prepare(f"{folder}/y", b"2")
        assert [path.parent for path in store.root.rglob("*.tmp")] == [made_in]
        prepared.create()
        assert store.get(f"{folder}/y").data == b"2"


def test_without_extended_attributes_folders_are_alike(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "getxattr", raising=False)
    store.prepare("a/x", b"1")
    assert [path.parent for path in store.root.rglob("*.tmp")] == [store.root]


def test_a_folder_that_was_removed_while_it_was_empty_is_made_again(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = store.prepare("a/b/x", b"1")
    (store.root / "a" / "b").rmdir()
    (store.root / "a").rmdir()
    synced: list[Path] = []
    monkeypatch.setattr(store._folders, "sync", synced.append)
    prepared.create()
    assert synced == [store.root, store.root / "a"]
    assert store.get("a/b/x").data == b"1"


@pytest.mark.parametrize("when", ["before the lock", "in the lock"])
@pytest.mark.parametrize("mode", [Overwrite(), Update("etag")])
def test_a_folder_that_is_removed_under_a_replace(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, when: str, mode: PutMode
) -> None:
    """An overwrite finds its way; an update finds that its object is gone."""
    folder = store.root / "a"
    store.put("a/x", b"1", Create())
    store.delete("a/x")
    real, locked = fcntl.flock, list[int]()

    def lock(descriptor: int, operation: int) -> None:
        real(descriptor, operation)
        locked.append(os.fstat(descriptor).st_ino)

    def gone(*_: object) -> None:
        monkeypatch.undo()
        monkeypatch.setattr(fcntl, "flock", lock)
        folder.rmdir()

    if when == "before the lock":
        real_temporary = store._temporary

        def temporary(target: Path, data: bytes) -> Path:
            made = real_temporary(target, data)
            gone()
            return made

        monkeypatch.setattr(store, "_temporary", temporary)
    else:
        monkeypatch.setattr(store, "_compare", gone)
        monkeypatch.setattr(file, "clear_empty", gone)
    if isinstance(mode, Overwrite):
        store.put("a/x", b"2", mode)
        assert store.get("a/x").data == b"2"
    else:
        with pytest.raises(PreconditionFailedError):
            store.put("a/x", b"2", mode)
    assert locked == [folder.stat().st_ino]  # the new folder's lock, not that of the one that is gone
    assert list(store.root.rglob("*.tmp")) == []


def test_s11_a_prepared_file_that_cannot_be_made_durable_is_an_unknown_outcome(store: FileStore) -> None:
    prepared = store.prepare("a/b", b"1")
    prepared.create()
    with arm(Failpoint.FILE_PUT_LINKED, Action.ERROR), pytest.raises(StorageOutcomeUnknownError):
        prepared.settle()
    assert store.get("a/b").data == b"1"


def swapped(store: FileStore) -> Path:
    """The folder's volume is unmounted: its path leads to an empty mount point. Returns where the folder is now."""
    store.root.rename(store.root.with_name("elsewhere"))
    store.root.mkdir()
    return store.root.with_name("elsewhere")


def test_a_look_that_saw_no_folder_does_not_undo_one_that_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that begin together one looks before the folder is made, and goes on after the other has seen it."""
    root = Root(tmp_path / "store")

    def overtaken() -> None:
        monkeypatch.undo()
        root.folder.mkdir()
        root.look()

    monkeypatch.setattr(root, "_found", overtaken)
    root.look()
    known = root._identity
    assert known is not None
    root.require_same("x")


@pytest.mark.hazard("S6")
@pytest.mark.parametrize("first_use", ["put", "get", "list", "check"])
def test_s6_nothing_is_changed_where_another_folder_is_in_its_place(store: FileStore, first_use: str) -> None:
    FileStore(store.root, SystemClock(), seeded(2)).put("a/x", b"1", Create())
    {
        "put": lambda: store.put("a/y", b"1", Create()),
        "get": lambda: store.get("a/x"),
        "list": lambda: list(store.list()),
        "check": store.check_file_system,
    }[first_use]()
    prepared = store.prepare("a/p", b"1")
    elsewhere = swapped(store)
    changes: list[Callable[[], object]] = [
        lambda: store.put("a/x", b"2", Create()),
        lambda: store.put("a/x", b"2", Overwrite()),
        lambda: store.put("a/x", b"2", Update("etag")),
        lambda: store.prepare("a/x", b"2"),
        prepared.create,
        lambda: store.delete("a/x"),
        store.check_file_system,
    ]
    for change in changes:
        with pytest.raises(StoreReplacedError, match="is not the folder that was opened") as error:
            change()
        assert error.value.exit_code == 5
    assert list(store.root.iterdir()) == []
    store.root.rmdir()
    with pytest.raises(StoreReplacedError):
        store.put("a/x", b"2", Create())
    assert not store.root.exists()
    elsewhere.rename(store.root)  # it is mounted again
    store.put("a/z", b"2", Create())
    assert store.get("a/x").data == b"1"


def test_a_folder_that_is_not_there_yet_is_made_by_the_first_put(store: FileStore) -> None:
    assert not store.exists("a/x")
    store.put("a/x", b"1", Create())
    swapped(store)
    with pytest.raises(StoreReplacedError):
        store.put("a/y", b"1", Create())


def test_a_prepared_file_stays_while_its_link_may_be_tried_again(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    retrying = RetryingStore(store, Retry(RetryPolicy(attempts=3), ManualClock(), seeded(1)))
    prepared = retrying.prepare("a/x", b"1")
    real, tries = os.link, [errno.EINTR, errno.EAGAIN]

    def link(source: Path, target: Path) -> None:
        if tries:
            raise OSError(tries.pop(), "not now")
        real(source, target)

    monkeypatch.setattr(os, "link", link)
    prepared.create()
    prepared.settle()
    assert [path.name for path in (store.root / "a").iterdir()] == ["x"]


def test_a_prepared_file_stays_when_the_link_of_its_copy_may_be_tried_again(
    store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    retrying = RetryingStore(store, Retry(RetryPolicy(attempts=3), ManualClock(), seeded(1)))
    prepared = retrying.prepare("mounted/x", b"1")
    real, tries = os.link, [errno.EINTR, errno.EAGAIN]

    def link(source: Path, target: Path) -> None:
        if source.parent != target.parent:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        if tries:
            raise OSError(tries.pop(), "not now")
        real(source, target)

    monkeypatch.setattr(os, "link", link)
    prepared.create()
    assert [path.name for path in store.root.rglob("*") if path.is_file()] == ["x"]
    assert tries == []


@pytest.mark.hazard("S11")
@pytest.mark.parametrize("code", [errno.EEXIST, None])
def test_s11_a_write_that_cannot_be_made_durable_is_not_reported(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    """It is found, and it is ours, even where a network file system said that somebody else has linked it."""
    sequencer = Sequencer(store, Namespace("", "n", ".x"), clock=SystemClock(), randomness=seeded(1))
    entry, real = sequencer.write(b"1", after=None), os.link

    def link(source: Path, target: Path) -> None:
        real(source, target)
        if code is not None:
            raise FileExistsError(code, os.strerror(code))

    def fail(folder: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(store._folders, "sync", fail)
    with pytest.raises(SequenceOutcomeUnknownError, match="may not be durable") as error:
        sequencer.write(b"2", after=entry)
    with pytest.raises(StorageOutcomeUnknownError):
        sequencer.outcome(2, Ulid(error.value.operation))
    monkeypatch.undo()
    assert sequencer.outcome(2, Ulid(error.value.operation)) is True
