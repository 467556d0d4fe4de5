"""What a commit may do, judged against the head that is there; the same on every backend. Without I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.catalog.errors import (
    ExpectedVersionMismatchError,
    NamespaceMissingError,
    NamespaceNotEmptyError,
    RefConflictError,
)
from headwater.catalog.model import Change, CommitRequest, Content, Delete, NamespaceContent, Put, Ref, TableKey
from headwater.kernel.ids import Ulid


def keys_to_judge(request: CommitRequest) -> frozenset[TableKey]:
    """What must be known of the head to judge the request: what is expected, and the namespaces around what is put."""
    around = {key.parent for key, change in request.changes.items() if isinstance(change, Put)}
    return frozenset(request.expected) | {parent for parent in around if parent is not None}


def empties_namespaces(request: CommitRequest) -> bool:
    """Whether it deletes a namespace, so that everything at the head must be known."""
    return any(
        isinstance(change, Delete) and isinstance(request.expected[key], NamespaceContent)
        for key, change in request.changes.items()
    )


def judge_versions(request: CommitRequest, present: Mapping[TableKey, Content]) -> None:
    """Every touched and every read key is what the request rests on (hazard P8), or the first that is not is named.

    Contents are compared whole: a metadata file that is written again in place is another version.
    """
    for key in sorted(request.expected):
        expected, actual = request.expected[key], present.get(key)
        if expected != actual:
            raise ExpectedVersionMismatchError(key, expected, actual)


def judge_ref(ref: Ref, expected: str | None, incarnation: Ulid | None) -> None:
    """The ref is where the caller saw it, and the one that the caller saw, as far as the caller says."""
    if incarnation is not None and ref.incarnation != incarnation:
        raise RefConflictError(ref.name, expected or ref.hash, ref.hash, again=(incarnation, ref.incarnation))
    if expected is not None and ref.hash != expected:
        raise RefConflictError(ref.name, expected, ref.hash)


def judge_namespaces(changes: Mapping[TableKey, Change], present: Mapping[TableKey, Content]) -> None:
    """After the changes, whatever is put has a namespace around it, and no deleted namespace has anything in it."""
    for key in sorted(changes):
        parent = key.parent
        if isinstance(changes[key], Put) and parent is not None and not _is_namespace(parent, changes, present):
            raise NamespaceMissingError(key, parent)
    left = sorted(_after(changes, present))
    for key in sorted(changes):
        if isinstance(changes[key], Delete) and isinstance(present.get(key), NamespaceContent):
            inside = next((each for each in left if each.is_in(key.elements)), None)
            if inside is not None:
                raise NamespaceNotEmptyError(key, inside)


def _is_namespace(key: TableKey, changes: Mapping[TableKey, Change], present: Mapping[TableKey, Content]) -> bool:
    match changes.get(key):
        case None:
            return isinstance(present.get(key), NamespaceContent)
        case Put(content):
            return isinstance(content, NamespaceContent)
        case Delete():
            return False


def _after(changes: Mapping[TableKey, Change], present: Mapping[TableKey, Content]) -> Iterable[TableKey]:
    kept = (key for key in present if key not in changes)
    return (*kept, *(key for key, change in changes.items() if isinstance(change, Put)))
