"""Make one server run, whatever state the last attempt left it in.

Invariants: every process that we ever started is in the state file before it becomes a server, or dies; a process is
signalled only when its pid and its start time are the recorded ones; an endpoint is returned only after the recorded
process itself holds the port and has answered in its own protocol.

What a crash of `up` leaves behind, and what the next `up` makes of it:

    before the record is written     the process sees its gate close and exits: nothing
    record written, gate closed      the same; the record points at a dead process, which is started again
    gate open, not healthy yet       a server that is coming up: it is waited for, not started twice
    data half made                   it has a temporary name: it is removed and made again
"""

from __future__ import annotations

import signal
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path

from headwater.devservices import processes, state
from headwater.devservices.model import Command, Endpoint, Place, ProcessMark, Record, Server
from headwater.kernel.errors import HeadwaterError, UnavailableError
from headwater.kernel.logs import Log, scrub

_ATTEMPTS = 4
_HICCUP_SECONDS = 5.0
_POLL_SECONDS = 0.05
# What of our own environment a server may see.
_PASSED_ON = ("PATH", "HOME", "LANG", "TZ", "TMPDIR")
_log = Log("devservices")


def observe(server: Server, place: Place, record: Record) -> Endpoint:
    """How one service is now."""
    if record.process is not None and not processes.is_alive(record.process):
        record = replace(record, process=None)
    return server.endpoint(place, record, healthy=_why_unhealthy(server, place, record) is None)


def ensure(
    server: Server,
    place: Place,
    records: dict[str, Record],
    *,
    parent_bound: bool,
) -> Endpoint:
    """Make one service run, and return when it has answered; `records` is kept equal to the state file."""
    record = records.get(server.name)
    if record is not None and record.process is not None and processes.is_alive(record.process):
        # It may be coming up still; one that had its time gets a moment for a hiccup, and no more.
        left_seconds = server.start_seconds - processes.age_seconds(record.process)
        if record.needed_ports == _needed_ports(server, place) and (
            _await(server, place, record, max(left_seconds, _HICCUP_SECONDS)) is None
        ):
            state.write_state(place.folder, records)
            return server.endpoint(place, record, healthy=True)
        _log.warning("a service hangs, or what it needs has moved; it is started again", service=server.name)
        processes.stop(record.process, server.stop_signal, place.clock)
    server.prepare(place)
    reason = "it was not tried"
    for attempt in range(_ATTEMPTS):
        keep = attempt == 0 and record is not None and all(map(processes.is_free, record.ports))
        ports = record.ports if keep and record is not None else _free_ports(server.port_count)
        record = _start(server, place, records, ports, server.death_signal if parent_bound else None)
        failure = _await(server, place, record, server.start_seconds)
        if failure is None:
            _log.info("a service runs", service=server.name, pid=record.process and record.process.pid, port=ports[0])
            return server.endpoint(place, record, healthy=True)
        reason = failure
        if record.process is not None and processes.is_alive(record.process):
            processes.stop(record.process, server.stop_signal, place.clock)
            break
        if all(map(processes.is_free, ports)):
            break  # nobody took a port from it: it would fail again
        _log.warning("a service lost its port to another program", service=server.name, attempt=attempt + 1)
    log = place.log_of(server.name)
    raise UnavailableError(
        f"{server.name} does not start: {reason}", hint=f"its log is {log}", service=server.name, log=str(log)
    )


def _start(
    server: Server,
    place: Place,
    records: dict[str, Record],
    ports: tuple[int, ...],
    death_signal: signal.Signals | None,
) -> Record:
    command = server.command(place, ports)
    environ = {name: place.environ[name] for name in _PASSED_ON if name in place.environ}
    needed_ports = _needed_ports(server, place)
    mark = state.mark_for(place.identity, server.name, ports, needed_ports)
    environ |= {**command.environ, processes.MARK: mark}

    def recorded(process: ProcessMark) -> None:
        records[server.name] = Record(server.name, ports, needed_ports, process)
        state.write_state(place.folder, records)

    full = Command(command.argv, command.cwd, environ, command.user)
    processes.start(full, place.log_of(server.name), recorded, death_signal)
    return records[server.name]


def _await(server: Server, place: Place, record: Record, patience_seconds: float) -> str | None:
    """Wait until the service is healthy; `None`, or the reason why it is not."""
    deadline = place.clock.monotonic() + patience_seconds
    while True:
        reason = _why_unhealthy(server, place, record)
        if reason is None:
            return None
        if record.process is None or not processes.is_alive(record.process):
            return f"the process ended ({_last_line(place.log_of(server.name))})"
        if place.clock.monotonic() > deadline:
            return f"no healthy answer within {patience_seconds:.0f} s ({reason})"
        place.clock.sleep(_POLL_SECONDS)


def _why_unhealthy(server: Server, place: Place, record: Record) -> str | None:
    if record.process is None or not processes.is_alive(record.process):
        return "it does not run"
    if not processes.listens(record.process.pid, record.ports[0]):
        return f"it does not listen on port {record.ports[0]}"
    try:
        server.check(place, record.ports)
    except (OSError, HTTPException, ValueError, HeadwaterError) as error:
        return scrub(str(error))
    return None


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return "no log"
    return scrub(next((line.strip() for line in reversed(lines) if line.strip()), "nothing in its log"))[:300]


def _needed_ports(server: Server, place: Place) -> tuple[int, ...]:
    return tuple(place.running[name].port for name in server.needs)


def _free_ports(count: int) -> tuple[int, ...]:
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(processes.free_port())
    return tuple(ports)
