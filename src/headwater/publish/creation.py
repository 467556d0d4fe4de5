"""Making a table, as a wish like any other."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyiceberg.schema import Schema

from headwater.catalog.model import Ref, TableKey
from headwater.kernel.ids import new_ulid
from headwater.publish.heads import HOME
from headwater.publish.model import TableWish, Wish, WriterKind
from headwater.tables.create import new_table, schema_from_arrow
from headwater.tables.model import Staged
from headwater.tables.partitions import AddPartitionField
from headwater.tables.snapshot import Staging

# Where new tables are put, each in a folder of its own, which it keeps when it is renamed.
TABLES = "tables"


def creation(
    key: TableKey,
    schema: pa.Schema | Schema,
    *,
    lake: str,
    ref: Ref,
    staging: Staging,
    actor: str,
    format_version: int,
    partition_by: Sequence[AddPartitionField],
    properties: Mapping[str, str] | None,
) -> Wish:
    """The wish for a new, empty table on a branch, whose sequence of versions is the table's own."""
    incarnation = new_ulid(staging.clock, staging.randomness)
    metadata = new_table(
        schema_from_arrow(schema, format_version=format_version) if isinstance(schema, pa.Schema) else schema,
        location=f"{lake}/{TABLES}/{'/'.join(_folder(each) for each in key.elements)}-{incarnation}",
        spec=partition_by,
        properties=properties,
        format_version=format_version,
        incarnation=incarnation,
        operation=staging.operation,
        clock=staging.clock,
        randomness=staging.randomness,
    )
    metadata = metadata.model_copy(update={"properties": {**metadata.properties, HOME: ref.incarnation}})
    return Wish(
        kind=WriterKind.SCHEMA_APPLY,
        actor=actor,
        message=f"create table {key}",
        branch=ref.name,
        branch_incarnation=ref.incarnation,
        operation=staging.operation,
        tables=(TableWish(key, None, Staged(metadata)),),
    )


def _folder(element: str) -> str:
    """A part of a table's name as the name of a folder; what makes it unique comes behind it."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", element)
