"""Processes that outlive their starter, known by pid and start time, found again by a mark in their environment."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headwater.devservices.model import Command, ProcessMark
from headwater.kernel.clock import Clock
from headwater.kernel.errors import UnavailableError

MARK = "DEVSERVICES_MARK"
_LAUNCHER = Path(__file__).with_name("launch.py")
_PROC = Path("/proc")
_STEP_SECONDS = 0.02


@dataclass(frozen=True)
class Stat:
    """The few fields of `/proc/<pid>/stat` that matter here."""

    state: str
    parent: int
    group: int
    start_ticks: int


def stat_of(pid: int) -> Stat | None:
    """The process's state, or `None` when there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command name stands in parentheses and may hold anything, parentheses included.
    fields = text.rpartition(")")[2].split()
    return Stat(state=fields[0], parent=int(fields[1]), group=int(fields[2]), start_ticks=int(fields[19]))


def mark_of(pid: int) -> ProcessMark | None:
    """The identity of a running process."""
    stat = stat_of(pid)
    if stat is None:
        return None
    boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ProcessMark(pid, stat.start_ticks, boot)


def is_alive(process: ProcessMark) -> bool:
    """Whether exactly this process still runs; one that only waits to be reaped does not."""
    _reap(process.pid)
    stat = stat_of(process.pid)
    return stat is not None and stat.state not in "ZX" and mark_of(process.pid) == process


def age_seconds(process: ProcessMark) -> float:
    """How long ago the process was started on this boot."""
    uptime = float((_PROC / "uptime").read_text(encoding="ascii").split()[0])
    return uptime - process.start_ticks / os.sysconf("SC_CLK_TCK")


def start(
    command: Command, log: Path, recorded: Callable[[ProcessMark], None], death_signal: signal.Signals | None
) -> ProcessMark:
    """Start `command` behind a gate, let `recorded` note it durably, then open the gate.

    With a `death_signal` the process gets that signal when the calling *thread* ends, however it ends.
    """
    read_end, write_end = os.pipe()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        pid = os.posix_spawn(
            sys.executable,
            # -I and -S: nothing of the environment or of site-packages is loaded.
            [sys.executable, "-I", "-S", str(_LAUNCHER)],
            command.environ,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, read_end, 0),
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
            ],
        )
        process = mark_of(pid)
        assert process is not None  # it is our child and nobody has reaped it
        recorded(process)
        order = {
            "argv": command.argv,
            "cwd": str(command.cwd),
            "uid": command.user[0] if command.user else None,
            "gid": command.user[1] if command.user else None,
            "death_signal": None if death_signal is None else int(death_signal),
            "parent": os.getpid(),
        }
        with suppress(BrokenPipeError):  # it is dead already; whoever waits for it will see that
            os.write(write_end, json.dumps(order).encode() + b"\n")
        return process
    finally:
        for descriptor in (read_end, write_end, output):
            os.close(descriptor)


def run(command: Command, log: Path) -> int:
    """Run `command` to its end, and not beyond ours; its exit status."""
    process = start(command, log, lambda _: None, signal.SIGKILL)
    try:
        _, status = os.waitpid(process.pid, 0)
    except BaseException:
        os.kill(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)
        raise
    return os.waitstatus_to_exitcode(status)


def stop(process: ProcessMark, how: signal.Signals, clock: Clock, patience_seconds: float = 10.0) -> None:
    """Ask the process's group to end, then make it; does nothing unless it is exactly this process."""
    for signal_number, seconds in ((how, patience_seconds), (signal.SIGKILL, patience_seconds)):
        if not is_alive(process):
            break
        _signal_group(process.pid, signal_number)
        deadline = clock.monotonic() + seconds
        while is_alive(process) and clock.monotonic() < deadline:
            clock.sleep(_STEP_SECONDS)
    else:
        if is_alive(process):
            raise UnavailableError(f"process {process.pid} does not end, not even by SIGKILL", pid=process.pid)


def _signal_group(pid: int, how: signal.Signals) -> None:
    stat = stat_of(pid)
    if stat is None:
        return
    try:
        if stat.group == pid:
            os.killpg(pid, how)
        else:  # the launcher has not made its session yet
            os.kill(pid, how)
    except ProcessLookupError:
        pass


def _reap(pid: int) -> None:
    with suppress(ChildProcessError):  # not our child: its own parent, or init, reaps it
        os.waitpid(pid, os.WNOHANG)


def marked(prefix: str) -> Iterator[tuple[str, ProcessMark]]:
    """Processes whose mark begins with `prefix`, with the rest of the mark; children of a marked one are left out."""
    wanted = f"{MARK}={prefix}".encode()
    found: dict[int, tuple[str, Stat]] = {}
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            environ = (entry / "environ").read_bytes()
        except OSError:
            continue  # gone, or somebody else's
        for pair in environ.split(b"\0"):
            stat = stat_of(int(entry.name)) if pair.startswith(wanted) else None
            if stat is not None and stat.state not in "ZX":
                found[int(entry.name)] = (pair[len(wanted) :].decode(), stat)
    for pid, (rest, stat) in sorted(found.items()):
        process = mark_of(pid)
        if stat.parent not in found and process is not None:
            yield rest, process


def any_in(folder: Path) -> bool:
    """Whether any process has `folder` as its working folder, or may have it, for all that we can see."""
    wanted, owner = str(folder.resolve()), folder.stat().st_uid
    for entry in _PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            if str((entry / "cwd").readlink()) == wanted:
                return True
        except PermissionError:
            if _owner(int(entry.name)) == owner:
                return True
        except OSError:
            continue  # gone
    return False


def free_port() -> int:
    """A loopback port that was free a moment ago; whoever uses it must be ready to lose it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Whether a server could bind this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def listens(pid: int, port: int) -> bool:
    """Whether the listener on `port` is this very process, and not somebody who took the port before it."""
    inodes, owners = set(), set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
                owners.add(int(fields[7]))
    try:
        descriptors = list((_PROC / str(pid) / "fd").iterdir())
    except PermissionError:
        # Root without the right to trace (a container's root) sees no more than whose the listener is.
        return _owner(pid) in owners
    except OSError:
        return False
    return any(_link(descriptor) in inodes for descriptor in descriptors)


def _owner(pid: int) -> int | None:
    try:
        return (_PROC / str(pid)).stat().st_uid
    except OSError:
        return None


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""
