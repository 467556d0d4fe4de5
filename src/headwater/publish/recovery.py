"""What becomes of changes whose writer died on the way.

    sweep       at a read-write open: everything whose lease has passed is rolled forward or back (P1)
    heal        at a write: what can be rolled forward is, for the tables that the write needs
    roll_back   of one sidecar; also by a live writer that lost its race (P2)
    settle      of one operation, whose writer was told that its outcome is not known (P3)

Invariants:

    1  Only a sidecar whose lease has passed, or that is this process's own, is touched.
    2  A rollback occupies every planned id before it publishes, and publishes before it deletes the sidecar: a writer
       that wakes up finds its place taken (P1). A table that was to be made is occupied by a tombstone.
    3  What takes a plan's place is the pinned document, verbatim, under an identity that every recoverer derives alike:
       two of them do the same work, and a third finds it done (P9).
    4  Every recovery is in the log, once, as `headwater:recovery` (P13).

Steps of a rollback, and what a crash after each leaves behind:

    restore heads, in order     a sidecar with some heads restored: the next recoverer goes on
    publish the restored        the same, with pins that are up to date: the next one only deletes
    delete the sidecar          nothing
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta

from headwater.catalog.errors import CatalogBusyError, ExpectedVersionMismatchError, RefConflictError, RefNotFoundError
from headwater.catalog.model import Commit, CommitRequest, Content, Ref, TableContent, TableKey
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.catalog.port import Catalog
from headwater.kernel.clock import Clock
from headwater.kernel.errors import ConflictError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.ids import Ulid
from headwater.kernel.logs import Log
from headwater.publish.decide import needs_restore, pins_hold, state_of, verdict_on
from headwater.publish.errors import RecoveryAbortedError, RecoveryPendingError
from headwater.publish.heads import Heads
from headwater.publish.model import RECOVERY_ACTOR, HeadState, PlannedHead, Recovered, Sidecar, Verdict
from headwater.publish.queues import WriteQueues
from headwater.publish.requests import audit, audit_request, forward_request, restored_request
from headwater.publish.sidecars import Sidecars
from headwater.sequence.model import Entry, SequenceConflictError
from headwater.sequence.protocol import Sequencer
from headwater.tables.files import Files
from headwater.tables.head import OPERATION

CLOCK_SKEW = timedelta(seconds=60)
TOMBSTONE = "headwater.tombstone"
# How often a recovery's own commit is tried again because the branch moved.
_TRIES = 50

_log = Log("publish")


class Recovery:
    """The recoverer of a lake in this process. `process` tells its own sidecars from those of others."""

    def __init__(
        self,
        catalog: Catalog,
        files: Files,
        heads: Heads,
        sidecars: Sidecars,
        queues: WriteQueues,
        *,
        process: Ulid,
        clock: Clock,
        skew: timedelta = CLOCK_SKEW,
    ) -> None:
        self._catalog = catalog
        self._files = files
        self._heads = heads
        self._sidecars = sidecars
        self._clock = clock
        self._skew = skew
        self.queues = queues
        self.process = process

    def sweep(self) -> tuple[Recovered, ...]:
        """Recover everything whose lease has passed."""
        return tuple(
            done
            for sidecar in self._sidecars.pending()
            if self._is_over(sidecar) and (done := self._recover(sidecar.operation)) is not None
        )

    def plan(self) -> tuple[tuple[Sidecar, Recovered | None], ...]:
        """What a sweep would do with each sidecar; None: its writer may be alive."""
        return tuple(
            (sidecar, self._look(sidecar) if self._is_over(sidecar) else None) for sidecar in self._sidecars.pending()
        )

    def heal(self, branch: str, keys: Collection[TableKey]) -> None:
        """Roll forward what holds one of these tables, if its writer is over; the caller holds no queue yet.

        What would have to be rolled back is left to a sweep, and the caller is told exactly that.
        """
        for sidecar in self._sidecars.pending():
            held = [head.key for head in sidecar.heads if head.key in keys]
            if sidecar.branch != branch or not held:
                continue
            if not self._is_over(sidecar):
                continue  # a race: whoever comes second finds its place taken
            until = (sidecar.lease_until + self._skew).isoformat(timespec="seconds")
            with self.queues.hold(branch, [head.key for head in sidecar.heads]):
                found = self._sidecars.read(sidecar.operation)
                if found is None:
                    continue
                meant = self._look(found)
                if meant.verdict in (Verdict.FORWARD, Verdict.PUBLISHED):
                    self._carry_out(found, meant)
                else:
                    raise RecoveryPendingError(held[0], sidecar.operation, until)

    def settle(self, operation: Ulid, *, branch: str = DEFAULT_BRANCH) -> Commit | None:
        """The commit of this operation, or None when it is proven that there is none and never will be."""
        sidecar = self._sidecars.read(operation)
        if sidecar is None:
            return self._catalog.outcome(branch, operation)
        if not self._is_over(sidecar):
            until = (sidecar.lease_until + self._skew).isoformat(timespec="seconds")
            raise RecoveryPendingError(sidecar.heads[0].key, operation, until)
        self._recover(operation)
        return self._catalog.outcome(sidecar.branch, operation)

    def roll_back(self, sidecar: Sidecar) -> Recovered:
        """Undo what a sidecar planned, as far as it has happened. The caller holds the queues of its tables."""
        found = self._look(sidecar)
        if found.verdict is Verdict.FORWARD:
            found = replace(found, verdict=Verdict.BACK)
        return self._carry_out(sidecar, found)

    # One sidecar

    def _is_over(self, sidecar: Sidecar) -> bool:
        return sidecar.process == self.process or self._clock.now() >= sidecar.lease_until + self._skew

    def _recover(self, operation: Ulid) -> Recovered | None:
        """Under the queues of its tables, and only if it is still there then."""
        sidecar = self._sidecars.read(operation)
        if sidecar is None:
            return None
        with self.queues.hold(sidecar.branch, [head.key for head in sidecar.heads]):
            again = self._sidecars.read(operation)
            return None if again is None else self._carry_out(again, self._look(again))

    def _look(self, sidecar: Sidecar) -> Recovered:
        """What the sidecar means, from one look at its branch and its heads."""
        try:
            ref: Ref | None = self._catalog.ref(sidecar.branch)
        except RefNotFoundError:
            ref = None
        lives = ref is not None and ref.incarnation == sidecar.branch_incarnation
        if ref is None or not lives:
            return Recovered(sidecar.operation, Verdict.DISCARD, {})
        published = self._catalog.outcome(sidecar.branch, sidecar.operation)
        wanted = [*(head.key for head in sidecar.heads), *sidecar.reads, *sidecar.drops]
        actual = self._catalog.content(ref.hash, wanted)
        facts = {head: self._heads.facts(head, actual.get(head.key)) for head in sidecar.heads}
        states = {head.key: state_of(sidecar, head, each) for head, each in facts.items()}
        rests_on: dict[TableKey, Content | None] = {**sidecar.reads, **sidecar.drops}
        verdict = verdict_on(
            tuple(states.values()),
            published=published is not None,
            branch_lives=lives,
            reads_hold=all(version == actual.get(key) for key, version in rests_on.items()),
            pins_hold=pins_hold(facts.items()),
        )
        return Recovered(sidecar.operation, verdict, states)

    def _carry_out(self, sidecar: Sidecar, found: Recovered) -> Recovered:
        _log.warning("recovering", operation=sidecar.operation, verdict=str(found.verdict), kind=str(sidecar.kind))
        match found.verdict:
            case Verdict.ABORT:
                raise RecoveryAbortedError(sidecar.operation, found.states)
            case Verdict.PUBLISHED:
                commit = self._tell(sidecar, sidecar.branch, found)
            case Verdict.DISCARD:
                commit = self._tell(sidecar, DEFAULT_BRANCH, found)
            case Verdict.FORWARD:
                commit = self._roll_forward(sidecar, found)
            case Verdict.BACK:
                commit = self._restore(sidecar, found)
        hit(Failpoint.RECOVERY_AFTER_PUBLISH)
        self._sidecars.delete(sidecar.operation)
        return replace(found, commit=commit.hash)

    # Forward

    def _roll_forward(self, sidecar: Sidecar, found: Recovered) -> Commit:
        told = audit(sidecar, Verdict.FORWARD, found.states)
        return self._commit(
            sidecar.branch,
            sidecar.operation,
            lambda head: forward_request(sidecar, head, RECOVERY_ACTOR, told),
        )

    # Back

    def _restore(self, sidecar: Sidecar, found: Recovered) -> Commit:
        """Occupy every planned id, then pin what took its place."""
        restored: dict[TableKey, tuple[TableContent, TableContent]] = {}
        for head in sidecar.heads:
            number = self._restore_head(sidecar, head, found.states[head.key])
            hit(Failpoint.RECOVERY_AFTER_RESTORE)
            if number is not None and head.pinned is not None:
                restored[head.key] = (head.pinned, self._heads.located(head.path, number, head.pinned))
        return self._commit(
            sidecar.branch,
            sidecar.rollback_operation,
            lambda head: restored_request(sidecar, head, restored, found.states),
        )

    def _restore_head(self, sidecar: Sidecar, head: PlannedHead, state: HeadState) -> int | None:
        """The id at which the pinned document stands again; None where the head is not ours to move."""
        sequence = self._heads.sequence(head.path)
        identity = sidecar.restore_identity(head)
        if state is HeadState.RESTORED:
            return _id_of(sequence, identity, head.planned_id)
        if not needs_restore(state):
            return None
        number = head.planned_id + (1 if state is HeadState.AS_PLANNED else 0)
        before = sequence.read(number - 1) if number > 1 else None
        try:
            return sequence.write(self._document(sidecar, head), after=before, writer=identity).id
        except SequenceConflictError:
            # The writer woke up and moved after all, or another recoverer was here, or somebody else won the place.
            facts = self._heads.facts(head, head.pinned)
            now = state_of(sidecar, head, facts)
            if now is state:
                raise
            return self._restore_head(sidecar, head, now)

    def _document(self, sidecar: Sidecar, head: PlannedHead) -> bytes:
        """The pinned document, verbatim (P9); for a table that was to be made, a tombstone."""
        if head.pinned is None:
            return json.dumps({"properties": {TOMBSTONE: sidecar.operation, OPERATION: sidecar.operation}}).encode()
        return self._files.read(head.pinned.metadata_location)

    # The log

    def _tell(self, sidecar: Sidecar, branch: str, found: Recovered) -> Commit:
        return self._commit(
            branch,
            sidecar.audit_operation,
            lambda head: audit_request(sidecar, branch, head, found.verdict, found.states, sidecar.audit_operation),
        )

    def _commit(self, branch: str, operation: Ulid, request: Callable[[str], CommitRequest]) -> Commit:
        """Commit on whatever the branch's head is, once: one that is in the log is not made again."""
        for attempt in range(_TRIES):
            done = self._catalog.outcome(branch, operation)
            if done is not None:
                return done
            try:
                return self._catalog.commit(request(self._catalog.ref(branch).hash))
            except (RefConflictError, CatalogBusyError):
                if attempt == _TRIES - 1:
                    raise
            except ExpectedVersionMismatchError as error:
                done = self._catalog.outcome(branch, operation)
                if done is not None:
                    return done
                raise ConflictError(
                    f"while operation {operation} was recovered, somebody else changed {error.fields.get('table')}",
                    hint="run `headwater recover` again",
                ) from error
        raise AssertionError("unreachable")


def _id_of(sequence: Sequencer, identity: Ulid, planned_id: int) -> int:
    """Where the object with this identity is: at the planned id, or behind it."""
    entry: Entry = sequence.read(planned_id)
    return planned_id if entry.writer == identity else planned_id + 1
