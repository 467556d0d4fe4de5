"""What a merge has to do, from what the source changed since the branches parted and what the target holds. Pure.

Tables and views are followed by identity, not by name: a rename is a change of place.

    base      source          target          decision
    -         there           -               take it
    any       as the target   as the source   nothing
    any       as in base      any             nothing
    there     gone            as in base      drop it
    there     gone            changed         conflict
    there     changed         gone            conflict
    there     changed         as in base      take it
    there     changed         changed         place: as below; a table is combined, a view must have changed on one side
    -         there           there           conflict, unless they are the same

A place (the name) that both sides changed must be the same on both. What ends under a name that something else has on
the target is a conflict too: a commit replaces a version by a version of the same thing, never one thing by another.

Branches that were merged into each other crosswise have several bases. Each has its say: where they do not agree, a
table is combined by all of them, and anything else is a conflict. To go by one of them would undo without a word what a
side took back after it had merged the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from headwater.catalog.model import Content, Difference, NamespaceContent, TableContent, TableKey, ViewContent
from headwater.publish.branches.model import Combine, Conflict, Place, Since, Step, Take, TakeNamespace
from headwater.tables.model import FileTask
from headwater.tables.settling import same_deletes

T = TypeVar("T")

CROSSWISE = "differs in what the branches have in common: they were merged into each other crosswise"
TAKEN = "is another one on the source than on the target; drop or rename one of them first"


def plan_merge(
    since: Sequence[Since], present: Mapping[TableKey, Content]
) -> tuple[tuple[Step, ...], tuple[Conflict, ...]]:
    """What is to be done for what the source changed since each base, and what stands in the way.

    `present` is everything on the target.
    """
    pasts = [_Past.of(each) for each in since]
    there = {each.content_id: each for each in _places(present.items())}
    found = [_judge_all(each, pasts, there.get(each)) for each in sorted({key for past in pasts for key in past.ids})]
    found += [_judge_namespaces(each, since, present) for each in _namespaces(since)]
    steps = [each for each in found if each is not None and not isinstance(each, Conflict)]
    conflicts = [each for each in found if isinstance(each, Conflict)]
    conflicts += _places_taken(steps, present)
    conflicts += _namespaces_amiss(steps, present)
    return tuple(sorted(steps, key=lambda step: step.key)), tuple(conflicts)


@dataclass(frozen=True)
class _Past:
    """Where tables and views were in one base, and where the source has put them since; by identity."""

    before: Mapping[str, Place]
    after: Mapping[str, Place]
    unchanged: frozenset[str]

    @classmethod
    def of(cls, since: Since) -> _Past:
        before = _places((each.key, each.before) for each in since.changes)
        after = _places((each.key, each.after) for each in since.changes)
        return cls(
            {each.content_id: each for each in before}, {each.content_id: each for each in after}, since.unchanged
        )

    @property
    def ids(self) -> frozenset[str]:
        """Everything that the source has touched since."""
        return frozenset({*self.before, *self.after})


def _judge_all(identity: str, pasts: Sequence[_Past], target: Place | None) -> Step | Conflict | None:
    """One table or view, by every base; they must agree, or the table is combined by all of them."""
    source = next(past.after.get(identity) for past in pasts if identity in past.ids)
    bases = [past.before.get(identity) if identity in past.ids else source for past in pasts]
    found = [
        _judge(base, source, target, is_unchanged=identity in past.unchanged)
        for base, past in zip(bases, pasts, strict=True)
    ]
    if all(each == found[0] for each in found):
        return found[0]
    contents = [each.content for each in bases if each is not None and isinstance(each.content, TableContent)]
    if source is None or target is None or len(contents) < len(bases) or not isinstance(source.content, TableContent):
        place = source or target or next(each for each in bases if each is not None)
        return Conflict(place.key, CROSSWISE)
    keys = {three_way(each.key, source.key, target.key) for each in bases if each is not None}
    key = keys.pop()
    if keys or key is None:
        return Conflict(target.key, CROSSWISE)
    return Combine(key, tuple(dict.fromkeys(contents)), source.content, target)


def _places(contents: Iterable[tuple[TableKey, Content | None]]) -> Iterable[Place]:
    return (Place(key, each) for key, each in contents if isinstance(each, (TableContent, ViewContent)))


def _judge(
    base: Place | None, source: Place | None, target: Place | None, *, is_unchanged: bool
) -> Step | Conflict | None:
    """One table or view, by one base."""
    if source in (target, base):
        return None
    if base is None:
        if target is None:
            return Take(None, source)
        return Conflict(target.key, "was made on both sides, and they differ")
    is_as_in_base = target == base or (is_unchanged and target is not None and target.key == base.key)
    if source is None:
        assert target is not None  # else nothing differs
        return (
            Take(target, None)
            if is_as_in_base
            else Conflict(base.key, "was dropped on the source and changed on the target")
        )
    if target is None:
        return Conflict(base.key, "was changed on the source and dropped on the target")
    if is_as_in_base:
        return Take(target, source)
    key = three_way(base.key, source.key, target.key)
    if key is None:
        return Conflict(base.key, f"was renamed to {source.key} on the source and to {target.key} on the target")
    before, after = base.content, source.content
    if (
        isinstance(before, TableContent)
        and isinstance(after, TableContent)
        and isinstance(target.content, TableContent)
    ):
        return Combine(key, (before,), after, target)
    content = three_way(base.content, source.content, target.content)
    if content is None:
        return Conflict(key, "is a view that was changed on both sides")
    return Take(target, Place(key, content)) if Place(key, content) != target else None


def three_way(base: T, source: T, target: T) -> T | None:
    """What one side made of it, if the other left it alone or did the same; None when they differ."""
    if source in (base, target):
        return target
    return source if target == base else None


def _namespaces(since: Sequence[Since]) -> list[TableKey]:
    """Every key at which a namespace came, went or changed."""
    changes = (change for each in since for change in each.changes)
    return sorted({each.key for each in changes if isinstance(each.before or each.after, NamespaceContent)})


def _judge_namespaces(
    key: TableKey, since: Sequence[Since], present: Mapping[TableKey, Content]
) -> Step | Conflict | None:
    """A namespace, by every base; they must agree."""
    changed = [next((change for change in each.changes if change.key == key), None) for each in since]
    found = [None if change is None else _judge_namespace(change, present) for change in changed]
    return found[0] if all(each == found[0] for each in found) else Conflict(key, CROSSWISE)


def _judge_namespace(change: Difference, present: Mapping[TableKey, Content]) -> Step | Conflict | None:
    """Namespaces go by name: two of the same name and properties are the same."""
    base = change.before if isinstance(change.before, NamespaceContent) else None
    source = change.after if isinstance(change.after, NamespaceContent) else None
    held = present.get(change.key)
    target = held if isinstance(held, NamespaceContent) else None
    wanted, there = _properties(source), _properties(target)
    if wanted == there:
        return None
    if there != _properties(base):
        return Conflict(change.key, "is a namespace that was changed on both sides")
    if source is not None and target is not None:
        source = replace(target, properties=source.properties)
    return TakeNamespace(change.key, target, source)


def _properties(content: NamespaceContent | None) -> dict[str, str] | None:
    return None if content is None else dict(content.properties)


def _places_taken(steps: Sequence[Step], present: Mapping[TableKey, Content]) -> list[Conflict]:
    """Places where something else is on the target, or where two would be."""
    conflicts, ends = [], dict[TableKey, Step]()
    for step in steps:
        if not isinstance(step, Combine) and step.after is None:
            continue
        before = step.target if isinstance(step, Combine) else step.before
        held = present.get(step.key)
        own = before.content if isinstance(before, Place) else before
        if step.key in ends or (held is not None and (own is None or held.content_id != own.content_id)):
            conflicts.append(Conflict(step.key, TAKEN))
        ends[step.key] = step
    return conflicts


def _namespaces_amiss(steps: Sequence[Step], present: Mapping[TableKey, Content]) -> list[Conflict]:
    """Namespaces that would go with something in them, and what would be put into none."""
    left = set(present)
    for step in steps:
        before = step.target if isinstance(step, Combine) else step.before
        if isinstance(before, Place):
            left.discard(before.key)
        elif before is not None:
            left.discard(step.key)
    came = {step.key for step in steps if isinstance(step, Combine) or step.after is not None}
    left |= came
    conflicts = []
    for step in steps:
        if isinstance(step, TakeNamespace) and step.after is None:
            inside = next((key for key in sorted(left) if key.is_in(step.key.elements)), None)
            if inside is not None:
                conflicts.append(Conflict(step.key, f"was dropped on the source, and {inside} is in it on the target"))
    orphans = ((key, key.parent) for key in sorted(came) if key.parent is not None and key.parent not in left)
    return [
        *conflicts,
        *(Conflict(key, f"has no namespace: {parent} was dropped on the target") for key, parent in orphans),
    ]


def differing_files(plans: Sequence[Sequence[FileTask]]) -> tuple[frozenset[str], ...]:
    """Of each plan, the data files that are not in all of them with the same deletes.

    The rows of the others are the same rows everywhere, so where rows differ they are in these.
    """
    tasks = [{task.file.file_path: task for task in plan} for plan in plans]
    shared = set.intersection(*(set(each) for each in tasks))
    common = {path for path in shared if all(same_deletes(tasks[0][path], each[path]) for each in tasks[1:])}
    # A file that another engine has put into a snapshot once more has its rows there twice.
    common -= {path for plan in plans for path, times in Counter(t.file.file_path for t in plan).items() if times > 1}
    return tuple(frozenset(each.keys() - common) for each in tasks)
