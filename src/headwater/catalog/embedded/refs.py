"""Changing the manifest itself: refs, horizons, its format. Each change is one compare-and-swap of the whole state.

    read the manifest, judge     nothing
    create the next manifest     a change that nobody reported
    report                       the change

A change is judged again on each manifest that somebody else wrote meanwhile, so what allowed it is what it follows on.

The objects of a commit are put side by side, so a writer that died may leave a commit without its shards. No log leads
to it; a ref that would is refused, unless another stands there already, which proves that it is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from headwater.catalog.embedded.beginning import plant
from headwater.catalog.embedded.codec import MIGRATIONS, Migrations, encode_manifest, newest_format
from headwater.catalog.embedded.decide import (
    is_under_a_ref,
    judge_began,
    judge_past,
    with_history_horizon,
    with_moved_ref,
    with_new_ref,
    with_staging_horizon,
    without_ref,
)
from headwater.catalog.embedded.model import Manifest, StoredCommit
from headwater.catalog.embedded.objects import Objects
from headwater.catalog.embedded.reading import EmbeddedReader
from headwater.catalog.errors import CatalogBusyError, CommitNotFoundError
from headwater.catalog.model import Ref, RefKind
from headwater.catalog.names import check_ref_name
from headwater.kernel.errors import HeadwaterError, UsageError
from headwater.kernel.ids import Ulid, new_ulid, parse_ulid
from headwater.kernel.retry import Patience
from headwater.sequence.history import History
from headwater.sequence.model import SequenceConflictError, SequenceOutcomeUnknownError
from headwater.sequence.protocol import Sequencer
from headwater.storage.errors import ReadOnlyError

EMPTY_ACTOR = "headwater:branch"


class EmbeddedRefs(EmbeddedReader):
    """The refs and horizons of one lake."""

    def __init__(self, history: History, objects: Objects, lake: Ulid, *, migrations: Migrations = MIGRATIONS) -> None:
        super().__init__(history, objects, lake, migrations=migrations)
        self._clock = history.clock
        self._randomness = history.randomness

    def create_ref(self, kind: RefKind, name: str, at: str) -> Ref:
        """A new branch or tag at an existing commit."""
        self._sequencer()
        ref = Ref(check_ref_name(name), kind, at, new_ulid(self._clock, self._randomness))
        commit = self._whole(self._kept(at)).commit
        self._change(lambda manifest: with_new_ref(manifest, ref, self._current_until(manifest, commit)))
        return ref

    def create_empty_branch(self, name: str) -> Ref:
        """A new branch that shares no history with the others."""
        self._sequencer()
        check_ref_name(name)
        put_at = self._clock.now()
        first = plant(self._objects, EMPTY_ACTOR, f"{name} begins empty", self._clock, self._randomness).commit
        ref = Ref(name, RefKind.BRANCH, first.hash, new_ulid(self._clock, self._randomness))

        def add(manifest: Manifest) -> Manifest:
            judge_began(manifest, put_at)  # the objects may have been swept before anything led to them
            return with_new_ref(manifest, ref, first.committed_at)

        self._change(add)
        return ref

    def delete_ref(self, name: str, expected: str, *, incarnation: Ulid | None = None) -> None:
        """Remove the ref while it is at `expected`, and of this incarnation if one is named."""
        self._change(lambda manifest: without_ref(manifest, name, expected, incarnation))

    def assign_ref(self, name: str, to: str, expected: str, *, incarnation: Ulid | None = None) -> Ref:
        """Move the ref from `expected` to another existing commit."""
        self._sequencer()
        commit = self._whole(self._kept(to)).commit

        def move(manifest: Manifest) -> Manifest:
            return with_moved_ref(
                manifest, name, to, self._current_until(manifest, commit), expected, incarnation=incarnation
            )

        return self._change(move).refs[name]

    def migrate(self) -> None:
        """Store the manifest in the newest format, if it is in an older one."""
        newest = newest_format(self._migrations)
        self._change(lambda manifest: replace(manifest, format=newest))

    def publish_history_horizon(self, moment: datetime) -> datetime:
        """Say that what was superseded before `moment` may be collected; it only rises. Returns where it is."""
        passed = self._passed(moment)
        history = self._change(lambda manifest: with_history_horizon(manifest, passed)).horizons.history
        assert history is not None  # it was just raised, or was there
        return history

    def publish_staging_horizon(self, moment: datetime) -> datetime:
        """Say that objects that nothing refers to may be swept if they were put before `moment`; it only rises."""
        passed = self._passed(moment)
        staging = self._change(lambda manifest: with_staging_horizon(manifest, passed)).horizons.staging
        assert staging is not None  # it was just raised, or was there
        return staging

    def _passed(self, moment: datetime) -> datetime:
        passed = _utc(moment)
        judge_past(passed, self._clock.now())
        return passed

    def _whole(self, stored: StoredCommit) -> StoredCommit:
        """The commit, if its writer finished it."""
        commit = stored.commit
        if not is_under_a_ref(self._seen().manifest, commit.hash) and not self._trees.is_whole(stored.tree):
            self._judge_kept(commit)  # else it was collected while we looked
            raise CommitNotFoundError(commit.hash, "parts of it are missing; its writer never finished it")
        return stored

    def _change(self, change: Callable[[Manifest], Manifest]) -> Manifest:
        """Change the manifest as `change` says, against whoever else does; the same manifest means that it is so."""
        sequencer, patience = self._sequencer(), self._history.retry.patience()
        while True:
            seen = self._seen()
            wanted = change(seen.manifest)
            if wanted == seen.manifest:
                return wanted
            try:
                sequencer.write(encode_manifest(wanted), after=seen.entry)
            except SequenceConflictError as error:
                self._wait(patience, error)
            except SequenceOutcomeUnknownError as error:
                try:
                    proven = self._proven(error)
                except HeadwaterError:
                    raise error from None  # what keeps us from knowing does not make it known
                if proven is None:
                    raise
                if proven:
                    return wanted
                self._wait(patience, error)
            else:
                return wanted

    def _proven(self, error: SequenceOutcomeUnknownError) -> bool | None:
        return self._sequencer().outcome(error.id, parse_ulid(error.operation))

    def _wait(self, patience: Patience, error: HeadwaterError) -> None:
        if not patience.wait():
            raise CatalogBusyError(self.name) from error

    def _sequencer(self) -> Sequencer:
        if not isinstance(self._history, Sequencer):
            raise ReadOnlyError(f"{self.name} is open for reading only; nothing was changed")
        return self._history


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise UsageError(f"{moment.isoformat()} has no offset from UTC", hint=f"write {moment.isoformat()}Z for UTC")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise UsageError(f"{moment.isoformat()} cannot be told in UTC", hint="take a moment of this age") from None
