"""The tables and views of a lake as they stand at one commit, opened when they are asked for."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.view.metadata import ViewMetadata

from headwater.catalog.errors import TableNotFoundError
from headwater.catalog.model import Content, NamespaceContent, TableContent, TableKey, ViewContent
from headwater.catalog.names import DEFAULT_NAMESPACE
from headwater.catalog.port import Catalog
from headwater.kernel.errors import UsageError
from headwater.query.model import OpenTable, OpenView
from headwater.tables.files import Files
from headwater.tables.metadata import decode_metadata
from headwater.tables.model import TableVersion
from headwater.tables.views import current_version, decode_view

# Dialects of views that can be run, the one that needs no translation first.
DIALECTS = ("duckdb", "spark")

_DOCUMENTS_KEPT = 256


class Documents:
    """The documents of tables and views, decoded once: a metadata.json never changes. Safe to share among threads."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._tables: OrderedDict[str, TableMetadata] = OrderedDict()
        self._lock = threading.Lock()
        self._view = lru_cache(_DOCUMENTS_KEPT)(self._read_view)

    def table(self, content: TableContent) -> TableVersion:
        """The table at the version that the catalog pins."""
        location = content.metadata_location
        with self._lock:
            found = self._tables.get(location)
        if found is None:
            found = decode_metadata(self.files.read(location), location)
        self.remember(location, found)
        return TableVersion(found, location)

    def remember(self, location: str, metadata: TableMetadata) -> None:
        """What lies at this location, for those who know without reading it: they have written it."""
        with self._lock:
            self._tables[location] = metadata
            self._tables.move_to_end(location)
            if len(self._tables) > _DOCUMENTS_KEPT:
                self._tables.popitem(last=False)

    def view(self, content: ViewContent) -> ViewMetadata:
        """The view at the version that the catalog pins."""
        return self._view(content.metadata_location)

    def _read_view(self, location: str) -> ViewMetadata:
        return decode_view(self.files.read(location), location)


class TablesAt:
    """A `TableSource`: everything that one commit holds."""

    def __init__(self, catalog: Catalog, documents: Documents, at_hash: str) -> None:
        self._catalog = catalog
        self._documents = documents
        self._hash = at_hash

    def names(self) -> Iterator[TableKey]:
        """Every table and view."""
        contents = self._catalog.contents(self._hash)
        return (key for key, content in contents if not isinstance(content, NamespaceContent))

    def content(self, key: TableKey) -> Content | None:
        """What the commit holds for this key."""
        return self._catalog.content(self._hash, [key]).get(key)

    def readable(self, key: TableKey) -> TableContent | ViewContent:
        """The table or view of this name; one that is not there is an error that names its neighbours."""
        content = self.content(key)
        if isinstance(content, (TableContent, ViewContent)):
            return content
        raise _no_such_table(key, [str(each) for each in self.names()])

    def table(self, key: TableKey) -> TableVersion:
        """The table of this name; one that is not there is an error, and so is a view."""
        content = self.readable(key)
        if not isinstance(content, TableContent):
            raise UsageError(f"{key} is a view, not a table", hint="name a table", table=str(key))
        return self._documents.table(content)

    def open(self, key: TableKey) -> OpenTable | OpenView | None:
        """The table or view of this name, or None."""
        content = self.content(key)
        if isinstance(content, TableContent):
            metadata = self._documents.table(content).metadata
            # What is current is read by the columns that are current too; an older snapshot by its own.
            is_current = content.snapshot_id == metadata.current_snapshot_id
            return OpenTable(metadata, None if is_current else content.snapshot_id)
        if isinstance(content, ViewContent):
            return _opened(self._documents.view(content), key)
        return None


def _opened(view: ViewMetadata, key: TableKey) -> OpenView:
    version = current_version(view)
    texts = {each.root.dialect.casefold(): each.root.sql for each in version.representations}
    dialect = next((each for each in DIALECTS if each in texts), None)
    if dialect is None:
        raise UsageError(
            f"the view {key} has no SQL that can be run here, only {', '.join(sorted(texts))}",
            hint=f"give it a text in one of {', '.join(DIALECTS)}",
            table=str(key),
        )
    columns = next(each for each in view.schemas if each.schema_id == version.schema_id).column_names
    return OpenView(texts[dialect], dialect, tuple(version.default_namespace), tuple(columns))


def _no_such_table(key: TableKey, known: list[str]) -> TableNotFoundError:
    spelled = {_bare(name): name for name in known}
    near = [spelled[each] for each in get_close_matches(_bare(str(key)), list(spelled), n=3)]
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {len(known)} tables: see `headwater tables`"
    return TableNotFoundError(key, hint)


def _bare(name: str) -> str:
    """What tells names apart: neither capitals nor the namespace that most of them share."""
    return name.casefold().removeprefix(f"{DEFAULT_NAMESPACE}.")
