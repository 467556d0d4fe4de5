"""Tokens and keyed requests mean the same on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headwater.access import Requests, Role, TokenRefusedError, Tokens
from headwater.access.model import KeyedRequest
from headwater.database import Database, open_database
from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import ConflictError
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.randomness import system_randomness

BACKENDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.services)]
LATER = datetime(2100, 1, 1, tzinfo=UTC)

pytestmark = pytest.mark.proves("server/access")


@pytest.fixture(params=BACKENDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    is_server = request.param == "postgresql"
    target = str(request.getfixturevalue("postgres_database")) if is_server else str(tmp_path / "state.db")
    with open_database(target) as opened:
        yield opened


def fresh() -> Ulid:
    return new_ulid(SystemClock(), system_randomness())


def request_of(key: str = "k", caller: str = "ann") -> KeyedRequest:
    return KeyedRequest(caller, key, "0" * 64, "main", fresh(), LATER)


def test_tokens(database: Database) -> None:
    tokens = Tokens(database, system_randomness())
    assert not tokens.has_any()
    _, text = tokens.create("ann", Role.WRITER)
    with pytest.raises(ConflictError):
        tokens.create("ann", Role.READER)
    assert tokens.caller(text).actor == "ann"
    revoked = tokens.revoke("ann")
    assert tokens.list() == (revoked,)
    assert tokens.has_any()
    with pytest.raises(TokenRefusedError):
        tokens.caller(text)


def test_a_claim_is_one_s_until_it_is_released_or_taken_over(database: Database) -> None:
    requests, first = Requests(database), request_of()
    second = replace(first, operation=fresh())
    assert requests.claim(first) is None
    assert requests.claim(second) == first
    assert requests.claim(replace(second, caller="bob")) is None
    requests.release(first, second.operation)  # not its own
    assert requests.claim(second) == first
    assert requests.take_over(first, second.operation, LATER)
    assert not requests.take_over(first, fresh(), LATER)
    assert not requests.keep(first, first.operation, "{}")
    assert requests.keep(first, second.operation, '{"a": 1}')
    found = requests.claim(first)
    assert found is not None
    assert (found.operation, found.answer) == (second.operation, '{"a": 1}')
    requests.release(first, second.operation)  # an answer is not given back
    assert requests.claim(first) == found


def test_a_released_key_is_free(database: Database) -> None:
    requests, first = Requests(database), request_of()
    requests.claim(first)
    requests.release(first, first.operation)
    assert requests.claim(replace(first, operation=fresh())) is None


def test_one_of_many_claims_a_key(database: Database) -> None:
    requests = Requests(database)
    wanted = [replace(request_of(), operation=fresh()) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(requests.claim, wanted))
    [winner] = [each for each, other in zip(wanted, found, strict=True) if other is None]
    assert {other.operation for other in found if other is not None} == {winner.operation}


def test_old_requests_are_forgotten_once_their_lease_is_over(database: Database) -> None:
    requests = Requests(database)
    over = replace(request_of("over"), lease_until=datetime(2000, 1, 1, tzinfo=UTC))
    for each in (over, request_of("held")):
        requests.claim(each)
    assert requests.forget(timedelta(days=1)) == 0
    assert requests.forget(timedelta(seconds=-5)) == 1
    assert requests.claim(over) is None
