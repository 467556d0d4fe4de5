"""Bodies that are nearly right: each part of a good request replaced by something else is refused, and never fatal."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fixtures.lakes import LakeWorld
from tests.fixtures.rest import app_of, serving
from tests.unit.test_server_iceberg_protocol import NS, SCHEMA, TABLES, VIEWS, WRITES, Client, staged_updates, version

pytestmark = [
    pytest.mark.proves("server/iceberg"),
    # A summary that does not say its operation: PyIceberg says so, and takes it for an overwrite.
    pytest.mark.filterwarnings("ignore:Encountered invalid snapshot summary"),
]

# What stands in the place of a part; each tells of another kind of mistake.
JUNK: list[Any] = [
    None,
    0,
    -1,
    2**70,
    1.5,
    True,
    "",
    "x",
    "\x00",
    "\ud800",
    [],
    [None],
    {},
    {"x": None},
    "default",
    "main",
]
SNAPSHOT = {
    "action": "add-snapshot",
    "snapshot": {
        "snapshot-id": 7,
        "parent-snapshot-id": 3,
        "sequence-number": 1,
        "timestamp-ms": 1,
        "manifest-list": "s3://x/y",
        "summary": {"operation": "append"},
        "schema-id": 0,
    },
}
UPDATES = [
    SNAPSHOT,
    {"action": "add-schema", "schema": SCHEMA},
    {"action": "set-current-schema", "schema-id": -1},
    {
        "action": "add-spec",
        "spec": {"spec-id": 0, "fields": [{"source-id": 1, "field-id": 1000, "transform": "day", "name": "b"}]},
    },
    {"action": "set-default-spec", "spec-id": 0},
    {
        "action": "add-sort-order",
        "sort-order": {
            "order-id": 1,
            "fields": [{"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}],
        },
    },
    {"action": "set-default-sort-order", "sort-order-id": 0},
    {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 7, "max-ref-age-ms": 1},
    {"action": "remove-snapshot-ref", "ref-name": "main"},
    {"action": "remove-snapshots", "snapshot-ids": [7]},
    {"action": "set-properties", "updates": {"a": "b"}},
    {"action": "remove-properties", "removals": ["a"]},
    {"action": "set-location", "location": "file:///x"},
    {"action": "assign-uuid", "uuid": "00000000-0000-0000-0000-000000000000"},
    {"action": "upgrade-format-version", "format-version": 3},
    {
        "action": "set-statistics",
        "snapshot-id": 7,
        "statistics": {
            "snapshot-id": 7,
            "statistics-path": "s3://x",
            "file-size-in-bytes": 1,
            "file-footer-size-in-bytes": 1,
            "blob-metadata": [{"type": "x", "snapshot-id": 7, "sequence-number": 1, "fields": [1]}],
        },
    },
    {"action": "remove-statistics", "snapshot-id": 7},
    {
        "action": "set-partition-statistics",
        "partition-statistics": {"snapshot-id": 7, "statistics-path": "s3://x", "file-size-in-bytes": 1},
    },
    {"action": "remove-partition-statistics", "snapshot-id": 7},
    {"action": "remove-partition-specs", "spec-ids": [0]},
    {"action": "remove-schemas", "schema-ids": [0]},
    {"action": "add-encryption-key", "encryption-key": {}},
]


def variants(body: Any) -> Iterator[Any]:
    """The body with each of its parts, one at a time, replaced by each kind of junk or left out."""

    def places(part: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        if path:
            yield path
        items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
        for name, inner in items:
            yield from places(inner, (*path, name))

    for path in places(body, ()):
        for junk in (*JUNK, ...):
            changed = copy.deepcopy(body)
            at = changed
            for step in path[:-1]:
                at = at[step]
            if junk is ...:
                del at[path[-1]]
            else:
                at[path[-1]] = junk
            yield changed


def test_nearly_right_requests_are_refused_and_never_fatal(lake: LakeWorld) -> None:
    with serving(app_of(lake.lake)) as served:
        client = Client(lake, served)
        client.create()
        view = next(body for _, path, body in WRITES if path == VIEWS)
        client.ask("POST", VIEWS, view)
        staged = client.create("u", **{"stage-create": True})["metadata"]
        creation = {"requirements": [{"type": "assert-create"}], "updates": staged_updates(staged)}
        views = [
            {"action": "add-schema", "schema": SCHEMA},
            {"action": "add-view-version", "view-version": version("SELECT 2")},
            {"action": "set-current-view-version", "view-version-id": -1},
        ]
        full = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}
        requests = [
            *((path, body) for method, path, body in WRITES if method == "POST" and "stage-create" not in (body or {})),
            *((f"{TABLES}/t", {"requirements": [full], "updates": [each]}) for each in UPDATES),
            (f"{TABLES}/fresh", creation),
            (f"{VIEWS}/x", {"updates": views}),
            (f"{NS}/default/properties", {"removals": ["a"], "updates": {"b": "c"}}),
        ]
        fatal = []
        for path, body in requests:
            for each in _few(variants(body)):
                text = json.dumps(each)
                answer = client.http.post(path, content=text)
                if answer.status_code >= 500:
                    fatal.append((path, text, answer.text))
                elif answer.status_code >= 400:
                    assert set(answer.json()["error"]) == {"message", "type", "code"}, (path, text)
        client.close()
        assert not fatal, "\n".join(str(each) for each in fatal)


def _few(found: Iterator[Any]) -> Iterator[Any]:
    """Every so many, so that all kinds of parts and of junk are met without taking minutes."""
    return (each for place, each in enumerate(found) if place % 5 == 0)
