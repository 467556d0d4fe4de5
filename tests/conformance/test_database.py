"""The database keeps its promises on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection, make_url

from headwater.database import Database, Isolation, UtcTimestamp, migrate, open_database
from headwater.kernel.clock import ManualClock
from headwater.kernel.errors import (
    ConflictError,
    CorruptError,
    HeadwaterError,
    OutcomeUnknownError,
    UnavailableError,
    UsageError,
)

pytestmark = pytest.mark.proves("database/sqlite", "database/postgresql")

BACKENDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.services)]


class LossyProxy:
    """A TCP relay that can lose one exchange: before it reaches the server, or the answer to it."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._marker: bytes | None = None
        self._deliver = False
        self._skip = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, marker: bytes, *, deliver: bool, skip: int = 0) -> None:
        """Break the connection at the next request that holds `marker`; with `deliver` only after it was obeyed."""
        self._marker, self._deliver, self._skip = marker, deliver, skip

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            broken = threading.Event()
            threading.Thread(target=self._requests, args=(client, server, broken), daemon=True).start()
            threading.Thread(target=self._answers, args=(client, server, broken), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket, broken: threading.Event) -> None:
        with _quietly(client, server):
            while data := client.recv(65536):
                hit = self._marker is not None and self._marker in data
                if hit and self._skip:
                    self._skip -= 1
                elif hit:
                    self._marker = None
                    if not self._deliver:
                        return
                    broken.set()
                server.sendall(data)

    def _answers(self, client: socket.socket, server: socket.socket, broken: threading.Event) -> None:
        with _quietly(client, server):
            while data := server.recv(65536):
                if broken.is_set():
                    return
                client.sendall(data)


@contextmanager
def _quietly(*sockets: socket.socket) -> Iterator[None]:
    try:
        yield
    except OSError:
        pass
    finally:
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def dead_port() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A real process that runs `code`."""
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> str:
    """What it printed, once it ended well."""
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return output.strip()


@pytest.fixture(params=BACKENDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_database"))
    return str(tmp_path / "folder" / "state.db")


@pytest.fixture
def database(target: str) -> Iterator[Database]:
    with open_database(target) as opened:
        yield opened


@pytest.fixture
def table(database: Database) -> sa.Table:
    table = sa.Table(
        "thing",
        sa.MetaData(),
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("amount", sa.Integer),
        sa.Column("at", UtcTimestamp),
    )
    with database.write() as connection:
        table.metadata.create_all(connection)
    return table


def names(database: Database) -> set[str]:
    with database.read() as connection:
        return set(connection.execute(sa.text("SELECT name FROM thing")).scalars())


def insert(connection: Connection, name: str) -> None:
    connection.execute(sa.text("INSERT INTO thing (name, amount) VALUES (:name, 0)"), {"name": name})


# --- transactions -------------------------------------------------------------------------------------------------


def test_a_write_that_raises_leaves_nothing(database: Database, table: sa.Table) -> None:
    def insert_and_fail() -> None:
        with database.write() as connection:
            insert(connection, "a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        insert_and_fail()
    assert names(database) == set()


def test_a_commit_is_visible_to_another_process(database: Database, table: sa.Table, target: str) -> None:
    with database.write() as connection:
        insert(connection, "a")
    code = """if True:
        import sys, sqlalchemy as sa
        from headwater.database import open_database
        with open_database(sys.argv[1]) as database, database.write() as connection:
            print(connection.execute(sa.text("SELECT name FROM thing")).scalar_one())
            connection.execute(sa.text("INSERT INTO thing (name) VALUES ('b')"))
    """
    assert finished(python(code, target)) == "a"
    assert names(database) == {"a", "b"}


def test_a_process_killed_inside_a_write_leaves_nothing(database: Database, table: sa.Table, target: str) -> None:
    code = """if True:
        import sys, sqlalchemy as sa
        from headwater.database import open_database
        with open_database(sys.argv[1]) as database, database.write() as connection:
            connection.execute(sa.text("INSERT INTO thing (name) VALUES ('lost')"))
            print("inserted", flush=True)
            sys.stdin.read()
    """
    with python(code, target) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "inserted\n"
        os.kill(child.pid, signal.SIGKILL)
    assert names(database) == set()
    with database.write() as connection:
        insert(connection, "lost")  # neither the row nor its lock is left
    assert names(database) == {"lost"}


def test_writers_do_not_interleave(database: Database, table: sa.Table) -> None:
    """Read, then write: of two that read the same amount one must wait, or be refused."""
    with database.write() as connection:
        insert(connection, "counter")

    both_have_read = threading.Barrier(2)

    def add_five() -> None:
        done = 0
        while done < 5:
            try:
                with database.write() as connection:
                    amount = connection.execute(sa.select(table.c.amount)).scalar_one()
                    # Both read before either writes, unless the second must wait for the first.
                    with suppress(threading.BrokenBarrierError):
                        both_have_read.wait(0.5)
                    connection.execute(sa.update(table).values(amount=amount + 1))
                done += 1
            except ConflictError:
                both_have_read.abort()

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(add_five) for _ in range(2)]:
            future.result()
    with database.read() as connection:
        assert connection.execute(sa.select(table.c.amount)).scalar_one() == 10


def test_an_error_that_was_swallowed_does_not_pass_for_a_commit(database: Database, table: sa.Table) -> None:
    """On PostgreSQL the transaction is already undone by then, and COMMIT would say nothing."""
    with database.write() as connection:
        insert(connection, "a")

    def swallow() -> None:
        with database.write() as connection:
            insert(connection, "b")
            with suppress(sa.exc.IntegrityError):
                insert(connection, "a")

    with pytest.raises(HeadwaterError, match="a statement failed and its error was caught"):
        swallow()
    assert names(database) == {"a"}


def test_a_statement_may_fail_in_a_savepoint(database: Database, table: sa.Table) -> None:
    with database.write() as connection:
        insert(connection, "a")
    with database.write() as connection:
        insert(connection, "b")
        with suppress(sa.exc.IntegrityError), connection.begin_nested():
            insert(connection, "a")
        insert(connection, "c")
    assert names(database) == {"a", "b", "c"}


def test_a_relative_path_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with open_database("state.db") as database:
        monkeypatch.chdir(tmp_path / "elsewhere")
        with database.read():
            pass
    assert (tmp_path / "state.db").exists()
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.services
def test_acknowledged_is_durable_and_silence_is_noticed(postgres_database: str) -> None:
    with open_database(postgres_database, busy_seconds=6) as database, database.write() as connection:
        connection.execute(sa.text("SELECT 1"))
        assert connection.execute(sa.text("SHOW synchronous_commit")).scalar_one() == "on"
        raw: Any = connection.connection.dbapi_connection
        options = raw.info.get_parameters()
    assert options["tcp_user_timeout"] == "6000"
    assert options["keepalives_idle"] == "2"


def test_a_read_sees_one_snapshot(database: Database, table: sa.Table) -> None:
    with database.read() as connection:
        before = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
        with database.write() as other:
            insert(other, "new")
        after = connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
    assert (before, after) == (0, 0)
    assert names(database) == {"new"}


def test_a_read_cannot_write(database: Database, table: sa.Table) -> None:
    with pytest.raises(HeadwaterError), database.read() as connection:
        insert(connection, "sneaked in")
    assert names(database) == set()


def test_a_second_row_of_the_same_name_is_a_conflict(database: Database, table: sa.Table) -> None:
    with database.write() as connection:
        insert(connection, "a")
    with pytest.raises(ConflictError), database.write() as connection:
        insert(connection, "a")


def test_a_wrong_statement_shows_no_values(database: Database) -> None:
    with pytest.raises(HeadwaterError) as caught, database.write() as connection:
        connection.execute(sa.text("INSERT INTO nowhere VALUES (:value)"), {"value": "s3cret"})
    assert type(caught.value) is HeadwaterError
    assert "s3cret" not in f"{caught.value} {caught.value.__cause__}"


def test_timestamps_are_utc_and_sort_by_time(database: Database, table: sa.Table) -> None:
    first = datetime(2026, 3, 1, 12, 0, 0, 7, tzinfo=UTC)
    east = datetime(2026, 3, 1, 14, 0, 1, tzinfo=timezone(timedelta(hours=2)))
    early = datetime(926, 1, 1, tzinfo=UTC)
    with database.write() as connection:
        for name, moment in (("b", east), ("a", first), ("c", early)):
            connection.execute(sa.insert(table).values(name=name, at=moment))
    with database.read() as connection:
        rows = connection.execute(sa.select(table.c.at).order_by(table.c.at)).scalars().all()
        later = connection.execute(sa.select(table.c.name).where(table.c.at > first)).scalars().all()
    assert rows == [early, first, east]
    assert {row.utcoffset() for row in rows if row is not None} == {timedelta(0)}
    assert later == ["b"]
    with pytest.raises(UsageError, match="no time zone"), database.write() as connection:
        connection.execute(sa.insert(table).values(name="d", at=first.replace(tzinfo=None)))


def test_a_forked_child_has_connections_of_its_own(table: sa.Table, target: str, database: Database) -> None:
    code = """if True:
        import os, sys, sqlalchemy as sa
        from headwater.database import open_database
        database = open_database(sys.argv[1])
        add = sa.text("INSERT INTO thing (name) VALUES (:name)")
        with database.read() as connection:
            of_parent = connection.connection.dbapi_connection
        child = os.fork()
        if child == 0:
            with database.write() as connection:
                assert connection.connection.dbapi_connection is not of_parent
                connection.execute(add, {"name": "child"})
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        with database.write() as connection:
            connection.execute(add, {"name": "parent"})
        database.close()
    """
    finished(python(code, target))
    assert names(database) == {"child", "parent"}


# --- migrations ---------------------------------------------------------------------------------------------------

FIRST = """
import time
import sqlalchemy as sa
from alembic import op
revision, down_revision, branch_labels, depends_on = "first", None, None, None
def upgrade():
    op.create_table("shelf", sa.Column("name", sa.String))
    time.sleep(0.2)
    op.execute("INSERT INTO shelf VALUES ('first')")
"""
SECOND = """
from alembic import op
revision, down_revision, branch_labels, depends_on = "second", "first", None, None
def upgrade():
    op.execute("INSERT INTO shelf VALUES ('second')")
"""
BROKEN = """
from alembic import op
revision, down_revision, branch_labels, depends_on = "third", "second", None, None
def upgrade():
    op.execute("INSERT INTO shelf VALUES ('third')")
    op.execute("INSERT INTO nowhere VALUES (1)")
"""


@pytest.fixture
def location(tmp_path: Path) -> Path:
    folder = tmp_path / "100%" / "migrations"
    (folder / "versions").mkdir(parents=True)
    (folder / "env.py").write_text("from headwater.database import run_migrations\nrun_migrations()\n")
    (folder / "versions" / "r1_first.py").write_text(FIRST)
    (folder / "versions" / "r2_second.py").write_text(SECOND)
    return folder


def shelf(database: Database) -> list[str]:
    with database.read() as connection:
        return list(connection.execute(sa.text("SELECT name FROM shelf ORDER BY name")).scalars())


def test_migrations_are_applied_once(database: Database, location: Path) -> None:
    assert [migrate(database, "library", location) for _ in range(3)] == ["second", "second", "second"]
    assert shelf(database) == ["first", "second"]
    with database.read() as connection:
        versions = connection.execute(sa.text("SELECT version_num FROM library_version")).scalars().all()
    assert versions == ["second"]


def test_rooms_migrate_apart(database: Database, location: Path, tmp_path: Path) -> None:
    migrate(database, "library", location)
    # In a folder of its own: rewritten in place within a second, its old bytecode would be taken for current.
    attic = tmp_path / "attic"
    shutil.copytree(location, attic, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (attic / "versions").iterdir():
        file.write_text(file.read_text().replace("shelf", "attic"))
    migrate(database, "attic", attic)
    assert shelf(database) == ["first", "second"]


def test_two_processes_migrate_at_once(database: Database, target: str, location: Path) -> None:
    code = """if True:
        import sys
        from pathlib import Path
        from headwater.database import migrate, open_database
        with open_database(sys.argv[1]) as database:
            print("ready", flush=True)
            sys.stdin.readline()
            print(migrate(database, "library", Path(sys.argv[2])))
    """
    children = [python(code, target, str(location)) for _ in range(2)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    assert [finished(child) for child in children] == ["second", "second"]
    assert shelf(database) == ["first", "second"]


def test_a_newer_database_is_refused(database: Database, location: Path) -> None:
    migrate(database, "library", location)
    with database.write() as connection:
        connection.execute(sa.text("UPDATE library_version SET version_num = 'from-the-future'"))
    with pytest.raises(CorruptError, match="from-the-future") as caught:
        migrate(database, "library", location)
    assert caught.value.fields["revision"] == "from-the-future"
    assert shelf(database) == ["first", "second"]


def test_a_broken_migration_leaves_nothing(database: Database, location: Path) -> None:
    migrate(database, "library", location)
    (location / "versions" / "r3_broken.py").write_text(BROKEN)
    with pytest.raises(HeadwaterError, match="nowhere"):
        migrate(database, "library", location)
    assert shelf(database) == ["first", "second"]


# --- failures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "match"),
    [
        ("mysql://u:hunter2@host/db", "no database 'mysql'"),
        ("postgresql+asyncpg://u:hunter2@host/db", "asyncpg"),
        ("postgresql://u:hunter2@host:port/db", "cannot be read"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        (":memory:", "in memory"),
        ("a\0b", "no NUL"),
        ("sqlite:///file?mode=ro", "a path alone"),
        ("", "no database was named"),
    ],
)
def test_a_wrong_url_is_a_usage_error_without_its_password(target: str, match: str) -> None:
    with pytest.raises(UsageError, match=match) as caught:
        open_database(target)
    assert "hunter2" not in str(caught.value)


def test_a_dead_server_is_unavailable_and_its_password_stays_hidden() -> None:
    url = f"postgresql://user:hunter2@127.0.0.1:{dead_port()}/db?sslpassword=opensesame"
    with open_database(url) as database:
        with pytest.raises(UnavailableError) as caught, database.read():
            pass
        shown = f"{database!r} {caught.value} {caught.value.as_json()}"
    assert "hunter2" not in shown
    assert "opensesame" not in shown


def test_a_closed_database_says_so(database: Database) -> None:
    database.close()
    with pytest.raises(UsageError, match="closed"), database.read():
        pass


def test_a_locked_file_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    holder, other = open_database(path), open_database(path, busy_seconds=0.05)
    with holder, other, holder.write(), pytest.raises(UnavailableError, match="locked"), other.write():
        pass


def test_a_file_that_is_no_database_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"certainly not a database file" * 100)
    with open_database(path) as database, pytest.raises(CorruptError), database.write():
        pass


def test_sqlite_is_durable_and_checks_references(tmp_path: Path) -> None:
    with open_database(tmp_path / "new" / "state.db") as database:
        with database.write() as connection:
            pragmas = {
                name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
                for name in ("journal_mode", "synchronous", "foreign_keys")
            }
        assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_time_on_sqlite_is_the_given_clock(tmp_path: Path) -> None:
    clock = ManualClock()
    with open_database(tmp_path / "state.db", clock=clock) as database, database.read() as connection:
        began = clock.now()
        clock.advance(timedelta(seconds=5))
        assert database.began(connection) == began
        assert database.now(connection) == clock.now()


@pytest.fixture
def behind_proxy(postgres_database: str) -> Iterator[tuple[Database, LossyProxy]]:
    url = make_url(postgres_database)
    proxy = LossyProxy(str(url.host), int(url.port or 5432))
    through = url.set(host="127.0.0.1", port=proxy.port).render_as_string(hide_password=False)
    with open_database(through) as database:
        yield database, proxy
    proxy.close()


@pytest.mark.services
@pytest.mark.parametrize("deliver", [True, False])
def test_a_commit_whose_answer_is_lost_is_unknown(behind_proxy: tuple[Database, LossyProxy], deliver: bool) -> None:
    database, proxy = behind_proxy
    with database.write() as connection:
        connection.execute(sa.text("CREATE TABLE thing (name text, amount int)"))

    def insert_and_lose() -> None:
        with database.write(operation="op-7") as connection:
            insert(connection, "a")
            proxy.lose(b"COMMIT\0", deliver=deliver)

    with pytest.raises(OutcomeUnknownError) as caught:
        insert_and_lose()
    assert caught.value.operation == "op-7"
    assert names(database) == ({"a"} if deliver else set())


@pytest.mark.services
def test_a_paused_writer_does_not_block_the_others(postgres_database: str) -> None:
    database = open_database(postgres_database, busy_seconds=0.3)
    with database.write() as connection:
        connection.execute(sa.text("CREATE TABLE thing (name text primary key, amount int)"))
        insert(connection, "row")

    def pause() -> None:
        with database.write() as connection:
            connection.execute(sa.text("UPDATE thing SET amount = 1"))
            paused.set()
            time.sleep(0.8)

    paused = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pausing = pool.submit(pause)
        paused.wait()
        with database.write(isolation=Isolation.OWN_LOCKS) as connection:
            connection.execute(sa.text("UPDATE thing SET amount = amount + 10"))
        with pytest.raises(UnavailableError):  # and not "unknown": the server says why
            pausing.result()
    with database.read() as connection:
        assert connection.execute(sa.text("SELECT amount FROM thing")).scalar_one() == 10
    database.close()


@pytest.mark.services
def test_a_statement_whose_connection_breaks_is_unavailable(behind_proxy: tuple[Database, LossyProxy]) -> None:
    database, proxy = behind_proxy
    proxy.lose(b"CREATE", deliver=True)
    with pytest.raises(UnavailableError), database.write(isolation=Isolation.OWN_LOCKS) as connection:
        connection.execute(sa.text("CREATE TABLE thing (name text)"))
    with pytest.raises(HeadwaterError, match="does not exist"):
        names(database)
