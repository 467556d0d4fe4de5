"""The topology of regions with its real parts: a write plane, and read planes that follow it and cannot lead it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import RESTError
from sqlalchemy.engine import make_url

from headwater import devservices
from headwater.catalog.nessie.transport import NessieApi
from headwater.cli.devservices import devservices as command
from headwater.devservices import Endpoint, loopback, postgres, processes, replication, signing
from headwater.devservices.model import Identity, Place
from headwater.kernel.clock import ManualClock, SystemClock
from headwater.kernel.errors import RefusedError, UsageError
from headwater.kernel.randomness import system_randomness
from headwater.kernel.retry import Retry, RetryPolicy
from headwater.storage.cloud import open_s3
from headwater.storage.errors import PreconditionFailedError, TransientError
from headwater.storage.port import Create
from tests.fixtures.stores import s3_settings
from tests.services.test_devservices import folder, marked, until

__all__ = ["folder"]  # a fixture of its neighbour
pytestmark = [pytest.mark.services, pytest.mark.proves("regional catalogs")]
java = pytest.mark.java
REGIONS = ("us-east", "eu-central")
ROWS = pa.table({"id": pa.array(range(10), pa.int64())})


@dataclass
class Topology:
    """The running services by name, and what tests do with them."""

    start: Callable[[str], Endpoint]

    def api(self, service: str, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
        headers = {"Content-Type": "application/json", "Nessie-Client-Spec": "2"}
        sent = b"" if body is None else json.dumps(body).encode()
        answer = loopback.request(method, self.start(service).port, f"/api/v2{path}", headers, sent)
        return answer.status, json.loads(answer.body) if answer.body else {}

    def head(self, service: str, branch: str = "main") -> object:
        status, answer = self.api(service, "GET", f"/trees/{branch}")
        reference = answer.get("reference")
        return reference.get("hash") if status == 200 and isinstance(reference, dict) else None

    def commit(
        self, *names: str, branch: str = "main", location: str = "s3://nowhere/metadata.json", snapshot: int | None = 0
    ) -> object:
        """Put tables by the API, as sync does: Nessie does not look at their metadata then."""
        operations = [
            {
                "type": "PUT",
                "key": {"elements": name.split(".")},
                "content": {"type": "ICEBERG_TABLE", "metadataLocation": location, "snapshotId": snapshot}
                | dict.fromkeys(("schemaId", "specId", "sortOrderId"), 0),
            }
            for name in names
        ]
        body = {"commitMeta": {"message": "test"}, "operations": operations}
        path = f"/trees/{branch}@{self.head('nessie', branch)}/history/commit"
        status, answer = self.api("nessie", "POST", path, body)
        assert status == 200, answer
        return self.head("nessie", branch)

    def create_branch(self, name: str, service: str = "nessie") -> int:
        source = {"type": "BRANCH", "name": "main", "hash": self.head("nessie")}
        return self.api(service, "POST", f"/trees?name={name}&type=BRANCH", source)[0]

    def rest(self, service: str) -> RestCatalog:
        keys = self.start("s3")
        return RestCatalog(
            service,
            uri=f"{self.start(service).url}/iceberg/",
            **{
                "s3.endpoint": keys.url,
                "s3.access-key-id": str(keys.access_key_id),
                "s3.secret-access-key": str(keys.secret_access_key),
                "s3.region": "us-east-1",
            },
        )

    @contextmanager
    def database(self, service: str) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
        url = make_url(self.start(service).url).set(drivername="postgresql", database=replication.DATABASE)
        with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as connection:
            yield connection

    def objects(self, service: str) -> set[tuple[object, ...]]:
        with self.database(service) as connection:
            return set(connection.execute("SELECT obj_id, obj_type, obj_vers, obj_value FROM objs2").fetchall())

    def apply_errors(self, region: str) -> object:
        with self.database(f"postgres@{region}") as connection:
            row = connection.execute("SELECT apply_error_count FROM pg_stat_subscription_stats").fetchone()
            return row[0] if row else None

    def wait_for(self, region: str, head: object, branch: str = "main") -> None:
        """What a client does: a branch that is new may be unknown (404) or half there (500); it asks again."""
        until(lambda: self.head(f"nessie@{region}", branch) == head)


def password_of(superuser: str, role: str) -> str:
    identity = Identity("", superuser, "", "")
    return postgres.password_of(Place(Path(), Path(), {}, identity, ManualClock()), role)


def unique(kind: str) -> str:
    return f"{kind}-{uuid4().hex}"


@pytest.fixture(scope="session")
def topology(start_service: Callable[[str], Endpoint]) -> Topology:
    """The write plane and the read planes of two regions."""
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    known: dict[str, Endpoint] = {}
    names = ("postgres", "s3", "nessie", *devservices.regional_names(REGIONS))
    for name in names:
        known[name] = start_service(name)
    return Topology(lambda name: known.get(name) or start_service(name))


@java
def test_what_is_committed_appears_in_every_region(topology: Topology) -> None:
    table = unique("t")
    head = topology.commit(table)
    for region in REGIONS:
        topology.wait_for(region, head)
        status, answer = topology.api(f"nessie@{region}", "GET", f"/trees/main/contents/{table}")
        assert status == 200
        assert "s3://nowhere/metadata.json" in json.dumps(answer)


@java
@pytest.mark.hazard("R4")
def test_r4_a_branch_that_was_just_created_is_asked_for_again(topology: Topology) -> None:
    """It answers 404, then perhaps 500 while only half of it has arrived, then 200: never a wrong hash."""
    seen: set[tuple[int, object]] = set()
    for _ in range(8):
        branch = unique("branch")
        assert topology.create_branch(branch) == 200
        deadline = time.monotonic() + 20
        while True:
            status, answer = topology.api("nessie@us-east", "GET", f"/trees/{branch}")
            reference = answer.get("reference")
            seen.add((status, reference["hash"] if isinstance(reference, dict) else None))
            if status == 200:
                break
            assert time.monotonic() < deadline
        head = topology.commit(unique("t"), branch=branch)
        topology.wait_for("us-east", head, branch)
    assert {status for status, _ in seen} <= {200, 404, 500}
    assert {named for status, named in seen if status == 200} == {topology.head("nessie")}


@java
def test_a_region_cannot_move_a_ref(topology: Topology) -> None:
    branch = unique("branch")
    assert topology.create_branch(branch) == 200
    topology.wait_for("us-east", topology.head("nessie", branch), branch)
    head = topology.commit(unique("t"))
    topology.wait_for("us-east", head)
    region = "nessie@us-east"
    older = topology.head(region, branch)
    operation = {"type": "PUT", "key": {"elements": ["evil"]}, "content": {"type": "NAMESPACE", "elements": ["evil"]}}
    commit = {"commitMeta": {"message": "evil"}, "operations": [operation]}
    main = {"type": "BRANCH", "name": "main", "hash": head}
    tries = [
        topology.create_branch(unique("evil"), region),
        topology.api(region, "POST", f"/trees/main@{head}/history/commit", commit)[0],
        topology.api(region, "PUT", f"/trees/{branch}@{older}", main)[0],
        topology.api(region, "DELETE", f"/trees/{branch}@{older}")[0],
    ]
    assert tries == [500] * 4
    # To our own writers these words are a refusal, told at once, and not an answer that was lost.
    catalog = NessieApi(
        f"{topology.start(region).url}/api/v2", retry=Retry(RetryPolicy(), SystemClock(), system_randomness())
    )
    for method, path, body in (
        ("POST", f"trees/main@{head}/history/commit", commit),
        ("PUT", f"trees/{branch}@{older}", main),
        ("DELETE", f"trees/{branch}@{older}", None),
    ):
        with pytest.raises(RefusedError, match="can only be read"):
            catalog.change(method, path, body=body)
    with pytest.raises(RESTError):
        topology.rest(region).create_namespace("evil")
    for service in (region, "nessie"):
        assert topology.head(service) == head
        assert topology.head(service, branch) == older
    # What it wrote for them stays among its own objects, and does not stop what comes from the primary.
    topology.wait_for("us-east", topology.commit(unique("t")))


@java
@pytest.mark.hazard("R3")
def test_r3_iceberg_rest_clients_of_a_region_do_not_stop_replication(topology: Topology) -> None:
    """The region serves a table first, and stores what it made of it; then the write plane makes the same."""
    writer = topology.rest("nessie")
    namespace = unique("n")
    writer.create_namespace(namespace)
    writer.create_table(f"{namespace}.written", ROWS.schema).append(ROWS)
    table = writer.load_table(f"{namespace}.written")
    # A table that comes by the API, so that the write plane has never looked at it: this is how sync promotes.
    location = f"{table.location()}/metadata/{unique('copy')}.metadata.json"
    with table.io.new_input(table.metadata_location).open() as read, table.io.new_output(location).create() as copy:
        copy.write(read.read())
    snapshot = table.metadata.current_snapshot_id
    topology.wait_for("us-east", topology.commit(f"{namespace}.promoted", location=location, snapshot=snapshot))
    errors = topology.apply_errors("us-east")

    def load(service: str) -> set[tuple[object, ...]]:
        """Load and read it, and return the objects that this has made."""
        database = service.replace("nessie", "postgres")
        before = topology.objects(database)
        assert len(topology.rest(service).load_table(f"{namespace}.promoted").scan().to_arrow()) == 10
        return {row[:2] for row in topology.objects(database) - before}

    ours = load("nessie@us-east")
    assert ours
    assert load("nessie") & ours, "the write plane made none of the objects that the region had made"
    last = topology.commit(unique("t"))
    for region in REGIONS:
        topology.wait_for(region, last)
        load(f"nessie@{region}")
    assert topology.apply_errors("us-east") == errors


@java
def test_a_region_that_was_killed_catches_up(topology: Topology) -> None:
    database, reader = topology.start("postgres@doomed"), topology.start("nessie@doomed")
    topology.wait_for("doomed", topology.commit(unique("t")))
    assert database.pid is not None
    os.kill(database.pid, signal.SIGKILL)
    for _ in range(3):
        head = topology.commit(unique("t"))
    assert topology.start("postgres@doomed").url == database.url
    assert topology.start("nessie@doomed").url == reader.url
    topology.wait_for("doomed", head)
    # The subscription alone, from the primary's side.
    with topology.database("postgres") as connection:
        slot = (replication.slot_of("doomed"),)
        ended = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s"
        assert connection.execute(ended, slot).fetchone() == (True,)
    topology.wait_for("doomed", topology.commit(unique("t")))
    assert topology.objects("postgres@doomed") >= topology.objects("postgres")


@java
@pytest.mark.slow
def test_up_with_regions_by_the_command(folder: Path) -> None:
    run = CliRunner().invoke
    asked = ["up", "--only", "s3,s3@eu-central", "--regions", "eu-central", "--dir", str(folder), "--json"]
    first = {each["name"]: each for each in json.loads(run(command, asked, catch_exceptions=False).output)["services"]}
    assert list(first) == ["postgres", "s3", "nessie", "postgres@eu-central", "s3@eu-central", "nessie@eu-central"]
    assert {each["region"] for name, each in first.items() if "@" in name} == {"eu-central"}
    assert first["nessie@eu-central"]["bucket"] == first["s3@eu-central"]["bucket"] == "headwater-eu-central"
    known = devservices.status(folder)
    here = Topology(lambda name: known[name])
    here.wait_for("eu-central", here.commit("t"))

    # Through the region's own door there is its own bucket, and no other.
    doors = {name: _names_of_buckets(known[name]) for name in ("s3", "s3@eu-central")}
    assert doors == {"s3": ["headwater", "headwater-eu-central"], "s3@eu-central": ["headwater-eu-central"]}
    through = {name: open_s3("headwater-eu-central", s3_settings(known[name]), timeout_seconds=10) for name in doors}
    through["s3"].put("f", b"by the front", Create())
    with pytest.raises(PreconditionFailedError):
        through["s3@eu-central"].put("f", b"by the side", Create())
    assert through["s3@eu-central"].get("f").data == b"by the front"
    assert devservices.down(folder, ["s3@eu-central"]) == ("s3@eu-central",)
    with pytest.raises(TransientError):
        through["s3@eu-central"].head("f")
    assert through["s3"].head("f").size_bytes == 12
    assert here.head("nessie@eu-central") == here.head("nessie")

    # The primary comes back on another port: the region's subscription follows it.
    assert known["postgres"].pid is not None
    os.kill(known["postgres"].pid, signal.SIGKILL)
    until(lambda: processes.is_free(known["postgres"].port))
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", known["postgres"].port))
        taken.listen()
        known = devservices.up(["nessie@eu-central"], folder)
    assert known["postgres"].port != first["postgres"]["port"]
    here.wait_for("eu-central", here.commit("u"))

    secrets = [first["s3"]["secret_access_key"], str(make_url(first["postgres"]["url"]).password)]
    secrets.append(password_of(secrets[1], replication.READER))
    logs = "".join(path.read_text() for path in folder.glob("*.log"))
    for secret in secrets:
        assert secret not in logs
    for process in marked(folder):
        line = Path(f"/proc/{process.pid}/cmdline").read_text()
        assert not any(secret in line for secret in secrets)
    # A region whose data is gone leaves no slot on the primary, for which it would keep its log, and is made again.
    assert devservices.down(folder, ["postgres@eu-central"], purge=True) == ("nessie@eu-central", "postgres@eu-central")
    with here.database("postgres") as connection:
        assert connection.execute("SELECT slot_name FROM pg_replication_slots").fetchall() == []
    known = devservices.up(["nessie@eu-central"], folder)
    here.wait_for("eu-central", here.commit("v"))


def _names_of_buckets(endpoint: Endpoint) -> list[str]:
    keys = (str(endpoint.access_key_id), str(endpoint.secret_access_key))
    signed = signing.headers("GET", endpoint.port, "/", *keys, SystemClock())
    answer = loopback.request("GET", endpoint.port, "/", signed)
    return sorted(re.findall(r"<Name>([^<]*)</Name>", answer.body.decode()))


@pytest.mark.parametrize("region", ["EU", "eu_central", "-eu", "eu--central", "e" * 41, "", "1st", "eu@x"])
def test_a_name_that_is_no_region_is_refused(tmp_path: Path, region: str) -> None:
    with pytest.raises(UsageError, match="is no name of a region"):
        devservices.regional_names([region])
    with pytest.raises(UsageError, match="is no name of a region"):
        devservices.up([f"nessie@{region}"], tmp_path / "services")
    assert not (tmp_path / "services").exists()


def test_regions_that_are_none_are_refused(tmp_path: Path) -> None:
    for only, regions in (("etcd", " , "), ("etcd@eu", "eu")):
        result = CliRunner().invoke(command, ["up", "--only", only, "--regions", regions, "--dir", str(tmp_path / "s")])
        assert isinstance(result.exception, UsageError)
    assert not (tmp_path / "s").exists()
