"""What the indexes refuse, and how a failing backend arrives."""

from __future__ import annotations

from headwater.kernel.errors import ConflictError, RefusedError, UnavailableError, UsageError


class IndexBackendError(UnavailableError):
    """BACKEND_ERROR: the store under an index failed. Nothing of the call landed; the same call may be made again."""


class DuplicateKeysError(UsageError):
    """One call names a key twice, and could not say which of the two is to stand."""


class IndexOrderError(RefusedError):
    """The index holds a newer version of a key than the call would write: within a key time never goes back."""


class IndexMovedError(ConflictError):
    """The index no longer holds what the caller resolved: somebody else wrote the key since."""


class RangeOverlapError(RefusedError):
    """Row ids that already have a place were given another one."""
