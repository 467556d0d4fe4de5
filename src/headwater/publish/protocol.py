"""Publishing a change of many tables as one commit.

Promise: a change that is reported is in the branch's log, whole, exactly once. One that is reported as a conflict is
in no log and never will be. Readers see all of it or nothing: they go by the pins, and those change in one commit.

Invariants:

    1  No head moves before the sidecar that plans its move is durable; no sidecar is deleted while a head is where only
       it explains.
    2  A head moves only to the successor of the version that the plan was made on, under the identity that the sidecar
       names: somebody else's object at the same id is never taken for ours.
    3  The pins change only by one commit that expects, for every head, the version that the plan was made on, and for
       every table that was read, the version that was read (P8).
    4  From phase A on, an error is either proven absent or an unknown outcome with its operation (P3).

Commit point: the catalog's commit in phase C. (A recoverer that rolls the change forward makes the same commit, under
the same operation.)

Steps, and what a crash after each leaves behind:

    staged files          files that nothing refers to
    documents prepared    side by side, where nobody sees them: what a put that was killed leaves
    A  sidecar            a note of a change that did not begin: rolled back, which occupies the planned ids
    B  heads, in order    some heads ahead of their pins: rolled back, or forward when all have moved
       heads synced       the same; their names are durable before anything pins them
    C  commit             a published change with a stale sidecar: told in the log, deleted (P4); one manifest may carry
                          the commits of several writers of the process (group.py), all of them or none
    D  sidecar deleted    nothing

The heads of the changed tables move in the order of their keys, so that of two writers that cross, one wins (P2). Who
loses after its first head has moved restores its own heads and publishes that before it says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import TypeVar

from headwater.catalog.errors import CatalogBusyError, CommitOutcomeUnknownError, ExpectedVersionMismatchError
from headwater.catalog.model import Commit, CommitRequest, TableKey
from headwater.catalog.port import Catalog
from headwater.kernel.clock import Clock
from headwater.kernel.errors import ConflictError, HeadwaterError, RefusedError, UsageError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.logs import Log
from headwater.kernel.randomness import Randomness
from headwater.kernel.workers import Workers
from headwater.publish.errors import PublishOutcomeUnknownError
from headwater.publish.forks.protocol import Forks
from headwater.publish.group import Group
from headwater.publish.heads import Heads
from headwater.publish.lost import refuse_lost
from headwater.publish.model import Sidecar, TableWish, Verdict, Wish
from headwater.publish.planning import Planned, Planning
from headwater.publish.recovery import Recovery
from headwater.publish.requests import commit_forward, forward_request
from headwater.publish.sidecars import Sidecars
from headwater.query.at_commit import Documents
from headwater.sequence.model import SequenceConflictError, SequenceOutcomeUnknownError
from headwater.sequence.protocol import Move
from headwater.storage.errors import StorageOutcomeUnknownError
from headwater.tables.files import Files

# How often a publish is tried again because others change the lake all the time, while nothing that matters to it did.
PUBLISH_RETRIES = 5
LEASE = timedelta(seconds=60)
# How many heads of one change are prepared side by side.
HEADS_AT_ONCE = 8

T = TypeVar("T")

_log = Log("publish")


class Publisher:
    """Takes wishes to commits. One for a lake and process; safe to share among threads."""

    def __init__(
        self,
        catalog: Catalog,
        files: Files,
        heads: Heads,
        sidecars: Sidecars,
        recovery: Recovery,
        *,
        clock: Clock,
        randomness: Randomness,
        lease: timedelta = LEASE,
    ) -> None:
        self._catalog = catalog
        self._files = files
        self._heads = heads
        self._sidecars = sidecars
        self._recovery = recovery
        self._forks = Forks(catalog, heads, sidecars)
        self._group = Group(catalog)
        self._clock = clock
        self._randomness = randomness
        self._lease = lease
        self._planning = Planning(files, heads, self._forks, clock=clock, randomness=randomness)
        self._workers = Workers(HEADS_AT_ONCE - 1, "heads")

    @property
    def documents(self) -> Documents:
        """The documents of tables, among them those that were published here, which need not be read."""
        return self._planning.documents

    def publish(self, wish: Wish) -> Commit:
        """Commit the wish, or say why not."""
        keys = [key for each in wish.tables for key in each.keys]
        # Healing takes the queues of others' tables too: before our own, or two of us would wait for each other.
        contested = self._recovery.heal(wish.branch, keys)
        with self._recovery.queues.hold(wish.branch, keys):
            since = refuse_lost(self._catalog, self._clock, wish)
            planned = tuple(self._planning.plan(wish, each) for each in sorted(wish.tables, key=_by_key) if each.staged)
            self._refuse_hopeless(self._note(wish, planned, since), contested)
            staged = [file for each in wish.tables if each.staged for file in each.staged.files]
            self._files.write((*wish.files, *staged))
            stored = wish.stored(self._clock.now())
            return shielded(lambda: self._carry_out(stored, planned, since))

    def _refuse_hopeless(self, sidecar: Sidecar, contested: Collection[TableKey]) -> None:
        """Before anything is written: what no commit can say (P19), and a race that is lost already.

        Who finds its place taken only after its note was written has to tell the log that it stepped back.
        """
        forward_request(sidecar, None, actor=sidecar.actor)
        for head in sidecar.heads:
            if head.pinned_key in contested and self._heads.is_taken(head):
                raise self._forks.lost_head(sidecar, head)

    def _note(self, wish: Wish, planned: Sequence[Planned], since: str) -> Sidecar:
        return Sidecar(
            operation=wish.operation,
            kind=wish.kind,
            actor=wish.actor,
            message=wish.message,
            branch=wish.branch,
            branch_incarnation=wish.branch_incarnation,
            process=self._recovery.process,
            lease_until=self._lease_of(wish),
            heads=tuple(each.head for each in planned),
            drops={each.key: each.pinned for each in wish.tables if each.staged is None and each.pinned is not None},
            reads=wish.reads,
            properties=wish.properties,
            others=wish.others,
            merge_parent=wish.merge_parent,
            since=since,
        )

    def _lease_of(self, wish: Wish) -> datetime:
        until = self._clock.now() + self._lease
        return until if wish.deadline is None else min(until, wish.deadline)

    def _write_note(self, sidecar: Sidecar) -> None:
        """Phase A. Nothing has moved, so whatever happens here, the change is absent."""
        try:
            self._sidecars.write(sidecar)
        except StorageOutcomeUnknownError as error:
            self._delete_note(sidecar)  # it may be there, or come: the next sweep rolls it back
            raise ConflictError(
                f"operation {sidecar.operation} did not begin: its note may not be durable", hint="try again"
            ) from error
        hit(Failpoint.PUBLISH_AFTER_SIDECAR)

    def _carry_out(self, wish: Wish, planned: Sequence[Planned], since: str) -> Commit:
        """All four phases; a change that moves no head needs no note."""
        with ExitStack() as left:
            moves = [left.enter_context(self._move(each)) for each in planned]
            self._workers.each(Move.prepare, moves)
            # A note of its own: its lease begins now that everything is stored, however long that took.
            return self._in_order(self._note(wish, planned, since), planned, moves)

    def _move(self, planned: Planned) -> Move:
        sequence = self._heads.sequence(planned.head.path)
        return sequence.move(planned.payload, after=planned.before, writer=planned.head.identity)

    def _in_order(self, sidecar: Sidecar, planned: Sequence[Planned], moves: Sequence[Move]) -> Commit:
        if planned:
            self._write_note(sidecar)
        try:
            self._move_heads(sidecar, planned, moves)
            commit = self._commit(sidecar)
        except (ConflictError, RefusedError, UsageError) as error:  # among them that the branch is gone
            done = self._step_back(sidecar, error)
            if done is None:
                raise
            return done
        except (SequenceOutcomeUnknownError, CommitOutcomeUnknownError, StorageOutcomeUnknownError) as error:
            raise PublishOutcomeUnknownError(sidecar.operation, error.message) from error
        except HeadwaterError as error:
            if not planned:
                raise
            raise PublishOutcomeUnknownError(sidecar.operation, error.message) from error
        hit(Failpoint.PUBLISH_AFTER_COMMIT)
        if planned:
            self._delete_note(sidecar)
        self._planning.remember(planned)
        return commit

    def _move_heads(self, sidecar: Sidecar, planned: Sequence[Planned], moves: Sequence[Move]) -> None:
        """Phase B. They become durable after the last has moved, and before the commit: one sync serves them all."""
        for each, move in zip(planned, moves, strict=True):
            self._require_lease(sidecar)
            with self._losing(sidecar, each):
                move.create()
            hit(Failpoint.PUBLISH_AFTER_HEAD)
        self._workers.each(Move.sync, moves)
        for each, move in zip(planned, moves, strict=True):
            with self._losing(sidecar, each):
                move.settle()

    @contextmanager
    def _losing(self, sidecar: Sidecar, planned: Planned) -> Iterator[None]:
        try:
            yield
        except SequenceConflictError as error:
            raise self._forks.lost_head(sidecar, planned.head) from error

    def _commit(self, sidecar: Sidecar) -> Commit:
        """Phase C, on whatever the branch's head is: what this change rests on is judged there, by its versions."""
        request = forward_request(sidecar, None, sidecar.actor)

        def commit(request: CommitRequest) -> Commit:
            return self._group.commit(request, check=lambda: self._require_lease(sidecar))

        for attempt in range(PUBLISH_RETRIES + 1):
            try:
                return commit_forward(commit, request) if sidecar.heads else commit(request)
            except CatalogBusyError:
                if attempt == PUBLISH_RETRIES:
                    raise
            except ExpectedVersionMismatchError:
                # Whoever took us for dead may have made our commit in our place.
                done = self._recovery.outcome(sidecar)
                if done is not None:
                    return done
                raise
        raise AssertionError("unreachable")

    def _require_lease(self, sidecar: Sidecar) -> None:
        if self._clock.now() >= sidecar.lease_until:
            raise ConflictError(
                f"operation {sidecar.operation} took longer than its lease, so others may have begun to undo it",
                hint="try again; raise `publish.lease_seconds` if changes are that slow",
                operation=sidecar.operation,
            )

    def _step_back(self, sidecar: Sidecar, why: HeadwaterError) -> Commit | None:
        """The loser of a race restores its own heads, publishes that, and only then says so (P2).

        Whoever took us for dead may have made our commit in our place: then it is returned, and nothing was lost.
        """
        if not sidecar.heads:
            return None
        try:
            recovered = self._recovery.conclude(sidecar)
            if recovered.verdict in (Verdict.PUBLISHED, Verdict.FORWARD):
                return self._recovery.outcome(sidecar)
        except HeadwaterError as error:
            _log.warning("a lost change is still to be rolled back", operation=sidecar.operation, error=str(error))
            raise PublishOutcomeUnknownError(
                sidecar.operation, f"it lost ({why.message}), and could not be undone: {error.message}"
            ) from error
        return None

    def _delete_note(self, sidecar: Sidecar) -> None:
        """Phase D. The change is published: a note that stays is a nuisance, not an error."""
        try:
            self._sidecars.delete(sidecar.operation)
        except HeadwaterError as error:
            _log.warning("a sidecar was left behind", operation=sidecar.operation, error=str(error))


def _by_key(table: TableWish) -> TableKey:
    """By the key that other writers know the table by, so that they move its head at the same place of the order."""
    return table.renamed_from or table.key


def shielded(work: Callable[[], T]) -> T:
    """Run to the end, whatever the process is asked meanwhile; a request to stop is obeyed once the end is known (P3).

    Such requests reach the main thread alone, so there the work is done by another.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    stop: BaseException | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="publish") as pool:
        future = pool.submit(work)
        while not future.done():
            try:
                wait([future])
            except BaseException as asked:
                stop = asked
    if stop is not None:
        raise stop from future.exception()
    return future.result()
