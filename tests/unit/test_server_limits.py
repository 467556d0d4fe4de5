"""Limits: bodies, writes and queries at a time, and what stands still."""

from __future__ import annotations

import io
import json
import socket
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import pyarrow as pa
import pytest

from headwater.catalog.model import Commit
from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import UnavailableError
from headwater.kernel.metrics import Metrics
from headwater.publish.model import Wish
from headwater.server import unfolding
from headwater.server.answers import ARROW, JSON
from headwater.server.errors import TooManyError
from headwater.server.limits import IN_FLIGHT, Flights, Gate
from headwater.server.uploads import PREFIX, Uploads
from headwater.server.watching import REQUESTS
from headwater.tables.claims import claimed
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
        query_seconds=10,
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


@contextmanager
def speaking(served: ServedLake, data: bytes) -> Iterator[socket.socket]:
    """A connection that has sent this."""
    where = urlsplit(str(served.client.base_url))
    assert where.hostname
    assert where.port
    with socket.create_connection((where.hostname, where.port), timeout=10) as connection:
        connection.sendall(data)
        yield connection


def test_a_query_without_rows_yet_ends_when_its_client_goes(served: ServedLake) -> None:
    sql = "select sum(a.range ^ b.range) as n from range(1000000000) a, range(1000000000) b"  # no machine ends it
    body = json.dumps({"sql": sql}).encode()
    head = f"POST /v1/main/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {JSON}\r\nContent-Length: {len(body)}"
    with speaking(served, head.encode() + b"\r\n\r\n" + body):
        while served.app.metrics.value(IN_FLIGHT, kind="queries") < 1:
            pass
        assert not served.serving.queries.wait_until_empty(0.2)
    assert served.serving.queries.wait_until_empty(4)
    assert served.query("select 1 as x").status_code == 200


def test_a_head_that_does_not_come_is_not_waited_for(served: ServedLake) -> None:
    """Neither on a new connection, silent or slow, nor between two requests."""
    whole = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    for data in (b"", whole[:20]):
        with speaking(served, data) as connection:
            assert connection.recv(65536) == b""
    with speaking(served, whole) as connection:
        said = b""
        while not said.endswith(b'{"status":"ok"}'):
            said += connection.recv(65536)
        connection.sendall(whole[:20])
        assert connection.recv(65536) == b""


def test_a_load_that_breaks_off_leaves_nothing(served: ServedLake) -> None:
    head = b"POST /v1/main/load?table=t HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-ndjson\r\n"
    patient = SystemClock()
    with speaking(served, head + b'Content-Length: 1000\r\n\r\n{"id": 1, "v": "x"}\n'):
        while not uploads():
            patient.sleep(0.01)
    deadline = patient.monotonic() + 20
    while uploads():
        assert patient.monotonic() < deadline
        patient.sleep(0.01)
    assert served.rows() == []


@pytest.mark.parametrize("is_file", [True, False])
def test_a_batch_that_would_unfold_to_too_much_is_413(
    served: ServedLake, monkeypatch: pytest.MonkeyPatch, is_file: bool
) -> None:
    """A few hundred bytes, of which each says that it is a great many."""
    monkeypatch.setattr(unfolding, "MOST_ROWS", 2**17)
    monkeypatch.setattr(unfolding, "MOST_BYTES", 700_000)
    made, kind = (pa.ipc.new_file, "file") if is_file else (pa.ipc.new_stream, "stream")
    zeros = pa.record_batch({"id": pa.array(np.zeros(100_000, np.int64))})
    words = pa.record_batch({"v": pa.DictionaryArray.from_arrays(pa.array([0, 0]), ["x" * 3000, "y"])})
    squeezed = pa.ipc.IpcWriteOptions(compression="zstd")
    for batch, claims, is_refused in (
        (zeros, (100_000, 800_000), True),
        (pa.record_batch({"id": pa.nulls(2**18)}), (2**18, 0), True),
        (words, (2, 3001), False),
    ):
        body = io.BytesIO()
        with made(body, batch.schema, options=squeezed) as writer:
            writer.write_batch(batch)
        messages = body.getvalue()[8:] if is_file else body.getvalue()
        found = [claimed(each.metadata.to_pybytes(), each.body) for each in pa.ipc.MessageReader.open_stream(messages)]
        rows, size = max(each[0] for each in found), max(each[1] for each in found)
        assert rows == claims[0]
        assert claims[1] <= size <= claims[1] + 1000
        headers = {"content-type": f"application/vnd.apache.arrow.{kind}"}
        answer = served.client.post("/v1/main/load?table=t", content=body.getvalue(), headers=headers)
        assert (answer.status_code, answer.json()["code"]) == ((413, "too_large") if is_refused else (400, "usage"))
    assert served.rows() == []


def uploads() -> list[Path]:
    return [each for each in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/*") if each.is_dir()]


def test_the_folder_of_a_server_that_lives_is_kept(tmp_path: Path) -> None:
    with closing(Uploads(tmp_path)) as first:
        assert list(tmp_path.iterdir()) == []  # made by who needs it
        dead, strange, mine = tmp_path / f"{PREFIX}dead", tmp_path / f"{PREFIX}strange", first.folder
        dead.mkdir()
        (dead / "lock").touch()
        strange.mkdir()
        with closing(Uploads(tmp_path)) as second:
            assert mine.exists()
            assert mine != second.folder
        assert set(tmp_path.iterdir()) == {mine, strange}  # whose the strange one is, nobody knows
    assert set(tmp_path.iterdir()) == {strange}


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

    with monkeypatch.context() as away:
        away.setattr(served.lake.catalog, "ref", gone)
        assert served.client.get("/readyz").status_code == 503
        assert served.client.get("/healthz").status_code == 200
    assert served.client.get("/readyz").status_code == 200
    moved = served.folder.rename(served.folder.with_name("moved"))
    told = served.client.get("/readyz")
    assert (told.status_code, told.json()["code"]) == (503, "unavailable")
    moved.rename(served.folder)
    assert served.client.get("/readyz").status_code == 200


def test_whatever_clients_make_up_the_metrics_stay_few(served: ServedLake) -> None:
    for number in range(5):
        assert served.client.request(f"MADE{number}", "/v1/refs").status_code == 405
        assert served.client.get(f"/none/{number}").status_code == 404
    lines = [line for line in served.client.get("/metrics").text.splitlines() if "requests_total{" in line]
    assert len(lines) == 2


def answered(served: ServedLake) -> int:
    """How many requests have come to their end, whatever it was."""
    lines = served.serving.metrics.exposition().decode().splitlines()
    return sum(int(float(each.split()[-1])) for each in lines if each.startswith(f"{REQUESTS.name}{{"))


def asking(sql: str) -> bytes:
    """A query as it goes over the wire."""
    body = json.dumps({"sql": sql}).encode()
    head = f"POST /v1/main/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {JSON}\r\nContent-Length: {len(body)}"
    return head.encode() + f"\r\nAccept: {ARROW}\r\n\r\n".encode() + body


def test_a_reader_that_stands_still_keeps_no_place(served: ServedLake) -> None:
    """Its connection stays open, and nothing is ever read from it."""
    with speaking(served, asking("select a.range as n from range(100000000) a")) as connection:
        while served.app.metrics.value(IN_FLIGHT, kind="queries") < 1:
            pass
        assert served.serving.queries.wait_until_empty(20)
        last = b"x"
        while piece := connection.recv(1 << 20):
            last = piece
        assert not last.endswith(b"0\r\n\r\n")  # what is read later has no end
    assert served.query("select 1 as x").status_code == 200


def test_whoever_goes_away_takes_nothing_along(tmp_path: Path) -> None:
    """Clients that go at any moment of any kind of request: no place, no file and no query is left behind."""
    with served_lake(tmp_path / "lake", writes_in_flight=40, queries_in_flight=40) as served:
        sql, update = json.dumps({"sql": SQL}), json.dumps({"updates": [{"action": "set-properties", "updates": {}}]})
        kinds = [
            ("/v1/main/mutate", JSON, sql.encode(), 0),
            ("/v1/main/mutate", JSON, sql.encode(), 5),
            ("/v1/main/load?table=t", "application/x-ndjson", b'{"id": 1, "v": "a"}', 0),
            ("/v1/main/load?table=t", "application/x-ndjson", b'{"id": 1, "v": "a"}', 5),
            ("/v1/main/query", JSON, b'{"sql": "select a.range as n from range(100000000) a"}', 0),
            ("/v1/main/query", JSON, b'{"sql": "select count(*) as n from range(12000000000)"}', 0),
            ("/iceberg/v1/main/namespaces/default/tables/t", JSON, update.encode(), 0),
            ("/iceberg/v1/main/namespaces/default/tables/t", JSON, update.encode(), 5),
        ]
        for turn in range(2):
            for path, kind, body, missing in kinds:
                head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
                length = f"Content-Length: {len(body) + missing}\r\n\r\n"
                with speaking(served, head.encode() + length.encode() + body) as connection:
                    if turn and not missing and "count" not in body.decode():
                        connection.recv(turn)  # some of them hear the beginning
        while answered(served) < 2 * len(kinds):
            pass
        for kind in ("writes", "queries"):
            assert served.app.metrics.value(IN_FLIGHT, kind=kind) == 0
        assert served.serving.stops.count == 0
        assert served.query("select count(*) as n from t").json()["rows"][0]["n"] <= 1
