"""One table from kinds of errors to answers.

What a status promises (hazard P5): every one but 500, 502 and 504 is given only when it is proven that nothing was
changed. The lake's own errors carry that proof: an error that is no `OutcomeUnknownError` means that nothing landed.

    400  usage, bad_sql          the request is wrong: change it; `position` tells where in the SQL
    401  unauthorized            no token, or none that is valid
    403  forbidden, refused_sql  the role does not reach, or the SQL asks for more than it may
    403  read_only               a replica, which is only what was copied to it
    404  not_found               no such branch, commit, table or route
    409  conflict, busy          somebody else won: read again, then retry; `manifest_conflict` names the table
    409  merge_conflict          both branches changed the same thing: `conflicts` lists all of it
    409  exists                  there is a ref or token of that name
    409  in_progress             a request with this Idempotency-Key is under way: ask again later
    409  refused                 it would be unsafe as the lake stands; a retry does not help, the hint does
    410  behind_horizon          history that is no longer kept
    413  too_large   415 unsupported_media_type   406 not_acceptable   408 body_timeout
    422  constraint, key_reused, invalid_request
    429  too_many                wait `Retry-After` seconds
    500  outcome_unknown         it may have happened: `settle` is the URL that finds out
    500  corrupt, failed         a person must look
    503  recovery_pending        a dead writer's change must be undone first; nothing was changed
    503  unavailable, timeout, too_late
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from headwater.access.model import RoleRefusedError, TokenRefusedError
from headwater.catalog.errors import (
    BehindHorizonError,
    CatalogBusyError,
    CommitNotFoundError,
    ExpectedVersionMismatchError,
    RefConflictError,
    RefExistsError,
    RefNotFoundError,
    TableNotFoundError,
)
from headwater.catalog.model import Content, TableContent, ViewContent
from headwater.kernel.errors import (
    ConflictError,
    CorruptError,
    HeadwaterError,
    OutcomeUnknownError,
    RefusedError,
    UnavailableError,
    UsageError,
)
from headwater.kernel.ids import parse_ulid
from headwater.kernel.logs import scrub_value
from headwater.publish.branches.model import MergeConflictError
from headwater.publish.errors import ConstraintViolationError, RecoveryPendingError, TooLateError
from headwater.publish.schema.places import SchemaError
from headwater.publish.sql.statements import StatementError
from headwater.query.model import QueryMemoryError, QueryRefusedError, QueryTimeoutError, QueryUsageError
from headwater.storage.errors import ReadOnlyError

_VERSION = re.compile(r"/([0-9]{20})(?:\.[A-Za-z0-9_-]+)+$")


class TooManyError(UnavailableError):
    """As much as may be is under way already; nothing was begun."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{limit} {what} are under way already", hint="wait a moment, then try again", limit=limit)


class InProgressError(ConflictError):
    """A request with the same key is under way, or may be."""

    def __init__(self, operation: str) -> None:
        super().__init__(
            "a request with this Idempotency-Key may be under way still",
            hint="send it again a little later: it is answered then, and not carried out twice",
            operation=operation,
        )


class KeyReusedError(UsageError):
    """The key was used for another request."""

    def __init__(self) -> None:
        super().__init__(
            "this Idempotency-Key was used for another request",
            hint="a key belongs to one request; take a fresh one for this",
        )


class ReadOnlyBranchError(RefusedError):
    """A replica branch, or a tag: nothing is written there."""

    def __init__(self, branch: str, why: str) -> None:
        super().__init__(f"{branch} takes no writes here: {why}", hint="write to the branch that it is of", ref=branch)


class ShapeError(UsageError):
    """The request is not what this route takes; `status` and `code` say in which way."""

    def __init__(self, status: int, code: str, message: str, *, hint: str | None = None, **fields: object) -> None:
        super().__init__(message, hint=hint, **fields)
        self.status = status
        self.code = code


@dataclass(frozen=True)
class Answer:
    """What is answered: a status, a body and headers."""

    status: int
    code: str
    body: Mapping[str, object]
    headers: Mapping[str, str] = field(default_factory=dict)


# The nearest class of an error that is here decides.
TABLE: Mapping[type[HeadwaterError], tuple[int, str]] = {
    QueryUsageError: (400, "bad_sql"),
    StatementError: (400, "bad_sql"),
    SchemaError: (400, "bad_sql"),
    ConstraintViolationError: (422, "constraint"),
    KeyReusedError: (422, "key_reused"),
    RefNotFoundError: (404, "not_found"),
    CommitNotFoundError: (404, "not_found"),
    TableNotFoundError: (404, "not_found"),
    UsageError: (400, "usage"),
    RecoveryPendingError: (503, "recovery_pending"),
    TooLateError: (503, "too_late"),
    MergeConflictError: (409, "merge_conflict"),
    RefExistsError: (409, "exists"),
    CatalogBusyError: (409, "busy"),
    InProgressError: (409, "in_progress"),
    ConflictError: (409, "conflict"),
    TokenRefusedError: (401, "unauthorized"),
    RoleRefusedError: (403, "forbidden"),
    QueryRefusedError: (403, "refused_sql"),
    ReadOnlyError: (403, "read_only"),
    ReadOnlyBranchError: (403, "read_only"),
    BehindHorizonError: (410, "behind_horizon"),
    RefusedError: (409, "refused"),
    TooManyError: (429, "too_many"),
    QueryTimeoutError: (503, "timeout"),
    QueryMemoryError: (503, "out_of_memory"),
    UnavailableError: (503, "unavailable"),
    OutcomeUnknownError: (500, "outcome_unknown"),
    CorruptError: (500, "corrupt"),
    HeadwaterError: (500, "failed"),
}

_RETRY_SECONDS = {"too_many": 1, "busy": 1, "in_progress": 2, "recovery_pending": 5, "unavailable": 2}


def answer_to(error: HeadwaterError, *, branch: str | None = None) -> Answer:
    """What is answered to this error; `branch` is where the request wanted to write."""
    status, code = _status_of(error)
    # What people read first comes first, and no field of an error stands in its place.
    body: dict[str, object] = {"error": error.message, "code": code, "hint": error.hint}
    body |= {name: value for name, value in error.fields.items() if name not in body}
    match error:
        case ExpectedVersionMismatchError():
            body = {key: value for key, value in body.items() if key not in ("expected", "actual", "table")}
            body["manifest_conflict"] = _manifest_conflict(error)
        case RefConflictError():
            body["ref_conflict"] = {"ref": error.ref, "expected": error.expected, "actual": error.actual}
        case OutcomeUnknownError():
            body["settle"] = settle_url(error.operation, branch)
            if body["settle"] is not None:
                body["hint"] = (
                    "GET the URL in `settle` before doing the work again, or send the request again with its key"
                )
        case RecoveryPendingError():
            body["hint"] = f"wait, and send it again: {error.hint}; here, POST /v1/recover does it"
        case _:
            pass
    if "line" in body:
        column = body.pop("column_number", body.get("column"))
        body["position"] = {"line": body.pop("line"), "column": column if isinstance(column, int) else None}
        if isinstance(body.get("column"), int):  # else it is the name of one
            del body["column"]
    headers = {}
    if code in _RETRY_SECONDS:
        headers["Retry-After"] = str(_RETRY_SECONDS[code])
    if code == "unauthorized":
        headers["WWW-Authenticate"] = "Bearer"
    shown = scrub_value(body)
    assert isinstance(shown, dict)
    return Answer(status, code, shown, headers)


def settle_url(operation: str, branch: str | None) -> str | None:
    """Where a caller finds out what became of an operation; None when it names none that the lake knows."""
    try:
        known = parse_ulid(operation)
    except UsageError:
        return None
    return f"/v1/operations/{known}" + (f"?branch={quote(branch, safe='')}" if branch else "")


def _status_of(error: HeadwaterError) -> tuple[int, str]:
    if isinstance(error, ShapeError):
        return error.status, error.code
    return next(TABLE[kind] for kind in type(error).__mro__ if kind in TABLE)


def _manifest_conflict(error: ExpectedVersionMismatchError) -> dict[str, object]:
    """The table, and the numbers of its versions; null is absent, or a thing that has no numbers."""
    return {
        "table_key": str(error.table),
        "expected": _number(error.expected),
        "actual": _number(error.actual),
    }


def _number(content: Content | None) -> int | None:
    if not isinstance(content, TableContent | ViewContent):
        return None
    found = _VERSION.search(content.metadata_location)
    return int(found[1]) if found else None
