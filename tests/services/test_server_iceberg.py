"""The Iceberg REST catalog of a lake in a bucket, by engines that go to the bucket themselves."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import duckdb
import duckdb_extensions
import pyarrow as pa
import pytest

from headwater.app import App
from headwater.devservices import Endpoint, create_bucket
from headwater.kernel import settings
from headwater.kernel.ids import new_ulid
from headwater.lake import Lake
from tests.fixtures.rest import Served, app_of, serving
from tests.fixtures.stores import BUCKET

pytestmark = [
    pytest.mark.services,
    pytest.mark.proves("server/iceberg"),
    pytest.mark.filterwarnings("ignore:Merge on read is not yet supported"),
]


class Bucketed:
    """A lake in a bucket, and what an engine needs to go there."""

    def __init__(self, lake: Lake, served: Served, endpoint: Endpoint) -> None:
        self.lake = lake
        self.served = served
        self.key = endpoint.access_key_id or ""
        self.secret = endpoint.secret_access_key or ""


@pytest.fixture
def bucketed(versitygw: Endpoint) -> Iterator[Bucketed]:
    create_bucket(versitygw, BUCKET)
    assert versitygw.access_key_id is not None
    assert versitygw.secret_access_key is not None
    environ = {
        "HEADWATER_STORAGE_S3_ENDPOINT": versitygw.url,
        "HEADWATER_STORAGE_S3_ACCESS_KEY_ID": versitygw.access_key_id,
        "HEADWATER_STORAGE_S3_SECRET_ACCESS_KEY": versitygw.secret_access_key,
    }
    app = App(settings.load(environ=environ))
    lake = app.init_lake(f"s3://{BUCKET}/rest/{new_ulid(app.clock, app.randomness)}")
    lake.create_branch("dev")
    config = {"s3.endpoint": versitygw.url, "s3.region": "us-east-1", "s3.path-style-access": "true"}
    with serving(app_of(lake, config=config)) as served:
        yield Bucketed(lake, served, versitygw)


def test_pyiceberg_and_duckdb_on_a_bucket(bucketed: Bucketed) -> None:
    keys = {"s3.access-key-id": bucketed.key, "s3.secret-access-key": bucketed.secret}
    catalog = bucketed.served.catalog("dev", **keys)
    table = catalog.create_table("default.t", pa.schema([("id", pa.int64()), ("v", pa.string())]))
    assert table.location().startswith(f"s3://{BUCKET}/rest/")
    table.append(pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]}))
    table.delete("id = 2")
    assert bucketed.lake.query("SELECT id FROM t ORDER BY id", branch="dev")["id"].to_pylist() == [1, 3]
    for name in ("avro", "httpfs", "iceberg"):
        duckdb_extensions.import_extension(name)
    with duckdb.connect() as connection:
        connection.execute("load avro; load httpfs; load iceberg")
        host = urlsplit(table.config["s3.endpoint"]).netloc
        connection.execute(
            f"create secret (type s3, key_id '{bucketed.key}', secret '{bucketed.secret}', endpoint '{host}', "
            "url_style 'path', use_ssl false, region 'us-east-1')"
        )
        connection.execute("create secret s (type iceberg, token 'w')")
        connection.execute(
            f"attach 'dev' as lake (type iceberg, endpoint '{bucketed.served.uri}', secret s, "
            "access_delegation_mode 'none')"
        )
        assert connection.execute("select id, v from lake.default.t order by id").fetchall() == [(1, "a"), (3, "c")]
        connection.execute("create table lake.default.made as select 42 as n")
        connection.execute("insert into lake.default.t values (4, 'd')")
    assert bucketed.lake.query("SELECT n FROM made", branch="dev")["n"].to_pylist() == [42]
    assert bucketed.lake.query("SELECT count(*) AS n FROM t", branch="dev")["n"].to_pylist() == [3]
