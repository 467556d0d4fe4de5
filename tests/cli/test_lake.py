"""The commands over a lake, as a person or a script meets them."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from headwater.catalog.embedded.protocol import EmbeddedCatalog
from headwater.catalog.errors import BehindHorizonError
from headwater.catalog.model import RefKind
from headwater.catalog.port import Held
from headwater.tables.merge import upsert
from headwater.tables.operations import append
from tests.cli.test_cli import Result, Run, run
from tests.fixtures.lakes import LakeWorld

__all__ = ["run"]  # the fixture

ORDERS = pa.table({"id": [1, 2, 3], "customer": [10, 20, 10], "total": [1.5, 2.5, None]})
CUSTOMERS = pa.table({"id": [10, 20], "name": ["Ann", "Bob"]})


@pytest.fixture
def bank(lake: LakeWorld) -> LakeWorld:
    """Two tables, a change over both, a tag before it and a branch beside it."""
    lake.create("customers", CUSTOMERS)
    lake.create("orders", ORDERS, format_version=3)
    before = lake.lake.catalog.ref("main").hash
    lake.lake.catalog.create_ref(RefKind.TAG, "v1", before)
    lake.lake.catalog.create_ref(RefKind.BRANCH, "dev", before)
    lake.commit(
        {
            "orders": append(
                lake.staging(), lake.table("orders"), pa.table({"id": [4], "customer": [20], "total": [9.0]})
            ),
            "customers": upsert(
                lake.staging(), lake.table("customers"), pa.table({"id": [20], "name": ["Bea"]}), on=["id"]
            ),
        },
        actor="bob",
        message="an order, and Bob is Bea\nmore lines",
    )
    return lake


def ask(run: Run, lake: LakeWorld, *words: str) -> Result:
    result = run(words[0], lake.url, *words[1:])
    assert result.code == 0, result.err
    return result


def rows(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.out.splitlines()]


class TestInit:
    def test_once_and_again(self, run: Run, tmp_path: Path) -> None:
        first = run("init", tmp_path / "new", "--json").json()
        assert first["branch"] == "main"
        assert run("init", tmp_path / "new", "--json").json() == first
        assert run("init", tmp_path / "new").out.startswith(f"file://{tmp_path}/new is a lake; main is at ")

    def test_a_lake_in_a_lake_is_refused(self, run: Run, lake: LakeWorld) -> None:
        result = run("init", f"{lake.url}/tables/inner")
        assert result.code == 4
        assert "lies within the lake" in result.err

    def test_a_lake_around_a_lake_is_refused(self, run: Run, lake: LakeWorld) -> None:
        result = run("init", Path(lake.url).parent)
        assert result.code == 4
        assert "has a lake in it: a lake" in result.err

    def test_the_lake_of_the_settings(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "headwater.toml").write_text(f'lake = "{tmp_path / "mine"}"\n')
        assert run("init").code == 0
        assert run("query", "select 1 as one", "--json").out == '{"one": 1}\n'
        assert run("refs").out.split()[3] == "main"

    def test_no_lake(self, run: Run, tmp_path: Path) -> None:
        assert "no lake is named" in run("tables").err
        missing = run("tables", tmp_path / "nothing")
        assert (missing.code, "headwater init" in missing.err) == (2, True)
        assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("spelling", ["link", "dots", "url", "slash"])
def test_a_lake_has_one_location_however_it_is_spelled(
    run: Run, bank: LakeWorld, spelling: str, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(bank.url)
    url = {
        "link": str(tmp_path / "link"),
        "dots": f"{bank.url}/tables/..",
        "url": Path(bank.url).as_uri(),
        "slash": f"{bank.url}/",
    }[spelling]
    assert bank.app.open_lake(url).location == bank.lake.location
    assert rows(run("query", url, "select count(*) n from orders", "--json")) == [{"n": 4}]


def test_what_would_play_with_the_terminal_is_spelled_out(run: Run, bank: LakeWorld) -> None:
    change = append(bank.staging(), bank.table("customers"), CUSTOMERS.slice(0, 0))
    bank.commit({"customers": change}, message="\x1b]0;owned\x07 or \u202egnp")
    for words in (("commits",), ("show", bank.lake.catalog.ref("main").hash)):
        out = ask(run, bank, *words).out
        assert "\\x1b]0;owned\\x07 or \\u202egnp" in out
        assert "\x1b" not in out


def test_a_commit_whose_parent_was_collected_is_shown(run: Run, bank: LakeWorld) -> None:
    catalog = bank.lake.catalog
    assert isinstance(catalog, EmbeddedCatalog)
    head = catalog.ref("main").hash
    catalog.delete_ref("v1", catalog.ref("v1").hash)
    catalog.delete_ref("dev", catalog.ref("dev").hash)
    bank.app.clock.sleep(0.001)
    change = append(bank.staging(), bank.table("customers"), CUSTOMERS.slice(0, 0))
    bank.commit({"customers": change})
    catalog.publish_history_horizon(catalog.commit_at(head).committed_at)
    assert json.loads(ask(run, bank, "show", head, "--json").out)["hash"] == head


class TestTables:
    def test_a_lake_without_any(self, run: Run, lake: LakeWorld) -> None:
        assert ask(run, lake, "tables").out == "there are no tables\n"
        assert ask(run, lake, "tables", "--json").out == "[]\n"

    def test_a_name_in_other_capitals_is_found(self, run: Run, bank: LakeWorld) -> None:
        missing = run("show", bank.url, "ORDERS")
        assert (missing.code, "did you mean default.orders?" in missing.err) == (2, True), missing.err
        assert "there are 2 tables" in run("show", bank.url, "payments").err

    def test_for_people(self, run: Run, bank: LakeWorld) -> None:
        out = ask(run, bank, "tables").out.splitlines()
        assert out[0].split() == ["table", "kind", "format", "rows", "data", "files", "snapshot"]
        assert out[1].split()[:5] == ["default.customers", "table", "v2", "2", "2"]
        assert out[2].split()[:5] == ["default.orders", "table", "v3", "4", "2"]

    def test_for_machines_and_in_the_past(self, run: Run, bank: LakeWorld) -> None:
        now = json.loads(ask(run, bank, "tables", "--json").out)
        then = json.loads(ask(run, bank, "tables", "--json", "--at", "v1").out)
        on_dev = json.loads(ask(run, bank, "tables", "--json", "--branch", "dev").out)
        assert [(each["table"], each["rows"]) for each in now] == [("default.customers", 2), ("default.orders", 4)]
        assert [(each["table"], each["rows"]) for each in then] == [("default.customers", 2), ("default.orders", 3)]
        assert on_dev == then

    @pytest.mark.parametrize("damage", ["cut", "missing", "v4"])
    def test_one_that_cannot_be_read_does_not_hide_the_rest(self, run: Run, bank: LakeWorld, damage: str) -> None:
        location = Path((bank.table("orders").location or "").removeprefix("file://"))
        match damage:
            case "cut":
                location.write_bytes(location.read_bytes()[:100])
            case "missing":
                location.unlink()
            case "v4":
                location.write_text(location.read_text().replace('"format-version":3', '"format-version":4'))
        result = run("tables", bank.url)
        assert result.code == 1
        assert "default.customers" in result.out
        assert "default.orders" in result.out
        assert f"error: default.orders: file://{location}" in result.err
        shown = run("tables", bank.url, "--json")
        assert [bool(each["error"]) for each in json.loads(shown.out)] == [False, True]
        # A query of the sound table works; one of the other says what is wrong with it.
        assert rows(ask(run, bank, "query", "select count(*) n from customers", "--json")) == [{"n": 2}]
        broken = run("query", bank.url, "select * from orders")
        assert broken.code in (1, 4)
        assert str(location) in broken.err


class TestHistory:
    def test_commits(self, run: Run, bank: LakeWorld) -> None:
        found = json.loads(ask(run, bank, "commits", "--json").out)
        assert [each["actor"] for each in found] == ["bob", "ann", "ann", "headwater:init"]
        assert [each["committed_at"] for each in found] == sorted(
            (each["committed_at"] for each in found), reverse=True
        )
        assert len(json.loads(ask(run, bank, "commits", "--json", "--actor", "ann", "--limit", "1").out)) == 1
        lines = ask(run, bank, "commits").out.splitlines()
        assert lines[1].endswith("an order, and Bob is Bea")
        assert ask(run, bank, "commits", "--actor", "eve").out == "there are no commits of eve\n"

    def test_refs(self, run: Run, bank: LakeWorld) -> None:
        assert [line.split()[:2] for line in ask(run, bank, "refs").out.splitlines()[1:]] == [
            ["dev", "branch"],
            ["main", "branch"],
            ["v1", "tag"],
        ]
        assert {each["name"] for each in json.loads(ask(run, bank, "refs", "--json").out)} == {"dev", "main", "v1"}

    def test_diff(self, run: Run, bank: LakeWorld) -> None:
        found = json.loads(ask(run, bank, "diff", "v1", "main", "--json").out)
        assert [(each["table"], each["change"]) for each in found] == [
            ("default.customers", "changed"),
            ("default.orders", "changed"),
        ]
        assert ask(run, bank, "diff", "v1", "dev").out == "nothing differs\n"
        assert "changed  default.orders" in ask(run, bank, "diff", "dev", "main").out

    def test_show_a_commit(self, run: Run, bank: LakeWorld) -> None:
        head = bank.lake.catalog.ref("main").hash
        shown = json.loads(ask(run, bank, "show", head[:10], "--json").out)
        assert shown["hash"] == head
        assert [each["table"] for each in shown["changes"]] == ["default.customers", "default.orders"]
        text = ask(run, bank, "show", head).out
        assert "actor     bob" in text
        assert f"\n  headwater.operation = {shown['properties']['headwater.operation']}\n" in text

    def test_show_a_table(self, run: Run, bank: LakeWorld) -> None:
        shown = json.loads(ask(run, bank, "show", "orders", "--json").out)
        assert shown["metadata"]["format-version"] == 3
        assert shown["content"]["metadata_location"].endswith("/metadata/00000000000000000002.metadata.json")
        text = ask(run, bank, "show", "orders", "--at", "v1").out
        assert "rows         3" in text
        assert "customer  long" in text

    def test_show_what_a_table_declares(self, run: Run, lake: LakeWorld) -> None:
        script = """create table p (id bigint primary key);
            create table t (id bigint, c bigint references p (id), at timestamp, check (id > 0))
                partitioned by (bucket(4, c), day(at), id);
            alter table t write ordered by c desc, bucket(2, id)"""
        lake.lake.apply(script, actor="ann")
        said = dict(re.split(r"  +", line, maxsplit=1) for line in ask(run, lake, "show", "t").out.splitlines()[:9])
        assert said["primary key"] == "none"
        assert said["constraints"] == "t_c_fkey, t_check"
        assert said["partitions"] == "bucket(4, c), day(at), id"
        assert said["sort order"] == "c DESC, bucket(2, id) ASC"
        assert "primary key  id\nconstraints  none\npartitions   none\n" in ask(run, lake, "show", "p").out

    def test_show_a_view(self, run: Run, bank: LakeWorld) -> None:
        schema = Schema(NestedField(1, "id", LongType()))
        bank.create_view("big", schema, {"spark": "select id\nfrom orders where total > 2"})
        text = ask(run, bank, "show", "big").out
        assert "spark:\n  select id\n  from orders where total > 2\n" in text
        assert json.loads(ask(run, bank, "show", "big", "--json").out)["metadata"]["format-version"] == 1
        assert rows(ask(run, bank, "query", "select count(*) n from big", "--json")) == [{"n": 2}]
        assert "default.big" in ask(run, bank, "diff", "v1", "main").out
        assert "view" in ask(run, bank, "tables").out.splitlines()[1]

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("show", "oders"), "did you mean default.orders?"),
            (("show", "a\x07b"), "control characters"),
            (("show", "orders", "--branch", "nope"), "nope"),
            (("show", "orders", "--branch", "a\tb"), "'a\\tb'"),
            (("show", "orders", "--at", "deadbeef"), "deadbeef"),
            (("show", "orders", "--at", "2001-01-01T00:00:00Z"), "the log reaches back to"),
            (("show", "orders", "--at", "2026-13-45"), "2026-13-45"),
            (("show",), "give [LAKE] TABLE|COMMIT"),
            (("diff", "v1"), "give [LAKE] FROM TO"),
            (("diff", "v1", "main", "dev"), "4 words were given"),
        ],
    )
    def test_mistakes(self, run: Run, bank: LakeWorld, words: tuple[str, ...], said: str) -> None:
        result = run(words[0], bank.url, *words[1:])
        assert result.code == 2
        assert said in result.err


EXPLAINED = "explain select * from orders where customer::varchar = '\x1b[31m'"


class TestQuery:
    def test_over_several_tables(self, run: Run, bank: LakeWorld) -> None:
        sql = "select name, sum(total) s from orders join customers c on customer = c.id group by name order by name"
        assert rows(ask(run, bank, "query", sql, "--json")) == [{"name": "Ann", "s": 1.5}, {"name": "Bea", "s": 11.5}]
        then = rows(ask(run, bank, "query", sql, "--json", "--at", "v1"))
        assert then == [{"name": "Ann", "s": 1.5}, {"name": "Bob", "s": 2.5}]

    def test_by_a_moment(self, run: Run, bank: LakeWorld) -> None:
        moment = bank.lake.catalog.commit_at(bank.lake.catalog.ref("v1").hash).committed_at.isoformat()
        assert rows(ask(run, bank, "query", "select count(*) n from orders", "--json", "--at", moment)) == [{"n": 3}]

    def test_for_people(self, run: Run, bank: LakeWorld) -> None:
        result = ask(run, bank, "query", "select id, total from orders order by id", "--limit", "3")
        assert result.out.splitlines() == ["id  total", "1   1.5", "2   2.5", "3   NULL"]
        assert "(3 rows, and more" in result.err

    def test_a_plan_is_printed_as_it_is(self, run: Run, bank: LakeWorld) -> None:
        out = ask(run, bank, "query", "explain select * from orders").out
        assert out.splitlines()[0].startswith("┌")

    def test_csv(self, run: Run, bank: LakeWorld) -> None:
        out = ask(run, bank, "query", "select * from customers order by id", "--csv").out
        assert list(csv.reader(io.StringIO(out))) == [["id", "name"], ["10", "Ann"], ["20", "Bea"]]

    def test_values_of_every_kind_are_json(self, run: Run, bank: LakeWorld) -> None:
        sql = "select date'2024-01-02' d, 1.50::decimal(9,2) x, 'ab'::blob b, uuid() u, [1,2] l, {'a': 1} s, now() t"
        [row] = rows(ask(run, bank, "query", sql, "--json"))
        assert (row["d"], row["x"], row["b"], row["l"], row["s"]) == ("2024-01-02", "1.50", "6162", [1, 2], {"a": 1})

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("'0b9bcd8e-6ba9-4ae4-a7ab-4b0f2a0d6f1b'::uuid", "0b9bcd8e-6ba9-4ae4-a7ab-4b0f2a0d6f1b"),
            ("[1, null]", "[1, null]"),
            ("{'a': 1, 'b': ['infinity'::date]}", '{"a": 1, "b": ["infinity"]}'),
            ("map {'k': 2.5::double}", '[["k", 2.5]]'),
            ("union_value(k := 1)", "1"),
            ("'a'::enum('a', 'b')", "a"),
            ("interval '14 months 1 day 1.5 seconds'", "1 year 2 months 1 day 00:00:01.5"),
            ("interval '-1 minute'", "-00:01:00"),
            ("'infinity'::timestamp", "infinity"),
            ("'-infinity'::date", "-infinity"),
            ("date '0044-03-15 (BC)'", "-0043-03-15"),
            ("date '2024-01-02'", "2024-01-02"),
            ("null::date", ""),
        ],
    )
    def test_values_that_csv_does_not_know_are_text(self, run: Run, bank: LakeWorld, value: str, text: str) -> None:
        out = ask(run, bank, "query", f"select {value} v, 1 one", "--csv").out
        assert list(csv.reader(io.StringIO(out))) == [["v", "one"], [text, "1"]]

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ("'nan'::double", "NaN"),
            ("['inf'::float, '-inf'::float, 1.5]", ["Infinity", "-Infinity", 1.5]),
            ("'infinity'::timestamp", "infinity"),
            ("'-infinity'::timestamptz", "-infinity"),
            ("timestamp '0044-03-15 (BC) 00:00:00'", "-0043-03-15 00:00:00.000000"),
            ("{'d': date '2024-01-02', 'i': interval 1 day}", {"d": "2024-01-02", "i": "1 day"}),
            ("map {'k': 'infinity'::date}", [["k", "infinity"]]),
            ("null::interval", None),
        ],
    )
    def test_values_that_json_does_not_know_are_text(
        self, run: Run, bank: LakeWorld, value: str, expected: object
    ) -> None:
        assert rows(ask(run, bank, "query", f"select {value} v", "--json")) == [{"v": expected}]
        assert ask(run, bank, "query", f"select {value} v").out.startswith("v\n")

    def test_columns_of_one_name_are_told_apart(self, run: Run, bank: LakeWorld) -> None:
        found = ask(run, bank, "query", "select 1 a, 2 a, 3 a_2, 4 a", "--json").out
        assert found == '{"a": 1, "a_3": 2, "a_2": 3, "a_4": 4}\n'

    def test_one_answer_is_asked_for(self, run: Run, bank: LakeWorld) -> None:
        assert run("query", bank.url, "select 1", "--json", "--csv").code == 2

    @pytest.mark.parametrize("sql", ["select '\x1b[31m' v", 'select 1 as "\x1b[31m"', EXPLAINED])
    def test_nothing_plays_with_the_terminal(self, run: Run, bank: LakeWorld, sql: str) -> None:
        out = ask(run, bank, "query", sql).out
        assert "\x1b" not in out
        assert "\\x1b" in out

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_a_signal_ends_it(self, bank: LakeWorld, tmp_path: Path, number: signal.Signals, code: int) -> None:
        """In order, and at once: nothing of the query is left."""
        sql = "select count(*) from range(100000) a, range(100000) b where (a.range * b.range) % 7 = 3"
        spill = tmp_path / "spill"
        spill.mkdir()
        process = subprocess.Popen(
            [sys.executable, "-m", "headwater", "query", bank.url, sql],
            env={**os.environ, "TMPDIR": str(spill)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # A run in the background of a shell is told to ignore it, and so would its children be.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        try:
            until = time.monotonic() + 60
            while not list(spill.glob("headwater-query-*")) and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(1)  # it runs by now
            process.send_signal(number)
            _, err = process.communicate(timeout=15)
        finally:
            process.kill()
            process.communicate()
        assert (process.returncode, "Traceback" in err) == (code, False), err
        assert list(spill.iterdir()) == []

    @pytest.mark.parametrize(
        ("sql", "code", "said"),
        [
            ("select * from nope", 2, "there is no table nope"),
            ("selec 1", 2, "(at 1:1)"),
            ("select 1; select 2", 2, ""),
            ("copy (select 1) to 'x.csv'", 4, "a query only asks"),
            ("select * from read_csv('/etc/passwd')", 4, "read_csv"),
            ("create table t (a int)", 4, "a query only asks"),
            ("", 2, ""),
        ],
    )
    def test_what_is_refused(self, run: Run, bank: LakeWorld, sql: str, code: int, said: str) -> None:
        result = run("query", bank.url, sql)
        assert (result.code, said in result.err) == (code, True), result.err
        assert result.out == ""

    def test_a_query_holds_a_pin_while_it_runs(self, bank: LakeWorld) -> None:
        def holders() -> list[str]:
            records = Path(bank.url).glob("_headwater/catalog/gc/manifest.pins/*")
            return [pin["holder"] for path in records for pin in json.loads(path.read_text())["pins"]]

        with bank.lake.stream("select * from orders") as reader:
            assert holders() == ["query"]
            assert reader.read_all().num_rows == 4
        assert holders() == []

    def test_a_head_that_is_gone_before_it_is_held_is_looked_up_again(
        self, bank: LakeWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Between the look at the branch and the hold, it moves on and its old head is collected."""
        catalog = bank.lake.catalog
        old = catalog.ref("main").hash
        hold = catalog.hold
        held: list[str] = []

        def hold_late(at: str, *, holder: str) -> AbstractContextManager[Held]:
            held.append(at)
            if len(held) == 1:
                bank.commit({"orders": append(bank.staging(), bank.table("orders"), ORDERS)})
            if at == old:
                raise BehindHorizonError(at, bank.app.clock.now(), bank.app.clock.now())
            return hold(at, holder=holder)

        monkeypatch.setattr(catalog, "hold", hold_late)
        assert bank.lake.query("select count(*) n from orders").to_pylist() == [{"n": 7}]
        assert held == [old, catalog.ref("main").hash]
        # A commit that was asked for by its hash stays what it is.
        with pytest.raises(BehindHorizonError):
            bank.lake.query("select count(*) n from orders", at=old)
        assert held[2:] == [old]

    def test_a_lake_that_may_only_be_read(self, bank: LakeWorld) -> None:
        reading = bank.app.open_lake(bank.url, read_only=True)
        assert reading.query("select count(*) n from orders").to_pylist() == [{"n": 4}]

    @pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
    def test_who_may_not_write_may_ask(
        self, run: Run, bank: LakeWorld, monkeypatch: pytest.MonkeyPatch, number: int
    ) -> None:
        def refused(*_: object) -> Path:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr("headwater.storage.folders.Folders.write_temporary", refused)
        assert rows(ask(run, bank, "query", "select count(*) n from orders", "--json")) == [{"n": 4}]
        assert run("sidecars", bank.url).out == "nothing is pending\n"
        changing = run("mutate", bank.url, "delete from orders")
        assert (changing.code, "is forbidden" in changing.err) == (1, True), changing.err
