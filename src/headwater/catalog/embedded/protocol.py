"""Writing the embedded catalog; reading it is in reading.py.

Promise: a commit that is reported is in its branch's log exactly once, on the very head that it was judged on; one that
is reported as a conflict is in no log, and by no act of its writer ever will be.

Invariants:

    1  A manifest refers only to objects that were stored before it, and that no sweep may have taken since. No name
       of an object is ever written by two attempts.
    2  A ref moves only by a manifest that follows directly on the one that the move was judged on: expected versions,
       namespaces, the head and its incarnation, the horizons, that the merge parent is kept.
    3  A commit's time never precedes its parents' (hazard P13).
    4  Horizons only rise, and never beyond the clock of who publishes them. No ref is made or moved to a commit behind
       the history horizon, and none is merged, unless another ref stands on it, and that is judged by the very manifest
       that the change follows on (hazard P6).
    5  A commit is behind the history horizon when the horizon has passed both its own time and that of each commit in a
       ref's log that has it as first parent: what was the head at any moment since the horizon is kept.

Commit point: the create of the next manifest, which is the commit point of the sequence.

Steps of a commit, and what a crash after each leaves behind:

    read the manifest, judge     nothing
    put shards and commit        objects that nothing refers to; a sweep takes them once the staging horizon passed
    create the next manifest     a commit that nobody reported; its operation id in the log identifies it
    report                       a commit

Shards and commit are put side by side, because one after the other costs a round trip more; so a crash may leave a
commit without its shards. No ref is made or moved to such a commit, and none is merged (refs.py).

When another writer took the next manifest, the request is judged again on the new one. Its head must still be the one
that the request names, so the commit object, whose parent that is, stays the same.

What a collector owes in return. It publishes the horizons first, then reads the manifest, then the pins, then lists the
objects, and only then deletes. It keeps: every ref's head, by the latest manifest and by each pinned one; every commit
whose time is not before the history horizon of all of these, whether or not a ref leads to it, and its first parent,
however old; what any of them leads to; and every object that is not older than the staging horizon, by a margin for
clocks that differ. A writer that stalls between its puts and its manifest finds the next id taken by the manifest that
published the staging horizon, reads it, and begins again with objects of new names: the old ones may be in the hands of
the sweep.

Requests of a commit in the steady state: two to find the manifest, one for each touched shard, one for the commit, two
for the next manifest; shards and parents that are not in memory add one read each. None depends on how many tables
there are, except the deletion of a namespace, which reads all shards to see that it is empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile

from headwater.catalog.embedded.codec import (
    MIGRATIONS,
    Migrations,
    decode_commit,
    digest_of,
    encode_commit,
    encode_manifest,
)
from headwater.catalog.embedded.decide import (
    commit_time,
    empties_namespaces,
    found_branch,
    judge_namespaces,
    judge_ref,
    judge_versions,
    keys_to_judge,
    may_be_swept,
)
from headwater.catalog.embedded.heads import EmbeddedHeads
from headwater.catalog.embedded.hold import HOLD_TTL, Hold, Unheld
from headwater.catalog.embedded.model import Manifest, StoredCommit
from headwater.catalog.embedded.objects import Encoded, Objects
from headwater.catalog.embedded.reading import handed_out
from headwater.catalog.embedded.refs import EmbeddedRefs
from headwater.catalog.errors import BehindHorizonError, CommitNotFoundError, CommitOutcomeUnknownError
from headwater.catalog.model import Commit, CommitRequest
from headwater.catalog.port import Held, TableHeads
from headwater.kernel.errors import HeadwaterError, UnavailableError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.logs import Log
from headwater.sequence.history import History
from headwater.sequence.model import HeldPin, PinLostError, SequenceConflictError, SequenceOutcomeUnknownError
from headwater.sequence.pins import Pins
from headwater.sequence.protocol import Sequencer
from headwater.storage.errors import StorageOutcomeUnknownError

_log = Log("catalog")


@dataclass(frozen=True)
class _Staged:
    """A commit whose objects are stored, and nothing refers to them yet. They were put at this moment, or later."""

    commit: Commit
    put_at: datetime


class EmbeddedCatalog(EmbeddedRefs):
    """The catalog of one lake, as one process reads and writes it. Safe to share among threads."""

    def __init__(
        self,
        history: History,
        objects: Objects,
        lake: Ulid,
        *,
        migrations: Migrations = MIGRATIONS,
        hold_ttl: timedelta = HOLD_TTL,
    ) -> None:
        super().__init__(history, objects, lake, migrations=migrations)
        self._hold_ttl = hold_ttl
        self._heads = EmbeddedHeads(history) if isinstance(history, Sequencer) else None

    @property
    def heads(self) -> TableHeads | None:
        """The tables' own heads; None when the lake is open for reading only."""
        return self._heads

    def commit(self, request: CommitRequest) -> Commit:
        """Commit, or say why not."""
        sequencer, patience = self._sequencer(), self._history.retry.patience()
        staged: _Staged | None = None
        while True:
            seen = self._seen()
            try:
                parents = self._judge(seen.manifest, request)
            except (CommitNotFoundError, BehindHorizonError, PinLostError) as error:
                if self._seen().manifest.refs.get(request.branch) == seen.manifest.refs.get(request.branch):
                    raise
                self._wait(patience, error)  # the head was superseded and collected while we read it
                continue
            if staged is None or may_be_swept(seen.manifest, staged.put_at):
                staged = self._stage(request, parents)
            hit(Failpoint.CATALOG_COMMIT_AFTER_OBJECTS)
            moved = replace(seen.manifest.refs[request.branch], hash=staged.commit.hash)
            payload = encode_manifest(seen.manifest.with_ref(moved))
            try:
                sequencer.write(payload, after=seen.entry)
            except SequenceConflictError as error:
                self._wait(patience, error)
            except SequenceOutcomeUnknownError as error:
                if self._landed(request, error):
                    return staged.commit
                self._wait(patience, error)
            else:
                hit(Failpoint.CATALOG_COMMIT_AFTER_MANIFEST)
                return staged.commit

    @contextmanager
    def hold(self, at: str, *, holder: str) -> Iterator[Held]:
        """While it lasts, nothing that the commit leads to is collected, and it may be read behind the horizon."""
        stored = self._kept(at)
        if not isinstance(self._history, Sequencer):
            _log.debug("nothing is held: the lake is open for reading only", hash=at, holder=holder)
            yield Unheld(lambda: self._judge_kept(stored.commit))
            return
        pins = Pins(self._history)
        hold = Hold(pins, self._pin(pins, stored.commit, holder), ttl=self._hold_ttl, clock=self._clock)
        hold.start()
        self._holds.add(at, hold)
        try:
            yield hold
        finally:
            self._holds.remove(at, hold)
            hold.end()

    def _pin(self, pins: Pins, commit: Commit, holder: str) -> HeldPin:
        """A pin on a manifest by which the commit is kept."""
        patience = self._history.retry.patience()
        while True:
            seen = self._seen()
            self._judge_kept_by(seen.manifest, commit)
            try:
                held = pins.pin(seen.entry, ttl=self._hold_ttl, holder=holder)
            except PinLostError:
                if not patience.wait():
                    raise
                continue
            try:
                # A collector that published its horizon before this look may not have seen the pin; any other does.
                self._judge_kept_by(self._seen().manifest, commit)
            except HeadwaterError:
                pins.release(held)
                raise
            return held

    def _judge(self, manifest: Manifest, request: CommitRequest) -> tuple[StoredCommit, ...]:
        """The parents, if the request may land on the head. Versions come before the head: see the port."""
        branch = found_branch(manifest, request.branch)
        head = self._stored(branch.hash)
        with self._reading(head.commit):
            if empties_namespaces(request):
                present = self._trees.contents(head.tree)
            else:
                present = self._trees.content(head.tree, keys_to_judge(request))
        judge_versions(request, present)
        judge_ref(branch, request.head, request.incarnation)
        judge_namespaces(request.changes, present)
        if request.merge_parent is None:
            return (head,)
        merged = self._stored(request.merge_parent)
        self._judge_kept_by(manifest, merged.commit)
        return head, merged

    def _stage(self, request: CommitRequest, parents: tuple[StoredCommit, ...]) -> _Staged:
        """Make the commit and what it touches, and store it all."""
        head, *merged = parents
        for parent in merged:
            self._whole(parent)
        times = tuple(parent.commit.committed_at for parent in parents)
        attempt, put_at = new_ulid(self._clock, self._randomness), self._clock.now()
        with self._reading(head.commit):
            planted = self._trees.changed(head.tree, request.changes, attempt)
        commit = Commit(
            hash="",
            parents=tuple(parent.commit.hash for parent in parents),
            actor=request.actor,
            message=request.message,
            properties=request.all_properties,
            committed_at=commit_time(put_at, max(times)),
        )
        data = encode_commit(commit, times, planted.tree, attempt)
        commit = replace(commit, hash=digest_of(data))
        encoded = Encoded(data, decode_commit, StoredCommit(commit, times, planted.tree))
        try:
            self._objects.put_all({**planted.objects, commit.hash: encoded})
        except StorageOutcomeUnknownError as error:
            # Nothing refers to them, so nothing was committed, whatever became of them.
            raise UnavailableError(f"{self.name}: nothing was committed: {error}", path=error.fields["path"]) from error
        return _Staged(handed_out(commit), put_at)

    def _landed(self, request: CommitRequest, error: SequenceOutcomeUnknownError) -> bool:
        """Whether the commit is in the log after all; False only when that is proven not to be, for ever."""
        try:
            proven = self._proven(error)
            if proven is None and self._is_in_log(request):
                proven = True
        except HeadwaterError as trouble:
            raise CommitOutcomeUnknownError(request.branch, request.operation, str(trouble)) from error
        if proven is None:
            raise CommitOutcomeUnknownError(request.branch, request.operation, error.message) from error
        return proven

    def _is_in_log(self, request: CommitRequest) -> bool:
        """Whether the branch has the operation: it can only stand above the head that the request was made on."""
        log = self.log(self.ref(request.branch).hash)
        above = takewhile(lambda commit: commit.hash != request.head, log)
        return any(commit.operation == request.operation for commit in above)
