"""The lake API: each route does what it says, and says what went wrong."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.catalog.model import Commit
from headwater.publish.model import Wish
from tests.unit.server_world import ServedLake, served_lake

ARROW, PARQUET, NDJSON = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet", "application/x-ndjson"

pytestmark = pytest.mark.proves("server/lake-api")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedLake]:
    with served_lake(tmp_path / "lake") as world:
        yield world


def test_health_readiness_metrics_and_openapi(served: ServedLake) -> None:
    assert served.client.get("/healthz").json() == {"status": "ok"}
    assert served.client.get("/readyz").json() == {"status": "ready"}
    metrics = served.client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert 'headwater_server_requests_total{method="GET",route="/healthz",status="200"} 1.0' in metrics.text
    paths = served.client.get("/openapi.json").json()["paths"]
    assert {"/v1/{branch}/mutate", "/v1/{branch}/load", "/v1/{branch}/query", "/v1/refs", "/metrics"} <= paths.keys()


def test_addresses_of_another_protocol_are_its_own(served: ServedLake) -> None:
    """Whatever begins like them and is none of them is answered as anything that is not there."""
    assert served.client.get("/iceberg/v1/main/namespaces").json()["namespaces"] == [["default"]]
    assert served.client.get("/iceberg/v1/nothing").json()["error"]["type"] == "NotFoundException"
    for path in ("/iceberg", "/iceberg/nothing", "/icebergs/v1/config"):
        answer = served.client.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path
    assert served.client.patch("/iceberg/v1/config").status_code == 405
    routes = served.client.get("/metrics").text
    assert 'route="/iceberg/v1/{prefix}/namespaces"' in routes


def test_a_mutation_is_one_commit_in_its_callers_name(served: ServedLake) -> None:
    answer = served.mutate(["insert into t values (1, 'a'), (2, 'b')", "update t set v = 'c' where id = 2"]).json()
    assert answer["rows"] == [2, 1]
    head = served.lake.catalog.commit_at(served.lake.catalog.ref("main").hash)
    assert (head.hash, head.actor, head.operation) == (answer["commit"], "anonymous", answer["operation"])
    assert served.rows() == [{"id": 1, "v": "a"}, {"id": 2, "v": "c"}]


def test_a_mutation_that_changes_nothing_commits_nothing(served: ServedLake) -> None:
    answer = served.mutate("delete from t where id = 9")
    assert answer.status_code == 200
    assert answer.json()["commit"] is None


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("insert into t valus (1)", {"position": {"line": 1, "column": 19}, "statement": 0}),
        (["insert into t values (7, 'x')", "delete from nothing"], {"statement": 1}),
        ("select 1", {"statement": 0}),
    ],
)
def test_bad_sql_is_400_with_its_place(served: ServedLake, sql: str | list[str], place: dict[str, object]) -> None:
    answer = served.mutate(sql)
    assert answer.status_code in (400, 404)
    assert place.items() <= answer.json().items()
    assert served.rows() == []


@pytest.mark.parametrize(
    ("sql", "line", "column"),
    [
        ("insert into t valus (1)", 1, 19),
        ("insert into t\nvalues (1, nope)", 2, 12),
        ("update t set nope = 1", 1, 14),
        ("delete from t where idd = 1", 1, 21),
    ],
)
def test_bad_sql_in_a_mutation_has_line_and_column(served: ServedLake, sql: str, line: int, column: int) -> None:
    answer = served.mutate(["insert into t values (7, 'x')", sql])
    assert (answer.status_code, answer.json()["code"], answer.json()["statement"]) == (400, "bad_sql", 1)
    assert answer.json()["position"] == {"line": line, "column": column}
    assert served.rows() == []


def test_a_question_with_bad_sql_has_line_and_column(served: ServedLake) -> None:
    answer = served.query("select\n  nope from t")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_sql")
    assert answer.json()["position"] == {"line": 2, "column": 3}


def test_a_broken_constraint_is_422_and_changes_nothing(served: ServedLake) -> None:
    served.mutate("insert into t values (1, 'a')")
    answer = served.mutate("insert into t values (1, 'b')")
    assert (answer.status_code, answer.json()["code"]) == (422, "constraint")
    assert len(served.rows()) == 1


def test_what_is_not_there_is_404(served: ServedLake) -> None:
    for answer in (
        served.mutate("insert into t values (1, 'a')", branch="nowhere"),
        served.query("select 1", branch="nowhere"),
        served.client.get("/v1/nowhere/tables"),
        served.client.get(f"/v1/main/commits?at={'0' * 64}"),
        served.client.post("/v1/main/load?table=none", content=b"{}", headers={"content-type": NDJSON}),
        served.client.delete("/v1/branches/nowhere"),
        served.client.get("/nothing"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), answer.text
        assert answer.json()["error"]


def test_a_lost_race_is_409_with_the_table_and_its_versions(
    served: ServedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = served.lake.writing.publisher.publish

    def overtaken(wish: Wish) -> Commit:
        """Somebody else is faster, between the statements of the request and its publish."""
        monkeypatch.undo()
        with served.lake.transaction(actor="fast") as fast:
            fast.sql("insert into t values (3, 'faster')")
        return planned(wish)

    monkeypatch.setattr(served.lake.writing.publisher, "publish", overtaken)
    answer = served.mutate("insert into t values (1, 'slow')")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    conflict = answer.json()["manifest_conflict"]
    assert conflict == {"table_key": "default.t", "expected": 1, "actual": 2}
    assert served.rows() == [{"id": 3, "v": "faster"}]


def test_loads_in_every_format(served: ServedLake) -> None:
    rows = pa.table({"id": pa.array([1, 2]), "v": ["a", "b"]})
    stream, parquet = io.BytesIO(), io.BytesIO()
    with pa.ipc.new_stream(stream, rows.schema) as writer:
        writer.write_table(rows)
    pq.write_table(rows, parquet)
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows.to_pylist())
    for body, kind in (
        (stream.getvalue(), ARROW),
        (parquet.getvalue(), PARQUET),
        (lines, NDJSON),
        (b"id,v\n1,a\n2,b\n", "text/csv; charset=utf-8"),
    ):
        answer = served.client.post(
            "/v1/main/load?table=t&mode=overwrite&message=again", content=body, headers={"content-type": kind}
        )
        assert answer.status_code == 200, answer.text
        assert answer.json()["rows"] == 2
        assert served.rows() == rows.to_pylist()
    head = served.lake.catalog.commit_at(served.lake.catalog.ref("main").hash)
    assert (head.message, head.operation) == ("again", answer.json()["operation"])


def test_a_load_that_merges(served: ServedLake) -> None:
    served.mutate("insert into t values (1, 'a')")
    answer = served.client.post(
        "/v1/main/load?table=t&mode=merge&on=id",
        content=b'{"id": 1, "v": "b"}\n{"id": 2, "v": "c"}\n',
        headers={"content-type": NDJSON},
    )
    assert (answer.json()["rows"], answer.json()["updated"]) == (2, 1)
    assert served.rows() == [{"id": 1, "v": "b"}, {"id": 2, "v": "c"}]


def test_loads_that_cannot_be(served: ServedLake) -> None:
    def loaded(body: bytes, kind: str, **headers: str) -> tuple[int, str]:
        answer = served.client.post("/v1/main/load?table=t", content=body, headers={"content-type": kind, **headers})
        assert "/tmp" not in answer.text
        assert str(served.folder) not in answer.text
        return answer.status_code, answer.json()["code"]

    assert loaded(b"x", "application/pdf") == (415, "unsupported_media_type")
    assert loaded(b"", "") == (415, "unsupported_media_type")
    assert loaded(b"x", NDJSON, **{"content-encoding": "gzip"}) == (415, "unsupported_media_type")
    assert loaded(b"no parquet", PARQUET) == (400, "usage")
    assert loaded(b"no arrow", ARROW) == (400, "usage")
    assert loaded(b"{", NDJSON) == (400, "usage")
    assert loaded(b'{"id": 1, "w": 2}', NDJSON) == (400, "usage")
    assert served.rows() == []


def test_answers_in_arrow_and_json(served: ServedLake) -> None:
    served.mutate("insert into t values (1, 'ä'), (2, null)")
    sql = "select id, v, id as id from t order by id"
    arrow = served.query(sql, accept=ARROW)
    assert arrow.headers["content-type"] == ARROW
    assert pa.ipc.open_stream(arrow.content).read_all().num_rows == 2
    assert arrow.headers["headwater-commit"] == served.lake.catalog.ref("main").hash
    assert served.query(sql).json()["rows"] == [{"id": 1, "v": "ä", "id_2": 1}, {"id": 2, "v": None, "id_2": 2}]
    lines = served.query(sql, accept=NDJSON).text.splitlines()
    assert [json.loads(each)["id"] for each in lines] == [1, 2]
    assert served.query("select id from t where id > 5").json()["rows"] == []
    assert served.query("select id from t where id > 5", accept=NDJSON).text == ""
    empty = served.query("select id from t where id > 5", accept=ARROW).content
    assert pa.ipc.open_stream(empty).read_all().schema.names == ["id"]
    assert served.query(sql, accept="text/html").status_code == 406
    assert served.query(sql, accept=f"text/html, {ARROW};q=0.5, */*;q=0.1").headers["content-type"] == ARROW


def test_a_large_answer_is_streamed(served: ServedLake) -> None:
    with served.client.stream(
        "POST", "/v1/main/query", json={"sql": "select range as n from range(1000000)"}, headers={"accept": ARROW}
    ) as answer:
        assert "content-length" not in answer.headers
        batches = list(pa.ipc.open_stream(answer.read()))
    assert sum(each.num_rows for each in batches) == 1_000_000
    assert len(batches) > 1


def test_a_query_cannot_write_or_read_files(served: ServedLake) -> None:
    for sql in (
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('http://127.0.0.1:1/x')",
        "select * from glob('/etc/*')",
        "select 1 limit (select count(*) from read_blob('/etc/passwd'))",
        "select * from query('select 1')",
        "select * from duckdb_secrets()",
        "select current_setting('temp_directory')",
        "create table x as select 1",
        "copy (select 1) to 'x.csv'",
        "export database 'x'",
        "attach 'x.db'",
        "install httpfs",
        "load httpfs",
        "pragma database_list",
        "set memory_limit = '1GB'",
        "call pragma_version()",
    ):
        answer = served.query(sql)
        assert (answer.status_code, answer.json()["code"]) == (403, "refused_sql"), answer.text
        assert served.mutate(f"insert into t {sql}").status_code in (400, 403)
    for sql in ("select getenv('HOME')", "select * from '/etc/passwd'", "select 1; select 2"):
        assert served.query(sql).status_code == 400


def test_time_travel(served: ServedLake) -> None:
    before = served.lake.catalog.ref("main").hash
    served.mutate("insert into t values (1, 'a')")
    answer = served.client.post("/v1/main/query", json={"sql": "select count(*) as n from t", "at": before})
    assert answer.json()["rows"] == [{"n": 0}]
    assert answer.headers["headwater-commit"] == before


def test_a_schema_is_applied_tried_and_shown(served: ServedLake) -> None:
    tried = served.client.post("/v1/main/schema", json={"sql": "alter table t add column w bigint", "dry_run": True})
    assert tried.json()["commit"] is None
    assert tried.json()["changes"][0]["action"] == "alter"
    assert "w" not in served.lake.table("t").metadata.schema().column_names
    made = served.client.post("/v1/main/schema", json={"sql": "create table u (a bigint)"}).json()
    assert served.lake.table("u").metadata.schema().column_names == ["a"]
    assert served.lake.catalog.commit_at(made["commit"]).operation == made["operation"]
    assert "TABLE default.u" in served.client.get("/v1/main/schema").json()["sql"].replace('"', "")
    bad = served.client.post("/v1/main/schema", json={"sql": "create tabel u (a bigint)"})
    assert (bad.status_code, bad.json()["code"]) == (400, "bad_sql")
    assert bad.json()["position"]["line"] == 1


def test_branches_with_slashes(served: ServedLake) -> None:
    made = served.client.post("/v1/branches", json={"name": "feature/a.b/tables"})
    assert (made.status_code, made.json()["kind"]) == (201, "branch")
    assert served.client.post("/v1/branches", json={"name": "feature/a.b/tables"}).json()["code"] == "exists"
    for spelled in ("feature/a.b/tables", "feature%2Fa.b%2Ftables"):
        assert served.client.get(f"/v1/{spelled}/tables").json()["tables"][0]["table"] == "default.t"
    assert served.mutate("insert into t values (1, 'a')", branch="feature%2Fa.b%2Ftables").status_code == 200
    assert served.rows() == []
    merged = served.client.post("/v1/main/merge", json={"source": "feature/a.b/tables"}).json()
    assert merged["tables"] == ["default.t"]
    assert served.rows() == [{"id": 1, "v": "a"}]
    assert served.client.post("/v1/main/merge", json={"source": "feature/a.b/tables"}).json()["commit"] is None
    stale = served.client.delete(f"/v1/branches/feature/a.b/tables?expected={'1' * 64}")
    assert (stale.status_code, stale.json()["code"]) == (409, "conflict")
    assert stale.json()["ref_conflict"]["expected"] == "1" * 64
    assert served.client.delete("/v1/branches/feature%2Fa.b%2Ftables").json() == {"deleted": "feature/a.b/tables"}
    assert [each["name"] for each in served.client.get("/v1/refs").json()["refs"]] == ["main"]


def test_tags(served: ServedLake) -> None:
    served.mutate("insert into t values (1, 'a')")
    made = served.client.post("/v1/tags", json={"name": "v/1"})
    assert (made.status_code, made.json()["kind"]) == (201, "tag")
    served.mutate("insert into t values (2, 'b')")
    answer = served.client.post("/v1/main/query", json={"sql": "select id from t", "at": "v/1"})
    assert answer.json()["rows"] == [{"id": 1}]
    assert served.query("select id from t", branch="v%2F1").json()["rows"] == [{"id": 1}]
    shown = served.client.get("/v1/tags/v/1").json()
    assert (shown["hash"], shown["head"]["hash"]) == (made.json()["hash"], made.json()["hash"])
    assert served.client.get("/v1/tags/main").status_code == 404
    assert served.client.post("/v1/tags", json={"name": "v/1"}).json()["code"] == "exists"
    assert served.client.post("/v1/tags", json={"name": "v2", "at": "nowhere"}).status_code == 404
    refused = served.mutate("insert into t values (3, 'c')", branch="v/1")
    assert (refused.status_code, refused.json()["code"]) == (400, "usage")
    assert served.client.delete("/v1/branches/v/1").status_code == 400
    assert served.client.delete(f"/v1/tags/v/1?expected={'1' * 64}").json()["code"] == "conflict"
    assert served.client.delete("/v1/tags/v/1").json() == {"deleted": "v/1"}
    assert served.client.get("/v1/tags/v/1").status_code == 404


def test_one_commit_and_one_branch(served: ServedLake) -> None:
    made = served.mutate("insert into t values (1, 'a')").json()["commit"]
    served.client.post("/v1/branches", json={"name": "a/b"})
    dropped = served.client.post("/v1/a/b/schema", json={"sql": "drop table t; create table u (x bigint)"}).json()
    found = served.client.get(f"/v1/main/commits/{made[:10]}").json()
    assert (found["hash"], found["actor"]) == (made, "anonymous")
    [change] = found["changes"]
    assert (change["name"], change["change"]) == ("default.t", "changed")
    assert change["before"] != change["after"]
    gone, come = served.client.get(f"/v1/a/b/commits/{dropped['commit']}").json()["changes"]
    assert (gone["name"], gone["change"], gone["after"]) == ("default.t", "removed", None)
    assert (come["name"], come["change"], come["before"]) == ("default.u", "added", None)
    assert served.client.get("/v1/main/commits/00000000").status_code == 404
    branch = served.client.get("/v1/branches/a/b").json()
    assert (branch["name"], branch["head"]["hash"]) == ("a/b", dropped["commit"])
    assert served.client.get("/v1/branches/none").status_code == 404


@pytest.mark.hazard("P22")
def test_parameters_that_no_route_knows_are_refused(served: ServedLake) -> None:
    """Who mistypes `expected` must not delete whatever is there."""
    served.client.post("/v1/branches", json={"name": "work"})
    typo = served.client.delete(f"/v1/branches/work?expect={'1' * 64}")
    assert (typo.status_code, typo.json()["code"]) == (422, "invalid_request")
    assert "expected" in typo.json()["hint"]
    assert served.client.get("/v1/refs?limit=3").status_code == 422
    assert served.client.get("/v1/branches/work").status_code == 200


def test_heads_of_answers(served: ServedLake) -> None:
    for path in ("/healthz", "/readyz", "/v1/refs", "/v1/main/tables"):
        answer = served.client.head(path)
        assert (answer.status_code, answer.content) == (200, b"")
    assert served.client.head("/v1/nowhere/tables").status_code == 404
    assert served.client.options("/v1/refs").status_code == 405


def test_branches_named_like_routes(served: ServedLake) -> None:
    for name in ("operations", "branches", "refs", "sidecars"):
        assert served.client.post("/v1/branches", json={"name": name}).status_code == 201
        assert served.client.get(f"/v1/{name}/tables").json()["tables"]
    assert served.client.get("/v1/refs").json()["refs"]


def test_a_merge_conflict_names_what_is_in_the_way(served: ServedLake) -> None:
    served.mutate("insert into t values (1, 'a')")
    served.client.post("/v1/branches", json={"name": "work"})
    served.mutate("update t set v = 'b' where id = 1")
    served.mutate("update t set v = 'c' where id = 1", branch="work")
    answer = served.client.post("/v1/main/merge", json={"source": "work"})
    assert (answer.status_code, answer.json()["code"]) == (409, "merge_conflict")
    assert answer.json()["conflicts"][0]["table"] == "default.t"


def test_main_cannot_be_deleted(served: ServedLake) -> None:
    answer = served.client.delete("/v1/branches/main")
    assert 400 <= answer.status_code < 500


def test_commits_in_pages_and_by_actor(served: ServedLake) -> None:
    for number in range(5):
        served.mutate(f"insert into t values ({number}, 'a')")
    whole = [each["hash"] for each in served.client.get("/v1/main/commits").json()["commits"]]
    found, page = [], None
    while True:
        answer = served.client.get("/v1/main/commits", params={"limit": 2} | ({"page": page} if page else {})).json()
        found += [each["hash"] for each in answer["commits"]]
        page = answer["next"]
        if page is None:
            break
    assert found == whole
    mine = served.client.get("/v1/main/commits", params={"actor": "anonymous"}).json()["commits"]
    assert len(mine) == 5
    assert {each["actor"] for each in mine} == {"anonymous"}


def test_tables_in_pages_stay_at_one_commit(served: ServedLake) -> None:
    served.lake.apply("create table a (x bigint); create table z (x bigint)", actor="setup")
    first = served.client.get("/v1/main/tables", params={"limit": 2}).json()
    served.lake.apply("drop table z", actor="setup")
    second = served.client.get("/v1/main/tables", params={"limit": 2, "page": first["next"]}).json()
    assert [each["table"] for each in first["tables"] + second["tables"]] == ["default.a", "default.t", "default.z"]
    assert (second["commit"], second["next"]) == (first["commit"], None)
    assert first["tables"][1]["columns"][0] == {"name": "id", "type": "long", "required": True}
    for page in ("xyz", "main.a", "..a", f"{first['commit'][:12]}.a", f"{first['commit']}."):
        assert served.client.get("/v1/main/tables", params={"page": page}).status_code == 400
    assert served.client.get("/v1/main/tables", params={"page": f"{'0' * 64}.a"}).status_code == 404


def test_sidecars_and_recoveries(served: ServedLake) -> None:
    assert served.client.get("/v1/sidecars").json() == {"sidecars": [], "unreadable": []}
    assert served.client.get("/v1/recoveries").json() == {"recoveries": [], "next": None}
    assert served.client.post("/v1/recover").json() == {"recovered": []}


def test_an_operation_is_settled(served: ServedLake) -> None:
    made = served.mutate("insert into t values (1, 'a')").json()
    answer = served.client.get(f"/v1/operations/{made['operation']}").json()
    assert (answer["state"], answer["commit"]["hash"]) == ("committed", made["commit"])
    young = served.serving.new_operation()
    pending = served.client.get(f"/v1/operations/{young}")
    assert (pending.status_code, pending.json()["state"]) == (202, "pending")
    assert int(pending.headers["retry-after"]) > 0
    with served.serving.flights.flying(young):
        assert served.client.get(f"/v1/operations/{young}").status_code == 202
    absent = served.client.get(f"/v1/operations/{young}").json()
    assert (absent["state"], absent["commit"]) == ("absent", None)
    assert served.client.get("/v1/operations/01M7G0AVKHG068AK7DCRT50TC0").status_code in (200, 202)
    assert served.client.get("/v1/operations/nonsense").status_code == 400
    assert len(served.client.get("/v1/recoveries").json()["recoveries"]) >= 1


def test_bodies_that_are_not_what_they_should_be(served: ServedLake) -> None:
    bodies: list[object] = [{}, {"sql": 1}, {"sql": "x", "more": 1}, [], {"sql": "x", "message": ""}]
    for body in bodies:
        answer = served.client.post("/v1/main/mutate", json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request"), answer.text
    answer = served.client.post("/v1/main/mutate", content=b"{", headers={"content-type": "application/json"})
    assert answer.status_code == 422
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = served.client.post("/v1/main/mutate", content=b'{"sql": "x"}', headers={"content-type": kind})
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")
    assert served.client.put("/v1/refs").json()["code"] == "method_not_allowed"
    assert served.mutate([]).status_code == 422


def test_names_that_cannot_be(served: ServedLake) -> None:
    for name in ("..", "1x", "a b", "HEAD", "x" * 300, ""):
        assert served.client.post("/v1/branches", json={"name": name}).status_code == 400


def test_what_no_client_should_send(served: ServedLake) -> None:
    """Half characters, nests without end, and times that there are not: all of it is the client's mistake."""

    def sent(path: str, body: bytes, kind: str = "application/json") -> int:
        answer = served.client.post(path, content=body, headers={"content-type": kind})
        assert set(answer.json()) >= {"error", "code", "hint"}
        return answer.status_code

    half = rb'{"sql": "\ud800"}'
    assert [sent(f"/v1/main/{each}", half) for each in ("mutate", "query", "schema")] == [422] * 3
    assert sent("/v1/main/mutate", rb'{"\ud800": 1, "sql": "x"}') == 422
    assert sent("/v1/main/mutate", b'{"sql": "' + b"(" * 5000 + b'"}') == 400
    assert sent("/v1/main/mutate", b"[" * 100_000) == 400
    assert sent("/v1/main/load?table=t", rb'{"id": 1, "v": "\ud800"}', NDJSON) == 400
    assert served.client.get("/v1/operations/7ZZZZZZZZZZZZZZZZZZZZZZZZZ").status_code == 400
    assert served.client.get("/v1/%00/tables").status_code == 404
    assert served.rows() == []


def test_what_nobody_foresaw_is_500_and_the_connection_stays(
    served: ServedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks() -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as broken:
        broken.setattr(served.lake.catalog, "refs", breaks)
        for _ in range(3):
            answer = served.client.get("/v1/refs")
            assert (answer.status_code, answer.json()["code"]) == (500, "failed")
            assert "a bug" not in answer.text
    assert served.client.get("/v1/refs").status_code == 200


def test_the_root_says_what_this_is(served: ServedLake) -> None:
    answer = served.client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    for said in ("Headwater", "/v1", "/iceberg", "/openapi.json", "/healthz"):
        assert said in answer.text
    assert answer.text.count("\n") == 1


def test_replicas_and_tags_are_not_written(served: ServedLake) -> None:
    """Replicas are what sync made of `main`: nobody else writes there, makes one, or takes its name."""
    lake = served.lake
    served.mutate("insert into t values (1, 'a')")
    for name in ("main_replica_eu", "work"):
        lake.create_branch(name)
    lake.create_tag("v1")
    served.mutate("insert into t values (2, 'b')", "work")
    before = lake.catalog.refs()
    rows = {"content": b'{"id": 3, "v": "c"}', "headers": {"content-type": NDJSON}}
    for name in ("main_replica_eu", "v1"):
        answers = [
            served.mutate("insert into t values (3, 'c')", name),
            served.client.post(f"/v1/{name}/schema", json={"sql": "create table u (id bigint)"}),
            served.client.post(f"/v1/{name}/merge", json={"source": "work"}),
            served.client.post(f"/v1/{name}/load?table=t", content=rows["content"], headers=rows["headers"]),  # type: ignore[arg-type]
        ]
        expected = (400, "usage") if name == "v1" else (403, "read_only")
        for answer in answers:
            assert (answer.status_code, answer.json()["code"]) == expected, answer.text
            assert answer.json()["ref"] == name
    for kind in ("branches", "tags"):
        answer = served.client.post(f"/v1/{kind}", json={"name": "main_replica_us"})
        assert (answer.status_code, answer.json()["code"]) == (403, "read_only")
    assert lake.catalog.refs() == before
    assert served.query("select count(*) as n from t", "main_replica_eu").json()["rows"] == [{"n": 1}]
