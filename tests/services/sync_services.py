"""A lake on the write Nessie, with a bucket, a database and a read Nessie for each region, and engines that read it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click
import duckdb
import yaml
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog

from headwater import devservices
from headwater.app import App
from headwater.cli.main import cli
from headwater.devservices import Endpoint
from headwater.kernel import settings
from headwater.lake import Lake
from tests.fixtures.engines import Row, normal, rows_of
from tests.fixtures.nessie import reset
from tests.services.test_regions import REGIONS, Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ("pyiceberg", "duckdb", "spark")
# A third region, which is begun with shipped data; its readers ask the write endpoint.
ASIA = "asia-south"


class SyncServices:
    """Two regions on real services. A world begins with an empty repository and with prefixes of its own."""

    def __init__(self, topology: Topology, database: str, folder: Path) -> None:
        self.topology = topology
        self.database = database
        self.run = uuid4().hex[:12]
        self.s3: Endpoint = topology.start("s3")
        self.warehouse = f"s3://{devservices.bucket_of(None)}/{self.run}"
        self.url = self.on("nessie")
        reset(topology.start("nessie").url)
        self.said(REGIONS[0], "init", self.url)
        rules = {
            "version": 2,
            "regions": {name: {"local_prefix": self.prefix(name)} for name in (*REGIONS, ASIA)},
            "sources": [f"{self.warehouse}/", *map(self.prefix, (*REGIONS, ASIA))],
        }
        (folder / "registry.yaml").write_text(yaml.safe_dump(rules))
        self.said(REGIONS[0], "registry", "publish", self.url, str(folder / "registry.yaml"))

    def on(self, nessie: str) -> str:
        """The lake, as one of the servers shows it."""
        return f"nessie+{self.topology.start(nessie).url}/api/v2?warehouse={self.warehouse}"

    def prefix(self, region: str) -> str:
        """Where a region has its files."""
        if region == ASIA:
            return f"s3://{devservices.bucket_of(None)}/{self.run}-asia/"
        return f"s3://{devservices.bucket_of(region)}/{self.run}/"

    def variables(self, region: str, **more: str) -> dict[str, str]:
        """What processes of a region are told."""
        return {
            "HEADWATER_STORAGE_S3_ENDPOINT": self.s3.url,
            "HEADWATER_STORAGE_S3_ACCESS_KEY_ID": str(self.s3.access_key_id),
            "HEADWATER_STORAGE_S3_SECRET_ACCESS_KEY": str(self.s3.secret_access_key),
            "HEADWATER_DATABASE": self.database,
            "HEADWATER_SYNC_CATALOG": self.url if region == ASIA else self.on(f"nessie@{region}"),
            "HEADWATER_SYNC_POLL_SECONDS": "0.05",
            "HEADWATER_SYNC_LEASE_SECONDS": "3",
            "HEADWATER_SYNC_VERIFY_SAMPLE_RATE": "1",
            **more,
        }

    def app(self, region: str, **more: str) -> App:
        """What a process of a region has."""
        return App(settings.load(environ=self.variables(region, **more)))

    def lake(self, region: str) -> Lake:
        """The lake, as a writer of the region opens it."""
        return self.app(region).open_lake(self.url, region=region)

    def said(self, region: str, *words: str, app: App | None = None) -> str:
        """A command in the region; what it prints."""
        command = cli.get_command(click.Context(cli), words[0])
        assert command is not None
        result = CliRunner().invoke(command, words[1:], obj=app or self.app(region))
        if result.exception is not None:
            raise result.exception
        return result.stdout

    def call(self, region: str, *words: str, app: App | None = None, after: str | None = None) -> dict[str, Any]:
        """A command of the lake in the region; what it says as JSON. `after` is a word that comes after the lake."""
        lake = [self.url] if after is None else [self.url, after]
        said = self.said(region, *words, *lake, "--region", region, "--json", app=app)
        answer: dict[str, Any] = json.loads(said)
        return answer

    def sync(self, region: str, app: App | None = None) -> list[dict[str, Any]]:
        """`sync run --once`: the runs."""
        runs: list[dict[str, Any]] = self.call(region, "sync", "run", app=app)["runs"]
        return runs

    @contextmanager
    def process(self, region: str, *words: str, **more: str) -> Iterator[subprocess.Popen[str]]:
        """A command of the lake in a process of its own, which ends with the block."""
        environ = {**settings.environment(), **self.variables(region, **more)}
        command = [sys.executable, "-m", "headwater", *words, self.url, "--region", region]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=environ, stdout=pipe, stderr=pipe, text=True) as made:
            try:
                yield made
            finally:
                if made.poll() is None:
                    made.kill()

    def readers(self, region: str, spark: SparkSession) -> Readers:
        """Engines, told what `connect` prints for the region."""
        printed = {
            engine: self.said(region, "connect", self.url, "--region", region, "--engine", engine) for engine in ENGINES
        }
        session = spark.newSession()  # which has catalogs of its own
        for line in printed["spark"].splitlines():
            key, value = line.split(maxsplit=1)
            if key != "spark.sql.extensions":  # it is static, and the session has it
                session.conf.set(key, value)
        return Readers(printed, session, self.s3)

    def main(self, table: str) -> list[Row]:
        """What PyIceberg reads of `main` at the write endpoint."""
        return rows_of(self.topology.rest("nessie").load_table(table).scan().to_arrow())

    @contextmanager
    def without_other_buckets(self, region: str) -> Iterator[None]:
        """While the block lasts, the S3 server has no bucket but the region's."""
        data = Path(self.s3.log).parent / "s3" / "data"
        gone = [each for each in data.iterdir() if each.is_dir() and each.name != devservices.bucket_of(region)]
        away = data.with_name("away")
        away.mkdir()
        try:
            for each in gone:
                each.rename(away / each.name)
            yield
        finally:
            for each in gone:
                (away / each.name).rename(each)
            away.rmdir()


@dataclass(frozen=True)
class Readers:
    """Engines of one region: what they were told, and Spark's session."""

    printed: dict[str, str]
    session: SparkSession
    s3: Endpoint

    def rows(self, engine: str, table: str) -> list[Row]:
        """What an engine reads of the replica's table."""
        match engine:
            case "pyiceberg":
                told = yaml.safe_load(self.printed[engine])["catalog"]["headwater"]
                return rows_of(load_catalog("headwater", **told).load_table(table).scan().to_arrow())
            case "duckdb":
                return self._by_duckdb(table)
            case _:
                self.session.sql(f"refresh table headwater.{table}")
                return normal(self.session.sql(f"select * from headwater.{table}").collect())

    def _by_duckdb(self, table: str) -> list[Row]:
        with duckdb.connect() as connection:
            for statement in self.printed["duckdb"].splitlines():
                if not statement.startswith("INSTALL"):  # it is there, and would be fetched
                    connection.execute(self._with_keys(statement))
            return normal(connection.execute(f"select * from headwater.{table}").fetchall())

    def _with_keys(self, statement: str) -> str:
        """DuckDB's extension that finds keys where AWS programs do is no package: they are given by hand."""
        keys = f"PROVIDER config, KEY_ID '{self.s3.access_key_id}', SECRET '{self.s3.secret_access_key}'"
        return statement.replace("PROVIDER credential_chain", keys)
