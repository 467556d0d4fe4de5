"""Files by location, as table metadata names them: whole URIs, taken literally, under allowed prefixes only.

Iceberg locations are not percent-encoded: Spark and PyIceberg take them as they stand, and so do we. Slashes in a row
count as one for reading, as they do in a folder: engines write them when a table's location ends in a slash.

A folder may hold symbolic links, by which a location under a prefix would lead to any file of the machine. They are
followed only as far as they stay under the prefix.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from headwater.kernel.errors import UnavailableError, UsageError
from headwater.storage.errors import InvalidPathError, ObjectNotFoundError, StorageOutcomeUnknownError
from headwater.storage.paths import check_path
from headwater.storage.port import Create, ObjectStore
from headwater.tables.model import NewFile, OutsideLakeError, TableCorruptError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(/{1,3})")
_SAME = {"s3a": "s3", "s3n": "s3"}
_SLASHES = re.compile("/{2,}")
_FILE = "file://"


class FileReader(Protocol):
    """Reads files by location."""

    def read(self, location: str, *, span: tuple[int, int] | None = None) -> bytes:
        """The bytes, or those in [start, end); `TableCorruptError` when the file is missing."""
        ...


def normalise(location: str) -> str:
    """One spelling for `/x`, `//x`, `file:/x` and `file:///x`, and for `s3`, `s3a` and `s3n`."""
    found = _SCHEME.match(location)
    if not found:
        return _FILE + _SLASHES.sub("/", location) if location.startswith("/") else location
    scheme = _SAME.get(found[1].lower(), found[1].lower())
    rest = location[found.end() :]
    return f"{_FILE}/{_SLASHES.sub('/', rest).lstrip('/')}" if scheme == "file" else f"{scheme}://{rest}"


class Files:
    """Files under a few prefixes, each with its store; the longest prefix that fits wins.

    `workers` is how many files are stored side by side. `more` tells of further prefixes, and is asked once, when a
    location fits none of those that are known: most lakes lie in one place, and need not look for others.
    """

    def __init__(
        self,
        stores: Mapping[str, ObjectStore],
        *,
        workers: int = 1,
        more: Callable[[], Mapping[str, ObjectStore]] | None = None,
    ) -> None:
        self._workers = workers
        self._more = more
        self._know(stores)

    def _know(self, stores: Mapping[str, ObjectStore]) -> None:
        self._stores = {normalise(prefix).rstrip("/"): store for prefix, store in stores.items()}
        self._longest_first = sorted(self._stores, key=len, reverse=True)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Where files may be."""
        return tuple(sorted(self._stores))

    def place(self, location: str) -> tuple[ObjectStore, str]:
        """The store that holds this location, and the path in it; refused outside of every prefix."""
        wanted = normalise(location)
        if self._more is not None and not any(wanted.startswith(prefix + "/") for prefix in self._longest_first):
            self._know({**self._more(), **self._stores})
            self._more = None
        for prefix in self._longest_first:
            if wanted.startswith(prefix + "/"):
                path = _SLASHES.sub("/", wanted[len(prefix) + 1 :])
                try:
                    check_path(path)
                except InvalidPathError:
                    break
                if prefix.startswith(_FILE) and _leads_out(prefix.removeprefix(_FILE), path):
                    break
                return self._stores[prefix], path
        raise OutsideLakeError(location, self.prefixes)

    def read(self, location: str, *, span: tuple[int, int] | None = None) -> bytes:
        """The bytes, or those in [start, end)."""
        store, path = self.place(location)
        try:
            return store.get(path, span=span).data
        except ObjectNotFoundError:
            raise TableCorruptError(location, "is missing, though the table's metadata needs it") from None
        except (UsageError, OverflowError, MemoryError) as error:
            if span is None:
                raise
            raise TableCorruptError(location, f"has no bytes {span[0]} to {span[1]}") from error

    def write(self, files: Iterable[NewFile]) -> None:
        """Store new files; their names are unique, so nothing may be there.

        They are stored side by side: nothing refers to any of them yet. When one fails the others are excess.
        """

        def store_one(placed: tuple[ObjectStore, str, bytes]) -> None:
            store, path, data = placed
            try:
                store.put(path, data, Create())
            except StorageOutcomeUnknownError as error:
                # Nothing refers to it, so nothing was changed, whether or not it is there.
                raise UnavailableError(f"nothing was changed: {error.message}", hint="try again", path=path) from error

        everything = [(*self._place_new(each.location), each.data) for each in files]
        if len(everything) < 2 or self._workers < 2:
            for each in everything:
                store_one(each)
            return
        with ThreadPoolExecutor(min(self._workers, len(everything)), thread_name_prefix="files") as pool:
            list(pool.map(store_one, everything))

    def _place_new(self, location: str) -> tuple[ObjectStore, str]:
        store, path = self.place(location)
        if not normalise(location).endswith(f"/{path}"):
            # In a bucket, others would look for the name with all its slashes, and not find it.
            raise OutsideLakeError(location, self.prefixes)
        return store, path


def _leads_out(folder: str, path: str) -> bool:
    """Whether a symbolic link on the way to the file leads out of the folder; without links, nothing is resolved."""
    at = folder
    for segment in path.split("/"):
        at = f"{at}/{segment}"
        if os.path.islink(at):  # noqa: PTH114  (a thousand times a scan)
            inside = os.path.realpath(folder).rstrip("/") + "/"
            return not os.path.realpath(f"{folder}/{path}").startswith(inside)
    return False
