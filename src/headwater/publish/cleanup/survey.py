"""Reading everything that a cleanup is decided on: sidecars, horizons, refs, and what every retained commit leads to.

The second look costs little: documents and manifests never change, so only those of new commits are read. What could
not be read stays unreadable for this survey, whatever a later try would find.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from pyiceberg.table.metadata import TableMetadata

from headwater.catalog.model import TableContent, ViewContent
from headwater.catalog.port import Catalog, Keeping
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.ids import Ulid
from headwater.kernel.logs import Log
from headwater.publish.cleanup.decide import folder_of, root_of
from headwater.publish.cleanup.model import Known
from headwater.publish.sidecars import Sidecars
from headwater.tables.files import Files, normalise
from headwater.tables.head import METADATA_FOLDER
from headwater.tables.layout import DATA_PATH
from headwater.tables.metadata import decode_metadata
from headwater.tables.reach import Unreadable, reach_all

_FILE = "file://"
_SLASHES = re.compile("/{2,}")

_log = Log("publish")


class Survey:
    """What one cleanup has found out so far."""

    def __init__(
        self,
        catalog: Catalog,
        keeping: Keeping,
        sidecars: Sidecars,
        files: Files,
        *,
        location: str,
        margin: timedelta,
    ) -> None:
        self._catalog = catalog
        self._keeping = keeping
        self._sidecars = sidecars
        self._files = files
        self._location = normalise(location)
        self._margin = margin
        self._seen: set[str] = set()
        self._documents: set[str] = set()
        self._reached: set[str] = set()
        self._folders: dict[str, set[str]] = {}
        self._unreadable: set[str] = set()

    def look(self, horizon: datetime) -> Known:
        """Everything as it is now. Whatever the catalog or the sidecars will not tell is an error."""
        pending = self._sidecars.pending()
        committed = frozenset(self._commits())
        live = frozenset(ref.incarnation for ref in self._catalog.refs())
        return Known(
            horizon=horizon,
            history=self._keeping.horizons().history,
            margin=self._margin,
            committed=committed,
            pending=frozenset(each.operation for each in pending),
            planned=frozenset(head.path for each in pending for head in each.heads),
            reached=frozenset(self._reached),
            tables=frozenset(folder for folders in self._folders.values() for folder in folders),
            unreadable=frozenset(self._unreadable),
            live=live,
        )

    def _commits(self) -> Iterator[Ulid]:
        """The operations of all retained commits, while what they lead to is noted."""
        for each in self._keeping.retained():
            if each.commit.operation is not None:
                yield each.commit.operation
            if each.is_readable and each.commit.hash not in self._seen:
                self._note(content for _, content in self._catalog.contents(each.commit.hash))
                self._seen.add(each.commit.hash)

    def _note(self, contents: Iterable[object]) -> None:
        """What a commit holds leads to."""
        versions = []
        for content in contents:
            if isinstance(content, ViewContent):
                self._reach(content.metadata_location)
            elif isinstance(content, TableContent) and content.metadata_location not in self._documents:
                self._documents.add(content.metadata_location)
                self._reach(content.metadata_location)
                metadata = self._metadata(content.metadata_location)
                if metadata is not None:
                    versions.append((content.metadata_location, metadata))
        for location, reached in reach_all(self._files, versions):
            self._reach(reached.location)
            if isinstance(reached, Unreadable):
                self._give_up(location, reached.error)

    def _metadata(self, location: str) -> TableMetadata | None:
        folders = self._folders.setdefault(location, set())
        path = self._path(location)
        if path is not None:
            root = root_of(path)
            folders.add(folder_of(root) if root is not None else path.rpartition(f"/{METADATA_FOLDER}/")[0])
        try:
            metadata = decode_metadata(self._files.read(location), location)
        except HeadwaterError as error:
            self._give_up(location, error)
            return None
        for place in (metadata.location, metadata.properties.get(DATA_PATH)):
            inside = self._path(f"{place.rstrip('/')}/x") if place else None
            if inside is not None:
                folders.add(inside.removesuffix("/x"))
        return metadata

    def _give_up(self, location: str, error: HeadwaterError) -> None:
        """Whatever this document may lead to stays."""
        _log.warning("a table cannot be read, so nothing of it is cleaned up", path=location, error=str(error))
        self._unreadable |= self._folders[location] or {location}

    def _reach(self, location: str) -> None:
        path = self._path(location)
        if path is not None:
            self._reached.add(path)

    def _path(self, location: str) -> str | None:
        """The path in this lake by which a list shows it; None for what lies elsewhere, which nobody here deletes."""
        wanted, prefix = normalise(location), self._location + "/"
        if not wanted.startswith(prefix):
            return None
        if prefix.startswith(_FILE):  # lists follow no links
            wanted, prefix = (os.path.realpath(each.removeprefix(_FILE)) for each in (wanted, prefix))
            return os.path.relpath(wanted, prefix) if wanted.startswith(prefix + "/") else None
        return _SLASHES.sub("/", wanted.removeprefix(prefix))
