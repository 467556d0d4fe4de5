"""What can go wrong with an object, told apart by what the caller may conclude.

A put that was refused (`PreconditionFailedError`) had no effect. A put that ended in `TransientError`
had none either. After `StorageOutcomeUnknownError` nobody knows: look at the object before doing more.
"""

from __future__ import annotations

from headwater.kernel.errors import (
    ConflictError,
    HeadwaterError,
    OutcomeUnknownError,
    RefusedError,
    UnavailableError,
    UsageError,
)


class StorageError(HeadwaterError):
    """A store answered something that is none of the kinds below."""


class ObjectNotFoundError(StorageError):
    """There is no object at this path."""

    def __init__(self, store: str, path: str) -> None:
        super().__init__(f"{store}: no object {path}", store=store, path=path)


class ForbiddenError(StorageError):
    """The store refused our credentials for this path; whether the object exists is not known."""

    def __init__(self, store: str, path: str, detail: str = "") -> None:
        super().__init__(
            f"{store}: access to {path or 'the store'} is forbidden{': ' + detail if detail else ''}",
            hint="check credentials and permissions",
            store=store,
            path=path,
        )


class PreconditionFailedError(ConflictError):
    """A conditional operation found another state than it expected, and changed nothing."""

    def __init__(self, store: str, path: str, expected: str) -> None:
        super().__init__(f"{store}: {path} is not {expected}", store=store, path=path, expected=expected)


class TransientError(UnavailableError):
    """The store did not do it this time; nothing was changed, and a later try may succeed."""

    def __init__(self, store: str, path: str, detail: str) -> None:
        super().__init__(f"{store}: {path or 'the store'} is unavailable: {detail}", store=store, path=path)


class StoreReplacedError(UnavailableError):
    """The folder of the store is gone, or another one is in its place; nothing was changed."""

    def __init__(self, store: str, path: str) -> None:
        super().__init__(
            f"{store} is not the folder that was opened, it is gone or replaced; {path or 'it'} was not changed",
            hint="mount its volume again; a folder that was replaced on purpose has to be opened anew",
            store=store,
            path=path,
        )


class StorageOutcomeUnknownError(OutcomeUnknownError):
    """The answer to a change was lost: it may have happened, may not have, or may still happen."""

    def __init__(self, store: str, path: str, detail: str) -> None:
        super().__init__(
            f"{store}: whether {path} was changed is not known: {detail}", operation=path, store=store, path=path
        )


class MissingCapabilityError(RefusedError):
    """The store cannot do what the caller's safety depends on."""


class ReadOnlyError(RefusedError):
    """A change was asked of a store that was opened for reading."""


class InvalidPathError(UsageError):
    """The path could not be an object's name, or leads out of where it must stay."""


class InvalidUrlError(UsageError):
    """The URL does not name a store."""
