"""The folder of a store, and that it stays the same.

A path may lead to another folder from one moment to the next: its volume is unmounted, and what is written then goes
into the empty mount point, and is lost. So the folder is known by its device and inode from its first use on, and
nothing is changed where another one is in its place.
"""

from __future__ import annotations

from pathlib import Path

from headwater.storage.errors import StoreReplacedError


class Root:
    """One folder. Safe to share among threads: whoever looks first sees the same."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._identity: tuple[int, int] | None = None

    def look(self) -> None:
        """See which folder it is, if that is not known yet."""
        if self._identity is None and (found := self._found()) is not None:  # who saw nothing forgets nothing
            self._identity = found

    def require_same(self, path: str) -> None:
        """Refuse to change the object in what is not the folder that was first seen here."""
        known = self._identity
        if known is not None and self._found() != known:
            raise StoreReplacedError(self.folder.as_uri(), path)

    def _found(self) -> tuple[int, int] | None:
        try:
            status = self.folder.stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino
