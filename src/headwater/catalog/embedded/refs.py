"""Changing the manifest itself: refs, horizons, its format. Each change is one compare-and-swap of the whole state.

    read the manifest, judge     nothing
    create the next manifest     a change that nobody reported
    report                       the change

A change is judged again on each manifest that somebody else wrote meanwhile, so what allowed it is what it follows on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from headwater.catalog.embedded.codec import MIGRATIONS, Migrations, encode_manifest, newest_format
from headwater.catalog.embedded.decide import (
    with_history_horizon,
    with_moved_ref,
    with_new_ref,
    with_staging_horizon,
    without_ref,
)
from headwater.catalog.embedded.model import Manifest
from headwater.catalog.embedded.objects import Objects
from headwater.catalog.embedded.reading import EmbeddedReader
from headwater.catalog.errors import CatalogBusyError
from headwater.catalog.model import Ref, RefKind
from headwater.catalog.names import check_ref_name
from headwater.kernel.errors import HeadwaterError, UsageError
from headwater.kernel.ids import Ulid, new_ulid, parse_ulid
from headwater.kernel.retry import Patience
from headwater.sequence.history import History
from headwater.sequence.model import SequenceConflictError, SequenceOutcomeUnknownError
from headwater.sequence.protocol import Sequencer
from headwater.storage.errors import ReadOnlyError


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
        committed_at = self._kept(at).commit.committed_at
        self._change(lambda manifest: with_new_ref(manifest, ref, committed_at))
        return ref

    def delete_ref(self, name: str, expected: str) -> None:
        """Remove the ref while it is at `expected`."""
        self._change(lambda manifest: without_ref(manifest, name, expected))

    def assign_ref(self, name: str, to: str, expected: str) -> Ref:
        """Move the ref from `expected` to another existing commit."""
        self._sequencer()
        committed_at = self._kept(to).commit.committed_at
        return self._change(lambda manifest: with_moved_ref(manifest, name, to, committed_at, expected)).refs[name]

    def migrate(self) -> None:
        """Store the manifest in the newest format, if it is in an older one."""
        newest = newest_format(self._migrations)
        self._change(lambda manifest: replace(manifest, format=newest))

    def publish_history_horizon(self, moment: datetime) -> datetime:
        """Say that commits before `moment` may be collected; it only rises. Returns where it is."""
        history = self._change(lambda manifest: with_history_horizon(manifest, _utc(moment))).horizons.history
        assert history is not None  # it was just raised, or was there
        return history

    def publish_staging_horizon(self, moment: datetime) -> datetime:
        """Say that objects that nothing refers to may be swept if they were put before `moment`; it only rises."""
        staging = self._change(lambda manifest: with_staging_horizon(manifest, _utc(moment))).horizons.staging
        assert staging is not None  # it was just raised, or was there
        return staging

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
    return moment
