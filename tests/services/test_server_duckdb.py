"""Everything that DuckDB can do with an attached Iceberg REST catalog, on lakes in folders and in buckets."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.fixtures.rest import IN_BUCKET, Place, Served, app_of, attached, lake_in, serving

pytestmark = [pytest.mark.proves("server/iceberg")]


class Shop:
    """A lake, its server, and what DuckDB is to know of them."""

    def __init__(self, place: Place, served: Served, branch: str) -> None:
        self.place = place
        self.served = served
        self.branch = branch
        self.connection = attached(served.uri, branch, "duckdb", place)

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(text).fetchall()

    def ours(self, text: str) -> list[tuple[Any, ...]]:
        return [tuple(each.values()) for each in self.place.lake.query(text, branch=self.branch).to_pylist()]

    def log(self) -> list[tuple[str, str]]:
        lake = self.place.lake
        return [(each.actor, each.message) for each in lake.catalog.log(lake.resolve(branch=self.branch))]


@pytest.fixture(scope="module", params=["folder", IN_BUCKET])
def shops(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Shop]]:
    place = lake_in(request, Path(tmp_path_factory.mktemp("served")), request.param)
    place.lake.create_branch("feature/x")
    with serving(app_of(place.lake, config=place.config)) as served:
        found = {branch: Shop(place, served, branch) for branch in ("main", "feature/x")}
        yield found
        for each in found.values():
            each.connection.close()


@pytest.fixture(params=["main", "feature/x"])
def shop(request: pytest.FixtureRequest, shops: dict[str, Shop]) -> Shop:
    return shops[request.param]


def test_rows(shop: Shop) -> None:
    catalog = shop.served.catalog(shop.branch, **shop.place.keys)
    table = catalog.create_table("default.t", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    table.append(pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]}))
    [first] = table.snapshots()
    assert shop.sql("select * from lake.default.t order by id") == [(1, "a"), (2, "b"), (3, "c")]
    shop.sql("insert into lake.default.t values (5, 'e')")
    shop.sql("update lake.default.t set v = 'A' where id = 1")
    shop.sql("delete from lake.default.t where id = 2")
    shop.sql(
        "merge into lake.default.t t using (select 3 as id, 'C' as v union all select 4, 'd') s on t.id = s.id "
        "when matched then update set v = s.v when not matched then insert values (s.id, s.v)"
    )
    expected = [(1, "A"), (3, "C"), (4, "d"), (5, "e")]
    assert shop.sql("select * from lake.default.t order by id") == expected
    assert shop.ours("SELECT * FROM t ORDER BY id") == expected
    fresh = catalog.load_table("default.t").scan().to_arrow().to_pylist()
    assert sorted(tuple(each.values()) for each in fresh) == expected
    then = f"select count(*) from lake.default.t at (version => {first.snapshot_id})"
    assert shop.sql(then) == [(3,)]
    assert shop.log()[0][0] == "token-duckdb"


def test_tables(shop: Shop) -> None:
    shop.sql("create schema lake.db")
    shop.sql("create table lake.db.t (id bigint not null, v varchar, d date, m decimal(10, 2), l integer[])")
    shop.sql("insert into lake.db.t values (1, 'a', date '2026-01-01', 1.5, [1, 2]), (2, 'b', null, null, null)")
    for change in (
        "add column extra varchar",
        "rename column v to w",
        "drop column l",
        "alter column id drop not null",
    ):
        shop.sql(f"alter table lake.db.t {change}")
    shop.sql("alter table lake.db.t rename to u")
    expected = [(1, "a", date(2026, 1, 1), Decimal("1.50"), None), (2, "b", None, None, None)]
    assert shop.ours("SELECT * FROM db.u ORDER BY id") == expected
    assert shop.sql("select * from lake.db.u order by id") == expected
    shop.sql("create table lake.db.p (id bigint, part varchar) partitioned by (part) with ('format-version' = '3')")
    shop.sql("insert into lake.db.p values (1, 'a'), (2, 'b'), (3, 'b')")
    shop.sql("delete from lake.db.p where id = 3")  # by a deletion vector
    assert shop.ours("SELECT * FROM db.p ORDER BY id") == [(1, "a"), (2, "b")]
    shop.sql("drop table lake.db.p")
    shop.sql("drop table lake.db.u")
    shop.sql("drop schema lake.db")


def test_a_transaction_of_several_tables_is_one_commit(shop: Shop) -> None:
    shop.sql("create table lake.default.a (id bigint)")
    shop.sql("create table lake.default.b (id bigint)")
    before = len(shop.log())
    shop.sql("begin")
    shop.sql("insert into lake.default.a values (1)")
    shop.sql("insert into lake.default.b values (1)")
    assert shop.ours("SELECT * FROM a") == []
    shop.sql("commit")
    assert shop.ours("SELECT a.id FROM a JOIN b ON a.id = b.id") == [(1,)]
    assert len(shop.log()) == before + 1
    shop.sql("begin")
    shop.sql("insert into lake.default.a values (2)")
    shop.sql("rollback")
    assert shop.ours("SELECT * FROM a") == [(1,)]


def test_a_table_is_made_with_its_rows(shop: Shop) -> None:
    """DuckDB does not make the folder of a table that is not there yet; buckets have none."""
    made = "create table lake.default.made as select range as id from range(10)"
    if not shop.place.config:
        with pytest.raises(duckdb.Error, match="No such file"):
            shop.sql(made)
        assert shop.ours("SELECT count(*) FROM information_schema.tables WHERE table_name = 'made'") == [(0,)]
        return
    shop.sql(made)
    assert shop.ours("SELECT count(*), sum(id) FROM made") == [(10, 45)]
