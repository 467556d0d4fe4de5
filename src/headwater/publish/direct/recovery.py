"""Where there are no notes of intent, there is nothing to recover; only an outcome that is unknown may be settled (P3).

A commit whose answer was lost is on its way to the server, or at it, or in the log. Its writer has returned, so it will
not be sent again. A Nessie server gives up a commit that takes too long by itself; whoever has looked through the log
for longer than that, and has not found it, will not find it later.
"""

from __future__ import annotations

from collections.abc import Collection

from headwater.catalog.errors import RefNotFoundError
from headwater.catalog.model import Commit, RefKind, TableKey
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.catalog.port import Catalog
from headwater.kernel.clock import Clock
from headwater.kernel.ids import Ulid
from headwater.publish.errors import SidecarCorruptError
from headwater.publish.model import Recovered, Sidecar

# By then a server has ended a commit, one way or the other: see catalog/nessie.
SETTLE_SECONDS = 15.0
_LOOK_EVERY_SECONDS = 1.0


class NoSidecars:
    """The notes of intent where none are written."""

    def pending(self) -> tuple[Sidecar, ...]:
        """None."""
        return ()

    def readable(self) -> tuple[tuple[Sidecar, ...], tuple[SidecarCorruptError, ...]]:
        """None, and none that cannot be read."""
        return (), ()


class DirectRecovery:
    """The recoverer of a lake whose tables have no heads: nothing of a dead writer is in anybody's way."""

    def __init__(self, catalog: Catalog, clock: Clock) -> None:
        self._catalog = catalog
        self._clock = clock

    def sweep(self) -> tuple[Recovered, ...]:
        """Nothing is left behind that could be recovered."""
        return ()

    def plan(self) -> tuple[tuple[Sidecar, Recovered | None], ...]:
        """Nothing."""
        return ()

    def heal(self, branch: str, keys: Collection[TableKey]) -> frozenset[TableKey]:  # noqa: ARG002
        """Nothing holds a table."""
        return frozenset()

    def refresh(self) -> tuple[Recovered, ...]:
        """Nothing can be rolled forward."""
        return ()

    def settle(self, operation: Ulid, *, branch: str = DEFAULT_BRANCH) -> Commit | None:
        """The commit of this operation, or None when there is none and will be none; this may take a while.

        `branch` is looked through first. The operation's writer has returned.
        """
        until = self._clock.monotonic() + SETTLE_SECONDS
        while True:
            is_last = self._clock.monotonic() >= until
            found = self._somewhere(branch, operation)
            if found is not None or is_last:
                return found
            self._clock.sleep(_LOOK_EVERY_SECONDS)

    def _somewhere(self, branch: str, operation: Ulid) -> Commit | None:
        """The commit of this operation in any branch, that one first."""
        names = [ref.name for ref in self._catalog.refs() if ref.kind is RefKind.BRANCH]
        for name in sorted(names, key=lambda name: name != branch):
            try:
                found = self._catalog.outcome(name, operation)
            except RefNotFoundError:
                continue  # deleted meanwhile
            if found is not None:
                return found
        return None
