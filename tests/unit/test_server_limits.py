"""Limits: bodies, writes and queries at a time, and what stands still."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from headwater.catalog.model import Commit
from headwater.kernel.errors import UnavailableError
from headwater.kernel.metrics import Metrics
from headwater.publish.model import Wish
from headwater.server.answers import ARROW
from headwater.server.errors import TooManyError
from headwater.server.limits import IN_FLIGHT, Flights, Gate
from tests.unit.server_world import ServedLake, served_lake

SQL = "insert into t values (1, 'a')"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedLake]:
    with served_lake(
        tmp_path / "lake",
        writes_in_flight=2,
        queries_in_flight=1,
        request_bytes=2000,
        load_bytes=5000,
        body_seconds=0.5,
    ) as world:
        yield world


def test_a_gate_lets_so_many_in() -> None:
    metrics = Metrics()
    gate = Gate("writes", 2, metrics)
    with gate.enter(), gate.enter():
        assert metrics.value(IN_FLIGHT, kind="writes") == 2
        with pytest.raises(TooManyError), gate.enter():
            pytest.fail("unreachable")
        assert not gate.wait_until_empty(0)
    assert gate.wait_until_empty(0)
    with gate.enter():
        pass


def test_flights_are_running_then_ended(served: ServedLake) -> None:
    flights, operation = Flights(), served.serving.new_operation()
    assert not flights.is_running(operation)
    with flights.flying(operation):
        assert flights.is_running(operation)
        assert not flights.has_ended(operation)
    assert flights.has_ended(operation)


def test_too_many_writes_are_429(served: ServedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = served.lake.writing.publisher.publish
    inside, go_on = threading.Semaphore(0), threading.Event()

    def slow(wish: Wish) -> Commit:
        inside.release()
        assert go_on.wait(30)
        return publish(wish)

    monkeypatch.setattr(served.lake.writing.publisher, "publish", slow)
    with ThreadPoolExecutor(2) as pool:
        writes = [pool.submit(served.mutate, f"insert into t values ({number}, 'a')") for number in range(2)]
        for _ in writes:
            assert inside.acquire(timeout=30)
        answer = served.mutate(SQL)
        assert (answer.status_code, answer.json()["code"]) == (429, "too_many")
        assert int(answer.headers["retry-after"]) >= 1
        load = served.client.post(
            "/v1/main/load?table=t", content=b"{}", headers={"content-type": "application/x-ndjson"}
        )
        assert load.status_code == 429
        assert served.query("select 1 as x").status_code == 200  # who reads is not held up
        go_on.set()
        assert {each.result().status_code for each in writes} <= {200, 409}
    monkeypatch.undo()
    assert served.mutate("insert into t values (9, 'a')").status_code == 200


def test_bodies_that_are_too_long_are_413(served: ServedLake) -> None:
    for body in ({"sql": "select '" + "x" * 3000 + "'"},):
        answer = served.client.post("/v1/main/query", json=body)
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")

    def chunks() -> Iterator[bytes]:
        yield from [b"x" * 1000] * 6

    for content in (b"x" * 6000, chunks()):
        answer = served.client.post(
            "/v1/main/load?table=t", content=content, headers={"content-type": "application/x-ndjson"}
        )
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert served.mutate(SQL).status_code == 200


def test_a_body_that_stands_still_is_408(served: ServedLake) -> None:
    where = urlsplit(str(served.client.base_url))
    assert where.hostname
    assert where.port
    with socket.create_connection((where.hostname, where.port), timeout=30) as connection:
        connection.sendall(
            b"POST /v1/main/mutate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b'Content-Length: 100\r\n\r\n{"sql": '
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")
    assert served.serving.writes.wait_until_empty(5)


def test_a_query_ends_when_its_client_goes(served: ServedLake) -> None:
    sql = "select a.range as n from range(100000000) a"
    with served.client.stream("POST", "/v1/main/query", json={"sql": sql}) as answer:
        next(answer.iter_bytes())
        busy = served.query("select 1 as x")
        assert (busy.status_code, busy.json()["code"]) == (429, "too_many")
    assert served.serving.queries.wait_until_empty(20)
    assert served.query("select 1 as x").status_code == 200


def test_an_answer_that_breaks_off_is_seen_to(served: ServedLake) -> None:
    """An error behind the first batch cannot change the status: the connection breaks off instead."""
    sql = "select case when range > 900000 then error('late') else range end as n from range(1000000)"
    with (  # noqa: PT012
        pytest.raises(httpx.RemoteProtocolError),
        served.client.stream("POST", "/v1/main/query", json={"sql": sql}, headers={"accept": ARROW}) as answer,
    ):
        assert answer.status_code == 200
        answer.read()
    assert served.query("select 1 as x").status_code == 200


def test_a_lake_that_cannot_be_reached_is_not_ready(served: ServedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: str) -> None:
        raise UnavailableError("the store is away")

    monkeypatch.setattr(served.lake.catalog, "ref", gone)
    assert served.client.get("/readyz").status_code == 503
    assert served.client.get("/healthz").status_code == 200
