"""Undoing the heads that a sidecar planned: the I/O of a rollback up to its publish, which is in recovery.py.

Invariants:

    1  Where the plan has not landed, its place is taken before anything that has landed is undone. A writer that was
       quicker makes the rollback look again: all of its heads may be in place now, and the change may be published.
    2  What takes a plan's place is the pinned document, verbatim, under an identity that every recoverer derives alike:
       two of them do the same work, and a third finds it done (P1, P9). A table that was to be made gets a tombstone.
"""

from __future__ import annotations

import json

from headwater.catalog.model import TableContent, TableKey
from headwater.kernel.errors import ConflictError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.ids import Ulid
from headwater.publish.decide import needs_restore, state_of
from headwater.publish.heads import Heads
from headwater.publish.looking import Look
from headwater.publish.model import HeadState, PlannedHead, Sidecar
from headwater.sequence.model import SequenceConflictError
from headwater.tables.files import Files
from headwater.tables.head import OPERATION

TOMBSTONE = "headwater.tombstone"


class OvertakenError(ConflictError):
    """Somebody moved what a recovery was decided on: look again."""

    def __init__(self, operation: Ulid) -> None:
        super().__init__(
            f"while operation {operation} was recovered, others changed what it was about",
            hint="run `headwater recover` again",
            operation=operation,
        )


class Rollback:
    """Restores heads. The caller holds the queues of the tables, and publishes what was restored."""

    def __init__(self, heads: Heads, files: Files) -> None:
        self._heads = heads
        self._files = files

    def restore(self, sidecar: Sidecar, found: Look) -> dict[TableKey, tuple[TableContent, TableContent]]:
        """Occupy every planned id; by key, what was pinned and what is to be pinned in its place."""
        states = found.meant.states
        restored: dict[TableKey, tuple[TableContent, TableContent]] = {}
        # False comes first: the heads that have not moved.
        for head in sorted(sidecar.heads, key=lambda head: states[head.key] is not HeadState.NOT_MOVED):
            number = self._restore_head(sidecar, head, states[head.key])
            hit(Failpoint.RECOVERY_AFTER_RESTORE)
            if number is None or head.pinned is None or found.facts[head.key].pinned_id >= number:
                continue  # not ours to move, or never pinned, or pinned again already
            restored[head.pinned_key] = (head.pinned, self._heads.located(head.path, number, head.pinned))
        return restored

    def _restore_head(self, sidecar: Sidecar, head: PlannedHead, state: HeadState) -> int | None:
        """The id at which the pinned document stands again; None where the head is not ours to move."""
        sequence = self._heads.sequence(head.path)
        identity = sidecar.restore_identity(head)
        if state is HeadState.RESTORED:
            entry = sequence.read(head.planned_id)
            number = entry.id if entry.writer == identity else entry.id + 1
            sequence.settle(number)  # by another recoverer, who may have died before it did that (P20)
            return number
        if not needs_restore(state):
            return None
        number = head.planned_id + (1 if state is HeadState.AS_PLANNED else 0)
        before = sequence.read(number - 1) if number > 1 else None
        try:
            return sequence.write(self._document(sidecar, head), after=before, writer=identity).id
        except SequenceConflictError as error:
            # Another recoverer was here; or somebody won the place. If that was the writer itself, its change may be
            # published by now, and others may have built on it: who it was is not for this look to say.
            now = state_of(sidecar, head, self._heads.facts(head, head.pinned))
            if now is not HeadState.RESTORED:
                raise OvertakenError(sidecar.operation) from error
            return self._restore_head(sidecar, head, now)

    def _document(self, sidecar: Sidecar, head: PlannedHead) -> bytes:
        """The pinned document, verbatim (P9); for a table that was to be made, a tombstone."""
        if head.pinned is None:
            return json.dumps({"properties": {TOMBSTONE: sidecar.operation, OPERATION: sidecar.operation}}).encode()
        return self._files.read(head.pinned.metadata_location)
