"""One suite for the coordination port: SQLite, PostgreSQL and etcd behave alike."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from unittest.mock import Mock
from uuid import uuid4

import httpx
import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy.engine import make_url

from headwater.coordination import (
    Absent,
    Batch,
    CompactedError,
    Compare,
    Coordination,
    CreatedAt,
    DatabaseCoordination,
    Delete,
    Entry,
    Held,
    Lease,
    LeasedBy,
    LeaseExpiredError,
    ModifiedAt,
    Operation,
    Put,
    acquire,
    on_database,
    open_coordination,
    tables,
)
from headwater.coordination.turn import Turn
from headwater.database import Database, Isolation, open_database
from headwater.kernel.clock import Clock, ManualClock, SystemClock
from headwater.kernel.errors import (
    ConflictError,
    CorruptError,
    HeadwaterError,
    OutcomeUnknownError,
    UnavailableError,
    UsageError,
)
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.randomness import system_randomness
from tests.conformance.test_database import LossyProxy, dead_port, finished, python

pytestmark = pytest.mark.proves("coordination/database", "coordination/etcd")

POSTGRES = pytest.param("postgres", marks=pytest.mark.services)
ETCD = pytest.param("etcd", marks=pytest.mark.services)


@dataclass
class Backend:
    """Where a coordinator is, and how time passes there."""

    name: str
    target: str
    ttl_seconds: float
    clock: Clock

    def open(self) -> Coordination:
        return open_coordination(self.target, clock=self.clock)

    def open_keeping(self, revisions: int) -> Coordination:
        """A coordinator that forgets its history after so many revisions, where that is ours to say."""
        if self.name == "etcd":
            return self.open()
        database = open_database(self.target, clock=self.clock)
        return DatabaseCoordination(database, owns_database=True, events_kept=revisions)

    def forget(self, revision: int) -> None:
        """On etcd an operator compacts; the database does it by itself."""
        if self.name == "etcd":
            server = self.target.removeprefix("etcd+").rpartition("/")[0]
            httpx.post(f"{server}/v3/kv/compaction", json={"revision": revision}).raise_for_status()

    def let_pass(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    def let_expire(self, coordination: Coordination, key: str, lease: Lease) -> None:
        """Let just enough time pass; etcd looks for expired leases only twice a second."""
        self.let_pass(lease.ttl_seconds)
        deadline = time.monotonic() + 5
        while coordination.get(key) is not None:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.fixture
def postgres_schema(postgres_url: str) -> Iterator[str]:
    """A schema of its own is made in milliseconds, a database takes a third of a second."""
    name = f"test_{uuid4().hex}"
    server = make_url(postgres_url)
    with psycopg.connect(server.set(drivername="postgresql").render_as_string(hide_password=False)) as connection:
        connection.execute(f"CREATE SCHEMA {name}".encode())
        connection.commit()
        yield server.update_query_dict({"options": f"-csearch_path={name}"}).render_as_string(hide_password=False)
        connection.execute(f"DROP SCHEMA {name} CASCADE".encode())


def make_backend(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    match name:
        case "postgres":
            return Backend(name, request.getfixturevalue("postgres_schema"), 1, SystemClock())
        case "etcd":
            target = f"etcd+{request.getfixturevalue('etcd_url')}/{uuid4().hex}"
            return Backend(name, target, 2, SystemClock())
        case _:
            return Backend(name, str(tmp_path / "state.db"), 5, ManualClock())


@pytest.fixture(params=["sqlite", POSTGRES, ETCD])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return make_backend(request.param, request, tmp_path)


@pytest.fixture
def coordination(backend: Backend) -> Iterator[Coordination]:
    opened = backend.open()
    yield opened
    opened.close()


def put(coordination: Coordination, key: str, value: bytes = b"", lease: int | None = None) -> int:
    return coordination.transact([], [Put(key, value, lease)])


def values(coordination: Coordination, prefix: str = "") -> dict[str, bytes]:
    return {entry.key: entry.value for entry in coordination.list(prefix).entries}


def ulid() -> Ulid:
    return new_ulid(SystemClock(), system_randomness())


def flat(batches: Iterator[Batch] | list[Batch]) -> list[tuple[int, str, bytes | None]]:
    return [
        (batch.revision, event.key, None if event.entry is None else event.entry.value)
        for batch in batches
        for event in batch.events
    ]


# --- keys ---------------------------------------------------------------------------------------------------------


def test_what_is_put_can_be_read(coordination: Coordination) -> None:
    first = coordination.transact([Absent("a")], [Put("a", b"1"), Put("b", b"")])
    assert coordination.get("a") == Entry("a", b"1", first, first, 1)
    second = put(coordination, "a", b"\x00\xff")
    assert second > first
    assert coordination.get("a") == Entry("a", b"\x00\xff", first, second, 2)
    third = coordination.transact([], [Delete("a"), Delete("never was")])
    assert third > second
    assert coordination.get("a") is None
    fourth = put(coordination, "a", b"again")
    assert coordination.get("a") == Entry("a", b"again", fourth, fourth, 1)
    assert coordination.list("").revision == fourth


def test_a_prefix_is_taken_literally_and_keys_sort_by_code_point(coordination: Coordination) -> None:
    keys = ["p", "p%", "p/1", "p/Z", "p/a", "p_x", "pé", "p\ud7ff", "p\uffff", "p\U0001f600", "p\U0010ffff", "q"]
    coordination.transact([], [Put(key, key.encode()) for key in reversed(keys)])
    assert [entry.key for entry in coordination.list("").entries] == keys
    assert [entry.key for entry in coordination.list("p").entries] == keys[:-1]
    assert list(values(coordination, "p%")) == ["p%"]
    assert list(values(coordination, "p_")) == ["p_x"]
    assert list(values(coordination, "p/")) == ["p/1", "p/Z", "p/a"]
    assert list(values(coordination, "p\ud7ff")) == ["p\ud7ff"]
    assert list(values(coordination, "p\U0010ffff")) == ["p\U0010ffff"]
    assert coordination.list("nothing").entries == ()


def test_a_failed_compare_names_its_key_and_changes_nothing(coordination: Coordination) -> None:
    there = put(coordination, "there", b"old")
    with pytest.raises(ConflictError, match="there") as caught:
        coordination.transact([Absent("free"), Absent("there")], [Put("free", b""), Put("there", b"new")])
    assert caught.value.fields["key"] == "there"
    assert caught.value.fields["expected"] == "absent"
    assert str(there) in str(caught.value.fields["actual"])
    assert values(coordination) == {"there": b"old"}


def test_each_compare_holds_exactly_when_it_should(coordination: Coordination) -> None:
    lease = coordination.grant(60)
    created = put(coordination, "k", b"", lease.id)
    modified = put(coordination, "k", b"", lease.id)
    table: list[tuple[Compare, bool]] = [
        (Absent("k"), False),
        (Absent("nothing"), True),
        (ModifiedAt("k", modified), True),
        (ModifiedAt("k", created), False),
        (ModifiedAt("nothing", modified), False),
        (CreatedAt("k", created), True),
        (CreatedAt("k", modified), False),
        (CreatedAt("nothing", created), False),
        (LeasedBy("k", lease.id), True),
        (LeasedBy("k", lease.id + 1), False),
        (LeasedBy("nothing", lease.id), False),
    ]
    for compare, holds in table:
        try:
            coordination.transact([compare], [])
            held = True
        except ConflictError:
            held = False
        assert held is holds, compare
    assert coordination.list("").revision == modified


def test_revisions_only_grow(coordination: Coordination) -> None:
    revisions = [put(coordination, f"k{number % 3}") for number in range(10)]
    assert revisions == sorted(set(revisions))


BAD: list[tuple[str, Callable[[Coordination], object]]] = [
    ("", lambda c: c.get("")),
    ("", lambda c: put(c, "")),
    ("a\nb", lambda c: put(c, "a\nb")),
    ("a\x00b", lambda c: c.list("a\x00b")),
    ("a\x7f", lambda c: c.transact([Absent("a\x7f")], [])),
    ("\ud800", lambda c: put(c, "\ud800")),
    ("k" * 40, lambda c: put(c, "k" * 1025)),
    ("big", lambda c: put(c, "big", bytes(1024 * 1024 + 1))),
    ("twice", lambda c: c.transact([], [Put("twice", b"1"), Delete("twice")])),
    ("zero", lambda c: c.transact([ModifiedAt("zero", 0)], [])),
    ("zero", lambda c: c.transact([CreatedAt("zero", -1)], [])),
    ("zero", lambda c: c.transact([LeasedBy("zero", 0)], [])),
    ("zero", lambda c: put(c, "zero", b"", 0)),
    ("large", lambda c: put(c, "large", b"", 2**63)),
    ("large", lambda c: c.transact([ModifiedAt("large", 2**63)], [])),
    ("text", lambda c: put(c, "text", "not bytes")),  # type: ignore[arg-type]
    ("\udfff", lambda c: c.get("\udfff")),
    ("\udfff", lambda c: c.list("\udfff")),
    ("", lambda c: acquire(c, "", "me", 5)),
    ("a\tb", lambda c: c.watch("a\tb", 0, 0)),
]


def test_bad_input_is_refused_and_named(coordination: Coordination) -> None:
    for key, call in BAD:
        with pytest.raises(UsageError) as caught:
            call(coordination)
        assert caught.value.fields["key"] == key
    for ttl in (0, -1, float("nan"), float("inf"), 1e12):
        with pytest.raises(UsageError, match="lease cannot last"):
            coordination.grant(ttl)
    with pytest.raises(UsageError, match="at most"):
        coordination.transact([], [Put(f"k{number}", b"") for number in range(101)])
    for number in (-1, 2**63):
        with pytest.raises(UsageError, match="not a revision"):
            coordination.watch("", number, 0)
    for number in (-1, 0, 2**63):
        with pytest.raises(UsageError, match="not a lease"):
            coordination.keep_alive(number)
        with pytest.raises(UsageError, match="not a lease"):
            coordination.revoke(number)
    with pytest.raises(UsageError, match="holder"):
        acquire(coordination, "k", "\ud800", 5)
    with pytest.raises(UsageError, match="ULID"):
        coordination.outcome(Ulid("nonsense"))
    assert values(coordination) == {}


def test_the_largest_allowed_transaction_is_taken(coordination: Coordination) -> None:
    big = bytes(1024 * 1024)
    some: list[Operation] = [Put(f"k{number}", b"") for number in range(99)]
    coordination.transact([Absent(f"c{number}") for number in range(100)], [Put("big", big), *some], operation=ulid())
    found = coordination.get("big")
    assert found is not None
    assert found.value == big


def test_a_closed_coordinator_says_so(backend: Backend) -> None:
    coordination = backend.open()
    coordination.close()
    with pytest.raises(UsageError, match="closed"):
        coordination.get("k")


# --- concurrency --------------------------------------------------------------------------------------------------


def test_of_many_threads_one_wins_each_round(coordination: Coordination) -> None:
    revision = put(coordination, "token", b"nobody")
    with ThreadPoolExecutor(4) as pool:
        for _ in range(10):

            def attempt(name: int, expected: int = revision) -> int | None:
                try:
                    return coordination.transact([ModifiedAt("token", expected)], [Put("token", b"%d" % name)])
                except ConflictError:
                    return None

            answers = list(pool.map(attempt, range(4)))
            winners = [(name, answer) for name, answer in enumerate(answers) if answer is not None]
            assert len(winners) == 1
            name, revision = winners[0]
            assert values(coordination) == {"token": b"%d" % name}


def test_of_many_processes_one_wins_each_round(backend: Backend, coordination: Coordination) -> None:
    code = """if True:
        import sys
        from headwater.coordination import Absent, Put, open_coordination
        from headwater.kernel.errors import ConflictError
        coordination = open_coordination(sys.argv[1])
        print("ready", flush=True)
        sys.stdin.readline()
        won = []
        for number in range(25):
            try:
                coordination.transact([Absent(f"round/{number:02}")], [Put(f"round/{number:02}", sys.argv[2].encode())])
                won.append(number)
            except ConflictError:
                pass
        coordination.close()
        print(*won)
    """
    children = {name: python(code, backend.target, name) for name in ("red", "blue", "green")}
    for child in children.values():
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children.values():
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    believed = {f"round/{int(won):02}": name.encode() for name in children for won in finished(children[name]).split()}
    assert believed == values(coordination, "round/")
    assert len(believed) == 25


def test_concurrent_changes_have_revisions_of_their_own(coordination: Coordination) -> None:
    start = coordination.list("").revision

    def write(worker: int) -> list[tuple[int, str]]:
        return [(put(coordination, f"w/{worker}/{n}"), f"w/{worker}/{n}") for n in range(10)]

    with ThreadPoolExecutor(4) as pool:
        written = sorted(one for mine in pool.map(write, range(4)) for one in mine)
    assert len({revision for revision, _ in written}) == 40
    assert [(revision, key) for revision, key, _ in flat(coordination.watch("w/", start, 0))] == written


def test_transfers_between_keys_keep_their_sum(backend: Backend, coordination: Coordination) -> None:
    """Every revision that a watcher sees, and every list, adds up; the end equals a replay of what was acknowledged."""
    names = ["acct/0", "acct/1", "acct/2"]
    start = coordination.transact([], [Put(name, b"100") for name in names])

    def transfer(worker: int) -> list[tuple[str, str, int]]:
        done = []
        for step in range(8):
            source, sink = names[(worker + step) % 3], names[(worker + step + 1) % 3]
            while True:
                before = {entry.key: entry for entry in coordination.list("acct/").entries}
                assert sum(int(entry.value) for entry in before.values()) == 300
                amounts = {source: int(before[source].value) - 1 - worker, sink: int(before[sink].value) + 1 + worker}
                try:
                    coordination.transact(
                        [ModifiedAt(name, before[name].mod_revision) for name in (source, sink)],
                        [Put(name, b"%d" % amount) for name, amount in amounts.items()],
                    )
                except ConflictError:
                    continue
                done.append((source, sink, 1 + worker))
                break
        return done

    with ThreadPoolExecutor(3) as pool:
        acknowledged = [one for done in pool.map(transfer, range(3)) for one in done]
    model = dict.fromkeys(names, 100)
    for source, sink, amount in acknowledged:
        model[source] -= amount
        model[sink] += amount
    assert {name: int(value) for name, value in values(coordination).items()} == model
    seen = dict.fromkeys(names, 100)
    batches = list(coordination.watch("acct/", start, 0))
    for batch in batches:
        seen.update({event.key: int(event.entry.value) for event in batch.events if event.entry})
        assert sum(seen.values()) == 300
    assert len(batches) == len(acknowledged) == 24
    assert seen == model


# --- leases -------------------------------------------------------------------------------------------------------


def test_an_expired_lease_frees_the_key(backend: Backend, coordination: Coordination) -> None:
    first = acquire(coordination, "leader", "first", backend.ttl_seconds)
    assert first is not None
    assert first.lease.ttl_seconds >= backend.ttl_seconds
    first.verify()
    assert acquire(coordination, "leader", "second", backend.ttl_seconds) is None
    backend.let_expire(coordination, "leader", first.lease)
    assert coordination.get("leader") is None
    assert values(coordination) == {}
    with pytest.raises(ConflictError, match="leader"):
        coordination.transact([LeasedBy("leader", first.lease.id)], [Put("deed", b"")])
    with pytest.raises(ConflictError, match="leader"):
        first.verify()
    second = acquire(coordination, "leader", "second", 60)
    assert second is not None
    assert second.fence > first.fence
    with pytest.raises(LeaseExpiredError):
        first.keep_alive()
    first.release()
    second.verify()
    assert values(coordination) == {"leader": b"second"}


def test_a_lease_that_is_kept_alive_does_not_expire(backend: Backend, coordination: Coordination) -> None:
    held = acquire(coordination, "leader", "me", backend.ttl_seconds)
    assert held is not None
    for _ in range(3):
        backend.let_pass(backend.ttl_seconds * 0.4)
        held.keep_alive()
    held.verify()
    entry = coordination.get("leader")
    assert entry is not None
    assert entry.create_revision == held.fence


def test_release_frees_the_key_at_once(coordination: Coordination) -> None:
    first = acquire(coordination, "leader", "first", 60)
    assert first is not None
    first.release()
    first.release()
    second = acquire(coordination, "leader", "second", 60)
    assert second is not None
    with pytest.raises(ConflictError):
        coordination.transact([first.compare()], [Put("deed", b"")])


def test_a_put_on_a_dead_lease_does_nothing_at_all(backend: Backend, coordination: Coordination) -> None:
    lease = coordination.grant(60)
    coordination.revoke(lease.id)
    with pytest.raises(LeaseExpiredError) as caught:
        coordination.transact([], [Put("free", b""), Put("bound", b"", lease.id)], operation=ulid())
    assert caught.value.fields["key"] == "bound"
    assert values(coordination) == {}


def test_a_key_that_is_put_again_without_a_lease_stays(coordination: Coordination) -> None:
    lease = coordination.grant(60)
    coordination.transact([], [Put("stays", b"", lease.id), Put("goes", b"", lease.id)])
    put(coordination, "stays", b"for good")
    coordination.revoke(lease.id)
    assert values(coordination) == {"stays": b"for good"}


def test_only_one_of_many_acquires(coordination: Coordination, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them have looked, and found nobody, before the first one takes it."""
    everybody, grant = threading.Barrier(4), coordination.grant

    def together(ttl_seconds: float) -> Lease:
        everybody.wait(60)
        return grant(ttl_seconds)

    monkeypatch.setattr(coordination, "grant", together)
    with ThreadPoolExecutor(4) as pool:
        held = list(pool.map(lambda name: acquire(coordination, "leader", str(name), 60), range(4)))
    assert sum(one is not None for one in held) == 1


def test_an_acquire_that_fails_leaves_no_lease(
    backend: Backend, coordination: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    granted: list[Lease] = []
    grant = coordination.grant

    def noted(ttl_seconds: float) -> Lease:
        granted.append(grant(ttl_seconds))
        return granted[-1]

    monkeypatch.setattr(coordination, "grant", noted)
    for error in (UnavailableError("no"), KeyboardInterrupt(), CorruptError("no")):
        with monkeypatch.context() as patch:
            patch.setattr(coordination, "transact", Mock(side_effect=error))
            with pytest.raises(type(error)):
                acquire(coordination, "leader", "me", 60)
        with pytest.raises(LeaseExpiredError):
            coordination.keep_alive(granted[-1].id)


def test_a_lease_that_ended_before_its_use_is_not_taken_for_a_rival(
    coordination: Coordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = coordination.grant

    def too_short(ttl_seconds: float) -> Lease:
        lease = grant(ttl_seconds)
        coordination.revoke(lease.id)
        return lease

    monkeypatch.setattr(coordination, "grant", too_short)
    with pytest.raises(LeaseExpiredError):
        acquire(coordination, "leader", "me", 60)


def test_a_paused_holder_cannot_write(request: pytest.FixtureRequest, backend: Backend) -> None:
    """The holder stops between its decision and its write, for longer than its lease."""
    code = """if True:
        import os, signal, sys
        from headwater.coordination import Put, acquire, open_coordination
        from headwater.kernel.errors import ConflictError
        coordination = open_coordination(sys.argv[1])
        held = acquire(coordination, "leader", "old", float(sys.argv[2]))
        print(held.fence, flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
        try:
            coordination.transact([held.compare()], [Put("deed", b"of the old one")])
            print("written")
        except ConflictError as error:
            print(error.fields["key"])
        coordination.close()
    """
    ttl_seconds = min(backend.ttl_seconds, 2 if backend.name == "etcd" else 0.4)
    coordination = open_coordination(backend.target)  # real time: another process is in it
    child = python(code, backend.target, str(ttl_seconds))
    assert child.stdout is not None
    fence = int(child.stdout.readline())
    os.waitpid(child.pid, os.WUNTRACED)
    deadline = time.monotonic() + 20
    while (held := acquire(coordination, "leader", "new", 60)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert held.fence > fence
    coordination.transact([held.compare()], [Put("deed", b"of the new one")])
    os.kill(child.pid, signal.SIGCONT)
    assert finished(child) == "leader"
    assert values(coordination) == {"deed": b"of the new one", "leader": b"new"}
    coordination.close()


# --- watch --------------------------------------------------------------------------------------------------------


def test_a_watch_resumes_from_any_revision(backend: Backend, coordination: Coordination) -> None:
    start = coordination.list("").revision
    put(coordination, "other", b"unseen")
    revisions = [coordination.transact([], [Put("w/a", b"%d" % n), Put(f"w/{n}", b"")]) for n in range(3)]
    revisions.append(coordination.transact([], [Delete("w/a")]))
    whole = list(coordination.watch("w/", start, 0))
    assert [batch.revision for batch in whole] == revisions
    assert flat(whole)[0] == (revisions[0], "w/0", b"")
    assert flat(whole)[-1] == (revisions[-1], "w/a", None)
    assert [len(batch.events) for batch in whole] == [2, 2, 2, 1]
    for position, revision in list(enumerate(revisions))[:2]:
        reopened = backend.open()
        assert list(reopened.watch("w/", revision, 0)) == whole[position + 1 :]
        reopened.close()


def test_a_watch_that_reconnects_misses_and_repeats_nothing(backend: Backend, coordination: Coordination) -> None:
    """A writer writes all the time; the watcher leaves after every few batches and comes back with a new connection."""
    total = 21  # a multiple of 7, so that no turn of the watcher waits in vain
    after = coordination.list("").revision
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(lambda: [put(coordination, f"w/{n % 4}", b"%d" % n) for n in range(total)])
        seen: list[Batch] = []
        while len(seen) < total:
            watcher = open_coordination(backend.target)
            batches = watcher.watch("w/", after, 2)
            got = list(islice(batches, 7))
            assert got, f"nothing came after {len(seen)}"
            seen += got
            after = got[-1].revision
            watcher.close()
        revisions = writing.result()
    assert [batch.revision for batch in seen] == revisions
    assert [value for _, _, value in flat(seen)] == [b"%d" % n for n in range(total)]


def test_list_then_watch_misses_nothing(coordination: Coordination) -> None:
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(
            lambda: [coordination.transact([], [Put("w/a", b"%d" % n), Put("w/b", b"%d" % n)]) for n in range(20)]
        )
        views = []
        while not writing.done():
            views.append(coordination.list("w/"))
        writing.result()
    final = values(coordination, "w/")
    for view in (views[0], views[len(views) // 2]):
        state = {entry.key: entry.value for entry in view.entries}
        assert len(set(state.values())) <= 1
        for _, key, value in flat(coordination.watch("w/", view.revision, 0)):
            assert value is not None
            state[key] = value
        assert state == final


def test_a_watch_sees_a_lease_expire(backend: Backend, coordination: Coordination) -> None:
    lease = coordination.grant(backend.ttl_seconds)
    bound = coordination.transact([], [Put("w/a", b"", lease.id), Put("w/b", b"", lease.id), Put("w/stays", b"")])
    # Nobody else touches the coordinator: the watcher alone must bring the deletes about.
    batches = coordination.watch("w/", bound, backend.ttl_seconds + 3)
    batch = next(batches)
    assert flat([batch]) == [(batch.revision, "w/a", None), (batch.revision, "w/b", None)]
    assert batch.revision > bound
    assert values(coordination) == {"w/stays": b""}


def test_a_forgotten_history_says_to_list_again(backend: Backend) -> None:
    coordination = backend.open_keeping(8)
    first = put(coordination, "w/k", b"0")
    for number in range(1, 20):
        last = put(coordination, "w/k", b"%d" % number)
    backend.forget(last - 8)
    with pytest.raises(CompactedError, match="list again"):
        list(coordination.watch("w/", first, 0))
    listing = coordination.list("w/")
    assert [entry.value for entry in listing.entries] == [b"19"]
    last = put(coordination, "w/k", b"20")
    assert flat(coordination.watch("w/", listing.revision, 0)) == [(last, "w/k", b"20")]
    coordination.close()


# --- answers that are lost ----------------------------------------------------------------------------------------


def test_a_recorded_operation_happens_once(coordination: Coordination) -> None:
    operation = ulid()
    revision = coordination.transact([Absent("k")], [Put("k", b"once")], operation=operation)
    put(coordination, "k", b"changed since")
    assert coordination.transact([Absent("k")], [Put("k", b"twice")], operation=operation) == revision
    assert values(coordination) == {"k": b"changed since"}
    assert coordination.outcome(operation) == revision


def test_a_failed_compare_is_not_recorded(coordination: Coordination) -> None:
    put(coordination, "k")
    operation = ulid()
    with pytest.raises(ConflictError):
        coordination.transact([Absent("k")], [], operation=operation)
    assert coordination.outcome(operation) is None


def test_what_was_settled_as_not_done_cannot_arrive_later(coordination: Coordination) -> None:
    operation = ulid()
    assert coordination.outcome(operation) is None
    with pytest.raises(ConflictError, match=operation):
        coordination.transact([], [Put("late", b"")], operation=operation)
    assert coordination.outcome(operation) is None
    assert values(coordination) == {}


def test_records_of_operations_are_not_listed_or_watched(coordination: Coordination) -> None:
    start = coordination.list("").revision
    revision = coordination.transact([], [Put("k", b"")], operation=ulid())
    assert values(coordination) == {"k": b""}
    assert flat(coordination.watch("", start, 0)) == [(revision, "k", b"")]


@pytest.mark.parametrize("name", [POSTGRES, ETCD])
@pytest.mark.parametrize("deliver", [True, False], ids=["answer-lost", "request-lost"])
def test_a_lost_answer_can_be_settled(request: pytest.FixtureRequest, tmp_path: Path, name: str, deliver: bool) -> None:
    backend = make_backend(name, request, tmp_path)
    url = make_url(backend.target) if name == "postgres" else httpx.URL(backend.target.removeprefix("etcd+"))
    proxy = LossyProxy(str(url.host), int(url.port or 0))
    coordination = open_coordination(backend.target.replace(f":{url.port}/", f":{proxy.port}/"))
    put(coordination, "warm", b"up")
    settle, operation = ulid(), ulid()
    coordination.outcome(settle)  # etcd's lease for records exists before anything is lost
    proxy.lose(b"COMMIT\0" if name == "postgres" else b"/v3/kv/txn", deliver=deliver)
    with pytest.raises(OutcomeUnknownError) as caught:
        coordination.transact([Absent("k")], [Put("k", b"")], operation=operation)
    assert caught.value.operation == operation
    landed = coordination.outcome(operation)
    found = coordination.get("k")
    assert (landed, deliver) == ((found.mod_revision, True) if found else (None, False))
    # An acquire whose answer is lost holds nothing afterwards, whichever of its answers it was.
    for skip in (0, 1) if name == "postgres" else (0,):
        proxy.lose(b"COMMIT\0" if name == "postgres" else b"/v3/kv/txn", deliver=deliver, skip=skip)
        with pytest.raises(UnavailableError):
            acquire(coordination, "leader", "me", 60)
        assert coordination.get("leader") is None
    coordination.close()
    proxy.close()


@pytest.mark.parametrize("scheme", ["etcd+http", "etcd+http-cluster"])
def test_an_etcd_that_is_not_there_is_unavailable(scheme: str) -> None:
    hosts = f"127.0.0.1:{dead_port()}"
    if scheme.endswith("cluster"):
        hosts += f",127.0.0.1:{dead_port()}"
    coordination = open_coordination(f"etcd+http://{hosts}/test")
    calls: list[Callable[[], object]] = [
        lambda: coordination.get("k"),
        lambda: coordination.list(""),
        lambda: put(coordination, "k"),
        lambda: coordination.outcome(ulid()),
        lambda: coordination.grant(5),
        lambda: coordination.keep_alive(5),
        lambda: coordination.revoke(5),
        lambda: list(coordination.watch("", 0, 0)),
    ]
    for call in calls:
        with pytest.raises(UnavailableError):
            call()
    coordination.close()


@pytest.mark.services
def test_another_member_of_etcd_is_asked_when_one_is_gone(etcd_url: str) -> None:
    host = etcd_url.removeprefix("http://")
    coordination = open_coordination(f"etcd+http://127.0.0.1:{dead_port()},{host}/{uuid4().hex}")
    revision = put(coordination, "k", b"v")
    assert flat(coordination.watch("", revision - 1, 0)) == [(revision, "k", b"v")]
    coordination.close()


@pytest.mark.parametrize(
    "url",
    [
        "etcd+http://",
        "etcd+http://user:hunter2@host:1",
        "etcd+http://user:hunter2/more@host:1",
        "etcd+http://host:1/?password=hunter2",
        "etcd+http://host:1#hunter2",
        "etcd+http://host:hunter2",
        "etcd+http://[::1",
        "etcd+http://host:99999999",
        "etcd+http://h:1?x=y",
        "etcd+http://h:1/name\ud800space",
        "etcd+http://h:1/lake/k/inner",
        "etcd+http://h:1/o",
    ],
)
def test_a_wrong_etcd_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_coordination(url)
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in str(caught.value.as_json())


@pytest.mark.parametrize("url", ["etcd://host:2379", "http://host:2379", "https://u:hunter2@host", "etcd+tcp://host:1"])
def test_a_server_that_is_no_coordinator_is_refused_with_the_right_spelling(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_coordination(url)
    assert "etcd+http://" in str(caught.value.hint)
    assert "hunter2" not in str(caught.value)


class Script(BaseHTTPRequestHandler):
    """A member of etcd that answers whatever its server was told to: a status and a body, or nothing at all."""

    def do_POST(self) -> None:
        assert isinstance(self.server, Member)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, body))
        if self.server.answer is None:
            self.close_connection = True
            return
        status, content = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


class Member(ThreadingHTTPServer):
    """An etcd that does as it is told, for answers that a real one gives once in a year."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Script)
        self.answer: tuple[int, bytes] | None = None
        self.asked: list[tuple[str, bytes]] = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def says(self, status: int, **content: object) -> None:
        self.answer = (status, json.dumps(content).encode())


@pytest.fixture
def member() -> Iterator[Member]:
    server = Member()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, 3, UsageError),
        (403, 7, UsageError),
        (401, 16, UsageError),
        (400, 9, UsageError),
        (501, 12, UsageError),
        (499, 1, OutcomeUnknownError),
        (408, 1, OutcomeUnknownError),
        (504, 4, OutcomeUnknownError),
        (429, 8, OutcomeUnknownError),
        (409, 10, OutcomeUnknownError),
        (503, 14, OutcomeUnknownError),
        (418, 0, OutcomeUnknownError),
    ],
)
def test_only_a_proven_rejection_of_etcd_is_one(
    member: Member, status: int, code: int, expected: type[HeadwaterError]
) -> None:
    member.says(status, error="no", code=code, message="no")
    coordination = open_coordination(f"etcd+http://{member.host}")
    with pytest.raises(expected):
        put(coordination, "k")
    for call in (lambda: coordination.get("k"), lambda: coordination.revoke(5), lambda: coordination.keep_alive(5)):
        with pytest.raises(HeadwaterError) as caught:
            call()
        assert type(caught.value) is (UsageError if expected is UsageError else UnavailableError)
    coordination.close()


@pytest.mark.parametrize("content", [b"{}", b"[]", b'"hello"', b"<html>", b'{"header": {}}', b'{"result": 5}', b""])
def test_an_answer_that_is_not_of_etcd_tells_nothing(member: Member, content: bytes) -> None:
    member.answer = (200, content)
    coordination = open_coordination(f"etcd+http://{member.host}")
    with pytest.raises(OutcomeUnknownError):
        put(coordination, "k")
    calls: list[Callable[[], object]] = [
        lambda: coordination.get("k"),
        lambda: coordination.list(""),
        lambda: coordination.grant(5),
        lambda: coordination.keep_alive(5),
        lambda: coordination.revoke(5),
        lambda: coordination.outcome(ulid()),
        lambda: list(coordination.watch("", 0, 0)),
    ]
    for call in calls:
        with pytest.raises(UnavailableError):
            call()
    coordination.close()


@pytest.mark.services
@pytest.mark.parametrize("answer", [None, (503, b'{"code": 14, "message": "etcdserver: no leader"}')])
def test_a_member_of_etcd_that_loses_answers_is_passed_over(
    member: Member, etcd_url: str, answer: tuple[int, bytes] | None
) -> None:
    good = etcd_url.removeprefix("http://")
    target = f"etcd+http://{member.host},{good}/{uuid4().hex}"
    member.answer = answer
    ready = open_coordination(target)
    lease = ready.grant(60)
    put(ready, "k", b"", lease.id)
    ready.close()
    calls: list[Callable[[Coordination], object]] = [
        lambda c: c.get("k"),
        lambda c: c.list(""),
        lambda c: c.keep_alive(lease.id),
        lambda c: c.outcome(ulid()),
        lambda c: c.revoke(lease.id),
    ]
    for call in calls:
        coordination = open_coordination(target)
        member.asked.clear()
        call(coordination)
        assert len(member.asked) == 1
        coordination.get("k")
        assert len(member.asked) == 1, "the next request goes to the member that answered"
        coordination.close()
    coordination = open_coordination(target)
    with pytest.raises(OutcomeUnknownError):  # it may have landed there: not to be repeated by us
        put(coordination, "once")
    assert coordination.get("once") is None
    put(coordination, "once")
    coordination.close()


@pytest.mark.services
def test_a_delete_at_the_compacted_revision_is_not_lost(etcd_url: str) -> None:
    backend = Backend("etcd", f"etcd+{etcd_url}/{uuid4().hex}", 2, SystemClock())
    coordination = backend.open()
    seen = put(coordination, "w/k")
    deleted = coordination.transact([], [Delete("w/k")])
    backend.forget(deleted)
    with pytest.raises(CompactedError, match="list again"):
        list(coordination.watch("w/", seen, 0))
    last = put(coordination, "w/k", b"again")
    assert flat(coordination.watch("w/", deleted, 0)) == [(last, "w/k", b"again")]
    coordination.close()


def test_a_fork_while_the_lease_of_records_is_granted_does_not_hang() -> None:
    code = """if True:
        import os, signal, threading, warnings
        from headwater.coordination.etcd_records import RecordsLease
        from headwater.coordination.model import Lease
        from headwater.kernel.clock import SystemClock
        warnings.simplefilter("ignore")
        asked, answer, parent = threading.Event(), threading.Event(), os.getpid()
        def grant(ttl_seconds):
            if os.getpid() == parent:
                asked.set()
                answer.wait()
            return Lease(7, ttl_seconds)
        records = RecordsLease(grant, SystemClock())
        thread = threading.Thread(target=records.current)
        thread.start()
        asked.wait()
        if (child := os.fork()) == 0:
            signal.alarm(5)
            os._exit(0 if records.current() == 7 else 1)
        _, status = os.waitpid(child, 0)
        answer.set()
        thread.join()
        print(status)
    """
    assert finished(python(code)) == "0"


# --- the database's own -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sqlite", POSTGRES])
def test_migrations_make_the_tables_that_the_code_means(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    database = open_database(make_backend(name, request, tmp_path).target)
    DatabaseCoordination(database)
    with database.read() as connection:

        def ours(thing: object, found: str | None, kind: str, *_: object) -> bool:
            return kind != "table" or found != "coordination_version"

        context = MigrationContext.configure(connection, opts={"include_object": ours, "compare_type": True})
        assert compare_metadata(context, tables.metadata) == []
        if name == "postgres":
            query = "SELECT DISTINCT collation_name FROM information_schema.columns WHERE column_name = 'key'"
            found = connection.execute(sa.text(f"{query} AND table_schema = current_schema()")).scalars().all()
            assert found == ["C"]
    database.close()


def test_a_database_that_cannot_be_migrated_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Database] = []
    monkeypatch.setattr(on_database, "migrate", Mock(side_effect=CorruptError("newer")))
    monkeypatch.setattr(Database, "close", lambda database: closed.append(database))
    with pytest.raises(CorruptError):
        open_coordination(tmp_path / "state.db")
    assert len(closed) == 1


def test_records_are_forgotten_in_the_end(tmp_path: Path) -> None:
    clock = ManualClock()
    with open_database(tmp_path / "state.db", clock=clock) as database:
        coordination = DatabaseCoordination(database)
        coordination.transact([], [], operation=ulid())
        clock.advance(timedelta(days=2))
        coordination.transact([], [], operation=ulid())
        with database.read() as connection:
            assert connection.execute(sa.select(sa.func.count()).select_from(tables.operations)).scalar_one() == 1


@pytest.mark.parametrize("name", ["sqlite", POSTGRES])
def test_a_writer_that_waited_judges_leases_by_the_time_it_acts(
    request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    """Its lease was alive when it queued up behind another writer, and is not when its turn comes."""
    backend = make_backend(name, request, tmp_path)
    database = open_database(backend.target, clock=backend.clock)
    coordination = DatabaseCoordination(database)
    held = acquire(coordination, "leader", "me", backend.ttl_seconds)
    assert held is not None
    with ThreadPoolExecutor(1) as pool:
        with database.write(isolation=Isolation.OWN_LOCKS) as connection:
            connection.execute(sa.select(tables.state).with_for_update())
            writing = pool.submit(coordination.transact, [held.compare()], [Put("deed", b"")])
            time.sleep(0.2)  # it waits for the lock by now
            backend.let_pass(backend.ttl_seconds)
        with pytest.raises(ConflictError, match="leader"):
            writing.result()
    assert values(coordination) == {}
    database.close()


@pytest.mark.parametrize("name", ["sqlite", POSTGRES])
def test_a_renewal_that_commits_late_brings_nothing_back(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It was in time when it won the lock, and commits after the old end of the lease: no reader may judge before."""
    backend = make_backend(name, request, tmp_path)
    coordination = backend.open()
    lease = coordination.grant(backend.ttl_seconds)
    put(coordination, "w/k", b"", lease.id)
    paused, go_on = threading.Event(), threading.Event()
    finish = Turn.finish

    def finish_late(turn: Turn) -> None:
        finish(turn)
        if not paused.is_set():
            paused.set()
            assert go_on.wait(20)

    monkeypatch.setattr(Turn, "finish", finish_late)
    with ThreadPoolExecutor(3) as pool:
        backend.let_pass(backend.ttl_seconds * 0.5)
        renewing = pool.submit(coordination.keep_alive, lease.id)
        assert paused.wait(20)
        backend.let_pass(backend.ttl_seconds * 0.5)
        listing, getting = pool.submit(coordination.list, "w/"), pool.submit(coordination.get, "w/k")
        time.sleep(0.1)  # the readers have seen the old end of the lease by now
        go_on.set()
        renewing.result()
        view, found = listing.result(), getting.result()
    assert found is not None
    assert [entry.key for entry in view.entries] == ["w/k"]
    assert flat(coordination.watch("w/", view.revision, 0)) == []
    assert list(values(coordination)) == ["w/k"]
    coordination.close()


class SteppingClock(ManualClock):
    """A clock of a machine whose time was corrected."""

    def step(self, seconds: float) -> None:
        self._start += timedelta(seconds=seconds)


def test_a_lease_that_was_called_expired_stays_so_when_the_clock_steps_back(tmp_path: Path) -> None:
    calls: list[Callable[[Held], object]] = [
        lambda held: held.keep_alive(),
        lambda held: held.verify(),
        lambda held: held.coordination.transact([], [Put("deed", b"", held.lease.id)]),
    ]
    for number, call in enumerate(calls):
        clock = SteppingClock()
        coordination = open_coordination(tmp_path / f"{number}.db", clock=clock)
        held = acquire(coordination, "leader", "me", 5)
        assert held is not None
        start = coordination.list("").revision
        clock.step(6)
        with pytest.raises(ConflictError):
            call(held)
        clock.step(-6)
        assert [key for _, key, _ in flat(coordination.watch("", start, 0))] == [held.key]
        assert coordination.get(held.key) is None
        with pytest.raises(LeaseExpiredError):
            held.keep_alive()
        coordination.close()


@pytest.mark.parametrize("backend", ["sqlite", POSTGRES], indirect=True)
def test_leases_end_in_their_order_each_at_its_own_revision(backend: Backend, coordination: Coordination) -> None:
    """etcd has an order of its own."""
    late, early, empty = coordination.grant(1), coordination.grant(0.9), coordination.grant(0.8)
    ops = [Put("a", b"", late.id), Put("b", b"", late.id), Put("c", b"", early.id), Put("d", b"")]
    start = coordination.transact([], ops)
    backend.let_pass(1)
    with pytest.raises(LeaseExpiredError):
        coordination.keep_alive(empty.id)
    assert flat(coordination.watch("", start, 0)) == [
        (start + 1, "c", None),
        (start + 2, "a", None),
        (start + 2, "b", None),
    ]
    assert list(values(coordination)) == ["d"]


def test_a_coordinator_that_keeps_less_says_what_it_forgot(tmp_path: Path) -> None:
    with open_database(tmp_path / "state.db") as database:
        coordination = DatabaseCoordination(database)
        first = put(coordination, "w/k", b"0")
        for number in range(1, 20):
            put(coordination, "w/k", b"%d" % number)
        frugal = DatabaseCoordination(database, events_kept=2)
        frugal.transact([], [])  # changes nothing, but forgets
        with pytest.raises(CompactedError, match="list again"):
            list(coordination.watch("w/", first, 0))
        for kept in (0, -1):
            with pytest.raises(UsageError, match="cannot be kept"):
                DatabaseCoordination(database, events_kept=kept)


KEYS = st.sampled_from(["a", "b", "b/1", "b/2", "c"])


class AgainstDictionary(RuleBasedStateMachine):
    """Any sequence of calls on SQLite gives what a dictionary with expiry times would."""

    @initialize()
    def start(self) -> None:
        self.folder = tempfile.mkdtemp()
        self.clock = ManualClock()
        self.database = open_database(Path(self.folder) / "state.db", clock=self.clock)
        self.coordination = DatabaseCoordination(self.database)
        self.model: dict[str, Entry] = {}
        self.leases: dict[int, tuple[float, float]] = {}
        self.revision = 0
        self.history: list[tuple[int, str, bytes | None]] = []

    def teardown(self) -> None:
        if hasattr(self, "database"):
            self.database.close()
            shutil.rmtree(self.folder)

    def sweep(self) -> None:
        now = self.clock.monotonic()
        for lease in sorted(self.leases, key=lambda one: self.leases[one][1]):
            if self.leases[lease][1] <= now:
                self.end(lease)

    def end(self, lease: int) -> None:
        del self.leases[lease]
        gone = sorted(key for key, entry in self.model.items() if entry.lease == lease)
        self.revision += 1 if gone else 0
        for key in gone:
            del self.model[key]
            self.history.append((self.revision, key, None))

    @rule(ttl=st.integers(1, 5))
    def grant(self, ttl: int) -> None:
        self.sweep()
        lease = self.coordination.grant(ttl)
        assert lease.id not in self.leases
        self.leases[lease.id] = (ttl, self.clock.monotonic() + ttl)

    @rule(data=st.data(), alive=st.booleans())
    def keep_alive(self, data: st.DataObject, alive: bool) -> None:
        lease = data.draw(st.sampled_from(sorted(self.leases) or [99]))
        self.sweep()
        if lease not in self.leases:
            with pytest.raises(LeaseExpiredError):
                self.coordination.keep_alive(lease)
        else:
            self.coordination.keep_alive(lease)
            self.leases[lease] = (self.leases[lease][0], self.clock.monotonic() + self.leases[lease][0])

    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        self.sweep()
        lease = data.draw(st.sampled_from(sorted(self.leases) or [99]))
        self.coordination.revoke(lease)
        if lease in self.leases:
            self.end(lease)

    @rule(seconds=st.sampled_from([0.5, 1, 2, 4]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.sleep(seconds)

    @rule(data=st.data(), keys=st.lists(KEYS, min_size=1, max_size=3, unique=True), compared=st.lists(KEYS, max_size=2))
    def transact(self, data: st.DataObject, keys: list[str], compared: list[str]) -> None:
        operations: list[Operation] = []
        for key in keys:
            lease = data.draw(st.sampled_from([None, *sorted(self.leases)]))
            value = data.draw(st.binary(max_size=3))
            operations.append(Delete(key) if data.draw(st.booleans()) else Put(key, value, lease))
        self.sweep()
        compares = [self.draw_compare(data, key) for key in compared]
        dead = [one for one in operations if isinstance(one, Put) and one.lease not in (None, *self.leases)]
        if any(not self.holds(compare) for compare in compares) or dead:
            with pytest.raises(ConflictError):
                self.coordination.transact(compares, operations)
            return
        changing = [one for one in operations if isinstance(one, Put) or one.key in self.model]
        self.revision += 1 if changing else 0
        for one in sorted(changing, key=lambda operation: operation.key):
            old = self.model.pop(one.key, None)
            if isinstance(one, Put):
                created, version = (old.create_revision, old.version + 1) if old else (self.revision, 1)
                self.model[one.key] = Entry(one.key, one.value, created, self.revision, version, one.lease)
            self.history.append((self.revision, one.key, one.value if isinstance(one, Put) else None))
        assert self.coordination.transact(compares, operations) == self.revision

    def draw_compare(self, data: st.DataObject, key: str) -> Compare:
        entry = self.model.get(key) or Entry(key, b"", 1, 1, 1, 1)
        choices: list[Compare] = [
            Absent(key),
            ModifiedAt(key, entry.mod_revision),
            CreatedAt(key, entry.create_revision),
        ]
        return data.draw(st.sampled_from([*choices, LeasedBy(key, entry.lease or 99)]))

    def holds(self, compare: Compare) -> bool:
        entry = self.model.get(compare.key)
        if entry is None or isinstance(compare, Absent):
            return entry is None and isinstance(compare, Absent)
        if isinstance(compare, ModifiedAt):
            return entry.mod_revision == compare.mod_revision
        if isinstance(compare, CreatedAt):
            return entry.create_revision == compare.create_revision
        return entry.lease == compare.lease

    @rule()
    def watch_everything(self) -> None:
        self.sweep()
        assert flat(self.coordination.watch("", 0, 0)) == self.history

    @rule()
    def get_everything(self) -> None:
        self.sweep()
        self.coordination.list("")
        for key in ("a", "b", "b/1", "b/2", "c"):
            assert self.coordination.get(key) == self.model.get(key)

    @invariant()
    def what_is_listed_is_what_lives(self) -> None:
        now = self.clock.monotonic()
        if any(entry.lease and self.leases[entry.lease][1] <= now for entry in self.model.values()):
            return  # to list would sweep, and the next rule shall find something to sweep
        living = [entry for _, entry in sorted(self.model.items())]
        listing = self.coordination.list("")
        assert listing.entries == tuple(living)
        assert listing.revision == self.revision
        assert self.coordination.list("b/").entries == tuple(one for one in living if one.key.startswith("b/"))


AgainstDictionary.TestCase.settings = settings(max_examples=15, stateful_step_count=20, deadline=None, database=None)
test_any_history_equals_the_dictionary = AgainstDictionary.TestCase
