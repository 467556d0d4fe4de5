"""What a transaction costs: beside PyIceberg, beside Nessie, and when many clients share a process."""

from __future__ import annotations

import http.client
import json
import statistics
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from bench.measure import Result, compare_rates
from headwater import devservices
from headwater.app import App
from headwater.catalog.model import Commit, CommitRequest
from headwater.kernel import settings
from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import HeadwaterError
from headwater.kernel.ids import new_ulid
from headwater.kernel.randomness import system_randomness
from headwater.lake import Lake
from headwater.storage.port import Capability, Fetched, ObjectMeta, ObjectStore, PutMode
from headwater.storage.wrapper import StoreWrapper

TABLES = [f"t{number}" for number in range(5)]
ROWS = pa.table({"id": pa.array(range(100), pa.int64()), "v": pa.array([f"value {number}" for number in range(100)])})
CLIENTS = 16
LATENCY_SECONDS = 0.02
CLOCK, RANDOMNESS = SystemClock(), system_randomness()


def five_tables_on_file() -> list[Result]:
    """One transaction over five tables, synced, against five appends that are not."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        ours, peer = _our_transaction(Path(folder) / "ours"), _five_appends(Path(folder) / "peer")
        return [compare_rates("publish-five-tables-file", ours, peer, count=10, rounds=7, goal=1.5)]


def _our_transaction(folder: Path) -> Callable[[], None]:
    return _transaction_on(_lake_with(App(settings.load(environ={})).init_lake(str(folder)), TABLES))


def _transaction_on(lake: Lake) -> Callable[[], None]:
    def transact() -> None:
        with lake.transaction(actor="bench") as transaction:
            for name in TABLES:
                transaction.insert(name, ROWS)

    return transact


def _five_appends(folder: Path) -> Callable[[], None]:
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    folder.mkdir()
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=folder.as_uri())
    catalog.create_namespace("default")
    for name in TABLES:
        catalog.create_table(f"default.{name}", ROWS.schema)

    def appends() -> None:
        for name in TABLES:
            catalog.load_table(f"default.{name}").append(ROWS)

    return appends


def step_on_file() -> list[Result]:
    """The publish step of a transaction over five tables, in the midst of it, against one commit of five keys."""
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder, _nessie() as peer:
        ours = _Steps(Path(folder))
        for side in (ours, peer):
            _rate_of(side.step, 10)
        pairs = [(_rate_of(ours.step, 15), _rate_of(peer.step, 30)) for _ in range(9)]
        return [_median("publish-step-file", pairs, goal=1.0)]


class _Steps:
    """Runs whole transactions, and takes the time of the step that publishes: heads have moved, pins follow."""

    def __init__(self, folder: Path) -> None:
        lake = _lake_with(App(settings.load(environ={})).init_lake(str(folder)), TABLES)
        self._transact = _transaction_on(lake)
        self._commit_all = lake.catalog.commit_all
        self._seconds = 0.0
        lake.catalog.commit_all = self._timed  # type: ignore[method-assign]

    def step(self) -> float:
        """How many seconds the step takes."""
        self._transact()
        return self._seconds

    def _timed(self, requests: Sequence[CommitRequest]) -> tuple[Commit | HeadwaterError, ...]:
        started = CLOCK.monotonic()
        answers = self._commit_all(requests)
        self._seconds = CLOCK.monotonic() - started
        return answers


class _NessieCommits:
    """Commits new versions of five tables, over one connection that stays open."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=60)
        self._head = str(self._ask("GET", "/api/v2/trees/main")["reference"]["hash"])
        self._ids: dict[str, str] = {}
        self._version = 0

    def step(self) -> float:
        """How many seconds one commit takes."""
        self._version += 1
        operations = [self._put(name) for name in TABLES]
        body = json.dumps({"commitMeta": {"message": "a step"}, "operations": operations}).encode()
        started = CLOCK.monotonic()
        done = self._ask("POST", f"/api/v2/trees/main@{self._head}/history/commit", body)
        seconds = CLOCK.monotonic() - started
        self._head = done["targetBranch"]["hash"]
        for added in done.get("addedContents") or ():
            self._ids[added["key"]["elements"][0]] = added["contentId"]
        return seconds

    def _put(self, name: str) -> Mapping[str, object]:
        content: dict[str, object] = {
            "type": "ICEBERG_TABLE",
            "metadataLocation": f"s3://lake/{name}/metadata/{self._version:05d}-{new_ulid(CLOCK, RANDOMNESS)}.json",
            "snapshotId": self._version,
            "schemaId": 0,
            "specId": 0,
            "sortOrderId": 0,
        }
        if name in self._ids:
            content["id"] = self._ids[name]
        return {"type": "PUT", "key": {"elements": [name]}, "content": content}

    def _ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        self._connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"Nessie answers {answer.status}: {text[:500]!r}")
        return dict(json.loads(text))


def clients_on_s3() -> list[Result]:
    """Sixteen clients of one process on sixteen tables against one client, each request 20 ms farther away."""
    with _s3() as app:
        lake = _lake_with(app.init_lake("s3://bench/lake"), [f"c{number}" for number in range(CLIENTS)])
        _client(lake, 0, 1)
        _together(lake, 1)
        pairs = [(_together(lake, 4), _rate_of(lambda: _client(lake, 0, 1), 4)) for _ in range(3)]
        return [_median("publish-16-clients-s3", pairs, goal=4.0)]


def _client(lake: Lake, number: int, count: int) -> float:
    started = CLOCK.monotonic()
    for _ in range(count):
        with lake.transaction(actor=f"client {number}") as transaction:
            transaction.insert(f"c{number}", ROWS)
    return CLOCK.monotonic() - started


def _together(lake: Lake, count: int) -> float:
    """Transactions a second of all clients; one that fails is an error here."""
    started = CLOCK.monotonic()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda number: _client(lake, number, count), range(CLIENTS)))
    return CLIENTS * count / (CLOCK.monotonic() - started)


class Distant(StoreWrapper):
    """A store whose every request takes a while longer."""

    def get(self, path: str, *, span: tuple[int, int] | None = None) -> Fetched:
        CLOCK.sleep(LATENCY_SECONDS)
        return self._inner.get(path, span=span)

    def get_if_changed(self, path: str, etag: str) -> Fetched | None:
        CLOCK.sleep(LATENCY_SECONDS)
        return self._inner.get_if_changed(path, etag)

    def head(self, path: str) -> ObjectMeta:
        CLOCK.sleep(LATENCY_SECONDS)
        return self._inner.head(path)

    def exists(self, path: str) -> bool:
        CLOCK.sleep(LATENCY_SECONDS)
        return self._inner.exists(path)

    def put(self, path: str, data: bytes, mode: PutMode, *, tags: Mapping[str, str] | None = None) -> str:
        CLOCK.sleep(LATENCY_SECONDS)
        return self._inner.put(path, data, mode, tags=tags)

    def delete(self, path: str, *, if_match: str | None = None) -> None:
        CLOCK.sleep(LATENCY_SECONDS)
        self._inner.delete(path, if_match=if_match)

    def list(self, prefix: str = "", *, start_after: str | None = None) -> Iterator[ObjectMeta]:
        CLOCK.sleep(LATENCY_SECONDS)
        return self._inner.list(prefix, start_after=start_after)


class _DistantApp(App):
    def open_store(
        self, url: str, *, writable: bool = True, needed: frozenset[Capability] = frozenset()
    ) -> ObjectStore:
        return Distant(super().open_store(url, writable=writable, needed=needed))


def _lake_with(lake: Lake, names: list[str]) -> Lake:
    for name in names:
        lake.create_table(name, ROWS.schema, actor="bench")
    return lake


def _rate_of(step: Callable[[], float], count: int) -> float:
    """How often a second, by the seconds that each step says it took."""
    return count / sum(step() for _ in range(count))


def _median(name: str, pairs: list[tuple[float, float]], *, goal: float) -> Result:
    return Result(
        name,
        statistics.median(ours for ours, _ in pairs),
        statistics.median(peer for _, peer in pairs),
        "per second",
        statistics.median(ours / peer for ours, peer in pairs),
        goal,
    )


@contextmanager
def _s3() -> Iterator[App]:
    with _services("s3") as endpoints:
        endpoint = endpoints["s3"]
        devservices.create_bucket(endpoint, "bench")
        environ = {
            "HEADWATER_STORAGE_S3_ENDPOINT": endpoint.url,
            "HEADWATER_STORAGE_S3_ACCESS_KEY_ID": str(endpoint.access_key_id),
            "HEADWATER_STORAGE_S3_SECRET_ACCESS_KEY": str(endpoint.secret_access_key),
        }
        yield _DistantApp(settings.load(environ=environ))


@contextmanager
def _nessie() -> Iterator[_NessieCommits]:
    with _services("nessie") as endpoints:
        yield _NessieCommits("127.0.0.1", endpoints["nessie"].port)


@contextmanager
def _services(name: str) -> Iterator[Mapping[str, devservices.Endpoint]]:
    folder = Path(tempfile.mkdtemp(prefix="headwater-bench-"))
    folder.chmod(0o711)
    try:
        yield devservices.up([name], folder, parent_bound=True)
    finally:
        devservices.down(folder, purge=True)
