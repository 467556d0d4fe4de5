"""Errors of publishing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headwater.catalog.model import TableKey
from headwater.kernel.errors import ConflictError, CorruptError, OutcomeUnknownError, RefusedError, UsageError
from headwater.kernel.ids import Ulid
from headwater.publish.model import HeadState


class PublishOutcomeUnknownError(OutcomeUnknownError):
    """The change may land yet, or not. Asking by its operation settles it (P3)."""

    def __init__(self, operation: Ulid, why: str) -> None:
        super().__init__(
            f"whether operation {operation} was committed is not known: {why}",
            operation=operation,
            hint=f"run `headwater recover --operation {operation}` before doing the work again",
        )


class TooLateError(ConflictError):
    """The change was not ready by its deadline. Nothing was changed, and nothing will be."""

    def __init__(self, operation: Ulid, deadline: str) -> None:
        super().__init__(
            f"operation {operation} was not ready by {deadline}, when it had to be",
            hint="nothing was changed; let it do less at a time, or give it more time",
            operation=operation,
        )


class RecoveryPendingError(ConflictError):
    """A table is held by a change whose writer died, and which has to be rolled back first."""

    def __init__(self, key: TableKey, operation: Ulid, until: str) -> None:
        super().__init__(
            f"{key} is held by operation {operation}, whose writer has not finished",
            hint=f"it is recovered by the next read-write open, or `headwater recover`, after {until}",
            table=str(key),
            operation=operation,
        )


class RecoveryAbortedError(CorruptError):
    """A head is behind its pin, which cannot be: objects were removed by hand. The sidecar is kept."""

    def __init__(self, operation: Ulid, states: Mapping[TableKey, HeadState]) -> None:
        told = ", ".join(f"{key} is {state}" for key, state in sorted(states.items()))
        super().__init__(
            f"operation {operation} cannot be recovered: {told}",
            hint="find out who removed objects of that table; its sidecar stays until a person has looked",
            operation=operation,
        )


class SidecarCorruptError(CorruptError):
    """A sidecar cannot be read, or is of a newer version. It is kept; nothing is recovered or written until then."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            f"{path} {what}",
            hint="reading the lake works; upgrade headwater, or let a person look at the file before it is moved away",
            path=path,
        )


class ConstraintViolationError(UsageError):
    """Rows do not satisfy what their table demands. Nothing was written."""

    def __init__(self, key: TableKey, constraint: str, what: str) -> None:
        super().__init__(
            f"{key}: {what} (constraint {constraint})",
            hint="nothing was changed; correct the rows, or change the constraint by `headwater schema apply`",
            table=str(key),
            constraint=constraint,
        )


class ConstraintBrokenError(RefusedError):
    """A constraint cannot be judged, because it mentions what is not there; nothing is written until it can."""

    def __init__(self, key: TableKey, constraint: str, what: str) -> None:
        super().__init__(
            f"{key}: constraint {constraint} cannot be judged: {what}",
            hint="nothing was changed; correct or drop the constraint by `headwater schema apply`",
            table=str(key),
            constraint=constraint,
        )


class DriftError(RefusedError):
    """The head of a table is ahead of its pin, and no sidecar says why."""

    def __init__(self, key: TableKey, pinned_id: int, latest_id: int) -> None:
        super().__init__(
            f"the head of {key} is at {latest_id} and its pin at {pinned_id}, and no sidecar explains that",
            hint="run `headwater repair`, which sets the head back to what the branch holds",
            table=str(key),
            pinned=pinned_id,
            latest=latest_id,
        )


class RepairRefusedError(RefusedError):
    """Sidecars are pending: what they explain is recovered, not repaired."""

    def __init__(self, operations: Sequence[Ulid]) -> None:
        super().__init__(
            f"nothing is repaired while changes are pending: {', '.join(operations)}",
            hint="let them end, or run `headwater recover` once their leases have passed; then repair",
            operations=list(operations),
        )


class HeadsBehindError(CorruptError):
    """Heads are behind their pins, which cannot be: objects were removed by hand. Nothing was changed."""

    def __init__(self, heads: Mapping[TableKey, tuple[int, int]]) -> None:
        told = ", ".join(f"{key} (pinned at {pin}, head at {head})" for key, (pin, head) in sorted(heads.items()))
        super().__init__(
            f"objects of these tables were removed: {told}",
            hint="restore the objects from a copy of the lake, or set the branch to a commit that does not need them",
            tables=[str(key) for key in sorted(heads)],
        )
