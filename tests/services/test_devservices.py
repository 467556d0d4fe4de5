"""Real servers, killed and healed. Each test has a folder of its own, so that none can hide another's leftovers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from click.testing import CliRunner

from headwater import devservices
from headwater.cli.devservices import devservices as command
from headwater.devservices import loopback, processes, signing, state
from headwater.devservices.model import ProcessMark, Record
from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import RefusedError, UsageError

pytestmark = [pytest.mark.services, pytest.mark.proves("devservices")]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Below pytest's own folder, which only its owner can enter: hard for a server that runs as another user."""
    chosen = tmp_path / "services"
    try:
        yield chosen
    finally:
        devservices.down(chosen, purge=True)
        assert not chosen.exists()


def marked(folder: Path) -> list[ProcessMark]:
    """Every process, in the state file or not, that was started for this folder."""
    identity = state.read_identity(folder)
    return [process for _, process in processes.marked(identity.id)] if identity else []


def query(url: str, statement: str) -> object:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def until(condition: object, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    assert callable(condition)
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_postgres_is_healed_keeps_its_data_and_is_never_root(folder: Path) -> None:
    first = devservices.up(["postgres"], folder, parent_bound=True)["postgres"]
    assert first.healthy
    assert first.pid is not None
    assert psutil.Process(first.pid).uids().real != 0
    assert devservices.up(["postgres"], folder)["postgres"] == first

    query(first.url, "CREATE TABLE kept (a int)")
    query(first.url, "INSERT INTO kept VALUES (42)")
    assert query(first.url, "SHOW wal_level") == "logical"
    assert query(first.url, "SHOW fsync") == "on"

    os.kill(first.pid, signal.SIGKILL)
    until(lambda: not devservices.status(folder)["postgres"].healthy)
    second = devservices.up(["postgres"], folder, parent_bound=True)["postgres"]
    assert (second.url, second.healthy) == (first.url, True)
    assert second.pid != first.pid
    assert query(second.url, "SELECT a FROM kept") == 42
    assert len(marked(folder)) == 1

    # A port that somebody else took meanwhile, and a lock file whose pid is in use again, by ourselves:
    # the server moves, and its data with it.
    data = Path(f"/proc/{second.pid}/cwd").readlink()
    devservices.down(folder)
    (data / "postmaster.pid").write_text(f"{os.getpid()}\n{data}\n1\n{first.port}\n\n127.0.0.1\n")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", first.port))
        taken.listen()
        moved = devservices.up(["postgres"], folder, parent_bound=True)["postgres"]
    assert moved.port != first.port
    assert query(moved.url, "SELECT a FROM kept") == 42


def test_a_damaged_state_file_costs_nothing(folder: Path) -> None:
    before = devservices.up(["etcd"], folder, parent_bound=True)
    path = folder / state.STATE
    for damage in (path.read_text()[:20], "", "[]", '{"version": 1, "services": [{}]}'):
        path.write_text(damage)
        assert devservices.status(folder) == before
        assert devservices.up(["etcd"], folder, parent_bound=True) == before
        assert len(marked(folder)) == 1
    path.unlink()
    assert devservices.down(folder) == ("etcd",)
    assert marked(folder) == []


CHILD = """
import os, signal, sys
from pathlib import Path
from headwater import devservices
from headwater.devservices import processes, state

steps = int(sys.argv[2])

def counted(function):
    def call(*arguments, **named):
        global steps
        result = function(*arguments, **named)
        steps -= 1
        if steps == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return call

# Die after the n-th of these: files written, processes spawned, gates opened, servers asked.
os.posix_spawn = counted(os.posix_spawn)
os.write = counted(os.write)
state.write_durably = counted(state.write_durably)
processes.listens = counted(processes.listens)
devservices.up(["etcd"], Path(sys.argv[1]))
print("survived")
"""


def test_up_may_be_killed_anywhere(folder: Path) -> None:
    # identity, spawn, state, gate, the first question: the steps of an `up` in their order.
    for step in range(1, 6):
        done = subprocess.run([sys.executable, "-c", CHILD, str(folder), str(step)], capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
        endpoint = devservices.up(["etcd"], folder, parent_bound=True)["etcd"]
        assert loopback.get(endpoint.port, "/health").status == 200
        # One whose gate was closed needs a moment to notice.
        until(lambda: len(marked(folder)) == 1)
        devservices.down(folder, purge=True)
        assert not folder.exists()


def test_initdb_may_be_killed_in_the_middle(folder: Path) -> None:
    program = "import sys; from pathlib import Path; from headwater import devservices; "
    program += "devservices.up(['postgres'], Path(sys.argv[1]))"
    with subprocess.Popen([sys.executable, "-c", program, str(folder)]) as child:
        until(lambda: (folder / "postgres.log").exists() and "creating" in (folder / "postgres.log").read_text())
        child.kill()
    endpoint = devservices.up(["postgres"], folder, parent_bound=True)["postgres"]
    assert query(endpoint.url, "SELECT 1") == 1
    assert len(marked(folder)) == 1


def test_two_ups_at_once_start_one_server(folder: Path) -> None:
    program = "import sys; from pathlib import Path; from headwater import devservices; "
    program += "print(devservices.up(['etcd'], Path(sys.argv[1]))['etcd'].pid)"
    children = [
        subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert len({child.communicate()[0] for child in children}) == 1
    assert len(marked(folder)) == 1
    assert devservices.down(folder) == ("etcd",)
    stopped = devservices.status(folder)["etcd"]
    assert (stopped.pid, stopped.healthy) == (None, False)
    assert devservices.down(folder) == ()


def test_servers_die_with_a_killed_parent(folder: Path) -> None:
    program = "import os, signal, sys; from pathlib import Path; from headwater import devservices; "
    program += "devservices.up(['postgres', 'etcd', 'moto'], Path(sys.argv[1]), parent_bound=True); "
    program += "os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", program, str(folder)])
    # A process that is on its way out has lost its environment, and so its mark, before it is gone.
    until(lambda: [each.pid for each in devservices.status(folder).values()] == [None, None, None])
    assert marked(folder) == []


def test_down_leaves_strangers_alone(folder: Path) -> None:
    devservices.up(["etcd"], folder, parent_bound=True)
    with subprocess.Popen(["sleep", "60"]) as stranger:
        identity = state.read_identity(folder)
        assert identity is not None
        real = processes.mark_of(stranger.pid)
        assert real is not None
        records = state.read_state(folder, identity)
        lie = ProcessMark(stranger.pid, real.start_ticks - 1, real.boot)
        state.write_state(folder, {**records, "moto": Record("moto", (1,), (), lie)})
        assert devservices.status(folder)["moto"].pid is None
        assert devservices.down(folder) == ("etcd",)
        assert stranger.poll() is None
        stranger.kill()


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(RefusedError, match=r"thesis\.txt"):
        devservices.up(["etcd"], tmp_path)
    devservices.down(tmp_path, purge=True)
    assert (tmp_path / "thesis.txt").exists()


def test_the_s3_server_signs_and_keeps_buckets(folder: Path) -> None:
    endpoint = devservices.up(["s3"], folder, parent_bound=True)["s3"]
    devservices.create_bucket(endpoint, "first-bucket")
    devservices.create_bucket(endpoint, "first-bucket")
    assert endpoint.pid is not None
    os.kill(endpoint.pid, signal.SIGKILL)
    healed = devservices.up(["s3"], folder, parent_bound=True)["s3"]
    assert healed.access_key_id == endpoint.access_key_id
    assert (folder / "s3" / "data" / "first-bucket").is_dir()
    forged = signing.headers("GET", healed.port, "/", str(healed.access_key_id), "wrong", SystemClock())
    assert loopback.request("GET", healed.port, "/", forged).status == 403


@pytest.mark.java
def test_nessie_follows_a_postgres_that_moved(folder: Path) -> None:
    first = devservices.up(["nessie"], folder, parent_bound=True)
    assert set(first) == {"postgres", "s3", "nessie"}
    body = json.loads(loopback.get(first["nessie"].port, "/api/v2/trees/-").body)
    assert body["reference"]["name"] == "main"
    assert first["postgres"].pid is not None
    os.kill(first["postgres"].pid, signal.SIGKILL)
    until(lambda: processes.is_free(first["postgres"].port))
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", first["postgres"].port))
        taken.listen()
        second = devservices.up(["nessie"], folder, parent_bound=True)
    assert second["nessie"].url == first["nessie"].url
    assert json.loads(loopback.get(second["nessie"].port, "/api/v2/trees/-").body) == body
    assert devservices.down(folder, ["postgres"]) == ("nessie", "postgres")


@pytest.mark.parametrize("name", ["postgres", "etcd", "s3", "moto"])
def test_a_port_that_is_lost_at_the_last_moment(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        offers = [taken.getsockname()[1]]
        choose = processes.free_port
        monkeypatch.setattr(processes, "free_port", lambda: offers.pop() if offers else choose())
        endpoint = devservices.up([name], folder, parent_bound=True)[name]
        assert endpoint.healthy
        assert endpoint.port != taken.getsockname()[1]
    assert offers == []
    assert len(marked(folder)) == 1
    for each in psutil.Process(endpoint.pid).net_connections():
        assert each.status != psutil.CONN_LISTEN or each.laddr.ip == "127.0.0.1"


def test_the_command_hides_secrets_from_text(folder: Path) -> None:
    run = CliRunner().invoke
    told = run(command, ["up", "--only", "postgres,moto", "--dir", str(folder)], catch_exceptions=False).output
    told += run(command, ["status", "--dir", str(folder)], catch_exceptions=False).output
    shape = json.loads(run(command, ["status", "--dir", str(folder), "--json"], catch_exceptions=False).output)
    postgres, moto = shape["services"]
    assert query(postgres["url"], "SELECT 1") == 1
    secrets = (postgres["url"].split(":")[2].split("@")[0], moto["secret_access_key"])
    logs = "".join(path.read_text() for path in folder.glob("*.log"))
    for secret in secrets:
        assert secret not in told + logs
        assert secret not in repr(devservices.status(folder))
        for process in marked(folder):
            assert secret not in " ".join(psutil.Process(process.pid).cmdline())
    assert "healthy" in told
    stopped = run(command, ["down", "--dir", str(folder)], catch_exceptions=False).output
    assert stopped == "stopped moto, postgres\n"
    assert "stopped" in run(command, ["status", "--only", "moto", "--dir", str(folder)]).output


@pytest.mark.parametrize(("name", "hint"), [("postgre", "did you mean 'postgres'?"), ("oracle", "there are: postgres")])
def test_an_unknown_service_is_refused(tmp_path: Path, name: str, hint: str) -> None:
    result = CliRunner().invoke(command, ["up", "--only", f"etcd,{name}", "--dir", str(tmp_path / "services")])
    assert isinstance(result.exception, UsageError)
    assert hint in str(result.exception)
    assert not (tmp_path / "services").exists()


def test_status_of_nothing_is_nothing(tmp_path: Path) -> None:
    assert devservices.status(tmp_path / "services") == {}
    assert devservices.down(tmp_path / "services") == ()
    assert not (tmp_path / "services").exists()
