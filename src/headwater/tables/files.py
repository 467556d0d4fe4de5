"""Files by location, as table metadata names them: whole URIs, taken literally, under allowed prefixes only.

Iceberg locations are not percent-encoded: Spark and PyIceberg take them as they stand, and so do we.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Protocol

from headwater.storage.errors import InvalidPathError, ObjectNotFoundError
from headwater.storage.paths import check_path
from headwater.storage.port import Create, ObjectStore
from headwater.tables.model import NewFile, OutsideLakeError, TableCorruptError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(/{1,3})")
_SAME = {"s3a": "s3", "s3n": "s3"}


class FileReader(Protocol):
    """Reads files by location."""

    def read(self, location: str, *, span: tuple[int, int] | None = None) -> bytes:
        """The bytes, or those in [start, end); `TableCorruptError` when the file is missing."""
        ...


def normalise(location: str) -> str:
    """One spelling for all of `/x`, `file:/x` and `file:///x`, and for `s3a` and `s3n`."""
    found = _SCHEME.match(location)
    if not found:
        return f"file://{location}" if location.startswith("/") else location
    scheme = _SAME.get(found[1].lower(), found[1].lower())
    rest = location[found.end() :]
    return f"file:///{rest}" if scheme == "file" else f"{scheme}://{rest}"


class Files:
    """Files under a few prefixes, each with its store; the longest prefix that fits wins."""

    def __init__(self, stores: Mapping[str, ObjectStore]) -> None:
        self._stores = {normalise(prefix).rstrip("/"): store for prefix, store in stores.items()}
        self._longest_first = sorted(self._stores, key=len, reverse=True)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Where files may be."""
        return tuple(sorted(self._stores))

    def place(self, location: str) -> tuple[ObjectStore, str]:
        """The store that holds this location, and the path in it; refused outside of every prefix."""
        wanted = normalise(location)
        for prefix in self._longest_first:
            if wanted.startswith(prefix + "/"):
                path = wanted[len(prefix) + 1 :]
                try:
                    return self._stores[prefix], check_path(path)
                except InvalidPathError:
                    break
        raise OutsideLakeError(location, self.prefixes)

    def read(self, location: str, *, span: tuple[int, int] | None = None) -> bytes:
        """The bytes, or those in [start, end)."""
        store, path = self.place(location)
        try:
            return store.get(path, span=span).data
        except ObjectNotFoundError:
            raise TableCorruptError(location, "is missing, though the table's metadata needs it") from None

    def write(self, files: Iterable[NewFile]) -> None:
        """Store new files; their names are unique, so nothing may be there."""
        for each in files:
            store, path = self.place(each.location)
            store.put(path, each.data, Create())
