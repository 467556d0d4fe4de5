"""The table from errors to answers, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import headwater.publish.optimize.errors
import headwater.sequence.model
from headwater.access.model import Role, RoleRefusedError, TokenRefusedError
from headwater.catalog.errors import (
    BehindHorizonError,
    CatalogBusyError,
    CommitNotFoundError,
    CommitOutcomeUnknownError,
    ExpectedVersionMismatchError,
    NamespaceNotEmptyError,
    RefConflictError,
    RefExistsError,
    RefNotFoundError,
    TableNotFoundError,
)
from headwater.catalog.model import NamespaceContent, TableContent, TableKey
from headwater.kernel.errors import (
    ConflictError,
    CorruptError,
    HeadwaterError,
    OutcomeUnknownError,
    RefusedError,
    UnavailableError,
    UsageError,
)
from headwater.kernel.ids import Ulid
from headwater.publish.errors import (
    ConstraintViolationError,
    PublishOutcomeUnknownError,
    RecoveryPendingError,
    TooLateError,
)
from headwater.publish.sql.statements import StatementError
from headwater.query.model import QueryRefusedError, QueryTimeoutError, QueryUsageError
from headwater.server.errors import TABLE, InProgressError, KeyReusedError, TooManyError, answer_to
from headwater.server.positions import position_of
from headwater.storage.errors import ReadOnlyError, StorageOutcomeUnknownError, TransientError

KEY, OPERATION, NOW = TableKey(("default",), "t"), Ulid("01M7G0AVKHG068AK7DCRT50TC0"), datetime(2026, 1, 1, tzinfo=UTC)

ROWS: list[tuple[HeadwaterError, int, str]] = [
    (QueryUsageError("x", line=1, column=2), 400, "bad_sql"),
    (StatementError("x"), 400, "bad_sql"),
    (UsageError("x"), 400, "usage"),
    (TokenRefusedError("x"), 401, "unauthorized"),
    (RoleRefusedError("ann", Role.READER, Role.WRITER), 403, "forbidden"),
    (QueryRefusedError("x"), 403, "refused_sql"),
    (ReadOnlyError("x"), 403, "read_only"),
    (RefNotFoundError("b"), 404, "not_found"),
    (CommitNotFoundError("0"), 404, "not_found"),
    (TableNotFoundError(KEY, "x"), 404, "not_found"),
    (ExpectedVersionMismatchError(KEY, None, None), 409, "conflict"),
    (RefConflictError("main", "a", "b"), 409, "conflict"),
    (RefExistsError("b", "0"), 409, "exists"),
    (CatalogBusyError("lake"), 409, "busy"),
    (InProgressError(OPERATION), 409, "in_progress"),
    (ConflictError("x"), 409, "conflict"),
    (NamespaceNotEmptyError(KEY, KEY), 409, "refused"),
    (RefusedError("x"), 409, "refused"),
    (BehindHorizonError("0", NOW, NOW), 410, "behind_horizon"),
    (ConstraintViolationError(KEY, "pk", "x"), 422, "constraint"),
    (KeyReusedError(), 422, "key_reused"),
    (TooManyError("writes", 3), 429, "too_many"),
    (PublishOutcomeUnknownError(OPERATION, "x"), 500, "outcome_unknown"),
    (CommitOutcomeUnknownError("main", OPERATION, "x"), 500, "outcome_unknown"),
    (StorageOutcomeUnknownError("store", "path", "x"), 500, "outcome_unknown"),
    (CorruptError("x"), 500, "corrupt"),
    (HeadwaterError("x"), 500, "failed"),
    (RecoveryPendingError(KEY, OPERATION, "later"), 503, "recovery_pending"),
    (TooLateError(OPERATION, "then"), 503, "too_late"),
    (QueryTimeoutError(1), 503, "timeout"),
    (TransientError("store", "path", "x"), 503, "unavailable"),
    (UnavailableError("x"), 503, "unavailable"),
]


@pytest.mark.parametrize(("error", "status", "code"), ROWS, ids=lambda each: getattr(each, "kind", None))
def test_each_kind_has_its_answer(error: HeadwaterError, status: int, code: str) -> None:
    answer = answer_to(error)
    assert (answer.status, answer.code, answer.body["code"]) == (status, code, code)
    assert answer.body["error"] == error.message
    assert list(answer.body)[:3] == ["error", "code", "hint"]
    if status in (429, 503) and code in ("too_many", "recovery_pending", "unavailable"):
        assert int(answer.headers["Retry-After"]) > 0


def below(kind: type[HeadwaterError]) -> Iterator[type[HeadwaterError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from below(each)


@pytest.mark.hazard("P5")
def test_p5_an_outcome_that_is_not_known_is_500_and_everything_else_is_proven_absent() -> None:
    assert headwater.publish.optimize.errors
    assert headwater.sequence.model  # every error class is loaded
    unknown = {kind for kind in below(HeadwaterError) if issubclass(kind, OutcomeUnknownError)}
    assert len(unknown) > 3
    for kind in below(HeadwaterError):
        status, _ = next(TABLE[each] for each in kind.__mro__ if each in TABLE)
        assert status not in (502, 504)
        assert status == 500 or kind not in unknown


def test_a_lost_race_names_the_table_and_its_versions() -> None:
    def version(number: int) -> TableContent:
        return TableContent("01", f"s3://b/t/metadata/{number:020}.metadata.json", 1, 0, 0, 0)

    body = answer_to(ExpectedVersionMismatchError(KEY, version(3), version(5))).body
    assert body["manifest_conflict"] == {"table_key": "default.t", "expected": 3, "actual": 5}
    gone = answer_to(ExpectedVersionMismatchError(KEY, NamespaceContent("01"), None)).body["manifest_conflict"]
    assert gone == {"table_key": "default.t", "expected": None, "actual": None}


def test_an_unknown_outcome_says_where_it_is_settled() -> None:
    body = answer_to(PublishOutcomeUnknownError(OPERATION, "x"), branch="a/b").body
    assert body["operation"] == OPERATION
    assert body["settle"] == f"/v1/operations/{OPERATION}?branch=a%2Fb"
    assert answer_to(StorageOutcomeUnknownError("store", "path", "x")).body["settle"] is None


@pytest.mark.parametrize(
    ("sql", "error", "expected"),
    [
        ("select\n nope from t", QueryUsageError('column "nope" not found'), (2, 2)),
        ("select nope from t where nope", QueryUsageError('column "nope" not found'), None),
        ("select Nope from t", QueryUsageError('column "nope" not found'), (1, 8)),
        ("select nopes from t", QueryUsageError('column "nope" not found'), None),
        ('update t set "a b" = 1', StatementError("no such column", column="a b"), (1, 14)),
        ("delete from db.x", QueryUsageError("there is no table", table="db.x"), (1, 16)),
        ("select 1 +\n", QueryUsageError("syntax error at end of input"), (1, 11)),
        ("select 1", QueryUsageError("it is wrong somehow"), None),
    ],
)
def test_what_is_named_once_is_where_it_is_wrong(
    sql: str, error: HeadwaterError, expected: tuple[int, int] | None
) -> None:
    assert position_of(sql, error) == expected


def test_no_secret_gets_out() -> None:
    body = answer_to(UsageError("postgresql://ann:hunter2@host/db is wrong", password="hunter2")).body
    assert "hunter2" not in str(body)
