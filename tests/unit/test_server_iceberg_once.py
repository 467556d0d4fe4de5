"""Requests of the Iceberg protocol that are sent again: carried out once, and answered as they were."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.access import Role
from headwater.access.model import KeyedRequest
from headwater.catalog.errors import ExpectedVersionMismatchError
from headwater.catalog.model import Commit, TableKey
from headwater.kernel.clock import ManualClock
from headwater.kernel.errors import UnavailableError
from headwater.publish.errors import PublishOutcomeUnknownError
from headwater.publish.model import Wish
from tests.unit.server_world import PATIENCE_SECONDS, ServedLake, served_lake
from tests.unit.test_server_iceberg_protocol import NS, SCHEMA, TABLES, VIEWS, set_properties, version
from tests.unit.test_server_limits import speaking

pytestmark = pytest.mark.proves("server/once")

KEY = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
NAMED = {"source": {"namespace": ["default"], "name": "t"}, "destination": {"namespace": ["default"], "name": "u"}}
CHANGE = {"updates": [set_properties(a="b")]}
VIEW = {"name": "x", "schema": SCHEMA, "view-version": version("SELECT * FROM t")}
Publish = Callable[[Wish], Commit]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedLake]:
    with served_lake(tmp_path / "lake", ManualClock()) as world:
        yield world


def ask(served: ServedLake, method: str, path: str, body: Any = None, key: str | None = KEY) -> httpx.Response:
    return served.client.request(method, path, json=body, headers={"idempotency-key": key} if key else {})


def refused(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["type"]


def test_config_says_how_long_keys_are_good_for(served: ServedLake) -> None:
    assert served.client.get("/iceberg/v1/config").json()["idempotency-key-lifetime"] == "PT86400S"


def test_what_is_sent_again_is_carried_out_once_and_answered_alike(served: ServedLake) -> None:
    requests: list[tuple[str, str, Any]] = [
        ("POST", NS, {"namespace": ["n"], "properties": {"a": "b"}}),
        ("POST", f"{NS}/n/properties", {"removals": ["a", "no"], "updates": {"c": "d"}}),
        ("POST", f"{NS}/n/properties", {"removals": ["no"], "updates": {"c": "d"}}),
        ("POST", f"{NS}/n/tables", {"name": "t", "schema": SCHEMA}),
        ("POST", f"{TABLES}/t", CHANGE),
        ("POST", "/iceberg/v1/main/tables/rename", NAMED),
        ("DELETE", f"{TABLES}/u", None),
        ("POST", VIEWS, VIEW),
        ("DELETE", f"{VIEWS}/x", None),
        ("DELETE", f"{NS}/n%1Fno", None),
    ]
    for number, (method, path, body) in enumerate(requests):
        key, before = f"key-{number}", len(served.actors())
        first = ask(served, method, path, body, key)
        commits = len(served.actors())
        second = ask(served, method, path, body, key)
        assert (first.status_code, first.content) == (second.status_code, second.content), path
        assert len(served.actors()) == commits, path
        if "no" not in path and number != 2:
            assert (first.status_code < 300, commits) == (True, before + 1), first.text
    assert ask(served, "POST", f"{NS}/n/properties", requests[1][2], "key-1").json() == {
        "updated": ["c"],
        "removed": ["a"],
        "missing": ["no"],
    }


def test_a_key_is_of_one_request(served: ServedLake) -> None:
    assert ask(served, "POST", f"{TABLES}/t", CHANGE).status_code == 200
    other = ask(served, "POST", f"{TABLES}/t", {"updates": [set_properties(a="c")]})
    assert refused(other) == (422, "UnprocessableEntityException")
    assert refused(ask(served, "POST", NS, {"namespace": ["n"]})) == (422, "UnprocessableEntityException")
    assert refused(ask(served, "POST", NS, {"namespace": ["n"]}, "a b")) == (400, "BadRequestException")


def test_p5_what_may_be_under_way_is_not_said_to_have_lost(served: ServedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that hears 409 deletes its files; the one who has the key may still commit them."""
    claim = served.serving.requests.claim

    def claimed(wanted: KeyedRequest) -> KeyedRequest | None:
        claim(wanted)
        return claim(wanted)  # as a second one finds it, while the first still works

    monkeypatch.setattr(served.serving.requests, "claim", claimed)
    head = served.lake.resolve()
    assert refused(ask(served, "POST", f"{TABLES}/t", CHANGE)) == (500, "CommitStateUnknownException")
    assert served.lake.resolve() == head
    # Once its lease is over, and the log knows nothing of it, it is carried out.
    clock = served.app.clock
    assert isinstance(clock, ManualClock)
    clock.advance(timedelta(days=1))
    monkeypatch.undo()
    assert ask(served, "POST", f"{TABLES}/t", CHANGE).status_code == 200


def publishing(served: ServedLake, monkeypatch: pytest.MonkeyPatch, instead: Callable[[Publish, Wish], Commit]) -> None:
    """The next publish is done by `instead`; those after it as ever."""
    publish = served.lake.writing.publisher.publish

    def once(wish: Wish) -> Commit:
        monkeypatch.undo()
        return instead(publish, wish)

    monkeypatch.setattr(served.lake.writing.publisher, "publish", once)


def test_p5_an_answer_that_was_lost_is_found(served: ServedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(publish: Publish, wish: Wish) -> Commit:
        publish(wish)
        raise PublishOutcomeUnknownError(wish.operation, "lost")

    publishing(served, monkeypatch, lost)
    before = len(served.actors())
    assert refused(ask(served, "POST", f"{TABLES}/t", CHANGE)) == (500, "CommitStateUnknownException")
    answer = ask(served, "POST", f"{TABLES}/t", CHANGE)
    assert answer.json()["metadata"]["properties"]["a"] == "b"
    assert len(served.actors()) == before + 1


def test_who_is_overtaken_keeps_its_key(served: ServedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    operations = list[str]()

    def overtaken(publish: Publish, wish: Wish) -> Commit:
        operations.append(wish.operation)
        raise ExpectedVersionMismatchError(TableKey.parse("t"), None, None)

    publishing(served, monkeypatch, overtaken)
    before = len(served.actors())
    first = ask(served, "POST", f"{TABLES}/t", CHANGE)
    assert (first.status_code, len(served.actors())) == (200, before + 1)
    assert first.json()["metadata"]["properties"]["headwater.operation"] not in operations
    assert ask(served, "POST", f"{TABLES}/t", CHANGE).content == first.content
    assert len(served.actors()) == before + 1


def test_what_was_refused_may_be_sent_again(served: ServedLake) -> None:
    body = {"name": "u", "schema": SCHEMA}
    path = f"{NS}/n/tables"
    assert refused(ask(served, "POST", path, body)) == (404, "NoSuchNamespaceException")
    ask(served, "POST", NS, {"namespace": ["n"]}, None)
    assert ask(served, "POST", path, body).status_code == 200
    assert ask(served, "POST", path, body).status_code == 200
    assert refused(ask(served, "POST", path, body, None)) == (409, "AlreadyExistsException")


def test_p5_who_finds_no_room_has_done_nothing(served: ServedLake) -> None:
    head, limit = served.lake.resolve(), served.serving.settings.writes_in_flight
    inside = [served.serving.writes.enter() for _ in range(limit)]
    for each in inside:
        each.__enter__()
    answer = ask(served, "POST", f"{TABLES}/t", CHANGE)
    assert refused(answer) == (429, "TooManyRequestsException")
    assert int(answer.headers["retry-after"]) > 0
    for each in inside:
        each.__exit__(None, None, None)
    assert served.lake.resolve() == head
    assert ask(served, "POST", f"{TABLES}/t", CHANGE).status_code == 200


def test_a_key_is_of_its_token(served: ServedLake) -> None:
    one, other = served.token(Role.WRITER, "one"), served.token(Role.WRITER, "other")
    body = {"namespace": ["n"]}
    statuses = [
        served.client.post(NS, json=body, headers={**token, "idempotency-key": KEY}).status_code
        for token in (one, one, other)
    ]
    assert statuses == [200, 200, 409]


def test_p5_a_client_that_goes_away_stops_nothing_half_way(served: ServedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, gone = threading.Event(), threading.Event()

    def waits(publish: Publish, wish: Wish) -> Commit:
        inside.set()
        assert gone.wait(PATIENCE_SECONDS)
        return publish(wish)

    publishing(served, monkeypatch, waits)
    before = len(served.actors())
    body = json.dumps(CHANGE, separators=(",", ":")).encode()  # as httpx writes it: the same request
    head = f"POST {TABLES}/t HTTP/1.1\r\nHost: 127.0.0.1\r\nIdempotency-Key: {KEY}\r\nContent-Length: {len(body)}"
    with speaking(served, head.encode() + b"\r\n\r\n" + body):
        assert inside.wait(PATIENCE_SECONDS)
    # Who asks again while it is under way hears that nothing is known.
    assert refused(ask(served, "POST", f"{TABLES}/t", CHANGE)) == (500, "CommitStateUnknownException")
    gone.set()
    assert served.serving.flights.wait_until_landed(PATIENCE_SECONDS)
    assert ask(served, "POST", f"{TABLES}/t", CHANGE).status_code == 200
    assert len(served.actors()) == before + 1


def test_what_is_too_long_is_refused_in_the_same_shape(tmp_path: Path) -> None:
    with served_lake(tmp_path / "lake", ManualClock(), request_bytes=1024) as served:
        head = served.lake.resolve()
        answer = ask(served, "POST", NS, {"namespace": ["n"], "properties": {"a": "b" * 2000}})
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, 413)
        assert served.lake.resolve() == head


def test_names_with_slashes_are_told_apart(served: ServedLake) -> None:
    """Two tables whose addresses are the same once they are decoded: one key must not answer for both."""
    inner, outer = "n%2Ftables%2Fa", "n"
    for namespace in ("n/tables/a", "n"):
        assert ask(served, "POST", NS, {"namespace": [namespace]}, None).status_code == 200
    for namespace, name in ((inner, "b"), (outer, "a/tables/b")):
        made = ask(served, "POST", f"{NS}/{namespace}/tables", {"name": name, "schema": SCHEMA}, None)
        assert made.status_code == 200
    assert ask(served, "DELETE", f"{NS}/{inner}/tables/b").status_code == 204
    other = f"{NS}/{outer}/tables/a%2Ftables%2Fb"
    assert refused(ask(served, "DELETE", other)) == (422, "UnprocessableEntityException")
    assert ask(served, "HEAD", other, key=None).status_code == 204


def test_a_database_that_is_away_refuses_no_token(served: ServedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who hears that its secret is wrong throws it away."""

    def away(_text: str) -> None:
        raise UnavailableError("the database is away")

    monkeypatch.setattr(served.serving.tokens, "caller", away)
    answer = served.client.post(
        "/iceberg/v1/oauth/tokens", data={"grant_type": "client_credentials", "client_secret": "hw_x"}
    )
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
