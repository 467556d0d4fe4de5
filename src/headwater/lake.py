"""A lake, as its users hold it in their hands.

`headwater.open(url)` gives one. It knows a catalog and the files of its tables, and no backend by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from functools import lru_cache

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.view.metadata import ViewMetadata

from headwater import query
from headwater.catalog.errors import BehindHorizonError
from headwater.catalog.model import Commit, Content, NamespaceContent, Ref, TableContent, TableKey, ViewContent
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.catalog.port import Catalog, Held
from headwater.catalog.travel import resolve
from headwater.kernel.errors import HeadwaterError, UsageError
from headwater.publish.creation import creation
from headwater.publish.service import Writing
from headwater.publish.state import State
from headwater.publish.transaction import Transaction
from headwater.query import OpenTable, OpenView, QueryOptions
from headwater.storage.errors import ReadOnlyError
from headwater.tables.files import Files
from headwater.tables.metadata import decode_metadata
from headwater.tables.model import TableVersion
from headwater.tables.partitions import AddPartitionField
from headwater.tables.views import current_version, decode_view

At = str | datetime | None

# Dialects of views that can be run, the one that needs no translation first.
DIALECTS = ("duckdb", "spark")

# Decoded metadata is kept by location: a metadata.json never changes.
_DOCUMENTS_KEPT = 256


@dataclass(frozen=True)
class Listed:
    """A table or view of a lake; one whose metadata cannot be read has an error in its place."""

    key: TableKey
    content: TableContent | ViewContent
    metadata: TableMetadata | ViewMetadata | None
    error: HeadwaterError | None = None


class Lake:
    """Tables, views and their history under one root. Safe to share among threads."""

    def __init__(
        self,
        catalog: Catalog,
        files: Files,
        *,
        location: str,
        options: QueryOptions = QueryOptions(),  # noqa: B008  (frozen)
        writing: Writing | None = None,
    ) -> None:
        self.catalog = catalog
        self.files = files
        self.location = location
        self._options = options
        self._writing = writing
        self._table = lru_cache(_DOCUMENTS_KEPT)(self._read_table)
        self._view = lru_cache(_DOCUMENTS_KEPT)(self._read_view)

    @property
    def name(self) -> str:
        """The lake's URL."""
        return self.catalog.name

    def resolve(self, at: At = None, *, branch: str = DEFAULT_BRANCH) -> str:
        """The hash of the commit that a hash, the beginning of one, a tag, a branch or a moment means."""
        return resolve(self.catalog, at, branch)

    def tables(self, *, branch: str = DEFAULT_BRANCH, at: At = None) -> Iterator[Listed]:
        """Every table and view at a commit. What cannot be read is listed with its error; the rest goes on."""
        for key, content in self.catalog.contents(self.resolve(at, branch=branch)):
            if isinstance(content, NamespaceContent):
                continue
            try:
                yield Listed(key, content, self.metadata_of(content))
            except HeadwaterError as error:
                yield Listed(key, content, None, error)

    def table(self, name: str | TableKey, *, branch: str = DEFAULT_BRANCH, at: At = None) -> TableVersion:
        """One table at a commit."""
        key = TableKey.parse(name) if isinstance(name, str) else name
        at_hash = self.resolve(at, branch=branch)
        content = self.content(key, at_hash)
        if not isinstance(content, TableContent):
            raise UsageError(f"{key} is a view, not a table", table=str(key))
        return self.table_at(content)

    def query(self, sql: str, *, branch: str = DEFAULT_BRANCH, at: At = None) -> pa.Table:
        """The answer to one SELECT over all tables as they stand at one commit."""
        with self._answering(branch, at) as source:
            return query.run(sql, source, self.files, options=self._options)

    @contextmanager
    def stream(self, sql: str, *, branch: str = DEFAULT_BRANCH, at: At = None) -> Iterator[pa.RecordBatchReader]:
        """The same, batch by batch, for answers that are larger than memory."""
        with (
            self._answering(branch, at) as source,
            query.stream(sql, source, self.files, options=self._options) as reader,
        ):
            yield reader

    @contextmanager
    def _answering(self, branch: str, at: At) -> Iterator[_TablesAt]:
        """The tables at a commit, held for as long as a query needs them."""
        with ExitStack() as stack:
            at_hash = self.resolve(at, branch=branch)
            try:
                held = stack.enter_context(self.catalog.hold(at_hash, holder="query"))
            except BehindHorizonError:
                # A head that was superseded and collected before it was held; any other commit stays where it is.
                if (newer := self.resolve(at, branch=branch)) == at_hash:
                    raise
                at_hash = newer
                held = stack.enter_context(self.catalog.hold(at_hash, holder="query"))
            yield _TablesAt(self, at_hash)
            held.check()

    @contextmanager
    def transaction(
        self, *, branch: str = DEFAULT_BRANCH, actor: str, message: str = "a transaction"
    ) -> Iterator[Transaction]:
        """Statements over any number of tables that land as one commit when the block ends well, or not at all."""
        writing = self.writing
        with self._standing_on(branch, holder="transaction") as (state, held):
            transaction = Transaction(
                state, staging=writing.staging(), actor=actor, message=message, options=self._options
            )
            yield transaction
            wish = transaction.wish()
            held.check()
            if wish is not None:
                transaction.commit = writing.publisher.publish(wish)

    @contextmanager
    def _standing_on(self, branch: str, *, holder: str) -> Iterator[tuple[State, Held]]:
        """The branch as it is now, held for as long as a writer works on it; `check` the hold before publishing."""
        ref = self.catalog.ref(branch)
        with self.catalog.hold(ref.hash, holder=holder) as held:
            yield _StateAt(self, ref), held

    def create_table(
        self,
        name: str,
        schema: pa.Schema | Schema,
        *,
        branch: str = DEFAULT_BRANCH,
        actor: str,
        format_version: int = 2,
        partition_by: Sequence[AddPartitionField] = (),
        properties: Mapping[str, str] | None = None,
    ) -> Commit:
        """A new, empty table. An Arrow schema is taken as it stands; column ids are given anew."""
        key, ref = TableKey.parse(name), self.catalog.ref(branch)
        if key in self.catalog.content(ref.hash, [key]):
            raise UsageError(f"there is a {key} on {branch} already", table=str(key))
        wish = creation(
            key,
            schema,
            lake=self.location,
            ref=ref,
            staging=self.writing.staging(),
            actor=actor,
            format_version=format_version,
            partition_by=partition_by,
            properties=properties,
        )
        return self.writing.publisher.publish(wish)

    @property
    def writing(self) -> Writing:
        """What writing needs; refused on a lake that is open for reading only."""
        if self._writing is None:
            raise ReadOnlyError(f"{self.name} is open for reading only", hint="open it without read_only")
        return self._writing

    def content(self, key: TableKey, at_hash: str) -> TableContent | ViewContent:
        """What the catalog holds for a table or view; one that is not there is an error that names its neighbours."""
        content = self.catalog.content(at_hash, [key]).get(key)
        if isinstance(content, (TableContent, ViewContent)):
            return content
        raise no_such_table(key, self.catalog.contents(at_hash))

    def metadata_of(self, content: TableContent | ViewContent) -> TableMetadata | ViewMetadata:
        """The document that the content points at."""
        return self.table_at(content).metadata if isinstance(content, TableContent) else self.view_at(content)

    def table_at(self, content: TableContent) -> TableVersion:
        """The table at the version that the catalog pins."""
        return TableVersion(self._table(content.metadata_location), content.metadata_location)

    def view_at(self, content: ViewContent) -> ViewMetadata:
        """The view at the version that the catalog pins."""
        return self._view(content.metadata_location)

    def _read_table(self, location: str) -> TableMetadata:
        return decode_metadata(self.files.read(location), location)

    def _read_view(self, location: str) -> ViewMetadata:
        return decode_view(self.files.read(location), location)


class _TablesAt:
    """The tables and views of one commit, opened when they are asked for."""

    def __init__(self, lake: Lake, at_hash: str) -> None:
        self._lake = lake
        self._hash = at_hash

    def names(self) -> Iterator[TableKey]:
        """Every table and view."""
        contents = self._lake.catalog.contents(self._hash)
        return (key for key, content in contents if not isinstance(content, NamespaceContent))

    def open(self, key: TableKey) -> OpenTable | OpenView | None:
        """The table or view of this name, or None."""
        content = self._lake.catalog.content(self._hash, [key]).get(key)
        if isinstance(content, TableContent):
            return OpenTable(self._lake.table_at(content).metadata, content.snapshot_id)
        if isinstance(content, ViewContent):
            return _opened(self._lake.view_at(content), key)
        return None


class _StateAt(_TablesAt):
    """The lake at the commit on which a transaction stands."""

    def __init__(self, lake: Lake, ref: Ref) -> None:
        super().__init__(lake, ref.hash)
        self.ref = ref
        self.files = lake.files

    def content(self, key: TableKey) -> Content | None:
        """What the branch held for this key."""
        return self._lake.catalog.content(self._hash, [key]).get(key)

    def table(self, key: TableKey) -> TableVersion:
        """The table of this name."""
        content = self._lake.content(key, self._hash)
        if not isinstance(content, TableContent):
            raise UsageError(f"{key} is a view, and cannot be written", table=str(key))
        return self._lake.table_at(content)


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


def no_such_table(key: TableKey, contents: Iterator[tuple[TableKey, Content]]) -> UsageError:
    """The error for a table that is not there."""
    known = [str(each) for each, content in contents if not isinstance(content, NamespaceContent)]
    near = get_close_matches(str(key), known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are {len(known)} tables: see `headwater tables`"
    return UsageError(f"there is no table {key}", hint=hint, table=str(key))
