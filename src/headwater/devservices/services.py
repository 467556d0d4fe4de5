"""Start, stop and look at the services of a folder: which ones, in which order, under the folder's lock."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from headwater.devservices import processes, state, supervise, users
from headwater.devservices.etcd import Etcd
from headwater.devservices.model import Endpoint, Place, Server
from headwater.devservices.moto import Moto
from headwater.devservices.nessie import Nessie
from headwater.devservices.postgres import Postgres
from headwater.devservices.s3 import S3
from headwater.kernel import settings
from headwater.kernel.clock import Clock, SystemClock
from headwater.kernel.errors import UsageError
from headwater.kernel.randomness import Randomness, system_randomness

# In the order in which they start; each stands after what it needs.
_SERVERS: tuple[Server, ...] = (Postgres(), Etcd(), S3(), Moto(), Nessie())
# Moto answers like S3 but is not safe under races: it is for tests that ask for it by name.
DEFAULT = ("postgres", "etcd", "s3", "nessie")


def names() -> tuple[str, ...]:
    """Every service there is."""
    return tuple(server.name for server in _SERVERS)


def check_names(services: Sequence[str]) -> None:
    """Refuse a name that is no service, with the nearest one that is."""
    for _ in _named(services):
        pass


def up(
    services: Sequence[str],
    folder: Path,
    *,
    parent_bound: bool = False,
    cache: Path | None = None,
    clock: Clock | None = None,
    randomness: Randomness | None = None,
    environ: Mapping[str, str] | None = None,
) -> Mapping[str, Endpoint]:
    """Make these services, and those that they need, run in `folder`; returns when each has answered.

    What runs already stays as it is, with the same endpoint; what died is started again on its data, and on its
    port if that is free. With `parent_bound` the servers that are started now die with the calling thread.
    """
    wanted = _with_needs(services)
    clock = clock or SystemClock()
    environ = settings.environment() if environ is None else environ
    folder = folder.absolute()
    with contextlib.suppress(FileExistsError):  # another `up` may be making it at the same moment
        folder.mkdir(parents=True)
        folder.chmod(0o711)  # others may pass through to the data that is theirs, and see nothing
    with state.locked(folder / state.LOCK, clock):
        identity = state.ensure_identity(folder, clock, randomness or system_randomness())
        place = Place(folder, cache or settings.cache_folder(environ), environ, identity, clock)
        records = state.read_state(folder, identity)
        endpoints: dict[str, Endpoint] = {}
        for server in wanted:
            endpoints[server.name] = supervise.ensure(
                server, replace(place, running=endpoints), records, parent_bound=parent_bound
            )
    return endpoints


def down(
    folder: Path, services: Sequence[str] | None = None, *, purge: bool = False, clock: Clock | None = None
) -> tuple[str, ...]:
    """Stop these services (all by default) and those that need them; returns the names of those that ran.

    With `purge` their data is removed too, and with the last of them the folder.
    """
    chosen = _with_dependents(services)
    clock = clock or SystemClock()
    folder = folder.absolute()
    if not (folder / state.IDENTITY).exists():
        return ()
    try:
        return _down(folder, chosen, purge=purge, clock=clock)
    except FileNotFoundError:
        if folder.exists():
            raise
        return ()  # another `down --purge` was faster


def _down(folder: Path, chosen: Sequence[Server], *, purge: bool, clock: Clock) -> tuple[str, ...]:
    stopped = []
    with state.locked(folder / state.LOCK, clock):
        identity = state.read_identity(folder)
        if identity is None:
            return ()
        place = Place(folder, folder, {}, identity, clock)
        records = state.read_state(folder, identity)
        for server in reversed(chosen):
            record = records.get(server.name)
            if record is not None and record.process is not None:
                if processes.is_alive(record.process):
                    processes.stop(record.process, server.stop_signal, clock)
                    stopped.append(server.name)
                records[server.name] = replace(record, process=None)
                state.write_state(folder, records)
            if purge:
                _purge(server, place)
                records.pop(server.name, None)
                state.write_state(folder, records)
        if purge and not records:
            state.remove(folder)
    return tuple(stopped)


def status(folder: Path, *, clock: Clock | None = None) -> Mapping[str, Endpoint]:
    """The services of `folder`: one without a pid is down, one that does not answer is not healthy."""
    folder = folder.absolute()
    identity = state.read_identity(folder)
    if identity is None:
        return {}
    place = Place(folder, folder, {}, identity, clock or SystemClock())
    records = state.read_state(folder, identity)
    return {
        server.name: supervise.observe(server, place, records[server.name])
        for server in _SERVERS
        if server.name in records
    }


def _purge(server: Server, place: Place) -> None:
    for path in server.belongings(place):
        trash = path.with_name(f"{path.name}.trash")
        if trash.exists():  # of a purge that was cut short
            shutil.rmtree(trash)
        if path.exists():
            path.rename(trash)  # first, so that half of a removed cluster is never taken for a cluster
            shutil.rmtree(trash)
    place.log_of(server.name).unlink(missing_ok=True)
    users.forget_place(place.folder, place.identity.id)


def _named(services: Sequence[str]) -> Iterator[Server]:
    by_name = {server.name: server for server in _SERVERS}
    for name in services:
        if name not in by_name:
            near = get_close_matches(name, by_name, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(by_name)}"
            raise UsageError(f"there is no service {name!r}", hint=hint, service=name)
        yield by_name[name]


def _with_needs(services: Sequence[str]) -> tuple[Server, ...]:
    wanted = {server.name for server in _named(services)}
    for server in reversed(_SERVERS):
        if server.name in wanted:
            wanted.update(server.needs)
    return tuple(server for server in _SERVERS if server.name in wanted)


def _with_dependents(services: Sequence[str] | None) -> tuple[Server, ...]:
    if services is None:
        return _SERVERS
    chosen = {server.name for server in _named(services)}
    for server in _SERVERS:
        if chosen.intersection(server.needs):
            chosen.add(server.name)
    return tuple(server for server in _SERVERS if server.name in chosen)
