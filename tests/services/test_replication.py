"""A region's copy of the catalog's database, on two real PostgreSQL servers and with Nessie's own tables.

Nessie itself is not needed for this: what it does to the tables is done by hand.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy.engine import make_url

from headwater import devservices
from headwater.devservices import postgres, replication, state
from headwater.devservices.model import Identity, Place
from headwater.kernel.clock import ManualClock, SystemClock
from headwater.kernel.errors import UnavailableError
from tests.services.test_devservices import until

pytestmark = [pytest.mark.services, pytest.mark.proves("regional catalogs")]
REGION = "eu-central"
NESSIES_TABLES = """
CREATE TABLE refs2 (repo varchar, ref_name varchar, pointer bytea, deleted boolean, created_at bigint, ext_info bytea,
    prev_ptr bytea, PRIMARY KEY (repo, ref_name));
CREATE TABLE objs2 (repo varchar, obj_id bytea, obj_type varchar, obj_vers varchar, obj_value bytea, obj_ref bigint,
    PRIMARY KEY (repo, obj_id));
"""
INSERT = "INSERT INTO objs2 (repo, obj_id, obj_type, obj_vers, obj_value) VALUES ('r', %s, 'x', %s, %s)"


@dataclass
class Pair:
    """The primary and the region's database."""

    place: Place

    def ensure(self) -> None:
        replication.ensure(self.place, REGION)

    @contextmanager
    def open(self, service: str, role: str = postgres.USER) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
        url = make_url(self.place.running[service].url).set(drivername="postgresql", database=replication.DATABASE)
        url = url.set(username=role, password=postgres.password_of(self.place, role))
        with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as connection:
            yield connection

    def primary(self, statement: str, *parameters: object) -> None:
        with self.open("postgres") as connection:
            connection.execute(statement.encode(), parameters)

    def apply_errors(self) -> object:
        with self.open(f"postgres@{REGION}") as connection:
            return connection.execute("SELECT apply_error_count FROM pg_stat_subscription_stats").fetchone()

    def is_waiting(self) -> bool:
        """Whether the subscription waits for somebody's transaction."""
        query = "SELECT 1 FROM pg_stat_activity WHERE backend_type ~ 'logical replication' AND wait_event_type = 'Lock'"
        with self.open(f"postgres@{REGION}") as connection:
            return connection.execute(query).fetchone() is not None

    def value(self, name: bytes) -> object:
        with self.open(f"postgres@{REGION}") as connection:
            row = connection.execute("SELECT obj_value FROM objs2 WHERE obj_id = %s", (name,)).fetchone()
            return row[0] if row else None


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """Two servers, and what Nessie has made on the first."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-services-"))
    folder.chmod(0o711)
    try:
        running = devservices.up([f"postgres@{REGION}"], folder, parent_bound=True)
        identity = state.read_identity(folder)
        assert identity is not None
        place = Place(folder, folder, {}, identity, SystemClock(), running)
        postgres.ensure_database(place, running["postgres"].port, replication.DATABASE)
        with pytest.raises(UnavailableError, match="has not made its table refs2"):
            replication.ensure(place, REGION)
        pair = Pair(place)
        pair.primary(NESSIES_TABLES)
        pair.primary(INSERT, b"from the first day", None, b"old")
        pair.ensure()
        yield pair
    finally:
        devservices.down(folder, purge=True)
        shutil.rmtree(folder, ignore_errors=True)


def test_the_region_holds_what_was_there_and_follows(pair: Pair) -> None:
    assert pair.value(b"from the first day") == b"old"
    name = uuid4().bytes
    pair.primary(INSERT, name, None, b"new")
    until(lambda: pair.value(name) == b"new")
    pair.primary("DELETE FROM objs2 WHERE obj_id = %s", name)
    until(lambda: pair.value(name) is None)


def test_ensure_again_changes_nothing(pair: Pair) -> None:
    with pair.open("postgres") as connection:
        slots = connection.execute("SELECT slot_name, active_pid FROM pg_replication_slots").fetchall()
        pair.ensure()
        assert connection.execute("SELECT slot_name, active_pid FROM pg_replication_slots").fetchall() == slots
    assert [slot for slot, _ in slots] == [replication.slot_of(REGION)]


def test_a_subscription_that_was_switched_off_is_switched_on(pair: Pair) -> None:
    with pair.open(f"postgres@{REGION}") as connection:
        connection.execute("ALTER SUBSCRIPTION headwater_catalog DISABLE")
    name = uuid4().bytes
    pair.primary(INSERT, name, None, b"meanwhile")
    pair.ensure()
    until(lambda: pair.value(name) == b"meanwhile")


@pytest.mark.hazard("R3")
def test_r3_a_row_that_the_region_had_first_gives_way_to_the_primarys(pair: Pair) -> None:
    name, later = uuid4().bytes, uuid4().bytes
    errors = pair.apply_errors()
    with pair.open(f"postgres@{REGION}", replication.READER) as connection:
        connection.execute(INSERT, (name, None, b"the region's"))
    with pair.open("postgres") as connection:
        connection.execute(INSERT, (name, None, b"the primary's"))
        connection.execute(INSERT, (later, None, b"goes on"))
    until(lambda: pair.value(later) == b"goes on")
    assert pair.value(name) == b"the primary's"
    assert pair.apply_errors() == errors


@pytest.mark.hazard("R3")
def test_r3_a_row_that_the_region_commits_while_the_primarys_arrives(pair: Pair) -> None:
    """The subscription has looked, and waits for the other insert; it fails once, and wins at its next attempt."""
    name = uuid4().bytes
    with pair.open(f"postgres@{REGION}", replication.READER) as connection, connection.transaction():
        connection.execute(INSERT, (name, None, b"the region's"))
        pair.primary(INSERT, name, None, b"the primary's")
        until(pair.is_waiting)
    until(lambda: pair.value(name) == b"the primary's")


@pytest.mark.hazard("R4")
def test_r4_a_ref_is_never_seen_before_its_objects(pair: Pair) -> None:
    """Objects and ref in commits of their own, as Nessie makes them; the region is read the other way round."""
    seen = 0
    with pair.open("postgres") as writer, pair.open(f"postgres@{REGION}") as reader:
        for number in range(200):
            name = uuid4().bytes
            writer.execute(INSERT, (name, None, b"x" * 2000))
            upsert = "INSERT INTO refs2 (repo, ref_name, pointer) VALUES ('r', 'main', %s) "
            writer.execute(upsert + "ON CONFLICT (repo, ref_name) DO UPDATE SET pointer = excluded.pointer", (name,))
            row = reader.execute("SELECT pointer FROM refs2 WHERE ref_name = 'main'").fetchone()
            if row is not None:
                found = reader.execute("SELECT 1 FROM objs2 WHERE obj_id = %s", (row[0],)).fetchone()
                assert found == (1,), f"after {number} commits the ref leads nowhere"
                seen += 1
    assert seen > 0


def test_the_readers_role_moves_no_ref_and_keeps_what_commits_are_made_of(pair: Pair) -> None:
    fixed, versioned = uuid4().bytes, uuid4().bytes
    pair.primary("INSERT INTO refs2 (repo, ref_name, pointer) VALUES ('r', %s, %s)", uuid4().hex, fixed)
    pair.primary(INSERT, fixed, None, b"a commit")
    pair.primary(INSERT, versioned, "1", b"a snapshot that is served")
    until(lambda: pair.value(versioned) is not None)
    with pair.open(f"postgres@{REGION}", replication.READER) as connection:
        for statement in (
            "UPDATE refs2 SET pointer = pointer",
            "DELETE FROM refs2",
            "INSERT INTO refs2 (repo, ref_name) VALUES ('r', 'mine')",
            "UPDATE objs2 SET obj_value = ''",
            "TRUNCATE objs2",
            "CREATE TABLE public.mine (a int)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())
        assert connection.execute("SELECT count(*) FROM refs2").fetchone() != (0,)
        # What a client of the Iceberg REST catalog makes Nessie do.
        delete = "DELETE FROM objs2 WHERE obj_id = %s"
        assert connection.execute(delete, (fixed,)).rowcount == 0
        assert connection.execute(delete, (versioned,)).rowcount == 1
        connection.execute(INSERT, (versioned, "2", b"served again"))
        assert connection.execute("UPDATE objs2 SET obj_ref = 1 WHERE obj_id = %s", (fixed,)).rowcount == 1


def test_a_slot_that_nobody_reads_is_dropped_and_made_again(pair: Pair) -> None:
    """As after a kill between the slot on the primary and the subscription in the region."""
    with pair.open(f"postgres@{REGION}") as connection:
        for statement in ("DISABLE", "SET (slot_name = NONE)"):
            connection.execute(f"ALTER SUBSCRIPTION headwater_catalog {statement}".encode())
        connection.execute("DROP SUBSCRIPTION headwater_catalog")
        connection.execute("TRUNCATE refs2, objs2")
    pair.ensure()
    assert pair.value(b"from the first day") == b"old"


@pytest.mark.hazard("R4")
@pytest.mark.parametrize(
    ("states", "ready"),
    [
        ({}, False),
        ({"refs2": "r"}, False),
        ({"refs2": "r", "objs2": "d"}, False),
        ({"refs2": "i", "objs2": "r"}, False),
        ({"refs2": "s", "objs2": "s"}, False),
        ({"refs2": "r", "objs2": "r"}, True),
    ],
)
def test_r4_a_region_is_in_step_when_every_table_is(states: dict[str, str], ready: bool) -> None:
    assert replication.is_in_step(states) is ready


@pytest.mark.hazard("R4")
def test_r4_a_regional_nessie_waits_for_the_last_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nessie is started when `ensure` returns, and that waits for tables that are still being copied, not for ever."""
    clock = ManualClock()
    place = Place(Path(), Path(), {}, Identity("", "p", "", ""), clock)
    answers = [[], [("refs2", "r")], [("refs2", "r"), ("objs2", "d")], [("refs2", "r"), ("objs2", "r")]]
    asked = iter(answers)
    monkeypatch.setattr(postgres, "query", lambda *_, **__: next(asked))
    replication._await_ready(place, 1, "eu-central")
    assert next(asked, None) is None
    monkeypatch.setattr(postgres, "query", lambda *_, **__: answers[2])
    with pytest.raises(UnavailableError, match="eu-central has not caught up"):
        replication._await_ready(place, 1, "eu-central")
    assert clock.monotonic() > 100
