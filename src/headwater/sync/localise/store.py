"""Outputs as objects: listed, then looked for, then created where nothing is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headwater.kernel.errors import UnavailableError
from headwater.storage.errors import ObjectNotFoundError, PreconditionFailedError, StorageOutcomeUnknownError
from headwater.storage.port import Create
from headwater.sync.localise.model import Place

_T = TypeVar("_T")
_R = TypeVar("_R")

# Most of the time goes into waiting for stores, and into code that lets other threads run.
_WORKERS = 8


def side_by_side(do: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
    """The results in order. After an error no more is begun."""
    with ThreadPoolExecutor(_WORKERS, thread_name_prefix="localise") as pool:
        yield from pool.map(do, items)


def length_of(place: Place, location: str) -> int | None:
    """How long an output is; None when it is not there."""
    store, path = place.files.place(location)
    try:
        return store.head(path).size_bytes
    except ObjectNotFoundError:
        return None


def create(place: Place, location: str, data: bytes) -> tuple[int, bool]:
    """How long the output is that is there now, and whether it is ours.

    If somebody else was faster, theirs stands. It was made from the same, but maybe packed by another library.
    """
    store, path = place.files.place(location)
    try:
        store.put(path, data, Create())
    except PreconditionFailedError:
        return store.head(path).size_bytes, False
    except StorageOutcomeUnknownError as error:
        # Nothing refers to it yet, and the next run finds it by its name.
        raise UnavailableError(f"nothing was changed: {error.message}", hint="try again", path=location) from error
    return len(data), True
