"""Outputs as objects: listed, then looked for, then created where nothing is."""

from __future__ import annotations

from headwater.kernel.errors import UnavailableError
from headwater.storage.errors import ObjectNotFoundError, PreconditionFailedError, StorageOutcomeUnknownError
from headwater.storage.port import Create
from headwater.sync.localise.model import Place


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
