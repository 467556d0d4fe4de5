"""Queries over tables in buckets: DuckDB reads them through our own stores."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from headwater.query import Pending
from headwater.query.filesystem import LakeFileSystem
from headwater.query.model import QueryRefusedError
from headwater.storage.errors import TransientError
from headwater.storage.port import Fetched, ObjectStore
from headwater.storage.wrapper import StoreWrapper
from headwater.tables.model import TableCorruptError
from tests.fixtures.stores import BACKENDS
from tests.unit.query_world import QueryWorld

NAMES = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))


class Watched(StoreWrapper):
    """Counts the bytes that are read of data files; `broken` makes them unreadable."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.read_bytes = 0
        self.broken = False

    def get(self, path: str, *, span: tuple[int, int] | None = None) -> Fetched:
        if self.broken and path.endswith(".parquet"):
            raise TransientError(self.name, path, "it was unplugged")
        found = self._inner.get(path, span=span)
        if path.endswith(".parquet"):
            self.read_bytes += len(found.data)
        return found


@pytest.fixture(params=BACKENDS)
def world(request: pytest.FixtureRequest, open_backend: Callable[[str], ObjectStore]) -> QueryWorld:
    return QueryWorld("s3://lake", Watched(open_backend(request.param)))


def names(*numbers: int) -> pa.Table:
    texts = [sha256(str(each).encode()).hexdigest() for each in numbers]  # does not compress
    return pa.table({"id": pa.array(numbers, pa.int64()), "name": texts})


def watched(world: QueryWorld) -> Watched:
    assert isinstance(world.store, Watched)
    return world.store


def test_a_table_in_a_bucket(world: QueryWorld) -> None:
    key = world.table("t", NAMES, names(*range(1000)), names(*range(1000, 1010)))
    world.delete(key, {0: [0], 1: [1]})
    assert world.fetch("SELECT count(*), count(DISTINCT name) FROM t") == [(1008, 1008)]
    found = world.fetch("SELECT id FROM t a JOIN t b USING (id) WHERE id BETWEEN 997 AND 999 ORDER BY id")
    assert found == [(997,), (998,), (999,)]
    assert world.fetch("SELECT id FROM t WHERE id > 5000", pending=Pending(rows={key: names(5001)})) == [(5001,)]


def test_only_the_columns_that_are_needed_are_read(world: QueryWorld) -> None:
    world.table("t", NAMES, names(*range(200_000)))
    store = watched(world)
    store.read_bytes = 0
    world.run("SELECT * FROM t")
    whole = store.read_bytes
    store.read_bytes = 0
    world.run("SELECT max(id) FROM t")
    assert 0 < store.read_bytes < whole / 2


def test_a_store_that_fails_says_so(world: QueryWorld) -> None:
    world.table("t", NAMES, names(1))
    watched(world).broken = True
    with pytest.raises(TransientError, match=r"table default\.t: .*unplugged"):
        world.run("SELECT * FROM t")


def test_a_missing_object_is_named(world: QueryWorld) -> None:
    key = world.table("t", NAMES, names(1))
    (path,) = world.paths(key)
    world.store.delete(path.removeprefix("s3://lake/"))
    with pytest.raises(TableCorruptError, match=path) as error:
        world.run("SELECT * FROM t")
    assert error.value.fields == {"path": path, "table": "default.t"}


def test_files_can_only_be_read_and_only_those_of_the_query(world: QueryWorld) -> None:
    filesystem = LakeFileSystem(world.files)
    name = filesystem.add("s3://lake/x", 5)
    assert filesystem.exists(name)
    assert not filesystem.exists("headwater://1.parquet")
    assert filesystem.glob("headwater://*") == []
    with pytest.raises(FileNotFoundError):
        filesystem.open("headwater://7.parquet")
    with pytest.raises(QueryRefusedError):
        filesystem.open(name, "wb")
