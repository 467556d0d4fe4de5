"""Localising one table: outputs that name the region's files, written bottom-up, found again by their names.

Promise: the metadata.json that comes out names the same rows as the one that went in, and no file outside of what the
mapping says; every output that it leads to is there, with the length that its parent tells. A failure or a crash
changes nothing that anybody reads.

Invariants:

    1  Nothing is ever overwritten: outputs go to a reserved prefix, under names made from everything that their bytes
       depend on (codec.py), and are created only where nothing is (R5).
    2  An output is listed and claimed before it is looked for or written (G3, G4).
    3  Children before parents: delete files, manifests, manifest lists, metadata.json. A parent takes the length of a
       child from what is stored, not from what was meant to be.
    4  What is reused is there: it was looked at in this run, or the replica's own head leads to it, which keeps it
       alive. A manifest of deletes leads to outputs itself, so it is reused for the second reason alone.
    5  Deletes hold for what they held for: position deletes and vectors are written anew with the new paths of the data
       files, and so are their bounds in the manifest (R9). Entries that say that a file was deleted need no file.

Commit point: none here; whoever promotes the returned location makes it visible.

Steps, and what a crash after each leaves behind:

    read metadata.json and manifest lists    nothing
    list the outputs                         lines of outputs that are not there
    write delete files, manifests            outputs that nothing names; the next run finds them by their names
    write manifest lists                     the same
    write metadata.json                      the same: nobody was told of it

The driver holds a line for each manifest, and never one for each file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from headwater.kernel.errors import UsageError
from headwater.kernel.logs import Log
from headwater.sync.localise.codec import digest_in, digest_of, location_of, version_of_bytes
from headwater.sync.localise.decide import SnapshotToKeep, snapshots_to_keep, work_of
from headwater.sync.localise.manifest import localise_manifests
from headwater.sync.localise.model import Localised, ManifestDone, ManifestWork, Output, OutputKind, Place
from headwater.sync.localise.store import create, side_by_side
from headwater.tables.avro import DAMAGE, said
from headwater.tables.manifests import MANIFEST_LIST_SEAL, manifest_list_seal
from headwater.tables.model import OutsideLakeError, TableCorruptError
from headwater.tables.relocate_lists import ManifestList, MovedManifest, manifests_in, open_manifest_list
from headwater.tables.relocate_metadata import MovedList, open_document, relocate_metadata

# Does the work, here or elsewhere; the order of the answers is free.
Spread: TypeAlias = Callable[[Sequence[ManifestWork]], Iterable[ManifestDone]]
# They are held until their manifests are done; a line takes a kilobyte.
_LISTS_AT_ONCE: Final = 16

_log = Log("sync.localise")


@dataclass(frozen=True)
class _Known:
    """Outputs that the replica's head leads to, by the digests in their names."""

    lists: dict[str, MovedList] = field(default_factory=dict)
    manifests: dict[str, MovedManifest] = field(default_factory=dict)


def localise(place: Place, source: str, *, spread: Spread | None = None, promoted: str | None = None) -> Localised:
    """Metadata for the region, of the table whose metadata.json is at `source`.

    `spread` does the manifests, by default in this process. `promoted` is the metadata.json that the replica shows now:
    what it leads to is taken as it is, so that one more commit costs what it adds.
    """
    if digest_in(place, source) is not None:
        raise UsageError(
            f"{source} was localised already", hint="localise what `main` names, not what a replica does", path=source
        )
    data = place.files.read(source)
    document = open_document(data, source)
    known = _known(place, promoted)
    table = _Table(place, known, spread or (lambda works: localise_manifests(place, works)))
    lists = table.lists_of(document, _snapshots(place, document, source))
    content = relocate_metadata(document, source, place.mapping.destination, place.mapping.folder, lists)
    digest = digest_of(place, OutputKind.METADATA, source, version_of_bytes(data))
    location = location_of(place, OutputKind.METADATA, digest, content=content)
    place.outputs.record([Output(location, OutputKind.METADATA, source)])
    create(place, location, content)
    return replace(table.told, source=source, location=location, snapshot_ids=tuple(lists))


def _snapshots(place: Place, document: dict[str, Any], source: str) -> tuple[SnapshotToKeep, ...]:
    try:
        return snapshots_to_keep(document, place.history)
    except DAMAGE as error:
        raise TableCorruptError(source, f"is not table metadata: {said(error)}") from error


class _Table:
    """One table on its way; `told` is what it took so far."""

    def __init__(self, place: Place, known: _Known, spread: Spread) -> None:
        self.told = Localised("", "", ())
        self._place = place
        self._known = known
        self._spread = spread
        self._manifests: dict[str, MovedManifest] = {}

    def lists_of(self, document: dict[str, Any], keep: Sequence[SnapshotToKeep]) -> dict[int, MovedList]:
        """The manifest lists of the snapshots, in the order of the document."""
        summaries = {each["snapshot-id"]: each.get("summary") or {} for each in document.get("snapshots") or ()}
        found: dict[int, MovedList] = {}
        missing: list[SnapshotToKeep] = []
        for each in keep:
            known = self._known.lists.get(self._digest(each))
            if known is None:
                missing.append(each)
            else:
                found[each.snapshot_id] = known
        for start in range(0, len(missing), _LISTS_AT_ONCE):
            some = missing[start : start + _LISTS_AT_ONCE]
            opened = list(side_by_side(lambda each: self._open(each, summaries[each.snapshot_id]), some))
            self._localise_manifests(opened)
            moved = side_by_side(lambda pair: self._write_list(*pair), zip(some, opened, strict=True))
            for each, (location, content, is_ours) in zip(some, moved, strict=True):
                has_seal = MANIFEST_LIST_SEAL in summaries[each.snapshot_id]
                found[each.snapshot_id] = MovedList(
                    location, manifest_list_seal(location, content) if has_seal else None
                )
                self._count(lists_read=1, lists_written=int(is_ours))
        return {each.snapshot_id: found[each.snapshot_id] for each in keep}

    def _digest(self, snapshot: SnapshotToKeep) -> str:
        return digest_of(self._place, OutputKind.MANIFEST_LIST, snapshot.manifest_list, snapshot.version)

    def _open(self, snapshot: SnapshotToKeep, summary: Mapping[str, str]) -> ManifestList:
        return open_manifest_list(self._place.files.read(snapshot.manifest_list), snapshot.manifest_list, summary)

    def _localise_manifests(self, lists: Sequence[ManifestList]) -> None:
        works: dict[str, ManifestWork] = {}
        reused = 0
        for line in (line for each in lists for line in each.lines):
            if line.location in self._manifests or line.location in works:
                continue
            work = work_of(line)
            known = self._known.manifests.get(digest_of(self._place, OutputKind.MANIFEST, work.source, work.version))
            if known is None:
                works[work.source] = work
            else:
                self._manifests[work.source] = known
                reused += 1
        for done in self._spread(tuple(works.values())) if works else ():
            self._manifests[done.source] = MovedManifest(done.location, done.length_bytes)
            reused += not done.manifests_written
            self._count(
                manifests_read=done.manifests_read,
                manifests_written=done.manifests_written,
                deletes_written=done.deletes_written,
            )
        self._count(manifests_reused=reused)

    def _write_list(self, snapshot: SnapshotToKeep, opened: ManifestList) -> tuple[str, bytes, bool]:
        content = opened.relocated(self._manifests)
        location = location_of(self._place, OutputKind.MANIFEST_LIST, self._digest(snapshot), content=content)
        self._place.outputs.record([Output(location, OutputKind.MANIFEST_LIST, snapshot.manifest_list)])
        _, is_ours = create(self._place, location, content)
        return location, content, is_ours

    def _count(self, **more: int) -> None:
        self.told = replace(self.told, **{name: getattr(self.told, name) + value for name, value in more.items()})


def _known(place: Place, promoted: str | None) -> _Known:
    """What the replica's head leads to. Without it more is looked at, and nothing is missed."""
    if promoted is None:
        return _Known()
    try:
        document = open_document(place.files.read(promoted), promoted)
        snapshots = document.get("snapshots") or []
        lists = {
            digest: MovedList(each["manifest-list"], (each.get("summary") or {}).get(MANIFEST_LIST_SEAL))
            for each in snapshots
            if (digest := digest_in(place, each["manifest-list"])) is not None
        }
        current = document.get("current-snapshot-id")
        paths = [each["manifest-list"] for each in snapshots if each["snapshot-id"] == current]
        found = [each for path in paths for each in manifests_in(place.files.read(path), path)]
    except (TableCorruptError, OutsideLakeError, *DAMAGE) as error:  # a region that moved left its old place behind
        _log.warning("nothing is reused: what the replica shows cannot be read", path=promoted, error=str(error))
        return _Known()
    manifests = {digest: each for each in found if (digest := digest_in(place, each.location)) is not None}
    return _Known(lists, manifests)
