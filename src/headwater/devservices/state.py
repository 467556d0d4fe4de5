"""The durable files of a devservices folder.

    identity.json   made once, never rewritten: the folder's id and the secrets of its servers
    state.json      ports and processes; replaced atomically, and only while `lock` is held
    lock            held by whoever changes anything

`state.json` may be lost without harm: the running processes carry the folder's id, the service's name and its
ports in their environment, so the state is found again among them.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from headwater.devservices import processes
from headwater.devservices.model import Identity, ProcessMark, Record
from headwater.kernel.clock import Clock
from headwater.kernel.errors import CorruptError, RefusedError, UnavailableError
from headwater.kernel.ids import new_ulid
from headwater.kernel.logs import Log
from headwater.kernel.randomness import Randomness

IDENTITY = "identity.json"
STATE = "state.json"
LOCK = "lock"
_log = Log("devservices")


@contextmanager
def locked(path: Path, clock: Clock, patience_seconds: float = 600.0) -> Iterator[None]:
    """Hold the lock file at `path`; waits for another holder, whose death frees it."""
    deadline = clock.monotonic() + patience_seconds
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A purge may have removed the file while we waited: then the lock that we got locks nothing.
            if path.exists() and path.stat().st_ino == os.fstat(descriptor).st_ino:
                break
        except BlockingIOError:
            if clock.monotonic() > deadline:
                os.close(descriptor)
                raise UnavailableError(
                    f"somebody else has held {path} for {patience_seconds:.0f} s", path=str(path)
                ) from None
        os.close(descriptor)
        clock.sleep(0.05)
    try:
        yield
    finally:
        os.close(descriptor)


def write_durably(path: Path, shape: Mapping[str, object]) -> None:
    """Replace a file so that after any crash it is the old one or the new one; readable by its owner alone."""
    temporary = path.with_name(f"{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(shape, stream, indent=1)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    parent = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def read_identity(folder: Path) -> Identity | None:
    """Who this folder is, or `None` when no service was ever started in it."""
    path = folder / IDENTITY
    try:
        return Identity(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        raise CorruptError(
            f"{path} is damaged, and the passwords of the services with it",
            hint="stop the services and remove the folder",
            path=str(path),
        ) from None


def ensure_identity(folder: Path, clock: Clock, randomness: Randomness) -> Identity:
    """The folder's identity, made now if it is new; a folder with anything else in it is refused."""
    known = read_identity(folder)
    if known is not None:
        return known
    strangers = sorted(entry.name for entry in folder.iterdir() if entry.name not in (LOCK, f"{IDENTITY}.new"))
    if strangers:
        raise RefusedError(
            f"{folder} holds {strangers[0]!r} and is no folder of devservices",
            hint="name an empty or a new folder",
            path=str(folder),
        )
    identity = Identity(
        id=new_ulid(clock, randomness),
        password=randomness.randbytes(18).hex(),
        access_key_id=f"HW{randomness.randbytes(8).hex().upper()}",
        secret_access_key=randomness.randbytes(20).hex(),
    )
    write_durably(folder / IDENTITY, asdict(identity))
    return identity


def write_state(folder: Path, records: Mapping[str, Record]) -> None:
    """Replace the state."""
    write_durably(folder / STATE, {"version": 1, "services": [asdict(record) for record in records.values()]})


def read_state(folder: Path, identity: Identity) -> dict[str, Record]:
    """What runs here: the state file, corrected by the processes that carry this folder's mark."""
    records = _read_file(folder / STATE)
    for rest, process in processes.marked(f"{identity.id}/"):
        name, ports, needed_ports = rest.split("/")
        known = records.get(name)
        if known is None or known.process is None or not processes.is_alive(known.process):
            records[name] = Record(name, _ports(ports), _ports(needed_ports), process)
    return records


def remove(folder: Path) -> None:
    """Remove the folder's own files, the lock last, and the folder if nothing else is in it."""
    for name in (STATE, f"{STATE}.new", IDENTITY, f"{IDENTITY}.new", LOCK):
        (folder / name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def mark_for(identity: Identity, name: str, ports: Iterable[int], needed_ports: Iterable[int]) -> str:
    """What a server's environment says of it, enough to write its record again."""
    return f"{identity.id}/{name}/{','.join(map(str, ports))}/{','.join(map(str, needed_ports))}"


def _ports(text: str) -> tuple[int, ...]:
    return tuple(int(port) for port in text.split(",") if port)


def _read_file(path: Path) -> dict[str, Record]:
    try:
        shape = json.loads(path.read_text(encoding="utf-8"))
        if shape["version"] != 1:
            raise CorruptError(f"{path} was written by a newer version", path=str(path))
        return {
            each["name"]: Record(
                each["name"],
                tuple(int(port) for port in each["ports"]),
                tuple(int(port) for port in each["needed_ports"]),
                ProcessMark(**each["process"]) if each["process"] else None,
            )
            for each in shape["services"]
        }
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError):
        _log.warning("the state file is damaged; it is rebuilt from the running processes", path=str(path))
        return {}
