"""Folders that survive a crash and keep processes apart: what the file backend is made of.

A temporary file is written and synced before anybody can see it under another name; a new folder is made known to
the one above it. Temporary files are in one folder, and move to where they belong by getting their names: a file
system looks for room for a new file near its folder, and ext4 takes long to find it where files were deleted lately.
A file keeps the group and the permissions that it was made with: for a folder that gives others, or is on another
volume, it is made in that folder itself.

The lock is `flock` on the folder itself: it dies with its holder, there is no lock file that somebody could delete, and
after taking it the holder makes sure that the folder it locked is still the one at that path.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headwater.kernel.clock import Clock
from headwater.kernel.randomness import Randomness
from headwater.storage.errors import TransientError
from headwater.storage.paths import RESERVED_PREFIX

LOCK_TIMEOUT_SECONDS = 10.0
_NO_ROOM_AT_HOME = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT})


class Folders:
    """Writing into `home` and the folders in it; with `durable=False` nothing is synced."""

    def __init__(self, home: Path, clock: Clock, randomness: Randomness, *, durable: bool) -> None:
        self._home = home
        self._clock = clock
        self._randomness = randomness
        self._durable = durable

    def write_temporary(self, folder: Path, data: bytes) -> Path:
        """A synced file that nobody can list or address; the folder that it is for is made if it is missing."""
        try:
            status = folder.stat()
        except FileNotFoundError:
            self._make(folder)
            status = folder.stat()
        if folder != self._home and self._is_like_home(folder, status):
            try:
                return self._write(self._home, data)
            except OSError as error:  # whoever may write to the folder alone writes there
                if error.errno not in _NO_ROOM_AT_HOME:
                    raise
        return self._write(folder, data)

    def in_folder(self, folder: Path, temporary: Path, step: Callable[[], None]) -> None:
        """Take a step that needs the folder; if somebody removed it while it was empty, make it and take it again."""
        try:
            step()
        except FileNotFoundError:
            if not temporary.exists():
                raise
            if not folder.exists():  # or another has made it meanwhile
                self._make(folder)
            step()

    def give_name(self, temporary: Path, target: Path, give: Callable[[Path, Path], None]) -> None:
        """Give the file its name, by a link or a rename; by way of a copy where another volume is mounted between."""
        try:
            give(temporary, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            copied = self._write(target.parent, temporary.read_bytes())
            try:
                give(copied, target)
            finally:
                with suppress(OSError):
                    copied.unlink()
            with suppress(OSError):  # not before: without a name, it may be tried again
                temporary.unlink()

    def _is_like_home(self, folder: Path, status: os.stat_result) -> bool:
        """Whether a file made at home is what it would be if it were made in the folder."""
        same = _volume_and_group(status) == _volume_and_group(self._home.stat())
        return same and _default_permissions(folder) == _default_permissions(self._home)

    def _write(self, folder: Path, data: bytes) -> Path:
        temporary = folder / f"{RESERVED_PREFIX}{self._randomness.randbytes(12).hex()}.tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(descriptor, left) :]
                if self._durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        return temporary

    def _make(self, folder: Path) -> None:
        """Make the folder and sync the folder above each new one, or a crash could lose the whole branch."""
        missing = [folder]
        while not missing[-1].parent.exists():
            missing.append(missing[-1].parent)
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            self.sync(each.parent)

    def sync(self, folder: Path) -> None:
        """Make the names in a folder durable."""
        if self._durable:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    @contextmanager
    def locked(self, folder: Path) -> Iterator[None]:
        """Hold the folder's lock."""
        descriptor = self._lock(folder)
        try:
            yield
        finally:
            os.close(descriptor)

    def _lock(self, folder: Path) -> int:
        """The locked folder's descriptor. A holder that is stopped must not hang everybody: waiting has an end."""
        deadline = self._clock.monotonic() + LOCK_TIMEOUT_SECONDS
        while True:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), folder.stat()):
                    return descriptor
            except BlockingIOError:
                if self._clock.monotonic() > deadline:
                    os.close(descriptor)
                    raise TransientError(folder.as_uri(), "", "another process holds its lock") from None
                self._clock.sleep(0.002)
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)


def _volume_and_group(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_dev, status.st_gid, status.st_mode & stat.S_ISGID


def _default_permissions(folder: Path) -> bytes | None:
    """The access control list that new files in the folder get; None where there is none, or no such thing."""
    if not hasattr(os, "getxattr"):
        return None
    try:
        return os.getxattr(folder, "system.posix_acl_default")
    except OSError:
        return None


def clear_empty(folder: Path) -> None:
    """Remove the folders that objects which are gone have left at this path; what is not empty stays."""
    if folder.is_dir() and not folder.is_symlink():
        with suppress(OSError):
            for parent, _, _ in os.walk(folder, topdown=False):
                Path(parent).rmdir()
