"""Merging a branch into another.

Promise: a merge is one commit with two parents on the target, or nothing. What it makes of every table is what
`decide.py` says; a table that cannot be merged is named with all others of its kind, and nothing is written then.

Invariants:

    1  Every version that the merge pins is written into the target's own sequence of the table, and its log of
       documents names the target's own alone: the source may be deleted, and its forks with it (P7).
    2  Whatever the source changed is expected on the target as the merge has seen it, changed by the merge or not, and
       so is everything that was read to judge constraints (P8).
    3  The end state satisfies the constraints: rows that both sides may have had on their own are judged together.
    4  The merged commit is held until the merge is published, so that neither it nor its files are collected meanwhile;
       a recoverer makes the same commit, or none when the merged commit is no longer kept.

Commit point and crashes: those of publish/protocol.py. A merge writes nothing before it.

Where branches were merged into each other crosswise there are several best common ancestors, the bases. The newest, and
of equally new ones that with the smallest hash, is the one that the log names; all of them have their say (decide.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from headwater.catalog.model import Content, Difference, RefKind, TableContent, TableKey, ViewContent
from headwater.kernel.errors import RefusedError, UsageError
from headwater.publish.branches.ancestry import merge_bases
from headwater.publish.branches.decide import plan_merge
from headwater.publish.branches.documents import combine, same_table, shape_of
from headwater.publish.branches.history import History
from headwater.publish.branches.identities import aligned
from headwater.publish.branches.judging import dangling, judge
from headwater.publish.branches.model import (
    Combine,
    Conflict,
    MergeConflictError,
    Place,
    Planned,
    Since,
    Step,
    Take,
)
from headwater.publish.branches.results import Result, drops, others, wish_for
from headwater.publish.branches.rows import Asking, changed_rows
from headwater.publish.model import Attempt, Wish, WriterKind
from headwater.publish.service import AnyWriting
from headwater.publish.sql.working import WorkingTable
from headwater.publish.state import State
from headwater.query import QueryOptions
from headwater.tables.model import TableVersion
from headwater.tables.views import decode_view

# What the log keeps of a merge beside its parents.
SOURCE, BASE = "headwater.merge.source", "headwater.merge.base"


@dataclass(frozen=True)
class Merging:
    """What is merged into what, by whom. `open` gives the table at a version of any branch."""

    source: str
    source_hash: str
    target: State
    open: Callable[[TableContent], TableVersion]
    actor: str
    message: str
    options: QueryOptions
    attempt: Attempt | None = None


def plan(writing: AnyWriting, merging: Merging) -> Planned | None:
    """What is to be published; None when everything was merged before. Conflicts are raised, all at once."""
    target = merging.target.ref
    if target.kind is not RefKind.BRANCH:
        raise UsageError(f"{target.name} is a tag, and takes no commits", hint="merge into a branch", ref=target.name)
    bases = merge_bases(merging.source_hash, target.hash, History(writing.catalog).commit)
    if not bases:
        raise RefusedError(
            f"{merging.source} cannot be merged into {target.name}: no commit that both come from is kept any more",
            hint=f"load the changes of {merging.source} into a new branch of {target.name}",
            source=merging.source,
            into=target.name,
        )
    if bases[0] == merging.source_hash:
        return None
    with ExitStack() as stack:
        held = [stack.enter_context(writing.catalog.hold(base, holder="merge")) for base in bases]
        planned = _Merge(writing, merging, bases).plan()
        for each in held:
            each.check()
    return planned


class _Merge:
    """One merge, from its bases on."""

    def __init__(self, writing: AnyWriting, merging: Merging, bases: Sequence[str]) -> None:
        self._writing = writing
        self._merging = merging
        self._bases = bases
        self._present = dict(writing.catalog.contents(merging.target.ref.hash))
        self._asking = Asking(writing.files, merging.options)

    def plan(self) -> Planned:
        """Decide, combine, judge, and put all of it into one wish."""
        since = [self._since(base) for base in self._bases]
        steps, conflicts = plan_merge(since, self._present)
        results: list[Result] = []
        for step in steps:
            found = self._result(step)
            if isinstance(found, Conflict):
                conflicts = (*conflicts, found)
            elif found is not None:
                results.append(found)
        conflicts = (*conflicts, *dangling(results, steps, self._present, self._open))
        if conflicts:
            raise MergeConflictError(self._merging.source, self._merging.target.ref.name, conflicts)
        reads = judge(self._asking, self._merging.target, results, steps)
        reads |= self._held(change.key for each in since for change in each.changes)
        return self._wish(results, steps, reads)

    def _wish(self, results: Sequence[Result], steps: Sequence[Step], reads: dict[TableKey, Content | None]) -> Planned:
        staging, target = self._writing.staging(self._merging.attempt), self._merging.target.ref
        now = self._writing.clock.now()
        tables = (*(wish_for(each, staging, now) for each in results), *drops(steps))
        without_heads = others(steps)
        touched = {key for each in tables for key in each.keys} | without_heads.keys()
        # A namespace that goes meanwhile would leave the heads moved and the commit refused.
        reads |= self._held(key.parent for key in touched if key.parent is not None)
        wish = Wish(
            kind=WriterKind.MERGE,
            actor=self._merging.actor,
            message=self._merging.message,
            branch=target.name,
            branch_incarnation=target.incarnation,
            operation=staging.operation,
            tables=tables,
            reads={key: version for key, version in reads.items() if key not in touched},
            properties={SOURCE: self._merging.source, BASE: self._bases[0]},
            others=without_heads,
            merge_parent=self._merging.source_hash,
        )
        return Planned(wish, tuple(sorted(touched)))

    def _held(self, keys: Iterable[TableKey]) -> dict[TableKey, Content | None]:
        return {key: self._present.get(key) for key in keys}

    # What changed

    def _since(self, base: str) -> Since:
        differences = self._writing.catalog.diff(base, self._merging.source_hash)
        if self._writing.heads is None:
            differences = aligned(differences, self._present, self._uuid)
        changes = tuple(each for each in differences if not self._is_restored(each.before, each.after))
        return Since(changes, self._unchanged(changes))

    def _is_restored(self, before: Content | None, after: Content | None) -> bool:
        """Whether a table is what it was, and only its document lies elsewhere: a rollback has put it there."""
        if not isinstance(before, TableContent) or not isinstance(after, TableContent):
            return False
        if replace(before, metadata_location="") != replace(after, metadata_location=""):
            return False
        return same_table(self._open(before), self._open(after))

    def _unchanged(self, changes: Sequence[Difference]) -> frozenset[str]:
        """Tables of the target that are what they were in the base, wherever their documents lie."""
        there = {each.content_id: each for each in self._present.values()}
        return frozenset(
            each.before.content_id
            for each in changes
            if each.before is not None and self._is_restored(each.before, there.get(each.before.content_id))
        )

    def _uuid(self, content: TableContent | ViewContent) -> UUID:
        if isinstance(content, TableContent):
            return self._open(content).table_uuid
        location = content.metadata_location
        return UUID(str(decode_view(self._writing.files.read(location), location).view_uuid))

    def _open(self, content: TableContent) -> TableMetadata:
        return self._merging.open(content).metadata

    # What becomes of each

    def _result(self, step: Step) -> Result | Conflict | None:
        match step:
            case Take(before, Place(key, TableContent() as content)):
                return Result(key, before, self._version(before), self._open(content), content)
            case Combine():
                return self._combined(step)
            case _:
                return None

    def _version(self, place: Place | None) -> TableVersion | None:
        return self._merging.open(place.content) if place and isinstance(place.content, TableContent) else None

    def _combined(self, step: Combine) -> Result | Conflict | None:
        pinned, target = step.target.content, self._version(step.target)
        assert isinstance(pinned, TableContent)
        assert target is not None  # only tables are combined
        bases, source = [self._open(each) for each in step.bases], self._open(step.source)
        combined = combine(step.key, bases, source, target.metadata)
        if isinstance(combined, Conflict):
            return combined
        rows: WorkingTable | None = None
        if combined.needs_rows:
            shape = shape_of(combined.metadata)
            rows = WorkingTable(step.key, TableVersion(combined.metadata, target.location), pinned)
            bases, source = [each.model_copy(update=shape) for each in bases], source.model_copy(update=shape)
            conflict = changed_rows(self._asking, bases, source, rows)
            if conflict is not None:
                return conflict
            rows = rows if rows.is_changed else None
        if rows is None and step.key == step.target.key and same_table(combined.metadata, target.metadata):
            return None
        made_from = step.source if combined.of_source else None
        return Result(step.key, step.target, target, combined.metadata, made_from, rows)
