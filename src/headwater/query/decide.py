"""How each file of a table is read, from metadata alone.

DuckDB's own Parquet reader maps columns by field id, and is right about names, additions and promotions of whole
columns. What it is not right about is read by `tables.read` and copied:

- a table with a name mapping: files without field ids would read as nothing but NULL
- a table with zoned nanoseconds: DuckDB cuts them to microseconds
- a struct within the table that was another one once: only whole columns are mapped by id
- a file with equality deletes
- a file that lacks a column of which its partition knows the value
- a file with more rows than a DuckDB bit string has places
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, FloatType, NestedField, PrimitiveType, TimestamptzNanoType

from headwater.query.model import OpenTable
from headwater.tables.model import FileTask, ScanPlan, TableCorruptError, UnsupportedTableError
from headwater.tables.properties import NAME_MAPPING

MOST_PLACES = 2**31 - 1


@dataclass(frozen=True)
class Layout:
    """The files of a scan by how they are read: natively, natively under a mask of deleted rows, or copied."""

    plain: tuple[FileTask, ...] = ()
    masked: tuple[FileTask, ...] = ()
    copied: tuple[FileTask, ...] = ()


def lay_out(plan: ScanPlan, also_deleted: Collection[str] = (), without_ids: Collection[str] = ()) -> Layout:
    """Sort the files. Rows of those in `also_deleted` are deleted by a transaction; `without_ids` have no field ids."""
    plain, masked, copied = [], [], []
    table_reason = copies_table(plan.metadata, plan.schema)
    for task in plan.tasks:
        if task.file.file_format is not FileFormat.PARQUET:
            raise UnsupportedTableError(
                f"{task.file.file_path} is {task.file.file_format}, and only Parquet can be queried",
                hint="rewrite the table's files as Parquet",
                path=task.file.file_path,
            )
        if table_reason or task.file.file_path in without_ids or copies_file(plan, task):
            copied.append(task)
        elif task.has_deletes or task.file.file_path in also_deleted:
            masked.append(task)
        else:
            plain.append(task)
    return Layout(tuple(plain), tuple(masked), tuple(copied))


def only_of(plan: ScanPlan, data_files: Collection[str] | None) -> ScanPlan:
    """The plan, cut down to these data files; None: all of them."""
    if data_files is None:
        return plan
    return replace(plan, tasks=tuple(task for task in plan.tasks if task.file.file_path in data_files))


def schema_at(table: OpenTable) -> Schema:
    """The schema that a scan of the table will have."""
    snapshot = None if table.snapshot_id is None else table.metadata.snapshot_by_id(table.snapshot_id)
    chosen = table.metadata.current_schema_id if snapshot is None else snapshot.schema_id
    return next((each for each in table.metadata.schemas if each.schema_id == chosen), table.metadata.schema())


def copies_table(metadata: TableMetadata, schema: Schema) -> str | None:
    """Why no file of the table can be read natively, if so."""
    if NAME_MAPPING in metadata.properties:
        return "it has a name mapping"
    for field_id, kind in index_by_id(schema).items():
        if isinstance(kind.field_type, TimestamptzNanoType):
            return f"{schema.find_column_name(field_id)} has zoned nanoseconds"
    for field in schema.fields:
        if not isinstance(field.field_type, PrimitiveType):
            if field.initial_default is not None:
                return f"{field.name} is nested and has a default"
            if any(_was_another(field, other) for other in metadata.schemas):
                return f"{field.name} is nested and has changed"
    return None


def copies_file(plan: ScanPlan, task: FileTask) -> str | None:
    """Why this one file cannot be read natively, if so."""
    if task.equality:
        return "it has equality deletes"
    if task.file.record_count > MOST_PLACES:
        return "it has too many rows"
    spec = plan.metadata.specs().get(task.file.spec_id)
    # Every writer of metrics counts the values of each column that it writes.
    counted = {**(task.file.value_counts or {}), **(task.file.column_sizes or {})}
    if spec is not None and counted:
        for field in spec.fields:
            if isinstance(field.transform, IdentityTransform) and field.source_id not in counted:
                return f"it may lack the column of {field.name}"
    return None


def check_rows(file: DataFile, row_count: int) -> None:
    """Refuse a file that has more or fewer rows than its manifest says: it is not the one that was committed."""
    if row_count != file.record_count:
        raise TableCorruptError(file.file_path, f"has {row_count} rows, and its manifest says {file.record_count}")


def may_hold_nan(tasks: Iterable[FileTask], field: NestedField) -> bool:
    """Whether NaN could be in this column of one of the files.

    DuckDB skips row groups by bounds that do not speak of NaN, which it yet takes for the greatest number.
    """
    if not isinstance(field.field_type, FloatType | DoubleType):
        return False
    return any((task.file.nan_value_counts or {}).get(field.field_id) != 0 for task in tasks)


def _was_another(field: NestedField, schema: Schema) -> bool:
    return any(each.field_id == field.field_id and each.field_type != field.field_type for each in schema.fields)
