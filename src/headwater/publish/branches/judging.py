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
from headwater.publish.constraints.model import ForeignKey
from headwater.publish.questions import Questions
from headwater.publish.state import State
from headwater.query import OpenTable, OpenView, Pending
from headwater.tables.model import TableVersion


def dangling(
    results: Sequence[Result],
    steps: Sequence[Step],
    present: Mapping[TableKey, Content],
    open_table: Callable[[TableContent], TableMetadata],
) -> Iterator[Conflict]:
    """Tables that would refer to one that the merge drops or renames: one that the target alone has made to do so."""
    ends = {each.key: each.metadata for each in results}
    places = (
        step.target if isinstance(step, Combine) else step.before for step in steps if step.key in ends or _goes(step)
    )
    gone = {place.key: place.content for place in places if isinstance(place, Place) and place.key not in ends}
    for key, content in gone.items():
        referring = constraints_of(open_table(content)).referenced_by if isinstance(content, TableContent) else ()
        for each in referring:
            held = present.get(each)
            metadata = ends.get(each)
            if metadata is None and isinstance(held, TableContent) and each not in gone:
                metadata = open_table(held)
            declared = () if metadata is None else constraints_of(metadata).declared
            if any(isinstance(constraint, ForeignKey) and constraint.parent == key for constraint in declared):
                yield Conflict(each, f"refers to {key}, which the source has dropped or renamed")


def _goes(step: Step) -> bool:
    return isinstance(step, Take) and step.after is None


def judge(
    asking: Asking, target: State, results: Sequence[Result], steps: Sequence[Step]
) -> dict[TableKey, Content | None]:
    """Raise what the end state violates; returns the versions of everything that was read for that (P8).

    A table that is new on the target, or has other constraints there, is judged whole, the others by what changes.
    """
    gone = {each.before.key for each in steps if isinstance(each, Take) and each.before is not None}
    questions = Questions(
        _EndState(target, frozenset(gone - {each.key for each in results})),
        asking.options,
        pending=Pending(
            rows={each.key: each.rows.rows for each in results if each.rows and each.rows.rows.num_rows},
            deletes={each.key: each.rows.deletes for each in results if each.rows},
            overrides={each.key: each.metadata for each in results},
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
