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
       that the change follows on (hazard P6). No commit lands whose change began before the staging horizon, judged
       likewise: files that it staged may be gone (hazard P10).
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

When another writer took the next manifest, the request is judged again on the new one. The commit object stays the same
while its parents do, as they must where the request names the head.

Several requests are judged one on another, in memory; then the objects of all that were accepted are put side by side,
and one manifest carries them. Each commit has its own place in the log, and its parent's objects are stored with it. A
crash leaves all of them or none; whether the manifest landed is one question, with one answer for all.

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

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import takewhile

from headwater.catalog.embedded.batch import Batch, OvertakenError, Staged
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
    found_branch,
    judge_began,
    may_be_swept,
)
from headwater.catalog.embedded.heads import EmbeddedHeads
from headwater.catalog.embedded.hold import HOLD_TTL
from headwater.catalog.embedded.holding import EmbeddedHolds
from headwater.catalog.embedded.model import Manifest, StoredCommit
from headwater.catalog.embedded.objects import Encoded, Objects, Planned
from headwater.catalog.embedded.reading import Seen, handed_out
from headwater.catalog.embedded.tree import Trees
from headwater.catalog.errors import BehindHorizonError, CommitNotFoundError, CommitOutcomeUnknownError
from headwater.catalog.judging import (
    empties_namespaces,
    judge_namespaces,
    judge_ref,
    judge_versions,
    keys_to_judge,
)
from headwater.catalog.model import Commit, CommitRequest, check_merge
from headwater.catalog.port import Keeping, TableHeads
from headwater.kernel.errors import HeadwaterError, UnavailableError
from headwater.kernel.failpoints import Failpoint, hit
from headwater.kernel.ids import Ulid, new_ulid
from headwater.sequence.history import History
from headwater.sequence.model import PinLostError, SequenceConflictError, SequenceOutcomeUnknownError
from headwater.sequence.protocol import Sequencer
from headwater.storage.errors import StorageOutcomeUnknownError


class EmbeddedCatalog(EmbeddedHolds):
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
        super().__init__(history, objects, lake, migrations=migrations, hold_ttl=hold_ttl)
        self._heads = EmbeddedHeads(history) if isinstance(history, Sequencer) else None

    @property
    def heads(self) -> TableHeads | None:
        """The tables' own heads; None when the lake is open for reading only."""
        return self._heads

    @property
    def keeping(self) -> Keeping | None:
        """The horizons, and every commit that is stored; None when the lake is open for reading only."""
        return self if self._heads is not None else None

    def commit(self, request: CommitRequest) -> Commit:
        """Commit, or say why not."""
        [answer] = self.commit_all([request])
        if isinstance(answer, HeadwaterError):
            raise answer
        return answer

    def commit_all(self, requests: Sequence[CommitRequest]) -> tuple[Commit | HeadwaterError, ...]:
        """Commit each on what those before it made, all of them by one manifest, or say of each why not."""
        sequencer, patience = self._sequencer(), self._history.retry.patience()
        staged: dict[int, Staged] = {}
        while True:
            seen = self._seen()
            try:
                batch = self._judge_all(seen, requests, staged)
            except OvertakenError as error:
                self._wait(patience, error)
                continue
            if batch.manifest is seen.manifest:
                return tuple(batch.answers)
            self._put(batch)
            hit(Failpoint.CATALOG_COMMIT_AFTER_OBJECTS)
            try:
                sequencer.write(encode_manifest(batch.manifest), after=seen.entry)
            except SequenceConflictError as error:
                self._wait(patience, error)
            except SequenceOutcomeUnknownError as error:
                settled = self._settled(batch, requests, error)
                if settled is not None:
                    return settled
                self._wait(patience, error)
            else:
                hit(Failpoint.CATALOG_COMMIT_AFTER_MANIFEST)
                return tuple(batch.answers)

    def _judge_all(self, seen: Seen, requests: Sequence[CommitRequest], staged: dict[int, Staged]) -> Batch:
        """Each request on the state after those before it. What an earlier try has staged is taken again if it fits.

        A refusal for what was collected meanwhile stands only if none was accepted; else the manifest finds its place
        taken, and all are judged again.
        """
        batch = Batch(seen.manifest, seen.manifest, Planned(self._objects))
        for number, request in enumerate(requests):
            try:
                parents = self._judge(seen.manifest, request, batch)
                before = staged.get(number)
                if before is None or not before.follows(parents) or may_be_swept(seen.manifest, before.put_at):
                    staged[number] = self._stage(batch, request, parents)
            except (CommitNotFoundError, BehindHorizonError, PinLostError) as error:
                if self._seen().manifest.refs.get(request.branch) != seen.manifest.refs.get(request.branch):
                    # The head was superseded and collected while we read it.
                    raise OvertakenError(error.message) from error
                batch.answers.append(error)
            except HeadwaterError as error:
                batch.answers.append(error)
            else:
                batch.accept(request.branch, staged[number])
        return batch

    def _judge(self, manifest: Manifest, request: CommitRequest, batch: Batch) -> tuple[StoredCommit, ...]:
        """The parents, if the request may land on the batch, which follows on the manifest.

        Versions come before the head: see the port.
        """
        branch = found_branch(batch.manifest, request.branch)
        judge_began(manifest, request.began_at)
        head = self._stored(branch.hash, batch.planned)
        trees = Trees(batch.planned)
        with self._reading(head.commit):
            if empties_namespaces(request):
                present = trees.contents(head.tree)
            else:
                present = trees.content(head.tree, keys_to_judge(request))
        judge_versions(request, present)
        judge_ref(branch, request.head, request.incarnation)
        judge_namespaces(request.changes, present)
        if request.merge_parent is None:
            return (head,)
        check_merge(request.merge_parent, branch.hash)
        merged = self._stored(request.merge_parent)
        self._judge_kept_by(manifest, merged.commit)
        return head, merged

    def _stage(self, batch: Batch, request: CommitRequest, parents: tuple[StoredCommit, ...]) -> Staged:
        """Make the commit and what it touches; it is stored with the others."""
        head, *merged = parents
        for parent in merged:
            self._whole(parent)
        times = tuple(parent.commit.committed_at for parent in parents)
        attempt, put_at = new_ulid(self._clock, self._randomness), self._clock.now()
        with self._reading(head.commit):
            planted = Trees(batch.planned).changed(head.tree, request.changes, attempt)
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
        return Staged(handed_out(commit), put_at, {**planted.objects, commit.hash: encoded})

    def _put(self, batch: Batch) -> None:
        """Store what is not stored yet, of all commits side by side: nothing refers to any of it."""
        try:
            self._objects.put_all({name: each for staged in batch.unstored for name, each in staged.objects.items()})
        except StorageOutcomeUnknownError as error:
            # Nothing refers to them, so nothing was committed, whatever became of them.
            raise UnavailableError(f"{self.name}: nothing was committed: {error}", path=error.fields["path"]) from error
        for staged in batch.unstored:
            staged.is_stored = True

    def _settled(
        self, batch: Batch, requests: Sequence[CommitRequest], error: SequenceOutcomeUnknownError
    ) -> tuple[Commit | HeadwaterError, ...] | None:
        """What became of a batch whose manifest's answer was lost; None when it is proven absent, for ever.

        One manifest carries them all, so what is known of one is known of all.
        """
        reason = error.message
        try:
            proven = self._proven(error)
            if proven is None and self._is_in_log(batch):
                proven = True
        except HeadwaterError as trouble:
            proven, reason = None, str(trouble)
        if proven is None:
            return tuple(
                CommitOutcomeUnknownError(request.branch, request.operation, reason)
                if isinstance(answer, Commit)
                else answer
                for request, answer in zip(requests, batch.answers, strict=True)
            )
        return tuple(batch.answers) if proven else None

    def _is_in_log(self, batch: Batch) -> bool:
        """Whether a branch has what the batch made of it: it can only stand above the head that it follows on."""
        before, wanted = next(batch.moved)
        seen = self._seen()
        head = found_branch(seen.manifest, before.name).hash
        above = takewhile(lambda commit: commit.hash != before.hash, self.log(head))
        if not any(commit.hash == wanted.hash for commit in above):
            return False
        self._history.settle(seen.entry.id)
        return True
