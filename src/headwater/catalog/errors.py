"""What a catalog can say no with. The second level of the tree tells the caller what to do, as everywhere."""

from __future__ import annotations

from datetime import datetime

from headwater.catalog.model import Content, TableKey, describe
from headwater.kernel.errors import ConflictError, OutcomeUnknownError, RefusedError, UsageError
from headwater.kernel.ids import Ulid


class ExpectedVersionMismatchError(ConflictError):
    """A table that the commit touches or has read is no longer what it was; nothing was committed."""

    def __init__(self, table: TableKey, expected: Content | None, actual: Content | None) -> None:
        super().__init__(
            f"{table} is {describe(actual)}, not {describe(expected)} as expected",
            hint="read it again, redo the work on it, and retry",
            table=str(table),
            expected=describe(expected),
            actual=describe(actual),
        )
        self.table = table
        self.expected = expected
        self.actual = actual


class RefConflictError(ConflictError):
    """A ref is not where it was expected; nothing was changed. The tables in question, if any, are unchanged."""

    def __init__(self, ref: str, expected: str, actual: str, *, again: tuple[Ulid, Ulid] | None = None) -> None:
        """`again` tells of a ref that was made again: the incarnation that was expected, and the one that is there."""
        super().__init__(
            f"{ref} was deleted and made again: it is incarnation {again[1]}, not {again[0]}"
            if again
            else f"{ref} is at {actual}, not at {expected} as expected",
            hint="read it anew, and see whether the work still belongs there"
            if again
            else "read its head, and retry on top of that",
            ref=ref,
            expected=expected,
            actual=actual,
        )
        self.ref = ref
        self.expected = expected
        self.actual = actual


class CatalogBusyError(ConflictError):
    """Others change the lake faster than we get a turn; nothing was changed."""

    def __init__(self, lake: str) -> None:
        super().__init__(f"{lake} is being changed by others all the time", hint="retry", lake=lake)


class RefExistsError(ConflictError):
    """There is a ref of this name already."""

    def __init__(self, ref: str, at: str) -> None:
        super().__init__(
            f"{ref} exists already, at {at}", hint="take another name, or delete it first", ref=ref, hash=at
        )


class RefNotFoundError(UsageError):
    """There is no branch or tag of this name."""

    def __init__(self, ref: str) -> None:
        super().__init__(f"there is no branch or tag {ref!r}", hint="list the refs to see which there are", ref=ref)


class CommitNotFoundError(UsageError):
    """There is no commit of this hash."""

    def __init__(self, commit: str, detail: str = "") -> None:
        super().__init__(
            f"there is no commit {commit!r}{': ' + detail if detail else ''}",
            hint="the log shows hashes; history that was collected is gone",
            hash=commit,
        )


class TableNotFoundError(UsageError):
    """There is no table or view of this name."""

    def __init__(self, key: TableKey, hint: str) -> None:
        super().__init__(f"there is no table {key}", hint=hint, table=str(key))


class NamespaceMissingError(UsageError):
    """Something would be put into a namespace that does not exist."""

    def __init__(self, key: TableKey, namespace: TableKey) -> None:
        super().__init__(
            f"{key} cannot be put: there is no namespace {namespace}",
            hint=f"create the namespace {namespace} first, or in the same commit",
            table=str(key),
            namespace=str(namespace),
        )


class NamespaceNotEmptyError(RefusedError):
    """A namespace that still holds something would be deleted."""

    def __init__(self, namespace: TableKey, inside: TableKey) -> None:
        super().__init__(
            f"the namespace {namespace} cannot be deleted: {inside} is in it",
            hint="delete or move what is in it first",
            namespace=str(namespace),
            table=str(inside),
        )
        self.namespace = namespace


class BehindHorizonError(RefusedError):
    """The commit is behind the history horizon: what it leads to may have been collected (hazard P6)."""

    def __init__(self, commit: str, current_until: datetime, horizon: datetime) -> None:
        super().__init__(
            f"the commit {commit}, of {current_until.isoformat()}, is behind the history horizon {horizon.isoformat()}",
            hint="take a commit after the horizon; tag what must be kept before the horizon passes it",
            hash=commit,
            horizon=horizon.isoformat(),
        )


class BeganTooEarlyError(ConflictError):
    """The change began before the staging horizon: what it staged may have been cleaned up (hazard P10)."""

    def __init__(self, began_at: datetime, horizon: datetime) -> None:
        super().__init__(
            f"the change began at {began_at.isoformat()}, before the staging horizon {horizon.isoformat()}: files that "
            "it staged may have been cleaned up",
            hint="begin it again; let cleanup spare what is younger than the longest change takes",
            began_at=began_at.isoformat(),
            horizon=horizon.isoformat(),
        )


class CommitOutcomeUnknownError(OutcomeUnknownError):
    """Whether the commit is in the branch's log is not known, and it may still get there."""

    def __init__(self, branch: str, operation: Ulid, reason: str) -> None:
        super().__init__(
            f"whether operation {operation} was committed to {branch} is not known: {reason}",
            operation=operation,
            hint=f"look for operation {operation} in the log of {branch} before doing the work again",
            ref=branch,
        )
