"""What a service is, where it runs, and what a caller gets to know about it."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from headwater.kernel.clock import Clock


@dataclass(frozen=True)
class Endpoint:
    """How to reach one service. `pid` is `None` when it does not run."""

    name: str
    pid: int | None
    port: int
    url: str = field(repr=False)
    healthy: bool
    log: Path
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    region: str | None = None
    bucket: str | None = None

    def as_json(self) -> dict[str, object]:
        """Everything, connection secrets included: the shape of `devservices status --json`."""
        shape: dict[str, object] = {
            "name": self.name,
            "pid": self.pid,
            "port": self.port,
            "url": self.url,
            "healthy": self.healthy,
            "log": str(self.log),
        }
        if self.access_key_id is not None:
            shape |= {"access_key_id": self.access_key_id, "secret_access_key": self.secret_access_key}
        optional = {"region": self.region, "bucket": self.bucket}
        return shape | {name: value for name, value in optional.items() if value is not None}


def service_name(kind: str, region: str | None) -> str:
    """The name of a service: of its kind alone, or of its kind at a region."""
    return kind if region is None else f"{kind}@{region}"


@dataclass(frozen=True)
class ProcessMark:
    """A process that cannot be mistaken for another: a pid may be used again, its start on this boot may not."""

    pid: int
    start_ticks: int
    boot: str


@dataclass(frozen=True)
class Record:
    """What the state file knows of one service: its ports for life, and its process while it has one.

    `needed_ports` are those at which the process was told to find what it needs.
    """

    name: str
    ports: tuple[int, ...]
    needed_ports: tuple[int, ...]
    process: ProcessMark | None


@dataclass(frozen=True)
class Identity:
    """Made once for a folder and never changed: its name among processes, and the secrets of its servers."""

    id: str
    password: str = field(repr=False)
    access_key_id: str
    secret_access_key: str = field(repr=False)


@dataclass(frozen=True)
class Place:
    """Where services run, and what they may lean on."""

    folder: Path
    cache: Path
    environ: Mapping[str, str] = field(repr=False)
    identity: Identity
    clock: Clock
    running: Mapping[str, Endpoint] = field(default_factory=dict)

    def of(self, name: str) -> Path:
        """The folder of one service."""
        return self.folder / name

    def log_of(self, name: str) -> Path:
        """Where one service's output goes. Outside its own folder, so that it outlives a reset of its data."""
        return self.folder / f"{name}.log"


def http_endpoint(
    name: str,
    place: Place,
    record: Record,
    *,
    healthy: bool,
    with_keys: bool = False,
    region: str | None = None,
    bucket: str | None = None,
) -> Endpoint:
    """The endpoint of a server that speaks HTTP on its first port."""
    return Endpoint(
        name=name,
        pid=record.process.pid if record.process else None,
        port=record.ports[0],
        url=f"http://127.0.0.1:{record.ports[0]}",
        healthy=healthy,
        log=place.log_of(name),
        access_key_id=place.identity.access_key_id if with_keys else None,
        secret_access_key=place.identity.secret_access_key if with_keys else None,
        region=region,
        bucket=bucket,
    )


@dataclass(frozen=True)
class Command:
    """A program to run; `user` is (uid, gid) when it must not run as us."""

    argv: tuple[str, ...]
    cwd: Path
    environ: Mapping[str, str] = field(repr=False)
    user: tuple[int, int] | None = None


class Server(Protocol):
    """One kind of server. Everything about order, ports, state and retries is elsewhere."""

    name: str
    needs: tuple[str, ...]
    port_count: int
    start_seconds: float
    stop_signal: signal.Signals
    death_signal: signal.Signals

    def prepare(self, place: Place) -> None:
        """Make what must be there before the process starts; safe to repeat, and after a crash in the middle."""
        ...

    def command(self, place: Place, ports: tuple[int, ...], /) -> Command:
        """The process to run."""
        ...

    def check(self, place: Place, ports: tuple[int, ...], /) -> None:
        """Speak the server's own protocol with it; raises when the answer is not the right one."""
        ...

    def endpoint(self, place: Place, record: Record, *, healthy: bool) -> Endpoint:
        """What a caller gets."""
        ...

    def belongings(self, place: Place) -> tuple[Path, ...]:
        """The folders that are removed with the service's data."""
        ...
