"""Regional replicas on real services, by what users do: commands, engines with printed settings, kills, and proofs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy.engine import make_url

from headwater.app import OWN_FOLDER, App
from headwater.devservices import Endpoint, processes
from headwater.kernel.failpoints import Failpoint
from headwater.storage.port import Create
from headwater.sync.copy.metrics import TRANSFERRED
from headwater.sync.lease import RegionBusyError
from headwater.sync.protocol import HandedOverError
from tests.fixtures.engines import normal
from tests.services.sync_services import ASIA, ENGINES, Readers, SyncServices
from tests.services.test_devservices import until
from tests.services.test_regions import REGIONS, Topology, topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["topology"]  # the services of its neighbour
pytestmark = [
    pytest.mark.services,
    pytest.mark.spark,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.proves("regional replicas on services"),
]
US, EU = REGIONS


@pytest.fixture(scope="module")
def database(topology: Topology) -> Iterator[str]:
    """A database for the state of the syncs."""
    name, server = f"sync_{uuid4().hex}", make_url(topology.start("postgres").url)
    plain = server.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        yield server.set(database=name).render_as_string(hide_password=False)
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture(scope="module")
def keys(topology: Topology, spark: SparkSession) -> Iterator[None]:
    """Keys for the buckets, where AWS programs look for them: in the environment, or in properties of the JVM."""
    s3: Endpoint = topology.start("s3")
    system = spark._jvm.java.lang.System  # type: ignore[union-attr]
    with pytest.MonkeyPatch.context() as patch:
        for variable, name, key in (
            ("AWS_ACCESS_KEY_ID", "aws.accessKeyId", s3.access_key_id),
            ("AWS_SECRET_ACCESS_KEY", "aws.secretAccessKey", s3.secret_access_key),
        ):
            patch.setenv(variable, str(key))
            system.setProperty(name, str(key))
        yield
        for name in ("aws.accessKeyId", "aws.secretAccessKey"):
            system.clearProperty(name)


@pytest.fixture(scope="module")
def world(
    topology: Topology, database: str, keys: None, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> SyncServices:
    """A lake that writers of both regions, Spark and PyIceberg have written, and its replicas."""
    import duckdb_extensions

    for name in ("avro", "httpfs", "iceberg"):
        duckdb_extensions.import_extension(name)
    made = SyncServices(topology, database, tmp_path_factory.mktemp("sync"))
    lake = made.lake(US)
    lake.apply("create table accounts (id bigint, region text)", actor="ann")
    for number, region in enumerate(REGIONS):
        with made.lake(region).transaction(actor="ann") as change:
            change.sql(f"insert into accounts values ({number}, '{region}'), ({number + 10}, '{region}')")
    with lake.transaction(actor="ann") as change:
        change.sql("delete from accounts where id = 11")
    writer = made.readers(EU, spark).session
    writer.sql("insert into headwater_main.default.accounts values (20, 'spark')")
    writer.sql("create table headwater_main.default.by_spark (id bigint) tblproperties ('format-version' = '3')")
    writer.sql("insert into headwater_main.default.by_spark select id from range(5)")
    writer.sql("delete from headwater_main.default.by_spark where id = 3")
    made.topology.rest("nessie").load_table("default.accounts").append(rows(30, "pyiceberg"))
    for region in REGIONS:
        made.sync(region)
    return made


@pytest.fixture(scope="module")
def readers(world: SyncServices, spark: SparkSession) -> dict[str, Readers]:
    return {region: world.readers(region, spark) for region in REGIONS}


def test_every_region_reads_what_main_shows(world: SyncServices, readers: dict[str, Readers]) -> None:
    expected = world.main("default.accounts")
    assert [row[0] for row in expected] == [0, 1, 10, 20, 30]
    for region, engines in readers.items():
        for engine in ENGINES:
            assert engines.rows(engine, "default.accounts") == expected, (region, engine)
        # Nessie's own door for other engines knows no third version of the format; Spark does not go through it.
        assert engines.rows("spark", "default.by_spark") == [(0,), (1,), (2,), (4,)]


def test_every_region_reads_alone(world: SyncServices, readers: dict[str, Readers]) -> None:
    expected = world.main("default.accounts")
    for region, engines in readers.items():
        with world.without_other_buckets(region):
            found = {engine: engines.rows(engine, "default.accounts") for engine in ENGINES}
            by_spark = engines.rows("spark", "default.by_spark")
            with pytest.raises(OSError, match=r"NoSuchBucket|NO_SUCH_BUCKET|does not exist"):
                world.main("default.accounts")
        assert found == dict.fromkeys(ENGINES, expected), region
        assert len(by_spark) == 4


def test_files_of_writers_lie_in_their_regions(world: SyncServices) -> None:
    table = world.topology.rest("nessie").load_table("default.accounts")
    homes = {path.split("/")[2] for path in table.inspect.files()["file_path"].to_pylist()}
    assert homes >= {f"headwater-{US}", f"headwater-{EU}"}


def test_a_commit_between_the_steps(world: SyncServices, readers: dict[str, Readers]) -> None:
    """A run goes to the commit that it began with, whoever commits to `main` meanwhile; the next one takes that up."""
    name = table(world, US, rows(1, US))
    begun = world.call(EU, "sync", "step", after="localise")["run"]
    readers[EU].session.sql(f"insert into headwater_main.default.{name} values (2, 'spark')")
    world.topology.rest("nessie").load_table(f"default.{name}").append(rows(3, "pyiceberg"))
    ended = world.call(EU, "sync", "step", after="observe")["run"]
    assert (ended["run"], ended["state"], ended["target"]) == (begun["run"], "done", begun["target"])
    status = world.call(EU, "sync", "status")
    assert status["origin"]["hash"] == begun["target"]
    assert status["pending_commits"] >= 2
    world.sync(EU)
    assert world.call(EU, "sync", "status")["pending_commits"] == 0
    for engine in ENGINES:
        assert readers[EU].rows(engine, f"default.{name}") == world.main(f"default.{name}"), engine


def test_a_sync_that_is_killed_is_taken_up(world: SyncServices, readers: dict[str, Readers]) -> None:
    """While it lives nobody else syncs its region; when it has died, the next one goes on with the very same run."""
    name = table(world, US, rows(1, US))
    stopped = {"state": "running", "done": "verify", "target": world.topology.head("nessie")}

    def half_way() -> list[dict[str, Any]]:
        return [each for each in world.call(EU, "sync", "status")["runs"] if stopped.items() <= each.items()]

    # The first commit made the table, the second brings its file.
    slow = f"{Failpoint.SYNC_AFTER_LOCALISE}=delay:600000@2"
    with world.process(EU, "sync", "run", HEADWATER_FAILPOINTS=slow) as first:
        until(lambda: half_way() or first.poll() is not None, 150)
        assert first.poll() is None, first.communicate()
        [run] = half_way()
        with pytest.raises(RegionBusyError, match=f"{EU} is being synced by .*:{first.pid}"):
            world.sync(EU)
        first.kill()
        assert first.wait() == -signal.SIGKILL
    assert half_way() == [run]
    until(lambda: is_synced(world, EU), 60)
    runs = {each["run"]: each for each in world.call(EU, "sync", "status")["runs"]}
    assert (runs[run["run"]]["state"], runs[run["run"]]["target"]) == ("done", run["target"])
    assert readers[EU].rows("pyiceberg", f"default.{name}") == world.main(f"default.{name}") == [(1, US)]


def test_readers_are_sent_to_main_and_back(
    world: SyncServices, topology: Topology, start_service: Callable[[str], Endpoint]
) -> None:
    app = world.app(
        EU,
        HEADWATER_SYNC_WELL_FOR_SECONDS="2",
        HEADWATER_STORAGE_RETRY_BUDGET_SECONDS="0.3",
    )
    world.sync(EU)
    local = world.call(EU, "route", app=app)
    regional = topology.start(f"nessie@{EU}")
    assert (local["way"], local["endpoint"]) == ("local", f"{regional.url}/api/v2")
    assert local["branch"] == f"main_replica_{EU}"
    assert regional.pid is not None
    os.kill(regional.pid, signal.SIGKILL)
    until(lambda: processes.is_free(regional.port))
    away = world.call(EU, "route", app=app)
    assert (away["way"], away["endpoint"]) == ("primary", f"{topology.start('nessie').url}/api/v2")
    assert away["branch"] == "main"
    assert "does not answer" in away["reason"]
    assert start_service(f"nessie@{EU}").url == regional.url
    watched = world.call(EU, "route", app=app)
    assert watched["way"] == "primary"
    assert "observed for" in watched["reason"]
    until(lambda: world.call(EU, "route", app=app)["way"] == "local", 60)
    # Who had to go away asked for the newest; there was nothing newer.
    assert world.call(EU, "sync", "run", app=app)["runs"] == []


def test_every_metric_is_exported(world: SyncServices, tmp_path: Path) -> None:
    """By `sync run --watch`, which a file tells of; the names are those of the design, and two more."""
    name, file = table(world, US, rows(1, US)), tmp_path / "headwater.prom"
    mine = {"region": EU, "table": f"default.{name}"}

    def samples() -> dict[str, list[dict[str, str]]]:
        found: dict[str, list[dict[str, str]]] = {}
        for family in text_string_to_metric_families(file.read_text() if file.exists() else ""):
            for each in family.samples:
                found.setdefault(each.name, []).append(each.labels)
        return found

    with world.process(
        EU, "sync", "run", "--watch", HEADWATER_SYNC_METRICS_FILE=str(file), HEADWATER_SYNC_WATCH_SECONDS="0.2"
    ) as watching:
        until(lambda: mine in samples().get("regional_read_ready_lag_seconds_count", []), 150)
        until(lambda: {"region": EU} in samples().get("replication_heartbeat_timestamp_seconds", []))
        watching.terminate()
        assert watching.wait() == 128 + signal.SIGTERM
    found = samples()
    of_region = (
        "catalog_db_replication_lag_seconds",
        "replica_visibility_lag_seconds_count",
        "regional_commit_lag_seconds_count",
        "commit_conflict_total",
        "copy_backlog_files",
        "copy_backlog_bytes",
        "rclone_throughput_bytes_per_sec",
        "fast_forward_activations_total",
        "cross_region_data_transfer_bytes",
        "oldest_pending_commit_age_seconds",
        "replication_heartbeat_timestamp_seconds",
    )
    assert {metric: {"region": EU} in found.get(metric, []) for metric in of_region} == dict.fromkeys(of_region, True)
    of_table = (
        "sync_job_end_to_end_lag_seconds_count",
        "regional_read_ready_lag_seconds_count",
        "writer_to_regional_read_ready_lag_seconds_count",
    )
    assert {metric: mine in found.get(metric, []) for metric in of_table} == dict.fromkeys(of_table, True)
    assert found["nessie_commit_rate_per_min"] == found["commit_latency_ms_count"] == [{}]
    operations = {each["operation"] for each in found["nessie_api_latency_ms_count"]}
    assert {"getRef", "commit", "diff", "log", "contents"} <= operations


def test_a_region_begins_with_shipped_data(world: SyncServices, spark: SparkSession) -> None:
    """Everything that `main` has at a tag is brought by hand; writers go on meanwhile, and nothing is copied twice."""
    lake, app = world.lake(US), world.app(ASIA)
    name = table(world, EU, rows(1, EU))
    world.said(US, "tag", "create", world.url, "shipped")
    ship(world, app)
    lake.load(name, rows(2, US), actor="ann")
    begun = world.call(ASIA, "bootstrap", "--from-loaded-data", "--no-copy", "--at", "shipped", app=app)
    assert [each["state"] for each in begun["runs"]] == ["done"]
    assert app.metrics.value(TRANSFERRED, region=ASIA) == 0
    lake.load(name, rows(3, US), actor="ann")
    world.sync(ASIA, app)
    assert app.metrics.value(TRANSFERRED, region=ASIA) > 0
    found = world.call(ASIA, "sync", "check", "--deep")
    assert (found["sound"], found["rows"][f"default.{name}"]) == (True, 3)
    session = world.readers(ASIA, spark).session
    assert normal(session.sql(f"select * from headwater.default.{name}").collect()) == world.main(f"default.{name}")
    with pytest.raises(HandedOverError):
        world.call(ASIA, "bootstrap", "--from-loaded-data")


def test_what_is_printed_for_trino_names_the_region(world: SyncServices, topology: Topology) -> None:
    printed = world.said(EU, "connect", world.url, "--region", EU, "--engine", "trino")
    assert dict(line.split("=", 1) for line in printed.splitlines()) == {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "nessie",
        "iceberg.nessie-catalog.uri": f"{topology.start(f'nessie@{EU}').url}/api/v2",
        "iceberg.nessie-catalog.ref": f"main_replica_{EU}",
        "iceberg.nessie-catalog.default-warehouse-dir": world.prefix(EU).rstrip("/"),
        "fs.native-s3.enabled": "true",
        "s3.region": "us-east-1",
        "s3.endpoint": world.s3.url,
        "s3.path-style-access": "true",
    }


def test_every_replica_is_sound_after_all_of_it(world: SyncServices) -> None:
    for region in REGIONS:
        world.sync(region)
        found = world.call(region, "sync", "check", "--deep")
        assert (found["sound"], found["findings"]) == (True, [])
        assert len(found["rows"]) == found["tables"]
        assert {"default.accounts": 5, "default.by_spark": 4}.items() <= found["rows"].items()


def rows(number: int, region: str) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int64()), "region": [region]})


def table(world: SyncServices, region: str, content: pa.Table) -> str:
    """A new table with these rows, written in a region; its name."""
    name, lake = f"t_{uuid4().hex[:12]}", world.lake(region)
    lake.create_table(name, content.schema, actor="ann")
    lake.load(name, content, actor="ann")
    return name


def is_synced(world: SyncServices, region: str) -> bool:
    """Whether the region could be synced: the lease of one that died has to end first."""
    try:
        world.sync(region)
    except RegionBusyError:
        return False
    return True


def ship(world: SyncServices, app: App) -> None:
    """Bring every file of every region to where the new one has its place for it, as a lorry would."""
    there = app.open_store(world.prefix(ASIA))
    for source in (world.warehouse, world.prefix(US), world.prefix(EU)):
        store = app.open_store(source, writable=False)
        for each in store.list():
            if not each.path.startswith(OWN_FOLDER) and not there.exists(each.path):
                there.put(each.path, store.get(each.path).data, Create())
