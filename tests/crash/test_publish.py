"""Writers killed and stopped at every step of a publish, and recoverers too: the balances always add up.

Merges are in test_publish_merge.py, rewrites of files in test_optimize.py: they take the same four steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from headwater.app import App
from headwater.kernel import settings
from headwater.kernel.clock import SystemClock
from headwater.kernel.failpoints import Failpoint
from headwater.lake import Lake
from headwater.publish.model import RECOVERY_ACTOR
from headwater.storage.port import ObjectStore
from tests.crash.child import child
from tests.crash.places import S3, Place, both, place
from tests.crash.publish_actor import ACCOUNTS, ROWS_OF_A_LOAD, attempt
from tests.crash.sweep_actor import LateClock

SIDECAR, HEAD, COMMIT = PUBLISH = (
    Failpoint.PUBLISH_AFTER_SIDECAR,
    Failpoint.PUBLISH_AFTER_HEAD,
    Failpoint.PUBLISH_AFTER_COMMIT,
)
RESTORE, RECOVERED = RECOVERY = (Failpoint.RECOVERY_AFTER_RESTORE, Failpoint.RECOVERY_AFTER_PUBLISH)
ACTOR, SWEEPER = "tests.crash.publish_actor", "tests.crash.sweep_actor"
__all__ = ["place"]  # the fixture
# A lease that a stalled writer outlasts, and clocks that agree: they are one machine's.
QUICK = {"HEADWATER_PUBLISH_LEASE_SECONDS": "2", "HEADWATER_SEQUENCE_CLOCK_SKEW_SECONDS": "0"}
LEASE_SECONDS = 2.2

pytestmark = [pytest.mark.slow, pytest.mark.proves("publish")]


def app_of(place: Place, *, late: bool = False, environ: Mapping[str, str] | None = None) -> App:
    """A process; a late one starts when all leases have passed."""
    return App(settings.load(environ=environ or place.environ), clock=LateClock() if late else SystemClock())


@pytest.fixture
def bank(place: Place) -> Place:
    lake = app_of(place).init_lake(place.url)
    lake.apply(
        "create table accounts (id bigint, balance bigint) with (format_version = 3); "
        "create table transfers (change varchar, giver bigint, taker bigint, amount bigint); "
        "create table entries (change varchar, account bigint, amount bigint) with (format_version = 3); "
        "create table loaded (change varchar, part bigint); "
        "create table more (id bigint); create table others (id bigint)",
        actor="ann",
    )
    with lake.transaction(actor="ann") as transaction:
        transaction.insert("accounts", pa.table({"id": range(ACCOUNTS), "balance": [100] * ACCOUNTS}))
    return place


def seen_by(lake: Lake) -> set[str]:
    """The changes that a reader sees, each of which is whole."""
    return {*transfers_in(lake), *loads_in(lake), *schemas_in(lake)}


def transfers_in(lake: Lake) -> set[str]:
    [row] = lake.query(
        "select (select sum(balance) from accounts) total, (select coalesce(sum(amount), 0) from entries) entered, "
        "(select count(*) from (select id from accounts a where balance <> 100 + "
        "(select coalesce(sum(amount), 0) from entries e where e.account = a.id))) wrong, "
        "(select count(*) from transfers) transfers, (select count(*) from entries) entries"
    ).to_pylist()
    assert (row["total"], row["entered"], row["wrong"]) == (100 * ACCOUNTS, 0, 0), row
    assert row["entries"] == 2 * row["transfers"]
    return set(lake.query("select change from transfers").column("change").to_pylist())


def loads_in(lake: Lake) -> set[str]:
    found = lake.query("select change, count(*) n, count(distinct part) parts from loaded group by 1").to_pylist()
    assert [row for row in found if (row["n"], row["parts"]) != (ROWS_OF_A_LOAD, ROWS_OF_A_LOAD)] == []
    return {row["change"] for row in found}


def schemas_in(lake: Lake) -> set[str]:
    columns = [set(lake.table(name).metadata.schema().column_names) - {"id"} for name in ("more", "others")]
    names = {listed.key.name for listed in lake.tables()}
    assert columns == [{name.removeprefix(of) for name in names if name.startswith(of)} for of in ("made_", "view_")]
    for label in columns[0]:
        assert lake.query(f"select count(*) n from view_{label}").to_pylist() == [{"n": 0}]
    return columns[0]


def judge(seen: set[str], said: list[dict[str, Any]]) -> None:
    """What was acknowledged is there, what was refused is not; anything else may be either."""
    for report in said:
        if report["outcome"] == "committed":
            assert report["change"] in seen, report
        elif report["outcome"] == "conflict":
            assert report["change"] not in seen, report


def goes_on(lake: Lake, store: ObjectStore, kind: str) -> None:
    """The next changes succeed without a person, and leave nothing behind."""
    said: list[dict[str, Any]] = []
    attempt(lake, kind, "bob_0", lambda **report: said.append(report))
    attempt(lake, kind, "bob_1", lambda **report: said.append(report))
    assert [report["outcome"] for report in said if report["outcome"] != "trying"] == ["committed"] * 2, said
    judge(seen_by(lake), said)
    assert list(store.list("__recovery")) == []


# Where it dies, at which hit of its second change, and whether that is found published afterwards.
KILLS = [
    ("transaction", SIDECAR, 2, False),
    ("transaction", HEAD, 4, False),
    ("transaction", HEAD, 6, True),
    ("transaction", COMMIT, 2, True),
    ("load", SIDECAR, 2, False),
    ("load", HEAD, 2, True),
    ("load", COMMIT, 2, True),
    ("schema-apply", SIDECAR, 2, False),
    ("schema-apply", HEAD, 4, False),
    ("schema-apply", HEAD, 6, True),
    ("schema-apply", COMMIT, 2, True),
]
ON_S3 = [*KILLS[:4], KILLS[5], KILLS[8], KILLS[9]]


@pytest.mark.parametrize(
    ("place", "kind", "point", "nth", "lands"),
    [*(("file", *each) for each in KILLS), *(pytest.param("s3", *each, marks=S3.marks) for each in ON_S3)],
    indirect=["place"],
    ids=str,
)
def test_a_writer_killed_on_its_way(bank: Place, kind: str, point: Failpoint, nth: int, lands: bool) -> None:
    with child(ACTOR, bank.url, "eve", "9", kind, environ=bank.environ, failpoints=f"{point}=kill@{nth}") as victim:
        said = victim.killed()
    assert said[-1] == {"outcome": "trying", "change": "eve_1"}
    reading = app_of(bank).open_lake(bank.url, read_only=True)
    judge(seen_by(reading), said)  # before anybody has recovered anything
    app = app_of(bank, late=True)
    lake = app.open_lake(bank.url)
    seen = seen_by(lake)
    judge(seen, said)
    assert ("eve_1" in seen) is lands
    goes_on(lake, app.open_store(bank.url), kind)
    judge(seen_by(lake), said)


STALLS = [
    ("transaction", SIDECAR, 1, "conflict"),
    ("transaction", HEAD, 2, "conflict"),
    ("transaction", HEAD, 3, "committed"),  # whoever took it for dead made its commit
    ("transaction", COMMIT, 1, "committed"),
    ("load", SIDECAR, 1, "conflict"),
    ("schema-apply", HEAD, 1, "conflict"),
]


@pytest.mark.parametrize(
    ("place", "kind", "point", "nth", "end"),
    [*(("file", *each) for each in STALLS), pytest.param("s3", *STALLS[1], marks=S3.marks)],
    indirect=["place"],
    ids=str,
)
def test_a_writer_that_stalls_past_its_lease(bank: Place, kind: str, point: Failpoint, nth: int, end: str) -> None:
    environ = {**bank.environ, **QUICK}
    with child(ACTOR, bank.url, "eve", "1", kind, environ=environ, failpoints=f"{point}=stop@{nth}") as sleeper:
        sleeper.wait_stopped()
        app = app_of(bank, environ=environ)
        app.clock.sleep(LEASE_SECONDS)
        lake = app.open_lake(bank.url)
        goes_on(lake, app.open_store(bank.url), kind)
        said = sleeper.resumed()
    assert said[-1]["outcome"] == end
    judge(seen_by(lake), said)
    said.clear()
    attempt(lake, kind, "zoe", lambda **report: said.append(report))
    assert said[-1]["outcome"] == "committed"
    assert list(app.open_store(bank.url).list("__recovery")) == []


@both
@pytest.mark.parametrize(
    ("nth", "points"), [(2, [RESTORE, RECOVERED]), (3, [RECOVERED, RECOVERED])], ids=["back", "forward"]
)
def test_a_recoverer_killed_twice(bank: Place, nth: int, points: list[Failpoint]) -> None:
    """Of a change that has to be rolled back, and of one that is rolled forward."""
    with child(ACTOR, bank.url, "eve", "1", environ=bank.environ, failpoints=f"{HEAD}=kill@{nth}") as victim:
        said = victim.killed()
    for point in points:
        with child(SWEEPER, bank.url, environ=bank.environ, failpoints=f"{point}=kill@1") as recoverer:
            recoverer.killed()
    app = app_of(bank, late=True)
    lake = app.open_lake(bank.url)
    judge(seen_by(lake), said)
    assert ("eve_0" in seen_by(lake)) is (nth == 3)
    log = lake.catalog.log(lake.catalog.ref("main").hash)
    [recovery] = [each for each in log if each.actor == RECOVERY_ACTOR]
    assert json.loads(recovery.properties["headwater.recovery.tables"])
    goes_on(lake, app.open_store(bank.url), "transaction")


@pytest.mark.hazard("P16")
@pytest.mark.parametrize("place", ["file"], indirect=True)
@pytest.mark.parametrize("point", RECOVERY, ids=str)
def test_p16_a_recoverer_that_stalls_while_another_one_finishes(bank: Place, point: Failpoint) -> None:
    with child(ACTOR, bank.url, "eve", "1", environ=bank.environ, failpoints=f"{HEAD}=kill@2") as victim:
        said = victim.killed()
    with child(SWEEPER, bank.url, environ=bank.environ, failpoints=f"{point}=stop@1") as sleeper:
        sleeper.wait_stopped()
        app = app_of(bank, late=True)
        lake = app.open_lake(bank.url)
        goes_on(lake, app.open_store(bank.url), "transaction")
        sleeper.resumed()
    seen = seen_by(lake)
    judge(seen, said)
    assert seen == {"bob_0", "bob_1"}
    attempt(lake, "transaction", "zoe", lambda **report: said.append(report))
    assert said[-1]["outcome"] == "committed"
    assert list(app.open_store(bank.url).list("__recovery")) == []


def test_every_failpoint_is_exercised() -> None:
    """Each of these is armed above, and each test asserts that its process died or stopped of it."""
    on_nessie = {Failpoint.PUBLISH_AFTER_FILES}  # armed in test_nessie.py
    assert {point for point in Failpoint if point.startswith("publish.")} == {*PUBLISH, *RECOVERY} | on_nessie
    assert {point for _, point, _, _ in KILLS} == {*PUBLISH} == {point for _, point, _, _ in STALLS}
