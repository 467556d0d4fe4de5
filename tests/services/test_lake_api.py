"""The lake API of a lake in a bucket, by two servers that share a PostgreSQL: what one began, the other finishes."""

from __future__ import annotations

import io
import json
import signal

import httpx
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from headwater.app import App
from headwater.devservices import Endpoint, create_bucket
from headwater.kernel import settings
from headwater.kernel.clock import SystemClock
from headwater.kernel.ids import new_ulid
from tests.fixtures.stores import BUCKET
from tests.unit.test_server_process import PATIENCE_SECONDS, SHORT, again, serving

pytestmark = [pytest.mark.services, pytest.mark.proves("server/once"), pytest.mark.proves("server/lake-api")]

ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})
ARROW = "application/vnd.apache.arrow.stream"


def bodies() -> dict[str, bytes]:
    stream, file, parquet, text = io.BytesIO(), io.BytesIO(), io.BytesIO(), io.BytesIO()
    with pa.ipc.new_stream(stream, ROWS.schema) as writer:
        writer.write_table(ROWS)
    with pa.ipc.new_file(file, ROWS.schema) as writer:
        writer.write_table(ROWS)
    pq.write_table(ROWS, parquet)
    pa.csv.write_csv(ROWS, text)
    return {
        ARROW: stream.getvalue(),
        "application/vnd.apache.arrow.file": file.getvalue(),
        "application/vnd.apache.parquet": parquet.getvalue(),
        "application/x-ndjson": b"".join(json.dumps(row).encode() + b"\n" for row in ROWS.to_pylist()),
        "text/csv": text.getvalue(),
    }


def asked(client: httpx.Client, sql: str) -> list[dict[str, object]]:
    answer = client.post("/v1/main/query", json={"sql": sql}, headers={"accept": ARROW})
    found: list[dict[str, object]] = pa.ipc.open_stream(answer.content).read_all().to_pylist()
    return found


def test_two_servers_of_a_lake_in_a_bucket(versitygw: Endpoint, postgres_database: str) -> None:
    create_bucket(versitygw, BUCKET)
    assert versitygw.access_key_id is not None
    assert versitygw.secret_access_key is not None
    environ = {
        "HEADWATER_STORAGE_S3_ENDPOINT": versitygw.url,
        "HEADWATER_STORAGE_S3_ACCESS_KEY_ID": versitygw.access_key_id,
        "HEADWATER_STORAGE_S3_SECRET_ACCESS_KEY": versitygw.secret_access_key,
        "HEADWATER_DATABASE": postgres_database,
    }
    app = App(settings.load(environ=environ))
    url = f"s3://{BUCKET}/lake-api/{new_ulid(app.clock, app.randomness)}"
    app.init_lake(url).apply("create table t (id bigint, v varchar); create table u (id bigint)", actor="setup")
    patient = {"HEADWATER_SERVER_WRITE_SECONDS": "5", "HEADWATER_PUBLISH_LEASE_SECONDS": "5"}
    with again(url, **environ, **patient) as client:
        for kind, body in bodies().items():
            request = {"content": body, "headers": {"content-type": kind, "idempotency-key": kind}}
            loaded = client.post("/v1/main/load?table=t&mode=overwrite", **request)  # type: ignore[arg-type]
            assert (loaded.status_code, loaded.json()["rows"]) == (200, 2), loaded.text
            replayed = client.post("/v1/main/load?table=t&mode=overwrite", **request)  # type: ignore[arg-type]
            assert replayed.json() == loaded.json()
            assert asked(client, "select id, v from t order by id") == ROWS.to_pylist()
        # A server that dies between the heads of its tables and the commit, and is not heard of again.
        victim = serving(url, **SHORT, **environ, HEADWATER_FAILPOINTS="publish.after-head=kill@1")
        change = {"sql": ["update t set v = 'c' where id = 1", "insert into u values (7)"]}
        key = {"idempotency-key": "moved"}
        with victim as server:
            with pytest.raises(httpx.TransportError):
                httpx.post(f"{server.address}/v1/main/mutate", json=change, headers=key, timeout=PATIENCE_SECONDS)
            assert server.process.wait(PATIENCE_SECONDS) == -signal.SIGKILL
        clock = SystemClock()
        deadline = clock.monotonic() + PATIENCE_SECONDS
        waiting = client.post("/v1/main/mutate", json=change, headers=key)
        assert (waiting.status_code, waiting.json()["code"]) == (409, "in_progress"), waiting.text
        settle = f"/v1/operations/{waiting.json()['operation']}?branch=main"
        while (settled := client.get(settle)).status_code == 202:
            assert clock.monotonic() < deadline
            clock.sleep(0.2)
        assert settled.json()["state"] == "absent"
        while (answer := client.post("/v1/main/mutate", json=change, headers=key)).status_code in (409, 503):
            assert clock.monotonic() < deadline, answer.text
            clock.sleep(0.2)
        assert (answer.status_code, answer.json()["rows"]) == (200, [1, 1]), answer.text
        assert asked(client, "select v from t where id = 1 union all select id::varchar from u") == [
            {"v": "c"},
            {"v": "7"},
        ]
        assert client.get("/v1/recoveries").json()["recoveries"]
