"""`headwater serve` as a process: it ends in good order, and what dies with it is recovered."""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headwater.app import App
from headwater.kernel.clock import ManualClock, SystemClock
from headwater.kernel.failpoints import Action, Failpoint, arm
from headwater.kernel.settings import load
from headwater.publish.errors import PublishOutcomeUnknownError
from headwater.publish.sidecars import FOLDER
from headwater.server.main import open_to_serve, served
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

    def mutate(self, **headers: str) -> httpx.Response:
        return httpx.post(f"{self.address}/v1/main/mutate", json=SQL, headers=headers, timeout=PATIENCE_SECONDS)


@contextmanager
def serving(lake: Path, *options: str, **variables: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "headwater", "serve", str(lake), "--port", "0", "--json", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables})
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


@pytest.mark.parametrize(("drain_seconds", "is_answered"), [("30", True), ("1", False)])
def test_told_to_stop_in_the_midst_of_a_write(lake: ServedLake, drain_seconds: str, is_answered: bool) -> None:
    """A write is finished in any case; its client is answered if there is time."""
    variables = {
        "HEADWATER_FAILPOINTS": "publish.after-sidecar=delay:2500",
        "HEADWATER_SERVER_DRAIN_SECONDS": drain_seconds,
    }
    with serving(lake.folder, **variables) as server, ThreadPoolExecutor(1) as pool:
        write = pool.submit(server.mutate)
        wait_for_sidecar(lake)
        server.process.send_signal(signal.SIGTERM)
        if is_answered:
            assert write.result().status_code == 200
        else:
            write.exception()  # it may be answered, or hear nothing
        assert server.process.wait(PATIENCE_SECONDS) == 0
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{server.address}/healthz")
    assert lake.rows() == [{"id": 1, "v": "a"}]
    assert not list((lake.folder / FOLDER).glob("*.json"))


def test_told_to_stop_by_a_person_when_nothing_is_under_way(lake: ServedLake) -> None:
    with serving(lake.folder) as server:
        assert httpx.get(f"{server.address}/readyz").status_code == 200
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE_SECONDS) == 0


@pytest.mark.parametrize("point", ["publish.after-head", "publish.after-commit"])
def test_killed_in_the_midst_of_a_write_and_asked_again(lake: ServedLake, point: str) -> None:
    """With one key, the write lands once, wherever the server was killed."""
    with serving(lake.folder, **SHORT, HEADWATER_FAILPOINTS=f"{point}=kill") as server:
        with pytest.raises(httpx.TransportError):
            server.mutate(**KEY)
        assert server.process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
    clock = SystemClock()
    with again(lake.folder) as client:
        deadline = clock.monotonic() + PATIENCE_SECONDS
        while (answer := client.post("/v1/main/mutate", json=SQL, headers=KEY)).status_code in (409, 503):
            assert clock.monotonic() < deadline, answer.text
            assert int(answer.headers["retry-after"]) > 0
            clock.sleep(0.2)
        assert answer.status_code == 200, answer.text
        assert client.post("/v1/main/mutate", json=SQL, headers=KEY).json() == answer.json()
    assert lake.rows() == [{"id": 1, "v": "a"}]


@contextmanager
def again(folder: Path) -> Iterator[httpx.Client]:
    """Another server of the same lake, in this process."""
    app = App(load(environ=SHORT))
    with app.open_database(str(folder)) as database:
        serving = served(app, open_to_serve(app, str(folder)), database, app.settings.server)
        with listening(serving) as address, httpx.Client(base_url=address, timeout=PATIENCE_SECONDS) as client:
            yield client


def test_tls(lake: ServedLake, tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path)
    options = ("--tls-certificate", str(certificate), "--tls-key", str(key))
    with serving(lake.folder, *options) as server:
        assert server.address.startswith("https://")
        context = ssl.create_default_context(cafile=str(certificate))
        assert httpx.get(f"{server.address}/healthz", verify=context).status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(server.address.replace("https", "http") + "/healthz")


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
        patient = SystemClock()
        deadline = patient.monotonic() + PATIENCE_SECONDS
        with listening(replace(world.serving, sweep_every=timedelta(seconds=0.05))):
            while world.client.get("/v1/sidecars").json()["sidecars"]:
                assert patient.monotonic() < deadline
                patient.sleep(0.02)
        assert world.app.metrics.value(SWEEPS, outcome="done") >= 1
        assert len(world.client.get("/v1/recoveries").json()["recoveries"]) == 1
        assert world.client.post("/v1/main/mutate", json=SQL).status_code == 200
