"""An Iceberg client whose server is killed in the midst of its commits: nothing is lost, nothing is half there.

The client is PyIceberg as it is published. It deletes the files of a commit that it takes for failed, so whatever a
commit refers to must still be there afterwards (P5). Spark's turn is in tests/spark/test_server_kills.py.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    RESTError,
    ServiceUnavailableError,
)
from pyiceberg.table import CommitTableRequest, Table, TableIdentifier
from requests import RequestException

from headwater.app import App
from headwater.kernel import settings
from headwater.kernel.clock import SystemClock
from headwater.kernel.failpoints import Failpoint
from headwater.publish.sidecars import FOLDER
from tests.fixtures.doomed import (
    DDL_POINTS,
    PATIENCE_SECONDS,
    POINTS,
    Dynasty,
    Nursery,
    files_of,
    killing,
    missing,
    nursery,
    outcome,
    reached,
)
from tests.fixtures.rest import app_of, serving

pytestmark = [pytest.mark.slow, pytest.mark.proves("server/iceberg crash"), pytest.mark.hazard("P5")]

SCHEMA = pa.schema([("id", pa.int64())])
TABLES = ("default.t", "default.a", "default.b", "default.r")


def ids(number: int) -> pa.Table:
    return pa.table({"id": [number]}, schema=SCHEMA)


SCRIPT = "".join(f"CREATE TABLE {name} (id BIGINT);" for name in TABLES)


def held(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def append_to_two(catalog: RestCatalog, number: int) -> None:
    """One commit of two tables; PyIceberg makes the files, and leaves it to us to send both at once."""
    changes = []
    for name in ("default.a", "default.b"):
        table = catalog.load_table(name)
        transaction = table.transaction()
        transaction.append(ids(number))
        namespace, _, plain = name.partition(".")
        changes.append(
            CommitTableRequest(
                identifier=TableIdentifier(namespace=[namespace], name=plain),
                requirements=transaction._requirements,
                updates=transaction._updates,
            ).model_dump(mode="json", by_alias=True)
        )
    catalog._session.post(
        f"{catalog.uri}/v1/main/transactions/commit", json={"table-changes": changes}
    ).raise_for_status()


class Client:
    """What a client does to a lake, and what it has been told. A server may die under each of its deeds."""

    def __init__(self) -> None:
        self.number = 0
        self.rows: dict[str, list[int]] = {name: [] for name in TABLES}
        self.named = "default.r"

    def append(self, catalog: RestCatalog) -> None:
        catalog.load_table("default.t").append(ids(self.number))

    def pair(self, catalog: RestCatalog) -> None:
        append_to_two(catalog, self.number)

    def create(self, catalog: RestCatalog) -> None:
        with catalog.create_table_transaction(f"default.u{self.number}", SCHEMA) as transaction:
            transaction.append(ids(self.number))

    def rename(self, catalog: RestCatalog) -> None:
        catalog.rename_table(self.named, self._other())

    def _other(self) -> str:
        return "default.r" if self.named == "default.s" else "default.s"

    def judge(self, catalog: RestCatalog, deed: str) -> None:
        """What was on its way is there, whole, or not at all; and no file that it needs is gone."""
        match deed:
            case "append":
                self._judge_rows(catalog, "default.t")
            case "pair":
                self._judge_rows(catalog, "default.a", "default.b")
            case "create":
                name = f"default.u{self.number}"
                if catalog.table_exists(name):
                    made = catalog.load_table(name)
                    assert (held(made), missing(made)) == ([self.number], [])
            case "rename":
                there = [name for name in ("default.r", "default.s") if catalog.table_exists(name)]
                assert len(there) == 1
                self.named = there[0]
                assert missing(catalog.load_table(self.named)) == []

    def _judge_rows(self, catalog: RestCatalog, *names: str) -> None:
        tables = {name: catalog.load_table(name) for name in names}
        assert [missing(table) for table in tables.values()] == [[]] * len(names)
        found = {name: held(table) for name, table in tables.items()}
        before = {name: self.rows[name] for name in names}
        after = {name: [*self.rows[name], self.number] for name in names}
        assert found in (before, after)
        self.rows |= found


DEEDS = ("append", "pair", "create", "rename")


@pytest.fixture(scope="module")
def hits(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Counter[Failpoint]]:
    """How often each deed passes each failpoint."""
    lake = App(settings.load(environ={})).init_lake(str(tmp_path_factory.mktemp("watched") / "lake"))
    lake.apply(SCRIPT, actor="ann")
    found = {}
    client = Client()
    with serving(app_of(lake)) as served, pytest.MonkeyPatch.context() as patch:
        catalog = served.catalog()
        for deed in DEEDS:
            with reached(patch) as found[deed]:
                getattr(client, deed)(catalog)
        with reached(patch) as found["other"]:
            catalog.drop_table("default.u0")
            catalog.create_namespace("n")
            catalog.drop_namespace("n")
    return found


def test_no_point_that_a_commit_passes_is_left_out(hits: Mapping[str, Counter[Failpoint]]) -> None:
    for deed in ("append", "pair", "create"):
        assert set(hits[deed]) == set(POINTS), deed
    assert set(hits["rename"]) == set(DDL_POINTS)
    assert set(hits["other"]) <= set(DDL_POINTS)


@pytest.fixture(scope="module")
def servers() -> Iterator[Nursery]:
    with nursery() as found:
        yield found


@pytest.fixture
def dynasty(servers: Nursery, tmp_path: Path) -> Iterator[Dynasty]:
    found = Dynasty(servers, tmp_path / "lake")
    found.made.apply(SCRIPT, actor="ann")
    yield found
    found.end()


def times(deed: str, passes: int) -> list[int]:
    """At which of the times that a deed passes a point it is killed."""
    match deed:
        case "pair":
            return list(range(1, passes + 1))
        case "rename":
            return [1][:passes]
        case _:
            return sorted({1, passes}) if passes else []


@pytest.mark.parametrize("point", DDL_POINTS)
def test_the_server_is_killed_at(point: Failpoint, dynasty: Dynasty, hits: Mapping[str, Counter[Failpoint]]) -> None:
    """Each time that a commit of two tables passes the point; other commits of rows the first and the last time.

    A rename may lean on a pin that is there already, and then passes by less often: only its first time is sure.
    """
    client = Client()
    before = None
    for deed in DEEDS:
        for hit in times(deed, hits[deed][point]):
            catalog = dynasty.next(late=killing(point, hit)).catalog()
            if before is not None:
                client.judge(catalog, before)
            client.number += 1
            assert outcome(lambda: getattr(client, deed)(catalog), RequestException) is not None, (deed, hit)  # noqa: B023
            assert dynasty.server is not None
            assert dynasty.server.wait() == -signal.SIGKILL
            before = deed
    assert before is not None
    client.judge(dynasty.next().catalog(), before)
    assert not list((dynasty.lake / FOLDER).glob("*.json"))


@pytest.mark.parametrize("point", [Failpoint.RECOVERY_AFTER_RESTORE, Failpoint.RECOVERY_AFTER_PUBLISH])
def test_the_next_server_is_killed_while_it_recovers_what_the_first_one_left(
    point: Failpoint, dynasty: Dynasty
) -> None:
    client = Client()
    catalog = dynasty.next(late=killing(Failpoint.PUBLISH_AFTER_HEAD, 1)).catalog()
    assert outcome(lambda: client.pair(catalog), RequestException) is not None
    second = dynasty.next(early=killing(point, 1))
    assert second.address is None
    assert second.wait() == -signal.SIGKILL
    catalog = dynasty.next().catalog()
    client.judge(catalog, "pair")
    assert client.rows["default.a"] == []  # one of two tables had moved: it was taken back
    client.pair(catalog)
    assert held(catalog.load_table("default.b")) == [0]


# Where a server that stalls holds up others: between its note and the end of its commit.
STALLS = (
    Failpoint.PUBLISH_AFTER_SIDECAR,
    Failpoint.WRITE_AFTER_CREATE,
    Failpoint.PUBLISH_AFTER_HEAD,
    Failpoint.CATALOG_COMMIT_AFTER_OBJECTS,
    Failpoint.CATALOG_COMMIT_AFTER_MANIFEST,
    Failpoint.PUBLISH_AFTER_COMMIT,
)
SHORT = {
    "HEADWATER_SERVER_WRITE_SECONDS": "5",
    "HEADWATER_PUBLISH_LEASE_SECONDS": "0.4",
    "HEADWATER_SEQUENCE_CLOCK_SKEW_SECONDS": "0.1",
}


@pytest.mark.parametrize("point", STALLS)
def test_a_server_that_stalls_past_its_lease_has_another_beside_it(
    point: Failpoint, servers: Nursery, tmp_path: Path
) -> None:
    """Whoever goes on writes by the other one; what the first one says when it wakes up is true all the same."""
    folder = tmp_path / "lake"
    # A client that tries again looks whether it has landed: this one believes the first answer, and cleans up.
    once = {"commit.retry.num-retries": "0"}
    App(settings.load(environ={})).init_lake(str(folder)).create_table("t", SCHEMA, actor="ann", properties=once)
    first = servers.start(folder, late=f"{point}=stop@1", environ=SHORT)
    table = first.catalog().load_table("default.t")
    with ThreadPoolExecutor(1) as pool:
        stalled = pool.submit(outcome, lambda: table.append(ids(1)), RESTError, CommitFailedException)
        first.wait_stopped()
        second = servers.start(folder, environ=SHORT)
        catalog = second.catalog()
        append_until_it_lands(catalog, 2)
        first.signal(signal.SIGCONT)
        failure = stalled.result(PATIENCE_SECONDS)
    append_until_it_lands(catalog, 3)
    found = catalog.load_table("default.t")
    rows = held(found)
    assert missing(found) == []
    assert rows in ([1, 2, 3], [2, 3])
    if failure is None:
        assert 1 in rows
    elif not isinstance(failure, CommitStateUnknownException):
        assert 1 not in rows  # and whoever heard so was free to delete its files
    assert held(first.catalog().load_table("default.t")) == rows
    first.end()
    second.end()


def append_until_it_lands(catalog: RestCatalog, number: int) -> None:
    """What is refused because another's change must be undone first is sent again, as the protocol has it."""
    clock = SystemClock()
    deadline = clock.monotonic() + PATIENCE_SECONDS
    refused = (ServiceUnavailableError, CommitFailedException)
    while outcome(lambda: catalog.load_table("default.t").append(ids(number)), *refused) is not None:
        assert clock.monotonic() < deadline
        clock.sleep(0.05)


def test_a_file_that_is_gone_is_noticed(dynasty: Dynasty) -> None:
    """What the other tests here go by."""
    table = dynasty.next().catalog().load_table("default.t")
    table.append(ids(1))
    assert missing(table) == []
    [data] = files_of(table).data
    Path(urlsplit(data).path).unlink()
    assert missing(table) == [data]
