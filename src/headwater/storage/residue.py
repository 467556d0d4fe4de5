"""What killed puts leave in a folder: temporary files that nobody can list or address (hazard S6).

A put needs its temporary file for moments. One that is older than the longest stall that is allowed for belongs to
nobody; if its writer should wake up after all, its put fails, and says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from headwater.kernel.logs import Log
from headwater.storage.confined import ConfinedStore
from headwater.storage.file import FileStore
from headwater.storage.paths import RESERVED_PREFIX
from headwater.storage.port import ObjectMeta, ObjectStore
from headwater.storage.wrapper import StoreWrapper

_SUFFIX = ".tmp"

_log = Log("storage")


def clear_residue(store: ObjectStore, before: datetime, *, dry_run: bool = False) -> tuple[ObjectMeta, ...]:
    """Remove what was left before this moment, where the store is a folder; returns what that is."""
    folder = _folder(store)
    if folder is None:
        return ()
    left = tuple(meta for meta in _residue(folder) if meta.last_modified < before)
    return left if dry_run else tuple(meta for meta in left if _is_removed(folder / meta.path))


def _is_removed(file: Path) -> bool:
    try:
        file.unlink(missing_ok=True)
    except OSError as error:  # somebody else's; it disturbs nobody
        _log.warning("what a killed put left cannot be removed", path=str(file), error=str(error))
        return False
    return True


def _folder(store: ObjectStore) -> Path | None:
    while isinstance(store, StoreWrapper):
        if isinstance(store, ConfinedStore):
            return None  # a part of a store that others use too
        store = store.inner
    return store.root if isinstance(store, FileStore) else None


def _residue(folder: Path) -> Iterator[ObjectMeta]:
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            if name.startswith(RESERVED_PREFIX) and name.endswith(_SUFFIX):
                file = Path(parent) / name
                with suppress(FileNotFoundError):  # its put has ended meanwhile
                    status = file.stat()
                    when = datetime.fromtimestamp(status.st_mtime, UTC)
                    yield ObjectMeta(str(file.relative_to(folder)), status.st_size, when)
