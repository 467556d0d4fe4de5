"""What a script comes to: its statements, folded over the tables as they are. Pure, given how a new table is born.

Every statement sees what those before it did. What tables demand of each other is judged at the end (judge.py), so two
tables may be made that refer to each other, in any order. However many statements change a table, it gets one version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import assert_never

from pyiceberg.table.metadata import TableMetadata

from headwater.catalog.model import TableContent, TableKey
from headwater.kernel.errors import RefusedError
from headwater.publish.constraints.codec import constraint_properties, constraints_of
from headwater.publish.constraints.declared import column_named
from headwater.publish.constraints.model import ForeignKey
from headwater.publish.schema.demands import Draft, with_constraint, with_renamed_parent, with_renamed_parent_column
from headwater.publish.schema.drafts import changed
from headwater.publish.schema.judge import asked_more, referenced_by, refuse_orphans, settled_keys
from headwater.publish.schema.model import Kind, Plan, PlannedTable, Standing
from headwater.publish.schema.names import Names
from headwater.publish.schema.places import Place, placed
from headwater.publish.schema.wanted import (
    AddConstraint,
    AlterTable,
    CreateNamespace,
    CreateTable,
    CreateView,
    DropNamespace,
    DropTable,
    DropView,
    RenameTable,
    Statement,
    TableChange,
)
from headwater.tables.columns import RenameColumn, names_of
from headwater.tables.rules import later

Born = Callable[[CreateTable], TableMetadata]


def plan(statements: Iterable[Statement], standing: Standing, *, born: Born, now: datetime) -> Plan:
    """What the script changes; an error says which statement cannot be, and nothing is changed then."""
    planning = _Planning(standing, born, now)
    for statement in statements:
        with placed(statement.at):
            planning.take(statement)
    return planning.end()


class _Planning:
    def __init__(self, standing: Standing, born: Born, now: datetime) -> None:
        self._standing = standing
        self._born = born
        self._now = now
        self._names = Names(standing)
        self._drafts: dict[TableKey, Draft] = {}
        for key, version in standing.tables.items():
            content = standing.contents[key]
            assert isinstance(content, TableContent)
            declared = constraints_of(version.metadata).declared
            self._drafts[key] = Draft(key, version.metadata, declared, version, content, key)
        self._dropped: dict[TableKey, tuple[TableContent, tuple[str, ...]]] = {}
        self._gone: dict[TableKey, Place | None] = {}
        self._views: dict[TableKey, tuple[CreateView, Statement]] = {}
        self._dropped_views: dict[TableKey, str] = {}
        self._namespaces: dict[TableKey, tuple[Mapping[str, str], str]] = {}
        self._dropped_namespaces: dict[TableKey, Statement] = {}

    def take(self, statement: Statement) -> None:
        """Carry out one statement."""
        wanted = statement.wanted
        match wanted:
            case CreateTable():
                self._create(wanted, statement)
            case DropTable():
                self._drop(wanted, statement)
            case RenameTable():
                self._rename(wanted, statement)
            case AlterTable():
                self._alter(wanted, statement)
            case CreateView():
                self._create_view(wanted, statement)
            case DropView():
                self._drop_view(wanted, statement.text)
            case CreateNamespace():
                self._create_namespace(wanted, statement.text)
            case DropNamespace():
                self._drop_namespace(wanted, statement)
            case _:
                assert_never(wanted)

    # Tables

    def _create(self, wanted: CreateTable, statement: Statement) -> None:
        if wanted.if_not_exists and self._names.found(wanted.key, Kind.TABLE) is not None:
            return
        self._names.take(wanted.key, Kind.TABLE)
        draft = Draft(wanted.key, self._born(wanted), (), why=(statement.text,), at=statement.at)
        for each in wanted.constraints:
            draft = with_constraint(draft, self._with_parent_spelled(each) if isinstance(each, ForeignKey) else each)
        self._drafts[wanted.key] = draft

    def _with_parent_spelled(self, constraint: ForeignKey) -> ForeignKey:
        return replace(constraint, parent=self._names.spelled(constraint.parent))

    def _drop(self, wanted: DropTable, statement: Statement) -> None:
        key = self._names.there(wanted.key, Kind.TABLE, if_exists=wanted.if_exists)
        if key is None:
            return
        draft = self._drafts.pop(key)
        self._names.free(key)
        self._gone[key] = statement.at
        if draft.origin is not None and draft.pinned is not None:
            self._dropped[draft.origin] = (draft.pinned, (*draft.why, statement.text))

    def _rename(self, wanted: RenameTable, statement: Statement) -> None:
        key = self._names.there(wanted.key, Kind.TABLE, if_exists=wanted.if_exists)
        if key is None:
            return
        draft = self._drafts[key]
        if wanted.to == key:
            return
        self._names.free(key)
        self._names.take(wanted.to, Kind.TABLE, origin=draft.origin)
        del self._drafts[key]
        self._drafts[wanted.to] = replace(draft, key=wanted.to).because(statement.text, statement.at)
        for other, each in tuple(self._drafts.items()):
            follows = with_renamed_parent(each, key, wanted.to)
            self._drafts[other] = each if follows is each else follows.because(statement.text, statement.at)

    def _alter(self, wanted: AlterTable, statement: Statement) -> None:
        key = self._names.there(wanted.key, Kind.TABLE, if_exists=wanted.if_exists)
        if key is None:
            return
        for change in wanted.changes:
            self._change(key, change, statement)

    def _change(self, key: TableKey, change: TableChange, statement: Statement) -> None:
        if isinstance(change, AddConstraint) and isinstance(change.constraint, ForeignKey):
            change = AddConstraint(self._with_parent_spelled(change.constraint))
        before = self._drafts[key]
        after = changed(before, change, self._now)
        if after is before:
            return
        self._drafts[key] = after.because(statement.text, statement.at)
        if isinstance(change, RenameColumn) and len(names_of(change.path)) == 1:
            old = column_named(before.schema, names_of(change.path)[0])
            assert old is not None  # it was renamed
            for other, each in tuple(self._drafts.items()):
                follows = with_renamed_parent_column(each, key, old, change.name)
                self._drafts[other] = each if follows is each else follows.because(statement.text, statement.at)

    # Views and namespaces

    def _create_view(self, wanted: CreateView, statement: Statement) -> None:
        there = self._names.found(wanted.key, Kind.VIEW)
        if there is not None:
            if wanted.if_not_exists:
                return
            if wanted.or_replace:
                self._views[there] = (replace(wanted, key=there), statement)
                return
        self._names.take(wanted.key, Kind.VIEW)
        self._views[wanted.key] = (wanted, statement)

    def _drop_view(self, wanted: DropView, text: str) -> None:
        key = self._names.there(wanted.key, Kind.VIEW, if_exists=wanted.if_exists)
        if key is None:
            return
        self._names.free(key)
        self._views.pop(key, None)
        if self._standing.contents.get(key) is not None:
            self._dropped_views[key] = text

    def _create_namespace(self, wanted: CreateNamespace, text: str) -> None:
        if wanted.if_not_exists and self._names.found(wanted.key, Kind.NAMESPACE) is not None:
            return
        self._names.take(wanted.key, Kind.NAMESPACE)
        self._namespaces[wanted.key] = (wanted.properties, text)

    def _drop_namespace(self, wanted: DropNamespace, statement: Statement) -> None:
        key = self._names.there(wanted.key, Kind.NAMESPACE, if_exists=wanted.if_exists)
        if key is None:
            return
        inside = self._names.inside(key)
        if inside is not None:
            raise RefusedError(
                f"namespace {key} cannot be dropped: {inside} is in it",
                hint="drop what is in it before, in the same script",
                table=str(key),
            )
        self._names.free(key)
        if self._namespaces.pop(key, None) is None:
            self._dropped_namespaces[key] = statement

    # The end

    def end(self) -> Plan:
        """What has come of it all."""
        known = self._standing.contents.keys() | self._drafts.keys()
        for key, at in self._gone.items():
            with placed(at):
                refuse_orphans(key, self._drafts)
        drafts = {}
        for key, each in self._drafts.items():
            with placed(each.at):
                drafts[key] = settled_keys(each, self._drafts, known)
        finished = {key: self._finished(each, drafts, known) for key, each in drafts.items()}
        for key in {parent for each in drafts.values() for parent in asked_more(each)} & finished.keys():
            finished[key] = self._asked(finished[key])
        tables = {
            key: PlannedTable(key, each.metadata, each.base, each.pinned, each.origin, each.why, each.check_rows)
            for key, each in finished.items()
            if each.key != each.origin or each.is_asked or not _is_as_before(each)
        }
        for namespace, statement in self._dropped_namespaces.items():
            with placed(statement.at):
                _refuse_moved_heads(namespace, tables)
        return Plan(
            tables=tables,
            dropped=self._dropped,
            views={key: (wanted, each.text, each.at) for key, (wanted, each) in self._views.items()},
            dropped_views=self._dropped_views,
            namespaces=self._namespaces,
            dropped_namespaces={key: each.text for key, each in self._dropped_namespaces.items()},
        )

    def _finished(self, draft: Draft, drafts: Mapping[TableKey, Draft], known: Iterable[TableKey]) -> Draft:
        """The table with its constraints written into its document, and without schemas that no commit ever shows."""
        before = constraints_of(draft.metadata)
        children = referenced_by(draft, drafts, frozenset(known))
        metadata = _without_passing_schemas(draft)
        if draft.declared != before.declared or set(children) != set(before.referenced_by):
            wanted = constraint_properties(draft.declared, children)
            properties = {key: value for key, value in metadata.properties.items() if key not in wanted}
            properties |= {key: value for key, value in wanted.items() if value is not None}
            update = {"properties": properties, "last_updated_ms": later(metadata, self._now)}
            metadata = metadata.model_copy(update=update)
        if metadata is not draft.metadata and not draft.why:
            draft = draft.because(f"{draft.key} is referred to by {', '.join(map(str, children)) or 'no table'}")
        return replace(draft, metadata=metadata)

    def _asked(self, draft: Draft) -> Draft:
        """The table in a new version, of which nothing else may be new."""
        update = {"last_updated_ms": later(draft.metadata, self._now)}
        asked = replace(draft, metadata=draft.metadata.model_copy(update=update), is_asked=True)
        return asked if draft.why else asked.because(f"more rows must refer to each row of {draft.key}")


def _refuse_moved_heads(namespace: TableKey, tables: Mapping[TableKey, PlannedTable]) -> None:
    """Refuse to drop a namespace in a commit for which heads move.

    Whether a namespace is empty is no version that could be compared: it is judged at the commit, and what the commit
    refuses after heads have moved could be neither finished nor undone.
    """
    if tables:
        raise RefusedError(
            f"namespace {namespace} cannot be dropped together with changes of {', '.join(map(str, sorted(tables)))}",
            hint="put it into a script of its own, behind this one; tables and views may be dropped along with it",
            table=str(namespace),
        )


def _is_as_before(draft: Draft) -> bool:
    """Whether nothing has changed but counters of what came and went within the script."""
    if draft.base is None:
        return False
    before = draft.base.metadata
    counters = ("last_updated_ms", "last_column_id", "last_partition_id")
    return draft.metadata.model_copy(update={each: getattr(before, each) for each in counters}) == before


def _without_passing_schemas(draft: Draft) -> TableMetadata:
    metadata = draft.metadata
    known = {each.schema_id for each in draft.base.metadata.schemas} if draft.base is not None else set()
    kept = [each for each in metadata.schemas if each.schema_id in known | {metadata.current_schema_id}]
    return metadata if len(kept) == len(metadata.schemas) else metadata.model_copy(update={"schemas": kept})
