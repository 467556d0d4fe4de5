"""What an Iceberg client waits for: loading a table, an append, several tables at once. Beside Nessie's REST catalog.

Both lakes are in buckets of the same S3 server, and both clients are PyIceberg. Both servers are processes of their
own, and both keep their commits: we in the bucket, Nessie in PostgreSQL.

Nessie shows one snapshot of a table, however many there were; we show them all, and PyIceberg takes longer with each of
them. So appends go to tables that are young, where both clients have as much to do.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog

from bench.measure import Result, compare_rates
from headwater import devservices
from headwater.app import App
from headwater.devservices import Endpoint
from headwater.devservices.nessie import _java
from headwater.kernel import artifacts, settings
from headwater.kernel.clock import SystemClock

BUCKET, PEER_BUCKET = "bench-ours", "bench-peer"
ROWS = pa.table({"id": pa.array(range(100), pa.int64()), "v": pa.array([f"value {number}" for number in range(100)])})
TABLES = [f"t{number}" for number in range(5)]
_NESSIE_SECONDS = 120
_YOUNG_TABLES = 20
CLOCK = SystemClock()


def loads_and_appends() -> list[Result]:
    """Load a table, and append to one, each against Nessie."""
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    with (
        _servers() as (folder, endpoint, database),
        _ours(endpoint) as uri,
        _nessie(folder, endpoint, database) as peer_uri,
    ):
        ours, peer = _catalog(uri, endpoint), _catalog(peer_uri, endpoint)
        for catalog in (ours, peer):
            if ("default",) not in catalog.list_namespaces():
                catalog.create_namespace("default")
            catalog.create_table("default.loaded", ROWS.schema).append(ROWS)
            for number in range(_YOUNG_TABLES):
                catalog.create_table(f"default.young{number}", ROWS.schema).append(ROWS)
        return [
            compare_rates("server-load-table", _load(ours), _load(peer), count=100, rounds=7, goal=1.0),
            compare_rates("server-append", _append(ours), _append(peer), count=10, rounds=7, goal=1.0),
        ]


def five_tables() -> list[Result]:
    """One request that changes five tables, against five that change one each, on the same server: folder and S3."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder, _serving(folder, {}) as uri:
        found = [_together_and_apart("server-five-tables-folder", uri, {})]
    with _servers() as (_, endpoint, _), _ours(endpoint) as uri:
        return [*found, _together_and_apart("server-five-tables-s3", uri, _s3_settings(endpoint))]


def _together_and_apart(name: str, uri: str, more: dict[str, str]) -> Result:
    catalog = RestCatalog("bench", uri=uri, **more)
    for table in TABLES:
        catalog.create_table(f"default.{table}", ROWS.schema)
    client = _Changes(uri)
    return compare_rates(name, client.together, client.apart, count=10, rounds=7, goal=3.0)


class _Changes:
    """Sets a property of five tables, over one connection that stays open."""

    def __init__(self, uri: str) -> None:
        place = urlsplit(uri)
        self._connection = http.client.HTTPConnection(place.netloc, timeout=60)
        self._prefix = place.path
        self._number = 0

    def together(self) -> None:
        named = ((f'"identifier":{{"namespace":["default"],"name":"{name}"}}', self._one()) for name in TABLES)
        changes = ",".join(f"{{{identifier},{updates}}}" for identifier, updates in named)
        self._post("/v1/main/transactions/commit", f'{{"table-changes":[{changes}]}}')

    def apart(self) -> None:
        for name in TABLES:
            self._post(f"/v1/main/namespaces/default/tables/{name}", f"{{{self._one()}}}")

    def _one(self) -> str:
        self._number += 1
        return f'"updates":[{{"action":"set-properties","updates":{{"n":"{self._number}"}}}}]'

    def _post(self, path: str, body: str) -> None:
        self._connection.request("POST", self._prefix + path, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{path} answers {answer.status}: {text[:500]!r}")


def _load(catalog: RestCatalog) -> Callable[[], object]:
    return lambda: catalog.load_table("default.loaded")


def _append(catalog: RestCatalog) -> Callable[[], object]:
    """Appends to one young table after the other."""
    numbers = itertools.cycle(range(_YOUNG_TABLES))
    return lambda: catalog.load_table(f"default.young{next(numbers)}").append(ROWS)


def _catalog(uri: str, endpoint: Endpoint) -> RestCatalog:
    return RestCatalog("bench", uri=uri, **_s3_settings(endpoint))


def _s3_settings(endpoint: Endpoint) -> dict[str, str]:
    keys = {"s3.access-key-id": endpoint.access_key_id or "", "s3.secret-access-key": endpoint.secret_access_key or ""}
    more = {"s3.endpoint": endpoint.url, "s3.region": "us-east-1", "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
    return keys | more


@contextmanager
def _servers() -> Iterator[tuple[Path, Endpoint, Endpoint]]:
    folder = Path(tempfile.mkdtemp(prefix="headwater-bench-"))
    folder.chmod(0o711)
    try:
        running = devservices.up(["s3", "postgres"], folder, parent_bound=True)
        endpoint = running["s3"]
        for name in (BUCKET, PEER_BUCKET):
            devservices.create_bucket(endpoint, name)
        yield folder, endpoint, running["postgres"]
    finally:
        devservices.down(folder, purge=True)


@contextmanager
def _ours(endpoint: Endpoint) -> Iterator[str]:
    environ = {
        "HEADWATER_STORAGE_S3_ENDPOINT": endpoint.url,
        "HEADWATER_STORAGE_S3_ACCESS_KEY_ID": endpoint.access_key_id or "",
        "HEADWATER_STORAGE_S3_SECRET_ACCESS_KEY": endpoint.secret_access_key or "",
    }
    with _serving(f"s3://{BUCKET}/lake", environ) as uri:
        yield uri


@contextmanager
def _serving(url: str, environ: dict[str, str]) -> Iterator[str]:
    """`headwater serve` of a new lake, in a process of its own as Nessie is."""
    App(settings.load(environ=environ)).init_lake(url)
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as home:
        argv = [sys.executable, "-m", "headwater", "serve", url, "--port", "0", "--json"]
        variables = {**os.environ, **environ, "HEADWATER_LOG_LEVEL": "warning", "HEADWATER_HOME": home}
        with subprocess.Popen(argv, env=variables, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                told = "".join(itertools.takewhile(lambda line: line.strip() != "}", process.stdout)) + "}"
                yield f"{json.loads(told)['address']}/iceberg"
            finally:
                process.terminate()


@contextmanager
def _nessie(folder: Path, endpoint: Endpoint, database: Endpoint) -> Iterator[str]:
    port, management = _free_port(), _free_port()
    place_in = urlsplit(database.url)
    s3 = "nessie.catalog.service.s3.default-options"
    properties = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": str(port),
        "quarkus.management.port": str(management),
        "quarkus.banner.enabled": "false",
        "nessie.version.store.type": "JDBC2",
        "nessie.version.store.persist.jdbc.datasource": "postgresql",
        "quarkus.datasource.postgresql.jdbc.url": f"jdbc:postgresql://127.0.0.1:{place_in.port}{place_in.path}",
        "quarkus.datasource.postgresql.username": place_in.username or "",
        "quarkus.datasource.postgresql.password": place_in.password or "",
        "nessie.catalog.default-warehouse": "warehouse",
        "nessie.catalog.warehouses.warehouse.location": f"s3://{PEER_BUCKET}/lake",
        f"{s3}.endpoint": endpoint.url,
        f"{s3}.region": "us-east-1",
        f"{s3}.path-style-access": "true",
        f"{s3}.request-signing-enabled": "false",
        f"{s3}.access-key": "urn:nessie-secret:quarkus:bench.s3",
    }
    secrets = {
        "bench.s3.name": endpoint.access_key_id,
        "bench.s3.secret": endpoint.secret_access_key,
    }
    place = folder / "nessie" / "config" / "application.properties"
    place.parent.mkdir(parents=True, mode=0o700)
    place.write_text("".join(f"{name}={value}\n" for name, value in (properties | secrets).items()))
    jar = artifacts.fetch(artifacts.NESSIE, settings.cache_folder(), os.environ)
    argv = [str(_java()), "-Xmx1g", "-jar", str(jar)]
    with (folder / "nessie.log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=place.parents[1], stdout=log, stderr=log)
    try:
        _wait_for(port, process, folder / "nessie.log")
        yield f"http://127.0.0.1:{port}/iceberg"
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = CLOCK.monotonic() + _NESSIE_SECONDS
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/iceberg/v1/config")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        if process.poll() is not None or CLOCK.monotonic() > deadline:
            raise RuntimeError(f"Nessie did not start: {log.read_text()[-2000:]}")
        CLOCK.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
