"""What goes wrong on the way, told from the user's side: the lake stays usable, and heals without a person."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyarrow as pa
import pytest

from headwater.catalog.model import RefKind
from headwater.kernel import failpoints
from headwater.kernel.errors import ConflictError, UnavailableError, UsageError
from headwater.kernel.failpoints import Action, Failpoint
from headwater.kernel.ids import Ulid
from headwater.lake import Lake
from headwater.publish.codec import FORMAT
from headwater.publish.errors import PublishOutcomeUnknownError, SidecarCorruptError
from headwater.publish.model import RECOVERY_ACTOR, Verdict
from headwater.publish.requests import FOR_OPERATION, KIND
from headwater.publish.sidecars import FOLDER, path_of
from headwater.storage.port import ObjectStore, Overwrite
from headwater.tables.scan import plan_scan
from tests.unit.hooks import HookedStore
from tests.unit.publish_world import LAKE, OVER, Process, PublishWorld
from tests.unit.sequence_world import lose

IDS = pa.schema([("id", pa.int64()), ("v", pa.string())])
Log = pytest.LogCaptureFixture


class Bank:
    """A lake with the tables a and b, and as many processes as a test opens."""

    def __init__(self) -> None:
        self.world = PublishWorld()
        lake = self.open()
        lake.apply(
            "create table a (id bigint not null primary key, v varchar) with (format_version = 3); "
            "create table b (id bigint, v varchar) with (format_version = 3)",
            actor="ann",
        )
        for number in (1, 2, 3):
            with lake.transaction(actor="ann") as transaction:
                transaction.insert("a", rows(number))
                transaction.insert("b", rows(number))

    def open(self, store: ObjectStore | None = None, *, sweep: bool = False) -> Lake:
        process: Process = self.world.process(store)
        if sweep:
            process.writing.recovery.sweep()
        return Lake(process.catalog, process.files, location=LAKE, writing=process.writing)

    def all_leases_pass(self) -> None:
        self.world.clock.advance(OVER)


def rows(*ids: int, v: str = "x") -> pa.Table:
    return pa.table({"id": list(ids), "v": [v] * len(ids)}, schema=IDS)


def ids(lake: Lake, table: str) -> list[int]:
    return [row["id"] for row in lake.query(f"select id from {table} order by id").to_pylist()]


def insert(lake: Lake, *numbers: int) -> Ulid:
    """The same rows into both tables."""
    with lake.transaction(actor="bob") as transaction:
        transaction.insert("a", rows(*numbers))
        transaction.insert("b", rows(*numbers))
    return transaction.operation


def both(lake: Lake) -> list[int]:
    found = ids(lake, "a")
    assert ids(lake, "b") == found
    return found


def recoveries(lake: Lake) -> list[str]:
    """The operations that the log tells of as recovered, oldest first."""
    log = [each for each in lake.catalog.log(lake.catalog.ref("main").hash) if each.actor == RECOVERY_ACTOR]
    return [each.properties[FOR_OPERATION] for each in reversed(log)]


def pending(lake: Lake) -> int:
    return len(lake.writing.sidecars.pending())


def fail() -> None:
    raise UnavailableError("the store does not answer")


def leave(work: Callable[[], object], point: Failpoint = Failpoint.PUBLISH_AFTER_HEAD, nth: int = 1) -> None:
    """The writer stops there and never comes back."""
    with (
        failpoints.arm(point, Action.ERROR, only_hit=nth) as armed,
        pytest.raises((PublishOutcomeUnknownError, failpoints.FailpointError)),
    ):
        work()
    assert armed.hits == nth


@pytest.fixture
def bank() -> Bank:
    return Bank()


class TestPartialFailure:
    def test_partial_failure_leaves_the_target_usable(self, bank: Bank) -> None:
        """The second statement fails: nothing of the first is anywhere, and the next transaction goes through."""
        lake = bank.open()
        before = {meta.path for meta in bank.world.store.list()}

        def statements(last: str) -> None:
            with lake.transaction(actor="bob") as transaction:
                transaction.sql("insert into a values (7, 'seven')")
                transaction.sql(last)

        for broken in ("update b set nothing = 1", "insert into nowhere values (1)", "delete from"):
            with pytest.raises(UsageError):
                statements(broken)
        left = {meta.path for meta in bank.world.store.list()} - before
        assert [path for path in left if not path.startswith("_headwater/")] == []
        assert both(lake) == [1, 2, 3]
        insert(lake, 7)
        assert both(lake) == [1, 2, 3, 7]

    def test_a_store_that_fails_between_the_heads_leaves_the_target_usable(self, bank: Bank) -> None:
        """The same process, which still lives, undoes it at its next write."""
        lake = bank.open()
        leave(lambda: insert(lake, 7))
        assert both(lake) == [1, 2, 3]
        insert(lake, 8)
        assert both(lake) == [1, 2, 3, 8]


def load(lake: Lake) -> None:
    lake.load("a", rows(7), actor="eve")


def transact(lake: Lake) -> None:
    with lake.transaction(actor="eve") as transaction:
        transaction.sql("insert into a values (7, 'x')")


def apply_schema(lake: Lake) -> None:
    lake.apply("alter table a add column w varchar", actor="eve")


def merge(lake: Lake) -> None:
    ref = lake.catalog.create_ref(RefKind.BRANCH, "dev", lake.catalog.ref("main").hash)
    lake.load("a", rows(7), branch=ref.name, actor="eve")
    leave(lambda: lake.merge("dev", actor="eve"))


def optimize(lake: Lake) -> None:
    lake.optimize("a", actor="eve", min_files=2)


def build_indices(lake: Lake) -> None:
    lake.ensure_indices("a", actor="eve")


# What each kind of writer does to table a, and how one sees that it is there.
WRITERS: dict[str, tuple[Callable[[Lake], None], Callable[[Lake], bool]]] = {
    "transaction": (transact, lambda lake: 7 in ids(lake, "a")),
    "load": (load, lambda lake: 7 in ids(lake, "a")),
    "schema-apply": (apply_schema, lambda lake: "w" in lake.table("a").metadata.schema().column_names),
    "merge": (merge, lambda lake: 7 in ids(lake, "a")),
    "optimize": (optimize, lambda lake: len(plan_scan(lake.files, lake.table("a").metadata).tasks) < 3),
    "indices": (build_indices, lambda lake: bool(lake.table("a").metadata.statistics)),
}


class TestHealsWithoutReopen:
    @pytest.mark.parametrize("kind", WRITERS)
    def test_heals_without_reopen(self, bank: Bank, kind: str) -> None:
        """Its writer died between heads and commit. Another process, open all the while, writes: that is enough."""
        work, is_there = WRITERS[kind]
        lake, other = bank.open(), bank.open()
        other.apply("alter table a set tblproperties ('headwater.statistics.columns' = 'id')", actor="ann")
        if kind == "merge":
            work(lake)
        else:
            leave(lambda: work(lake))
        [sidecar] = lake.writing.sidecars.pending()
        assert str(sidecar.kind) == kind
        assert not is_there(other)
        bank.all_leases_pass()
        insert(other, 8)  # heals first, and succeeds at its first try
        assert is_there(other)
        assert 8 in ids(other, "a")
        assert recoveries(other) == [sidecar.operation]
        assert pending(other) == 0

    def test_a_refresh_is_enough_too(self, bank: Bank) -> None:
        lake, other = bank.open(), bank.open()
        leave(lambda: insert(lake, 7), nth=2)
        assert other.refresh() == ()  # its writer may be alive
        bank.all_leases_pass()
        assert [each.verdict for each in other.refresh()] == [Verdict.FORWARD]
        assert both(other) == [1, 2, 3, 7]
        insert(other, 8)  # at the first try: nothing is left to heal


class TestSidecarsThatStay:
    def test_stale_sidecar(self, bank: Bank) -> None:
        """Its change is published, and others have gone on from there: it is told once, and deleted."""
        lake, other = bank.open(), bank.open()
        leave(lambda: insert(lake, 7), Failpoint.PUBLISH_AFTER_COMMIT)
        other.load("b", rows(8), actor="bob")
        bank.all_leases_pass()
        insert(other, 9)
        assert (ids(other, "a"), ids(other, "b")) == ([1, 2, 3, 7, 9], [1, 2, 3, 7, 8, 9])
        assert pending(other) == 0
        assert len(recoveries(other)) == 1

    @pytest.mark.parametrize(
        "data",
        [b"", b"{}", b"\xff\x00", b'{"format": 1}', b"[" * 100_000],
        ids=["empty", "no fields", "no text", "fields missing", "deep"],
    )
    def test_corrupt_sidecar(self, bank: Bank, data: bytes) -> None:
        """Refused by everybody who would have to act on it, and kept; reading works."""
        path = path_of(Ulid("01ARZ3NDEKTSV4RRFFQ69G5FAV"))
        lake = bank.open()
        bank.world.store.put(path, data, Overwrite())
        for refused in (
            lambda: insert(lake, 7),
            lambda: bank.open(sweep=True),
            lake.repair,
            lake.writing.recovery.refresh,
            lake.writing.recovery.plan,
            lambda: lake.writing.recovery.settle(Ulid("01ARZ3NDEKTSV4RRFFQ69G5FAV")),
        ):
            with pytest.raises(SidecarCorruptError, match=path):
                refused()
        assert both(lake) == [1, 2, 3]
        assert bank.world.store.get(path).data == data

    def test_a_sidecar_that_was_changed_is_damaged(self, bank: Bank) -> None:
        lake = bank.open()
        leave(lambda: insert(lake, 7), nth=2)
        [meta] = bank.world.store.list(FOLDER)
        data = bank.world.store.get(meta.path).data
        bank.world.store.put(meta.path, data.replace(b'"actor": "bob"', b'"actor": "eve"'), Overwrite())
        bank.all_leases_pass()
        with pytest.raises(SidecarCorruptError, match="its digest is another"):
            bank.open(sweep=True)
        bank.world.store.put(meta.path, data, Overwrite())
        assert both(bank.open(sweep=True)) == [1, 2, 3, 7]

    def test_newer_sidecar(self, bank: Bank) -> None:
        """Of a version that is to come: nobody may guess what it means."""
        lake = bank.open()
        leave(lambda: insert(lake, 7), nth=2)
        [meta] = bank.world.store.list(FOLDER)
        data = bank.world.store.get(meta.path).data
        newer = json.dumps({**json.loads(data), "format": FORMAT + 1, "more": True}).encode()
        bank.world.store.put(meta.path, newer, Overwrite())
        bank.all_leases_pass()
        other = bank.open()
        for refused in (lambda: insert(other, 8), lambda: bank.open(sweep=True)):
            with pytest.raises(SidecarCorruptError, match=f"has format {FORMAT + 1}, newer than {FORMAT}"):
                refused()
        assert both(other) == [1, 2, 3]
        assert bank.world.store.get(meta.path).data == newer


class TestFailingStore:
    """What the store fails at decides what the user hears, and nothing is left undone for ever."""

    @pytest.mark.parametrize(("nth", "verdict"), [(1, Verdict.BACK), (2, Verdict.FORWARD)])
    def test_audit_retry(self, bank: Bank, nth: int, verdict: Verdict) -> None:
        """The recovery is committed, the delete of the sidecar fails: the next one adds no second row to the log."""
        hooked = HookedStore(bank.world.store)
        lake, first, second = bank.open(), bank.open(hooked), bank.open()
        leave(lambda: insert(lake, 7), nth=nth)
        [sidecar] = first.writing.sidecars.pending()
        bank.all_leases_pass()
        hooked.before("delete", path_of(sidecar.operation), fail)
        assert [each.verdict for each in first.writing.recovery.sweep()] == [verdict]
        assert (pending(second), recoveries(second)) == (1, [sidecar.operation])
        assert len(second.writing.recovery.sweep()) == 1
        assert (pending(second), recoveries(second)) == (0, [sidecar.operation])
        [told] = [each for each in second.catalog.log(second.catalog.ref("main").hash) if each.actor == RECOVERY_ACTOR]
        assert told.properties[KIND] == str(verdict)
        insert(second, 8)
        assert both(second) == ([1, 2, 3, 8] if verdict is Verdict.BACK else [1, 2, 3, 7, 8])

    def test_sidecar_put_fails_nothing_moved(self, bank: Bank) -> None:
        hooked = HookedStore(bank.world.store)
        lake, other = bank.open(hooked), bank.open()
        before = other.catalog.ref("main").hash

        def work() -> None:
            with lake.transaction(actor="bob") as transaction:
                transaction.insert("a", rows(7))
                transaction.insert("b", rows(7))
                hooked.before("put", path_of(transaction.operation), fail)

        with pytest.raises(UnavailableError):
            work()
        assert other.catalog.ref("main").hash == before
        assert [path for op, path in hooked.calls if op == "put" and path.endswith(".metadata.json")] == []
        assert pending(other) == 0
        insert(lake, 8)  # nothing is held up
        assert both(lake) == [1, 2, 3, 8]

    def test_sidecar_put_loses_its_answer_nothing_moved(self, bank: Bank) -> None:
        """It is there, or it comes later: what it planned did not begin, and a sweep sees to it that it never does."""
        hooked = HookedStore(bank.world.store)
        lake, other = bank.open(hooked), bank.open()
        kept: list[tuple[str, bytes]] = []

        def lost(path: str) -> None:
            kept.append((path, bank.world.store.get(path).data))
            lose()

        def work() -> None:
            with lake.transaction(actor="bob") as transaction:
                transaction.insert("a", rows(7))
                path = path_of(transaction.operation)
                hooked.after("put", path, lambda: lost(path))

        with pytest.raises(ConflictError, match="did not begin"):
            work()
        assert [path for op, path in hooked.calls if op == "put" and path.endswith(".metadata.json")] == []
        bank.world.store.put(*kept[0], Overwrite())  # the network repeats the put, after all
        bank.all_leases_pass()
        [recovered] = other.writing.recovery.sweep()
        assert recovered.verdict is Verdict.BACK
        insert(other, 8)
        assert both(other) == [1, 2, 3, 8]

    def test_sidecar_delete_fails_a_warning_healed_later(self, bank: Bank, caplog: Log) -> None:
        hooked = HookedStore(bank.world.store)
        lake, other = bank.open(hooked), bank.open()
        with lake.transaction(actor="bob") as transaction:
            transaction.insert("a", rows(7))
            transaction.insert("b", rows(7))
            hooked.before("delete", path_of(transaction.operation), fail)
        assert transaction.commit is not None  # it is committed, and so it is reported
        assert "a sidecar was left behind" in caplog.text
        assert pending(other) == 1
        bank.all_leases_pass()
        insert(other, 8)
        assert both(other) == [1, 2, 3, 7, 8]
        assert (pending(other), recoveries(other)) == (0, [transaction.operation])

    def test_list_fails_loud_at_every_consumer(self, bank: Bank) -> None:
        """Whoever passed over it in silence would write on top of drift, or delete what is still needed."""
        hooked = HookedStore(bank.world.store)
        lake = bank.open(hooked)
        consumers: dict[str, Callable[[], object]] = {
            "write": lambda: insert(lake, 7),
            "load": lambda: lake.load("a", rows(7), actor="bob"),
            "schema apply": lambda: lake.apply("alter table a add column w varchar", actor="bob"),
            "sweep": lake.writing.recovery.sweep,
            "refresh": lake.writing.recovery.refresh,
            "dry run": lake.writing.recovery.plan,
            "sidecars": lake.writing.sidecars.readable,
            "repair": lake.repair,
            "cleanup": lake.cleanup,
        }
        for name, consumer in consumers.items():
            hooked.before("list", FOLDER, fail)
            with pytest.raises(UnavailableError):
                consumer()
            assert ("list", FOLDER) in hooked.calls, name
            hooked.calls.clear()
        assert both(lake) == [1, 2, 3]
        insert(lake, 7)
        assert both(lake) == [1, 2, 3, 7]
