"""The manifests of one kind, of one snapshot, made from those of the snapshot before it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from pyiceberg.manifest import ManifestContent, ManifestEntryStatus, ManifestFile

from headwater.tables.files import FileReader
from headwater.tables.manifest_writing import EntryToWrite, ManifestTerms, write_manifest
from headwater.tables.manifests import live_files, read_manifest
from headwater.tables.model import LiveFile, NewFile, TableFile, TableUsageError
from headwater.tables.pruning import spec_of
from headwater.tables.scan import fetch

# As in Iceberg's own writers: when there are this many manifests, small ones are merged, up to this size.
MERGE_FROM = 100
MERGED_BYTES = 8 * 1024 * 1024


class ManifestEdit:
    """Adds files, drops files, merges what has become small; remembers what it found, added and dropped."""

    def __init__(
        self,
        files: FileReader,
        terms: ManifestTerms,
        content: ManifestContent,
        *,
        prefix: str,
        drops: Callable[[TableFile], bool],
        must_drop: frozenset[str] = frozenset(),
    ) -> None:
        self._files = files
        self._terms = terms
        self._content = content
        self._prefix = prefix
        self._drops = drops
        self._must_drop = must_drop
        self.new_files: list[NewFile] = []
        self.added: list[TableFile] = []
        self.dropped: list[TableFile] = []
        # What the manifests held that were read: all of them, when these are deletes.
        self.found: list[LiveFile] = []

    def apply(
        self, base: Sequence[ManifestFile], added: Iterable[TableFile], sequence_number: int | None = None
    ) -> list[ManifestFile]:
        """The manifests of the new snapshot, newest first."""
        kept = [each for each in base if each.has_added_files() or each.has_existing_files()]
        if self._must_drop or self._content is ManifestContent.DELETES:
            kept = self._without_dropped(kept)
        missing = self._must_drop - {each.file_path for each in self.dropped}
        if missing:
            raise TableUsageError(
                f"{min(missing)} is not a data file of {self._terms.metadata.location}, so it cannot be removed",
                path=min(missing),
            )
        return self._merged([*self._of_added(added, sequence_number), *kept])

    def _of_added(self, added: Iterable[TableFile], sequence_number: int | None) -> list[ManifestFile]:
        number = self._terms.sequence_number if sequence_number is None else sequence_number
        by_spec: defaultdict[int, list[EntryToWrite]] = defaultdict(list)
        for file in added:
            self.added.append(file)
            entry = LiveFile(file, number, None, self._terms.snapshot_id)
            by_spec[file.spec_id].append(EntryToWrite(ManifestEntryStatus.ADDED, entry))
        return [self._write(spec_id, entries) for spec_id, entries in by_spec.items()]

    def _without_dropped(self, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
        """The manifests, those that hold a dropped file written again."""
        result = []
        for manifest, fetched in fetch(self._files, manifests):
            kept: list[LiveFile] = []
            dropped: list[LiveFile] = []
            live = live_files(read_manifest(fetched, manifest))
            self.found.extend(live)
            for each in live:
                (dropped if self._drops(each.file) else kept).append(each)
            if not dropped:
                result.append(manifest)
                continue
            self.dropped.extend(each.file for each in dropped)
            entries = [EntryToWrite(ManifestEntryStatus.EXISTING, each) for each in kept]
            entries += [EntryToWrite(ManifestEntryStatus.DELETED, each) for each in dropped]
            result.append(self._write(manifest.partition_spec_id, entries))
        return result

    def _merged(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        """Small manifests of one spec become one when there are many; what this snapshot did to files stays told."""
        if len(manifests) < MERGE_FROM:
            return manifests
        own = {file.location: file for file in self.new_files}
        by_spec: defaultdict[int, list[ManifestFile]] = defaultdict(list)
        result = []
        for manifest in manifests:
            if manifest.manifest_path in own or manifest.manifest_length >= MERGED_BYTES:
                result.append(manifest)
            else:
                by_spec[manifest.partition_spec_id].append(manifest)
        for spec_id, group in by_spec.items():
            result.extend(self._merge(spec_id, group))
        return result

    def _merge(self, spec_id: int, group: list[ManifestFile]) -> list[ManifestFile]:
        merged: list[ManifestFile] = []
        entries: list[EntryToWrite] = []
        size = 0
        for manifest, fetched in fetch(self._files, group):
            if entries and size + manifest.manifest_length > MERGED_BYTES:
                merged.append(self._write(spec_id, entries))
                entries, size = [], 0
            live = live_files(read_manifest(fetched, manifest))
            entries += [EntryToWrite(ManifestEntryStatus.EXISTING, each) for each in live]
            size += manifest.manifest_length
        if entries:
            merged.append(self._write(spec_id, entries))
        return merged

    def _write(self, spec_id: int, entries: Sequence[EntryToWrite]) -> ManifestFile:
        location = f"{self._prefix}-m{len(self.new_files)}.avro"
        spec = spec_of(self._terms.metadata, spec_id, self._terms.metadata.location)
        manifest, data = write_manifest(self._terms, location, self._content, spec, entries)
        self.new_files.append(NewFile(location, data))
        return manifest
