"""`headwater serve` as a process: it ends in good order, and what dies with it is recovered."""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fastapi import FastAPI

from headwater.app import STATE_FILE, App
from headwater.kernel.clock import ManualClock, SystemClock
from headwater.kernel.errors import UnavailableError, UsageError
from headwater.kernel.failpoints import Action, Failpoint, arm
from headwater.kernel.settings import ServerSettings, load
from headwater.publish.errors import PublishOutcomeUnknownError
from headwater.publish.sidecars import FOLDER
from headwater.server.main import listen, listener, open_to_serve, served
from headwater.server.sweeping import SWEEPS
from tests.unit.server_world import ServedLake, listening, served_lake

SQL = {"sql": "insert into t values (1, 'a')"}
KEY = {"idempotency-key": "k-1"}
PATIENCE_SECONDS = 60.0
# Short leases, so that what died is over soon.
SHORT = {
    "HEADWATER_SERVER_WRITE_SECONDS": "2",
    "HEADWATER_PUBLISH_LEASE_SECONDS": "1",
    "HEADWATER_SEQUENCE_CLOCK_SKEW_SECONDS": "0.2",
}

pytestmark = pytest.mark.proves("server/once")


class Server:
    """A process that serves."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process = process
        self.address = address

    def mutate(self) -> httpx.Response:
        return httpx.post(f"{self.address}/v1/main/mutate", json=SQL, headers=KEY, timeout=PATIENCE_SECONDS)


@contextmanager
def serving(lake: Path | str, *options: str, **variables: str) -> Iterator[Server]:
    """A server in a process of its own."""
    with telling(None, lake, *options, **variables) as server:
        yield server


@contextmanager
def telling(log: IO[str] | None, lake: Path | str, *options: str, **variables: str) -> Iterator[Server]:
    """The same, whose log goes to a file."""
    command = [sys.executable, "-m", "headwater", "serve", str(lake), "--port", "0", "--json", *options]
    environ = {**os.environ, **variables}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environ)
    try:
        assert process.stdout is not None
        said = ""
        while not said.endswith("}\n"):
            line = process.stdout.readline()
            assert line, "the server ended before it was ready"
            said += line
        yield Server(process, json.loads(said)["address"])
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def lake(tmp_path: Path) -> ServedLake:
    world = ServedLake(tmp_path / "lake")
    world.database.close()
    return world


def wait_for_sidecar(lake: ServedLake) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + PATIENCE_SECONDS
    while not list((lake.folder / FOLDER).glob("*.json")):
        assert clock.monotonic() < deadline
        clock.sleep(0.01)


@pytest.mark.parametrize(("drain_seconds", "delay", "is_answered"), [("30", 1000, True), ("1", 2500, False)])
def test_told_to_stop_in_the_midst_of_a_write(
    lake: ServedLake, drain_seconds: str, delay: int, is_answered: bool
) -> None:
    """A write is finished in any case; its client is answered if there is time."""
    variables = {
        "HEADWATER_FAILPOINTS": f"publish.after-sidecar=delay:{delay}",
        "HEADWATER_SERVER_DRAIN_SECONDS": drain_seconds,
    }
    with serving(lake.folder, **variables) as server, ThreadPoolExecutor(1) as pool:
        write = pool.submit(server.mutate)
        wait_for_sidecar(lake)
        server.process.send_signal(signal.SIGTERM)
        answer = write.result()
        if is_answered:
            assert answer.status_code == 200
        else:
            assert (answer.status_code, answer.json()["code"]) == (500, "outcome_unknown")
        assert server.process.wait(PATIENCE_SECONDS) == 0
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{server.address}/healthz")
    assert lake.rows() == [{"id": 1, "v": "a"}]
    assert not list((lake.folder / FOLDER).glob("*.json"))
    operation = answer.json()["operation"]
    assert lake.lake.catalog.commit_at(lake.lake.resolve()).operation == operation
    # Finished to its very end: what it came to is kept for whoever asks again.
    with closing(sqlite3.connect(lake.folder / STATE_FILE)) as database:
        [(kept,)] = database.execute("select answer from access_requests").fetchall()
    assert json.loads(kept)["operation"] == operation


def test_told_to_stop_in_the_midst_of_a_query(lake: ServedLake) -> None:
    """It is waited for as long as answers may still take, and then ended: not for as long as it would run."""
    clock, sql = SystemClock(), {"sql": "select count(*) as n from range(1000000000000)"}
    with serving(lake.folder, HEADWATER_SERVER_DRAIN_SECONDS="1") as server, ThreadPoolExecutor(1) as pool:
        url = f"{server.address}/v1/main/query"
        query = pool.submit(lambda: httpx.post(url, json=sql, timeout=PATIENCE_SECONDS))
        while 'in_flight{kind="queries"} 1.0' not in httpx.get(f"{server.address}/metrics").text:
            clock.sleep(0.02)
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGTERM)  # who is told twice ends as well as who is told once
        answer = query.result()
        assert (answer.status_code, answer.json()["code"]) == (500, "stopping")
        assert server.process.wait(PATIENCE_SECONDS) == 0


def test_an_address_that_cannot_be_had_is_named(lake: ServedLake) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = ServerSettings(port=taken.getsockname()[1])
        with pytest.raises(UnavailableError, match=r"cannot listen on 127\.0\.0\.1:.*in use"):
            listen(FastAPI(), settings, ready=lambda _: None)


@contextmanager
def again(lake: Path | str, **variables: str) -> Iterator[httpx.Client]:
    """Another server of the same lake, in this process."""
    app = App(load(environ={**SHORT, **variables}))
    with app.open_database(str(lake)) as database:
        serving = served(app, open_to_serve(app, str(lake)), database, app.settings.server)
        with listening(serving) as address, httpx.Client(base_url=address, timeout=PATIENCE_SECONDS) as client:
            yield client


def test_tls_and_told_to_stop_by_a_person(lake: ServedLake, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    with serving(lake.folder, *options) as server:
        assert server.address.startswith("https://")
        context = ssl.create_default_context(cafile=str(certificate))
        assert httpx.get(f"{server.address}/healthz", verify=context).status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(server.address.replace("https", "http") + "/healthz")
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE_SECONDS) == 0


def test_what_is_no_certificate_and_its_key_is_named(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    other, locked = tmp_path / "other.pem", tmp_path / "locked.pem"
    made = ec.generate_private_key(ec.SECP256R1())
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    other.write_bytes(made.private_bytes(*form, serialization.NoEncryption()))
    locked.write_bytes(made.private_bytes(*form, serialization.BestAvailableEncryption(b"secret")))
    for first, second, said in (
        (certificate, other, "not a certificate and its key"),
        (key, key, "not a certificate and its key"),
        (certificate, locked, "protected by a password"),
        (certificate, tmp_path / "none.pem", "none.pem cannot be read"),
    ):
        settings = ServerSettings(tls_certificate=str(first), tls_key=str(second), port=0)
        with pytest.raises(UsageError, match=said):
            listener(FastAPI(), settings, ready=lambda _: None)


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "headwater test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "certificate.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "certificate.pem", folder / "key.pem"


@pytest.mark.hazard("P1")
def test_p1_a_server_sweeps_on_a_timer(tmp_path: Path) -> None:
    """Somebody else's writer dies while the server runs: its table is held until the server has swept."""
    clock = ManualClock()
    with served_lake(tmp_path / "lake", clock) as world:
        world.lake.apply("create table u (id bigint)", actor="setup")
        other = world.app.open_lake(str(world.folder))
        with (  # noqa: PT012
            arm(Failpoint.PUBLISH_AFTER_HEAD, Action.ERROR, only_hit=1),
            pytest.raises(PublishOutcomeUnknownError),
            other.transaction(actor="dies") as transaction,
        ):
            transaction.sql("insert into t values (7, 'x')")
            transaction.sql("insert into u values (7)")
        assert len(world.client.get("/v1/sidecars").json()["sidecars"]) == 1
        clock.advance(timedelta(minutes=3))
        held = world.client.post("/v1/main/mutate", json=SQL)
        assert (held.status_code, held.json()["code"]) == (503, "recovery_pending"), held.text
        assert "POST /v1/recover" in held.json()["hint"]
        assert int(held.headers["retry-after"]) > 0
        patient = SystemClock()
        deadline = patient.monotonic() + PATIENCE_SECONDS
        with listening(replace(world.serving, sweep_every=timedelta(seconds=0.05))):
            while world.client.get("/v1/sidecars").json()["sidecars"]:
                assert patient.monotonic() < deadline
                patient.sleep(0.02)
        assert world.app.metrics.value(SWEEPS, outcome="done") >= 1
        assert len(world.client.get("/v1/recoveries").json()["recoveries"]) == 1
        assert world.client.post("/v1/main/mutate", json=SQL).status_code == 200
