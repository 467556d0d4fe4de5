"""Where a plan begins in a sequence that the branch does not pin: a fork at its first write, a table that comes back.

Promise: what lies in a fork that nobody needs never keeps a branch from writing, and what somebody may still need is
never taken for nobody's.

Such a sequence should be empty. It is not when a branch was set back to a commit before its fork, when a table comes
back that the branch had dropped, when a table that was to be made left its tombstone, or when somebody lost a sidecar.
A confirmed orphan is reclaimed by following on its last object: nothing of it is deleted, so a stalled writer that
still aims at its ids finds them taken, and what a commit in the history uses stays where it is. For the same reason the
history is not read here: whether a commit uses it makes no difference to who only writes behind it.

Order, under the write queue of the table and branch: the last object, then the sidecars, then the pin. Whoever wrote
that object had its sidecar there before; if it is gone by now, its writer has published, and the pin tells.

A crash leaves nothing behind: nothing is written here. What follows is planned, noted and moved like any other head.
"""

from __future__ import annotations

from headwater.catalog.errors import ExpectedVersionMismatchError
from headwater.catalog.model import Content, TableContent, TableKey
from headwater.catalog.port import Catalog
from headwater.kernel.errors import ConflictError, HeadwaterError
from headwater.kernel.logs import Log
from headwater.publish.errors import DriftError, RecoveryPendingError
from headwater.publish.forks.decide import standing_of
from headwater.publish.forks.model import ForkFacts, ForkStanding
from headwater.publish.heads import Heads
from headwater.publish.model import PlannedHead, Sidecar, TableWish, Wish
from headwater.publish.sidecars import Sidecars
from headwater.sequence.model import Entry

_log = Log("publish")


class Forks:
    """Judges the sequences of a lake's tables by a fresh read. Deletes nothing."""

    def __init__(self, catalog: Catalog, heads: Heads, sidecars: Sidecars) -> None:
        self._catalog = catalog
        self._heads = heads
        self._sidecars = sidecars

    def base(self, wish: Wish, table: TableWish, path: str) -> Entry | None:
        """The entry that a plan for this table follows on; None where the sequence is empty.

        The caller holds the table's queue, and has found the branch to hold what the wish was made on.
        """
        sequence, pinned_id = self._heads.sequence(path), self._heads.id_in(path, table.pinned)
        if pinned_id:
            return sequence.known(pinned_id)
        latest = sequence.latest()
        if latest is None:
            return None
        key = table.renamed_from or table.key
        planned, pin = self._planned_in(path), self._pin(wish.branch, key)
        standing = standing_of(
            ForkFacts(
                is_pinned=None if isinstance(pin, HeadwaterError) else pin != table.pinned,
                planned_by=None if isinstance(planned, HeadwaterError) else tuple(each.operation for each in planned),
                is_used=False,
            )
        )
        match standing:
            case ForkStanding.ORPHAN:
                _log.warning("a fork that nobody uses is followed on", path=path, latest_id=latest.id)
                return latest
            case ForkStanding.LEGITIMATE:
                raise self._legitimate(key, table.pinned, planned, pin)
            case ForkStanding.INDETERMINATE:
                trouble = planned if isinstance(planned, HeadwaterError) else pin
                raise ConflictError(
                    f"whose {path} is, which {key} is to be written to, cannot be told now: {trouble}",
                    hint="nothing was changed; try again",
                    table=str(key),
                    path=path,
                ) from (trouble if isinstance(trouble, HeadwaterError) else None)

    def lost_head(self, sidecar: Sidecar, head: PlannedHead) -> ConflictError | DriftError:
        """Why somebody else sits where this head was to move: a winner, a recoverer, or drift that nobody explains."""
        latest = self._heads.sequence(head.path).latest()
        others = [each for each in self._sidecars.pending() if each.operation != sidecar.operation]
        held = next((each for each in others if _plans_in(each, head.path)), None)
        actual = self._content(sidecar.branch, head.pinned_key)
        pinned_id = self._heads.id_in(head.path, head.pinned)
        # A recoverer that took us for dead may have taken the place, and not published yet: our own sidecar tells.
        is_undone = latest is not None and latest.writer == sidecar.restore_identity(head)
        # A sequence that the branch does not pin is followed on by the next try, so nobody needs to be asked.
        if held is None and actual == head.pinned and pinned_id and latest is not None and not is_undone:
            return DriftError(head.pinned_key, pinned_id, latest.id)
        if actual == head.pinned:  # it has moved its head, and has not published yet
            actual = head.planned
        return ExpectedVersionMismatchError(head.pinned_key, head.pinned, actual)

    def _legitimate(
        self,
        key: TableKey,
        pinned: TableContent | None,
        planned: tuple[Sidecar, ...] | HeadwaterError,
        pin: Content | HeadwaterError | None,
    ) -> ConflictError:
        if not isinstance(planned, HeadwaterError) and planned:
            until = planned[0].lease_until.isoformat(timespec="seconds")
            return RecoveryPendingError(key, planned[0].operation, until)
        return ExpectedVersionMismatchError(key, pinned, None if isinstance(pin, HeadwaterError) else pin)

    def _planned_in(self, path: str) -> tuple[Sidecar, ...] | HeadwaterError:
        try:
            return tuple(each for each in self._sidecars.pending() if _plans_in(each, path))
        except HeadwaterError as error:
            return error

    def _pin(self, branch: str, key: TableKey) -> Content | HeadwaterError | None:
        try:
            return self._content(branch, key)
        except HeadwaterError as error:
            return error

    def _content(self, branch: str, key: TableKey) -> Content | None:
        return self._catalog.content(self._catalog.ref(branch).hash, [key]).get(key)


def _plans_in(sidecar: Sidecar, path: str) -> bool:
    return any(head.path == path for head in sidecar.heads)
