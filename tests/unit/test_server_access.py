"""Tokens and roles: who is let in, to what, and what is kept of a token."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headwater.access import Role, TokenRefusedError, Tokens
from headwater.access.decide import check_key, check_name, is_secret, may_be_running, next_step, parsed, spelled
from headwater.access.model import KeyedRequest, Step
from headwater.database import open_database
from headwater.kernel.clock import ManualClock
from headwater.kernel.errors import ConflictError, RefusedError, UsageError
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.randomness import seeded
from headwater.server.limits import FREE_BYTES
from headwater.server.main import serve
from headwater.server.serving import is_local_name, is_loopback
from tests.unit.server_world import ServedLake, served_lake

pytestmark = pytest.mark.proves("server/access")


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[Tokens]:
    with open_database(tmp_path / "state.db") as database:
        yield Tokens(database, seeded(1))


def test_a_token_is_good_until_it_is_revoked(tokens: Tokens) -> None:
    assert not tokens.has_any()
    made, text = tokens.create("ann", Role.WRITER)
    caller = tokens.caller(text)
    assert (caller.actor, caller.role, caller.id) == ("ann", Role.WRITER, made.id)
    tokens.revoke("ann")
    with pytest.raises(TokenRefusedError):
        tokens.caller(text)
    assert tokens.has_any()  # or the last one revoked would let everybody in
    assert [each.revoked_at is not None for each in tokens.list()] == [True]
    tokens.create("ann", Role.READER)


def test_names_are_taken_once_at_a_time(tokens: Tokens) -> None:
    tokens.create("ann", Role.READER)
    with pytest.raises(ConflictError):
        tokens.create("ann", Role.ADMIN)
    with pytest.raises(UsageError):
        tokens.revoke("bob")
    for name in ("", "a b", "headwater:recovery", "x" * 101, "a\n"):
        with pytest.raises(UsageError):
            check_name(name)


def test_only_the_exact_text_is_a_token(tokens: Tokens) -> None:
    made, text = tokens.create("ann", Role.ADMIN)
    _, other = tokens.create("bob", Role.ADMIN)
    wrong = [
        "",
        "hw_",
        text[:-1],
        text + "A",
        text.swapcase(),
        f"hw_{made.id}_{'A' * 43}",
        f"hw_{made.id}_{other.split('_', 2)[2]}",
        f"hw_{'0' * 26}_{text.split('_', 2)[2]}",
    ]
    for each in wrong:
        with pytest.raises(TokenRefusedError):
            tokens.caller(each)


def test_no_secret_is_stored(tmp_path: Path, tokens: Tokens) -> None:
    _, text = tokens.create("ann", Role.ADMIN)
    secret = text.split("_", 2)[2]
    connection = sqlite3.connect(tmp_path / "state.db")
    [row] = connection.execute("select * from access_tokens").fetchall()
    connection.close()
    assert not any(secret in str(each) for each in row)
    assert all(secret.encode() not in file.read_bytes() for file in tmp_path.glob("state.db*"))


def test_a_secret_is_compared_whether_or_not_there_is_one() -> None:
    assert not is_secret("x", None)
    identity = Ulid("0" * 26)
    assert parsed(spelled(identity, b"\0" * 32)) == (identity, "A" * 43)


def test_each_role_may_what_those_before_it_may() -> None:
    allowed = {(have, need) for have in Role for need in Role if have.may_act_as(need)}
    assert allowed == {
        (Role.READER, Role.READER),
        (Role.WRITER, Role.READER),
        (Role.WRITER, Role.WRITER),
        (Role.ADMIN, Role.READER),
        (Role.ADMIN, Role.WRITER),
        (Role.ADMIN, Role.ADMIN),
    }


def test_what_is_to_be_done_about_a_key() -> None:
    clock = ManualClock()
    request = KeyedRequest("c", "k", "digest", "main", new_ulid(clock, seeded(1)), clock.now())
    assert next_step(None, "digest") is Step.RUN
    assert next_step(request, "other") is Step.MISMATCH
    assert next_step(request, "digest") is Step.LOOK
    answered = KeyedRequest("c", "k", "digest", "main", request.operation, clock.now(), "{}")
    assert next_step(answered, "digest") is Step.REPLAY
    assert next_step(answered, "other") is Step.MISMATCH
    skew = timedelta(seconds=10)
    assert may_be_running(request, clock.now(), skew)
    assert not may_be_running(request, clock.now() + skew, skew)
    for key in ("", "a b", "ä", "x" * 256):
        with pytest.raises(UsageError):
            check_key(key)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("10.0.0.1", False), ("example.org", False), ("", False)],
)  # fmt: skip
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1:80", True), ("localhost:8181", True), ("[::1]:80", True), ("localhost", True),
     ("evil.example:8181", False), ("localhost.evil.example", False), ("", False)],
)  # fmt: skip
def test_names_of_this_machine(host: str, expected: bool) -> None:
    assert is_local_name(host) is expected


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedLake]:
    with served_lake(tmp_path / "lake") as world:
        yield world


def test_without_tokens_only_this_machine_is_let_in(served: ServedLake) -> None:
    assert served.client.get("/v1/refs").status_code == 200
    other = served.client.get("/v1/refs", headers={"host": "evil.example"})
    assert (other.status_code, other.json()["code"]) == (401, "unauthorized")
    header = served.token(Role.ADMIN)
    refused = served.client.get("/v1/refs")
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert "`headwater token create LAKE NAME" in refused.json()["hint"]
    assert "***" not in refused.text  # what the way out is, is no secret
    assert served.client.get("/v1/refs", headers=header).status_code == 200
    served.serving.tokens.revoke("a-admin")
    assert served.client.get("/v1/refs", headers=header).status_code == 401
    assert served.client.get("/v1/refs").status_code == 401
    for wrong in ("Basic abc", "Bearer", "hw_x"):
        assert served.client.get("/v1/refs", headers={"authorization": wrong}).status_code == 401
    for path in ("/healthz", "/readyz"):
        assert served.client.get(path).status_code == 200


@pytest.mark.hazard("P21")
def test_a_page_in_a_browser_is_kept_out_where_no_token_is_needed(served: ServedLake) -> None:
    """A page may send what it may not read the answer to: by forms and plain text, and without any body."""
    own = str(served.client.base_url).rstrip("/")
    made = b'{"namespace": ["evil"]}'
    sql = b'{"sql": "insert into t values (1, \'a\')"}'
    for origin in ("https://evil.example", "http://localhost:3000", "null", "http://127.0.0.1:1", ""):
        for path, body in (("/v1/recover", b""), ("/v1/main/mutate", sql), ("/iceberg/v1/main/namespaces", made)):
            headers = {"content-type": "application/json", "origin": origin}
            answer = served.client.post(path, content=body, headers=headers)
            assert answer.status_code == 401, (origin, path, answer.text)
    assert served.rows() == []
    assert served.client.post("/v1/recover", headers={"origin": own}).status_code == 200
    header = served.token(Role.ADMIN)
    assert served.client.post("/v1/recover", headers={"origin": "https://evil.example", **header}).status_code == 200


def test_commits_are_in_the_name_of_the_token(served: ServedLake) -> None:
    served.mutate("insert into t values (1, 'a')", **served.token(Role.WRITER, "ann"))
    assert served.actors()[0] == "ann"


# What each route needs; every route of the application is here.
ROUTES: dict[tuple[str, str], Role | None] = {
    ("POST", "/v1/{branch}/mutate"): Role.WRITER,
    ("POST", "/v1/{branch}/load"): Role.WRITER,
    ("POST", "/v1/{branch}/schema"): Role.WRITER,
    ("POST", "/v1/{branch}/merge"): Role.WRITER,
    ("POST", "/v1/branches"): Role.WRITER,
    ("DELETE", "/v1/branches/{branch}"): Role.ADMIN,
    ("GET", "/v1/branches/{branch}"): Role.READER,
    ("POST", "/v1/tags"): Role.WRITER,
    ("DELETE", "/v1/tags/{tag}"): Role.ADMIN,
    ("GET", "/v1/tags/{tag}"): Role.READER,
    ("POST", "/v1/recover"): Role.ADMIN,
    ("POST", "/v1/{branch}/query"): Role.READER,
    ("GET", "/v1/{branch}/commits"): Role.READER,
    ("GET", "/v1/{branch}/commits/{commit}"): Role.READER,
    ("GET", "/v1/{branch}/tables"): Role.READER,
    ("GET", "/v1/{branch}/schema"): Role.READER,
    ("GET", "/v1/refs"): Role.READER,
    ("GET", "/v1/sidecars"): Role.READER,
    ("GET", "/v1/recoveries"): Role.READER,
    ("GET", "/v1/operations/{operation}"): Role.WRITER,
    ("GET", "/metrics"): Role.READER,
    ("GET", "/"): None,
    ("GET", "/healthz"): None,
    ("GET", "/readyz"): None,
}

BODIES: dict[str, dict[str, object]] = {
    "/v1/{branch}/mutate": {"sql": "delete from t where false"},
    "/v1/{branch}/schema": {"sql": "create table if not exists t (id bigint)", "dry_run": True},
    "/v1/{branch}/merge": {"source": "main"},
    "/v1/branches": {"name": "made"},
    "/v1/tags": {"name": "made"},
    "/v1/{branch}/query": {"sql": "select 1"},
}


def test_every_route_with_every_role(served: ServedLake) -> None:
    paths = served.client.get("/openapi.json").json()["paths"]
    known = {(method.upper(), path) for path, methods in paths.items() for method in methods if "/iceberg/" not in path}
    assert known == set(ROUTES)
    headers: dict[Role | None, dict[str, str]] = {role: served.token(role) for role in Role}
    headers[None] = {}
    before = served.lake.catalog.refs()
    for (method, path), needed in ROUTES.items():
        address = path.format(branch="main", operation=served.serving.new_operation(), tag="none", commit="main")
        for role, header in headers.items():
            if path == "/v1/{branch}/load":
                answer = served.client.post(
                    f"{address}?table=t", content=b"", headers={**header, "content-type": "application/x-ndjson"}
                )
            else:
                body = BODIES.get(path) if method == "POST" else None
                answer = served.client.request(method, address, json=body, headers=header)
            is_let_in = needed is None or (role is not None and role.may_act_as(needed))
            if is_let_in:
                assert answer.status_code not in (401, 403), (method, path, role, answer.text)
            else:
                expected = (401, "unauthorized") if role is None else (403, "forbidden")
                assert (answer.status_code, answer.json()["code"]) == expected, (method, path, role, answer.text)
        if path == "/v1/branches":
            served.lake.delete_branch("made")
        elif path == "/v1/tags":
            served.lake.delete_tag("made")
    assert served.lake.catalog.refs() == before


def test_other_machines_need_tokens_from_the_first_moment(served: ServedLake) -> None:
    settings = served.serving.settings.model_copy(update={"host": "0.0.0.0", "port": 0})
    with pytest.raises(RefusedError, match="no token yet"):
        serve(served.app, str(served.folder), settings, ready=lambda _: None)


@pytest.mark.hazard("P21")
@pytest.mark.parametrize("header", ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"])
def test_whom_a_proxy_sends_needs_a_token(served: ServedLake, header: str) -> None:
    """A proxy on this machine calls the server by a local name, in the name of anybody in the world."""
    for path in ("/v1/refs", "/iceberg/v1/config"):
        assert served.client.get(path, headers={header: "203.0.113.7"}).status_code == 401, path
    token = served.token(Role.READER)
    assert served.client.get("/v1/refs", headers={header: "203.0.113.7", **token}).status_code == 200


@pytest.mark.parametrize("path", ["/v1/main/mutate", "/iceberg/v1/main/namespaces", "/v1/main/query"])
def test_the_long_body_of_a_stranger_is_not_taken(served: ServedLake, path: str) -> None:
    """What is read into memory before anybody has looked at the token is little; it need not come to its end."""
    token = served.token(Role.WRITER)
    where = urlsplit(str(served.client.base_url))
    assert where.hostname
    assert where.port
    with socket.create_connection((where.hostname, where.port), timeout=20) as connection:
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 8000000"
        connection.sendall(head.encode() + b"\r\n\r\n" + b" " * (FREE_BYTES + 1))
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 401 "), answer
    assert b"Bearer" in answer
    long = served.client.post("/v1/main/mutate", json={"sql": "x" * 2 * FREE_BYTES}, headers=token)
    assert (long.status_code, long.json()["code"]) == (400, "bad_sql")
