"""Tables with constraints, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from headwater.catalog.model import TableKey
from headwater.publish.constraints.codec import constraint_properties
from headwater.publish.constraints.model import Constraint
from headwater.tables.create import schema_from_arrow
from headwater.tables.operations import append
from tests.fixtures.lakes import LakeWorld


def create(
    lake: LakeWorld,
    name: str,
    rows: pa.Table,
    *,
    key: Sequence[str] = (),
    required: Sequence[str] = (),
    declared: Sequence[Constraint] = (),
    referenced_by: Sequence[str] = (),
    format_version: int = 2,
) -> None:
    """A table with these rows, and these demands on them."""
    schema = schema_with(rows.schema, key, required, format_version)
    lake.create(name, rows.slice(0, 0), schema=schema, format_version=format_version)
    demand(lake, name, declared, referenced_by)
    if rows.num_rows:
        lake.commit({name: append(lake.staging(), lake.table(name), rows)})


def demand(lake: LakeWorld, name: str, declared: Sequence[Constraint], referenced_by: Sequence[str] = ()) -> None:
    """Other constraints on a table, whatever its rows are."""
    properties = constraint_properties(declared, [TableKey.parse(each) for each in referenced_by])
    metadata = lake.table(name).metadata
    together = {**metadata.properties, **properties}
    kept = {key: value for key, value in together.items() if value is not None}
    lake.commit({name: metadata.model_copy(update={"properties": kept})})


def schema_with(arrow: pa.Schema, key: Sequence[str], required: Sequence[str], format_version: int = 2) -> Schema:
    """The schema for such rows, with a primary key and columns that are not null."""
    plain = schema_from_arrow(arrow, format_version=format_version)
    fields = [_with_required(each, required=each.name in (*key, *required)) for each in plain.fields]
    return Schema(*fields, identifier_field_ids=[each.field_id for each in fields if each.name in key])


def _with_required(field: NestedField, *, required: bool) -> NestedField:
    return field.model_copy(update={"required": required})


def rows_of(lake: LakeWorld, table: str) -> list[tuple[object, ...]]:
    """All rows of a table, in order."""
    return sorted((tuple(row.values()) for row in lake.lake.query(f"select * from {table}").to_pylist()), key=repr)
