"""Start, stop and look at the services of a folder: which ones, in which order, under the folder's lock."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from headwater.devservices import postgres, processes, replication, state, supervise, users
from headwater.devservices.etcd import Etcd
from headwater.devservices.model import Endpoint, Place, Record, Server
from headwater.devservices.moto import Moto
from headwater.devservices.nessie import Nessie
from headwater.devservices.postgres import Postgres
from headwater.devservices.s3 import S3
from headwater.kernel import settings
from headwater.kernel.clock import Clock, SystemClock
from headwater.kernel.errors import UnavailableError, UsageError
from headwater.kernel.randomness import Randomness, system_randomness

# In the order in which they start; each stands after what it needs.
_SERVERS: tuple[Server, ...] = (Postgres(), Etcd(), S3(), Moto(), Nessie())
# Those that a region may have one of as well, named `kind@region`; in the same order, and after all the others.
_REGIONAL: dict[str, Callable[[str], Server]] = {"postgres": Postgres, "s3": S3, "nessie": Nessie}
_REGION = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_REGION_LENGTH = 40  # it is part of a bucket's name, and of a replication slot's
# Moto answers like S3 but is not safe under races: it is for tests that ask for it by name.
DEFAULT = ("postgres", "etcd", "s3", "nessie")


def names() -> tuple[str, ...]:
    """Every service there is, those of regions apart."""
    return tuple(server.name for server in _SERVERS)


def regional_names(regions: Sequence[str]) -> tuple[str, ...]:
    """The read plane of these regions: a PostgreSQL and a Nessie for each. What they need comes with them."""
    for region in regions:
        if not _REGION.fullmatch(region) or len(region) > _REGION_LENGTH:
            raise UsageError(
                f"{region!r} is no name of a region",
                hint=f"use lower-case words joined by hyphens, as in eu-central, and at most {_REGION_LENGTH} letters",
                region=region,
            )
    return tuple(f"{kind}@{region}" for region in dict.fromkeys(regions) for kind in ("postgres", "nessie"))


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
    check_names(services or ())
    clock = clock or SystemClock()
    folder = folder.absolute()
    if not (folder / state.IDENTITY).exists():
        return ()
    try:
        return _down(folder, services, purge=purge, clock=clock)
    except FileNotFoundError:
        if folder.exists():
            raise
        return ()  # another `down --purge` was faster


def _down(folder: Path, services: Sequence[str] | None, *, purge: bool, clock: Clock) -> tuple[str, ...]:
    stopped = []
    with state.locked(folder / state.LOCK, clock):
        identity = state.read_identity(folder)
        if identity is None:
            return ()
        place = Place(folder, folder, {}, identity, clock)
        records = state.read_state(folder, identity)
        for server in reversed(_with_dependents(services, _known(folder, records))):
            record = records.get(server.name)
            if record is not None and record.process is not None:
                if processes.is_alive(record.process):
                    processes.stop(record.process, server.stop_signal, clock)
                    stopped.append(server.name)
                records[server.name] = replace(record, process=None)
                state.write_state(folder, records)
            if purge:
                _purge(server, place)
                _forget_region(server, place, records)
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
        for server in _known(folder, records)
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


def _forget_region(server: Server, place: Place, records: Mapping[str, Record]) -> None:
    """Tell the primary, if it runs, that a region's copy is gone."""
    primary = records.get(postgres.SERVICE)
    if not isinstance(server, Postgres) or server.region is None or primary is None or primary.process is None:
        return
    with contextlib.suppress(UnavailableError):  # then it is going as well, or is told by the region's next `up`
        replication.forget(place, primary.ports[0], server.region)


def _named(services: Iterable[str]) -> Iterator[Server]:
    by_name = {server.name: server for server in _SERVERS}
    for name in services:
        kind, at, region = name.partition("@")
        if at and kind in _REGIONAL:
            regional_names([region])  # refuses a region that is none
            yield _REGIONAL[kind](region)
        elif name in by_name:
            yield by_name[name]
        else:
            near = get_close_matches(name, by_name, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(by_name)}"
            raise UsageError(f"there is no service {name!r}", hint=hint, service=name)


def _start_order(server: Server) -> tuple[bool, int, str]:
    kind, at, region = server.name.partition("@")
    return bool(at), names().index(kind), region


def _with_needs(services: Sequence[str]) -> tuple[Server, ...]:
    wanted: dict[str, Server] = {}
    waiting = list(_named(services))
    while waiting:
        server = waiting.pop()
        if server.name not in wanted:
            wanted[server.name] = server
            waiting.extend(_named(server.needs))
    return tuple(sorted(wanted.values(), key=_start_order))


def _known(folder: Path, records: Mapping[str, Record]) -> tuple[Server, ...]:
    """Every service that can have something here: by its record, or by what an `up` left that died before it."""
    entries = (entry.name.removesuffix(".log").removesuffix(".trash") for entry in folder.iterdir())
    regional = {name for name in (*records, *entries) if "@" in name and name.partition("@")[0] in _REGIONAL}
    return tuple(sorted((*_SERVERS, *_named(regional)), key=_start_order))


def _with_dependents(services: Sequence[str] | None, known: Sequence[Server]) -> tuple[Server, ...]:
    if services is None:
        return tuple(known)
    chosen = set(services)
    for server in known:
        if chosen.intersection(server.needs):
            chosen.add(server.name)
    return tuple(server for server in known if server.name in chosen)
