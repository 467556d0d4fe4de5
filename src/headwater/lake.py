"""A lake, as its users hold it in their hands.

`headwater.open(url)` gives one. It knows a catalog and the files of its tables, and no backend by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.view.metadata import ViewMetadata

from headwater import query
from headwater.catalog.errors import BehindHorizonError
from headwater.catalog.model import Commit, Content, NamespaceContent, Ref, RefKind, TableContent, TableKey, ViewContent
from headwater.catalog.names import DEFAULT_BRANCH
from headwater.catalog.port import Catalog, Held
from headwater.catalog.travel import resolve
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.settings import user_name
from headwater.publish.branches.model import Merged
from headwater.publish.branches.protocol import Merging
from headwater.publish.branches.protocol import plan as plan_merge
from headwater.publish.branches.refs import delete_ref
from headwater.publish.cleanup.model import Cleaned
from headwater.publish.constraints.model import Constraint
from headwater.publish.creation import creation
from headwater.publish.load.decide import mode_of
from headwater.publish.load.model import Loaded, LoadOptions, Source
from headwater.publish.load.protocol import prepare
from headwater.publish.load.sources import open_source
from headwater.publish.model import DID, RECOVERY_ACTOR, Attempt, Recovered, Wish
from headwater.publish.optimize.model import DEFAULT_DELETE_RATIO, DEFAULT_MIN_FILES, Optimized, Progress
from headwater.publish.optimize.protocol import Stand
from headwater.publish.optimize.tables import each_table, indices_of, spec_of
from headwater.publish.repair.model import Repaired
from headwater.publish.schema.ddl import schema_script
from headwater.publish.schema.model import Applied
from headwater.publish.schema.parse import parse as parse_schema
from headwater.publish.schema.protocol import prepare as prepare_schema
from headwater.publish.schema.standing import SchemaState
from headwater.publish.schema.wanted import Statement
from headwater.publish.service import AnyWriting
from headwater.publish.sql.transaction import Transaction
from headwater.publish.state import StateAt
from headwater.query import Pending, QueryOptions, Stop, TableSource
from headwater.query.at_commit import Documents, TablesAt
from headwater.storage.errors import ReadOnlyError
from headwater.tables.files import Files
from headwater.tables.model import TableVersion
from headwater.tables.partitions import AddPartitionField

At = str | datetime | None


@dataclass(frozen=True)
class Listed:
    """A table or view of a lake; one whose metadata cannot be read has an error in its place."""

    key: TableKey
    content: TableContent | ViewContent
    metadata: TableMetadata | ViewMetadata | None
    error: HeadwaterError | None = None


@dataclass(frozen=True)
class Standpoint:
    """What a writer stands on: the state of its branch, and how questions about it are asked.

    `contents` looks several names up at once, and `open` opens what was found.
    """

    state: SchemaState
    options: QueryOptions
    contents: Callable[[Sequence[TableKey]], Mapping[TableKey, Content]]
    open: Callable[[TableContent], TableVersion]


class Lake:
    """Tables, views and their history under one root. Safe to share among threads."""

    def __init__(
        self,
        catalog: Catalog,
        files: Files,
        *,
        location: str,
        options: QueryOptions = QueryOptions(),  # noqa: B008  (frozen)
        loading: LoadOptions = LoadOptions(),  # noqa: B008  (frozen)
        writing: AnyWriting | None = None,
    ) -> None:
        self.catalog = catalog
        self.files = files
        self.location = location
        self._options = options
        self._loading = loading
        self._writing = writing
        self._documents = writing.publisher.documents if writing is not None else Documents(files)

    @property
    def name(self) -> str:
        """The lake's URL."""
        return self.catalog.name

    def resolve(self, at: At = None, *, branch: str = DEFAULT_BRANCH) -> str:
        """The hash of the commit that a hash, the beginning of one, a tag, a branch or a moment means."""
        return resolve(self.catalog, at, branch)

    def tables(self, *, branch: str = DEFAULT_BRANCH, at: At = None, after: TableKey | None = None) -> Iterator[Listed]:
        """Every table and view at a commit, or those whose names come after one, in their order.

        What cannot be read is listed with its error; the rest goes on.
        """
        for key, content in self.catalog.contents(self.resolve(at, branch=branch)):
            if isinstance(content, NamespaceContent) or (after is not None and key <= after):
                continue
            try:
                yield Listed(key, content, self.metadata_of(content))
            except HeadwaterError as error:
                yield Listed(key, content, None, error)

    def table(self, name: str | TableKey, *, branch: str = DEFAULT_BRANCH, at: At = None) -> TableVersion:
        """One table at a commit."""
        key = TableKey.parse(name) if isinstance(name, str) else name
        return TablesAt(self.catalog, self._documents, self.resolve(at, branch=branch)).table(key)

    def query(self, sql: str, *, branch: str = DEFAULT_BRANCH, at: At = None) -> pa.Table:
        """The answer to one SELECT over all tables as they stand at one commit."""
        with self._answering(branch, at) as source:
            return query.run(sql, source, self.files, options=self._options)

    @contextmanager
    def stream(
        self,
        sql: str,
        *,
        branch: str = DEFAULT_BRANCH,
        at: At = None,
        stop: Stop | None = None,
        laid_over: Callable[[TableSource], tuple[TableSource, Pending]] | None = None,
    ) -> Iterator[pa.RecordBatchReader]:
        """The same, batch by batch, for answers that are larger than memory; `stop` ends it from another thread.

        `laid_over` may show other rows in the place of the lake's.
        """
        with self._answering(branch, at) as tables:
            source, pending = (tables, Pending()) if laid_over is None else laid_over(tables)
            with query.stream(sql, source, self.files, options=self._options, pending=pending, stop=stop) as reader:
                yield reader

    @contextmanager
    def _answering(self, branch: str, at: At) -> Iterator[TablesAt]:
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
            yield TablesAt(self.catalog, self._documents, at_hash)
            held.check()

    @contextmanager
    def transaction(
        self,
        *,
        branch: str = DEFAULT_BRANCH,
        actor: str,
        message: str = "a transaction",
        attempt: Attempt | None = None,
    ) -> Iterator[Transaction]:
        """Statements over any number of tables that land as one commit when the block ends well, or not at all."""
        writing = self.writing
        self.refresh()
        with self._standing_on(branch, holder="transaction") as (state, held):
            transaction = Transaction(
                state, staging=writing.staging(attempt), actor=actor, message=message, options=self._options
            )
            try:
                yield transaction
            finally:
                transaction.end()
            wish = transaction.wish()
            held.check()
            transaction.commit = self._published(wish, attempt, rows=transaction.rows)

    def _published(self, wish: Wish | None, attempt: Attempt | None, **did: object) -> Commit | None:
        """The commit of the wish, if there is anything to wish for.

        Of an attempt, the log keeps what it came to: whoever hears no answer finds it there.
        """
        if wish is None:
            return None
        if attempt is not None:
            attempt = replace(attempt, properties={**attempt.properties, DID: json.dumps(did)})
        return self.writing.publisher.publish(wish.of(attempt))

    @contextmanager
    def _standing_on(self, branch: str, *, holder: str) -> Iterator[tuple[StateAt, Held]]:
        """The branch as it is now, held for as long as a writer works on it; `check` the hold before publishing."""
        ref = self.catalog.ref(branch)
        with self.catalog.hold(ref.hash, holder=holder) as held:
            yield StateAt(self.catalog, self._documents, ref), held

    def load(
        self,
        table: str,
        source: Source,
        mode: str = "append",
        *,
        branch: str = DEFAULT_BRANCH,
        actor: str | None = None,
        message: str | None = None,
        on: str | Sequence[str] | None = None,
        format: str | None = None,  # noqa: A002  (what users know it by)
        attempt: Attempt | None = None,
    ) -> Loaded:
        """Bring rows of files or of memory into a table: `append`, `merge` by its key or by `on`, or `overwrite`.

        Files are Parquet, CSV, NDJSON or Arrow, by their suffix or by `format`; columns are taken by name.
        """
        key, writing, chosen = TableKey.parse(table), self.writing, mode_of(mode)
        # Before the first row is read: a writer that died on the way must not cost us the whole load.
        writing.recovery.heal(branch, [key])
        with self._standing_on(branch, holder="load") as (state, held):
            prepared = prepare(
                state,
                key,
                open_source(source, state.table(key).metadata.schema(), format),
                chosen,
                staging=writing.staging(attempt),
                sink=self.files,
                on=(on,) if isinstance(on, str) else on,
                actor=actor or user_name(),
                message=message or f"load into {key}: {chosen}",
                options=self._loading,
                query_options=self._options,
            )
            held.check()
            commit = self._published(
                prepared.wish, attempt, rows=prepared.rows, updated=prepared.updated, files=prepared.files
            )
        return Loaded(prepared.rows, prepared.files, commit, prepared.updated)

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
        primary_key: Sequence[str] = (),
        constraints: Sequence[Constraint] = (),
    ) -> Commit:
        """A new, empty table. An Arrow schema is taken as it stands; column ids are given anew."""
        wanted = creation(
            TableKey.parse(name),
            schema,
            format_version=format_version,
            partition_by=partition_by,
            properties=properties,
            primary_key=primary_key,
            constraints=constraints,
        )
        told = f"create table {wanted.key}"
        applied = self._apply([Statement(wanted, told)], branch=branch, actor=actor, message=told)
        assert applied.commit is not None  # a new table is a change
        return applied.commit

    def apply(
        self,
        sql_script: str,
        *,
        branch: str = DEFAULT_BRANCH,
        actor: str,
        message: str | None = None,
        dry_run: bool = False,
        attempt: Attempt | None = None,
    ) -> Applied:
        """Apply a script of CREATE, DROP, ALTER and COMMENT ON as one commit; with `dry_run` only look what it does."""
        return self._apply(
            parse_schema(sql_script), branch=branch, actor=actor, message=message, dry_run=dry_run, attempt=attempt
        )

    def _apply(
        self,
        statements: Sequence[Statement],
        *,
        branch: str,
        actor: str,
        message: str | None = None,
        dry_run: bool = False,
        attempt: Attempt | None = None,
    ) -> Applied:
        staging = self.writing.staging(attempt)
        if not dry_run:
            self.refresh()
        with self._standing_on(branch, holder="schema") as (state, held):
            prepared = prepare_schema(
                statements,
                state,
                lake=self.location,
                staging=staging,
                actor=actor,
                message=message,
                options=self._options,
            )
            held.check()
            changes = [each.as_json() for each in prepared.changes]
            commit = None if dry_run else self._published(prepared.wish, attempt, changes=changes, dry_run=False)
        return Applied(staging.operation, commit, prepared.changes, dry_run)

    def change_schema(
        self,
        statements: Sequence[Statement],
        *,
        branch: str = DEFAULT_BRANCH,
        actor: str,
        message: str | None = None,
        attempt: Attempt | None = None,
    ) -> Applied:
        """The same for statements that are not SQL: each is a typed wish (publish/schema/wanted.py)."""
        return self._apply(statements, branch=branch, actor=actor, message=message, attempt=attempt)

    def standpoint(self, branch: str) -> Standpoint:
        """The branch as it is now, for somebody who brings a change that is staged already.

        It is not held: once it is superseded, a file of it may be found missing. That is told by an error, and the
        publish compares versions in any case.
        """
        ref = self.catalog.ref(branch)
        return Standpoint(
            StateAt(self.catalog, self._documents, ref),
            self._options,
            lambda keys: self.catalog.known_content(ref.hash, keys),
            self._documents.table,
        )

    def schema_script(self, name: str | None = None, *, branch: str = DEFAULT_BRANCH, at: At = None) -> str:
        """The script that makes the schema again: of all tables, views and namespaces at a commit, or of one table."""
        at_hash = self.resolve(at, branch=branch)
        if name is not None:
            key = TableKey.parse(name)
            held: list[tuple[TableKey, Content]] = [(key, self.content(key, at_hash))]
        else:
            held = list(self.catalog.contents(at_hash))
        return schema_script(
            {key: each.properties for key, each in held if isinstance(each, NamespaceContent)},
            {key: self._documents.table(each).metadata for key, each in held if isinstance(each, TableContent)},
            {key: self._documents.view(each) for key, each in held if isinstance(each, ViewContent)},
        )

    def repair(self, *, actor: str = RECOVERY_ACTOR, dry_run: bool = False) -> Repaired:
        """Set heads that drifted, with no sidecar to say why, back to what their branches hold."""
        repair = self.writing.repair
        return repair.plan() if dry_run else repair.run(actor=actor)

    def cleanup(self, *, older_than: timedelta = timedelta(days=3), dry_run: bool = False) -> Cleaned:
        """Delete files and forks that nothing ever referenced; changes that began longer ago are refused then."""
        return self.writing.cleanup.run(older_than=older_than, dry_run=dry_run)

    def branches(self) -> tuple[Ref, ...]:
        """Every branch, by name."""
        return tuple(ref for ref in self.catalog.refs() if ref.kind is RefKind.BRANCH)

    def tags(self) -> tuple[Ref, ...]:
        """Every tag, by name."""
        return tuple(ref for ref in self.catalog.refs() if ref.kind is RefKind.TAG)

    def create_branch(self, name: str, at: At = None) -> Ref:
        """A branch that begins with everything that is at the commit; nothing is copied."""
        return self.writing.catalog.create_ref(RefKind.BRANCH, name, self.resolve(at))

    def create_tag(self, name: str, at: At = None) -> Ref:
        """A name that stays at one commit, and keeps it."""
        return self.writing.catalog.create_ref(RefKind.TAG, name, self.resolve(at))

    def delete_branch(self, name: str, *, expected: str | None = None) -> None:
        """The branch goes, or only while it is at `expected`; what was merged elsewhere stays there."""
        delete_ref(self.writing, RefKind.BRANCH, name, expected=expected)

    def delete_tag(self, name: str, *, expected: str | None = None) -> None:
        """The tag goes; its commit stays as long as history is kept."""
        delete_ref(self.writing, RefKind.TAG, name, expected=expected)

    def merge(
        self,
        source: At,
        into: str = DEFAULT_BRANCH,
        *,
        actor: str,
        message: str | None = None,
        attempt: Attempt | None = None,
    ) -> Merged:
        """Bring what changed on a branch, tag or commit into a branch: one commit with two parents, or nothing."""
        self.refresh()
        writing, source_hash = self.writing, self.resolve(source)
        with (
            self.catalog.hold(source_hash, holder="merge") as source_held,
            self._standing_on(into, holder="merge") as (state, held),
        ):
            merging = Merging(
                source=str(source),
                source_hash=source_hash,
                target=state,
                open=self._documents.table,
                actor=actor,
                message=message or f"merge {source} into {into}",
                options=self._options,
                attempt=attempt,
            )
            planned = plan_merge(writing, merging)
            source_held.check()
            held.check()
            if planned is None:
                return Merged(None, ())
            tables = [str(each) for each in planned.keys]
            return Merged(self._published(planned.wish, attempt, tables=tables), planned.keys)

    def optimize(
        self,
        table: str | Sequence[str] | None = None,
        *,
        branch: str = DEFAULT_BRANCH,
        actor: str,
        target_size_bytes: int | None = None,
        min_files: int = DEFAULT_MIN_FILES,
        delete_ratio: float = DEFAULT_DELETE_RATIO,
        deletes: bool = False,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Optimized:
        """Write small files together and fold deletes into them: of some tables, or of all. Rows stay what they are."""
        wanted = spec_of(
            branch,
            target_size_bytes=target_size_bytes,
            min_files=min_files,
            delete_ratio=delete_ratio,
            all_deletes=deletes,
        )
        return each_table(
            self.writing, self._stand(branch), table, wanted, actor=actor, dry_run=dry_run, progress=progress
        )

    def ensure_indices(
        self,
        table: str | Sequence[str] | None = None,
        *,
        branch: str = DEFAULT_BRANCH,
        actor: str,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Optimized:
        """Build what tables declare and lack: sort order, Bloom filters, statistics. What is there stays as it is."""
        wanted = indices_of(branch)
        return each_table(
            self.writing, self._stand(branch), table, wanted, actor=actor, dry_run=dry_run, progress=progress
        )

    def _stand(self, branch: str) -> Stand:
        return lambda: self._standing_on(branch, holder="optimize")

    def refresh(self) -> tuple[Recovered, ...]:
        """Roll forward what dead writers left behind, without opening the lake again; a rollback waits for that."""
        return self.writing.recovery.refresh()

    @property
    def writing(self) -> AnyWriting:
        """What writing needs; refused on a lake that is open for reading only."""
        if self._writing is None:
            raise ReadOnlyError(f"{self.name} is open for reading only", hint="open it without read_only")
        return self._writing

    def content(self, key: TableKey, at_hash: str) -> TableContent | ViewContent:
        """What the catalog holds for a table or view; one that is not there is an error that names its neighbours."""
        return TablesAt(self.catalog, self._documents, at_hash).readable(key)

    def remembered_document(self, content: TableContent) -> bytes | None:
        """The bytes of a table's document, where this process has them in memory: it has just written them."""
        heads = self._writing.heads if self._writing is not None else None
        return heads.remembered(content) if heads is not None else None

    def metadata_of(self, content: TableContent | ViewContent) -> TableMetadata | ViewMetadata:
        """The document that the content points at."""
        if isinstance(content, TableContent):
            return self._documents.table(content).metadata
        return self._documents.view(content)
