"""Engines that say what is not so, or ask for what the lake must not do: refused, and nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent, ManifestContent

from tests.fixtures.lakes import LakeWorld
from tests.fixtures.rest import app_of, serving
from tests.fixtures.staging_engine import EXISTING, Engine, line_with, main_at
from tests.unit.test_server_iceberg_protocol import NS, SCHEMA, TABLES, Client, set_properties, staged_updates

pytestmark = pytest.mark.proves("server/iceberg constraints")

BAD = (400, "BadRequestException")
BROKEN = (400, "ValidationException")


@pytest.fixture
def client(lake: LakeWorld) -> Iterator[Client]:
    with serving(app_of(lake.lake)) as served:
        found = Client(lake, served)
        yield found
        found.close()


def columns(*ids: int | None, values: str | None = "x") -> pa.Table:
    """Rows of `t (id, v)` as an engine writes them: columns know the ids of their fields."""
    fields = [
        pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "1"}),
        pa.field("v", pa.string(), metadata={"PARQUET:field_id": "2"}),
    ]
    return pa.table([pa.array(ids, pa.int64()), pa.array([values] * len(ids), pa.string())], schema=pa.schema(fields))


def ids(client: Client, name: str = "t") -> list[int]:
    found: list[int] = client.world.lake.query(f"SELECT id FROM {name} ORDER BY id")["id"].to_pylist()
    return found


def test_p5_what_a_snapshot_says_of_its_files_is_so(client: Client, tmp_path: Path) -> None:
    client.create()
    lake = client.world.lake
    lake.load("t", pa.table({"id": [1], "v": ["a"]}), actor="ann")
    engine = Engine(lake)
    good, elsewhere = engine.file(columns(2)), tmp_path / "out.parquet"
    elsewhere.write_bytes(b"x")
    size = good.file_size_in_bytes
    missing = engine.path("no.parquet")
    refused = [
        engine.updates(engine.file(columns(2), file_size_in_bytes=size + 1)),
        engine.updates(engine.file(columns(2), file_path=missing)),
        engine.updates(engine.file(columns(2), file_path=missing), status=EXISTING),
        engine.updates(engine.file(columns(2), file_path=missing), lie=line_with(added_snapshot_id=1)),
        engine.updates(engine.file(columns(2), file_path=elsewhere.as_uri(), file_size_in_bytes=1)),
        engine.updates(engine.file(columns(2), file_path=f"{lake.location}/tables/../../out.parquet")),
        engine.updates(engine.file(columns(2), file_path=good.file_path.replace("/data/", "/d%61ta/"))),
        engine.updates(engine.file(columns(2), file_path=good.file_path.replace("file://", "s3://"))),
        engine.updates(good, good),
        engine.updates(good, lie=line_with(added_files_count=0, deleted_files_count=1)),
        engine.updates(good, lie=line_with(added_files_count=2)),
        engine.updates(good, lie_of_others=line_with(added_files_count=0, deleted_files_count=1)),
        engine.updates(good, lie=line_with(manifest_path=elsewhere.as_uri())),
        engine.updates(good, lie=line_with(partition_spec_id=7)),
        engine.updates(good, said={"manifest-list": elsewhere.as_uri()}),
    ]
    for updates in refused:
        assert client.refused("POST", f"{TABLES}/t", {"updates": updates}) == BAD, updates
    client.commit("t", *engine.updates(good))
    assert ids(client) == [1, 2]


def test_files_of_another_table_may_be_shared(client: Client) -> None:
    """What is needed is known by its whole name, over all tables: whoever else needs a file, it stays."""
    client.create()
    client.create("u")
    lake = client.world.lake
    shared = Engine(lake, "u").file(columns(5))
    client.commit("u", *Engine(lake, "u").updates(shared))
    client.commit("t", *Engine(lake).updates(shared))
    client.ask("DELETE", f"{TABLES}/u")
    assert ids(client) == [5]


def test_p5_a_change_that_was_committed_has_not_lost(client: Client) -> None:
    """Whoever sends it again has not heard the answer, and would delete its files if it were told that it lost."""
    made = client.create()["metadata"]
    engine = Engine(client.world.lake)
    body = {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": made["table-uuid"]},
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None},
        ],
        "updates": engine.updates(engine.file(columns(1))),
    }
    first = client.ask("POST", f"{TABLES}/t", body)
    commits = client.commits()
    assert client.ask("POST", f"{TABLES}/t", body) == first
    client.create("u")
    beside = {
        "identifier": {"namespace": ["default"], "name": "u"},
        "requirements": [],
        "updates": [set_properties(a="b")],
    }
    several = {"table-changes": [{"identifier": {"namespace": ["default"], "name": "t"}, **body}, beside]}
    # What is asked of the other table was never done: that it was is not told, and that it was not neither.
    unknown = client.refused("POST", "/iceberg/v1/main/transactions/commit", several)
    assert unknown == (500, "CommitStateUnknownException")
    other = Engine(client.world.lake)
    client.commit("t", *other.updates(other.file(columns(2))))
    assert client.ask("POST", f"{TABLES}/t", body)["metadata"]["current-snapshot-id"] != 1
    assert (ids(client), client.commits()) == ([1, 2], commits + 2)
    # The same number is not the same snapshot.
    stolen = [{**body["updates"][0]}, body["updates"][1]]
    stolen[0]["snapshot"] = {**stolen[0]["snapshot"], "manifest-list": "file:///x"}
    assert client.refused("POST", f"{TABLES}/t", {**body, "updates": stolen}) == (409, "CommitFailedException")


def test_a_snapshot_that_was_overtaken_is_made_anew(client: Client) -> None:
    """Two engines wrote to two refs of one table: neither required what the other changed, and the numbers clash."""
    client.create()
    one, other = Engine(client.world.lake), Engine(client.world.lake)
    client.commit("t", *one.updates(one.file(columns(1))))
    late = other.updates(other.file(columns(2)))
    late[1] = {**late[1], "ref-name": "b"}
    assert client.refused("POST", f"{TABLES}/t", {"updates": late}) == (409, "CommitFailedException")
    again = Engine(client.world.lake)
    fresh = again.updates(again.file(columns(2)))
    client.commit("t", fresh[0], {**fresh[1], "ref-name": "b"})
    assert ids(client) == [1]


def test_a_client_may_go_back_or_leave_rows_behind(client: Client) -> None:
    """Whoever requires nothing of what is there decides alone what shall be; the lake's history has the rest."""
    client.create()
    engine = Engine(client.world.lake)
    client.commit("t", *engine.updates(engine.file(columns(1))))
    at = client.world.lake.resolve()
    first = client.world.lake.table("t").metadata.current_snapshot_id
    second = Engine(client.world.lake)
    client.commit("t", *second.updates(second.file(columns(2)), carry=False))
    assert ids(client) == [2]
    assert first is not None
    client.commit("t", main_at(first))
    assert ids(client) == [1]
    client.commit("t", {"action": "remove-snapshot-ref", "ref-name": "main"})
    assert ids(client) == []
    assert client.world.lake.query("SELECT id FROM t", at=at).num_rows == 1


def test_what_files_need_is_not_removed(client: Client) -> None:
    spec = {"spec-id": 1, "fields": [{"source-id": 1, "field-id": 1000, "transform": "bucket[4]", "name": "b"}]}
    client.create()
    engine = Engine(client.world.lake)
    client.commit("t", *engine.updates(engine.file(columns(1))))
    client.commit("t", {"action": "add-spec", "spec": spec}, {"action": "set-default-spec", "spec-id": -1})
    for gone in (
        {"action": "remove-partition-specs", "spec-ids": [0]},
        {"action": "remove-schemas", "schema-ids": [0]},
    ):
        assert client.refused("POST", f"{TABLES}/t", {"updates": [gone]}) == BAD
    client.commit("t", {"action": "set-default-spec", "spec-id": 0})
    found = client.commit("t", {"action": "remove-partition-specs", "spec-ids": [1]})["metadata"]
    assert [each["spec-id"] for each in found["partition-specs"]] == [0]


def test_statistics_are_files_of_the_lake(client: Client, tmp_path: Path) -> None:
    client.create()
    engine = Engine(client.world.lake)
    client.commit("t", *engine.updates(engine.file(columns(1))))
    number = client.world.lake.table("t").metadata.current_snapshot_id
    outside = tmp_path / "x.stats"
    outside.write_bytes(b"12345")
    inside = engine.store(engine.path("x.stats"), b"12345")

    def asked(place: str, size: int = 5) -> list[list[dict[str, Any]]]:
        file: dict[str, Any] = {"snapshot-id": number, "statistics-path": place, "file-size-in-bytes": size}
        whole = {**file, "file-footer-size-in-bytes": 1, "blob-metadata": []}
        return [
            [{"action": "set-statistics", "statistics": whole}],
            [{"action": "set-partition-statistics", "partition-statistics": file}],
        ]

    for place, size in ((outside.as_uri(), 5), (inside, 4), (f"{inside}.not", 5), ("s3://x/y", 5)):
        for updates in asked(place, size):
            assert client.refused("POST", f"{TABLES}/t", {"updates": updates}) == BAD
    for updates in asked(inside):
        client.commit("t", *updates)
    made = client.ask("GET", f"{TABLES}/t")["metadata"]
    assert (len(made["statistics"]), len(made["partition-statistics"])) == (1, 1)


def test_engines_are_not_led_out_of_the_lake(client: Client) -> None:
    place = client.create()["metadata"]["location"]
    for name in ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path"):
        for value in ("file:///elsewhere", f"{place}/../../../..", "s3://other/bucket", "", "relative"):
            update = {"action": "set-properties", "updates": {name: value}}
            assert client.refused("POST", f"{TABLES}/t", {"updates": [update]}) == BAD, (name, value)
            body = {"name": "u", "schema": SCHEMA, "properties": {name: value}}
            assert client.refused("POST", TABLES, body) == BAD
        client.commit("t", {"action": "set-properties", "updates": {name: f"{place}/data"}})
    for value in ("TRUE", "true", "yes", "1", ""):
        assert client.refused("POST", f"{TABLES}/t", {"updates": [set_properties(gc_enabled=value)]}) == BAD


@pytest.mark.parametrize("format_version", [2, 3])
def test_rows_that_are_referred_to_stay(client: Client, format_version: int) -> None:
    """By whatever kind of delete an engine would take them away: position deletes, deletion vectors, equality."""
    lake = client.world.lake
    lake.apply(
        f"CREATE TABLE t (id BIGINT PRIMARY KEY, v STRING) TBLPROPERTIES ('format-version' = '{format_version}');"
        "CREATE TABLE o (id BIGINT PRIMARY KEY, t BIGINT REFERENCES t (id));",
        actor="ann",
    )
    lake.load("t", pa.table({"id": [1, 2], "v": ["a", "b"]}), actor="ann")
    lake.load("o", pa.table({"id": [1], "t": [1]}), actor="ann")
    # On a branch where nothing refers to it, the lake itself takes a row away: by deletes of its table's format.
    for number in (1, 2):
        lake.create_branch(f"work{number}")
        with lake.transaction(branch=f"work{number}", actor="ann", message="x") as transaction:
            transaction.sql("DELETE FROM o")
            transaction.sql(f"DELETE FROM t WHERE id = {number}")
    for number in (1, 2):
        snapshot = lake.table("t", branch=f"work{number}").metadata.current_snapshot()
        assert snapshot is not None
        updates = [
            {"action": "add-snapshot", "snapshot": snapshot.model_dump(mode="json")},
            main_at(snapshot.snapshot_id),
        ]
        if number == 1:
            assert client.refused("POST", f"{TABLES}/t", {"updates": updates}) == BROKEN
        else:
            client.commit("t", *updates)
    assert ids(client) == [1]
    engine = Engine(lake)
    key = columns(1).select(["id"])
    equality: dict[str, Any] = {"content": DataFileContent.EQUALITY_DELETES, "equality_ids": [1]}
    more: dict[str, Any] = {} if format_version == 2 else {"first-row-id": engine.metadata.next_row_id, "added-rows": 0}
    updates = engine.updates(engine.file(key, **equality), content=ManifestContent.DELETES, said=more)
    assert client.refused("POST", f"{TABLES}/t", {"updates": updates}) == BROKEN
    # All of it at once, by a snapshot that has nothing, or by none.
    gone = engine.updates(carry=False, said=more)
    assert client.refused("POST", f"{TABLES}/t", {"updates": gone}) == BROKEN
    bare = [{"action": "remove-snapshot-ref", "ref-name": "main"}]
    assert client.refused("POST", f"{TABLES}/t", {"updates": bare}) == BROKEN


def test_a_key_is_not_broken_by_the_same_file_twice(client: Client) -> None:
    lake = client.world.lake
    lake.apply("CREATE TABLE t (id BIGINT PRIMARY KEY, v STRING)", actor="ann")
    engine = Engine(lake)
    row_ids: dict[str, Any] = {"first-row-id": 0, "added-rows": 1} if engine.metadata.format_version == 3 else {}
    once = engine.file(columns(1))
    client.commit("t", *engine.updates(once, said=row_ids))
    again = Engine(lake)
    if row_ids:
        row_ids = {"first-row-id": 1, "added-rows": 1}
    assert client.refused("POST", f"{TABLES}/t", {"updates": again.updates(once, said=row_ids)}) == BROKEN
    nulls = again.updates(again.file(columns(None)), lie=line_with(added_snapshot_id=1), said=row_ids)
    assert client.refused("POST", f"{TABLES}/t", {"updates": nulls}) == BROKEN
    damaged = again.file(columns(9), file_path=again.store(again.path("x.parquet"), b"PAR1"), file_size_in_bytes=4)
    assert client.refused("POST", f"{TABLES}/t", {"updates": again.updates(damaged, said=row_ids)}) == BAD


def test_names_travel_as_clients_write_them(client: Client) -> None:
    """Java writes a space as a plus, and everybody a slash as %2F."""
    client.ask("POST", NS, {"namespace": ["a b"]})
    client.create("x y")
    assert client.http.head(f"{TABLES}/x+y").status_code == 204
    assert client.http.head(f"{TABLES}/x%20y").status_code == 204
    assert client.http.head(f"{TABLES}/x%2By").status_code == 404
    assert client.ask("GET", f"{NS}/a+b")["namespace"] == ["a b"]
    assert client.refused("GET", f"{TABLES}/x%2Fy")[1] != "NotFoundException"


def test_p5_a_staged_table_that_was_made_has_not_lost(client: Client) -> None:
    """Who makes a table together with its rows, and does not hear the answer, must not delete the rows."""
    staged = client.create("u", **{"stage-create": True})["metadata"]
    client.create()
    engine = Engine(client.world.lake)
    body = {
        "requirements": [{"type": "assert-create"}],
        "updates": [*staged_updates(staged), *engine.updates(engine.file(columns(1)))],
    }
    first = client.ask("POST", f"{TABLES}/u", body)
    assert client.ask("POST", f"{TABLES}/u", body) == first
    other = client.create("w", **{"stage-create": True})["metadata"]
    foreign = {**body, "updates": [*staged_updates(other), *body["updates"][-2:]]}
    assert client.refused("POST", f"{TABLES}/u", foreign) == (409, "AlreadyExistsException")
    # One without rows is known by its uuid.
    empty = {"requirements": [{"type": "assert-create"}], "updates": staged_updates(other)}
    made = client.ask("POST", f"{TABLES}/w", empty)
    assert client.ask("POST", f"{TABLES}/w", empty) == made


def test_p5_the_whole_of_a_change_must_be_there_or_its_outcome_is_unknown(client: Client) -> None:
    """A snapshot that is there does not prove what was asked for beside it: neither yes nor no is told."""
    client.create()
    engine = Engine(client.world.lake)
    add, to_main = engine.updates(engine.file(columns(1)))
    client.commit("t", add)  # staged, as for write-audit-publish: no ref leads to it
    unknown = (500, "CommitStateUnknownException")
    assert client.refused("POST", f"{TABLES}/t", {"updates": [add, to_main]}) == unknown
    assert ids(client) == []
    assert client.refused("POST", f"{TABLES}/t", {"updates": [add, set_properties(a="b")]}) == unknown
    # The very request is recognised, and so is one whose other updates are in force, in whatever order they came.
    commits = client.commits()
    client.commit("t", add)
    client.commit("t", set_properties(a="b"))
    client.commit("t", to_main)
    client.commit("t", add, to_main, set_properties(a="b"))
    assert client.commits() == commits + 2
    # Somebody else has changed the property since: it may have been carried out, and was.
    client.commit("t", set_properties(a="c"))
    assert client.refused("POST", f"{TABLES}/t", {"updates": [add, to_main, set_properties(a="b")]}) == unknown


@pytest.mark.parametrize("is_remembered", [True, False])
def test_p5_a_snapshot_that_landed_and_was_expired_has_not_lost(client: Client, is_remembered: bool) -> None:
    """Its number was given, and nothing has it any more: the history of the lake may need its files."""
    client.create(properties={} if is_remembered else {"write.metadata.previous-versions-max": "1"})
    engine = Engine(client.world.lake)
    empty = [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}]
    body = {"requirements": empty, "updates": engine.updates(engine.file(columns(1)))}
    late = {"requirements": empty, "updates": engine.updates(engine.file(columns(9)))}  # has the same number
    client.ask("POST", f"{TABLES}/t", body)
    assert client.refused("POST", f"{TABLES}/t", late) == (409, "CommitFailedException")
    expire(client)
    unknown, lost = (500, "CommitStateUnknownException"), (409, "CommitFailedException")
    assert client.refused("POST", f"{TABLES}/t", body) == unknown
    # Who had the number then is told by older documents of the table, as far as they are known.
    assert client.refused("POST", f"{TABLES}/t", late) == (lost if is_remembered else unknown)
    # A number that nobody ever had proves that it is new.
    new = Engine(client.world.lake)
    fresh = {"requirements": empty, "updates": new.updates(new.file(columns(3)))}
    assert client.refused("POST", f"{TABLES}/t", fresh) == lost


def expire(client: Client) -> None:
    """Another snapshot comes, and the one before it goes."""
    engine = Engine(client.world.lake)
    before = engine.metadata.current_snapshot_id
    client.commit("t", *engine.updates(engine.file(columns(2))))
    client.commit("t", {"action": "remove-snapshots", "snapshot-ids": [before]})
    client.commit("t", set_properties(later="on"))


def test_p5_a_change_of_a_table_that_was_dropped_has_not_lost(client: Client) -> None:
    """The history of the lake needs its files, whatever is under its name now."""
    made = client.create()["metadata"]
    first, late = Engine(client.world.lake), Engine(client.world.lake)
    same = [{"type": "assert-table-uuid", "uuid": made["table-uuid"]}]
    body = {"requirements": same, "updates": first.updates(first.file(columns(1)))}
    never = {"requirements": same, "updates": late.updates(late.file(columns(2)))}
    client.ask("POST", f"{TABLES}/t", body)
    client.ask("DELETE", f"{TABLES}/t")
    unknown = (500, "CommitStateUnknownException")
    assert client.refused("POST", f"{TABLES}/t", body) == unknown
    assert client.refused("POST", f"{TABLES}/t", never) == (404, "NoSuchTableException")
    client.create()
    assert client.refused("POST", f"{TABLES}/t", body) == unknown
    assert client.refused("POST", f"{TABLES}/t", never) == (409, "CommitFailedException")
