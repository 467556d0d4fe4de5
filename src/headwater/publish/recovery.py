"""What becomes of changes whose writer died on the way.

    sweep       at a read-write open: everything whose lease has passed is rolled forward or back (P1)
    heal        at a write: what can be rolled forward is, for the tables that the write needs
    refresh     the same, for all tables
    conclude    by a live writer that lost its race or its time: its own change is undone, or finished (P2)
    settle      of one operation, whose writer was told that its outcome is not known (P3)

Invariants:

    1  Only a sidecar whose lease has passed, or that is this process's own, is touched.
    2  A rollback occupies every planned id before it publishes, and publishes before it deletes the sidecar: a writer
       that wakes up finds its place taken (P1). rollback.py says in which order, and why.
    3  Nothing that has landed is undone while the change could still be published, by anybody who looked earlier.
       Then, and only then, the same sidecar can mean forward to one recoverer and back to another.
    4  The log is asked last: whether a change is published counts from when its heads were looked at.
    5  Every recovery is in the log, once, as `headwater:recovery` (P13).
    6  What others have left is made durable before anything rests on it (P20): a sidecar before heads are restored,
       heads before they are pinned, a commit that is found in the log before its sidecar goes.

Steps of a rollback, and what a crash after each leaves behind:

    restore heads, in order     a sidecar with some heads restored: the next recoverer goes on
    publish the restored        the same, with pins that are up to date: the next one only deletes
    delete the sidecar          nothing

A recovery that finds, on its way, that others have moved what it was decided on begins again with another look.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta

from headwater.catalog.errors import (
    CatalogBusyError,
    RefConflictError,
    RefNotFoundError,
)
from headwater.catalog.model import Commit, CommitRequest, RefKind, TableKey
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.catalog.port import Catalog
from headwater.kernel.clock import Clock
from headwater.kernel.errors import ConflictError, CorruptError, HeadwaterError, RefusedError, UsageError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.ids import Ulid
from headwater.kernel.logs import Log
from headwater.publish.decide import is_in_the_way
from headwater.publish.errors import RecoveryAbortedError, RecoveryPendingError
from headwater.publish.heads import Heads
from headwater.publish.looking import Look, Looking
from headwater.publish.model import (
    RECOVERY_ACTOR,
    Recovered,
    Sidecar,
    Verdict,
    derived,
)
from headwater.publish.queues import WriteQueues
from headwater.publish.requests import (
    FOR_OPERATION,
    audit,
    audit_request,
    commit_forward,
    forward_request,
    restored_request,
    settled_request,
)
from headwater.publish.rollback import OvertakenError, Rollback
from headwater.publish.sidecars import Sidecars
from headwater.tables.files import Files

CLOCK_SKEW = timedelta(seconds=60)
# How often a recovery's own commit is tried again because others change the lake all the time.
_TRIES = 20
# How often a recovery looks again because others moved what it was decided on.
_LOOKS = 10

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
        self._heads = heads
        self._sidecars = sidecars
        self._looking = Looking(catalog, heads)
        self._rollback = Rollback(heads, files)
        self._clock = clock
        self._skew = skew
        self._process = process
        self.queues = queues

    @property
    def process(self) -> Ulid:
        """Who we are. A forked child is somebody else: its queues know nothing of its parent's writers (P1)."""
        return derived(f"process/{self._process}/{os.getpid()}")

    def sweep(self) -> tuple[Recovered, ...]:
        """Recover everything whose lease has passed; what cannot be is an error, once the rest is done."""
        done, failed = [], []
        for sidecar in self._sidecars.pending():
            if not self._is_over(sidecar):
                continue
            try:
                done.append(self._under_queues(sidecar))
            except HeadwaterError as error:
                _log.warning("not recovered", operation=sidecar.operation, error=str(error))
                failed.append(error)
        if failed:
            raise failed[0]
        return tuple(each for each in done if each is not None)

    def plan(self) -> tuple[tuple[Sidecar, Recovered | None], ...]:
        """What a sweep would do with each sidecar; None: its writer may be alive."""
        return tuple(
            (sidecar, self._looking.at(sidecar).meant if self._is_over(sidecar) else None)
            for sidecar in self._sidecars.pending()
        )

    def heal(self, branch: str, keys: Collection[TableKey]) -> frozenset[TableKey]:
        """Roll forward what holds one of these tables, if its writer is over; the caller holds no queue yet.

        What would have to be rolled back and is not our own is left to a sweep. A caller in whose way it is is told
        exactly that. Returns those of the tables that others, who may be alive, are about to change.
        """
        contested: set[TableKey] = set()
        for sidecar in self._sidecars.pending():
            held = [key for key in sidecar.keys if key in keys]
            if sidecar.branch != branch or not held:
                continue
            if not self._is_over(sidecar):
                contested.update(held)  # a race: whoever comes second finds its place taken
                continue
            self._under_queues(sidecar, may_undo=self._is_own(sidecar), wanted=held)
        return frozenset(contested)

    def refresh(self) -> tuple[Recovered, ...]:
        """Roll forward whatever can be; what would have to be rolled back stays for a sweep.

        What cannot be recovered stays too: whoever needs its tables hears of it from `heal`, others are not held up.
        """
        done = []
        for sidecar in self._sidecars.pending():
            if not self._is_over(sidecar):
                continue
            try:
                # Whoever of this process has the queues is alive, or has healed what it needs: nobody waits for that.
                with self.queues.hold_if_free(sidecar.branch, sidecar.keys) as is_free:
                    if is_free:
                        done.append(self._under_queues(sidecar, may_undo=self._is_own(sidecar)))
            except (CorruptError, ConflictError, RefusedError, UsageError) as error:
                _log.warning("not recovered", operation=sidecar.operation, error=str(error))
        return tuple(each for each in done if each is not None and each.commit is not None)

    def settle(self, operation: Ulid, *, branch: str = DEFAULT_BRANCH) -> Commit | None:
        """The commit of this operation, or None when it is proven that there is none and never will be.

        `branch` is looked through first, where no sidecar says which it is. The operation's writer has returned.
        """
        sidecar = self._sidecars.read(operation)
        if sidecar is not None:
            if not self._is_over(sidecar):
                raise self._pending(sidecar, sidecar.heads[0].key)
            self._under_queues(sidecar)
            return self.outcome(sidecar)
        found = self._somewhere(branch, operation)
        if found is None:
            # A commit whose answer was lost may still be on its way: to the place in history that this one takes.
            self._commit(settled_request(operation))
            found = self._somewhere(branch, operation)
        return found

    def conclude(self, sidecar: Sidecar) -> Recovered:
        """Undo one's own change, or finish it if it can no longer be undone. The caller holds the queues."""
        return self._finish(sidecar)

    def outcome(self, sidecar: Sidecar) -> Commit | None:
        """The commit of this change, if its branch has one."""
        try:
            return self._catalog.outcome(sidecar.branch, sidecar.operation, above=sidecar.since)
        except RefNotFoundError:
            return None

    # One sidecar

    def _is_own(self, sidecar: Sidecar) -> bool:
        """Whether a writer of this process wrote it; it is over once we have its queues."""
        return sidecar.process == self.process

    def _is_over(self, sidecar: Sidecar) -> bool:
        return self._is_own(sidecar) or self._clock.now() >= sidecar.lease_until + self._skew

    def _pending(self, sidecar: Sidecar, key: TableKey) -> RecoveryPendingError:
        until = (sidecar.lease_until + self._skew).isoformat(timespec="seconds")
        return RecoveryPendingError(key, sidecar.operation, until)

    def _under_queues(
        self, sidecar: Sidecar, *, may_undo: bool = True, wanted: Collection[TableKey] = ()
    ) -> Recovered | None:
        """Recover it under the queues of its tables, and only if it is still there then."""
        with self.queues.hold(sidecar.branch, sidecar.keys):
            again = self._sidecars.read(sidecar.operation)
            if again is None:
                return None
            return self._finish(again, may_undo=may_undo, wanted=wanted)

    def _finish(self, sidecar: Sidecar, *, may_undo: bool = True, wanted: Collection[TableKey] = ()) -> Recovered:
        """Look, and do what that means; again while others move what it was decided on.

        What may not be undone stays as it is; `wanted` are the tables that it must not be in the way of.
        """
        for attempt in range(_LOOKS):
            found = self._looking.at(sidecar)
            if found.meant.verdict is Verdict.BACK and not may_undo:
                self._refuse_blocked(sidecar, found, wanted)
                return found.meant
            try:
                return self._carry_out(sidecar, found)
            except OvertakenError:
                if attempt == _LOOKS - 1:
                    raise
        raise AssertionError("unreachable")

    def _refuse_blocked(self, sidecar: Sidecar, found: Look, wanted: Collection[TableKey]) -> None:
        for head in sidecar.heads:
            is_wanted = any(key in wanted for key in head.keys)
            if is_wanted and is_in_the_way(head, found.meant.states[head.key], found.facts[head.key]):
                raise self._pending(sidecar, head.pinned_key)

    def _carry_out(self, sidecar: Sidecar, found: Look) -> Recovered:
        meant = found.meant
        _log.info("recovering", operation=sidecar.operation, verdict=str(meant.verdict), kind=str(sidecar.kind))
        match meant.verdict:
            case Verdict.ABORT:
                raise RecoveryAbortedError(sidecar.operation, meant.states)
            case Verdict.PUBLISHED:
                commit = self._tell_published(sidecar, found)
            case Verdict.DISCARD:
                commit = self._tell(sidecar, DEFAULT_BRANCH, meant)
            case Verdict.FORWARD:
                commit = self._roll_forward(sidecar, meant)
            case Verdict.BACK:
                commit = self._roll_back(sidecar, found)
        hit(Failpoint.RECOVERY_AFTER_PUBLISH)
        self._delete(sidecar)
        return replace(meant, commit=commit.hash)

    def _delete(self, sidecar: Sidecar) -> None:
        """What is to be done is done: a note that stays is a nuisance, and the next recovery only deletes it."""
        try:
            self._sidecars.delete(sidecar.operation)
        except HeadwaterError as error:
            _log.warning("a sidecar was left behind", operation=sidecar.operation, error=str(error))

    def _roll_forward(self, sidecar: Sidecar, meant: Recovered) -> Commit:
        for head in sidecar.heads:
            self._heads.settle(head)
        told = audit(sidecar, Verdict.FORWARD, meant.states)
        return self._commit(forward_request(sidecar, None, RECOVERY_ACTOR, told), above=sidecar.since)

    def _roll_back(self, sidecar: Sidecar, found: Look) -> Commit:
        """Occupy every planned id, then pin what took its place."""
        self._sidecars.settle(sidecar.operation)  # or a head could be where nothing explains it (P20)
        restored = self._rollback.restore(sidecar, found)
        return self._commit(restored_request(sidecar, restored, found.meant.states), above=sidecar.since)

    # The log

    def _somewhere(self, branch: str, operation: Ulid) -> Commit | None:
        """The commit of this operation in any branch, that one first."""
        names = [ref.name for ref in self._catalog.refs() if ref.kind is RefKind.BRANCH]
        for name in sorted(names, key=lambda name: name != branch):
            found = self._catalog.outcome(name, operation)
            if found is not None:
                return found
        return None

    def _tell_published(self, sidecar: Sidecar, found: Look) -> Commit:
        """What a recoverer published has told so itself; otherwise the log hears of it now (P13)."""
        if found.published is not None and found.published.properties.get(FOR_OPERATION) == sidecar.operation:
            return found.published
        return self._tell(sidecar, sidecar.branch, found.meant)

    def _tell(self, sidecar: Sidecar, branch: str, meant: Recovered) -> Commit:
        return self._commit(audit_request(sidecar, branch, meant.verdict, meant.states), above=sidecar.since)

    def _commit(self, request: CommitRequest, *, above: str | None = None) -> Commit:
        """Commit on whatever the branch's head is, once: one that is in the log, `above` that, is not made again."""
        branch, operation = request.branch, request.operation
        for _ in range(_TRIES):
            # On the very head whose log does not have it: two recoverers tell the same only once (P13).
            head = self._catalog.ref(branch).hash
            done = self._catalog.outcome(branch, operation, above=above)
            if done is not None:
                return done
            try:
                return commit_forward(lambda each: self._catalog.commit(replace(each, head=head)), request)  # noqa: B023
            except (CatalogBusyError, RefConflictError):
                continue
            except (ConflictError, RefNotFoundError):
                break  # what it rests on has changed: a version, the branch itself, or the staging horizon
        done = self._catalog.outcome(branch, operation, above=above)
        if done is None:
            raise OvertakenError(operation)
        return done
