"""Moving files through the storage port: into folders, where no other program is needed.

Each file is held in memory while it is moved, and of large ones only one at a time. It appears whole and synced, or
not at all, and only where nothing was.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

from headwater.kernel.errors import HeadwaterError
from headwater.storage.errors import ObjectNotFoundError, PreconditionFailedError
from headwater.storage.port import Create, ObjectStore, Overwrite
from headwater.sync.copy.decide import merged
from headwater.sync.copy.model import Leg, Locator, Moved, Progress

_LARGE_BYTES = 64 * 1024 * 1024


class StoreMover:
    """Gets, and puts where nothing is."""

    def __init__(self, files: Locator, *, workers: int = 4) -> None:
        self._files = files
        self._workers = workers
        self._large = threading.Lock()

    def move(self, leg: Leg, progress: Progress, *, replace: bool = False) -> Moved:
        """Copy a leg, some files at a time."""
        parts: list[Moved] = []
        transferred_bytes = 0
        with ThreadPoolExecutor(self._workers, thread_name_prefix="copy") as pool:
            for part in pool.map(lambda each: self._move(leg, each[0], each[1].size_bytes, replace=replace), leg.items):
                parts.append(part)
                transferred_bytes += part.transferred_bytes
                progress(transferred_bytes)
        return merged(parts)

    def _move(self, leg: Leg, name: str, expected_bytes: int, *, replace: bool) -> Moved:
        try:
            source, path = self._files.place(_under(leg.source_root, name))
            target, target_path = self._files.place(_under(leg.destination_root, name))
            size_bytes = source.head(path).size_bytes
            if size_bytes != expected_bytes:  # what is copied would stand in the way of what is meant
                return Moved(failed={name: f"the source has {size_bytes} bytes, and {expected_bytes} by its metadata"})
            if not replace:
                found = _length(target, target_path)
                if found is not None:
                    return _judged(name, size_bytes, found)
            with self._large if size_bytes > _LARGE_BYTES else nullcontext():
                data = source.get(path).data
                target.put(target_path, data, Overwrite() if replace else Create())
        except PreconditionFailedError:  # somebody was faster
            return _judged(name, size_bytes, _length(target, target_path))
        except ObjectNotFoundError:
            return Moved()
        except HeadwaterError as error:
            return Moved(failed={name: str(error)})
        return Moved(copied=frozenset({name}), transferred_bytes=len(data))


def _under(root: str, name: str) -> str:
    return f"{root}/{name}" if name else root


def _length(store: ObjectStore, path: str) -> int | None:
    try:
        return store.head(path).size_bytes
    except ObjectNotFoundError:
        return None


def _judged(name: str, size_bytes: int, found_bytes: int | None) -> Moved:
    if found_bytes == size_bytes:
        return Moved(present=frozenset({name}))
    return Moved(failed={name: f"the destination has {found_bytes} bytes, the source {size_bytes}"})
