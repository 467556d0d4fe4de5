"""The settings that `connect` prints: engines that take them as they are read the replica."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from click.testing import CliRunner, Result
from pyiceberg.catalog import load_catalog

from headwater.access import Role, Tokens
from headwater.app import App
from headwater.cli.connect import connect
from headwater.kernel.settings import ServerSettings
from headwater.regions.registry import Region, Registry
from headwater.server.main import open_to_serve, served
from headwater.sync.connect.decide import connection
from headwater.sync.connect.model import Bucket, Engine, OnNessie, Place, Served
from tests.unit.server_world import listening
from tests.unit.sync_world import Regions, ids

NESSIE = OnNessie("http://eu.example:19120/api/v2", "http://write.example:19120/api/v2", "main_replica_eu")
BUCKET = Bucket("http://s3.example:9000", "us-east-1", is_virtual_hosted=False)
ON_NESSIE = Place(NESSIE, "s3://eu/", BUCKET)
SERVED = Place(Served("http://h:8181/iceberg", "main_replica_eu"), "file:///eu/")


@pytest.fixture(scope="module")
def regions(tmp_path_factory: pytest.TempPathFactory) -> Regions:
    made = Regions(tmp_path_factory.mktemp("regions"))
    lake = made.lake("us")
    lake.create_table("t", ids(1).schema, actor="ann")
    lake.load("t", ids(1, 2), actor="ann")
    made.sync()
    lake.load("t", ids(3), actor="ann")  # main is further
    return made


@pytest.fixture(scope="module")
def address(regions: Regions) -> Iterator[str]:
    with regions.app.open_database(regions.url) as database:
        lake = open_to_serve(regions.app, regions.url)
        with listening(served(regions.app, lake, database, ServerSettings())) as address:
            yield address


def call(app: App, lake: str, engine: str, *options: str) -> Result:
    return CliRunner().invoke(connect, [lake, "--region", "eu", "--engine", engine, *options], obj=app)


def test_pyiceberg_reads_the_replica_by_what_is_printed(
    regions: Regions, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = call(regions.app, regions.url, "pyiceberg", "--server", address).stdout
    (tmp_path / ".pyiceberg.yaml").write_text(printed)
    settings = yaml.safe_load((tmp_path / ".pyiceberg.yaml").read_text())["catalog"]["headwater"]
    found = load_catalog("headwater", **settings).load_table("default.t")
    assert sorted(found.scan().to_arrow()["id"].to_pylist()) == [1, 2]
    local = f"{(regions.folder / 'eu').as_uri()}/"
    assert all(path.startswith(local) for path in found.inspect.files()["file_path"].to_pylist())


def test_duckdb_reads_the_replica_by_what_is_printed(regions: Regions, address: str) -> None:
    import duckdb_extensions

    for name in ("avro", "httpfs", "iceberg"):
        duckdb_extensions.import_extension(name)
    printed = call(regions.app, regions.url, "duckdb", "--server", address).stdout
    with duckdb.connect() as connection:
        for statement in printed.splitlines():
            if not statement.startswith("INSTALL"):  # it is there, and would be fetched
                connection.execute(statement)
        assert connection.execute("select id from headwater.default.t order by id").fetchall() == [(1,), (2,)]


def test_the_json_has_one_shape(regions: Regions) -> None:
    found = json.loads(call(regions.app, regions.url, "trino", "--json").stdout)
    assert found == {
        "region": "eu",
        "engine": "trino",
        "reader": {
            "connector.name": "iceberg",
            "iceberg.catalog.type": "rest",
            "iceberg.rest-catalog.uri": "http://127.0.0.1:8181/iceberg",
            "iceberg.rest-catalog.warehouse": "main_replica_eu",
            "fs.hadoop.enabled": "true",
        },
        "writer": None,
        "text": (
            "connector.name=iceberg\n"
            "iceberg.catalog.type=rest\n"
            "iceberg.rest-catalog.uri=http://127.0.0.1:8181/iceberg\n"
            "iceberg.rest-catalog.warehouse=main_replica_eu\n"
            "fs.hadoop.enabled=true\n"
        ),
        "notes": ["goes into etc/catalog/headwater.properties"],
    }


@pytest.mark.parametrize(
    "server", ["127.0.0.1:8181", "ftp://x", "http://me:hunter2@x", "http://x?token=hunter2", "http://"]
)
def test_a_server_that_is_none(regions: Regions, server: str) -> None:
    found = call(regions.app, regions.url, "duckdb", "--server", server)
    assert "--server is not the address of a server" in str(found.exception)
    assert "hunter2" not in str(found.exception)
    assert found.stdout == ""


def test_spark_on_nessie_reads_the_replica_and_writes_main_from_its_region() -> None:
    found = connection(Engine.SPARK, ON_NESSIE)
    prefix = "spark.sql.catalog.headwater"
    files = {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "client.region": "us-east-1",
        "s3.endpoint": "http://s3.example:9000",
        "s3.path-style-access": "true",
    }
    common = {"catalog-impl": "org.apache.iceberg.nessie.NessieCatalog", "warehouse": "s3://eu", **files}
    reader = {**common, "uri": NESSIE.regional, "ref": "main_replica_eu"}
    writer = {**common, "uri": NESSIE.primary, "ref": "main"}
    catalog = "org.apache.iceberg.spark.SparkCatalog"
    assert found.reader == {prefix: catalog, **{f"{prefix}.{key}": value for key, value in reader.items()}}
    assert found.writer == {
        f"{prefix}_main": catalog,
        **{f"{prefix}_main.{key}": value for key, value in writer.items()},
    }
    assert dict(line.split() for line in found.text.splitlines()) == {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        **found.reader,
        **found.writer,
    }


def test_the_other_engines_on_nessie() -> None:
    assert connection(Engine.TRINO, ON_NESSIE).reader == {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "nessie",
        "iceberg.nessie-catalog.uri": "http://eu.example:19120/api/v2",
        "iceberg.nessie-catalog.ref": "main_replica_eu",
        "iceberg.nessie-catalog.default-warehouse-dir": "s3://eu",
        "fs.native-s3.enabled": "true",
        "s3.region": "us-east-1",
        "s3.endpoint": "http://s3.example:9000",
        "s3.path-style-access": "true",
    }
    assert connection(Engine.PYICEBERG, ON_NESSIE).reader == {
        "type": "rest",
        "uri": "http://eu.example:19120/iceberg/main_replica_eu",
        "s3.region": "us-east-1",
        "s3.endpoint": "http://s3.example:9000",
        "s3.force-virtual-addressing": "false",
    }
    duckdb = connection(Engine.DUCKDB, ON_NESSIE)
    assert duckdb.text.splitlines()[-1] == (
        "ATTACH 'main_replica_eu' AS headwater (TYPE iceberg, ENDPOINT 'http://eu.example:19120/iceberg', "
        "AUTHORIZATION_TYPE 'none', ACCESS_DELEGATION_MODE 'none');"
    )
    # It can name no branch, so a warehouse stands for it; on a server that does not know it nothing is read.
    assert duckdb.notes[0] == (
        "the region's Nessie has to know the warehouse: "
        'nessie.catalog.warehouses."main_replica_eu".location=s3://eu/, '
        'nessie.catalog.warehouses."main_replica_eu".iceberg-config-overrides.prefix=main_replica_eu'
    )


@pytest.mark.parametrize("engine", list(Engine))
@pytest.mark.parametrize("catalog", [NESSIE, SERVED.catalog])
def test_who_needs_a_token_is_told_where_it_goes(engine: Engine, catalog: OnNessie | Served) -> None:
    without = connection(engine, Place(catalog, "s3://eu/", BUCKET))
    with_token = connection(engine, Place(catalog, "s3://eu/", BUCKET, needs_token=True))
    told = with_token.text + "\n".join(with_token.notes)
    assert "token" in told.lower()
    assert "token" not in (without.text + "\n".join(without.notes)).lower()


@pytest.mark.parametrize("engine", list(Engine))
def test_no_secret_is_printed(tmp_path: Path, engine: Engine) -> None:
    secrets = {
        "HEADWATER_STORAGE_S3_ACCESS_KEY_ID": "the-key-id",
        "HEADWATER_STORAGE_S3_SECRET_ACCESS_KEY": "the-secret-key",
        "HEADWATER_STORAGE_S3_ENDPOINT": "http://s3.example:9000",
        "HEADWATER_NESSIE_TOKEN": "the-nessie-token",
    }
    regions = Regions(tmp_path, **secrets)
    buckets = Registry((Region("eu", "s3://eu/", "main_replica_eu"),), ("s3://eu/",))
    regions.app.open_publisher(regions.url).publish(buckets, actor="ann")
    with regions.app.open_database(regions.url) as database:
        _, token = Tokens(database, regions.app.randomness).create("ann", Role.READER)
    registry = f"{regions.url}/_headwater"
    on_nessie = regions.app.settings.model_copy(update={"registry": registry})
    nessie = "nessie+http://127.0.0.1:9/api/v2?warehouse=s3://lake"
    for app, lake in ((regions.app, regions.url), (App(on_nessie), nessie)):
        for options in ((), ("--json",)):
            found = call(app, lake, str(engine), *options)
            assert found.exit_code == 0, found.exception
            for secret in ("the-key-id", "the-secret-key", "the-nessie-token", token):
                assert secret not in found.output
            assert "s3.example:9000" in found.output


def test_what_would_break_out_of_its_quotes_does_not() -> None:
    odd = Place(Served("http://h/iceberg", 'it\'s "odd"'), "file:///eu/")
    assert "ATTACH 'it''s \"odd\"' AS" in connection(Engine.DUCKDB, odd).text
    parsed: dict[str, Any] = yaml.safe_load(connection(Engine.PYICEBERG, odd).text)
    assert parsed["catalog"]["headwater"]["warehouse"] == 'it\'s "odd"'
