"""Deleting files and forks that nothing ever referenced.

Promise: no byte that any commit has ever referenced is deleted, and none that a change which can still be committed
needs; what is only not known is kept, and told.

Invariants:

    1  The staging horizon is published before anything is looked at. From then on the catalog refuses, at the commit
       itself, every change that began before it (P10): what such a change staged and no commit holds by then, no commit
       ever will. File names tell the operation, and the operation its beginning, so no two clocks are compared.
    2  Everything that a delete is decided on was read after what is deleted was listed.
    3  It is all read again just before the first delete, and what is not confirmed stays.
    4  Whatever cannot be read keeps what it might lead to.

Commit point: none; each delete is final, and stands for itself.

Steps, and what a crash after each leaves behind:

    publish the horizon      changes that began before it are refused; nothing is gone
    read the sidecars        the same
    list the files           the same
    read what commits hold   the same
    read it all again        the same
    delete, one by one       less of what nothing ever referenced: the next cleanup goes on

Children go before parents, so what is left never leads to what is gone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from headwater.catalog.port import Catalog, Keeping
from headwater.kernel.clock import Clock
from headwater.kernel.errors import HeadwaterError, RefusedError, UsageError
from headwater.kernel.ids import Ulid, parse_ulid
from headwater.kernel.logs import Log
from headwater.publish.cleanup.decide import (
    fate_of_file,
    fate_of_fork,
    folder_of,
    in_order,
    is_bookkeeping,
    root_of,
)
from headwater.publish.cleanup.model import AS_IT_SHOULD_BE, Cleaned, Fate, Fork, Found, Kept, Known, StagedFile
from headwater.publish.cleanup.survey import Survey
from headwater.publish.forks.decide import fork_of
from headwater.publish.recovery import CLOCK_SKEW
from headwater.publish.sidecars import Sidecars
from headwater.storage.residue import clear_residue
from headwater.tables.files import Files
from headwater.tables.head import OPERATION
from headwater.tables.model import TableCorruptError
from headwater.tables.naming import operation_of

_log = Log("publish")


@dataclass(frozen=True)
class _Listed:
    """What there is, sorted by how it is judged."""

    files: tuple[StagedFile, ...]
    forks: tuple[Fork, ...]
    documents: tuple[Found, ...]
    unknown: tuple[Found, ...]


class Cleanup:
    """Cleans up one lake."""

    def __init__(
        self,
        catalog: Catalog,
        files: Files,
        sidecars: Sidecars,
        *,
        location: str,
        clock: Clock,
        margin: timedelta = CLOCK_SKEW,
    ) -> None:
        self._catalog = catalog
        self._files = files
        self._sidecars = sidecars
        # The very store that files are read from: of another nothing would seem to be in use.
        self._store, _ = files.place(f"{location}/_")
        self._location = location
        self._clock = clock
        self._margin = margin

    def run(self, *, older_than: timedelta, dry_run: bool = False) -> Cleaned:
        """Delete what nothing ever referenced and is older than this; a dry run publishes and deletes nothing."""
        keeping = self._keeping()
        horizon = self._horizon(keeping, older_than, dry_run=dry_run)
        survey = Survey(
            self._catalog, keeping, self._sidecars, self._files, location=self._location, margin=self._margin
        )
        self._sidecars.pending()  # one that cannot be read is found out before anything else is
        listed = _sorted(self._list())
        known = survey.look(horizon)
        listed, unsure = self._with_documents(listed, known)
        doomed, kept = _judged(listed, known)
        kept += unsure
        if doomed and not dry_run:
            doomed, more = self._confirmed(survey, listed, doomed, horizon)
            kept += more
        doomed = in_order(doomed)
        if not dry_run:
            doomed, more = self._delete(doomed)
            kept += more
        residue = clear_residue(self._store, horizon - self._margin, dry_run=dry_run)
        left = tuple(Found(meta.path, meta.size_bytes, meta.last_modified) for meta in residue)
        return Cleaned(horizon, tuple(doomed), tuple(sorted(kept, key=lambda each: each.path)), left)

    def _keeping(self) -> Keeping:
        keeping = self._catalog.keeping
        if keeping is None:
            raise RefusedError(f"{self._catalog.name} cannot be cleaned up here: its files are not ours to delete")
        return keeping

    def _horizon(self, keeping: Keeping, older_than: timedelta, *, dry_run: bool) -> datetime:
        if older_than < timedelta(0):
            raise UsageError("what is younger than now cannot be cleaned up", hint="give an age, like 3d")
        try:
            wanted = self._clock.now() - older_than
        except OverflowError:
            raise UsageError("nothing is as old as that", hint="give a shorter age, like 3d") from None
        if not dry_run:
            return keeping.publish_staging_horizon(wanted)
        present = keeping.horizons().staging
        return wanted if present is None else max(wanted, present)

    def _list(self) -> list[Found]:
        return [
            Found(meta.path, meta.size_bytes, meta.last_modified)
            for meta in self._store.list()
            if not is_bookkeeping(meta.path)
        ]

    def _with_documents(self, listed: _Listed, known: Known) -> tuple[_Listed, list[Kept]]:
        """With the documents of tables that no commit knows: what they say tells their operation."""
        files, unsure = list(listed.files), []
        for found in listed.documents:
            root = root_of(found.path)
            if root is None or folder_of(root) in known.tables:
                continue  # of a table's own sequence
            try:
                files.append(StagedFile(found, self._operation(found.path)))
            except HeadwaterError as error:
                unsure.append(Kept(found.path, Fate.UNKNOWN, error.message))
        return _Listed(tuple(files), listed.forks, listed.documents, listed.unknown), unsure

    def _operation(self, path: str) -> Ulid:
        """The operation that a document names; a tombstone names the one whose place it took."""
        try:
            return parse_ulid(str(json.loads(self._store.get(path).data)["properties"][OPERATION]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise TableCorruptError(path, "is not table metadata written here, or was cut short") from error

    def _confirmed(
        self, survey: Survey, listed: _Listed, doomed: list[Found], horizon: datetime
    ) -> tuple[list[Found], list[Kept]]:
        """What a second look dooms too. Where it fails, nothing is confirmed, and a later cleanup converges."""
        try:
            again, told = _judged(listed, survey.look(horizon))
        except HeadwaterError as error:
            _log.warning("what is to be deleted could not be confirmed", error=str(error))
            return [], [Kept(each.path, Fate.INDETERMINATE, error.message) for each in doomed]
        still, lost = set(again), {each.path for each in doomed} - {each.path for each in again}
        return [each for each in doomed if each in still], [each for each in told if each.path in lost]

    def _delete(self, doomed: Sequence[Found]) -> tuple[list[Found], list[Kept]]:
        gone, kept = [], []
        for each in doomed:
            try:
                self._store.delete(each.path)
            except HeadwaterError as error:
                kept.append(Kept(each.path, Fate.NOT_DELETED, error.message))
            else:
                gone.append(each)
        if gone:
            _log.info("cleaned up", deleted=len(gone), size_bytes=sum(each.size_bytes for each in gone))
        return gone, kept


def _sorted(found: Sequence[Found]) -> _Listed:
    """The objects by how they are judged."""
    files, documents, unknown = [], [], []
    forks: dict[tuple[str, Ulid], list[Found]] = {}
    for each in found:
        fork, operation = fork_of(each.path), operation_of(each.path)
        if fork is not None:
            forks.setdefault(fork, []).append(each)
        elif root_of(each.path) is not None:
            documents.append(each)
        elif operation is not None:
            files.append(StagedFile(each, operation))
        else:
            unknown.append(each)
    grouped = (Fork(root, incarnation, tuple(objects)) for (root, incarnation), objects in forks.items())
    return _Listed(tuple(files), tuple(grouped), tuple(documents), tuple(unknown))


def _judged(listed: _Listed, known: Known) -> tuple[list[Found], list[Kept]]:
    """What is to go, and what stays and is worth telling."""
    fates = [(each.found, fate_of_file(each, known)) for each in listed.files]
    fates += [(found, fate) for fork in listed.forks for fate in [fate_of_fork(fork, known)] for found in fork.objects]
    fates += [
        (each, Fate.UNKNOWN)
        for each in listed.unknown
        if each.path not in known.reached and each.last_modified < known.horizon
    ]
    doomed = [found for found, fate in fates if fate is Fate.NEVER_REFERENCED]
    told = [Kept(found.path, fate) for found, fate in fates if fate not in AS_IT_SHOULD_BE | {Fate.NEVER_REFERENCED}]
    return doomed, told
