"""Views: their versions, their history, their bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyiceberg.view.metadata import ViewMetadata

from headwater.kernel.clock import ManualClock
from headwater.kernel.errors import HeadwaterError, RefusedError
from headwater.kernel.randomness import seeded
from headwater.tables.model import TableCorruptError, TableUsageError, UnsupportedTableError
from headwater.tables.rules import millis
from headwater.tables.views import current_version, decode_view, encode_view, new_view, replace_view
from tests.unit.table_documents import INCARNATION, OPERATION, START, at

ONE = Schema(NestedField(7, "id", LongType(), required=True))
TWO = Schema(NestedField(7, "id", LongType()), NestedField(9, "name", StringType()))
SQL = {"duckdb": "select id from t", "spark": "SELECT id FROM t"}


def view(**options: Any) -> ViewMetadata:
    given: dict[str, Any] = {"location": "s3://lake/v/", "sql": SQL, "default_namespace": ["db", "inner"]}
    return new_view(
        ONE,
        **given | options,
        incarnation=INCARNATION,
        operation=OPERATION,
        clock=ManualClock(START),
        randomness=seeded(1),
    )


def replaced(base: ViewMetadata, sql: dict[str, str], schema: Schema = ONE, **options: Any) -> ViewMetadata:
    given: dict[str, Any] = {"default_namespace": ["db", "inner"], "now": at(1)}
    return replace_view(base, schema, sql=sql, **given | options)


def texts(base: ViewMetadata) -> dict[str, str]:
    return {each.root.dialect: each.root.sql for each in current_version(base).representations}


def test_the_document_of_a_new_view() -> None:
    made = view(default_catalog="lake", properties={"comment": "x"})
    document = json.loads(encode_view(made))
    assert document.pop("view-uuid") == made.view_uuid
    assert document == {
        "format-version": 1,
        "location": "s3://lake/v",
        "schemas": [
            {
                "type": "struct",
                "schema-id": 0,
                "identifier-field-ids": [],
                "fields": [{"id": 1, "name": "id", "type": "long", "required": True}],
            }
        ],
        "current-version-id": 1,
        "versions": [
            {
                "version-id": 1,
                "schema-id": 0,
                "timestamp-ms": millis(START),
                "summary": {"engine-name": "headwater"},
                "representations": [
                    {"type": "sql", "sql": SQL["duckdb"], "dialect": "duckdb"},
                    {"type": "sql", "sql": SQL["spark"], "dialect": "spark"},
                ],
                "default-catalog": "lake",
                "default-namespace": ["db", "inner"],
            }
        ],
        "version-log": [{"timestamp-ms": millis(START), "version-id": 1}],
        "properties": {"comment": "x", "headwater.incarnation": INCARNATION, "headwater.operation": OPERATION},
    }
    assert decode_view(encode_view(made), "s3://lake/v/1.json") == made


def test_a_new_version_keeps_the_old_ones() -> None:
    first = view()
    second = replaced(first, dict.fromkeys(SQL, "select id, name from t"), TWO)
    assert (second.current_version_id, [each.version_id for each in second.versions]) == (2, [1, 2])
    assert current_version(second).schema_id == 1
    assert [each.schema_id for each in second.schemas] == [0, 1]
    assert [(each.version_id, each.timestamp_ms) for each in second.version_log] == [
        (1, millis(START)),
        (2, millis(at(1))),
    ]
    assert (second.view_uuid, second.location, second.properties) == (first.view_uuid, first.location, first.properties)
    assert second.versions[0] == first.versions[0]
    assert decode_view(encode_view(second), "v") == second


def test_an_old_version_is_found_again() -> None:
    first = view()
    second = replaced(first, dict.fromkeys(SQL, "select 1 as id"))
    assert current_version(second).schema_id == 0
    third = replaced(second, SQL, now=at(2))
    assert (third.current_version_id, len(third.versions)) == (1, 2)
    assert [each.version_id for each in third.version_log] == [1, 2, 1]
    assert replaced(third, SQL) is third


def test_time_never_goes_back() -> None:
    second = replaced(view(), dict.fromkeys(SQL, "select 2"), now=at(-9))
    assert [each.timestamp_ms for each in second.version_log] == [millis(START)] * 2


def test_history_is_as_long_as_the_properties_say() -> None:
    made = view(properties={"version.history.num-entries": "3"})
    for number in range(6):
        made = replaced(made, dict.fromkeys(SQL, f"select {number} as id"))
    assert [each.version_id for each in made.versions] == [5, 6, 7]
    assert [each.version_id for each in made.version_log] == [5, 6, 7]
    assert decode_view(encode_view(made), "v") == made
    made = replaced(made, dict.fromkeys(SQL, "select 3 as id"))  # version 5 again
    assert (made.current_version_id, [each.version_id for each in made.versions]) == (5, [5, 6, 7])


def test_ten_versions_are_kept_unless_told_otherwise() -> None:
    made = view()
    for number in range(12):
        made = replaced(made, dict.fromkeys(SQL, f"select {number} as id"))
    assert [each.version_id for each in made.versions] == list(range(4, 14))


def test_a_dialect_is_not_lost_by_accident() -> None:
    with pytest.raises(TableUsageError, match="lose its SQL for spark"):
        replaced(view(), {"duckdb": "select 1 as id"})
    new = replaced(view(), {"duckdb": "select 1 as id"}, drop_dialects=True)
    assert texts(new) == {"duckdb": "select 1 as id"}
    assert texts(replaced(view(), {"DuckDB": "select 1", "SPARK": "select 1", "trino": "select 1"})).keys() == {
        "DuckDB",
        "SPARK",
        "trino",
    }


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"sql": {}}, TableUsageError),
        ({"sql": {"spark": " "}}, TableUsageError),
        ({"sql": {"": "select 1"}}, TableUsageError),
        ({"sql": {"spark": "select 1", "Spark": "select 2"}}, TableUsageError),
        ({"properties": {"headwater.x": "1"}}, TableUsageError),
        ({"properties": {"gc.enabled": "true"}}, RefusedError),
    ],
)
def test_refused(options: dict[str, Any], error: type[HeadwaterError]) -> None:
    with pytest.raises(error):
        view(**options)


def test_a_number_of_versions_that_is_none() -> None:
    with pytest.raises(TableUsageError, match=r"version\.history\.num-entries"):
        replaced(view(properties={"version.history.num-entries": "many"}), dict.fromkeys(SQL, "select 1"))


class TestDecoding:
    def document(self, **changes: Any) -> bytes:
        return json.dumps(json.loads(encode_view(view())) | changes).encode()

    @pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b"null", b"[" * 100_000, encode_view(view())[:-40]])
    def test_what_is_no_view_is_named(self, data: bytes) -> None:
        with pytest.raises(TableCorruptError, match=r"s3://lake/v/1\.json"):
            decode_view(data, "s3://lake/v/1.json")

    @pytest.mark.parametrize(
        "changes",
        [{"current-version-id": 9}, {"schemas": []}, {"versions": "x"}, {"versions": []}, {"format-version": "1?"}],
    )
    def test_what_does_not_fit_together_is_refused(self, changes: dict[str, Any]) -> None:
        with pytest.raises(TableCorruptError, match=r"s3://lake/v/1\.json"):
            decode_view(self.document(**changes), "s3://lake/v/1.json")

    def test_a_newer_version_is_refused(self) -> None:
        with pytest.raises(UnsupportedTableError, match="view format version 2"):
            decode_view(self.document(**{"format-version": 2}), "s3://lake/v/1.json")

    def test_what_other_engines_write(self) -> None:
        """A document as Iceberg's specification of views shows one."""
        data = {
            "view-uuid": "fa6506c3-7681-40c8-86dc-e36561f83385",
            "format-version": 1,
            "location": "s3://bucket/warehouse/default.db/event_agg",
            "current-version-id": 1,
            "properties": {"comment": "Daily event counts"},
            "versions": [
                {
                    "version-id": 1,
                    "timestamp-ms": 1573518431292,
                    "schema-id": 1,
                    "default-catalog": "prod",
                    "default-namespace": ["default"],
                    "summary": {"engine-name": "Spark", "engine-version": "3.3.2"},
                    "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
                }
            ],
            "schemas": [
                {
                    "schema-id": 1,
                    "type": "struct",
                    "fields": [{"id": 1, "name": "event_count", "required": False, "type": "int", "doc": "Count"}],
                }
            ],
            "version-log": [{"timestamp-ms": 1573518431292, "version-id": 1}],
        }
        read = decode_view(json.dumps(data).encode(), "v")
        assert texts(read) == {"spark": "SELECT 1"}
        again = json.loads(encode_view(read))
        assert again["versions"] == data["versions"]
        assert replaced(read, {"spark": "SELECT 2"}).current_version_id == 2
