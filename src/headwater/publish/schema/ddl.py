"""The schema as a script that makes it again. Pure.

What tables demand of each other stands behind all of them, views are in any order: a script judges its end state.
Properties that the lake keeps for itself, and those that every new table has, are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime, time
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform, VoidTransform
from pyiceberg.types import NestedField
from pyiceberg.view.metadata import ViewMetadata

from headwater.catalog.model import TableKey
from headwater.publish.constraints.codec import constraints_of
from headwater.publish.constraints.model import Cardinality, Check, Constraint, ForeignKey
from headwater.publish.schema.expressions import cardinality_text
from headwater.publish.schema.types import named, quoted, type_text
from headwater.query.views import DUCKDB
from headwater.tables.create import DEFAULT_PROPERTIES
from headwater.tables.model import UnsupportedTableError
from headwater.tables.partitions import AddPartitionField, new_spec
from headwater.tables.properties import (
    FORMAT_VERSION,
    NAME_MAPPING,
    OWN_PREFIX,
    STATISTICS_COLUMNS,
    STATISTICS_PARTITIONS,
)
from headwater.tables.views import current_version

_ROOT = -1  # what PyIceberg calls the parent of a table's own columns


def schema_script(
    namespaces: Mapping[TableKey, Mapping[str, str]],
    tables: Mapping[TableKey, TableMetadata],
    views: Mapping[TableKey, ViewMetadata],
) -> str:
    """The script that makes these."""
    parts = [namespace_ddl(key, each) for key, each in sorted(namespaces.items())]
    parts += [table_ddl(key, each) for key, each in sorted(tables.items())]
    parts += [text for key, each in sorted(tables.items()) if (text := _order_ddl(key, each))]
    parts += [view_ddl(key, each) for key, each in sorted(views.items())]
    return "".join(f"{each};\n\n" for each in parts)[:-1]


def namespace_ddl(key: TableKey, properties: Mapping[str, str]) -> str:
    """CREATE NAMESPACE, for those that a new lake has already too."""
    return f"CREATE NAMESPACE IF NOT EXISTS {_name(key)}" + (f" WITH {_properties(properties)}" if properties else "")


def table_ddl(key: TableKey, metadata: TableMetadata) -> str:
    """CREATE TABLE, with everything but the order of its rows."""
    schema, known = metadata.schema(), constraints_of(metadata)
    lines = [_column(each) for each in schema.fields]
    if known.primary_key:
        lines.append(f"PRIMARY KEY ({_names(known.primary_key)})")
    lines += [f"CONSTRAINT {named(each.name)} {_constraint(each)}" for each in known.declared]
    text = f"CREATE TABLE {_name(key)} (\n    " + ",\n    ".join(lines) + "\n)"
    if fields := _partition_fields(metadata.spec(), schema):
        text += f"\nPARTITIONED BY ({', '.join(fields)})"
    return text + f"\nTBLPROPERTIES {_properties(_own_properties(metadata))}"


def view_ddl(key: TableKey, view: ViewMetadata) -> str:
    """CREATE VIEW."""
    version = current_version(view)
    texts = {each.root.dialect.casefold(): each.root.sql for each in version.representations}
    if DUCKDB not in texts:
        raise UnsupportedTableError(
            f"view {key} has no SQL for {DUCKDB}, only for {', '.join(sorted(texts))}", hint="replace it", view=str(key)
        )
    columns = next(each for each in view.schemas if each.schema_id == version.schema_id).fields
    properties = {name: value for name, value in view.properties.items() if not name.startswith(OWN_PREFIX)}
    told = f"\nTBLPROPERTIES {_properties(properties)}" if properties else ""
    return f"CREATE VIEW {_name(key)} ({_names(each.name for each in columns)}){told}\nAS {texts[DUCKDB]}"


def _column(field: NestedField) -> str:
    text = f"{named(field.name)} {type_text(field.field_type)}"
    if field.required:
        text += " NOT NULL"
    # What rows of older files show is of no use to a table that has none.
    if field.write_default is not None:
        text += f" DEFAULT {_value(field)}"
    return text + (f" COMMENT {quoted(field.doc)}" if field.doc else "")


def _value(field: NestedField) -> str:
    value: Any = field.write_default
    match value:
        case bool():
            return str(value).upper()
        case int() | float():
            return repr(value)
        case bytes():
            return f"X'{value.hex()}'"
        case datetime() | date() | time():
            return quoted(value.isoformat())
        case _:
            return quoted(str(value))


def _constraint(constraint: Constraint) -> str:
    match constraint:
        case Check(_, expression):
            return f"CHECK ({expression})"
        case ForeignKey():
            parent = f"{_name(constraint.parent)} ({_names(constraint.parent_columns)})"
            on_delete = str(constraint.on_delete).upper()
            return f"FOREIGN KEY ({_names(constraint.columns)}) REFERENCES {parent} ON DELETE {on_delete}"
        case Cardinality():
            return f"CHECK ({cardinality_text(constraint, _names(constraint.columns))})"


def _partition_fields(spec: PartitionSpec, schema: Schema) -> list[str]:
    found = []
    for field in spec.fields:
        if isinstance(field.transform, VoidTransform):
            continue
        path = _path(schema, field.source_id)
        column = schema.find_column_name(field.source_id) or ""
        unnamed = new_spec(schema, [AddPartitionField(column, str(field.transform))]).fields[0].name
        renamed = f" AS {named(field.name)}" if field.name != unnamed else ""
        found.append(transformed(field.transform, path) + renamed)
    return found


def _order_ddl(key: TableKey, metadata: TableMetadata) -> str:
    fields = []
    for field in metadata.sort_order().fields:
        text = transformed(field.transform, _path(metadata.schema(), field.source_id))
        direction = "DESC" if field.direction is SortDirection.DESC else "ASC"
        nulls = "FIRST" if field.null_order is NullOrder.NULLS_FIRST else "LAST"
        fields.append(f"{text} {direction} NULLS {nulls}")
    return f"ALTER TABLE {_name(key)} WRITE ORDERED BY {', '.join(fields)}" if fields else ""


def transformed(transform: object, path: str) -> str:
    """A transform of a column, as it is written in a script."""
    match transform:
        case IdentityTransform():
            return path
        case BucketTransform():
            return f"bucket({transform.num_buckets}, {path})"
        case TruncateTransform():
            return f"truncate({transform.width}, {path})"
        case _:
            return f"{transform}({path})"


def _path(schema: Schema, field_id: int) -> str:
    """The names on the way to a column; a name may have a dot in it."""
    names = [schema.find_field(field_id).name]
    while (field_id := schema._lazy_id_to_parent.get(field_id, _ROOT)) != _ROOT:
        names.append(schema.find_field(field_id).name)
    return ".".join(named(each) for each in reversed(names))


def _own_properties(metadata: TableMetadata) -> dict[str, str]:
    """What its maker has set. A name mapping speaks of ids, which are others in a new table."""
    own = {
        name: value
        for name, value in metadata.properties.items()
        if (not name.startswith(OWN_PREFIX) or name in (STATISTICS_COLUMNS, STATISTICS_PARTITIONS))
        and name != NAME_MAPPING
        and DEFAULT_PROPERTIES.get(name) != value
    }
    return {FORMAT_VERSION: str(metadata.format_version), **dict(sorted(own.items()))}


def _properties(values: Mapping[str, str]) -> str:
    return f"({', '.join(f'{quoted(name)} = {quoted(value)}' for name, value in values.items())})"


def _name(key: TableKey) -> str:
    return ".".join(named(each) for each in key.elements)


def _names(names: Iterable[str]) -> str:
    return ", ".join(named(each) for each in names)
