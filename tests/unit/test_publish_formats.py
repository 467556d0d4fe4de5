"""The durable bytes of publishing: golden files that every later version must still read, and write the same."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2

from headwater.catalog.model import NamespaceContent, TableContent, TableKey, ViewContent
from headwater.kernel.ids import Ulid
from headwater.publish.codec import decode_sidecar, encode_sidecar
from headwater.publish.constraints.codec import CONSTRAINTS, REFERENCED_BY, constraint_properties, constraints_of
from headwater.publish.constraints.model import Cardinality, Check, ForeignKey, OnDelete
from headwater.publish.errors import SidecarCorruptError
from headwater.publish.model import PlannedHead, Replaced, Sidecar, WriterKind
from headwater.tables.model import TableCorruptError

GOLDEN = Path(__file__).parent / "golden"

ONE, TWO, THREE, FOUR = (Ulid(f"01ARZ3NDEKTSV4RRFFQ69G5FA{last}") for last in "VWXY")
A, B, C, NEW = (TableKey.parse(f"shop.{name}") for name in ("a", "b", "c", "new"))


def content(name: str, version: int) -> TableContent:
    return TableContent(f"id-{name}", f"file:///lake/{name}/metadata/{version:020}.metadata.json", 7, 1, 2, 3)


SIDECAR = Sidecar(
    operation=ONE,
    kind=WriterKind.SCHEMA_APPLY,
    actor="änn",
    message="two lines\nof why",
    branch="main",
    branch_incarnation=TWO,
    process=THREE,
    lease_until=datetime(2026, 11, 15, 9, 30, 0, 5, UTC),
    heads=(
        PlannedHead(A, "tables/a", "id-a", content("a", 4), 4, FOUR, content("a", 5)),
        PlannedHead(NEW, "tables/b", "id-b", content("b", 1), 1, ONE, content("b", 2), renamed_from=B),
        PlannedHead(TableKey.parse("shop.born"), "tables/d", "id-d", None, 0, TWO, content("d", 1)),
    ),
    drops={C: content("c", 9)},
    reads={TableKey.parse("shop.read"): content("r", 2), TableKey.parse("shop.absent"): None},
    properties={"headwater.merge.source": "dev"},
    others={
        TableKey((), "archive"): Replaced(None, NamespaceContent("ns", {"owner": "ann"})),
        TableKey.parse("shop.v"): Replaced(ViewContent("v", "file:///lake/v/1.metadata.json", 1, 0), None),
    },
    merge_parent="ab" * 32,
    since="cd" * 32,
)

DECLARED = (
    Check("positive", "amount > 0"),
    ForeignKey("of_customer", ("customer",), TableKey.parse("shop.customers"), ("id",), OnDelete.CASCADE),
    Cardinality("few", ("customer",), 1, 5),
    Cardinality("any", ("customer",)),
)
REFERRING = (TableKey(("shop", "deep"), "lines"), TableKey.parse("carts"))


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


def described(properties: dict[str, str]) -> TableMetadata:
    return TableMetadataV2(
        location="file:///lake/t",
        table_uuid=UUID(int=1),
        last_updated_ms=0,
        last_column_id=0,
        schemas=[Schema()],
        current_schema_id=0,
        partition_specs=[UNPARTITIONED_PARTITION_SPEC],
        properties=properties,
    )


def test_a_sidecar() -> None:
    assert decode_sidecar(golden("sidecar-1.json"), "x") == SIDECAR
    # The golden file has many lines, as it was written once; what is written now has one, and says the same.
    on_one_line = json.dumps(json.loads(golden("sidecar-1.json"))).encode()
    assert encode_sidecar(SIDECAR) == on_one_line
    assert decode_sidecar(on_one_line, "x") == SIDECAR


def test_constraints() -> None:
    properties = json.loads(golden("constraints-1.json"))
    assert constraint_properties(DECLARED, REFERRING) == properties
    found = constraints_of(described(properties))
    assert (found.declared, set(found.referenced_by)) == (DECLARED, set(REFERRING))


def test_damage_of_a_sidecar_is_named() -> None:
    data = golden("sidecar-1.json")
    bad = [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b"\xff",
        data[:-1],
        b'{"format":' + b"[" * 200_000,
        data.replace(b'"format": 1', b'"format": "x"'),
        data.replace(b'"format": 1', b'"format": 1e999'),
        re.sub(rb"2026-[^\"]*", b"0001-01-01T00:00:00+14:00", data),
        data.replace(b'"shop.new"', b'"shop.old"'),  # well-formed, and not what was written
    ]
    for each in bad:
        with pytest.raises(SidecarCorruptError, match="some/path"):
            decode_sidecar(each, "some/path")


def test_a_newer_sidecar_is_refused() -> None:
    with pytest.raises(SidecarCorruptError, match=r"some/path has format 2, newer than 1.*upgrade"):
        decode_sidecar(golden("sidecar-1.json").replace(b'"format": 1', b'"format": 2'), "some/path")


@pytest.mark.parametrize("name", [CONSTRAINTS, REFERENCED_BY])
@pytest.mark.parametrize("text", ["", '""', "{", "{}", "7", '[{"kind": "exclusion"}]', "[[]]", "[7]", "[" * 200_000])
def test_constraints_that_cannot_be_read_are_an_error_and_no_absence(name: str, text: str) -> None:
    with pytest.raises(TableCorruptError, match=name):
        constraints_of(described({name: text}))
