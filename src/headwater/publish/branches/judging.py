"""Whether the state that a merge ends in satisfies the constraints: each side did on its own, together they may not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from pyiceberg.table.metadata import TableMetadata

from headwater.catalog.model import Content, TableContent, TableKey
from headwater.publish.branches.documents import shape_of
from headwater.publish.branches.model import Combine, Conflict, Place, Step, Take
from headwater.publish.branches.results import Result
from headwater.publish.branches.rows import Asking, rows_of_differing_files
from headwater.publish.constraints.check import Changed, check_changes, check_table, columns_needed
from headwater.publish.constraints.codec import constraints_of
from headwater.publish.constraints.declared import link_to
from headwater.publish.constraints.model import ForeignKey
from headwater.publish.errors import ConstraintBrokenError
from headwater.publish.questions import Questions, with_nulls
from headwater.publish.state import State
from headwater.query import OpenTable, OpenView, Pending, QueryOptions
from headwater.tables.model import TableVersion


def dangling(
    results: Sequence[Result],
    steps: Sequence[Step],
    present: Mapping[TableKey, Content],
    open_table: Callable[[TableContent], TableMetadata],
) -> Iterator[Conflict]:
    """Tables that would refer to what is not there: one side refers to it, the other has dropped or changed it.

    Looked at are tables that come or get another shape or other constraints, and those that refer to one that does.
    """
    ends = {each.key: each.metadata for each in results}
    places = (
        step.target if isinstance(step, Combine) else step.before for step in steps if step.key in ends or _goes(step)
    )
    gone = {place.key: place.content for place in places if isinstance(place, Place) and place.key not in ends}

    def end(key: TableKey) -> TableMetadata | None:
        held = present.get(key)
        if key in ends or key in gone or not isinstance(held, TableContent):
            return ends.get(key)
        return open_table(held)

    changed = [each for each in results if _is_reshaped(each)]
    parents = [each.metadata for each in changed]
    parents += [open_table(each) for each in gone.values() if isinstance(each, TableContent)]
    children = {child for each in parents for child in constraints_of(each).referenced_by}
    for key in sorted(children | {each.key for each in changed}):
        metadata = end(key)
        for why in () if metadata is None else _objections(key, metadata, end):
            yield Conflict(key, why)


def _goes(step: Step) -> bool:
    return isinstance(step, Take) and step.after is None


def _is_reshaped(result: Result) -> bool:
    """Whether its columns or constraints are others than on the target."""
    if result.version is None:
        return True
    before, after = result.version.metadata, result.metadata
    return before.schema() != after.schema() or _constraints(before) != _constraints(after)


def _objections(
    key: TableKey, metadata: TableMetadata, end: Callable[[TableKey], TableMetadata | None]
) -> Iterator[str]:
    """Which of its foreign keys lead nowhere."""
    for each in constraints_of(metadata).declared:
        if not isinstance(each, ForeignKey):
            continue
        parent = metadata if each.parent == key else end(each.parent)
        if parent is None:
            yield f"refers to {each.parent}, which one side has dropped or renamed"
            continue
        try:
            link_to(key, metadata, each, parent)
        except ConstraintBrokenError as error:
            yield f"refers to {each.parent}, whose key one side has changed: {error.message}"


def judge(
    asking: Asking, target: State, results: Sequence[Result], steps: Sequence[Step]
) -> dict[TableKey, Content | None]:
    """Raise what the end state violates; returns the versions of everything that was read for that (P8).

    A table that is new on the target, or has other constraints there, is judged whole, the others by what changes.
    """
    gone = {each.before.key for each in steps if isinstance(each, Take) and each.before is not None}
    questions = _Questions(
        {each.key: each.metadata for each in results},
        _EndState(target, frozenset(gone - {each.key for each in results})),
        asking.options,
        pending=Pending(
            rows={each.key: each.rows.rows for each in results if each.rows and each.rows.rows.num_rows},
            deletes={each.key: each.rows.deletes for each in results if each.rows},
            overrides={each.key: with_nulls(each.metadata) for each in results},
        ),
    )
    changed: dict[TableKey, Changed] = {}
    for each in results:
        if each.version is None or _constraints(each.version.metadata) != _constraints(each.metadata):
            check_table(questions, each.key, each.metadata)
        if each.version is not None and columns_needed(each.metadata):
            changed[each.key] = _changed(asking, each, each.version.metadata)
    check_changes(questions, changed)
    return questions.reads


def _constraints(metadata: TableMetadata) -> object:
    """What the rows of the table itself must satisfy."""
    return replace(constraints_of(metadata), referenced_by=())


def _changed(asking: Asking, result: Result, before: TableMetadata) -> Changed:
    if result.rows is not None:
        return Changed(result.metadata, result.rows.rows, result.rows.removed)
    old = before.model_copy(update=shape_of(result.metadata))
    removed, added = rows_of_differing_files(asking, old, result.metadata, columns_needed(result.metadata))
    return Changed(result.metadata, added, removed if removed.num_rows else None)


class _Questions(Questions):
    """Asks of the end state, and knows the documents as they will be."""

    def __init__(
        self, ends: Mapping[TableKey, TableMetadata], target: State, options: QueryOptions, *, pending: Pending
    ) -> None:
        super().__init__(target, options, pending=pending)
        self._ends = ends

    def metadata_of(self, key: TableKey) -> TableMetadata | None:
        """The table's metadata; None when there is no such table."""
        return self._ends[key] if key in self._ends else super().metadata_of(key)


class _EndState:
    """The target without what the merge takes away; what it brings is pending."""

    def __init__(self, target: State, gone: frozenset[TableKey]) -> None:
        self._target = target
        self._gone = gone
        self.ref = target.ref
        self.files = target.files

    def names(self) -> Iterator[TableKey]:
        """Every table and view."""
        return (key for key in self._target.names() if key not in self._gone)

    def open(self, key: TableKey) -> OpenTable | OpenView | None:
        """The table or view of this name, or None."""
        return None if key in self._gone else self._target.open(key)

    def content(self, key: TableKey) -> Content | None:
        """What the target holds for this key, and must still hold when the merge is published."""
        return self._target.content(key)

    def table(self, key: TableKey) -> TableVersion:
        """The table of this name."""
        return self._target.table(key)
