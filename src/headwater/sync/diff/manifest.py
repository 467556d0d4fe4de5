"""The live files of one manifest: a plain function, which Spark maps over many."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.manifest import ManifestEntryStatus, ManifestFile

from headwater.sync.diff.model import Needed
from headwater.tables.files import FileReader
from headwater.tables.manifests import live, read_manifest
from headwater.tables.reach import kind_of


def live_files(files: FileReader, manifest: ManifestFile) -> Iterator[Needed]:
    """Every file that is live in the manifest.

    An entry that says that a file was deleted may name one that is gone, and needs nothing.
    """
    for entry in read_manifest(files, manifest):
        if entry.status is not ManifestEntryStatus.DELETED:
            file = live(entry).file
            yield Needed(kind_of(file), file.file_path, file.file_size_in_bytes)
