"""How a table is born: what its maker says, and its first document."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from headwater.catalog.model import Ref, TableKey
from headwater.kernel.errors import UsageError
from headwater.kernel.ids import Ulid, new_ulid
from headwater.publish.constraints.declared import column_named
from headwater.publish.constraints.model import Constraint
from headwater.publish.heads import HOME
from headwater.publish.schema.types import key_objection
from headwater.publish.schema.wanted import CreateTable
from headwater.tables.create import new_table, schema_from_arrow
from headwater.tables.partitions import AddPartitionField
from headwater.tables.snapshot import Staging

# Where new tables and views are put, each in a folder of its own, which a table keeps when it is renamed.
TABLES, VIEWS = "tables", "views"


def creation(
    key: TableKey,
    schema: pa.Schema | Schema,
    *,
    format_version: int,
    partition_by: Sequence[AddPartitionField],
    properties: Mapping[str, str] | None,
    primary_key: Sequence[str],
    constraints: Sequence[Constraint],
) -> CreateTable:
    """The wish for a new, empty table. An Arrow schema is taken as it stands."""
    own = schema_from_arrow(schema, format_version=format_version) if isinstance(schema, pa.Schema) else schema
    return CreateTable(
        key,
        _keyed(own, primary_key) if primary_key else own,
        tuple(constraints),
        tuple(partition_by),
        dict(properties or {}),
        format_version,
    )


def _keyed(schema: Schema, primary_key: Sequence[str]) -> Schema:
    """The schema with these columns as its key: they are never null."""
    names = []
    for each in primary_key:
        column = column_named(schema, each)
        if column is None:
            raise UsageError(
                f"the primary key has {each}, which is no column",
                hint=f"the columns are {', '.join(field.name for field in schema.fields)}",
                column=each,
            )
        if objection := key_objection(schema.find_field(column).field_type):
            raise UsageError(f"column {column} cannot be in the primary key: {objection}", column=column)
        names.append(column)
    fields = [each.model_copy(update={"required": True}) if each.name in names else each for each in schema.fields]
    return Schema(
        *fields,
        schema_id=schema.schema_id,
        identifier_field_ids=sorted(each.field_id for each in fields if each.name in names),
    )


def born(wanted: CreateTable, *, lake: str, ref: Ref, staging: Staging) -> TableMetadata:
    """The first document of a table on a branch, whose sequence of versions is the table's own."""
    incarnation = new_ulid(staging.clock, staging.randomness)
    metadata = new_table(
        wanted.schema,
        location=place_of(lake, TABLES, wanted.key, incarnation),
        spec=wanted.partition_by,
        properties=wanted.properties,
        format_version=wanted.format_version,
        incarnation=incarnation,
        operation=staging.operation,
        clock=staging.clock,
        randomness=staging.randomness,
    )
    return metadata.model_copy(update={"properties": {**metadata.properties, HOME: ref.incarnation}})


def place_of(lake: str, folder: str, key: TableKey, incarnation: Ulid) -> str:
    """The folder of a new table or view."""
    return f"{lake}/{folder}/{'/'.join(_folder(each) for each in key.elements)}-{incarnation}"


def _folder(element: str) -> str:
    """A part of a name as the name of a folder; what makes it unique comes behind it."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", element)
