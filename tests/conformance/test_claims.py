"""Claims, deletions and outputs mean the same on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from threading import Barrier

import pytest
import sqlalchemy as sa

from headwater.database import Database, Isolation, open_database
from headwater.kernel.clock import SystemClock
from headwater.kernel.errors import RefusedError, UnavailableError, UsageError
from headwater.kernel.ids import Ulid, new_ulid
from headwater.kernel.randomness import system_randomness
from headwater.regions import tables
from headwater.regions.claims import Claimed, ClaimRun, Claims, DeleteVerdict
from headwater.regions.claims.protocol import BATCH
from headwater.regions.errors import InvalidUriError, RunEndedError
from headwater.regions.outputs import Output, Outputs

BACKENDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.services)]
X, Y, Z = "s3://eu/x", "s3://eu/y", "s3://eu/z"

pytestmark = pytest.mark.proves("regions/claims")


@pytest.fixture(params=BACKENDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    is_server = request.param == "postgresql"
    target = str(request.getfixturevalue("postgres_database")) if is_server else str(tmp_path / "state.db")
    with open_database(target) as opened:
        yield opened


@pytest.fixture
def claims(database: Database) -> Claims:
    return Claims(database)


def fresh() -> Ulid:
    return new_ulid(SystemClock(), system_randomness())


def opened(claims: Claims, *, fence: int = 1, region: str = "eu", run: Ulid | None = None) -> ClaimRun:
    return claims.open(run or fresh(), region, fence=fence, lease_seconds=600).run


def lapse(database: Database, run: ClaimRun) -> None:
    """Let its lease end now."""
    with database.write() as connection:
        past = database.now(connection) - timedelta(seconds=1)
        connection.execute(sa.update(tables.runs).where(tables.runs.c.run == run.run).values(expires_at=past))


def begun(claims: Claims, *uris: str, executor: Ulid | None = None, region: str = "eu") -> list[DeleteVerdict]:
    verdicts = claims.begin_delete(region, uris, executor or fresh(), lease_seconds=600)
    return list(verdicts.values())


def test_the_tables_are_what_the_migrations_make(database: Database, claims: Claims) -> None:
    with database.read() as connection:
        inspector = sa.inspect(connection)
        for table in tables.metadata.sorted_tables:
            made = {column["name"]: column["nullable"] for column in inspector.get_columns(table.name)}
            assert made == {column.name: bool(column.nullable) for column in table.columns}
            keys = inspector.get_pk_constraint(table.name)["constrained_columns"]
            assert keys == [column.name for column in table.primary_key.columns]
            indexes = {tuple(index["column_names"]) for index in inspector.get_indexes(table.name)}
            assert indexes == {tuple(column.name for column in index.columns) for index in table.indexes}


@pytest.mark.hazard("G3")
def test_g3_a_claimed_file_is_not_deleted(claims: Claims) -> None:
    run = opened(claims)
    assert claims.claim(run, [X, Y, X]) == Claimed(2, ())
    assert claims.claim(run, [X]) == Claimed(1, ()), "again changes nothing"
    assert begun(claims, X, Y, Z) == [DeleteVerdict.CLAIMED, DeleteVerdict.CLAIMED, DeleteVerdict.ENTERED]
    assert claims.claimed([X, Y, Z]) == {X, Y}
    claims.hold(run, 60)
    claims.release(run)
    assert begun(claims, X, Y) == [DeleteVerdict.ENTERED, DeleteVerdict.ENTERED]
    assert claims.claimed([X, Y, Z]) == frozenset()


@pytest.mark.hazard("G3")
def test_g3_a_file_that_is_being_deleted_is_not_claimed(claims: Claims) -> None:
    executor, run = fresh(), opened(claims)
    assert begun(claims, X, executor=executor) == [DeleteVerdict.ENTERED]
    assert claims.claim(run, [X, Y]) == Claimed(1, (X,))
    claims.end_delete("eu", [X], fresh())
    assert claims.claim(run, [X]) == Claimed(0, (X,)), "it was another's to end"
    claims.end_delete("eu", [X], executor)
    assert claims.claim(run, [X]) == Claimed(1, ())
    assert begun(claims, X) == [DeleteVerdict.CLAIMED]


def test_a_file_is_known_by_every_spelling(claims: Claims) -> None:
    claims.claim(opened(claims), ["s3a://eu/x"])
    assert claims.begin_delete("eu", ["s3n://eu/x"], fresh(), lease_seconds=1) == {X: DeleteVerdict.CLAIMED}
    with pytest.raises(InvalidUriError):
        claims.claim(opened(claims), ["s3://eu/../x"])


def test_a_file_in_another_region_is_claimed_there(claims: Claims) -> None:
    run = opened(claims)
    claims.claim(run, ["s3://us/x"], region="us")
    assert begun(claims, "s3://us/x", region="us") == [DeleteVerdict.CLAIMED]


@pytest.mark.hazard("G3")
def test_g3_a_run_that_has_lapsed_stays_lapsed(database: Database, claims: Claims) -> None:
    run = opened(claims)
    claims.claim(run, [X])
    lapse(database, run)
    for act in (lambda: claims.renew(run, 60), lambda: claims.claim(run, [Y]), lambda: claims.hold(run, 0)):
        with pytest.raises(RunEndedError, match="its lease is over"):
            act()
    assert begun(claims, X) == [DeleteVerdict.ENTERED]


def test_a_lease_is_renewed_and_never_shortened(claims: Claims) -> None:
    run = opened(claims)
    assert claims.renew(run, 1).expires_at == run.expires_at
    assert claims.renew(run, 3600).expires_at > run.expires_at
    claims.hold(run, 3000)
    with pytest.raises(RunEndedError, match="too little of its lease is left"):
        claims.hold(run, 4000)


def test_an_attempt_goes_on_with_the_claims_of_the_one_before(claims: Claims) -> None:
    first = opened(claims, fence=1)
    claims.claim(first, [X])
    second = claims.open(first.run, "eu", fence=2, lease_seconds=600)
    assert second.keeps_claims
    assert begun(claims, X) == [DeleteVerdict.CLAIMED]
    for act in (lambda: claims.renew(first, 60), lambda: claims.claim(first, [Y]), lambda: claims.hold(first, 0)):
        with pytest.raises(RunEndedError, match="a later attempt has begun"):
            act()
    claims.release(first)
    assert begun(claims, X) == [DeleteVerdict.CLAIMED], "what is not its own it does not release"
    claims.release(second.run)
    assert begun(claims, X) == [DeleteVerdict.ENTERED]


def test_an_attempt_after_a_lapse_begins_anew(database: Database, claims: Claims) -> None:
    first = opened(claims, fence=1)
    claims.claim(first, [X])
    lapse(database, first)
    second = claims.open(first.run, "eu", fence=1, lease_seconds=600)
    assert not second.keeps_claims
    assert begun(claims, X) == [DeleteVerdict.ENTERED], "what was claimed before the lapse is not claimed any more"


def test_a_later_run_ends_the_earlier_but_not_its_protection(claims: Claims) -> None:
    first = opened(claims, fence=1)
    claims.claim(first, [X])
    opened(claims, fence=2)
    with pytest.raises(RunEndedError, match="a later attempt has begun"):
        claims.hold(first, 0)
    assert begun(claims, X) == [DeleteVerdict.CLAIMED]
    with pytest.raises(RunEndedError, match="a later attempt has begun"):
        opened(claims, fence=1)
    assert opened(claims, fence=1, region="us").fence == 1, "fences are each region's own"
    with pytest.raises(UsageError, match="belongs to another region"):
        claims.open(first.run, "us", fence=9, lease_seconds=1)


def test_lapsed_runs_are_cleared_away(database: Database, claims: Claims) -> None:
    first = opened(claims)
    claims.claim(first, [X, Y])
    lapse(database, first)
    opened(claims)
    with database.read() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(tables.claims)) == 0
    with pytest.raises(RunEndedError, match="it is not known"):
        claims.hold(first, 0)


@pytest.mark.hazard("G3")
def test_g3_a_deletion_passes_only_when_its_lease_is_over(claims: Claims) -> None:
    one, other = fresh(), fresh()
    claims.begin_delete("eu", [X], one, lease_seconds=0)
    claims.begin_delete("eu", [Y], one, lease_seconds=600)
    assert begun(claims, X, Y, executor=other) == [DeleteVerdict.TAKEN_OVER, DeleteVerdict.BUSY]
    assert begun(claims, X, Y, executor=one) == [DeleteVerdict.BUSY, DeleteVerdict.OURS]
    assert [(uri, each.executor) for uri, each in claims.being_deleted("eu")] == [(X, other), (Y, one)]
    assert [uri for uri, _ in claims.being_deleted("eu", after=X)] == [Y]
    assert claims.claim(opened(claims), [X]) == Claimed(0, (X,)), "a lease that is over does not end a deletion"


def test_a_claim_holds_whatever_region_is_named(claims: Claims) -> None:
    claims.claim(opened(claims), [X])
    assert begun(claims, X, region="us") == [DeleteVerdict.CLAIMED]
    assert begun(claims, Y, region="us") == [DeleteVerdict.ENTERED]
    assert claims.claim(opened(claims), [Y]) == Claimed(0, (Y,))


@pytest.mark.hazard("G3")
def test_g3_the_last_look_finds_what_slipped_by(database: Database, claims: Claims) -> None:
    """Two that name different regions lock different rows, and may both win."""
    run = opened(claims)
    claims.claim(run, [X])
    with database.write() as connection:
        moment = database.now(connection)
        row = {"uri": X, "region": "us", "executor": fresh(), "lease_until": moment}
        connection.execute(sa.insert(tables.deletions).values(**row))
    with pytest.raises(RunEndedError, match="s3://eu/x is being deleted"):
        claims.hold(run, 0)


def test_many(claims: Claims) -> None:
    uris = [f"s3://eu/{number}" for number in range(BATCH + 10)]
    assert begun(claims, uris[3], uris[-1]) == [DeleteVerdict.ENTERED] * 2
    assert claims.claim(opened(claims), iter(uris)) == Claimed(BATCH + 8, (uris[3], uris[-1]))
    assert set(begun(claims, *uris[4:-1])) == {DeleteVerdict.CLAIMED}


@pytest.mark.hazard("G3")
def test_g3_of_a_claim_and_a_deletion_at_once_one_wins(claims: Claims) -> None:
    uris = [f"s3://eu/{number}" for number in range(60)]
    run, executor, start = opened(claims), fresh(), Barrier(2)

    def claim() -> set[str]:
        order = Random(1).sample(uris, len(uris))
        start.wait(30)
        taken = set()
        for number in range(0, len(order), 5):
            batch = order[number : number + 5]
            taken |= set(batch) - set(claims.claim(run, batch).deleting)
        return taken

    def delete() -> set[str]:
        order = Random(2).sample(uris, len(uris))
        start.wait(30)
        entered = set()
        for number in range(0, len(order), 5):
            verdicts = claims.begin_delete("eu", order[number : number + 5], executor, lease_seconds=600)
            entered |= {uri for uri, verdict in verdicts.items() if verdict is DeleteVerdict.ENTERED}
        return entered

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(claim), pool.submit(delete)
        claimed, deleted = first.result(60), second.result(60)
    assert claimed & deleted == set()
    assert claimed | deleted == set(uris)
    claims.hold(run, 0)


@pytest.mark.hazard("G3")
def test_g3_a_renewal_on_its_way_is_waited_for(database: Database, claims: Claims) -> None:
    """An executor that looked past it would see a lease that is over, and the run one that is not."""
    run = opened(claims)
    claims.claim(run, [X])
    lapse(database, run)
    row = tables.runs.c
    with ThreadPoolExecutor(1) as pool:
        with database.write(isolation=Isolation.OWN_LOCKS) as connection:
            # A renewal whose time was read before the lease ended.
            later = database.now(connection) + timedelta(minutes=10)
            connection.execute(sa.update(tables.runs).where(row.run == run.run).values(expires_at=later))
            executor = pool.submit(begun, claims, X)
            wait_until_it_waits(database, executor)
        assert executor.result(60) == [DeleteVerdict.CLAIMED]


@pytest.mark.hazard("G3")
def test_g3_a_claim_on_its_way_is_waited_for(database: Database, claims: Claims) -> None:
    """It locks the region's row before it looks, and so does an executor: one of them is first."""
    run = opened(claims)
    with ThreadPoolExecutor(1) as pool:
        with database.write(isolation=Isolation.OWN_LOCKS) as connection:
            place = sa.select(tables.places).where(tables.places.c.region == "eu").with_for_update()
            assert connection.execute(place).first() is not None
            connection.execute(sa.insert(tables.claims).values(uri=X, run=run.run))
            executor = pool.submit(begun, claims, X)
            wait_until_it_waits(database, executor)
        assert executor.result(60) == [DeleteVerdict.CLAIMED]


def wait_until_it_waits(database: Database, work: Future[list[DeleteVerdict]]) -> None:
    """On PostgreSQL until a lock is waited for, or the work did not wait; SQLite lets no second writer begin."""
    if database.dialect == "sqlite":
        return
    clock = SystemClock()
    deadline = clock.monotonic() + 30
    while clock.monotonic() < deadline and not work.done():
        with database.read() as connection:
            if connection.scalar(sa.text("SELECT count(*) FROM pg_locks WHERE NOT granted")):
                return
        clock.sleep(0.01)


def test_a_database_that_does_not_answer_allows_nothing(claims: Claims, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise UnavailableError("the primary does not answer")

    monkeypatch.setattr(Database, "write", gone)
    with pytest.raises(UnavailableError):
        begun(claims, X)


def until_somebody_waits(database: Database) -> None:
    """On PostgreSQL, until a transaction waits for another; SQLite lets no second one begin."""
    if database.dialect != "postgresql":
        return
    asked = sa.text(
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    )
    clock = SystemClock()
    deadline = clock.monotonic() + 30
    while True:
        with database.read() as connection:
            if connection.execute(asked).scalar_one():
                return
        assert clock.monotonic() < deadline, "nobody waits"
        clock.sleep(0.01)


class TestOutputs:
    def output(self, name: str = "a", region: str = "eu") -> Output:
        uri = f"s3://{region}/_headwater/localised/{name}.avro"
        return Output(region, uri, "manifest", name * 40, "s3://us/wh/t/metadata/m.avro", 3)

    @pytest.mark.hazard("G4")
    def test_g4_every_output_is_listed(self, database: Database) -> None:
        outputs = Outputs(database)
        a, b = self.output("a"), self.output("b")
        other = self.output("a", region="us")
        outputs.record([b, a, other])
        outputs.record([a])
        assert outputs.list("eu") == (a, b)
        assert outputs.list("us") == (other,)
        assert outputs.list("eu", after=a.uri) == (b,)
        assert outputs.list("eu", limit=1) == (a,)
        assert outputs.find("eu", [a.digest, "x" * 40]) == {a.digest: (a,)}
        assert outputs.find("eu", []) == {}
        assert outputs.forget("eu", [a.uri, "s3://eu/unknown"]) == 1
        assert outputs.list("eu") == (b,)
        assert outputs.list("us") == (other,)

    def test_tasks_that_list_the_same_outputs_at_once_wait_for_no_one_in_a_circle(self, database: Database) -> None:
        """Tasks of one run meet the same manifests, each in its own order."""
        outputs = Outputs(database)

        def list_them(task: int) -> None:
            shared = [
                Output("eu", f"s3://eu/{task // 4}/{n}", "manifest", f"{n:064}", f"s3://us/{n}", 1) for n in range(500)
            ]
            Random(task).shuffle(shared)
            outputs.record(shared)

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(list_them, range(24))) == [None] * 24
        assert len(outputs.list("eu", limit=10_000)) == 6 * 500

    def test_who_waits_for_one_output_holds_no_later_one(self, database: Database) -> None:
        outputs, (a, m, z) = Outputs(database), map(self.output, "amz")
        listed = tables.insert_missing(database.dialect, tables.outputs)
        with ThreadPoolExecutor(1) as pool:
            with database.write(isolation=Isolation.OWN_LOCKS) as connection:
                row = {"recorded_at": database.now(connection)}
                connection.execute(listed, [asdict(m) | row])
                waiting = pool.submit(outputs.record, [z, m, a])
                until_somebody_waits(database)
                connection.execute(listed, [asdict(z) | row])
            waiting.result()
        assert outputs.list("eu") == (a, m, z)

    @pytest.mark.hazard("G4")
    def test_g4_of_many_outputs_every_one_is_listed(self, database: Database) -> None:
        outputs = Outputs(database)
        many = [replace(self.output(), uri=f"s3://eu/{number:05}") for number in range(BATCH + 1)]
        outputs.record(many)
        assert outputs.list("eu", limit=2 * BATCH) == tuple(many)

    def test_a_name_stands_for_one_recipe(self, database: Database) -> None:
        outputs = Outputs(database)
        a, b = self.output("a"), self.output("b")
        outputs.record([a])
        for changed in (replace(a, source="s3://us/other"), replace(a, digest="0" * 40), replace(a, kind="metadata")):
            with pytest.raises(RefusedError, match="two recipes have one name"):
                outputs.record([b, changed])
        assert outputs.list("eu") == (a,), "nothing of a batch that is refused is listed"
        outputs.record([replace(a, generation=4)])
        assert outputs.list("eu") == (a,), "the same rules in a later generation"

    def test_spellings_are_one(self, database: Database) -> None:
        outputs = Outputs(database)
        outputs.record([replace(self.output(), uri="s3a://eu/_headwater/localised/a.avro")])
        outputs.record([self.output()])
        assert outputs.list("eu") == (self.output(),)
        assert outputs.forget("eu", ["s3n://eu/_headwater/localised/a.avro"]) == 1

    def test_several_of_one_digest(self, database: Database) -> None:
        outputs = Outputs(database)
        first = self.output()
        second = replace(first, uri="s3://eu/_headwater/localised/a-1.avro")
        outputs.record([first, second])
        assert outputs.find("eu", [first.digest]) == {first.digest: (second, first)}
