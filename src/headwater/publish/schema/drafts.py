"""One table in the making, after each change. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import assert_never

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from headwater.kernel.errors import UsageError
from headwater.publish.schema.demands import (
    Draft,
    keyed,
    refuse_mentioned,
    renamed,
    with_constraint,
    without_constraint,
)
from headwater.publish.schema.wanted import (
    AddColumnIfAbsent,
    AddConstraint,
    DropColumnIfPresent,
    DropConstraint,
    DropPartitionField,
    ReplacePartitionField,
    SetPrimaryKey,
    SetSortOrder,
    SetTableProperties,
    TableChange,
)
from headwater.tables.columns import (
    AddColumn,
    ColumnPath,
    DropColumn,
    MakeOptional,
    MakeRequired,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    SetDefault,
    SetDoc,
    SetIdentifierFields,
    WidenColumn,
    names_of,
    spelled,
)
from headwater.tables.evolve import change_schema, change_spec, set_properties, set_sort_order, upgrade
from headwater.tables.partitions import AddPartitionField, RemovePartitionField
from headwater.tables.properties import FORMAT_VERSION, STATISTICS_COLUMNS

# Properties that are about one column carry its name behind this.
_OF_COLUMN = ".column."


def changed(draft: Draft, change: TableChange, now: datetime) -> Draft:
    """The table after one change."""
    metadata = draft.metadata
    match change:
        case AddColumnIfAbsent(added):
            return draft if _exists(draft.schema, added.path) else changed(draft, added, now)
        case DropColumnIfPresent(path):
            return changed(draft, DropColumn(path), now) if _exists(draft.schema, path) else draft
        case AddConstraint(constraint):
            return with_constraint(draft, constraint)
        case DropConstraint(name, if_exists):
            return without_constraint(draft, name, if_exists=if_exists)
        case SetPrimaryKey(columns):
            return keyed(draft, columns, now)
        case SetSortOrder(fields):
            spelled_fields = [replace(each, source=_resolved(draft.schema, each.source)) for each in fields]
            return replace(draft, metadata=set_sort_order(metadata, spelled_fields, now))
        case SetTableProperties():
            return replace(draft, metadata=_with_properties(metadata, change, now))
        case AddPartitionField():
            return replace(draft, metadata=change_spec(metadata, [_spelled_field(draft, change)], now))
        case DropPartitionField(field):
            gone = RemovePartitionField(_partition_field(draft, field))
            return replace(draft, metadata=change_spec(metadata, [gone], now))
        case ReplacePartitionField(field, by):
            gone = RemovePartitionField(_partition_field(draft, field))
            return replace(draft, metadata=change_spec(metadata, [gone, _spelled_field(draft, by)], now))
        case _:
            return _with_columns(draft, change, now)


# Columns


def _with_columns(draft: Draft, change: SchemaChange, now: datetime) -> Draft:
    schema = draft.schema
    check_rows = draft.check_rows
    declared = draft.declared
    followed: tuple[str, str | None] | None = None
    match change:
        case AddColumn(path):
            change = replace(change, path=_parent_resolved(schema, path), after=_sibling(schema, path, change.after))
        case DropColumn(path):
            change = DropColumn(path=_resolved(schema, path))
            refuse_mentioned(draft, names_of(change.path), "dropped")
            followed = (spelled(change.path), None)
        case RenameColumn(path, name):
            change = RenameColumn(_resolved(schema, path), name)
            names = names_of(change.path)
            if len(names) > 1:
                refuse_mentioned(draft, names, "renamed")
            else:
                declared = tuple(renamed(each, draft.key, names[0], name) for each in declared)
            followed = (spelled(change.path), ".".join((*names[:-1], name)))
        case MakeRequired(path):
            # Only of whole columns are the rows looked at; within them, tables/ decides.
            whole = len(names_of(path)) == 1
            change = MakeRequired(_resolved(schema, path), no_nulls_known=whole)
            check_rows = check_rows or whole
        case MakeOptional(path):
            change = MakeOptional(_resolved(schema, path))
            if spelled(change.path) in draft.primary_key:
                raise UsageError(
                    f"column {spelled(change.path)} is part of the primary key, and is never null",
                    hint="DROP PRIMARY KEY first",
                    column=spelled(change.path),
                )
        case MoveColumn(path):
            change = replace(change, path=_resolved(schema, path), after=_sibling(schema, path, change.after))
        case WidenColumn(path) | SetDoc(path) | SetDefault(path):
            change = replace(change, path=_resolved(schema, path))
        case SetIdentifierFields():
            pass
        case _:
            assert_never(change)
    metadata = change_schema(draft.metadata, [change], now)
    if followed is not None:
        metadata = metadata.model_copy(update={"properties": _followed(metadata.properties, *followed)})
    return replace(draft, metadata=metadata, declared=declared, check_rows=check_rows)


def _followed(properties: Mapping[str, str], old: str, new: str | None) -> dict[str, str]:
    """What properties say about a column, or about what lies within it, goes with it; new None: it is dropped."""

    def follow(name: str) -> str | None:
        if name != old and not name.startswith(f"{old}."):
            return name
        return None if new is None else new + name.removeprefix(old)

    kept: dict[str, str] = {}
    for key, value in properties.items():
        about, mark, column = key.partition(_OF_COLUMN)
        if key == STATISTICS_COLUMNS:
            names = (follow(each.strip()) for each in value.split(","))
            kept[key] = ", ".join(each for each in names if each)
        elif not mark:
            kept[key] = value
        elif (name := follow(column)) is not None:
            kept[about + mark + name] = value
    return kept


# Names of columns; SQL does not tell capitals from small letters


def _resolved(schema: Schema, path: ColumnPath) -> tuple[str, ...]:
    """The path as the table spells it; what is not there stays as it is, for tables/ to complain about."""
    found: list[str] = []
    fields: Iterable[NestedField] = schema.fields
    for name in names_of(path):
        siblings = list(fields)
        field = next((each for each in siblings if each.name == name), None) or next(
            (each for each in siblings if each.name.lower() == name.lower()), None
        )
        found.append(field.name if field is not None else name)
        fields = _within(field.field_type) if field is not None else ()
    return tuple(found)


def _within(kind: IcebergType) -> tuple[NestedField, ...]:
    match kind:
        case StructType():
            return kind.fields
        case ListType():
            return (kind.element_field,)
        case MapType():
            return (kind.key_field, kind.value_field)
        case _:
            return ()


def _parent_resolved(schema: Schema, path: ColumnPath) -> tuple[str, ...]:
    *parents, name = names_of(path)
    return (*(_resolved(schema, tuple(parents)) if parents else ()), name)


def _sibling(schema: Schema, path: ColumnPath, name: str | None) -> str | None:
    return None if name is None else _resolved(schema, (*names_of(path)[:-1], name))[-1]


def _exists(schema: Schema, path: ColumnPath) -> bool:
    try:
        schema.find_field(".".join(_resolved(schema, path)))
    except ValueError:
        return False
    return True


# Partitions and properties


def _spelled_field(draft: Draft, field: AddPartitionField) -> AddPartitionField:
    return replace(field, source=_resolved(draft.schema, field.source))


def _partition_field(draft: Draft, wanted: str | AddPartitionField) -> str:
    """The name of the partition field that is meant; one that is not there stays as it is."""
    if isinstance(wanted, str):
        return wanted
    source = spelled(_resolved(draft.schema, wanted.source))
    for field in draft.metadata.spec().fields:
        if draft.schema.find_column_name(field.source_id) == source and str(field.transform) == wanted.transform:
            return field.name
    return f"{wanted.transform}({source})"


def _with_properties(metadata: TableMetadata, change: SetTableProperties, now: datetime) -> TableMetadata:
    values = dict(change.values)
    version = values.pop(FORMAT_VERSION, None)
    if version is not None:
        if not version.isdecimal():
            raise UsageError(f"{FORMAT_VERSION} is {version!r}, which is not a number", hint="2 or 3")
        metadata = upgrade(metadata, int(version), now)
    return set_properties(metadata, values, change.removed, now)
