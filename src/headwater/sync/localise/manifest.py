"""Localising some manifests: what one task does, in this process or in another. See `protocol.py` for the rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from headwater.sync.localise.codec import digest_of, location_of
from headwater.sync.localise.model import ManifestDone, ManifestWork, Output, OutputKind, Place
from headwater.sync.localise.store import create, length_of, side_by_side
from headwater.tables.relocate_deletes import relocate_position_deletes, relocate_vectors
from headwater.tables.relocate_manifests import (
    DeleteEntry,
    DeleteKind,
    MovedDeletes,
    delete_entries,
    relocate_data_manifest,
    relocate_delete_manifest,
)


def localise_manifests(place: Place, works: Sequence[ManifestWork]) -> Iterator[ManifestDone]:
    """What each manifest has become."""
    of_data = [each for each in works if not each.is_deletes]
    outputs = [_manifest_output(place, each) for each in of_data]
    if outputs:
        place.outputs.record(outputs)
    yield from side_by_side(lambda work: _data_manifest(place, work), of_data)
    for work in works:
        if work.is_deletes:
            yield _delete_manifest(place, work)


def _manifest_output(place: Place, work: ManifestWork, content: bytes | None = None) -> Output:
    digest = digest_of(place, OutputKind.MANIFEST, work.source, work.version)
    return Output(location_of(place, OutputKind.MANIFEST, digest, content=content), OutputKind.MANIFEST, work.source)


def _data_manifest(place: Place, work: ManifestWork) -> ManifestDone:
    location = _manifest_output(place, work).location
    length = length_of(place, location)
    if length is not None:
        return ManifestDone(work.source, location, length)
    data = place.files.read(work.source)
    moved = relocate_data_manifest(data, work.source, place.mapping.destination, entries=work.entries)
    length, is_ours = create(place, location, moved)
    return ManifestDone(work.source, location, length, manifests_read=1, manifests_written=int(is_ours))


def _delete_manifest(place: Place, work: ManifestWork) -> ManifestDone:
    """Always read: that it was written before does not mean that the outputs which it names are still there."""
    data = place.files.read(work.source)
    entries = {
        each.location: each
        for each in delete_entries(data, work.source, entries=work.entries)
        if each.kind is not DeleteKind.EQUALITY
    }
    outputs = {each.location: _output_of(place, each) for each in entries.values()}
    if outputs:
        place.outputs.record(list(outputs.values()))
    results = dict(
        zip(
            entries,
            side_by_side(lambda each: _delete_file(place, each, outputs[each.location].location), entries.values()),
            strict=True,
        )
    )
    moved = {location: deletes for location, (deletes, _) in results.items()}
    content = relocate_delete_manifest(data, work.source, place.mapping.destination, moved)
    output = _manifest_output(place, work, content)
    place.outputs.record([output])
    length, is_ours = create(place, output.location, content)
    written = sum(is_written for _, is_written in results.values())
    return ManifestDone(work.source, output.location, length, 1, int(is_ours), written)


def _output_of(place: Place, entry: DeleteEntry) -> Output:
    kind = OutputKind.VECTORS if entry.kind is DeleteKind.VECTORS else OutputKind.POSITION_DELETES
    digest = digest_of(place, kind, entry.location, str(entry.size_bytes))
    return Output(location_of(place, kind, digest, file_format=entry.file_format), kind, entry.location)


def _delete_file(place: Place, entry: DeleteEntry, location: str) -> tuple[MovedDeletes, bool]:
    """What a file of position deletes or vectors has become, and whether it was written now."""
    size_bytes = length_of(place, location)
    if size_bytes is not None and entry.kind is DeleteKind.VECTORS:
        return MovedDeletes(location, size_bytes), False
    if size_bytes is not None:
        # Only for its bounds, which its manifest needs: all of its paths are as they should be.
        found = relocate_position_deletes(place.files.read(location), location, entry.file_format, lambda path: path)
        return MovedDeletes(location, size_bytes, found.bounds), False
    data, paths = place.files.read(_nearest(place, entry)), _Noting(place.mapping.destination)
    bounds = None
    if entry.kind is DeleteKind.VECTORS:
        content = relocate_vectors(data, entry.location, paths)
    else:
        moved = relocate_position_deletes(data, entry.location, entry.file_format, paths)
        content, bounds = moved.data, moved.bounds
    if not paths.has_changed and place.mapping.destination(entry.location) == entry.location:
        return MovedDeletes(entry.location, len(data), bounds), False
    size_bytes, is_ours = create(place, location, content)
    return MovedDeletes(location, size_bytes, bounds), is_ours


def _nearest(place: Place, entry: DeleteEntry) -> str:
    """The region's own copy, which the steps before have made and verified, where there is one."""
    copy = place.mapping.destination(entry.location)
    return copy if length_of(place, copy) == entry.size_bytes else entry.location


class _Noting:
    """Resolves paths, and remembers whether any has changed."""

    def __init__(self, resolve: Callable[[str], str]) -> None:
        self._resolve = resolve
        self.has_changed = False

    def __call__(self, path: str) -> str:
        place = self._resolve(path)
        self.has_changed = self.has_changed or place != path
        return place
