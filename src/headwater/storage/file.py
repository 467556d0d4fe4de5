"""Objects as files in a folder, crash-safe, with a true compare-and-swap among processes (hazard S6).

    create    temporary file, fsync, link (fails if the name is taken), fsync of the folder; also step by step
    replace   lock, compare, temporary file, fsync, rename, fsync of the folder
    delete    lock, compare, unlink

Creates need no lock, because `link` is atomic and nothing is ever created by rename where nothing was,
except by an overwrite, whose rename and a link at the same name have an order all the same.

Only regular files are objects. Symbolic links within the store are not followed by lists and deletes of prefixes.

An etag is the SHA-256 of the content, so two writes within one tick of the clock never look alike.

A crash leaves at most a temporary file, which nobody can list or address. A power cut may take the names that were not
synced; of those of one folder the later go first, as journalling file systems keep it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from headwater.kernel.clock import Clock
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.randomness import Randomness
from headwater.storage.errors import (
    ForbiddenError,
    MissingCapabilityError,
    ObjectNotFoundError,
    PreconditionFailedError,
    StorageError,
    StorageOutcomeUnknownError,
    TransientError,
)
from headwater.storage.folders import Folders, clear_empty
from headwater.storage.paths import RESERVED_PREFIX, check_path, check_prefix
from headwater.storage.port import Capability, Create, Fetched, ObjectMeta, Overwrite, Prepared, PutMode, Update
from headwater.storage.root import Root
from headwater.storage.spans import check_span, deletable_prefix, past_the_end


class FileStore:
    """A folder as an object store. `durable=False` skips fsync, for tests that do not pull the plug."""

    capabilities = frozenset(
        {Capability.CREATE, Capability.UPDATE, Capability.CONDITIONAL_GET, Capability.CONDITIONAL_DELETE}
    )

    def __init__(self, root: Path, clock: Clock, randomness: Randomness, *, durable: bool = True) -> None:
        self._root = Root(root)
        self.root = self._root.folder
        self.name = self.root.as_uri()
        self._folders = Folders(self.root, clock, randomness, durable=durable)

    def check_file_system(self) -> None:
        """Refuse a file system without hard links or folder locks, before anything is written to it."""
        with self._translated(""):
            folder = self.root
            if not folder.exists():
                return  # whoever makes it will find out; a mistyped path must not be written to
            self._root.require_same("")
            temporary = self._folders.write_temporary(folder, b"")
            linked = temporary.with_suffix(".link")
            try:
                os.link(temporary, linked)
                with self._folders.locked(folder):
                    pass
            except OSError as error:
                raise MissingCapabilityError(
                    f"{self.name}: the file system has no hard links or no locks: {error.strerror}",
                    hint="use a local file system",
                    store=self.name,
                ) from error
            finally:
                temporary.unlink()
                linked.unlink(missing_ok=True)

    def get(self, path: str, *, span: tuple[int, int] | None = None) -> Fetched:
        """The object, or a range of it."""
        if span is not None:
            check_span(span, path)
        with self._translated(path), self._open(path) as file:
            status = os.fstat(file.fileno())
            if span is not None:
                if span[0] >= status.st_size:
                    raise past_the_end(span, path)
                file.seek(span[0])
                return Fetched(file.read(span[1] - span[0]), _meta(path, status))
            data = file.read()
        return Fetched(data, _meta(path, status, _etag(data)))

    def get_if_changed(self, path: str, etag: str) -> Fetched | None:
        """The object unless it has this etag."""
        fetched = self.get(path)
        return None if fetched.meta.etag == etag else fetched

    def head(self, path: str) -> ObjectMeta:
        """What the file system knows of the object."""
        with self._translated(path):
            status = self._file(path).stat()
        if not stat.S_ISREG(status.st_mode):
            raise ObjectNotFoundError(self.name, path)
        return _meta(path, status)

    def exists(self, path: str) -> bool:
        """Whether it is there."""
        try:
            self.head(path)
        except ObjectNotFoundError:
            return False
        return True

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        """Store under the condition."""
        if tags:
            raise MissingCapabilityError(f"{self.name} has no object-tags", store=self.name, path=path)
        target = self._file(path)
        with self._translated(path, writing=True):
            self._root.require_same(path)
            if isinstance(mode, Create):
                temporary = self._temporary(target, data)
                try:
                    self._link(path, target, temporary)
                finally:
                    _remove(temporary)
                self._settle(path, target)
            else:
                self._replace(path, target, data, mode)
        return _etag(data)

    def prepare(self, path: str, data: bytes) -> Prepared:
        """A temporary file, synced."""
        target = self._file(path)
        with self._translated(path, writing=True):
            self._root.require_same(path)
            return _PreparedFile(self, path, target, self._temporary(target, data))

    def settle(self, path: str) -> None:
        """Sync its folder."""
        target = self._file(path)
        with self._done(path):
            self._folders.sync(target.parent)

    def delete(self, path: str, *, if_match: str | None = None) -> None:
        """Remove, or leave what is not there. Not synced: a delete that a power cut undoes leaves only excess."""
        target = self._file(path)
        with self._translated(path):
            self._root.require_same(path)
            try:
                with self._folders.locked(target.parent):
                    if if_match is not None:
                        self._compare(path, target, if_match)
                    target.unlink()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                if if_match is not None:
                    raise PreconditionFailedError(self.name, path, f"at etag {if_match}") from None

    def delete_prefix(self, prefix: str) -> int:
        """Remove every object of a folder; the folders stay, so that their locks cannot split."""
        count = 0
        for meta in self.list(deletable_prefix(prefix)):
            self.delete(meta.path)
            count += 1
        return count

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        """Walk the folder in the order of keys; what vanishes meanwhile is left out."""
        prefix = check_prefix(prefix)
        self._root.look()
        folder = self.root / prefix if prefix else self.root
        with self._translated(prefix):
            yield from _walk(folder, f"{prefix}/" if prefix else "", start_after)

    def copy(self, source: str, target: str) -> None:
        """Copy the bytes."""
        self.put(target, self.get(source).data, Overwrite())

    def _file(self, path: str) -> Path:
        self._root.look()
        return self.root / check_path(path)

    def _temporary(self, target: Path, data: bytes) -> Path:
        temporary = self._folders.write_temporary(target.parent, data)
        self._root.look()  # it may have made the folder
        return temporary

    def _open(self, path: str) -> BinaryIO:
        """The object's file. Whatever else may lie there (a folder, a pipe that would block) is not an object."""
        file = open(self._file(path), "rb", opener=_without_blocking)  # noqa: SIM115 (the caller closes it)
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise ObjectNotFoundError(self.name, path)
        return file

    def _link(self, path: str, target: Path, temporary: Path) -> None:
        def link() -> None:
            hit(Failpoint.FILE_PUT_TEMPORARY_SYNCED)
            clear_empty(target)
            self._folders.give_name(temporary, target, os.link)

        try:
            self._folders.in_folder(target.parent, temporary, link)
        except FileExistsError:
            raise self._taken(path, target) from None

    def _settle(self, path: str, target: Path) -> None:
        with self._done(path):
            hit(Failpoint.FILE_PUT_LINKED)
            self._folders.sync(target.parent)

    def _replace(self, path: str, target: Path, data: bytes, mode: Update | Overwrite) -> None:
        if isinstance(mode, Update) and not target.parent.is_dir():
            raise PreconditionFailedError(self.name, path, f"at etag {mode.etag}")
        temporary = self._temporary(target, data)

        def rename() -> None:  # a folder that was made again is another one to lock and to compare in
            with self._folders.locked(target.parent):
                if isinstance(mode, Update):
                    self._compare(path, target, mode.etag)
                hit(Failpoint.FILE_UPDATE_LOCKED)
                clear_empty(target)
                self._folders.give_name(temporary, target, os.rename)
                with self._done(path):
                    hit(Failpoint.FILE_UPDATE_RENAMED)
                    self._folders.sync(target.parent)

        try:
            self._folders.in_folder(target.parent, temporary, rename)
        except BaseException:
            _remove(temporary)
            raise

    @contextmanager
    def _done(self, path: str) -> Iterator[None]:
        """Others see the object now. Whatever goes wrong from here on, nobody may conclude that it is not there."""
        try:
            yield
        except Exception as error:
            raise StorageOutcomeUnknownError(self.name, path, f"it may not be durable: {error}") from error

    def _taken(self, path: str, target: Path) -> HeadwaterError:
        if target.is_file() and not target.is_symlink():
            return PreconditionFailedError(self.name, path, "absent")
        what = "a folder of other objects" if target.is_dir() else "something that is not a file"
        return StorageError(f"{self.name}: {path} is {what}", store=self.name, path=path)

    def _compare(self, path: str, target: Path, etag: str) -> None:
        try:
            present = _etag(target.read_bytes())
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            present = None
        if present != etag:
            raise PreconditionFailedError(self.name, path, f"at etag {etag}")

    @contextmanager
    def _translated(self, path: str, *, writing: bool = False) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            raise ForbiddenError(self.name, path, error.strerror or "") from error
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            if not writing:
                raise ObjectNotFoundError(self.name, path) from None
            self._root.require_same(path)
            raise StorageError(
                f"{self.name}: {path} cannot be written: an object or a folder is in its way",
                store=self.name,
                path=path,
            ) from error
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EINTR, errno.EMFILE, errno.ENFILE):
                raise TransientError(self.name, path, error.strerror or "") from error
            if error.errno == errno.EROFS:
                raise ForbiddenError(self.name, path, error.strerror or "") from error
            raise StorageError(
                f"{self.name}: {path or 'the folder'}: {error.strerror}", store=self.name, path=path
            ) from error


@dataclass(frozen=True)
class _PreparedFile:
    """A synced temporary file that is to be linked."""

    store: FileStore
    path: str
    target: Path
    temporary: Path

    def create(self) -> None:
        try:
            with self.store._translated(self.path, writing=True):
                self.store._link(self.path, self.target, self.temporary)
        except TransientError:
            raise  # nothing happened, and it may be tried again
        except BaseException:
            self.discard()
            raise
        self.discard()

    def settle(self) -> None:
        self.store._settle(self.path, self.target)

    def discard(self) -> None:
        _remove(self.temporary)


def _without_blocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _remove(temporary: Path) -> None:
    with suppress(OSError):
        temporary.unlink()


def _etag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _meta(path: str, status: os.stat_result, etag: str | None = None) -> ObjectMeta:
    try:
        modified = datetime.fromtimestamp(status.st_mtime, UTC)
    except (ValueError, OverflowError):
        raise StorageError(f"{path} has a modification time that is no date", path=path) from None
    return ObjectMeta(path, status.st_size, modified, etag)


def _walk(folder: Path, prefix: str, start_after: str | None) -> Iterator[ObjectMeta]:
    try:
        # Links are not followed: they could lead out of the store, or in circles.
        entries = [
            (entry.name + ("/" if entry.is_dir(follow_symlinks=False) else ""), entry)
            for entry in os.scandir(folder)
            if not entry.is_symlink()
        ]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name, entry in sorted(entries, key=lambda pair: pair[0]):
        key = prefix + name
        if entry.name.startswith(RESERVED_PREFIX):
            continue
        if name.endswith("/"):
            if start_after is None or key > start_after or start_after.startswith(key):
                yield from _walk(folder / entry.name, key, start_after)
        elif (start_after is None or key > start_after) and entry.is_file():
            with suppress(FileNotFoundError):
                yield _meta(key, entry.stat())
