"""The Iceberg REST catalog: a client that asks for its token, and what is kept for those who load."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import duckdb_extensions
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from headwater.server.iceberg.reading import Kept
from tests.fixtures.lakes import LakeWorld
from tests.fixtures.rest import Served, app_of, serving

pytestmark = pytest.mark.proves("server/iceberg")

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "v", StringType()))
ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.string())])


def rows(*values: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"id": number, "v": text} for number, text in values], schema=ARROW)


@pytest.fixture
def served(lake: LakeWorld) -> Iterator[Served]:
    lake.lake.create_branch("feature/x")
    with serving(app_of(lake.lake)) as found:
        yield found


def test_duckdb_asks_for_a_token_by_its_secret(served: Served) -> None:
    """The protocol's own way in; with a token, DuckDB is tried in tests/services."""
    catalog = served.catalog("feature/x")
    catalog.create_table("default.t", SCHEMA).append(rows((1, "a"), (2, "b")))
    for name in ("avro", "httpfs", "iceberg"):
        duckdb_extensions.import_extension(name)
    with duckdb.connect() as connection:
        connection.execute("load avro; load httpfs; load iceberg")
        connection.execute(
            "create secret s (type iceberg, client_id 'any', client_secret 'w', "
            f"oauth2_server_uri '{served.uri}/v1/oauth/tokens')"
        )
        connection.execute(f"attach 'feature/x' as lake (type iceberg, endpoint '{served.uri}', secret s)")
        assert connection.execute("select * from lake.default.t order by id").fetchall() == [(1, "a"), (2, "b")]


def test_documents_are_kept_while_there_is_room() -> None:
    kept, made = Kept(10), list[str]()

    def found(name: str, size_bytes: int = 4) -> bytes:
        def make() -> bytes:
            made.append(name)
            return name.encode() * size_bytes

        return kept.found(name, make)

    assert [found(each) for each in "aab"] == [b"aaaa", b"aaaa", b"bbbb"]
    assert (made, kept.size_bytes) == (["a", "b"], 8)
    found("a")
    found("c")  # there is room for two: the one that was used last stays
    found("a")
    assert (made, kept.size_bytes) == (["a", "b", "c"], 8)
    assert found("d", 11) == b"d" * 11  # too large to be kept: it drives nobody out
    assert kept.size_bytes == 8
