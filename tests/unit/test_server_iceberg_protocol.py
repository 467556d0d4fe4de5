"""The Iceberg REST protocol, request by request: what is answered, and what is so afterwards."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pyarrow as pa
import pytest

from headwater.catalog.errors import CatalogBusyError
from headwater.catalog.model import TableContent, TableKey
from headwater.kernel.errors import UnavailableError
from headwater.kernel.ids import Ulid
from headwater.lake import Lake
from headwater.publish.errors import DriftError, PublishOutcomeUnknownError, RecoveryPendingError
from headwater.publish.protocol import Publisher
from headwater.server.iceberg.reading import Reading
from tests.fixtures.lakes import LakeWorld
from tests.fixtures.rest import Served, app_of, serving

pytestmark = pytest.mark.proves("server/iceberg")

SCHEMA: dict[str, Any] = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "v", "required": False, "type": "string"},
    ],
}
NS = "/iceberg/v1/main/namespaces"
TABLES = f"{NS}/default/tables"
VIEWS = f"{NS}/default/views"


class Client:
    """Requests with a token, and what came of them."""

    def __init__(self, world: LakeWorld, served: Served, token: str | None = "w") -> None:
        self.world = world
        self.served = served
        self.others: list[Client] = []
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.http = httpx.Client(base_url=served.uri.removesuffix("/iceberg"), headers=headers, timeout=60)

    def other(self, token: str | None) -> Client:
        self.others.append(Client(self.world, self.served, token))
        return self.others[-1]

    def close(self) -> None:
        for each in (self, *self.others):
            each.http.close()

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> Any:
        answer = self.http.request(method, path, json=body, **options)
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def refused(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, str]:
        """The status and type of an error, which has the protocol's shape; nothing was committed."""
        before = self.world.lake.resolve()
        answer = self.http.request(method, path, json=body, **options)
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "code"}
        assert error["code"] == answer.status_code
        assert self.world.lake.resolve() == before
        return answer.status_code, error["type"]

    def create(self, name: str = "t", **more: Any) -> Any:
        return self.ask("POST", TABLES, {"name": name, "schema": SCHEMA, **more})

    def commit(self, name: str, *updates: dict[str, Any], requirements: tuple[dict[str, Any], ...] = ()) -> Any:
        return self.ask("POST", f"{TABLES}/{name}", {"requirements": requirements, "updates": updates})

    def commits(self) -> int:
        return len(list(self.world.lake.catalog.log(self.world.lake.resolve())))


@pytest.fixture
def client(lake: LakeWorld) -> Iterator[Client]:
    with serving(app_of(lake.lake)) as served:
        found = Client(lake, served)
        yield found
        found.close()


def set_properties(**values: str) -> dict[str, Any]:
    return {"action": "set-properties", "updates": {key.replace("_", "."): value for key, value in values.items()}}


# The beginning


def test_config_leads_to_a_branch(client: Client) -> None:
    client.world.lake.create_branch("a/b")
    found = client.ask("GET", "/iceberg/v1/config", params={"warehouse": "a/b"})
    assert found["overrides"] == {"prefix": "a~b"}
    assert client.ask("GET", "/iceberg/v1/config")["overrides"] == {"prefix": "main"}
    assert client.ask("GET", "/iceberg/v1/a~b/namespaces")["namespaces"] == [["default"]]
    assert client.refused("GET", "/iceberg/v1/config?warehouse=nowhere") == (404, "NoSuchWarehouseException")
    assert client.refused("GET", "/iceberg/v1/nowhere/namespaces") == (404, "NotFoundException")


def test_config_tells_every_route(client: Client) -> None:
    told = set(client.ask("GET", "/iceberg/v1/config")["endpoints"])
    one, many = "/v1/{prefix}/namespaces/{namespace}", "/v1/{prefix}/namespaces"
    assert told == {
        *(f"{method} {many}" for method in ("GET", "POST")),
        *(f"{method} {one}" for method in ("GET", "HEAD", "DELETE")),
        f"POST {one}/properties",
        *(f"{method} {one}/tables" for method in ("GET", "POST")),
        *(f"{method} {one}/tables/{{table}}" for method in ("GET", "HEAD", "POST", "DELETE")),
        f"GET {one}/tables/{{table}}/credentials",
        f"POST {one}/tables/{{table}}/metrics",
        f"POST {one}/tables/{{table}}/unregister",
        f"POST {one}/register",
        f"POST {one}/register-view",
        "POST /v1/{prefix}/tables/rename",
        "POST /v1/{prefix}/transactions/commit",
        *(f"{method} {one}/views" for method in ("GET", "POST")),
        *(f"{method} {one}/views/{{view}}" for method in ("GET", "HEAD", "POST", "DELETE")),
        "POST /v1/{prefix}/views/rename",
    }


def test_the_secret_is_the_token(client: Client) -> None:
    def asked(**fields: str) -> Any:
        return client.http.post("/iceberg/v1/oauth/tokens", data=fields)

    answer = asked(grant_type="client_credentials", client_id="any", client_secret="w", scope="catalog")
    assert answer.json()["access_token"] == "w"
    assert answer.json()["token_type"] == "bearer"
    assert asked(grant_type="client_credentials", client_secret="no").json()["error"] == "invalid_client"
    assert asked(grant_type="password").status_code == 400
    broken = client.http.post("/iceberg/v1/oauth/tokens", content=b"\xff\xfe")
    assert (broken.status_code, broken.json()["error"]) == (400, "invalid_request")
    exchange = "urn:ietf:params:oauth:grant-type:token-exchange"
    kind = "urn:ietf:params:oauth:token-type:access_token"
    refreshed = asked(grant_type=exchange, subject_token="w", subject_token_type=kind)
    assert refreshed.json()["issued_token_type"] == kind
    assert asked(grant_type=exchange, subject_token="no", subject_token_type=kind).status_code == 401
    by_header = client.http.post(
        "/iceberg/v1/oauth/tokens", data={"grant_type": "client_credentials"}, auth=httpx.BasicAuth("any", "w")
    )
    assert by_header.json()["access_token"] == "w"


WRITES: list[tuple[str, str, Any]] = [
    ("POST", NS, {"namespace": ["n"]}),
    ("DELETE", f"{NS}/default", None),
    ("POST", f"{NS}/default/properties", {"updates": {"a": "b"}}),
    ("POST", TABLES, {"name": "u", "schema": SCHEMA}),
    ("POST", TABLES, {"name": "u", "schema": SCHEMA, "stage-create": True}),
    ("POST", f"{TABLES}/t", {"updates": [set_properties(a="b")]}),
    ("DELETE", f"{TABLES}/t", None),
    ("POST", f"{TABLES}/t/unregister", None),
    ("POST", f"{NS}/default/register", {"name": "u", "metadata-location": "file:///x"}),
    ("POST", f"{NS}/default/register-view", {"name": "u", "metadata-location": "file:///x"}),
    (
        "POST",
        "/iceberg/v1/main/tables/rename",
        {"source": {"namespace": ["default"], "name": "t"}, "destination": {"namespace": ["default"], "name": "u"}},
    ),
    (
        "POST",
        "/iceberg/v1/main/transactions/commit",
        {
            "table-changes": [
                {"identifier": {"namespace": ["default"], "name": "t"}, "updates": [set_properties(a="b")]}
            ]
        },
    ),
    (
        "POST",
        VIEWS,
        {
            "name": "x",
            "schema": SCHEMA,
            "view-version": {
                "version-id": 1,
                "schema-id": 0,
                "timestamp-ms": 1,
                "summary": {},
                "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
                "default-namespace": ["default"],
            },
        },
    ),
    ("POST", f"{VIEWS}/x", {"updates": []}),
    ("DELETE", f"{VIEWS}/x", None),
    (
        "POST",
        "/iceberg/v1/main/views/rename",
        {"source": {"namespace": ["default"], "name": "x"}, "destination": {"namespace": ["default"], "name": "y"}},
    ),
]


def test_writing_needs_a_writer(client: Client) -> None:
    client.create()
    reader, nobody = client.other("r"), client.other(None)
    for method, path, body in WRITES:
        assert reader.refused(method, path, body) == (403, "ForbiddenException")
        assert nobody.refused(method, path, body) == (401, "NotAuthorizedException")
        if method == "POST":
            assert nobody.http.post(path, content=b"{").status_code == 401
    for path in (NS, TABLES, VIEWS, f"{TABLES}/t", f"{NS}/default", "/iceberg/v1/config"):
        assert reader.http.get(path).status_code == 200
        assert nobody.refused("GET", path) == (401, "NotAuthorizedException")


def test_replicas_and_tags_are_not_written(client: Client) -> None:
    client.create()
    client.world.lake.create_branch("main_replica_eu")
    client.world.lake.create_tag("done")
    for name in ("main_replica_eu", "done"):
        for method, path, body in WRITES:
            elsewhere = path.replace("/main/", f"/{name}/")
            assert client.refused(method, elsewhere, body) == (403, "ForbiddenException")
        assert client.ask("GET", f"/iceberg/v1/{name}/namespaces/default/tables/t")["metadata"]["format-version"] == 2


def test_everything_else_is_answered_in_the_same_shape(client: Client) -> None:
    assert client.refused("GET", "/iceberg/v1/main/nothing") == (404, "NotFoundException")
    assert client.refused("GET", f"{TABLES}/nothing") == (404, "NoSuchTableException")
    assert client.refused("GET", f"{NS}/nothing/tables") == (404, "NoSuchNamespaceException")
    assert client.refused("GET", f"{VIEWS}/nothing") == (404, "NoSuchViewException")
    assert client.refused("GET", f"{TABLES}?pageSize=x") == (400, "BadRequestException")
    assert client.refused("GET", f"{TABLES}?pageToken=x") == (400, "BadRequestException")
    assert client.refused("GET", f"{NS}/a%00b") == (400, "BadRequestException")
    assert client.http.head(f"{TABLES}/nothing").status_code == 404


def test_a_body_that_makes_no_sense_is_refused(client: Client) -> None:
    client.create()
    bodies = (b"", b"{", b"[]", b"null", b'{"name": 3}', b"\xff", b'{"updates": [{"action": "x"}]}', b"[" * 100_000)
    for path in (TABLES, f"{TABLES}/t", NS, VIEWS, "/iceberg/v1/main/transactions/commit", f"{NS}/default/register"):
        for body in bodies:
            answer = client.http.post(path, content=body)
            if path == f"{TABLES}/t" and body == b'{"name": 3}':
                assert answer.status_code == 200  # a change without updates, and with a field that nobody knows
            else:
                assert (answer.status_code, answer.json()["error"]["type"]) == (400, "BadRequestException")


# Namespaces


def test_namespaces_are_made_changed_and_dropped(client: Client) -> None:
    client.ask("POST", NS, {"namespace": ["a"], "properties": {"x": "1", "y": "2"}})
    client.ask("POST", NS, {"namespace": ["a", "b"]})
    assert client.refused("POST", NS, {"namespace": ["a"]}) == (409, "AlreadyExistsException")
    assert client.refused("POST", NS, {"namespace": ["no", "b"]}) == (404, "NoSuchNamespaceException")
    assert client.ask("GET", f"{NS}?parent=a")["namespaces"] == [["a", "b"]]
    assert client.ask("GET", f"{NS}/a%1Fb") == {"namespace": ["a", "b"], "properties": {}}
    changed = client.ask("POST", f"{NS}/a/properties", {"removals": ["x", "q"], "updates": {"z": "3"}})
    assert changed == {"updated": ["z"], "removed": ["x"], "missing": ["q"]}
    assert client.ask("GET", f"{NS}/a")["properties"] == {"y": "2", "z": "3"}
    both = {"removals": ["z"], "updates": {"z": "3"}}
    assert client.refused("POST", f"{NS}/a/properties", both) == (422, "UnprocessableEntityException")
    assert client.refused("DELETE", f"{NS}/a") == (409, "NamespaceNotEmptyException")
    client.ask("DELETE", f"{NS}/a%1Fb")
    client.ask("DELETE", f"{NS}/a")
    assert client.refused("DELETE", f"{NS}/a") == (404, "NoSuchNamespaceException")


# Tables


def test_a_table_is_loaded_once(client: Client) -> None:
    client.create()
    answer = client.http.get(f"{TABLES}/t")
    tag = answer.headers["ETag"]
    assert client.http.get(f"{TABLES}/t", headers={"If-None-Match": tag}).status_code == 304
    assert client.http.get(f"{TABLES}/t", headers={"If-None-Match": f'"x", W/{tag}'}).status_code == 304
    assert client.http.get(f"{TABLES}/t?snapshots=refs", headers={"If-None-Match": tag}).status_code == 200
    client.commit("t", set_properties(a="b"))
    assert client.http.get(f"{TABLES}/t", headers={"If-None-Match": tag}).status_code == 200
    assert client.refused("GET", f"{TABLES}/t?snapshots=some") == (400, "BadRequestException")


def test_snapshots_that_no_ref_leads_to_are_left_out(client: Client) -> None:
    rows = pa.table({"id": [1], "v": ["a"]})
    client.create()
    for _ in range(3):
        client.world.lake.load("t", rows, actor="ann")
    everything = client.ask("GET", f"{TABLES}/t")["metadata"]
    few = client.ask("GET", f"{TABLES}/t?snapshots=refs")["metadata"]
    assert len(everything["snapshots"]) == 3
    assert [each["snapshot-id"] for each in few["snapshots"]] == [everything["current-snapshot-id"]]


def test_lists_come_in_pages(client: Client) -> None:
    for name in ("a", "b", "c", "d", "e"):
        client.create(name)
    seen: list[str] = []
    token: Any = ""
    while token is not None:
        found = client.ask("GET", TABLES, params={"pageSize": 2, "pageToken": token})
        seen += [each["name"] for each in found["identifiers"]]
        token = found["next-page-token"]
        if seen == ["a", "b"]:
            client.ask("DELETE", f"{TABLES}/a")  # what comes and goes makes nobody miss another
    assert seen == ["a", "b", "c", "d", "e"]
    assert client.refused("GET", f"{TABLES}?pageSize=0") == (400, "BadRequestException")


def test_what_cannot_be_made_is_refused(client: Client) -> None:
    client.create()
    assert client.refused("POST", TABLES, {"name": "t", "schema": SCHEMA}) == (409, "AlreadyExistsException")
    assert client.refused("POST", TABLES, {"name": "T", "schema": SCHEMA}) == (409, "AlreadyExistsException")
    missing = f"{NS}/no/tables"
    assert client.refused("POST", missing, {"name": "u", "schema": SCHEMA}) == (404, "NoSuchNamespaceException")
    placed = {"name": "u", "schema": SCHEMA, "location": "file:///etc"}
    assert client.refused("POST", TABLES, placed) == (400, "BadRequestException")
    for properties in ({"gc.enabled": "true"}, {"headwater.incarnation": "x"}, {"format-version": "x"}):
        body = {"name": "u", "schema": SCHEMA, "properties": properties}
        assert client.refused("POST", TABLES, body) == (400, "BadRequestException")
    newer = {"name": "u", "schema": SCHEMA, "properties": {"format-version": "4"}}
    assert client.refused("POST", TABLES, newer) == (406, "UnsupportedOperationException")


def test_a_table_keeps_what_is_the_lakes(client: Client) -> None:
    made = client.create()["metadata"]
    own = {key: value for key, value in made["properties"].items() if key.startswith("headwater.")}
    assert own
    for update in (
        set_properties(gc_enabled="true"),
        {"action": "remove-properties", "removals": ["gc.enabled"]},
        {"action": "remove-properties", "removals": ["headwater.incarnation"]},
        set_properties(headwater_incarnation="01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        set_properties(headwater_constraints="[]"),
        {"action": "set-location", "location": "file:///elsewhere"},
        {"action": "assign-uuid", "uuid": str(uuid.uuid4())},
        {"action": "upgrade-format-version", "format-version": 1},
        {"action": "set-current-schema", "schema-id": 7},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "set-default-spec", "spec-id": 7},
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 1},
        {"action": "remove-schemas", "schema-ids": [0]},
        {"action": "remove-partition-specs", "spec-ids": [0]},
        {"action": "add-encryption-key", "encryption-key": {"key-id": "k", "encrypted-key-metadata": "eA=="}},
        {"action": "remove-encryption-key", "key-id": "k"},
        {"action": "enable-row-lineage"},
    ):
        assert client.refused("POST", f"{TABLES}/t", {"updates": [update]}) == (400, "BadRequestException"), update
    # What is only said again changes nothing, and is no commit.
    before = client.commits()
    client.commit("t", {"action": "set-properties", "updates": own})
    client.commit("t", {"action": "assign-uuid", "uuid": made["table-uuid"]})
    client.commit("t", {"action": "set-location", "location": made["location"] + "/"})
    client.commit("t", {"action": "remove-properties", "removals": ["not-there"]})
    client.commit("t", {"action": "remove-snapshots", "snapshot-ids": [1]})
    client.commit("t", {"action": "remove-snapshot-ref", "ref-name": "not-there"})
    client.commit("t", {"action": "remove-statistics", "snapshot-id": 1})
    client.commit("t", {"action": "remove-partition-statistics", "snapshot-id": 1})
    client.commit("t", {"action": "remove-schemas", "schema-ids": [7]})
    client.commit("t", {"action": "remove-partition-specs", "spec-ids": [7]})
    assert client.commits() == before


def test_schemas_specs_and_orders_are_found_again(client: Client) -> None:
    client.create()
    wider = {
        **SCHEMA,
        "schema-id": 0,
        "fields": [*SCHEMA["fields"], {"id": 3, "name": "w", "required": False, "type": "int"}],
    }
    spec = {"spec-id": 0, "fields": [{"source-id": 1, "field-id": 1000, "transform": "bucket[4]", "name": "b"}]}
    order = {
        "order-id": 1,
        "fields": [{"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}],
    }
    for _ in range(2):
        made = client.commit(
            "t",
            {"action": "add-schema", "schema": wider, "last-column-id": 3},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": spec},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": order},
            {"action": "set-default-sort-order", "sort-order-id": -1},
        )["metadata"]
    assert [each["schema-id"] for each in made["schemas"]] == [0, 1]
    assert (made["current-schema-id"], made["last-column-id"]) == (1, 3)
    assert [each["spec-id"] for each in made["partition-specs"]] == [0, 1]
    assert (made["default-spec-id"], made["last-partition-id"]) == (1, 1000)
    assert [each["order-id"] for each in made["sort-orders"]] == [0, 1]
    assert made["default-sort-order-id"] == 1
    back = client.commit("t", {"action": "set-current-schema", "schema-id": 0})["metadata"]
    assert back["current-schema-id"] == 0
    assert client.commit("t", {"action": "upgrade-format-version", "format-version": 3})["metadata"]["next-row-id"] == 0


UNMET = [
    {"type": "assert-table-uuid", "uuid": "00000000-0000-0000-0000-000000000000"},
    {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1},
    {"type": "assert-ref-snapshot-id", "ref": "other", "snapshot-id": 1},
    {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 9},
    {"type": "assert-current-schema-id", "current-schema-id": 9},
    {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 9},
    {"type": "assert-default-spec-id", "default-spec-id": 9},
    {"type": "assert-default-sort-order-id", "default-sort-order-id": 9},
]


def test_what_a_change_rests_on_is_judged(client: Client) -> None:
    made = client.create()["metadata"]
    for requirement in UNMET:
        body = {"requirements": [requirement], "updates": [set_properties(a="b")]}
        assert client.refused("POST", f"{TABLES}/t", body) == (409, "CommitFailedException")
    unknown = {"requirements": [{"type": "assert-sunshine"}], "updates": [set_properties(a="b")]}
    assert client.refused("POST", f"{TABLES}/t", unknown) == (400, "BadRequestException")
    good = [
        {"type": "assert-table-uuid", "uuid": made["table-uuid"]},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
        {"type": "assert-ref-snapshot-id", "ref": "other", "snapshot-id": None},
        {"type": "assert-ref-snapshot-id", "ref": "other"},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2},
        {"type": "assert-current-schema-id", "current-schema-id": 0},
        {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 999},
        {"type": "assert-default-spec-id", "default-spec-id": 0},
        {"type": "assert-default-sort-order-id", "default-sort-order-id": 0},
    ]
    assert client.commit("t", set_properties(a="b"), requirements=tuple(good))["metadata"]["properties"]["a"] == "b"


def test_a_table_that_must_not_be_there_is(client: Client) -> None:
    client.create()
    body = {"requirements": [{"type": "assert-create"}], "updates": []}
    assert client.refused("POST", f"{TABLES}/t", body) == (409, "AlreadyExistsException")
    assert client.refused("POST", f"{TABLES}/no", {"updates": []}) == (404, "NoSuchTableException")


def staged_updates(metadata: dict[str, Any], **other: Any) -> list[dict[str, Any]]:
    """What clients send to make a table whose creation was staged."""
    return [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": metadata["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": metadata["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": other.get("location", metadata["location"])},
        {"action": "set-properties", "updates": {**metadata["properties"], **other.get("properties", {})}},
    ]


def test_a_staged_table_takes_no_place_of_another(client: Client) -> None:
    taken = client.create()["metadata"]["location"]
    staged = client.create("u", **{"stage-create": True})
    assert staged["metadata-location"] is None
    assert client.refused("GET", f"{TABLES}/u") == (404, "NoSuchTableException")

    def asked(**other: Any) -> dict[str, Any]:
        updates = staged_updates(staged["metadata"], **other)
        return {"requirements": [{"type": "assert-create"}], "updates": updates}

    lake = client.world.lake.location
    assert client.refused("POST", f"{TABLES}/u", asked(location=taken)) == (409, "CommitFailedException")
    wrong = "x-01ARZ3NDEKTSV4RRFFQ69G5FAV"
    for place in ("file:///etc/x", lake, f"{lake}/tables/default/u", f"{lake}/tables/../{wrong}", f"{lake}/{wrong}"):
        assert client.refused("POST", f"{TABLES}/u", asked(location=place)) == (400, "BadRequestException")
    for properties in ({"gc.enabled": "true"}, {"headwater.constraints": "[]"}):
        assert client.refused("POST", f"{TABLES}/u", asked(properties=properties)) == (400, "BadRequestException")
    assert client.refused("POST", f"{NS}/no/tables/u", asked()) == (404, "NoSuchNamespaceException")
    made = client.ask("POST", f"{TABLES}/u", asked())["metadata"]
    assert (made["table-uuid"], made["location"]) == (staged["metadata"]["table-uuid"], staged["metadata"]["location"])
    assert made["properties"]["gc.enabled"] == "false"
    # The very same is recognised by its uuid; what asks for more, or for another table of that name, has lost.
    assert client.ask("POST", f"{TABLES}/u", asked())["metadata"] == made
    more = asked()
    more["updates"].append(set_properties(a="b"))
    assert client.refused("POST", f"{TABLES}/u", more) == (409, "AlreadyExistsException")
    staged = client.create("w", **{"stage-create": True})
    assert client.refused("POST", f"{TABLES}/u", asked()) == (409, "AlreadyExistsException")
    client.world.lake.load("u", pa.table({"id": [1], "v": ["a"]}), actor="ann")
    assert client.world.lake.query("SELECT * FROM u").num_rows == 1


def test_several_tables_change_together(client: Client) -> None:
    for name in ("a", "b"):
        client.create(name)
    before = client.commits()

    def changes(**requirements: Any) -> dict[str, Any]:
        return {
            "table-changes": [
                {
                    "identifier": {"namespace": ["default"], "name": name},
                    "requirements": requirements.get(name, []),
                    "updates": [set_properties(x=name)],
                }
                for name in ("a", "b")
            ]
        }

    path = "/iceberg/v1/main/transactions/commit"
    bad = [{"type": "assert-current-schema-id", "current-schema-id": 9}]
    assert client.refused("POST", path, changes(b=bad)) == (409, "CommitFailedException")
    client.ask("POST", path, changes())
    assert client.commits() == before + 1
    assert client.ask("GET", f"{TABLES}/a")["metadata"]["properties"]["x"] == "a"
    twice = {"table-changes": changes()["table-changes"] * 2}
    assert client.refused("POST", path, twice) == (400, "BadRequestException")
    assert client.refused("POST", path, {"table-changes": [{"updates": []}]}) == (400, "BadRequestException")
    assert client.refused("POST", path, {"table-changes": []}) == (400, "BadRequestException")


def test_a_table_is_made_together_with_a_change_or_not_at_all(client: Client) -> None:
    client.create("a")
    staged = client.create("u", **{"stage-create": True})["metadata"]

    def changes(name: str) -> dict[str, Any]:
        made = {"requirements": [{"type": "assert-create"}], "updates": staged_updates(staged)}
        return {
            "table-changes": [
                {"identifier": {"namespace": ["default"], "name": "u"}, **made},
                {"identifier": {"namespace": ["default"], "name": name}, "updates": [set_properties(x="y")]},
            ]
        }

    path = "/iceberg/v1/main/transactions/commit"
    assert client.refused("POST", path, changes("no")) == (404, "NoSuchTableException")
    assert client.refused("GET", f"{TABLES}/u") == (404, "NoSuchTableException")
    before = client.commits()
    client.ask("POST", path, changes("a"))
    assert client.commits() == before + 1
    assert client.ask("GET", f"{TABLES}/u")["metadata"]["table-uuid"] == staged["table-uuid"]


def test_a_table_of_the_first_format_lives_on(client: Client) -> None:
    """It is registered, changed, written to by an engine that does not know others, and raised to the next format."""
    made = client.create("model")["metadata"]
    folder = f"{client.world.lake.location}/old"
    first = {
        "format-version": 1,
        "table-uuid": str(uuid.uuid4()),
        "location": folder,
        "last-updated-ms": 1,
        "last-column-id": 2,
        "schema": SCHEMA,
        "schemas": [SCHEMA],
        "current-schema-id": 0,
        "partition-spec": [],
        "partition-specs": made["partition-specs"],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "properties": {},
        "snapshots": [],
    }
    place = Path(folder.removeprefix("file://"))
    place.mkdir()
    (place / "v1.metadata.json").write_text(json.dumps(first))
    body = {"name": "t", "metadata-location": f"{folder}/v1.metadata.json"}
    assert client.ask("POST", f"{NS}/default/register", body)["metadata"]["format-version"] == 1
    changed = client.commit("t", set_properties(a="b"))["metadata"]
    assert (changed["format-version"], changed["properties"]["a"]) == (1, "b")
    client.served.catalog().load_table("default.t").append(pa.table({"id": [1], "v": ["a"]}))
    assert client.world.lake.query("SELECT id FROM t")["id"].to_pylist() == [1]
    for version in (2, 3):
        raised = client.commit("t", {"action": "upgrade-format-version", "format-version": version})["metadata"]
        assert raised["format-version"] == version
        assert client.world.lake.query("SELECT id FROM t")["id"].to_pylist() == [1]


def test_a_purge_is_not_obeyed(client: Client) -> None:
    client.create()
    client.world.lake.load("t", pa.table({"id": [1], "v": ["a"]}), actor="ann")
    at = client.world.lake.resolve()
    client.ask("DELETE", f"{TABLES}/t", params={"purgeRequested": "true"})
    assert client.refused("DELETE", f"{TABLES}/t") == (404, "NoSuchTableException")
    assert client.world.lake.query("SELECT * FROM t", at=at).num_rows == 1


def test_a_table_is_renamed(client: Client) -> None:
    client.create()
    client.create("u")

    def asked(source: str, namespace: str, name: str) -> dict[str, Any]:
        return {
            "source": {"namespace": ["default"], "name": source},
            "destination": {"namespace": [namespace], "name": name},
        }

    path = "/iceberg/v1/main/tables/rename"
    assert client.refused("POST", path, asked("t", "default", "u")) == (409, "AlreadyExistsException")
    assert client.refused("POST", path, asked("t", "default", "U")) == (409, "AlreadyExistsException")
    assert client.refused("POST", path, asked("t", "no", "x")) == (404, "NoSuchNamespaceException")
    assert client.refused("POST", path, asked("no", "default", "x")) == (404, "NoSuchTableException")
    client.ask("POST", path, asked("t", "default", "x"))
    assert [each["name"] for each in client.ask("GET", TABLES)["identifiers"]] == ["u", "x"]


def test_metrics_are_taken(client: Client) -> None:
    client.create()
    assert client.http.post(f"{TABLES}/t/metrics", json={"report-type": "scan-report"}).status_code == 204
    assert client.ask("GET", f"{TABLES}/t/credentials") == {"storage-credentials": []}


def test_settings_of_storage_travel_with_tables(lake: LakeWorld) -> None:
    """What opens the store goes to those who may write, and to nobody else."""
    shown = {"s3.endpoint": "http://x"}
    hidden = {"s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.session-token": "c", "adls.sas-token.z": "d"}
    with serving(app_of(lake.lake, config={**shown, **hidden})) as served:
        client = Client(lake, served)
        whole = {**shown, **hidden}
        assert client.create()["config"] == whole
        client.ask("POST", VIEWS, next(body for _, path, body in WRITES if path == VIEWS))
        for token, expected in (("w", whole), ("r", shown)):
            other = client.other(token)
            assert other.ask("GET", "/iceberg/v1/config")["defaults"] == expected
            assert other.ask("GET", f"{TABLES}/t")["config"] == expected
            assert other.ask("GET", f"{VIEWS}/x")["config"] == shown
        tags = {token: client.other(token).http.get(f"{TABLES}/t").headers["ETag"] for token in ("w", "r")}
        assert tags["w"] != tags["r"]
        client.close()


# Registering


def test_a_table_that_was_dropped_is_registered_again(client: Client) -> None:
    client.create()
    client.world.lake.load("t", pa.table({"id": [1, 2], "v": ["a", "b"]}), actor="ann")
    place = client.ask("GET", f"{TABLES}/t")["metadata-location"]
    client.ask("DELETE", f"{TABLES}/t")
    body = {"name": "back", "metadata-location": place}
    made = client.ask("POST", f"{NS}/default/register", body)["metadata"]
    assert made["properties"]["gc.enabled"] == "false"
    client.world.lake.load("back", pa.table({"id": [3], "v": ["c"]}), actor="ann")
    assert client.world.lake.query("SELECT id FROM back ORDER BY id")["id"].to_pylist() == [1, 2, 3]
    assert client.refused("POST", f"{NS}/default/register", body) == (409, "AlreadyExistsException")
    client.ask("POST", f"{NS}/default/register", {**body, "overwrite": True})
    assert client.world.lake.query("SELECT id FROM back ORDER BY id")["id"].to_pylist() == [1, 2]


def test_a_table_that_is_unregistered_is_told_and_may_come_back(client: Client) -> None:
    client.create()
    client.world.lake.load("t", pa.table({"id": [1], "v": ["a"]}), actor="ann")
    loaded = client.ask("GET", f"{TABLES}/t")
    told = client.ask("POST", f"{TABLES}/t/unregister")
    assert (told["metadata-location"], told["metadata"]) == (loaded["metadata-location"], loaded["metadata"])
    assert client.refused("POST", f"{TABLES}/t/unregister") == (404, "NoSuchTableException")
    client.ask("POST", f"{NS}/default/register", {"name": "t", "metadata-location": told["metadata-location"]})
    assert client.world.lake.query("SELECT id FROM t")["id"].to_pylist() == [1]


def test_a_view_is_registered(client: Client) -> None:
    client.create()
    client.ask("POST", VIEWS, next(body for _, path, body in WRITES if path == VIEWS))
    place = client.ask("GET", f"{VIEWS}/x")["metadata-location"]
    body = {"name": "y", "metadata-location": place}
    made = client.ask("POST", f"{NS}/default/register-view", body)["metadata"]
    assert made["location"] not in place
    assert client.refused("POST", f"{NS}/default/register-view", body) == (409, "AlreadyExistsException")
    body["name"] = "z"
    for wrong in (f"{place}.not", "file:///etc/passwd", client.ask("GET", f"{TABLES}/t")["metadata-location"]):
        refused = client.refused("POST", f"{NS}/default/register-view", {**body, "metadata-location": wrong})
        assert refused[0] in (400, 406), wrong


def test_a_table_whose_past_cannot_be_read_is_not_registered(client: Client) -> None:
    """It would be in the way of whoever looks for files that nothing needs."""
    client.create()
    for number in (1, 2):
        client.world.lake.load("t", pa.table({"id": [number], "v": ["a"]}), actor="ann")
    loaded = client.ask("GET", f"{TABLES}/t")
    old = loaded["metadata"]["snapshots"][0]["manifest-list"]
    Path(old.removeprefix("file://")).unlink()
    body = {"name": "u", "metadata-location": loaded["metadata-location"]}
    assert client.refused("POST", f"{NS}/default/register", body) == (400, "BadRequestException")


def test_what_cannot_be_read_is_not_registered(client: Client, tmp_path: Path) -> None:
    outside = tmp_path / "x.metadata.json"
    outside.write_text("{}")
    inside = client.world.lake.location.removeprefix("file://") + "/x.metadata.json"
    Path(inside).write_text("{}")
    for place in (outside.as_uri(), f"file://{inside}", f"file://{inside}.not"):
        body = {"name": "t", "metadata-location": place}
        assert client.refused("POST", f"{NS}/default/register", body) == (400, "BadRequestException")


# What clients do about an answer (P5)


OPERATION = Ulid("01ARZ3NDEKTSV4RRFFQ69G5FAV")
UNKNOWN = PublishOutcomeUnknownError(OPERATION, "lost")
PENDING = RecoveryPendingError(TableKey.parse("t"), OPERATION, "soon")


ERRORS = [
    (UNKNOWN, 500, "CommitStateUnknownException"),
    (RuntimeError("what nobody foresaw"), 500, "InternalServerError"),
    (PENDING, 503, "RecoveryPendingException"),
    (CatalogBusyError("lake"), 503, "ServiceUnavailableException"),
    (DriftError(TableKey.parse("t"), 1, 2), 503, "ServiceUnavailableException"),
    (UnavailableError("no answer"), 503, "ServiceUnavailableException"),
]


def test_only_what_is_proven_absent_is_said_to_be(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.create()
    for error, status, kind in ERRORS:

        def fails(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(Publisher, "publish", fails)
        assert client.refused("POST", f"{TABLES}/t", {"updates": [set_properties(a="b")]}) == (status, kind)


def _writes_that_would_land(client: Client) -> Iterator[tuple[str, str, Any]]:
    """Every route that writes, with what it would take: after `t`, the view `x` and the namespace `n` were made."""
    client.create()
    client.ask("POST", VIEWS, next(body for _, path, body in WRITES if path == VIEWS))
    client.ask("POST", NS, {"namespace": ["n"]})
    places = {path: client.ask("GET", path)["metadata-location"] for path in (f"{TABLES}/t", f"{VIEWS}/x")}
    for method, path, body in WRITES:
        match path.removeprefix(f"{NS}/default"):
            case "" if method == "DELETE":
                yield method, f"{NS}/n", None
            case "/views":
                yield method, path, {**body, "name": "other"}
            case "/views/x" if body is not None:
                yield method, path, {"updates": [set_properties(a="b")]}
            case "/register":
                yield method, path, {**body, "metadata-location": places[f"{TABLES}/t"]}
            case "/register-view":
                yield method, path, {**body, "metadata-location": places[f"{VIEWS}/x"]}
            case _ if "stage-create" not in (body or ()):
                yield method, path, {"namespace": ["m"]} if path == NS else body


def test_p5_every_route_that_writes_tells_what_is_proven(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the publisher says, and when something fails after it has said yes, by whichever route it was asked."""
    lake, publish = client.world.lake, Publisher.publish
    writes = list(_writes_that_would_land(client))
    assert len(writes) == len(WRITES) - 1
    for number, (method, path, body) in enumerate(writes):
        branch = f"b{number}"
        lake.create_branch(branch)
        elsewhere = path.replace("/main/", f"/{branch}/")
        for error, status, kind in ERRORS:

            def fails(*_: object, error: Exception = error) -> None:
                raise error

            monkeypatch.setattr(Publisher, "publish", fails)
            assert client.refused(method, elsewhere, body) == (status, kind), (method, path)

        def lands_and_fails(self: Publisher, wish: Any) -> Any:
            publish(self, wish)
            raise RuntimeError("after the commit")

        monkeypatch.setattr(Publisher, "publish", lands_and_fails)
        before = lake.resolve(branch=branch)
        answer = client.http.request(method, elsewhere, json=body)
        assert (answer.status_code, lake.resolve(branch=branch) != before) == (500, True), (method, path)


def test_a_change_that_was_made_and_cannot_be_shown_is_unknown(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater.server.iceberg.reading import Reading

    client.create()

    def fails(*_: object, **__: object) -> None:
        raise UnavailableError("the store is gone")

    monkeypatch.setattr(Reading, "loaded_table", fails)
    answer = client.http.post(f"{TABLES}/t", json={"updates": [set_properties(a="b")]})
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "CommitStateUnknownException")
    monkeypatch.undo()
    assert client.ask("GET", f"{TABLES}/t")["metadata"]["properties"]["a"] == "b"


def test_who_is_overtaken_drafts_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.create()
    publish, others = Publisher.publish, [1]

    def overtaken(self: Publisher, wish: Any) -> Any:
        if others:
            others.clear()
            client.world.lake.apply("ALTER TABLE t SET TBLPROPERTIES ('b' = 'c')", actor="bob")
        return publish(self, wish)

    monkeypatch.setattr(Publisher, "publish", overtaken)
    found = client.commit("t", set_properties(a="b"))["metadata"]["properties"]
    assert (found["a"], found["b"]) == ("b", "c")


# Views


def version(sql: str, *, number: int = 1, schema: int = 0) -> dict[str, Any]:
    return {
        "version-id": number,
        "schema-id": schema,
        "timestamp-ms": 1,
        "summary": {"engine-name": "test"},
        "representations": [{"type": "sql", "sql": sql, "dialect": "duckdb"}],
        "default-namespace": ["default"],
    }


def test_a_view_lives(client: Client) -> None:
    client.create()
    client.world.lake.load("t", pa.table({"id": [1, 2], "v": ["a", "b"]}), actor="ann")
    body = {"name": "x", "schema": SCHEMA, "view-version": version("SELECT * FROM t"), "properties": {"k": "v"}}
    made = client.ask("POST", VIEWS, body)["metadata"]
    assert client.refused("POST", VIEWS, body) == (409, "AlreadyExistsException")
    assert client.refused("POST", TABLES, {"name": "x", "schema": SCHEMA}) == (409, "AlreadyExistsException")
    assert client.refused("GET", f"{TABLES}/x") == (404, "NoSuchTableException")
    assert [each["name"] for each in client.ask("GET", VIEWS)["identifiers"]] == ["x"]
    assert client.http.head(f"{VIEWS}/x").status_code == 204
    assert client.world.lake.query("SELECT * FROM x").num_rows == 2
    uuid_of = {"type": "assert-view-uuid", "uuid": made["view-uuid"]}
    narrow = {**SCHEMA, "fields": SCHEMA["fields"][:1]}
    updates = [
        {"action": "add-schema", "schema": narrow},
        {"action": "add-view-version", "view-version": version("SELECT id FROM t", number=2, schema=-1)},
        {"action": "set-current-view-version", "view-version-id": -1},
        {"action": "set-properties", "updates": {"a": "b"}},
        {"action": "remove-properties", "removals": ["k"]},
    ]
    changed = client.ask("POST", f"{VIEWS}/x", {"requirements": [uuid_of], "updates": updates})["metadata"]
    assert (changed["current-version-id"], len(changed["versions"])) == (2, 2)
    assert "k" not in changed["properties"]
    assert client.world.lake.query("SELECT * FROM x").column_names == ["id"]
    wrong = {"requirements": [{**uuid_of, "uuid": str(uuid.uuid4())}], "updates": updates}
    assert client.refused("POST", f"{VIEWS}/x", wrong) == (409, "CommitFailedException")
    for bad in (
        {"action": "set-current-view-version", "view-version-id": 9},
        {"action": "set-current-view-version", "view-version-id": -1},
        {"action": "set-location", "location": "file:///x"},
        {"action": "assign-uuid", "uuid": str(uuid.uuid4())},
        {"action": "add-view-version", "view-version": version(" ", schema=0)},
        {"action": "add-view-version", "view-version": version("SELECT 1", schema=9)},
        {"action": "set-properties", "updates": {"headwater.incarnation": "x"}},
    ):
        assert client.refused("POST", f"{VIEWS}/x", {"updates": [bad]}) == (400, "BadRequestException"), bad
    named = {"source": {"namespace": ["default"], "name": "x"}, "destination": {"namespace": ["default"], "name": "y"}}
    client.ask("POST", "/iceberg/v1/main/views/rename", named)
    assert client.refused("POST", "/iceberg/v1/main/views/rename", named) == (404, "NoSuchViewException")
    client.ask("DELETE", f"{VIEWS}/y")
    assert client.refused("DELETE", f"{VIEWS}/y") == (404, "NoSuchViewException")


# What has just been written


def test_the_answer_to_a_change_is_what_is_stored(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told from memory; whoever has none reads the same."""
    client.create()
    read: list[str] = []
    plain = client.world.lake.files.read

    def watched(location: str, **more: Any) -> bytes:
        read.append(location)
        return plain(location, **more)

    monkeypatch.setattr(client.world.lake.files, "read", watched)
    answered = client.commit("t", set_properties(a="b"))
    assert read == []
    assert answered["metadata"]["properties"]["a"] == "b"
    assert client.ask("GET", f"{TABLES}/t") == answered
    monkeypatch.undo()
    with serving(app_of(client.world.app.open_lake(client.world.url))) as served:
        other = Client(client.world, served)
        assert other.ask("GET", f"{TABLES}/t") == answered
        # A change by the other is what the first one shows next, though it remembers its own.
        told = other.commit("t", set_properties(a="c"))
        other.close()
    assert client.ask("GET", f"{TABLES}/t") == told


def test_how_many_requests_to_the_store_a_change_takes(client: Client) -> None:
    """On a store that is far away, this is what a client waits for."""

    def requests() -> Counter[str]:
        found = client.world.app.metrics.registry.collect()
        samples = [each for metric in found if metric.name == "storage_api_calls" for each in metric.samples]
        return Counter({each.labels["op"]: int(each.value) for each in samples if each.name.endswith("_total")})

    client.create()
    client.commit("t", set_properties(a="b"))
    before = requests()
    client.commit("t", set_properties(a="c"))
    after = requests()
    # Three looks at the manifest, two each: to draft, under the queue, to commit. The boundaries of the head and of the
    # manifest. The note, the head, a shard and the commit, the manifest. Who else writes is listed; the note goes in
    # the end.
    assert after - before == {"get": 8, "put": 5, "list": 1, "delete": 1}
    client.ask("GET", f"{TABLES}/t")
    assert requests() - after == {"get": 2}


@pytest.mark.hazard("P5")
def test_p5_a_document_that_does_not_say_so_is_shown_with_files_kept() -> None:
    """Also from memory: clients must not clean up, whatever the document says."""
    content = TableContent("01", "file:///lake/t/metadata/1.metadata.json", None, 0, 0, 0)
    document: dict[str, Any] = {"format-version": 2, "properties": {"a": "b"}}
    lake = SimpleNamespace(
        remembered_document=lambda _: json.dumps(document).encode(),
        metadata_of=lambda _: SimpleNamespace(properties=document["properties"]),
    )
    shown = json.loads(Reading(cast(Lake, lake), {}).loaded_table(content, secrets=True))
    assert shown["metadata"]["properties"] == {"a": "b", "gc.enabled": "false"}
