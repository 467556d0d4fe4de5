"""Errors in the shape and with the codes of the Iceberg REST protocol.

Clients of the protocol delete the files of a commit that they take for failed, and go by the status alone (P5). So:

    500            the outcome is not known, or something went wrong that nobody foresaw: clients keep their files
    every other    it is proven that nothing was committed, and nothing will be

503 says that nothing moved and that the very same request may be sent again; 409 that somebody else was faster.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.access.model import RoleRefusedError, TokenRefusedError
from headwater.catalog.errors import (
    CatalogBusyError,
    NamespaceMissingError,
    NamespaceNotEmptyError,
    RefNotFoundError,
    TableNotFoundError,
)
from headwater.catalog.model import TableKey
from headwater.kernel.errors import (
    ConflictError,
    CorruptError,
    HeadwaterError,
    OutcomeUnknownError,
    RefusedError,
    UnavailableError,
    UsageError,
)
from headwater.publish.errors import (
    ConstraintBrokenError,
    ConstraintViolationError,
    DriftError,
    RecoveryPendingError,
    TooLateError,
)
from headwater.server.errors import InProgressError, KeyReusedError, ReadOnlyBranchError, TooManyError
from headwater.storage.errors import ReadOnlyError
from headwater.tables.model import UnsupportedTableError


class NotFoundError(UsageError):
    """There is no such table, view or namespace on the branch."""

    def __init__(self, kind: str, key: TableKey | str) -> None:
        super().__init__(f"there is no {kind} {key}", hint="list what there is", **{kind: str(key)})
        self.sought = kind


class AlreadyThereError(ConflictError):
    """The name is taken."""

    def __init__(self, key: TableKey, held: str) -> None:
        super().__init__(f"there is a {held} {key} already", hint="choose another name", table=str(key))


class RequirementFailedError(ConflictError):
    """What the client's change rests on is no longer so."""

    def __init__(self, key: TableKey, why: str) -> None:
        super().__init__(f"{key}: {why}", hint="load it again, redo the work on it, and retry", table=str(key))


class SentBeforeError(HeadwaterError):
    """The change cannot be made now, and may have been made before: nobody can tell. Nothing was changed."""

    def __init__(self, key: TableKey, why: str) -> None:
        super().__init__(
            f"{key}: this change may have been committed before, and cannot be made now: {why}",
            hint="load the table to see; keep the files",
            table=str(key),
        )


class BodyError(UsageError):
    """The request does not say what the protocol wants it to say."""


class UnprocessableError(UsageError):
    """The request contradicts itself."""


@dataclass(frozen=True)
class Answer:
    """How an error is answered."""

    status: int
    type: str


_NOT_FOUND = {
    "table": "NoSuchTableException",
    "view": "NoSuchViewException",
    "namespace": "NoSuchNamespaceException",
    "warehouse": "NoSuchWarehouseException",
}

# The first that fits counts.
_ANSWERS: tuple[tuple[type[HeadwaterError], Answer], ...] = (
    (OutcomeUnknownError, Answer(500, "CommitStateUnknownException")),
    (SentBeforeError, Answer(500, "CommitStateUnknownException")),
    # The one who has the key may still commit: nothing is proven.
    (InProgressError, Answer(500, "CommitStateUnknownException")),
    (CorruptError, Answer(500, "InternalServerError")),
    (TokenRefusedError, Answer(401, "NotAuthorizedException")),
    (RoleRefusedError, Answer(403, "ForbiddenException")),
    (ReadOnlyBranchError, Answer(403, "ForbiddenException")),
    (ReadOnlyError, Answer(403, "ForbiddenException")),
    (NamespaceMissingError, Answer(404, _NOT_FOUND["namespace"])),
    (TableNotFoundError, Answer(404, _NOT_FOUND["table"])),
    (RefNotFoundError, Answer(404, "NotFoundException")),
    (AlreadyThereError, Answer(409, "AlreadyExistsException")),
    (NamespaceNotEmptyError, Answer(409, "NamespaceNotEmptyException")),
    (RecoveryPendingError, Answer(503, "RecoveryPendingException")),
    (CatalogBusyError, Answer(503, "ServiceUnavailableException")),
    (TooLateError, Answer(503, "ServiceUnavailableException")),
    (DriftError, Answer(503, "ServiceUnavailableException")),
    (TooManyError, Answer(429, "TooManyRequestsException")),
    (ConflictError, Answer(409, "CommitFailedException")),
    (UnavailableError, Answer(503, "ServiceUnavailableException")),
    (ConstraintViolationError, Answer(400, "ValidationException")),
    (ConstraintBrokenError, Answer(400, "ValidationException")),
    (KeyReusedError, Answer(422, "UnprocessableEntityException")),
    (UnprocessableError, Answer(422, "UnprocessableEntityException")),
    (UnsupportedTableError, Answer(406, "UnsupportedOperationException")),
    (RefusedError, Answer(400, "BadRequestException")),
    (UsageError, Answer(400, "BadRequestException")),
)
UNFORESEEN = Answer(500, "InternalServerError")


def answer_to(error: Exception) -> Answer:
    """How this error is answered; what nobody foresaw as an outcome that is not known."""
    if isinstance(error, NotFoundError):
        return Answer(404, _NOT_FOUND[error.sought])
    return next((answer for kind, answer in _ANSWERS if isinstance(error, kind)), UNFORESEEN)
